package probes

import (
	"fmt"
	"slices"
)

// An Applied is what directions of another fit reach on these prompts: another
// request set, another quantisation or template of the model, other labels.
type Applied struct {
	Group    string `json:"group"`
	Measure  string `json:"measure"`
	Prompts  int    `json:"prompts"`
	Requests int    `json:"requests"`
	Value    Value  `json:"value"`
	// Accuracy is balanced, at the directions' threshold; Brier and ECE are of their
	// calibrated probability: an order may carry over where threshold and
	// probability do not. Null where graded.
	Accuracy Value    `json:"accuracy"`
	Brier    Value    `json:"brier"`
	ECE      *float64 `json:"ece"`
}

// Apply tests a guard's directions, which are not fitted anew, on rows with
// labels. That no request of these rows was fitted to is the caller's affair.
// Folds and Method of the options are not used.
func Apply(rows []Row, states *States, g *Guard, o TransferOptions) (Applied, error) {
	o.defaults()
	if o.Target.Label == nil {
		return Applied{}, fmt.Errorf("apply: no target")
	}
	out := Applied{Group: g.directions[0].Group, Measure: "auroc"}
	if o.Target.Graded {
		out.Measure = "concordance"
	}
	var sites []int
	for _, d := range g.directions {
		k := slices.Index(states.sites, Site{d.Layer, d.Anchor})
		if k < 0 {
			return Applied{}, fmt.Errorf("apply: there are no states at layer %d, %s", d.Layer, d.Anchor)
		}
		sites = append(sites, k)
	}
	var y, scores, p, side []float64
	var cluster []int
	index := make(map[string]int)
	for _, r := range rows {
		label, ok := o.Target.Label(r)
		at, have := states.at[r.PromptID]
		if !ok || !have {
			continue
		}
		var score float64
		for k, d := range g.directions {
			s, err := ScoreOf(d, states.values[sites[k]][at*states.width:(at+1)*states.width])
			if err != nil {
				return Applied{}, fmt.Errorf("apply: %w", err)
			}
			score += s / float64(len(g.directions))
		}
		if _, ok := index[r.RequestID]; !ok {
			index[r.RequestID] = len(index)
		}
		first := g.directions[0]
		y, scores, cluster = append(y, label), append(scores, score), append(cluster, index[r.RequestID])
		side = append(side, indicator(score > first.Threshold))
		if first.Slope != nil && first.Intercept != nil {
			p = append(p, calibration{*first.Slope, *first.Intercept}.probability(score))
		}
	}
	out.Prompts, out.Requests = len(y), len(index)
	if len(y) == 0 {
		return out, fmt.Errorf("apply: no row has a label and a state")
	}
	rank := newRankings(y, scores, all(len(y)), nil)
	boot := resampler{cluster, len(index), o.Resamples, o.Seed, o.Level}
	calibrated := len(p) == len(y) && !o.Target.Graded
	values := boot.intervals(func(w []float64) []float64 {
		v := []float64{rank.concordance(w)}
		if !o.Target.Graded {
			v = append(v, balanced(side, y, w))
		}
		if calibrated {
			v = append(v, brier(p, y, w))
		}
		return v
	})
	out.Value = values[0]
	if !o.Target.Graded {
		out.Accuracy = values[1]
	}
	if calibrated {
		out.Brier, out.ECE = values[2], defined(calibrationError(p, y, 10))
	}
	return out, nil
}
