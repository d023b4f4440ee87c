package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// A Point is a point of a curve.
type Point struct{ X, Y float64 }

// RatingAUC returns the area below the ROC of ordered ratings: the probability
// that a refusal is rated above a compliance, ties counting one half. Element i
// of refusals and compliances counts trials with the i-th rating, from the
// surest prediction of compliance to the surest prediction of refusal. It is
// U/(n₁n₂) of Mann and Whitney, in [0, 1]; NaN if a class is empty. It panics
// if the lengths differ.
//
// Source: Macmillan and Creelman, Detection Theory, 2nd ed. (2005), chapter 3.
func RatingAUC(refusals, compliances []float64) float64 {
	if len(refusals) != len(compliances) {
		panic("analysis: refusals and compliances do not match")
	}
	var u, below, n1, n2 float64
	for i := range refusals {
		u += refusals[i] * (below + compliances[i]/2)
		below += compliances[i]
		n1 += refusals[i]
		n2 += compliances[i]
	}
	return ratio(u, n1*n2)
}

// RatingROC returns the ROC of ordered ratings (see RatingAUC), from (0, 0) to
// (1, 1): false-alarm rate and hit rate as the cut moves from the surest refusal
// down. It is nil if a class is empty.
func RatingROC(refusals, compliances []float64) []Point {
	var n1, n2 float64
	for i := range refusals {
		n1 += refusals[i]
		n2 += compliances[i]
	}
	if n1 == 0 || n2 == 0 {
		return nil
	}
	points := []Point{{0, 0}}
	var h, f float64
	for i := len(refusals) - 1; i >= 0; i-- {
		if refusals[i] == 0 && compliances[i] == 0 {
			continue
		}
		h += refusals[i]
		f += compliances[i]
		points = append(points, Point{f / n2, h / n1})
	}
	return points
}

// ZROCSlope returns the slope of z(H) on z(F) over the inner points of a ROC by
// least squares. Equal variances, which d′ assumes, make it 1; below 1 the
// refusals vary more. NaN with fewer than two inner points.
// Source: Macmillan and Creelman (2005), chapter 3.
func ZROCSlope(roc []Point) float64 {
	var x, y []float64
	for _, p := range roc {
		if p.X > 0 && p.X < 1 && p.Y > 0 && p.Y < 1 {
			x = append(x, z(p.X))
			y = append(y, z(p.Y))
		}
	}
	if len(x) < 2 {
		return math.NaN()
	}
	_, slope := stat.LinearRegression(x, y, nil, false)
	if math.IsInf(slope, 0) {
		return math.NaN()
	}
	return slope
}

// A scored prompt: one score and what its trials did.
type scored struct {
	cluster           int32
	score             float64
	refused, complied float64
}

// ScoreAUC is RatingAUC for real-valued scores: score[i] was given to refusals[i]
// refusals and compliances[i] compliances. It panics if the lengths differ.
func ScoreAUC(score, refusals, compliances []float64) float64 {
	if len(score) != len(refusals) || len(score) != len(compliances) {
		panic("analysis: scores, refusals and compliances do not match")
	}
	s := make([]scored, len(score))
	for i := range score {
		s[i] = scored{score: score[i], refused: refusals[i], complied: compliances[i]}
	}
	sortScored(s)
	return weightedAUC(s, nil)
}

func sortScored(s []scored) {
	slices.SortFunc(s, func(a, b scored) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		}
		return int(a.cluster) - int(b.cluster)
	})
}

// weightedAUC is the AUC of sorted scores, each cluster weighted by w; w nil
// means 1.
func weightedAUC(s []scored, w []uint16) float64 {
	var u, below, n1, n2 float64
	for i := 0; i < len(s); {
		var r, c float64
		j := i
		for ; j < len(s) && s[j].score == s[i].score; j++ {
			m := 1.0
			if w != nil {
				m = float64(w[s[j].cluster])
			}
			r += m * s[j].refused
			c += m * s[j].complied
		}
		u += r * (below + c/2)
		below += c
		n1 += r
		n2 += c
		i = j
	}
	return ratio(u, n1*n2)
}

// scoreROC is the ROC of sorted scores, thinned to at most 200 points.
func scoreROC(s []scored) []Point {
	var n1, n2 float64
	for _, x := range s {
		n1 += x.refused
		n2 += x.complied
	}
	if n1 == 0 || n2 == 0 {
		return nil
	}
	points := []Point{{0, 0}}
	var h, f float64
	for i := len(s) - 1; i >= 0; {
		j := i
		for ; j >= 0 && s[j].score == s[i].score; j-- {
			h += s[j].refused
			f += s[j].complied
		}
		i = j
		points = append(points, Point{f / n2, h / n1})
	}
	if step := (len(points) + 199) / 200; step > 1 {
		thin := points[:0:0]
		for i, p := range points {
			if i%step == 0 || i == len(points)-1 {
				thin = append(thin, p)
			}
		}
		points = thin
	}
	return points
}
