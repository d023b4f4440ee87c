package analysis

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Counts is the two-by-two table of predictions against behaviour. The signal
// is a refusal. Counts may be fractional: resampling and cross-fitting weigh
// trials.
type Counts struct {
	Hits              float64 // refused, refusal predicted
	Misses            float64 // refused, compliance predicted
	FalseAlarms       float64 // complied, refusal predicted
	CorrectRejections float64 // complied, compliance predicted
}

// A Correction keeps hit and false-alarm rates off 0 and 1, where z is
// infinite. No correction makes a rate for an empty class.
type Correction int

const (
	// LogLinear adds half a trial to each cell, always. Source: Hautus, M. J.,
	// Corrections for extreme proportions and their biasing effects on estimated
	// values of d′. Behavior Research Methods, Instruments, & Computers 27(1)
	// (1995), 46–51.
	LogLinear Correction = iota
	// HalfTrial replaces a rate of 0 by 1/(2n) and a rate of 1 by 1 − 1/(2n), and
	// leaves the others. Source: Macmillan and Creelman, Detection Theory, 2nd
	// ed. (2005), chapter 1.
	HalfTrial
	// Uncorrected leaves the rates, so that d′ may be infinite.
	Uncorrected
)

// String returns the name that stands in estimates.
func (k Correction) String() string {
	switch k {
	case HalfTrial:
		return "1/2n"
	case Uncorrected:
		return "uncorrected"
	}
	return "log-linear"
}

// ParseCorrection returns the correction of that name, as String gives it; the
// empty name is LogLinear.
func ParseCorrection(name string) (Correction, error) {
	for _, k := range []Correction{LogLinear, HalfTrial, Uncorrected} {
		if name == "" || name == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("correction %q is not known; choose log-linear, 1/2n or uncorrected", name)
}

func (k Correction) rate(yes, n float64) float64 {
	switch {
	case n <= 0:
		return math.NaN()
	case k == LogLinear:
		return (yes + 0.5) / (n + 1)
	case k == HalfTrial && yes <= 0:
		return 0.5 / n
	case k == HalfTrial && yes >= n:
		return 1 - 0.5/n
	}
	return yes / n
}

// Refusals is the number of signal trials, Compliances that of noise trials.
func (c Counts) Refusals() float64    { return c.Hits + c.Misses }
func (c Counts) Compliances() float64 { return c.FalseAlarms + c.CorrectRejections }

// N is the number of trials.
func (c Counts) N() float64 { return c.Refusals() + c.Compliances() }

// Accuracy is the share of trials that did what was predicted; NaN without
// trials.
func (c Counts) Accuracy() float64 { return ratio(c.Hits+c.CorrectRejections, c.N()) }

// MajorityAccuracy is what always predicting the more frequent behaviour would
// reach on the same trials; NaN without trials.
func (c Counts) MajorityAccuracy() float64 {
	return ratio(math.Max(c.Refusals(), c.Compliances()), c.N())
}

// HitRate returns H, predicted refusals among refusals, under the correction.
// It is NaN if there were no refusals: a correction would make one half out of
// nothing.
func (c Counts) HitRate(k Correction) float64 { return k.rate(c.Hits, c.Refusals()) }

// FalseAlarmRate returns F, predicted refusals among compliances, under the
// correction; NaN if there were no compliances.
func (c Counts) FalseAlarmRate(k Correction) float64 {
	return k.rate(c.FalseAlarms, c.Compliances())
}

// DPrime returns the sensitivity z(H) − z(F), from −∞ to ∞ (0: the prediction
// knows nothing). It is NaN, not a corrected number, if there were no refusals
// or no compliances.
//
// Source: Stanislaw and Todorov, Calculation of signal detection theory
// measures. Behavior Research Methods, Instruments, & Computers 31(1) (1999),
// 137–149, equation 1.
func (c Counts) DPrime(k Correction) float64 {
	return z(c.HitRate(k)) - z(c.FalseAlarmRate(k))
}

// Criterion returns c = −(z(H) + z(F))/2; below 0 refusals are predicted too
// readily. NaN where DPrime is. Source: as DPrime, equation 2.
func (c Counts) Criterion(k Correction) float64 {
	return -(z(c.HitRate(k)) + z(c.FalseAlarmRate(k))) / 2
}

// Beta returns the likelihood ratio at the criterion, exp(d′·c); 1 is no bias.
// Source: as DPrime, equation 3.
func (c Counts) Beta(k Correction) float64 { return math.Exp(c.DPrime(k) * c.Criterion(k)) }

// APrime returns the rank-free sensitivity A′ of uncorrected rates, in [0, 1],
// 0.5 at chance. Source: Grier, J. B., Nonparametric indexes for sensitivity
// and bias. Psychological Bulletin 75 (1971), 424–429; as DPrime, equation 4.
func (c Counts) APrime() float64 {
	h, f := c.HitRate(Uncorrected), c.FalseAlarmRate(Uncorrected)
	switch {
	case math.IsNaN(h) || math.IsNaN(f):
		return math.NaN()
	case h == f:
		return 0.5
	case h > f:
		return 0.5 + (h-f)*(1+h-f)/(4*h*(1-f))
	}
	return 0.5 - (f-h)*(1+f-h)/(4*f*(1-h))
}

// orUndefined is x, or NaN where every prediction was the same: see oneAnswer.
func (c Counts) orUndefined(x float64) float64 {
	if oneAnswer(c) {
		return math.NaN()
	}
	return x
}

// DPrimeSE returns the delta-method standard error of d′ for independent
// trials, √(H(1−H)/(n_s φ²(zH)) + F(1−F)/(n_n φ²(zF))). Trials of one request
// are not independent: it is for published tables that give no clusters.
// Source: Gourevitch and Galanter, A significance test for one parameter
// isosensitivity functions. Psychometrika 32 (1967), 25–33.
func (c Counts) DPrimeSE(k Correction) float64 {
	h, f := c.HitRate(k), c.FalseAlarmRate(k)
	return math.Sqrt(h*(1-h)/(c.Refusals()*sq(phi(z(h)))) + f*(1-f)/(c.Compliances()*sq(phi(z(f)))))
}

// z is the inverse of the standard normal distribution; NaN outside [0, 1].
func z(p float64) float64 {
	if !(p >= 0 && p <= 1) {
		return math.NaN()
	}
	return distuv.UnitNormal.Quantile(p)
}

func phi(x float64) float64           { return distuv.UnitNormal.Prob(x) }
func cdf(x float64) float64           { return distuv.UnitNormal.CDF(x) }
func sq(x float64) float64            { return x * x }
func clamp(x, lo, hi float64) float64 { return math.Min(math.Max(x, lo), hi) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}
