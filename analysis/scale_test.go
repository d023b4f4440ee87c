package analysis_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"demur/analysis"
)

// A million trials with 2,000 resamples. The figures are printed, not asserted:
// they depend on the machine. It runs with DEMUR_LONG=1.
func TestMillionTrials(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		t.Skip("takes about a minute; set DEMUR_LONG=1")
	}
	worlds := []world{
		{requests: 16667, variants: 3, temps: []float64{0, 0.3, 0.7, 1}, seeds: 5, bias: 0.3, noise: 1.5, seed: 3},
		{requests: 1000, variants: 1, temps: []float64{0.3, 0.7, 1}, seeds: 334, bias: 0.3, noise: 1.5, seed: 3},
	}
	for _, w := range worlds {
		start := time.Now()
		d := w.dataset("large", false)
		built := time.Since(start)
		start = time.Now()
		f, err := analysis.Analyse(d, analysis.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("%d trials of %d requests: built in %.1f s, analysed in %.1f s with %d resamples, %.2f GB taken from the system",
			f.Trials, f.Requests, built.Seconds(), time.Since(start).Seconds(), f.Options.Resamples, float64(m.Sys)/1e9)
	}
}
