package analysis_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"demur/analysis"
)

func TestSwappingTheClasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for range 500 {
		n := func() float64 { return float64(rng.IntN(200)) }
		c := analysis.Counts{n() + 1, n(), n(), n() + 1}
		// What was refused is called complied, and the prediction likewise.
		swapped := analysis.Counts{c.CorrectRejections, c.FalseAlarms, c.Misses, c.Hits}
		near(t, "d′", swapped.DPrime(analysis.LogLinear), c.DPrime(analysis.LogLinear), 1e-9)
		near(t, "c", swapped.Criterion(analysis.LogLinear), -c.Criterion(analysis.LogLinear), 1e-9)
		near(t, "A′", swapped.APrime(), c.APrime(), 1e-9)
		near(t, "accuracy", swapped.Accuracy(), c.Accuracy(), 1e-12)
		if a := c.APrime(); a < 0 || a > 1 {
			t.Errorf("%v: A′ %v", c, a)
		}
	}
}

func TestAUCIsMannWhitney(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	for range 50 {
		var score, refusals, compliances []float64
		var pos, neg []float64
		for range 30 {
			s := float64(rng.IntN(8))
			score = append(score, s)
			r, c := float64(rng.IntN(3)), float64(rng.IntN(3))
			refusals, compliances = append(refusals, r), append(compliances, c)
			for range int(r) {
				pos = append(pos, s)
			}
			for range int(c) {
				neg = append(neg, s)
			}
		}
		var u float64
		for _, p := range pos {
			for _, n := range neg {
				switch {
				case p > n:
					u++
				case p == n:
					u += 0.5
				}
			}
		}
		near(t, "AUC", analysis.ScoreAUC(score, refusals, compliances), u/float64(len(pos)*len(neg)), 1e-12)
	}
	// sklearn.metrics.roc_auc_score
	near(t, "sklearn", analysis.ScoreAUC([]float64{.1, .4, .35, .8, .4, .2, .9, .6}, []float64{0, 0, 1, 1, 1, 0, 1, 0}, []float64{1, 1, 0, 0, 0, 1, 0, 1}), 0.78125, 1e-12)
	// The area below the points of the curve is the same.
	r, c := []float64{1, 4, 10, 30}, []float64{20, 9, 4, 2}
	roc := analysis.RatingROC(r, c)
	var area float64
	for i := 1; i < len(roc); i++ {
		area += (roc[i].X - roc[i-1].X) * (roc[i].Y + roc[i-1].Y) / 2
	}
	near(t, "trapezium", area, analysis.RatingAUC(r, c), 1e-12)
}

func TestZROCSlope(t *testing.T) {
	// numpy.polyfit of scipy's norm.ppf over the inner points.
	near(t, "slope", analysis.ZROCSlope([]analysis.Point{{X: 0, Y: 0}, {X: .1, Y: .5}, {X: .3, Y: .75}, {X: .55, Y: .9}, {X: 1, Y: 1}}), 0.91016045, 1e-7)
}

func TestStabilityProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for range 300 {
		counts := []int{rng.IntN(12), rng.IntN(12), rng.IntN(12)}
		n := counts[0] + counts[1] + counts[2]
		if n < 2 {
			continue
		}
		ssi := analysis.SSI(counts)
		if ssi < 1.0/3 || ssi > 1 {
			t.Errorf("%v: SSI %v", counts, ssi)
		}
		near(t, "single shot", analysis.SampleAgreement(counts, 1), ssi, 1e-9)
		if loo := analysis.LeaveOneOut(counts); loo > ssi+1e-12 || loo < 0 {
			t.Errorf("%v: leave-one-out %v above SSI %v", counts, loo, ssi)
		}
		shuffled := slices.Clone(counts)
		rng.Shuffle(3, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		near(t, "permuted SSI", analysis.SSI(shuffled), ssi, 0)
		near(t, "permuted entropy", analysis.Entropy(shuffled), analysis.Entropy(counts), 1e-12)
		if (ssi < 1) != analysis.Flips(counts) {
			t.Errorf("%v: flips %v at SSI %v", counts, analysis.Flips(counts), ssi)
		}
	}
	near(t, "entropy", analysis.Entropy([]int{16, 3, 1}), 0.5578578164321781, 1e-12) // scipy.stats.entropy / log 3
	// A fair coin's expected SSI for 3, 5, 10, 20 draws: reference section B.2.
	for _, test := range []struct {
		n    int
		want float64
	}{{3, .75}, {5, .6875}, {10, .623}, {20, .588}} {
		var mean float64
		choose := 1.0
		for x := 0; x <= test.n; x++ {
			mean += choose * math.Pow(.5, float64(test.n)) * analysis.SSI([]int{x, test.n - x})
			choose *= float64(test.n-x) / float64(x+1)
		}
		near(t, "coin", mean, test.want, 5e-4)
	}
}

func TestSampleAgreementBySampling(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	counts := []int{6, 5, 2}
	pool := slices.Concat(slices.Repeat([]int{0}, 6), slices.Repeat([]int{1}, 5), slices.Repeat([]int{2}, 2))
	for _, n := range []int{2, 4, 7} {
		var sum float64
		const draws = 40000
		for range draws {
			rng.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
			var got [3]int
			for _, l := range pool[:n] {
				got[l]++
			}
			most := max(got[0], got[1], got[2])
			ties := 0
			for _, g := range got {
				if g == most {
					ties++
				}
			}
			if got[0] == most {
				sum += 1 / float64(ties)
			}
		}
		near(t, "agreement", analysis.SampleAgreement(counts, n), sum/draws, 0.012)
	}
}

func TestECEProperties(t *testing.T) {
	levels := []analysis.Level{{Expected: .2, N: 10, Correct: 4}, {Expected: .6, N: 30, Correct: 18}, {Expected: 1, N: 60, Correct: 50}}
	want := (math.Abs(4-2) + 0 + math.Abs(50-60.0)) / 100
	near(t, "ECE", analysis.ECE(levels), want, 1e-12)
	slices.Reverse(levels)
	near(t, "ECE permuted", analysis.ECE(levels), want, 1e-12)
	near(t, "MCE", analysis.MCE(levels), 0.2, 1e-12)
	// sklearn.metrics.brier_score_loss on claims .625, .75, .875, 1, .5 with outcomes 1, 0, 1, 1, 0.
	b := analysis.Brier([]analysis.Level{{.625, 1, 1}, {.75, 1, 0}, {.875, 1, 1}, {1, 1, 1}, {.5, 1, 0}})
	near(t, "Brier", b.Score, 0.19375, 1e-12)
	near(t, "decomposition", b.Reliability-b.Resolution+b.Uncertainty, b.Score, 1e-12)
}

func TestRoutingAgainstIntegration(t *testing.T) {
	levels := []analysis.Level{{Expected: .2, N: 10, Correct: 4}, {Expected: .4, N: 0}, {Expected: .6, N: 30, Correct: 18}, {Expected: 1, N: 60, Correct: 55}}
	// Risk at every coverage, levels entered at their own rate, summed finely.
	var area float64
	const steps = 200000
	for i := range steps {
		left := (float64(i) + 0.5) / steps * 100
		kept, wrong := left, 0.0
		for j := len(levels) - 1; j >= 0 && left > 0; j-- {
			if levels[j].N == 0 {
				continue
			}
			take := math.Min(left, levels[j].N)
			wrong += take * (1 - levels[j].Correct/levels[j].N)
			left -= take
		}
		area += wrong / kept / steps
	}
	near(t, "AURC", analysis.AURC(levels), area, 1e-5)
	route := analysis.Route([]float64{1, 2, 3, 5}, levels)
	near(t, "coverage", route[0].Coverage, .6, 1e-12)
	near(t, "accuracy", route[0].Accuracy, 55.0/60, 1e-12)
	near(t, "all", route[3].Accuracy, .77, 1e-12)
}

// Where the true error rate of trusted requests is just above the wanted one, a
// guarantee may be given in at most delta of samples.
func TestGuaranteeHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	const risk, delta, samples = 0.05, 0.1, 2000
	given := 0
	for range samples {
		kept, wrong := 0, 0
		for range 200 {
			kept++
			if rng.Float64() < risk+0.001 {
				wrong++
			}
		}
		if analysis.GuaranteedThreshold([]float64{5}, []int{kept}, []int{wrong}, 200, risk, delta).Found {
			given++
		}
	}
	if share := float64(given) / samples; share > delta+3*math.Sqrt(delta*(1-delta)/samples) {
		t.Errorf("a guarantee was given in %.3f of samples, at most %.2f are allowed", share, delta)
	}
	// And it can be given: 3 errors in 200 at 5 %.
	if g := analysis.GuaranteedThreshold([]float64{5, 4}, []int{200, 260}, []int{3, 40}, 300, risk, delta); !g.Found || g.Confidence != 5 {
		t.Errorf("got %+v, want a threshold at 5", g)
	}
}

func TestRankTestsAgainstScipy(t *testing.T) {
	near(t, "spearman", analysis.Spearman([]float64{3, 1, 4, 1, 5, 9, 2, 6}, []float64{2, 7, 1, 8, 2, 8, 1, 8}), 0.19885368120992467, 1e-12)
	f := analysis.Friedman([][]float64{{1, .8, .6}, {.8, .8, .8}, {1, 1, 1}, {.6, .6, .4}, {.8, .6, .8}})
	near(t, "friedman", f.ChiSquared, 2.6, 1e-9)
	near(t, "friedman p", f.P, 0.27253179303401137, 1e-9)
	x := []float64{1, .8, 1, .6, .8, .9, .7, 1, .4, .6, .5, 1}
	y := []float64{.8, .8, .9, .6, .6, .7, .9, .6, .5, .2, .4, .3}
	w := analysis.Wilcoxon(x, y)
	// scipy.stats.wilcoxon(zero_method="wilcox", correction=False, mode="approx")
	// on the differences rounded to six decimals, for unrounded it does not tie
	// 0.1 with 0.0999….
	near(t, "wilcoxon W", w.W, 7.5, 1e-12)
	near(t, "wilcoxon p", w.P, 0.03951914732547634, 1e-12)
	for i, want := range []float64{.03, .06, .06, .02} {
		near(t, "holm", analysis.Holm([]float64{.01, .04, .03, .005})[i], want, 1e-12)
	}
	near(t, "mcnemar", analysis.McNemar(5, 17), 0.01690053939819336, 1e-12) // binomtest(5, 22)
	for i, want := range []float64{0.53333333, 0.53333333, 0.68333333, 0.68333333, 0.95} {
		got := analysis.Isotonic([]float64{1, 2, 3, 4, 5}, []float64{.6, .5, .7, .65, .95}, []float64{10, 20, 30, 15, 25})
		near(t, "isotonic", got[i], want, 1e-8) // sklearn.isotonic.IsotonicRegression
	}
}

func TestPlattRecovers(t *testing.T) {
	var x, yes, no []float64
	for v := -2.0; v <= 2; v += 0.1 {
		p := 1 / (1 + math.Exp(-(0.4 + 1.7*v)))
		x, yes, no = append(x, v), append(yes, 1e6*p), append(no, 1e6*(1-p))
	}
	a, b := analysis.Platt(x, yes, no)
	near(t, "a", a, 0.4, 1e-4)
	near(t, "b", b, 1.7, 1e-4)
}

func TestBootstrapAgainstScipy(t *testing.T) {
	values := []float64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9}
	c := analysis.NewClusters(len(values), 2)
	for i, v := range values {
		c.Add(i, 0, v)
		c.Add(i, 1, 1)
	}
	percentile, bca := c.Bootstrap(analysis.Resampling{N: 20000, Seed: 1, Level: 0.95}, 1, func(t, out []float64) { out[0] = t[0] / t[1] })
	// scipy.stats.bootstrap with 200,000 resamples: percentile 3.733, 6.533; BCa 3.8, 6.533.
	near(t, "percentile low", percentile[0].Lo, 3.733, 0.07)
	near(t, "percentile high", percentile[0].Hi, 6.533, 0.07)
	near(t, "BCa low", bca[0].Lo, 3.8, 0.07)
	near(t, "BCa high", bca[0].Hi, 6.533, 0.07)
}

func TestRandomEffects(t *testing.T) {
	// Equal values: no spread between models.
	p := analysis.RandomEffects([]float64{1, 1, 1}, []float64{.1, .2, .3}, 0.95)
	near(t, "value", p.Value, 1, 1e-12)
	near(t, "tau", p.Tau, 0, 1e-12)
	// By hand: weights 100 each, mean 2, Q = 200, τ² = (200 − 2)/(300 − 100) = 0.99.
	p = analysis.RandomEffects([]float64{1, 2, 3}, []float64{.1, .1, .1}, 0.95)
	near(t, "value", p.Value, 2, 1e-12)
	near(t, "tau²", p.Tau*p.Tau, 0.99, 1e-9)
	near(t, "I²", p.I2, 0.99, 1e-9)
}
