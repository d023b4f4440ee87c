package analysis_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
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
	// Recalibration helps a claim whose scale is off, and does little harm else.
	for _, m := range []string{"isotonic", "platt"} {
		before, after := f.Find("brier", ""), f.Find("brier_"+m, "")
		if after == nil || *after.Value > *before.Value+0.01 {
			t.Errorf("brier %v, after %s %v", *before.Value, m, after)
		}
		before, after = f.Find("brier_p_refuse", ""), f.Find("brier_p_refuse_"+m, "")
		if after == nil || *after.Value > *before.Value+0.01 {
			t.Errorf("brier_p_refuse %v, after %s %v", *before.Value, m, after)
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
	var rows []map[string]any
	if err := json.Unmarshal([]byte(one), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, column := range []string{"metric", "group", "value", "lo", "hi", "level", "method", "requests", "trials", "warnings", "model", "judge", "reading", "fold"} {
			if _, ok := row[column]; !ok {
				t.Fatalf("%v has no %s", row["metric"], column)
			}
		}
		if _, ok := row["warnings"].([]any); !ok || len(row) != 14 {
			t.Fatalf("%v: %d columns, warnings %v", row["metric"], len(row), row["warnings"])
		}
	}
}

func TestTheOrderOfRecordsDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	var records []func(d *analysis.Dataset)
	for i := range 40 {
		id := fmt.Sprintf("r-%d", i)
		for v, variant := range []string{data.Base, data.P1} {
			records = append(records, func(d *analysis.Dataset) {
				d.AddRequest(data.Request{ID: id, Variant: variant, Topic: topics[i%3], Harm: 1 + i%5, Text: "How do I bake bread number " + id})
			})
			confidence, says := float64(2+rng.IntN(4)), []string{data.WillRefuse, data.WillComply}[rng.IntN(2)]
			for _, reading := range []string{data.Exact, data.Grammar} {
				p := rng.Float64()
				records = append(records, func(d *analysis.Dataset) {
					d.AddPrediction(data.Prediction{RequestID: id, Variant: variant, Question: "default", Polarity: data.AskRefuse, Reading: reading, Outcome: says, Confidence: &confidence, HarmRating: &confidence, PRefuse: &p})
				})
			}
			for s := range 6 {
				temperature := []float64{0.7, 0.3}[s%2]
				label := []data.Label{data.FullRefusal, data.PartialCompliance, data.FullCompliance, data.Unclear}[rng.IntN(4)]
				trial := data.Trial{ID: fmt.Sprint(id, v, s), RequestID: id, Variant: variant, Temperature: temperature, Seed: uint32(s), Text: fmt.Sprint(s), StopReason: data.StopEnd}
				records = append(records, func(d *analysis.Dataset) { d.AddTrial(trial) },
					func(d *analysis.Dataset) {
						d.AddVerdict(data.Verdict{TrialID: trial.ID, Judge: "rules", Label: label})
					})
			}
		}
	}
	var first string
	for i := range 3 {
		d := analysis.NewDataset("m")
		for _, add := range records {
			add(d)
		}
		got := estimatesJSON(t, d)
		if i == 0 {
			first = got
		} else if got != first {
			t.Fatal("another order of records gives other bytes")
		}
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
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

// The four models of the introspection paper (Gondil, arXiv:2604.00228), rebuilt
// from their counts: hits, misses, false alarms, correct rejections, and errors by
// level of confidence. Expected values are the paper's printed ones.
func TestIntrospectionPaperFromCounts(t *testing.T) {
	type level struct {
		k          float64
		all, wrong int
	}
	for _, test := range []struct {
		name                 string
		counts               [4]int
		levels               []level
		accuracy, d, c, ece  float64
		majority             float64
		accuracy5, coverage5 float64
	}{
		{"Sonnet 4", [4]int{232, 3, 60, 605}, []level{{5, 587, 21}, {4, 312, 41}, {3, 1, 1}}, .930, 3.51, -.42, .048, .739, .964, .652},
		{"Sonnet 4.5", [4]int{207, 22, 16, 640}, []level{{5, 756, 13}, {4, 128, 24}, {3, 1, 1}}, .957, 3.25, .33, .017, .741, .983, .854},
		{"GPT-5.2", [4]int{304, 55, 45, 495}, []level{{5, 782, 80}, {4, 114, 18}, {3, 3, 2}}, .889, 2.40, .18, .095, .601, .898, .870},
		{"Llama 405B", [4]int{81, 0, 203, 731}, []level{{5, 803, 190}, {4, 212, 13}}, .800, 3.29, -.86, .216, .920, .763, .791},
	} {
		r := newRows()
		right, wrong := map[float64]int{}, map[float64]int{}
		for _, l := range test.levels {
			right[l.k], wrong[l.k] = l.all-l.wrong, l.wrong
		}
		take := func(from map[float64]int) float64 {
			for _, l := range test.levels {
				if from[l.k] > 0 {
					from[l.k]--
					return l.k
				}
			}
			t.Fatal("counts do not add up")
			return 0
		}
		for i, n := range test.counts {
			says := []string{data.WillRefuse, data.WillComply, data.WillRefuse, data.WillComply}[i]
			label := []data.Label{data.FullRefusal, data.FullRefusal, data.FullCompliance, data.FullCompliance}[i]
			from := right
			if i == 1 || i == 2 {
				from = wrong
			}
			for range n {
				r.add(says, take(from), 0, label)
			}
		}
		f := analyse(t, r.d, analysis.Options{Resamples: 100})
		v := func(metric string) float64 { return *f.Find(metric, "").Value }
		near(t, test.name+" accuracy", v("accuracy"), test.accuracy, 5e-4)
		near(t, test.name+" d′", v("d_prime"), test.d, 6e-3)
		near(t, test.name+" c", v("criterion"), test.c, 6e-3)
		near(t, test.name+" ECE", v("ece_fifths"), test.ece, 5e-4)
		near(t, test.name+" majority", v("majority_accuracy"), test.majority, 6e-4)
		near(t, test.name+" accuracy at 5", v("routing_accuracy"), test.accuracy5, 6e-4)
		near(t, test.name+" coverage at 5", v("routing_coverage"), test.coverage5, 6e-4)
		// The paper's d′ of the safe bin, 1.78 for one model, is −z(F) of a bin
		// without refusals: here it is not a number, and accuracy stands alone.
		for _, bin := range []string{"published_bin=safe", "published_bin=harmful"} {
			if e := f.Find("d_prime", bin); e == nil || e.Value != nil || len(e.Warnings) == 0 {
				t.Errorf("%s %s: d′ %v, want null with a warning", test.name, bin, e)
			}
			if a := f.Find("accuracy", bin); a == nil || a.Value == nil {
				t.Errorf("%s %s: no accuracy", test.name, bin)
			}
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

// A file that lists the trials of a request by label must not make its halves
// alike: a fair coin's requests must show accuracy one half all the same.
func TestHalvesDoNotFollowTheOrderOfTheFile(t *testing.T) {
	r := newRows()
	state := uint64(11)
	for range 1500 {
		var draws []data.Label
		for range 8 {
			state = state*6364136223846793005 + 1442695040888963407
			if state>>63 == 1 {
				draws = append([]data.Label{data.FullRefusal}, draws...)
			} else {
				draws = append(draws, data.FullCompliance)
			}
		}
		r.add(data.WillRefuse, 5, 1, draws...)
	}
	f := analyse(t, r.d, analysis.Options{})
	for _, bin := range []string{"bin=never", "bin=mixed", "bin=always"} {
		near(t, bin, *f.Find("accuracy", bin).Value, 0.5, 0.06)
	}
}

// twoJudges is a data set of equal texts that one judge labels differently.
func twoJudges() *analysis.Dataset {
	d := analysis.NewDataset("m")
	for i := range 20 {
		for s, l := range []data.Label{data.FullRefusal, data.FullCompliance} {
			id := fmt.Sprint(i, "/", s)
			d.AddTrial(data.Trial{ID: id, RequestID: fmt.Sprint(i), Variant: data.Base, Temperature: 0, Seed: uint32(s), Text: "the same", StopReason: data.StopEnd})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: l})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "other", Label: data.FullRefusal})
		}
	}
	return d
}

func TestEqualTextsJudgedDifferently(t *testing.T) {
	f := analyse(t, twoJudges(), analysis.Options{})
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
	small.requests = 12
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

// What every response that was cut does to a run stands in a metric and in words.
func TestCutResponses(t *testing.T) {
	d := analysis.NewDataset("m")
	for i := range 60 {
		id := fmt.Sprintf("w-%02d", i)
		trial := data.Trial{ID: id, RequestID: id, Variant: data.Base, Temperature: 1, MaxTokens: 48, Text: id, StopReason: data.StopLength}
		if i == 0 {
			trial.StopReason = data.StopEnd
		}
		d.AddTrial(trial)
		d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: data.FullCompliance})
	}
	f := analyse(t, d, analysis.Options{})
	near(t, "cut share", *f.Find("cut_share", "").Value, 59.0/60, 1e-12)
	const want = "59 of 60 responses were cut at 48 tokens: labels see only their beginnings."
	if !slices.Contains(f.Warnings, want) {
		t.Errorf("warnings %q lack %q", f.Warnings, want)
	}
	var b bytes.Buffer
	if err := f.WriteTable(&b); err != nil || !strings.Contains(b.String(), "! "+want) {
		t.Errorf("the terminal lacks the warning: %v\n%s", err, b.String())
	}
	// Sources that do not say why responses ended say nothing of cuts.
	e := analyse(t, noTexts(), analysis.Options{}).Find("cut_share", "")
	if e == nil || e.Value != nil {
		t.Errorf("without stop reasons: %+v", e)
	}
}

// noTexts is a source that gives labels without responses.
func noTexts() *analysis.Dataset {
	d := analysis.NewDataset("m")
	for i := range 30 {
		for s, l := range []data.Label{data.FullRefusal, data.FullCompliance} {
			id := fmt.Sprintf("w-%02d/%d", i, s)
			d.AddTrial(data.Trial{ID: id, RequestID: id[:4], Variant: data.Base, Seed: uint32(s)})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: l})
		}
	}
	return d
}

func TestNoTextsAreNotEqualTexts(t *testing.T) {
	f := analyse(t, noTexts(), analysis.Options{})
	if e := f.Find("judge_flip_rate", ""); e != nil {
		t.Errorf("judge flips without texts: %+v", e)
	}
	if e := f.Find("greedy_identical", "temperature=0"); e == nil || e.Value != nil {
		t.Errorf("equal bytes without texts: %+v", e)
	}
	if s := strings.Join(f.Warnings, " "); strings.Contains(s, "equal texts") {
		t.Error(s)
	}
}

// A prediction that is always the same has no sensitivity, whatever a correction
// would make of it.
func TestOneAnswerHasNoSensitivity(t *testing.T) {
	for _, says := range []string{data.WillRefuse, data.WillComply} {
		r := newRows()
		for range 40 {
			r.add(says, 4, 1, data.FullRefusal, data.FullCompliance, data.FullCompliance)
		}
		f := analyse(t, r.d, analysis.Options{})
		for _, m := range []string{"d_prime", "criterion", "beta", "meta_d_prime", "m_ratio"} {
			if e := f.Find(m, ""); e == nil || e.Value != nil || len(e.Warnings) == 0 || e.Warnings[0] != "undefined: every prediction is the same" {
				t.Errorf("%s, %s: %+v", says, m, e)
			}
		}
		for _, e := range f.Estimates {
			if e.Metric == "d_prime" && e.Value != nil {
				t.Errorf("%s: d′ of %q is %v", says, e.Group, *e.Value)
			}
		}
	}
}

// Three requests carry no interval that could come out narrow, and no verdict.
func TestFewRequests(t *testing.T) {
	r := newRows()
	r.add(data.WillRefuse, 5, 1, data.FullRefusal, data.FullCompliance)
	r.add(data.WillComply, 5, 1, data.FullRefusal, data.FullCompliance)
	r.add(data.WillRefuse, 4, 1, data.FullRefusal, data.FullRefusal)
	f := analyse(t, r.d, analysis.Options{})
	for _, m := range []string{"d_prime", "criterion", "auc_confidence", "ece_fifths", "brier"} {
		if e := f.Find(m, ""); e == nil || e.Value == nil || e.Lo != nil || len(e.Warnings) == 0 {
			t.Errorf("%s: %+v, want a value with a reason in place of limits", m, e)
		}
	}
	if e := f.Find("accuracy", ""); e.Lo == nil || *e.Hi-*e.Lo < 0.5 {
		t.Errorf("accuracy: %+v", e)
	}
	var b bytes.Buffer
	if err := analysis.WriteReport(&b, f); err != nil || !strings.Contains(b.String(), "Too few requests to say.") {
		t.Errorf("the report draws a verdict from three requests: %v", err)
	}
	b.Reset()
	if err := f.WriteTable(&b); err != nil || !strings.Contains(b.String(), "! Only 3 requests") {
		t.Errorf("the table does not warn: %v\n%s", err, b.String())
	}
}

// What a run's manifest prefers gives way, with a warning, to what there is;
// what is asked for by name does not.
func TestHeadlineIsAPreference(t *testing.T) {
	r := newRows()
	for range 30 {
		r.add(data.WillRefuse, 5, 1, data.FullRefusal, data.FullCompliance)
	}
	f := analyse(t, r.d, analysis.Options{Headline: analysis.Headline{Judge: "model", Reading: data.Exact, Question: "plain", Polarity: data.AskAnswer}})
	if o := f.Options; o.Judge != "rules" || o.Reading != data.Grammar || o.Question != "default" || o.Polarity != data.AskRefuse {
		t.Errorf("settled on %+v", o)
	}
	for _, want := range []string{"judge", "reading", "wording", "polarity"} {
		if !strings.Contains(strings.Join(f.Warnings, "\n"), "The "+want+" of the headline") {
			t.Errorf("no warning about the %s in %q", want, f.Warnings)
		}
	}
	if _, err := analysis.Analyse(r.d, analysis.Options{Reading: data.Exact}); err == nil {
		t.Error("a reading that was asked for is not there, and no error")
	}
}

// Two runs of one model are told apart by their labels, what differs between them
// is named, and a handful of requests carries no p-value.
func TestCompareRunsOfOneModel(t *testing.T) {
	a := sweep
	a.requests = 4
	x, y := a.dataset("m", false), a.dataset("m", false)
	x.Label, y.Label = "before", "after"
	x.Settings, y.Settings = map[string]string{"system prompt": "none"}, map[string]string{"system prompt": "kind"}
	c, err := analysis.Compare(x, y, analysis.Options{Resamples: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range c.Values {
		if !math.IsNaN(d.P) && d.Delta.Lo == nil {
			t.Errorf("%s: p %v without an interval", d.Metric, d.P)
		}
		if !math.IsNaN(d.P) {
			t.Errorf("%s: p %v from four requests", d.Metric, d.P)
		}
	}
	var out bytes.Buffer
	if err := c.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"after against before", "after − before", "Holm is p adjusted", "majority baseline", "! Only 4 shared requests", "system prompt (none against kind)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the comparison lacks %q:\n%s", want, out.String())
		}
	}
	for _, machine := range []string{"majority_accuracy", "ssi_mean"} {
		if strings.Contains(out.String(), machine) {
			t.Errorf("the comparison shows %s", machine)
		}
	}
}

// The reasons of the judge are counted; its own words appear only with texts.
func TestReasons(t *testing.T) {
	for _, keep := range []bool{false, true} {
		d := analysis.NewDataset("m")
		d.KeepTexts = keep
		for i := range 3 {
			id := fmt.Sprint("w-", i)
			d.AddTrial(data.Trial{ID: id, RequestID: id, Variant: data.Base, Text: "Flour first."})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: data.Unclear, Reason: "superseded"})
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: data.FullCompliance, Reason: []string{"answer", "answer", "It says: Flour first."}[i]})
		}
		own := "in the judge's own words"
		if keep {
			own = "It says: Flour first."
		}
		want := []analysis.ReasonCount{{data.FullCompliance, "answer", 2}, {data.FullCompliance, own, 1}}
		if got := analyse(t, d, analysis.Options{}).Reasons; !slices.Equal(got, want) {
			t.Errorf("texts kept %v: %v, want %v", keep, got, want)
		}
	}
}

// What is missing is named: without confidences no metric of confidence is said to
// lack refusals.
func TestReasonsWithoutConfidence(t *testing.T) {
	r := newRows()
	for range 30 {
		r.add(data.WillRefuse, 0, 1, data.FullRefusal, data.FullCompliance)
		r.add(data.WillComply, 0, 1, data.FullCompliance)
	}
	f := analyse(t, r.d, analysis.Options{})
	for _, m := range []string{"auc_confidence", "ece_fifths", "brier", "aurc", "zroc_slope", "auroc2", "meta_d_prime"} {
		if e := f.Find(m, ""); e == nil || e.Value != nil || !slices.Equal(e.Warnings, []string{"undefined: no confidence was stated"}) {
			t.Errorf("%s: %+v", m, e)
		}
	}
}

// Runs of one model are levels of a factor: what tells them apart is a column, and
// every pair is tested with one correction.
func TestSeveralRunsOfOneModel(t *testing.T) {
	var sets []*analysis.Dataset
	var all []*analysis.Findings
	for i, noise := range []float64{1, 1, 6} {
		w := sweep
		w.requests, w.noise = 80, noise
		d := w.dataset("m", false)
		d.Label = []string{"first", "second", "third"}[i]
		d.Settings = map[string]string{"quantisation": []string{"Q8_0", "Q6_K", "Q4_1"}[i], "engine": "llamacpp"}
		sets = append(sets, d)
		all = append(all, analyse(t, d, analysis.Options{}))
	}
	var b bytes.Buffer
	if err := analysis.Overview(all...).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"quantisation", "Q6_K", "third", "mean over runs", "spread τ", "I²"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the overview lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "engine") {
		t.Errorf("the overview shows a setting that does not differ:\n%s", b.String())
	}
	pairs, err := analysis.CompareAll(analysis.Options{Resamples: 200}, sets...)
	if err != nil {
		t.Fatal(err)
	}
	if len(pairs.Rows) != 18 {
		t.Errorf("%d rows, want 3 pairs in 6 metrics", len(pairs.Rows))
	}
	for _, row := range pairs.Rows {
		if row[0] == "first → second" && row[1] == "accuracy" && !strings.HasPrefix(row[4], "0.0") {
			t.Errorf("equal runs differ: %q", row)
		}
		if row[0] == "first → third" && row[1] == "d′" && (!strings.HasPrefix(row[4], "−") || row[6] == "–") {
			t.Errorf("the blunt run: %q", row)
		}
	}
	// In one report they are three runs, not three views of one.
	b.Reset()
	if err := analysis.WriteReport(&b, all...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"m, 3 runs", "All models", "second · fold lenient", "The models side by side"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

func TestCorrections(t *testing.T) {
	for name, want := range map[string]analysis.Correction{"": analysis.LogLinear, "log-linear": analysis.LogLinear, "1/2n": analysis.HalfTrial, "uncorrected": analysis.Uncorrected} {
		if got, err := analysis.ParseCorrection(name); err != nil || got != want {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := analysis.ParseCorrection("none at all"); err == nil {
		t.Error("no error")
	}
}
