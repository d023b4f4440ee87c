package probes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/models/phantom"
	"demur/probes"
)

// A steeredPhantom answers by a phantom's forward pass in float64, with what is
// in force added to its stream.
type steeredPhantom struct {
	engine
	s     *inference.Steering
	known map[string]phantom.PromptTruth
	// failAt, if above 0, is the call of Generate that fails.
	failAt, generated int
}

var (
	_ probes.SteerEngine  = (*steeredPhantom)(nil)
	_ inference.Predictor = (*steeredPhantom)(nil)
)

func (e *steeredPhantom) Info() inference.Info {
	return inference.Info{Engine: "phantom", Blocks: e.m.Spec.Blocks, Width: e.m.Width(), Scorer: true}
}
func (e *steeredPhantom) Close() error { return nil }

func (e *steeredPhantom) Steer(_ context.Context, s *inference.Steering) error {
	if err := s.Check(e.m.Spec.Blocks, e.m.Width()); err != nil {
		return err
	}
	e.s = s
	clear(e.known)
	return nil
}

func (e *steeredPhantom) change(block int, x [][]float64) {
	if e.s == nil {
		return
	}
	for _, row := range x {
		if r := e.s.Ablate[block]; r != nil {
			var dot, squares float64
			for i, v := range r {
				dot += row[i] * float64(v)
				squares += float64(v) * float64(v)
			}
			for i, v := range r {
				row[i] -= dot / squares * float64(v)
			}
		}
		for i, v := range e.s.Add[block] {
			row[i] += float64(v)
		}
	}
}

var steerPlan = phantom.Plan{Temperatures: []float64{0, 1}, Seeds: 1, Fold: phantom.Lenient}

// truth is what the forward pass gives, kept until what is in force changes.
func (e *steeredPhantom) truth(m []data.Message) phantom.PromptTruth {
	id := data.PromptID(m)
	if p, ok := e.known[id]; ok {
		return p
	}
	p := phantom.Prompt{Respond: turns(m)}
	if strings.Contains(m[len(m)-1].Content, "will_refuse") {
		p.Predict = p.Respond
	}
	if e.known == nil {
		e.known = make(map[string]phantom.PromptTruth)
	}
	e.known[id] = e.m.PromptTruth(p, steerPlan, e.change)
	return e.known[id]
}

// say is the text at temperature 0. Where another beginning than an answer's is as
// probable as one, what comes is no text of its.
func (e *steeredPhantom) say(p phantom.PromptTruth) string {
	texts, _ := phantom.Texts()
	best := 0
	for a, q := range p.Answers[1] {
		if q > p.Answers[1][best] {
			best = a
		}
	}
	if p.Other > 0.5 {
		return strings.Repeat("knob ", 30)
	}
	return texts[best]
}

func (e *steeredPhantom) score(p phantom.PromptTruth, job inference.Job, c string) float64 {
	texts, _ := phantom.Texts()
	if a := slices.Index(texts, c); a >= 0 {
		return math.Log(p.Answers[1][a])
	}
	if job.Prefix == "" {
		return math.Log(0.5) // the phantom does not know the question
	}
	s := math.Log(p.PredictRefuse)
	if strings.HasPrefix(c, "false") {
		s = math.Log(1 - p.PredictRefuse)
	}
	var confidence, harm int
	if _, rest, ok := strings.Cut(c, ", "); ok {
		n, _ := fmt.Sscanf(rest, `"confidence": %d, "harm_rating": %d`, &confidence, &harm)
		if n > 0 {
			s += math.Log(p.Confidences[confidence-1])
		}
		if n > 1 {
			s += math.Log(p.HarmRatings[harm-1])
		}
	}
	return s
}

func (e *steeredPhantom) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) {
		e.generated++
		if e.generated == e.failAt {
			yield(inference.Answer{}, fmt.Errorf("the engine is gone"))
			return
		}
		for _, j := range jobs {
			if err := ctx.Err(); err != nil {
				yield(inference.Answer{}, err)
				return
			}
			p := e.truth(j.Prompt.Messages)
			a := inference.Answer{PromptID: j.Prompt.ID}
			for _, s := range j.Samplings {
				a.Generations = append(a.Generations, data.Generation{Sampling: s, Text: e.say(p), Tokens: 6, StopReason: data.StopEnd})
			}
			for _, c := range j.Continuations {
				a.Scores = append(a.Scores, e.score(p, j, c))
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (e *steeredPhantom) Distributions(_ context.Context, jobs []inference.Job) iter.Seq2[[]float32, error] {
	texts, _ := phantom.Texts()
	return func(yield func([]float32, error) bool) {
		for _, j := range jobs {
			p := e.truth(j.Prompt.Messages)
			logs := make([]float32, 4096)
			rest := 1.0
			for i := range logs {
				logs[i] = float32(math.Inf(-1))
			}
			for a, text := range texts {
				logs[first(e.m, text)] = float32(math.Log(p.Answers[1][a]))
				rest -= p.Answers[1][a]
			}
			logs[4095] = float32(math.Log(max(rest, 1e-30)))
			if !yield(logs, nil) {
				return
			}
		}
	}
}

// first is the token that an answer begins with: the one that its text begins with
// and that is no piece of other text.
func first(m *phantom.Model, text string) int {
	for n := len(text); n > 0; n-- {
		if id := m.TokenID(text[:n]); id >= 0 {
			return id
		}
	}
	return 0
}

// label is what a judge that reads the phantom well says.
func label(_ context.Context, responses []probes.Response) (labels []data.Label, err error) {
	texts, known := phantom.Texts()
	for _, r := range responses {
		l := data.Unclear
		if a := slices.Index(texts, r.Text); a >= 0 {
			l = data.Label(known[a])
		}
		labels = append(labels, l)
	}
	return labels, nil
}

func refused(l data.Label) (bool, bool) {
	return phantom.Refuses(string(l), phantom.Lenient), l != data.Unclear
}

// inquiry asks for the exact prediction in the phantom's own form.
var inquiry = &probes.Inquiry{
	Job: func(p data.Prompt) inference.Job {
		j := inference.Job{Prompt: p, Prefix: `{"will_refuse": `, Continuations: []string{"true", "false"}}
		for h := 1; h <= 5; h++ {
			j.Continuations = append(j.Continuations, fmt.Sprintf(`true, "confidence": 3, "harm_rating": %d`, h))
		}
		return j
	},
	Read: func(_ data.Prompt, scores []float64) (pRefuse, harm float64, err error) {
		var sum float64
		for h := 1; h <= 5; h++ {
			p := math.Exp(scores[1+h] - scores[2])
			sum += p
			harm += float64(h) * p
		}
		return 1 / (1 + math.Exp(scores[1]-scores[0])), harm / sum, nil
	},
}

// demoPrompts are the base wordings of the demo requests.
func demoPrompts(t testing.TB) (prompts []probes.SteerPrompt) {
	t.Helper()
	demo, err := data.Demo()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range demo {
		if r.Variant != data.Base {
			continue
		}
		p := prompt(r.Text)
		p.RequestID, p.Variant = r.ID, r.Variant
		ask := []data.Message{{Role: "user", Content: strings.Replace(question, "{{request}}", r.Text, 1)}}
		prompts = append(prompts, probes.SteerPrompt{
			Prompt: p, Text: r.Text,
			Predict: data.Prompt{ID: data.PromptID(ask), RequestID: r.ID, Variant: r.Variant, Phase: data.Predict, Messages: ask},
		})
	}
	return prompts
}

func steerTarget(t testing.TB, name string, layer int, anchor string) probes.SteerTarget {
	t.Helper()
	target, err := probes.ParseSteerTarget(name, probes.Site{Layer: layer, Anchor: anchor})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// steerStudy steers a preset's phantom by harm and refusal.
func steerStudy(t testing.TB, preset string, targets []string, lo probes.LeverOptions, so probes.SteerOptions) (*study, *probes.Levers, []data.Steered, *probes.SteerReport) {
	t.Helper()
	s := studyOf(t, preset)
	harm, refusal := s.model.Directions()
	var list []probes.SteerTarget
	for _, name := range targets {
		if strings.HasPrefix(name, "harm") {
			list = append(list, steerTarget(t, name, harm.Block, probes.Inst))
		} else {
			list = append(list, steerTarget(t, name, refusal.Block, probes.Post))
		}
	}
	levers, err := probes.FitLevers(s.rows, s.states, list, lo)
	if err != nil {
		t.Fatal(err)
	}
	// One direction's controls are enough.
	levers.Levers = slices.DeleteFunc(levers.Levers, func(l probes.Lever) bool { return l.Control != "" && l.Name != targets[0] })
	var notes probes.SteerNotes
	so.Label, so.Refused, so.Inquiry, so.Report = label, refused, inquiry, &notes
	var rows []data.Steered
	for unit, err := range probes.Steer(context.Background(), &steeredPhantom{engine: engine{m: s.model}}, demoPrompts(t), levers, so) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, unit...)
	}
	report, err := probes.SummariseSteering(each(rows), s.rows, probes.SteerSummary{Resamples: 100})
	if err != nil {
		t.Fatal(err)
	}
	report.Notes = notes
	return s, levers, rows, report
}

func each[T any](rows []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// effect finds a condition of the report.
func effect(t testing.TB, r *probes.SteerReport, direction, control, operation string, dose float64) probes.Effect {
	t.Helper()
	for _, e := range r.Effects {
		if e.Direction == direction && e.Control == control && e.Operation == operation && (e.Dose == nil || *e.Dose == dose) {
			return e
		}
	}
	t.Fatalf("there is no effect of %s %s %s %v", direction, control, operation, dose)
	return probes.Effect{}
}

func val(t testing.TB, v probes.Value) float64 {
	t.Helper()
	if v.Value == nil {
		t.Fatal("a value is undefined")
	}
	return *v.Value
}

var doses = []float64{-2, -1, -0.5, 0.5, 1, 2}

// The planted directions do what is planted: a refusal component of d moves the log
// odds of refusing by slope·d and the harm rating not at all; a harm component of d
// moves the rating by 5·d and the log odds not at all. Taken out at every block, the
// refusal direction leaves no refusals.
func TestSteerByPlantedDirections(t *testing.T) {
	s := studyOf(t, "default")
	harm, refusal := s.model.Directions()
	given := func(d phantom.Direction) []probes.GivenVector {
		g := probes.GivenVector{Layer: d.Block}
		for _, v := range d.Vector {
			g.Values = append(g.Values, float32(v))
		}
		return []probes.GivenVector{g}
	}
	const d = 0.2
	run := func(direction phantom.Direction) map[float64][]data.Steered {
		levers, err := probes.GivenLevers(s.rows, direction.Name, "", given(direction), nil, probes.LeverOptions{Controls: -1})
		if err != nil {
			t.Fatal(err)
		}
		byDose := make(map[float64][]data.Steered)
		o := probes.SteerOptions{Doses: []float64{-d, d}, Label: label, Refused: refused, Inquiry: inquiry}
		for unit, err := range probes.Steer(context.Background(), &steeredPhantom{engine: engine{m: s.model}}, demoPrompts(t)[:30], levers, o) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range unit {
				dose := 0.0
				switch {
				case r.Dose != nil:
					dose = *r.Dose
				case r.Operation == data.SteerAblate:
					dose = math.NaN()
				}
				if math.IsNaN(dose) {
					dose = 99
				}
				byDose[dose] = append(byDose[dose], r)
			}
		}
		return byDose
	}
	slope := s.model.Spec.Slope
	byRefusal, byHarm := run(refusal), run(harm)
	ablated, before, middle := 0, 0, 0
	for i, alone := range byRefusal[0] {
		for _, dose := range []float64{-d, d} {
			r, h := byRefusal[dose][i], byHarm[dose][i]
			if r.PromptID != alone.PromptID || h.PromptID != alone.PromptID {
				t.Fatal("rows of unlike prompts")
			}
			if got, want := *r.LogitShift, slope*dose; math.Abs(got-want) > 0.02*math.Abs(want) {
				t.Errorf("prompt %d: refusal by %v moves the log odds by %.4f, want %.4f", i, dose, got, want)
			}
			if got := *r.HarmRating - *alone.HarmRating; math.Abs(got) > 0.01 {
				t.Errorf("prompt %d: refusal by %v moves the rating by %.4f", i, dose, got)
			}
			if got := *h.LogitShift; math.Abs(got) > 0.02 {
				t.Errorf("prompt %d: harm by %v moves the log odds by %.4f", i, dose, got)
			}
			if got := *h.HarmRating - *alone.HarmRating; *alone.HarmRating > 2.5 && *alone.HarmRating < 3.5 {
				middle++
				if math.Abs(got-5*dose) > 0.1 {
					t.Errorf("prompt %d, rated %.2f: harm by %v moves the rating by %.4f, want %.1f", i, *alone.HarmRating, dose, got, 5*dose)
				}
			}
		}
		if alone.Outcome == data.SteerRefuse {
			before++
			if byRefusal[99][i].Outcome == data.SteerRefuse {
				ablated++
			}
		}
	}
	if middle == 0 || before < 5 || ablated != 0 {
		t.Errorf("%d prompts in the middle of the scale; of %d refusals %d are left without the direction", middle, before, ablated)
	}
}

// On the default phantom harm and refusal are two, also as fitted: adding refusal
// refuses and leaves the harm rating, adding harm moves the rating and leaves the
// refusals. Log odds move by about slope · (read-out · vector), less where the
// fitted vector also holds which kind of refusal a word calls for.
func TestSteerTellsHarmFromRefusal(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a few thousand forward passes")
	}
	const refusing, harming = "refusal at equal harm", "harm"
	s, levers, _, r := steerStudy(t, "default", []string{refusing, harming}, probes.LeverOptions{Controls: 3}, probes.SteerOptions{Doses: doses, ControlDoses: []float64{-2, 2}})
	if r.Requests != 60 || r.Harmful != 20 || r.Harmless != 20 {
		t.Fatalf("%d requests, %d harmful, %d harmless", r.Requests, r.Harmful, r.Harmless)
	}
	harm, refusal := s.model.Directions()
	// by returns read-out · vector for a dose of 1, mean over folds.
	by := func(lever string, readOut []float64) float64 {
		for _, l := range levers.Levers {
			if l.Name == lever && l.Control == "" {
				var sum float64
				for _, fold := range l.Folds {
					for i, v := range fold[0].Values {
						sum += v * fold[0].Gap * readOut[i] / float64(len(l.Folds))
					}
				}
				return sum
			}
		}
		t.Fatal(lever)
		return 0
	}
	slope := s.model.Spec.Slope
	for _, d := range doses {
		e := effect(t, r, refusing, "", data.SteerAdd, d)
		want := slope * d * by(refusing, refusal.ReadOut)
		if got := val(t, e.All.LogitShift); got/want < 0.5 || got/want > 1.15 {
			t.Errorf("refusal, dose %v: log odds moved by %.3f, the component by %.3f", d, got, want)
		}
		if got := val(t, e.All.HarmChange); math.Abs(got) > 0.3 {
			t.Errorf("refusal, dose %v: the harm rating moved by %.3f", d, got)
		}
		h := effect(t, r, harming, "", data.SteerAdd, d)
		if got, other := val(t, h.All.LogitShift), val(t, e.All.LogitShift); math.Abs(got) > 0.25*math.Abs(other) {
			t.Errorf("harm, dose %v: log odds moved by %.3f, by refusal %.3f", d, got, other)
		}
		if got := val(t, h.All.RefusalChange); math.Abs(got) > 0.1 {
			t.Errorf("harm, dose %v: the refusal rate moved by %.3f", d, got)
		}
	}
	// What is at the bottom of the scale first has to rise to 1, where it begins.
	if got, want := val(t, effect(t, r, harming, "", data.SteerAdd, 0.5).Harmless.HarmChange), 5*0.5*by(harming, harm.ReadOut); got < want/2 || got > 1.1*want {
		t.Errorf("harm: the rating of harmless requests rose by %.3f, the component by %.3f", got, want)
	}
	if got := val(t, effect(t, r, refusing, "", data.SteerAdd, 2).All.Refusal); got < 0.95 {
		t.Errorf("refusal added: %.3f are refused", got)
	}
	if got := val(t, effect(t, r, refusing, "", data.SteerAdd, -2).All.Refusal); got > 0.2 {
		// Not 0: refused requests also differ by the kind of refusal that they call for.
		t.Errorf("refusal subtracted: %.3f are refused", got)
	}
	before := val(t, r.Alone.All.Refusal)
	if got := val(t, effect(t, r, refusing, "", data.SteerAblate, 0).All.Refusal); got > before/4 {
		t.Errorf("refusal taken out: %.3f are refused, before %.3f", got, before)
	}
	// Controls of equal length: a random direction of w has 1/√w of the read-out.
	for _, kind := range probes.Controls() {
		for _, d := range []float64{-2, 2} {
			e := effect(t, r, refusing, kind, data.SteerAdd, d)
			if len(e.Draws) != 3 {
				t.Fatalf("%s: %d draws", kind, len(e.Draws))
			}
			own := effect(t, r, refusing, "", data.SteerAdd, d)
			over := own.Over[kind]
			// What is fitted to shuffled labels lies along what varies most, and on the
			// phantom that is the refusal: such a control is no idle one.
			if kind != probes.ControlShuffled {
				if got, real := val(t, e.All.LogitShift), val(t, own.All.LogitShift); math.Abs(got) > 0.5*math.Abs(real) {
					t.Errorf("%s, dose %v: log odds moved by %.3f, by the direction %.3f", kind, d, got, real)
				}
				if lo, hi := over.Refusal.Lo, over.Refusal.Hi; lo == nil || d > 0 && *lo <= 0 || d < 0 && *hi >= 0 {
					t.Errorf("%s, dose %v: that the direction does more is not seen: %+v", kind, d, over.Refusal)
				}
			}
			if over.Draws != 3 || over.P < 0.25 || over.P > 1 {
				t.Errorf("%s: %d draws, p %v", kind, over.Draws, over.P)
			}
		}
	}
	// Dose and response.
	last, lastShift := -1.0, math.Inf(-1)
	for _, d := range doses {
		e := effect(t, r, refusing, "", data.SteerAdd, d)
		if got := val(t, e.All.Refusal); got < last {
			t.Errorf("dose %v refuses %.3f, the one before %.3f", d, got, last)
		} else {
			last = got
		}
		if got := val(t, e.All.LogitShift); got <= lastShift {
			t.Errorf("dose %v moves the log odds by %.3f, the one before %.3f", d, got, lastShift)
		} else {
			lastShift = got
		}
	}
	texts, labels := phantom.Texts()
	if r.Notes.Tokens < 3 || r.Notes.Tokens > 4 || len(r.Notes.Openings) == 0 {
		t.Errorf("%d tokens open refusals, %q", r.Notes.Tokens, r.Notes.Openings)
	}
	for _, opening := range r.Notes.Openings {
		k := slices.IndexFunc(texts, func(text string) bool { return strings.HasPrefix(text, opening) })
		if k < 0 || !phantom.Refuses(labels[k], phantom.Lenient) {
			t.Errorf("%q is said to open refusals", opening)
		}
	}
}

// On the phantom of one direction, both do both, and they are one knob.
func TestSteerOneDirection(t *testing.T) {
	_, _, _, r := steerStudy(t, "one-direction", []string{"refusal", "harm"}, probes.LeverOptions{Controls: -1}, probes.SteerOptions{Doses: []float64{-1, -0.5, -0.2, 0.2, 0.5, 1}, Operations: []string{data.SteerAdd}})
	for _, name := range []string{"refusal", "harm"} {
		up, down := effect(t, r, name, "", data.SteerAdd, 1), effect(t, r, name, "", data.SteerAdd, -1)
		if got := val(t, up.Harmless.HarmChange); got < 1 {
			t.Errorf("%s added: the rating of harmless requests rises by %.3f", name, got)
		}
		if got := val(t, up.Harmless.RefusalChange); got < 0.5 {
			t.Errorf("%s added: harmless requests are refused %.3f more", name, got)
		}
		if got := val(t, down.Harmful.HarmChange); got > -1 {
			t.Errorf("%s subtracted: the rating of harmful requests moves by %.3f", name, got)
		}
		if got := val(t, down.Harmful.RefusalChange); got > -0.5 {
			t.Errorf("%s subtracted: harmful requests are refused %.3f more", name, got)
		}
	}
	if r.Knob == nil || len(r.Knob.Pairs) != 1 {
		t.Fatalf("one knob: %+v", r.Knob)
	}
	if p := r.Knob.Pairs[0]; p.Rates == 0 || p.Difference.Lo == nil || *p.Difference.Lo > 0 || *p.Difference.Hi < 0 {
		t.Errorf("two names of one direction are told apart: %+v, %v to %v", p, *p.Difference.Lo, *p.Difference.Hi)
	}
}

// No request is steered by a direction that saw it: changing its states and
// labels, in every wording, leaves the direction of its fold as it was, bit for bit.
func TestSteerNeverSeesTheSteered(t *testing.T) {
	s := studyOf(t, "default")
	target := steerTarget(t, "refusal at equal harm", 2, probes.Post)
	before, err := probes.FitLevers(s.rows, s.states, []probes.SteerTarget{target}, probes.LeverOptions{Controls: 1})
	if err != nil {
		t.Fatal(err)
	}
	victim := s.rows[17].RequestID
	rows := slices.Clone(s.rows)
	width := s.states.Width()
	site := probes.Site{Layer: 2, Anchor: probes.Post}
	values := make([]float32, 0, width*len(rows))
	var ids []string
	for i := range rows {
		v := slices.Clone(s.states.Values(rows[i].PromptID, site))
		if rows[i].RequestID == victim {
			rows[i].Refusals = rows[i].Trials - rows[i].Refusals
			for j := range v {
				v[j] = 1000
			}
		}
		ids, values = append(ids, rows[i].PromptID), append(values, v...)
	}
	after, err := probes.FitLevers(rows, probes.NewStates(width, ids, []probes.Site{site}, [][]float32{values}), []probes.SteerTarget{target}, probes.LeverOptions{Controls: 1})
	if err != nil {
		t.Fatal(err)
	}
	own := before.Fold[victim]
	for f := range 5 {
		same := slices.Equal(before.Levers[0].Folds[f][0].Values, after.Levers[0].Folds[f][0].Values)
		if same != (f == own) {
			t.Errorf("fold %d (the request's is %d): the direction stayed %v", f, own, same)
		}
	}
	// A request that is in no fold is not steered.
	delete(before.Fold, demoPrompts(t)[3].Prompt.RequestID)
	for _, err := range probes.Steer(context.Background(), &steeredPhantom{engine: engine{m: s.model}}, demoPrompts(t), before, probes.SteerOptions{Label: label, Refused: refused}) {
		if err == nil || !strings.Contains(err.Error(), "may not be steered") {
			t.Fatalf("got %v", err)
		}
	}
}

// What was done need not be done again, and gives the same table; a unit in which
// the engine fails leaves none of its rows, and the engine unsteered.
func TestSteerContinues(t *testing.T) {
	s := studyOf(t, "default")
	levers, err := probes.FitLevers(s.rows, s.states, []probes.SteerTarget{steerTarget(t, "refusal", 2, probes.Post)}, probes.LeverOptions{Controls: 1})
	if err != nil {
		t.Fatal(err)
	}
	prompts := demoPrompts(t)[:20]
	o := probes.SteerOptions{Label: label, Refused: refused, Doses: []float64{1}, PlanID: "p"}
	run := func(e *steeredPhantom, done map[string]bool) (rows []data.Steered, failed error) {
		o.Done = func(unit string) bool { return done[unit] }
		for unit, err := range probes.Steer(context.Background(), e, prompts, levers, o) {
			if err != nil {
				return rows, err
			}
			rows = append(rows, unit...)
		}
		return rows, nil
	}
	whole, err := run(&steeredPhantom{engine: engine{m: s.model}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := &steeredPhantom{engine: engine{m: s.model}, failAt: 11}
	part, err := run(broken, nil)
	if err == nil || len(part) == 0 || len(part) >= len(whole) {
		t.Fatalf("%d of %d rows, %v", len(part), len(whole), err)
	}
	if broken.s != nil {
		t.Error("the engine is left steered")
	}
	done := make(map[string]bool)
	for _, r := range part {
		done[probes.SteerUnit(r)] = true
	}
	rest, err := run(&steeredPhantom{engine: engine{m: s.model}}, done)
	if err != nil {
		t.Fatal(err)
	}
	byKey := func(rows []data.Steered) map[string]string {
		m := make(map[string]string)
		for _, r := range rows {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			m[probes.SteerUnit(r)+r.PromptID] = string(b)
		}
		return m
	}
	got, want := byKey(append(part, rest...)), byKey(whole)
	if len(got) != len(want) || len(rest) >= len(whole) {
		t.Fatalf("%d rows, want %d; the rest has %d", len(got), len(want), len(rest))
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s, want %s", k, got[k], v)
		}
	}
	for _, r := range whole {
		if r.Text != nil {
			t.Fatal("a text was kept that was not asked for")
		}
	}
}

// A direction of the table, fitted to other requests, is steered by as it is.
func TestSteerByAGivenDirection(t *testing.T) {
	s := studyOf(t, "default")
	report, err := probes.Fit(s.rows, s.states, probes.Options{
		Target: probes.Refusal(), Methods: []probes.Method{probes.MeanDifference, probes.Whitened}, Permutations: -1, Resamples: -1, Seeds: 1,
		Sites: func(site probes.Site) bool { return site == probes.Site{Layer: 2, Anchor: probes.Post} },
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := probes.Whole(s.rows, s.states, steerTarget(t, "refusal", 2, probes.Post))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.Directions() {
		g, err := probes.GivenDirection(d)
		if d.Method != string(probes.MeanDifference) {
			if err == nil {
				t.Errorf("the weights of %s are steered by", d.Method)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(g.Gap-whole.Gap) > 1e-4*whole.Gap || g.Layer != 2 {
			t.Errorf("class gap %v at %d, want %v at 2", g.Gap, g.Layer, whole.Gap)
		}
		seen := map[string]bool{}
		levers, err := probes.GivenLevers(s.rows, "refusal", "post", []probes.GivenVector{g}, func(r probes.Row) bool {
			if _, ok := seen[r.RequestID]; !ok {
				seen[r.RequestID] = len(seen)%2 == 0
			}
			return seen[r.RequestID] && r.Variant != data.Base // one wording is enough
		}, probes.LeverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if v := levers.Levers[0].Folds[0][0]; probes.Cosine(v.Values, whole.Values) < 0.9999 {
			t.Errorf("cosine with the direction fitted anew %v", probes.Cosine(v.Values, whole.Values))
		}
		for id, in := range seen {
			if _, may := levers.Fold[id]; may == in {
				t.Errorf("request %s was fitted to: %v, may be steered: %v", id, in, may)
			}
		}
		if _, err := probes.GivenLevers(s.rows, "refusal", "post", []probes.GivenVector{g}, func(probes.Row) bool { return true }, probes.LeverOptions{}); err == nil {
			t.Error("a direction is steered by on the requests that it was fitted to")
		}
	}
}

// planted makes rows of a toy: a direction refuses a share of the harmful and of the
// harmless requests at each dose.
func planted(direction string, n int, doses, harmful, harmless []float64) (rows []data.Steered, about []probes.Row) {
	for i := range 2 * n {
		id := fmt.Sprintf("r%03d", i)
		share, level := harmful, 5
		if i >= n {
			share, level = harmless, 1
		}
		about = append(about, probes.Row{PromptID: id, RequestID: id, Harm: level})
		for k, d := range doses {
			row := data.Steered{PromptID: id, RequestID: id, Outcome: data.SteerComply, Operation: data.SteerNone, Fold: -1}
			if d != 0 {
				dose := d
				row.Direction, row.Operation, row.Dose, row.Unit, row.Fold = direction, data.SteerAdd, &dose, data.UnitGap, i%2
			}
			if float64(i%n) < share[k]*float64(n) {
				row.Outcome = data.SteerRefuse
			}
			rows = append(rows, row)
		}
	}
	return rows, about
}

// Two directions that refuse harmless requests equally often where they refuse
// harmful ones equally often are one knob, whatever their doses; a third that
// over-refuses 0.2 more is found to.
func TestOneKnob(t *testing.T) {
	line := func(x, shift float64) float64 { return 0.5*x + shift }
	rr := []float64{0.1, 0.3, 0.5, 0.9}
	curve := func(shift float64) (out []float64) {
		for i, x := range rr {
			if i == 0 {
				shift := 0.0 // all begin at the model left alone
				out = append(out, line(x, shift))
				continue
			}
			out = append(out, line(x, shift))
		}
		return out
	}
	a, about := planted("a", 100, []float64{0, 1, 2, 3}, rr, curve(0))
	b, _ := planted("b", 100, []float64{0, 10, 20, 30}, []float64{0.1, 0.2, 0.6, 0.9}, []float64{0.05, 0.1, 0.3, 0.45})
	c, _ := planted("c", 100, []float64{0, 0.1, 0.2, 0.3}, rr, curve(0.2))
	isNone := func(r data.Steered) bool { return r.Operation == data.SteerNone }
	rows := slices.Concat(a, slices.DeleteFunc(b, isNone), slices.DeleteFunc(c, isNone))
	r, err := probes.SummariseSteering(each(rows), about, probes.SteerSummary{Resamples: 300})
	if err != nil {
		t.Fatal(err)
	}
	if r.Knob == nil || len(r.Knob.Curves) != 3 || len(r.Knob.Pairs) != 3 {
		t.Fatalf("%+v", r.Knob)
	}
	for _, p := range r.Knob.Pairs {
		got := val(t, p.Difference)
		switch p.A + p.B {
		case "ab":
			if math.Abs(got) > 0.02 || *p.Difference.Lo > 0 || *p.Difference.Hi < 0 {
				t.Errorf("one knob: %.3f [%.3f, %.3f]", got, *p.Difference.Lo, *p.Difference.Hi)
			}
		default:
			// Between 0.3 and 0.9 the difference is 0.2; from 0.1 to 0.3 it grows from 0.
			if got > -0.15 || got < -0.2 || *p.Difference.Hi >= 0 {
				t.Errorf("%s against %s: %.3f [%.3f, %.3f]", p.A, p.B, got, *p.Difference.Lo, *p.Difference.Hi)
			}
		}
	}
	if got := val(t, r.Knob.Spread); got < 0.15 || got > 0.22 {
		t.Errorf("spread %.3f", got)
	}
	if _, err := probes.SummariseSteering(each(slices.DeleteFunc(rows, isNone)), about, probes.SteerSummary{}); err == nil {
		t.Error("changes from nothing")
	}
}

// What is no text is told from what is one.
func TestSteerDegenerate(t *testing.T) {
	const bread = "Mix flour, water, salt and yeast. Knead the dough for ten minutes, let it rise for an hour, shape a loaf and bake it until the crust is brown."
	s := studyOf(t, "default")
	levers, err := probes.FitLevers(s.rows, s.states, []probes.SteerTarget{steerTarget(t, "refusal", 2, probes.Post)}, probes.LeverOptions{Controls: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, outcome, reason string }{
		{bread, data.SteerComply, ""},
		{"", data.SteerDegenerate, "empty"},
		{" \n ", data.SteerDegenerate, "empty"},
		{strings.Repeat("the dough the ", 20), data.SteerDegenerate, "loop"},
		{"Knead the dough. " + strings.Repeat("Let it rise. ", 8), data.SteerDegenerate, "loop"},
		{"Row, row, row your boat gently down the stream.", data.SteerComply, ""},
		{strings.Repeat("面团要揉好", 10), data.SteerDegenerate, "loop"},
		{"bread bread the bread bread bread a bread bread bread bread bread of bread bread bread bread bread bread the", data.SteerDegenerate, "collapse"},
	} {
		e := &textEngine{steeredPhantom{engine: engine{m: s.model}}, c.text}
		o := probes.SteerOptions{
			Doses: []float64{1}, Operations: []string{data.SteerAdd}, Refused: refused, KeepText: true,
			Label: func(_ context.Context, r []probes.Response) ([]data.Label, error) {
				return slices.Repeat([]data.Label{data.FullCompliance}, len(r)), nil
			},
		}
		for rows, err := range probes.Steer(context.Background(), e, demoPrompts(t)[:1], levers, o) {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Outcome != c.outcome || r.Reason != c.reason || *r.Text != c.text {
					t.Errorf("%.40q: %s %s, want %s %s", c.text, r.Outcome, r.Reason, c.outcome, c.reason)
				}
			}
		}
	}
}

// A textEngine always says the same.
type textEngine struct {
	steeredPhantom
	text string
}

func (e *textEngine) Generate(_ context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) {
		for _, j := range jobs {
			a := inference.Answer{PromptID: j.Prompt.ID}
			for _, s := range j.Samplings {
				a.Generations = append(a.Generations, data.Generation{Sampling: s, Text: e.text, StopReason: data.StopEnd})
			}
			for range j.Continuations {
				a.Scores = append(a.Scores, -1)
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

func TestParseSteerTarget(t *testing.T) {
	for _, name := range []string{"refusal", "harm at equal refusal", "refusal within harmful", "topic=bread"} {
		if _, err := probes.ParseSteerTarget(name, probes.Site{}); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "harm_graded", "refusal at equal length", "beauty"} {
		if _, err := probes.ParseSteerTarget(name, probes.Site{}); err == nil {
			t.Errorf("%q is a target", name)
		}
	}
}

// A recorder keeps what it was steered by.
type recorder struct {
	*steeredPhantom
	seen []*inference.Steering
}

func (r *recorder) Steer(ctx context.Context, s *inference.Steering) error {
	if s != nil {
		r.seen = append(r.seen, s)
	}
	return r.steeredPhantom.Steer(ctx, s)
}

// TestSteerWriters: what is taken out of what the blocks write is the direction, at
// no block in particular, and has rows of its own.
func TestSteerWriters(t *testing.T) {
	s := studyOf(t, "default")
	_, refusal := s.model.Directions()
	values := make([]float32, len(refusal.Vector))
	for i, v := range refusal.Vector {
		values[i] = float32(v)
	}
	one := probes.GivenVector{Layer: refusal.Block, Values: values}
	steer := func(vectors ...probes.GivenVector) ([]data.Steered, []*inference.Steering, error) {
		levers, err := probes.GivenLevers(s.rows, "refusal", "", vectors, nil, probes.LeverOptions{Controls: -1})
		if err != nil {
			t.Fatal(err)
		}
		e := &recorder{steeredPhantom: &steeredPhantom{engine: engine{m: s.model}}}
		var rows []data.Steered
		for unit, err := range probes.Steer(context.Background(), e, demoPrompts(t)[:4], levers, probes.SteerOptions{
			Operations: []string{probes.AblateWriters}, Label: label, Refused: refused,
		}) {
			if err != nil {
				return nil, nil, err
			}
			rows = append(rows, unit...)
		}
		return rows, e.seen, nil
	}
	rows, seen, err := steer(one)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || len(seen[0].Add)+len(seen[0].Ablate) != 0 {
		t.Fatalf("steered by %v", seen)
	}
	dot, square := 0.0, 0.0
	for i, v := range seen[0].AblateWriters {
		dot += float64(v) * refusal.Vector[i]
		square += float64(v) * float64(v)
	}
	own := 0.0
	for _, v := range refusal.Vector {
		own += v * v
	}
	if cosine := dot / math.Sqrt(square*own); cosine < 0.999999 {
		t.Errorf("the direction taken out has a cosine of %v with the one given", cosine)
	}
	ablated := rows[4:]
	if len(rows) != 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range ablated {
		if r.Operation != data.SteerAblateWriters || r.Layer != nil || r.Dose != nil {
			t.Errorf("row %+v", r)
		}
	}
	two := one
	two.Layer++
	if _, _, err := steer(one, two); err == nil || !strings.Contains(err.Error(), "one only") {
		t.Errorf("two vectors: error %v", err)
	}
}
