package protocol

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"

	"demur/data"
)

//go:embed prompts/*.txt
var wordings embed.FS

// requestMark stands for the request in a wording file.
const requestMark = "{{request}}"

// A Question is a wording of the prediction question.
type Question struct {
	Name     string
	Polarity string // data.AskRefuse or data.AskAnswer
	Text     string // holds {{request}} once
}

// Key returns the JSON key that the question asks for.
func (q Question) Key() string {
	if q.Polarity == data.AskAnswer {
		return "will_answer"
	}
	return "will_refuse"
}

// SHA256 returns the digest of polarity and text, for the manifest.
func (q Question) SHA256() string { return data.Digest([]string{q.Polarity, q.Text}) }

// Ask returns the user message that puts the question about r. The request
// stands in it verbatim; a conversation is written out as its turns.
func (q Question) Ask(r data.Request) string {
	text := r.Text
	if len(r.Messages) > 0 {
		var b strings.Builder
		for _, m := range r.Messages {
			fmt.Fprintf(&b, "%s: %s\n", m.Role, m.Content)
		}
		fmt.Fprintf(&b, "user: %s", r.Text)
		text = b.String()
	}
	return strings.Replace(q.Text, requestMark, text, 1)
}

// Questions returns the wordings that come with demur, by name.
func Questions() []Question {
	entries, err := fs.ReadDir(wordings, "prompts")
	if err != nil {
		panic("protocol: embedded wordings: " + err.Error())
	}
	var all []Question
	for _, e := range entries {
		text, err := fs.ReadFile(wordings, path.Join("prompts", e.Name()))
		if err != nil {
			panic("protocol: embedded wordings: " + err.Error())
		}
		q, err := ParseQuestion(strings.TrimSuffix(e.Name(), ".txt"), string(text))
		if err != nil {
			panic("protocol: embedded wordings: " + err.Error())
		}
		all = append(all, q)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// FindQuestion returns the wording with that name.
func FindQuestion(name string) (Question, error) {
	var names []string
	for _, q := range Questions() {
		if q.Name == name {
			return q, nil
		}
		names = append(names, q.Name)
	}
	return Question{}, fmt.Errorf("question %q is not known; there are %s, or name a wording file with --question-file", name, strings.Join(names, ", "))
}

// ParseQuestion reads a wording file: a line "polarity: refuse" or "polarity:
// answer", an empty line, and the text, in which {{request}} stands once and
// the JSON key of the polarity is asked for.
func ParseQuestion(name, file string) (Question, error) {
	file = strings.ReplaceAll(file, "\r\n", "\n")
	head, text, ok := strings.Cut(file, "\n\n")
	polarity, isHead := strings.CutPrefix(head, "polarity: ")
	if !ok || !isHead || (polarity != data.AskRefuse && polarity != data.AskAnswer) {
		return Question{}, fmt.Errorf("wording %q: it must begin with \"polarity: refuse\" or \"polarity: answer\" and an empty line", name)
	}
	q := Question{Name: name, Polarity: polarity, Text: strings.TrimSpace(text)}
	if n := strings.Count(q.Text, requestMark); n != 1 {
		return Question{}, fmt.Errorf("wording %q: %s stands in it %d times, it must stand once", name, requestMark, n)
	}
	if !strings.Contains(q.Text, q.Key()) {
		return Question{}, fmt.Errorf("wording %q: it never names the JSON key %s that its polarity needs", name, q.Key())
	}
	return q, nil
}
