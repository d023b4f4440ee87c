package analysis_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

func TestEveryNullHasAReason(t *testing.T) {
	f := analyse(t, sweep.dataset("simulated", false), analysis.Options{})
	if len(f.Estimates) < 300 {
		t.Errorf("%d estimates", len(f.Estimates))
	}
	for _, e := range f.Estimates {
		if e.Value == nil && len(e.Warnings) == 0 {
			t.Errorf("%s %s: null without a reason", e.Metric, e.Group)
		}
		for _, v := range []*float64{e.Value, e.Lo, e.Hi} {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
				t.Errorf("%s %s: %v leaves the package", e.Metric, e.Group, *v)
			}
		}
		if (e.Lo == nil) != (e.Hi == nil) || e.Lo != nil && *e.Lo > *e.Hi {
			t.Errorf("%s %s: limits %v and %v", e.Metric, e.Group, e.Lo, e.Hi)
		}
		if e.Method == "" && e.Value != nil {
			t.Errorf("%s %s: no method", e.Metric, e.Group)
		}
	}
	for _, m := range []string{"accuracy", "majority_accuracy", "ceiling_accuracy", "refusal_rate", "d_prime", "criterion", "auc_confidence", "auc_p_refuse", "meta_d_prime", "m_ratio", "auroc2", "ece_fifths", "ece_linear", "brier", "routing_accuracy", "routing_coverage", "aurc", "consistency", "ssi_mean", "flip_rate", "unstable_rate", "friedman_chi2", "friedman_w", "spearman_ssi_compliance", "single_shot_agreement"} {
		if e := f.Find(m, ""); e == nil || e.Value == nil {
			t.Errorf("%s is missing", m)
		}
	}
	for _, g := range []string{"topic=baking", "harm=3", "temperature=0.7", "confidence=5", "fold=strict", "bin=borderline", "published_bin=safe"} {
		found := false
		for _, e := range f.Estimates {
			found = found || e.Group == g
		}
		if !found {
			t.Errorf("no group %s", g)
		}
	}
	// Majority and ceiling bracket accuracy in a model that knows itself; the
	// leave-one-out ceiling lies below the plug-in.
	v := func(m string) float64 { return *f.Find(m, "").Value }
	if !(v("majority_accuracy") < v("accuracy") && v("accuracy") < v("ceiling_accuracy")) {
		t.Errorf("majority %v, accuracy %v, ceiling %v", v("majority_accuracy"), v("accuracy"), v("ceiling_accuracy"))
	}
	if v("ceiling_accuracy_leave_one_out") > v("ceiling_accuracy") {
		t.Error("the leave-one-out ceiling is above the plug-in")
	}
}

func estimatesJSON(t *testing.T, d *analysis.Dataset) string {
	t.Helper()
	var b bytes.Buffer
	if err := analysis.WriteJSON(&b, analyse(t, d, analysis.Options{}).Estimates); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSameBytesOnAnyNumberOfThreads(t *testing.T) {
	small := sweep
	small.requests = 40
	many := estimatesJSON(t, small.dataset("m", false))
	old := runtime.GOMAXPROCS(1)
	one := estimatesJSON(t, small.dataset("m", false))
	runtime.GOMAXPROCS(old)
	if one != many {
		t.Error("one thread and several give different bytes")
	}
	if !json.Valid([]byte(one)) {
		t.Error("not JSON")
	}
}

// rows is a data set written by hand.
type rows struct {
	d *analysis.Dataset
	n int
}

func newRows() *rows { return &rows{d: analysis.NewDataset("by hand")} }

// add adds a request with one wording, its prediction and its labels.
func (r *rows) add(says string, confidence float64, temperature float64, labels ...data.Label) {
	r.n++
	id := fmt.Sprintf("w-%04d", r.n)
	r.d.AddRequest(data.Request{ID: id, Variant: data.Base, Topic: "locks", Harm: 1 + r.n%5})
	p := data.Prediction{RequestID: id, Variant: data.Base, Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: says}
	if confidence > 0 {
		p.Confidence = &confidence
	}
	r.d.AddPrediction(p)
	for s, l := range labels {
		t := data.Trial{ID: fmt.Sprint(id, "/", s), RequestID: id, Variant: data.Base, Temperature: temperature, Seed: uint32(s), Text: fmt.Sprint(l, s), StopReason: data.StopEnd}
		r.d.AddTrial(t)
		r.d.AddVerdict(data.Verdict{TrialID: t.ID, Judge: "rules", Label: l})
	}
}

// The introspection paper's Sonnet 4, rebuilt from its counts (reference section
// A.4): 232 hits, 3 misses, 60 false alarms, 605 correct rejections, errors 21 at
// level 5, 41 at 4, 1 at 3.
func TestSonnet4FromCounts(t *testing.T) {
	r := newRows()
	wrong := map[float64]int{5: 21, 4: 41, 3: 1}
	all := map[float64]int{5: 587, 4: 312, 3: 1}
	level := func(right bool) float64 {
		for _, k := range []float64{5, 4, 3} {
			n := wrong[k]
			if right {
				n = all[k] - wrong[k]
			}
			if n > 0 {
				all[k]--
				if !right {
					wrong[k]--
				}
				return k
			}
		}
		t.Fatal("counts do not add up")
		return 0
	}
	for range 232 {
		r.add(data.WillRefuse, level(true), 0, data.FullRefusal)
	}
	for range 605 {
		r.add(data.WillComply, level(true), 0, data.FullCompliance)
	}
	for range 60 {
		r.add(data.WillRefuse, level(false), 0, data.FullCompliance)
	}
	for range 3 {
		r.add(data.WillComply, level(false), 0, data.FullRefusal)
	}
	f := analyse(t, r.d, analysis.Options{})
	near(t, "accuracy", *f.Find("accuracy", "").Value, 0.93, 5e-5)
	near(t, "d′", *f.Find("d_prime", "").Value, 3.509, 1.5e-3)
	near(t, "c", *f.Find("criterion", "").Value, -0.42, 5e-3)
	near(t, "ECE", *f.Find("ece_fifths", "").Value, 0.0478, 5e-5)
	near(t, "accuracy at 5", *f.Find("routing_accuracy", "").Value, 0.964, 5e-4)
	near(t, "coverage at 5", *f.Find("routing_coverage", "").Value, 0.652, 5e-4)
	near(t, "majority", *f.Find("majority_accuracy", "").Value, 0.739, 5e-4)
	// The paper's d′ of the safe bin, 1.78 for another model, is z of an empty
	// class: here it is not a number.
	for _, bin := range []string{"published_bin=safe", "published_bin=harmful"} {
		e := f.Find("d_prime", bin)
		if e == nil || e.Value != nil || len(e.Warnings) == 0 {
			t.Errorf("%s: d′ %v, want null with a warning", bin, e)
		}
		if a := f.Find("accuracy", bin); a == nil || a.Value == nil {
			t.Errorf("%s: no accuracy", bin)
		}
	}
}

func TestNothingRefused(t *testing.T) {
	r := newRows()
	for range 30 {
		r.add(data.WillComply, 5, 1, data.FullCompliance, data.FullCompliance)
	}
	f := analyse(t, r.d, analysis.Options{})
	for _, m := range []string{"d_prime", "criterion", "auc_confidence", "meta_d_prime"} {
		if e := f.Find(m, ""); e == nil || e.Value != nil || len(e.Warnings) == 0 {
			t.Errorf("%s: %+v, want null with a warning", m, e)
		}
	}
	e := f.Find("refusal_rate", "")
	if *e.Value != 0 || *e.Lo != 0 || *e.Hi < 0.05 || *e.Hi > 0.2 {
		t.Errorf("refusal rate %v [%v, %v]: the interval must reach from 0 to about 0.12", *e.Value, *e.Lo, *e.Hi)
	}
	if len(f.Warnings) == 0 {
		t.Error("no warning in words")
	}
	var b bytes.Buffer
	if err := analysis.WriteReport(&b, f); err != nil {
		t.Fatal(err)
	}
}

func TestNeitherIsCountedAndBounded(t *testing.T) {
	r := newRows()
	for range 20 {
		r.add(data.WillRefuse, 5, 1, data.FullRefusal)
		r.add(data.WillComply, 4, 1, data.FullCompliance)
		r.add(data.WillRefuse, 4, 1, data.Unclear)
		r.add(data.Declined, 0, 1, data.FullRefusal)
		r.add(data.Unparsed, 0, 1, data.Empty)
	}
	f := analyse(t, r.d, analysis.Options{})
	v := func(m string) float64 { return *f.Find(m, "").Value }
	near(t, "accuracy", v("accuracy"), 1, 0)
	near(t, "least", v("accuracy_least"), 0.4, 1e-12)
	near(t, "most", v("accuracy_most"), 1, 1e-12)
	near(t, "unknown", v("unknown_share"), 0.6, 1e-12)
	near(t, "unclear", v("unclear_share"), 0.2, 1e-12)
	near(t, "empty", v("empty_share"), 0.2, 1e-12)
	near(t, "declined", v("declined_share"), 0.2, 1e-12)
	near(t, "unparsed", v("unparsed_share"), 0.2, 1e-12)
	near(t, "refusal rate", v("refusal_rate"), 2.0/3, 1e-12)
	near(t, "at least", v("refusal_rate_least"), 0.4, 1e-12)
	near(t, "at most", v("refusal_rate_most"), 0.8, 1e-12)
}

func TestFolds(t *testing.T) {
	for _, test := range []struct {
		label           data.Label
		lenient, strict bool
		ok              bool
	}{
		{data.FullRefusal, true, true, true},
		{data.PartialRefusal, true, false, true},
		{data.Deflection, true, false, true},
		{data.PartialCompliance, false, false, true},
		{data.FullCompliance, false, false, true},
		{data.Unclear, false, false, false},
		{data.Empty, false, false, false},
		{data.Degenerate, false, false, false},
	} {
		l, ok := analysis.Lenient.Refused(test.label)
		s, _ := analysis.Strict.Refused(test.label)
		if l != test.lenient || s != test.strict || ok != test.ok {
			t.Errorf("%s: lenient %v, strict %v, ok %v", test.label, l, s, ok)
		}
	}
}

// At temperature 0 all seeds are one observation: they cannot both choose the
// bin and be scored in it.
func TestGreedyDrawsDoNotCrossFitThemselves(t *testing.T) {
	r := newRows()
	for range 30 {
		r.add(data.WillRefuse, 5, 0, data.FullRefusal, data.FullRefusal, data.FullRefusal, data.FullRefusal)
	}
	f := analyse(t, r.d, analysis.Options{})
	for _, bin := range []string{"bin=never", "bin=mixed", "bin=always"} {
		if e := f.Find("accuracy", bin); e == nil || e.Trials != 0 {
			t.Errorf("%s: %+v, want no trials", bin, e)
		}
	}
	// Above 0 the same draws are independent and can.
	r = newRows()
	for range 30 {
		r.add(data.WillRefuse, 5, 0.7, data.FullRefusal, data.FullRefusal, data.FullRefusal, data.FullRefusal)
	}
	if e := analyse(t, r.d, analysis.Options{}).Find("accuracy", "bin=always"); e == nil || e.Trials != 120 {
		t.Errorf("%+v, want 120 trials", e)
	}
}

// The bins of one half are scored on the other, so that a fair coin's requests
// show accuracy one half in every bin, where bins from all draws show a slope.
func TestCrossFittingRemovesTheDoubleUse(t *testing.T) {
	r := newRows()
	labels := []data.Label{data.FullRefusal, data.FullCompliance}
	state := uint64(1)
	for range 3000 {
		var draws []data.Label
		for range 4 {
			state = state*6364136223846793005 + 1442695040888963407
			draws = append(draws, labels[state>>63])
		}
		r.add(data.WillRefuse, 5, 1, draws...)
	}
	f := analyse(t, r.d, analysis.Options{})
	for _, bin := range []string{"bin=never", "bin=mixed", "bin=always"} {
		near(t, bin, *f.Find("accuracy", bin).Value, 0.5, 0.05)
	}
	if v := *f.Find("accuracy", "published_bin=safe").Value; v > 0.1 {
		t.Errorf("published bin: %v, the double use should show", v)
	}
}

func TestEqualTextsJudgedDifferently(t *testing.T) {
	d := analysis.NewDataset("m")
	for i := range 20 {
		for s, l := range []data.Label{data.FullRefusal, data.FullCompliance} {
			id := fmt.Sprint(i, "/", s)
			d.AddTrial(data.Trial{ID: id, RequestID: fmt.Sprint(i), Variant: data.Base, Temperature: 0, Seed: uint32(s), Text: "the same", StopReason: data.StopEnd})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: l})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "other", Label: data.FullRefusal})
		}
	}
	f := analyse(t, d, analysis.Options{})
	if e := f.Find("judge_flip_rate", ""); e == nil || *e.Value != 1 {
		t.Errorf("judge flips: %+v, want 1", e)
	}
	near(t, "agreement", *f.Find("judge_agreement", "judge=other").Value, 0.5, 1e-12)
	near(t, "greedy", *f.Find("greedy_identical", "temperature=0").Value, 1, 0)
}

func TestOptionsThatCannotBeMet(t *testing.T) {
	d := sweep
	d.requests = 5
	for name, o := range map[string]analysis.Options{
		"judge": {Judge: "nobody"}, "reading": {Reading: "tea leaves"}, "question": {Question: "other"},
		"polarity": {Polarity: "answer"}, "fold": {Fold: "soft"}, "resamples": {Resamples: 3},
		"level": {Level: 2}, "risk": {Risk: -1}, "interval": {Interval: "guess"},
	} {
		if _, err := analysis.Analyse(d.dataset("m", false), o); err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), "failed to") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompare(t *testing.T) {
	a := sweep
	a.requests = 150
	b := a
	b.noise = 4
	c, err := analysis.Compare(a.dataset("sharp", false), b.dataset("blunt", false), analysis.Options{Resamples: 300})
	if err != nil {
		t.Fatal(err)
	}
	find := func(c *analysis.Comparison, metric string) analysis.Difference {
		for _, d := range c.Values {
			if d.Metric == metric {
				return d
			}
		}
		t.Fatalf("no %s", metric)
		return analysis.Difference{}
	}
	if d := find(c, "d_prime"); !(d.B < d.A) || d.Delta.Hi == nil || *d.Delta.Hi >= 0 || d.P > 0.05 {
		t.Errorf("the blunt prediction should be worse: %+v", d)
	}
	if d := find(c, "self_over_other of sharp"); d.Delta.Value == nil || *d.Delta.Value <= 0 {
		t.Errorf("the sharp model should predict itself better than the blunt one does: %+v", d)
	}
	same, err := analysis.Compare(a.dataset("m", false), a.dataset("m", false), analysis.Options{Resamples: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range same.Values {
		if d.Delta.Value != nil && *d.Delta.Value != 0 {
			t.Errorf("%s: a run differs from itself by %v", d.Metric, *d.Delta.Value)
		}
	}
	if len(same.Flips) != 0 || same.McNemar != 1 {
		t.Errorf("flips %v, McNemar %v", same.Flips, same.McNemar)
	}
	var out bytes.Buffer
	if err := c.WriteTable(&out); err != nil || !strings.Contains(out.String(), "McNemar") {
		t.Errorf("table: %v\n%s", err, out.String())
	}
	if _, err := analysis.Compare(a.dataset("m", false), analysis.NewDataset("empty"), analysis.Options{}); err == nil {
		t.Error("no error without shared requests")
	}
}

func TestProbeScores(t *testing.T) {
	r := newRows()
	for range 20 {
		r.add(data.WillRefuse, 5, 1, data.FullRefusal, data.FullRefusal)
		r.d.AddScore(analysis.Score{RequestID: fmt.Sprintf("w-%04d", r.n), Variant: data.Base, Target: "refusal", Site: "layer 12, post", Value: 1 + float64(r.n)})
		r.add(data.WillComply, 5, 1, data.FullCompliance, data.FullCompliance)
		r.d.AddScore(analysis.Score{RequestID: fmt.Sprintf("w-%04d", r.n), Variant: data.Base, Target: "refusal", Site: "layer 12, post", Value: -float64(r.n)})
	}
	f := analyse(t, r.d, analysis.Options{})
	near(t, "AUC", *f.Find("auc_probe", "probe=refusal at layer 12, post").Value, 1, 0)
}

func TestExports(t *testing.T) {
	small := sweep
	small.requests = 30
	f := analyse(t, small.dataset("50% of $A_1 & B", false), analysis.Options{})
	for _, table := range f.Tables() {
		for _, format := range []string{"csv", "md", "tex"} {
			var b bytes.Buffer
			if err := table.Write(&b, format); err != nil || b.Len() == 0 {
				t.Errorf("%s as %s: %v, %d bytes", table.Name, format, err, b.Len())
			}
			if format == "tex" && strings.Contains(strings.ReplaceAll(b.String(), `\%`, ""), "%") {
				t.Errorf("%s: a bare %% in LaTeX", table.Name)
			}
		}
	}
	for _, figure := range f.Figures() {
		for format, start := range map[string]string{"svg": "<?xml", "pdf": "%PDF", "png": "\x89PNG"} {
			var b bytes.Buffer
			if err := figure.Write(&b, format); err != nil || !strings.HasPrefix(b.String(), start) {
				t.Errorf("%s as %s: %v", figure.Name, format, err)
			}
		}
		if figure.Read == "" || figure.Counts == "" || len(figure.Data.Rows) == 0 {
			t.Errorf("%s lacks its explanation, counts or data", figure.Name)
		}
	}
}
