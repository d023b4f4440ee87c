package analysis

import "math"

// A Level is a group of predictions with one stated confidence, or one bin of a
// probability.
type Level struct {
	Expected float64 // the accuracy that the confidence claims, in [0, 1]
	N        float64 // trials
	Correct  float64 // of which the prediction was right
}

// Fifths is the map of the introspection paper from stated confidence 1–5 to a
// claimed accuracy: k/5 (Gondil, arXiv:2604.00228, reverse-engineered and exact
// to three decimals on its four models). Its lower levels claim less than
// chance, which is why Linear stands beside it.
func Fifths(k float64) float64 { return k / 5 }

// Linear maps stated confidence 1–5 to a claimed accuracy between chance and
// certainty: 0.5 + (k − 1)/8.
func Linear(k float64) float64 { return 0.5 + (k-1)/8 }

// ECE returns the expected calibration error, Σ n_k |accuracy_k − expected_k| / n,
// in [0, 1]; NaN without trials. On finite data it is biased upward, for noise
// moves every gap away from 0: see UnbiasedECE.
//
// Source: Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities
// using Bayesian binning. AAAI 2015, section 2.
func ECE(levels []Level) float64 {
	var sum, n float64
	for _, l := range levels {
		if l.N > 0 {
			sum += math.Abs(l.Correct - l.N*l.Expected)
			n += l.N
		}
	}
	return ratio(sum, n)
}

// MCE returns the greatest gap |accuracy_k − expected_k| over the levels that
// hold at least one trial in a hundred; NaN without trials. Source: as ECE.
func MCE(levels []Level) float64 {
	var n float64
	for _, l := range levels {
		n += l.N
	}
	if n == 0 {
		return math.NaN()
	}
	var gap float64
	for _, l := range levels {
		if l.N >= n/100 {
			gap = math.Max(gap, math.Abs(l.Correct/l.N-l.Expected))
		}
	}
	return gap
}

// A BrierScore is the mean squared gap between claimed probability and outcome,
// with Murphy's decomposition: Score = Reliability − Resolution + Uncertainty.
type BrierScore struct {
	Score       float64
	Reliability float64 // lower is better
	Resolution  float64 // higher is better
	Uncertainty float64 // of the outcome alone
}

// Brier returns the Brier score of the levels, exact because all trials of a
// level share one claim; NaN without trials.
//
// Source: Murphy, A. H., A new vector partition of the probability score.
// Journal of Applied Meteorology 12 (1973), 595–600.
func Brier(levels []Level) BrierScore {
	var n, correct float64
	for _, l := range levels {
		n += l.N
		correct += l.Correct
	}
	if n == 0 {
		nan := math.NaN()
		return BrierScore{nan, nan, nan, nan}
	}
	base := correct / n
	b := BrierScore{Uncertainty: base * (1 - base)}
	for _, l := range levels {
		if l.N == 0 {
			continue
		}
		acc := l.Correct / l.N
		b.Reliability += l.N / n * sq(l.Expected-acc)
		b.Resolution += l.N / n * sq(acc-base)
	}
	b.Score = b.Reliability - b.Resolution + b.Uncertainty
	return b
}

// unfold returns γ ≥ 0 such that the mean of |N(γ, se²)| is the observed gap:
// an absolute gap freed of what noise alone adds to it. It is 0 for gaps below
// what noise gives on average, se·√(2/π).
//
// Source: mean of the folded normal distribution, Leone, Nelson and Nottingham,
// The folded normal distribution. Technometrics 3 (1961), 543–550, equation 3.
func unfold(gap, se float64) float64 {
	if se <= 0 {
		return gap
	}
	mean := func(g float64) float64 {
		return se*math.Sqrt(2/math.Pi)*math.Exp(-g*g/(2*se*se)) + g*(1-2*cdf(-g/se))
	}
	if gap <= mean(0) {
		return 0
	}
	lo, hi := 0.0, gap
	for range 40 {
		mid := (lo + hi) / 2
		if mean(mid) < gap {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}
