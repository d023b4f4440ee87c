package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"demur/data"
	"demur/inference"
)

// Scripted is an engine whose answers are a pure function of the script, the
// prompt and the sampling. It makes some hundred thousand generations a second.
type Scripted struct {
	script   Script
	info     inference.Info
	progress inference.Progress
	counters inference.Counters
	jobs     int // since Open
	units    int
	drawn    uint64 // generations so far, where the script draws
	happened []int  // times each fault was due
	closed   bool
}

var (
	_ inference.Engine = (*Scripted)(nil)
	_ inference.Meter  = (*Scripted)(nil)
)

// Open returns the engine of a script. Progress may be nil.
func Open(s Script, progress inference.Progress) (*Scripted, error) {
	if s.Context < 0 || s.Words < 0 || s.Unparsed < 0 || s.Declined < 0 || s.Unparsed+s.Declined > 1 {
		return nil, fmt.Errorf("scripted engine: context %d, words %d, unparsed %v, declined %v: out of range",
			s.Context, s.Words, s.Unparsed, s.Declined)
	}
	if progress == nil {
		progress = func(int) {}
	}
	time.Sleep(s.OpenTime)
	return &Scripted{
		script:   s,
		info:     describe(s),
		progress: progress,
		happened: make([]int, len(s.Faults)),
		counters: inference.Counters{RowHistogram: map[int]int64{}},
	}, nil
}

// OpenJSON opens the engine of a script in its JSON form. It is what a worker
// process of tests opens.
func OpenJSON(spec json.RawMessage, progress inference.Progress) (inference.Engine, error) {
	var s Script
	if err := json.Unmarshal(spec, &s); err != nil {
		return nil, fmt.Errorf("scripted engine: reading the script: %w", err)
	}
	e, err := Open(s, progress)
	if err != nil {
		return nil, err // not e: a nil *Scripted would be an Engine
	}
	return e, nil
}

// describe leaves out of the digest what changes no answer.
func describe(s Script) inference.Info {
	name := s.Model
	if name == "" {
		name = "scripted"
	}
	model := s
	model.Model, model.Context, model.Faults, model.Ledger = "", 0, nil, ""
	model.TokenTime, model.OpenTime = 0, 0
	model.NoScores, model.NoGrammars = false, false
	template := sha256.Sum256([]byte(templateText))
	info := inference.Info{
		Engine:       "scripted",
		Version:      "1",
		Model:        name,
		ModelDigest:  "sha256:" + data.Digest(model),
		TemplateHash: hex.EncodeToString(template[:]),
		Architecture: "scripted",
		Device:       "none",
		Context:      s.context(),
		Plan:         map[string]string{"sampler": "scripted"},
		Reproducible: !s.Draws,
		Scorer:       !s.NoScores,
		Grammars:     !s.NoGrammars,
	}
	if s.Draws {
		info.Notes = []string{"answers depend on how many came before"}
	}
	return info
}

// Info describes the engine.
func (e *Scripted) Info() inference.Info { return e.info }

// Counters returns what the engine did since Open. A prompt is evaluated once
// and nothing is shared.
func (e *Scripted) Counters() inference.Counters {
	c := e.counters
	c.RowHistogram = maps.Clone(c.RowHistogram)
	return c
}

// Close ends the engine. It may be called twice.
func (e *Scripted) Close() error {
	e.closed = true
	return nil
}

// Generate answers the jobs by the script.
func (e *Scripted) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) {
		if e.closed {
			yield(inference.Answer{}, fmt.Errorf("scripted engine: generate: the engine is closed"))
			return
		}
		e.units++
		for _, job := range jobs {
			answer, keep, err := e.answer(ctx, job)
			if err != nil {
				yield(inference.Answer{}, err)
				return
			}
			if keep && !yield(answer, nil) {
				return
			}
		}
	}
}

func (e *Scripted) answer(ctx context.Context, job inference.Job) (a inference.Answer, keep bool, err error) {
	if err := ctx.Err(); err != nil {
		return a, false, err
	}
	e.jobs++
	faults, err := e.due(job.Prompt)
	if err != nil {
		return a, false, fmt.Errorf("scripted engine: counting a fault: %w", err)
	}
	rendered, tokens := render(job.Prompt.Messages)
	sum := sha256.Sum256([]byte(rendered))
	a = inference.Answer{
		PromptID:       job.Prompt.ID,
		RenderedSHA256: hex.EncodeToString(sum[:]),
		PromptTokens:   tokens,
		Generations:    make([]data.Generation, 0, len(job.Samplings)),
	}
	keep = true
	for _, f := range faults {
		switch f.Kind {
		case FaultShort:
			keep = false
		case FaultSlow:
			if err := sleep(ctx, 2*time.Second); err != nil {
				return a, false, err
			}
		}
	}

	m := e.modelFor(job)
	if tokens < e.script.context() {
		e.counters.PromptTokens += int64(tokens)
		e.counters.PromptNeeded += int64(tokens)
	}
	for trial := 0; ; trial++ {
		for _, f := range faults {
			if f.Trial == trial {
				if err := strike(f); err != nil {
					return a, false, err
				}
			}
		}
		if trial == len(job.Samplings) {
			break
		}
		if trial%16 == 0 {
			if err := ctx.Err(); err != nil {
				return a, false, err
			}
		}
		g := e.generate(m, job, job.Samplings[trial], tokens)
		g = spoil(g, faults)
		if err := e.pace(ctx, g.Tokens); err != nil {
			return a, false, err
		}
		a.Generations = append(a.Generations, g)
	}
	if !e.script.NoScores && len(job.Continuations) > 0 && tokens < e.script.context() {
		for _, c := range job.Continuations {
			a.Scores = append(a.Scores, m.score(job.Prefix, c))
		}
	}
	return a, keep, nil
}

// pace counts the tokens of a generation, waiting for each where the script says so.
func (e *Scripted) pace(ctx context.Context, tokens int) error {
	e.counters.Rows += int64(tokens)
	e.counters.TokensSampled += int64(tokens)
	e.counters.Decodes += int64(tokens)
	e.counters.RowHistogram[1] += int64(tokens)
	if e.script.TokenTime <= 0 {
		e.progress(tokens)
		return nil
	}
	for range tokens {
		if err := sleep(ctx, e.script.TokenTime); err != nil {
			return err
		}
		e.progress(1)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (e *Scripted) generate(m model, job inference.Job, s data.Sampling, promptTokens int) data.Generation {
	g := data.Generation{Sampling: s, StopReason: data.StopError}
	if err := s.Validate(); err != nil {
		g.ErrorKind, g.Error = data.ErrEngine, "sampling: "+err.Error()
		return g
	}
	if need := promptTokens + s.MaxTokens; need > e.script.context() {
		g.ErrorKind = data.ErrOverflow
		g.Error = fmt.Sprintf("%d tokens of prompt and %d of answer do not fit a context of %d", promptTokens, s.MaxTokens, e.script.context())
		return g
	}
	fields := m.free
	if s.Grammar {
		switch {
		case e.script.NoGrammars:
			g.ErrorKind, g.Error = data.ErrEngine, "the engine cannot bind an answer to a grammar"
			return g
		case m.boundErr != nil:
			g.ErrorKind, g.Error = data.ErrEngine, m.boundErr.Error()
			return g
		}
		fields = m.bound
	}
	draw := m.draw(s)
	if e.script.Draws {
		e.drawn++
		if s.Temperature > 0 {
			draw.state = mix(draw.state, e.drawn)
		}
	}
	if fields != nil {
		m.predict(&g, fields, draw)
	} else {
		m.respond(&g, draw)
	}
	return g
}

// spoil applies the faults that change a generation.
func spoil(g data.Generation, faults []Fault) data.Generation {
	for _, f := range faults {
		switch f.Kind {
		case data.ErrOverflow, data.ErrCrash, data.ErrEngine, data.ErrRender, data.ErrTransport:
			g = data.Generation{Sampling: g.Sampling, StopReason: data.StopError, ErrorKind: f.Kind, Error: "scripted " + f.Kind}
		case FaultHuge:
			g.Text = strings.Repeat("bread ", 1<<20/6)
		case FaultUnicode:
			g.Text = "Brötchen 面包 خبز \u202eabc 👩‍🍳 e\u0301 \x00 \ufffd 🍞"
		case FaultEmpty:
			g.Text, g.Tokens, g.StopReason = "", 0, data.StopEnd
		case FaultReasoning:
			g.Reasoning = "The user asks for bread. Bread is harmless."
		}
	}
	return g
}

const templateText = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}<|assistant|>"

// render shows the messages as templateText does. A token is a word.
func render(messages []data.Message) (string, int) {
	var b strings.Builder
	tokens := 1
	for _, m := range messages {
		b.WriteString("<|" + m.Role + "|>" + m.Content + "\n")
		tokens += 1 + countWords(m.Content)
	}
	b.WriteString("<|assistant|>")
	return b.String(), tokens
}

func countWords(s string) int {
	n := 0
	for range strings.FieldsSeq(s) {
		n++
	}
	return n
}

// Renderer is a Renderer with the scripted engine's template.
type Renderer struct{}

var _ inference.Renderer = Renderer{}

// Render returns the bytes that a scripted engine is shown and their number of tokens.
func (Renderer) Render(messages []data.Message) (string, int, error) {
	s, n := render(messages)
	return s, n, nil
}

// Close does nothing.
func (Renderer) Close() error { return nil }
