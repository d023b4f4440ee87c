package ollama

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSpelled(t *testing.T) {
	for _, test := range []struct{ name, schema, want string }{
		{
			"boolean and enum", `{"type":"object","properties":{"b":{"type":"boolean"},"a":{"type":"integer","enum":[1, 2]}},"required":["a","b"]}`,
			`{"enum":[{"b":true,"a":1},{"b":true,"a":2},{"b":false,"a":1},{"b":false,"a":2}]}`,
		},
		{
			"range", `{"type":"object","properties":{"stars":{"type":"integer","minimum":-1,"maximum":1}},"required":["stars"],"additionalProperties":false}`,
			`{"enum":[{"stars":-1},{"stars":0},{"stars":1}]}`,
		},
		{
			"words", `{"type":"object","properties":{"say":{"enum":["a b","\"é\""]}},"required":["say"]}`,
			`{"enum":[{"say":"a b"},{"say":"\"é\""}]}`,
		},
		// What is not understood stays as it is.
		{"not required", `{"type":"object","properties":{"b":{"type":"boolean"}}}`, ""},
		{"text", `{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}`, ""},
		{"endless", `{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"required":["n"]}`, ""},
		{"many", `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":100000}},"required":["n"]}`, ""},
		{"many together", `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":99},"m":{"type":"integer","minimum":1,"maximum":99}},"required":["n","m"]}`, ""},
		{"both", `{"type":"object","properties":{"n":{"enum":[1,9],"minimum":5}},"required":["n"]}`, ""},
		{"unknown word", `{"type":"object","properties":{"b":{"type":"boolean"}},"required":["b"],"anyOf":[{}]}`, ""},
		{"const", `{"const":"x"}`, ""},
		{"no object", `{"type":"array"}`, ""},
		{"no JSON", `{"type":`, ""},
	} {
		want := test.want
		if want == "" {
			want = test.schema
		}
		if got := string(spelled(test.schema)); got != want {
			t.Errorf("%s: got %s, want %s", test.name, got, want)
		}
	}
}

// Whatever comes in, what goes out is bounded: the schema itself or a list.
func FuzzSpelled(f *testing.F) {
	f.Add(`{"type":"object","properties":{"b":{"type":"boolean"}},"required":["b"]}`)
	f.Add(`{"type":"object","properties":{"n":{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}},"required":["n"]}`)
	f.Add(`{"type":"object","properties":{"b":{"enum":[` + strings.Repeat(`{},`, 300) + `1]}},"required":["b"]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		got := spelled(schema)
		if string(got) == schema {
			return
		}
		var list struct{ Enum []map[string]any }
		if err := json.Unmarshal(got, &list); err != nil || len(list.Enum) == 0 || len(list.Enum) > maxSpelled || len(got) > maxSpelledBytes {
			t.Errorf("%q: got %q, %v", schema, got, err)
		}
	})
}
