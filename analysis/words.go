package analysis

import (
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"unicode"

	"demur/data"
)

// wordsOf returns digests of the distinct words of a text, in lower case, sorted.
// Digests stand for the words, so that no text has to be kept.
func wordsOf(text string) []uint32 {
	fields := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\'' })
	words := make([]uint32, 0, len(fields))
	for _, f := range fields {
		h := fnv.New32a()
		h.Write([]byte(f))
		words = append(words, h.Sum32())
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// The statistics of the predictor from the request's words alone.
const (
	wRight = iota
	wSelf
	wOf
	wSize
)

// words builds the rows of a predictor that sees which words a request has and
// nothing of the model: a Bernoulli naive Bayes classifier, learnt on the other
// nine folds of requests. What self-prediction adds to it is more than the
// wording gives away. It returns nil where no request has a text.
//
// Source: McCallum and Nigam, A comparison of event models for naive Bayes text
// classification. AAAI-98 workshop on learning for text categorization; words
// that are absent are left out of the product, as is usual for short texts.
func (a *arranged) words(said []predictionRow, fold Fold) *Clusters {
	type item struct {
		words             []uint32
		refused, complied float64
		held              int
	}
	items := make([]item, len(a.prompts))
	var prior [folds][2]float64
	type pair [folds][2]float64
	counts := map[uint32]*pair{}
	any := false
	for i, p := range a.prompts {
		r := &a.d.requests[a.clusters[p.cluster]]
		x := item{words: r.words[a.d.variants.list[p.variant]], held: foldOf(r.id)}
		n := a.labelsOf(&a.prompts[i], -1)
		for label, c := range n[:labelFailed] {
			if refused, ok := fold.Refused(data.Labels()[label]); ok && refused {
				x.refused += float64(c)
			} else if ok {
				x.complied += float64(c)
			}
		}
		items[i] = x
		total := x.refused + x.complied
		if len(x.words) == 0 || total == 0 {
			continue
		}
		any = true
		// Each prompt weighs one: its trials are not independent texts.
		prior[x.held][0] += x.complied / total
		prior[x.held][1] += x.refused / total
		for _, w := range x.words {
			c := counts[w]
			if c == nil {
				c = &pair{}
				counts[w] = c
			}
			c[x.held][0] += x.complied / total
			c[x.held][1] += x.refused / total
		}
	}
	if !any {
		return nil
	}
	others := func(p *[folds][2]float64, held, class int) float64 {
		var s float64
		for f := range folds {
			if f != held {
				s += p[f][class]
			}
		}
		return s
	}
	rows := NewClusters(len(a.clusters), wSize)
	for i, x := range items {
		total := x.refused + x.complied
		if len(x.words) == 0 || total == 0 || said[i].outcome > saysRefuse {
			continue
		}
		// One occurrence is added to each word, split as the prompts are: a word that
		// was never seen then tells nothing, whatever the sizes of the classes.
		var score [2]float64
		all := others(&prior, x.held, 0) + others(&prior, x.held, 1)
		for class := range 2 {
			n := others(&prior, x.held, class)
			score[class] = math.Log(n)
			for _, w := range x.words {
				if n > 0 {
					score[class] += math.Log(others((*[folds][2]float64)(counts[w]), x.held, class)/n + 1/all)
				}
			}
		}
		right := x.complied
		if score[1] > score[0] {
			right = x.refused
		}
		self := x.complied
		if said[i].outcome == saysRefuse {
			self = x.refused
		}
		c := int(a.prompts[i].cluster)
		rows.Add(c, wRight, right)
		rows.Add(c, wSelf, self)
		rows.Add(c, wOf, total)
	}
	return rows
}

func wordMetrics() []metric {
	const why = "undefined: no request has a text and a prediction"
	return []metric{
		{name: "words_accuracy", num: sumOf(wRight), den: sumOf(wOf), kind: rate, why: why},
		{name: "gain_over_words", value: func(t []float64) float64 { return ratio(t[wSelf]-t[wRight], t[wOf]) }, base: sumOf(wOf), why: why},
	}
}
