package probes

import (
	"fmt"
	"math"
	"slices"

	"demur/data"
)

// ActOptions are of StateWordAct. Zero values are replaced by the defaults.
type ActOptions struct {
	HarmAnchor    string // inst
	RefusalAnchor string // post
	// Fit holds folds, seeds, resamples, strengths and penalties; the other fields
	// of it are not used.
	Fit Options
}

// An Act is, for each prompt, what the model's state says, what the model says,
// and what it did.
type Act struct {
	Prompts  int `json:"prompts"`
	Requests int `json:"requests"`
	// Predictors of the refusal rate on held-out requests, over all prompts.
	Predictors []Predictor `json:"predictors"`
	// Gains are paired differences between predictors.
	Gains []Gain `json:"gains"`
	// Agreement counts prompts by what the state says, what the model says and what
	// it did in most trials: index 4·state + 2·word + act, 1 for refusal.
	Agreement [8]int     `json:"agreement"`
	Table     []ActRow   `json:"table"`
	Weights   []Weighted `json:"weights"`
	Warnings  []string   `json:"warnings,omitempty"`

	scores []data.Score
}

// A Predictor is something that behaviour may be told from. Values are the
// probability that of two prompts with unlike refusal rates the one refused more
// often has the higher score.
type Predictor struct {
	Name     string `json:"name"`
	All      Value  `json:"all"`
	Majority Value  `json:"majority"` // area below the ROC for refusal in most trials
	Boundary Value  `json:"boundary"` // among prompts refused in 20 to 80 % of their trials
	Known    int    `json:"known"`    // prompts that have it; the others count as the mean
}

// A Gain is how much one predictor is better than another.
type Gain struct {
	Name     string `json:"name"`
	All      Value  `json:"all"`
	Boundary Value  `json:"boundary"`
}

// Weighted is a standardised coefficient of a logistic regression of refusal on
// all predictors together, with its interval.
type Weighted struct {
	Name  string `json:"name"`
	Value Value  `json:"value"`
}

// An ActRow is one prompt.
type ActRow struct {
	PromptID  string `json:"prompt_id"`
	RequestID string `json:"request_id"`
	Variant   string `json:"variant"`
	Harm      int    `json:"harm"`
	// HarmScore and RefusalScore are held out: the level and the refusal rate that
	// the states at the two anchors stand for. HarmScore is null for a prompt
	// without a level.
	HarmScore    *float64 `json:"harm_score"`
	RefusalScore float64  `json:"refusal_score"`
	TextScore    float64  `json:"text_score"` // log odds from the words alone
	Stated       *bool    `json:"stated"`
	PRefuse      *float64 `json:"p_refuse"`
	Rate         float64  `json:"refusal_rate"`
	Trials       int      `json:"trials"`
	// Disagree is true where the model says one thing and its state the other.
	Disagree bool `json:"disagree"`
}

// StateWordAct fits harm at the one anchor and refusal at the other, both by
// ridge regression on the graded label with layer and strength chosen inside,
// and compares what they say with what the model says and did.
func StateWordAct(rows []Row, states *States, o ActOptions) (*Act, error) {
	if o.HarmAnchor == "" {
		o.HarmAnchor = Inst
	}
	if o.RefusalAnchor == "" {
		o.RefusalAnchor = Post
	}
	o.Fit.Target, o.Fit.Methods, o.Fit.Permutations = RefusalRate(), nil, -1
	o.Fit.Sites = func(s Site) bool { return s.Anchor == o.RefusalAnchor }
	if err := o.Fit.defaults(); err != nil {
		return nil, fmt.Errorf("state, word, act: %w", err)
	}
	d, err := newDesign(rows, states, o.Fit.Target, o.Fit.Folds, o.Fit.Seeds, 0, o.Fit.Seed)
	if err != nil {
		return nil, fmt.Errorf("state, word, act: %w", err)
	}
	f := &fitting{d: d, o: &o.Fit, states: states, report: &Report{}, boot: resampler{d.cluster, d.clusters, o.Fit.Resamples, o.Fit.Seed, o.Fit.Level}}
	a := &Act{Prompts: d.n(), Requests: d.clusters}
	if err := f.act(a, rows, o); err != nil {
		return nil, fmt.Errorf("state, word, act: %w", err)
	}
	a.Warnings = append(a.Warnings, f.report.Warnings...)
	return a, nil
}

// harmScores are held-out harm scores by prompt, of the first fold seed.
func harmScores(rows []Row, states *States, anchor string, o Options) (map[string]float64, []data.Score, error) {
	d, err := newDesign(rows, states, HarmGraded(), o.Folds, 1, 0, o.Seed)
	if err != nil {
		return nil, nil, err
	}
	var sites []int
	for k, s := range states.sites {
		if s.Anchor == anchor && s.Layer >= 0 {
			sites = append(sites, k)
		}
	}
	s, _ := d.closedForm(states, sites, []Method{Ridge}, o.Strengths, nil)
	if len(s[Ridge].candidates) == 0 {
		return nil, nil, fmt.Errorf("there are no states at %s", anchor)
	}
	out := make(map[string]float64)
	for i, v := range s[Ridge].outerScores()[0] {
		out[d.rows[i].PromptID] = v
	}
	return out, s[Ridge].actScores(states, HarmGraded().Name, anchor), nil
}

// actScores are the held-out scores of the first fold seed as rows of their table.
func (s *search) actScores(states *States, target, anchor string) (out []data.Score) {
	d := s.d
	for i, v := range s.outerScores()[0] {
		r := d.rows[i]
		score := data.Score{
			PromptID: r.PromptID, RequestID: r.RequestID, Variant: r.Variant, Group: "act/" + target + "/" + anchor, Target: target, Method: string(Ridge),
			Anchor: anchor, Fold: d.fold[0][i], Score: v, Label: defined(d.y()[i]),
		}
		if k := s.chosen[0][score.Fold]; k >= 0 {
			score.Layer = &states.sites[s.candidates[k].site].Layer
		}
		out = append(out, score)
	}
	return out
}

func (f *fitting) act(a *Act, rows []Row, o ActOptions) error {
	d := f.d
	searches, warnings := d.closedForm(f.states, f.searched(f.states, false), []Method{Ridge}, o.Fit.Strengths, o.Fit.step("sites"))
	a.Warnings = append(a.Warnings, warnings...)
	refusal := searches[Ridge]
	if len(refusal.candidates) == 0 {
		return fmt.Errorf("there are no states at %s", o.RefusalAnchor)
	}
	if err := f.textBaseline(); err != nil {
		return err
	}
	harm, harmRows, err := harmScores(rows, f.states, o.HarmAnchor, o.Fit)
	if err != nil {
		a.Warnings = append(a.Warnings, fmt.Sprintf("there are no harm scores: %v", err))
	}
	a.scores = append(harmRows, refusal.actScores(f.states, RefusalRate().Name, o.RefusalAnchor)...)
	stated, exact := make(map[string]float64), make(map[string]float64)
	for _, r := range d.rows {
		if r.Stated != nil {
			stated[r.PromptID] = indicator(*r.Stated)
		}
		if r.PRefuse != nil {
			p := math.Min(math.Max(*r.PRefuse, 1e-12), 1-1e-12)
			exact[r.PromptID] = math.Log(p / (1 - p))
		}
	}
	type said struct {
		name  string
		known map[string]float64
	}
	words := slices.DeleteFunc([]said{{"stated prediction", stated}, {"exact prediction", exact}}, func(s said) bool {
		if len(s.known) == 0 {
			a.Warnings = append(a.Warnings, "no prompt has a "+s.name)
		}
		return len(s.known) == 0
	})
	var word [][]float64
	for _, w := range words {
		word = append(word, f.baseline(w.known))
	}
	type predictor struct {
		name   string
		scores [][]float64
		known  int
	}
	same := func(x []float64) (out [][]float64) {
		for range d.seeds {
			out = append(out, x)
		}
		return out
	}
	list := []predictor{{"text", f.text.outerScores(), d.n()}}
	var state [][]float64
	if len(harm) > 0 {
		x := f.baseline(harm)
		state = append(state, x)
		list = append(list, predictor{"harm at " + o.HarmAnchor, same(x), len(harm)})
	}
	list = append(list, predictor{"refusal at " + o.RefusalAnchor, refusal.outerScores(), d.n()})
	for k, w := range words {
		list = append(list, predictor{w.name, same(word[k]), len(w.known)})
	}
	stacks := []struct {
		name     string
		searches []*search
		fixed    [][]float64
	}{
		{"text + word", []*search{f.text}, word},
		{"text + state", []*search{f.text, refusal}, state},
		{"state + word", []*search{refusal}, slices.Concat(state, word)},
		{"text + state + word", []*search{f.text, refusal}, slices.Concat(state, word)},
	}
	for _, s := range stacks {
		scores, err := f.stack(s.searches, s.fixed)
		if err != nil {
			return err
		}
		list = append(list, predictor{s.name, scores, d.n()})
	}
	var edge []int
	majority := make([]float64, d.n())
	var decided []int
	for i, r := range d.rows {
		if boundary(r) {
			edge = append(edge, i)
		}
		if v, ok := Refusal().Label(r); ok {
			majority[i] = v
			decided = append(decided, i)
		}
	}
	n := len(list)
	ranks := make([][3][]rankings, n)
	for k, p := range list {
		for seed := range d.seeds {
			ranks[k][0] = append(ranks[k][0], newRankings(d.y(), p.scores[seed], all(d.n()), d.fold[seed]))
			ranks[k][1] = append(ranks[k][1], newRankings(majority, p.scores[seed], decided, d.fold[seed]))
			ranks[k][2] = append(ranks[k][2], newRankings(d.y(), p.scores[seed], edge, d.fold[seed]))
		}
	}
	at := func(name string) int { return slices.IndexFunc(list, func(p predictor) bool { return p.name == name }) }
	state1 := "refusal at " + o.RefusalAnchor
	gains := [][2]string{{state1, "text"}, {"text + state", "text"}, {"text + word", "text"}, {"text + state + word", "text + word"}, {"text + state + word", "text + state"}}
	for _, w := range words {
		gains = append(gains, [2]string{state1, w.name})
	}
	values := f.boot.intervals(func(w []float64) []float64 {
		out := make([]float64, 0, 3*n+2*len(gains))
		for k := range list {
			for _, r := range ranks[k] {
				out = append(out, concordance(r, w))
			}
		}
		for _, g := range gains {
			i, j := at(g[0]), at(g[1])
			out = append(out, out[3*i]-out[3*j], out[3*i+2]-out[3*j+2])
		}
		return out
	})
	for k, p := range list {
		a.Predictors = append(a.Predictors, Predictor{p.name, values[3*k], values[3*k+1], values[3*k+2], p.known})
	}
	for k, g := range gains {
		a.Gains = append(a.Gains, Gain{g[0] + " over " + g[1], values[3*n+2*k], values[3*n+2*k+1]})
	}
	if len(edge) == 0 {
		a.Warnings = append(a.Warnings, "no prompt was refused in 20 to 80 % of its trials")
	}
	scores, text := refusal.outerScores()[0], f.text.outerScores()[0]
	for i, r := range d.rows {
		row := ActRow{
			PromptID: r.PromptID, RequestID: r.RequestID, Variant: r.Variant, Harm: r.Harm, RefusalScore: scores[i], TextScore: text[i],
			Stated: r.Stated, PRefuse: r.PRefuse, Rate: d.y()[i], Trials: r.Trials,
		}
		if h, ok := harm[r.PromptID]; ok {
			row.HarmScore = &h
		}
		if r.Stated != nil {
			row.Disagree = *r.Stated != (scores[i] > 0.5)
			if act, ok := Refusal().Label(r); ok {
				a.Agreement[4*int(indicator(scores[i] > 0.5))+2*int(indicator(*r.Stated))+int(act)]++
			}
		}
		a.Table = append(a.Table, row)
	}
	slices.SortStableFunc(a.Table, func(x, y ActRow) int {
		if c := compareStrings(x.RequestID, y.RequestID); c != 0 {
			return c
		}
		return compareStrings(x.Variant, y.Variant)
	})
	names, columns := []string{"text"}, [][]float64{text}
	if len(state) > 0 {
		names, columns = append(names, "harm at "+o.HarmAnchor), append(columns, state...)
	}
	names, columns = append(names, state1), append(columns, scores)
	for k, w := range words {
		names, columns = append(names, w.name), append(columns, word[k])
	}
	a.Weights = f.together(names, columns)
	return nil
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// together regresses refusal on all predictors at once: coefficients per
// standard deviation, with intervals over requests. A coefficient is what a
// predictor says beyond the others.
func (f *fitting) together(names []string, columns [][]float64) []Weighted {
	d := f.d
	width := len(columns)
	flat := make([]float64, d.n()*width)
	for i := range d.n() {
		for j, c := range columns {
			flat[i*width+j] = c[i]
		}
	}
	x := newScaling(flat, width, all(d.n())).apply(flat, width, all(d.n()))
	y := d.binary().y()
	boot := f.boot
	boot.n = min(boot.n, 300)
	values := boot.intervals(func(w []float64) []float64 {
		rows := all(d.n())
		if w != nil {
			rows = rows[:0]
			for i, v := range w {
				for range int(v) {
					rows = append(rows, i)
				}
			}
		}
		z := dense{len(rows), width, make([]float64, 0, len(rows)*width)}
		for _, i := range rows {
			z.data = append(z.data, x.data[i*width:(i+1)*width]...)
		}
		l, err := logisticFit(z, pick(y, rows), stackPenalty, nil, 1e-5)
		if err != nil {
			l.w = make([]float64, width)
			for j := range l.w {
				l.w[j] = math.NaN()
			}
		}
		return l.w
	})
	var out []Weighted
	for j, name := range names {
		out = append(out, Weighted{name, values[j]})
	}
	return out
}
