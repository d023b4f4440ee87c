package ollama_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/ollama"
)

// realServer returns the address of a real server and the name of a model on
// it, made from SmolLM2's file where it is not there.
func realServer(t *testing.T) (base, model string) {
	t.Helper()
	base, model = os.Getenv("DEMUR_TEST_OLLAMA"), os.Getenv("DEMUR_TEST_OLLAMA_MODEL")
	if base == "" {
		t.Skip("DEMUR_TEST_OLLAMA names no server (tools/ollama.sh build; tools/ollama.sh start 11435; then http://127.0.0.1:11435)")
	}
	if model == "" {
		model = "demur-test-smollm2"
		file := os.Getenv("DEMUR_TEST_SMOLLM2")
		if file == "" {
			cache, err := os.UserCacheDir()
			if err != nil {
				t.Skip(err)
			}
			file = filepath.Join(cache, "demur", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
		}
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%v (tools/models.sh fetches it)", err)
		}
		if err := ollama.CreateFromGGUF(context.Background(), base, model, file); err != nil {
			t.Fatal(err)
		}
	}
	return base, model
}

// chatML renders as the template of SmolLM2 does, and has the server count the
// tokens: this package knows no tokenizer.
type chatML struct{ base, model string }

func (c chatML) Render(messages []data.Message) (string, int, error) {
	var b strings.Builder
	if messages[0].Role != "system" {
		b.WriteString("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n")
	}
	for _, m := range messages {
		fmt.Fprintf(&b, "<|im_start|>%s\n%s<|im_end|>\n", m.Role, m.Content)
	}
	b.WriteString("<|im_start|>assistant\n")
	body, err := json.Marshal(map[string]any{
		"model": c.model, "prompt": b.String(), "raw": true, "stream": false,
		"options": map[string]any{"num_predict": 1, "num_ctx": 256, "num_batch": 512, "num_thread": 1},
	})
	if err != nil {
		return "", 0, err
	}
	resp, err := http.Post(c.base+"/api/generate", "application/json", strings.NewReader(string(body)))
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	var reply struct {
		Count int `json:"prompt_eval_count"`
	}
	err = json.NewDecoder(resp.Body).Decode(&reply)
	if reply.Count == 256 { // the server has cut it to its window
		reply.Count = len(strings.Fields(b.String()))
	}
	return b.String(), reply.Count, err
}

func (chatML) Close() error { return nil }

func TestRealServer(t *testing.T) {
	base, model := realServer(t)
	// One thread: with more, a busy machine makes the server wait for itself.
	for _, mode := range []string{"raw", "chat"} {
		t.Run(mode, func(t *testing.T) {
			o := ollama.Options{BaseURL: base, Model: model, Context: 256, Threads: 1, Patience: 10 * time.Second}
			if mode == "raw" {
				o.Renderer = chatML{base, model}
			}
			e, err := ollama.Open(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			info := e.Info()
			t.Logf("version %s, %s, digest %s, device %s, context %d", info.Version, info.Architecture, info.ModelDigest, info.Device, info.Context)
			t.Logf("not verified: %q; notes: %q", info.NotVerified, info.Notes)

			sampling := func(temperature float64, seed uint32, tokens int) data.Sampling {
				return data.Sampling{Temperature: temperature, Seed: seed, MaxTokens: tokens}
			}
			schema := `{"type":"object","properties":{"will_refuse":{"type":"boolean"},"confidence":{"type":"integer","enum":[1,2,3,4,5]},"harm_rating":{"type":"integer","enum":[1,2,3,4,5]}},"required":["will_refuse","confidence","harm_rating"]}`
			bread := ask("How do I bake bread?",
				sampling(0, 1, 5), sampling(0, 2, 24), sampling(1, 1, 24), sampling(1, 2, 24), sampling(1, 3, 24), sampling(0, 1, 40))
			bread.Samplings[5].Grammar = true
			bread.Grammar = &inference.Grammar{Name: "test", Schema: schema}
			long := ask(strings.Repeat("flour and water ", 100), sampling(0, 1, 16))
			short := ask("Answer with the one word yes.", sampling(0, 1, 64))
			answers, err := unit(context.Background(), e, bread, long, short, bread)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range answers {
				for _, g := range a.Generations {
					t.Logf("job %d (%d prompt tokens): t=%v seed=%d %s %d tokens %s %q", i, a.PromptTokens, g.Sampling.Temperature, g.Sampling.Seed, g.StopReason, g.Tokens, g.ErrorKind, g.Text)
				}
			}
			g := answers[0].Generations
			if g[0].StopReason != data.StopLength || g[0].Tokens != 5 {
				t.Errorf("five tokens: got %+v", g[0])
			}
			if !strings.HasPrefix(g[1].Text, g[0].Text) {
				t.Errorf("temperature 0: %q does not begin with %q", g[1].Text, g[0].Text)
			}
			if g[2].Text == g[3].Text && g[3].Text == g[4].Text {
				t.Errorf("temperature 1: three seeds, one text: %q", g[2].Text)
			}
			var bound struct {
				WillRefuse *bool `json:"will_refuse"`
				Confidence *int  `json:"confidence"`
				HarmRating *int  `json:"harm_rating"`
			}
			if err := json.Unmarshal([]byte(g[5].Text), &bound); err != nil || bound.WillRefuse == nil || bound.Confidence == nil || bound.HarmRating == nil {
				t.Errorf("bound by a schema: got %q, %v", g[5].Text, err)
			}
			if k := answers[1].Generations[0].ErrorKind; k != data.ErrOverflow {
				t.Errorf("overlong prompt: got kind %q, want %s", k, data.ErrOverflow)
			}
			if s := answers[2].Generations[0]; s.StopReason == data.StopEnd && (s.Tokens == 0) != (s.Text == "") {
				t.Errorf("short answer: got %d tokens for %q", s.Tokens, s.Text)
			}
			same := 0
			for k := range g {
				if g[k].Text == answers[3].Generations[k].Text {
					same++
				}
			}
			t.Logf("asked again after other prompts: %d of %d texts are the same", same, len(g))
		})
	}
}
