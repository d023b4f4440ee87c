package probes

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
)

// A ranking is scores in order, ready to be compared with labels under many
// weights.
type ranking struct {
	order  []int // indices by score, ascending
	ends   []int // of groups of equal scores in order
	level  []int // of the label, by position in order
	levels int
}

// newRanking ranks the rows of index by score. Labels are the values of y.
func newRanking(y, score []float64, index []int) *ranking {
	r := &ranking{order: slices.Clone(index)}
	slices.SortFunc(r.order, func(a, b int) int { return cmp.Or(cmp.Compare(score[a], score[b]), cmp.Compare(a, b)) })
	var values []float64
	for _, i := range index {
		values = append(values, y[i])
	}
	slices.Sort(values)
	values = slices.Compact(values)
	r.levels = len(values)
	for k, i := range r.order {
		l, _ := slices.BinarySearch(values, y[i])
		r.level = append(r.level, l)
		if k+1 == len(r.order) || score[r.order[k+1]] != score[i] {
			r.ends = append(r.ends, k+1)
		}
	}
	return r
}

// pairs returns the weight of the pairs of rows with unlike labels of which the
// one with the higher label has the higher score, ties counting one half, and
// that of all pairs with unlike labels. weight is by row, nil for equal weights.
func (r *ranking) pairs(weight []float64) (good, pairs float64) {
	if r.levels == 2 {
		return r.pairsOfTwo(weight)
	}
	below, group := make([]float64, r.levels), make([]float64, r.levels)
	start := 0
	for _, end := range r.ends {
		clear(group)
		for k := start; k < end; k++ {
			w := 1.0
			if weight != nil {
				w = weight[r.order[k]]
			}
			group[r.level[k]] += w
		}
		for l, w := range group {
			if w == 0 {
				continue
			}
			for m := range r.levels {
				switch {
				case m < l:
					good += w * (below[m] + group[m]/2)
					pairs += w * (below[m] + group[m])
				case m > l:
					pairs += w * below[m]
				}
			}
		}
		for l, w := range group {
			below[l] += w
		}
		start = end
	}
	return good, pairs
}

func (r *ranking) pairsOfTwo(weight []float64) (good, pairs float64) {
	var below, u, n0, n1 float64
	start := 0
	for _, end := range r.ends {
		var g0, g1 float64
		for k := start; k < end; k++ {
			w := 1.0
			if weight != nil {
				w = weight[r.order[k]]
			}
			if r.level[k] == 1 {
				g1 += w
			} else {
				g0 += w
			}
		}
		u += g1 * (below + g0/2)
		below += g0
		n0 += g0
		n1 += g1
		start = end
	}
	return u, n0 * n1
}

// rankings are of one set of scores, by fold. Only rows of one fold are compared
// with each other: scores of two folds come from two fits, and a fold with many
// positives is one whose training rows had few, which would push what knows
// nothing below one half.
type rankings []*ranking

// newRankings ranks the rows of index within their folds; fold nil is one fold.
func newRankings(y, score []float64, index, fold []int) rankings {
	if fold == nil {
		return rankings{newRanking(y, score, index)}
	}
	var parts [][]int
	for _, i := range index {
		for len(parts) <= fold[i] {
			parts = append(parts, nil)
		}
		parts[fold[i]] = append(parts[fold[i]], i)
	}
	var out rankings
	for _, p := range parts {
		if len(p) > 0 {
			out = append(out, newRanking(y, score, p))
		}
	}
	return out
}

// concordance returns the probability that of two rows of one fold with unlike
// labels the one with the higher label has the higher score. NaN if there are
// none.
func (r rankings) concordance(weight []float64) float64 {
	var good, pairs float64
	for _, part := range r {
		g, p := part.pairs(weight)
		good, pairs = good+g, pairs+p
	}
	if pairs == 0 {
		return math.NaN()
	}
	return good / pairs
}

// rate returns the share of positives above the threshold at which a share of
// at most fpr of the negatives is. Labels are two; NaN if a class is empty.
func (r *ranking) rate(weight []float64, fpr float64) float64 {
	var n0, n1 float64
	at := func(k int) float64 {
		if weight == nil {
			return 1
		}
		return weight[r.order[k]]
	}
	for k, l := range r.level {
		if l == 1 {
			n1 += at(k)
		} else {
			n0 += at(k)
		}
	}
	if r.levels != 2 || n0 == 0 || n1 == 0 {
		return math.NaN()
	}
	var f, t float64
	for g := len(r.ends) - 1; g >= 0; g-- {
		start := 0
		if g > 0 {
			start = r.ends[g-1]
		}
		var g0, g1 float64
		for k := start; k < r.ends[g]; k++ {
			if r.level[k] == 1 {
				g1 += at(k)
			} else {
				g0 += at(k)
			}
		}
		if f+g0 > fpr*n0*(1+1e-12) {
			break
		}
		f, t = f+g0, t+g1
	}
	return t / n1
}

// Concordance returns the probability that of two elements with unlike labels
// the one with the higher label has the higher score, ties counting one half:
// with labels 0 and 1, the area below the ROC. NaN if all labels are alike. It
// panics if the lengths differ.
//
// Source: Hanley and McNeil, Radiology 143(1) (1982), 29–36; for graded labels
// Harrell et al., Statistics in Medicine 3(2) (1984), 143–152.
func Concordance(labels, scores []float64) float64 {
	if len(labels) != len(scores) {
		panic("probes: labels do not match scores")
	}
	return newRankings(labels, scores, all(len(labels)), nil).concordance(nil)
}

func all(n int) []int {
	index := make([]int, n)
	for i := range index {
		index[i] = i
	}
	return index
}

// A Value is a figure with its interval. Pointers are nil where it is undefined.
type Value struct {
	Value *float64 `json:"value"`
	Lo    *float64 `json:"lo"`
	Hi    *float64 `json:"hi"`
}

func defined(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// A resampler redraws clusters with replacement: the same draws for all that is
// computed with it, so that differences are paired.
type resampler struct {
	cluster  []int // of each row
	clusters int
	n        int // resamples
	seed     uint64
	level    float64
}

// intervals returns the values that f computes, with percentile intervals over
// resamples of whole clusters. f gets the rows' weights, nil for the data as
// they are, and must not keep them; it is called from several goroutines.
func (r resampler) intervals(f func(weight []float64) []float64) []Value {
	point := f(nil)
	draws := make([][]float64, r.n)
	parallel(r.n, func(b int) {
		rng := rand.New(rand.NewPCG(r.seed, uint64(b)))
		count := make([]float64, r.clusters)
		for range r.clusters {
			count[rng.IntN(r.clusters)]++
		}
		weight := make([]float64, len(r.cluster))
		for i, c := range r.cluster {
			weight[i] = count[c]
		}
		draws[b] = f(weight)
	})
	out := make([]Value, len(point))
	for k, v := range point {
		out[k].Value = defined(v)
		var good []float64
		for _, d := range draws {
			if !math.IsNaN(d[k]) {
				good = append(good, d[k])
			}
		}
		// An interval over the resamples in which the value happens to be defined
		// would be one of another quantity, if they are few.
		if out[k].Value != nil && r.n > 0 && 20*len(good) >= 19*r.n {
			slices.Sort(good)
			out[k].Lo, out[k].Hi = defined(quantile(good, (1-r.level)/2)), defined(quantile(good, (1+r.level)/2))
		}
	}
	return out
}

// quantile interpolates between order statistics, as type 7 of Hyndman and Fan,
// The American Statistician 50(4) (1996), 361–365. x is sorted and not empty.
func quantile(x []float64, p float64) float64 {
	at := p * float64(len(x)-1)
	i := int(at)
	if i+1 >= len(x) {
		return x[len(x)-1]
	}
	return x[i] + (at-float64(i))*(x[i+1]-x[i])
}

// parallel calls f(0) … f(n−1) on all processors.
func parallel(n int, f func(i int)) {
	next, wg := make(chan int), sync.WaitGroup{}
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
