package llamacpp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/data"
)

// splitName stands in the plan: where prompts are cut changes bits.
const splitName = "shared prefix | rest of the prompt"

// maxLayouts bounds the layouts whose prefix is remembered.
const maxLayouts = 1024

// prefixBytes bounds the memory of kept prefixes.
const prefixBytes = 256 << 20

// A prefix is the common beginning of prompts, evaluated once, as a copy of its
// cells. It is always evaluated alone in an empty memory and always used as a
// copy, so that it does not matter when that was.
type prefix struct {
	key    string // the tokens
	tokens int
	state  []byte
}

// prefixes are those of an engine, the one used last at the end.
type prefixes struct {
	kept []*prefix
	seen map[string]bool // all that were ever evaluated
	size int
}

func prefixKey(tokens []llama.Token) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return string(b)
}

// prefix returns the evaluated prefix of these tokens. The memory must be empty,
// and is left empty.
func (e *Engine) prefix(tokens []llama.Token) (*prefix, error) {
	key := prefixKey(tokens)
	c := &e.prefixes
	if i := slices.IndexFunc(c.kept, func(p *prefix) bool { return p.key == key }); i >= 0 {
		p := c.kept[i]
		c.kept = append(slices.Delete(c.kept, i, i+1), p)
		return p, nil
	}
	start := time.Now()
	a := e.arena
	for from := 0; from < len(tokens); from += a.limit {
		a.batch.Clear()
		for i := from; i < min(from+a.limit, len(tokens)); i++ {
			if err := a.add(tokens[i], i, 0, i == len(tokens)-1); err != nil {
				return nil, err
			}
		}
		if err := e.decode(a); err != nil {
			return nil, fmt.Errorf("evaluate the shared prefix: %w", err)
		}
	}
	state, err := a.save(0)
	if err != nil {
		return nil, err
	}
	if err := a.clear(); err != nil {
		return nil, err
	}
	e.times.Prompt += time.Since(start)
	e.counters.PromptTokens += int64(len(tokens))
	if c.seen == nil {
		c.seen = make(map[string]bool)
	}
	if !c.seen[key] {
		c.seen[key] = true
		e.counters.PromptNeeded += int64(len(tokens))
	}
	p := &prefix{key: key, tokens: len(tokens), state: state}
	c.kept = append(c.kept, p)
	for c.size += len(state); c.size > prefixBytes && len(c.kept) > 1; c.kept = c.kept[1:] {
		c.size -= len(c.kept[0].state)
	}
	return p, nil
}

// choosePrefixes sets how many tokens at the beginning of each job's prompt are
// evaluated as a shared prefix. It is a function of the unit alone.
//
// The template's opening and the system message are shared by all prompts of a
// layout. Where several prompts of a unit put different requests into the same
// question, the words before the request are shared too; the cut is then made
// after a line feed, since two requests that happen to begin with the same word
// would otherwise make a prefix of their own.
func (e *Engine) choosePrefixes(jobs []*jobRun) {
	if !e.forks {
		return
	}
	groups := make(map[string][]*jobRun)
	for _, j := range jobs {
		if len(j.root) > 0 {
			j.cut = common(j.root[:len(j.root)-1], e.layoutPrefix(j.job.Prompt.Messages))
			key := layoutKey(j.job.Prompt.Messages) + "\x00" + string(j.job.Prompt.Phase) + "\x00" + j.job.Prompt.Question + "\x00" + j.job.Prompt.Polarity
			groups[key] = append(groups[key], j)
		}
	}
	if e.o.Strict {
		return
	}
	for _, g := range groups {
		n, differ := len(g[0].root), false
		for _, j := range g[1:] {
			differ = differ || !slices.Equal(j.root, g[0].root)
			n = min(n, common(j.root, g[0].root))
		}
		if !differ {
			continue
		}
		for n > 0 && !strings.HasSuffix(e.vocab.piece(g[0].root[n-1]), "\n") {
			n--
		}
		for _, j := range g {
			if n > j.cut && n < len(j.root) {
				j.cut = n
			}
		}
	}
}

// layoutKey is equal for prompts that differ in their last message only.
func layoutKey(messages []data.Message) string {
	var b strings.Builder
	for i, m := range messages {
		fmt.Fprintf(&b, "%q", m.Role)
		if i < len(messages)-1 {
			fmt.Fprintf(&b, "%q", m.Content)
		}
	}
	return b.String()
}

// layoutPrefix returns the tokens with which every prompt of a layout begins:
// what two prompts with unlike last messages have in common.
func (e *Engine) layoutPrefix(messages []data.Message) []llama.Token {
	key := layoutKey(messages)
	if p, ok := e.layouts[key]; ok {
		return p
	}
	var p []llama.Token
	ask := func(text string) []llama.Token {
		m := slices.Clone(messages)
		m[len(m)-1].Content = text
		r, err := e.vocab.rendered(e.template, m)
		if err != nil {
			return nil
		}
		return r.tokens
	}
	a, b := ask("Apples are red."), ask("7 + 2")
	p = slices.Clone(a[:common(a, b)])
	if len(e.layouts) >= maxLayouts {
		clear(e.layouts) // conversations that are all different; what is kept changes no bit
	}
	e.layouts[key] = p
	return p
}

// common returns the number of tokens with which both begin.
func common(a, b []llama.Token) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
