package analysis_test

import (
	"encoding/json"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"demur/analysis"
)

func TestAnalyseSweep(t *testing.T) {
	start := time.Now()
	f, err := analysis.Analyse(sweep.dataset("simulated", false), analysis.Options{Resamples: 400})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(start), len(f.Estimates))
	for _, e := range f.Estimates {
		if (e.Value == nil) != (len(e.Warnings) > 0 && strings.HasPrefix(e.Warnings[0], "undefined") || e.Value == nil) {
			t.Errorf("%s %s: null without a reason", e.Metric, e.Group)
		}
		for _, v := range []*float64{e.Value, e.Lo, e.Hi} {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
				t.Errorf("%s %s: %v leaves the package", e.Metric, e.Group, *v)
			}
		}
		if e.Lo != nil && *e.Lo > *e.Hi {
			t.Errorf("%s %s: limits %v and %v", e.Metric, e.Group, *e.Lo, *e.Hi)
		}
	}
	if os.Getenv("DEMUR_PRINT") != "" {
		b, _ := json.MarshalIndent(f.Estimates, "", " ")
		os.WriteFile(os.Getenv("DEMUR_PRINT"), b, 0o644)
	}
	_ = runtime.NumCPU
}
