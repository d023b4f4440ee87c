package protocol

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A word is one word of a response as the rules see it: folded (case, accents,
// width, apostrophes), contractions taken apart ("can't" is "can", "not").
type word struct {
	start, end int32  // bytes of the response, half open; both halves of a contraction carry the whole
	id         uint16 // in the lexicon's vocabulary, 0 if not there
	stem       uint32 // hash of the first letters: what the overlap with the request compares
	quoted     bool   // inside quotation marks
	long       bool   // at least four letters: long enough to carry content
}

// A sentence is a run of words up to a full stop or the end of a line.
type sentence struct {
	first, last int32 // words, half open
	start, end  int32 // bytes, half open
	item        bool  // an item of a list, or a line under its item
	code        bool  // inside a code fence
	question    bool  // ends with a question mark
	heading     bool  // ends with a colon: introduces what follows
}

// A reading is a response cut into words and sentences. Its slices are reused
// from one response to the next.
type reading struct {
	words     []word
	sentences []sentence
	items     int  // list items
	code      bool // a code fence with something in it
	latin     int  // letters by script
	other     int
	buf       []byte
}

// foldRune maps a letter to the ASCII letters that the lexicon uses for it, so
// that accents, case and width cannot hide a word. It returns 0, false for what
// is dropped altogether (zero-width characters, combining marks, Arabic vowel
// signs) and the lower-case rune for other scripts.
func foldRune(r rune) (rune, bool) {
	switch {
	case r < utf8.RuneSelf:
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r, true
	case r >= 0x300 && r <= 0x36f, // combining marks
		r >= 0x64b && r <= 0x65f, r == 0x670, r == 0x640, // Arabic vowel signs, tatweel
		r == 0xad, r >= 0x200b && r <= 0x200f, r == 0x2060, r == 0xfeff:
		return 0, false
	case r >= 0xc0 && r <= 0x17f:
		return rune(latinFold[r-0xc0]), true
	case r >= 0xff01 && r <= 0xff5e: // full width
		return foldRune(r - 0xfee0)
	case r == 0x451 || r == 0x401: // ё is often written е
		return 0x435, true
	case r == 0x622 || r == 0x623 || r == 0x625: // alef with madda or hamza
		return 0x627, true
	case r == 0x93c: // nukta; the letters that include it
		return 0, false
	case r >= 0x958 && r <= 0x95f:
		return [...]rune{0x915, 0x916, 0x917, 0x91c, 0x921, 0x922, 0x92b, 0x92f}[r-0x958], true
	case r == 0x1e9e:
		return 's', true
	}
	return unicode.ToLower(r), true
}

// latinFold holds the base letter of each code point from U+00C0 to U+017F.
const latinFold = "aaaaaaaceeeeiiiidnooooo*ouuuuytsaaaaaaaceeeeiiiidnooooo/ouuuuyty" +
	"aaaaaaccccccccddddeeeeeeeeeegggggggghhhhiiiiiiiiiiiijjkkklllllll" +
	"lllnnnnnnnnnoooooooorrrrrrssssssssttttttuuuuuuuuuuuuwwyyyzzzzzzs"

func isApostrophe(r rune) bool {
	switch r {
	case '\'', '\u2019', '\u2018', '\u02bc', '\u00b4', '`', '\u2032', '\uff07', '\u201b':
		return true
	}
	return false
}

// decode is utf8.DecodeRuneInString, but reads a quotation mark that was
// decoded as Windows-1252 (the common mojibake of a curly quote) as the quote.
func decode(s string, i int) (rune, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r == 'â' && i+n < len(s) {
		r2, n2 := utf8.DecodeRuneInString(s[i+n:])
		if (r2 == '€' || r2 == 0x80) && i+n+n2 < len(s) {
			switch r3, n3 := utf8.DecodeRuneInString(s[i+n+n2:]); r3 {
			case '™', '˜', 0x99, 0x98:
				return '\'', n + n2 + n3
			case 'œ', 0x9d, 0x9c:
				return '"', n + n2 + n3
			case '“', '”', 0x93, 0x94:
				return '-', n + n2 + n3
			}
		}
	}
	return r, n
}

// isUnspaced tells whether r belongs to a script written without spaces
// between words; the rules then match substrings instead of words.
func isUnspaced(r rune) bool {
	return r >= 0x2e80 && r <= 0x9fff || r >= 0xf900 && r <= 0xfaff || r >= 0x20000 && r <= 0x3ffff ||
		r >= 0x0e00 && r <= 0x0eff || r >= 0x1000 && r <= 0x109f || r >= 0x1780 && r <= 0x17ff
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	if isApostrophe(r) { // U+02BC counts as a letter
		return false
	}
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || r >= 0x200b && r <= 0x200f || r == 0x2060 || r == 0xad
}

// stemLength is how many letters two words must share to count as the same for
// the overlap with the request: enough for "terminate" and "terminating".
const stemLength = 5

func (rd *reading) reset() {
	rd.words, rd.sentences = rd.words[:0], rd.sentences[:0]
	rd.items, rd.code, rd.latin, rd.other = 0, false, 0, 0
}

// read cuts text into words and sentences, from byte from on.
func (rd *reading) read(text string, from int, lex *lexicon) {
	rd.reset()
	var (
		cur       = sentence{start: int32(from)}
		quote     = false
		fence     = false
		item      = false
		lineStart = true
		blank     = false
	)
	flush := func(end int) {
		cur.last = int32(len(rd.words))
		cur.end = int32(end)
		if cur.last > cur.first {
			cur.item, cur.code = item, fence
			if fence {
				rd.code = true
			}
			rd.sentences = append(rd.sentences, cur)
		} else if n := len(rd.sentences); n > 0 && cur.question {
			rd.sentences[n-1].question = true
		}
		cur = sentence{first: int32(len(rd.words)), start: int32(end)}
	}
	for i := from; i < len(text); {
		if lineStart {
			lineStart = false
			rest := text[i:]
			if strings.HasPrefix(strings.TrimLeft(rest[:min(len(rest), 12)], " \t"), "```") {
				flush(i)
				fence = !fence
				nl := strings.IndexByte(rest, '\n')
				if nl < 0 {
					nl = len(rest)
				}
				i += nl
				cur.start = int32(i)
				continue
			}
			if n := itemMarker(rest); n > 0 {
				rd.items++
				item, quote = true, false
				i += n
				cur.start = int32(i)
				continue
			} else if blank {
				item, quote = false, false
			}
			blank = false
		}
		r, n := decode(text, i)
		switch {
		case r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029':
			flush(i)
			i += n
			cur.start = int32(i)
			lineStart = true
			if i < len(text) && (text[i] == '\n' || text[i] == '\r') {
				blank = true
			}
			continue
		case isUnspaced(r) && unicode.IsMark(r): // belongs to the character before
			i += n
		case isUnspaced(r) && isWordRune(r):
			// One character, one word: counts lengths, never matches the lexicon.
			rd.other++
			if cur.first == int32(len(rd.words)) {
				cur.start = int32(i)
			}
			rd.words = append(rd.words, word{start: int32(i), end: int32(i + n), stem: uint32(r)*2654435761 | 1, quoted: quote, long: true})
			i += n
		case isWordRune(r):
			if cur.first == int32(len(rd.words)) {
				cur.start = int32(i)
			}
			i = max(rd.word(text, i, quote, lex), i+n)
		case r == '"' || r == '“' || r == '”' || r == '«' || r == '»' || r == '„':
			switch r {
			case '"':
				quote = !quote
			case '“', '«', '„':
				quote = true
			default:
				quote = false
			}
			i += n
		case r == '.' || r == '!' || r == '?' || r == '。' || r == '！' || r == '？' || r == '؟' || r == '।' || r == '…':
			if r == '?' || r == '？' || r == '؟' {
				cur.question = true
			}
			end := i + n
			if r == '.' && !endsSentence(text, i) {
				i = end
				continue
			}
			flush(end)
			i = end
			cur.start = int32(i)
		case r == ':' || r == '：':
			end := i + n
			j := end
			for j < len(text) && (text[j] == ' ' || text[j] == '*' || text[j] == '\t') {
				j++
			}
			if j >= len(text) || text[j] == '\n' || text[j] == '\r' {
				cur.heading = true
			}
			i = end
		default:
			i += n
		}
	}
	flush(len(text))
}

// endsSentence tells whether the full stop at i ends a sentence: not inside a
// number, a name like "e.g." or a single initial.
func endsSentence(text string, i int) bool {
	if i+1 < len(text) {
		switch c := text[i+1]; {
		case c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '"' || c == ')' || c == '*' || c == '_' || c == '\'' || c == ']' || c >= utf8.RuneSelf:
		default:
			return false
		}
	}
	j := i
	for j > 0 && (text[j-1]|0x20 >= 'a' && text[j-1]|0x20 <= 'z' || text[j-1] == '.') {
		j--
	}
	switch w := text[j:i]; {
	case len(w) == 1 && w[0] >= 'A' && w[0] <= 'Z' && w != "I":
		return false
	case strings.Contains(w, ".") && len(w) <= 4: // e.g, i.e, U.S
		return i+2 < len(text) && text[i+1] == ' ' && text[i+2] >= 'A' && text[i+2] <= 'Z' && w != "e.g" && w != "i.e"
	}
	switch text[j:i] {
	case "Mr", "Mrs", "Ms", "Dr", "St", "vs", "etc", "Jr", "Sr", "Prof", "No", "bzw", "Sra":
		return text[j:i] == "etc" && i+2 < len(text) && text[i+2] >= 'A' && text[i+2] <= 'Z' || text[j:i] == "No" && j == 0
	}
	return true
}

// itemMarker returns the length of the list marker at the start of line, 0 if
// there is none: "1.", "2)", "-", "*", "•", "a)", "Step 3:".
func itemMarker(line string) int {
	i := 0
	for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
		i++
	}
	s := line[i:]
	if s == "" {
		return 0
	}
	for strings.HasPrefix(s, "*") && len(s) > 1 && s[1] == '*' || strings.HasPrefix(s, "#") {
		i++
		s = s[1:]
		if strings.HasPrefix(s, "*") {
			i++
			s = s[1:]
		}
		for strings.HasPrefix(s, " ") {
			i++
			s = s[1:]
		}
	}
	if s == "" {
		return 0
	}
	d := 0
	for d < len(s) && d < 3 && s[d] >= '0' && s[d] <= '9' {
		d++
	}
	switch {
	case d > 0 && d+1 < len(s) && (s[d] == '.' || s[d] == ')' || s[d] == ':') && (s[d+1] == ' ' || s[d+1] == '*'):
		return i + d + 1
	case d > 0 && strings.HasPrefix(s[d:], "、"):
		return i + d + len("、")
	case d == 0 && len(s) > 2 && s[1] == ')' && s[2] == ' ' && s[0] >= 'a' && s[0] <= 'z':
		return i + 2
	case (s[0] == '-' || s[0] == '*' || s[0] == '+') && len(s) > 1 && s[1] == ' ':
		return i + 1
	case strings.HasPrefix(s, "• "), strings.HasPrefix(s, "– "), strings.HasPrefix(s, "· "), strings.HasPrefix(s, "•\t"):
		return i + strings.IndexAny(s, " \t")
	case len(s) > 6 && (s[:5] == "Step " || s[:5] == "step ") && s[5] >= '0' && s[5] <= '9':
		return i + 5
	}
	return 0
}

// word reads the word at i and returns where it ends.
func (rd *reading) word(text string, i int, quote bool, lex *lexicon) int {
	buf := rd.buf[:0]
	start, end := i, i
	apostrophe := -1 // in buf
	latin := false
	for i < len(text) {
		r, n := decode(text, i)
		if isApostrophe(r) {
			if apostrophe >= 0 || i+n >= len(text) {
				break
			}
			next, _ := decode(text, i+n)
			if !isWordRune(next) {
				break
			}
			apostrophe = len(buf)
			buf = append(buf, '\'')
			i += n
			continue
		}
		if !isWordRune(r) || isUnspaced(r) {
			break
		}
		if f, ok := foldRune(r); ok {
			if f < utf8.RuneSelf {
				latin = true
				buf = append(buf, byte(f))
			} else {
				buf = utf8.AppendRune(buf, f)
			}
		}
		i += n
		end = i
	}
	rd.buf = buf
	if len(buf) == 0 { // nothing but dropped characters
		if i == start {
			_, n := decode(text, i)
			i += n
		}
		return i
	}
	if latin {
		rd.latin++
	} else {
		rd.other++
	}
	w := word{start: int32(start), end: int32(end), quoted: quote}
	add := func(b []byte) {
		w.id = lex.vocabulary[string(b)]
		w.stem, w.long = stem(b)
		rd.words = append(rd.words, w)
	}
	if c, ok := lex.contractions[string(buf)]; ok {
		for _, p := range c {
			w.id, w.stem, w.long = p, 1, false
			rd.words = append(rd.words, w)
		}
		return end
	}
	if apostrophe > 0 {
		switch tail := buf[apostrophe+1:]; {
		case string(tail) == "s": // the genitive, mostly
			add(buf[:apostrophe])
			return end
		case apostrophe <= 2: // French and Italian articles: l'aide, qu'il
			add(buf[:apostrophe])
			add(tail)
			return end
		}
	}
	add(buf)
	return end
}

// stem hashes the first letters of a folded word.
func stem(b []byte) (uint32, bool) {
	h := uint32(2166136261)
	n := 0
	k := 0
	for k < len(b) && n < stemLength {
		h = (h ^ uint32(b[k])) * 16777619
		k++
		if k == len(b) || b[k] < 0x80 || b[k] >= 0xc0 {
			n++
		}
		if n == 3 && len(b)-k == 1 && b[k] == 's' { // dogs, dog
			k++
		}
		if n == 4 && len(b)-k == 1 && b[k] == 's' {
			k++
		}
	}
	return h | 1, n >= 4 || n == 3 && len(b) > 3 || n == 3
}
