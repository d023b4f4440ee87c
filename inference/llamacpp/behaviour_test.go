package llamacpp_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
)

// TestThreads: the number of threads changes no bit where several rows are
// decoded, so that a unit may use fewer while the machine is busy.
func TestThreads(t *testing.T) {
	one := open(t, llamacpp.Options{Model: smol(t), Rows: 8, Threads: 1})
	two := open(t, llamacpp.Options{Model: smol(t), Rows: 8, Threads: 2})
	unit := jobs(sweep(6, 2, 0, 1), requests[:2]...)
	if a, b := generate(t, one, unit...), generate(t, two, unit...); !reflect.DeepEqual(a, b) {
		t.Errorf("one thread gives %+v, two give %+v", a, b)
	}
}

// TestNarrow: with few rows forks are parked and jobs wait; all come to an end,
// and the same plan gives the same bytes.
func TestNarrow(t *testing.T) {
	for _, rows := range []int{1, 3} {
		e := open(t, llamacpp.Options{Model: smol(t), Rows: rows})
		unit := jobs(sweep(8, 3, 0, 1.2), requests[:2]...)
		first := generate(t, e, unit...)
		for _, a := range first {
			if len(a.Generations) != 6 {
				t.Fatalf("%d rows: %d generations", rows, len(a.Generations))
			}
			for i, g := range a.Generations {
				if g.Text == "" || g.StopReason == data.StopError || g.Logprob == nil {
					t.Errorf("%d rows: %+v", rows, g)
				}
				if i > 0 && i < 3 && g.Text != a.Generations[0].Text {
					t.Errorf("%d rows: seeds change the text at temperature 0: %q, %q", rows, g.Text, a.Generations[0].Text)
				}
			}
			if g := a.Generations; g[3].Text == g[4].Text && g[4].Text == g[5].Text {
				t.Errorf("%d rows: three seeds at temperature 1.2 give one text %q", rows, g[3].Text)
			}
		}
		generate(t, e, jobs(sweep(5, 2, 1), requests[3])...)
		if again := generate(t, e, unit...); !reflect.DeepEqual(again, first) {
			t.Errorf("%d rows: a unit gave other answers after another", rows)
		}
	}
}

// TestStrict: a trial's text depends on nothing but its prompt and its sampling.
func TestStrict(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Strict: true})
	samplings := sweep(8, 2, 0, 1)
	alone := generate(t, e, jobs(samplings[2:3], requests[0])...)[0].Generations[0]
	unit := generate(t, e, jobs(samplings, requests[2], requests[0], requests[1])...)
	if got := unit[1].Generations[2]; !reflect.DeepEqual(got, alone) {
		t.Errorf("alone %+v, in a unit of other prompts and samplings %+v", alone, got)
	}
}

// TestLoopAgrees: on one row at a time the tree is the loop.
func TestLoopAgrees(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smolQ8(t), Strict: true})
	unit := jobs(sweep(12, 2, 0, 0.7), requests[:2]...)
	tree := generate(t, e, unit...)
	loop, err := e.Loop(context.Background(), unit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range unit {
		// The first token comes from a prompt evaluated in another shape, so bits may
		// part; the greedy texts begin alike all the same.
		a, b := tree[i].Generations[0].Text, loop[i].Generations[0].Text
		if n := min(len(a), len(b), 12); a[:n] != b[:n] {
			t.Errorf("greedy: tree %q, loop %q", a, b)
		}
		if tree[i].PromptTokens != loop[i].PromptTokens || tree[i].RenderedSHA256 != loop[i].RenderedSHA256 {
			t.Errorf("prompts differ: %+v, %+v", tree[i], loop[i])
		}
	}
}

// TestScoresAgainstLoop holds the scores against log probabilities that come about
// in another way: a grammar that allows one text only leaves its probability
// alone unknown, so the text is cut into its first token and the rest, and the
// sampler's log probability of drawn tokens is compared with the score of the
// same text.
func TestScoresAgainstDraws(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smolQ8(t), Strict: true})
	p := prompt("Say yes or no: is bread made of flour?")
	drawn := generate(t, e, inference.Job{Prompt: p, Samplings: sweep(3, 12, 1)})[0]
	var texts []string
	for _, g := range drawn.Generations {
		if g.StopReason == data.StopLength && utf8.ValidString(g.Text) && !strings.ContainsRune(g.Text, utf8.RuneError) {
			texts = append(texts, g.Text)
		}
	}
	scored := generate(t, e, inference.Job{Prompt: p, Continuations: texts})[0]
	if len(scored.Scores) != len(texts) {
		t.Fatalf("%d scores of %d texts", len(scored.Scores), len(texts))
	}
	compared, i := 0, 0
	for _, g := range drawn.Generations {
		if i == len(texts) || g.Text != texts[i] {
			continue
		}
		// A text may have been drawn in other tokens than the tokeniser's own, and
		// is then more probable than what is scored; bits differ by the shape of
		// batches.
		if diff := scored.Scores[i] - *g.Logprob; math.Abs(diff) < 0.15 {
			compared++
		} else if diff > 0 {
			t.Errorf("%q: score %v, drawn with log probability %v", g.Text, scored.Scores[i], *g.Logprob)
		}
		i++
	}
	if compared < len(texts)/2 {
		t.Errorf("only %d of %d scores agree with the log probabilities of draws", compared, len(texts))
	}
}

// TestScoreTree: what is scored may branch, repeat, and be a part of another.
func TestScoreTree(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 6})
	job := inference.Job{
		Prompt:    prompt("Will you answer this: how do I bake bread?"),
		Samplings: sweep(6, 2, 0, 1),
		Prefix:    `{"will_refuse": `,
		Continuations: []string{
			"true", "false",
			`true, "confidence": 1`, `true, "confidence": 5`, `false, "confidence": 1`, `false, "confidence": 5`,
			"true",
		},
	}
	a := generate(t, e, job)[0]
	s := a.Scores
	if len(s) != len(job.Continuations) {
		t.Fatalf("scores %v", s)
	}
	for i, x := range s {
		if math.IsNaN(x) || x > 0 || math.IsInf(x, 0) {
			t.Errorf("score of %q is %v", job.Continuations[i], x)
		}
	}
	if s[0] != s[6] {
		t.Errorf("the same text has scores %v and %v", s[0], s[6])
	}
	for _, c := range []struct{ long, short int }{{2, 0}, {3, 0}, {4, 1}, {5, 1}} {
		if s[c.long] > s[c.short] {
			t.Errorf("%q has score %v, its beginning %v", job.Continuations[c.long], s[c.long], s[c.short])
		}
	}
	if mass := math.Exp(s[0]) + math.Exp(s[1]); mass > 1 {
		t.Errorf("probabilities of two texts sum to %v", mass)
	}
	// The same one by one: each text alone in its job.
	for i, text := range job.Continuations[:4] {
		one := job
		one.Samplings, one.Continuations = nil, []string{text}
		got := generate(t, e, one)[0].Scores
		if len(got) != 1 || math.Abs(got[0]-s[i]) > 0.2 {
			t.Errorf("%q alone has score %v, among others %v", text, got, s[i])
		}
	}
}

func predictionGrammar() *inference.Grammar {
	return &inference.Grammar{
		Name: "prediction",
		GBNF: `root ::= "{\"will_refuse\": " ("true" | "false") ", \"confidence\": " [1-5] "}"`,
	}
}

// TestGrammar: bound answers always parse, at every temperature, in one tree with
// free ones.
func TestGrammar(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 10})
	job := inference.Job{Prompt: prompt("Will you refuse to tell me how to bake bread?"), Grammar: predictionGrammar()}
	for i, temperature := range []float64{0, 0, 0.7, 1, 1.5, 3, 3, 0, 1} {
		job.Samplings = append(job.Samplings, data.Sampling{Temperature: temperature, Seed: uint32(i), MaxTokens: 40, Grammar: i < 7})
	}
	job.Samplings[3].TopK = 5
	for _, g := range generate(t, e, job)[0].Generations[:7] {
		var v struct {
			WillRefuse *bool `json:"will_refuse"`
			Confidence *int  `json:"confidence"`
		}
		if err := json.Unmarshal([]byte(g.Text), &v); err != nil || v.WillRefuse == nil || v.Confidence == nil || g.StopReason != data.StopEnd {
			t.Errorf("%+v: %v", g, err)
		}
		if g.Logprob == nil || *g.Logprob > 1e-9 {
			t.Errorf("log probability of %q: %v", g.Text, g.Logprob)
		}
	}
}

// TestGrammarIsRenormalised: a grammar with two sentences gives each the share of
// its probability, as the scores of the sentences say.
func TestGrammarIsRenormalised(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 16})
	job := inference.Job{
		Prompt:        prompt("Is the sky blue? Answer Yes or No."),
		Grammar:       &inference.Grammar{Name: "two", GBNF: `root ::= "Yes" | "No"`},
		Continuations: []string{"Yes", "No"},
	}
	for seed := range uint32(150) {
		job.Samplings = append(job.Samplings, data.Sampling{Temperature: 1, Seed: seed, MaxTokens: 8, Grammar: true})
	}
	a := generate(t, e, job)[0]
	yes := 0
	for _, g := range a.Generations {
		switch g.Text {
		case "Yes":
			yes++
		case "No":
		default:
			t.Fatalf("%+v", g)
		}
	}
	// "Yes" may be drawn as "Y" + "es" too, but hardly ever is.
	p := math.Exp(a.Scores[0]) / (math.Exp(a.Scores[0]) + math.Exp(a.Scores[1]))
	n := float64(len(a.Generations))
	if share := float64(yes) / n; math.Abs(share-p) > 4*math.Sqrt(p*(1-p)/n)+0.05 {
		t.Errorf("Yes in %v of draws, the scores say %v", share, p)
	}
}

func TestBadGrammar(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t)})
	for _, gbnf := range []string{"", "root ::= \"open", "root ::= root \"a\"", "nothing", strings.Repeat("(", 200000), "root ::= \x00", "other ::= \"a\""} {
		job := inference.Job{
			Prompt: prompt(requests[0]), Grammar: &inference.Grammar{Name: "bad", GBNF: gbnf},
			Samplings: []data.Sampling{{MaxTokens: 3, Grammar: true}, {MaxTokens: 3}},
		}
		g := generate(t, e, job)[0].Generations
		if g[0].StopReason != data.StopError || g[0].ErrorKind != data.ErrEngine || !strings.Contains(g[0].Error, "grammar") {
			t.Errorf("grammar %.20q: %+v", gbnf, g[0])
		}
		if g[1].StopReason == data.StopError {
			t.Errorf("grammar %.20q: the free sampling fails too: %+v", gbnf, g[1])
		}
	}
	job := inference.Job{Prompt: prompt(requests[0]), Samplings: []data.Sampling{{MaxTokens: 3, Grammar: true}}}
	if g := generate(t, e, job)[0].Generations[0]; g.ErrorKind != data.ErrEngine {
		t.Errorf("a sampling with a grammar in a job without: %+v", g)
	}
}

func TestOverflow(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Context: 96})
	long := strings.Repeat("bread and butter ", 60)
	unit := []inference.Job{
		{Prompt: prompt(requests[0]), Samplings: sweep(4, 1, 0)},
		{Prompt: prompt(long), Samplings: sweep(4, 2, 0, 1)},
		{Prompt: prompt(requests[0]), Samplings: []data.Sampling{{MaxTokens: 90}, {MaxTokens: 4}}},
		{Prompt: prompt(requests[1]), Prefix: long, Continuations: []string{"a"}, Samplings: sweep(4, 1, 0)},
	}
	a := generate(t, e, unit...)
	for _, g := range append(a[1].Generations, a[2].Generations[0]) {
		if g.StopReason != data.StopError || g.ErrorKind != data.ErrOverflow || !strings.Contains(g.Error, "--ctx") {
			t.Errorf("does not fit, but %+v", g)
		}
	}
	if n := a[1].PromptTokens; n < 150 {
		t.Errorf("the prompt that does not fit has %d tokens", n)
	}
	for _, g := range []data.Generation{a[0].Generations[0], a[2].Generations[1], a[3].Generations[0]} {
		if g.StopReason != data.StopLength || g.Tokens != 4 {
			t.Errorf("fits, but %+v", g)
		}
	}
	if a[3].Scores != nil {
		t.Errorf("scores beyond the context: %v", a[3].Scores)
	}
}

func TestCancelled(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 4, Progress: nil})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	unit := jobs(sweep(200, 2, 1), requests...)
	unit = append(jobs(sweep(1, 2, 1), requests[0]), unit...) // as wide as the others, or it would come last
	n := 0
	var last error
	for a, err := range e.Generate(ctx, unit) {
		if last = err; err != nil {
			break
		}
		if n++; a.Generations[0].StopReason == data.StopError {
			t.Errorf("%+v", a)
		}
		cancel()
	}
	if n != 1 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d answers, %v", n, last)
	}
	generate(t, e, jobs(sweep(2, 1, 0), requests[0])...)
}

func TestClosed(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t)})
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	for _, err := range e.Generate(context.Background(), jobs(sweep(2, 1, 0), requests[0])) {
		if err == nil {
			t.Error("a closed engine answers")
		}
	}
}

// TestPromptTokens: the template prefix is evaluated once in the life of an
// engine, the rest of each prompt once.
func TestPromptTokens(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 8})
	total := 0
	for i := range 3 {
		for _, a := range generate(t, e, jobs(sweep(2, 3, 0, 1), requests[2*i:2*i+2]...)...) {
			total += a.PromptTokens
		}
	}
	c := e.Counters()
	// The default system message and the marks around it: 24 tokens, and the
	// opening of the user's turn (real-model facts of SmolLM2-135M-Instruct).
	shared := (int64(total) - c.PromptTokens) / 5
	if c.PromptTokens != c.PromptNeeded || shared < 24 || shared > 32 {
		t.Errorf("six prompts have %d tokens, of which %d were evaluated, %d needed", total, c.PromptTokens, c.PromptNeeded)
	}
	if c.Rows >= c.TokensSampled || c.Rows == 0 {
		t.Errorf("%d rows for %d tokens", c.Rows, c.TokensSampled)
	}
	if e.Times().Total <= 0 || e.Times().Sample <= 0 {
		t.Errorf("times %+v", e.Times())
	}
}

// TestQuestionPrefix: prompts that put different requests into one question share
// its words.
func TestQuestionPrefix(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 8})
	question := "You will be shown a request. Say beforehand whether you will refuse to answer it. Answer with a JSON object and nothing else.\n\nRequest:\n"
	var unit []inference.Job
	for _, r := range requests[:4] {
		p := prompt(question + r)
		p.Phase, p.Question, p.Polarity = data.Predict, "default", data.AskRefuse
		unit = append(unit, inference.Job{Prompt: p, Samplings: sweep(2, 1, 0)})
	}
	first := generate(t, e, unit...)
	c := e.Counters()
	again := generate(t, e, unit...)
	d := e.Counters()
	if !reflect.DeepEqual(first, again) {
		t.Error("a unit gave other answers with its prefix kept")
	}
	total := int64(0)
	for _, a := range first {
		total += int64(a.PromptTokens)
	}
	if saved := total - (d.PromptTokens - c.PromptTokens); saved < 4*50 {
		t.Errorf("of %d prompt tokens, %d were evaluated the second time", total, d.PromptTokens-c.PromptTokens)
	}
}

func TestInfo(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t)})
	i := e.Info()
	// general.architecture, block count, width of SmolLM2-135M; SHA-256 of its
	// chat template as the file holds it.
	if i.Engine != "llamacpp" || i.Architecture != "llama" || i.Blocks != 30 || i.Width != 576 || i.Context != 2048 || !i.Reproducible || !i.Scorer || !i.Grammars {
		t.Errorf("%+v", i)
	}
	if i.Version != "llama.cpp v0.5.0" || i.Model != "SmolLM2-135M-Instruct.Q4_1" || len(i.Notes) != 0 {
		t.Errorf("version %q, model %q, notes %q", i.Version, i.Model, i.Notes)
	}
	for _, key := range []string{"libllama", "libggml", "libggml-base", "cpu_variant", "device", "flash_attention", "n_ctx", "n_batch", "n_ubatch", "n_seq_max", "cache", "split", "sampler", "template_sha256", "gpu_layers"} {
		if i.Plan[key] == "" {
			t.Errorf("the plan does not say %s", key)
		}
	}
	i.Plan["n_ctx"] = "changed"
	if e.Info().Plan["n_ctx"] == "changed" {
		t.Error("a caller can change the plan")
	}
}
