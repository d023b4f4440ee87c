package probes

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// A Subspace is what the k first directions reach together on held-out requests.
type Subspace struct {
	K     int   `json:"k"`
	Value Value `json:"value"`
	Gain  Value `json:"gain"` // over the first direction alone, paired
}

// Subspaces tests whether one direction is enough. The first is the mean
// difference of the training rows; the next are those of partial least squares,
// each the covariance of the label with what the ones before leave of the
// states, so that k of them can tell the label from k−1 things that go with it.
// A linear discriminant in the k coordinates is tested on held-out requests. k
// goes from 1 to most, at most 8.
//
// What can be read once a direction is taken out of the states is no such test:
// without the mean difference the classes have one mean, and no linear probe
// reads anything, however many directions the model itself reads.
//
// Source: Wold et al., SIAM Journal on Scientific and Statistical Computing 5(3)
// (1984), 735–743.
func Subspaces(rows []Row, states *States, most int, o TransferOptions) ([]Subspace, error) {
	o.defaults()
	most = max(1, min(most, 8, states.width))
	site := slices.Index(states.sites, o.Site)
	if site < 0 {
		return nil, fmt.Errorf("subspaces: there are no states at %s", o.Site)
	}
	if o.Target.Graded {
		return nil, fmt.Errorf("subspaces: target %s is graded", o.Target.Name)
	}
	d, err := newDesign(rows, states, o.Target, o.Folds, 1, 0, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("subspaces: %w", err)
	}
	x, w, y := d.plain(states, site), states.width, d.y()
	scores := grid(most, d.n())
	errs := make([]error, d.folds)
	parallel(d.folds, func(fold int) {
		train, test := d.kept(0, fold), d.held(0, fold)
		basis := leastSquares(x, w, train, y, most)
		for k := range basis {
			z := coordinates(x, w, basis[:k+1])
			l, err := direct(Whitened, z, k+1, train, y, subspaceStrength)
			if err != nil {
				errs[fold] = err
				return
			}
			for _, i := range test {
				scores[k][i] = dot(l.w, z[i*(k+1):(i+1)*(k+1)]) + l.bias
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("subspaces: %w", err)
		}
	}
	ranks := make([]rankings, most)
	for k := range most {
		ranks[k] = newRankings(y, scores[k], all(d.n()), d.fold[0])
	}
	boot := resampler{d.cluster, d.clusters, o.Resamples, o.Seed, o.Level}
	values := boot.intervals(func(weight []float64) []float64 {
		var out []float64
		first := ranks[0].concordance(weight)
		for _, r := range ranks {
			v := r.concordance(weight)
			out = append(out, v, v-first)
		}
		return out
	})
	out := make([]Subspace, most)
	for k := range out {
		out[k] = Subspace{k + 1, values[2*k], values[2*k+1]}
	}
	return out, nil
}

// subspaceStrength: a few coordinates need no shrinkage.
const subspaceStrength = 1e-6

// leastSquares returns up to most orthonormal directions of partial least
// squares.
func leastSquares(x []float64, width int, train []int, y []float64, most int) [][]float64 {
	c := centre(x, width, train)
	m := blas64.General{Rows: len(train), Cols: width, Stride: width, Data: c.data}
	label := pick(y, train)
	var mean float64
	for _, v := range label {
		mean += v / float64(len(label))
	}
	for i := range label {
		label[i] -= mean
	}
	var basis [][]float64
	for range most {
		v := make([]float64, width)
		blas64.Gemv(blas.Trans, 1, m, vector(label), 0, vector(v))
		n := norm(v)
		if n == 0 {
			break
		}
		blas64.Scal(1/n, vector(v))
		score := make([]float64, len(train))
		blas64.Gemv(blas.NoTrans, 1, m, vector(v), 0, vector(score))
		load := make([]float64, width)
		blas64.Gemv(blas.Trans, 1/dot(score, score), m, vector(score), 0, vector(load))
		blas64.Ger(-1, vector(score), vector(load), m)
		basis = append(basis, v)
	}
	return basis
}

// coordinates of rows along directions.
func coordinates(x []float64, width int, basis [][]float64) []float64 {
	n, k := len(x)/width, len(basis)
	z := make([]float64, n*k)
	for i := range n {
		for j, v := range basis {
			z[i*k+j] = dot(v, x[i*width:(i+1)*width])
		}
	}
	return z
}
