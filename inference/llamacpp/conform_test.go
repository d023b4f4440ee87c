package llamacpp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"demur/inference/llamacpp"
)

// suiteOn runs the conformance suite on a model: nothing may fail, and what does
// not apply is said beforehand.
func suiteOn(t *testing.T, path string, inapplicable ...int) []llamacpp.Finding {
	t.Helper()
	library(t)
	found, err := llamacpp.Conform(t.Context(), llamacpp.Options{Model: path, Threads: 1}, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 16 {
		t.Fatalf("%d findings", len(found))
	}
	may := map[int]bool{}
	for _, i := range inapplicable {
		may[i] = true
	}
	for i, f := range found {
		if f.Item != i+1 || f.Name == "" || f.Means == "" {
			t.Errorf("finding %d is %+v", i, f)
		}
		figure := ""
		if f.Figure != nil {
			figure = fmt.Sprintf("%.3g", *f.Figure) + " " + f.Unit
		}
		t.Logf("%2d %-28s %-14s %s (%s)", f.Item, f.Name, f.Outcome, figure, f.Detail)
		switch {
		case f.Outcome == llamacpp.Failed:
			t.Errorf("item %d, %s, failed: %s", f.Item, f.Name, f.Detail)
		case (f.Outcome == llamacpp.NotApplicable) != may[f.Item]:
			t.Errorf("item %d, %s, is %s: %s", f.Item, f.Name, f.Outcome, f.Detail)
		case f.Outcome == llamacpp.Passed && f.Figure == nil:
			t.Errorf("item %d, %s, has no figure", f.Item, f.Name)
		}
	}
	return found
}

func TestConformPhantom(t *testing.T) {
	found := suiteOn(t, phantomFile(t), 16)
	// In 32-bit numbers: the sums that the suite works out are the engine's own.
	for _, i := range []int{6, 7, 12} {
		if f := found[i-1]; f.Figure == nil || *f.Figure > 1e-4 {
			t.Errorf("item %d: %v", i, f.Figure)
		}
	}
}

func TestConformSmolLM2(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute on a real model")
	}
	suiteOn(t, smol(t))
}

func TestConformOrganism(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute on a real model")
	}
	suiteOn(t, organism(t))
}

// TestConformGemma: a base model without chat template, of another architecture:
// norms lie between what is written and the stream.
func TestConformGemma(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes on a real model")
	}
	path := os.Getenv("DEMUR_TEST_GEMMA")
	if path == "" {
		path = cached(t, "models", "gemma-3-270m.Q4_K_M.gguf")
	}
	suiteOn(t, present(t, path), 8, 12)
}

// A reference that is another model, and a model that is none, are told.
func TestConformErrors(t *testing.T) {
	library(t)
	path := phantomFile(t)
	other := filepath.Join(t.TempDir(), "other.gguf")
	if err := os.WriteFile(other, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := llamacpp.Conform(t.Context(), llamacpp.Options{Model: other}, ""); err == nil {
		t.Error("a damaged model conforms")
	}
	found, err := llamacpp.Conform(t.Context(), llamacpp.Options{Model: path, Threads: 1}, other)
	if err != nil {
		t.Fatal(err)
	}
	if f := found[15]; f.Outcome != llamacpp.Failed {
		t.Errorf("a damaged reference: %+v", f)
	}
	// The phantom against itself is no further away than nothing.
	found, err = llamacpp.Conform(t.Context(), llamacpp.Options{Model: path, Threads: 1}, path)
	if err != nil {
		t.Fatal(err)
	}
	if f := found[15]; f.Outcome != llamacpp.Passed || f.Figure == nil || *f.Figure != 0 {
		t.Errorf("the model as its own reference: %+v", f)
	}
}
