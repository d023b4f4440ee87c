package probes_test

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"demur/data"
	"demur/models/phantom"
	"demur/probes"
)

// TestGeometry: the cosine between harm and refusal tells a phantom that has two
// directions from one that has one, beyond the noise of either.
func TestGeometry(t *testing.T) {
	between := func(preset string, contrasts []probes.Contrast) probes.Angle {
		s := studyOf(t, preset)
		angles, warnings, err := probes.Geometry(s.rows, s.states, contrasts, probes.GeometryOptions{Layer: 3, Splits: 20})
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		return angles[0]
	}
	within := func(harmful float64) func(probes.Row) bool {
		return func(r probes.Row) bool { y, ok := probes.Harm().Label(r); return ok && y == harmful }
	}
	// Refusal at equal harm, against harm.
	two := []probes.Contrast{
		{Name: "harm", Target: probes.Harm(), Anchor: probes.Inst},
		{Name: "refusal among harmful", Target: probes.Refusal().Within("harmful", within(1)), Anchor: probes.Post},
	}
	a := between("default", two)
	t.Logf("default: %s, reliabilities %.3f, disattenuated %v, whitened %s", show(a.Raw.Cosine), a.Raw.Reliability, deref(a.Raw.Disattenuated), show(a.Whitened.Cosine))
	harm, refusal := studyOf(t, "default").model.Directions()
	planted := phantom.Cosine(harm.Vector, refusal.Vector)
	if got := *a.Raw.Disattenuated; math.Abs(got-planted) > 0.15 {
		t.Errorf("disattenuated cosine %.3f, planted %.3f", got, planted)
	}
	both := []probes.Contrast{
		{Name: "harm", Target: probes.Harm(), Anchor: probes.Post},
		{Name: "refusal", Target: probes.Refusal(), Anchor: probes.Post},
	}
	b := between("one-direction", both)
	t.Logf("one-direction: %s, reliabilities %.3f, disattenuated %v, whitened %s", show(b.Raw.Cosine), b.Raw.Reliability, deref(b.Raw.Disattenuated), show(b.Whitened.Cosine))
	if *b.Raw.Disattenuated < 0.95 || *b.Raw.Cosine.Lo < *a.Raw.Cosine.Hi {
		t.Errorf("one direction: cosine %s, disattenuated %.3f; two: %s", show(b.Raw.Cosine), *b.Raw.Disattenuated, show(a.Raw.Cosine))
	}
	for _, v := range []probes.Angle{a, b} {
		if c := v.Raw.Cosine; *c.Lo > *c.Value || *c.Hi < *c.Value || *c.Hi-*c.Lo > 0.4 {
			t.Errorf("%s, %s: cosine %s", v.A, v.B, show(c))
		}
		for _, r := range v.Raw.Reliability {
			if r < 0.8 || r > 1 {
				t.Errorf("%s, %s: reliability %v", v.A, v.B, r)
			}
		}
	}
	// A direction and itself.
	same := between("default", []probes.Contrast{both[1], {Name: "again", Target: probes.Refusal(), Anchor: probes.Post}})
	if math.Abs(*same.Raw.Cosine.Value-1) > 1e-9 || math.Abs(*same.Raw.Disattenuated-1) > 1e-9 || math.Abs(*same.Whitened.Cosine.Value-1) > 1e-9 {
		t.Errorf("a direction has cosine %v with itself", same)
	}
	s := studyOf(t, "default")
	angles, _, err := probes.Geometry(s.rows, s.states, probes.Contrasts(), probes.GeometryOptions{Layer: 3, Splits: 2})
	if err != nil || len(angles) != 10 {
		t.Errorf("%d pairs of the five contrasts: %v", len(angles), err)
	}
	if n := len(probes.ByTopic(s.rows, probes.Post)); n != 10 {
		t.Errorf("%d topics", n)
	}
}

func TestTransfer(t *testing.T) {
	s := studyOf(t, "default")
	o := probes.TransferOptions{Target: probes.Refusal(), Site: probes.Site{Layer: 3, Anchor: probes.Post}, Resamples: 50}
	cells, err := probes.Transfer(s.rows, s.states, func(r probes.Row) string { return r.Topic }, o)
	if err != nil || len(cells) != 110 {
		t.Fatal(len(cells), err)
	}
	// The phantom's refusal is one direction whatever the topic.
	for _, c := range cells {
		if strings.HasPrefix(c.Train, "all but ") && (*c.Value.Value < 0.95 || *c.Accuracy < 0.85 || c.Requests != 30) {
			t.Errorf("%s → %s: %s, accuracy %.3f, %d requests", c.Train, c.Test, show(c.Value), *c.Accuracy, c.Requests)
		}
	}
	// Wordings share requests: what is tested was not fitted on the request.
	rows := slices.Clone(s.rows)
	cells, err = probes.Transfer(rows, s.states, func(r probes.Row) string { return r.Variant }, o)
	if err != nil || len(cells) != 6 {
		t.Fatal(len(cells), err)
	}
	for _, c := range cells {
		if *c.Value.Value < 0.9 {
			t.Errorf("%s → %s: %s", c.Train, c.Test, show(c.Value))
		}
	}
	// A label that means nothing does not transfer between wordings of its requests.
	for i := range rows {
		rows[i].Attributes = map[string]string{"coin": string(rune('0' + (len(rows[i].RequestID)+int(rows[i].RequestID[len(rows[i].RequestID)-1]))%2))}
	}
	o.Target, o.Strength = probes.Attribute("coin", "1"), 0.001
	cells, err = probes.Transfer(rows, s.states, func(r probes.Row) string { return r.Variant }, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if *c.Value.Value > 0.65 {
			t.Errorf("a coin transfers %s → %s: %s", c.Train, c.Test, show(c.Value))
		}
	}
}

func TestSubspaces(t *testing.T) {
	s := studyOf(t, "one-direction")
	o := probes.TransferOptions{Target: probes.Refusal(), Site: probes.Site{Layer: 3, Anchor: probes.Post}, Resamples: 50}
	out, err := probes.Subspaces(s.rows, s.states, 4, o)
	if err != nil || len(out) != 4 {
		t.Fatal(len(out), err)
	}
	for _, k := range out[1:] {
		if *k.Gain.Value > 0.02 {
			t.Errorf("one direction: %d add %s", k.K, show(k.Gain))
		}
	}
	// Where harm rides on the mean difference, a second direction takes it away.
	out, err = probes.Subspaces(studyOf(t, "default").rows, studyOf(t, "default").states, 8, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range out {
		t.Logf("%d: %s, gain %s", k.K, show(k.Value), show(k.Gain))
	}
	if *out[1].Gain.Lo < 0.02 || *out[7].Value.Value < 0.98 || *out[0].Value.Value > 0.95 {
		t.Error("two directions: a second one adds nothing")
	}
}

// TestStateWordAct: on a phantom that knows and says what it will do with
// errors, the state is the better witness; on one whose prediction is blind, the
// word says nothing.
func TestStateWordAct(t *testing.T) {
	o := probes.ActOptions{Fit: probes.Options{Seeds: 1, Resamples: 100, Penalties: []float64{0.01}, Strengths: []float64{0.1}}}
	get := func(a *probes.Act, name string) probes.Predictor {
		for _, p := range a.Predictors {
			if p.Name == name {
				return p
			}
		}
		t.Fatalf("no predictor %s", name)
		return probes.Predictor{}
	}
	s := studyOf(t, "default")
	a, err := probes.StateWordAct(s.rows, s.states, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range a.Predictors {
		t.Logf("%-20s %s, majority %s, boundary %s", p.Name, show(p.All), show(p.Majority), show(p.Boundary))
	}
	state, stated, text := get(a, "refusal at post"), get(a, "stated prediction"), get(a, "text")
	if *state.Majority.Value < 0.97 || *state.All.Lo < *stated.All.Hi || *state.All.Lo < *text.All.Hi || *state.Boundary.Value < *text.Boundary.Value {
		t.Errorf("state %s, word %s, text %s", show(state.All), show(stated.All), show(text.All))
	}
	// The best that there can be is the true rate itself.
	var rate, truth []float64
	for i, r := range s.rows {
		rate, truth = append(rate, float64(r.Refusals)/float64(r.Trials)), append(truth, s.truth[i].PRefuse[0])
	}
	if best := probes.Concordance(rate, truth); *get(a, "text + state + word").All.Value > best+0.01 {
		t.Errorf("all together reach %s, the truth %.4f", show(get(a, "text + state + word").All), best)
	}
	if len(a.Table) != 600 || a.Prompts != 600 || a.Requests != 300 {
		t.Errorf("%d rows", len(a.Table))
	}
	n, disagree := 0, 0
	for _, k := range a.Agreement {
		n += k
	}
	for _, r := range a.Table {
		if r.Disagree {
			disagree++
		}
		if r.Disagree != (*r.Stated != (r.RefusalScore > 0.5)) {
			t.Fatal("a row disagrees with itself")
		}
	}
	g := a.Agreement
	if n != 600 || disagree != g[2]+g[3]+g[4]+g[5] || disagree == 0 {
		t.Errorf("agreement %v, %d rows disagree", g, disagree)
	}
	// Where they disagree, the state is right more often.
	if right, wrong := g[2]+g[5], g[3]+g[4]; right <= wrong {
		t.Errorf("where they disagree, the state is right %d times and wrong %d times", right, wrong)
	}
	blind := studyOf(t, "unaware")
	a, err = probes.StateWordAct(blind.rows, blind.states, o)
	if err != nil {
		t.Fatal(err)
	}
	if p := get(a, "exact prediction"); *p.All.Lo > 0.55 || *p.All.Hi < 0.45 {
		t.Errorf("a blind prediction reaches %s", show(p.All))
	}
	for _, gain := range a.Gains {
		if gain.Name == "text + state + word over text + state" && *gain.All.Lo > 0.01 {
			t.Errorf("a blind prediction adds %s", show(gain.All))
		}
	}
}

// Where nothing was said and no harm is known, what is left is still told.
func TestStateAndActAlone(t *testing.T) {
	rows, states := noise(120, 2, 1, 8, 2, 1)
	for i := range rows {
		rows[i].Harm = 0
	}
	a, err := probes.StateWordAct(rows, states, probes.ActOptions{RefusalAnchor: probes.Inst, Fit: probes.Options{Seeds: 1, Resamples: 20, Penalties: []float64{0.1}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Table) != 120 || a.Agreement != [8]int{} || len(a.Warnings) < 3 {
		t.Errorf("%d rows, agreement %v, warnings %q", len(a.Table), a.Agreement, a.Warnings)
	}
	for _, p := range a.Predictors {
		if p.Name == "stated prediction" || strings.HasPrefix(p.Name, "harm") || *p.All.Value > 0.65 {
			t.Errorf("%s reaches %s", p.Name, show(p.All))
		}
	}
	if _, err := probes.StateWordAct(rows, states, probes.ActOptions{}); err == nil {
		t.Error("there are no states at post, and no error")
	}
}

func TestGuard(t *testing.T) {
	s := studyOf(t, "default")
	o := quick(probes.Refusal())
	o.Methods, o.Permutations, o.ModelDigest = []probes.Method{probes.Whitened, probes.Centroid}, -1, "sha256:aa"
	r := must(t)(probes.Fit(s.rows, s.states, o))
	for _, m := range r.Methods {
		// Through JSON, as a file would hold them.
		b, err := json.Marshal(m.Directions)
		if err != nil {
			t.Fatal(err)
		}
		var stored []data.Direction
		if err := json.Unmarshal(b, &stored); err != nil {
			t.Fatal(err)
		}
		g, err := probes.NewGuard(stored)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Fits("sha256:bb", ""); err == nil {
			t.Error("the directions of one model fit another")
		}
		if err := g.Fits("sha256:aa", "x"); err != nil {
			t.Error(err)
		}
		if want := map[probes.Method]int{probes.Whitened: 1, probes.Centroid: 4}[m.Method]; len(g.Extract().Layers) != want {
			t.Errorf("%s reads layers %v", m.Method, g.Extract().Layers)
		}
		var right, n int
		var label, score []float64
		i := 0
		for j, err := range g.Run(context.Background(), &engine{m: s.model}, slices.Values(s.prompts[:150])) {
			if err != nil {
				t.Fatal(err)
			}
			if j.PromptID != s.prompts[i].ID || j.Error != "" {
				t.Fatalf("judgement %d: %+v", i, j)
			}
			if j.Positive != (*j.Probability > 0.5) {
				t.Errorf("the threshold is not where the probability is one half: %+v", j)
			}
			refused := s.truth[i].PRefuse[0] > 0.5
			label, score = append(label, map[bool]float64{true: 1}[refused]), append(score, *j.Score)
			n++
			if j.Positive == refused {
				right++
			}
			i++
		}
		t.Logf("%s: %d of %d right, AUROC %.3f", m.Method, right, n, probes.Concordance(label, score))
		if want := map[probes.Method]int{probes.Whitened: 140, probes.Centroid: 115}[m.Method]; n != 150 || right < want {
			t.Errorf("%s: %d of %d right", m.Method, right, n)
		}
	}
	// Everything a fit gives can be stored and read again.
	dir := t.TempDir()
	if err := data.WriteTable(dir, data.Directions, rowsOf(r.Directions()...)); err != nil {
		t.Fatal(err)
	}
	if err := data.WriteTable(dir, data.Scores, rowsOf(r.Scores()...)); err != nil {
		t.Fatal(err)
	}
	if err := data.WriteTable(dir, data.Estimates, rowsOf(r.Estimates()...)); err != nil {
		t.Fatal(err)
	}
	var again []data.Direction
	for d, err := range data.ReadTable[data.Direction](dir, data.Directions) {
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, d)
	}
	if len(again) != 5 || again[0].Group != "refusal/whitened/"+strconv.Itoa(again[0].Layer)+"/post" || *again[0].Value != *r.Methods[0].Value.Value || again[0].Controls["length"] == 0 || *again[0].Position != -1 {
		t.Errorf("%d directions; the first %s, %+v", len(again), again[0].Group, again[0].Controls)
	}
	keys := map[string]bool{}
	for _, e := range r.Estimates() {
		if keys[e.Metric+e.Group] {
			t.Errorf("two estimates %s of %s", e.Metric, e.Group)
		}
		keys[e.Metric+e.Group] = true
	}
	if !keys["probe_auroctarget=refusal,method=whitened"] || !keys["probe_incrementtarget=refusal,method=centroid"] || !keys["probe_auroctarget=refusal,control=length"] {
		t.Errorf("estimates %v", keys)
	}
	nan := float32(math.NaN())
	g, _ := probes.NewGuard(r.Methods[0].Directions)
	broken := &engine{m: s.model, change: func(r *data.Activation) { r.Values[0] = nan }}
	for j, err := range g.Run(context.Background(), broken, slices.Values(s.prompts[:1])) {
		if err != nil || j.Score != nil || j.Positive || !strings.Contains(j.Error, "NaN") {
			t.Errorf("a state that is no number is judged: %+v, %v", j, err)
		}
	}
	mixed := append(slices.Clone(r.Methods[0].Directions), r.Methods[1].Directions...)
	if _, err := probes.NewGuard(mixed); err == nil || len(probes.Groups(mixed)) != 2 {
		t.Error("two groups make one guard")
	}
	if _, err := probes.NewGuard(nil); err == nil {
		t.Error("no directions make a guard")
	}
}

func rowsOf[T any](x ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range x {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func TestJoin(t *testing.T) {
	half := 0.5
	half2 := 0.25
	zero := 0.0
	j := probes.Join{
		Requests: rowsOf(data.Request{ID: "r1", Variant: "base", Text: "bake bread", Topic: "food", Harm: 1, Attributes: map[string]string{"a": "b"}}, data.Request{ID: "r1", Variant: "p1", Text: "bread, how"}),
		Prompts: rowsOf(
			data.Prompt{ID: "pp1", RequestID: "r1", Variant: "base", Phase: data.Predict, Question: "default", Polarity: data.AskRefuse},
			data.Prompt{ID: "pr1", RequestID: "r1", Variant: "base", Phase: data.Respond},
			data.Prompt{ID: "pr2", RequestID: "r1", Variant: "p1", Phase: data.Respond}),
		Trials: rowsOf(data.Trial{ID: "t1", RequestID: "r1", Variant: "base", Temperature: 0}, data.Trial{ID: "t2", RequestID: "r1", Variant: "base", Temperature: 1}, data.Trial{ID: "t3", RequestID: "r1", Variant: "p1"}),
		Verdicts: rowsOf(data.Verdict{TrialID: "t1", Judge: "rules", Label: data.FullRefusal}, data.Verdict{TrialID: "t2", Judge: "rules", Label: data.FullCompliance},
			data.Verdict{TrialID: "t2", Judge: "other", Label: data.FullRefusal}, data.Verdict{TrialID: "t3", Judge: "rules", Label: data.Unclear}),
		Predictions: rowsOf(
			data.Prediction{RequestID: "r1", Variant: "base", Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: data.WillRefuse},
			data.Prediction{RequestID: "r1", Variant: "base", Question: "default", Polarity: data.AskAnswer, Reading: data.Exact, PRefuse: &half2},
			data.Prediction{RequestID: "r1", Variant: "base", Question: "default", Polarity: data.AskRefuse, Reading: data.Exact, PRefuse: &half},
			data.Prediction{RequestID: "r1", Variant: "p1", Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: data.Declined}),
		Refused: func(l data.Label) (bool, bool) { return l == data.FullRefusal, l != data.Unclear },
	}
	rows, err := j.Rows()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].PromptID != "pr1" || rows[0].Trials != 2 || rows[0].Refusals != 1 || !*rows[0].Stated || *rows[0].PRefuse != 0.5 || rows[0].Topic != "food" || rows[0].Attributes["a"] != "b" {
		t.Errorf("rows %+v", rows)
	}
	if rows[1].Trials != 0 || rows[1].Stated != nil || rows[1].PRefuse != nil {
		t.Errorf("row %+v", rows[1])
	}
	if _, ok := probes.Refusal().Label(rows[0]); ok {
		t.Error("a tie has a majority")
	}
	j.Temperature, j.Phase = &zero, data.Predict
	rows, err = j.Rows()
	if err != nil || len(rows) != 1 || rows[0].PromptID != "pp1" || rows[0].Trials != 1 || rows[0].Refusals != 1 {
		t.Errorf("rows %+v, %v", rows, err)
	}
	j.Refused = nil
	if _, err := j.Rows(); err == nil {
		t.Error("labels are folded by nothing")
	}
}

// TestApply: a direction fitted on the requests of one half is tested on those of
// the other, and on a phantom whose harm and refusal lie elsewhere.
func TestApply(t *testing.T) {
	s := studyOf(t, "default")
	o := quick(probes.Refusal())
	o.Methods, o.Permutations, o.Seeds, o.Penalties, o.Sites = []probes.Method{probes.Whitened}, -1, 1, []float64{0.1}, at(3, probes.Post)
	half := func(odd bool) (rows []probes.Row) {
		for i, r := range s.rows {
			if (i/2%2 == 1) == odd {
				rows = append(rows, r)
			}
		}
		return rows
	}
	r := must(t)(probes.Fit(half(true), s.states, o))
	g, err := probes.NewGuard(r.Directions())
	if err != nil {
		t.Fatal(err)
	}
	a, err := probes.Apply(half(false), s.states, g, probes.TransferOptions{Target: probes.Refusal(), Resamples: 50})
	if err != nil {
		t.Fatal(err)
	}
	if a.Prompts != 300 || a.Requests != 150 || *a.Value.Value < 0.97 || *a.Accuracy.Value < 0.9 || *a.Brier.Value > 0.1 || *a.ECE > 0.1 {
		t.Errorf("on the other half: %+v, %s, accuracy %s, Brier %s, ECE %v", a, show(a.Value), show(a.Accuracy), show(a.Brier), *a.ECE)
	}
	other := studyOf(t, "one-direction")
	b, err := probes.Apply(other.rows, other.states, g, probes.TransferOptions{Target: probes.Refusal(), Resamples: 50})
	if err != nil {
		t.Fatal(err)
	}
	if *b.Value.Value > 0.9 {
		t.Errorf("on another phantom: %s", show(b.Value))
	}
	if _, err := probes.Apply(nil, s.states, g, probes.TransferOptions{Target: probes.Refusal()}); err == nil {
		t.Error("no rows are tested")
	}
}

// TestTwins: control activations go through the same procedure.
func TestTwins(t *testing.T) {
	s := studyOf(t, "default")
	o := quick(probes.Refusal())
	o.Methods, o.Permutations, o.Seeds, o.Penalties = []probes.Method{probes.Whitened}, -1, 1, []float64{0.1}
	o.Sites = at(3, probes.Post)
	_, random := noise(600, 2, 1, 64, 2, 9)
	var values [][]float32
	for _, site := range random.Sites() {
		var v []float32
		for _, p := range random.Prompts() {
			v = append(v, random.Values(p, site)...)
		}
		values = append(values, v)
	}
	o.Twins = map[string]*probes.States{
		"untrained": probes.NewStates(64, s.states.Prompts(), []probes.Site{{Layer: 3, Anchor: probes.Post}, {Layer: 1, Anchor: probes.Post}}, values),
		"other":     random, // of other prompts
	}
	r := must(t)(probes.Fit(s.rows, s.states, o))
	if c := control(t, r, "untrained"); *c.Value.Lo > 0.52 {
		t.Errorf("noise tells refusals: %s", show(c.Value))
	}
	if c := control(t, r, "untrained, carried over"); *c.Value.Lo > 0.53 {
		t.Errorf("directions carry over to noise: %s", show(c.Value))
	}
	if len(r.Warnings) == 0 || !strings.Contains(strings.Join(r.Warnings, "\n"), "control other is left out") {
		t.Errorf("states of other prompts are a control: %v", r.Warnings)
	}
}
