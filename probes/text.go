package probes

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// sparse is a matrix of few numbers.
type sparse struct {
	columns int
	start   []int // of each row's entries, rows+1
	column  []int32
	value   []float64
}

func (m *sparse) dims() (int, int) { return len(m.start) - 1, m.columns }

func (m *sparse) mul(w, out []float64) {
	for i := range out {
		var sum float64
		for k := m.start[i]; k < m.start[i+1]; k++ {
			sum += m.value[k] * w[m.column[k]]
		}
		out[i] = sum
	}
}

func (m *sparse) mulT(r, out []float64) {
	for i, v := range r {
		for k := m.start[i]; k < m.start[i+1]; k++ {
			out[m.column[k]] += v * m.value[k]
		}
	}
}

// grams are the counted words, pairs of words and runs of letters of texts.
type grams struct {
	names []string
	count []map[int]int // by text
	word  []bool        // of each gram: a word or pair, not a run of letters
}

// newGrams counts words and pairs of neighbouring words, and the runs of 2 to 4
// letters of each word with its borders, in lower case.
func newGrams(texts []string) *grams {
	g := &grams{}
	index := make(map[string]int)
	for _, text := range texts {
		count := make(map[int]int)
		note := func(name string, word bool) {
			k, ok := index[name]
			if !ok {
				k = len(g.names)
				index[name] = k
				g.names = append(g.names, name)
				g.word = append(g.word, word)
			}
			count[k]++
		}
		words := wordsOf(text)
		for i, w := range words {
			note("w "+w, true)
			if i > 0 {
				note("w "+words[i-1]+" "+w, true)
			}
			letters := []rune(" " + w + " ")
			for n := 2; n <= 4; n++ {
				for j := 0; j+n <= len(letters); j++ {
					note("c "+string(letters[j:j+n]), false)
				}
			}
		}
		g.count = append(g.count, count)
	}
	return g
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\''
	})
}

// features are TF-IDF values learned from the texts of train: grams that at
// least two of them have, weighted by (1 + log count)·(1 + log((1+n)/(1+df))),
// words and letters each scaled to length 1, so that both have a say.
//
// Source of the weights: Manning, Raghavan and Schütze, Introduction to
// Information Retrieval (2008), section 6.4, smoothed as scikit-learn does.
func (g *grams) features(_ int, train, test []int) (x, z matrix) {
	df := make([]int, len(g.names))
	for _, i := range train {
		for k := range g.count[i] {
			df[k]++
		}
	}
	column := make([]int32, len(g.names))
	idf := make([]float64, len(g.names))
	n := 0
	for k, d := range df {
		column[k] = -1
		if d >= 2 {
			column[k] = int32(n)
			idf[k] = 1 + math.Log(float64(1+len(train))/float64(1+d))
			n++
		}
	}
	build := func(rows []int) *sparse {
		m := &sparse{columns: n, start: []int{0}}
		for _, i := range rows {
			var keys []int
			for k := range g.count[i] {
				if column[k] >= 0 {
					keys = append(keys, k)
				}
			}
			slices.Sort(keys)
			var words, letters float64
			from := len(m.value)
			for _, k := range keys {
				v := (1 + math.Log(float64(g.count[i][k]))) * idf[k]
				m.column, m.value = append(m.column, column[k]), append(m.value, v)
				if g.word[k] {
					words += v * v
				} else {
					letters += v * v
				}
			}
			for j, k := range keys {
				if g.word[k] {
					m.value[from+j] /= math.Sqrt(words)
				} else {
					m.value[from+j] /= math.Sqrt(letters)
				}
			}
			m.start = append(m.start, len(m.value))
		}
		return m
	}
	return build(train), build(test)
}

// lengths are what of a text can be counted without reading it.
func lengths(text string) []float64 {
	words := wordsOf(text)
	var punctuation, capitals, digits, question float64
	letters := 0
	for _, r := range text {
		letters++
		switch {
		case unicode.IsPunct(r):
			punctuation++
		case unicode.IsUpper(r):
			capitals++
		case unicode.IsDigit(r):
			digits++
		}
		if r == '?' {
			question = 1
		}
	}
	return []float64{math.Log1p(float64(letters)), math.Log1p(float64(len(words))), punctuation, capitals, digits, question}
}

// scaled is a maker for a few features a row: columns scaled by the training
// rows.
func scaled(features [][]float64) maker {
	width := len(features[0])
	flat := make([]float64, 0, len(features)*width)
	for _, f := range features {
		flat = append(flat, f...)
	}
	return func(_ int, train, test []int) (x, z matrix) {
		s := newScaling(flat, width, train)
		return s.apply(flat, width, train), s.apply(flat, width, test)
	}
}
