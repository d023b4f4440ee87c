//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demur/inference/llamacpp"
)

// TestKilledExtractEqualsUndisturbedOne kills extractions of the phantom, each
// going on where the one before ended, and compares every file with those of an
// undisturbed one.
func TestKilledExtractEqualsUndisturbedOne(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	requests := filepath.Join(dir, "requests.txt")
	var lines strings.Builder
	for i := range 600 {
		fmt.Fprintf(&lines, "How do I bake loaf number %d%s?\n", i, strings.Repeat(" and one more", i%5))
	}
	if err := os.WriteFile(requests, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	args := func(out string) []string {
		return []string{"extract", "--requests", requests, "--out", filepath.Join(dir, out), "--model", "phantom", "--threads", "1", "--anchors", "inst,post,mean"}
	}
	began := time.Now()
	mustRun(t, args("whole")...)
	whole := time.Since(began)

	r := rand.New(rand.NewPCG(3, 0))
	kept := 0 // most parts that a kill left
	for k := range 10 {
		c, said := start(t, args("killed")...)
		time.Sleep(whole/4 + time.Duration(r.Int64N(int64(whole/2))))
		if k == 5 {
			c.Process.Signal(os.Interrupt)
			err := c.Wait()
			if exit, ok := err.(*exec.ExitError); ok && (exit.ExitCode() != exitInterrupted || !strings.Contains(said(), "the same command goes on")) {
				t.Errorf("interrupted, it ends with %v:\n%s", err, said())
			}
		} else {
			c.Process.Kill()
			if err := c.Wait(); err == nil {
				break // it came to its end
			} else if exit, ok := err.(*exec.ExitError); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("it ended with %v before it was killed:\n%s", err, said())
			}
		}
		parts, _ := filepath.Glob(filepath.Join(dir, "killed", "parts", "*.parquet"))
		kept = max(kept, len(parts))
	}
	if kept == 0 {
		t.Error("no kill struck an extraction that was going on: the test shows nothing")
	}
	mustRun(t, args("killed")...)
	t.Logf("an undisturbed extraction takes %v; up to %d of 38 parts were kept", whole.Round(time.Millisecond), kept)

	var names [2][]string
	for i, out := range []string{"whole", "killed"} {
		err := filepath.WalkDir(filepath.Join(dir, out), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				names[i] = append(names[i], strings.TrimPrefix(path, filepath.Join(dir, out)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(names[0], " ") != strings.Join(names[1], " ") || len(names[0]) < 5 {
		t.Fatalf("files %v, undisturbed %v", names[1], names[0])
	}
	for _, name := range names[0] {
		a, err := os.ReadFile(filepath.Join(dir, "whole", name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "killed", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from that of the undisturbed extraction", name)
		}
	}
}
