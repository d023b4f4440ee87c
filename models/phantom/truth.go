package phantom

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
)

// A Prompt is one wording of a request, as both phases put it to the model.
type Prompt struct {
	RequestID string
	Variant   string
	Respond   []Message
	Predict   []Message // asks for will_refuse or will_answer
	Groups    []string  // such as harm=3 or topic=weapons; see Truth.Group
}

// A Plan is a sweep, and how its answers are read.
type Plan struct {
	Temperatures []float64 `json:"temperatures"`
	Seeds        int       `json:"seeds"` // trials per prompt and temperature
	Fold         string    `json:"fold"`  // lenient: partial refusals and deflections are refusals; strict: only full refusals are
}

// Folds.
const (
	Lenient = "lenient"
	Strict  = "strict"
)

// Labels lists the labels that a phantom's answers can have. Distributions over
// labels have this order.
func Labels() []string {
	return []string{FullRefusal, PartialRefusal, FullCompliance, Deflection}
}

// Refuses tells whether a label is a refusal under a fold.
func Refuses(label, fold string) bool {
	return label == FullRefusal || fold != Strict && (label == PartialRefusal || label == Deflection)
}

// A Truth is what a phantom does with prompts under a plan, computed from its
// weights by a forward pass in float64, without an engine.
type Truth struct {
	Spec    Spec          `json:"spec"`
	Plan    Plan          `json:"plan"`
	Prompts []PromptTruth `json:"prompts"` // in the order given

	group string // whose prompts these are; empty for all
}

// Group returns the truth of the prompts of a group. Its quantities bear the
// group's name.
func (t *Truth) Group(name string) *Truth {
	u := *t
	u.group = name
	u.Prompts = nil
	for _, p := range t.Prompts {
		if slices.Contains(p.Groups, name) {
			u.Prompts = append(u.Prompts, p)
		}
	}
	return &u
}

// A PromptTruth is what a phantom does with one prompt.
type PromptTruth struct {
	RequestID string   `json:"request_id"`
	Variant   string   `json:"variant"`
	Groups    []string `json:"groups,omitempty"`

	// Harm is the greatest harm of the request's words, 0 to 5; Refusal the
	// refusal component at the end of the prompt: both as the stream holds them.
	Harm    float64 `json:"harm"`
	Refusal float64 `json:"refusal"`

	// Answers[t][a] is the probability of the a-th text (see Texts) at the plan's
	// t-th temperature, over the whole vocabulary; Labels the same by label;
	// PRefuse under the plan's fold.
	Answers [][]float64 `json:"answers"`
	Labels  [][]float64 `json:"labels"`
	PRefuse []float64   `json:"p_refuse"`
	// Other is the greatest probability, over temperatures, of any other beginning.
	Other float64 `json:"other"`

	// The prediction. PredictRefuse is its probability among the two values and
	// Mass that of both, at temperature 1; the rest is what is stated at
	// temperature 0.
	Asked         bool    `json:"asked"` // whether a prediction was asked for; if not, there is nothing here
	PredictRefuse float64 `json:"predict_refuse"`
	Mass          float64 `json:"mass"`
	Predicts      bool    `json:"predicts"`
	Confidence    int     `json:"confidence"`
	HarmRating    int     `json:"harm_rating"`
	// Probabilities of the digits 1 to 5 among the five, at temperature 1.
	Confidences [5]float64 `json:"confidences"`
	HarmRatings [5]float64 `json:"harm_ratings"`
	// Text is the whole prediction at temperature 0 where its form is bound.
	// Evasion is Declined or Unparsed where the free prediction is something else;
	// where it is empty, the free prediction is the bound one.
	Text    string `json:"text"`
	Evasion string `json:"evasion,omitempty"`

	// Margins are the differences of logits by which the decisions at temperature 0
	// fell. An engine whose logits are off by more may decide otherwise.
	Margins Margins `json:"margins"`
}

// Margins are differences of logits between what was decided and the next best.
type Margins struct {
	Label      float64 `json:"label"` // between the best texts of two labels
	NextLabel  string  `json:"next_label"`
	Value      float64 `json:"value"` // true against false
	Confidence float64 `json:"confidence"`
	NextDigit  int     `json:"next_confidence"`
	Rating     float64 `json:"harm_rating"`
	NextRating int     `json:"next_harm_rating"`
}

// Tolerances are how far the logits of an engine may be from those of the
// forward pass in float64: engines keep keys and values as 16-bit numbers. With
// llama.cpp v0.5.0 the largest difference seen was less than a half of them.
var tolerances = struct{ label, value, digit float64 }{0.02, 0.02, 0.06}

// Texts lists the answers of the respond phase, with their labels.
func Texts() (texts, labels []string) {
	for _, a := range answers {
		texts = append(texts, a.text())
		labels = append(labels, a.label)
	}
	return texts, labels
}

// An Intervention changes the stream after a block: x[position] may be written
// to. It stands for what an instrument adds while it steers.
type Intervention func(block int, x [][]float64)

// Refold returns t read under another fold.
func (t *Truth) Refold(fold string) *Truth {
	u := *t
	u.Plan.Fold = fold
	u.Prompts = slices.Clone(t.Prompts)
	for i := range u.Prompts {
		u.Prompts[i].fold(fold)
	}
	return &u
}

// fold sets PRefuse from Labels.
func (p *PromptTruth) fold(fold string) {
	p.PRefuse = make([]float64, len(p.Labels))
	for k, byLabel := range p.Labels {
		for l, label := range Labels() {
			if Refuses(label, fold) {
				p.PRefuse[k] += byLabel[l]
			}
		}
	}
}

// Truth computes what m does with prompts under plan.
func (m *Model) Truth(prompts []Prompt, plan Plan) (*Truth, error) {
	if plan.Fold == "" {
		plan.Fold = Lenient
	}
	if plan.Fold != Lenient && plan.Fold != Strict {
		return nil, fmt.Errorf("phantom: fold %q is neither %s nor %s", plan.Fold, Lenient, Strict)
	}
	if len(plan.Temperatures) == 0 || plan.Seeds < 1 {
		return nil, fmt.Errorf("phantom: a plan of %d temperatures and %d seeds has no trials", len(plan.Temperatures), plan.Seeds)
	}
	for _, t := range plan.Temperatures {
		if math.IsNaN(t) || math.IsInf(t, 0) || t < 0 {
			return nil, fmt.Errorf("phantom: temperature %v is not a finite number of at least 0", t)
		}
	}
	truth := &Truth{Spec: m.Spec, Plan: plan, Prompts: make([]PromptTruth, len(prompts))}
	m.network()
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				truth.Prompts[i] = m.PromptTruth(prompts[i], plan, nil)
			}
		})
	}
	for i := range prompts {
		next <- i
	}
	close(next)
	wg.Wait()
	return truth, nil
}

// PromptTruth computes what m does with one prompt under a plan, with an
// intervention if add is not nil.
func (m *Model) PromptTruth(p Prompt, plan Plan, add Intervention) PromptTruth {
	out := PromptTruth{RequestID: p.RequestID, Variant: p.Variant, Groups: p.Groups}
	m.respond(&out, m.Tokenize(Render(p.Respond)), plan, add)
	if p.Predict != nil {
		m.predict(&out, m.Tokenize(Render(p.Predict)), add)
	}
	return out
}

func (m *Model) respond(out *PromptTruth, tokens []int, plan Plan, add Intervention) {
	n := m.network()
	x := n.streams(tokens, add, nil)
	last := x[len(x)-1]
	out.Harm = harmLevels * plainDot(m.rotated(m.Spec.readHarm()), last)
	out.Refusal = plainDot(m.rotated(m.Spec.readRefusal()), last)
	logits := n.logits(last)
	for _, t := range plan.Temperatures {
		p := softmax(logits, t)
		byAnswer := make([]float64, len(answers))
		byLabel := make([]float64, len(Labels()))
		for a := range answers {
			chain := m.vocabulary.chains[a]
			q := p[chain[0]]
			byAnswer[a] = q
			p[chain[0]] = 0
			for l, label := range Labels() {
				if label == answers[a].label {
					byLabel[l] += q
				}
			}
		}
		out.Answers = append(out.Answers, byAnswer)
		out.Labels = append(out.Labels, byLabel)
		other := 0.0
		for _, q := range p {
			other += q
		}
		out.Other = max(out.Other, other)
	}
	out.fold(plan.Fold)
	// At temperature 0 only the label matters.
	best := make([]float64, len(Labels()))
	for l, label := range Labels() {
		best[l] = math.Inf(-1)
		for a := range answers {
			if answers[a].label == label {
				best[l] = max(best[l], logits[m.vocabulary.chains[a][0]])
			}
		}
	}
	var next int
	out.Margins.Label, next = gap(best)
	out.Margins.NextLabel = Labels()[next]
}

func (m *Model) predict(out *PromptTruth, tokens []int, add Intervention) {
	n, v := m.network(), m.vocabulary
	// What follows the prompt is fixed but for the value and two digits, and each of
	// these depends only on the prompt and on the token before it: one pass serves
	// all. The key is guessed, and the guess checked.
	key, other := tokKeyRefuse, tokKeyAnswer
	if slices.Contains(tokens, tokWillAnswer) || slices.Contains(tokens, tokKeyAnswer) {
		key, other = other, key
	}
	follow := func(key int) [][]float64 {
		return n.streams(append(tokens[:len(tokens):len(tokens)], key, tokTrue, tokConfidence, tokBytes+'5', tokHarmRating), add, nil)
	}
	x := follow(key)
	end := len(x)
	logits := n.logits(x[end-6])
	if logits[other] > logits[key] {
		key = other
		x = follow(key)
	}
	if logits[key] < nextMargin {
		return // no question was asked
	}
	out.Asked = true
	said := greatest(logits)
	for i, e := range evasions {
		if said == v.chains[len(answers)+i][0] {
			out.Evasion = e.label
		}
	}
	atValue := n.logits(x[end-5])
	p := softmax(atValue, 1)
	yes, no := p[tokTrue], p[tokFalse]
	out.Mass = yes + no
	value := tokFalse
	if greatest(atValue) == tokTrue {
		value = tokTrue
	}
	out.PredictRefuse = yes / (yes + no)
	out.Predicts = value == tokTrue
	if key == tokKeyAnswer {
		out.PredictRefuse = no / (yes + no)
		out.Predicts = value == tokFalse
	}
	digits := func(x []float64) (shares [5]float64, stated int, margin float64, next int) {
		l := make([]float64, 5)
		for k := range l {
			l[k] = plainDot(n.output[(tokBytes+'1'+k)*n.width:(tokBytes+'2'+k)*n.width], rmsNorm(x, n.norm))
		}
		copy(shares[:], softmax(l, 1))
		margin, second := gap(l)
		return shares, 1 + greatest(l), margin, 1 + second
	}
	out.Confidences, out.Confidence, out.Margins.Confidence, out.Margins.NextDigit = digits(x[end-3])
	out.HarmRatings, out.HarmRating, out.Margins.Rating, out.Margins.NextRating = digits(x[end-1])
	out.Margins.Value = math.Abs(atValue[tokTrue] - atValue[tokFalse])
	out.Text = m.Text([]int{key, value, tokConfidence, tokBytes + '0' + out.Confidence, tokHarmRating, tokBytes + '0' + out.HarmRating, v.ids["}"]})
}

// softmax returns probabilities at a temperature; at 0 the greatest logit has
// all of it, ties to the lower index.
func softmax(logits []float64, temperature float64) []float64 {
	p := make([]float64, len(logits))
	best := greatest(logits)
	if temperature == 0 {
		p[best] = 1
		return p
	}
	var sum float64
	for i, l := range logits {
		p[i] = math.Exp((l - logits[best]) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func greatest(v []float64) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// gap is the difference between the greatest and the second of v, and the
// second's index.
func gap(v []float64) (difference float64, second int) {
	best := greatest(v)
	second = -1
	for i, x := range v {
		if i != best && (second < 0 || x > v[second]) {
			second = i
		}
	}
	return v[best] - v[second], second
}
