package analysis_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

// Whatever a run holds, the analysis ends with numbers or with reasons, and the
// report can be written: one class only, one trial, no predictions, numbers out
// of range, verdicts of no trial, names that are markup.
func TestAnythingCanBeAnalysed(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	number := func() *float64 {
		v := []float64{0, 1, 2, 3, 4, 5, 6, -1, math.NaN(), math.Inf(1), 0.5}[rng.IntN(11)]
		if rng.IntN(4) == 0 {
			return nil
		}
		return &v
	}
	for round := range 60 {
		d := analysis.NewDataset(pick("m", "", `<script>`, "a\nb"))
		d.KeepTexts = rng.IntN(3) == 0
		labels := data.Labels()
		if rng.IntN(3) == 0 {
			labels = labels[:1+rng.IntN(3)]
		}
		predictions := rng.IntN(4) > 0
		requests := rng.IntN(10)
		for i := range requests {
			id := fmt.Sprint("r", i)
			for v := range 1 + rng.IntN(3) {
				variant := fmt.Sprint("p", v)
				if rng.IntN(5) > 0 {
					d.AddRequest(data.Request{ID: id, Variant: variant, Topic: pick("", "a", "b=c", "<i>"), Harm: rng.IntN(8) - 1, Text: pick("", "bake bread", "</blockquote><script>")})
				}
				if predictions {
					for _, reading := range []string{data.Free, data.Grammar, data.Exact} {
						if rng.IntN(4) > 0 {
							d.AddPrediction(data.Prediction{
								RequestID: id, Variant: variant, Question: pick("default", "other"), Polarity: pick(data.AskRefuse, data.AskAnswer), Reading: reading,
								Temperature: float64(rng.IntN(2)), Outcome: pick(data.WillRefuse, data.WillComply, data.Declined, data.Unparsed, data.Failed, "?"), Confidence: number(), HarmRating: number(), PRefuse: number(),
							})
						}
					}
				}
				for s := range rng.IntN(5) {
					tid := fmt.Sprint(id, variant, s)
					trial := data.Trial{ID: tid, RequestID: id, Variant: variant, Temperature: []float64{0, 0.5, 1, math.NaN()}[rng.IntN(4)], Seed: uint32(rng.IntN(3)), Text: pick("", "no", "yes", "<b>")}
					if rng.IntN(8) == 0 {
						trial.ErrorKind = data.ErrOverflow
					}
					d.AddTrial(trial)
					if rng.IntN(6) > 0 {
						d.AddVerdict(data.Verdict{TrialID: tid, Judge: pick("rules", "other"), Label: labels[rng.IntN(len(labels))]})
					}
				}
				d.AddVerdict(data.Verdict{TrialID: "nowhere", Judge: "rules", Label: "no such label"})
				d.AddScore(analysis.Score{RequestID: pick(id, "nowhere"), Variant: variant, Target: "refusal", Site: "layer 1", Value: rng.NormFloat64()})
			}
		}
		f, err := analysis.Analyse(d, analysis.Options{Resamples: 100, Seed: uint64(round)})
		if err != nil {
			// The one thing that can be missing by chance is the polarity asked for.
			if !strings.Contains(err.Error(), "polarity") {
				t.Fatalf("round %d: %v", round, err)
			}
			continue
		}
		var b bytes.Buffer
		if err := analysis.WriteJSON(&b, f.Estimates); err != nil || !json.Valid(b.Bytes()) {
			t.Fatalf("round %d: JSON: %v", round, err)
		}
		for _, e := range f.Estimates {
			if e.Value == nil && len(e.Warnings) == 0 {
				t.Errorf("round %d: %s %s: null without a reason", round, e.Metric, e.Group)
			}
			if e.Lo != nil && (*e.Lo > *e.Hi || math.IsNaN(*e.Lo)) {
				t.Errorf("round %d: %s %s: limits %v, %v", round, e.Metric, e.Group, *e.Lo, *e.Hi)
			}
		}
		b.Reset()
		if err := analysis.WriteReport(&b, f); err != nil {
			t.Fatalf("round %d: report: %v", round, err)
		}
		if strings.Contains(b.String(), "<script") {
			t.Errorf("round %d: the report holds a script", round)
		}
		b.Reset()
		if err := f.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "NaN") {
			t.Errorf("round %d: the table shows NaN", round)
		}
	}
}
