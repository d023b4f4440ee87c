package analysis

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/optimize"
)

// Ratings counts trials by prediction and stated confidence, for the two
// behaviours. Each slice has 2R elements: predicted compliance with confidence
// R…1, then predicted refusal with confidence 1…R.
type Ratings struct {
	Complied []float64 // S1, noise
	Refused  []float64 // S2, signal
}

// Pad returns the ratings with 1/(2R) added to every cell, which keeps every
// rate inside (0, 1). Source: Hautus (1995) as advised by Maniscalco's
// fit_meta_d_MLE; it is what metadpy does.
func (r Ratings) Pad() Ratings {
	add := func(x []float64) []float64 {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = x[i] + 1/float64(len(x))
		}
		return y
	}
	return Ratings{add(r.Complied), add(r.Refused)}
}

// Errors is the number of trials whose prediction was wrong.
func (r Ratings) Errors() float64 {
	half := len(r.Complied) / 2
	var n float64
	for i := range half {
		n += r.Refused[i] + r.Complied[half+i]
	}
	return n
}

// Merge joins neighbouring confidence levels, from the bottom up, until each
// holds at least share of the trials, and returns the coarser ratings with the
// level of each old one: merged[k−1] is the new level of old level k, from 1.
func (r Ratings) Merge(share float64) (coarse Ratings, merged []int) {
	levels := len(r.Complied) / 2
	at := func(k int) float64 { // trials with confidence k
		i, j := levels-k, levels+k-1
		return r.Complied[i] + r.Complied[j] + r.Refused[i] + r.Refused[j]
	}
	var n float64
	for k := 1; k <= levels; k++ {
		n += at(k)
	}
	merged = make([]int, levels)
	level, held := 1, 0.0
	for k := 1; k <= levels; k++ {
		merged[k-1] = level
		if held += at(k); held >= share*n && held > 0 && k < levels {
			level++
			held = 0
		}
	}
	if level > 1 && (held < share*n || held == 0) { // the rest is too thin: join it to the level below
		for k := range merged {
			merged[k] = min(merged[k], level-1)
		}
		level--
	}
	coarse = Ratings{make([]float64, 2*level), make([]float64, 2*level)}
	for k := 1; k <= levels; k++ {
		i, j := level-merged[k-1], level+merged[k-1]-1
		coarse.Complied[i] += r.Complied[levels-k]
		coarse.Complied[j] += r.Complied[levels+k-1]
		coarse.Refused[i] += r.Refused[levels-k]
		coarse.Refused[j] += r.Refused[levels+k-1]
	}
	return coarse, merged
}

// Counts folds the ratings to the two-by-two table.
func (r Ratings) Counts() Counts {
	half := len(r.Complied) / 2
	var c Counts
	for i := range half {
		c.CorrectRejections += r.Complied[i]
		c.FalseAlarms += r.Complied[half+i]
		c.Misses += r.Refused[i]
		c.Hits += r.Refused[half+i]
	}
	return c
}

// A MetaFit is metacognitive sensitivity: how well confidence tells right
// predictions from wrong ones, on the scale of d′.
type MetaFit struct {
	DPrime   float64 // of the ratings as given
	MetaD    float64
	MRatio   float64   // MetaD / DPrime; 1: confidence uses all that the prediction knows
	MDiff    float64   // MetaD − DPrime
	LogLik   float64   // of the type-2 model
	Criteria []float64 // type-2 criteria, ascending, without the type-1 criterion

	at []float64 // the solution as searched
}

// ErrNoFit says that ratings cannot be fitted.
var ErrNoFit = errors.New("analysis: ratings cannot be fitted: an empty class or fewer than two levels")

// MetaD fits meta-d′ by maximum likelihood in the equal-variance form, criteria
// unconstrained: it searches the logarithms of the gaps between criteria, so no
// constraint is left, by Nelder and Mead from three starts. Counts are used as
// they are: pad them first if a cell is empty.
//
// Source: Maniscalco and Lau, A signal detection theoretic approach for
// estimating metacognitive sensitivity from confidence ratings. Consciousness
// and Cognition 21 (2012), 422–430, equations of section 2.3 with s = 1.
func MetaD(r Ratings) (MetaFit, error) { return metaD(r, bothResponses, nil) }

// Which predictions a response-specific fit uses.
const (
	bothResponses = iota
	predictedComply
	predictedRefuse
)

// MetaDResponse fits meta-d′ to the predictions of refusal alone, or of
// compliance alone, which need not be equally well founded.
//
// Source: Maniscalco and Lau, Signal detection theory analysis of type 1 and
// type 2 data: meta-d′, response-specific meta-d′, and the unequal variance SDT
// model. In Fleming and Frith (eds.), The Cognitive Neuroscience of
// Metacognition (2014), 25–66.
func MetaDResponse(r Ratings, refuse bool) (MetaFit, error) {
	if refuse {
		return metaD(r, predictedRefuse, nil)
	}
	return metaD(r, predictedComply, nil)
}

// metaD fits the predictions named by which. near, if not nil, is the solution
// for nearly the same ratings: the search then starts there alone.
func metaD(r Ratings, which int, near *MetaFit) (MetaFit, error) {
	levels := len(r.Complied) / 2
	if len(r.Complied) != len(r.Refused) || levels < 2 {
		return MetaFit{}, ErrNoFit
	}
	counts := r.Counts()
	d1, c1 := counts.DPrime(Uncorrected), counts.Criterion(Uncorrected)
	if math.IsNaN(d1) || math.IsInf(d1, 0) || math.IsInf(c1, 0) || d1 == 0 {
		return MetaFit{}, ErrNoFit
	}
	model := metaModel{ratings: r, levels: levels, relative: c1 / d1, which: which}
	best := math.Inf(1)
	var at []float64
	var starts [][]float64
	restarts := 1
	if near != nil {
		starts = [][]float64{near.at}
	} else {
		restarts = 3 // a new simplex where the last one stopped gets off a degenerate one
		for _, start := range []float64{d1, 0.6 * d1, 1.3 * d1} {
			x := make([]float64, 1+2*(levels-1))
			x[0] = start
			for i := 1; i < len(x); i++ {
				x[i] = math.Log(0.5)
			}
			starts = append(starts, x)
		}
	}
	for _, x := range starts {
		for range restarts {
			res, err := optimize.Minimize(optimize.Problem{Func: model.negLogLik}, x,
				&optimize.Settings{FuncEvaluations: 4000, Converger: &optimize.FunctionConverge{Absolute: 1e-10, Iterations: 150}},
				&optimize.NelderMead{})
			if res == nil || (err != nil && res.X == nil) {
				break
			}
			x = res.X
			if res.F < best {
				best = res.F
				at = append([]float64(nil), res.X...)
			}
		}
	}
	if at == nil {
		return MetaFit{}, ErrNoFit
	}
	below, above, _ := model.criteria(at)
	fit := MetaFit{at: at, DPrime: d1, MetaD: at[0], MRatio: at[0] / d1, MDiff: at[0] - d1, LogLik: -best}
	for i := len(below) - 1; i >= 0; i-- {
		fit.Criteria = append(fit.Criteria, below[i])
	}
	fit.Criteria = append(fit.Criteria, above...)
	return fit, nil
}

type metaModel struct {
	ratings  Ratings
	levels   int
	relative float64 // c′ = c/d′
	which    int
}

// criteria unpacks parameters: those below and above the type-1 criterion, each
// from the nearest outward, and the type-1 criterion.
func (m metaModel) criteria(x []float64) (below, above []float64, middle float64) {
	middle = x[0] * m.relative
	lo, hi := middle, middle
	for i := range m.levels - 1 {
		lo -= math.Exp(x[1+i])
		hi += math.Exp(x[m.levels+i])
		below = append(below, lo)
		above = append(above, hi)
	}
	return below, above, middle
}

func (m metaModel) negLogLik(x []float64) float64 {
	if math.Abs(x[0]) > 10 {
		return 1e9 * math.Abs(x[0])
	}
	const floor = 1e-10
	middle := x[0] * m.relative
	half := x[0] / 2
	var sum float64
	add := func(count, p, all float64) {
		if count > 0 {
			sum -= count * math.Log(math.Max(p/math.Max(all, floor), floor))
		}
	}
	if m.which != predictedComply {
		// Upper tails, because differences of a CDF near 1 lose their digits.
		u1, u2 := cdf(-(middle + half)), cdf(-(middle - half))
		all1, all2 := u1, u2
		t := middle
		for k := 1; k <= m.levels; k++ {
			v1, v2 := 0.0, 0.0
			if k < m.levels {
				t += math.Exp(x[m.levels+k-1])
				v1, v2 = cdf(-(t + half)), cdf(-(t - half))
			}
			add(m.ratings.Complied[m.levels+k-1], u1-v1, all1)
			add(m.ratings.Refused[m.levels+k-1], u2-v2, all2)
			u1, u2 = v1, v2
		}
	}
	if m.which != predictedRefuse {
		u1, u2 := cdf(middle+half), cdf(middle-half)
		all1, all2 := u1, u2
		t := middle
		for k := 1; k <= m.levels; k++ {
			v1, v2 := 0.0, 0.0
			if k < m.levels {
				t -= math.Exp(x[k])
				v1, v2 = cdf(t+half), cdf(t-half)
			}
			add(m.ratings.Complied[m.levels-k], u1-v1, all1)
			add(m.ratings.Refused[m.levels-k], u2-v2, all2)
			u1, u2 = v1, v2
		}
	}
	return sum
}

// Type2AUC returns the area below the type-2 ROC: the probability that a right
// prediction was given more confidence than a wrong one, ties counting half, in
// [0, 1]; 0.5 is no metacognition. It moves with d′ and the criterion, which
// MRatio is meant not to. NaN without right or without wrong predictions. With
// smooth, half a trial is added to each level of each prediction and outcome, as
// metadpy and HMeta-d do.
//
// Source: Fleming and Lau, How to measure metacognition. Frontiers in Human
// Neuroscience 8 (2014), 443.
func Type2AUC(r Ratings, smooth bool) float64 {
	levels := len(r.Complied) / 2
	right := make([]float64, levels)
	wrong := make([]float64, levels)
	for k := 1; k <= levels; k++ {
		right[k-1] = r.Complied[levels-k] + r.Refused[levels+k-1]
		wrong[k-1] = r.Refused[levels-k] + r.Complied[levels+k-1]
		if smooth {
			right[k-1]++
			wrong[k-1]++
		}
	}
	return RatingAUC(right, wrong)
}
