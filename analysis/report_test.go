package analysis_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

func analyse(t *testing.T, d *analysis.Dataset, o analysis.Options) *analysis.Findings {
	t.Helper()
	if o.Resamples == 0 {
		o.Resamples = 200
	}
	f, err := analysis.Analyse(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestReportIsOneSafeFile(t *testing.T) {
	small := sweep
	small.requests = 25
	d := small.dataset(`<img src=x onerror="alert(1)">`, true)
	var b bytes.Buffer
	if err := analysis.WriteReport(&b, analyse(t, d, analysis.Options{}), analyse(t, d, analysis.Options{Fold: analysis.Strict})); err != nil {
		t.Fatal(err)
	}
	html := b.String()
	// What comes from outside (model name, texts) must arrive as text.
	for _, bad := range []string{"<script", "<img", "javascript:", "http://", "https://", "@import", "url("} {
		if i := strings.Index(strings.ReplaceAll(html, `xmlns="http://www.w3.org/2000/svg"`, ""), bad); i >= 0 {
			t.Errorf("the report contains %q", bad)
		}
	}
	for _, want := range []string{"Does it know?", "Does it say so?", "How does it act?", "Content-Security-Policy", "&lt;script&gt;alert(1)", "prefers-color-scheme:dark"} {
		if !strings.Contains(html, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(html, "NaN") || strings.Contains(html, "Inf<") {
		t.Error("the report shows NaN or Inf")
	}
	// Without texts kept, no text appears.
	b.Reset()
	if err := analysis.WriteReport(&b, analyse(t, small.dataset("m", false), analysis.Options{})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "bake bread") || strings.Contains(b.String(), "alert(1)") {
		t.Error("texts appear though they were not kept")
	}
}

// With DEMUR_REPORT_DIR set, reports of simulated models are written there to be
// looked at.
func TestReportToLookAt(t *testing.T) {
	dir := os.Getenv("DEMUR_REPORT_DIR")
	if dir == "" {
		t.Skip("DEMUR_REPORT_DIR is not set")
	}
	other := sweep
	other.seed, other.bias, other.noise = 8, -0.8, 3
	for name, reports := range map[string][]*analysis.Findings{
		"one":  {analyse(t, sweep.dataset("simulated-1B-Q8_0", false), analysis.Options{}), analyse(t, sweep.dataset("simulated-1B-Q8_0", false), analysis.Options{Fold: analysis.Strict})},
		"two":  {analyse(t, sweep.dataset("simulated-1B-Q8_0", false), analysis.Options{}), analyse(t, other.dataset("simulated-1B-Q4_1", false), analysis.Options{})},
		"dull": {analyse(t, dull(), analysis.Options{})},
		"bare": {analyse(t, analysis.NewDataset("nothing"), analysis.Options{})},
	} {
		var b bytes.Buffer
		if err := analysis.WriteReport(&b, reports...); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".html"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if name == "one" {
			reports[0].WriteTable(os.Stdout)
		}
	}
}

// dull is a model that hardly refuses and always says the same with the same
// confidence, as small models do.
func dull() *analysis.Dataset {
	r := newRows()
	r.d.Model = "dull-135M"
	for i := range 60 {
		label := data.FullCompliance
		if i%20 == 7 {
			label = data.FullRefusal
		}
		r.add(data.WillRefuse, 5, 0.7, label, data.FullCompliance, data.Degenerate, data.FullCompliance)
	}
	return r.d
}

func TestReportOfADullModel(t *testing.T) {
	var b bytes.Buffer
	if err := analysis.WriteReport(&b, analyse(t, dull(), analysis.Options{})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not above the", "It says the same of every request.", "Every prediction of the headline is the same"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
}
