package llamacpp

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"demur/inference"
)

var _ inference.Predictor = (*Engine)(nil)

// Distributions yields the distribution of the next token after prompts. See
// inference.Predictor.
//
// It evaluates prompts as Activate does, several at a time, and so without the
// neighbours that a prompt has in a unit of Generate.
func (e *Engine) Distributions(ctx context.Context, jobs []inference.Job) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		looks := make([]inference.ActivateJob, len(jobs))
		for i, j := range jobs {
			looks[i] = inference.ActivateJob{Prompt: j.Prompt, Prefix: j.Prefix, Layers: []int{}}
		}
		e.evaluate(ctx, looks, true, func(v *view, err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			return yield(v.next, nil)
		})
	}
}

// logSoftmax returns the natural log probabilities of a row of logits.
func logSoftmax(logits []float32) ([]float32, error) {
	top := slices.Max(logits)
	if t := float64(top); math.IsNaN(t) || math.IsInf(t, 0) {
		return nil, errNotFinite
	}
	d := newDist(logits, top, 1)
	log := math.Log(d.z)
	out := make([]float32, len(logits))
	for i, l := range logits {
		out[i] = float32(float64(l) - d.top - log)
	}
	return out, nil
}

// errNoTokens is the error of a prompt after which nothing can be predicted.
var errNoTokens = fmt.Errorf("%w: it has no tokens", inference.ErrPrompt)
