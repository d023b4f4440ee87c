package probes

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// A gram holds the inner products of the rows of a design at one site, so that
// what follows costs nothing by the width of the model, and fits of many
// labelings and many splits share the work.
type gram struct {
	d *design
	n int
	k []float64 // n×n: inner products of rows, the mean of all rows taken away
	v []float64 // inner product of each row, less that mean, with it
	c float64   // of that mean with itself
	// trace is the sum of squares of the centred rows, divided by the width: the
	// unit of the ridge.
	trace float64
}

// rows returns the centred rows of a design at a site, n×width, and their mean.
func (d *design) centred(states *States, site int) (x, mean []float64) {
	w := states.width
	x, mean = make([]float64, d.n()*w), make([]float64, w)
	for i, p := range d.prompt {
		for j, v := range states.values[site][p*w : (p+1)*w] {
			x[i*w+j] = float64(v)
			mean[j] += float64(v)
		}
	}
	for j := range mean {
		mean[j] /= float64(d.n())
	}
	for i := range d.n() {
		for j, m := range mean {
			x[i*w+j] -= m
		}
	}
	return x, mean
}

func newGram(d *design, states *States, site int) *gram {
	n, w := d.n(), states.width
	x, mean := d.centred(states, site)
	g := &gram{d: d, n: n, k: make([]float64, n*n), v: make([]float64, n)}
	blas64.Syrk(blas.NoTrans, 1, blas64.General{Rows: n, Cols: w, Stride: w, Data: x}, 0,
		blas64.Symmetric{N: n, Stride: n, Data: g.k, Uplo: blas.Upper})
	mirror(g.k, n)
	for i := range n {
		g.v[i] = dot(x[i*w:(i+1)*w], mean)
		g.trace += g.k[i*n+i] / float64(w)
	}
	g.c = dot(mean, mean)
	return g
}

// mirror copies the upper triangle to the lower one.
func mirror(a []float64, n int) {
	for i := range n {
		for j := range i {
			a[i*n+j] = a[j*n+i]
		}
	}
}

func dot(a, b []float64) float64 {
	return blas64.Dot(blas64.Vector{N: len(a), Inc: 1, Data: a}, blas64.Vector{N: len(b), Inc: 1, Data: b})
}

// sums are, for one column, the inner products of each row with the sum of the
// rows of each fold: of all its rows, and of those weighted by their labels.
type sums struct {
	one, all [][]float64 // [fold][row]
	// By pairs of folds: sums over the rows of the first, weighted by labels on
	// both sides, on one, on none.
	q11, q1x, qxx [][]float64
	n1, nx        []float64 // rows by fold, weighted by label, and all
	v1, vx        []float64 // sums of gram.v likewise
}

// eachSums calls f with the sums of every column.
func (g *gram) eachSums(f func(column int, s *sums)) {
	d := g.d
	K, n := d.folds, g.n
	for seed := range d.seeds {
		fold := d.fold[seed]
		all := grid(K, n)
		for i := range n {
			add(all[fold[i]], g.k[i*n:(i+1)*n], 1)
		}
		column := func(c int, one [][]float64) {
			s := &sums{one: one, all: all, n1: make([]float64, K), nx: make([]float64, K), v1: make([]float64, K), vx: make([]float64, K)}
			s.q11, s.q1x, s.qxx = grid(K, K), grid(K, K), grid(K, K)
			for t, a := range fold {
				y := d.labels[c][t]
				s.n1[a] += y
				s.nx[a]++
				s.v1[a] += y * g.v[t]
				s.vx[a] += g.v[t]
				for b := range K {
					s.q11[a][b] += y * one[b][t]
					s.q1x[a][b] += y * all[b][t]
					s.qxx[a][b] += all[b][t]
				}
			}
			f(c, s)
		}
		one := grid(K, n)
		for i := range n {
			if y := d.labels[seed][i]; y != 0 {
				add(one[fold[i]], g.k[i*n:(i+1)*n], y)
			}
		}
		column(seed, one)
	}
	permuted := d.columns - d.seeds
	if permuted == 0 {
		return
	}
	// All permutations at once: the folds of the first seed are contiguous.
	y := make([]float64, permuted*n)
	for p := range permuted {
		copy(y[p*n:], d.labels[d.seeds+p])
	}
	products := make([][]float64, K) // [fold][permutation·n + row]
	for a := range K {
		lo, hi := d.start[a], d.start[a+1]
		products[a] = make([]float64, permuted*n)
		if hi > lo {
			blas64.Gemm(blas.NoTrans, blas.NoTrans, 1,
				blas64.General{Rows: permuted, Cols: hi - lo, Stride: n, Data: y[lo:]},
				blas64.General{Rows: hi - lo, Cols: n, Stride: n, Data: g.k[lo*n:]},
				0, blas64.General{Rows: permuted, Cols: n, Stride: n, Data: products[a]})
		}
	}
	all := grid(K, n)
	qxx, nx, vx := grid(K, K), make([]float64, K), make([]float64, K)
	for i := range n {
		add(all[d.fold[0][i]], g.k[i*n:(i+1)*n], 1)
	}
	for t, a := range d.fold[0] {
		nx[a]++
		vx[a] += g.v[t]
		for b := range K {
			qxx[a][b] += all[b][t]
		}
	}
	for p := range permuted {
		s := &sums{all: all, qxx: qxx, nx: nx, vx: vx, n1: make([]float64, K), v1: make([]float64, K), q11: grid(K, K), q1x: grid(K, K)}
		for a := range K {
			s.one = append(s.one, products[a][p*n:(p+1)*n])
		}
		label := d.labels[d.seeds+p]
		for t, a := range d.fold[0] {
			y := label[t]
			if y == 0 {
				continue
			}
			s.n1[a] += y
			s.v1[a] += y * g.v[t]
			for b := range K {
				s.q11[a][b] += y * s.one[b][t]
				s.q1x[a][b] += y * all[b][t]
			}
		}
		f(d.seeds+p, s)
	}
}

func grid(rows, columns int) [][]float64 {
	flat := make([]float64, rows*columns)
	g := make([][]float64, rows)
	for i := range g {
		g[i] = flat[i*columns : (i+1)*columns]
	}
	return g
}

func add(to, x []float64, times float64) {
	blas64.Axpy(times, blas64.Vector{N: len(x), Inc: 1, Data: x}, blas64.Vector{N: len(to), Inc: 1, Data: to})
}

// A training set's means, as inner products: of the class means μ1, μ0, of the
// mean μ, and of the row t with them.
type means struct {
	n1, n0              float64
	m11, m10, m00       float64
	m1x, m0x, mxx       float64
	vbar1, vbar0, vbarx float64
}

// eachSplit calls f for every fold left out and every pair of them, with the
// means of the rows that stay, and inner products of a row with μ1 and μ.
func (s *sums) eachSplit(folds int, f func(out [2]int, m means, with func(t int) (one, all float64))) {
	for a := range folds {
		for b := a; b < folds; b++ {
			var n1, nx, v1, vx, q11, q1x, qxx float64
			for i := range folds {
				if i == a || i == b {
					continue
				}
				n1, nx, v1, vx = n1+s.n1[i], nx+s.nx[i], v1+s.v1[i], vx+s.vx[i]
				for j := range folds {
					if j != a && j != b {
						q11, q1x, qxx = q11+s.q11[i][j], q1x+s.q1x[i][j], qxx+s.qxx[i][j]
					}
				}
			}
			n0 := nx - n1
			if n1 < 0.5 || n0 < 0.5 {
				continue // a class is empty: the scores stay 0
			}
			m := means{n1: n1, n0: n0, m11: q11 / (n1 * n1), m10: (q1x - q11) / (n1 * n0), m00: (qxx - 2*q1x + q11) / (n0 * n0), m1x: q1x / (n1 * nx), mxx: qxx / (nx * nx)}
			m.m0x = (qxx - q1x) / (n0 * nx)
			m.vbar1, m.vbar0, m.vbarx = v1/n1, (vx-v1)/n0, vx/nx
			f([2]int{a, b}, m, func(t int) (one, all float64) {
				for i := range folds {
					if i != a && i != b {
						one += s.one[i][t]
						all += s.all[i][t]
					}
				}
				return one / n1, all / nx
			})
		}
	}
}

// place writes a score of row t, of fold of, by what was fitted without out.
func (h heldOut) place(out [2]int, of, t int, score float64) {
	if of == out[0] {
		h[out[1]][t] = score
	} else {
		h[out[0]][t] = score
	}
}

// meanDifference scores by (μ1 − μ0)·x, in units of the distance of the class
// means, 0 halfway: of the training rows' classes, the means score ½ and −½.
func (g *gram) meanDifference(fold []int, s *sums) heldOut {
	h := newHeldOut(g.d.folds, g.n)
	s.eachSplit(g.d.folds, func(out [2]int, m means, with func(t int) (one, all float64)) {
		gap := m.m11 - 2*m.m10 + m.m00
		if gap <= tiny*(m.m11+m.m00) || gap <= 0 {
			return
		}
		for t, f := range fold {
			if f == out[0] || f == out[1] {
				one, all := with(t)
				zero := ((m.n1+m.n0)*all - m.n1*one) / m.n0
				h.place(out, f, t, (one-zero-(m.m11-m.m00)/2)/gap)
			}
		}
	})
	return h
}

// centroid scores by cos(x, μ1) − cos(x, μ0), as they are or with the mean of
// the training rows taken away from all three.
//
// Source: Zhao et al., arXiv:2507.11878, equation 2.
func (g *gram) centroid(fold []int, s *sums, centred bool) heldOut {
	h := newHeldOut(g.d.folds, g.n)
	s.eachSplit(g.d.folds, func(out [2]int, m means, with func(t int) (one, all float64)) {
		for t, f := range fold {
			if f != out[0] && f != out[1] {
				continue
			}
			one, all := with(t)
			zero := ((m.n1+m.n0)*all - m.n1*one) / m.n0
			xx := g.k[t*g.n+t]
			var x1, x0, l1, l0 float64
			if centred {
				x1, x0 = one-all-m.m1x+m.mxx, zero-all-m.m0x+m.mxx
				xx += -2*all + m.mxx
				l1, l0 = m.m11-2*m.m1x+m.mxx, m.m00-2*m.m0x+m.mxx
			} else {
				x1, x0 = one+m.vbar1+g.v[t]+g.c, zero+m.vbar0+g.v[t]+g.c
				xx += 2*g.v[t] + g.c
				l1, l0 = m.m11+2*m.vbar1+g.c, m.m00+2*m.vbar0+g.c
			}
			if xx > 0 && l1 > 0 && l0 > 0 {
				h.place(out, f, t, x1/math.Sqrt(xx*l1)-x0/math.Sqrt(xx*l0))
			}
		}
	})
	return h
}

// tiny is how small a difference of class means is, against their size, that
// counts as none: float32 states hold 24 bits.
const tiny = 1e-12

// whitened fits least squares to the labels with a ridge, for all columns. The
// direction is that of the whitened difference of means,
//
//	(S + strength·(tr S/width)·I)⁻¹ (μ1 − μ0)
//
// whether S is the covariance of all rows or, with another strength, that
// within the classes: the two differ by a rank-one term along μ1 − μ0, which
// changes the length alone (Sherman and Morrison). So it is linear discriminant
// analysis with shrinkage towards a multiple of the identity, and ridge
// regression for graded labels.
//
// Scores of rows left out come from the inverse for all rows: with C the block
// of rows of the inverse of the bordered matrix [K + λI, 1; 1ᵀ, 0] and α = Cy,
// the prediction of the rows A by the others is y_A − (C_AA)⁻¹ α_A (the
// leave-one-out identity, by blocks: Cawley and Talbot, Neural Networks 17(10)
// (2004), 1467–1475, for one row). λ is strength times the trace over all rows:
// one number, no labels in it.
func (g *gram) whitened(strength float64) (each func(f func(column int, h heldOut)), err error) {
	c, err := g.bordered(strength)
	if err != nil {
		return nil, err
	}
	d, n := g.d, g.n
	return func(f func(column int, h heldOut)) {
		for seed := range d.seeds {
			columns := []int{seed}
			if seed == 0 {
				for p := d.seeds; p < d.columns; p++ {
					columns = append(columns, p)
				}
			}
			m := len(columns)
			y := make([]float64, m*n)
			for k, col := range columns {
				copy(y[k*n:], d.labels[col])
			}
			alpha := make([]float64, m*n)
			blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, blas64.General{Rows: m, Cols: n, Stride: n, Data: y},
				blas64.General{Rows: n, Cols: n, Stride: n, Data: c}, 0, blas64.General{Rows: m, Cols: n, Stride: n, Data: alpha})
			out := make([]heldOut, m)
			for k := range out {
				out[k] = newHeldOut(d.folds, n)
			}
			for a := range d.folds {
				for b := a; b < d.folds; b++ {
					in := d.held(seed, a)
					if b != a {
						in = append(in, d.held(seed, b)...)
					}
					g.leaveOut(c, alpha, y, in, m, func(k, t int, score float64) {
						out[k].place([2]int{a, b}, d.fold[seed][t], t, score)
					})
				}
			}
			for k, col := range columns {
				f(col, out[k])
			}
		}
	}, nil
}

// bordered returns C of whitened: the inverse of K + λI less its part along the
// constant.
func (g *gram) bordered(strength float64) ([]float64, error) {
	n := g.n
	lambda := strength * g.trace
	if !(g.trace > tiny*tiny*g.c) {
		return nil, errors.New("all prompts have the same state there")
	}
	c := make([]float64, n*n)
	copy(c, g.k)
	for i := range n {
		c[i*n+i] += lambda
	}
	factor, ok := lapack64.Potrf(blas64.Symmetric{N: n, Stride: n, Data: c, Uplo: blas.Upper})
	if ok {
		_, ok = lapack64.Potri(factor)
	}
	if !ok {
		return nil, fmt.Errorf("the covariance is singular at strength %g; raise it", strength)
	}
	mirror(c, n)
	v := make([]float64, n)
	var sum float64
	for i := range n {
		for _, x := range c[i*n : (i+1)*n] {
			v[i] += x
		}
		sum += v[i]
	}
	for i := range n {
		add(c[i*n:(i+1)*n], v, -v[i]/sum)
	}
	return c, nil
}

// leaveOut predicts the rows in from all others. alpha and y are m×n.
func (g *gram) leaveOut(c, alpha, y []float64, in []int, m int, put func(k, t int, score float64)) {
	n, w := g.n, len(in)
	if w == 0 {
		return
	}
	sub, rhs := make([]float64, w*w), make([]float64, w*m)
	for i, t := range in {
		for j, u := range in {
			sub[i*w+j] = c[t*n+u]
		}
		for k := range m {
			rhs[i*m+k] = alpha[k*n+t]
		}
	}
	factor, ok := lapack64.Potrf(blas64.Symmetric{N: w, Stride: w, Data: sub, Uplo: blas.Upper})
	if !ok {
		return // only if no row stays
	}
	lapack64.Potrs(factor, blas64.General{Rows: w, Cols: m, Stride: m, Data: rhs})
	for i, t := range in {
		for k := range m {
			put(k, t, y[k*n+t]-rhs[i*m+k])
		}
	}
}
