// Package pretoken cuts text into the pieces that a byte-pair tokenizer works
// on, by the rule that llama.cpp knows as "llama-bpe".
package pretoken

import (
	"unicode"
	"unicode/utf8"
)

// Split cuts text into pieces; joined they are the text again. The rule is the
// first that fits, at each place, of:
//
//	'(s|t|re|ve|m|ll|d)             a contraction, any case
//	[^\r\n\p{L}\p{N}]?\p{L}+        a word with at most one mark before it
//	\p{N}{1,3}                      one to three digits
//	_?[^\s\p{L}\p{N}]+[\r\n]*       marks (_ stands for a blank), line ends after them
//	\s*[\r\n]+                      blanks up to the last line end
//	\s+(?!\S)                       blanks, but for the last one before other text
//	\s+                             blanks
//
// Bytes that are no UTF-8 count as marks.
func Split(text string) []string {
	var pieces []string
	for len(text) > 0 {
		n := piece(text)
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

// piece returns the length in bytes of the piece at the start of text.
func piece(text string) int {
	first, width := utf8.DecodeRuneInString(text)
	if first == '\'' {
		if n := contraction(text[1:]); n > 0 {
			return 1 + n
		}
	}
	if isLetter(first) {
		return run(text, isLetter)
	}
	if first != '\r' && first != '\n' && !isNumber(first) {
		if n := run(text[width:], isLetter); n > 0 {
			return width + n
		}
	}
	if isNumber(first) {
		n := 0
		for range 3 {
			r, w := utf8.DecodeRuneInString(text[n:])
			if w == 0 || !isNumber(r) {
				break
			}
			n += w
		}
		return n
	}
	blank := 0
	if first == ' ' {
		blank = 1
	}
	if n := run(text[blank:], isMark); n > 0 {
		n += blank
		return n + run(text[n:], isLineEnd)
	}
	// Only blanks are left as a beginning.
	n := run(text, unicode.IsSpace)
	lastLine, lastWidth := 0, 0
	for i, r := range text[:n] {
		if isLineEnd(r) {
			lastLine = i + 1
		}
		lastWidth = utf8.RuneLen(r)
	}
	switch {
	case lastLine > 0:
		return lastLine
	case n < len(text) && n > lastWidth:
		return n - lastWidth
	}
	return n
}

// contraction returns the length of the ending at the start of s, which
// follows an apostrophe, and 0 if there is none.
func contraction(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return 1
	}
	if len(s) < 2 {
		return 0
	}
	switch string([]byte{s[0] | 0x20, s[1] | 0x20}) {
	case "re", "ve", "ll":
		return 2
	}
	return 0
}

// run returns the length of the longest beginning of s whose runes all fit.
func run(s string, fits func(rune) bool) int {
	for i, r := range s {
		if !fits(r) {
			return i
		}
	}
	return len(s)
}

func isLetter(r rune) bool  { return unicode.IsLetter(r) }
func isNumber(r rune) bool  { return unicode.IsNumber(r) }
func isLineEnd(r rune) bool { return r == '\r' || r == '\n' }
func isMark(r rune) bool    { return !unicode.IsSpace(r) && !isLetter(r) && !isNumber(r) }
