package probes

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/optimize"
)

// A matrix is what a logistic regression needs of its rows.
type matrix interface {
	dims() (rows, columns int)
	// mul writes x·w for each row to out.
	mul(w, out []float64)
	// mulT adds Σ rᵢ·xᵢ to out.
	mulT(r, out []float64)
}

// dense is a matrix with rows side by side.
type dense struct {
	rows, columns int
	data          []float64
}

func (m dense) dims() (int, int) { return m.rows, m.columns }

func (m dense) general() blas64.General {
	return blas64.General{Rows: m.rows, Cols: m.columns, Stride: m.columns, Data: m.data}
}

func (m dense) mul(w, out []float64) {
	blas64.Gemv(blas.NoTrans, 1, m.general(), vector(w), 0, vector(out))
}

func (m dense) mulT(r, out []float64) {
	blas64.Gemv(blas.Trans, 1, m.general(), vector(r), 1, vector(out))
}

func vector(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Inc: 1, Data: x} }

// A line is a fitted log odds w·x + bias.
type line struct {
	w    []float64
	bias float64
}

func (l line) scores(x matrix) []float64 {
	rows, _ := x.dims()
	out := make([]float64, rows)
	x.mul(l.w, out)
	for i := range out {
		out[i] += l.bias
	}
	return out
}

// logisticFit minimises
//
//	mean over rows of log(1 + exp(−(2y−1)·(w·x + b)))  +  penalty/2 · |w|²
//
// over w and b, b not penalised, by L-BFGS from start (nil: zero), until no
// partial derivative is above tolerance. scikit-learn's C is 1/(penalty·rows).
// The penalty must be above 0: separable classes have no optimum without.
func logisticFit(x matrix, y []float64, penalty float64, start *line, tolerance float64) (line, error) {
	rows, columns := x.dims()
	if !(penalty > 0) || rows == 0 {
		return line{}, fmt.Errorf("logistic regression of %d rows with penalty %v", rows, penalty)
	}
	score, residual := make([]float64, rows), make([]float64, rows)
	at := func(p, gradient []float64) float64 {
		w, b := p[:columns], p[columns]
		x.mul(w, score)
		var loss, sum float64
		for i, s := range score {
			z := s + b
			// log(1 + e^z) − y·z, without overflow.
			loss += math.Max(z, 0) + math.Log1p(math.Exp(-math.Abs(z))) - y[i]*z
			residual[i] = (sigmoid(z) - y[i]) / float64(rows)
			sum += residual[i]
		}
		loss = loss/float64(rows) + penalty/2*dot(w, w)
		if gradient != nil {
			for j := range w {
				gradient[j] = penalty * w[j]
			}
			x.mulT(residual, gradient[:columns])
			gradient[columns] = sum
		}
		return loss
	}
	p := make([]float64, columns+1)
	if start != nil {
		copy(p, start.w)
		p[columns] = start.bias
	}
	// Function and gradient are asked for at the same point one after the other.
	last, gradient := make([]float64, columns+1), make([]float64, columns+1)
	var loss float64
	have := false
	both := func(p []float64) {
		if have && equal(p, last) {
			return
		}
		copy(last, p)
		loss, have = at(p, gradient), true
	}
	problem := optimize.Problem{
		Func: func(p []float64) float64 { both(p); return loss },
		Grad: func(g, p []float64) { both(p); copy(g, gradient) },
	}
	settings := &optimize.Settings{GradientThreshold: tolerance, MajorIterations: 5000, Converger: optimize.NeverTerminate{}}
	result, err := optimize.Minimize(problem, p, settings, &optimize.LBFGS{Store: 10})
	if result == nil {
		return line{}, fmt.Errorf("logistic regression: %w", err)
	}
	p = result.X
	if result.Status != optimize.GradientThreshold {
		// The line search ends where a step no longer lowers the loss in float64: as
		// far as one can get, if the gradient is small.
		at(p, gradient)
		worst := 0.0
		for _, g := range gradient {
			worst = math.Max(worst, math.Abs(g))
		}
		if !(worst < 100*tolerance) {
			return line{}, errors.Join(fmt.Errorf("logistic regression has not converged: gradient %.2g after %d steps; raise the penalty", worst, result.MajorIterations), err)
		}
	}
	return line{append([]float64(nil), p[:columns]...), p[columns]}, nil
}

func equal(a, b []float64) bool {
	for i, v := range a {
		if v != b[i] {
			return false
		}
	}
	return true
}

func sigmoid(z float64) float64 {
	if z >= 0 {
		return 1 / (1 + math.Exp(-z))
	}
	e := math.Exp(z)
	return e / (1 + e)
}

// A scaling takes coordinates to mean 0 and standard deviation 1.
type scaling struct{ mean, scale []float64 }

// newScaling learns from rows of x, n×width; coordinates that do not vary are
// taken to 0.
func newScaling(x []float64, width int, rows []int) scaling {
	s := scaling{make([]float64, width), make([]float64, width)}
	n := float64(len(rows))
	for _, i := range rows {
		add(s.mean, x[i*width:(i+1)*width], 1/n)
	}
	for _, i := range rows {
		for j, v := range x[i*width : (i+1)*width] {
			s.scale[j] += (v - s.mean[j]) * (v - s.mean[j]) / n
		}
	}
	for j, v := range s.scale {
		if v > 1e-18*(1+s.mean[j]*s.mean[j]) {
			s.scale[j] = 1 / math.Sqrt(v)
		} else {
			s.scale[j] = 0
		}
	}
	return s
}

// apply returns rows of x, scaled.
func (s scaling) apply(x []float64, width int, rows []int) dense {
	out := dense{len(rows), width, make([]float64, len(rows)*width)}
	for k, i := range rows {
		row := out.data[k*width : (k+1)*width]
		for j, v := range x[i*width : (i+1)*width] {
			row[j] = (v - s.mean[j]) * s.scale[j]
		}
	}
	return out
}

// Tolerances of fits that a choice is made by, and of those that are kept.
const (
	roughly   = 1e-4
	precisely = 1e-7
)

// A maker makes features for a split: learned from the rows of train (idf,
// means and deviations), for the rows of train and of test.
type maker func(seed int, train, test []int) (x, z matrix)

// logisticPath fits along a path of penalties, for each fold seed, each fold left
// out and each pair: the penalty is chosen for a fold by the concordance of the
// others' scores, with models that saw neither.
// The maker may depend on the fold left out (a site chosen without it).
func (d *design) logisticPath(penalties []float64, features func(seed, out int) maker) (*search, error) {
	s := newSearch(d, Logistic)
	for _, p := range penalties {
		s.candidates = append(s.candidates, candidate{site: -1, strength: p})
	}
	levels := d.levels()
	type job struct{ seed, out int }
	var jobs []job
	for seed := range d.seeds {
		for out := range d.folds {
			jobs = append(jobs, job{seed, out})
		}
	}
	errs := make([]error, len(jobs))
	y := d.y()
	parallel(len(jobs), func(k int) {
		seed, out := jobs[k].seed, jobs[k].out
		fold := d.fold[seed]
		prepare := features(seed, out)
		scores := newHeldOut(len(penalties), d.n())
		fit := func(left []int, test []int, tolerance float64, each func(path int, l line, z matrix)) error {
			train := d.kept(seed, left...)
			x, z := prepare(seed, train, test)
			yt := pick(y, train)
			var start *line
			for path, penalty := range penalties {
				l, err := logisticFit(x, yt, penalty, start, tolerance)
				if err != nil {
					return err
				}
				start = &l
				each(path, l, z)
			}
			return nil
		}
		for b := range d.folds {
			if b == out {
				continue
			}
			test := d.held(seed, b)
			if errs[k] = fit([]int{out, b}, test, roughly, func(path int, l line, z matrix) {
				for i, v := range l.scores(z) {
					scores[path][test[i]] = v
				}
			}); errs[k] != nil {
				return
			}
		}
		o := &orderer{level: levels}
		best := 0
		for path := range penalties {
			v := o.concordance(levels[seed], scores[path], fold, d.folds, out)
			if v > s.inner[seed][out] {
				s.inner[seed][out], best = v, path
			}
		}
		s.chosen[seed][out] = best
		h := s.scores[seed][out]
		copy(h, scores[best])
		test := d.held(seed, out)
		train := d.kept(seed, out)
		x, z := prepare(seed, train, test)
		l, err := logisticFit(x, pick(y, train), penalties[best], nil, precisely*10)
		if err != nil {
			errs[k] = err
			return
		}
		for i, v := range l.scores(z) {
			h[test[i]] = v
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// logisticNull tests logistic regression at one site and penalty with permuted
// labels: held-out concordance of the observed labels under the first fold seed,
// and of each permutation.
func (d *design) logisticNull(states *States, site int, penalty float64) (observed float64, null []float64, err error) {
	prepare := d.siteFeatures(states, site)
	columns := []int{0}
	for c := d.seeds; c < d.columns; c++ {
		columns = append(columns, c)
	}
	scores := grid(len(columns), d.n())
	for fold := range d.folds {
		train, test := d.kept(0, fold), d.held(0, fold)
		x, z := prepare(0, train, test)
		errs := make([]error, len(columns))
		parallel(len(columns), func(k int) {
			var l line
			l, errs[k] = logisticFit(x, pick(d.labels[columns[k]], train), penalty, nil, roughly)
			if errs[k] == nil {
				for i, v := range l.scores(z) {
					scores[k][test[i]] = v
				}
			}
		})
		for _, err := range errs {
			if err != nil {
				return 0, nil, err
			}
		}
	}
	o := &orderer{level: d.levels()}
	for k, c := range columns {
		v := o.concordance(o.level[c], scores[k], d.fold[0], d.folds, -1)
		if k == 0 {
			observed = v
		} else {
			null = append(null, v)
		}
	}
	return observed, null, nil
}
