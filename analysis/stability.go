package analysis

import (
	"math"

	"gonum.org/v1/gonum/stat/combin"
)

// SSI returns the stability of one prompt: the share of its most frequent class
// among its trials, from 1/len(counts) to 1; NaN without trials. It depends on
// the number of trials (a fair coin has expectation .75, .6875, .623, .588 for
// 3, 5, 10, 20), so values of different numbers are not comparable.
//
// Source: Larsen, The Instability of Safety (arXiv:2512.12066), section 3.
func SSI(counts []int) float64 {
	var n, most int
	for _, c := range counts {
		n += c
		most = max(most, c)
	}
	return ratio(float64(most), float64(n))
}

// Unstable reports whether SSI is below percent/100, compared as integers, so
// that 16 of 20 is stable at 80.
func Unstable(counts []int, percent int) bool {
	var n, most int
	for _, c := range counts {
		n += c
		most = max(most, c)
	}
	return 100*most < percent*n
}

// Flips reports whether the trials show at least two classes.
func Flips(counts []int) bool {
	seen := 0
	for _, c := range counts {
		if c > 0 {
			seen++
		}
	}
	return seen > 1
}

// Entropy returns the entropy of the classes over its greatest possible value,
// in [0, 1]; NaN without trials or with fewer than two classes.
func Entropy(counts []int) float64 {
	var n int
	for _, c := range counts {
		n += c
	}
	if n == 0 || len(counts) < 2 {
		return math.NaN()
	}
	var h float64
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			h -= p * math.Log(p)
		}
	}
	return math.Abs(h) / math.Log(float64(len(counts)))
}

// SampleAgreement returns how often the majority of n trials, drawn without
// replacement, is the majority class of all trials: exact, by the multivariate
// hypergeometric distribution. A tie among the n shares its credit; a tie of the
// whole goes to the first class, in the order of counts. In [0, 1]; NaN if there
// are fewer than n trials or n < 1.
//
// Source: Larsen (arXiv:2512.12066), section 3, made exact; the sampled curve of
// that paper agrees with it.
func SampleAgreement(counts []int, n int) float64 {
	var total, best int
	for i, c := range counts {
		total += c
		if c > counts[best] {
			best = i
		}
	}
	if n < 1 || n > total {
		return math.NaN()
	}
	all := combin.LogGeneralizedBinomial(float64(total), float64(n))
	drawn := make([]int, len(counts))
	var sum float64
	var draw func(class, left int, logp float64)
	draw = func(class, left int, logp float64) {
		if class == len(counts)-1 {
			if left > counts[class] {
				return
			}
			drawn[class] = left
			logp += logChoose(counts[class], left)
			most, ties := 0, 0
			for _, d := range drawn {
				switch {
				case d > most:
					most, ties = d, 1
				case d == most:
					ties++
				}
			}
			if drawn[best] == most {
				sum += math.Exp(logp-all) / float64(ties)
			}
			return
		}
		for d := 0; d <= min(left, counts[class]); d++ {
			drawn[class] = d
			draw(class+1, left-d, logp+logChoose(counts[class], d))
		}
	}
	draw(0, n, 0)
	return math.Min(sum, 1)
}

func logChoose(n, k int) float64 {
	if k == 0 || k == n {
		return 0
	}
	return combin.LogGeneralizedBinomial(float64(n), float64(k))
}

// LeaveOneOut returns how often a trial has the majority class of the others, a
// tie of the others sharing its credit: what a predictor that has seen the other
// trials would reach. It is below SSI, which lets a trial vote for itself. In
// [0, 1]; NaN with fewer than two trials.
func LeaveOneOut(counts []int) float64 {
	var n int
	for _, c := range counts {
		n += c
	}
	if n < 2 {
		return math.NaN()
	}
	var right float64
	for i, c := range counts {
		if c == 0 {
			continue
		}
		most, ties := c-1, 1
		for j, d := range counts {
			switch {
			case j == i:
			case d > most:
				most, ties = d, -1
			case d == most && ties > 0:
				ties++
			}
		}
		if ties > 0 {
			right += float64(c) / float64(ties)
		}
	}
	return right / float64(n)
}

// RecommendedDraws returns the least odd number of draws whose majority agrees
// with that of all trials at least as often as wanted, on average over the
// prompts; 0 if the trials do not suffice to show it. Prompts with fewer trials
// than asked are left out of the average at that number.
func RecommendedDraws(prompts [][]int, wanted float64) int {
	for _, p := range (agreementCache{}).curve(prompts) {
		if p.Y >= wanted {
			return int(p.X)
		}
	}
	return 0
}

// curve is the mean SampleAgreement for odd numbers of draws, up to
// fewer than the trials of most prompts and at most 21.
func (cache agreementCache) curve(prompts [][]int) []Point {
	most := 0
	for _, p := range prompts {
		n := 0
		for _, c := range p {
			n += c
		}
		most = max(most, n)
	}
	var curve []Point
	for n := 1; n < most && n <= 21; n += 2 {
		var sum, k float64
		for _, p := range prompts {
			if a := cache.get(p, n); !math.IsNaN(a) {
				sum += a
				k++
			}
		}
		if 2*k < float64(len(prompts)) {
			break
		}
		curve = append(curve, Point{float64(n), sum / k})
	}
	return curve
}

// agreementCache remembers SampleAgreement: prompts share few count triples.
type agreementCache map[[classes + 1]int]float64

func (c agreementCache) get(counts []int, n int) float64 {
	if len(counts) != classes {
		return SampleAgreement(counts, n)
	}
	key := [classes + 1]int{counts[0], counts[1], counts[2], n}
	a, ok := c[key]
	if !ok {
		a = SampleAgreement(counts, n)
		c[key] = a
	}
	return a
}

// ExpectedQueries returns the mean number of independent trials up to and with
// the first compliance, 1/rate; +Inf for rate 0. Source: Larsen
// (arXiv:2512.12066), exploitation analysis.
func ExpectedQueries(complianceRate float64) float64 { return 1 / complianceRate }
