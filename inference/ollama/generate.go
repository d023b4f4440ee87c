package ollama

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"demur/data"
	"demur/inference"
)

// failuresInARow is how many trials the server may fail, one after the other,
// before the engine asks whether anything works at all.
const failuresInARow = 5

// Generate runs one unit. Trials that the server fails are asked again, whole,
// a few times; then they are answers with an error. The sequence ends with an
// error where the server has gone, is another one, or fails every trial.
func (e *Engine) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) {
		if err := e.check(jobs); err != nil {
			yield(inference.Answer{}, err)
			return
		}
		if err := ctx.Err(); err != nil {
			yield(inference.Answer{}, err)
			return
		}
		if len(jobs) == 0 {
			return
		}
		// A model that was pulled anew under the same name is another model.
		if err := e.recheck(ctx); err != nil {
			yield(inference.Answer{}, cancelled(ctx, err))
			return
		}
		u := newUnit(ctx, e, jobs)
		defer u.stop()
		for i := range jobs {
			a, err := u.answer(i)
			if err != nil {
				yield(inference.Answer{}, err)
				return
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

// cancelled returns the context's error as it stands where there is one, for a
// cancelled request fails in many ways; else err.
func cancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// check finds callers' mistakes before anything is sent.
func (e *Engine) check(jobs []inference.Job) error {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return errors.New("ollama: the engine is closed")
	}
	for _, j := range jobs {
		for _, s := range j.Samplings {
			if err := s.Validate(); err != nil {
				return fmt.Errorf("ollama: prompt %s: %w", j.Prompt.ID, err)
			}
			if s.Grammar && (j.Grammar == nil || j.Grammar.Schema == "") {
				return fmt.Errorf("ollama: prompt %s: a sampling is bound by a grammar, but the job has no JSON schema", j.Prompt.ID)
			}
		}
	}
	return nil
}

// A unit is the jobs of one call, with their trials in flight.
type unit struct {
	e      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	jobs   []prepared
	done   sync.WaitGroup

	mu    sync.Mutex
	fatal error // the first error that ends the unit
}

// prepared is a job with its prompt rendered and a place for each generation.
type prepared struct {
	inference.Job
	answer   inference.Answer
	prompt   string // rendered
	opened   string // mark by which the template has opened the reasoning
	attempts [][]data.Attempt
	left     sync.WaitGroup
	lost     bool // a trial of it was not asked to its end
}

// newUnit renders all prompts and starts the trials, at most Parallel at a time
// and in order. Rendering is not shared out: a renderer serves one goroutine.
func newUnit(ctx context.Context, e *Engine, jobs []inference.Job) *unit {
	u := &unit{e: e, jobs: make([]prepared, len(jobs))}
	u.ctx, u.cancel = context.WithCancel(ctx)
	type trial struct{ job, sampling int }
	var trials []trial
	for i, j := range jobs {
		p := &u.jobs[i]
		p.Job = j
		p.attempts = make([][]data.Attempt, len(j.Samplings))
		p.answer = inference.Answer{PromptID: j.Prompt.ID, Generations: make([]data.Generation, len(j.Samplings))}
		kind, words := e.prepare(p)
		for k, s := range j.Samplings {
			if kind == "" {
				if p.answer.PromptTokens+s.MaxTokens > e.context {
					p.answer.Generations[k] = failed(s, data.ErrOverflow, overflow(p.answer.PromptTokens, s.MaxTokens, e.context))
					continue
				}
				p.left.Add(1)
				trials = append(trials, trial{i, k})
				continue
			}
			p.answer.Generations[k] = failed(s, kind, words)
		}
	}
	queue := make(chan trial, len(trials))
	for _, t := range trials {
		queue <- t
	}
	close(queue)
	for range min(e.o.Parallel, len(trials)) {
		u.done.Go(func() {
			for t := range queue {
				u.run(&u.jobs[t.job], t.sampling)
				u.jobs[t.job].left.Done()
			}
		})
	}
	return u
}

// prepare renders the prompt of a job. It returns the kind of failure and its
// words where that cannot be done.
func (e *Engine) prepare(p *prepared) (kind, words string) {
	for _, m := range p.Prompt.Messages {
		if strings.ContainsRune(m.Content, 0) || !utf8.ValidString(m.Content) {
			return data.ErrRender, "a message holds a NUL byte or invalid UTF-8, which the server would cut or change"
		}
	}
	if e.o.Renderer == nil {
		if len(p.Prompt.Messages) == 0 {
			return data.ErrRender, "the prompt has no messages"
		}
		return "", ""
	}
	rendered, tokens, err := e.o.Renderer.Render(p.Prompt.Messages)
	if err != nil {
		return data.ErrRender, err.Error()
	}
	sum := sha256.Sum256([]byte(rendered))
	p.answer.RenderedSHA256 = hex.EncodeToString(sum[:])
	p.answer.PromptTokens = tokens
	p.opened = inference.OpenedReasoning(rendered)
	p.prompt = strings.TrimPrefix(rendered, e.bos)
	if p.prompt == "" {
		// To the server an empty prompt is an order to load the model.
		return data.ErrRender, "the rendered prompt is empty"
	}
	return "", ""
}

func overflow(prompt, answer, context int) string {
	return fmt.Sprintf("prompt of %d tokens and answer of up to %d do not fit a context of %d; raise --ctx or lower --max-tokens", prompt, answer, context)
}

func failed(s data.Sampling, kind, words string) data.Generation {
	return data.Generation{Sampling: s, StopReason: data.StopError, ErrorKind: kind, Error: words}
}

// answer waits for job i.
func (u *unit) answer(i int) (inference.Answer, error) {
	p := &u.jobs[i]
	p.left.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	if p.lost {
		return inference.Answer{}, u.fatal
	}
	for _, a := range p.attempts {
		p.answer.Attempts = append(p.answer.Attempts, a...)
	}
	return p.answer, nil
}

// stop ends what is in flight and waits for it.
func (u *unit) stop() {
	u.cancel()
	u.done.Wait()
}

// end gives job p up. The first error for which that happens ends the unit;
// jobs that are whole by then stand.
func (u *unit) end(p *prepared, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.lost = true
	if u.fatal == nil {
		u.fatal = err
	}
	u.cancel()
}

// run asks for sampling k of job p, again where that may help.
func (u *unit) run(p *prepared, k int) {
	s := p.Samplings[k]
	req := u.e.request(p.prompt, p.Prompt.Messages, s, p.Prompt.ID, p.Grammar)
	for try := 0; ; try++ {
		if err := u.ctx.Err(); err != nil {
			u.end(p, err)
			return
		}
		began := time.Now()
		r, f := u.e.attempt(u.ctx, req, s.MaxTokens)
		if f == nil {
			f = u.e.doubt(p, s, r)
		}
		if f == nil {
			u.e.succeeded()
			u.mu.Lock()
			p.answer.Generations[k] = generation(s, r, p.opened)
			if p.answer.PromptTokens == 0 {
				p.answer.PromptTokens = r.promptTokens
			}
			u.mu.Unlock()
			return
		}
		if err := u.ctx.Err(); err != nil {
			u.end(p, err)
			return
		}
		if try >= f.again.retries(u.e.o.MaxRetries) {
			p.answer.Generations[k] = failed(s, f.kind, f.words)
			if err := u.e.failed(u.ctx, f); err != nil {
				u.end(p, cancelled(u.ctx, err))
			}
			return
		}
		p.attempts[k] = append(p.attempts[k], data.Attempt{
			Started: began.UTC().Format(time.RFC3339), ElapsedMS: time.Since(began).Milliseconds(),
			ErrorKind: f.kind, Error: fmt.Sprintf("temperature %v, seed %d: %s", s.Temperature, s.Seed, f.words),
		})
		if err := u.e.recover(u.ctx, f, try); err != nil {
			u.end(p, cancelled(u.ctx, err))
			return
		}
	}
}

// recover waits until asking again makes sense.
func (e *Engine) recover(ctx context.Context, f *failure, try int) error {
	if f.again == returned {
		return e.recheck(ctx)
	}
	return sleep(ctx, min(e.o.Patience, 500*time.Millisecond<<try))
}

// doubt returns a failure where the server's count of prompt tokens shows that
// the model saw another prompt than it should have: cut, or with its marks read
// in another way.
func (e *Engine) doubt(p *prepared, s data.Sampling, r result) *failure {
	switch {
	case r.promptTokens == 0:
		return nil
	case e.o.Renderer == nil && r.promptTokens+s.MaxTokens > e.context:
		// Counted too late, but the server cuts without a word.
		return &failure{data.ErrOverflow, overflow(r.promptTokens, s.MaxTokens, e.context), never, true}
	case e.o.Renderer != nil && e.counts && r.promptTokens != p.answer.PromptTokens+e.surplus:
		return &failure{data.ErrEngine, fmt.Sprintf("the server saw %d prompt tokens, the model's own tokenizer counts %d: it was shown another prompt (does a message hold the name of a control token?)", r.promptTokens-e.surplus, p.answer.PromptTokens), never, true}
	}
	return nil
}

// generation makes the record of an answer, its reasoning split off.
func generation(s data.Sampling, r result, opened string) data.Generation {
	g := data.Generation{Sampling: s, Text: r.text, Reasoning: r.thinking, Tokens: r.tokens, StopReason: r.reason}
	if g.Reasoning == "" {
		g.Reasoning, g.Text = inference.SplitReasoning(opened + r.text)
	}
	g.Text = strings.ToValidUTF8(g.Text, "\uFFFD")
	g.Reasoning = strings.ToValidUTF8(g.Reasoning, "\uFFFD")
	return g
}

func (e *Engine) succeeded() {
	e.mu.Lock()
	e.failures = 0
	e.mu.Unlock()
}

// failed counts a trial that the server failed. After several in a row it looks
// whether server and model are still what they were and answer a plain
// question: then it was the prompt, and the run goes on; else it returns the
// error that ends it.
func (e *Engine) failed(ctx context.Context, f *failure) error {
	if f.trial {
		return nil
	}
	e.mu.Lock()
	e.failures++
	enough := e.failures >= failuresInARow
	if enough {
		e.failures = 0
	}
	e.mu.Unlock()
	if !enough {
		return nil
	}
	if err := e.recheck(ctx); err != nil {
		return err
	}
	if _, again := e.attempt(ctx, e.request(e.plain, plainQuestion, data.Sampling{MaxTokens: 1}, "", nil), 1); again != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("ollama at %s: %d trials in a row failed and so does a plain question: %s; look into the server's log, then continue the run", e.client.base.Host, failuresInARow, f.words)
	}
	return nil
}
