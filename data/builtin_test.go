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
// ones (4, 5) are not told apart by how they are worded. If they were, a probe
// or a prediction could look good by reading style. Each topic is scored by a
// classifier that was fitted on the other nine, so that it can use only what
// topics share. 0.5 is chance; a score well below 0.5 tells the level too, and
// so counts as its mirror image.
func TestLevelIsNotInTheStyle(t *testing.T) {
	var rows []Request
	for _, r := range builtinOrFail(t) {
		if r.Harm != 3 {
			rows = append(rows, r)
		}
	}
	topic := func(r Request) int { return slices.Index(builtinTopics, r.Topic) }
	hold := func(name string, limit, got float64) {
		t.Helper()
		t.Logf("%-58s AUROC %.3f, limit %.2f", name, got, limit)
		if max(got, 1-got) >= limit {
			t.Errorf("%s: AUROC %.3f tells the level from the style, want inside (%.2f, %.2f)", name, got, 1-limit, limit)
		}
	}

	for _, l := range []struct {
		name  string
		count func(string) int
	}{
		{"length alone: words", func(s string) int { return len(strings.Fields(s)) }},
		{"length alone: characters", utf8.RuneCountInString},
	} {
		var s scored
		for _, r := range rows {
			s.add(float64(l.count(r.Text)), r.Harm > 3)
		}
		hold(l.name, 0.70, s.auroc())
	}

	pooled, mean := crossFitted(t, rows, lengths(rows), 10, topic)
	hold("length, fitted on the other topics: pooled", 0.70, pooled)
	hold("length, fitted on the other topics: mean of topics", 0.70, mean)

	words := bagsOfWords(rows)
	pooled, mean = crossFitted(t, rows, words, 10, topic)
	hold("bag of words, fitted on the other topics: pooled", 0.85, pooled)
	hold("bag of words, fitted on the other topics: mean of topics", 0.85, mean)

	// The same with all topics seen, no request of which is in both parts:
	// number n of every topic is held out together with n + 10 and n + 20.
	number := func(r Request) int { return int(r.ID[len(r.ID)-1] - '0') }
	pooled, _ = crossFitted(t, rows, words, 10, number)
	hold("bag of words, fitted on other requests of all topics", 0.85, pooled)
}

// TestStyleClassifierFindsStyle plants a word in the harmful rows alone: a
// classifier that cannot find it would pass any set.
func TestStyleClassifierFindsStyle(t *testing.T) {
	var rows []Request
	for i, r := range builtinOrFail(t) {
		if r.Harm == 3 {
			continue
		}
		if r.Harm > 3 && i%5 > 0 {
			r.Text += " please"
		}
		rows = append(rows, r)
	}
	topic := func(r Request) int { return slices.Index(builtinTopics, r.Topic) }
	got, _ := crossFitted(t, rows, bagsOfWords(rows), 10, topic)
	if got < 0.85 {
		t.Errorf("got AUROC %.3f with a word planted in four harmful rows of five, want 0.85 or more", got)
	}
}

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

// crossFitted returns the AUROC of all rows' scores together, and the mean of
// the folds' own. fold gives each row's fold, in [0, folds); its score is that
// of a classifier fitted on the others.
func crossFitted(t *testing.T, rows []Request, x []features, folds int, fold func(Request) int) (pooled, mean float64) {
	t.Helper()
	var all scored
	var each []string
	for f := range folds {
		var fitX []features
		var fitY []bool
		for i, r := range rows {
			if fold(r) != f {
				fitX, fitY = append(fitX, x[i]), append(fitY, r.Harm > 3)
			}
		}
		score := fitLogistic(fitX, fitY)
		var own scored
		for i, r := range rows {
			if fold(r) == f {
				own.add(score(x[i]), r.Harm > 3)
				all.add(score(x[i]), r.Harm > 3)
			}
		}
		mean += own.auroc() / float64(folds)
		each = append(each, fmt.Sprintf("%.2f", own.auroc()))
	}
	t.Logf("folds: %s", strings.Join(each, " "))
	return all.auroc(), mean
}

// fitLogistic returns the score b + w·x of the w, b that minimise the mean
// logistic loss plus |w|²/2n, b unpenalised: scikit-learn's LogisticRegression
// with C = 1. It takes 2000 steps of Nesterov's accelerated gradient descent
// of size 1/L, where L = (1 + max |x|²)/4 + 1/n bounds the curvature.
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

	w, ahead, gradient := make([]float64, width+1), make([]float64, width+1), make([]float64, width+1)
	bias := width // the last weight
	for k := range 2000 {
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
		momentum := float64(k) / float64(k+3)
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

// scored are the scores of harmful and of safe rows.
type scored struct{ harmful, safe []float64 }

func (s *scored) add(score float64, harmful bool) {
	if harmful {
		s.harmful = append(s.harmful, score)
	} else {
		s.safe = append(s.safe, score)
	}
}

// auroc returns the share of pairs in which the harmful row scores higher, ties
// as one half.
func (s *scored) auroc() float64 {
	sum := 0.0
	for _, h := range s.harmful {
		for _, l := range s.safe {
			switch {
			case h > l:
				sum++
			case h == l:
				sum += 0.5
			}
		}
	}
	return sum / float64(len(s.harmful)) / float64(len(s.safe))
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
