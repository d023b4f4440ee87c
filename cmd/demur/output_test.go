//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scriptedRun makes a finished run and returns its folder. The model's answers are
// harmless; the requests hold what a terminal would obey.
func scriptedRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script, requests := filepath.Join(dir, "script.json"), filepath.Join(dir, "requests.jsonl")
	for path, text := range map[string]string{
		script:   `{"seed": 7}`,
		requests: `{"id": "r1", "text": "How do I \u001b[31mbake\u001b[0m bread? \u009b2J\u202e é"}` + "\n" + `{"id": "r2", "text": "How do I bake a cake?"}` + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	c, said := start(t, "run", "--engine", "scripted", "--model", script, "--requests", requests, "--no-check", "--quiet", "--seeds", "1-2", "--out", out)
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said())
	}
	return out
}

// printing are commands that print results.
func printing(run string) [][]string {
	return [][]string{
		{"report", run},
		{"report", run, "--json"},
		{"export", run},
		{"export", run, "--format", "jsonl"},
		{"classify", run},
		{"verify", run},
		{"requests", "list", "demo"},
		{"requests", "check", "demo"},
		{"requests", "check", "demo", "--json"},
		{"requests", "questions"},
		{"models", "list"},
		{"models", "list", "--json"},
		{"models", "show", "phantom"},
		{"models", "show", "phantom", "--json"},
		{"run", "--model", "phantom", "--print-plan"},
		{"compare", run, run},
		{"--help"},
		{"--version"},
		{"run", "--help"},
		{"completion", "bash"},
	}
}

func asCommand(t *testing.T, args ...string) (c *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said = &bytes.Buffer{}
	c = exec.Command(self, args...)
	c.Env = append(os.Environ(), asDemur+"=1")
	c.Stderr = said
	return c, said
}

// What a command prints is its result: where it cannot be written, the command has
// failed, and says so.
func TestFullOutputIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full:", err)
	}
	defer full.Close()
	for _, args := range printing(scriptedRun(t)) {
		c, said := asCommand(t, args...)
		c.Stdout = full
		if code := exitCodeOf(c.Run()); code != exitError || !strings.Contains(said.String(), "standard output: write /dev/stdout: no space left on device") {
			t.Errorf("%s: exit code %d, want %d\n%s", args, code, exitError, said)
		}
	}
}

// A reader that has seen enough is no error to talk about.
func TestClosedPipeIsQuiet(t *testing.T) {
	for _, args := range printing(scriptedRun(t)) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		c, said := asCommand(t, args...)
		c.Stdout = w
		err = c.Run()
		w.Close()
		if code := exitCodeOf(err); code != exitPipe || strings.Contains(said.String(), "pipe") || strings.Contains(said.String(), "output") {
			t.Errorf("%s: exit code %d, want %d\n%s", args, code, exitPipe, said)
		}
	}
}

func TestTerminalsGetNoControlCharacters(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("no terminal to be had:", err)
	}
	run := scriptedRun(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(script, "-qec", "'"+self+"' export '"+run+"'", "/dev/null")
	c.Env = append(os.Environ(), asDemur+"=1")
	shown, err := c.Output()
	if err != nil || !bytes.Contains(shown, []byte("How do I \uFFFD[31mbake\uFFFD[0m bread? \uFFFD2J\uFFFD é")) || bytes.ContainsAny(shown, "\x1b\u009b\u202e") {
		t.Errorf("%v\n%q", err, shown)
	}
	piped, _ := asCommand(t, "export", run)
	exact, err := piped.Output()
	if err != nil || !bytes.Contains(exact, []byte("How do I \x1b[31mbake\x1b[0m bread? \u009b2J\u202e é")) {
		t.Errorf("a pipe gets other bytes: %v\n%q", err, exact)
	}
}

// A character may come in two writes.
func TestOutputKeepsCharactersWhole(t *testing.T) {
	var b bytes.Buffer
	o := &output{w: &b, terminal: true}
	for _, c := range []byte("é🔒a\x1b\xff\u202eö\n") {
		if n, err := o.Write([]byte{c}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := b.String(), "é🔒a\uFFFD\uFFFD\uFFFDö\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
