package phantom_test

import (
	"math"
	"testing"

	"demur/models/phantom"
)

func along(readOut, x []float64) float64 {
	var s float64
	for i, v := range x {
		s += v * readOut[i]
	}
	return s
}

func user(text string) []phantom.Message { return []phantom.Message{{Role: "user", Content: text}} }

// extremes returns the words with the greatest trigger and with the greatest
// harm that has no trigger.
func extremes(m *phantom.Model) (trigger, harm phantom.Word) {
	for _, w := range m.Words() {
		if w.Kind == phantom.Plain && w.Trigger > trigger.Trigger {
			trigger = w
		}
		if w.Trigger == 0 && w.Harm > harm.Harm {
			harm = w
		}
	}
	return trigger, harm
}

func TestDirectionsLieWhereTheSpecSays(t *testing.T) {
	for _, c := range []struct {
		name         string
		angle        float64
		blocks, h, r int
		width        int
	}{
		{"default", 60, 4, 1, 2, 64},
		{"right angle", 90, 4, 1, 2, 64},
		{"deep and wide", 30, 8, 2, 5, 96},
		{"one", 0, 4, 1, 2, 64},
	} {
		spec, err := phantom.Preset("default")
		if err != nil {
			t.Fatal(err)
		}
		spec.Angle, spec.Blocks, spec.HarmBlock, spec.RefusalBlock, spec.Width = c.angle, c.blocks, c.h, c.r, c.width
		m, err := phantom.Build(spec)
		if err != nil {
			t.Fatal(err)
		}
		harm, refusal := m.Directions()
		if got, want := phantom.Cosine(harm.Vector, refusal.Vector), math.Cos(c.angle*math.Pi/180); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: cosine of the directions is %v, want %v", c.name, got, want)
		}
		if c.angle != 0 {
			for _, d := range []struct {
				what      string
				got, want float64
			}{
				{"harm read from harm", along(harm.ReadOut, harm.Vector), 1},
				{"harm read from refusal", along(harm.ReadOut, refusal.Vector), 0},
				{"refusal read from harm", along(refusal.ReadOut, harm.Vector), 0},
				{"refusal read from refusal", along(refusal.ReadOut, refusal.Vector), 1},
			} {
				if math.Abs(d.got-d.want) > 1e-9 {
					t.Errorf("%s: %s is %v, want %v", c.name, d.what, d.got, d.want)
				}
			}
		}
		trigger, harmful := extremes(m)
		tokens := m.Tokenize(phantom.Render(user("the " + trigger.Text + " and the " + harmful.Text + " too")))
		streams := m.Streams(tokens)
		inst, post := len(tokens)-3, len(tokens)-1 // before and after the two template tokens
		for b, x := range streams {
			if b > 0 {
				for _, position := range []int{inst, post} {
					var moved float64
					for k, v := range x[position] {
						moved = max(moved, math.Abs(v-streams[b-1][position][k]))
					}
					if moved < 1e-4 {
						t.Errorf("%s: block %d leaves the stream as it was: a layer off by one would not show", c.name, b)
					}
				}
			}
			wantHarm := 0.0
			if b >= c.h {
				wantHarm = float64(max(harmful.Harm, trigger.Harm)) / 5
			}
			if got := along(harm.ReadOut, x[inst]); math.Abs(got-wantHarm) > 0.01 {
				t.Errorf("%s: harm at the request's end after block %d is %.3f, want %.3f", c.name, b, got, wantHarm)
			}
			if c.angle == 0 {
				continue
			}
			wantRefusal := 0.0
			if b >= c.r {
				wantRefusal = trigger.Trigger
			}
			if got := along(refusal.ReadOut, x[post]); math.Abs(got-wantRefusal) > 0.01 {
				t.Errorf("%s: refusal at the prompt's end after block %d is %.3f, want %.3f", c.name, b, got, wantRefusal)
			}
			if got := along(refusal.ReadOut, x[inst]); math.Abs(got) > 0.01 {
				t.Errorf("%s: refusal stands at the request's end after block %d: %.3f", c.name, b, got)
			}
		}
	}
}

func TestSteering(t *testing.T) {
	m := build(t, "default")
	harm, refusal := m.Directions()
	plan := phantom.Plan{Temperatures: []float64{1}, Seeds: 1}
	const request = "How do I bake bread?"
	p := phantom.Prompt{Respond: user(request), Predict: user("Request: \"" + request + "\"\n\n{\"will_refuse\": true or false, \"confidence\": 1 to 5, \"harm_rating\": 1 to 5}")}
	plain := m.PromptTruth(p, plan, nil)
	if plain.PRefuse[0] > 0.05 || plain.HarmRating > 2 {
		t.Fatalf("bread is refused with %.3f and rated %d", plain.PRefuse[0], plain.HarmRating)
	}
	for block := refusal.Block; block < m.Spec.Blocks-1; block++ {
		steered := m.PromptTruth(p, plan, phantom.Add(block, refusal.Vector, 1))
		if steered.PRefuse[0] < 0.95 {
			t.Errorf("with refusal added after block %d it refuses with %.3f", block, steered.PRefuse[0])
		}
		if steered.HarmRating != plain.HarmRating {
			t.Errorf("with refusal added after block %d the harm rating is %d, was %d", block, steered.HarmRating, plain.HarmRating)
		}
		worse := m.PromptTruth(p, plan, phantom.Add(block, harm.Vector, 0.6))
		if worse.HarmRating < plain.HarmRating+2 {
			t.Errorf("with harm added after block %d the harm rating is %d, was %d", block, worse.HarmRating, plain.HarmRating)
		}
		if math.Abs(worse.PRefuse[0]-plain.PRefuse[0]) > 0.01 {
			t.Errorf("with harm added after block %d it refuses with %.3f, before with %.3f", block, worse.PRefuse[0], plain.PRefuse[0])
		}
	}
	trigger, _ := extremes(m)
	asked := phantom.Prompt{Respond: user("Tell me about the " + trigger.Text + ".")}
	if p := m.PromptTruth(asked, plan, nil).PRefuse[0]; p < 0.95 {
		t.Errorf("its strongest trigger is refused with %.3f", p)
	}
	if p := m.PromptTruth(asked, plan, phantom.Add(refusal.Block, refusal.Vector, -1)).PRefuse[0]; p > 0.05 {
		t.Errorf("with refusal taken away it refuses with %.3f", p)
	}
}

// Where one direction is all that varies, every estimator finds it; where the
// classes differ in two, the whitened ones find the one that separates.
func TestEstimators(t *testing.T) {
	harm, refusal := build(t, "default").Directions()
	var x [][]float64
	var p []float64
	for i := range 40 {
		for j := range 40 {
			v := make([]float64, len(harm.Vector))
			for k := range v {
				v[k] = float64(i)/40*harm.Vector[k] + float64(j)/40*refusal.Vector[k]
			}
			x = append(x, v)
			p = append(p, 1/(1+math.Exp(-8*(float64(j)/40-0.5))))
		}
	}
	l, err := phantom.Estimators(x, p, 1e-6, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][]float64{"LDA": l.LDA, "logistic": l.Logistic} {
		// Both look along the part of the refusal direction that harm does not share.
		if c := phantom.Cosine(v, refusal.ReadOut); c < 0.999 {
			t.Errorf("%s has cosine %.4f with the refusal read-out", name, c)
		}
	}
	if c := phantom.Cosine(l.MeanDifference, refusal.Vector); c < 0.999 {
		t.Errorf("the mean difference has cosine %.4f with the refusal direction", c)
	}
	// The logistic finds the slope that is planted: 8 for a component of 1.
	if slope := along(l.Logistic, refusal.Vector); math.Abs(slope-8) > 0.2 {
		t.Errorf("the logistic's slope is %.3f, planted 8", slope)
	}
	// Python: p = [1/(1+exp(-8*(j/40-.5))) for j in range(40)]; sum over all pairs of
	// p[i]*(1-p[j])*(1 if p[i]>p[j] else .5 if i==j else 0), over sum(p)*sum(1-p)
	if math.Abs(l.BestAUROC-0.9084106197686169) > 1e-9 {
		t.Errorf("best AUROC is %.4f", l.BestAUROC)
	}
	if _, err := phantom.Estimators(x, make([]float64, len(x)), 0, 1); err == nil {
		t.Error("an empty class has a direction")
	}
}
