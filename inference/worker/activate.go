package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"demur/data"
	"demur/inference"
)

// A wireRow is an activation on its way.
type wireRow struct {
	Layer    int        `json:"layer"`
	Position int        `json:"position"`
	Token    int32      `json:"token"`
	Values   wireValues `json:"values"`
}

// wireValues are 32-bit numbers on their way, little-endian: JSON has no NaN, and
// would take four times the space.
type wireValues []byte

func toValues(numbers []float32) wireValues {
	b := make(wireValues, 0, 4*len(numbers))
	for _, v := range numbers {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// numbers returns them; false if there is a piece of one.
func (v wireValues) numbers() ([]float32, bool) {
	if len(v)%4 != 0 {
		return nil, false
	}
	out := make([]float32, len(v)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(v[4*i:]))
	}
	return out, true
}

// A wireText is what is to be tokenised, wireTokens what it was; the pieces are
// bytes, for a character may be spread over several.
type wireText struct {
	Messages []data.Message `json:"messages"`
	Prefix   string         `json:"prefix,omitempty"`
}

type wireTokens struct {
	IDs    []int32  `json:"ids"`
	Pieces [][]byte `json:"pieces"`
}

// rowBytes is how many bytes of values a frame has before it is sent.
const rowBytes = 1 << 20

// look is the child's side of Activate.
func (s *server) look(ctx context.Context, unit uint64, jobs []inference.ActivateJob) result {
	a, ok := s.engine.(inference.Activator)
	if !ok {
		return result{engine: noStream(s.engine.Info())}
	}
	m, size := message{Kind: kindRows, Unit: unit}, 0
	flush := func() error {
		if len(m.Rows) == 0 {
			return nil
		}
		err := s.out.send(m)
		m.Rows, size = nil, 0
		return err
	}
	for row, err := range a.Activate(ctx, jobs) {
		switch {
		case errors.Is(err, inference.ErrPrompt):
			if err := errors.Join(flush(), s.out.send(message{Kind: kindRows, Unit: unit, PromptID: row.PromptID, Error: toWire(err)})); err != nil {
				return result{stream: err}
			}
			continue
		case err != nil:
			return result{engine: err, stream: flush()}
		}
		if row.PromptID != m.PromptID || size > rowBytes {
			if err := flush(); err != nil {
				return result{stream: err}
			}
			m.PromptID = row.PromptID
		}
		values := toValues(row.Values)
		m.Rows = append(m.Rows, wireRow{row.Layer, row.Position, row.Token, values})
		size += len(values)
	}
	return result{stream: flush()}
}

func noStream(i inference.Info) error {
	return fmt.Errorf("engine %s does not show the residual stream: %w", i.Engine, inference.ErrUnavailable)
}

// tokenize is the child's side of Tokenize.
func (s *server) tokenize(unit uint64, text wireText) result {
	t, ok := s.engine.(inference.Tokenizer)
	if !ok {
		return result{engine: fmt.Errorf("engine %s does not show its tokens: %w", s.engine.Info().Engine, inference.ErrUnavailable)}
	}
	ids, pieces, err := t.Tokenize(text.Messages, text.Prefix)
	if err != nil {
		return result{engine: err}
	}
	w := wireTokens{IDs: ids}
	for _, p := range pieces {
		w.Pieces = append(w.Pieces, []byte(p))
	}
	return result{stream: s.out.send(message{Kind: kindTokens, Unit: unit, Tokens: &w})}
}

// Activate shows the residual stream as the engine in the child does. Rows come
// as they are made. If the child fails, another does the same jobs again and the
// rows that were given already are left out; if that fails too, the error says
// how. Until the sequence has ended nothing else can be asked of the engine.
func (e *Engine) Activate(ctx context.Context, jobs []inference.ActivateJob) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		if len(jobs) == 0 {
			return
		}
		begin := func(unit uint64) ([][]byte, error) {
			all := []message{{Kind: kindLook, Unit: unit, Count: len(jobs)}}
			for i := range jobs {
				all = append(all, message{Kind: kindView, Unit: unit, View: &jobs[i]})
			}
			return encodeAll(all)
		}
		given, seen, last := 0, 0, -1 // rows given to the caller, and seen of this try
		stopped := false
		err := e.ask(ctx, "activations", begin, func(try int, m message) reply {
			if m.Kind != kindRows || (len(m.Rows) == 0) == (m.Error == nil) {
				return wrong
			}
			if try != last {
				last, seen = try, 0
			}
			give := func(row data.Activation, err error) bool {
				if seen++; seen <= given {
					return true
				}
				given++
				return yield(row, err)
			}
			if m.Error != nil {
				stopped = !give(data.Activation{PromptID: m.PromptID}, m.Error.err())
			}
			for _, r := range m.Rows {
				values, ok := r.Values.numbers()
				if !ok {
					return wrong
				}
				row := data.Activation{PromptID: m.PromptID, Layer: r.Layer, Position: r.Position, Token: r.Token, Values: values}
				if stopped = !give(row, nil); stopped {
					break
				}
			}
			if stopped {
				return enough
			}
			return more
		})
		if err != nil && !stopped {
			yield(data.Activation{}, err)
		}
	}
}

// encodeAll returns the frames of messages that hold prompts.
func encodeAll(all []message) (frames [][]byte, err error) {
	for _, m := range all {
		payload, e := m.encode()
		if e == nil && len(payload) > maxPayload {
			e = fmt.Errorf("a prompt of %d bytes fits no context", len(payload))
		}
		frames, err = append(frames, payload), errors.Join(err, e)
	}
	return frames, err
}

// Tokenize shows the tokens of a prompt as the engine in the child does.
func (e *Engine) Tokenize(messages []data.Message, prefix string) (ids []int32, pieces []string, err error) {
	begin := func(unit uint64) ([][]byte, error) {
		payload, err := message{Kind: kindText, Unit: unit, Text: &wireText{messages, prefix}}.encode()
		if err == nil && len(payload) > maxPayload {
			err = fmt.Errorf("%w: a prompt of %d bytes fits no context", inference.ErrPrompt, len(payload))
		}
		return [][]byte{payload}, err
	}
	err = e.ask(context.Background(), "tokens of a prompt", begin, func(_ int, m message) reply {
		if m.Kind != kindTokens || m.Tokens == nil {
			return wrong
		}
		ids, pieces = m.Tokens.IDs, nil
		for _, p := range m.Tokens.Pieces {
			pieces = append(pieces, string(p))
		}
		return more
	})
	if err != nil {
		return nil, nil, err
	}
	return ids, pieces, nil
}

// A reply says what is to be made of a message.
type reply int

const (
	more   reply = iota // it was taken, and others may come
	enough              // it was taken, and nothing else is wanted
	wrong               // it cannot be taken
)

// ask puts a question to the child and hears what it says until it is done. If the
// child fails, another is asked, once. What the engine itself says is wrong with
// the question is an error at once.
func (e *Engine) ask(ctx context.Context, what string, begin func(unit uint64) ([][]byte, error), hear func(try int, m message) reply) error {
	switch {
	case e.closed:
		return fmt.Errorf("worker: %s: the engine is closed", what)
	case e.looking:
		return fmt.Errorf("worker: %s: the engine is still answering another question", what)
	}
	e.looking = true
	defer func() { e.looking = false }()
	failure := ""
	for try := range 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		frames, err := begin(e.unit + 1)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := e.ensure(ctx); err != nil {
			return err
		}
		e.unit++
		e.child.send(frames...)
		if failure, err = e.hear(ctx, try, hear); err != nil || failure == "" {
			return err
		}
	}
	return fmt.Errorf("%s: %s", what, failure)
}

// hear hears the child until it is done, or says how it failed.
func (e *Engine) hear(ctx context.Context, try int, hear func(int, message) reply) (failure string, err error) {
	e.gaps.start()
	heard := time.Now()
	for {
		limit := max(e.opts.Silence, 50*e.gaps.median()) << try
		m, err := e.child.nextOfUnit(ctx, limit)
		switch {
		case err == errEnded:
			how := e.child.obituary()
			e.drop()
			return "the engine process died: " + how, nil
		case err == errSilent:
			how := e.child.lastWords(fmt.Sprintf("the engine process gave no sign of life for %v and was killed", time.Since(heard).Round(time.Millisecond)))
			e.drop()
			return how, nil
		case err != nil:
			e.cancel()
			return "", ctx.Err()
		}
		heard = time.Now()
		got := wrong
		switch {
		case m.Kind == kindProgress:
			e.gaps.sign()
			continue
		case m.Kind == kindDone && m.Unit == e.unit:
			if m.Counters != nil {
				e.current = *m.Counters
			}
			return "", m.Error.err()
		case m.Unit == e.unit:
			got = hear(try, m)
		}
		switch got {
		case enough:
			e.cancel()
			return "", nil
		case wrong:
			how := e.child.lastWords(fmt.Sprintf("the engine process sent %q out of turn and was killed", m.Kind))
			e.drop()
			return how, nil
		}
	}
}
