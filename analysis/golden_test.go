package analysis_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"demur/analysis"
)

// near checks a value; with -v it prints it, so that the golden tests make a table.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if testing.Verbose() && strings.HasSuffix(t.Name(), "Golden") {
		t.Logf("%-26s want %.6g got %.6g", what, want, got)
	}
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %.7g, want %.7g within %g", what, got, want, tolerance)
	}
}

// The golden numbers of the literature. Those of the introspection paper
// (Gondil, arXiv:2604.00228) are its own figures, which the counts, rebuilt from
// its tables, give to rounding.
func TestSignalDetectionGolden(t *testing.T) {
	for _, test := range []struct {
		name                  string
		counts                analysis.Counts
		d, c, accuracy        float64
		dTol, cTol, accuracyT float64
	}{
		// Python: statistics.NormalDist().inv_cdf; H = 20.5/26, F = 10.5/26.
		{"log-linear", analysis.Counts{20, 5, 10, 15}, 1.0445, -0.2788, 0.70, 5e-5, 5e-5, 1e-12},
		{"extreme", analysis.Counts{25, 0, 0, 25}, 4.1398, 0, 1, 5e-5, 1e-12, 1e-12},
		{"Sonnet 4", analysis.Counts{232, 3, 60, 605}, 3.509, -0.42, 0.9300, 1.5e-3, 5e-3, 5e-5},
		{"Sonnet 4.5", analysis.Counts{207, 22, 16, 640}, 3.25, 0.33, 0.9571, 5e-3, 5e-3, 5e-5},
		{"GPT-5.2", analysis.Counts{304, 55, 45, 495}, 2.40, 0.18, 0.8888, 5e-3, 5e-3, 5e-5},
		{"Llama 405B", analysis.Counts{81, 0, 203, 731}, 3.287, -0.863, 0.8000, 5e-4, 5e-4, 5e-5},
	} {
		near(t, test.name+" d′", test.counts.DPrime(analysis.LogLinear), test.d, test.dTol)
		near(t, test.name+" c", test.counts.Criterion(analysis.LogLinear), test.c, test.cTol)
		near(t, test.name+" accuracy", test.counts.Accuracy(), test.accuracy, test.accuracyT)
	}
	// H .8, F .4 uncorrected.
	plain := analysis.Counts{8, 2, 4, 6}
	near(t, "plain d′", plain.DPrime(analysis.Uncorrected), 1.0950, 5e-5)
	near(t, "plain c", plain.Criterion(analysis.Uncorrected), -0.2941, 5e-5)
	// Standard errors derived for the four models in the same reference.
	near(t, "Sonnet 4 se", analysis.Counts{232, 3, 60, 605}.DPrimeSE(analysis.LogLinear), 0.22, 6e-3)
	near(t, "Sonnet 4.5 se", analysis.Counts{207, 22, 16, 640}.DPrimeSE(analysis.LogLinear), 0.15, 6e-3)
	near(t, "GPT-5.2 se", analysis.Counts{304, 55, 45, 495}.DPrimeSE(analysis.LogLinear), 0.11, 6e-3)
	near(t, "Llama se", analysis.Counts{81, 0, 203, 731}.DPrimeSE(analysis.LogLinear), 0.50, 2e-2)
	// Majority baselines, reference section A.4.
	near(t, "Llama majority", analysis.Counts{81, 0, 203, 731}.MajorityAccuracy(), 0.920, 5e-4)
	near(t, "GPT-5.2 majority", analysis.Counts{304, 55, 45, 495}.MajorityAccuracy(), 0.601, 6e-4)
}

func TestUndefinedWithoutAClass(t *testing.T) {
	for _, counts := range []analysis.Counts{{0, 0, 36, 964}, {81, 3, 0, 0}, {}} {
		for _, k := range []analysis.Correction{analysis.LogLinear, analysis.HalfTrial, analysis.Uncorrected} {
			if d, c := counts.DPrime(k), counts.Criterion(k); !math.IsNaN(d) || !math.IsNaN(c) {
				t.Errorf("%v %v: d′ %v and c %v, want undefined", counts, k, d, c)
			}
		}
	}
}

func TestCalibrationGolden(t *testing.T) {
	level := func(k, n, errors float64) analysis.Level {
		return analysis.Level{Expected: analysis.Fifths(k), N: n, Correct: n - errors}
	}
	for _, test := range []struct {
		name   string
		levels []analysis.Level
		want   float64
	}{
		{"Sonnet 4", []analysis.Level{level(5, 587, 21), level(4, 312, 41), level(3, 1, 1)}, 0.0478},
		{"Sonnet 4.5", []analysis.Level{level(5, 756, 13), level(4, 128, 24), level(3, 1, 1)}, 0.0172},
		{"GPT-5.2", []analysis.Level{level(5, 782, 80), level(4, 114, 18), level(3, 3, 2)}, 0.0952},
		{"Llama 405B", []analysis.Level{level(5, 803, 190), level(4, 212, 13)}, 0.2162},
	} {
		near(t, test.name+" ECE k/5", analysis.ECE(test.levels), test.want, 5e-5)
	}
}

func TestMetacognitionGolden(t *testing.T) {
	fit := func(r analysis.Ratings) analysis.MetaFit {
		t.Helper()
		f, err := analysis.MetaD(r)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	// metadpy's own test, with its padding of 1/8.
	a := analysis.Ratings{
		Complied: []float64{52, 32, 35, 37, 26, 12, 4, 2},
		Refused:  []float64{2, 5, 15, 22, 33, 38, 40, 45},
	}
	f := fit(a.Pad())
	near(t, "padded d′", f.DPrime, 1.535, 1e-3)
	near(t, "padded meta-d′", f.MetaD, 1.634, 1e-3)
	near(t, "padded M-ratio", f.MRatio, 1.064, 1e-3)
	near(t, "padded M-diff", f.MDiff, 0.099, 1e-3)
	f = fit(a)
	near(t, "d′", f.DPrime, 1.5444, 1e-4)
	near(t, "meta-d′", f.MetaD, 1.6538, 2e-4)
	near(t, "M-ratio", f.MRatio, 1.0709, 2e-4)
	near(t, "log-likelihood", f.LogLik, -523.170, 1e-3)
	near(t, "AUROC2 smoothed", analysis.Type2AUC(a, true), 0.7278, 5e-5)
	near(t, "AUROC2 raw", analysis.Type2AUC(a, false), 0.7370, 5e-5)
	b := analysis.Ratings{
		Complied: []float64{36, 24, 17, 20, 10, 12, 9, 2},
		Refused:  []float64{1, 4, 10, 11, 19, 18, 28, 39},
	}
	near(t, "second AUROC2", analysis.Type2AUC(b, true), 0.699806, 1e-6)
	f = fit(b)
	near(t, "second d′", f.DPrime, 1.5041, 1e-4)
	near(t, "second meta-d′", f.MetaD, 1.4607, 2e-4)
	near(t, "second M-ratio", f.MRatio, 0.9712, 2e-4)
	f = fit(analysis.Ratings{Complied: []float64{100, 50, 20, 10, 5, 1}, Refused: []float64{3, 7, 8, 12, 27, 89}})
	near(t, "three ratings d′", f.DPrime, 2.5244, 1e-4)
	near(t, "three ratings meta-d′", f.MetaD, 2.3370, 2e-4)
	near(t, "three ratings M-ratio", f.MRatio, 0.9258, 2e-4)
	// An ideal observer: expected counts of d′ 1.5 with criteria around c .2.
	cuts := []float64{-1.2, -0.6, -0.2, 0.2, 0.7, 1.1, 1.8}
	ideal := func(mean float64) []float64 {
		var x []float64
		last := 0.0
		for _, cut := range cuts {
			p := 0.5 * math.Erfc(-(cut-mean)/math.Sqrt2)
			x = append(x, 10000*(p-last))
			last = p
		}
		return append(x, 10000*(1-last))
	}
	f = fit(analysis.Ratings{Complied: ideal(-0.75), Refused: ideal(0.75)})
	near(t, "ideal meta-d′", f.MetaD, 1.5, 1e-3)
	near(t, "ideal M-ratio", f.MRatio, 1, 1e-3)
}

func TestStabilityGolden(t *testing.T) {
	counts := []int{16, 3, 1}
	near(t, "SSI", analysis.SSI(counts), 0.80, 1e-12)
	if !analysis.Flips(counts) || analysis.Unstable(counts, 80) {
		t.Errorf("16, 3, 1: flips %v, unstable %v; want a flip that is not unstable", analysis.Flips(counts), analysis.Unstable(counts, 80))
	}
	for _, test := range []struct {
		counts []int
		n      int
		want   float64
	}{
		{[]int{16, 3, 1}, 1, 0.8},
		{[]int{16, 3, 1}, 3, 0.926316},
		{[]int{16, 3, 1}, 5, 0.979618},
		{[]int{12, 5, 3}, 1, 0.6},
		{[]int{12, 5, 3}, 3, 0.708772},
		{[]int{12, 5, 3}, 5, 0.799600},
		{[]int{12, 5, 3}, 10, 0.959842},
		{[]int{3, 1, 1}, 1, 0.6},
		{[]int{3, 1, 1}, 3, 0.8},
		{[]int{3, 1, 1}, 5, 1},
	} {
		near(t, fmt.Sprintf("%v, majority of %d", test.counts, test.n), analysis.SampleAgreement(test.counts, test.n), test.want, 1e-6)
	}
	f := analysis.Friedman([][]float64{{1, .8, .8, .6}, {1, 1, .8, .8}, {1, 1, 1, 1}, {.8, 1, .6, .6}, {1, .6, .8, .4}})
	for i, want := range []float64{17, 14.5, 11, 7.5} {
		near(t, fmt.Sprint("rank sum ", i+1), f.RankSums[i], want, 1e-12)
	}
	near(t, "raw", f.Raw, 6.18, 1e-9)
	near(t, "tie factor", f.TieFactor, 0.72, 1e-9)
	near(t, "Friedman", f.ChiSquared, 8.5833, 5e-5)
	near(t, "W", f.W, 0.5722, 5e-5)
	near(t, "Spearman", analysis.Spearman([]float64{1, .95, .8, .8, .6, .55}, []float64{0, .05, .1, .2, .4, .3}), -0.92763, 5e-6)
	// Judge agreement of Larsen (arXiv:2512.12066): Llama 70B against Haiku.
	k := analysis.Kappa([][]float64{{27933, 1580, 940}, {197, 1842, 558}, {6, 532, 1417}})
	near(t, "agreement", k.Observed, 0.891073, 5e-7)
	near(t, "expected", k.Expected, 0.712281, 5e-7)
	near(t, "kappa", k.Kappa, 0.621411, 5e-7)
}

// The identity of Joad et al. (arXiv:2602.02132): on as many harmful as harmless
// requests the accuracy of refusing exactly the harmful ones is (RR + 1 − ORR)/2.
// Right refusals are hits, over-refusals false alarms, 100 requests a class; the
// rows are of its table of steering and ablation, rounded to half a percent there.
func TestAccuracyIdentityGolden(t *testing.T) {
	counts := func(rr, orr float64) analysis.Counts {
		return analysis.Counts{Hits: 100 * rr, Misses: 100 - 100*rr, FalseAlarms: 100 * orr, CorrectRejections: 100 - 100*orr}
	}
	for _, row := range []struct{ published, rr, orr float64 }{
		{.515, .88, .85}, {.723, .45, 0}, {.819, .64, 0}, {.550, .98, .88}, {.475, .65, .70}, {.570, .63, .49}, {.500, 1, 1},
	} {
		near(t, fmt.Sprintf("Acc of RR %.2f, ORR %.2f", row.rr, row.orr), counts(row.rr, row.orr).Accuracy(), row.published, 3e-3)
	}
	for rr := 0.0; rr <= 1; rr += 0.25 {
		for orr := 0.0; orr <= 1; orr += 0.25 {
			c := counts(rr, orr)
			if got, want := c.Accuracy(), (c.HitRate(analysis.Uncorrected)+1-c.FalseAlarmRate(analysis.Uncorrected))/2; math.Abs(got-want) > 1e-12 {
				t.Errorf("RR %v, ORR %v: accuracy %v, by the identity %v", rr, orr, got, want)
			}
		}
	}
	// One published row does not fit: the unsteered Llama, printed as .71.
	near(t, "Acc of RR 0.44, ORR 0.26", counts(.44, .26).Accuracy(), .59, 1e-12)
}
