package phantom

import (
	"strings"

	"demur/models/phantom/internal/pretoken"
)

// Tokenize returns the tokens of a rendered prompt, which must be valid UTF-8,
// the beginning token included: what llama.cpp makes of it with special tokens
// added and parsed.
func (m *Model) Tokenize(rendered string) []int {
	return append([]int{tokBegin}, m.vocabulary.tokens(rendered)...)
}

// Render writes a conversation as the model's chat template does, with the
// beginning of the model's answer at the end. Roles other than system and
// assistant count as the user's.
func Render(messages []Message) string {
	var b strings.Builder
	for _, m := range messages {
		switch m.Role {
		case "system", "assistant":
			b.WriteString("<|" + m.Role + "|>")
		default:
			b.WriteString("<|user|>")
		}
		b.WriteString(m.Content)
		b.WriteString("<|end|>")
	}
	b.WriteString("<|assistant|>")
	return b.String()
}

// A Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Text returns the text of tokens, template tokens included.
func (m *Model) Text(tokens []int) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(m.vocabulary.texts[t])
	}
	return b.String()
}

// TokenID returns the id of the token with that text, and -1 if there is none.
func (m *Model) TokenID(text string) int {
	if id, ok := m.vocabulary.ids[text]; ok {
		return id
	}
	return -1
}

// tokens cuts text: first at the tokens that are matched as they stand, the
// longest kind first; then into pieces; a piece that is no token falls into its
// bytes.
func (v *vocabulary) tokens(text string) []int {
	return v.cut(text, v.specials)
}

func (v *vocabulary) cut(text string, specials []int) []int {
	if text == "" {
		return nil
	}
	if len(specials) > 0 {
		before, after, found := strings.Cut(text, v.texts[specials[0]])
		if !found {
			return v.cut(text, specials[1:])
		}
		out := v.cut(before, specials[1:])
		out = append(out, specials[0])
		return append(out, v.cut(after, specials)...)
	}
	var out []int
	for _, piece := range pretoken.Split(text) {
		if id, ok := v.ids[piece]; ok && v.kinds[id] == kindNormal {
			out = append(out, id)
			continue
		}
		for i := range len(piece) {
			out = append(out, tokBytes+int(piece[i]))
		}
	}
	return out
}
