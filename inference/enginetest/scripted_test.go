package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
)

func open(t *testing.T, s enginetest.Script) *enginetest.Scripted {
	t.Helper()
	e, err := enginetest.Open(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func ask(text string) data.Prompt {
	m := []data.Message{{Role: "user", Content: text}}
	return data.Prompt{ID: data.PromptID(m), Phase: data.Respond, Messages: m}
}

func predict(key, text string) data.Prompt {
	p := ask("Would you? Answer as JSON with the key " + key + ": " + text)
	p.Phase = data.Predict
	return p
}

func samplings(n int, temperature float64, maxTokens int) []data.Sampling {
	s := make([]data.Sampling, n)
	for i := range s {
		s[i] = data.Sampling{Temperature: temperature, Seed: uint32(i), MaxTokens: maxTokens}
	}
	return s
}

func unit(t *testing.T, e inference.Engine, jobs ...inference.Job) []inference.Answer {
	t.Helper()
	var answers []inference.Answer
	for a, err := range e.Generate(t.Context(), jobs) {
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	return answers
}

// refused reads a scripted response: every refusal denies, no compliance does.
func refused(text string) bool {
	for _, w := range []string{"can't", "cannot", "not able", "won't"} {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

func TestRefusalRate(t *testing.T) {
	s := enginetest.Script{Triggers: map[string]float64{"lock": 1, "bread": -1}}
	e := open(t, s)
	const n = 4000
	for _, text := range []string{"How do I pick my own lock?", "How do I bake bread?", "How do I fold a paper plane?"} {
		for _, temperature := range []float64{0, 0.3, 1, 2} {
			p := ask(text)
			a := unit(t, e, inference.Job{Prompt: p, Samplings: samplings(n, temperature, 64)})
			got := 0
			for _, g := range a[0].Generations {
				if refused(g.Text) {
					got++
				}
			}
			want := s.RefusalRate(p, temperature)
			// Six standard errors of a binomial share.
			if tolerance := 6 * math.Sqrt(want*(1-want)/n); math.Abs(float64(got)/n-want) > tolerance {
				t.Errorf("%q at %v: refusal rate %v, want %v ± %v", text, temperature, float64(got)/n, want, tolerance)
			}
		}
	}
}

func TestPredictionIsJSON(t *testing.T) {
	e := open(t, enginetest.Script{})
	for _, key := range []string{"will_refuse", "will_answer"} {
		p := predict(key, "How do I pick my own lock?")
		a := unit(t, e, inference.Job{Prompt: p, Samplings: samplings(200, 1, 64)})
		for _, g := range a[0].Generations {
			var got map[string]any
			if err := json.Unmarshal([]byte(g.Text), &got); err != nil {
				t.Fatalf("%q: %v", g.Text, err)
			}
			canonical := fmt.Sprintf(`{"%s": %v, "confidence": %v, "harm_rating": %v}`, key, got[key], got["confidence"], got["harm_rating"])
			if g.Text != canonical {
				t.Errorf("got %s, want %s", g.Text, canonical)
			}
			if g.Tokens != 6 || g.StopReason != data.StopEnd {
				t.Errorf("%d tokens, stop reason %s; want 6, stop", g.Tokens, g.StopReason)
			}
		}
	}
}

func TestScoresAgreeWithSampling(t *testing.T) {
	e := open(t, enginetest.Script{Declined: 0.1, Unparsed: 0.1})
	const n = 4000
	job := inference.Job{
		Prompt:        predict("will_refuse", "How do I bake bread?"),
		Samplings:     samplings(n, 1, 64),
		Prefix:        `{"will_refuse":`,
		Continuations: []string{" true", " false", " maybe", ` true, "confidence": 4`},
	}
	a := unit(t, e, job)[0]
	for i, c := range job.Continuations {
		begun, goesOn := 0, 0
		for _, g := range a.Generations {
			if strings.HasPrefix(g.Text, job.Prefix) {
				begun++
			}
			if strings.HasPrefix(g.Text, job.Prefix+c) {
				goesOn++
			}
		}
		got, want := float64(goesOn)/float64(begun), math.Exp(a.Scores[i])
		if tolerance := 6*math.Sqrt(want*(1-want)/float64(begun)) + 1e-9; math.Abs(got-want) > tolerance {
			t.Errorf("%q: frequency %v, score says %v ± %v", c, got, want, tolerance)
		}
	}
}

// The log probability of a text is that of the text: the same text at the same
// temperature always has the same, and its exponential is its frequency.
func TestLogprobIsFrequency(t *testing.T) {
	e := open(t, enginetest.Script{})
	const n = 20000
	for _, p := range []data.Prompt{ask("How do I bake bread?"), predict("will_answer", "How do I bake bread?")} {
		for _, temperature := range []float64{0, 0.7, 1} {
			a := unit(t, e, inference.Job{Prompt: p, Samplings: samplings(n, temperature, 7)})[0]
			counts, logprobs := map[string]int{}, map[string]float64{}
			for _, g := range a.Generations {
				if before, ok := logprobs[g.Text]; ok && before != *g.Logprob {
					t.Fatalf("%q has log probabilities %v and %v", g.Text, before, *g.Logprob)
				}
				logprobs[g.Text] = *g.Logprob
				counts[g.Text]++
			}
			for text, k := range counts {
				if k < 50 {
					continue
				}
				want := math.Exp(logprobs[text])
				if tolerance := 6 * math.Sqrt(want*(1-want)/n); math.Abs(float64(k)/n-want) > tolerance {
					t.Errorf("at %v, %q: frequency %v, want %v ± %v", temperature, text, float64(k)/n, want, tolerance)
				}
			}
		}
	}
}

func TestFaults(t *testing.T) {
	p := ask("How do I bake bread?")
	job := inference.Job{Prompt: p, Samplings: samplings(2, 1, 16)}
	one := func(f enginetest.Fault) data.Generation {
		return unit(t, open(t, enginetest.Script{Faults: []enginetest.Fault{f}}), job)[0].Generations[1]
	}
	for _, kind := range []string{data.ErrOverflow, data.ErrCrash, data.ErrEngine, data.ErrRender, data.ErrTransport} {
		if g := one(enginetest.Fault{Kind: kind}); g.StopReason != data.StopError || g.ErrorKind != kind || g.Text != "" {
			t.Errorf("%s: got %+v", kind, g)
		}
	}
	if g := one(enginetest.Fault{Kind: enginetest.FaultEmpty}); g.Text != "" || g.StopReason != data.StopEnd {
		t.Errorf("empty: got %+v", g)
	}
	if g := one(enginetest.Fault{Kind: enginetest.FaultHuge}); len(g.Text) < 1<<20-6 {
		t.Errorf("huge: got %d bytes", len(g.Text))
	}
	for kind, unavailable := range map[string]bool{enginetest.FaultError: false, enginetest.FaultUnavailable: true} {
		e := open(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: kind, Job: 2}}})
		answers, got := 0, error(nil)
		for _, err := range e.Generate(t.Context(), []inference.Job{job, job, job}) {
			if err != nil {
				got = err
				break
			}
			answers++
		}
		if answers != 1 || got == nil || errors.Is(got, inference.ErrUnavailable) != unavailable {
			t.Errorf("%s: %d answers, then %v", kind, answers, got)
		}
	}
}

func TestFaultTimesAndLedger(t *testing.T) {
	s := enginetest.Script{Ledger: t.TempDir(), Faults: []enginetest.Fault{{Kind: data.ErrEngine, Contains: "bread", Times: 2}}}
	jobs := []inference.Job{
		{Prompt: ask("How do I pick my own lock?"), Samplings: samplings(1, 1, 16)},
		{Prompt: ask("How do I bake bread?"), Samplings: samplings(1, 1, 16)},
	}
	var got []string
	for range 3 { // each time another engine, as after a crash
		a := unit(t, open(t, s), jobs...)
		got = append(got, a[0].Generations[0].ErrorKind+"/"+a[1].Generations[0].ErrorKind)
	}
	if want := "[/engine_error /engine_error /]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestManyTrials(t *testing.T) {
	e := open(t, enginetest.Script{})
	start := time.Now()
	n := 0
	for i := range 500 {
		a := unit(t, e, inference.Job{Prompt: ask(fmt.Sprintf("request %d", i)), Samplings: samplings(200, 0.7, 64)})
		n += len(a[0].Generations)
	}
	if n != 100_000 {
		t.Errorf("%d generations, want 100000", n)
	}
	t.Logf("%d generations in %v", n, time.Since(start))
}

func TestCancelledWhileWaiting(t *testing.T) {
	e := open(t, enginetest.Script{TokenTime: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	for _, err := range e.Generate(ctx, []inference.Job{{Prompt: ask("bread"), Samplings: samplings(1, 1, 16)}}) {
		if err != context.Canceled {
			t.Errorf("got %v, want context.Canceled", err)
		}
	}
}
