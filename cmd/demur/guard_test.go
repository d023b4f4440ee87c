package main

import (
	"encoding/json"
	"testing"

	"demur/data"
)

// FuzzGuardLine: a line is refused, or becomes a prompt that has messages and the
// id of these.
func FuzzGuardLine(f *testing.F) {
	f.Add(`{"id":"a","text":"How do I bake bread?"}`, "Be kind.")
	f.Add(`{"messages":[{"role":"user","content":"How do I tie a bowline?"}]}`, "")
	f.Add(`{"text":"a","messages":[{}]}`, "")
	f.Add(`{"text":5}`, "")
	f.Fuzz(func(t *testing.T, text, system string) {
		var line guardLine
		if json.Unmarshal([]byte(text), &line) != nil {
			return
		}
		p, err := line.prompt(system)
		if err != nil {
			return
		}
		if len(p.Messages) == 0 || p.ID != data.PromptID(p.Messages) {
			t.Errorf("%q becomes %+v", text, p)
		}
		if line.Text != "" && p.Messages[len(p.Messages)-1].Content != line.Text {
			t.Errorf("%q ends with %q", text, p.Messages[len(p.Messages)-1].Content)
		}
	})
}
