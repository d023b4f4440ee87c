package main

import (
	"fmt"
	"math"
	"os"
	"testing"

	"demur/analysis"
	"demur/data"
	"demur/models/phantom"
	"demur/protocol"
)

// demoTruth is the truth of a phantom under the demo's plan.
func demoTruth(t *testing.T, spec phantom.Spec) (*phantom.Truth, []data.Request) {
	t.Helper()
	model, err := phantom.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := data.Demo()
	if err != nil {
		t.Fatal(err)
	}
	truth, err := truthOf(model, requests, demoPlan())
	if err != nil {
		t.Fatal(err)
	}
	return truth, requests
}

// simulated measures one simulated run of a truth with the real analysis, as the
// demo does: what a sound instrument would see, without an engine.
func simulated(t *testing.T, truth *phantom.Truth, requests []data.Request, seed uint64, o analysis.Options) measurements {
	t.Helper()
	d := analysis.NewDataset("phantom")
	for _, r := range requests {
		d.AddRequest(r)
	}
	m := measurements{}
	var n, harm, confidence, pRefuse, exactHarm, exactConfidence float64
	for i, p := range truth.Prompts {
		row := data.Prediction{
			ID: fmt.Sprint(i), RequestID: p.RequestID, Variant: p.Variant, Question: "default", Polarity: data.AskRefuse,
			Outcome: map[bool]string{true: data.WillRefuse, false: data.WillComply}[p.Predicts],
		}
		c, h, pr := float64(p.Confidence), float64(p.HarmRating), p.PredictRefuse
		row.Confidence, row.HarmRating = &c, &h
		for _, reading := range []string{data.Grammar, data.Free, data.Exact} {
			row.Reading, row.PRefuse = reading, nil
			if reading == data.Exact {
				row.PRefuse = &pr
			}
			free := row
			if reading == data.Free && p.Evasion != "" {
				free.Outcome, free.Confidence, free.HarmRating = p.Evasion, nil, nil
			}
			d.AddPrediction(free)
		}
		n++
		harm += h
		confidence += c
		pRefuse += pr
		for k := range 5 {
			exactConfidence += float64(k+1) * p.Confidences[k]
			exactHarm += float64(k+1) * p.HarmRatings[k]
		}
	}
	for i, x := range truth.Simulate(seed) {
		p := truth.Prompts[x.Prompt]
		id := fmt.Sprint("t", i)
		d.AddTrial(data.Trial{
			ID: id, RequestID: p.RequestID, Variant: p.Variant, Temperature: truth.Plan.Temperatures[x.Temperature], Seed: uint32(x.Seed),
			Text: fmt.Sprint(x.Answer), StopReason: data.StopEnd,
		})
		d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: data.Label(x.Label)})
	}
	f, err := analysis.Analyse(d, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Estimates {
		m.add(x)
	}
	m[measurementKey{name: "harm_rating_mean"}] = harm / n
	m[measurementKey{name: "confidence_mean"}] = confidence / n
	m[measurementKey{name: "harm_rating_mean", reading: data.Exact}] = exactHarm / n
	m[measurementKey{name: "confidence_mean", reading: data.Exact}] = exactConfidence / n
	m[measurementKey{name: "p_refuse_mean", reading: data.Exact}] = pRefuse / n
	return m
}

// simulations is how many runs are simulated: 1,000 where DEMUR_LONG is set.
func simulations() int {
	if os.Getenv("DEMUR_LONG") != "" {
		return 1000
	}
	return 10
}

func defaultSpec(t *testing.T) phantom.Spec {
	t.Helper()
	spec, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestSoundInstrumentRarelyFails simulates runs of the demo by other seeds: a
// sound instrument is called unsound in at most 1 of 100.
func TestSoundInstrumentRarelyFails(t *testing.T) {
	truth, requests := demoTruth(t, defaultSpec(t))
	planted := truth.Quantities()
	runs, failed := simulations(), 0
	for seed := range runs {
		for _, row := range compareRows(planted, simulated(t, truth, requests, uint64(seed), analysis.Options{Resamples: 100})) {
			if !row.OK {
				failed++
				t.Logf("seed %d: %s (%s%s): planted %.4f, %.4f to %.4f: %s", seed, row.Quantity, row.Group, row.Reading, row.Planted, row.Lo, row.Hi, row.Why)
				break
			}
		}
	}
	t.Logf("a sound instrument fails in %d of %d runs", failed, runs)
	// Of few runs one failure is no proof of a fault.
	if allowed := max(1, runs/100); failed > allowed {
		t.Errorf("a sound instrument fails in %d of %d runs, want at most %d", failed, runs, allowed)
	}
}

// TestDistortionIsDetected simulates phantoms whose self-prediction differs from
// the planted one by 0.3 in d′ or 0.2 in c: the rows of d′ and c alone must find
// that in 9 of 10 runs.
func TestDistortionIsDetected(t *testing.T) {
	truth, requests := demoTruth(t, defaultSpec(t))
	planted := truth.Quantities()
	find := func(all []phantom.Quantity, name string) float64 {
		for _, q := range all {
			if q.Name == name && q.Group == "" && q.Reading == "" {
				return q.Planted
			}
		}
		t.Fatalf("no quantity %s", name)
		return 0
	}
	for _, c := range []struct {
		name, metric string
		by           float64
		step         func(*phantom.Spec)
	}{
		{"d′ by 0.3", "d_prime", 0.3, func(s *phantom.Spec) { s.SelfError += 0.01 }},
		{"c by 0.2", "criterion", 0.2, func(s *phantom.Spec) { s.SelfBias += 0.01 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := defaultSpec(t)
			var distorted *phantom.Truth
			var shift float64
			for range 60 {
				c.step(&spec)
				distorted, _ = demoTruth(t, spec)
				shift = find(distorted.Quantities(), c.metric) - find(planted, c.metric)
				if math.Abs(shift) >= c.by {
					break
				}
			}
			if math.Abs(shift) < c.by {
				t.Fatalf("no spec shifts %s by %v; the last by %.3f", c.metric, c.by, shift)
			}
			runs, found := simulations(), 0
			for seed := range runs {
				for _, row := range compareRows(planted, simulated(t, distorted, requests, uint64(seed), analysis.Options{Brief: true})) {
					if !row.OK && row.Quantity == c.metric && row.Reading == "" {
						found++
						break
					}
				}
			}
			t.Logf("a shift of %s by %.3f is found by its own row in %d of %d runs", c.metric, shift, found, runs)
			if float64(found) < 0.9*float64(runs) {
				t.Errorf("a shift of %s by %.3f is found in %d of %d runs, want 9 of 10", c.metric, shift, found, runs)
			}
		})
	}
}

// TestPhantomPlanIsTheProtocols holds the truth to what the protocol really asks.
func TestPhantomPlanIsTheProtocols(t *testing.T) {
	truth, requests := demoTruth(t, defaultSpec(t))
	if len(truth.Prompts) != len(requests) {
		t.Fatalf("%d prompts, want %d", len(truth.Prompts), len(requests))
	}
	q, err := protocol.FindQuestion(demoPlan().Questions[0])
	if err != nil {
		t.Fatal(err)
	}
	if q.Polarity != data.AskRefuse {
		t.Errorf("the demo's question asks %s", q.Polarity)
	}
}
