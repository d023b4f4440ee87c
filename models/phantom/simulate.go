package phantom

import "math/rand/v2"

// A Trial is one response of a simulated run.
type Trial struct {
	Prompt      int // index into Truth.Prompts
	Temperature int // index into Plan.Temperatures
	Seed        int // 0 to Plan.Seeds-1
	Answer      int // index into Texts
	Label       string
}

// Simulate draws the responses of one run of the plan from their true
// probabilities, without an engine: prompt by prompt, temperature by
// temperature, seed by seed. At temperature 0 all seeds agree. Predictions at
// temperature 0 are not drawn: they stand in t.
func (t *Truth) Simulate(seed uint64) []Trial {
	r := rand.New(rand.NewPCG(seed, 0x7068616e746f6d))
	trials := make([]Trial, 0, len(t.Prompts)*len(t.Plan.Temperatures)*t.Plan.Seeds)
	for i, p := range t.Prompts {
		for k := range t.Plan.Temperatures {
			for s := range t.Plan.Seeds {
				a := draw(r, p.Answers[k])
				trials = append(trials, Trial{i, k, s, a, answers[a].label})
			}
		}
	}
	return trials
}

// draw picks an index with these probabilities, which sum to nearly 1.
func draw(r *rand.Rand, p []float64) int {
	u := r.Float64()
	last := 0
	for i, q := range p {
		if q > 0 {
			last = i
			if u < q {
				return i
			}
			u -= q
		}
	}
	return last
}
