package analysis

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// A clusterRate is a ratio of totals, Σa/Σb, with what an interval needs.
type clusterRate struct {
	rate      float64
	variance  float64 // of the rate, clusters as units; NaN if undefined
	clusters  int     // with b > 0
	total     float64 // Σb
	effective float64 // (Σb)²/Σb², the number of equal clusters worth as much
}

// rateOf computes the rate of num over den, linear functions of a row, with the
// linearised cluster variance. Source: Cochran, Sampling Techniques, 3rd ed.
// (1977), section 9A.
func rateOf(c *Clusters, num, den func(row []float64) float64) clusterRate {
	c.seal()
	row := make([]float64, c.k)
	total := c.Total()
	a, b := num(total), den(total)
	r := clusterRate{rate: ratio(a, b), total: b}
	var s2, b2 float64
	for i := range c.n {
		if !c.row(i, row) {
			continue
		}
		x, y := num(row), den(row)
		if y > 0 {
			r.clusters++
		}
		s2 += sq(x - r.rate*y)
		b2 += sq(y)
	}
	r.effective = ratio(b*b, b2)
	m := float64(r.clusters)
	if m > 1 {
		r.variance = s2 / (b * b) * m / (m - 1)
	} else {
		r.variance = math.NaN()
	}
	return r
}

// sampleSize is the number of independent trials that would give the same
// variance. Where all clusters agree the variance is 0 and says nothing: then
// each cluster counts as one trial.
func (r clusterRate) sampleSize() float64 {
	least := r.effective
	if !(r.variance > 0) {
		return least
	}
	return math.Min(r.rate*(1-r.rate)/r.variance, math.Max(r.total, least))
}

// wilson returns the score interval of a clustered rate: Wilson's with the
// effective sample size and a t quantile with (clusters − 1) degrees of freedom.
//
// Source: Wilson, Probable inference, the law of succession, and statistical
// inference. JASA 22 (1927), 209–212; effective sample size and t as in Korn and
// Graubard, Confidence intervals for proportions with small expected number of
// positive counts estimated from survey data. Survey Methodology 24 (1998),
// 193–201.
func (r clusterRate) wilson(level float64) Interval {
	if math.IsNaN(r.rate) || r.clusters < 2 {
		return Interval{math.NaN(), math.NaN(), 0}
	}
	// With few clusters the observed variance is often too small, for want of the
	// rare cluster: one more with an evenly distributed rate (variance 1/12) makes
	// up for it, though never so far that a cluster counts for less than one trial.
	n := r.sampleSize()
	if r.variance > 0 {
		n = math.Max(r.rate*(1-r.rate)/(r.variance+1.0/12/sq(float64(r.clusters))), math.Min(n, r.effective))
	}
	t := tQuantile((1+level)/2, float64(r.clusters-1))
	p := clamp(r.rate, 0, 1)
	middle := (p + t*t/(2*n)) / (1 + t*t/n)
	half := t / (1 + t*t/n) * math.Sqrt(p*(1-p)/n+t*t/(4*n*n))
	return Interval{math.Max(0, middle-half), math.Min(1, middle+half), 0}
}

func tQuantile(p, df float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: math.Max(df, 1)}.Quantile(p)
}

// zInterval returns the interval of d′ (sign −1) or of the criterion (sign +1):
// delta method on the two z-scores, with the cluster variance of both rates and
// their covariance over requests, and a t quantile with one less degree of
// freedom than the smaller class has requests. Rates at 0 or 1 get the binomial
// variance of the corrected rate with the effective sample size, because the
// observed variance is then 0.
//
// Source: Gourevitch and Galanter (1967) for the delta method; the linearised
// cluster variance as in rateOf.
func zInterval(rows *Clusters, k Correction, sign, level float64) Interval {
	undefined := Interval{math.NaN(), math.NaN(), 0}
	h := rateOf(rows, hits, signals)
	f := rateOf(rows, falseAlarms, noises)
	if math.IsNaN(h.rate) || math.IsNaN(f.rate) || h.clusters < 2 || f.clusters < 2 {
		return undefined
	}
	c := tally(rows.Total())
	zh, zf := z(c.HitRate(k)), z(c.FalseAlarmRate(k))
	if math.IsInf(zh, 0) || math.IsInf(zf, 0) {
		return undefined
	}
	vh, vf := h.zVariance(c.HitRate(k)), f.zVariance(c.FalseAlarmRate(k))
	// Requests that do both tie the two rates together.
	var cross float64
	row := make([]float64, rows.k)
	for i := range rows.n {
		if rows.row(i, row) {
			cross += (hits(row) - h.rate*signals(row)) * (falseAlarms(row) - f.rate*noises(row))
		}
	}
	cov := cross / (h.total * f.total) / (phi(zh) * phi(zf))
	cov = clamp(cov, -math.Sqrt(vh*vf), math.Sqrt(vh*vf))
	df := sq(vh+vf) / (vh*vh/(h.effective-1) + vf*vf/(f.effective-1))
	t := tQuantile((1+level)/2, df)
	value, half := zh-zf, t*math.Sqrt(vh+vf-2*cov)
	if sign > 0 {
		value, half = -(zh+zf)/2, t*math.Sqrt(vh+vf+2*cov)/2
	}
	return Interval{value - half, value + half, 0}
}

// zVariance is the variance of z of the corrected rate p. The correction adds one
// trial to the effective sample and shrinks the rate by N/(N+1), which matters
// where trials are few.
func (r clusterRate) zVariance(p float64) float64 {
	return p * (1 - p) / (r.sampleSize() + 1) * sq(r.total/(r.total+1)) / sq(phi(z(p)))
}

// eceInterval returns the calibration error freed of its upward bias, and an
// interval for the error of the population: each level's gap is unfolded by its
// cluster standard error, and the sum of signed gaps gives the spread. The lower
// limit goes down from the unfolded value and the upper one up from the plug-in
// value: unfolding takes away too much from some middling gaps, and simulation
// (see TestCoverage) shows that neither value alone carries both limits.
func eceInterval(rows *Clusters, claim func(k float64) float64, level float64) (unbiased float64, in Interval) {
	rows.seal()
	total := levels(rows.Total(), claim)
	var n float64
	for _, l := range total {
		n += l.N
	}
	if n == 0 {
		return math.NaN(), Interval{math.NaN(), math.NaN(), 0}
	}
	var sign, gap [5]float64
	var plugIn float64
	for k, l := range total {
		gap[k] = (l.Correct - l.N*l.Expected) / n
		sign[k] = 1
		if gap[k] < 0 {
			sign[k] = -1
		}
		plugIn += math.Abs(gap[k])
	}
	row := make([]float64, rows.k)
	var each [5]float64
	var all float64
	clusters := 0
	for i := range rows.n {
		if !rows.row(i, row) {
			continue
		}
		ls := levels(row, claim)
		var m, signed float64
		for _, l := range ls {
			m += l.N
		}
		if m == 0 {
			continue
		}
		clusters++
		for k, l := range ls {
			residual := (l.Correct - l.N*l.Expected - gap[k]*m) / n
			each[k] += residual * residual
			signed += sign[k] * residual
		}
		all += signed * signed
	}
	if clusters < 2 {
		return math.NaN(), Interval{math.NaN(), math.NaN(), 0}
	}
	m := float64(clusters)
	for k := range gap {
		unbiased += unfold(math.Abs(gap[k]), math.Sqrt(each[k]*m/(m-1)))
	}
	half := tQuantile((1+level)/2, m-1) * math.Sqrt(all*m/(m-1))
	return unbiased, Interval{math.Max(0, unbiased-half), math.Min(1, plugIn+half), 0}
}

// meanInterval returns the interval of a mean over prompts (Σnum/Σden) that lies
// in [floor, 1], such as stability: the score interval of a rate after mapping
// [floor, 1] to [0, 1], so that it stays in range and is not empty where every
// prompt is perfectly stable.
// most is the number of trials behind it, which bounds the effective sample size.
func meanInterval(rows *Clusters, num, den func(t []float64) float64, floor, most, level float64) Interval {
	mapped := func(t []float64) float64 { return (num(t) - floor*den(t)) / (1 - floor) }
	r := rateOf(rows, mapped, den)
	r.total = math.Max(r.total, most)
	in := r.wilson(level)
	return Interval{floor + in.Lo*(1-floor), floor + in.Hi*(1-floor), 0}
}

// fewRequests warns where d′ and c rest on so few requests of one class that
// their intervals were seen to cover a little less or more than they say.
func fewRequests(rows *Clusters) []string {
	var warnings []string
	for _, class := range []struct {
		name string
		of   func(t []float64) float64
	}{{"refusals", signals}, {"compliances", noises}} {
		r := rateOf(rows, class.of, class.of)
		if n := r.effective; n > 0 && n < 10 {
			warnings = append(warnings, fmt.Sprintf("the %s are worth about %.0f requests: the interval is rough", class.name, n))
		}
	}
	return warnings
}
