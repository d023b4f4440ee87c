package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Options says how to read a request set. The zero value recognises format,
// preset and columns by itself.
type Options struct {
	Format string // csv, jsonl, json, parquet or text; "" by beginning and name
	Preset string // one of Presets; "" by the columns
	// Columns says from which column of the file a field comes, where it is not
	// recognised. The fields are request_id, variant, text, topic, harm, source,
	// language, messages and context; id is short for request_id. The empty
	// column name takes a field away.
	Columns map[string]string
}

// A Set is a request set as read.
type Set struct {
	Name     string            // of the file, without folder and extension
	Digest   string            // "sha256:" and 64 hex digits, of the rows as they stand here
	Preset   string            // that was given or recognised; "" for none
	Columns  map[string]string // field → column of the file it was read from
	Requests []Request
	Warnings []string // what a user should know, in words
	// Unmapped counts labels of the file from which a harm level could have been
	// guessed, and was not: "label=unsafe" → 200. They stand in Attributes.
	Unmapped map[string]int
}

// Summary describes the set for a manifest.
func (s Set) Summary() RequestSet {
	return RequestSet{Name: s.Name, Digest: s.Digest, Count: len(s.Requests)}
}

// DigestRequests returns "sha256:" and the digest of the rows' JSON lines.
func DigestRequests(requests []Request) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for i := range requests {
		if err := enc.Encode(&requests[i]); err != nil {
			panic(fmt.Sprintf("data: digest of requests: %v", err)) // strings and ints have a JSON form
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// ReadRequests reads a request set from a file: CSV, JSONL, JSON, Parquet, or
// text with a request a line. Texts stay as they are, byte for byte. What is
// doubtful is refused with its line: blank texts, equal ids, NUL, half
// surrogates, bytes that are not UTF-8, rows with too few or too many cells, a
// request of more than 1 MiB, no request at all.
func ReadRequests(path string, o Options) (Set, error) {
	in, err := openInput(path, o.Format)
	if err != nil {
		return Set{}, fmt.Errorf("reading requests: %w", err)
	}
	defer in.Close()
	var rows []record
	total := 0
	for row, err := range in.records() {
		if err != nil {
			return Set{}, fmt.Errorf("reading requests: %s: %w", path, err)
		}
		if total += weigh(row.values); total > maxSet {
			return Set{}, fmt.Errorf("reading requests: %s: line %d: more than %d bytes of requests; split the file", path, row.line, maxSet)
		}
		rows = append(rows, row)
	}
	set, err := requestsOf(rows, o)
	if err != nil {
		return Set{}, fmt.Errorf("reading requests: %s: %w", path, err)
	}
	set.Name = strings.TrimSuffix(in.name, filepath.Ext(in.name))
	return set, nil
}

// A request set is held in memory as a whole.
const maxSet = 1 << 30

// weigh returns about how many bytes a value takes.
func weigh(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 16
	case []any:
		n := 24
		for _, e := range v {
			n += weigh(e)
		}
		return n
	case map[string]any:
		n := 48
		for k, e := range v {
			n += len(k) + 32 + weigh(e)
		}
		return n
	}
	return 16
}

// requestsOf makes requests of records.
func requestsOf(rows []record, o Options) (Set, error) {
	if len(rows) == 0 {
		return Set{}, errors.New("it holds no request")
	}
	names := map[string]bool{}
	for _, row := range rows {
		for name := range row.values {
			names[name] = true
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	if len(columns) == 0 {
		return Set{}, errors.New("its rows are empty")
	}
	m, err := mapColumns(columns, o)
	if err != nil {
		return Set{}, err
	}
	set := Set{Preset: m.preset, Columns: m.columns, Unmapped: map[string]int{}}
	for _, name := range m.dropped {
		set.Warnings = append(set.Warnings, fmt.Sprintf("column %s was left out: answers are no part of a request", clip(name)))
	}
	b := &requestBuilder{mapping: m, set: &set, faults: &faultList{}}
	b.chooseIDs(rows)
	for _, row := range rows {
		b.add(row)
	}
	if err := b.faults.err(); err != nil {
		return Set{}, err
	}
	b.finish()
	if len(set.Requests) == 0 {
		return Set{}, errors.New("it holds no request")
	}
	set.Digest = DigestRequests(set.Requests)
	return set, nil
}

// A requestBuilder turns records into the requests of a set.
type requestBuilder struct {
	mapping
	set     *Set
	faults  *faultList
	ownIDs  bool // the file has no usable ids: ids come from the texts
	textIDs bool // since those of the file are texts

	seen    map[variantKey]int // line of each
	repeats []int              // lines that repeat a text, where ids come from texts
	answers int                // conversations that ended with an answer
}

// chooseIDs decides whether the file's ids are used. A column without a name,
// or called index, is an id only if it is one; ids that are the texts
// themselves would print the texts in every table.
func (b *requestBuilder) chooseIDs(rows []record) {
	b.seen = map[variantKey]int{}
	column, ok := b.columns["request_id"]
	if !ok {
		b.ownIDs = true
		return
	}
	weak := b.weakID
	ids := map[string]bool{}
	for _, row := range rows {
		id := strings.TrimSpace(cell(row.values[column]))
		text := cell(row.values[b.columns["text"]])
		switch {
		case weak && (id == "" || ids[id]):
			b.ownIDs = true
		case id != "" && id == strings.TrimSpace(text), len(id) > 200:
			b.ownIDs, b.textIDs = true, true
			b.set.Warnings = append(b.set.Warnings, fmt.Sprintf("the ids in column %s are texts (line %d); ids were made from the texts instead", clip(column), row.line))
		}
		if b.ownIDs {
			delete(b.columns, "request_id")
			return
		}
		ids[id] = true
	}
}

// add makes one request of a record, or notes a fault.
func (b *requestBuilder) add(row record) {
	get := func(field string) any {
		column, ok := b.columns[field]
		if !ok {
			return nil
		}
		return row.values[column]
	}
	q := Request{
		Variant:  strings.TrimSpace(cell(get("variant"))),
		Topic:    strings.TrimSpace(topic(get("topic"))),
		Source:   strings.TrimSpace(cell(get("source"))),
		Language: strings.TrimSpace(cell(get("language"))),
	}
	if q.Variant == "" {
		q.Variant = Base
	}
	var what string
	q.Messages, q.Text, what = b.words(get("messages"), get("text"), get("context"))
	if what != "" {
		b.faults.add(row.line, what)
		return
	}
	b.addHarm(&q, get("harm"))
	b.addAttributes(&q, row)

	size := len(q.Text)
	for _, m := range q.Messages {
		size += len(m.Content)
	}
	for k, v := range q.Attributes {
		size += len(k) + len(v)
	}
	switch {
	case strings.TrimSpace(q.Text) == "":
		b.faults.add(row.line, "the text is blank")
		return
	case size > maxText:
		b.faults.add(row.line, fmt.Sprintf("the request has %d bytes, and up to %d are taken", size, maxText))
		return
	}
	for _, s := range append([]string{q.Text, q.Topic, q.Variant, q.Source, q.Language}, contents(q.Messages)...) {
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
			b.faults.add(row.line, "a text has a NUL character or is not UTF-8")
			return
		}
	}

	if b.ownIDs {
		sum := sha256.Sum256([]byte(Digest(q.Messages) + q.Text))
		q.ID = "t-" + hex.EncodeToString(sum[:6])
	} else {
		q.ID = strings.TrimSpace(cell(get("request_id")))
	}
	key := variantKey{q.ID, q.Variant}
	first, twice := b.seen[key]
	switch {
	case q.ID == "":
		b.faults.add(row.line, "the id is blank")
	case twice && b.ownIDs:
		b.repeats = append(b.repeats, row.line)
	case twice:
		b.faults.add(row.line, fmt.Sprintf("id %q was in line %d already, with the same variant %s; ids name requests, variants their wordings", clip(q.ID), first, clip(q.Variant)))
	default:
		b.seen[key] = row.line
		b.set.Requests = append(b.set.Requests, q)
	}
}

// words returns the conversation before the request, the request, and a fault.
func (b *requestBuilder) words(messages, text, context any) ([]Message, string, string) {
	if isTurns(text) && (messages == nil || cell(messages) == "") {
		return b.turns(text, "")
	}
	if list, ok := text.([]any); ok {
		// A list of one text, as some sets keep their turns.
		if len(list) != 1 {
			return nil, "", fmt.Sprintf("the text is a list of %d; a conversation needs roles, in a column messages", len(list))
		}
		text = list[0]
	}
	if _, ok := text.(map[string]any); ok {
		return nil, "", "the text is an object; map the field text to a column of texts"
	}
	s := cell(text)
	if strings.EqualFold(strings.TrimSpace(s), "nan") {
		return nil, "", "the text is \"nan\": a missing value of the program that wrote the file"
	}
	if messages != nil && cell(messages) != "" {
		return b.turns(messages, s)
	}
	if c := cell(context); strings.TrimSpace(c) != "" && strings.TrimSpace(s) != "" {
		s = c + "\n\n---\n\n" + s // as HarmBench puts them together
	}
	return nil, s, ""
}

// turns reads a conversation. With no text beside it, or its own last user's
// turn, that turn is the request; else the text is, and the conversation stands
// before it, as in demur's own tables.
func (b *requestBuilder) turns(messages any, text string) ([]Message, string, string) {
	all, what := readTurns(messages)
	if what != "" {
		return nil, "", what
	}
	turns := all
	if last := len(turns) - 1; last >= 0 && turns[last].Role == "assistant" {
		turns = turns[:last]
	}
	last := len(turns) - 1
	asked := last >= 0 && turns[last].Role == "user"
	switch {
	case asked && (strings.TrimSpace(text) == "" || turns[last].Content == text):
		if len(all) > len(turns) {
			b.answers++
		}
		text = turns[last].Content
		if last == 0 {
			return nil, text, ""
		}
		return turns[:last:last], text, ""
	case strings.TrimSpace(text) == "":
		return nil, "", "the conversation has no user's turn at its end"
	case len(all) > 0 && all[len(all)-1].Role == "user":
		return nil, "", "the conversation ends with a user's turn that is not the text beside it; take one of the two away by mapping text or messages to no column"
	}
	return all, text, ""
}

// addHarm takes a harm level that is a whole number from 1 to 5. Anything else
// is counted.
func (b *requestBuilder) addHarm(q *Request, v any) {
	s := strings.TrimSpace(cell(v))
	if s == "" {
		return
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err == nil && f == math.Trunc(f) && f >= 1 && f <= 5:
		q.Harm = int(f)
	case err == nil && f == 0: // not assigned, as in demur's own tables
	default:
		b.count(b.columns["harm"], s)
	}
}

// count counts a label that was not mapped.
func (b *requestBuilder) count(column, label string) {
	key := clip(column) + "=" + clip(label)
	if _, known := b.set.Unmapped[key]; !known && len(b.set.Unmapped) >= 100 {
		key = clip(column) + "=…"
	}
	b.set.Unmapped[key]++
}

// addAttributes keeps the other columns, as text.
func (b *requestBuilder) addAttributes(q *Request, row record) {
	set := func(name, s string) {
		if s == "" {
			return
		}
		if q.Attributes == nil {
			q.Attributes = map[string]string{}
		}
		q.Attributes[name] = s
	}
	for name, v := range row.values {
		if b.used[name] || slices.Contains(b.dropped, name) || name == "" {
			continue
		}
		if m, ok := v.(map[string]any); ok && plainName(name) == "attributes" {
			for k, e := range m { // demur's own
				set(k, cell(e))
			}
			continue
		}
		s := cell(v)
		set(name, s)
		if isHarmLabel(name) && s != "" {
			b.count(name, s)
		}
	}
}

// finish says what should be known.
func (b *requestBuilder) finish() {
	warn := func(format string, args ...any) {
		b.set.Warnings = append(b.set.Warnings, fmt.Sprintf(format, args...))
	}
	if b.ownIDs && !b.textIDs {
		warn("the file has no ids; they were made from the texts, and stay the same in any order")
	}
	if n := len(b.repeats); n > 0 {
		warn("%d rows repeat the text of an earlier row and were left out (line %s)", n, lines(b.repeats))
	}
	if b.answers > 0 {
		warn("%d conversations ended with an answer, which was left out: it is what the model is asked for", b.answers)
	}
	replaced, total := 0, 0
	for _, q := range b.set.Requests {
		if strings.ContainsRune(q.Text, utf8.RuneError) {
			replaced++
		}
	}
	if replaced > 0 {
		warn("%d texts have the character U+FFFD in them: something was lost before", replaced)
	}
	for _, n := range b.set.Unmapped {
		total += n
	}
	if total > 0 {
		warn("%d labels say nothing of a harm level from 1 to 5; they are kept as attributes and were not mapped: %s", total, list(b.set.Unmapped))
	}
}

// list names the most frequent labels.
func list(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for i, name := range names {
		if i == 5 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// cell returns a value as text: null is empty, lists and objects are JSON.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case float64:
		if math.IsNaN(v) {
			return ""
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		if len(v) == 0 {
			return ""
		}
	case map[string]any:
		if len(v) == 0 {
			return ""
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "" // NaN within a list; nothing can be said of it
	}
	return string(b)
}

// topic returns the name of a topic: of an object of true and false, the names
// that are true; of a list, its texts.
func topic(v any) string {
	var names []string
	switch v := v.(type) {
	case map[string]any:
		for name, is := range v {
			if is == true {
				names = append(names, name)
			}
		}
	case []any:
		for _, e := range v {
			names = append(names, cell(e))
		}
	default:
		return cell(v)
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// isTurns reports whether a value is a list of chat messages.
func isTurns(v any) bool {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	m, ok := list[0].(map[string]any)
	return ok && (m["role"] != nil || m["from"] != nil)
}

// readTurns reads chat messages: a list of role and content, or the same as
// JSON in a text.
func readTurns(v any) ([]Message, string) {
	if s, ok := v.(string); ok {
		parsed, err := jsonValue([]byte(strings.TrimSpace(s)))
		if err != nil {
			return nil, "the messages cannot be read: " + err.Error()
		}
		v = parsed
	}
	list, ok := v.([]any)
	if !ok {
		return nil, "the messages are " + kindOf(v) + ", and not a list"
	}
	var turns []Message
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, fmt.Sprintf("message %d is %s, and not an object of role and content", i+1, kindOf(e))
		}
		role, content := m["role"], m["content"]
		if role == nil && content == nil {
			role, content = m["from"], m["value"]
		}
		name, ok := map[string]string{
			"system": "system", "developer": "system", "user": "user", "human": "user",
			"assistant": "assistant", "model": "assistant", "gpt": "assistant", "bot": "assistant",
		}[strings.ToLower(cell(role))]
		if !ok {
			return nil, fmt.Sprintf("message %d has the role %q, which is none of system, user and assistant", i+1, clip(cell(role)))
		}
		if parts, ok := content.([]any); ok {
			var texts []string
			for _, p := range parts {
				part, _ := p.(map[string]any)
				text, ok := part["text"].(string)
				if !ok {
					return nil, fmt.Sprintf("message %d has a part that is no text", i+1)
				}
				texts = append(texts, text)
			}
			content = strings.Join(texts, "\n")
		}
		text, ok := content.(string)
		if !ok {
			return nil, fmt.Sprintf("message %d has no text", i+1)
		}
		turns = append(turns, Message{Role: name, Content: text})
	}
	return turns, ""
}

func contents(messages []Message) []string {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = m.Content
	}
	return texts
}

// A faultList collects what is wrong with a file, so that a user sees more than the
// first line.
type faultList struct {
	first []lineError
	n     int
}

func (f *faultList) add(line int, what string) {
	if f.n++; len(f.first) < 10 {
		f.first = append(f.first, lineError{line, what})
	}
}

func (f *faultList) err() error {
	if f.n == 0 {
		return nil
	}
	// One fault in many lines is said once.
	var order []string
	byWhat := map[string][]int{}
	for _, e := range f.first {
		if _, ok := byWhat[e.what]; !ok {
			order = append(order, e.what)
		}
		byWhat[e.what] = append(byWhat[e.what], e.line)
	}
	var parts []string
	for _, what := range order {
		parts = append(parts, fmt.Sprintf("line %s: %s", lines(byWhat[what]), what))
	}
	if f.n > len(f.first) {
		parts = append(parts, fmt.Sprintf("and %d more", f.n-len(f.first)))
	}
	return errors.New(strings.Join(parts, "; "))
}

// lines names lines: "3", "3 and 7", "3, 7, 9, …".
func lines(numbers []int) string {
	if len(numbers) == 2 {
		return fmt.Sprintf("%d and %d", numbers[0], numbers[1])
	}
	var parts []string
	for i, n := range numbers {
		if i == 10 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ", ")
}
