package ollama_test

import (
	"context"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
	"demur/inference/ollama"
)

// counted remembers what a renderer said, so that the server, which counts for
// chatML, is asked once a prompt.
type counted struct {
	inference.Renderer
	known map[string]rendering
}

type rendering struct {
	text   string
	tokens int
}

func (c counted) Render(messages []data.Message) (string, int, error) {
	id := data.PromptID(messages)
	if r, ok := c.known[id]; ok {
		return r.text, r.tokens, nil
	}
	text, tokens, err := c.Renderer.Render(messages)
	if err == nil {
		c.known[id] = rendering{text, tokens}
	}
	return text, tokens, err
}

// The suite that every engine must pass, on a real server. A server is slow and
// rounds by what its cache holds, so answers are short and some may part.
func TestConformance(t *testing.T) {
	base, model := realServer(t)
	for _, mode := range []string{"raw", "chat"} {
		t.Run(mode, func(t *testing.T) {
			known := make(map[string]rendering)
			enginetest.Run(t, func(t *testing.T) inference.Engine {
				o := ollama.Options{BaseURL: base, Model: model, Context: 256, Threads: 1}
				if mode == "raw" {
					o.Renderer = counted{chatML{base, model}, known}
				}
				e, err := ollama.Open(context.Background(), o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}, enginetest.Options{MaxTokens: 8})
		})
	}
}
