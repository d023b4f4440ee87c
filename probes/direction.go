package probes

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// direct fits one direction to rows of x, n×width, by the textbook formula. It
// shares no code with the search over sites, so that tests can hold one against
// the other.
func direct(m Method, x []float64, width int, rows []int, y []float64, strength float64) (line, error) {
	s := centre(x, width, rows)
	yt := pick(y, rows)
	n := float64(len(rows))
	switch m {
	case MeanDifference:
		one, zero, err := s.classMeans(yt)
		if err != nil {
			return line{}, err
		}
		w := make([]float64, width)
		copy(w, one)
		add(w, zero, -1)
		gap := dot(w, w)
		if gap == 0 {
			return line{w: w}, nil
		}
		bias := -(dot(one, one) - dot(zero, zero)) / 2
		return s.line(w, bias, 1/gap), nil
	case Whitened, Ridge:
		var mean float64
		for _, v := range yt {
			mean += v / n
		}
		target := make([]float64, len(yt))
		var trace float64
		for i, v := range yt {
			target[i] = v - mean
			trace += dot(s.row(i), s.row(i))
		}
		w, err := s.ridge(target, strength*trace/float64(width))
		if err != nil {
			return line{}, err
		}
		return s.line(w, mean, 1), nil
	case Logistic:
		scale := newScaling(x, width, rows)
		l, err := logisticFit(scale.apply(x, width, rows), yt, strength, nil, precisely)
		if err != nil {
			return line{}, err
		}
		for j := range l.w {
			l.w[j] *= scale.scale[j]
			l.bias -= l.w[j] * scale.mean[j]
		}
		return l, nil
	}
	return line{}, fmt.Errorf("method %s has no single direction", m)
}

// centredRows are rows less their mean.
type centredRows struct {
	data  []float64
	width int
	mean  []float64
}

func centre(x []float64, width int, rows []int) centredRows {
	s := centredRows{make([]float64, len(rows)*width), width, make([]float64, width)}
	for _, i := range rows {
		add(s.mean, x[i*width:(i+1)*width], 1/float64(len(rows)))
	}
	for k, i := range rows {
		copy(s.row(k), x[i*width:(i+1)*width])
		add(s.row(k), s.mean, -1)
	}
	return s
}

func (s centredRows) row(i int) []float64 { return s.data[i*s.width : (i+1)*s.width] }

// line is (w·(x − mean) + bias)·times.
func (s centredRows) line(w []float64, bias, times float64) line {
	l := line{make([]float64, len(w)), (bias - dot(w, s.mean)) * times}
	add(l.w, w, times)
	return l
}

func (s centredRows) classMeans(y []float64) (one, zero []float64, err error) {
	one, zero = make([]float64, s.width), make([]float64, s.width)
	var n1, n0 float64
	for i, v := range y {
		n1 += v
		n0 += 1 - v
		add(one, s.row(i), v)
		add(zero, s.row(i), 1-v)
	}
	if n1 == 0 || n0 == 0 {
		return nil, nil, fmt.Errorf("one class is empty: %g of %d rows are positive", n1, len(y))
	}
	blas64.Scal(1/n1, vector(one))
	blas64.Scal(1/n0, vector(zero))
	return one, zero, nil
}

// ridge returns (XᵀX + λI)⁻¹Xᵀy, over coordinates or over rows, whichever are
// fewer.
func (s centredRows) ridge(y []float64, lambda float64) ([]float64, error) {
	n := len(y)
	x := blas64.General{Rows: n, Cols: s.width, Stride: s.width, Data: s.data}
	side, trans := s.width, blas.Trans
	if n < s.width {
		side, trans = n, blas.NoTrans
	}
	a := blas64.Symmetric{N: side, Stride: side, Data: make([]float64, side*side), Uplo: blas.Upper}
	blas64.Syrk(trans, 1, x, 0, a)
	for i := range side {
		a.Data[i*side+i] += lambda
	}
	factor, ok := lapack64.Potrf(a)
	if !ok || math.IsNaN(lambda) || lambda <= 0 {
		return nil, fmt.Errorf("the covariance is singular; raise the strength")
	}
	w := make([]float64, s.width)
	if n < s.width {
		v := append([]float64(nil), y...)
		lapack64.Potrs(factor, blas64.General{Rows: n, Cols: 1, Stride: 1, Data: v})
		blas64.Gemv(blas.Trans, 1, x, vector(v), 0, vector(w))
		return w, nil
	}
	blas64.Gemv(blas.Trans, 1, x, vector(y), 0, vector(w))
	lapack64.Potrs(factor, blas64.General{Rows: s.width, Cols: 1, Stride: 1, Data: w})
	return w, nil
}

func norm(x []float64) float64 { return math.Sqrt(dot(x, x)) }

func scaledBy(x []float64, times float64) []float64 {
	out := make([]float64, len(x))
	add(out, x, times)
	return out
}

// Cosine returns the cosine of the angle between two vectors, NaN if one is 0.
// It panics if the lengths differ.
func Cosine(a, b []float64) float64 {
	if len(a) != len(b) {
		panic("probes: vectors of unlike length")
	}
	return dot(a, b) / (norm(a) * norm(b))
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
