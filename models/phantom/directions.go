package phantom

import (
	"fmt"
	"math"
)

// A Direction is where something is written in the residual stream.
type Direction struct {
	Name string `json:"name"` // harm or refusal
	// Block is the first block whose output stream holds it; it stays there.
	Block int `json:"block"`
	// After is true where it is written only at the template tokens after the
	// request and at those that state a prediction.
	After bool `json:"after"`
	// Vector is what is written for a component of 1: harm 5, or a full refusal
	// component.
	Vector []float64 `json:"vector"`
	// ReadOut is what the phantom itself reads the component with: ReadOut·Vector
	// is 1, and ReadOut of the one direction does not see the other.
	ReadOut []float64 `json:"read_out"`
}

// Directions returns the harm and the refusal direction. In a phantom of one
// direction they are the same, written by HarmBlock.
func (m *Model) Directions() (harmful, refusing Direction) {
	s := m.Spec
	harmful = Direction{Name: "harm", Block: s.HarmBlock, Vector: m.rotated(sparse{harm: 1}), ReadOut: m.rotated(s.readHarm())}
	refusing = Direction{Name: "refusal", Block: s.RefusalBlock, After: true, Vector: m.rotated(s.refusalDirection()), ReadOut: m.rotated(s.readRefusal())}
	if s.Angle == 0 {
		refusing.Block, refusing.After = s.HarmBlock, false
	}
	return harmful, refusing
}

// Facts are what is planted in a model, whatever it is asked.
type Facts struct {
	Spec    Spec      `json:"spec"`
	Hash    string    `json:"hash"`
	Tokens  int       `json:"tokens"` // of the vocabulary
	Cosine  float64   `json:"cosine"` // of the harm and refusal directions
	Harm    Direction `json:"harm"`
	Refusal Direction `json:"refusal"`
	Words   []Word    `json:"words"`
}

// Facts returns what is planted in m.
func (m *Model) Facts() Facts {
	f := Facts{Spec: m.Spec, Hash: m.Spec.Hash(), Tokens: len(m.vocabulary.texts), Words: m.words}
	f.Harm, f.Refusal = m.Directions()
	f.Cosine = Cosine(f.Harm.Vector, f.Refusal.Vector)
	return f
}

// Add is the intervention that adds times·vector to the stream after a block, at
// all positions from the first one on.
func Add(block int, vector []float64, times float64) Intervention {
	return func(b int, x [][]float64) {
		if b != block {
			return
		}
		for _, v := range x {
			addTo(v, vector, times)
		}
	}
}

// Cosine returns the cosine of the angle between two vectors.
func Cosine(a, b []float64) float64 {
	return plainDot(a, b) / math.Sqrt(plainDot(a, a)*plainDot(b, b))
}

// Limits are what estimators of a direction converge to, on given activations
// with given shares of the positive class, as draws of the labels grow without
// bound.
type Limits struct {
	MeanDifference []float64 `json:"mean_difference"`
	LDA            []float64 `json:"lda"`
	Logistic       []float64 `json:"logistic"` // weights
	Bias           float64   `json:"bias"`     // of the logistic
	BestAUROC      float64   `json:"best_auroc"`
}

// Estimators computes Limits. x holds one activation per prompt, p the
// probability that the prompt's label is positive (0 or 1 where it is fixed).
//
//   - MeanDifference: Σpx/Σp − Σ(1−p)x/Σ(1−p)
//   - LDA: (S + shrinkage·(tr S/width)·I)⁻¹ MeanDifference, S the covariance
//     within the classes, Σ over both classes divided by the number of prompts
//   - Logistic: argmin of the mean log loss + ridge/2·|w|², the bias not
//     penalised, by Newton's method
//   - BestAUROC: of p itself as score, which no function of the prompts exceeds
//
// It returns an error if a class is empty or a method does not converge.
func Estimators(x [][]float64, p []float64, shrinkage, ridge float64) (Limits, error) {
	if len(x) != len(p) || len(x) == 0 {
		return Limits{}, fmt.Errorf("phantom: %d activations and %d probabilities", len(x), len(p))
	}
	width := len(x[0])
	var positive float64
	up, down := make([]float64, width), make([]float64, width)
	for i, v := range x {
		positive += p[i]
		addTo(up, v, p[i])
		addTo(down, v, 1-p[i])
	}
	n := float64(len(x))
	if positive < 1e-9 || positive > n-1e-9 {
		return Limits{}, fmt.Errorf("phantom: one class is empty: %g of %d positive", positive, len(x))
	}
	for i := range width {
		up[i] /= positive
		down[i] /= n - positive
	}
	var l Limits
	l.MeanDifference = make([]float64, width)
	for i := range width {
		l.MeanDifference[i] = up[i] - down[i]
	}
	s := make([][]float64, width)
	for i := range s {
		s[i] = make([]float64, width)
	}
	for k, v := range x {
		for i := range width {
			a, b := v[i]-up[i], v[i]-down[i]
			for j := 0; j <= i; j++ {
				s[i][j] += (p[k]*a*(v[j]-up[j]) + (1-p[k])*b*(v[j]-down[j])) / n
			}
		}
	}
	var trace float64
	for i := range width {
		trace += s[i][i]
	}
	for i := range width {
		s[i][i] += shrinkage * trace / float64(width)
	}
	var err error
	if l.LDA, err = solve(s, l.MeanDifference); err != nil {
		return Limits{}, fmt.Errorf("phantom: LDA: %w; raise the shrinkage", err)
	}
	if l.Logistic, l.Bias, err = logistic(x, p, ridge); err != nil {
		return Limits{}, err
	}
	ones := make([]float64, len(p))
	for i := range ones {
		ones[i] = 1
	}
	l.BestAUROC, _ = area(p, p, ones, make([]float64, len(p)))
	return l, nil
}

// logistic fits by Newton's method on centred activations, steps halved until
// the loss falls.
func logistic(x [][]float64, p []float64, ridge float64) (weights []float64, bias float64, err error) {
	width := len(x[0])
	n := float64(len(x))
	centre := make([]float64, width)
	for _, v := range x {
		addTo(centre, v, 1/n)
	}
	centred := make([][]float64, len(x))
	for i, v := range x {
		centred[i] = append(append([]float64(nil), v...), 1)
		addTo(centred[i][:width], centre, -1)
	}
	w := make([]float64, width+1)
	loss := func(w []float64) float64 {
		var sum float64
		for i, v := range centred {
			z := plainDot(w, v)
			sum += (math.Max(z, 0) + math.Log1p(math.Exp(-math.Abs(z))) - p[i]*z) / n
		}
		return sum + ridge/2*plainDot(w[:width], w[:width])
	}
	now := loss(w)
	for range 200 {
		gradient := make([]float64, width+1)
		hessian := make([][]float64, width+1)
		for i := range hessian {
			hessian[i] = make([]float64, width+1)
		}
		for k, v := range centred {
			q := 1 / (1 + math.Exp(-plainDot(w, v)))
			addTo(gradient, v, (q-p[k])/n)
			for i := range v {
				for j := 0; j <= i; j++ {
					hessian[i][j] += q * (1 - q) * v[i] * v[j] / n
				}
			}
		}
		for i := range width {
			gradient[i] += ridge * w[i]
			hessian[i][i] += ridge
		}
		hessian[width][width] += 1e-12
		if math.Sqrt(plainDot(gradient, gradient)) < 1e-9 {
			bias = w[width] - plainDot(w[:width], centre)
			return w[:width], bias, nil
		}
		step, err := solve(hessian, gradient)
		if err != nil {
			return nil, 0, fmt.Errorf("phantom: logistic: %w; raise the ridge", err)
		}
		moved := false
		for size := 1.0; size > 1e-9; size /= 2 {
			try := append([]float64(nil), w...)
			addTo(try, step, -size)
			if l := loss(try); l <= now {
				w, now, moved = try, l, true
				break
			}
		}
		if !moved {
			bias = w[width] - plainDot(w[:width], centre)
			return w[:width], bias, nil // no lower to be had in float64
		}
	}
	return nil, 0, fmt.Errorf("phantom: logistic: no minimum after 200 steps; raise the ridge")
}

// solve returns a⁻¹b for a symmetric positive definite matrix of which the lower
// triangle is given, by Cholesky's decomposition. It changes a.
func solve(a [][]float64, b []float64) ([]float64, error) {
	for i := range a {
		for j := 0; j <= i; j++ {
			sum := a[i][j]
			for k := range j {
				sum -= a[i][k] * a[j][k]
			}
			if i == j {
				if sum <= 0 {
					return nil, fmt.Errorf("the matrix is singular at %d", i)
				}
				a[i][i] = math.Sqrt(sum)
			} else {
				a[i][j] = sum / a[j][j]
			}
		}
	}
	y := make([]float64, len(b))
	for i := range y {
		y[i] = b[i]
		for k := range i {
			y[i] -= a[i][k] * y[k]
		}
		y[i] /= a[i][i]
	}
	for i := len(y) - 1; i >= 0; i-- {
		for k := i + 1; k < len(y); k++ {
			y[i] -= a[k][i] * y[k]
		}
		y[i] /= a[i][i]
	}
	return y, nil
}
