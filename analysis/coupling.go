package analysis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"demur/data"
)

// coupling plans the rank correlation of stability with compliance over prompts,
// and the range it has when every prompt keeps its own rates and nothing else.
// The two are coupled by construction (among prompts that mostly refuse, more
// compliance is less stability), so zero is no useful null.
func (w *analysis) coupling() {
	var prompts [][classes]int
	var cluster []int32
	for i := range w.a.prompts {
		three, _, _ := threeClasses(w.a.labelsOf(&w.a.prompts[i], -1))
		if three[0]+three[1]+three[2] > 1 {
			prompts = append(prompts, three)
			cluster = append(cluster, w.a.prompts[i].cluster)
		}
	}
	if len(prompts) < 3 {
		return
	}
	pair := func(p [classes]int) (ssi, rate float64) {
		n := float64(p[0] + p[1] + p[2])
		return SSI(p[:]), float64(p[classComply]) / n
	}
	x, y := make([]float64, len(prompts)), make([]float64, len(prompts))
	for i, p := range prompts {
		x[i], y[i] = pair(p)
	}
	why := "undefined: all prompts are equally stable, or comply equally often"
	s := &section{metrics: []metric{{name: "spearman_ssi_compliance", why: why}}, requests: w.f.Requests, trials: w.f.Trials}
	ox, oy := orderOf(x), orderOf(y)
	s.task = &task{m: 1, weighted: func(weights []uint16, out []float64) { out[0] = weightedSpearman(x, y, ox, oy, cluster, weights) }}
	w.sections = append(w.sections, s)

	const redraws = 200
	null := make([]float64, 0, redraws)
	results := make([]float64, redraws)
	parallel(redraws, func(b int) {
		rng := rand.New(rand.NewPCG(w.o.Seed, 1<<40+uint64(b)))
		nx, ny := make([]float64, len(prompts)), make([]float64, len(prompts))
		for i, p := range prompts {
			n := p[0] + p[1] + p[2]
			var q [classes]int
			for range n {
				u := rng.IntN(n)
				switch {
				case u < p[0]:
					q[0]++
				case u < p[0]+p[1]:
					q[1]++
				default:
					q[2]++
				}
			}
			nx[i], ny[i] = pair(q)
		}
		results[b] = Spearman(nx, ny)
	})
	for _, v := range results {
		if !math.IsNaN(v) {
			null = append(null, v)
		}
	}
	e := data.Estimate{
		Metric: "spearman_ssi_compliance_null", Level: w.o.Level, Requests: w.f.Requests, Trials: w.f.Trials, Model: w.d.Model, Judge: w.o.Judge,
		Method: fmt.Sprintf("mean and range of %d redraws that keep each prompt's rates, seed %d", redraws, w.o.Seed),
	}
	if len(null) < redraws/2 {
		e.Warnings = []string{why}
	} else {
		var sum float64
		for _, v := range null {
			sum += v
		}
		slices.Sort(null)
		fill(&e, sum/float64(len(null)), Interval{quantile(null, (1-w.o.Level)/2), quantile(null, (1+w.o.Level)/2), 0}, why)
	}
	w.f.Estimates = append(w.f.Estimates, e)
}

func orderOf(x []float64) []int32 {
	order := make([]int32, len(x))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	return order
}

// weightedSpearman is Spearman's correlation with each pair as many times as its
// cluster was drawn, in linear time from the two sorted orders.
func weightedSpearman(x, y []float64, ox, oy []int32, cluster []int32, w []uint16) float64 {
	ranks := func(v []float64, order []int32) ([]float64, float64) {
		r := make([]float64, len(v))
		var below float64
		for i := 0; i < len(order); {
			j := i
			var tied float64
			for ; j < len(order) && v[order[j]] == v[order[i]]; j++ {
				tied += float64(w[cluster[order[j]]])
			}
			for _, k := range order[i:j] {
				r[k] = below + (tied+1)/2
			}
			below += tied
			i = j
		}
		return r, below
	}
	rx, n := ranks(x, ox)
	ry, _ := ranks(y, oy)
	if n < 3 {
		return math.NaN()
	}
	mean := (n + 1) / 2
	var sxy, sxx, syy float64
	for i := range rx {
		m := float64(w[cluster[i]])
		sxy += m * (rx[i] - mean) * (ry[i] - mean)
		sxx += m * sq(rx[i]-mean)
		syy += m * sq(ry[i]-mean)
	}
	if sxx < 1e-9 || syy < 1e-9 {
		return math.NaN()
	}
	return clamp(sxy/math.Sqrt(sxx*syy), -1, 1)
}
