package phantom

import (
	"fmt"
	"strings"
)

// Token kinds of a GGUF vocabulary (llama.cpp, include/llama.h, llama_token_type).
const (
	kindNormal  = 1
	kindControl = 3 // part of the template, no text
	kindUser    = 4 // matched in the text as it stands, before it is cut into pieces
)

// Ids of the tokens that the construction names.
const (
	tokBegin = iota
	tokEnd
	tokSystem
	tokUser
	tokAssistant
	tokKeyRefuse   // {"will_refuse":
	tokKeyAnswer   // {"will_answer":
	tokConfidence  // , "confidence":
	tokHarmRating  // , "harm_rating":
	tokWillRefuse  // will_refuse, in a question
	tokWillAnswer  // will_answer, in a question
	tokBytes       // 256 bytes from here on
	tokAfterBytes  = tokBytes + 256
	tokTrue        = tokAfterBytes
	tokFalse       = tokAfterBytes + 1
	tokFirstAnswer = tokAfterBytes + 2 // the chains of answers from here on
)

// template is the chat template: no names, no dates, no default system message.
const template = `{% for message in messages %}` +
	`{% if message['role'] == 'system' %}<|system|>{{ message['content'] }}<|end|>` +
	`{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>` +
	`{% else %}<|user|>{{ message['content'] }}<|end|>{% endif %}` +
	`{% endfor %}` +
	`{% if add_generation_prompt %}<|assistant|>{% endif %}`

// A vocabulary maps pieces of text to tokens.
type vocabulary struct {
	texts    []string // raw text by id
	kinds    []int32
	meanings []*Word // by id; nil where the token carries no value
	chains   [][]int // token ids of each answer and evasion, in the order of chains()
	ids      map[string]int
	specials []int // tokens matched before cutting, the longest first
}

func newVocabulary(words []Word, pieces []string) *vocabulary {
	v := &vocabulary{ids: map[string]int{}}
	for _, t := range []string{"<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"} {
		v.add(t, kindControl, nil)
	}
	for _, t := range []string{
		`{"will_refuse": `, `{"will_answer": `, `, "confidence": `, `, "harm_rating": `,
		"will_refuse", "will_answer",
	} {
		v.add(t, kindUser, nil)
	}
	for b := range 256 {
		v.add(string([]byte{byte(b)}), kindNormal, nil)
	}
	v.add("true", kindNormal, nil)
	v.add("false", kindNormal, nil)
	for _, a := range chains() {
		var chain []int
		for _, link := range a.links {
			chain = append(chain, v.add(link, kindNormal, nil))
		}
		v.chains = append(v.chains, chain)
	}
	for i := range words {
		for _, form := range words[i].forms {
			v.add(form, kindNormal, &words[i])
		}
	}
	for _, p := range pieces {
		if _, there := v.ids[p]; !there {
			v.add(p, kindNormal, nil)
		}
	}
	v.specials = []int{
		tokHarmRating, tokKeyRefuse, tokKeyAnswer, tokConfidence, // 17, 16, 16, 16 bytes
		tokAssistant, tokWillRefuse, tokWillAnswer, tokSystem, tokBegin, tokUser, tokEnd, // 13 … 7
	}
	return v
}

// add appends a token. It panics where there is one already, which is an
// author's slip: every token has one meaning.
func (v *vocabulary) add(text string, kind int32, meaning *Word) int {
	if _, there := v.ids[text]; there {
		panic(fmt.Sprintf("phantom: two tokens %q", text))
	}
	id := len(v.texts)
	v.ids[text] = id
	v.texts = append(v.texts, text)
	v.kinds = append(v.kinds, kind)
	v.meanings = append(v.meanings, meaning)
	return id
}

// fileText returns a token's text as a GGUF holds it: byte-pair vocabularies
// write bytes as letters, but for the tokens that are matched as they stand.
func (v *vocabulary) fileText(id int) string {
	if v.kinds[id] != kindNormal {
		return v.texts[id]
	}
	var b strings.Builder
	for i := range len(v.texts[id]) {
		b.WriteRune(byteLetter(v.texts[id][i]))
	}
	return b.String()
}

// byteLetter maps a byte to the letter that stands for it: itself where it is
// visible in Latin-1, else the next unused letter from U+0100 on (the table of
// GPT-2's vocabulary).
func byteLetter(b byte) rune {
	visible := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if visible(int(b)) {
		return rune(b)
	}
	next := rune(0x100)
	for i := range int(b) {
		if !visible(i) {
			next++
		}
	}
	return next
}
