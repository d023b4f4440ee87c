package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Ranks returns the ranks of x from 1, ties sharing their mean, and Σ(t³ − t)
// over the groups of t tied values.
func Ranks(x []float64) (ranks []float64, ties float64) {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	ranks = make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		mean := float64(i+j+1) / 2
		for _, k := range order[i:j] {
			ranks[k] = mean
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	return ranks, ties
}

// Spearman returns the rank correlation of x and y, ties at mean ranks, in
// [−1, 1]; NaN with fewer than three pairs or if either is constant. It panics
// if the lengths differ.
func Spearman(x, y []float64) float64 {
	if len(x) != len(y) {
		panic("analysis: x and y do not match")
	}
	if len(x) < 3 {
		return math.NaN()
	}
	rx, _ := Ranks(x)
	ry, _ := Ranks(y)
	return finite(stat.Correlation(rx, ry, nil))
}

func finite(x float64) float64 {
	if math.IsInf(x, 0) {
		return math.NaN()
	}
	return x
}

// A FriedmanTest compares k treatments over blocks by ranks within each block.
type FriedmanTest struct {
	Blocks, Treatments int
	RankSums           []float64
	Raw                float64 // without correction for ties
	TieFactor          float64 // in (0, 1]; 0 if every block is one tie
	ChiSquared         float64 // Raw / TieFactor; NaN if TieFactor is 0
	W                  float64 // Kendall's concordance, ChiSquared / (n (k − 1)), in [0, 1]
	P                  float64 // of ChiSquared with k − 1 degrees of freedom
}

// Friedman tests whether the columns of rows differ. All rows have the same
// length k; it panics otherwise. The tie correction matters: stability has so
// many ties that the uncorrected statistic can be five times too small.
//
// Source: Conover, Practical Nonparametric Statistics, 3rd ed. (1999), section
// 5.8; Kendall and Babington Smith, The problem of m rankings. Annals of
// Mathematical Statistics 10 (1939), 275–287.
func Friedman(rows [][]float64) FriedmanTest {
	t := FriedmanTest{Blocks: len(rows)}
	nan := math.NaN()
	if len(rows) == 0 || len(rows[0]) < 2 {
		t.Raw, t.TieFactor, t.ChiSquared, t.W, t.P = nan, nan, nan, nan, nan
		return t
	}
	k := len(rows[0])
	t.Treatments = k
	t.RankSums = make([]float64, k)
	var ties float64
	for _, row := range rows {
		if len(row) != k {
			panic("analysis: blocks of different lengths")
		}
		ranks, tied := Ranks(row)
		ties += tied
		for j, r := range ranks {
			t.RankSums[j] += r
		}
	}
	t.finish(ties)
	return t
}

func (t *FriedmanTest) finish(ties float64) {
	n, k := float64(t.Blocks), float64(t.Treatments)
	var squares float64
	for _, r := range t.RankSums {
		squares += r * r
	}
	t.Raw = 12/(n*k*(k+1))*squares - 3*n*(k+1)
	t.TieFactor = 1 - ties/(n*k*(k*k-1))
	if t.TieFactor <= 1e-12 {
		t.TieFactor = 0
		t.ChiSquared, t.W, t.P = math.NaN(), math.NaN(), math.NaN()
		return
	}
	t.ChiSquared = t.Raw / t.TieFactor
	t.W = t.ChiSquared / (n * (k - 1))
	t.P = distuv.ChiSquared{K: k - 1}.Survival(t.ChiSquared)
}

// A WilcoxonTest is the signed-rank test of paired differences.
type WilcoxonTest struct {
	N int     // pairs that differ
	W float64 // the smaller of the two sums of ranks
	Z float64 // normal deviate with tie correction, no continuity correction
	P float64 // two-sided, by the normal approximation; 1 if no pair differs
}

// Wilcoxon tests whether x and y differ over pairs. Equal pairs are dropped. It
// panics if the lengths differ. The approximation is fair from about ten
// differing pairs.
//
// Source: Conover (1999), section 5.7.
func Wilcoxon(x, y []float64) WilcoxonTest {
	if len(x) != len(y) {
		panic("analysis: x and y do not match")
	}
	var size []float64
	var sign []bool
	for i := range x {
		if d := x[i] - y[i]; math.Abs(d) > 1e-12 {
			size = append(size, math.Round(math.Abs(d)*1e12)/1e12) // equal differences tie in spite of rounding
			sign = append(sign, d > 0)
		}
	}
	t := WilcoxonTest{N: len(size), P: 1}
	if t.N == 0 {
		return t
	}
	ranks, ties := Ranks(size)
	var plus, minus float64
	for i, r := range ranks {
		if sign[i] {
			plus += r
		} else {
			minus += r
		}
	}
	n := float64(t.N)
	t.W = math.Min(plus, minus)
	sd := math.Sqrt(n*(n+1)*(2*n+1)/24 - ties/48)
	t.Z = (plus - n*(n+1)/4) / sd
	t.P = math.Min(1, 2*cdf(-math.Abs(t.Z)))
	return t
}

// Holm returns p-values adjusted for their number by Holm's step-down rule, in
// the order of p. Source: Holm, A simple sequentially rejective multiple test
// procedure. Scandinavian Journal of Statistics 6 (1979), 65–70.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	adjusted := make([]float64, len(p))
	var worst float64
	for i, k := range order {
		worst = math.Max(worst, math.Min(1, p[k]*float64(len(p)-i)))
		adjusted[k] = worst
	}
	return adjusted
}

// Bonferroni returns p-values times their number, at most 1.
func Bonferroni(p []float64) []float64 {
	adjusted := make([]float64, len(p))
	for i, x := range p {
		adjusted[i] = math.Min(1, x*float64(len(p)))
	}
	return adjusted
}

// McNemar returns the exact two-sided p-value for b pairs that changed one way
// and c that changed the other; 1 if none changed. Source: McNemar, Note on the
// sampling error of the difference between correlated proportions.
// Psychometrika 12 (1947), 153–157; exact form, binomial with 1/2.
func McNemar(b, c int) float64 {
	return math.Min(1, 2*binomialCDF(min(b, c), b+c, 0.5))
}
