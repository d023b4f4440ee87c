package probes

import (
	"fmt"
	"slices"
)

// With returns the states with further sites of the same prompts, such as the
// token embeddings. It is an error if other lacks a prompt, has another width, or
// has a site that is there already.
func (s *States) With(other *States) (*States, error) {
	if other.width != s.width {
		return s, fmt.Errorf("the states have width %d, those to add %d", s.width, other.width)
	}
	out := NewStates(s.width, s.prompts, slices.Clone(s.sites), slices.Clone(s.values))
	out.positions, out.mixed = slices.Clone(s.positions), slices.Clone(s.mixed)
	for k, site := range other.sites {
		if slices.Contains(s.sites, site) {
			return s, fmt.Errorf("there are states at %s already", site)
		}
		values := make([]float32, 0, len(s.prompts)*s.width)
		for _, id := range s.prompts {
			p, ok := other.at[id]
			if !ok {
				return s, fmt.Errorf("prompt %.8s has no state at %s", id, site)
			}
			values = append(values, other.values[k][p*s.width:(p+1)*s.width]...)
		}
		out.sites, out.values = append(out.sites, site), append(out.values, values)
		out.positions, out.mixed = append(out.positions, other.positions[k]), append(out.mixed, other.mixed[k])
	}
	return out, nil
}

// Only drops the states of prompts that rows do not speak of, such as those of
// another phase.
func (s *States) Only(rows []Row) {
	wanted := make(map[string]bool, len(rows))
	for _, r := range rows {
		wanted[r.PromptID] = true
	}
	full := make([]bool, len(s.prompts))
	for p, id := range s.prompts {
		full[p] = wanted[id]
	}
	s.keep(full)
}
