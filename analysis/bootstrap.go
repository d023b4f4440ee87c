package analysis

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
)

// Clusters holds additive statistics: one row of k numbers per cluster, most of
// them 0. What is computed from their totals can be resampled over clusters at
// the cost of one pass over the rows, whatever the number of trials behind them.
type Clusters struct {
	n, k  int
	start []int32 // of each cluster's entries, once sealed
	dim   []uint16
	val   []float64
	added []entry // until sealed
}

// An entry is a number added to one statistic, at cluster·k + dim.
type entry struct {
	at int64
	v  float64
}

// NewClusters returns n empty rows of k statistics.
func NewClusters(n, k int) *Clusters {
	return &Clusters{n: n, k: k}
}

// Add adds v to statistic dim of a cluster. It panics after the first use of the
// rows.
func (c *Clusters) Add(cluster, dim int, v float64) {
	if cluster < 0 || cluster >= c.n || dim < 0 || dim >= c.k {
		panic("analysis: no such cluster or statistic")
	}
	if c.start != nil {
		panic("analysis: clusters are in use")
	}
	if v != 0 {
		c.added = append(c.added, entry{int64(cluster)*int64(c.k) + int64(dim), v})
	}
}

// seal sorts what was added into rows.
func (c *Clusters) seal() {
	if c.start != nil {
		return
	}
	// Stable, so that the order of additions, and with it the last bit of a sum,
	// is the caller's.
	slices.SortStableFunc(c.added, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	c.start = make([]int32, c.n+1)
	for i, e := range c.added {
		if i > 0 && c.added[i-1].at == e.at {
			c.val[len(c.val)-1] += e.v
			continue
		}
		c.dim = append(c.dim, uint16(e.at%int64(c.k)))
		c.val = append(c.val, e.v)
		c.start[e.at/int64(c.k)+1]++
	}
	for i := range c.n {
		c.start[i+1] += c.start[i]
	}
	c.added = nil
}

// Total returns the sums over all clusters.
func (c *Clusters) Total() []float64 {
	c.seal()
	total := make([]float64, c.k)
	for i, d := range c.dim {
		total[d] += c.val[i]
	}
	return total
}

// row writes a cluster's statistics to dense, of length k, and reports whether
// there are any.
func (c *Clusters) row(cluster int, dense []float64) bool {
	clear(dense)
	lo, hi := c.start[cluster], c.start[cluster+1]
	for i := lo; i < hi; i++ {
		dense[c.dim[i]] = c.val[i]
	}
	return hi > lo
}

// Resampling says how clusters are redrawn. Equal values give equal bytes, on
// any number of processors.
type Resampling struct {
	N     int     // resamples
	Seed  uint64  // resample b draws from the generator (Seed, b)
	Level float64 // of the intervals
}

// An Interval is a pair of limits, NaN where they are undefined, and the share
// of resamples in which the value itself was undefined.
type Interval struct {
	Lo, Hi    float64
	Undefined float64
}

// Bootstrap resamples clusters with replacement and returns, for each of the m
// values that f writes to out from the totals, its percentile and its BCa
// interval. The acceleration of BCa comes from leaving out one cluster at a time.
//
// Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), sections
// 13.3 and 14.3; clusters as the units: Davison and Hinkley, Bootstrap Methods
// and their Application (1997), section 3.8.
func (c *Clusters) Bootstrap(r Resampling, m int, f func(total, out []float64)) (percentile, bca []Interval) {
	job := &task{rows: c, m: m, eval: f}
	resample(c.n, []*task{job}, r)
	for i := range m {
		percentile = append(percentile, job.percentile(i, r.Level))
		bca = append(bca, job.bca(i, r.Level))
	}
	return percentile, bca
}

// A task is one thing to compute in every resample: m values from the totals of
// rows, or, where rows is nil, from the multiplicities of the clusters.
type task struct {
	rows     *Clusters
	m        int
	eval     func(total, out []float64)
	weighted func(w []uint16, out []float64)

	value      []float64   // on the data itself
	replicates [][]float64 // [value][resample]
	jackknife  [][]float64 // [value][left-out cluster or group]
}

// block is the number of resamples that share a pass over the rows: the rows are
// read from memory once for all of them.
const block = 8

// resample computes value, replicates and jackknife of every task. All tasks see
// the same resamples, so differences between their replicates are paired.
func resample(n int, tasks []*task, r Resampling) {
	ones := make([]uint16, n)
	for i := range ones {
		ones[i] = 1
	}
	for _, t := range tasks {
		t.value = make([]float64, t.m)
		t.replicates = make([][]float64, t.m)
		for i := range t.replicates {
			t.replicates[i] = make([]float64, r.N)
		}
		if t.rows != nil {
			t.rows.seal()
			t.eval(t.rows.Total(), t.value)
		} else {
			t.weighted(ones, t.value)
		}
	}
	parallel((r.N+block-1)/block, func(b int) {
		first := b * block
		count := min(block, r.N-first)
		var w [block][]uint16
		for j := range count {
			w[j] = make([]uint16, n)
			rng := rand.New(rand.NewPCG(r.Seed, uint64(first+j)))
			for range n {
				w[j][rng.IntN(n)]++
			}
		}
		// Interleaved, so that one entry meets its eight weights side by side.
		mixed := make([]float64, n*block)
		for j := range count {
			for i, x := range w[j] {
				mixed[i*block+j] = float64(x)
			}
		}
		sums := map[*Clusters][]float64{} // several tasks may share rows
		for _, t := range tasks {
			out := make([]float64, t.m)
			var totals []float64
			if t.rows != nil {
				var ok bool
				if totals, ok = sums[t.rows]; !ok {
					totals = t.rows.totals(mixed)
					sums[t.rows] = totals
				}
			}
			for j := range count {
				if t.rows != nil {
					t.eval(totals[j*t.rows.k:(j+1)*t.rows.k], out)
				} else {
					t.weighted(w[j], out)
				}
				for i, v := range out {
					t.replicates[i][first+j] = v
				}
			}
		}
	})
	parallel(len(tasks), func(i int) { tasks[i].leaveOut(n) })
}

// totals sums the rows under block sets of weights, mixed[cluster*block+j].
func (c *Clusters) totals(mixed []float64) []float64 {
	sums := make([]float64, c.k*block)
	for i := range c.n {
		lo, hi := c.start[i], c.start[i+1]
		if lo == hi {
			continue
		}
		w := (*[block]float64)(mixed[i*block:])
		for e := lo; e < hi; e++ {
			v := c.val[e]
			s := (*[block]float64)(sums[int(c.dim[e])*block:])
			for j := range block {
				s[j] += v * w[j]
			}
		}
	}
	out := make([]float64, c.k*block)
	for d := range c.k {
		for j := range block {
			out[j*c.k+d] = sums[d*block+j]
		}
	}
	return out
}

// leaveOut fills the jackknife: clusters one by one for additive statistics (at
// most 2,000 groups of them), twenty groups where the value must be computed anew.
func (t *task) leaveOut(n int) {
	groups := min(n, 2000)
	if t.rows == nil {
		groups = min(n, 20)
	}
	t.jackknife = make([][]float64, t.m)
	for i := range t.jackknife {
		t.jackknife[i] = make([]float64, groups)
	}
	out := make([]float64, t.m)
	if t.rows == nil {
		w := make([]uint16, n)
		for g := range groups {
			for i := range w {
				w[i] = 1
				if i%groups == g {
					w[i] = 0
				}
			}
			t.weighted(w, out)
			for i, v := range out {
				t.jackknife[i][g] = v
			}
		}
		return
	}
	total := t.rows.Total()
	left := make([]float64, t.rows.k)
	row := make([]float64, t.rows.k)
	for g := range groups {
		copy(left, total)
		for i := g; i < n; i += groups {
			t.rows.row(i, row)
			for d, v := range row {
				left[d] -= v
			}
		}
		for d := range left { // what cancels is 0, not a rounding error
			if math.Abs(left[d]) < 1e-9 {
				left[d] = 0
			}
		}
		t.eval(left, out)
		for i, v := range out {
			t.jackknife[i][g] = v
		}
	}
}

func (t *task) defined(i int) (sorted []float64, undefined float64) {
	sorted = make([]float64, 0, len(t.replicates[i]))
	for _, v := range t.replicates[i] {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sorted = append(sorted, v)
		}
	}
	slices.Sort(sorted)
	return sorted, 1 - float64(len(sorted))/math.Max(1, float64(len(t.replicates[i])))
}

func (t *task) percentile(i int, level float64) Interval {
	sorted, undefined := t.defined(i)
	if math.IsNaN(t.value[i]) || len(sorted) == 0 {
		return Interval{math.NaN(), math.NaN(), undefined}
	}
	return Interval{quantile(sorted, (1-level)/2), quantile(sorted, (1+level)/2), undefined}
}

func (t *task) bca(i int, level float64) Interval {
	sorted, undefined := t.defined(i)
	nan := math.NaN()
	if math.IsNaN(t.value[i]) || math.IsInf(t.value[i], 0) || len(sorted) == 0 {
		return Interval{nan, nan, undefined}
	}
	// Share of replicates below the value, equal ones counting half.
	var below float64
	for _, v := range sorted {
		switch {
		case v < t.value[i]:
			below++
		case v == t.value[i]:
			below += 0.5
		}
	}
	share := below / float64(len(sorted))
	if share == 0 || share == 1 {
		return t.percentile(i, level)
	}
	z0 := z(share)
	a := acceleration(t.jackknife[i])
	limit := func(p float64) float64 {
		x := z0 + z(p)
		return quantile(sorted, cdf(z0+x/(1-a*x)))
	}
	return Interval{limit((1 - level) / 2), limit((1 + level) / 2), undefined}
}

// acceleration of BCa from left-out values: a sixth of their skewness, signed.
func acceleration(left []float64) float64 {
	var sum, n float64
	for _, v := range left {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum += v
			n++
		}
	}
	if n < 2 {
		return 0
	}
	mean := sum / n
	var s2, s3 float64
	for _, v := range left {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			d := mean - v
			s2 += d * d
			s3 += d * d * d
		}
	}
	if s2 < 1e-24 {
		return 0
	}
	return clamp(s3/(6*math.Pow(s2, 1.5)), -0.3, 0.3)
}

// jackknifeSE is the standard error from left-out values of equal groups.
func jackknifeSE(left []float64) float64 {
	var sum, n float64
	for _, v := range left {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return math.NaN()
		}
		sum += v
		n++
	}
	if n < 2 {
		return math.NaN()
	}
	var s2 float64
	for _, v := range left {
		s2 += sq(v - sum/n)
	}
	return math.Sqrt(s2 * (n - 1) / n)
}

// quantile interpolates between order statistics (type 7 of Hyndman and Fan).
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := clamp(p, 0, 1) * float64(len(sorted)-1)
	i := int(at)
	if i >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// parallel runs f(0) … f(n−1) on all processors and waits. Results must not
// depend on the order.
func parallel(n int, f func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
