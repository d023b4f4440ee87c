package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"demur/data"
	"demur/inference"
)

// An Open makes an engine in the child from the spec that the parent gave to
// Start. The engine should call progress at each decode, also while it reads a
// prompt or a model file (with 0 tokens): silence is taken for a hang.
type Open func(spec json.RawMessage, progress inference.Progress) (inference.Engine, error)

const (
	// progressEvery is the least time between two progress messages.
	progressEvery = 100 * time.Millisecond
	// orphanGrace is how long a child without a parent waits for its engine.
	orphanGrace = 2 * time.Second
)

// Serve is the child's side: it opens one engine and runs units for the parent
// until the parent says close (nil), goes away (nil, or an error if the engine
// had to be left running), or sends what cannot be read.
//
// Engines run on a goroutine of their own, so that Serve can return while C code
// does not. The caller should then exit.
func Serve(ctx context.Context, r io.Reader, w io.Writer, open Open) error {
	s := &server{out: &sender{w: w}, in: make(chan message), stop: make(chan struct{})}
	var telling sync.WaitGroup
	telling.Go(s.tell)
	go s.read(r) // ends with r, at the latest
	err := s.serve(ctx, open)
	close(s.stop)
	telling.Wait()
	return err
}

type server struct {
	out     *sender
	in      chan message // closed when the parent is gone
	inErr   error        // why, valid once in is closed; nil at the end of the stream
	stop    chan struct{}
	engine  inference.Engine
	tokens  atomic.Int64 // sampled since the last message
	signs   atomic.Int64 // calls of progress since the last message
	pending []inference.Job
	views   []inference.ActivateJob
	cancel  context.CancelFunc // of the unit that runs; nil while none does
}

func (s *server) read(r io.Reader) {
	defer close(s.in)
	for {
		m, err := readMessage(r)
		if err != nil {
			if err != io.EOF {
				s.inErr = fmt.Errorf("worker: reading from the parent: %w", err)
			}
			return
		}
		select {
		case s.in <- m:
		case <-s.stop:
			return
		}
	}
}

func (s *server) progress(tokens int) {
	s.tokens.Add(int64(tokens))
	s.signs.Add(1)
}

// tell passes on signs of life, at a bounded rate.
func (s *server) tell() {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			if s.signs.Swap(0) > 0 {
				s.out.send(message{Kind: kindProgress, Count: int(s.tokens.Swap(0))})
			}
		}
	}
}

func (s *server) serve(ctx context.Context, open Open) error {
	first, ok := <-s.in
	if !ok {
		return s.inErr
	}
	if first.Kind != kindOpen {
		return fmt.Errorf("worker: the parent began with %q, not %q", first.Kind, kindOpen)
	}
	if first.Version != protocolVersion {
		err := fmt.Errorf("worker: the parent speaks protocol %d and the child %d: the program was replaced while it ran; start it again", first.Version, protocolVersion)
		return errors.Join(err, s.out.send(message{Kind: kindOpened, Version: protocolVersion, Error: toWire(err)}))
	}
	opened := make(chan error, 1)
	go func() {
		var err error
		s.engine, err = open(first.Spec, s.progress)
		opened <- err
	}()
	// The parent says nothing before the engine is open, except that it is gone.
	select {
	case err := <-opened:
		if err != nil {
			return s.out.send(message{Kind: kindOpened, Version: protocolVersion, Error: toWire(err)})
		}
	case m, ok := <-s.in:
		if ok {
			return fmt.Errorf("worker: the parent sent %q before the engine was open", m.Kind)
		}
		return s.orphaned(s.inErr)
	}
	info := s.engine.Info()
	if err := s.out.send(message{Kind: kindOpened, Version: protocolVersion, Info: &info}); err != nil {
		return errors.Join(err, s.engine.Close())
	}
	return s.units(ctx)
}

// units runs units until the parent closes, is gone, or errs.
func (s *server) units(ctx context.Context) error {
	var (
		unit uint64 // in flight or being received
		want int
		kind string // of its head
		done = make(chan result, 1)
	)
	// leave closes the engine, or leaves it if it does not stop.
	leave := func(err error) error {
		if s.cancel != nil {
			s.cancel()
			select {
			case <-done:
			case <-time.After(orphanGrace):
				return s.orphaned(err)
			}
		}
		return errors.Join(err, s.engine.Close())
	}
	begin := func(work func(context.Context) result) {
		unitCtx, cancel := context.WithCancel(ctx)
		s.cancel = cancel
		go func() { done <- work(unitCtx) }()
	}
	for {
		select {
		case r := <-done:
			s.cancel()
			s.cancel = nil // before the parent can know that the unit is done
			if r.stream == nil {
				r.stream = s.done(unit, r.engine)
			}
			if r.stream != nil {
				return leave(r.stream)
			}
		case m, ok := <-s.in:
			switch {
			case !ok:
				return leave(s.inErr)
			case m.Kind == kindCancel:
				if s.cancel != nil && m.Unit == unit {
					s.cancel()
				}
			case m.Kind == kindClose && s.cancel == nil:
				return s.out.send(message{Kind: kindClosed, Error: toWire(s.engine.Close())})
			case (m.Kind == kindUnit || m.Kind == kindLook || m.Kind == kindPredict) && s.cancel == nil:
				unit, want, kind, s.pending, s.views = m.Unit, m.Count, m.Kind, nil, nil
			case m.Kind == kindJob && s.cancel == nil && m.Job != nil && m.Unit == unit && kind != kindLook && len(s.pending) < want:
				s.pending = append(s.pending, *m.Job)
				if unit, jobs, work := unit, s.pending, s.run; len(jobs) == want {
					if kind == kindPredict {
						work = s.predict
					}
					begin(func(ctx context.Context) result { return work(ctx, unit, jobs) })
				}
			case m.Kind == kindView && s.cancel == nil && m.View != nil && m.Unit == unit && kind == kindLook && len(s.views) < want:
				s.views = append(s.views, *m.View)
				if unit, jobs := unit, s.views; len(jobs) == want {
					begin(func(ctx context.Context) result { return s.look(ctx, unit, jobs) })
				}
			case m.Kind == kindText && s.cancel == nil && m.Text != nil:
				unit, want = m.Unit, 0
				begin(func(context.Context) result { return s.tokenize(m.Unit, *m.Text) })
			case m.Kind == kindSteer && s.cancel == nil:
				unit, want = m.Unit, 0
				begin(func(ctx context.Context) result { return s.steer(ctx, m.Steering) })
			default:
				return leave(fmt.Errorf("worker: the parent sent %q out of turn", m.Kind))
			}
		}
	}
}

// A result is how a unit ended: errors of the engine, and of the stream.
type result struct{ engine, stream error }

// run runs one unit and sends its answers.
func (s *server) run(ctx context.Context, unit uint64, jobs []inference.Job) result {
	i := 0
	for answer, err := range s.engine.Generate(ctx, jobs) {
		if err != nil {
			return result{engine: err}
		}
		if i == len(jobs) {
			return result{engine: fmt.Errorf("the engine gave more answers than the %d jobs of the unit", len(jobs))}
		}
		m := message{Kind: kindAnswer, Unit: unit, Answer: &answer}
		if err := s.out.send(m); err != nil {
			// An answer that has no JSON form or no room in a frame is the failure of its
			// job. If it was the stream that failed, so will this.
			lost := errorAnswer(jobs[i], data.ErrEngine, fmt.Sprintf("the answer cannot be handed over: %v", err))
			m.Answer = &lost
			if err := s.out.send(m); err != nil {
				return result{stream: err}
			}
		}
		i++
	}
	return result{}
}

// done tells the parent that the unit is done, and how.
func (s *server) done(unit uint64, failed error) error {
	s.signs.Store(0)
	m := message{Kind: kindDone, Unit: unit, Count: int(s.tokens.Swap(0)), Error: toWire(failed)}
	if meter, ok := s.engine.(inference.Meter); ok {
		c := meter.Counters()
		m.Counters = &c
	}
	return s.out.send(m)
}

// orphaned is the error of a child whose parent is gone while its engine works.
func (s *server) orphaned(err error) error {
	return errors.Join(err, errors.New("worker: the parent is gone and the engine does not stop"))
}

// errorAnswer is the answer to a job of which nothing came out.
func errorAnswer(job inference.Job, kind, text string) inference.Answer {
	a := inference.Answer{PromptID: job.Prompt.ID, Generations: make([]data.Generation, len(job.Samplings))}
	for i, s := range job.Samplings {
		a.Generations[i] = data.Generation{Sampling: s, StopReason: data.StopError, ErrorKind: kind, Error: text}
	}
	return a
}
