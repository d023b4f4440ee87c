package enginetest

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"demur/data"
	"demur/inference"
)

// The responses: an opening, which says whether it is a refusal, then words.
// No two openings begin with the same word.
var (
	refusals = [...]string{
		"I can't help with that.",
		"Sorry, but I cannot assist with this.",
		"I'm not able to help with that request.",
		"Unfortunately, that is something I won't do.",
	}
	compliances = [...]string{
		"Sure, here is how it is done.",
		"Certainly! These are the steps.",
		"To begin, gather what you need.",
		"Here are some ideas for you.",
	}
	bodyWords = [...]string{
		"first", "mix", "flour", "water", "slowly", "then", "wait", "until",
		"dough", "rises", "and", "bake", "the", "loaf", "golden", "brown",
	}
	// unreadable are free predictions without a reading; declining ones decline.
	unreadable = [...]string{"That depends.", "Hmm, hard to tell before seeing it."}
	declining  = [...]string{"I would rather not predict my own behavior.", "As a language model I cannot make predictions about myself."}
)

// hazard is the probability, at temperature 1, that a response ends after each
// word of its body.
const hazard = 1.0 / 8

// unlikely is the log probability of what the model hardly ever says. Each such
// continuation gets a little less, so that they are told apart.
const unlikely = -30

// A model is the script at one job.
type model struct {
	script   Script
	prompt   data.Prompt
	key      uint64
	x        float64
	openings [2][]float64             // how likely each compliance, each refusal is among its like
	body     []float64                // how likely each of bodyWords is
	tempered map[float64][2][]float64 // by temperature: whether a response ends, and body
	free     []field                  // of a prediction; nil in phase respond
	bound    []field                  // under the job's grammar
	boundErr error
}

// A field is one choice of an answer: the words before it, and its values with
// what stands right after them and their probabilities at temperature 1. Fields
// are joined by spaces.
type field struct {
	before string
	values []string
	p      []float64
}

// modelFor reads the job once for all its samplings.
func (e *Scripted) modelFor(job inference.Job) model {
	m := model{script: e.script, prompt: job.Prompt, key: e.script.promptKey(job.Prompt), x: e.script.Latent(job.Prompt)}
	if predicts(job.Prompt) {
		key := "will_refuse"
		if asksAnswer(job.Prompt) {
			key = "will_answer"
		}
		m.free = m.object([]property{
			{key, []string{"true", "false"}},
			{"confidence", []string{"1", "2", "3", "4", "5"}},
			{"harm_rating", []string{"1", "2", "3", "4", "5"}},
		})
	}
	if m.free == nil {
		m.openings = [2][]float64{m.weights('c', len(compliances)), m.weights('r', len(refusals))}
		m.body = m.weights('b', len(bodyWords))
		m.tempered = make(map[float64][2][]float64)
	}
	if job.Grammar != nil {
		properties, err := readSchema(job.Grammar.Schema)
		m.boundErr = err
		if err == nil {
			m.bound = m.object(properties)
		}
	}
	if job.Grammar == nil {
		m.boundErr = errNoGrammar
	}
	return m
}

// weights returns n unequal probabilities that hang on the prompt.
func (m model) weights(what uint64, n int) []float64 {
	w := make([]float64, n)
	sum := 0.0
	for i := range w {
		w[i] = math.Exp(3 * unit(mix(mix(m.key, what), uint64(i))))
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// object returns the fields of a JSON object, or of a bare value where the only
// property has no name.
func (m model) object(properties []property) []field {
	var fields []field
	for i, p := range properties {
		f := field{p: m.distribution(p)}
		before, after := "", ""
		if p.name != "" {
			before, after = strconv.Quote(p.name)+": ", ","
			if i == 0 {
				before = "{" + before
			}
			if i == len(properties)-1 {
				after = "}"
			}
		}
		f.before = before
		for _, v := range p.values {
			f.values = append(f.values, v+after)
		}
		fields = append(fields, f)
	}
	return fields
}

// distribution returns the probabilities of a property's values at temperature 1.
func (m model) distribution(p property) []float64 {
	out := make([]float64, len(p.values))
	sum := 0.0
	for i, v := range p.values {
		switch n, err := strconv.Atoi(v); {
		case p.name == "will_refuse" && v == "true", p.name == "will_answer" && v == "false":
			out[i] = logistic(m.x, 1)
		case p.name == "will_refuse" && v == "false", p.name == "will_answer" && v == "true":
			out[i] = logistic(-m.x, 1)
		case p.name == "confidence" && err == nil:
			out[i] = bell(float64(n), 1+4*min(1, math.Abs(m.x)/2))
		case p.name == "harm_rating" && err == nil:
			out[i] = bell(float64(n), min(5, max(1, 3+m.x-m.script.PredictBias)))
		default:
			out[i] = 0.5 + unit(mix(mixString(mixString(m.key, p.name), v), 'v'))
		}
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func bell(x, mean float64) float64 { return math.Exp(-(x - mean) * (x - mean) / 2) }

// A draw gives the uniform numbers of one generation.
type draw struct {
	state       uint64
	temperature float64
}

// draw returns the stream of a sampling. At temperature 0 nothing is drawn, and
// what remains of the sampling does not matter.
func (m model) draw(s data.Sampling) draw {
	h := mix(m.key, 's')
	if s.Temperature > 0 {
		h = mix(mix(h, uint64(s.Seed)), math.Float64bits(s.Temperature))
		h = mix(mix(mix(h, uint64(s.TopK)), math.Float64bits(s.TopP)), math.Float64bits(s.MinP))
		if s.Grammar {
			h = mix(h, 'g')
		}
	}
	return draw{state: h, temperature: s.Temperature}
}

// next returns a number in [0, 1).
func (d *draw) next() float64 {
	d.state = mix(d.state, 'n')
	return unit(d.state)
}

// pick chooses an index by the probabilities p (at temperature 1; they need not
// sum to 1) and returns it with the log probability of the choice. At
// temperature 0 it is the most probable, the first of equals, and certain.
func (d *draw) pick(p []float64) (int, float64) {
	if d.temperature == 0 {
		best := 0
		for i := range p {
			if p[i] > p[best] {
				best = i
			}
		}
		return best, 0
	}
	return d.pickTempered(temper(p, d.temperature))
}

// pickTempered chooses by probabilities that already are those at the draw's
// temperature.
func (d *draw) pickTempered(p []float64) (int, float64) {
	u := d.next()
	for i := range p {
		if u -= p[i]; u < 0 {
			return i, math.Log(p[i])
		}
	}
	last := len(p) - 1
	return last, math.Log(p[last])
}

// temper returns the probabilities at a temperature above 0 of what has
// probabilities p, up to a factor, at temperature 1.
func temper(p []float64, temperature float64) []float64 {
	q := make([]float64, len(p))
	sum, top := 0.0, slices.Max(p)
	for i := range p {
		q[i] = math.Pow(p[i]/top, 1/temperature) // the greatest is 1, however cold
		sum += q[i]
	}
	for i := range q {
		q[i] /= sum
	}
	return q
}

// words collects a generation word by word, up to its limit.
type words struct {
	b       strings.Builder
	n       int
	limit   int
	logprob float64
}

// add adds a word with its log probability and reports whether there is room
// for another.
func (w *words) add(word string, logprob float64) bool {
	if w.n > 0 {
		w.b.WriteByte(' ')
	}
	w.b.WriteString(word)
	w.n++
	w.logprob += logprob
	return w.n < w.limit
}

// text adds words of which the first has all of the log probability.
func (w *words) text(s string, logprob float64) bool {
	for word := range strings.FieldsSeq(s) {
		if !w.add(word, logprob) {
			return false
		}
		logprob = 0
	}
	return true
}

func (w *words) finish(g *data.Generation, ended bool) {
	g.Text, g.Tokens = w.b.String(), w.n
	g.StopReason = data.StopLength
	if ended {
		g.StopReason = data.StopEnd
	}
	logprob := min(w.logprob, 0)
	g.Logprob = &logprob
}

// respond writes a response into g.
func (m model) respond(g *data.Generation, d draw) {
	w := words{limit: g.Sampling.MaxTokens}
	w.finish(g, m.response(&w, &d))
}

// response reports whether the response came to its end.
func (m model) response(w *words, d *draw) bool {
	refuse, lp := d.pick([]float64{logistic(-m.x, 1), logistic(m.x, 1)})
	openings := compliances
	if refuse == 1 {
		openings = refusals
	}
	i, choice := d.pick(m.openings[refuse])
	if !w.text(openings[i], lp+choice) {
		return false
	}
	ending, body := []float64{1 - hazard, hazard}, m.body
	choose := d.pick
	if t := d.temperature; t > 0 { // done once for all words of all samplings
		if _, ok := m.tempered[t]; !ok {
			m.tempered[t] = [2][]float64{temper(ending, t), temper(body, t)}
		}
		ending, body = m.tempered[t][0], m.tempered[t][1]
		choose = d.pickTempered
	}
	longest := m.script.words()/2 + int(mix(m.key, 'l')%uint64(m.script.words()/2+1))
	for w.n < longest {
		ends, logp := choose(ending)
		if ends == 1 {
			w.logprob += logp
			return true
		}
		i, choice := choose(body)
		if !w.add(bodyWords[i], logp+choice) {
			return false
		}
	}
	return true
}

// predict writes a prediction of the given fields into g.
func (m model) predict(g *data.Generation, fields []field, d draw) {
	w := words{limit: g.Sampling.MaxTokens}
	w.finish(g, m.prediction(&w, fields, &d, g.Sampling.Grammar))
}

func (m model) prediction(w *words, fields []field, d *draw, bound bool) bool {
	logprob := 0.0
	if u := m.script.Unparsed + m.script.Declined; u > 0 && !bound {
		way, lp := d.pick([]float64{1 - u, m.script.Unparsed, m.script.Declined})
		logprob = lp
		if way != 0 {
			texts := unreadable[:]
			if way == 2 {
				texts = declining[:]
			}
			i, choice := d.pick([]float64{0.5, 0.5})
			return w.text(texts[i], lp+choice)
		}
	}
	for _, f := range fields {
		i, lp := d.pick(f.p)
		if f.before != "" && !w.text(f.before, logprob) {
			return false
		}
		if !w.text(f.values[i], lp) {
			return false
		}
		logprob = 0
	}
	return true
}

// score returns the log probability, at temperature 1 and unbound, that the
// answer goes on with the continuation after it has begun with the prefix.
func (m model) score(prefix, continuation string) float64 {
	begun, goesOn := 0.0, 0.0
	for text, p := range m.begins {
		if strings.HasPrefix(text, prefix) {
			begun += p
			if startsWith(text, prefix+continuation) {
				goesOn += p
			}
		}
	}
	if begun == 0 || goesOn == 0 {
		return unlikely - unit(mixString(mixString(m.key, prefix), continuation))
	}
	return min(0, math.Log(goesOn/begun))
}

// begins yields how answers may begin, each with its probability. A
// prediction whose start is forced by a prefix can no longer decline.
func (m model) begins(yield func(string, float64) bool) {
	if m.free == nil {
		refuse := logistic(m.x, 1)
		for i := range refusals {
			if !yield(refusals[i], refuse*m.openings[1][i]) ||
				!yield(compliances[i], (1-refuse)*m.openings[0][i]) {
				return
			}
		}
		return
	}
	for _, t := range unreadable {
		if !yield(t, m.script.Unparsed/float64(len(unreadable))) {
			return
		}
	}
	for _, t := range declining {
		if !yield(t, m.script.Declined/float64(len(declining))) {
			return
		}
	}
	m.combinations(m.free, "", 1-m.script.Unparsed-m.script.Declined, yield)
}

func (m model) combinations(fields []field, text string, p float64, yield func(string, float64) bool) bool {
	if len(fields) == 0 {
		return yield(text, p)
	}
	if text != "" {
		text += " "
	}
	for i, v := range fields[0].values {
		if !m.combinations(fields[1:], text+fields[0].before+v, p*fields[0].p[i], yield) {
			return false
		}
	}
	return true
}

// startsWith reports whether text begins with s and s ends where a word does.
func startsWith(text, s string) bool {
	rest, ok := strings.CutPrefix(text, s)
	if !ok {
		return false
	}
	next, _ := utf8.DecodeRuneInString(rest)
	last, _ := utf8.DecodeLastRuneInString(s)
	inside := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\'' || r == '_' }
	return rest == "" || !(inside(next) && inside(last))
}
