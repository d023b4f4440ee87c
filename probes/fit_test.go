package probes_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"demur/data"
	"demur/models/phantom"
	"demur/probes"
)

// quick options: enough to tell right from wrong.
func quick(target probes.Target) probes.Options {
	return probes.Options{Target: target, Seeds: 2, Permutations: 39, Resamples: 200, Random: 20, Penalties: []float64{0.1, 0.01}, Strengths: []float64{0.1}}
}

func must(t *testing.T) func(r *probes.Report, err error) *probes.Report {
	return func(r *probes.Report, err error) *probes.Report {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func method(t *testing.T, r *probes.Report, m probes.Method) probes.Fitted {
	t.Helper()
	for _, f := range r.Methods {
		if f.Method == m {
			return f
		}
	}
	t.Fatalf("there is no %s", m)
	return probes.Fitted{}
}

func control(t *testing.T, r *probes.Report, name string) probes.Control {
	t.Helper()
	for _, c := range r.Controls {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no control %s", name)
	return probes.Control{}
}

// TestRefusalOfThePhantom: all methods find what is planted, the null knows
// nothing, and over the planted word values, the best that can be told from the
// words, the states have nothing to add.
func TestRefusalOfThePhantom(t *testing.T) {
	s := studyOf(t, "default")
	o := quick(probes.Refusal())
	o.Baselines = map[string]map[string]float64{"lexicon": {}, "nothing": {}}
	for i, p := range s.prompts {
		o.Baselines["lexicon"][p.ID] = s.truth[i].Refusal
		o.Baselines["nothing"][p.ID] = 0
	}
	r := must(t)(probes.Fit(s.rows, s.states, o))
	if r.Prompts != 600 || r.Requests != 300 || len(r.Methods) != 5 {
		t.Errorf("%d prompts, %d requests, %d methods", r.Prompts, r.Requests, len(r.Methods))
	}
	for _, m := range r.Methods {
		over := m.Over["lexicon"]
		t.Logf("%-17s at %s: %s, over text %s, over the lexicon %s, p %.3f, null %.3f", m.Method, m.Site, show(m.Value), show(m.Increment), show(over), deref(m.P), deref(m.NullMean))
		if *m.Value.Value < 0.75 || *m.Increment.Lo < 0.03 {
			t.Errorf("%s: AUROC %s, increment over text %s", m.Method, show(m.Value), show(m.Increment))
		}
		if *over.Lo > 0.001 || *over.Hi < -0.004 {
			t.Errorf("%s: increment over the planted words %s; there is nothing to add", m.Method, show(over))
		}
		if n := m.Over["nothing"]; *n.Value < 0.2 {
			t.Errorf("%s: increment over a constant %s", m.Method, show(n))
		}
		if m.Method == probes.Logistic {
			continue
		}
		if *m.P != 1./40 || math.Abs(*m.NullMean-0.5) > 0.03 {
			t.Errorf("%s: p %v, null mean %v", m.Method, *m.P, *m.NullMean)
		}
	}
	w := method(t, r, probes.Whitened)
	if w.Site.Anchor != probes.Post || w.Site.Layer < 2 || *w.Value.Value < 0.98 || *w.Stability < 0.95 {
		t.Errorf("whitened: site %s, %s, stability %v", w.Site, show(w.Value), *w.Stability)
	}
	if *w.ECE > 0.05 || *w.Brier.Value > 0.05 || *w.Accuracy.Value < 0.93 || *w.TPR5.Value < *w.TPR1.Value || *w.TPR5.Value < 0.9 {
		t.Errorf("whitened: ECE %v, Brier %s, accuracy %s, hit rates %s %s", *w.ECE, show(w.Brier), show(w.Accuracy), show(w.TPR1), show(w.TPR5))
	}
	// Before the block that writes refusals, only what goes with it can be read.
	layers := onset(w)
	if layers[1] > 0.9 || layers[2] < 0.97 {
		t.Errorf("refusal at %s by layer: %.3f", probes.Post, layers)
	}
	for _, name := range []string{"length", "random directions", "selectivity"} {
		t.Logf("%s: %s", name, show(control(t, r, name).Value))
	}
	if c := control(t, r, "length"); *c.Value.Value > 0.6 {
		t.Errorf("length tells refusals: %s", show(c.Value))
	}
	if c := control(t, r, "random directions"); *c.Value.Value > *w.Value.Value-0.1 {
		t.Errorf("random directions reach %s", show(c.Value))
	}
	if c := control(t, r, "selectivity"); *c.Value.Value < 0.3 {
		t.Errorf("selectivity is %s: %s", show(c.Value), c.Note)
	}
	// The harmful and the harmless alike: it is refusal that is read, not harm.
	for _, in := range []string{"harmful", "harmless"} {
		if v, ok := w.Strata[in]; !ok || *v.Value < 0.95 {
			t.Errorf("among %s prompts it reaches %s", in, show(v))
		}
	}
	// Held-out scores: one a prompt, in the words of the table.
	if len(w.Scores) != 600 {
		t.Fatalf("%d scores", len(w.Scores))
	}
	var y, x, p []float64
	for _, sc := range w.Scores {
		y, x, p = append(y, *sc.Label), append(x, sc.Score), append(p, *sc.Probability)
	}
	if a, b := probes.Concordance(y, x), probes.Concordance(y, p); math.Abs(a-*w.Value.Value) > 0.01 || math.Abs(b-a) > 0.01 {
		t.Errorf("the held-out scores reach %.4f, their probabilities %.4f, reported is %s", a, b, show(w.Value))
	}
}

func deref(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}

// onset is what a method reaches at post by layer.
func onset(f probes.Fitted) (layers []float64) {
	for _, v := range f.Surface {
		if v.Site.Anchor == probes.Post {
			layers = append(layers, *v.Value.Value)
		}
	}
	return layers
}

// TestFaultsOfCaptureShow: states of another layer or position than they say
// look otherwise than those of a sound instrument, which the test above knows.
func TestFaultsOfCaptureShow(t *testing.T) {
	s := studyOf(t, "default")
	extract := func(anchor string, change func(e *engine, row *data.Activation)) *probes.States {
		e := &engine{m: s.model}
		e.change = func(row *data.Activation) { change(e, row) }
		states, _, err := probes.Collect(probes.Extract(context.Background(), e, s.prompts, probes.ExtractOptions{Anchors: []string{anchor}}))
		if err != nil {
			t.Fatal(err)
		}
		return states
	}
	// The stream before the block in place of the one after it.
	last := map[[2]int][]float32{}
	early := extract(probes.Post, func(_ *engine, row *data.Activation) {
		key := [2]int{row.Layer, row.Position}
		now := row.Values
		if before, ok := last[[2]int{row.Layer - 1, row.Position}]; ok && row.Layer > 0 {
			row.Values = before
		}
		last[key] = now
	})
	o := quick(probes.Refusal())
	o.Methods, o.Permutations, o.Seeds, o.Penalties = []probes.Method{probes.Whitened}, -1, 1, []float64{0.1}
	r := must(t)(probes.Fit(s.rows, early, o))
	if layers := onset(r.Methods[0]); layers[2] > 0.9 || layers[3] < 0.97 {
		t.Errorf("with layers off by one, refusal by layer is %.3f: the fault does not show", layers)
	}
	// The token after the one asked for: the template's in place of the request's.
	o.Sites = func(s probes.Site) bool { return s.Anchor == probes.Inst }
	sound := must(t)(probes.Fit(s.rows, s.states, o))
	if v := sound.Methods[0].Value; *v.Value > 0.9 {
		t.Errorf("at the request's end, where the phantom writes no refusal, it reads %s", show(v))
	}
	var streams [][][]float64
	late := extract(probes.Inst, func(e *engine, row *data.Activation) {
		if row.Position == -3 {
			if row.Layer == 0 {
				p := s.prompts[slices.IndexFunc(s.prompts, func(p data.Prompt) bool { return p.ID == row.PromptID })]
				streams = e.m.Streams(e.m.Tokenize(phantom.Render(turns(p.Messages))))
			}
			x := streams[row.Layer]
			for j, v := range x[len(x)-2] {
				row.Values[j] = float32(v)
			}
		}
	})
	off := must(t)(probes.Fit(s.rows, late, o))
	if v := off.Methods[0].Value; *v.Value < 0.97 {
		t.Errorf("with positions off by one it reads %s at the request's end: the fault does not show", show(v))
	}
}

// TestLeakageShows: states that say nothing but which request it is, and labels
// drawn for each request, are at chance; with each wording a request of its own,
// which is the leak that folds by request close, they are not.
func TestLeakageShows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var rows []probes.Row
	var ids []string
	var values []float32
	const width = 200
	for q := range 100 {
		own := make([]float64, width)
		for j := range own {
			own[j] = rng.NormFloat64()
		}
		refusals := rng.IntN(2)
		for v := range 3 {
			r := probes.Row{PromptID: fmt.Sprintf("p%d.%d", q, v), RequestID: fmt.Sprint(q), Variant: fmt.Sprint(v), Text: fmt.Sprintf("a%d b%d", q%7, q%5), Trials: 1, Refusals: refusals}
			rows, ids = append(rows, r), append(ids, r.PromptID)
			for _, x := range own {
				values = append(values, float32(x+0.1*rng.NormFloat64()))
			}
		}
	}
	states := probes.NewStates(width, ids, []probes.Site{{Layer: 0, Anchor: probes.Post}}, [][]float32{values})
	o := quick(probes.Refusal())
	r := must(t)(probes.Fit(rows, states, o))
	for _, m := range r.Methods {
		if *m.Value.Lo > 0.5 || *m.Value.Hi < 0.35 {
			t.Errorf("%s: labels that mean nothing are told with %s", m.Method, show(m.Value))
		}
		if m.P != nil && *m.P < 0.05 {
			t.Errorf("%s: p %v", m.Method, *m.P)
		}
	}
	// The probe can tell requests apart, and selectivity knows.
	if c := control(t, r, "selectivity"); math.Abs(*c.Value.Value) > 0.1 {
		t.Errorf("selectivity %s: %s", show(c.Value), c.Note)
	}
	for i := range rows {
		rows[i].RequestID = rows[i].PromptID
	}
	leaky := must(t)(probes.Fit(rows, states, o))
	if m := method(t, leaky, probes.Whitened); *m.Value.Value < 0.9 {
		t.Errorf("with wordings in two folds it reaches %s: the test would not see a leak", show(m.Value))
	}
}

// TestRandomLabels: an attribute drawn by request is at chance everywhere.
func TestRandomLabels(t *testing.T) {
	s := studyOf(t, "default")
	rows := slices.Clone(s.rows)
	for i := range rows {
		h := fnv.New32a()
		h.Write([]byte(rows[i].RequestID + "coin"))
		rows[i].Attributes = map[string]string{"coin": fmt.Sprint(h.Sum32() / 7 % 2)}
	}
	o := quick(probes.Attribute("coin", "1"))
	o.Methods, o.Penalties = []probes.Method{probes.MeanDifference, probes.Whitened, probes.Logistic}, []float64{0.1}
	o.LogisticSite, o.Permutations = &probes.Site{Layer: 3, Anchor: probes.Post}, 19
	r := must(t)(probes.Fit(rows, s.states, o))
	// Random directions see something of what a state holds, but nothing of a coin.
	random := control(t, r, "random directions")
	t.Logf("random directions tell a coin with %s", show(random.Value))
	if v := *random.Value.Value; v < 0.46 || v > 0.54 {
		t.Errorf("random directions tell a coin with %s", show(random.Value))
	}
	for _, m := range r.Methods {
		t.Logf("%s tells a coin with %s, p %.2f, over text %s", m.Method, show(m.Value), *m.P, show(m.Increment))
		if *m.Value.Lo > 0.53 || *m.Value.Hi < 0.45 || *m.P < 0.05 || *m.Increment.Lo > 0.02 {
			t.Errorf("%s: a coin is told with %s, p %v, increment %s", m.Method, show(m.Value), *m.P, show(m.Increment))
		}
		for _, v := range m.Surface {
			if *v.P <= 1./20 {
				t.Errorf("%s at %s: p %v over all sites", m.Method, v.Site, *v.P)
			}
		}
	}
}

func TestGraded(t *testing.T) {
	s := studyOf(t, "default")
	r := must(t)(probes.Fit(s.rows, s.states, quick(probes.HarmGraded())))
	m := method(t, r, probes.Ridge)
	if r.Measure != "concordance" || *m.Value.Value < 0.9 || *m.P != 1./40 || len(m.Directions) != 1 || m.Directions[0].Slope != nil {
		t.Errorf("%s: %s, p %v", r.Measure, show(m.Value), *m.P)
	}
	// The direction says levels: the scores of all prompts regress to theirs.
	var got, want float64
	for _, row := range s.rows {
		v, err := probes.ScoreOf(m.Directions[0], s.states.Values(row.PromptID, m.Site))
		if err != nil {
			t.Fatal(err)
		}
		if row.Harm == 5 {
			got, want = got+v, want+5
		}
	}
	if math.Abs(got/want-1) > 0.15 {
		t.Errorf("prompts of level 5 score %.2f of 5", 5*got/want)
	}
}

// TestSameBytes: equal arguments give equal results.
func TestSameBytes(t *testing.T) {
	rows, states := noise(120, 3, 2, 16, 2, 1)
	o := quick(probes.Refusal())
	a, b := must(t)(probes.Fit(rows, states, o)), must(t)(probes.Fit(rows, states, o))
	if !reflect.DeepEqual(a, b) {
		t.Error("two fits of the same rows differ")
	}
	// The order of rows is no matter either, but for the last bits of sums.
	shuffled := slices.Clone(rows)
	slices.Reverse(shuffled)
	c := must(t)(probes.Fit(shuffled, states, o))
	if c.Prompts != a.Prompts || c.Positives != a.Positives {
		t.Error("the order of rows changes what is counted")
	}
}

func TestRefusedArguments(t *testing.T) {
	rows, states := noise(120, 2, 1, 8, 2, 1)
	few := slices.Clone(rows)
	for i := range few {
		few[i].Refusals = 0
	}
	few[0].Refusals = 9
	twice := append(slices.Clone(rows), rows[0])
	for name, c := range map[string]struct {
		rows []probes.Row
		o    probes.Options
	}{
		"no target":      {rows, probes.Options{}},
		"one class":      {few, quick(probes.Refusal())},
		"a prompt twice": {twice, quick(probes.Refusal())},
		"no rows":        {nil, quick(probes.Refusal())},
		"two folds":      {rows, probes.Options{Target: probes.Refusal(), Folds: 2}},
		"wrong method":   {rows, probes.Options{Target: probes.HarmGraded(), Methods: []probes.Method{probes.Logistic}}},
		"no sites":       {rows, probes.Options{Target: probes.Refusal(), Seeds: 1, Sites: func(probes.Site) bool { return false }}},
	} {
		if _, err := probes.Fit(c.rows, states, c.o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := probes.ParseTarget("mood"); err == nil {
		t.Error("target mood is known")
	}
	within, err := probes.ParseTarget("refusal within harmful")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := within.Label(probes.Row{Harm: 1, Trials: 1}); ok {
		t.Error("a harmless prompt is within the harmful ones")
	}
	if y, ok := within.Label(probes.Row{Harm: 5, Trials: 1, Refusals: 1}); !ok || y != 1 {
		t.Error("a harmful prompt that is refused has no label within the harmful ones")
	}
	if target, err := probes.ParseTarget("topic=locks"); err != nil || target.Name != "topic=locks" {
		t.Error(target.Name, err)
	}
}
