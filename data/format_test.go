package data_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"demur/data"
)

// column is a row of a table of FORMAT.md.
type column struct{ name, kind, null string }

// TestFormatDescribesEveryColumn compares FORMAT.md with the types.
func TestFormatDescribesEveryColumn(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	must(t, err)
	documented := map[string][]column{}
	section := ""
	for line := range strings.SplitSeq(string(b), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = name
		}
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.Contains(line, "---") || strings.Contains(line, "| column |") {
			continue
		}
		documented[section] = append(documented[section], column{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])})
	}
	tables := map[string]any{
		data.Requests: data.Request{}, data.Prompts: data.Prompt{}, data.Predictions: data.Prediction{}, data.Trials: data.Trial{},
		data.Attempts: data.Attempt{}, data.Verdicts: data.Verdict{}, "activations": data.Activation{}, data.Estimates: data.Estimate{},
		data.Directions: data.Direction{}, data.Scores: data.Score{}, data.Tokens: data.PromptTokens{}, data.Steering: data.Steered{},
	}
	for name, row := range tables {
		if got, want := documented[name], columns(reflect.TypeOf(row)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n documented %v\n stored     %v", name, got, want)
		}
	}
	for name := range documented {
		if _, ok := tables[name]; !ok {
			t.Errorf("%s is documented and not compared", name)
		}
	}
}

func columns(t reflect.Type) []column {
	var all []column
	for f := range t.Fields() {
		tag := strings.Split(f.Tag.Get("parquet"), ",")
		c := column{name: tag[0], kind: kind(f.Type)}
		for _, option := range tag[1:] {
			if option == "optional" {
				c.null = "null"
			}
		}
		all = append(all, c)
	}
	return all
}

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "int64"
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Slice:
		return "list<" + kind(t.Elem()) + ">"
	case reflect.Map:
		return "map<" + kind(t.Key()) + ", " + kind(t.Elem()) + ">"
	case reflect.Struct:
		var fields []string
		for _, c := range columns(t) {
			fields = append(fields, c.name+": "+c.kind)
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	}
	return t.Kind().String()
}
