//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demur/data"
	"demur/inference/ollama"
)

// TestRunThroughOllama runs one plan through a real Ollama server and the same
// blob through llama.cpp. The server's address is in DEMUR_TEST_OLLAMA, its model
// store in OLLAMA_MODELS (tools/test-real.sh starts one).
func TestRunThroughOllama(t *testing.T) {
	base := os.Getenv("DEMUR_TEST_OLLAMA")
	if base == "" {
		t.Skip("DEMUR_TEST_OLLAMA names no server; tools/test-real.sh starts one")
	}
	model := testModel(t)
	if err := ollama.CreateFromGGUF(context.Background(), base, "demur-test", model); err != nil {
		t.Fatal(err)
	}
	phantom, err := resolveModel(context.Background(), "phantom")
	if err != nil {
		t.Fatal(err)
	}
	if err := ollama.CreateFromGGUF(context.Background(), base, "demur-phantom", phantom.Path); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"server":                     {"--model", "ollama:demur-test", "--base-url", base},
		"server, phantom":            {"--model", "ollama:demur-phantom", "--base-url", base},
		"the same blob in llama.cpp": {"--engine", "llamacpp", "--model", "ollama:demur-test"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			mustRun(t, append([]string{
				"run", "--requests", "demo", "--limit", "2", "--variants", "base", "--temperatures", "0,1", "--seeds", "1-2", "--max-tokens", "16", "--ctx", "512",
				"--out", out, "--quiet",
			}, args...)...)
			trials, predictions := 0, 0
			for row, err := range data.ReadTable[data.Trial](out, data.Trials) {
				if err != nil {
					t.Fatal(err)
				}
				if row.ErrorKind != "" {
					t.Errorf("trial %s of %s: %s", row.ID, row.RequestID, row.ErrorKind)
				}
				trials++
			}
			readings := map[string]int{}
			for row, err := range data.ReadTable[data.Prediction](out, data.Predictions) {
				if err != nil {
					t.Fatal(err)
				}
				readings[row.Reading]++
				if row.Reading == data.Grammar && row.Outcome != data.WillRefuse && row.Outcome != data.WillComply {
					t.Errorf("bound prediction of %s: %s, text %q", row.RequestID, row.Outcome, text(row.Text))
				}
				predictions++
			}
			if trials != 8 {
				t.Errorf("%d trials, want 8", trials)
			}
			wantExact := 0
			if strings.Contains(name, "llama.cpp") {
				wantExact = 2
			}
			if readings[data.Free] != 2 || readings[data.Grammar] != 2 || readings[data.Exact] != wantExact {
				t.Errorf("readings %v, want 2 free, 2 grammar, %d exact", readings, wantExact)
			}
		})
	}
}
