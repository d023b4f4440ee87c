//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"demur/inference/llamacpp"
)

// A library without a GPU takes --gpu-layers in silence; demur does not.
func TestGPULayersWithoutAGPU(t *testing.T) {
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip("no llama.cpp libraries:", err)
	}
	out := filepath.Join(t.TempDir(), "out")
	c, said := start(t, "run", "--model", "phantom", "--limit", "1", "--seeds", "1", "--gpu-layers", "2", "--no-report", "--quiet", "--out", out)
	err := c.Wait()
	if err == nil {
		t.Skip("there is a GPU here")
	}
	if code := exitCodeOf(err); code != exitUnavailable || !strings.Contains(said(), "has no GPU backend") {
		t.Errorf("exit code %d, want %d\n%s", code, exitUnavailable, said())
	}
}
