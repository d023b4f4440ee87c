package ollama_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/ollama"

	"github.com/ollama/ollama/api"
)

func TestAnswerRaw(t *testing.T) {
	s := newServer(t)
	var tokens atomic.Int64
	e := open(t, s, func(o *ollama.Options) { o.Progress = func(n int) { tokens.Add(int64(n)) } })
	before := tokens.Load()
	g, a := one(t, e, ask("Please bake bread", at(0.7, 42)))
	want := data.Generation{Sampling: at(0.7, 42), Text: "Knead the dough", Tokens: 3, StopReason: data.StopEnd}
	if g != want {
		t.Errorf("got %+v, want %+v", g, want)
	}
	const rendered = " <user> Please bake bread <assistant>"
	sum := sha256.Sum256([]byte(rendered))
	if a.RenderedSHA256 != hex.EncodeToString(sum[:]) || a.PromptTokens != 5 || a.PromptID == "" {
		t.Errorf("answer: got %+v", a)
	}
	asked := s.asked()
	if len(asked) != 1 || asked[0].path != "/api/generate" || !asked[0].Raw || asked[0].Prompt != rendered {
		t.Fatalf("asked: got %+v", asked)
	}
	if q := asked[0]; q.Think == nil || *q.Think || q.Truncate == nil || *q.Truncate || q.Shift == nil || *q.Shift {
		t.Errorf("think %v, truncate %v, shift %v: want all false", q.Think, q.Truncate, q.Shift)
	}
	if n := tokens.Load() - before; n != 3 {
		t.Errorf("progress: got %d tokens, want 3", n)
	}
	info := e.Info()
	if info.Engine != "ollama" || info.Version != "0.6.5" || info.ModelDigest != "sha256:"+weights || info.Device != "cpu" ||
		info.Blocks != 30 || info.Width != 576 || info.Context != 512 || info.Reproducible || info.Scorer || !info.Grammars {
		t.Errorf("info: got %+v", info)
	}
	if !slices.ContainsFunc(info.NotVerified, func(s string) bool { return strings.Contains(s, "num_ctx") }) {
		t.Errorf("not verified: got %q, want num_ctx among it", info.NotVerified)
	}
}

// Every option that a server has is sent, so that no default of the server and
// no parameter stored with the model acts. What is left out changes no answer.
func TestEveryOptionIsSent(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	one(t, e, ask("Please bake bread", data.Sampling{Temperature: 0.5, Seed: 0, TopK: 7, TopP: 0.9, MinP: 0.05, MaxTokens: 9}))
	one(t, e, ask("Please bake bread", data.Sampling{Temperature: 0, Seed: 0, MaxTokens: 9}))
	asked := s.asked()
	harmless := []string{"low_vram", "main_gpu", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[api.Options]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || slices.Contains(harmless, name) {
			continue
		}
		if v, ok := asked[0].Options[name]; !ok || v == nil {
			t.Errorf("option %s is not sent", name)
		}
	}
	for name := range asked[0].Options {
		known := slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[api.Options]()), func(f reflect.StructField) bool {
			return strings.HasPrefix(f.Tag.Get("json"), name+",")
		})
		if !known {
			t.Errorf("option %s is unknown to the server, which ignores it", name)
		}
	}
	for i, want := range []map[string]any{
		{"temperature": 0.5, "top_k": 7.0, "top_p": 0.9, "min_p": 0.05, "num_predict": 9.0, "num_ctx": 512.0, "repeat_penalty": 1.0, "typical_p": 1.0},
		{"temperature": 0.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0},
	} {
		for name, v := range want {
			if got := asked[i].Options[name]; got != v {
				t.Errorf("trial %d: option %s: got %v, want %v", i, name, got, v)
			}
		}
	}
	if stop, ok := asked[0].Options["stop"].([]any); !ok || len(stop) != 0 {
		t.Errorf("stop: got %v, want an empty list", asked[0].Options["stop"])
	}
}

// Seeds sent depend on seed, temperature and prompt, are the same again for the
// same, and are never a sentinel that means "at random".
func TestSeeds(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	var samplings []data.Sampling
	for _, temperature := range []float64{0, 0.3, 0.7, 1} {
		for seed := range uint32(50) {
			samplings = append(samplings, at(temperature, seed))
		}
	}
	if _, err := unit(context.Background(), e, ask("Please bake bread", samplings...), ask("Please bake rolls", samplings...), ask("Please bake bread", samplings...)); err != nil {
		t.Fatal(err)
	}
	seen := make(map[float64]int)
	asked := s.asked()
	for i, q := range asked {
		seed := q.Options["seed"].(float64)
		if seed < 0 || seed >= 1<<31 {
			t.Fatalf("seed %v is out of range", seed)
		}
		if i >= 400 && seed != asked[i-400].Options["seed"] {
			t.Fatalf("trial %d: the same again has another seed", i)
		}
		seen[seed]++
	}
	if len(seen) != 400 {
		t.Errorf("got %d seeds for 400 trials that differ", len(seen))
	}
}

func TestAnswerChat(t *testing.T) {
	s := newServer(t)
	s.show["system"] = "You bake bread."
	e := open(t, s, func(o *ollama.Options) { o.Renderer = nil; o.Think = true })
	job := ask("Please bake bread", at(0.7, 42))
	job.Prompt.Messages = append([]data.Message{{Role: "system", Content: "Be brief."}}, job.Prompt.Messages...)
	g, a := one(t, e, job)
	if g.Text != "Knead the dough" || a.RenderedSHA256 != "" || a.PromptTokens != 5 {
		t.Errorf("got %+v, %+v", g, a)
	}
	asked := s.asked()
	if len(asked) != 1 || asked[0].path != "/api/chat" || len(asked[0].Messages) != 2 || asked[0].Messages[0] != job.Prompt.Messages[0] {
		t.Fatalf("asked: got %+v", asked)
	}
	if asked[0].Think == nil || !*asked[0].Think {
		t.Error("think is not sent")
	}
	info := e.Info()
	sum := sha256.Sum256([]byte("{{ .Prompt }}"))
	if info.TemplateHash != hex.EncodeToString(sum[:]) {
		t.Errorf("template: got %s", info.TemplateHash)
	}
	notes := strings.Join(info.Notes, "\n")
	for _, want := range []string{"rendered by the server", "stored system message"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes: got %q, want %q", notes, want)
		}
	}
	// A prompt that turns out too long is an error although the server answered.
	long := ask("bake "+strings.Repeat("bread ", 500), at(0, 1))
	if g, _ := one(t, e, long); g.ErrorKind != data.ErrOverflow || g.Text != "" {
		t.Errorf("too long: got %+v", g)
	}
}

// An empty answer has no eval_count at all, and is an answer (reference,
// real-models.md, section 3).
func TestEmptyAnswer(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	s.set(func() {
		s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
			io.WriteString(w, `{"model":"tiny","response":"","done":true,"done_reason":"stop","prompt_eval_count":5}`+"\n")
			return true
		}
	})
	g, a := one(t, e, ask("Please bake bread", at(0, 1)))
	if g.StopReason != data.StopEnd || g.Text != "" || g.Tokens != 0 || g.ErrorKind != "" || len(a.Attempts) != 0 {
		t.Errorf("got %+v, want an empty answer", g)
	}
}

func TestLengthAndReasoning(t *testing.T) {
	for _, test := range []struct {
		name, opening     string
		lines             []string
		reasoning, answer string
		tokens            int
		reason            string
	}{
		{"cut", "", []string{`{"response":"Knead the"}`, `{"done":true,"done_reason":"length","eval_count":16}`}, "", "Knead the", 16, data.StopLength},
		{"reasoning", "", []string{`{"response":"<think>Flour."}`, `{"response":"</think>Knead."}`, `{"done":true,"done_reason":"stop","eval_count":8}`}, "Flour.", "Knead.", 7, data.StopEnd},
		{"opened by the template", "<think>", []string{`{"response":"Flour and"}`, `{"done":true,"done_reason":"length","eval_count":16}`}, "Flour and", "", 16, data.StopLength},
		{"parted by the server", "", []string{`{"thinking":"Flour."}`, `{"response":"Knead."}`, `{"done":true,"done_reason":"stop","eval_count":5}`}, "Flour.", "Knead.", 4, data.StopEnd},
		{"text on the last line, no line feed", "", []string{`{"response":"Kn"}`, `{"response":"ead.","done":true,"done_reason":"stop","eval_count":3}`}, "", "Knead.", 2, data.StopEnd},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t)
			e := open(t, s, func(o *ollama.Options) { o.Renderer = &renderer{opening: test.opening} })
			s.set(func() {
				s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
					io.WriteString(w, strings.Join(test.lines, "\n"))
					return true
				}
			})
			g, _ := one(t, e, ask("Please bake bread", at(0, 1)))
			if g.Text != test.answer || g.Reasoning != test.reasoning || g.Tokens != test.tokens || g.StopReason != test.reason {
				t.Errorf("got %+v", g)
			}
		})
	}
}

// What does not fit, or cannot be shown, is never sent.
func TestNeverSent(t *testing.T) {
	s := newServer(t)
	r := &renderer{}
	e := open(t, s, func(o *ollama.Options) { o.Renderer, o.Context = r, 64 })
	fits := at(0, 1)
	fits.MaxTokens = 64 - 5
	over := fits
	over.MaxTokens++
	answers, err := unit(context.Background(), e, ask("Please bake bread", fits, over), ask("nul \x00 byte", fits), ask("\xff", fits))
	if err != nil || len(answers) != 3 {
		t.Fatalf("got %d answers, %v", len(answers), err)
	}
	if g := answers[0].Generations[0]; g.ErrorKind != "" {
		t.Errorf("fits: got %+v", g)
	}
	if g := answers[0].Generations[1]; g.ErrorKind != data.ErrOverflow || g.StopReason != data.StopError {
		t.Errorf("one too many: got %+v", g)
	}
	for _, a := range answers[1:] {
		if g := a.Generations[0]; g.ErrorKind != data.ErrRender {
			t.Errorf("got %+v, want kind %s", g, data.ErrRender)
		}
	}
	r.fail = true
	if g, _ := one(t, e, ask("Please bake bread", fits)); g.ErrorKind != data.ErrRender || !strings.Contains(g.Error, "knows no such role") {
		t.Errorf("template fails: got %+v", g)
	}
	if n := len(s.asked()); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
}

// A server that saw another number of prompt tokens was shown another prompt.
func TestOtherPromptSeen(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	s.set(func() { s.bos = 1 })
	g, _ := one(t, e, ask("Please bake bread", at(0, 1)))
	if g.ErrorKind != data.ErrEngine || !strings.Contains(g.Error, "6 prompt tokens") || g.Text != "" {
		t.Errorf("got %+v, want an error that says 6 prompt tokens", g)
	}
}

// Templates put the begin-of-text token before a prompt, and so do servers: the
// model must see exactly one.
func TestBeginOfText(t *testing.T) {
	s := newServer(t)
	s.bos = 1
	info := s.show["model_info"].(map[string]any)
	info["tokenizer.ggml.bos_token_id"] = 1
	info["tokenizer.ggml.tokens"] = []string{"a", "<s>"}
	e := open(t, s, func(o *ollama.Options) { o.Renderer = &renderer{bos: "<s>"} })
	g, a := one(t, e, ask("Please bake bread", at(0, 1)))
	if g.ErrorKind != "" || a.PromptTokens != 6 {
		t.Errorf("got %+v, %+v", g, a)
	}
	if q := s.asked()[0]; strings.Contains(q.Prompt, "<s>") {
		t.Errorf("sent %q, want it without the token", q.Prompt)
	}
	sum := sha256.Sum256([]byte("<s> <user> Please bake bread <assistant>"))
	if a.RenderedSHA256 != hex.EncodeToString(sum[:]) {
		t.Error("the digest is not that of the rendered prompt")
	}
	if !strings.Contains(strings.Join(e.Info().Notes, "\n"), "begin-of-text") {
		t.Errorf("notes: got %q", e.Info().Notes)
	}
}

// In a context too small for a plain question nothing can be learned from one;
// trials that fit are still answered.
func TestSmallContext(t *testing.T) {
	s := newServer(t)
	e := open(t, s, func(o *ollama.Options) { o.Context = 6 })
	if !slices.ContainsFunc(e.Info().NotVerified, func(s string) bool { return strings.Contains(s, "all tokens") }) {
		t.Errorf("not verified: got %q", e.Info().NotVerified)
	}
	fits := at(0, 1)
	fits.MaxTokens = 1
	if g, _ := one(t, e, ask("Please bake bread", fits)); g.ErrorKind != "" {
		t.Errorf("got %+v", g)
	}
}

func TestGrammar(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	job := ask("Please bake bread", at(0, 1), at(0, 1))
	job.Samplings[1].Grammar = true
	if _, err := unit(context.Background(), e, job); err == nil {
		t.Error("no grammar: got no error")
	}
	job.Grammar = &inference.Grammar{Schema: `{"type":"object"}`}
	one(t, e, job)
	asked := s.asked()
	if len(asked) != 2 || len(asked[0].Format) != 0 || string(asked[1].Format) != job.Grammar.Schema {
		t.Errorf("got formats %q and %q, want none and the schema", asked[0].Format, asked[1].Format)
	}
}

// Trials in flight at a time do not mix: each generation answers its sampling,
// answers come in the order of the jobs.
func TestParallel(t *testing.T) {
	s := newServer(t)
	e := open(t, s, func(o *ollama.Options) { o.Parallel = 4 })
	var together sync.WaitGroup // the first four wait for each other
	together.Add(4)
	s.set(func() {
		s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
			q := s.asked()[n]
			if n < 4 {
				together.Done()
				together.Wait()
			}
			time.Sleep(time.Duration(n%3) * time.Millisecond)
			answer(w, q, count(q.Prompt), fmt.Sprintf("%s %v", q.Prompt, q.Options["num_predict"]))
			return true
		}
	})
	var jobs []inference.Job
	for i := range 6 {
		var samplings []data.Sampling
		for k := range 5 {
			samplings = append(samplings, data.Sampling{Seed: uint32(k), Temperature: 1, MaxTokens: 10 + k})
		}
		jobs = append(jobs, ask(fmt.Sprintf("bake loaf %d", i), samplings...))
	}
	answers, err := unit(context.Background(), e, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		for k, g := range a.Generations {
			if want := fmt.Sprintf(" <user> bake loaf %d <assistant> %d", i, 10+k); g.Text != want {
				t.Errorf("job %d, sampling %d: got %q, want %q", i, k, g.Text, want)
			}
		}
	}
	s.set(func() {
		if s.most != 4 {
			t.Errorf("at most %d requests were in flight, want 4", s.most)
		}
	})
}

func TestOneInFlight(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	if _, err := unit(context.Background(), e, ask("bake bread", at(1, 1), at(1, 2)), ask("bake rolls", at(1, 1))); err != nil {
		t.Fatal(err)
	}
	s.set(func() {
		if s.most != 1 {
			t.Errorf("%d requests were in flight, want 1", s.most)
		}
	})
}

// A reader who stops early gets no more; nothing is left in flight.
func TestStopEarly(t *testing.T) {
	s := newServer(t)
	e := open(t, s, nil)
	for range e.Generate(context.Background(), []inference.Job{ask("bake bread", at(1, 1)), ask("bake rolls", at(1, 1), at(1, 2), at(1, 3))}) {
		break
	}
	inside := -1
	for range 1000 { // the server takes a moment to see that its client has gone
		s.set(func() { inside = s.inside })
		if inside == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d requests are in flight", inside)
}

func TestOpenRefuses(t *testing.T) {
	s := newServer(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	defer other.Close()
	base := func(change func(*ollama.Options)) ollama.Options {
		o := ollama.Options{BaseURL: s.http.URL, Model: "tiny", Renderer: &renderer{}, Patience: time.Millisecond}
		change(&o)
		return o
	}
	for _, test := range []struct {
		name        string
		o           ollama.Options
		unavailable bool
		says        string
	}{
		{"not running", base(func(o *ollama.Options) { o.BaseURL = gone.URL }), true, "ollama serve"},
		{"no Ollama", base(func(o *ollama.Options) { o.BaseURL = other.URL }), true, "no Ollama server answers"},
		{"not pulled", base(func(o *ollama.Options) { o.Model = "big" }), true, "ollama pull big"},
		{"no name", base(func(o *ollama.Options) { o.Model = "" }), true, "ollama list"},
		{"other weights", base(func(o *ollama.Options) { o.ModelDigest = "sha256:" + strings.Repeat("5", 64) }), true, "other weights"},
		{"template fails", base(func(o *ollama.Options) { o.Renderer = &renderer{fail: true} }), true, "cannot render"},
		{"remote", base(func(o *ollama.Options) { o.BaseURL = "http://192.0.2.1:11434" }), false, "--allow-remote"},
		{"remote name", base(func(o *ollama.Options) { o.BaseURL = "gpu.example.org:11434" }), false, "--allow-remote"},
		{"every address", base(func(o *ollama.Options) { o.BaseURL = "0.0.0.0:11434" }), false, "--allow-remote"},
		{"scheme", base(func(o *ollama.Options) { o.BaseURL = "ftp://127.0.0.1" }), false, "no address"},
		{"user", base(func(o *ollama.Options) { o.BaseURL = "http://me:secret@127.0.0.1" }), false, "no user"},
		{"negative context", base(func(o *ollama.Options) { o.Context = -1 }), false, "negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := ollama.Open(context.Background(), test.o)
			if err == nil {
				e.Close()
				t.Fatal("got no error")
			}
			if errors.Is(err, inference.ErrUnavailable) != test.unavailable || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q, unavailable %v", err, test.says, test.unavailable)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, which shows the password", err)
			}
			if r, ok := test.o.Renderer.(*renderer); ok && !r.closed {
				t.Error("the renderer is not closed")
			}
		})
	}
	t.Run("cannot load", func(t *testing.T) {
		s := newServer(t)
		s.script = func(w http.ResponseWriter, r *http.Request, n int) bool { w.WriteHeader(500); return true }
		_, err := ollama.Open(context.Background(), ollama.Options{BaseURL: s.http.URL, Model: "tiny", Renderer: &renderer{}, MaxRetries: -1})
		if !errors.Is(err, inference.ErrUnavailable) {
			t.Errorf("got %v, want kind %v", err, inference.ErrUnavailable)
		}
	})
	t.Run("cloud model", func(t *testing.T) {
		s := newServer(t)
		s.show["remote_host"] = "https://example.org"
		_, err := ollama.Open(context.Background(), ollama.Options{BaseURL: s.http.URL, Model: "tiny"})
		if !errors.Is(err, inference.ErrUnavailable) || !strings.Contains(err.Error(), "another computer") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("small window", func(t *testing.T) {
		s := newServer(t)
		s.window = 100
		_, err := ollama.Open(context.Background(), ollama.Options{BaseURL: s.http.URL, Model: "tiny"})
		if !errors.Is(err, inference.ErrUnavailable) || !strings.Contains(err.Error(), "window of 100") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := ollama.Open(ctx, ollama.Options{BaseURL: s.http.URL, Model: "tiny"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}

func TestNames(t *testing.T) {
	s := newServer(t)
	s.window = 512
	e := open(t, s, func(o *ollama.Options) { o.BaseURL = strings.TrimPrefix(s.http.URL, "http://"); o.Context = 4096 })
	info := e.Info()
	if info.Context != 512 || !strings.Contains(strings.Join(info.Notes, "\n"), "trained") {
		t.Errorf("context: got %d, notes %q, want 512 and a note", info.Context, info.Notes)
	}
	if slices.ContainsFunc(info.NotVerified, func(s string) bool { return strings.Contains(s, "num_ctx") }) {
		t.Errorf("not verified: got %q, but the server reports its window", info.NotVerified)
	}
}

// An adapter that is stored with a model is another model.
func TestAdapter(t *testing.T) {
	s := newServer(t)
	s.show["modelfile"] = "FROM /store/blobs/sha256-" + weights + "\nADAPTER /store/blobs/sha256-" + strings.Repeat("6", 64) + "\nTEMPLATE \"x\"\n"
	info := open(t, s, nil).Info()
	if info.ModelDigest != "sha256:"+weights || info.Adapter != "sha256:"+strings.Repeat("6", 64) {
		t.Errorf("got weights %s, adapter %s", info.ModelDigest, info.Adapter)
	}
}

func TestClose(t *testing.T) {
	s := newServer(t)
	r := &renderer{}
	e := open(t, s, func(o *ollama.Options) { o.Renderer = r })
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !r.closed {
		t.Error("the renderer is not closed")
	}
	if _, err := unit(context.Background(), e, ask("bake bread", at(0, 1))); err == nil {
		t.Error("a closed engine answers")
	}
	if answers, err := unit(context.Background(), open(t, s, nil)); err != nil || len(answers) != 0 {
		t.Errorf("no jobs: got %d answers, %v", len(answers), err)
	}
}
