package probes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"demur/data"
)

// A Sample is prompts with their states under a name: those of a request set, of
// one quantisation of a model, or the same states with labels taken at one
// temperature.
type Sample struct {
	Name   string
	Rows   []Row
	States *States
}

// A Crossing asks whether directions carry over between samples.
type Crossing struct {
	By      string // what tells the samples apart: request set, model, temperature
	Samples []Sample
	// Acts keeps it to targets of behaviour, where the samples differ in that alone.
	Acts bool
}

// StudyOptions say what is asked of one set of states.
type StudyOptions struct {
	Targets []Target
	Fit     Options // Target of it is not used
	// Crossings are tested beside transfer between topics and between wordings.
	Crossings []Crossing
}

// A Study is all that is asked of the states of one run: for each target the
// directions with their controls, what carries over, and how many directions it
// takes; the angles between harm and refusal; and state, word and act together.
type Study struct {
	Reports   []*Report       `json:"reports"`
	Transfers []TransferTable `json:"transfers"`
	Subspaces []SubspaceTable `json:"subspaces"`
	Geometry  *GeometryReport `json:"geometry"`
	Act       *Act            `json:"state_word_act"`
	// Skipped says what was not done, and why.
	Skipped []string `json:"skipped,omitempty"`

	level float64
}

// A TransferTable holds the cells of one way to part the prompts. Directions are
// fitted at the site where the report's controls are tested.
type TransferTable struct {
	Target string  `json:"target"`
	By     string  `json:"by"`
	Method Method  `json:"method"`
	Site   Site    `json:"site"`
	Graded bool    `json:"graded"`
	Cells  []Cell  `json:"cells"`
	Level  float64 `json:"level"`
}

// A SubspaceTable is what 1 to 8 directions reach at one site.
type SubspaceTable struct {
	Target string     `json:"target"`
	Site   Site       `json:"site"`
	K      []Subspace `json:"k"`
}

// A GeometryReport holds the angles between directions. Pairs are of Contrasts at
// one layer, that where refusal is read best; Topics of the refusals of each
// topic; Layers of harm and refusal at every layer.
type GeometryReport struct {
	Layer    int      `json:"layer"`
	Pairs    []Angle  `json:"pairs"`
	Topics   []Angle  `json:"topics"`
	Layers   []Angle  `json:"layers"`
	Warnings []string `json:"warnings,omitempty"`
}

// NewStudy fits every target and does with it what its labels allow. A target
// with too few requests of one label is skipped, and Skipped says so; if none can
// be fitted, that is an error which wraps ErrFew.
func NewStudy(rows []Row, states *States, o StudyOptions) (*Study, error) {
	s := &Study{level: o.Fit.Level}
	if s.level == 0 {
		s.level = 0.95
	}
	var few []error
	for _, t := range o.Targets {
		fit := o.Fit
		fit.Target = t
		if t.Graded {
			fit.Methods = nil
		}
		if fit.Progress != nil {
			fit.Progress(t.Name, 0, 0)
		}
		r, err := Fit(rows, states, fit)
		if errors.Is(err, ErrFew) {
			s.Skipped = append(s.Skipped, errors.Unwrap(err).Error()) // it names the target
			few = append(few, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Reports = append(s.Reports, r)
		if err := s.carries(rows, states, t, r, o); err != nil {
			return nil, err
		}
	}
	if len(s.Reports) == 0 {
		return nil, errors.Join(few...)
	}
	if err := s.geometry(rows, states, o.Fit.Seed); err != nil {
		return nil, err
	}
	return s, s.act(rows, states, o)
}

// report returns that of a target, nil if there is none.
func (s *Study) report(target string) *Report {
	for _, r := range s.Reports {
		if r.Target == target {
			return r
		}
	}
	return nil
}

// carries tests what carries over from one part of the prompts to another, and
// how many directions tell the target.
func (s *Study) carries(rows []Row, states *States, t Target, r *Report, o StudyOptions) error {
	to := TransferOptions{Target: t, Method: r.Linear, Site: r.At, Strength: r.AtStrength, Folds: r.Folds, Resamples: min(max(r.Resamples, 0), 1000), Seed: o.Fit.Seed, Level: s.level}
	if to.Resamples == 0 {
		to.Resamples = -1
	}
	table := TransferTable{Target: t.Name, Method: r.Linear, Site: r.At, Graded: t.Graded, Level: s.level}
	for _, by := range []struct {
		name  string
		group func(Row) string
	}{{"topic", func(r Row) string { return r.Topic }}, {"wording", func(r Row) string { return r.Variant }}} {
		if len(groupsOf(rows, by.group)) < 2 {
			continue
		}
		cells, err := Transfer(rows, states, by.group, to)
		if err != nil {
			return err
		}
		table.By, table.Cells = by.name, cells
		s.Transfers = append(s.Transfers, table)
	}
	for _, c := range o.Crossings {
		if c.Acts && t.Name != Refusal().Name && t.Name != RefusalRate().Name {
			continue
		}
		all, merged, of, err := merge(c.Samples, r.At)
		if err != nil {
			s.Skipped = append(s.Skipped, fmt.Sprintf("target %s, transfer by %s: %v", t.Name, c.By, err))
			continue
		}
		cells, err := Transfer(all, merged, of, to)
		if err != nil {
			return err
		}
		table.By, table.Cells = c.By, cells
		s.Transfers = append(s.Transfers, table)
	}
	if t.Graded {
		return nil
	}
	k, err := Subspaces(rows, states, 8, to)
	if err != nil {
		return err
	}
	s.Subspaces = append(s.Subspaces, SubspaceTable{t.Name, r.At, k})
	return nil
}

func groupsOf(rows []Row, group func(Row) string) (names []string) {
	for _, r := range rows {
		if g := group(r); g != "" && !slices.Contains(names, g) {
			names = append(names, g)
		}
	}
	return names
}

// merge puts samples together at one site, under prompt ids of their own. A
// request that several samples hold stays one cluster, so that none is tested by
// what was fitted on it elsewhere.
func merge(samples []Sample, site Site) (rows []Row, states *States, of func(Row) string, err error) {
	name := make(map[string]string)
	var ids []string
	var values []float32
	width := 0
	for _, s := range samples {
		k := slices.Index(s.States.sites, site)
		if k < 0 {
			return nil, nil, nil, fmt.Errorf("%s has no states at %s", s.Name, site)
		}
		if width == 0 {
			width = s.States.width
		}
		if s.States.width != width {
			return nil, nil, nil, fmt.Errorf("the states of %s have width %d, those of %s %d", s.Name, s.States.width, samples[0].Name, width)
		}
		for _, r := range s.Rows {
			p, ok := s.States.at[r.PromptID]
			if !ok {
				continue
			}
			r.PromptID = s.Name + "\x00" + r.PromptID
			name[r.PromptID] = s.Name
			rows, ids = append(rows, r), append(ids, r.PromptID)
			values = append(values, s.States.values[k][p*width:(p+1)*width]...)
		}
	}
	return rows, NewStates(width, ids, []Site{site}, [][]float32{values}), func(r Row) string { return name[r.PromptID] }, nil
}

// geometry compares the directions of harm and refusal, if there are both.
func (s *Study) geometry(rows []Row, states *States, seed uint64) error {
	refusal := s.report(Refusal().Name)
	if refusal == nil {
		return nil
	}
	g := &GeometryReport{Layer: refusal.At.Layer}
	has := func(layer int, c Contrast) bool { return slices.Contains(states.sites, Site{layer, c.Anchor}) }
	at := func(layer int, contrasts []Contrast) ([]Angle, []string, error) {
		contrasts = slices.DeleteFunc(contrasts, func(c Contrast) bool { return !has(layer, c) })
		return Geometry(rows, states, contrasts, GeometryOptions{Layer: layer, Seed: seed, Level: s.level})
	}
	var err error
	if g.Pairs, g.Warnings, err = at(g.Layer, Contrasts()); err != nil {
		return err
	}
	topics, warnings, err := at(g.Layer, ByTopic(rows, refusal.At.Anchor))
	if err != nil {
		return err
	}
	g.Topics, g.Warnings = topics, append(g.Warnings, warnings...)
	for _, site := range states.sites {
		if site.Layer < 0 || site.Anchor != Post {
			continue
		}
		angles, _, err := at(site.Layer, Contrasts()[:2])
		if err != nil {
			return err
		}
		g.Layers = append(g.Layers, angles...)
	}
	if len(g.Pairs)+len(g.Topics)+len(g.Layers) > 0 {
		s.Geometry = g
	} else {
		s.Skipped = append(s.Skipped, g.Warnings...)
	}
	return nil
}

// act joins state, word and act, where the model did more than one thing.
func (s *Study) act(rows []Row, states *States, o StudyOptions) error {
	anchor := func(want string) string {
		for _, site := range states.sites {
			if site.Anchor == want && site.Layer >= 0 {
				return want
			}
		}
		return states.sites[len(states.sites)-1].Anchor
	}
	fit := o.Fit
	fit.Twins, fit.Baselines = nil, nil
	if fit.Progress != nil {
		fit.Progress("state, word and act", 0, 0)
		fit.Progress = nil
	}
	a, err := StateWordAct(rows, states, ActOptions{HarmAnchor: anchor(Inst), RefusalAnchor: anchor(Post), Fit: fit})
	if errors.Is(err, ErrFew) {
		s.Skipped = append(s.Skipped, err.Error())
		return nil
	}
	s.Act = a
	return err
}

// Directions returns the directions of all targets.
func (s *Study) Directions() (out []data.Direction) {
	for _, r := range s.Reports {
		out = append(out, r.Directions()...)
	}
	return out
}

// Scores returns the held-out scores of all targets, and those by which state,
// word and act were joined, under groups that begin with act.
func (s *Study) Scores() (out []data.Score) {
	for _, r := range s.Reports {
		out = append(out, r.Scores()...)
	}
	if s.Act != nil {
		out = append(out, s.Act.scores...)
	}
	return out
}

// Estimates returns every figure as a row of the table estimates; docs/metrics.md
// lists the metrics, all of which begin with probe_.
func (s *Study) Estimates() (out []data.Estimate) {
	for _, r := range s.Reports {
		out = append(out, r.Estimates()...)
	}
	for _, t := range s.Transfers {
		for _, c := range t.Cells {
			group := keyed("target", t.Target, "by", t.By, "train", c.Train, "test", c.Test)
			e := row("probe_transfer", group, c.Value, t.Level, bootstrapped)
			e.Requests = c.Requests
			if c.Value.Value == nil {
				e.Warnings = []string{"undefined: one label alone"}
			}
			out = append(out, e)
			if c.Accuracy != nil {
				e := row("probe_transfer_accuracy", group, Value{Value: c.Accuracy}, t.Level, "")
				e.Requests = c.Requests
				out = append(out, e)
			}
		}
	}
	for _, t := range s.Subspaces {
		for _, k := range t.K {
			group := keyed("target", t.Target, "site", siteName(t.Site), "k", strconv.Itoa(k.K))
			out = append(out, row("probe_subspace", group, k.Value, s.level, bootstrapped), row("probe_subspace_gain", group, k.Gain, s.level, bootstrapped))
		}
	}
	if s.Geometry != nil {
		out = append(out, s.Geometry.estimates(s.level)...)
	}
	if s.Act != nil {
		out = append(out, s.Act.estimates(s.level)...)
	}
	return out
}

const bootstrapped = "cluster bootstrap, percentile"

func row(metric, group string, v Value, level float64, method string) data.Estimate {
	e := data.Estimate{Metric: metric, Group: group, Value: v.Value, Lo: v.Lo, Hi: v.Hi, Level: level, Method: method}
	if v.Value == nil {
		e.Warnings = []string{"undefined"}
	}
	return e
}

// keyed joins keys and values to a group. A comma in a value would end it.
func keyed(pairs ...string) string {
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, pairs[i]+"="+strings.ReplaceAll(pairs[i+1], ",", ";"))
	}
	return strings.Join(parts, ",")
}

// siteName is the site in words; of a probe that reads all layers, "all post".
func siteName(s Site) string {
	if s.Layer == allLayers {
		return "all " + s.Anchor
	}
	return s.String()
}

func (g *GeometryReport) estimates(level float64) (out []data.Estimate) {
	seen := make(map[string]bool)
	once := func(e data.Estimate) {
		if key := e.Metric + " " + e.Group; !seen[key] {
			seen[key] = true
			out = append(out, e)
		}
	}
	for _, a := range slices.Concat(g.Pairs, g.Topics, g.Layers) {
		for _, space := range []struct {
			name string
			v    AngleValues
		}{{"raw", a.Raw}, {"whitened", a.Whitened}} {
			layer := strconv.Itoa(a.Layer)
			group := keyed("a", a.A, "b", a.B, "space", space.name, "layer", layer)
			// The pair's metrics stand together, with the noise floor of either direction.
			e := row("probe_cosine", group, space.v.Cosine, level, "jackknife over requests")
			e.Requests = min(a.Requests[0], a.Requests[1])
			once(e)
			once(row("probe_cosine_disattenuated", group, Value{Value: space.v.Disattenuated}, level, "halves of the requests"))
			for k, name := range []string{a.A, a.B} {
				once(row("probe_reliability", keyed("direction", name, "space", space.name, "layer", layer), Value{Value: defined(space.v.Reliability[k])}, level, "halves of the requests"))
			}
		}
	}
	return out
}

func (a *Act) estimates(level float64) (out []data.Estimate) {
	add := func(metric, group string, v Value, method string) {
		e := row(metric, group, v, level, method)
		e.Requests, e.Trials = a.Requests, a.Prompts
		out = append(out, e)
	}
	for _, p := range a.Predictors {
		add("probe_act_concordance", keyed("predictor", p.Name), p.All, bootstrapped)
		add("probe_act_concordance", keyed("predictor", p.Name, "among", "boundary"), p.Boundary, bootstrapped)
		add("probe_act_auroc", keyed("predictor", p.Name), p.Majority, bootstrapped)
	}
	for _, g := range a.Gains {
		add("probe_act_gain", keyed("gain", g.Name), g.All, bootstrapped)
		add("probe_act_gain", keyed("gain", g.Name, "among", "boundary"), g.Boundary, bootstrapped)
	}
	for _, w := range a.Weights {
		add("probe_act_weight", keyed("predictor", w.Name), w.Value, bootstrapped)
	}
	total := 0
	for _, n := range a.Agreement {
		total += n
	}
	side := func(refuse bool) string {
		if refuse {
			return "refuse"
		}
		return "comply"
	}
	for k, n := range a.Agreement {
		if total > 0 {
			group := keyed("state", side(k&4 != 0), "word", side(k&2 != 0), "act", side(k&1 != 0))
			e := row("probe_act_share", group, Value{Value: defined(float64(n) / float64(total))}, level, "")
			e.Trials = total
			out = append(out, e)
		}
	}
	return out
}
