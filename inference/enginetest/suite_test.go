package enginetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"demur/data"
	"demur/inference"
)

// A wrong engine is a scripted one with one thing wrong.
type wrong struct {
	*Scripted
	info    func(*inference.Info)
	jobs    func([]inference.Job) []inference.Job                               // changes what is asked
	answers func(jobs []inference.Job, a []inference.Answer) []inference.Answer // changes what comes out
	err     func(error) error
	seq     func(ctx context.Context, jobs []inference.Job, inner iter.Seq2[inference.Answer, error]) iter.Seq2[inference.Answer, error]
	counts  func(*inference.Counters)
	close   func() error
}

func (w *wrong) Info() inference.Info {
	i := w.Scripted.Info()
	if w.info != nil {
		w.info(&i)
	}
	return i
}

func (w *wrong) Counters() inference.Counters {
	c := w.Scripted.Counters()
	if w.counts != nil {
		w.counts(&c)
	}
	return c
}

func (w *wrong) Close() error {
	if w.close != nil {
		return w.close()
	}
	return w.Scripted.Close()
}

func (w *wrong) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	if w.seq != nil {
		return w.seq(ctx, jobs, w.Scripted.Generate(ctx, jobs))
	}
	return func(yield func(inference.Answer, error) bool) {
		asked := jobs
		if w.jobs != nil {
			asked = w.jobs(slices.Clone(jobs))
		}
		got, err := collect(ctx, w.Scripted, asked)
		if w.answers != nil {
			got = w.answers(jobs, got)
		}
		for _, a := range got {
			if !yield(a, nil) {
				return
			}
		}
		if err != nil {
			if w.err != nil {
				err = w.err(err)
			}
			yield(inference.Answer{}, err)
		}
	}
}

// eachSampling changes the samplings that the inner engine sees; the answers
// still say what was asked.
func eachSampling(f func(i int, s *data.Sampling)) *wrong {
	return &wrong{
		jobs: func(jobs []inference.Job) []inference.Job {
			for i := range jobs {
				jobs[i].Samplings = slices.Clone(jobs[i].Samplings)
				for j := range jobs[i].Samplings {
					f(j, &jobs[i].Samplings[j])
				}
			}
			return jobs
		},
		answers: func(jobs []inference.Job, a []inference.Answer) []inference.Answer {
			for i := range a {
				for j := range a[i].Generations {
					a[i].Generations[j].Sampling = jobs[i].Samplings[j]
				}
			}
			return a
		},
	}
}

func eachGeneration(f func(*data.Generation)) *wrong {
	return eachAnswer(func(a *inference.Answer) {
		for i := range a.Generations {
			f(&a.Generations[i])
		}
	})
}

func eachAnswer(f func(*inference.Answer)) *wrong {
	return &wrong{answers: func(_ []inference.Job, a []inference.Answer) []inference.Answer {
		for i := range a {
			f(&a[i])
		}
		return a
	}}
}

// prompted changes what the inner engine is shown of job i, not what it says it
// was shown.
func prompted(f func(i int, jobs []inference.Job) string) *wrong {
	return &wrong{
		jobs: func(jobs []inference.Job) []inference.Job {
			asked := slices.Clone(jobs)
			for i := range jobs {
				asked[i].Prompt.Messages = append(slices.Clone(jobs[i].Prompt.Messages), data.Message{Role: "user", Content: f(i, jobs)})
			}
			return asked
		},
		answers: func(jobs []inference.Job, a []inference.Answer) []inference.Answer {
			for i := range a {
				a[i].RenderedSHA256 = data.PromptID(jobs[i].Prompt.Messages)
			}
			return a
		},
	}
}

// wrongs are the ways to be wrong, each with the checks of which one at least
// must fail. Other checks may fail too.
func wrongs() map[string]struct {
	make func() *wrong
	by   string
} {
	scores := func(f func(i int, x float64) float64) func() *wrong {
		return func() *wrong {
			return eachAnswer(func(a *inference.Answer) {
				for i, x := range a.Scores {
					a.Scores[i] = f(i, x)
				}
			})
		}
	}
	return map[string]struct {
		make func() *wrong
		by   string
	}{
		"ignores seeds":                {func() *wrong { return eachSampling(func(_ int, s *data.Sampling) { s.Seed = 1 }) }, "seeds"},
		"takes the place for the seed": {func() *wrong { return eachSampling(func(i int, s *data.Sampling) { s.Seed = uint32(i) }) }, "seeds"},
		"goes on drawing where the trial before stopped": {func() *wrong {
			before := uint32(0)
			return eachSampling(func(i int, s *data.Sampling) {
				if i == 0 {
					before = 0
				}
				before = before*31 + s.Seed
				s.Seed = before
			})
		}, "order"},
		"draws at temperature 0": {func() *wrong {
			return eachSampling(func(_ int, s *data.Sampling) {
				if s.Temperature == 0 {
					s.Temperature = 1
				}
			})
		}, "seeds"},
		"ignores temperature": {func() *wrong {
			return eachSampling(func(_ int, s *data.Sampling) {
				if s.Temperature > 0 {
					s.Temperature = 1
				}
			})
		}, "temperature"},
		"limits one token too far": {func() *wrong { return eachSampling(func(_ int, s *data.Sampling) { s.MaxTokens++ }) }, "limits"},
		"takes the job's first limit for all": {func() *wrong {
			w := eachSampling(func(int, *data.Sampling) {})
			inner := w.jobs
			w.jobs = func(jobs []inference.Job) []inference.Job {
				jobs = inner(jobs)
				for _, j := range jobs {
					for i := range j.Samplings {
						j.Samplings[i].MaxTokens = j.Samplings[0].MaxTokens
					}
				}
				return jobs
			}
			return w
		}, "limits"},
		"calls every end a stop": {func() *wrong {
			return eachGeneration(func(g *data.Generation) {
				if g.StopReason == data.StopLength {
					g.StopReason = data.StopEnd
				}
			})
		}, "limits"},
		"calls every end a cut": {func() *wrong {
			return eachGeneration(func(g *data.Generation) {
				if g.StopReason == data.StopEnd {
					g.StopReason = data.StopLength
				}
			})
		}, "isolation"},
		"has a stop reason of its own": {func() *wrong { return eachGeneration(func(g *data.Generation) { g.StopReason = "eos" }) }, "answers"},
		"cuts texts between bytes":     {func() *wrong { return eachGeneration(func(g *data.Generation) { g.Text += "\xf0\x9f\x8d" }) }, "answers"},
		"turns what is not ASCII into question marks": {func() *wrong {
			return eachGeneration(func(g *data.Generation) {
				g.Text = strings.Map(func(r rune) rune {
					if r > 127 {
						return '?'
					}
					return r
				}, g.Text)
			})
		}, "unicode"},
		"normalizes prompts": {func() *wrong {
			return &wrong{jobs: func(jobs []inference.Job) []inference.Job {
				for i := range jobs {
					m := slices.Clone(jobs[i].Prompt.Messages)
					for k := range m {
						m[k].Content = strings.ReplaceAll(m[k].Content, "o\u0308", "ö")
					}
					jobs[i].Prompt.Messages = m
				}
				return jobs
			}}
		}, "unicode"},
		"swaps two answers": {func() *wrong {
			return &wrong{answers: func(_ []inference.Job, a []inference.Answer) []inference.Answer {
				if len(a) > 1 {
					a[0], a[1] = a[1], a[0]
				}
				return a
			}}
		}, "answers"},
		"swaps the texts of two answers": {func() *wrong {
			return &wrong{answers: func(_ []inference.Job, a []inference.Answer) []inference.Answer {
				if len(a) > 1 && len(a[0].Generations) == len(a[1].Generations) {
					a[0].Generations, a[1].Generations = a[1].Generations, a[0].Generations
					for i := range a[0].Generations {
						g, h := &a[0].Generations[i], &a[1].Generations[i]
						g.Sampling, h.Sampling = h.Sampling, g.Sampling
					}
				}
				return a
			}}
		}, "ownership"},
		"swaps the texts of a job": {func() *wrong {
			return eachAnswer(func(a *inference.Answer) {
				if n := len(a.Generations); n > 1 {
					g, h := &a.Generations[0], &a.Generations[n/2]
					*g, *h = *h, *g
					g.Sampling, h.Sampling = h.Sampling, g.Sampling
				}
			})
		}, "ownership"},
		"leaves a generation out": {func() *wrong {
			return eachAnswer(func(a *inference.Answer) { a.Generations = a.Generations[:len(a.Generations)/2] })
		}, "answers"},
		"leaves a job out": {func() *wrong {
			return &wrong{answers: func(_ []inference.Job, a []inference.Answer) []inference.Answer { return a[:len(a)/2] }}
		}, "answers"},
		"answers once too often": {func() *wrong {
			return &wrong{answers: func(_ []inference.Job, a []inference.Answer) []inference.Answer {
				return append(a, a[max(0, len(a)-1):]...)
			}}
		}, "answers"},
		"answers when not asked": {func() *wrong {
			return &wrong{answers: func(jobs []inference.Job, a []inference.Answer) []inference.Answer {
				if len(jobs) == 0 {
					return []inference.Answer{{}}
				}
				return a
			}}
		}, "empty"},
		"remembers the unit before": {func() *wrong {
			last := ""
			return prompted(func(i int, jobs []inference.Job) string {
				before := last
				if i == len(jobs)-1 {
					last = jobs[0].Prompt.ID
				}
				return before
			})
		}, "isolation"},
		"shows a job the job before it": {func() *wrong {
			return prompted(func(i int, jobs []inference.Job) string {
				if i == 0 {
					return ""
				}
				return jobs[i-1].Prompt.Messages[0].Content
			})
		}, "neighbors"},
		"is not reproducible and says so not": {func() *wrong {
			n := 0
			return prompted(func(int, []inference.Job) string { n++; return fmt.Sprint(n) })
		}, "determinism"},
		"is another model each time": {func() *wrong {
			var here byte
			key := fmt.Sprintf("%p", &here) // of this engine, while it lives
			return prompted(func(int, []inference.Job) string { return key })
		}, "reopening"},
		"changes its description": {func() *wrong {
			n := 0
			return &wrong{info: func(i *inference.Info) { n++; i.Notes = []string{fmt.Sprint(n)} }}
		}, "info"},
		"has no model digest": {func() *wrong { return &wrong{info: func(i *inference.Info) { i.ModelDigest = "scripted" }} }, "info"},
		"has no plan":         {func() *wrong { return &wrong{info: func(i *inference.Info) { i.Plan = nil }} }, "info"},
		"changes the jobs": {func() *wrong {
			return &wrong{seq: func(_ context.Context, jobs []inference.Job, inner iter.Seq2[inference.Answer, error]) iter.Seq2[inference.Answer, error] {
				return func(yield func(inference.Answer, error) bool) {
					inner(yield)
					for i := range jobs {
						jobs[i].Prefix = "used"
					}
				}
			}}
		}, "answers"},
		"does not know the grammar": {func() *wrong { return eachSampling(func(_ int, s *data.Sampling) { s.Grammar = false }) }, "grammar"},
		"cuts bound answers": {func() *wrong {
			return eachGeneration(func(g *data.Generation) {
				if g.Sampling.Grammar {
					g.Text = strings.TrimSuffix(g.Text, "}")
				}
			})
		}, "grammar"},
		"gives probabilities as scores":     {scores(func(_ int, x float64) float64 { return math.Exp(x) }), "scores"},
		"gives scores that sum to too much": {scores(func(int, float64) float64 { return -0.1 }), "scores"},
		"scores the rest":                   {scores(func(_ int, x float64) float64 { return math.Log1p(-min(math.Exp(x), 1-1e-9)) }), "scores"},
		"scores at another temperature":     {scores(func(_ int, x float64) float64 { return 2 * x }), "scores drawn"},
		"scores with NaN":                   {scores(func(int, float64) float64 { return math.NaN() }), "scores"},
		"scores with infinity": {scores(func(_ int, x float64) float64 {
			if x < -20 {
				return math.Inf(-1)
			}
			return x
		}), "scores"},
		"scores without being asked": {func() *wrong {
			return eachAnswer(func(a *inference.Answer) {
				if a.Scores == nil {
					a.Scores = []float64{}
				}
			})
		}, "scores"},
		"gives log probabilities above 0": {func() *wrong {
			return eachGeneration(func(g *data.Generation) {
				if g.Logprob != nil {
					x := -*g.Logprob
					g.Logprob = &x
				}
			})
		}, "logprobs"},
		"gives log probabilities in bits": {func() *wrong {
			return eachGeneration(func(g *data.Generation) {
				if g.Logprob != nil {
					x := *g.Logprob / math.Ln2
					g.Logprob = &x
				}
			})
		}, "logprobs"},
		"cuts long prompts silently": {func() *wrong {
			return &wrong{
				jobs: func(jobs []inference.Job) []inference.Job {
					for i := range jobs {
						m := slices.Clone(jobs[i].Prompt.Messages)
						for k := range m {
							m[k].Content = m[k].Content[:min(len(m[k].Content), 1000)]
						}
						jobs[i].Prompt.Messages = m
					}
					return jobs
				},
			}
		}, "overflow"},
		"cuts long answers silently": {func() *wrong {
			return eachSampling(func(_ int, s *data.Sampling) { s.MaxTokens = min(s.MaxTokens, 1000) })
		}, "overflow"},
		"overflows a whole job": {func() *wrong {
			return eachAnswer(func(a *inference.Answer) {
				for _, g := range a.Generations {
					if g.StopReason == data.StopError {
						for i := range a.Generations {
							g.Sampling = a.Generations[i].Sampling
							a.Generations[i] = g
						}
						return
					}
				}
			})
		}, "overflow"},
		"fails on overflow": {func() *wrong {
			w := &wrong{}
			w.seq = func(ctx context.Context, jobs []inference.Job, inner iter.Seq2[inference.Answer, error]) iter.Seq2[inference.Answer, error] {
				return func(yield func(inference.Answer, error) bool) {
					for a, err := range inner {
						for _, g := range a.Generations {
							if g.ErrorKind == data.ErrOverflow {
								err = errors.New("does not fit")
							}
						}
						if !yield(a, err) || err != nil {
							return
						}
					}
				}
			}
			return w
		}, "overflow"},
		"cannot be cancelled": {func() *wrong {
			w := &wrong{}
			w.seq = func(_ context.Context, jobs []inference.Job, _ iter.Seq2[inference.Answer, error]) iter.Seq2[inference.Answer, error] {
				return w.Scripted.Generate(context.Background(), jobs)
			}
			return w
		}, "cancellation"},
		"hides the cancellation": {func() *wrong {
			return &wrong{err: func(err error) error { return errors.New("stopped: " + err.Error()) }}
		}, "cancellation"},
		"wraps the cancellation": {func() *wrong { return &wrong{err: func(err error) error { return fmt.Errorf("stopped: %w", err) }} }, "cancellation"},
		"is broken by a cancellation": {func() *wrong {
			w := &wrong{}
			w.err = func(err error) error { w.Scripted.Close(); return err }
			return w
		}, "cancellation"},
		"is broken by a caller that stops listening": {func() *wrong {
			w := &wrong{}
			w.seq = func(_ context.Context, _ []inference.Job, inner iter.Seq2[inference.Answer, error]) iter.Seq2[inference.Answer, error] {
				return func(yield func(inference.Answer, error) bool) {
					inner(func(a inference.Answer, err error) bool {
						if !yield(a, err) {
							w.Scripted.Close()
							return false
						}
						return true
					})
				}
			}
			return w
		}, "early end"},
		"yields only once": {func() *wrong {
			w := &wrong{}
			w.seq = func(_ context.Context, _ []inference.Job, inner iter.Seq2[inference.Answer, error]) iter.Seq2[inference.Answer, error] {
				var once sync.Once
				return func(yield func(inference.Answer, error) bool) { once.Do(func() { inner(yield) }) }
			}
			return w
		}, "early end"},
		"counts half of its tokens": {func() *wrong {
			return &wrong{counts: func(c *inference.Counters) { c.TokensSampled /= 2 }}
		}, "counters"},
		"counts rows that it did not decode": {func() *wrong {
			return &wrong{counts: func(c *inference.Counters) { c.Rows++ }}
		}, "counters"},
		"evaluates a prompt for every trial": {func() *wrong {
			return &wrong{counts: func(c *inference.Counters) { c.PromptTokens *= 8 }}
		}, "counters"},
		"generates when closed": {func() *wrong { return &wrong{close: func() error { return nil }} }, "closing"},
	}
}

// recorder is a TB that keeps what a check says of an engine.
type recorder struct {
	testing.TB
	failed  bool
	skipped bool
	said    []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(...any) {
	r.skipped = true
	runtime.Goexit()
}

// judge runs one check on engines made by open.
func judge(c check, open func() inference.Engine) *recorder {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e := open()
		c.run(&suite{TB: r, engine: e, fresh: open, info: e.Info(), opts: Options{Agreement: 1}.withDefaults()})
	}()
	<-done
	return r
}

// Each wrong engine is found out, by the check that is there for it, and a right
// one is not, by the same means.
func TestSuiteFindsWrongEngines(t *testing.T) {
	byName := map[string]check{}
	for _, c := range checks() {
		byName[c.name] = c
	}
	open := func(t *testing.T, w *wrong) inference.Engine {
		e, err := Open(Script{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Scripted = e
		return w
	}
	openStreamed := func(t *testing.T, x *streamed) inference.Engine {
		w := &wrong{}
		open(t, w)
		return x.on(w)
	}
	used := map[string]bool{}
	for name, test := range wrongs() {
		used[test.by] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := judge(byName[test.by], func() inference.Engine { return open(t, test.make()) })
			if !r.failed || r.skipped {
				t.Errorf("check %q finds nothing wrong", test.by)
				return
			}
			t.Logf("found: %.300s", r.said[0])
		})
	}
	for name, test := range wrongStreams() {
		used[test.by] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := judge(byName[test.by], func() inference.Engine { return openStreamed(t, test.make()) })
			if !r.failed || r.skipped {
				t.Errorf("check %q finds nothing wrong", test.by)
				return
			}
			t.Logf("found: %.300s", r.said[0])
		})
	}
	for name, c := range byName {
		t.Run("right engine that is steered/"+name, func(t *testing.T) {
			t.Parallel()
			if r := judge(c, func() inference.Engine { return openStreamed(t, &streamed{}) }); r.failed || r.skipped && (name == "steering" || name == "distributions") {
				t.Errorf("check %q: %s", name, strings.Join(r.said, "\n"))
			}
		})
	}
	for name, c := range byName {
		t.Run("right engine/"+name, func(t *testing.T) {
			t.Parallel()
			if r := judge(c, func() inference.Engine { return open(t, &wrong{}) }); r.failed {
				t.Errorf("check %q: %s", name, strings.Join(r.said, "\n"))
			}
		})
	}
	for name := range byName {
		if !used[name] {
			t.Errorf("no wrong engine shows that check %q can fail", name)
		}
	}
}
