package probes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// choices counts what was chosen, and finds the best over all rows.
func (f *fitting) choices(r *Fitted, s *search, searches map[Method]*search) {
	count := make(map[candidate]int)
	note := func(c candidate) { count[c]++ }
	best, most := 0, math.Inf(-1)
	by := s
	if r.Method == Logistic {
		by = searches[Whitened]
	}
	for k := range by.candidates {
		var sum float64
		for seed := range f.d.seeds {
			sum += by.value[k][seed]
		}
		if sum > most {
			best, most = k, sum
		}
	}
	site, strength := by.candidates[best].site, by.candidates[best].strength
	for seed := range f.d.seeds {
		for fold := range f.d.folds {
			k, at := s.chosen[seed][fold], by.chosen[seed][fold]
			if k >= 0 && at >= 0 {
				note(candidate{by.candidates[at].site, s.candidates[k].strength})
			}
		}
	}
	if r.Method == Logistic {
		votes := make(map[float64]int)
		for c, n := range count {
			votes[c.strength] += n
		}
		strength = f.o.Penalties[0]
		for _, p := range f.o.Penalties {
			if votes[p] > votes[strength] {
				strength = p
			}
		}
	}
	r.Strength, r.Site = strength, f.siteOf(r.Method, candidate{site: site})
	for c, n := range count {
		r.Chosen = append(r.Chosen, Choice{f.siteOf(r.Method, c), c.strength, n})
	}
	slices.SortFunc(r.Chosen, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Site.Anchor, b.Site.Anchor), cmp.Compare(a.Site.Layer, b.Site.Layer), cmp.Compare(a.Strength, b.Strength))
	})
}

// null compares with permuted labels. The observed value is that of the first
// fold seed, which the permuted ones have too.
func (f *fitting) null(r *Fitted, s *search) error {
	d := f.d
	if f.o.Permutations == 0 || r.Method == Logistic && f.o.LogisticSite == nil {
		return nil
	}
	var observed float64
	var null []float64
	if r.Method == Logistic {
		site := slices.Index(f.states.sites, *f.o.LogisticSite)
		if site < 0 {
			return fmt.Errorf("there are no states at %s", *f.o.LogisticSite)
		}
		var err error
		if observed, null, err = d.logisticNull(f.states, site, r.Strength); err != nil {
			return err
		}
	} else {
		o := &orderer{level: d.levels()}
		value := func(col int) float64 {
			fold := d.fold[d.seedOf(col)]
			return o.concordance(o.level[col], s.scores[col].outer(fold), fold, d.folds, -1)
		}
		observed = value(0)
		for col := d.seeds; col < d.columns; col++ {
			null = append(null, value(col))
		}
	}
	r.P = exceeded(null, observed)
	var mean float64
	for _, v := range null {
		mean += v / float64(len(null))
	}
	r.NullMean = defined(mean)
	slices.Sort(null)
	r.Null95 = defined(quantile(null, 0.95))
	return nil
}

// exceeded is the p-value of a permutation test, the observed labeling counted
// among the permuted ones (Phipson and Smyth, Statistical Applications in
// Genetics and Molecular Biology 9(1) (2010), article 39).
func exceeded(null []float64, observed float64) *float64 {
	if math.IsNaN(observed) {
		return nil
	}
	n := 1
	for _, v := range null {
		if v >= observed {
			n++
		}
	}
	return defined(float64(n) / float64(len(null)+1))
}

func (f *fitting) surface(r *Fitted, s *search) {
	if r.Method == Logistic {
		return
	}
	d := f.d
	var greatest []float64
	for col := d.seeds; col < d.columns; col++ {
		most := math.Inf(-1)
		for k := range s.candidates {
			if v := s.value[k][col]; v > most {
				most = v
			}
		}
		greatest = append(greatest, most)
	}
	if len(greatest) > 0 {
		r.MaxNull95 = defined(quantile(slices.Sorted(slices.Values(greatest)), 0.95))
	}
	boot := f.boot
	boot.n = min(boot.n, surfaceResamples)
	for k, c := range s.candidates {
		ranks := f.rankings(s.outer[k])
		v := SiteValue{Site: f.siteOf(r.Method, c), Strength: c.strength}
		v.Value = boot.intervals(func(w []float64) []float64 { return []float64{concordance(ranks, w)} })[0]
		if len(greatest) > 0 {
			v.P = exceeded(greatest, s.value[k][0])
		}
		r.Surface = append(r.Surface, v)
	}
}

// surfaceResamples is enough for the band of a picture.
const surfaceResamples = 200
