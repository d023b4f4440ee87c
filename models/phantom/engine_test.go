package phantom_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
	"demur/models/phantom"
)

// engine opens a phantom in llama.cpp.
func engine(t testing.TB, m *phantom.Model) *llamacpp.Engine {
	t.Helper()
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteGGUF(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := llamacpp.Open(llamacpp.Options{Model: path, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func dataPrompt(phase data.Phase, messages []phantom.Message) data.Prompt {
	p := data.Prompt{Phase: phase}
	for _, m := range messages {
		p.Messages = append(p.Messages, data.Message{Role: m.Role, Content: m.Content})
	}
	p.ID = data.PromptID(p.Messages)
	return p
}

// What an engine may differ by from the forward pass in float64, in log
// probability: it keeps keys and values as 16-bit numbers. Seen with llama.cpp
// v0.5.0 over all presets and the 180 prompts of the demo set, in competing
// logits: 0.008 at the first token of an answer, 0.003 at the value of a
// prediction, 0.022 at its digits.
const (
	answerTolerance = 0.02
	digitTolerance  = 0.06
)

// The engine does what the forward pass says: the probability of every answer,
// of every prediction, and the texts at temperature 0.
func TestEngineAgreesWithTheForwardPass(t *testing.T) {
	for _, preset := range []string{"default", "one-direction"} {
		m := build(t, preset)
		e := engine(t, m)
		truth := demoTruth(t, preset)
		question := wording(t, "default")
		texts, _ := phantom.Texts()
		plan := truth.Plan

		var jobs []inference.Job
		var of []int // prompt of each pair of jobs
		i := -1
		for _, r := range requests(t) {
			if !r.Demo {
				continue
			}
			if i++; i%6 != 0 {
				continue
			}
			p := prompt(r, question)
			respond := inference.Job{Prompt: dataPrompt(data.Respond, p.Respond)}
			respond.Samplings = append(respond.Samplings, data.Sampling{Temperature: 0, Seed: 1, MaxTokens: 64})
			for seed := range uint32(6) {
				respond.Samplings = append(respond.Samplings, data.Sampling{Temperature: 1, Seed: seed, MaxTokens: 64})
			}
			predict := inference.Job{Prompt: dataPrompt(data.Predict, p.Predict), Prefix: `{"will_refuse": `, Continuations: []string{"true", "false"}}
			predict.Grammar = &inference.Grammar{Name: "prediction", GBNF: `root ::= "{\"will_refuse\": " ("true" | "false") ", \"confidence\": " [1-5] ", \"harm_rating\": " [1-5] "}"` + "\n"}
			predict.Samplings = []data.Sampling{{Temperature: 0, Seed: 1, MaxTokens: 64}, {Temperature: 0, Seed: 1, MaxTokens: 64, Grammar: true}}
			for k := 1; k <= 5; k++ {
				predict.Continuations = append(predict.Continuations, fmt.Sprintf(`true, "confidence": %d`, k))
			}
			for k := 1; k <= 5; k++ {
				predict.Continuations = append(predict.Continuations, fmt.Sprintf(`true, "confidence": 5, "harm_rating": %d`, k))
			}
			jobs = append(jobs, respond, predict)
			of = append(of, i)
		}
		var answers []inference.Answer
		for a, err := range e.Generate(context.Background(), jobs) {
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		if len(answers) != len(jobs) {
			t.Fatalf("%s: %d answers to %d jobs", preset, len(answers), len(jobs))
		}
		one := slices.Index(plan.Temperatures, 1)
		zero := slices.Index(plan.Temperatures, 0)
		var worstAnswer, worstValue, worstDigit float64
		for k, i := range of {
			p := truth.Prompts[i]
			respond, predict := answers[2*k], answers[2*k+1]
			if got, want := respond.PromptTokens, len(m.Tokenize(phantom.Render([]phantom.Message{{Role: "user", Content: jobs[2*k].Prompt.Messages[0].Content}}))); got != want {
				t.Errorf("%s, prompt %d: the engine sees %d tokens, want %d", preset, i, got, want)
			}
			for _, g := range respond.Generations {
				a := slices.Index(texts, g.Text)
				if a < 0 || g.StopReason != data.StopEnd || g.Logprob == nil {
					t.Errorf("%s, prompt %d: says %q (%s), which is none of its answers", preset, i, g.Text, g.StopReason)
					continue
				}
				if g.Sampling.Temperature == 0 {
					if p.Margins.Label > answerTolerance && p.Answers[zero][a] != 1 {
						t.Errorf("%s, prompt %d: says %q at temperature 0", preset, i, g.Text)
					}
					continue
				}
				worstAnswer = max(worstAnswer, math.Abs(*g.Logprob-math.Log(p.Answers[one][a])))
			}
			if len(predict.Scores) != 12 {
				t.Fatalf("%s, prompt %d: %d scores", preset, i, len(predict.Scores))
			}
			worstValue = max(worstValue,
				math.Abs(predict.Scores[0]-math.Log(p.PredictRefuse)), math.Abs(predict.Scores[1]-math.Log(1-p.PredictRefuse)))
			// Digits as they differ from the most probable one: the rest of the path is common.
			for from, shares := range map[int][5]float64{2: p.Confidences, 7: p.HarmRatings} {
				best := 0
				for d, q := range shares {
					if q > shares[best] {
						best = d
					}
				}
				for d, q := range shares {
					if q > 1e-6 {
						worstDigit = max(worstDigit, math.Abs((predict.Scores[from+d]-predict.Scores[from+best])-math.Log(q/shares[best])))
					}
				}
			}
			decided := p.Margins.Value > answerTolerance && p.Margins.Confidence > digitTolerance && p.Margins.Rating > digitTolerance
			free, bound := predict.Generations[0].Text, predict.Generations[1].Text
			if decided && bound != p.Text {
				t.Errorf("%s, prompt %d: predicts %q, want %q", preset, i, bound, p.Text)
			}
			if (free == bound) != (p.Evasion == "") {
				t.Errorf("%s, prompt %d: the free prediction is %q, the bound one %q, evasion planted: %q", preset, i, free, bound, p.Evasion)
			}
		}
		t.Logf("%s: log probabilities differ by at most %.4f (answers), %.4f (value), %.4f (digits)", preset, worstAnswer, worstValue, worstDigit)
		if worstAnswer > answerTolerance || worstValue > answerTolerance || worstDigit > digitTolerance {
			t.Errorf("%s: log probabilities differ by %.4f (answers), %.4f (value), %.4f (digits)", preset, worstAnswer, worstValue, worstDigit)
		}
	}
}

// Measured refusals are binomial with the planted probabilities: each prompt's by
// the exact test, at a level for all of them together, and their total. The seeds
// are fixed, so the test's answer is too.
func TestEngineRefusesAsOftenAsPlanted(t *testing.T) {
	m := build(t, "drifting")
	e := engine(t, m)
	truth := demoTruth(t, "drifting")
	texts, labels := phantom.Texts()
	const seeds = 20
	const temperature = 1
	at := slices.Index(truth.Plan.Temperatures, temperature)
	var jobs []inference.Job
	for _, r := range requests(t) {
		if !r.Demo {
			continue
		}
		job := inference.Job{Prompt: dataPrompt(data.Respond, user(r.Text))}
		for seed := range uint32(seeds) {
			job.Samplings = append(job.Samplings, data.Sampling{Temperature: temperature, Seed: 100 + seed, MaxTokens: 64})
		}
		jobs = append(jobs, job)
	}
	var refused, expected, variance float64
	i := 0
	for a, err := range e.Generate(context.Background(), jobs) {
		if err != nil {
			t.Fatal(err)
		}
		p := truth.Prompts[i].PRefuse[at]
		n := 0
		for _, g := range a.Generations {
			k := slices.Index(texts, g.Text)
			if k < 0 {
				t.Fatalf("prompt %d says %q, which is none of its answers", i, g.Text)
			}
			if phantom.Refuses(labels[k], phantom.Lenient) {
				n++
			}
		}
		if q := binomialTest(n, seeds, p); q < 0.001/float64(len(jobs)) {
			t.Errorf("prompt %d is refused %d times of %d, planted %.3f: p = %.2g", i, n, seeds, p, q)
		}
		refused += float64(n)
		expected += seeds * p
		variance += seeds * p * (1 - p)
		i++
	}
	if z := (refused - expected) / math.Sqrt(variance); math.Abs(z) > 3.5 {
		t.Errorf("%.0f refusals in all, planted %.1f: %.1f standard deviations off", refused, expected, z)
	}
}

// binomialTest returns the exact two-sided p-value: the probability of all counts
// that are no more probable than k.
func binomialTest(k, n int, p float64) float64 {
	mass := func(k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return math.Exp(a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
	}
	var sum float64
	for i := range n + 1 {
		if mass(i) <= mass(k)*(1+1e-9) {
			sum += mass(i)
		}
	}
	return math.Min(sum, 1)
}

// The engine gives the numbers of the page of arithmetic, by hand: from the word
// list and the spec alone.
func TestEngineOnThePage(t *testing.T) {
	m := build(t, "default")
	e := engine(t, m)
	s := m.Spec
	r, selfError := 0.0, 0.0
	for _, w := range m.Words() {
		if slices.Contains(strings.Fields(strings.ToLower(strings.Trim(pageRequest, "?"))), w.Text) && w.Trigger > r {
			r, selfError = w.Trigger, w.Error
		}
	}
	z := s.Slope * (r - s.Threshold)
	y := s.SelfSlope * (s.SelfWeight*r + selfError + s.SelfBias - s.Threshold)
	// Texts of one label share its probability as 0.65 to 0.35.
	share := []float64{0.65, 0.35, 0.65, 0.65, 0.35, 0.65}
	texts, labels := phantom.Texts()

	respond := inference.Job{Prompt: dataPrompt(data.Respond, user(pageRequest))}
	for seed := range uint32(12) {
		respond.Samplings = append(respond.Samplings, data.Sampling{Temperature: 1, Seed: seed, MaxTokens: 64})
	}
	question := strings.Replace(wording(t, "default"), "{{request}}", pageRequest, 1)
	predict := inference.Job{Prompt: dataPrompt(data.Predict, user(question)), Prefix: `{"will_refuse": `, Continuations: []string{"true", "false"}}
	var answers []inference.Answer
	for a, err := range e.Generate(context.Background(), []inference.Job{respond, predict}) {
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	for _, g := range answers[0].Generations {
		k := slices.Index(texts, g.Text)
		if k < 0 {
			t.Fatalf("says %q, which is none of its answers", g.Text)
		}
		p := 1 / (1 + math.Exp(-z))
		if !phantom.Refuses(labels[k], phantom.Lenient) {
			p = 1 - p
		}
		if want := math.Log(p * share[k]); math.Abs(*g.Logprob-want) > pageTolerance {
			t.Errorf("%q has log probability %.4f, by hand %.4f", g.Text, *g.Logprob, want)
		}
	}
	for k, want := range []float64{-math.Log1p(math.Exp(-y)), -math.Log1p(math.Exp(y))} {
		if math.Abs(answers[1].Scores[k]-want) > pageTolerance {
			t.Errorf("%s has log probability %.4f, by hand %.4f", predict.Continuations[k], answers[1].Scores[k], want)
		}
	}
}
