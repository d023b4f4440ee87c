//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"demur/data"
	"demur/inference/llamacpp"
	"demur/protocol"
)

// consoleBlock is a block of terminal lines in a document.
var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// documents are those whose commands are tried.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, p := range append(paths, "../../README.md") {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(p)] = string(b)
	}
	return texts
}

// TestDocumentedCommandsExist tries every demur command of the documents' console
// blocks as far as its flags: names and flags must be known.
func TestDocumentedCommandsExist(t *testing.T) {
	tried := 0
	for name, text := range documents(t) {
		for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
			for _, line := range strings.Split(block[1], "\n") {
				command, ok := strings.CutPrefix(line, "$ bin/demur ")
				if !ok {
					continue
				}
				command, _, _ = strings.Cut(command, "  #")
				command, _, _ = strings.Cut(command, " | ")
				command, _, _ = strings.Cut(command, " > ")
				tried++
				e := &env{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
				root := newRoot(e)
				sub, rest, err := root.Find(strings.Fields(command))
				if err != nil || sub == root {
					t.Errorf("%s: %q: no such command", name, command)
					continue
				}
				if err := sub.ParseFlags(rest); err != nil {
					t.Errorf("%s: %q: %v", name, command, err)
				}
			}
		}
	}
	if tried < 5 {
		t.Errorf("%d commands were found in the documents, want at least 5: the test looks at nothing", tried)
	}
}

// demoRow is a row of the demo's table: quantity, planted, measured.
var demoRow = regexp.MustCompile(`^\s*(\S+(?: \([^)]*\))?)\s+(-?\d+\.\d+)\s+(-?\d+\.\d+)\s+(-?\d+\.\d+) to (-?\d+\.\d+)\s+ok\s*$`)

// TestReadmeShowsTheDemoAsItIs runs the demo and finds every row that the README
// shows in its output: same quantity, same planted value. The measured value hangs
// on the processor's kernels, so that of the README need only lie in the interval.
func TestReadmeShowsTheDemoAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo")
	}
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip("no llama.cpp libraries:", err)
	}
	c, said := start(t, "demo", "--quiet")
	if err := c.Wait(); err != nil {
		t.Fatalf("demo: %v\n%s", err, said())
	}
	planted := map[string]string{}
	for _, line := range strings.Split(said(), "\n") {
		if m := demoRow.FindStringSubmatch(line); m != nil {
			planted[m[1]] = m[2]
		}
	}
	rows := 0
	for _, block := range consoleBlock.FindAllStringSubmatch(documents(t)["README.md"], -1) {
		for _, line := range strings.Split(block[1], "\n") {
			m := demoRow.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			rows++
			if planted[m[1]] != m[2] {
				t.Errorf("README shows %s planted %s, the demo plants %q", m[1], m[2], planted[m[1]])
			}
		}
	}
	if rows < 3 {
		t.Errorf("the README shows %d rows of the demo, want at least 3", rows)
	}
	if !strings.Contains(said(), "the instrument is calibrated") {
		t.Errorf("the demo says:\n%s", said())
	}
}

// TestHelpIsThere checks that every command and flag has a help text, and that
// help asks nothing of the machine.
func TestHelpIsThere(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "--help")
	c.Env = []string{asDemur + "=1"}
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("Exit codes:")) {
		t.Errorf("--help: %v\n%s", err, out)
	}
	root := newRoot(&env{})
	for _, sub := range root.Commands() {
		if sub.Short == "" {
			t.Errorf("command %s has no description", sub.Name())
		}
	}
}

// TestPlanFileOfTheDocumentsIsTheDefault reads docs/plan.yaml: it must say the
// defaults, no more and no less.
func TestPlanFileOfTheDocumentsIsTheDefault(t *testing.T) {
	f, err := os.Open("../../docs/plan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := protocol.ReadPlan(f, protocol.Plan{})
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.DefaultPlan()
	want.Model, want.Requests = "phantom", "demo"
	if data.Digest(got) != data.Digest(want) || got.Judge != want.Judge || got.Requests != want.Requests {
		t.Errorf("docs/plan.yaml says %+v, the defaults are %+v", got, want)
	}
}
