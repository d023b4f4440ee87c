package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/inference"
)

// Bounds of a grammar's text: llama.cpp reads it by recursion, and 200,000
// nested parentheses overflow the C stack, which ends the process.
const (
	maxGrammarBytes = 64 << 10
	maxGrammarDepth = 64
)

// A grammar is the state of llama.cpp's grammar matcher after some tokens. It
// says which tokens may come next.
type grammar struct{ sampler llama.Sampler }

// newGrammar compiles a grammar.
func (e *Engine) newGrammar(g *inference.Grammar) (*grammar, error) {
	if err := checkGrammar(g.GBNF); err != nil {
		return nil, fmt.Errorf("grammar %s: %w", g.Name, err)
	}
	e.lib.log.clear()
	s := llama.SamplerInitGrammar(e.vocab.handle, g.GBNF, "root")
	if s == 0 {
		return nil, fmt.Errorf("grammar %s: llama.cpp does not accept it%s", g.Name, e.lib.log.said())
	}
	return &grammar{s}, nil
}

func checkGrammar(gbnf string) error {
	switch {
	case strings.TrimSpace(gbnf) == "":
		return errors.New("it is empty")
	case strings.IndexByte(gbnf, 0) >= 0:
		return errors.New("it holds a NUL byte")
	case len(gbnf) > maxGrammarBytes:
		return fmt.Errorf("it has %d bytes, more than %d", len(gbnf), maxGrammarBytes)
	}
	depth := 0
	for _, c := range gbnf {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth > maxGrammarDepth {
			return fmt.Errorf("its parentheses are nested deeper than %d", maxGrammarDepth)
		}
	}
	return nil
}

// allowed returns the candidates that the grammar lets come next, in order.
func (g *grammar) allowed(cs []candidate) []candidate {
	if len(cs) == 0 {
		return nil
	}
	tokens := make([]llama.TokenData, len(cs))
	for i, c := range cs {
		tokens[i] = llama.TokenData{Id: llama.Token(c.token), Logit: c.logit}
	}
	array := &llama.TokenDataArray{Data: &tokens[0], Size: uint64(len(tokens)), Selected: -1}
	llama.SamplerApply(g.sampler, array)
	runtime.KeepAlive(tokens)
	var out []candidate
	for i, t := range tokens {
		if !math.IsInf(float64(t.Logit), -1) {
			out = append(out, cs[i])
		}
	}
	return out
}

// accept moves the state past a token, which must be allowed: llama.cpp throws
// at another, and that would end the process.
func (g *grammar) accept(t llama.Token) error {
	if len(g.allowed([]candidate{{token: int32(t)}})) == 0 {
		return fmt.Errorf("grammar: token %d is not allowed here", t)
	}
	llama.SamplerAccept(g.sampler, t)
	return nil
}

func (g *grammar) clone() (*grammar, error) {
	s := llama.SamplerClone(g.sampler)
	if s == 0 {
		return nil, errors.New("grammar: llama.cpp cannot clone its state")
	}
	return &grammar{s}, nil
}

func (g *grammar) free() {
	if g != nil && g.sampler != 0 {
		llama.SamplerFree(g.sampler)
		g.sampler = 0
	}
}
