package data

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var builtinTopics = []string{
	"drugs", "fraud", "hacking", "hate", "illegal_activities",
	"manipulation", "privacy", "self_harm", "violence", "weapons",
}

func builtinOrFail(t *testing.T) []Request {
	t.Helper()
	rows, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestBuiltinShape(t *testing.T) {
	rows := builtinOrFail(t)
	if len(rows) != 900 {
		t.Fatalf("got %d rows, want 900", len(rows))
	}
	for i, r := range rows {
		id := fmt.Sprintf("%s-%03d", builtinTopics[i/90], i/3%30+1)
		want := Request{ID: id, Variant: []string{Base, P1, P2}[i%3], Topic: builtinTopics[i/90], Source: "demur", Language: "en"}
		got := Request{ID: r.ID, Variant: r.Variant, Topic: r.Topic, Source: r.Source, Language: r.Language}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("row %d: got %v, want %v", i+1, got, want)
		}
		if n := len(strings.Fields(r.Text)); n < 4 || n > 30 {
			t.Errorf("%s %s: got %d words, want 4 to 30", r.ID, r.Variant, n)
		}
	}
}

func TestBuiltinHasNoFaults(t *testing.T) {
	r := CheckRequests(builtinOrFail(t))
	if r.Requests != 300 {
		t.Errorf("got %d requests, want 300", r.Requests)
	}
	for i, b := range r.Balance {
		if want := (Balance{Topic: builtinTopics[i], Levels: [5]int{5, 5, 10, 5, 5}}); b != want {
			t.Errorf("balance: got %+v, want %+v", b, want)
		}
	}
	bad := len(r.Incomplete) + len(r.Inconsistent) + len(r.Repeated) + len(r.Duplicates) + len(r.NearDuplicates) + len(r.Blank) + len(r.Faults)
	if bad > 0 {
		var b strings.Builder
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		t.Errorf("got faults, want none:\n%s", b.String())
	}
}

func TestDemo(t *testing.T) {
	rows, err := Demo()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 180 {
		t.Errorf("got %d rows, want 180", len(rows))
	}
	r := CheckRequests(rows)
	if r.Requests != 60 || len(r.Incomplete) > 0 {
		t.Errorf("got %d requests, incomplete %v; want 60, none", r.Requests, r.Incomplete)
	}
	for i, b := range r.Balance {
		if want := (Balance{Topic: builtinTopics[i], Levels: [5]int{1, 1, 2, 1, 1}}); b != want {
			t.Errorf("balance: got %+v, want %+v", b, want)
		}
	}
}

func TestBuiltinDigest(t *testing.T) {
	b, err := os.ReadFile("requests/requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := BuiltinDigest(), fmt.Sprintf("%x", sha256.Sum256(b)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLevelIsNotInTheOrder holds that numbers within a topic do not tell the
// level: they would, if requests were written level by level and left so.
func TestLevelIsNotInTheOrder(t *testing.T) {
	var s scored
	for i, r := range builtinOrFail(t) {
		if r.Harm != 3 {
			s.add(float64(i%90), r.Harm > 3)
		}
	}
	got := s.auroc()
	t.Logf("AUROC of the number within the topic: %.3f", got)
	if max(got, 1-got) >= 0.65 {
		t.Errorf("got AUROC %.3f, want inside (0.35, 0.65)", got)
	}
}

// TestLevelIsNotInTheStyle holds that safe requests (levels 1, 2) and harmful
// ones (4, 5) are not told apart by how they are worded, nor either from the
// ambiguous middle. If they were, a probe or a prediction could look good by
// reading style. Each topic is scored by a classifier that was fitted on the
// other nine, so that it can use only what topics share. 0.5 is chance; a score
// well below 0.5 tells the level too, and so counts as its mirror image.
func TestLevelIsNotInTheStyle(t *testing.T) {
	const lengthLimit, wordsLimit = 0.70, 0.85
	hold := func(name string, limit, got float64) {
		t.Helper()
		t.Logf("%-50s AUROC %.3f, limit %.2f", name, got, limit)
		if max(got, 1-got) >= limit {
			t.Errorf("%s: AUROC %.3f tells the level from the style, want inside (%.2f, %.2f)", name, got, 1-limit, limit)
		}
	}

	ends := levels(t, 1, 2, 4, 5)
	harmful := func(r Request) bool { return r.Harm > 3 }
	for _, l := range []struct {
		name  string
		count func(string) int
	}{
		{"words", func(s string) int { return len(strings.Fields(s)) }},
		{"characters", utf8.RuneCountInString},
	} {
		var s scored
		for _, r := range ends {
			s.add(float64(l.count(r.Text)), harmful(r))
		}
		hold(l.name, lengthLimit, s.auroc())
	}

	got := crossFitted(ends, harmful, lengths(ends), topicOf)
	hold("both lengths, fitted on the other topics", lengthLimit, got.pooled)
	hold("the same, mean of topics", lengthLimit, got.mean)

	words := bagsOfWords(ends)
	got = crossFitted(ends, harmful, words, topicOf)
	hold("bag of words, fitted on the other topics", wordsLimit, got.pooled)
	hold("the same, mean of topics", wordsLimit, got.mean)
	for i, a := range got.each {
		t.Logf("  %-20s AUROC %.3f", builtinTopics[i], a)
	}

	// The same with all topics seen and no request in both parts: number n of
	// each topic is held out together with n + 10 and n + 20.
	number := func(r Request) int { return int(r.ID[len(r.ID)-1] - '0') }
	got = crossFitted(ends, harmful, words, number)
	hold("bag of words, fitted on other requests", wordsLimit, got.pooled)

	middle := func(r Request) bool { return r.Harm == 3 }
	lower, upper := levels(t, 1, 2, 3), levels(t, 3, 4, 5)
	got = crossFitted(lower, middle, bagsOfWords(lower), topicOf)
	hold("bag of words, level 3 against 1 and 2", wordsLimit, got.pooled)
	got = crossFitted(upper, middle, bagsOfWords(upper), topicOf)
	hold("bag of words, level 3 against 4 and 5", wordsLimit, got.pooled)
}

// TestStyleClassifierFindsStyle plants a word in most harmful rows: a classifier
// that does not find it would pass any set.
func TestStyleClassifierFindsStyle(t *testing.T) {
	rows := levels(t, 1, 2, 4, 5)
	harmful := func(r Request) bool { return r.Harm > 3 }
	for i := range rows {
		if harmful(rows[i]) && i%5 > 0 {
			rows[i].Text += " lockpick"
		}
	}
	if got := crossFitted(rows, harmful, bagsOfWords(rows), topicOf).pooled; got < 0.85 {
		t.Errorf("got AUROC %.3f with a word planted in four harmful rows of five, want 0.85 or more", got)
	}
}

// levels returns the rows of the built-in set that have one of the harm levels.
func levels(t *testing.T, harm ...int) []Request {
	t.Helper()
	return slices.DeleteFunc(builtinOrFail(t), func(r Request) bool { return !slices.Contains(harm, r.Harm) })
}

func topicOf(r Request) int { return slices.Index(builtinTopics, r.Topic) }

// features are the non-zero columns of a row with their values.
type features map[int]float64

// word is what scikit-learn's token_pattern (?u)\b\w+\b takes as one.
var word = regexp.MustCompile(`[\pL\pN_]+`)

// bagsOfWords returns 1 for each lower-cased word that a row has.
func bagsOfWords(rows []Request) []features {
	column := map[string]int{}
	out := make([]features, len(rows))
	for i, r := range rows {
		out[i] = features{}
		for _, w := range word.FindAllString(strings.ToLower(r.Text), -1) {
			if _, ok := column[w]; !ok {
				column[w] = len(column)
			}
			out[i][column[w]] = 1
		}
	}
	return out
}

// lengths returns words and characters of each row, each divided by
// about its largest value.
func lengths(rows []Request) []features {
	out := make([]features, len(rows))
	for i, r := range rows {
		out[i] = features{
			0: float64(len(strings.Fields(r.Text))) / 30,
			1: float64(utf8.RuneCountInString(r.Text)) / 150,
		}
	}
	return out
}

// aurocs are those of held-out scores: of all rows together, of each fold, and
// the folds' mean.
type aurocs struct {
	pooled, mean float64
	each         []float64
}

// crossFitted scores each row by a classifier of positive that was fitted on
// the rows of the other nine folds. fold is in [0, 10).
func crossFitted(rows []Request, positive func(Request) bool, x []features, fold func(Request) int) aurocs {
	const folds = 10
	var all scored
	var out aurocs
	for f := range folds {
		var fitX []features
		var fitY []bool
		for i, r := range rows {
			if fold(r) != f {
				fitX, fitY = append(fitX, x[i]), append(fitY, positive(r))
			}
		}
		score := fitLogistic(fitX, fitY)
		var own scored
		for i, r := range rows {
			if fold(r) == f {
				own.add(score(x[i]), positive(r))
				all.add(score(x[i]), positive(r))
			}
		}
		out.each = append(out.each, own.auroc())
		out.mean += own.auroc() / folds
	}
	out.pooled = all.auroc()
	return out
}

// fitLogistic returns the score b + w·x of the w, b that minimise the mean
// logistic loss plus |w|²/2n, b unpenalised: scikit-learn's LogisticRegression
// with C = 1. It takes 600 steps of Nesterov's accelerated gradient descent
// with the step 1/L and the momentum of the curvature's bounds: above
// L = (1 + max |x|²)/4 + 1/n, below 1/n. More steps move no AUROC by 0.001.
//
// Columns that never occur in x have weight 0.
func fitLogistic(x []features, y []bool) func(features) float64 {
	n := float64(len(x))
	// Features as sorted slices: quicker, and summed in one order.
	type entry struct {
		column int
		value  float64
	}
	rows, width, bound := make([][]entry, len(x)), 0, 0.0
	for i, f := range x {
		norm := 1.0
		for c, v := range f {
			rows[i] = append(rows[i], entry{c, v})
			width, norm = max(width, c+1), norm+v*v
		}
		slices.SortFunc(rows[i], func(a, b entry) int { return a.column - b.column })
		bound = max(bound, norm)
	}
	step := 1 / (bound/4 + 1/n)
	root := math.Sqrt(step / n)
	momentum := (1 - root) / (1 + root)

	w, ahead, gradient := make([]float64, width+1), make([]float64, width+1), make([]float64, width+1)
	bias := width // the last weight
	for range 600 {
		for c := range gradient {
			gradient[c] = ahead[c] / n
		}
		gradient[bias] = 0
		for i, row := range rows {
			z := ahead[bias]
			for _, e := range row {
				z += ahead[e.column] * e.value
			}
			miss := 1 / (1 + math.Exp(-z)) / n
			if y[i] {
				miss -= 1 / n
			}
			for _, e := range row {
				gradient[e.column] += miss * e.value
			}
			gradient[bias] += miss
		}
		for c := range w {
			next := ahead[c] - step*gradient[c]
			ahead[c] = next + momentum*(next-w[c])
			w[c] = next
		}
	}
	return func(f features) float64 {
		z := w[bias]
		for _, c := range slices.Sorted(maps.Keys(f)) {
			if c < width {
				z += w[c] * f[c]
			}
		}
		return z
	}
}

// scored are the scores of the two classes.
type scored struct{ positive, negative []float64 }

func (s *scored) add(score float64, positive bool) {
	if positive {
		s.positive = append(s.positive, score)
	} else {
		s.negative = append(s.negative, score)
	}
}

// auroc returns the share of pairs in which the positive row scores higher, ties
// as one half.
func (s *scored) auroc() float64 {
	sum := 0.0
	for _, p := range s.positive {
		for _, n := range s.negative {
			switch {
			case p > n:
				sum++
			case p == n:
				sum += 0.5
			}
		}
	}
	return sum / float64(len(s.positive)) / float64(len(s.negative))
}

// TestBuiltinNamesNoMethod is a coarse guard of what the set promises: requests
// ask and never tell, so they hold no quantities, formulas, addresses or links.
func TestBuiltinNamesNoMethod(t *testing.T) {
	for _, r := range builtinOrFail(t) {
		digits := strings.ContainsFunc(strings.ReplaceAll(r.Text, "3D", ""), unicode.IsDigit)
		if digits || strings.Contains(r.Text, "://") || strings.Contains(r.Text, "@") || strings.Contains(r.Text, "%") {
			t.Errorf("%s %s: has a digit, a link, an address or a percentage", r.ID, r.Variant)
		}
	}
}
