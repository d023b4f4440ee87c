package probes_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"demur/data"
	"demur/probes"
)

// TestRecipe runs the Python of the documentation on the tables of a small run.
// DEMUR_TEST_PYTHON names a Python that has Polars and NumPy; else python3 is
// tried.
func TestRecipe(t *testing.T) {
	python := os.Getenv("DEMUR_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import polars, numpy").Run(); err != nil {
		t.Skipf("%s has no Polars and NumPy; name one that has by DEMUR_TEST_PYTHON", python)
	}
	text, err := os.ReadFile("../docs/probes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(text), "```python\n")
	code, _, ok2 := strings.Cut(code, "```")
	if !ok || !ok2 {
		t.Fatal("the documentation has no Python")
	}
	rows, states := noise(120, 1, 1, 8, 2, 1)
	var activations []data.Activation
	var trials []data.Trial
	var verdicts []data.Verdict
	for i := range rows {
		v := states.Values(rows[i].PromptID, probes.Site{Layer: 0, Anchor: probes.Inst})
		v[0] += float32(rows[i].Refusals) // so that there is something to correlate
		activations = append(activations, data.Activation{PromptID: rows[i].PromptID, Layer: 3, Anchor: probes.Post, Position: -1, Values: v})
		for k := range rows[i].Trials {
			id := rows[i].PromptID + string(rune('a'+k))
			label := data.FullCompliance
			if k < rows[i].Refusals {
				label = data.Deflection
			}
			trials = append(trials, data.Trial{ID: id, PromptID: rows[i].PromptID})
			verdicts = append(verdicts, data.Verdict{TrialID: id, Judge: "rules", Label: label})
		}
	}
	at3, _, err := probes.Collect(rowsOf(activations...))
	if err != nil {
		t.Fatal(err)
	}
	o := quick(probes.Refusal())
	o.Methods, o.Permutations = []probes.Method{probes.Whitened}, -1
	r := must(t)(probes.Fit(rows, at3, o))
	dir := t.TempDir()
	for _, err := range []error{
		data.WriteTable(dir, "activations/layer_03", rowsOf(activations...)),
		data.WriteTable(dir, data.Scores, rowsOf(r.Scores()...)),
		data.WriteTable(dir, data.Trials, rowsOf(trials...)),
		data.WriteTable(dir, data.Verdicts, rowsOf(verdicts...)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "-c", code)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// What the recipe prints, from the rows in memory.
	want := "(120, 8) 0."
	if got := strings.TrimSpace(string(out)); !strings.HasPrefix(got, want) || got <= "(120, 8) 0.6" {
		t.Errorf("the recipe prints %q; the shape is (120, 8), and the scores go with the rates", got)
	}
}
