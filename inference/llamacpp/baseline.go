package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/inference"
)

// Loop answers jobs as a plain loop over the library does: one sequence at a
// time, the prompt kept in the cache and the answer cut off again after each
// sampling. It has the settings, the templates and the sampler of Generate, and
// is what Generate is measured against. Grammars and scores are not asked for in
// it.
func (e *Engine) Loop(ctx context.Context, jobs []inference.Job) ([]inference.Answer, error) {
	if e.closed {
		return nil, errClosed
	}
	var all []*jobRun
	cells := 1
	for i := range jobs {
		j := jobs[i]
		j.Continuations = nil
		r := e.newJobRun(&j)
		for _, c := range r.all {
			if c.grammar {
				return nil, errors.New("loop: a sampling asks for a grammar")
			}
			if !c.finished {
				cells = max(cells, len(r.root)+c.sampling.MaxTokens)
			}
		}
		all = append(all, r)
	}
	a, err := e.newArena(1, (cells+cellPad-1)/cellPad*cellPad, true, nil)
	if err != nil {
		return nil, err
	}
	defer a.close()
	var answers []inference.Answer
	var cached []llama.Token
	for _, j := range all {
		for _, c := range j.all {
			if c.finished {
				continue
			}
			// What the cache holds of this prompt stays, but for its last token, which
			// gives the logits.
			keep := min(common(cached, j.root), len(j.root)-1)
			if ok, err := llama.MemorySeqRm(a.memory, 0, llama.Pos(keep), -1); err != nil || !ok {
				return nil, errors.Join(errors.New("loop: the memory of this model cannot be cut"), err)
			}
			cached = slices.Clone(j.root)
			logits, err := e.feed(a, j.root[keep:], keep)
			if err != nil {
				return nil, err
			}
			r := &row{members: []*continuation{c}, pos: len(j.root)}
			for {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				r.logits = logits
				e.choose([]*row{r})
				if e.apply(c); c.finished {
					break
				}
				e.setThreads(a, e.threadsFor(), r.pos+1, true)
				if logits, err = e.feed(a, []llama.Token{c.next}, r.pos); err != nil {
					return nil, err
				}
				r.pos++
			}
		}
		answers = append(answers, j.finish(e))
	}
	return answers, nil
}

// feed decodes tokens in one stream and returns the logits after them.
func (e *Engine) feed(a *arena, tokens []llama.Token, pos int) ([]float32, error) {
	last := 0
	for from := 0; from < len(tokens); from += a.limit {
		a.batch.Clear()
		for i := from; i < min(from+a.limit, len(tokens)); i++ {
			last = int(a.batch.NTokens)
			if err := a.add(tokens[i], pos+i, 0, i == len(tokens)-1); err != nil {
				return nil, err
			}
		}
		if err := e.decode(a); err != nil {
			return nil, err
		}
	}
	return e.logits(a, last)
}

// Bare decodes batches of the given row counts without drawing a token, and
// returns how long that took: what the rows of a run cost alone. Each row stands
// at the positions from prompt on, as in a run with prompts of that length; all
// begin again there after tokens positions. Counts are decoded from the largest
// down, each as often as the histogram says.
func (e *Engine) Bare(ctx context.Context, histogram map[int]int64, prompt, tokens int) (time.Duration, error) {
	if e.closed {
		return 0, errClosed
	}
	if prompt < 1 || tokens < 1 {
		return 0, fmt.Errorf("bare decode: a prompt of %d and an answer of %d tokens", prompt, tokens)
	}
	rows := 0
	var counts []int
	for n := range histogram {
		if n < 1 || n > maxRows {
			return 0, fmt.Errorf("bare decode: %d rows", n)
		}
		rows = max(rows, n)
		counts = append(counts, n)
	}
	if rows == 0 {
		return 0, nil
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	a, err := e.newArena(rows, (prompt+tokens+cellPad-1)/cellPad*cellPad, true, nil)
	if err != nil {
		return 0, err
	}
	defer a.close()
	vary := func(i int) llama.Token { return llama.Token((i*7919 + 13) % e.vocab.size) }
	text := make([]llama.Token, prompt)
	for i := range text {
		text[i] = vary(i)
	}
	begin := func() error {
		if err := a.clear(); err != nil {
			return err
		}
		if _, err := e.feed(a, text, 0); err != nil {
			return err
		}
		for i := 1; i < rows; i++ {
			if err := a.copy(0, i); err != nil {
				return err
			}
		}
		// The copies belong to the beginning, not to the first batch.
		a.batch.Clear()
		for i := range rows {
			if err := a.add(vary(i), prompt, i, true); err != nil {
				return err
			}
		}
		return e.decode(a)
	}
	var took time.Duration
	at := tokens
	for _, n := range counts {
		for range histogram[n] {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			if at++; at >= tokens {
				if err := begin(); err != nil {
					return 0, err
				}
				at = 1
			}
			a.batch.Clear()
			for i := range n {
				// A count that falls leaves the rows above behind; positions of the
				// rows that stay go on.
				if err := a.add(vary(i+at*31), prompt+at, i, true); err != nil {
					return 0, err
				}
			}
			e.setThreads(a, e.threadsFor(), prompt+at+1, n == 1)
			start := time.Now()
			if err := e.decode(a); err != nil {
				return 0, err
			}
			took += time.Since(start)
		}
	}
	return took, nil
}
