//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demur/data"
)

// start begins a demur of this very test binary. What it says goes to a file and
// not to a pipe, which an orphaned engine process would keep open for a while.
func start(t *testing.T, args ...string) (c *exec.Cmd, said func() string) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "said")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c = exec.Command(self, args...)
	c.Env = append(os.Environ(), asDemur+"=1")
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, func() string {
		b, err := os.ReadFile(out.Name())
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
}

// mustRun runs demur to its end and fails if that is not a good one.
func mustRun(t *testing.T, args ...string) {
	t.Helper()
	c, said := start(t, args...)
	if err := c.Wait(); err != nil {
		t.Fatalf("demur %s: %v\n%s", strings.Join(args, " "), err, said())
	}
}

// killed runs demur in dir until kills have struck it, each (SIGKILL) at a random
// moment between least and most after a start. What was struck goes on with the
// next start; a run that came to its end is compared with the undisturbed one,
// and another begun. args makes the command of a run folder; most 0 is half of an
// undisturbed run, and least a twentieth.
func killed(t *testing.T, r *rand.Rand, kills int, least, most time.Duration, dir string, args func(out string) []string) {
	t.Helper()
	began := time.Now()
	mustRun(t, args("whole")...)
	whole := time.Since(began)
	if most == 0 {
		least, most = whole/20, whole/2
	}
	struck, runs := 0, 0
	for ; struck < kills; runs++ {
		out := fmt.Sprintf("killed-%d", runs)
		for ended := false; !ended && struck < kills; {
			c, said := start(t, args(out)...)
			time.Sleep(least + time.Duration(r.Int64N(int64(most-least))))
			// Only the process itself is killed: its engine's process must notice.
			c.Process.Kill()
			err := c.Wait()
			var exit *exec.ExitError
			switch {
			case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
				struck++
			case err != nil:
				t.Fatalf("demur ended with %v before it was killed:\n%s", err, said())
			default:
				ended = true
			}
		}
		if runs > kills { // all but the last one ended by themselves
			t.Fatalf("%d runs were struck %d times only: they end before they are killed", runs, struck)
		}
		mustRun(t, args(out)...)
		sameTables(t, filepath.Join(dir, out), filepath.Join(dir, "whole"))
	}
	t.Logf("%d kills struck %d runs that were going on; an undisturbed run takes %v", struck, runs, whole.Round(time.Millisecond))
}

// sameTables compares every table of two runs byte for byte, attempts apart.
func sameTables(t *testing.T, got, want string) {
	t.Helper()
	for _, name := range []string{data.Requests, data.Prompts, data.Predictions, data.Trials} {
		a, err := os.ReadFile(filepath.Join(got, name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(want, name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("table %s of the interrupted run (%d bytes) differs from that of the undisturbed one (%d bytes)", name, len(a), len(b))
		}
	}
	ids := map[string]bool{}
	for row, err := range data.ReadTable[data.Trial](got, data.Trials) {
		if err != nil {
			t.Fatal(err)
		}
		if ids[row.ID] {
			t.Errorf("trial %s is there twice", row.ID)
		}
		ids[row.ID] = true
	}
	wanted := 0
	for row, err := range data.ReadTable[data.Trial](want, data.Trials) {
		if err != nil {
			t.Fatal(err)
		}
		wanted++
		if !ids[row.ID] {
			t.Errorf("trial %s was lost", row.ID)
		}
	}
	if len(ids) != wanted || wanted == 0 {
		t.Errorf("%d trials, want %d", len(ids), wanted)
	}
}

// TestKilledRunEqualsUndisturbedOne holds promises P1 and P3 with the scripted
// engine: 25 kills, 200 where DEMUR_LONG is set.
func TestKilledRunEqualsUndisturbedOne(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "script.json")
	if err := os.WriteFile(script, []byte(`{"seed": 3, "token_time": 20000, "words": 3}`), 0o644); err != nil {
		t.Fatal(err)
	}
	requests := filepath.Join(dir, "requests.txt")
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, "How do I bake loaf number %d%s?\n", i, strings.Repeat(" and one more", i%5))
	}
	if err := os.WriteFile(requests, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	args := func(out string) []string {
		return []string{"run", "--engine", "scripted", "--model", script, "--requests", requests, "--out", filepath.Join(dir, out), "--quiet", "--no-check", "--no-report"}
	}
	kills := 25
	if os.Getenv("DEMUR_LONG") != "" {
		kills = 200
	}
	killed(t, rand.New(rand.NewPCG(1, 0)), kills, 5*time.Millisecond, 120*time.Millisecond, dir, args)
}

// TestKilledRunOnRealWeights does the same on llama.cpp with SmolLM2: several
// prompts a unit, unequal lengths, killed inside units.
func TestKilledRunOnRealWeights(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		t.Skip("takes minutes; set DEMUR_LONG=1")
	}
	model := testModel(t)
	dir := t.TempDir()
	args := func(out string) []string {
		return []string{
			"run", "--model", model, "--requests", "demo", "--limit", "8", "--variants", "base", "--temperatures", "0,0.7,1", "--seeds", "42-44", "--max-tokens", "24",
			"--predict-max-tokens", "32", "--pack", "2", "--ctx", "512", "--out", filepath.Join(dir, out), "--quiet", "--no-check", "--no-report",
		}
	}
	killed(t, rand.New(rand.NewPCG(2, 0)), 20, 0, 0, dir, args)
}

// testModel returns the file of the small real model, or skips.
func testModel(t *testing.T) string {
	t.Helper()
	name := os.Getenv("DEMUR_TEST_SMOLLM2")
	if name == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("no cache folder:", err)
		}
		name = filepath.Join(cache, "demur", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	if _, err := os.Stat(name); err != nil {
		t.Skip("SmolLM2 is not here (tools/models.sh fetches it):", err)
	}
	return name
}
