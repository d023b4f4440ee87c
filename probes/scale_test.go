package probes_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"demur/probes"
)

// noise are random states and labels of a run's size.
func noise(prompts, layers, anchors, width, wordings int, seed uint64) ([]probes.Row, *probes.States) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var rows []probes.Row
	var ids []string
	harm := 1
	for i := range prompts {
		if i%wordings == 0 {
			harm = 1 + rng.IntN(5)
		}
		r := probes.Row{PromptID: fmt.Sprintf("p%d", i), RequestID: fmt.Sprintf("r%d", i/wordings), Variant: fmt.Sprintf("v%d", i%wordings), Topic: fmt.Sprintf("t%d", i/wordings%10), Harm: harm, Trials: 9, Refusals: rng.IntN(10)}
		for range 8 + rng.IntN(8) {
			r.Text += fmt.Sprintf("w%d ", rng.IntN(2000))
		}
		rows, ids = append(rows, r), append(ids, r.PromptID)
	}
	var sites []probes.Site
	var values [][]float32
	for a := range anchors {
		for l := range layers {
			sites = append(sites, probes.Site{Layer: l, Anchor: []string{"inst", "post", "mean"}[a]})
			x := make([]float32, prompts*width)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			values = append(values, x)
		}
	}
	return rows, probes.NewStates(width, ids, sites, values)
}

// TestScale measures a fit of the size that the built-in requests have on a
// small model: set DEMUR_PROBES_SCALE. Time and peak memory are printed, not
// asserted: a busy machine is no fault of the program.
func TestScale(t *testing.T) {
	if os.Getenv("DEMUR_PROBES_SCALE") == "" {
		t.Skip("set DEMUR_PROBES_SCALE to measure a fit of 900 prompts, 30 layers, 3 positions, width 576")
	}
	rows, states := noise(900, 30, 3, 576, 3, 1)
	start := time.Now()
	r, err := probes.Fit(rows, states, probes.Options{Target: probes.Refusal(), Progress: func(step string, done, of int) {
		if done%10 == 0 {
			t.Logf("%s %d of %d after %v", step, done, of, time.Since(start).Round(time.Second))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", time.Since(start).Round(100*time.Millisecond))
	status, _ := os.ReadFile("/proc/self/status")
	t.Logf("%s", status)
	for _, m := range r.Methods {
		t.Logf("%s %v p %v", m.Method, *m.Value.Value, m.P)
	}
}
