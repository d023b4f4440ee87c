package analysis_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"demur/analysis"
)

// Every metric that is ever emitted stands in docs/metrics.md, and every metric
// that stands there is emitted.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	// A row's first cell: `name`, `other`, and `_suffix` for the names before it.
	documented := map[string]bool{}
	name := regexp.MustCompile("`([a-z0-9_…]+)`")
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell, _, _ := strings.Cut(line[1:], "|")
		var first string
		for _, m := range name.FindAllStringSubmatch(cell, -1) {
			if !strings.HasPrefix(m[1], "_") {
				documented[m[1]] = true
				first = m[1]
				continue
			}
			// The suffix follows the first name, or takes the place of its last part.
			documented[first+m[1]] = true
			documented[first[:strings.LastIndex(first, "_")]+m[1]] = true
		}
	}
	d := sweep.dataset("m", false)
	other := sweep
	other.seed = 9
	emitted := map[string]bool{}
	for _, e := range analyse(t, d, analysis.Options{Others: []*analysis.Dataset{other.dataset("n", false)}}).Estimates {
		emitted[e.Metric] = true
	}
	for _, e := range analyse(t, twoJudges(), analysis.Options{}).Estimates {
		emitted[e.Metric] = true
	}
	for _, e := range analyse(t, planted(60, 12, 6, func(int) bool { return true }), analysis.Options{}).Estimates {
		emitted[e.Metric] = true
	}
	c, err := analysis.Compare(d, other.dataset("n", false), analysis.Options{Resamples: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Estimates() {
		if !strings.HasPrefix(e.Metric, "delta_") {
			emitted[e.Metric] = true
		}
	}
	for m := range emitted {
		if !documented[m] {
			t.Errorf("%s is not in docs/metrics.md", m)
		}
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell, _, _ := strings.Cut(line[1:], "|")
		for _, m := range name.FindAllStringSubmatch(cell, -1) {
			switch m[1] {
			case "judge", "probe", "question", "accuracy", "d_prime", "exact": // groups, and rows that speak of other readings
				continue
			case "criterion_shift", "accuracy_shift", "auc_probe": // need other questions, probes
				continue
			}
			if strings.HasPrefix(m[1], analysis.ProbeMetric) { // of package probes, whose test holds them against the page
				continue
			}
			if !strings.HasPrefix(m[1], "_") && !emitted[m[1]] {
				t.Errorf("docs/metrics.md speaks of %s, which is never emitted", m[1])
			}
		}
	}
}
