package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/inference"
)

var _ inference.Steerer = (*Engine)(nil)

// A steering is an inference.Steering made ready. Nil changes nothing.
//
// llama.cpp can add a vector to the stream after each block but the first, in its
// graph and so without a callback: a control vector. All else is written by the
// callback of a tap: additions after block 0, and projections, together with what
// is added at the same block, for a control vector would come before them.
type steering struct {
	// vector holds the control vectors of the blocks from 1 to the last, one after
	// the other; zeros where there is none. It always has its full length: what a
	// shorter one does not reach would stay as it was (llama.cpp v0.5.0,
	// src/llama-adapter.cpp, llama_adapter_cvec::apply).
	vector  []float32
	edits   []*edit  // by block: what the callback does; nil where that is nothing
	ablater *ablater // nil for none
}

// An edit is a change of the rows of one block's stream.
type edit struct {
	along []float64 // of unit length, projected out; nil for none
	add   []float32 // added after that; nil for none
}

// newSteering makes s ready. With vectors, additions are control vectors where
// they can be. An ablater of s.AblateWriters is not made here.
func newSteering(s *inference.Steering, blocks, width int, vectors bool) *steering {
	if s.Empty() {
		return nil
	}
	x := &steering{edits: make([]*edit, blocks)}
	empty := s.AblateWriters == nil
	for l, v := range s.Ablate {
		x.edits[l] = &edit{along: unitVector(v)}
		empty = false
	}
	for l, v := range s.Add {
		if !slices.ContainsFunc(v, func(c float32) bool { return c != 0 }) {
			continue
		}
		empty = false
		switch {
		case x.edits[l] != nil:
			x.edits[l].add = slices.Clone(v)
		case vectors && l > 0:
			if x.vector == nil {
				x.vector = make([]float32, (blocks-1)*width)
			}
			copy(x.vector[(l-1)*width:], v)
		default:
			x.edits[l] = &edit{add: slices.Clone(v)}
		}
	}
	if empty {
		return nil
	}
	return x
}

// unitVector returns a vector of length 1 in the direction of v.
func unitVector(v []float32) []float64 {
	size := 0.0
	for _, c := range v {
		size += float64(c) * float64(c)
	}
	size = math.Sqrt(size)
	u := make([]float64, len(v))
	for i, c := range v {
		u[i] = float64(c) / size
	}
	return u
}

// writes says whether a callback is needed.
func (x *steering) writes() bool {
	return x != nil && slices.ContainsFunc(x.edits, func(e *edit) bool { return e != nil })
}

// at returns the edit of a layer.
func (x *steering) at(layer int) *edit {
	if x == nil || layer < 0 {
		return nil
	}
	return x.edits[layer]
}

// apply changes a row. The sum is one of 32-bit numbers, as llama.cpp adds a
// control vector.
func (x *edit) apply(row []float32) {
	if x.along != nil {
		dot := 0.0
		for i, v := range row {
			dot += float64(float64(v) * x.along[i])
		}
		for i, v := range row {
			row[i] = float32(float64(v) - float64(dot*x.along[i]))
		}
	}
	for i, v := range x.add {
		row[i] += v
	}
}

// Steer changes the residual stream of all that is computed from now on. See
// inference.Steerer.
//
// At the first steering of an engine it is tried on a few tokens that what is
// written after a block stands there and reaches the next one, that a control
// vector does the same bit for bit (if not, none is used), and that an end gives
// the bits of before. A model of which one of these does not hold is not steered.
func (e *Engine) Steer(ctx context.Context, s *inference.Steering) error {
	if e.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Check(e.info.Blocks, e.info.Width); err != nil {
		return fmt.Errorf("steer: %w", err)
	}
	if !s.Empty() && !e.steers {
		if err := e.inTrial(func(w *viewer) error { return e.checkSteering(ctx, w) }); err != nil {
			return fmt.Errorf("steer: %w", err)
		}
		e.steers = true
	}
	x := newSteering(s, e.info.Blocks, e.info.Width, e.vectors)
	if x != nil && s.AblateWriters != nil {
		var err error
		if x.ablater, err = e.ablateWriters(ctx, s.AblateWriters); err != nil {
			return fmt.Errorf("steer: %w", err)
		}
	}
	return e.setSteering(x)
}

// setSteering puts x in force. What was computed before is forgotten.
func (e *Engine) setSteering(x *steering) error {
	if x == nil && e.steering == nil {
		return nil
	}
	before := e.steering
	e.steering = x
	e.prefixes = prefixes{}
	another := before.adapter() != x.adapter()
	again := e.resteer
	if another {
		again = e.closeArenas // a context keeps its adapters
	}
	if err := again(); err != nil {
		// New contexts are steered as they were before.
		e.steering = before
		return errors.Join(fmt.Errorf("steer: %w", err), e.closeArenas())
	}
	if another && before != nil {
		before.ablater.free()
	}
	return nil
}

// resteer tells the contexts that there are of the steering in force. One without
// a callback cannot get one, and one that needs it no more is given up, so that
// nothing runs through a callback in vain.
func (e *Engine) resteer() error {
	if a := e.arena; a != nil {
		if (a.tap != nil) != e.steering.writes() {
			e.arena = nil
			if err := a.close(); err != nil {
				return err
			}
		} else if err := e.steer(a, e.steering); err != nil {
			return err
		}
	}
	if w := e.viewer; w != nil {
		w.prefix = nil
		return e.steer(w.a, e.steering)
	}
	return nil
}

// steer steers one context.
func (e *Engine) steer(a *arena, x *steering) error {
	if a.tap != nil {
		a.tap.steering = x
	}
	var vector []float32
	if x != nil {
		vector = x.vector
	}
	if vector == nil && !a.vectored {
		return nil
	}
	if rc := llama.SetAdapterCvec(a.ctx, vector, int32(e.info.Width), 1, int32(e.info.Blocks-1)); rc != 0 {
		return fmt.Errorf("llama.cpp returned %d for a control vector of %d × %d numbers%s", rc, e.info.Blocks-1, e.info.Width, e.lib.log.said())
	}
	a.vectored = vector != nil
	return nil
}

// checkSteering tries steering on a few tokens and finds out whether control
// vectors do what writing does.
func (e *Engine) checkSteering(ctx context.Context, w *viewer) error {
	blocks, width := e.info.Blocks, e.info.Width
	batch := e.trial()
	layers := make([]bool, blocks+1)
	for i := range layers {
		layers[i] = i > 0
	}
	states := func(x *steering) ([][]float32, error) {
		if err := errors.Join(e.steer(w.a, x), w.a.clear()); err != nil {
			return nil, err
		}
		if err := e.look(ctx, w, batch, len(batch), layers); err != nil {
			return nil, err
		}
		return w.tap.out[1:], nil
	}
	base, err := states(nil)
	if err != nil {
		return err
	}
	cannot := func(why string) error {
		return unavailable("the residual stream of a %s model cannot be changed: %s", e.info.Architecture, why)
	}
	// What is written after block 0 stands there, bit for bit, and reaches block 1.
	v := trialVector(base[0], width, 0)
	written, err := states(newSteering(&inference.Steering{Add: map[int][]float32{0: v}}, blocks, width, false))
	switch {
	case err != nil:
		return err
	case !slices.Equal(written[0], plus(base[0], v)):
		return cannot("what is written after block 0 does not stand there")
	case blocks > 1 && slices.Equal(written[1], base[1]):
		return cannot("what is written after block 0 does not reach block 1")
	}
	if blocks > 1 {
		s := &inference.Steering{Add: make(map[int][]float32)}
		for l := 1; l < blocks; l++ {
			s.Add[l] = trialVector(base[l], width, l)
		}
		if written, err = states(newSteering(s, blocks, width, false)); err != nil {
			return err
		}
		if !slices.Equal(written[1], plus(base[1], s.Add[1])) {
			return cannot("what is written after block 1 does not stand there")
		}
		added, err := states(newSteering(s, blocks, width, true))
		if err != nil {
			return err
		}
		e.vectors = slices.EqualFunc(added, written, slices.Equal[[]float32])
	}
	again, err := states(nil)
	switch {
	case err != nil:
		return err
	case !slices.EqualFunc(again, base, slices.Equal[[]float32]):
		return cannot("after the end of a change it is not what it was before")
	}
	return nil
}

// trial returns a few tokens of one sequence, of which all are looked at.
func (e *Engine) trial() []seen {
	var batch []seen
	for i := range 6 {
		batch = append(batch, seen{token: llama.Token((i + 1) * (e.vocab.size - 1) / 7), pos: i, slot: i})
	}
	return batch
}

// trialVector returns a vector about a fifth as long as a row.
func trialVector(rows []float32, width, seed int) []float32 {
	size := 0.0
	for _, v := range rows {
		size += float64(v) * float64(v)
	}
	size = math.Sqrt(size / float64(len(rows)))
	v := make([]float32, width)
	for i := range v {
		v[i] = float32(0.3 * size * math.Sin(float64(1+i*i+7*seed)))
	}
	return v
}

// plus adds v to each row.
func plus(rows, v []float32) []float32 {
	out := slices.Clone(rows)
	for i := range out {
		out[i] += v[i%len(v)]
	}
	return out
}
