package probes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"demur/data"
)

// A Guard judges prompts by their state, before a token is generated: by one
// direction, or by the mean over the directions of several layers. That of the
// centroids over all layers is the Latent Guard of Zhao et al.
// (arXiv:2507.11878), whose threshold of 0 becomes a calibrated one here.
type Guard struct {
	directions []data.Direction
}

// NewGuard takes the directions of one group. A table may hold several: Groups
// lists them.
func NewGuard(directions []data.Direction) (*Guard, error) {
	if len(directions) == 0 {
		return nil, errors.New("guard: no direction")
	}
	first := directions[0]
	seen := make(map[Site]bool)
	for _, d := range directions {
		if d.Group != first.Group {
			return nil, fmt.Errorf("guard: directions of two groups, %s and %s; choose one", first.Group, d.Group)
		}
		if d.ModelDigest != first.ModelDigest || d.TemplateHash != first.TemplateHash {
			return nil, fmt.Errorf("guard: the directions of group %s are of two models or templates", d.Group)
		}
		if len(d.Weights) == 0 || len(d.Weights) != len(first.Weights) {
			return nil, fmt.Errorf("guard: a direction of group %s has width %d, another %d", d.Group, len(d.Weights), len(first.Weights))
		}
		if s := (Site{d.Layer, d.Anchor}); seen[s] {
			return nil, fmt.Errorf("guard: group %s has two directions at %s", d.Group, s)
		} else {
			seen[s] = true
		}
	}
	return &Guard{slices.Clone(directions)}, nil
}

// Groups lists the groups of directions, in the order of their first rows.
func Groups(directions []data.Direction) []string {
	var names []string
	for _, d := range directions {
		if !slices.Contains(names, d.Group) {
			names = append(names, d.Group)
		}
	}
	return names
}

// Fits returns an error if the guard was made for another model or template.
// Digests that are not known are not compared.
func (g *Guard) Fits(modelDigest, templateHash string) error {
	d := g.directions[0]
	if d.ModelDigest != "" && modelDigest != "" && d.ModelDigest != modelDigest {
		return fmt.Errorf("the directions were fitted on model %s (%s), this one is %s; fit them on this one", d.Model, d.ModelDigest, modelDigest)
	}
	if d.TemplateHash != "" && templateHash != "" && d.TemplateHash != templateHash {
		return fmt.Errorf("the directions were fitted under another chat template (%.8s, this one is %.8s); fit them under this one", d.TemplateHash, templateHash)
	}
	return nil
}

// Extract are the options to extract with what the guard reads.
func (g *Guard) Extract() ExtractOptions {
	var o ExtractOptions
	for _, d := range g.directions {
		if !slices.Contains(o.Layers, d.Layer) {
			o.Layers = append(o.Layers, d.Layer)
		}
		if !slices.Contains(o.Anchors, d.Anchor) {
			o.Anchors = append(o.Anchors, d.Anchor)
		}
	}
	slices.Sort(o.Layers)
	return o
}

// A Judgement is what a guard says of a prompt.
type Judgement struct {
	PromptID    string   `json:"prompt_id"`
	Group       string   `json:"group"`
	Score       *float64 `json:"score"`
	Threshold   float64  `json:"threshold"`
	Probability *float64 `json:"probability"` // calibrated on the prompts that the guard was fitted to, at their share of positives
	Positive    bool     `json:"positive"`    // score above threshold
	// Error says why there is no score: a prompt without anchors, a state that is
	// no number. Positive is then false and means nothing.
	Error string `json:"error,omitempty"`
}

// Judge scores one prompt by its activations, which may be more than needed.
func (g *Guard) Judge(rows []data.Activation) (Judgement, error) {
	first := g.directions[0]
	out := Judgement{Group: first.Group, Threshold: first.Threshold}
	var sum float64
	for _, d := range g.directions {
		k := slices.IndexFunc(rows, func(a data.Activation) bool { return a.Layer == d.Layer && a.Anchor == d.Anchor })
		if k < 0 {
			return out, fmt.Errorf("there is no activation at layer %d, %s", d.Layer, d.Anchor)
		}
		out.PromptID = rows[k].PromptID
		s, err := ScoreOf(d, rows[k].Values)
		if err != nil {
			return out, err
		}
		sum += s
	}
	score := sum / float64(len(g.directions))
	out.Score = defined(score)
	if out.Score == nil {
		return out, errors.New("the score is no number")
	}
	if first.Slope != nil && first.Intercept != nil {
		out.Probability = defined(calibration{*first.Slope, *first.Intercept}.probability(score))
	}
	out.Positive = score > out.Threshold
	return out, nil
}

// Run judges prompts, in order, one judgement each. A prompt that cannot be
// judged says why; an error ends the sequence and is the engine's.
func (g *Guard) Run(ctx context.Context, engine Engine, prompts iter.Seq[data.Prompt]) iter.Seq2[Judgement, error] {
	return func(yield func(Judgement, error) bool) {
		for p := range prompts {
			j, err := g.one(ctx, engine, p)
			if err != nil {
				yield(Judgement{}, fmt.Errorf("guard: prompt %.8s: %w", p.ID, err))
				return
			}
			if !yield(j, nil) {
				return
			}
		}
	}
}

func (g *Guard) one(ctx context.Context, engine Engine, p data.Prompt) (Judgement, error) {
	o := g.Extract()
	var report ExtractReport
	o.Report = &report
	var rows []data.Activation
	for row, err := range Extract(ctx, engine, []data.Prompt{p}, o) {
		if err != nil && len(report.Unanchored)+len(report.Failed) == 0 {
			return Judgement{}, err
		}
		if err == nil {
			rows = append(rows, row)
		}
	}
	fail := func(err error) (Judgement, error) {
		first := g.directions[0]
		return Judgement{PromptID: p.ID, Group: first.Group, Threshold: first.Threshold, Error: err.Error()}, nil
	}
	if bad := slices.Concat(report.Unanchored, report.Failed); len(bad) > 0 {
		return fail(errors.New(bad[0].What))
	}
	if err := report.Err(); err != nil {
		return fail(err)
	}
	j, err := g.Judge(rows)
	if err != nil {
		return fail(err)
	}
	j.PromptID = p.ID
	return j, nil
}
