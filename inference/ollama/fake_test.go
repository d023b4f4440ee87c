package ollama_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/ollama"
)

const (
	weights  = "1111111111111111111111111111111111111111111111111111111111111111"
	manifest = "2222222222222222222222222222222222222222222222222222222222222222"
)

// A server is a scripted Ollama server. It answers as v0.6.5 does, and as the
// script says where one is set.
type server struct {
	t    testing.TB
	http *httptest.Server

	mu       sync.Mutex
	version  string
	manifest string
	show     map[string]any
	window   int // reported by /api/ps; 0 as v0.6.5, which does not report it
	bos      int // tokens that it puts before a prompt
	// script answers trial n, from 0; the questions that Open asks are not
	// trials. Nil and a false return mean: answer well.
	script func(w http.ResponseWriter, r *http.Request, n int) bool
	trials []trial // all that were asked
	inside int     // requests at this moment
	most   int     // the most there were
}

// trial is a request for a generation as it came in.
type trial struct {
	path     string
	Model    string          `json:"model"`
	Prompt   string          `json:"prompt"`
	Raw      bool            `json:"raw"`
	Messages []data.Message  `json:"messages"`
	Format   json.RawMessage `json:"format"`
	Options  map[string]any  `json:"options"`
	Think    *bool           `json:"think"`
	Truncate *bool           `json:"truncate"`
	Shift    *bool           `json:"shift"`
}

func newServer(t testing.TB) *server {
	s := &server{t: t, version: "0.6.5", manifest: manifest, show: map[string]any{
		"modelfile":  "# Modelfile\nFROM /store/blobs/sha256-" + weights + "\n",
		"template":   "{{ .Prompt }}",
		"model_info": map[string]any{"general.architecture": "llama", "llama.context_length": 512, "llama.block_count": 30, "llama.embedding_length": 576},
	}}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) asked() []trial {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]trial(nil), s.trials...)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	reply := func(v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Logf("reply: %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/api/version":
		reply(map[string]any{"version": s.version})
	case "/api/tags":
		reply(map[string]any{"models": []any{
			map[string]any{"name": "other:latest", "model": "other:latest", "digest": strings.Repeat("3", 64)},
			map[string]any{"name": "tiny:latest", "model": "tiny:latest", "digest": s.manifest},
		}})
	case "/api/show":
		var req struct{ Model string }
		if json.NewDecoder(r.Body).Decode(&req) != nil || req.Model != "tiny" {
			w.WriteHeader(http.StatusNotFound)
			reply(map[string]any{"error": fmt.Sprintf("model '%s' not found", req.Model)})
			return
		}
		reply(s.show)
	case "/api/ps":
		m := map[string]any{"name": "tiny:latest", "model": "tiny:latest", "size": 100, "size_vram": 0}
		if s.window > 0 {
			m["context_length"] = s.window
		}
		reply(map[string]any{"models": []any{m}})
	case "/api/generate", "/api/chat":
		s.generate(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// generate is called with the lock held, and lets go of it for the answer.
func (s *server) generate(w http.ResponseWriter, r *http.Request) {
	var t trial
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	t.path = r.URL.Path
	prompt := t.Prompt
	for _, m := range t.Messages {
		prompt += " " + m.Content
	}
	if prompt == "" {
		fmt.Fprintln(w, `{"model":"tiny","response":"","done":true,"done_reason":"load"}`)
		return
	}
	bos := s.bos
	script := s.script
	n := -1
	if !plain(prompt) {
		n = len(s.trials)
		s.trials = append(s.trials, t)
	}
	s.inside++
	s.most = max(s.most, s.inside)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inside--
	}()
	if script != nil && script(w, r, n) {
		return
	}
	answer(w, t, count(prompt)+bos, "Knead", " the", " dough")
}

// plain tells whether a prompt is the question by which Open gets to know a
// server.
func plain(prompt string) bool { return strings.Contains(prompt, "How long does bread bake?") }

// answer writes a whole answer, as v0.6.5 streams it: the end token is counted.
func answer(w http.ResponseWriter, t trial, promptTokens int, pieces ...string) {
	for _, p := range pieces {
		line(w, t, map[string]any{"done": false}, p)
	}
	line(w, t, map[string]any{"done": true, "done_reason": "stop", "prompt_eval_count": promptTokens, "eval_count": len(pieces) + 1}, "")
}

func line(w http.ResponseWriter, t trial, m map[string]any, piece string) {
	if t.path == "/api/chat" {
		m["message"] = map[string]any{"role": "assistant", "content": piece}
	} else {
		m["response"] = piece
	}
	b, _ := json.Marshal(m)
	w.Write(append(b, '\n'))
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// cut ends the connection of a stream in the middle, by a reset where hard.
func cut(w http.ResponseWriter, hard bool) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && hard {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// A renderer is a chat template for tests; a token is a word.
type renderer struct {
	bos, opening string
	fail         bool
	closed       bool
}

func (r *renderer) Render(messages []data.Message) (string, int, error) {
	if r.fail {
		return "", 0, errors.New("the template knows no such role")
	}
	var b strings.Builder
	b.WriteString(r.bos)
	for _, m := range messages {
		fmt.Fprintf(&b, " <%s> %s", m.Role, m.Content)
	}
	b.WriteString(" <assistant>" + r.opening)
	return b.String(), count(b.String()), nil
}

func (r *renderer) Close() error {
	r.closed = true
	return nil
}

func count(prompt string) int { return len(strings.Fields(prompt)) }

// open opens an engine that loses no time in waiting.
func open(t testing.TB, s *server, change func(*ollama.Options)) *ollama.Engine {
	t.Helper()
	o := ollama.Options{BaseURL: s.http.URL, Model: "tiny", Renderer: &renderer{}, Patience: 10 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	e, err := ollama.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func ask(text string, samplings ...data.Sampling) inference.Job {
	messages := []data.Message{{Role: "user", Content: text}}
	return inference.Job{Prompt: data.Prompt{ID: data.PromptID(messages), Messages: messages}, Samplings: samplings}
}

func at(temperature float64, seed uint32) data.Sampling {
	return data.Sampling{Temperature: temperature, Seed: seed, MaxTokens: 16}
}

// unit runs one unit and returns its answers and the error that ended it.
func unit(ctx context.Context, e inference.Engine, jobs ...inference.Job) (answers []inference.Answer, err error) {
	for a, err := range e.Generate(ctx, jobs) {
		if err != nil {
			return answers, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// one runs one trial.
func one(t testing.TB, e inference.Engine, job inference.Job) (data.Generation, inference.Answer) {
	t.Helper()
	answers, err := unit(context.Background(), e, job)
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 1 || len(answers[0].Generations) != len(job.Samplings) {
		t.Fatalf("got %+v, want one answer of %d generations", answers, len(job.Samplings))
	}
	return answers[0].Generations[0], answers[0]
}
