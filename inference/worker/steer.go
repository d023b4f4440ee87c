package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"demur/inference"
)

// steer is the child's side of Steer.
func (s *server) steer(ctx context.Context, change *inference.Steering) result {
	e, ok := s.engine.(inference.Steerer)
	if !ok {
		return result{engine: fmt.Errorf("engine %s does not let its residual stream be changed: %w", s.engine.Info().Engine, inference.ErrUnavailable)}
	}
	return result{engine: e.Steer(ctx, change)}
}

// predict is the child's side of Distributions.
func (s *server) predict(ctx context.Context, unit uint64, jobs []inference.Job) result {
	p, ok := s.engine.(inference.Predictor)
	if !ok {
		return result{engine: fmt.Errorf("engine %s does not show the distribution of the next token: %w", s.engine.Info().Engine, inference.ErrUnavailable)}
	}
	for next, err := range p.Distributions(ctx, jobs) {
		m := message{Kind: kindNext, Unit: unit}
		switch {
		case errors.Is(err, inference.ErrPrompt):
			m.Error = toWire(err)
		case err != nil:
			return result{engine: err}
		default:
			m.Values = toValues(next)
		}
		if err := s.out.send(m); err != nil {
			return result{stream: err}
		}
	}
	return result{}
}

// Steer changes the residual stream of the engine in the child, and of that in any
// child that takes its place.
func (e *Engine) Steer(ctx context.Context, s *inference.Steering) error {
	if s.Empty() {
		s = nil
	}
	if e.info.Blocks > 0 {
		if err := s.Check(e.info.Blocks, e.info.Width); err != nil {
			return fmt.Errorf("steer: %w", err) // a number that is not finite has no JSON form
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.askToSteer(ctx, s); err != nil {
		if ctx.Err() != nil && e.child != nil {
			e.drop() // it is not known how the child is steered
		}
		return err
	}
	e.steering = cloneSteering(s)
	return nil
}

func cloneSteering(s *inference.Steering) *inference.Steering {
	if s == nil {
		return nil
	}
	c := &inference.Steering{Add: maps.Clone(s.Add), Ablate: maps.Clone(s.Ablate), AblateWriters: slices.Clone(s.AblateWriters)}
	for _, m := range []map[int][]float32{c.Add, c.Ablate} {
		for l, v := range m {
			m[l] = slices.Clone(v)
		}
	}
	return c
}

// askToSteer has the child steer. A child that dies of it is followed by one that
// is steered as before.
func (e *Engine) askToSteer(ctx context.Context, s *inference.Steering) error {
	return e.ask(ctx, "steer", func(unit uint64) ([][]byte, error) {
		payload, err := message{Kind: kindSteer, Unit: unit, Steering: s}.encode()
		if err == nil && len(payload) > maxPayload {
			err = fmt.Errorf("vectors of %d bytes: %w (%d)", len(payload), errTooLarge, maxPayload)
		}
		return [][]byte{payload}, err
	}, func(int, message) reply { return wrong })
}

// steerAgain steers a new child as the one before was.
func (e *Engine) steerAgain(ctx context.Context) error {
	if e.steering == nil {
		return nil
	}
	// The frames of the next unit may have their number already; this has none.
	unit := e.unit
	e.unit = 0
	defer func() { e.unit = unit }()
	payload, err := message{Kind: kindSteer, Steering: e.steering}.encode()
	if err != nil {
		return fmt.Errorf("restarting the engine: %w", err)
	}
	e.child.send(payload)
	failure, err := e.hear(ctx, 0, func(int, message) reply { return wrong })
	if err == nil && failure != "" {
		err = errors.New(failure)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else {
			err = fmt.Errorf("restarting the engine: steering it as before: %w", err)
		}
		if e.child != nil {
			e.drop() // it is not steered
		}
	}
	return err
}

// Distributions shows the distribution of the next token as the engine in the
// child does. If the child fails, another does the same jobs again and what was
// given already is left out; if that fails too, the error says how. Until the
// sequence has ended nothing else can be asked of the engine.
func (e *Engine) Distributions(ctx context.Context, jobs []inference.Job) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		if len(jobs) == 0 {
			return
		}
		begin := func(unit uint64) ([][]byte, error) {
			all := []message{{Kind: kindPredict, Unit: unit, Count: len(jobs)}}
			for _, j := range jobs {
				all = append(all, message{Kind: kindJob, Unit: unit, Job: &inference.Job{Prompt: j.Prompt, Prefix: j.Prefix}})
			}
			return encodeAll(all)
		}
		given, seen, last := 0, 0, -1 // given to the caller, and seen of this try
		stopped := false
		err := e.ask(ctx, "distributions", begin, func(try int, m message) reply {
			next, whole := m.Values.numbers()
			if m.Kind != kindNext || (len(next) == 0) == (m.Error == nil) || !whole {
				return wrong
			}
			if try != last {
				last, seen = try, 0
			}
			if seen++; seen <= given {
				return more
			}
			if given++; given > len(jobs) {
				return wrong
			}
			if m.Error != nil {
				next = nil
			}
			if stopped = !yield(next, m.Error.err()); stopped {
				return enough
			}
			return more
		})
		if err == nil && !stopped && given < len(jobs) {
			err = fmt.Errorf("distributions: the engine gave %d for %d jobs", given, len(jobs))
		}
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}
