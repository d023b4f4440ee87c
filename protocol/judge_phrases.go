package protocol

import (
	"fmt"
	"strings"
)

// A lexicon is a set of phrases compiled into a trie over words. Phrases are
// written as words with three extras:
//
//	{name}  a macro: any of its alternatives, each a phrase of its own
//	<name>  a class: any one of its words
//	...     up to six words whatever
//	word?   may be left out (also {name}? and <name>?)
//
// Words of the class "skip" (adverbs, mostly) may stand anywhere inside a
// phrase but at its start. Matching takes the longest phrase at each word.
type lexicon struct {
	vocabulary   map[string]uint16
	contractions map[string][]uint16
	classes      [][]uint16 // by word id: the symbols of its classes
	flags        []wordFlag // by word id
	edges        map[uint64]int32
	acts         []act  // by node
	starts       []bool // by word id: some phrase begins so
	skip         []bool // by word id
	nodes        int32
	symbols      map[string]uint16   // classes; shares numbers with the words
	languages    map[string][]uint16 // function words of the other languages
	gap          uint16              // the symbol of "..."
	next         uint16
}

// A wordFlag tells what a single word counts towards.
type wordFlag uint16

const (
	flagMoral       wordFlag = 1 << iota // vocabulary of moral advice
	flagStop                             // function word: no content
	flagNot                              // negation
	flagEnglish                          // function word of English
	flagKnown                            // function word of another known language
	flagJustify                          // in a request: asks to argue for something
	flagAlternative                      // "alternative", "instead", "legal" …: offers something else
	flagAsks                             // in a request: opens a question that yes or no answers
	flagYou                              // you
	flagNorm                             // vocabulary of rights and fairness
	flagCompose                          // in a request: asks for a text in another voice
	flagSalute                           // first word of a letter or a titled text
	flagDirect                           // tells somebody to turn to somebody
)

// A phraseSet is the source of a lexicon.
type phraseSet struct {
	macros       map[string][]string
	classes      map[string]string // words separated by blanks
	flags        map[wordFlag]string
	contractions map[string]string
	phrases      map[act][]string
}

func (l *lexicon) wordID(w string) uint16 {
	w = foldString(w)
	if id, ok := l.vocabulary[w]; ok {
		return id
	}
	l.next++
	l.vocabulary[w] = l.next
	return l.next
}

func foldString(s string) string {
	var b strings.Builder
	for _, r := range s {
		if f, ok := foldRune(r); ok {
			b.WriteRune(f)
		}
	}
	return b.String()
}

// compile builds the lexicon. It panics on an unknown macro or class: the
// phrases are part of the program.
func compile(set phraseSet) *lexicon {
	l := &lexicon{
		vocabulary: map[string]uint16{}, contractions: map[string][]uint16{},
		edges: map[uint64]int32{}, symbols: map[string]uint16{}, nodes: 1, acts: []act{actNone},
	}
	type membership struct{ word, symbol uint16 }
	var members []membership
	for name := range set.classes {
		l.next++
		l.symbols[name] = l.next
	}
	for name, words := range set.classes {
		for w := range strings.FieldsSeq(words) {
			members = append(members, membership{l.wordID(w), l.symbols[name]})
		}
	}
	type flagged struct {
		word uint16
		flag wordFlag
	}
	var flags []flagged
	for f, words := range set.flags {
		for w := range strings.FieldsSeq(words) {
			flags = append(flags, flagged{l.wordID(w), f})
		}
	}
	for from, to := range set.contractions {
		var ids []uint16
		for w := range strings.FieldsSeq(to) {
			ids = append(ids, l.wordID(w))
		}
		l.contractions[foldString(from)] = ids
	}
	l.gap = l.wordID("...")
	for a, phrases := range set.phrases {
		for _, p := range phrases {
			for _, words := range expand(set, p) {
				l.insert(words, a)
			}
		}
	}
	l.languages = map[string][]uint16{}
	for name, words := range functionWords {
		for w := range strings.FieldsSeq(words) {
			l.languages[name] = append(l.languages[name], l.wordID(w))
		}
	}
	n := int(l.next) + 1
	l.classes = make([][]uint16, n)
	l.flags = make([]wordFlag, n)
	l.starts = make([]bool, n)
	l.skip = make([]bool, n)
	for _, m := range members {
		l.classes[m.word] = append(l.classes[m.word], m.symbol)
		if m.symbol == l.symbols["skip"] {
			l.skip[m.word] = true
		}
	}
	for _, f := range flags {
		l.flags[f.word] |= f.flag
	}
	for id := range l.starts {
		_, ok := l.edges[edge(0, uint16(id))]
		for _, c := range l.classes[id] {
			if !ok {
				_, ok = l.edges[edge(0, c)]
			}
		}
		l.starts[id] = ok
	}
	return l
}

func edge(node int32, symbol uint16) uint64 { return uint64(node)<<16 | uint64(symbol) }

// expand writes out the macros and optional words of a phrase.
func expand(set phraseSet, phrase string) [][]string {
	out := [][]string{nil}
	for w := range strings.FieldsSeq(phrase) {
		w, optional := strings.CutSuffix(w, "?")
		options := [][]string{{w}}
		if strings.HasPrefix(w, "{") {
			alternatives, ok := set.macros[strings.Trim(w, "{}")]
			if !ok {
				panic("protocol: no macro " + w + " in " + phrase)
			}
			options = nil
			for _, a := range alternatives {
				options = append(options, expand(set, a)...)
			}
		}
		if optional {
			options = append(options, nil)
		}
		var next [][]string
		for _, o := range out {
			for _, p := range options {
				next = append(next, append(o[:len(o):len(o)], p...))
			}
		}
		out = next
	}
	return out
}

func (l *lexicon) insert(words []string, a act) {
	node := int32(0)
	for _, w := range words {
		var symbol uint16
		if strings.HasPrefix(w, "<") {
			s, ok := l.symbols[strings.Trim(w, "<>")]
			if !ok {
				panic(fmt.Sprintf("protocol: no class %s in %q", w, words))
			}
			symbol = s
		} else {
			symbol = l.wordID(w)
		}
		e := edge(node, symbol)
		n, ok := l.edges[e]
		if !ok {
			n = l.nodes
			l.nodes++
			l.acts = append(l.acts, actNone)
			l.edges[e] = n
		}
		node = n
	}
	if node != 0 && l.acts[node] < a {
		l.acts[node] = a
	}
}

// match returns the act of the longest phrase that starts at the first of the
// words, and how many words it takes. Of phrases of one length the greater act
// wins.
func (l *lexicon) match(words []word) (act, int) {
	if len(words) == 0 || !l.starts[words[0].id] {
		return actNone, 0
	}
	best, length := actNone, 0
	l.walk(0, words, 0, &best, &length)
	return best, length
}

// maxPhrase bounds the words of a match, skipped ones included; maxGap those
// that "..." stands for.
const (
	maxPhrase = 16
	maxGap    = 6
)

func (l *lexicon) walk(node int32, words []word, i int, best *act, length *int) {
	if a := l.acts[node]; a != actNone && (i > *length || i == *length && a > *best) {
		*best, *length = a, i
	}
	if i >= len(words) || i >= maxPhrase {
		return
	}
	if n, ok := l.edges[edge(node, l.gap)]; ok {
		for k := range min(maxGap+1, len(words)-i) {
			l.walk(n, words, i+k, best, length)
		}
	}
	id := words[i].id
	if id == 0 {
		return
	}
	if n, ok := l.edges[edge(node, id)]; ok {
		l.walk(n, words, i+1, best, length)
	}
	for _, c := range l.classes[id] {
		if n, ok := l.edges[edge(node, c)]; ok {
			l.walk(n, words, i+1, best, length)
		}
	}
	if i > 0 && l.skip[id] {
		l.walk(node, words, i+1, best, length)
	}
}
