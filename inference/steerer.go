package inference

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
)

// A Steering is a change of the residual stream that an engine applies at every
// position, prompt and answer alike, while it computes. The zero value changes
// nothing.
//
// Blocks count from 0 and mean the stream after the block, as in Activate: what
// is written there is what the next block reads and what Activate shows. After
// block 0 and after the last block are sites like any other. The token
// embedding, −1, is no site.
type Steering struct {
	// Add is, by block, a vector of Info.Width values that is added to the stream.
	// A vector of zeros adds nothing.
	Add map[int][]float32 `json:"add,omitempty"`
	// Ablate is, by block, a direction of Info.Width values whose component is
	// projected out of the stream: x − (x·r)r with r of unit length. The direction
	// given may have any length but 0. Where a block has both, the component is
	// projected out first and the vector added after. A later block can write the
	// component anew, so a direction that is to be gone is ablated at every block.
	Ablate map[int][]float32 `json:"ablate,omitempty"`
	// AblateWriters is a direction of Info.Width values, of any length but 0, that is
	// taken out of what the attention and the feed-forward layer of every block write
	// to the stream, each before it is added; nil for none. What the token embedding
	// has along it stays. Engines refuse it where they cannot do it exactly.
	AblateWriters []float32 `json:"ablate_writers,omitempty"`
}

// Empty says whether s changes nothing because it names no block and no direction.
// A nil Steering is empty.
func (s *Steering) Empty() bool {
	return s == nil || len(s.Add) == 0 && len(s.Ablate) == 0 && s.AblateWriters == nil
}

// Check returns an error unless every block of s is one of blocks, every vector
// has width finite values and no direction to ablate is of length 0.
func (s *Steering) Check(blocks, width int) error {
	if s == nil {
		return nil
	}
	for l, v := range s.Add {
		if err := checkVector(l, v, blocks, width); err != nil {
			return fmt.Errorf("add after block %d: %w", l, err)
		}
	}
	for l, v := range s.Ablate {
		if err := checkVector(l, v, blocks, width); err != nil {
			return fmt.Errorf("ablate after block %d: %w", l, err)
		}
		if err := checkDirection(v); err != nil {
			return fmt.Errorf("ablate after block %d: %w", l, err)
		}
	}
	if v := s.AblateWriters; v != nil {
		if err := errors.Join(checkValues(v, width), checkDirection(v)); err != nil {
			return fmt.Errorf("ablate what the blocks write: %w", err)
		}
	}
	return nil
}

func checkVector(l int, v []float32, blocks, width int) error {
	if l < 0 || l >= blocks {
		return fmt.Errorf("the model has blocks 0 to %d", blocks-1)
	}
	return checkValues(v, width)
}

func checkDirection(v []float32) error {
	for _, x := range v {
		if x != 0 {
			return nil
		}
	}
	return errors.New("the vector has length 0 and so no direction")
}

func checkValues(v []float32, width int) error {
	if len(v) != width {
		return fmt.Errorf("the vector has %d values, the model's stream has %d", len(v), width)
	}
	for i, x := range v {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("value %d of the vector is %v", i, x)
		}
	}
	return nil
}

// A Steerer is an engine whose residual stream can be changed while it computes.
type Steerer interface {
	// Steer sets the change that is in force for all that is computed from now on,
	// in Generate, Activate and Distributions; it replaces the one before, and nil
	// or an empty Steering ends it. Nothing that was computed under another
	// steering is used again, and after an end the engine gives the bytes that it
	// gave before. The engine keeps its own copy of s. An error means that nothing
	// has changed: a block or a width that the model does not have, a value that is
	// not finite, a model whose stream cannot be written. Steer is not called while
	// a sequence of the engine is being read.
	//
	// The bytes under one steering are as reproducible as those without, but what
	// is in force is no part of Info.Plan: whoever steers writes down how.
	Steer(ctx context.Context, s *Steering) error
}

// A Predictor is an engine that tells how it would go on: the probabilities of
// the next token, over the whole vocabulary.
type Predictor interface {
	// Distributions yields, for each job in order, the natural log probability of
	// every token of the vocabulary as the first token after the prompt and the
	// forced start of the answer, Prefix: the distribution at temperature 1, before
	// any truncation, its exponentials summing to 1. It reads Prompt and Prefix of a
	// job and nothing else. The slice is the caller's. A prompt that cannot be
	// evaluated yields nil and an error that wraps ErrPrompt, and the sequence goes
	// on with the next job; any other error ends it, on cancellation ctx.Err().
	Distributions(ctx context.Context, jobs []Job) iter.Seq2[[]float32, error]
}
