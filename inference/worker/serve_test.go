package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
)

// stub is an engine of one function.
type stub struct {
	generate func(ctx context.Context, yield func(inference.Answer, error) bool)
	closed   chan struct{}
}

func (e *stub) Info() inference.Info { return inference.Info{Engine: "stub"} }
func (e *stub) Close() error         { close(e.closed); return nil }
func (e *stub) Generate(ctx context.Context, _ []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) { e.generate(ctx, yield) }
}

// conversation plays the parent of a Serve.
type conversation struct {
	*testing.T
	engine *stub
	to     *io.PipeWriter
	from   chan message
	ended  chan error
}

func converse(t *testing.T, generate func(context.Context, func(inference.Answer, error) bool)) *conversation {
	r, to := io.Pipe()
	from, w := io.Pipe()
	c := &conversation{T: t, engine: &stub{generate, make(chan struct{})}, to: to, from: make(chan message), ended: make(chan error, 1)}
	go func() {
		c.ended <- Serve(t.Context(), r, w, func(json.RawMessage, inference.Progress) (inference.Engine, error) { return c.engine, nil })
		w.Close()
	}()
	go func() {
		defer close(c.from)
		for {
			m, err := readMessage(from)
			if err != nil {
				return
			}
			c.from <- m
		}
	}()
	c.say(message{Kind: kindOpen, Version: protocolVersion})
	c.hear(kindOpened)
	return c
}

func (c *conversation) say(messages ...message) {
	c.Helper()
	s := &sender{w: c.to}
	for _, m := range messages {
		if err := s.send(m); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *conversation) hear(kind string) message {
	c.Helper()
	for m := range c.from {
		if m.Kind == kind {
			return m
		}
		if m.Kind != kindProgress {
			c.Fatalf("heard %+v, want %q", m, kind)
		}
	}
	c.Fatalf("heard nothing more, want %q", kind)
	return message{}
}

func (c *conversation) unit() []message {
	return []message{{Kind: kindUnit, Unit: 1, Count: 1}, {Kind: kindJob, Unit: 1, Job: &inference.Job{Samplings: make([]data.Sampling, 2)}}}
}

// end waits for Serve and for the rest of what it says.
func (c *conversation) end() error {
	go func() {
		for range c.from {
		}
	}()
	return <-c.ended
}

func TestServeWithoutParent(t *testing.T) {
	t.Parallel()
	t.Run("idle", func(t *testing.T) {
		c := converse(t, nil)
		c.to.Close()
		if err := c.end(); err != nil {
			t.Error(err)
		}
		<-c.engine.closed
	})
	t.Run("engine stops", func(t *testing.T) {
		started := make(chan struct{})
		c := converse(t, func(ctx context.Context, yield func(inference.Answer, error) bool) {
			close(started)
			<-ctx.Done()
			yield(inference.Answer{}, ctx.Err())
		})
		c.say(c.unit()...)
		<-started
		c.to.Close()
		if err := c.end(); err != nil {
			t.Error(err)
		}
		<-c.engine.closed
	})
	t.Run("engine does not", func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		c := converse(t, func(context.Context, func(inference.Answer, error) bool) {
			close(started)
			<-release // as C code that knows of no context
		})
		c.say(c.unit()...)
		<-started
		c.to.Close()
		if err := c.end(); err == nil {
			t.Error("no error, though the engine still runs")
		}
	})
	t.Run("torn", func(t *testing.T) {
		c := converse(t, nil)
		c.to.Write([]byte(frameMagic))
		c.to.Close()
		if err := c.end(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
		}
	})
}

func TestServeOutOfTurn(t *testing.T) {
	for _, messages := range [][]message{
		{{Kind: kindOpen, Version: protocolVersion}},
		{{Kind: "bread"}},
		{{Kind: kindJob, Unit: 1, Job: &inference.Job{}}},
		{{Kind: kindUnit, Unit: 1, Count: 1}, {Kind: kindJob, Unit: 2, Job: &inference.Job{}}},
		{{Kind: kindUnit, Unit: 1, Count: 1}, {Kind: kindJob, Unit: 1}},
		{{Kind: kindView, Unit: 1, View: &inference.ActivateJob{}}},
		{{Kind: kindLook, Unit: 1, Count: 1}, {Kind: kindJob, Unit: 1, Job: &inference.Job{}}},
		{{Kind: kindUnit, Unit: 1, Count: 1}, {Kind: kindView, Unit: 1, View: &inference.ActivateJob{}}},
		{{Kind: kindText, Unit: 1}},
	} {
		c := converse(t, nil)
		c.say(messages...)
		if err := c.end(); err == nil || !strings.Contains(err.Error(), "out of turn") {
			t.Errorf("%+v: got %v", messages, err)
		}
	}
}

// A cancellation that comes late, for a unit that is done, does nothing to the next.
func TestServeLateCancellation(t *testing.T) {
	c := converse(t, func(ctx context.Context, yield func(inference.Answer, error) bool) {
		time.Sleep(20 * time.Millisecond)
		if err := ctx.Err(); err != nil {
			yield(inference.Answer{}, err)
			return
		}
		yield(inference.Answer{Generations: make([]data.Generation, 2)}, nil)
	})
	c.say(c.unit()...)
	c.hear(kindAnswer)
	c.hear(kindDone)
	unit := c.unit()
	unit[0].Unit, unit[1].Unit = 2, 2
	c.say(unit...)
	c.say(message{Kind: kindCancel, Unit: 1})
	c.hear(kindAnswer)
	if m := c.hear(kindDone); m.Error != nil {
		t.Errorf("the next unit ended with %q", m.Error.Text)
	}
	c.say(message{Kind: kindClose})
	c.hear(kindClosed)
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

// What has no JSON form becomes an error of its job, in words.
func TestServeNaN(t *testing.T) {
	c := converse(t, func(_ context.Context, yield func(inference.Answer, error) bool) {
		yield(inference.Answer{Scores: []float64{math.NaN()}, Generations: make([]data.Generation, 2)}, nil)
	})
	c.say(c.unit()...)
	a := c.hear(kindAnswer).Answer
	for _, g := range a.Generations {
		if g.ErrorKind != data.ErrEngine || !strings.Contains(g.Error, "NaN") {
			t.Errorf("got %+v", g)
		}
	}
	c.hear(kindDone)
	c.to.Close()
	c.end()
}

func TestServeOtherVersion(t *testing.T) {
	var in, out bytes.Buffer
	(&sender{w: &in}).send(message{Kind: kindOpen, Version: protocolVersion + 1})
	err := Serve(t.Context(), &in, &out, func(json.RawMessage, inference.Progress) (inference.Engine, error) {
		t.Error("an engine was opened")
		return nil, nil
	})
	m, readErr := readMessage(&out)
	if err == nil || readErr != nil || m.Error == nil || !strings.Contains(m.Error.Text, "replaced") {
		t.Errorf("got %v; the parent heard %+v, %v", err, m, readErr)
	}
}

// FuzzServe sends each line of its input as a message. Whatever they are, Serve
// returns, and what it says can be read.
func FuzzServe(f *testing.F) {
	open := fmt.Sprintf(`{"kind":"open","version":%d,"spec":{}}`, protocolVersion) + "\n"
	f.Add(open + `{"kind":"close"}`)
	f.Add(open + `{"kind":"unit","unit":1,"count":1}
{"kind":"job","unit":1,"job":{"prompt":{"prompt_id":"a","messages":[{"role":"user","content":"bread"}]},"samplings":[{"temperature":1,"max_tokens":5}],"continuations":["Sure"]}}
{"kind":"cancel","unit":1}`)
	f.Add(open + `{"kind":"unit","unit":1,"count":-1}` + "\n" + `{"kind":"job"}`)
	f.Add(open + `{"kind":"unit","unit":1,"count":1}` + "\n" + `{"kind":"job","unit":1,"job":{"samplings":[{"grammar":true,"max_tokens":3}],"grammar":{"schema":"{\"enum\":[1,2]}"}}}`)
	f.Add(open + `{"kind":"look","unit":1,"count":1}` + "\n" + `{"kind":"view","unit":1,"view":{"prompt":{"prompt_id":"a"},"positions":[-1]}}`)
	f.Add(open + `{"kind":"text","unit":1,"text":{"messages":[{"role":"user","content":"bread"}]}}` + "\n" + `{"kind":"close"}`)
	f.Add("{}\n{}")
	f.Fuzz(func(t *testing.T, lines string) {
		var in, out bytes.Buffer
		for line := range strings.SplitSeq(lines, "\n") {
			writeFrame(&in, []byte(line))
		}
		Serve(t.Context(), &in, &out, func(json.RawMessage, inference.Progress) (inference.Engine, error) {
			e, err := enginetest.Open(enginetest.Script{Context: 100}, nil)
			if err != nil {
				return nil, fmt.Errorf("opening: %w", err)
			}
			return e, nil
		})
		for {
			m, err := readMessage(&out)
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatalf("Serve said what cannot be read: %v", err)
			}
			if a := m.Answer; a != nil && a.Generations == nil && a.Scores == nil && a.PromptTokens == 0 {
				t.Errorf("an empty answer: %+v", a)
			}
		}
	})
}
