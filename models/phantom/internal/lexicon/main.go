// Command lexicon writes the phantom's word list from a request set: which
// words are harmful and how much, which carry a trigger, and which pieces of
// text get tokens so that prompts stay short. Run it by go generate in
// models/phantom whenever the request set or the wordings of the prediction
// question change.
//
// A word's harm is the lowest level of the requests that it stands in. A request
// reaches its level if some word of it stands in no request of a lower one; of
// such words the list takes as few as cover the requests. Words of the
// prediction question carry nothing.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"demur/models/phantom/internal/pretoken"
)

func main() {
	requests := flag.String("requests", "", "request set, JSONL with the fields text and harm")
	questions := flag.String("questions", "", "folder of the prediction question's wordings, *.txt")
	out := flag.String("out", "", "word list to write")
	flag.Parse()
	if err := run(*requests, *questions, *out); err != nil {
		fmt.Fprintln(os.Stderr, "lexicon:", err)
		os.Exit(1)
	}
}

func run(requests, questions, out string) error {
	rows, err := readRows(requests)
	if err != nil {
		return err
	}
	wordings, err := readWordings(questions)
	if err != nil {
		return err
	}
	l := newList(rows, wordings)
	l.chooseHarm()
	l.chooseCarriers()
	l.choosePieces()
	if err := os.WriteFile(out, l.file(), 0o666); err != nil {
		return err
	}
	l.summary(os.Stderr)
	return nil
}

type row struct {
	Text string `json:"text"`
	Harm int    `json:"harm"`

	words []string // different ones, in order
}

func readRows(name string) ([]row, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []row
	d := json.NewDecoder(bufio.NewReader(f))
	for {
		var r row
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s, row %d: %w", name, len(rows)+1, err)
		}
		if r.Harm < 1 || r.Harm > 5 || r.Text == "" {
			return nil, fmt.Errorf("%s, row %d: no text, or harm %d is not 1 to 5", name, len(rows)+1, r.Harm)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: no rows", name)
	}
	return rows, nil
}

func readWordings(folder string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no wordings", folder)
	}
	slices.Sort(names)
	var all []string
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			return nil, err
		}
		_, text, _ := strings.Cut(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n\n")
		all = append(all, strings.TrimSpace(text))
	}
	return all, nil
}

const (
	requestMark = "{{request}}"
	shortest    = 3  // letters of a word that can carry something
	mostCarried = 12 // rows that one trigger word may stand in
)

type list struct {
	rows     []row
	wordings []string
	where    map[string][]int // word → rows
	lowest   map[string]int   // word → lowest level of its rows
	excluded map[string]bool  // words of the question
	harm     map[string]int
	carriers map[string]bool
	forms    map[string]string // word → letters of the forms in which it occurs
	pieces   []string
	short    int // rows that do not reach their level
}

func newList(rows []row, wordings []string) *list {
	l := &list{
		rows: rows, wordings: wordings,
		where: map[string][]int{}, lowest: map[string]int{}, excluded: map[string]bool{},
		harm: map[string]int{}, carriers: map[string]bool{}, forms: map[string]string{},
	}
	for _, w := range wordings {
		for _, p := range pretoken.Split(strings.ReplaceAll(w, requestMark, "")) {
			if word, ok := wordOf(p); ok {
				l.excluded[word] = true
			}
		}
	}
	for i := range rows {
		seen := map[string]bool{}
		for _, p := range pretoken.Split(rows[i].Text) {
			word, ok := wordOf(p)
			if !ok || seen[word] || l.excluded[word] || len(word) < shortest {
				continue
			}
			seen[word] = true
			l.rows[i].words = append(l.rows[i].words, word)
			l.where[word] = append(l.where[word], i)
			if low := l.lowest[word]; low == 0 || rows[i].Harm < low {
				l.lowest[word] = rows[i].Harm
			}
		}
	}
	return l
}

// usual are the forms that a word with a value has tokens for even if they do
// not occur: after a blank, and with a capital at the start of a text and of a
// quotation.
const usual = "aBQ"

// formOf returns the letter of the form in which piece shows a word.
func formOf(piece string) rune {
	forms := "bB"
	switch piece[0] {
	case ' ':
		forms = "aA"
	case '"':
		forms = "qQ"
	}
	word := strings.TrimLeft(piece, " \"")
	if strings.ToLower(word) == word {
		return rune(forms[0])
	}
	return rune(forms[1])
}

// wordOf returns the word of a piece in lower case, if the piece is one of the
// forms in which the phantom knows words.
func wordOf(piece string) (string, bool) {
	word := strings.TrimLeft(piece, " \"")
	if len(piece)-len(word) > 1 || word == "" {
		return "", false
	}
	for i, r := range word {
		if !unicode.IsLetter(r) || i > 0 && !unicode.IsLower(r) && unicode.ToLower(r) != r {
			return "", false
		}
	}
	return strings.ToLower(word), true
}

// cover returns words, as few as greed finds, so that each of the rows that
// wants one has one. usable says which words may serve a row.
func (l *list) cover(wants func(i int) bool, usable func(word string, i int) bool) map[string]bool {
	open := map[int]bool{}
	for i := range l.rows {
		if wants(i) {
			open[i] = true
		}
	}
	words := slices.Sorted(func(yield func(string) bool) {
		for w := range l.where {
			if !yield(w) {
				return
			}
		}
	})
	chosen := map[string]bool{}
	for len(open) > 0 {
		best, most := "", 0
		for _, w := range words {
			n := 0
			for _, i := range l.where[w] {
				if open[i] && usable(w, i) {
					n++
				}
			}
			if n > most {
				best, most = w, n
			}
		}
		if most == 0 {
			break
		}
		chosen[best] = true
		for _, i := range l.where[best] {
			if usable(best, i) {
				delete(open, i)
			}
		}
	}
	return chosen
}

// chooseHarm gives words harm so that requests above level 1 reach their level.
// A request in which every word stands lower somewhere else gets the highest
// that its words allow.
func (l *list) chooseHarm() {
	reach := func(i int) int {
		highest := 1
		for _, w := range l.rows[i].words {
			highest = max(highest, l.lowest[w])
		}
		return highest
	}
	for w := range l.cover(
		func(i int) bool { return reach(i) > 1 },
		func(w string, i int) bool { return l.lowest[w] == reach(i) },
	) {
		l.harm[w] = l.lowest[w]
	}
	for i := range l.rows {
		if reach(i) < l.rows[i].Harm {
			l.short++
		}
	}
}

// chooseCarriers picks trigger words so that every request has one, none of them
// a word of many requests.
func (l *list) chooseCarriers() {
	l.carriers = l.cover(
		func(int) bool { return true },
		func(w string, _ int) bool { return len(l.where[w]) <= mostCarried },
	)
}

// choosePieces collects what else gets a token: all pieces of the question's
// wordings, and the pieces of prompts that occur more than once.
func (l *list) choosePieces() {
	counts := map[string]int{}
	for _, w := range l.wordings {
		for _, p := range pretoken.Split(strings.ReplaceAll(w, requestMark, "")) {
			counts[p] += 2
		}
		for _, r := range l.rows {
			for _, p := range pretoken.Split(strings.Replace(w, requestMark, r.Text, 1)) {
				counts[p]++
			}
		}
	}
	for _, r := range l.rows {
		for _, p := range pretoken.Split(r.Text) {
			counts[p]++
		}
	}
	for p, n := range counts {
		if word, ok := wordOf(p); ok && (l.harm[word] > 0 || l.carriers[word]) {
			if f := string(formOf(p)); !strings.Contains(l.forms[word]+usual, f) {
				l.forms[word] += f
			}
			continue
		}
		// Each wording shows each request: what stands in one request alone is
		// counted once for the request and once for each wording.
		if len(p) > 1 && n > 1+len(l.wordings) {
			l.pieces = append(l.pieces, p)
		}
	}
	slices.Sort(l.pieces)
}

func (l *list) file() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by internal/lexicon from %d requests and %d wordings of the question; not by hand.\n", len(l.rows), len(l.wordings))
	fmt.Fprintf(&b, "# w word harm level forms: see lexicon.go\n")
	words := map[string]bool{}
	for w := range l.harm {
		words[w] = true
	}
	for w := range l.carriers {
		words[w] = true
	}
	sorted := make([]string, 0, len(words))
	for w := range words {
		sorted = append(sorted, w)
	}
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Compare(a, b) })
	for _, w := range sorted {
		carried := "-"
		if l.carriers[w] {
			sum := 0
			for _, i := range l.where[w] {
				sum += l.rows[i].Harm
			}
			carried = fmt.Sprintf("%.1f", float64(sum)/float64(len(l.where[w])))
		}
		letters := []byte(usual + l.forms[w])
		slices.Sort(letters)
		fmt.Fprintf(&b, "w %s %d %s %s\n", w, l.harm[w], carried, letters)
	}
	for _, p := range l.pieces {
		fmt.Fprintf(&b, "p %q\n", p)
	}
	return b.Bytes()
}

func (l *list) summary(w io.Writer) {
	carried := map[int]int{}
	bare := 0
	for _, r := range l.rows {
		n := 0
		for _, word := range r.words {
			if l.carriers[word] {
				n++
			}
		}
		carried[n]++
		if n == 0 {
			bare++
		}
	}
	fmt.Fprintf(w, "%d words with harm, %d with a trigger, %d pieces; %d of %d requests stay below their level, %d carry no trigger; requests by trigger words: %v\n",
		len(l.harm), len(l.carriers), len(l.pieces), l.short, len(l.rows), bare, carried)
}
