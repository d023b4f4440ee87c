package ollama_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/ollama"
)

// A behaviour is one way in which a server fails a trial (reference: promise P8,
// an interrupted answer is never a result).
var behaviours = []struct {
	name string
	do   func(w http.ResponseWriter, r *http.Request)
	kind string // of the trial where it always happens
	says string
	// retried is how often the trial is asked in all, with three retries at most.
	retried int
}{
	{"closed before an answer", func(w http.ResponseWriter, r *http.Request) { cut(w, false) }, data.ErrTransport, "no answer", 4},
	{"reset before an answer", func(w http.ResponseWriter, r *http.Request) { cut(w, true) }, data.ErrTransport, "no answer", 4},
	{"closed in the middle", func(w http.ResponseWriter, r *http.Request) { begin(w, r); cut(w, false) }, data.ErrTransport, "lost", 4},
	{"reset in the middle", func(w http.ResponseWriter, r *http.Request) { begin(w, r); cut(w, true) }, data.ErrTransport, "lost", 4},
	{"JSON cut by a close", func(w http.ResponseWriter, r *http.Request) {
		begin(w, r)
		io.WriteString(w, `{"response":" the do`)
		flush(w)
		cut(w, false)
	}, data.ErrTransport, "lost", 4},
	{"JSON cut by a clean end", func(w http.ResponseWriter, r *http.Request) {
		begin(w, r)
		io.WriteString(w, `{"response":" the do`)
	}, data.ErrTransport, "cut", 4},
	{"clean end without done", func(w http.ResponseWriter, r *http.Request) { begin(w, r) }, data.ErrTransport, "without its last line", 4},
	{"error line", func(w http.ResponseWriter, r *http.Request) {
		begin(w, r)
		io.WriteString(w, `{"error":"an error was encountered while running the model: unexpected EOF"}`+"\n")
	}, data.ErrEngine, "unexpected EOF", 3},
	{"404", status(404, `{"error":"model 'tiny' not found"}`), data.ErrEngine, "model 'tiny' not found", 1},
	{"400", status(400, `{"error":"raw mode does not support template"}`), data.ErrEngine, "raw mode", 1},
	{"400, too long", status(400, `{"error":"the input length exceeds the context length"}`), data.ErrOverflow, "exceeds the context length", 1},
	{"500", status(500, `{"error":"model runner has unexpectedly stopped"}`), data.ErrEngine, "unexpectedly stopped", 3},
	{"500 without words", status(500, ""), data.ErrEngine, "500", 3},
	{"502 of a proxy", status(502, "<html>Bad Gateway</html>"), data.ErrEngine, "Bad Gateway", 3},
	{"503", status(503, `{"error":"server busy, please try again"}`), data.ErrEngine, "server busy", 4},
	{"302", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
	}, data.ErrEngine, "307", 1},
	{"empty body", status(200, ""), data.ErrTransport, "empty", 4},
	{"blank body", status(200, "\n\n"), data.ErrTransport, "empty", 4},
	{"no JSON", status(200, "<html>hello</html>"), data.ErrTransport, "no JSON", 4},
	{"endless line", func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}, data.ErrTransport, "longer than", 4},
	{"31 equal pieces", func(w http.ResponseWriter, r *http.Request) {
		for range 31 {
			io.WriteString(w, `{"response":" ","done":false}`+"\n")
		}
	}, data.ErrEngine, "equal pieces", 1},
	{"done for another reason", status(200, `{"response":"","done":true,"done_reason":"load"}`+"\n"), data.ErrEngine, `"load"`, 1},
	{"done for no reason", status(200, `{"response":"Knead","done":true}`+"\n"), data.ErrEngine, `""`, 1},
	{"slow trickle", func(w http.ResponseWriter, r *http.Request) {
		for range 1000 {
			io.WriteString(w, `{"response":"x","done":false}`+"\n")
			flush(w)
			select {
			case <-r.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}, data.ErrTransport, "no end of the answer", 1},
}

func begin(w http.ResponseWriter, r *http.Request) {
	line(w, trial{path: r.URL.Path}, map[string]any{"done": false}, "I can help")
}

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

func status(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// A server that fails a trial each time makes it an error with the server's
// words: never an answer, and no part of the text is kept.
func TestTrialFails(t *testing.T) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			e := open(t, s, func(o *ollama.Options) { o.TrialTimeout = limit(b.name) })
			s.set(func() {
				s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
					if n >= 0 {
						b.do(w, r)
					}
					return n >= 0
				}
			})
			g, a := one(t, e, ask("Please bake bread", at(0.7, 42)))
			if g.StopReason != data.StopError || g.ErrorKind != b.kind || !strings.Contains(g.Error, b.says) {
				t.Errorf("got %+v, want an error of kind %s that says %q", g, b.kind, b.says)
			}
			if g.Text != "" || g.Tokens != 0 || g.Sampling.Seed != 42 {
				t.Errorf("got text %q of %d tokens for seed %d, want none, for seed 42", g.Text, g.Tokens, g.Sampling.Seed)
			}
			if n := len(s.asked()); n != b.retried {
				t.Errorf("asked %d times, want %d", n, b.retried)
			}
			if len(a.Attempts) != b.retried-1 {
				t.Errorf("%d attempts recorded, want %d", len(a.Attempts), b.retried-1)
			}
			for _, at := range a.Attempts {
				if at.ErrorKind != b.kind || !strings.Contains(at.Error, "seed 42") || at.Started == "" {
					t.Errorf("attempt: got %+v", at)
				}
			}
		})
	}
}

func limit(behaviour string) time.Duration {
	if behaviour == "slow trickle" {
		return 2 * time.Second
	}
	return time.Minute
}

// A failure that passes leaves the whole answer, from its first token, and one
// attempt.
func TestTrialRecovers(t *testing.T) {
	for _, b := range behaviours {
		if b.retried == 1 {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			e := open(t, s, nil)
			s.set(func() {
				s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
					if n == 0 {
						b.do(w, r)
					}
					return n == 0
				}
			})
			g, a := one(t, e, ask("Please bake bread", at(0.7, 42)))
			if g.Text != "Knead the dough" || g.Tokens != 3 || g.StopReason != data.StopEnd || g.ErrorKind != "" {
				t.Errorf("got %+v, want the whole answer", g)
			}
			if len(a.Attempts) != 1 || a.Attempts[0].ErrorKind != b.kind {
				t.Errorf("attempts: got %+v, want one of kind %s", a.Attempts, b.kind)
			}
		})
	}
}

func TestNoRetries(t *testing.T) {
	s := newServer(t)
	e := open(t, s, func(o *ollama.Options) { o.MaxRetries = -1 })
	s.set(func() {
		s.script = func(w http.ResponseWriter, r *http.Request, n int) bool { w.WriteHeader(503); return true }
	})
	one(t, e, ask("Please bake bread", at(0, 1)))
	if n := len(s.asked()); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
}

// Where the server fails everything, the run ends and the table is not filled
// with errors. Where only one prompt fails, the run goes on.
func TestFailuresInARow(t *testing.T) {
	samplings := make([]data.Sampling, 20)
	for i := range samplings {
		samplings[i] = at(0.7, uint32(i))
	}
	bad, good := ask("Please bake stones", samplings...), ask("Please bake bread", samplings...)
	t.Run("all", func(t *testing.T) {
		s := newServer(t)
		e := open(t, s, nil)
		s.set(func() {
			s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
				status(500, `{"error":"llama runner process has terminated: signal: killed"}`)(w, r)
				return true
			}
		})
		answers, err := unit(context.Background(), e, bad, good)
		if err == nil || !strings.Contains(err.Error(), "signal: killed") || len(answers) != 0 {
			t.Fatalf("got %d answers, %v, want an error with the server's words", len(answers), err)
		}
		if n := len(s.asked()); n != 5*3 {
			t.Errorf("asked %d times, want 15: five trials, three times each", n)
		}
	})
	t.Run("one prompt", func(t *testing.T) {
		s := newServer(t)
		e := open(t, s, nil)
		s.set(func() {
			s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
				if n < 0 || !strings.Contains(s.asked()[n].Prompt, "stones") {
					return false
				}
				status(500, `{"error":"assertion failed"}`)(w, r)
				return true
			}
		})
		answers, err := unit(context.Background(), e, bad, good)
		if err != nil || len(answers) != 2 {
			t.Fatalf("got %d answers, %v, want both", len(answers), err)
		}
		for i, want := range []string{data.StopError, data.StopEnd} {
			for _, g := range answers[i].Generations {
				if g.StopReason != want {
					t.Errorf("job %d: got %+v, want %s", i, g, want)
				}
			}
		}
	})
}

// A server that goes away for good ends the run after some waiting; answers that
// came before stand.
func TestServerGone(t *testing.T) {
	s := newServer(t)
	e := open(t, s, func(o *ollama.Options) { o.Patience = 100 * time.Millisecond })
	s.set(func() {
		s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n == 1 {
				s.http.Listener.Close()
				cut(w, true)
			}
			return n == 1
		}
	})
	answers, err := unit(context.Background(), e, ask("Please bake bread", at(0, 1)), ask("Please bake rolls", at(0, 1)))
	if len(answers) != 1 || answers[0].Generations[0].Text != "Knead the dough" {
		t.Errorf("got %+v, want the first answer", answers)
	}
	if err == nil || !strings.Contains(err.Error(), "has gone") || errors.Is(err, inference.ErrUnavailable) {
		t.Errorf("got %v, want an error after which the run can be continued", err)
	}
}

// A server that comes back as another one, or with another model, ends the run.
func TestServerChanges(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*server)
		says   string
	}{
		{"model", func(s *server) { s.manifest = strings.Repeat("4", 64) }, "another model"},
		{"version", func(s *server) { s.version = "0.7.0" }, "version 0.7.0"},
	} {
		t.Run(test.name+" in the middle", func(t *testing.T) {
			s := newServer(t)
			e := open(t, s, nil)
			s.set(func() {
				s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
					s.set(func() { test.change(s) })
					cut(w, true)
					return true
				}
			})
			_, err := unit(context.Background(), e, ask("Please bake bread", at(0, 1)))
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want an error that says %q", err, test.says)
			}
		})
		t.Run(test.name+" between units", func(t *testing.T) {
			s := newServer(t)
			e := open(t, s, nil)
			one(t, e, ask("Please bake bread", at(0, 1)))
			s.set(func() { test.change(s) })
			answers, err := unit(context.Background(), e, ask("Please bake bread", at(0, 1)))
			if err == nil || !strings.Contains(err.Error(), test.says) || len(answers) != 0 {
				t.Errorf("got %d answers, %v, want an error that says %q", len(answers), err, test.says)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	for _, parallel := range []int{1, 4} {
		t.Run(fmt.Sprint(parallel), func(t *testing.T) {
			s := newServer(t)
			e := open(t, s, func(o *ollama.Options) { o.Parallel = parallel })
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s.set(func() {
				s.script = func(w http.ResponseWriter, r *http.Request, n int) bool {
					begin(w, r)
					cancel()
					<-r.Context().Done()
					return true
				}
			})
			answers, err := unit(ctx, e, ask("Please bake bread", at(0, 1), at(0, 2), at(1, 1), at(1, 2)))
			if !errors.Is(err, context.Canceled) || len(answers) != 0 {
				t.Fatalf("got %d answers, %v, want %v", len(answers), err, context.Canceled)
			}
			// The engine serves on.
			s.set(func() { s.script = nil })
			if g, _ := one(t, e, ask("Please bake bread", at(0, 1))); g.Text != "Knead the dough" {
				t.Errorf("after it: got %+v", g)
			}
		})
	}
}
