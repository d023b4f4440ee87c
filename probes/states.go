package probes

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"demur/data"
)

// A Site is a layer and an anchor. Layer l is the stream after block l, −1 the
// token embedding.
type Site struct {
	Layer  int    `json:"layer"`
	Anchor string `json:"anchor"`
}

// String returns the site as it stands in reports, such as "12 inst".
func (s Site) String() string { return fmt.Sprintf("%d %s", s.Layer, s.Anchor) }

// States are activations in memory, all prompts at all sites, as float32.
type States struct {
	width   int
	prompts []string
	sites   []Site
	values  [][]float32    // [site][prompt·width + coordinate]
	at      map[string]int // prompt
	// positions of a site, where all prompts have the same; else 0.
	positions []int
	mixed     []bool
}

// Collect reads activations. Prompts stand in the order of their first row,
// sites by anchor in the order of the first row, then by layer. A prompt that lacks a row at
// a site where others have one is left out of States, and listed in missing: a
// fit at some sites and not at others would compare unlike samples.
func Collect(rows iter.Seq2[data.Activation, error]) (s *States, missing []string, err error) {
	s = &States{at: make(map[string]int)}
	sites := make(map[Site]int)
	anchors := make(map[string]int)
	var have [][]bool // [site][prompt]
	for row, err := range rows {
		if err != nil {
			return nil, nil, err
		}
		if s.width == 0 {
			s.width = len(row.Values)
		}
		if len(row.Values) != s.width || s.width == 0 {
			return nil, nil, fmt.Errorf("activation of prompt %.8s at layer %d has width %d, others %d", row.PromptID, row.Layer, len(row.Values), s.width)
		}
		p, ok := s.at[row.PromptID]
		if !ok {
			p = len(s.prompts)
			s.at[row.PromptID] = p
			s.prompts = append(s.prompts, row.PromptID)
		}
		site := Site{row.Layer, row.Anchor}
		k, ok := sites[site]
		if !ok {
			k = len(s.sites)
			sites[site] = k
			s.sites = append(s.sites, site)
			s.values = append(s.values, nil)
			s.positions = append(s.positions, row.Position)
			s.mixed = append(s.mixed, false)
			have = append(have, nil)
			if _, ok := anchors[row.Anchor]; !ok {
				anchors[row.Anchor] = len(anchors)
			}
		}
		for len(have[k]) <= p {
			have[k] = append(have[k], false)
			s.values[k] = append(s.values[k], make([]float32, s.width)...)
		}
		if have[k][p] {
			return nil, nil, fmt.Errorf("two activations of prompt %.8s at layer %d, %s", row.PromptID, row.Layer, row.Anchor)
		}
		have[k][p] = true
		s.mixed[k] = s.mixed[k] || s.positions[k] != row.Position
		for i, v := range row.Values {
			if f := float64(v); f != f || math.IsInf(f, 0) {
				return nil, nil, fmt.Errorf("activation of prompt %.8s at layer %d, %s is not a number at coordinate %d", row.PromptID, row.Layer, row.Anchor, i)
			}
		}
		copy(s.values[k][p*s.width:], row.Values)
	}
	if len(s.prompts) == 0 {
		return s, nil, nil
	}
	full := make([]bool, len(s.prompts))
	for p := range s.prompts {
		full[p] = true
		for k := range s.sites {
			full[p] = full[p] && p < len(have[k]) && have[k][p]
		}
		if !full[p] {
			missing = append(missing, s.prompts[p])
		}
	}
	if len(missing) > 0 {
		s.keep(full)
	}
	s.sortSites(anchors)
	return s, missing, nil
}

// keep drops prompts.
func (s *States) keep(full []bool) {
	n := 0
	s.at = make(map[string]int)
	for p, id := range s.prompts {
		if !full[p] {
			continue
		}
		for k := range s.values {
			copy(s.values[k][n*s.width:], s.values[k][p*s.width:(p+1)*s.width])
		}
		s.prompts[n] = id
		s.at[id] = n
		n++
	}
	s.prompts = s.prompts[:n]
	for k := range s.values {
		s.values[k] = s.values[k][:n*s.width]
	}
}

func (s *States) sortSites(anchors map[string]int) {
	order := make([]int, len(s.sites))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(anchors[s.sites[a].Anchor], anchors[s.sites[b].Anchor]), cmp.Compare(s.sites[a].Layer, s.sites[b].Layer))
	})
	sites, values, positions, mixed := s.sites, s.values, s.positions, s.mixed
	s.sites, s.values = make([]Site, len(order)), make([][]float32, len(order))
	s.positions, s.mixed = make([]int, len(order)), make([]bool, len(order))
	for i, k := range order {
		s.sites[i], s.values[i], s.positions[i], s.mixed[i] = sites[k], values[k], positions[k], mixed[k]
	}
}

// NewStates makes States from values in memory: values[site][prompt·width +
// coordinate], which it keeps. It panics if lengths do not match.
func NewStates(width int, prompts []string, sites []Site, values [][]float32) *States {
	s := &States{width: width, prompts: prompts, sites: sites, values: values, at: make(map[string]int, len(prompts)), positions: make([]int, len(sites)), mixed: make([]bool, len(sites))}
	if len(values) != len(sites) {
		panic("probes: values do not match sites")
	}
	for _, v := range values {
		if len(v) != width*len(prompts) {
			panic("probes: values do not match prompts")
		}
	}
	for i, p := range prompts {
		s.at[p] = i
	}
	return s
}

// Width returns the number of coordinates.
func (s *States) Width() int { return s.width }

// Prompts returns the prompts' ids.
func (s *States) Prompts() []string { return slices.Clone(s.prompts) }

// Sites returns the sites.
func (s *States) Sites() []Site { return slices.Clone(s.sites) }

// Values returns the activation of a prompt at a site, nil if there is none. It
// must not be written to.
func (s *States) Values(prompt string, site Site) []float32 {
	p, ok := s.at[prompt]
	k := slices.Index(s.sites, site)
	if !ok || k < 0 {
		return nil
	}
	return s.values[k][p*s.width : (p+1)*s.width]
}

// position is the position of a site, where all prompts have the same, else 0.
func (s *States) position(k int) int {
	if s.mixed[k] {
		return 0
	}
	return s.positions[k]
}
