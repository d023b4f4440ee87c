package pretoken

import (
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	// Expected pieces: the rule's regular expression, worked through by hand; the
	// engine's test compares with llama.cpp.
	for text, want := range map[string][]string{
		"":                          nil,
		"How do I":                  {"How", " do", " I"},
		"I'm sure, it's":            {"I", "'m", " sure", ",", " it", "'s"},
		"\"Bake bread?\"\n\n1. Now": {"\"Bake", " bread", "?\"\n\n", "1", ".", " Now"},
		"  two  blanks ":            {" ", " two", " ", " blanks", " "},
		"12345 67":                  {"123", "45", " ", "67"},
		"a\n \n b":                  {"a", "\n \n", " b"},
		"\t\tx":                     {"\t", "\tx"},
		"will_refuse":               {"will", "_refuse"},
	} {
		if got := Split(text); !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q, want %q", text, got, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("How do I pick my own lock? 12,345 \r\n\t don't")
	f.Fuzz(func(t *testing.T, text string) {
		pieces := Split(text)
		if got := strings.Join(pieces, ""); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
		if slices.Contains(pieces, "") {
			t.Errorf("%q has an empty piece", text)
		}
	})
}
