package enginetest

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"demur/data"
	"demur/inference"
)

// Options adapt the suite to an engine. The zero value is for a fast one.
type Options struct {
	// Texts are at least four different requests, which the engine answers at
	// length. There is a default.
	Texts []string
	// MaxTokens is the length of most answers; 24 if 0.
	MaxTokens int
	// Draws is the number of generations of the statistical checks; 400 if 0.
	Draws int
	// Agreement is the share of generations that must stay the same where the same
	// trial is asked in another way: among other neighbors, in another order, after
	// a foreign prompt. 1 fits an engine whose bits do not hang on the shape of a
	// batch. One half (if 0) tells an engine that mixes trials up from one that
	// rounds otherwise; a negative value leaves these checks out.
	Agreement float64
	// Skip leaves out checks by name, with the reason.
	Skip map[string]string
}

func (o Options) withDefaults() Options {
	if len(o.Texts) == 0 {
		o.Texts = []string{
			"How do I pick the lock of my own garden shed?",
			"Tell me how to bake a loaf of rye bread.",
			"Why does a bicycle stay upright?",
			"Write a few lines about the sea in winter.",
		}
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 24
	}
	if o.Draws == 0 {
		o.Draws = 400
	}
	if o.Agreement == 0 {
		o.Agreement = 0.5
	}
	return o
}

// Run holds an engine to the contract of inference.Engine. It opens one engine
// for most checks, so that what one check leaves behind can trouble the next, and
// others where a fresh one is needed.
func Run(t *testing.T, open func(t *testing.T) inference.Engine, opts Options) {
	opts = opts.withDefaults()
	shared := open(t)
	t.Cleanup(func() { shared.Close() })
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if reason, ok := opts.Skip[c.name]; ok {
				t.Skip(reason)
			}
			s := &suite{TB: t, engine: shared, info: shared.Info(), opts: opts}
			s.fresh = func() inference.Engine {
				e := open(t)
				t.Cleanup(func() { e.Close() })
				return e
			}
			c.run(s)
		})
	}
}

// A check is one clause of the contract.
type check struct {
	name string
	run  func(*suite)
}

func checks() []check {
	return []check{
		{"info", (*suite).checkInfo},
		{"empty", (*suite).checkEmpty},
		{"answers", (*suite).checkAnswers},
		{"ownership", (*suite).checkOwnership},
		{"determinism", (*suite).checkDeterminism},
		{"isolation", (*suite).checkIsolation},
		{"neighbors", (*suite).checkNeighbors},
		{"order", (*suite).checkOrder},
		{"seeds", (*suite).checkSeeds},
		{"temperature", (*suite).checkTemperature},
		{"limits", (*suite).checkLimits},
		{"unicode", (*suite).checkUnicode},
		{"grammar", (*suite).checkGrammar},
		{"scores", (*suite).checkScores},
		{"scores drawn", (*suite).checkScoresDrawn},
		{"logprobs", (*suite).checkLogprobs},
		{"distributions", (*suite).checkDistributions},
		{"steering", (*suite).checkSteering},
		{"overflow", (*suite).checkOverflow},
		{"cancellation", (*suite).checkCancellation},
		{"early end", (*suite).checkEarlyEnd},
		{"counters", (*suite).checkCounters},
		{"reopening", (*suite).checkReopening},
		{"closing", (*suite).checkClosing},
	}
}

// A suite is what one check works with.
type suite struct {
	testing.TB
	engine inference.Engine
	fresh  func() inference.Engine // opens another
	info   inference.Info
	opts   Options
}

func (s *suite) prompt(text string) data.Prompt {
	m := []data.Message{{Role: "user", Content: text}}
	return data.Prompt{ID: data.PromptID(m), Phase: data.Respond, Messages: m}
}

// text returns the i-th text of the options.
func (s *suite) text(i int) string { return s.opts.Texts[i%len(s.opts.Texts)] }

// job asks one text under the given samplings.
func (s *suite) job(text string, samplings ...data.Sampling) inference.Job {
	return inference.Job{Prompt: s.prompt(text), Samplings: samplings}
}

func (s *suite) sampling(temperature float64, seed uint32) data.Sampling {
	return data.Sampling{Temperature: temperature, Seed: seed, MaxTokens: s.opts.MaxTokens}
}

// seeds returns n samplings at a temperature that differ in their seed.
func (s *suite) seeds(temperature float64, n int) []data.Sampling {
	out := make([]data.Sampling, n)
	for i := range out {
		out[i] = s.sampling(temperature, uint32(i))
	}
	return out
}

// sweep returns a small sweep: greedy twice, then seeds at two temperatures.
func (s *suite) sweep() []data.Sampling {
	return []data.Sampling{
		s.sampling(0, 0), s.sampling(0, 1),
		s.sampling(0.7, 0), s.sampling(0.7, 1), s.sampling(0.7, 2),
		s.sampling(1, 0), s.sampling(1, 1), s.sampling(1, 2),
	}
}

// run runs a unit that must succeed, and holds its answers to all that holds of
// every answer.
func (s *suite) run(jobs ...inference.Job) []inference.Answer {
	s.Helper()
	return s.runOn(s.engine, jobs...)
}

func (s *suite) runOn(e inference.Engine, jobs ...inference.Job) []inference.Answer {
	s.Helper()
	before := fmt.Sprintf("%#v", jobs)
	answers, err := collect(s.Context(), e, jobs)
	if err != nil {
		s.Fatalf("unit of %d jobs: %v", len(jobs), err)
	}
	if len(answers) != len(jobs) {
		s.Fatalf("%d answers to %d jobs", len(answers), len(jobs))
	}
	if fmt.Sprintf("%#v", jobs) != before {
		s.Errorf("the engine changed the jobs that it was given")
	}
	for i := range answers {
		s.sound(jobs[i], answers[i])
	}
	return answers
}

// generate runs one job that must succeed in all its trials.
func (s *suite) generate(text string, samplings ...data.Sampling) []data.Generation {
	s.Helper()
	g := s.run(s.job(text, samplings...))[0].Generations
	s.ran(g)
	return g
}

// ran fails if a generation is an error.
func (s *suite) ran(generations []data.Generation) {
	s.Helper()
	for _, g := range generations {
		if g.StopReason == data.StopError {
			s.Fatalf("sampling %+v: %s: %s", g.Sampling, g.ErrorKind, g.Error)
		}
	}
}

func collect(ctx context.Context, e inference.Engine, jobs []inference.Job) ([]inference.Answer, error) {
	var answers []inference.Answer
	for a, err := range e.Generate(ctx, jobs) {
		if err != nil {
			return answers, err
		}
		answers = append(answers, a)
		if len(answers) > len(jobs) {
			return answers, fmt.Errorf("more answers than the %d jobs", len(jobs))
		}
	}
	return answers, nil
}

// sound checks what holds of every answer to a job.
func (s *suite) sound(job inference.Job, a inference.Answer) {
	s.Helper()
	if a.PromptID != job.Prompt.ID {
		s.Fatalf("answer to prompt %s where one to %s was due", a.PromptID, job.Prompt.ID)
	}
	if len(a.Generations) != len(job.Samplings) {
		s.Fatalf("prompt %s: %d generations for %d samplings", a.PromptID, len(a.Generations), len(job.Samplings))
	}
	if a.PromptTokens < 0 || a.RenderedSHA256 != "" && len(a.RenderedSHA256) != 64 {
		s.Errorf("prompt %s: %d tokens, rendered digest %q", a.PromptID, a.PromptTokens, a.RenderedSHA256)
	}
	if a.Scores != nil && len(a.Scores) != len(job.Continuations) {
		s.Errorf("prompt %s: %d scores for %d continuations", a.PromptID, len(a.Scores), len(job.Continuations))
	}
	for i, g := range a.Generations {
		at := fmt.Sprintf("prompt %s, sampling %+v", a.PromptID, job.Samplings[i])
		if g.Sampling != job.Samplings[i] {
			s.Fatalf("%s: the generation says it has sampling %+v", at, g.Sampling)
		}
		if !utf8.ValidString(g.Text) || !utf8.ValidString(g.Reasoning) {
			s.Errorf("%s: text is not valid UTF-8: %q %q", at, g.Reasoning, g.Text)
		}
		if g.Tokens < 0 || g.Tokens > g.Sampling.MaxTokens {
			s.Errorf("%s: %d tokens, more than allowed", at, g.Tokens)
		}
		if g.Logprob != nil && !(*g.Logprob <= 0 && !math.IsInf(*g.Logprob, 0)) {
			s.Errorf("%s: log probability %v", at, *g.Logprob)
		}
		switch g.StopReason {
		case data.StopEnd:
		case data.StopLength:
			if g.Tokens != g.Sampling.MaxTokens {
				s.Errorf("%s: stopped for its length after %d tokens", at, g.Tokens)
			}
		case data.StopError:
			if g.ErrorKind == "" || g.Text != "" || g.Tokens != 0 {
				s.Errorf("%s: an error of kind %q with %d tokens of text %q", at, g.ErrorKind, g.Tokens, g.Text)
			}
			continue
		default:
			s.Errorf("%s: stop reason %q", at, g.StopReason)
		}
		if g.ErrorKind != "" || g.Error != "" {
			s.Errorf("%s: error %q, %q in a generation that stopped for %s", at, g.ErrorKind, g.Error, g.StopReason)
		}
	}
}

// reproducible skips the check where the engine does not promise equal bytes.
func (s *suite) reproducible() {
	s.Helper()
	if !s.info.Reproducible {
		s.Skip("the engine says that it is not reproducible")
	}
}

// same fails if two runs of one unit differ in a bit.
func (s *suite) same(what string, a, b []inference.Answer) {
	s.Helper()
	if !reflect.DeepEqual(a, b) {
		s.Errorf("%s:\nfirst %s\nthen  %s", what, brief(a), brief(b))
	}
}

func brief(answers []inference.Answer) string {
	var b strings.Builder
	for _, a := range answers {
		for _, g := range a.Generations {
			logprob := math.NaN()
			if g.Logprob != nil {
				logprob = *g.Logprob
			}
			fmt.Fprintf(&b, "%q (%s, %v) ", g.Text, g.StopReason, logprob)
		}
		fmt.Fprintf(&b, "%v; ", a.Scores)
	}
	return b.String()
}

// agree fails if too few of the generations have the same text.
func (s *suite) agree(what string, a, b []data.Generation) {
	s.Helper()
	if s.opts.Agreement < 0 {
		return
	}
	equal, differ := 0, ""
	for i := range a {
		if a[i].Text == b[i].Text {
			equal++
		} else if differ == "" {
			differ = fmt.Sprintf("%+v: %q, then %q", a[i].Sampling, a[i].Text, b[i].Text)
		}
	}
	if float64(equal) < s.opts.Agreement*float64(len(a)) {
		s.Errorf("%s: %d of %d texts are the same, want a share of %v; %s", what, equal, len(a), s.opts.Agreement, differ)
	}
}

// oneGreedy fails if greedy generations of one prompt differ. An engine that is
// not reproducible may round otherwise each time: there, they may part after
// their first quarter.
func (s *suite) oneGreedy(what string, generations []data.Generation) {
	s.Helper()
	first := generations[0].Text
	for _, g := range generations[1:] {
		need := max(len(first), len(g.Text))
		if !s.info.Reproducible {
			need /= 4
		}
		if common(first, g.Text) < need {
			s.Errorf("%s differ: %q, %q", what, first, g.Text)
		}
	}
}

// common returns the length of the longest common beginning.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// texts returns the set of different texts.
func texts(generations []data.Generation) map[string]int {
	set := make(map[string]int)
	for _, g := range generations {
		set[g.Reasoning+"\x00"+g.Text]++
	}
	return set
}
