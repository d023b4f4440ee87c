package probes

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// A Method is a way to find a direction.
type Method string

// The methods.
const (
	// MeanDifference is μ1 − μ0, the difference of the class means.
	MeanDifference Method = "mean_difference"
	// Whitened is linear discriminant analysis with shrinkage; see FORMULAS in the
	// package comment.
	Whitened Method = "whitened"
	// Logistic is logistic regression with an L2 penalty, on coordinates scaled to
	// the training rows' standard deviations.
	Logistic Method = "logistic"
	// Centroid is cos(x, μ1) − cos(x, μ0), the mean over all layers (Latent Guard);
	// CentroidCentred the same about the training rows' mean.
	Centroid        Method = "centroid"
	CentroidCentred Method = "centroid_centred"
	// Ridge is ridge regression, for graded targets.
	Ridge Method = "ridge"
)

// A candidate is what is chosen between.
type candidate struct {
	site     int // of the states; of an average over layers, the first of its sites
	strength float64
}

// A search is one method's fits at all candidates, for all columns, and the
// choice between them made without each fold.
type search struct {
	d          *design
	method     Method
	candidates []candidate
	// value is the concordance of held-out scores, NaN where undefined.
	value [][]float64 // [candidate][column]
	// chosen is the candidate with the greatest concordance among the rows that
	// are not in the fold, by what was fitted without the fold; scores are its.
	chosen [][]int     // [column][fold]
	inner  [][]float64 // [column][fold]: that concordance
	scores []heldOut   // [column]
	// outer are the held-out scores of the observed labels, by candidate and seed.
	outer [][][]float64 // [candidate][seed][row]
}

func newSearch(d *design, method Method) *search {
	s := &search{d: d, method: method, inner: grid(d.columns, d.folds)}
	for c := range d.columns {
		s.chosen = append(s.chosen, make([]int, d.folds))
		s.scores = append(s.scores, newHeldOut(d.folds, d.n()))
		for f := range d.folds {
			s.inner[c][f] = math.Inf(-1)
			s.chosen[c][f] = -1
		}
	}
	return s
}

// A trialFit is one candidate's fits, before the choice.
type trialFit struct {
	candidate candidate
	scores    []heldOut   // [column]
	inner     [][]float64 // [column][fold]
	value     []float64   // [column]
}

// judge computes the concordances that the choice is made by.
func (d *design) judge(c candidate, scores []heldOut, o *orderer) trialFit {
	t := trialFit{candidate: c, scores: scores, inner: grid(d.columns, d.folds), value: make([]float64, d.columns)}
	for col, h := range scores {
		fold := d.fold[d.seedOf(col)]
		levels := o.level[col]
		for f := range d.folds {
			t.inner[col][f] = o.concordance(levels, h[f], fold, d.folds, f)
		}
		t.value[col] = o.concordance(levels, h.outer(fold), fold, d.folds, -1)
	}
	return t
}

// add takes a candidate in. Candidates must come in a fixed order, since the
// first of equals is chosen.
func (s *search) add(t trialFit) {
	k := len(s.candidates)
	s.candidates = append(s.candidates, t.candidate)
	s.value = append(s.value, t.value)
	outer := make([][]float64, s.d.seeds)
	for col := range s.d.columns {
		if col < s.d.seeds {
			outer[col] = t.scores[col].outer(s.d.fold[col])
		}
		for f := range s.d.folds {
			if t.inner[col][f] > s.inner[col][f] {
				s.inner[col][f], s.chosen[col][f] = t.inner[col][f], k
				copy(s.scores[col][f], t.scores[col][f])
			}
		}
	}
	s.outer = append(s.outer, outer)
}

// closedForm runs the methods that need no iteration over sites, in one pass.
// sites are indices of the states. Results do not depend on the number of
// processors: sites are worked on side by side and taken in in order.
func (d *design) closedForm(states *States, sites []int, methods []Method, strengths []float64, progress func(done, of int)) (map[Method]*search, []string) {
	out := make(map[Method]*search)
	for _, m := range methods {
		out[m] = newSearch(d, m)
	}
	averages := newAverages(d, states, sites)
	var warnings []string
	levels := d.levels()
	turn, mu := 0, sync.Mutex{}
	ready := sync.NewCond(&mu)
	done := 0
	parallel(len(sites), func(k int) {
		o := &orderer{level: levels}
		g := newGram(d, states, sites[k])
		var fits []struct {
			m Method
			t trialFit
		}
		var raw, centred []heldOut
		needSums := out[MeanDifference] != nil || out[Centroid] != nil || out[CentroidCentred] != nil
		if needSums {
			md := make([]heldOut, d.columns)
			raw, centred = make([]heldOut, d.columns), make([]heldOut, d.columns)
			g.eachSums(func(col int, s *sums) {
				fold := d.fold[d.seedOf(col)]
				if out[MeanDifference] != nil {
					md[col] = g.meanDifference(fold, s)
				}
				if out[Centroid] != nil {
					raw[col] = g.centroid(fold, s, false)
				}
				if out[CentroidCentred] != nil {
					centred[col] = g.centroid(fold, s, true)
				}
			})
			if out[MeanDifference] != nil {
				fits = append(fits, struct {
					m Method
					t trialFit
				}{MeanDifference, d.judge(candidate{site: sites[k]}, md, o)})
			}
		}
		var warned []string
		for _, m := range []Method{Whitened, Ridge} {
			if out[m] == nil {
				continue
			}
			for _, strength := range strengths {
				each, err := g.whitened(strength)
				if err != nil {
					warned = append(warned, fmt.Sprintf("site %s is left out: %v", states.sites[sites[k]], err))
					break
				}
				scores := make([]heldOut, d.columns)
				each(func(col int, h heldOut) { scores[col] = h })
				fits = append(fits, struct {
					m Method
					t trialFit
				}{m, d.judge(candidate{sites[k], strength}, scores, o)})
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for turn != k {
			ready.Wait()
		}
		for _, f := range fits {
			out[f.m].add(f.t)
		}
		if needSums {
			averages.add(Centroid, sites[k], raw)
			averages.add(CentroidCentred, sites[k], centred)
		}
		warnings = append(warnings, warned...)
		turn++
		done++
		ready.Broadcast()
		if progress != nil {
			progress(done, len(sites))
		}
	})
	o := &orderer{level: levels}
	for _, m := range []Method{Centroid, CentroidCentred} {
		if out[m] == nil {
			continue
		}
		for _, a := range averages.anchors {
			for _, h := range averages.scores[m][a] {
				for _, x := range h {
					for i := range x {
						x[i] /= float64(averages.layers[a])
					}
				}
			}
			out[m].add(d.judge(candidate{site: averages.first[a]}, averages.scores[m][a], o))
		}
	}
	return out, warnings
}

// averages are mean scores over the layers of an anchor; sums until all are in.
type averages struct {
	states  *States
	anchors []string
	first   map[string]int
	layers  map[string]int
	scores  map[Method]map[string][]heldOut
}

func newAverages(d *design, states *States, sites []int) *averages {
	a := &averages{states: states, first: make(map[string]int), layers: make(map[string]int), scores: map[Method]map[string][]heldOut{Centroid: {}, CentroidCentred: {}}}
	for _, k := range sites {
		name := states.sites[k].Anchor
		if !slices.Contains(a.anchors, name) {
			a.anchors = append(a.anchors, name)
			a.first[name] = k
		}
		a.layers[name]++
	}
	return a
}

func (a *averages) add(m Method, site int, scores []heldOut) {
	if len(scores) == 0 || scores[0] == nil {
		return
	}
	name := a.states.sites[site].Anchor
	sum := a.scores[m][name]
	if sum == nil {
		a.scores[m][name] = scores
		return
	}
	for col := range sum {
		for f := range sum[col] {
			add(sum[col][f], scores[col][f], 1)
		}
	}
}

// levels are the ranks of each column's labels.
func (d *design) levels() [][]int {
	values := slices.Compact(slices.Sorted(slices.Values(d.y())))
	out := make([][]int, d.columns)
	for col, y := range d.labels {
		if col > 0 && col < d.seeds {
			out[col] = out[0]
			continue
		}
		for _, v := range y {
			l, _ := slices.BinarySearch(values, v)
			out[col] = append(out[col], l)
		}
	}
	return out
}

// An orderer computes concordances of many scores fast: it sorts numbers of 64
// bits, the score with the label in its last ones. Scores that differ by less
// than some 2⁻⁴⁶ count as ties.
type orderer struct {
	level [][]int    // [column][row]
	keys  [][]uint64 // by fold
	below []float64
	group []float64
}

// concordance compares rows of one fold with each other, as rankings do. Rows
// of the fold skip are left out; −1 for none.
func (o *orderer) concordance(level []int, score []float64, fold []int, folds, skip int) float64 {
	top := 0
	for _, l := range level {
		top = max(top, l)
	}
	bits := 1
	for 1<<bits <= top {
		bits++
	}
	mask := uint64(1)<<bits - 1
	if len(o.keys) < folds {
		o.keys = make([][]uint64, folds)
	}
	for f := range o.keys {
		o.keys[f] = o.keys[f][:0]
	}
	for i, f := range fold {
		if f != skip {
			o.keys[f] = append(o.keys[f], ordered(score[i])&^mask|uint64(level[i]))
		}
	}
	if cap(o.below) <= top {
		o.below, o.group = make([]float64, top+1), make([]float64, top+1)
	}
	below, group := o.below[:top+1], o.group[:top+1]
	var good, pairs float64
	for _, keys := range o.keys {
		slices.Sort(keys)
		clear(below)
		for start := 0; start < len(keys); {
			end := start
			clear(group)
			for ; end < len(keys) && keys[end]&^mask == keys[start]&^mask; end++ {
				group[keys[end]&mask]++
			}
			for l, w := range group {
				if w == 0 {
					continue
				}
				for m := range below {
					if m < l {
						good += w * (below[m] + group[m]/2)
						pairs += w * (below[m] + group[m])
					} else if m > l {
						pairs += w * below[m]
					}
				}
			}
			for l, w := range group {
				below[l] += w
			}
			start = end
		}
	}
	if pairs == 0 {
		return math.NaN()
	}
	return good / pairs
}

// ordered maps finite numbers to integers in the same order.
func ordered(x float64) uint64 {
	if x == 0 {
		x = 0 // −0 too
	}
	b := math.Float64bits(x)
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}
