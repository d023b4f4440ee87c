package analysis

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// A RoutePoint is what happens when predictions of at least this confidence are
// trusted and the rest go to people.
type RoutePoint struct {
	Confidence float64 // lowest confidence kept
	Coverage   float64 // share of trials kept
	Accuracy   float64 // among those kept; NaN if none is
	Kept       float64 // trials kept
}

// Route returns accuracy and coverage for every threshold, from the highest
// level down. Levels are in ascending order of confidence, and confidence[i]
// names level i. It panics if the lengths differ.
func Route(confidence []float64, levels []Level) []RoutePoint {
	if len(confidence) != len(levels) {
		panic("analysis: confidences and levels do not match")
	}
	var n float64
	for _, l := range levels {
		n += l.N
	}
	var points []RoutePoint
	var kept, correct float64
	for i := len(levels) - 1; i >= 0; i-- {
		kept += levels[i].N
		correct += levels[i].Correct
		points = append(points, RoutePoint{confidence[i], ratio(kept, n), ratio(correct, kept), kept})
	}
	return points
}

// AURC returns the area below the risk–coverage curve: the mean error rate over
// all coverages from 0 to 1, each level entered at its own error rate because
// trials of one level are not ordered among themselves. Lower is better; without
// information from confidence it equals the error rate. NaN without trials.
//
// Source: Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for
// deep neural classifiers. ICLR 2019, section 2; ties by expectation.
func AURC(levels []Level) float64 {
	var n float64
	for _, l := range levels {
		n += l.N
	}
	if n == 0 {
		return math.NaN()
	}
	// Within a level with m trials and e errors after k kept trials with r
	// errors, the risk at k+x kept is (r + x·e/m)/(k + x): integrate over x.
	var area, kept, errors float64
	for i := len(levels) - 1; i >= 0; i-- {
		m := levels[i].N
		if m == 0 {
			continue
		}
		rate := (m - levels[i].Correct) / m
		area += m * rate
		if kept > 0 {
			area += (errors - rate*kept) * math.Log((kept+m)/kept)
		}
		kept += m
		errors += m - levels[i].Correct
	}
	return area / n
}

// A Guarantee is a confidence threshold whose error rate holds for new requests
// of the same kind.
type Guarantee struct {
	Confidence float64 // trust predictions of at least this confidence
	Risk       float64 // wanted error rate among trusted requests
	Delta      float64 // chance of having been misled by the sample
	Requests   int     // that were used
	Kept       int     // of which trusted
	Errors     int     // of which wrong
	Found      bool    // false: no threshold can be guaranteed on this sample
}

// GuaranteedThreshold returns the lowest confidence at which the error rate of
// trusted predictions is at most risk, with probability 1 − delta over samples.
// Kept[i] requests have confidence confidence[i] or above and errors[i] of them
// are wrong, ordered from the highest confidence down; each request counts once
// (one trial of each), because trials of one request are not independent. Thresholds
// are tested in that order until one fails, which needs no correction for
// the number of tests.
//
// Source: Angelopoulos, Bates, Candès, Jordan and Lei, Learn then Test.
// arXiv:2110.01052, sections 2 and 4.1 (fixed-sequence testing), with exact
// binomial p-values, conditional on the number kept.
func GuaranteedThreshold(confidence []float64, kept, errors []int, requests int, risk, delta float64) Guarantee {
	g := Guarantee{Risk: risk, Delta: delta, Requests: requests}
	for i := range confidence {
		if kept[i] == 0 {
			continue
		}
		// P(Binomial(kept, risk) ≤ errors) ≤ delta rejects "the rate is above risk".
		if binomialCDF(errors[i], kept[i], risk) > delta {
			break
		}
		g.Found, g.Confidence, g.Kept, g.Errors = true, confidence[i], kept[i], errors[i]
	}
	return g
}

// binomialCDF is P(X ≤ k) for X ~ Binomial(n, p), by the incomplete beta.
func binomialCDF(k, n int, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n:
		return 1
	}
	return mathext.RegIncBeta(float64(n-k), float64(k+1), 1-p)
}
