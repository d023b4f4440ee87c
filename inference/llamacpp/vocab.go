package llamacpp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/data"
)

// A vocabulary turns text into tokens and back. It remembers the pieces of
// tokens that it has met; it is used by one goroutine at a time.
type vocabulary struct {
	handle   llama.Vocab
	size     int
	bos, eos llama.Token
	addBOS   bool
	tokens   []tokenFacts
	specials []special // control tokens by text, longest first; made when first needed
}

type tokenFacts struct {
	known, eog bool
	piece      string
}

type special struct {
	text  string
	token llama.Token
}

func newVocabulary(model llama.Model) (*vocabulary, error) {
	h := llama.ModelGetVocab(model)
	v := &vocabulary{handle: h, size: int(llama.VocabNTokens(h)), bos: llama.VocabBOS(h), eos: llama.VocabEOS(h), addBOS: llama.VocabGetAddBOS(h)}
	if v.size < 1 {
		return nil, errors.New("the model has no vocabulary")
	}
	v.tokens = make([]tokenFacts, v.size)
	return v, nil
}

// text returns how a token is written in a template, "" for none.
func (v *vocabulary) text(t llama.Token) string {
	if t < 0 || int(t) >= v.size {
		return ""
	}
	return llama.VocabGetText(v.handle, t)
}

func (v *vocabulary) facts(t llama.Token) *tokenFacts {
	f := &v.tokens[t]
	if !f.known {
		f.known = true
		f.eog = llama.VocabIsEOG(v.handle, t)
		f.piece = v.pieceOf(t)
	}
	return f
}

// endsAnswer reports whether t is an end-of-generation token.
func (v *vocabulary) endsAnswer(t llama.Token) bool { return v.facts(t).eog }

// piece returns the bytes that t stands for; a control token is written out too,
// because reasoning may be marked by one.
func (v *vocabulary) piece(t llama.Token) string { return v.facts(t).piece }

func (v *vocabulary) control(t llama.Token) bool { return llama.VocabIsControl(v.handle, t) }

func (v *vocabulary) pieceOf(t llama.Token) string {
	buf := make([]byte, 128)
	n := llama.TokenToPiece(v.handle, t, buf, 0, true)
	if n < 0 {
		buf = make([]byte, -n)
		n = llama.TokenToPiece(v.handle, t, buf, 0, true)
	}
	if n <= 0 {
		return ""
	}
	return string(buf[:n])
}

// raw tokenises text; with parse, the names of control tokens in it become those
// tokens. Nothing is added.
func (v *vocabulary) raw(text string, parse bool) ([]llama.Token, error) {
	switch {
	case text == "":
		return nil, nil
	case strings.IndexByte(text, 0) >= 0:
		return nil, errors.New("the text holds a NUL byte, which llama.cpp cannot be given")
	case len(text) > 1<<30:
		return nil, fmt.Errorf("the text has %d bytes, more than llama.cpp can be given", len(text))
	}
	return llama.Tokenize(v.handle, text, false, parse), nil
}

// A rendering is a prompt as the model is shown it.
type rendering struct {
	text   string
	tokens []llama.Token
	// injected is true where a message holds the name of a control token, which
	// was kept as plain text.
	injected bool
}

// rendered renders messages and tokenises the result: names of control tokens
// are such tokens where the template wrote them, and plain text where a message
// did. There is exactly one begin-of-text token where the model wants one.
func (v *vocabulary) rendered(t *chatTemplate, messages []data.Message) (rendering, error) {
	if len(messages) == 0 {
		return rendering{}, errors.New("the prompt has no messages")
	}
	text, err := t.render(messages)
	if err != nil {
		return rendering{}, err
	}
	r := rendering{text: text}
	for _, m := range messages {
		with, err := v.raw(m.Content, true)
		if err != nil {
			return rendering{}, err
		}
		without, err := v.raw(m.Content, false)
		if err != nil {
			return rendering{}, err
		}
		r.injected = r.injected || !slices.Equal(with, without)
	}
	if r.injected {
		r.tokens, err = v.mixed(t, messages, text)
	} else {
		r.tokens, err = v.raw(text, true)
	}
	if err != nil {
		return rendering{}, err
	}
	r.tokens = v.oneBOS(r.tokens)
	if len(r.tokens) == 0 {
		return rendering{}, errors.New("the rendered prompt has no tokens")
	}
	return r, nil
}

// oneBOS sees to exactly one begin-of-text token where the model wants one.
func (v *vocabulary) oneBOS(t []llama.Token) []llama.Token {
	if !v.addBOS || v.bos < 0 {
		return t
	}
	if len(t) == 0 || t[0] != v.bos {
		return append([]llama.Token{v.bos}, t...)
	}
	for len(t) > 1 && t[1] == v.bos {
		t = t[1:]
	}
	return t
}

// decode returns the text of tokens. A character may be spread over several
// tokens; what is no UTF-8 in the end becomes U+FFFD. Control tokens are left
// out, but for those that mark reasoning.
func (v *vocabulary) decode(tokens []llama.Token) string {
	var b strings.Builder
	for _, t := range tokens {
		p := v.piece(t)
		if v.control(t) && !marksReasoning(p) {
			continue
		}
		b.WriteString(p)
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// marksReasoning reports whether a control token's text is a part of the marks
// that inference.SplitReasoning knows.
func marksReasoning(piece string) bool {
	switch piece {
	case "<|channel|>", "<|message|>", "<|start|>", "<|end|>":
		return true // gpt-oss
	}
	return strings.Contains(strings.ToLower(piece), "think")
}

// mixed tokenises a rendered text whose messages hold names of control tokens:
// it cuts the text at the control tokens that the template wrote, and at no
// others, so that everything between merges as it would in one piece.
func (v *vocabulary) mixed(t *chatTemplate, messages []data.Message, text string) ([]llama.Token, error) {
	mine, err := templateBytes(t, messages, text)
	if err != nil {
		return nil, err
	}
	var tokens []llama.Token
	start := 0
	plain := func(end int) error {
		more, err := v.raw(text[start:end], false)
		tokens = append(tokens, more...)
		return err
	}
	for i := 0; i < len(text); {
		s, ok := v.specialAt(text, i, mine)
		if !ok {
			i++
			continue
		}
		if err := plain(i); err != nil {
			return nil, err
		}
		tokens = append(tokens, s.token)
		i += len(s.text)
		start = i
	}
	return tokens, plain(len(text))
}

// specialAt returns the longest control token whose name stands at i and was
// written by the template as a whole.
func (v *vocabulary) specialAt(text string, i int, mine []bool) (special, bool) {
	if !mine[i] {
		return special{}, false
	}
	if v.specials == nil {
		v.specials = []special{}
		for t := range llama.Token(v.size) {
			if a := llama.VocabGetAttr(v.handle, t); a&(llama.TokenAttrControl|llama.TokenAttrUserDef|llama.TokenAttrUnknown) != 0 {
				if s := llama.VocabGetText(v.handle, t); s != "" {
					v.specials = append(v.specials, special{s, t})
				}
			}
		}
		slices.SortStableFunc(v.specials, func(a, b special) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	for _, s := range v.specials {
		if strings.HasPrefix(text[i:], s.text) && !slices.Contains(mine[i:i+len(s.text)], false) {
			return s, true
		}
	}
	return special{}, false
}

// templateBytes tells which bytes of a rendered text the template wrote, by
// rendering the messages once more with a mark in place of each content.
func templateBytes(t *chatTemplate, messages []data.Message, text string) ([]bool, error) {
	marks := make([]string, len(messages))
	marked := slices.Clone(messages)
	for i := range messages {
		// Private-use characters that no message holds.
		marks[i] = fmt.Sprintf("\U000F5A17%d\U000F5A18", i)
		for _, m := range messages {
			if strings.Contains(m.Content, marks[i]) {
				return nil, errors.New("a message holds the private-use characters that tell template from message")
			}
		}
		marked[i].Content = marks[i]
	}
	outline, err := t.render(marked)
	if err != nil {
		return nil, err
	}
	mine := make([]bool, 0, len(text))
	fill := func(n int, by bool) {
		for range n {
			mine = append(mine, by)
		}
	}
	rest := text
	for outline != "" {
		// The next mark, and the template's text before it.
		at, which := len(outline), -1
		for i, m := range marks {
			if j := strings.Index(outline, m); j >= 0 && j < at {
				at, which = j, i
			}
		}
		var ok bool
		if rest, ok = strings.CutPrefix(rest, outline[:at]); !ok {
			return nil, errInterwoven
		}
		fill(at, true)
		outline = outline[at:]
		if which < 0 {
			break
		}
		outline = outline[len(marks[which]):]
		content := messages[which].Content
		if !strings.HasPrefix(rest, content) {
			content = strings.TrimSpace(content) // many templates trim
		}
		if rest, ok = strings.CutPrefix(rest, content); !ok {
			return nil, errInterwoven
		}
		fill(len(content), false)
	}
	if rest != "" {
		return nil, errInterwoven
	}
	return mine, nil
}

var errInterwoven = errors.New("a message holds the name of a control token, and the chat template changes messages so that its own control tokens cannot be told from it")
