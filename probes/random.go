package probes

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// bestSite is the site of a search that is best over all rows.
func (s *search) bestSite() candidate {
	best, most := 0, -1.0
	for k := range s.candidates {
		var sum float64
		for seed := range s.d.seeds {
			sum += s.value[k][seed]
		}
		if sum > most {
			best, most = k, sum
		}
	}
	return s.candidates[best]
}

// random tests directions drawn at random, at the best site: each is turned so
// that it agrees with the training rows, and that alone is learned.
func (f *fitting) random() {
	d, w := f.d, f.states.width
	if f.o.Random == 0 {
		return
	}
	c := f.selectAt
	x, _ := d.centred(f.states, c.site)
	y := d.y()
	rng := rand.New(rand.NewPCG(f.o.Seed, 2<<32))
	values := make([]float64, 0, f.o.Random)
	for range f.o.Random {
		r := make([]float64, w)
		for j := range r {
			r[j] = rng.NormFloat64()
		}
		scores := make([]float64, d.n())
		for i := range scores {
			scores[i] = dot(r, x[i*w:(i+1)*w]) / norm(r)
		}
		out := make([]float64, d.n())
		for fold := range d.folds {
			train := d.kept(0, fold)
			var ms, my, cov float64
			for _, i := range train {
				ms, my = ms+scores[i]/float64(len(train)), my+y[i]/float64(len(train))
			}
			for _, i := range train {
				cov += (scores[i] - ms) * (y[i] - my)
			}
			sign := 1.0
			if cov < 0 {
				sign = -1
			}
			for _, i := range d.held(0, fold) {
				out[i] = sign * (scores[i] - ms)
			}
		}
		values = append(values, newRankings(y, out, all(d.n()), d.fold[0]).concordance(nil))
	}
	var mean float64
	for _, v := range values {
		mean += v / float64(len(values))
	}
	slices.Sort(values)
	f.report.Controls = append(f.report.Controls, Control{
		"random directions",
		Value{defined(mean), defined(quantile(values, 0.025)), defined(quantile(values, 0.975))},
		fmt.Sprintf("%d at %s, signs from the training rows; the interval holds 95%% of the directions", len(values), f.states.sites[c.site]),
	})
}

// selectivity compares the probe with itself on labels that mean nothing: each
// request gets the label of another, and the split is by wording, so that every
// request is known from training. What a probe reaches there it reaches by
// telling requests apart, not by what they have in common.
//
// Source: Hewitt and Liang, Designing and Interpreting Probes with Control
// Tasks, EMNLP 2019, arXiv:1909.03368, section 2.
func (f *fitting) selectivity(linear Method) {
	d, w := f.d, f.states.width
	number := make([]int, d.n()) // of the row among its request's
	seen := make(map[int]int)
	splits := 0
	for i, c := range d.cluster {
		number[i] = seen[c]
		seen[c]++
		splits = max(splits, seen[c])
	}
	if splits < 2 {
		f.warn("selectivity is left out: requests have one wording each")
		return
	}
	x := d.plain(f.states, f.selectAt.site)
	reach := func(y []float64) (float64, error) {
		scores := make([]float64, d.n())
		for k := range splits {
			var train, test []int
			for i, n := range number {
				if n == k {
					test = append(test, i)
				} else {
					train = append(train, i)
				}
			}
			l, err := direct(linear, x, w, train, y, f.selectAt.strength)
			if err != nil {
				return 0, err
			}
			even := evenPoint(y, train)
			for _, i := range test {
				scores[i] = dot(l.w, x[i*w:(i+1)*w]) + l.bias
				if !d.graded {
					scores[i] += 0.5 - even
				}
			}
		}
		if d.graded {
			return Concordance(y, scores), nil
		}
		return balanced(scores, y, nil), nil
	}
	const draws = 10
	values := make([]float64, draws+1)
	errs := make([]error, draws+1)
	parallel(draws+1, func(k int) {
		y := d.y()
		if k > 0 {
			y = d.permute(y, rand.New(rand.NewPCG(f.o.Seed, 3<<32+uint64(k))))
		}
		values[k], errs[k] = reach(y)
	})
	for _, err := range errs {
		if err != nil {
			f.warn("selectivity is left out: %v", err)
			return
		}
	}
	var control float64
	for _, v := range values[1:] {
		control += v / draws
	}
	what := "balanced accuracy"
	if d.graded {
		what = "concordance"
	}
	f.report.Controls = append(f.report.Controls, Control{
		"selectivity",
		Value{Value: defined(values[0] - control)},
		fmt.Sprintf("%s of %s at %s, split by wording: %.3f, with the labels of other requests %.3f", what, linear, f.states.sites[f.selectAt.site], values[0], control),
	})
}

// evenPoint is where least squares to 0 and 1 separates two classes as if they
// were of equal size: the share of positives.
func evenPoint(y []float64, rows []int) float64 {
	var sum float64
	for _, i := range rows {
		sum += y[i]
	}
	return sum / float64(len(rows))
}
