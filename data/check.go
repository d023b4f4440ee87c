package data

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NearDuplicate is the similarity from which CheckRequests calls two texts of
// different requests near-duplicates: the Jaccard similarity, in [0, 1], of
// their token sets or of their character trigram sets, whichever is larger.
// Two texts of twelve words that differ in two of them are just above it; the
// most alike texts of the built-in set reach 0.5.
const NearDuplicate = 0.7

// A RequestReport says what CheckRequests found. All lists are in the order of
// the request set or sorted, so that equal sets give equal reports. It names
// rows and holds no text.
type RequestReport struct {
	Rows     int         `json:"rows"`
	Requests int         `json:"requests"` // distinct ids
	Variants []NameCount `json:"variants"` // rows a wording, by name
	Balance  []Balance   `json:"balance"`  // requests a topic and level, by topic

	// Incomplete are requests that lack a wording which the set has elsewhere.
	Incomplete []string `json:"incomplete"`
	// Inconsistent are requests whose wordings differ in topic or harm level.
	Inconsistent []string `json:"inconsistent"`
	// Repeated are rows whose request id and variant an earlier row has.
	Repeated []RowName `json:"repeated"`

	Duplicates     [][]RowName `json:"duplicates"` // groups of equal texts after normalisation
	NearThreshold  float64     `json:"near_threshold"`
	NearDuplicates []NearPair  `json:"near_duplicates"`
	Blank          []RowName   `json:"blank"`
	Faults         []Fault     `json:"faults"`

	Length       Length        `json:"length"`
	LengthByHarm []LevelLength `json:"length_by_harm"` // by level, those that occur
}

// A NameCount is a name with how often it occurs.
type NameCount struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// A Balance counts the requests of one topic. Levels holds the harm levels 1 to
// 5 at index 0 to 4; Unrated counts what has no level of these.
type Balance struct {
	Topic   string `json:"topic"`
	Levels  [5]int `json:"levels"`
	Unrated int    `json:"unrated"`
}

// A RowName names a row without its text. Row counts from 1.
type RowName struct {
	Row     int    `json:"row"`
	ID      string `json:"request_id"`
	Variant string `json:"variant"`
}

func (n RowName) String() string {
	return fmt.Sprintf("row %d (%s %s)", n.Row, printable(n.ID), printable(n.Variant))
}

// A NearPair is two rows of different requests with texts that are not equal
// but alike: similarities in [0, 1] of their tokens and trigrams.
type NearPair struct {
	A        RowName `json:"a"`
	B        RowName `json:"b"`
	Tokens   float64 `json:"tokens"`
	Trigrams float64 `json:"trigrams"`
}

// A Fault is a sign of broken encoding in a row's text or earlier messages.
type Fault struct {
	RowName
	Kind string `json:"kind"` // one of the Fault constants
	At   int    `json:"at"`   // byte offset of the first sign
}

// Kinds of encoding fault.
const (
	FaultUTF8        = "invalid_utf8"
	FaultNUL         = "nul"
	FaultControl     = "control"     // a control character other than tab and line ends
	FaultBOM         = "bom"         // U+FEFF, wherever it stands
	FaultInvisible   = "invisible"   // zero-width space, or a control of the writing direction
	FaultMojibake    = "mojibake"    // UTF-8 that was once read as Windows-1252, such as â€™
	FaultReplacement = "replacement" // U+FFFD: a character was lost before this file was written
)

// A Length describes texts: n of them, their words (runs between blanks) and
// characters (runes). All is 0 where there are none.
type Length struct {
	N     int    `json:"n"`
	Words Spread `json:"words"`
	Runes Spread `json:"runes"`
}

// A Spread is the least, middle, mean and largest of some counts. The median of
// an even number of counts is the mean of the middle two.
type Spread struct {
	Min    int     `json:"min"`
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	Max    int     `json:"max"`
}

// A LevelLength is the Length of the texts of one harm level.
type LevelLength struct {
	Harm int `json:"harm"`
	Length
}

// CheckRequests looks for what makes a request set unfit to measure with:
// texts that occur twice or nearly so, topics and levels out of balance,
// wordings that are missing or disagree, texts that are blank or whose encoding
// is broken, and levels that differ in length. It never changes a row.
//
// Texts are compared, with the messages before them, after lower-casing and
// with each run of other characters than letters, marks and digits read as one
// blank. Composed and decomposed accents stay different.
func CheckRequests(rows []Request) RequestReport {
	norm := make([]string, len(rows))
	for i, r := range rows {
		norm[i] = normalise(conversation(r))
	}
	r := RequestReport{
		Rows: len(rows), NearThreshold: NearDuplicate,
		// Empty lists, not nil ones: in JSON they are [], not null.
		Variants: []NameCount{}, Incomplete: []string{}, Inconsistent: []string{}, Repeated: []RowName{},
	}
	r.countRequests(rows)
	r.Duplicates = duplicates(rows, norm)
	r.NearDuplicates = nearDuplicates(rows, norm)
	r.Blank = blank(rows)
	r.Faults = faults(rows)
	r.Length = lengthOf(rows)
	r.LengthByHarm = lengthByHarm(rows)
	return r
}

// countRequests fills what is counted by request: a request has the topic and
// level of its first row.
func (r *RequestReport) countRequests(rows []Request) {
	first := map[string]Request{}
	variants := map[string]int{}
	has := map[[2]string]bool{}
	odd := map[string]bool{}
	var ids []string
	for i, row := range rows {
		f, seen := first[row.ID]
		if !seen {
			first[row.ID] = row
			ids = append(ids, row.ID)
		} else if f.Topic != row.Topic || f.Harm != row.Harm {
			odd[row.ID] = true
		}
		key := [2]string{row.ID, row.Variant}
		if has[key] {
			r.Repeated = append(r.Repeated, rowName(rows, i))
		}
		has[key] = true
		variants[row.Variant]++
	}
	r.Requests = len(ids)
	for _, v := range slices.Sorted(maps.Keys(variants)) {
		r.Variants = append(r.Variants, NameCount{v, variants[v]})
	}
	for _, id := range ids {
		if odd[id] {
			r.Inconsistent = append(r.Inconsistent, id)
		}
		if slices.ContainsFunc(r.Variants, func(v NameCount) bool { return !has[[2]string{id, v.Name}] }) {
			r.Incomplete = append(r.Incomplete, id)
		}
	}
	r.Balance = balance(first)
}

func balance(first map[string]Request) []Balance {
	topics := map[string]*Balance{}
	for _, row := range first {
		b := topics[row.Topic]
		if b == nil {
			b = &Balance{Topic: row.Topic}
			topics[row.Topic] = b
		}
		if 1 <= row.Harm && row.Harm <= 5 {
			b.Levels[row.Harm-1]++
		} else {
			b.Unrated++
		}
	}
	out := []Balance{}
	for _, t := range slices.Sorted(maps.Keys(topics)) {
		out = append(out, *topics[t])
	}
	return out
}

// duplicates returns the groups of rows with equal normalised text, whether of
// one request or of several, in the order of their first rows. Blank texts are
// reported elsewhere.
func duplicates(rows []Request, norm []string) [][]RowName {
	group := map[string][]RowName{}
	for i := range rows {
		group[norm[i]] = append(group[norm[i]], rowName(rows, i))
	}
	out := [][]RowName{}
	for text, g := range group {
		if len(g) > 1 && text != "" {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b []RowName) int { return cmp.Compare(a[0].Row, b[0].Row) })
	return out
}

// nearDuplicates returns the pairs of rows of different requests whose texts
// are alike by NearDuplicate but not equal, in the order of the rows.
func nearDuplicates(rows []Request, norm []string) []NearPair {
	tokens, trigrams := make([][]uint64, len(rows)), make([][]uint64, len(rows))
	for i, text := range norm {
		tokens[i], trigrams[i] = hashSet(strings.Fields(text)), hashSet(trigramsOf(text))
	}
	alike := map[[2]int]bool{}
	joinAlike(tokens, NearDuplicate, alike)
	joinAlike(trigrams, NearDuplicate, alike)

	out := []NearPair{}
	for _, p := range slices.SortedFunc(maps.Keys(alike), func(a, b [2]int) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		i, j := p[0], p[1]
		if rows[i].ID == rows[j].ID || norm[i] == norm[j] {
			continue
		}
		out = append(out, NearPair{
			A: rowName(rows, i), B: rowName(rows, j),
			Tokens: jaccard(tokens[i], tokens[j]), Trigrams: jaccard(trigrams[i], trigrams[j]),
		})
	}
	return out
}

// joinAlike adds to pairs all i < j whose sets have a Jaccard similarity of at
// least t, in (0, 1]. Sets are sorted and without repetition; empty sets are
// like none.
//
// It is exact without comparing all with all: when the elements of each set are
// ordered from rare to common, two sets that are alike must share one of the
// first n − ⌈tn⌉ + 1 of either's n.
//
// Reference: Chaudhuri, Ganti and Kaushik, A primitive operator for similarity
// joins in data cleaning, ICDE 2006.
func joinAlike(sets [][]uint64, t float64, pairs map[[2]int]bool) {
	frequency := map[uint64]int{}
	for _, s := range sets {
		for _, x := range s {
			frequency[x]++
		}
	}
	holders := map[uint64][]int{} // element: the earlier sets with it in their prefix
	for j, s := range sets {
		rare := slices.Clone(s)
		slices.SortFunc(rare, func(a, b uint64) int {
			return cmp.Or(cmp.Compare(frequency[a], frequency[b]), cmp.Compare(a, b))
		})
		n := len(rare)
		if n == 0 {
			continue
		}
		// The ceiling is taken a little low, so that rounding in t·n never
		// shortens the prefix.
		prefix := rare[:n-int(math.Ceil(t*float64(n)-1e-9))+1]
		compared := map[int]bool{}
		for _, x := range prefix {
			for _, i := range holders[x] {
				if !compared[i] && jaccard(sets[i], s) >= t {
					pairs[[2]int{i, j}] = true
				}
				compared[i] = true
			}
			holders[x] = append(holders[x], j)
		}
	}
}

// jaccard returns |a ∩ b| / |a ∪ b| of two sorted sets, 0 if both are empty.
func jaccard(a, b []uint64) float64 {
	both, i, j := 0, 0, 0
	for i < len(a) && j < len(b) {
		switch c := cmp.Compare(a[i], b[j]); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			both, i, j = both+1, i+1, j+1
		}
	}
	if len(a)+len(b) == 0 {
		return 0
	}
	return float64(both) / float64(len(a)+len(b)-both)
}

// hashSet returns the sorted distinct FNV-1a hashes of the words.
func hashSet(words []string) []uint64 {
	out := make([]uint64, len(words))
	for i, w := range words {
		h := fnv.New64a()
		io.WriteString(h, w) // a hash's Write returns no error
		out[i] = h.Sum64()
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// trigramsOf returns the runs of three runes of a text with a blank at each
// end; none for the empty text.
func trigramsOf(text string) []string {
	if text == "" {
		return nil
	}
	runes := []rune(" " + text + " ")
	var out []string
	for i := 0; i+3 <= len(runes); i++ {
		out = append(out, string(runes[i:i+3]))
	}
	return out
}

// conversation is all that a user would see of r: the messages before it, and
// its text.
func conversation(r Request) string {
	var b strings.Builder
	for _, m := range r.Messages {
		b.WriteString(m.Content)
		b.WriteByte('\n')
	}
	b.WriteString(r.Text)
	return b.String()
}

// normalise lower-cases text and joins its words by single blanks. A text
// without letters and digits is only trimmed, or all such would be equal.
func normalise(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.M, unicode.N)
	})
	if len(words) == 0 {
		return strings.TrimSpace(text)
	}
	return strings.Join(words, " ")
}

// blank returns the rows whose own text shows nothing.
func blank(rows []Request) []RowName {
	out := []RowName{}
	for i, r := range rows {
		if strings.TrimFunc(r.Text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsGraphic(c) }) == "" {
			out = append(out, rowName(rows, i))
		}
	}
	return out
}

// faults returns the kinds of encoding fault of each row, each kind once a row.
func faults(rows []Request) []Fault {
	out := []Fault{}
	for i, r := range rows {
		for _, s := range faultSigns {
			if at := s.find(conversation(r)); at >= 0 {
				out = append(out, Fault{rowName(rows, i), s.kind, at})
			}
		}
	}
	return out
}

// mojibake matches what two- to four-byte UTF-8 looks like when its bytes are
// read as Windows-1252 or Latin-1: a lead byte's letter, then what stands for
// a continuation byte and hardly ever follows that letter in writing.
var mojibake = regexp.MustCompile(`Ã[\x{80}-\x{BF}]|Â[\x{A0}-\x{BF}]|â€|â\x{80}|ðŸ|ð\x{9F}|ï»¿`)

// faultSigns finds each kind of fault: the byte offset of its first sign, or
// −1. A control character from U+0080 on may be a sign of mojibake too.
var faultSigns = []struct {
	kind string
	find func(text string) int
}{
	{FaultUTF8, firstInvalid},
	{FaultNUL, func(s string) int { return strings.IndexByte(s, 0) }},
	{FaultControl, func(s string) int { return strings.IndexFunc(s, strangeControl) }},
	{FaultBOM, func(s string) int { return strings.IndexRune(s, '\uFEFF') }},
	{FaultInvisible, func(s string) int { return strings.IndexFunc(s, invisible) }},
	{FaultMojibake, func(s string) int {
		if m := mojibake.FindStringIndex(s); m != nil {
			return m[0]
		}
		return -1
	}},
	{FaultReplacement, func(s string) int { return strings.Index(s, "\uFFFD") }},
}

func firstInvalid(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func strangeControl(r rune) bool {
	return r != 0 && r != '\t' && r != '\n' && r != '\r' && unicode.IsControl(r)
}

func invisible(r rune) bool {
	return r == '\u200B' || '\u202A' <= r && r <= '\u202E' || '\u2066' <= r && r <= '\u2069'
}

func lengthByHarm(rows []Request) []LevelLength {
	levels := map[int][]Request{}
	for _, r := range rows {
		levels[r.Harm] = append(levels[r.Harm], r)
	}
	out := []LevelLength{}
	for _, h := range slices.Sorted(maps.Keys(levels)) {
		out = append(out, LevelLength{h, lengthOf(levels[h])})
	}
	return out
}

func lengthOf(rows []Request) Length {
	words, runes := make([]int, len(rows)), make([]int, len(rows))
	for i, r := range rows {
		words[i], runes[i] = len(strings.Fields(r.Text)), utf8.RuneCountInString(r.Text)
	}
	return Length{N: len(rows), Words: spread(words), Runes: spread(runes)}
}

func spread(counts []int) Spread {
	n := len(counts)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(counts)
	sum := 0
	for _, c := range counts {
		sum += c
	}
	return Spread{
		Min: counts[0], Max: counts[n-1],
		Median: float64(counts[(n-1)/2]+counts[n/2]) / 2,
		Mean:   float64(sum) / float64(n),
	}
}

func rowName(rows []Request, i int) RowName {
	return RowName{Row: i + 1, ID: rows[i].ID, Variant: rows[i].Variant}
}

// listed is how many rows of one kind Write names. JSON has them all.
const listed = 20

// Write writes the report as text: counts, balance, lengths, then what is wrong
// with the set, by row and never by text.
func (r RequestReport) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests, %d rows", r.Requests, r.Rows)
	for i, v := range r.Variants {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %d", sep, printable(v.Name), v.N)
	}
	b.WriteString("\n\n")
	r.writeBalance(&b)
	b.WriteByte('\n')
	r.writeLengths(&b)
	b.WriteByte('\n')

	section(&b, "requests that lack a wording", r.Incomplete, printable)
	section(&b, "requests whose wordings differ in topic or level", r.Inconsistent, printable)
	section(&b, "rows whose id and variant came before", r.Repeated, RowName.String)
	section(&b, "groups of equal texts", r.Duplicates, joinNames)
	section(&b, fmt.Sprintf("near-duplicates between requests (similarity of at least %.2f)", r.NearThreshold), r.NearDuplicates, NearPair.String)
	section(&b, "blank texts", r.Blank, RowName.String)
	section(&b, "encoding faults", r.Faults, Fault.String)

	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write request report: %w", err)
	}
	return nil
}

func (r RequestReport) writeBalance(b *strings.Builder) {
	rows := [][]string{{"requests by topic and harm level", "1", "2", "3", "4", "5", "none"}}
	for _, c := range r.Balance {
		row := []string{cmp.Or(printable(c.Topic), "(no topic)")}
		for _, n := range c.Levels {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, append(row, strconv.Itoa(c.Unrated)))
	}
	writeTable(b, rows)
}

func (r RequestReport) writeLengths(b *strings.Builder) {
	rows := [][]string{{"words a text", "rows", "min", "median", "mean", "max"}}
	add := func(name string, l Length) {
		s := l.Words
		rows = append(rows, []string{
			name, strconv.Itoa(l.N), strconv.Itoa(s.Min),
			fmt.Sprintf("%.1f", s.Median), fmt.Sprintf("%.1f", s.Mean), strconv.Itoa(s.Max),
		})
	}
	for _, l := range r.LengthByHarm {
		if l.Harm == 0 {
			add("no harm level", l.Length)
		} else {
			add(fmt.Sprintf("harm level %d", l.Harm), l.Length)
		}
	}
	add("all", r.Length)
	writeTable(b, rows)
}

// writeTable writes rows of equal width: the first column to the left, the
// others to the right in eight characters each.
func writeTable(b *strings.Builder, rows [][]string) {
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[0]))
	}
	for _, row := range rows {
		fmt.Fprintf(b, "%-*s", width, row[0])
		for _, cell := range row[1:] {
			fmt.Fprintf(b, "%8s", cell)
		}
		b.WriteByte('\n')
	}
}

// section writes a heading with the number of items, and the first of them.
func section[T any](b *strings.Builder, heading string, items []T, show func(T) string) {
	if len(items) == 0 {
		fmt.Fprintf(b, "%s: none\n", heading)
		return
	}
	fmt.Fprintf(b, "%s: %d\n", heading, len(items))
	for _, x := range items[:min(listed, len(items))] {
		fmt.Fprintf(b, "  %s\n", show(x))
	}
	if more := len(items) - listed; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

func (p NearPair) String() string {
	return fmt.Sprintf("%v and %v: tokens %.2f, trigrams %.2f", p.A, p.B, p.Tokens, p.Trigrams)
}

func (f Fault) String() string {
	return fmt.Sprintf("%v: %s at byte %d", f.RowName, f.Kind, f.At)
}

func joinNames(g []RowName) string {
	parts := make([]string, len(g))
	for i, n := range g {
		parts[i] = n.String()
	}
	return strings.Join(parts, ", ")
}

// printable returns s as it is, or quoted where it would move a terminal's
// cursor or break a line.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
