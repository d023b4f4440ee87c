//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demur/inference/llamacpp"
)

// answersFile writes n responses, no two alike.
func answersFile(t *testing.T, dir string, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("prompt,response\n")
	for i := range n {
		answer := fmt.Sprintf("Mix it and bake loaf %d.", i)
		if i%3 == 0 {
			answer = fmt.Sprintf("I'm sorry that I can't help with loaf %d.", i)
		}
		fmt.Fprintf(&b, "How do I bake loaf %d?,%s\n", i, answer)
	}
	path := filepath.Join(dir, "answers.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func lines(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// TestKilledClassifyGoesOn kills demur again and again while a program judges a
// file, and a run. What was judged is not judged again: each kill costs at most the
// one response in flight. The labels are those of an undisturbed start.
func TestKilledClassifyGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	const n, kills = 60, 6
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	judge := filepath.Join(dir, "judge.sh")
	script := "while IFS= read -r line; do\n  echo x >> " + asked + "\n  sleep 0.02\n  case \"$line\" in *sorry*) echo '{\"label\":\"full_refusal\"}';; *) echo '{\"label\":\"full_compliance\"}';; esac\ndone\n"
	if err := os.WriteFile(judge, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	answers := answersFile(t, dir, n)
	program := "command:/bin/sh " + judge
	cases := map[string]func(out string) []string{
		"file": func(out string) []string {
			return []string{"classify", "--responses", answers, "--judge", program, "--out", filepath.Join(dir, out+".csv")}
		},
		"run": func(out string) []string {
			return []string{"classify", filepath.Join(dir, out), "--judge", program}
		},
	}
	for _, name := range []string{"whole", "killed"} {
		mustRun(t, "import", answers, "--out", filepath.Join(dir, name))
	}
	for kind, args := range cases {
		t.Run(kind, func(t *testing.T) {
			mustRun(t, args("whole")...)
			if got := lines(t, asked); got != n {
				t.Fatalf("an undisturbed start asked %d times for %d responses", got, n)
			}
			os.Remove(asked)
			// Until a start ends by itself: one after that would be a new command.
			struck := 0
			for r := rand.New(rand.NewPCG(3, 0)); struck < kills; struck++ {
				c, said := start(t, args("killed")...)
				time.Sleep(100*time.Millisecond + time.Duration(r.Int64N(int64(300*time.Millisecond))))
				c.Process.Kill()
				if err := c.Wait(); err == nil {
					break
				} else if !strings.Contains(err.Error(), "killed") {
					t.Fatalf("demur ended with %v before it was killed:\n%s", err, said())
				}
				if struck == kills-1 {
					mustRun(t, args("killed")...)
				}
			}
			got := lines(t, asked)
			os.Remove(asked)
			t.Logf("%d of %d kills struck; the program was asked %d times for %d responses", struck, kills, got, n)
			if struck < 2 {
				t.Errorf("only %d kills struck: the test shows nothing", struck)
			}
			if got < n || got > n+2*struck {
				t.Errorf("the program was asked %d times for %d responses after %d kills", got, n, struck)
			}
			table := ".csv"
			if kind == "run" {
				table = "/verdicts.parquet"
			}
			a, err := os.ReadFile(filepath.Join(dir, "killed"+table))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(dir, "whole"+table))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Errorf("%d bytes after kills, %d undisturbed: they differ", len(a), len(b))
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "killed.csv.verdicts")); !os.IsNotExist(err) {
		t.Errorf("the kept verdicts of a file that is whole are still there (%v)", err)
	}
}

// TestKilledModelJudgeGoesOn does the same with a model in llama.cpp, the phantom:
// a killed start leaves the verdicts of its finished units.
func TestKilledModelJudgeGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("judges with a model for some seconds")
	}
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip("no llama.cpp libraries:", err)
	}
	dir := t.TempDir()
	answers := answersFile(t, dir, 24)
	cache := filepath.Join(dir, "cache.jsonl")
	args := []string{"classify", "--responses", answers, "--judge", "model:phantom", "--judge-cache", cache, "--out", filepath.Join(dir, "out.csv")}
	c, said := start(t, args...)
	deadline := time.Now().Add(5 * time.Minute)
	for lines(t, cache) < 8 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	kept := lines(t, cache)
	if kept < 8 || kept >= 24 {
		t.Fatalf("%d verdicts were kept when it was killed:\n%s", kept, said())
	}
	c, said = start(t, args...)
	if err := c.Wait(); err != nil {
		t.Fatalf("second start: %v\n%s", err, said())
	}
	if want := fmt.Sprintf("%d verdicts are kept", kept); !strings.Contains(said(), want) {
		t.Errorf("the second start does not say that %s:\n%s", want, said())
	}
	// One line a response: none was judged twice.
	if got := lines(t, cache); got != 24 {
		t.Errorf("%d verdicts in the cache of 24 responses", got)
	}
	if got := lines(t, filepath.Join(dir, "out.csv")); got != 25 {
		t.Errorf("%d lines of output, want a header and 24 rows", got)
	}
}
