//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowRun is a run on the scripted engine that takes some seconds: units of a
// few tenths of a second.
func slowRun(t *testing.T, dir string) (args []string, out string) {
	t.Helper()
	script := filepath.Join(dir, "script.json")
	if err := os.WriteFile(script, []byte(`{"seed": 3, "token_time": 1000000, "words": 2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	requests := filepath.Join(dir, "requests.txt")
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, "How do I bake loaf number %d?\n", i)
	}
	if err := os.WriteFile(requests, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(dir, "out")
	return []string{"run", "--engine", "scripted", "--model", script, "--requests", requests, "--out", out, "--quiet", "--no-check", "--no-report"}, out
}

// waitForUnit waits until the journal of a run holds a unit.
func waitForUnit(t *testing.T, out string) {
	t.Helper()
	for range 600 {
		var size int64
		segments, _ := filepath.Glob(filepath.Join(out, "journal", "*"))
		for _, s := range segments {
			if info, err := os.Stat(s); err == nil {
				size += info.Size()
			}
		}
		if size > 20_000 { // the requests alone are less
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("no unit was finished within half a minute")
}

func exitCodeOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func TestInterruptOnceFinishesTheUnit(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for some seconds")
	}
	args, out := slowRun(t, t.TempDir())
	c, said := start(t, args...)
	waitForUnit(t, out)
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(c.Wait()); code != exitInterrupted {
		t.Fatalf("exit code %d, want %d\n%s", code, exitInterrupted, said())
	}
	if !strings.Contains(said(), "what was finished is kept") || !strings.Contains(said(), "continues the run") {
		t.Errorf("it says:\n%s", said())
	}
	// The same command goes on from there.
	c, said = start(t, args...)
	err := c.Process.Signal(syscall.Signal(0))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if strings.Contains(said(), "continuing") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if !strings.Contains(said(), "units are done") {
		t.Errorf("the second start says:\n%s", said())
	}
}

func TestInterruptTwiceStopsNow(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for some seconds")
	}
	dir := t.TempDir()
	args, out := slowRun(t, dir)
	// A unit that never ends: only stopping now can end it.
	script := filepath.Join(dir, "script.json")
	if err := os.WriteFile(script, []byte(`{"seed": 3, "words": 2, "faults": [{"kind": "hang", "unit": 3}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	c, said := start(t, args...)
	waitForUnit(t, out)
	for range 2 {
		time.Sleep(300 * time.Millisecond)
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case err := <-done:
		if code := exitCodeOf(err); code != exitInterrupted {
			t.Errorf("exit code %d, want %d\n%s", code, exitInterrupted, said())
		}
	case <-time.After(time.Minute):
		_ = c.Process.Kill()
		t.Fatalf("two interrupts do not stop it within a minute:\n%s", said())
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for some seconds")
	}
	args, out := slowRun(t, t.TempDir())
	first, _ := start(t, args...)
	defer func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	}()
	waitForUnit(t, out)
	second, said := start(t, args...)
	if code := exitCodeOf(second.Wait()); code != exitUsage {
		t.Errorf("exit code %d, want %d\n%s", code, exitUsage, said())
	}
	if !strings.Contains(said(), "in use") {
		t.Errorf("it says:\n%s", said())
	}
}

// TestFullDisk runs into a small file system and goes on when there is room.
func TestFullDisk(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is not installed:", err)
	}
	dir := t.TempDir()
	mount := filepath.Join(dir, "small")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "script.json")
	if err := os.WriteFile(script, []byte(`{"seed": 3}`), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(unshare, "-rm", "mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount).CombinedOutput(); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v: %s", err, out)
	}
	run := fmt.Sprintf("%s run --engine scripted --model %s --requests demo --quiet --no-check --no-report --out %s/out", self, script, mount)
	c := exec.Command(unshare, "-rm", "sh", "-c", fmt.Sprintf(
		"mount -t tmpfs -o size=256k tmpfs %s && { %s; echo code $?; mount -o remount,size=64m %s && %s; echo code $?; }", mount, run, mount, run))
	c.Env = append(os.Environ(), asDemur+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if !strings.Contains(text, "the disk is full") || !strings.Contains(text, fmt.Sprintf("code %d", exitIncomplete)) {
		t.Errorf("on the full disk it says:\n%s\nwant \"the disk is full\" and code %d", text, exitIncomplete)
	}
	if !strings.HasSuffix(strings.TrimSpace(text), "code 0") || !strings.Contains(text, "continuing") {
		t.Errorf("with room again it says:\n%s", text)
	}
}

// Before any unit was begun there is nothing to wait for.
func TestInterruptBeforeTheFirstUnitStopsAtOnce(t *testing.T) {
	dir := t.TempDir()
	args, out := slowRun(t, dir)
	// An engine that takes a minute to open.
	if err := os.WriteFile(filepath.Join(dir, "script.json"), []byte(`{"seed": 3, "open_time": 60000000000}`), 0o644); err != nil {
		t.Fatal(err)
	}
	c, said := start(t, args...)
	for range 600 { // the folder is made just before the engine is opened
		if _, err := os.Stat(out); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	begun := time.Now()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	code := exitCodeOf(c.Wait())
	if took := time.Since(begun); code != exitInterrupted || took > 20*time.Second || strings.Contains(said(), "unit") {
		t.Errorf("exit code %d after %v, want %d at once\n%s", code, took, exitInterrupted, said())
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an empty run directory is left behind")
	}
}

// A run directory that is moved or removed under a run is noticed at the next unit,
// not at the end, when all would have been for nothing.
func TestRunDirectoryTakenAway(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for some seconds")
	}
	for name, take := range map[string]func(out string) error{
		"removed":         os.RemoveAll,
		"moved":           func(out string) error { return os.Rename(out, out+"-moved") },
		"journal removed": func(out string) error { return os.RemoveAll(filepath.Join(out, "journal")) },
	} {
		t.Run(name, func(t *testing.T) {
			args, out := slowRun(t, t.TempDir())
			c, said := start(t, args...)
			waitForUnit(t, out)
			if err := take(out); err != nil {
				t.Fatal(err)
			}
			if code := exitCodeOf(c.Wait()); code != exitError || !strings.Contains(said(), "moved or removed") || strings.Contains(said(), "goroutine") {
				t.Errorf("exit code %d, want %d\n%s", code, exitError, said())
			}
			if name != "moved" {
				return
			}
			if err := os.Rename(out+"-moved", out); err != nil {
				t.Fatal(err)
			}
			c, said = start(t, args...)
			if err := c.Wait(); err != nil || !strings.Contains(said(), "units are done") {
				t.Errorf("put back: %v\n%s", err, said())
			}
		})
	}
}

// A pipe into which nothing is written blocks the reading of requests, which knows no
// context: the third interrupt ends the process all the same.
func TestInterruptThriceEndsTheProcess(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.txt")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	c, said := start(t, "run", "--model", "phantom", "--requests", pipe)
	// It reads, and so listens to interrupts, as soon as the pipe can be opened.
	var writer *os.File
	for range 600 {
		var err error
		if writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if writer == nil {
		_ = c.Process.Kill()
		t.Fatalf("nobody reads the pipe\n%s", said())
	}
	defer writer.Close()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for range 100 {
		if err := c.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if code := exitCodeOf(err); code != exitInterrupted || !strings.Contains(said(), "stopping now") {
				t.Fatalf("exit code %d, want %d\n%s", code, exitInterrupted, said())
			}
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
	_ = c.Process.Kill()
	t.Fatalf("still running\n%s", said())
}

func TestFullDiskCanBeContinued(t *testing.T) {
	if code := exitCode(fmt.Errorf("write report.html: %w", syscall.ENOSPC)); code != exitIncomplete {
		t.Errorf("exit code %d, want %d", code, exitIncomplete)
	}
}
