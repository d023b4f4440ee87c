package probes

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestNullIsUniform: where labels mean nothing, the p-value of the whole
// procedure, the choice between sites included, is uniform: its share below a
// level is the level, within what 200 draws allow.
func TestNullIsUniform(t *testing.T) {
	const draws, permutations = 200, 19
	below := map[float64]int{0.05: 0, 0.25: 0, 0.5: 0}
	var over int
	for draw := range draws {
		rng := rand.New(rand.NewPCG(11, uint64(draw)))
		const width, sites, requests = 4, 3, 30
		var rows []Row
		var ids []string
		values := make([][]float32, sites)
		for q := range requests {
			refusals := rng.IntN(2)
			own := rng.NormFloat64() // what the wordings of a request have in common
			for v := range 2 {
				r := Row{PromptID: fmt.Sprintf("p%d.%d", q, v), RequestID: fmt.Sprint(q), Variant: fmt.Sprint(v), Topic: fmt.Sprint(q % 3), Trials: 1, Refusals: refusals}
				rows, ids = append(rows, r), append(ids, r.PromptID)
				for k := range values {
					for range width {
						values[k] = append(values[k], float32(own+0.3*rng.NormFloat64()))
					}
				}
			}
		}
		states := NewStates(width, ids, []Site{{0, Inst}, {1, Inst}, {2, Inst}}, values)
		d, err := newDesign(rows, states, Refusal(), 3, 1, permutations, uint64(draw))
		if err != nil {
			continue // too few of one label
		}
		s, _ := d.closedForm(states, all(sites), []Method{MeanDifference}, nil, nil)
		f := &fitting{d: d, o: &Options{Permutations: permutations}, states: states}
		r := Fitted{Method: MeanDifference}
		if err := f.null(&r, s[MeanDifference]); err != nil {
			t.Fatal(err)
		}
		over++
		for level := range below {
			if *r.P <= level+1e-9 {
				below[level]++
			}
		}
	}
	for level, n := range below {
		share, sd := float64(n)/float64(over), level*(1-level)/float64(over)
		if off := share - level; off*off > 12*sd { // 3.5 standard deviations
			t.Errorf("p is at most %g in %.3f of %d draws", level, share, over)
		}
	}
	if over < 190 {
		t.Errorf("%d draws", over)
	}
}
