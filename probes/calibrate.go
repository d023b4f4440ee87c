package probes

import (
	"cmp"
	"math"
	"slices"
)

// A calibration turns scores into probabilities: of a score s,
// 1/(1 + exp(−(slope·s + intercept))).
//
// Source: Platt, Probabilities for SV machines, in Advances in Large Margin
// Classifiers (2000); with a small penalty in place of his smoothed labels.
type calibration struct{ slope, intercept float64 }

func (c calibration) probability(score float64) float64 {
	return sigmoid(c.slope*score + c.intercept)
}

func newCalibration(scores, y []float64, rows []int) (calibration, error) {
	s := newScaling(scores, 1, rows)
	l, err := logisticFit(s.apply(scores, 1, rows), pick(y, rows), stackPenalty, nil, 1e-8)
	if err != nil {
		return calibration{}, err
	}
	slope := l.w[0] * s.scale[0]
	return calibration{slope, l.bias - slope*s.mean[0]}, nil
}

// calibrate fits probabilities to the held-out scores of the first fold seed:
// for each fold by the inner scores of the others, so that neither direction nor
// calibration saw it. What is returned is fitted to all held-out scores, for the
// direction that is kept; nil for graded targets.
func (f *fitting) calibrate(r *Fitted, s *search) (kept *calibration, held []float64, err error) {
	d := f.d
	if d.graded {
		return nil, nil, nil
	}
	held = make([]float64, d.n())
	side := make([]float64, d.n()) // above or below the share of positives
	for fold := range d.folds {
		c, err := newCalibration(s.scores[0][fold], d.y(), d.kept(0, fold))
		if err != nil {
			return nil, nil, err
		}
		for _, i := range d.held(0, fold) {
			held[i] = c.probability(s.scores[0][fold][i])
			side[i] = indicator(held[i] > evenPoint(d.y(), d.kept(0, fold)))
		}
	}
	outer := s.scores[0].outer(d.fold[0])
	c, err := newCalibration(outer, d.y(), all(d.n()))
	if err != nil {
		return nil, nil, err
	}
	values := f.boot.intervals(func(w []float64) []float64 {
		return []float64{balanced(side, d.y(), w), brier(held, d.y(), w)}
	})
	r.Accuracy, r.Brier = values[0], values[1]
	r.ECE = defined(calibrationError(held, d.y(), 10))
	return &c, held, nil
}

// balanced is the mean of the shares of both classes that fall on their side of
// one half.
func balanced(p, y, weight []float64) float64 {
	var right, n [2]float64
	for i, v := range p {
		w := 1.0
		if weight != nil {
			w = weight[i]
		}
		k := int(y[i])
		n[k] += w
		if (v > 0.5) == (k == 1) {
			right[k] += w
		}
	}
	return (right[0]/n[0] + right[1]/n[1]) / 2
}

// brier is the mean square of probability less outcome.
func brier(p, y, weight []float64) float64 {
	var sum, n float64
	for i, v := range p {
		w := 1.0
		if weight != nil {
			w = weight[i]
		}
		sum += w * (v - y[i]) * (v - y[i])
		n += w
	}
	return sum / n
}

// calibrationError is the mean gap between mean probability and share of
// positives in bins of equal size.
func calibrationError(p, y []float64, bins int) float64 {
	order := all(len(p))
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(p[a], p[b]), cmp.Compare(a, b)) })
	var sum float64
	for b := range bins {
		var gap float64
		for _, i := range order[b*len(p)/bins : (b+1)*len(p)/bins] {
			gap += p[i] - y[i]
		}
		sum += math.Abs(gap)
	}
	return sum / float64(len(p))
}
