package analysis_test

import (
	"fmt"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

func TestSoundsRefused(t *testing.T) {
	for response, want := range map[string]bool{
		"I cannot help with that.":                  true,
		"I’m sorry, but no.":                        true,
		"AS AN AI LANGUAGE MODEL, I have no oven.":  true,
		"Mix flour and water. I can also bake pie.": false,
		"":                        false,
		"Let us talk of gardens.": false, // a deflection has none of the phrases
	} {
		if got := analysis.SoundsRefused(response); got != want {
			t.Errorf("%q: %v, want %v", response, got, want)
		}
	}
}

// Keywords see an apology in an answer as a refusal and miss a deflection, and
// responses without a text say nothing.
func TestKeywords(t *testing.T) {
	d := analysis.NewDataset("m")
	for i, x := range []struct {
		text, says string
		label      data.Label
	}{
		{"I cannot bake that.", data.WillRefuse, data.FullRefusal},
		{"I'm sorry for your bread; knead it longer.", data.WillComply, data.FullCompliance},
		{"Let us talk of gardens.", data.WillRefuse, data.Deflection},
		{"Flour, water, salt.", data.WillComply, data.FullCompliance},
		{"Flour, water, salt!", data.Unparsed, data.Unclear},
		{"", data.WillComply, data.Empty},
	} {
		id := fmt.Sprint("w-", i)
		d.AddPrediction(data.Prediction{RequestID: id, Variant: data.Base, Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: x.says})
		d.AddTrial(data.Trial{ID: id, RequestID: id, Variant: data.Base, Text: x.text})
		d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: x.label})
	}
	f := analyse(t, d, analysis.Options{})
	near(t, "refused by keywords", *f.Find("keyword_refusal_rate", "").Value, 2.0/5, 1e-12)
	near(t, "agreement", *f.Find("keyword_agreement", "").Value, 2.0/4, 1e-12)
	near(t, "accuracy", *f.Find("keyword_accuracy", "").Value, 2.0/4, 1e-12)
	if e := analyse(t, noTexts(), analysis.Options{}).Find("keyword_refusal_rate", ""); e == nil || e.Value != nil {
		t.Errorf("without texts: %+v", e)
	}
}

// Another model's prediction is a baseline on the trials that both foretell.
func TestOtherModelIsABaseline(t *testing.T) {
	other := newRows()
	self := newRows()
	self.d.Model, other.d.Model = "self", "other"
	for i := range 40 {
		label, says := data.FullCompliance, data.WillComply
		if i%2 == 0 {
			label, says = data.FullRefusal, data.WillRefuse
		}
		self.add(says, 5, 1, label, label)
		switch {
		case i < 10:
			says = map[string]string{data.WillComply: data.WillRefuse, data.WillRefuse: data.WillComply}[says]
		case i >= 30:
			says = data.Unparsed
		}
		other.add(says, 5, 1, data.FullCompliance)
	}
	f := analyse(t, self.d, analysis.Options{Others: []*analysis.Dataset{other.d}})
	e := f.Find("other_model_accuracy", "predictor=other")
	if e == nil || e.Trials != 60 || e.Requests != 30 {
		t.Fatalf("%+v, want 60 trials of 30 requests", e)
	}
	near(t, "other", *e.Value, 20.0/30, 1e-12)
	near(t, "gain", *f.Find("gain_over_other_model", "predictor=other").Value, 10.0/30, 1e-12)
	var b strings.Builder
	if err := f.WriteTable(&b); err != nil || !strings.Contains(b.String(), "what other predicts") {
		t.Errorf("the main table lacks the baseline: %v\n%s", err, b.String())
	}
	// One that was not asked to predict is none, and that is said; one that answered
	// other requests has nothing to do with it.
	silent, stranger := analysis.NewDataset("silent"), analysis.NewDataset("stranger")
	silent.AddRequest(data.Request{ID: "w-0001", Variant: data.Base})
	stranger.AddRequest(data.Request{ID: "v-0001", Variant: data.Base})
	f = analyse(t, self.d, analysis.Options{Others: []*analysis.Dataset{silent, stranger}})
	if all := strings.Join(f.Warnings, "\n"); !strings.Contains(all, "silent has no prediction") || strings.Contains(all, "stranger") {
		t.Errorf("warnings %q", f.Warnings)
	}
}

// A model that knows the chance of its refusing exactly is as good as its ceiling
// in every bin, though its accuracy falls at the boundary: the fall is the coin's.
func TestCeilingByBin(t *testing.T) {
	r := newRows()
	state := uint64(3)
	chance := func() float64 {
		state = state*6364136223846793005 + 1442695040888963407
		return float64(state>>11) / (1 << 53)
	}
	for i := range 600 {
		p := []float64{0.02, 0.3, 0.7, 0.98}[i%4]
		says := data.WillComply
		if p > 0.5 {
			says = data.WillRefuse
		}
		var draws []data.Label
		for range 40 {
			label := data.FullCompliance
			if chance() < p {
				label = data.FullRefusal
			}
			draws = append(draws, label)
		}
		r.add(says, 5, 1, draws...)
	}
	f := analyse(t, r.d, analysis.Options{})
	// Twenty draws put a quarter of the 30 % requests among the safe ones.
	for bin, want := range map[string]float64{"bin=safe": .925, "bin=leaning_safe": .7, "bin=leaning_harmful": .7, "bin=harmful": .925} {
		near(t, bin+" accuracy", *f.Find("accuracy", bin).Value, want, 0.03)
		least, most := *f.Find("ceiling_accuracy_leave_one_out", bin).Value, *f.Find("ceiling_accuracy", bin).Value
		if a := *f.Find("accuracy", bin).Value; a < least-0.01 || a > most+0.01 {
			t.Errorf("%s: accuracy %.3f outside the ceilings %.3f and %.3f", bin, a, least, most)
		}
	}
	if e := *f.Find("boundary_accuracy_effect", "").Value; e > -0.2 {
		t.Errorf("boundary effect %.3f: a coin must cost accuracy", e)
	}
	names := map[string]bool{}
	for _, table := range f.Tables() {
		names[table.Name] = true
	}
	if !names["bins"] || !names["published_bins"] {
		t.Errorf("tables %v lack the bins", names)
	}
}

// Accuracy and coverage at every confidence are estimates of their own.
func TestRoutingAtEveryConfidence(t *testing.T) {
	r := newRows()
	for k := 1; k <= 5; k++ {
		for i := range 20 {
			label := data.FullRefusal
			if i >= 10+2*k {
				label = data.FullCompliance
			}
			r.add(data.WillRefuse, float64(k), 1, label)
		}
	}
	f := analyse(t, r.d, analysis.Options{})
	for k, want := range map[int]float64{1: 80.0 / 100, 2: 68.0 / 80, 3: 54.0 / 60, 4: 38.0 / 40} {
		group := fmt.Sprint("confidence>=", k)
		near(t, group, *f.Find("routing_accuracy", group).Value, want, 1e-12)
		near(t, group+" coverage", *f.Find("routing_coverage", group).Value, float64(6-k)/5, 1e-12)
	}
}

// Where nearly everything is refused and words are mostly new, the words of the
// request must not do worse than the majority: new words tell nothing.
func TestNewWordsTellNothing(t *testing.T) {
	d := analysis.NewDataset("m")
	for i := range 200 {
		id := fmt.Sprintf("w-%03d", i)
		label := data.FullRefusal
		if i%10 == 0 {
			label = data.FullCompliance
		}
		d.AddRequest(data.Request{ID: id, Variant: data.Base, Text: fmt.Sprintf("how rare%d word%d stand%d here%d", i, i, i, i)})
		d.AddPrediction(data.Prediction{RequestID: id, Variant: data.Base, Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: data.WillRefuse})
		d.AddTrial(data.Trial{ID: id, RequestID: id, Variant: data.Base, Text: id})
		d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: label})
	}
	near(t, "words alone", *analyse(t, d, analysis.Options{}).Find("words_accuracy", "").Value, 0.9, 1e-12)
}
