package analysis

import (
	"cmp"
	"math"
	"slices"

	"demur/data"
)

// Isotonic returns the values that rise with x and are nearest to y in weighted
// squares: y pooled over neighbours wherever it would fall. It is in the order of
// its arguments; equal x share one value. It panics if the lengths differ.
//
// Source: Barlow, Bartholomew, Bremner and Brunk, Statistical Inference under
// Order Restrictions (1972), pool adjacent violators; for calibration Zadrozny
// and Elkan, Transforming classifier scores into accurate multiclass probability
// estimates. KDD 2002.
func Isotonic(x, y, weight []float64) []float64 {
	if len(x) != len(y) || len(x) != len(weight) {
		panic("analysis: x, y and weights do not match")
	}
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	type pool struct {
		sum, weight float64
		members     []int
	}
	var pools []pool
	for i := 0; i < len(order); {
		p := pool{}
		j := i
		for ; j < len(order) && x[order[j]] == x[order[i]]; j++ {
			k := order[j]
			p.sum += weight[k] * y[k]
			p.weight += weight[k]
			p.members = append(p.members, k)
		}
		i = j
		pools = append(pools, p)
		for n := len(pools); n > 1 && pools[n-2].sum*pools[n-1].weight >= pools[n-1].sum*pools[n-2].weight; n = len(pools) {
			last := pools[n-1]
			pools = pools[:n-1]
			pools[n-2].sum += last.sum
			pools[n-2].weight += last.weight
			pools[n-2].members = append(pools[n-2].members, last.members...)
		}
	}
	fitted := make([]float64, len(x))
	for _, p := range pools {
		for _, k := range p.members {
			fitted[k] = ratio(p.sum, p.weight)
		}
	}
	return fitted
}

// Platt fits P(y = 1) = 1/(1 + exp(−(a + b·x))) by maximum likelihood, with
// Platt's targets that keep the fit finite: yes[i] and no[i] trials of each
// outcome at x[i].
//
// Source: Platt, Probabilistic outputs for support vector machines (1999),
// section 2.2; Newton steps as in Lin, Lin and Weng, A note on Platt's
// probabilistic outputs. Machine Learning 68 (2007), 267–276.
func Platt(x, yes, no []float64) (a, b float64) {
	var n1, n0 float64
	for i := range x {
		n1 += yes[i]
		n0 += no[i]
	}
	hi, lo := (n1+1)/(n1+2), 1/(n0+2)
	a = math.Log((n1 + 1) / (n0 + 1))
	loss := func(a, b float64) float64 {
		var s float64
		for i, v := range x {
			t := a + b*v
			// log(1+e^t) − target·t, without overflow
			soft := math.Max(t, 0) + math.Log1p(math.Exp(-math.Abs(t)))
			s += yes[i]*(soft-hi*t) + no[i]*(soft-lo*t)
		}
		return s
	}
	for range 100 {
		var ga, gb, haa, hab, hbb float64
		for i, v := range x {
			p := 1 / (1 + math.Exp(-(a + b*v)))
			n := yes[i] + no[i]
			d := n*p - yes[i]*hi - no[i]*lo
			ga += d
			gb += d * v
			h := n * p * (1 - p)
			haa += h
			hab += h * v
			hbb += h * v * v
		}
		haa += 1e-12
		hbb += 1e-12
		det := haa*hbb - hab*hab
		if det <= 0 || math.Abs(ga)+math.Abs(gb) < 1e-8*(n1+n0) {
			break
		}
		da, db := (hbb*ga-hab*gb)/det, (haa*gb-hab*ga)/det
		before := loss(a, b)
		step := 1.0
		for ; step > 1e-4 && loss(a-step*da, b-step*db) > before; step /= 2 {
		}
		if step <= 1e-4 {
			break
		}
		a, b = a-step*da, b-step*db
	}
	return a, b
}

// recalibration plans the Brier score after isotonic and after Platt
// recalibration of sorted scores, each request's map fitted on the requests of
// the other nine folds. What is foretold is refusal for P(refuse), being right for
// stated confidence.
func (w *analysis) recalibration(s []scored, name, reading string) {
	for _, method := range []string{"isotonic", "platt"} {
		rows := NewClusters(len(w.a.clusters), 2)
		for held := range folds {
			var x, y, n, yes, no []float64
			for _, p := range s {
				if w.foldOf(p.cluster) != held {
					x = append(x, p.score)
					n = append(n, p.refused+p.complied)
					y = append(y, p.refused/(p.refused+p.complied))
					yes, no = append(yes, p.refused), append(no, p.complied)
				}
			}
			if len(x) == 0 {
				continue
			}
			var predict func(v float64) float64
			if method == "platt" {
				a, b := Platt(x, yes, no)
				predict = func(v float64) float64 { return 1 / (1 + math.Exp(-(a + b*v))) }
			} else {
				fitted := Isotonic(x, y, n) // s is sorted, and so are x and fitted
				predict = func(v float64) float64 {
					i, _ := slices.BinarySearch(x, v)
					switch {
					case i == 0:
						return fitted[0]
					case i == len(x):
						return fitted[i-1]
					}
					share := ratio(v-x[i-1], x[i]-x[i-1])
					return fitted[i-1] + share*(fitted[i]-fitted[i-1])
				}
			}
			for _, p := range s {
				if w.foldOf(p.cluster) == held {
					q := predict(p.score)
					rows.Add(int(p.cluster), 0, p.refused*sq(1-q)+p.complied*sq(q))
					rows.Add(int(p.cluster), 1, p.refused+p.complied)
				}
			}
		}
		w.add(rows, []metric{{name: name + "_" + method, num: sumOf(0), den: sumOf(1), kind: rate, base: sumOf(1)}}, "", reading, string(w.o.Fold))
	}
}

// confidenceScores are the headline's stated confidences, each with the trials
// whose prediction was right (as refused) and wrong (as complied).
func (w *analysis) confidenceScores() []scored {
	said := w.said(w.o.Reading)
	var s []scored
	for i, p := range w.a.prompts {
		if said[i].outcome > saysRefuse || said[i].level() == 0 {
			continue
		}
		x := scored{cluster: p.cluster, score: float64(said[i].confidence)}
		n := w.a.labelsOf(&w.a.prompts[i], -1)
		for label, c := range n[:labelFailed] {
			if refused, ok := w.o.Fold.Refused(data.Labels()[label]); ok && refused == (said[i].outcome == saysRefuse) {
				x.refused += float64(c)
			} else if ok {
				x.complied += float64(c)
			}
		}
		if x.refused+x.complied > 0 {
			s = append(s, x)
		}
	}
	sortScored(s)
	return s
}

func (w *analysis) foldOf(cluster int32) int {
	return foldOf(w.d.requests[w.a.clusters[cluster]].id)
}
