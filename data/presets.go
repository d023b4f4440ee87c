package data

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The fields of a request that a column can fill.
var requestFields = []string{"request_id", "variant", "text", "topic", "harm", "source", "language", "messages", "context"}

// A preset knows the columns of a published request set. Names are compared
// without case, blanks, dashes and underscores.
type preset struct {
	name    string
	has     []string            // columns by which it is recognised
	only    bool                // and no others
	columns map[string][]string // field → columns, the first that is there
}

// presets come in the order in which they are tried: a set whose columns
// include another's stands before it.
func presets() []preset {
	return []preset{
		{name: "jailbreakbench", has: []string{"goal", "target", "behavior", "category"}, columns: map[string][]string{
			"request_id": {"index", ""}, "text": {"goal"}, "topic": {"category"}, "source": {"source"},
		}},
		{name: "advbench", has: []string{"goal", "target"}, columns: map[string][]string{
			"text": {"goal"},
		}},
		{name: "harmbench", has: []string{"behavior", "behaviorid", "contextstring"}, columns: map[string][]string{
			"request_id": {"behaviorid"}, "text": {"behavior"}, "context": {"contextstring"}, "topic": {"semanticcategory", "category"},
		}},
		{name: "xstest", has: []string{"id", "prompt", "type", "focus"}, columns: map[string][]string{
			"request_id": {"id"}, "text": {"prompt"}, "topic": {"type"},
		}},
		{name: "coconot", has: []string{"id", "category", "subcategory", "prompt"}, columns: map[string][]string{
			"request_id": {"id"}, "text": {"prompt"}, "topic": {"category"},
		}},
		{name: "strongreject", has: []string{"forbiddenprompt", "category"}, columns: map[string][]string{
			"text": {"forbiddenprompt"}, "topic": {"category"}, "source": {"source"},
		}},
		{name: "sorry-bench", has: []string{"questionid", "category", "turns"}, columns: map[string][]string{
			"request_id": {"questionid"}, "text": {"turns"}, "topic": {"category"}, "variant": {"promptstyle"},
		}},
		{name: "do-not-answer", has: []string{"question", "riskarea", "typesofharm"}, columns: map[string][]string{
			"request_id": {"id"}, "text": {"question"}, "topic": {"riskarea"},
		}},
		{name: "health-orsc", has: []string{"question", "originalquestion", "classification"}, columns: map[string][]string{
			"request_id": {"id"}, "text": {"question"}, "topic": {"classification"},
		}},
		{name: "beavertails", has: []string{"prompt", "category", "issafe"}, columns: map[string][]string{
			"text": {"prompt"}, "topic": {"category"},
		}},
		{name: "or-bench", has: []string{"prompt", "category"}, only: true, columns: map[string][]string{
			"text": {"prompt"}, "topic": {"category"},
		}},
	}
}

// Presets names the request sets whose columns are known.
func Presets() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// usual names of columns, by field, the likelier first. A column is never a
// guess about meaning: harm is only what is called so.
func usualColumns() map[string][]string {
	return map[string][]string{
		"request_id": {"requestid", "id", "promptid", "questionid", "behaviorid", "sampleid", "itemid", "docid", "qid", "uid", "index", ""},
		"variant":    {"variant", "wording", "paraphrase", "promptstyle"},
		"text":       {"text", "request", "prompt", "question", "instruction", "goal", "forbiddenprompt", "query", "input", "behavior", "behaviour"},
		"topic":      {"topic", "category", "semanticcategory", "riskarea", "classification", "subcategory"},
		"harm":       {"harm", "harmlevel"},
		"source":     {"source"},
		"language":   {"language", "lang"},
		"messages":   {"messages", "conversation", "conversations"},
	}
}

// answers are columns that hold what a model said or should say, or the harmful
// text that a request was made from.
func answerColumns() []string {
	return []string{"response", "responses", "answer", "answers", "completion", "completions", "output", "outputs", "target", "originalquestion", "jailbrokenprompt"}
}

// isHarmLabel reports whether a column looks like a label of harm that is no
// level from 1 to 5.
func isHarmLabel(name string) bool {
	return slices.Contains([]string{
		"label", "labels", "issafe", "safe", "unsafe", "safety", "harmful", "isharmful", "harmfulness", "severity",
		"toxic", "toxicity", "risklevel", "harm", "harmlevel", "jailbroken",
	}, plainName(name))
}

// plainName is a column's name as names are compared.
func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "", ".", "").Replace(name))
}

// A mapping says which column fills which field.
type mapping struct {
	preset  string
	columns map[string]string
	used    map[string]bool
	dropped []string // columns with answers
	weakID  bool     // the id column was not called an id
}

// mapColumns finds the columns of the fields: as the caller says, else as the
// preset has them, else by their usual names.
func mapColumns(columns []string, o Options) (mapping, error) {
	m := mapping{columns: map[string]string{}, used: map[string]bool{}}
	plain := map[string]string{}
	for _, name := range columns {
		if _, twice := plain[plainName(name)]; !twice {
			plain[plainName(name)] = name
		}
	}
	known := usualColumns()
	p, err := choosePreset(plain, o.Preset)
	if err != nil {
		return mapping{}, err
	}
	if p != nil {
		m.preset = p.name
		maps.Copy(known, p.columns)
		if _, ok := p.columns["messages"]; !ok {
			delete(known, "messages")
		}
	}
	for _, field := range requestFields {
		for _, name := range known[field] {
			if column, ok := plain[name]; ok && !m.used[column] {
				m.columns[field] = column
				m.used[column] = true
				m.weakID = m.weakID || field == "request_id" && (name == "index" || name == "")
				break
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(o.Columns)) {
		column := o.Columns[field]
		if field == "id" {
			field = "request_id"
		}
		if !slices.Contains(requestFields, field) {
			return mapping{}, fmt.Errorf("there is no field %q; the fields are %s", clip(field), strings.Join(requestFields, ", "))
		}
		if column == "" {
			delete(m.columns, field)
			continue
		}
		if !slices.Contains(columns, column) {
			return mapping{}, fmt.Errorf("there is no column %q for %s; the columns are %s", clip(column), field, nameList(columns))
		}
		m.columns[field] = column
		if field == "request_id" {
			m.weakID = false
		}
		if field == "text" {
			delete(m.columns, "messages") // the caller wants the text
		}
	}
	_, text := m.columns["text"]
	_, messages := m.columns["messages"]
	if !text && !messages {
		return mapping{}, fmt.Errorf("no column is known as the text of a request; the columns are %s: map one, such as text=%s", nameList(columns), clip(columns[len(columns)-1]))
	}
	clear(m.used)
	for _, column := range m.columns {
		m.used[column] = true
	}
	for _, name := range columns {
		if !m.used[name] && slices.Contains(answerColumns(), plainName(name)) {
			m.dropped = append(m.dropped, name)
		}
	}
	return m, nil
}

func choosePreset(plain map[string]string, name string) (*preset, error) {
	fits := func(p preset) error {
		for _, column := range p.has {
			if _, ok := plain[column]; !ok {
				return fmt.Errorf("a %s file has a column %s, and this one has not", p.name, column)
			}
		}
		if p.only && len(plain) > len(p.has) {
			return errors.New("it has further columns")
		}
		return nil
	}
	for _, p := range presets() {
		err := fits(p)
		switch {
		case name == "" && err == nil, name == p.name && p.only && len(plain) > len(p.has), name == p.name && err == nil:
			return &p, nil
		case name == p.name:
			return nil, err
		}
	}
	if name != "" {
		return nil, fmt.Errorf("there is no preset %q; there are %s", clip(name), strings.Join(Presets(), ", "))
	}
	return nil, nil
}

// nameList names columns for a message.
func nameList(names []string) string {
	var parts []string
	for i, name := range names {
		if i == 20 {
			parts = append(parts, "…")
			break
		}
		if name == "" {
			name = `""`
		}
		parts = append(parts, clip(name))
	}
	return strings.Join(parts, ", ")
}
