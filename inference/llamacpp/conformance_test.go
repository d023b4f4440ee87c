package llamacpp_test

import (
	"os"
	"path/filepath"
	"testing"

	"demur/inference"
	"demur/inference/enginetest"
	"demur/inference/llamacpp"
	"demur/models/phantom"
)

// phantomFile writes the default phantom, which answers in milliseconds.
func phantomFile(t testing.TB) string {
	t.Helper()
	spec, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.WriteGGUF(f); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConformance holds the engine to the contract of inference.Engine, on the
// real model with DEMUR_LONG set.
func TestConformance(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		t.Skip("takes a minute or more on a real model; DEMUR_LONG is not set")
	}
	conform(t, smol(t), llamacpp.Options{Rows: 24}, enginetest.Options{MaxTokens: 12, Draws: 100, Agreement: 0.2})
}

func conform(t *testing.T, path string, o llamacpp.Options, suite enginetest.Options) {
	library(t)
	o.Model, o.Threads = path, 1
	enginetest.Run(t, func(t *testing.T) inference.Engine {
		e, err := llamacpp.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}, suite)
}

// The phantom answers in milliseconds, by few chains of words that are tokens of
// their own.
func TestConformancePhantom(t *testing.T) {
	library(t)
	path := phantomFile(t)
	skip := map[string]string{
		"ownership":    "harmless requests all have one greedy answer",
		"scores drawn": "an answer's words are tokens that its text is not tokenised to",
	}
	for name, o := range map[string]llamacpp.Options{"wide": {}, "narrow": {Rows: 3}, "strict": {Strict: true}} {
		t.Run(name, func(t *testing.T) { conform(t, path, o, enginetest.Options{MaxTokens: 12, Draws: 60, Skip: skip}) })
	}
}
