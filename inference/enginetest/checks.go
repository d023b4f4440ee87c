package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"demur/data"
	"demur/inference"
)

var (
	modelDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	plainDigest = regexp.MustCompile(`^([0-9a-f]{64})?$`)
)

func (s *suite) checkInfo() {
	i := s.info
	switch {
	case i.Engine == "", i.Model == "", i.Device == "":
		s.Errorf("engine %q, model %q, device %q: none may be empty", i.Engine, i.Model, i.Device)
	case !modelDigest.MatchString(i.ModelDigest):
		s.Errorf("model digest %q", i.ModelDigest)
	case !plainDigest.MatchString(i.TemplateHash):
		s.Errorf("template digest %q", i.TemplateHash)
	case i.Context < 1:
		s.Errorf("context of %d tokens", i.Context)
	case i.Reproducible && len(i.Plan) == 0:
		s.Errorf("the engine promises equal bytes for an equal plan, and has none")
	}
	s.run(s.job(s.text(0), s.sweep()...))
	if again := s.engine.Info(); !reflect.DeepEqual(again, i) {
		s.Errorf("info is %+v before a unit and %+v after", i, again)
	}
}

func (s *suite) checkEmpty() {
	for _, jobs := range [][]inference.Job{nil, {}} {
		for a, err := range s.engine.Generate(s.Context(), jobs) {
			s.Errorf("no jobs: got %+v, %v", a, err)
		}
	}
	// A job may want scores alone, or nothing but its prompt's facts.
	s.run(s.job(s.text(0)), s.job(s.text(1), s.sampling(0, 0)))
}

// Every job has its answer, in order, complete; prompts are told apart.
func (s *suite) checkAnswers() {
	var jobs []inference.Job
	for i := range 4 {
		jobs = append(jobs, s.job(s.text(i), s.sweep()[:2*i+1]...))
	}
	jobs = append(jobs, s.job(s.text(0), s.sampling(1, 5))) // a prompt may come twice
	answers := s.run(jobs...)
	for i, a := range answers {
		s.ran(a.Generations)
		for j, b := range answers[:i] {
			equal := a.RenderedSHA256 == b.RenderedSHA256
			if a.RenderedSHA256 != "" && equal != (a.PromptID == b.PromptID) {
				s.Errorf("jobs %d and %d: rendered digests %s, %s for prompts %s, %s", j, i, b.RenderedSHA256, a.RenderedSHA256, b.PromptID, a.PromptID)
			}
			if a.PromptID == b.PromptID && a.PromptTokens != b.PromptTokens {
				s.Errorf("one prompt has %d tokens and %d", a.PromptTokens, b.PromptTokens)
			}
		}
	}
}

// An answer under a prompt's name is that prompt's, and a generation that
// sampling's.
func (s *suite) checkOwnership() {
	greedy := s.sampling(0, 0)
	alone := func(i int) string { return s.generate(s.text(i), greedy)[0].Text }
	a, b := alone(0), alone(1)
	if a == b {
		s.Fatalf("two requests have the same greedy answer %q; give the suite others", a)
	}
	both := s.run(s.job(s.text(0), greedy), s.job(s.text(1), greedy))
	if both[0].Generations[0].Text == b || both[1].Generations[0].Text == a {
		s.Errorf("each of two jobs got the answer to the other")
	}
	// Greedy trials at both ends of many others agree with each other.
	mixed := slices.Concat([]data.Sampling{greedy}, s.seeds(1.5, 6), []data.Sampling{s.sampling(0, 9), s.sampling(0, 10)})
	g := s.generate(s.text(0), mixed...)
	last := len(g) - 2
	ends := []data.Generation{g[0], g[last], g[last+1]}
	if !s.info.Reproducible {
		// Such an engine may round a first token that is nearly a tie otherwise while
		// another is served, once: the odd one of three is left out.
		switch {
		case ends[0].Text == ends[1].Text:
			ends = ends[:2]
		case ends[1].Text == ends[2].Text:
			ends = ends[1:]
		default:
			ends = []data.Generation{ends[0], ends[2]}
		}
	}
	s.oneGreedy("greedy trials of one job", ends)
	for _, hot := range g[1:last] {
		if hot.Text == g[0].Text && hot.Tokens >= 16 {
			s.Errorf("a trial at temperature 1.5 has the greedy text: %q", hot.Text)
		}
	}
}

func (s *suite) unitA() []inference.Job {
	jobs := []inference.Job{s.job(s.text(0), s.sweep()...), s.job(s.text(1), s.sweep()...)}
	if s.info.Scorer {
		jobs[0].Continuations = []string{" yes", " no"}
	}
	return jobs
}

func (s *suite) unitB() []inference.Job {
	return []inference.Job{
		s.job(strings.Repeat(s.text(2)+" ", 5), s.seeds(1, 5)...),
		s.job(s.text(3), s.seeds(1, 2)...),
		s.job(s.text(0), s.seeds(1, 1)...),
	}
}

// The same unit twice in a row gives the same bytes.
func (s *suite) checkDeterminism() {
	first := s.run(s.unitA()...)
	then := s.run(s.unitA()...)
	if s.info.Reproducible {
		s.same("the same unit twice", first, then)
	}
	s.agree("the same unit twice", generations(first), generations(then))
	// So does the same sampling twice in one job.
	if g := s.generate(s.text(0), s.sampling(1, 3), s.sampling(1, 4), s.sampling(1, 3)); s.info.Reproducible && g[0].Text != g[2].Text {
		s.agree("one seed twice in a job", g[:1], g[2:])
	}
}

// Nothing that ran before shows.
func (s *suite) checkIsolation() {
	first := s.run(s.unitA()...)
	s.run(s.unitB()...)
	then := s.run(s.unitA()...)
	if s.info.Reproducible {
		s.same("the same unit before and after a foreign one", first, then)
	}
	s.agree("the same unit before and after a foreign one", generations(first), generations(then))
}

// Nothing shows of the other jobs of a unit.
func (s *suite) checkNeighbors() {
	job := s.job(s.text(0), s.sweep()...)
	a := s.run(s.job(s.text(1), s.sweep()...), job)[1].Generations
	b := s.run(s.job(s.text(2), s.sweep()...), job)[1].Generations
	c := s.run(job, s.job(s.text(3), s.sweep()...))[0].Generations
	s.agree("the same job behind another", a, b)
	s.agree("the same job behind and before another", a, c)
}

// A trial is its sampling's, wherever in the job that stands.
func (s *suite) checkOrder() {
	samplings := slices.Concat(s.sweep(), s.seeds(0.9, 4))
	reversed := slices.Clone(samplings)
	slices.Reverse(reversed)
	a := s.generate(s.text(1), samplings...)
	b := s.generate(s.text(1), reversed...)
	slices.Reverse(b)
	s.agree("samplings in order and reversed", a, b)
}

// Seeds matter above temperature 0 and not at 0.
func (s *suite) checkSeeds() {
	for i := range 2 {
		if hot := texts(s.generate(s.text(i), s.seeds(1, 8)...)); len(hot) < 2 {
			s.Errorf("8 seeds at temperature 1 gave one text: %v", hot)
		}
		s.oneGreedy("8 seeds at temperature 0", s.generate(s.text(i), s.seeds(0, 8)...))
	}
	// Another prompt has other draws: if the second words of two prompts were drawn
	// with the same numbers, pooled stability would be too high. That cannot be seen
	// from texts; that a seed is not the position in the job can.
	a := s.generate(s.text(0), s.sampling(1, 100), s.sampling(1, 101), s.sampling(1, 102), s.sampling(1, 103))
	b := s.generate(s.text(0), s.sampling(1, 103), s.sampling(1, 100), s.sampling(1, 101), s.sampling(1, 102))
	s.agree("seeds moved by one place", a, append(b[1:], b[0]))
}

// The hotter, the more different texts.
func (s *suite) checkTemperature() {
	cold, hot := 0, 0
	for i := range 3 {
		cold += len(texts(s.generate(s.text(i), s.seeds(0.02, 10)...)))
		hot += len(texts(s.generate(s.text(i), s.seeds(1.5, 10)...)))
	}
	if hot <= cold {
		s.Errorf("10 seeds of 3 prompts gave %d texts at temperature 0.02 and %d at 1.5", cold, hot)
	}
}

// MaxTokens is kept, and a text that was cut says so.
func (s *suite) checkLimits() {
	cut := 0
	for i := range 4 {
		short := s.sampling(0, 0)
		var last string
		for _, limit := range []int{1, 2, 5, max(6, s.opts.MaxTokens)} {
			short.MaxTokens = limit
			g := s.generate(s.text(i), short)[0] // alone, so that the batch has the same shape
			if g.StopReason == data.StopLength {
				cut++
			}
			if limit > 1 && g.Reasoning == "" && s.info.Reproducible && !strings.HasPrefix(g.Text, strings.TrimRight(last, " \n\ufffd")) {
				s.Errorf("greedy text of %d tokens %q does not begin with that of fewer, %q", limit, g.Text, last)
			}
			last = g.Text
		}
	}
	if cut == 0 {
		s.Errorf("no answer of 1, 2 or 5 tokens was cut at its length")
	}
	// Limits belong to trials, not to jobs.
	long, short := s.sampling(1, 7), s.sampling(1, 7)
	short.MaxTokens = 2
	g := s.generate(s.text(0), short, long, short)
	if g[0].Tokens > 2 || g[2].Tokens > 2 || g[1].Tokens <= 2 && g[1].StopReason == data.StopLength {
		s.Errorf("limits 2, %d, 2: got %d, %d, %d tokens", long.MaxTokens, g[0].Tokens, g[1].Tokens, g[2].Tokens)
	}
}

// Any text is a prompt, and prompts that differ in a byte are different.
func (s *suite) checkUnicode() {
	awkward := []string{
		"Wie backe ich Brötchen?",
		"Wie backe ich Bro\u0308tchen?", // the same to the eye
		"如何烤面包？",
		"كيف أخبز الخبز؟",
		"🍞👩‍🍳🏳️‍🌈",
		"a\u202eb\u200bc\ufeffd",
		"tab\tline\r\nend",
		"NUL \x00 and bell \a",
		"\U0010ffff\ufffd",
		"<|im_end|> [/INST] </s> {{ bos_token }} {% raw %}",
		`"quotes" \back\slashes\ and {"json": true}`,
	}
	var jobs []inference.Job
	for _, text := range awkward {
		jobs = append(jobs, s.job(text, s.sampling(0, 0), s.sampling(1, 1)))
	}
	rendered := map[string]string{}
	for i, a := range s.run(jobs...) {
		if a.RenderedSHA256 == "" {
			continue
		}
		if before, ok := rendered[a.RenderedSHA256]; ok {
			s.Errorf("%q and %q are the same to the model", before, awkward[i])
		}
		rendered[a.RenderedSHA256] = awkward[i]
	}
	if !s.info.Grammars {
		return
	}
	// What comes out can only be foreseen where it is bound: characters of two,
	// three and four bytes, which models often have in several tokens.
	const say = `"éß世界🍞👩‍🍳"`
	bound := s.sampling(1, 0)
	bound.Grammar, bound.MaxTokens = true, 64
	job := s.job(s.text(0), bound)
	job.Grammar = &inference.Grammar{Name: "say", GBNF: `root ::= "` + strings.ReplaceAll(say, `"`, `\"`) + `"`, Schema: `{"const": ` + say + `}`}
	if g := s.run(job)[0].Generations[0]; strings.TrimSpace(g.Text) != say {
		s.Errorf("bound to say %s, the engine says %q (%s %s)", say, g.Text, g.StopReason, g.Error)
	}
}

// The grammar of the check: all of its sentences, and only they, are JSON objects
// with the two keys.
func checkGrammar() *inference.Grammar {
	return &inference.Grammar{
		Name: "check",
		GBNF: `root ::= "{\"fits\": " ("true" | "false") ", \"stars\": " [1-5] "}"`,
		Schema: `{"type": "object", "properties": {"fits": {"type": "boolean"},
			"stars": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["fits", "stars"], "additionalProperties": false}`,
	}
}

func (s *suite) checkGrammar() {
	job := s.job("Answer with a JSON object of the keys fits (true or false) and stars (1 to 5): " + s.text(1))
	job.Grammar = checkGrammar()
	for i := range 12 {
		sampling := s.sampling([]float64{0, 0.7, 1, 1.5}[i%4], uint32(i))
		// Room for the blanks that a schema allows; bound and free in one job.
		sampling.MaxTokens, sampling.Grammar = min(128, s.info.Context/2), i%3 != 2
		job.Samplings = append(job.Samplings, sampling)
	}
	for _, g := range s.run(job)[0].Generations {
		if !g.Sampling.Grammar {
			continue
		}
		if g.StopReason == data.StopError && !s.info.Grammars {
			continue
		}
		var got struct {
			Fits  *bool `json:"fits"`
			Stars *int  `json:"stars"`
		}
		dec := json.NewDecoder(strings.NewReader(g.Text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil || got.Fits == nil || got.Stars == nil || *got.Stars < 1 || *got.Stars > 5 || g.StopReason != data.StopEnd {
			s.Errorf("bound to a grammar at %v: %q (%s %s): %v", g.Sampling.Temperature, g.Text, g.StopReason, g.Error, err)
		}
	}
}

// Scores are log probabilities: none above 0, and those of disjoint continuations
// sum to at most 1.
func (s *suite) checkScores() {
	job := s.job("Is bread made of flour? Answer yes or no.", s.sampling(0, 0))
	job.Continuations = []string{"Yes", "No", "Bread", "zebra crossing", "Yes"}
	a := s.run(job)[0]
	if !s.info.Scorer {
		if a.Scores != nil {
			s.Errorf("the engine is no Scorer and gives scores %v", a.Scores)
		}
		return
	}
	if len(a.Scores) != len(job.Continuations) {
		s.Fatalf("%d scores for %d continuations", len(a.Scores), len(job.Continuations))
	}
	sum, different := 0.0, map[float64]bool{}
	for i, x := range a.Scores {
		if !(x <= 0) || math.IsInf(x, 0) {
			s.Errorf("score of %q is %v", job.Continuations[i], x)
		}
		if i < 4 {
			sum += math.Exp(x)
			different[x] = true
		}
	}
	// A little above 1 is rounding; sums of float32 softmaxes are off by less.
	if sum > 1+1e-4 {
		s.Errorf("disjoint continuations have probabilities that sum to %v", sum)
	}
	if len(different) == 1 {
		s.Errorf("four different continuations have one score: %v", a.Scores)
	}
	if math.Abs(a.Scores[0]-a.Scores[4]) > 1e-3 {
		s.Errorf("the same continuation has scores %v and %v in one job", a.Scores[0], a.Scores[4])
	}
	if plain := s.run(s.job(s.text(0), s.sampling(0, 0)))[0]; plain.Scores != nil {
		s.Errorf("scores %v where none were asked for", plain.Scores)
	}
}

// drawn returns the most frequent first token of an answer at temperature 1 as
// text, with its generation and its share among n draws.
func (s *suite) drawn(text string) (top data.Generation, share float64, n int) {
	n = s.opts.Draws
	count := map[string]int{}
	for _, g := range s.firstTokens(text) {
		if g.Text == "" || g.Tokens != 1 || g.Reasoning != "" || strings.ContainsRune(g.Text, '\ufffd') {
			continue
		}
		count[g.Text]++
		if count[g.Text] > count[top.Text] || top.Text == "" {
			top = g
		}
	}
	if top.Text == "" {
		s.Skip("no first token that is a text")
	}
	return top, float64(count[top.Text]) / float64(n), n
}

// firstTokens returns many answers of one token at temperature 1.
func (s *suite) firstTokens(text string) []data.Generation {
	one := s.seeds(1, s.opts.Draws)
	for i := range one {
		one[i].MaxTokens = 1
	}
	return s.generate(text, one...)
}

// What is scored likely is drawn often. It needs a model whose tokenizer reads
// the text of a token as that token.
func (s *suite) checkScoresDrawn() {
	if !s.info.Scorer {
		s.Skip("the engine is no Scorer")
	}
	for i := range 3 {
		top, share, n := s.drawn(s.text(i))
		job := s.job(s.text(i))
		job.Continuations = []string{top.Text}
		scores := s.run(job)[0].Scores
		if len(scores) != 1 {
			s.Fatalf("%d scores for one continuation", len(scores))
		}
		p := math.Exp(scores[0])
		// Six standard errors, and a little for the shape of the batch.
		if tolerance := 6*math.Sqrt(p*(1-p)/float64(n)) + 0.01; math.Abs(share-p) > tolerance {
			s.Errorf("first token %q: drawn with share %v of %d, scored %v ± %v", top.Text, share, n, p, tolerance)
		}
	}
}

// The log probability of a generation is that of its text under its sampling.
func (s *suite) checkLogprobs() {
	g := s.generate(s.text(0), s.seeds(1, 8)...)
	if g[0].Logprob == nil {
		s.Skip("the engine gives no log probabilities")
	}
	for i := range 3 {
		top, share, n := s.drawn(s.text(i))
		if top.Logprob == nil {
			s.Fatalf("%+v has no log probability, others have", top.Sampling)
		}
		p := math.Exp(*top.Logprob)
		if tolerance := 6*math.Sqrt(p*(1-p)/float64(n)) + 0.01; math.Abs(share-p) > tolerance {
			s.Errorf("first token %q: drawn with share %v of %d, log probability says %v ± %v", top.Text, share, n, p, tolerance)
		}
	}
	s.checkMass()
	// Each further token makes a text less probable.
	short, long := s.sampling(1, 2), s.sampling(1, 2)
	short.MaxTokens = 2
	both := s.generate(s.text(0), short, long)
	if strings.HasPrefix(both[1].Text, both[0].Text) && *both[1].Logprob > *both[0].Logprob+1e-3 {
		s.Errorf("log probability %v of %q, %v of its beginning", *both[1].Logprob, both[1].Text, *both[0].Logprob)
	}
}

// checkMass adds up the probabilities of all first tokens that were drawn. They
// are 1 but for the tokens that were not, whose mass is about the share of draws
// that came once.
//
// References:
//   - Good, I. J., The population frequencies of species and the estimation of
//     population parameters. Biometrika 40(3/4) (1953), 237–264
func (s *suite) checkMass() {
	type token struct {
		text    string
		logprob float64
	}
	for i := range 3 {
		count := map[token]int{}
		n := 0
		for _, g := range s.firstTokens(s.text(i)) {
			if g.Logprob != nil {
				count[token{g.Text, *g.Logprob}]++
				n++
			}
		}
		mass, once, twice := 0.0, 0.0, 0.0
		for t, k := range count {
			mass += math.Exp(t.logprob)
			switch k {
			case 1:
				once++
			case 2:
				twice++
			}
		}
		missing := once / float64(n)
		tolerance := 6*math.Sqrt(once+2*twice)/float64(n) + 0.02
		if mass > 1+1e-3 && s.info.Reproducible || mass < 1-missing-tolerance {
			s.Errorf("the %d first tokens that were drawn have probabilities that sum to %v, want %v to 1", len(count), mass, 1-missing-tolerance)
		}
	}
}

// What does not fit the context is an error of its trial and of no other.
func (s *suite) checkOverflow() {
	overflown := func(g data.Generation) bool { return g.StopReason == data.StopError && g.ErrorKind == data.ErrOverflow }
	long := strings.Repeat("bread and water and ", s.info.Context/2)
	greedy, whole := s.sampling(0, 0), s.sampling(0, 0)
	whole.MaxTokens = s.info.Context // leaves no room for a prompt
	answers := s.run(
		s.job(s.text(0), greedy),
		s.job(long, greedy, s.sampling(1, 1)),
		s.job(s.text(0), greedy, whole, s.sampling(1, 1)),
	)
	for _, g := range answers[1].Generations {
		if !overflown(g) {
			s.Errorf("a prompt of more than %d tokens: %s %s %q", s.info.Context, g.StopReason, g.ErrorKind, g.Text)
		}
	}
	if g := answers[2].Generations[1]; !overflown(g) {
		s.Errorf("a prompt and %d tokens of answer in a context of %d: %s %s", whole.MaxTokens, s.info.Context, g.StopReason, g.ErrorKind)
	}
	s.ran([]data.Generation{answers[0].Generations[0], answers[2].Generations[0], answers[2].Generations[2]})
	if a, b := answers[0].Generations[0].Text, answers[2].Generations[0].Text; a != b && s.opts.Agreement == 1 {
		s.Errorf("beside an overflow the answer is %q, before it %q", b, a)
	}
}

// A cancelled unit ends soon with the context's error, and the engine goes on.
func (s *suite) checkCancellation() {
	before := s.run(s.unitA()...)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if got, err := collect(ctx, s.engine, s.unitA()); len(got) != 0 || !errors.Is(err, context.Canceled) {
		s.Errorf("cancelled beforehand: %d answers, %v", len(got), err)
	}

	// A unit that takes long enough to be cancelled in its middle.
	var jobs []inference.Job
	grow := func() time.Duration {
		for {
			for range max(1, len(jobs)) {
				jobs = append(jobs, s.job(s.text(len(jobs)), s.seeds(1.2, 8)...))
			}
			// The least of three, for a machine that stalls makes a short unit look long.
			took := time.Duration(math.MaxInt64)
			for try := 0; try < 3 && took > 150*time.Millisecond; try++ {
				start := time.Now()
				s.run(jobs...)
				took = min(took, time.Since(start))
			}
			if took > 150*time.Millisecond {
				return took
			}
		}
	}
	took := grow()
	// "Soon" is well before the unit would have ended. A machine may stall.
	for try := 0; ; try++ {
		ctx, cancel := context.WithCancel(s.Context())
		timer := time.AfterFunc(took/8, cancel)
		start := time.Now()
		got, err := collect(ctx, s.engine, jobs)
		end := time.Since(start)
		timer.Stop()
		cancel()
		if err != nil && err != context.Canceled {
			s.Fatalf("cancelled in the middle: %v, want context.Canceled as it stands", err)
		}
		if err != nil && len(got) < len(jobs) && end < took*3/4 {
			break
		}
		if try == 5 {
			s.Fatalf("cancelled after %v of about %v: %d of %d answers after %v, %v", took/8, took, len(got), len(jobs), end, err)
		}
		took = grow()
	}

	ctx, cancel = context.WithTimeout(s.Context(), took/8)
	defer cancel()
	if _, err := collect(ctx, s.engine, jobs); err != nil && err != context.DeadlineExceeded {
		s.Errorf("past its deadline: %v, want context.DeadlineExceeded", err)
	}
	after := s.run(s.unitA()...)
	if s.info.Reproducible {
		s.same("the same unit before and after cancelled ones", before, after)
	}
}

// A caller that stops listening leaves nothing behind.
func (s *suite) checkEarlyEnd() {
	before := s.run(s.unitA()...)
	for range s.engine.Generate(s.Context(), s.unitB()) {
		break
	}
	after := s.run(s.unitA()...)
	if s.info.Reproducible {
		s.same("the same unit before and after one that was not heard to its end", before, after)
	}
	// The sequence runs each time that it is ranged over.
	seq := s.engine.Generate(s.Context(), s.unitA())
	for range 2 {
		n := 0
		for _, err := range seq {
			if err != nil {
				s.Fatalf("a sequence ranged over twice: %v", err)
			}
			n++
		}
		if n != len(s.unitA()) {
			s.Errorf("a sequence ranged over twice: %d answers, want %d", n, len(s.unitA()))
		}
	}
}

// Counters grow by at least what came out.
func (s *suite) checkCounters() {
	meter, ok := s.engine.(inference.Meter)
	if !ok {
		s.Skip("the engine does not count")
	}
	before := meter.Counters()
	want, prompts := int64(0), int64(0)
	for _, a := range s.run(s.unitA()...) {
		prompts += int64(a.PromptTokens)
		for _, g := range a.Generations {
			// The last token of a text that was cut need not be decoded, nor be counted.
			want += int64(max(0, g.Tokens-1))
		}
	}
	after := meter.Counters()
	if got := after.TokensSampled - before.TokensSampled; got < want {
		s.Errorf("%d tokens were sampled, the generations have %d and more", got, want)
	}
	if got := after.PromptTokens - before.PromptTokens; got <= 0 || prompts > 0 && got > 4*prompts {
		s.Errorf("%d prompt tokens were evaluated, the prompts have %d", got, prompts)
	}
	if after.Rows < before.Rows || after.Decodes < before.Decodes || after.PromptNeeded < before.PromptNeeded {
		s.Errorf("counters went back: %+v, then %+v", before, after)
	}
	if after.RowHistogram != nil {
		rows, decodes := int64(0), int64(0)
		for n, k := range after.RowHistogram {
			rows += int64(n) * k
			decodes += k
		}
		if rows != after.Rows || decodes != after.Decodes {
			s.Errorf("the histogram has %d rows in %d decodes, the counters %d in %d", rows, decodes, after.Rows, after.Decodes)
		}
	}
}

// Another engine of the same plan gives the same bytes.
func (s *suite) checkReopening() {
	s.reproducible()
	first := s.run(s.unitA()...)
	other := s.fresh()
	if !reflect.DeepEqual(other.Info(), s.info) {
		s.Errorf("info of two engines: %+v, %+v", s.info, other.Info())
	}
	s.same("the same unit in another engine, as its first", first, s.runOn(other, s.unitA()...))
}

func (s *suite) checkClosing() {
	e := s.fresh()
	s.runOn(e, s.job(s.text(0), s.sampling(0, 0)))
	for range 2 {
		if err := e.Close(); err != nil {
			s.Errorf("closing: %v", err)
		}
	}
	if got, err := collect(s.Context(), e, s.unitA()); err == nil {
		s.Errorf("a closed engine gave %d answers and no error", len(got))
	}
}

func generations(answers []inference.Answer) []data.Generation {
	var all []data.Generation
	for _, a := range answers {
		all = append(all, a.Generations...)
	}
	return all
}
