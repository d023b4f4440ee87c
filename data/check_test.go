package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// loaves returns requests with the given texts, ids r1, r2, … and one wording.
func loaves(texts ...string) []Request {
	var out []Request
	for i, t := range texts {
		out = append(out, Request{ID: fmt.Sprintf("r%d", i+1), Variant: Base, Text: t, Topic: "bread", Harm: 1})
	}
	return out
}

func TestCheckRequestsFaults(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // kind@offset
	}{
		{"plain", "How do I bake bread?", nil},
		{"accents and other scripts", "Où est le pâté? Ünïcode, São João, 面包, naïve, Â la", nil},
		{"tab and line ends", "bake\tbread\r\nat home", nil},
		{"emoji with a joiner", "bake 👩‍🍳 bread", nil},
		{"invalid UTF-8", "bake \xff bread", []string{"invalid_utf8@5"}},
		{"cut in a rune", "pâté \xc3", []string{"invalid_utf8@7"}},
		{"NUL", "bake\x00bread", []string{"nul@4"}},
		{"escape", "bake \x1b[2J bread", []string{"control@5"}},
		{"BOM", "\uFEFFbake bread", []string{"bom@0"}},
		{"writing direction", "bake \u202Edaerb", []string{"invisible@5"}},
		{"mojibake apostrophe", "donâ€™t burn it", []string{"mojibake@3"}},
		{"mojibake vowel", "pÃ¢tÃ©", []string{"mojibake@1"}},
		{"lone replacement character", "bake\uFFFDbread", []string{"replacement@4"}},
		{"two kinds", "\uFEFFdonâ€™t", []string{"bom@0", "mojibake@6"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range CheckRequests(loaves(tt.text)).Faults {
				got = append(got, fmt.Sprintf("%s@%d", f.Kind, f.At))
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("faults of %q: got %v, want %v", tt.text, got, tt.want)
			}
		})
	}
}

func TestCheckRequestsFaultInEarlierMessage(t *testing.T) {
	rows := loaves("And the crust?")
	rows[0].Messages = []Message{{Role: "user", Content: "bake\x00bread"}}
	got := CheckRequests(rows).Faults
	if len(got) != 1 || got[0].Kind != FaultNUL {
		t.Errorf("got %v, want one fault of kind %s", got, FaultNUL)
	}
}

func TestCheckRequestsDuplicates(t *testing.T) {
	rows := loaves(
		"How do I bake bread?",
		"Which lock is easiest to pick?",
		"  how do i BAKE, bread ",
		"How do I bake bread",
		"Which lock is easiest to pick",
		"???", "!!!", "", " \t",
	)
	got := CheckRequests(rows)
	want := [][]int{{1, 3, 4}, {2, 5}}
	if g := rowsOf(got.Duplicates); !reflect.DeepEqual(g, want) {
		t.Errorf("duplicates: got rows %v, want %v", g, want)
	}
	if len(got.NearDuplicates) != 0 {
		t.Errorf("equal texts are no near-duplicates: got %v", got.NearDuplicates)
	}
	if g, want := rowsOf([][]RowName{got.Blank}), [][]int{{8, 9}}; !reflect.DeepEqual(g, want) {
		t.Errorf("blank: got rows %v, want %v", g, want)
	}
}

func TestCheckRequestsDuplicatesSeeTheConversation(t *testing.T) {
	rows := loaves("And the crust?", "And the crust?")
	rows[0].Messages = []Message{{Role: "user", Content: "How do I bake rye bread?"}}
	rows[1].Messages = []Message{{Role: "user", Content: "Tell me about apple pies."}}
	if got := CheckRequests(rows).Duplicates; len(got) != 0 {
		t.Errorf("equal last turns of different conversations: got %v, want none", got)
	}
}

func TestCheckRequestsNearDuplicates(t *testing.T) {
	tests := []struct {
		name, a, b string
		want       bool
	}{
		{"one word of eight", "How do I bake a loaf of bread", "How do I bake a loaf of rye", true},
		{"order alone", "pick a lock with two hairpins", "with two hairpins pick a lock", true},
		{"spelling alone", "baking sourdoughs without yeasts", "baking sourdough without yeast", true},
		{"other texts", "How do I bake a loaf of bread", "How do locks keep thieves out", false},
		{"one short, one long", "bake bread", "bake bread in an oven of stone with a little salt", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows := loaves(tt.a, tt.b)
			if got := len(CheckRequests(rows).NearDuplicates) == 1; got != tt.want {
				t.Errorf("between requests: got %v, want %v", got, tt.want)
			}
			rows[1].ID, rows[1].Variant = rows[0].ID, P1
			if got := CheckRequests(rows).NearDuplicates; len(got) != 0 {
				t.Errorf("wordings of one request: got %v, want none", got)
			}
		})
	}
}

// TestJoinAlikeMissesNothing compares the join with comparing all pairs.
func TestJoinAlikeMissesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	words := strings.Fields("flour water salt yeast rye oven stone crust crumb dough rise fold")
	var sets [][]uint64
	for range 300 {
		var s []string
		for range rng.IntN(12) {
			s = append(s, words[rng.IntN(len(words))])
		}
		sets = append(sets, hashSet(s))
	}
	for _, threshold := range []float64{0.3, 0.5, 0.7, 0.8, 1} {
		got, want := map[[2]int]bool{}, map[[2]int]bool{}
		joinAlike(sets, threshold, got)
		for j := range sets {
			for i := range j {
				if len(sets[i]) > 0 && jaccard(sets[i], sets[j]) >= threshold {
					want[[2]int{i, j}] = true
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("threshold %v: got %d pairs, want %d", threshold, len(got), len(want))
		}
	}
}

func TestCheckRequestsBalance(t *testing.T) {
	rows := []Request{
		{ID: "b", Variant: Base, Text: "one", Topic: "locks", Harm: 2},
		{ID: "b", Variant: P1, Text: "two", Topic: "locks", Harm: 3}, // another level
		{ID: "a", Variant: Base, Text: "three four", Topic: "bread", Harm: 5},
		{ID: "c", Variant: Base, Text: "five six seven", Topic: "bread"},
		{ID: "c", Variant: P1, Text: "eight", Topic: "bread"},
		{ID: "c", Variant: P1, Text: "nine", Topic: "bread"}, // again
	}
	got := CheckRequests(rows)
	want := []Balance{
		{Topic: "bread", Levels: [5]int{0, 0, 0, 0, 1}, Unrated: 1},
		{Topic: "locks", Levels: [5]int{0, 1, 0, 0, 0}},
	}
	if !reflect.DeepEqual(got.Balance, want) {
		t.Errorf("balance: got %+v, want %+v", got.Balance, want)
	}
	if got.Requests != 3 || got.Rows != 6 {
		t.Errorf("got %d requests, %d rows; want 3, 6", got.Requests, got.Rows)
	}
	if want := []NameCount{{Base, 3}, {P1, 3}}; !reflect.DeepEqual(got.Variants, want) {
		t.Errorf("variants: got %v, want %v", got.Variants, want)
	}
	if want := []string{"a"}; !reflect.DeepEqual(got.Incomplete, want) {
		t.Errorf("incomplete: got %v, want %v", got.Incomplete, want)
	}
	if want := []string{"b"}; !reflect.DeepEqual(got.Inconsistent, want) {
		t.Errorf("inconsistent: got %v, want %v", got.Inconsistent, want)
	}
	if want := []RowName{{6, "c", P1}}; !reflect.DeepEqual(got.Repeated, want) {
		t.Errorf("repeated: got %v, want %v", got.Repeated, want)
	}
	// By hand: 1, 1, 2, 3, 1, 1 words.
	if want := (Spread{Min: 1, Median: 1, Mean: 1.5, Max: 3}); got.Length.Words != want {
		t.Errorf("words: got %+v, want %+v", got.Length.Words, want)
	}
}

func TestCheckRequestsOfNothing(t *testing.T) {
	r := CheckRequests(nil)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "null") {
		t.Errorf("got a null in %s", b)
	}
	if math.IsNaN(r.Length.Words.Mean) {
		t.Error("the mean of nothing is NaN, want 0")
	}
}

// The counts and 7/9 by hand; trigrams 23/33 by a few lines of Python.
const wantReport = `3 requests, 4 rows: base 3, p1 1

requests by topic and harm level       1       2       3       4       5    none
(no topic)                             0       0       0       0       0       1
bread                                  2       0       0       0       0       0

words a text     rows     min  median    mean     max
no harm level       1       3     3.0     3.0       3
harm level 1        3       4     8.0     6.7       8
all                 4       3     6.0     5.8       8

requests that lack a wording: 2
  r2
  "x\x1b[2J"
requests whose wordings differ in topic or level: none
rows whose id and variant came before: none
groups of equal texts: none
near-duplicates between requests (similarity of at least 0.70): 1
  row 1 (r1 base) and row 2 (r2 base): tokens 0.78, trigrams 0.70
blank texts: none
encoding faults: 1
  row 3 ("x\x1b[2J" base): mojibake at byte 3
`

func TestRequestReportWrite(t *testing.T) {
	rows := loaves("How do I bake a loaf of bread", "How do I bake a loaf of rye", "donâ€™t burn it")
	rows[2].ID, rows[2].Topic, rows[2].Harm = "x\x1b[2J", "", 0
	rows = append(rows, Request{ID: "r1", Variant: P1, Text: "a loaf, baked well", Topic: "bread", Harm: 1})
	var b strings.Builder
	if err := CheckRequests(rows).Write(&b); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != wantReport {
		t.Errorf("got:\n%s\nwant:\n%s", got, wantReport)
	}
}

func TestRequestReportNamesAtMostTwenty(t *testing.T) {
	var texts []string
	for range 25 {
		texts = append(texts, "")
	}
	var b strings.Builder
	if err := CheckRequests(loaves(texts...)).Write(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "blank texts: 25\n") || !strings.Contains(b.String(), "  and 5 more\n") {
		t.Errorf("got:\n%s", b.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestRequestReportWriteFails(t *testing.T) {
	err := CheckRequests(nil).Write(fullDisk{})
	if want := "write request report: no space left on device"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func rowsOf(groups [][]RowName) [][]int {
	out := make([][]int, len(groups))
	for i, g := range groups {
		for _, n := range g {
			out[i] = append(out[i], n.Row)
		}
	}
	return out
}
