// Package enginetest holds what the tests of engines and of their users share:
// Scripted, an engine without weights whose every answer is known beforehand
// and that fails in every way an engine can fail, and Run, the suite that every
// engine must pass.
package enginetest

import (
	"math"
	"strings"
	"time"
	"unicode"

	"demur/data"
)

// A Script says what a Scripted engine answers and how it fails. It has a JSON
// form, so that it can be sent to a worker process. The zero value is a sound
// engine with a context of 4,096 tokens that refuses about half of what it is
// asked.
//
// The scripted model is a logistic one. Each prompt has a latent value x, and
//
//	P(refuse | T) = 1 / (1 + exp(−x/T)),  T > 0;  at T = 0 it refuses if x > 0.
//
// x is Bias, plus the sum of the Triggers that occur in the prompt, plus a part
// between −Spread and +Spread that depends on the request alone: on RequestID
// and Variant where the prompt has them, so that both phases share it, else on
// the text of the last message. In phase predict (a prompt of that phase, or
// one that names the key will_refuse or will_answer) the model reads
// x + PredictBias and says what that makes likely.
type Script struct {
	Model   string  `json:"model,omitempty"`   // name, "scripted" if empty
	Seed    uint64  `json:"seed,omitempty"`    // of the model: another seed is another model
	Context int     `json:"context,omitempty"` // tokens (words, here); 0 means 4,096
	Bias    float64 `json:"bias,omitempty"`
	// Spread is 2 if zero; negative means none.
	Spread      float64            `json:"spread,omitempty"`
	Triggers    map[string]float64 `json:"triggers,omitempty"` // word in lower case to its part of x
	PredictBias float64            `json:"predict_bias,omitempty"`
	// Unparsed and Declined are the shares of free predictions that cannot be
	// read, and that decline to predict.
	Unparsed float64 `json:"unparsed,omitempty"`
	Declined float64 `json:"declined,omitempty"`
	// Words is the greatest length of a response in words; 0 means 24.
	Words int `json:"words,omitempty"`

	TokenTime time.Duration `json:"token_time,omitempty"` // waited for each token
	OpenTime  time.Duration `json:"open_time,omitempty"`  // waited by Open

	NoScores   bool `json:"no_scores,omitempty"`   // no Scorer
	NoGrammars bool `json:"no_grammars,omitempty"` // cannot bind an answer
	// Draws makes the engine one that is not Reproducible: how often it was asked
	// before takes part in every draw at a temperature above 0.
	Draws bool `json:"draws,omitempty"`

	Faults []Fault `json:"faults,omitempty"`
	// Ledger names a folder in which the number of times that each fault has
	// happened is kept, so that Fault.Times holds across the deaths of a process.
	Ledger string `json:"ledger,omitempty"`
}

func (s Script) context() int {
	if s.Context == 0 {
		return 4096
	}
	return s.Context
}

func (s Script) words() int {
	if s.Words == 0 {
		return 24
	}
	return s.Words
}

func (s Script) spread() float64 {
	switch {
	case s.Spread < 0:
		return 0
	case s.Spread == 0:
		return 2
	}
	return s.Spread
}

// Latent returns x of the prompt, as its phase reads it.
func (s Script) Latent(p data.Prompt) float64 {
	x := s.Bias
	if spread := s.spread(); spread > 0 {
		x += spread * (2*unit(mix(s.requestKey(p), 'x')) - 1)
	}
	if len(s.Triggers) > 0 {
		// Words are added in the order of the text, for float sums depend on order.
		for _, m := range p.Messages {
			for _, w := range strings.FieldsFunc(strings.ToLower(m.Content), notWord) {
				x += s.Triggers[w]
			}
		}
	}
	if predicts(p) {
		x += s.PredictBias
	}
	return x
}

// RefusalRate returns the probability that a response to p is a refusal at
// temperature t or, in phase predict, that a grammar-bound prediction says so.
func (s Script) RefusalRate(p data.Prompt, t float64) float64 {
	return logistic(s.Latent(p), t)
}

func logistic(x, t float64) float64 {
	if t == 0 {
		if x > 0 {
			return 1
		}
		return 0
	}
	return 1 / (1 + math.Exp(-x/t))
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\'' }

// predicts reports whether p asks for a prediction.
func predicts(p data.Prompt) bool {
	return p.Phase == data.Predict || mentions(p, "will_refuse") || mentions(p, "will_answer")
}

func mentions(p data.Prompt, key string) bool {
	for _, m := range p.Messages {
		if strings.Contains(m.Content, key) {
			return true
		}
	}
	return false
}

// asksAnswer reports whether a prediction is asked for the other way round.
func asksAnswer(p data.Prompt) bool {
	return p.Polarity == data.AskAnswer || p.Polarity == "" && mentions(p, "will_answer")
}

func (s Script) requestKey(p data.Prompt) uint64 {
	if p.RequestID != "" {
		return mix(mixString(mixString(s.Seed, p.RequestID), p.Variant), 'r')
	}
	if len(p.Messages) == 0 {
		return mix(s.Seed, 'r')
	}
	return mix(mixString(s.Seed, p.Messages[len(p.Messages)-1].Content), 'r')
}

// promptKey depends on all that the model is shown and on nothing else.
func (s Script) promptKey(p data.Prompt) uint64 {
	h := mix(s.Seed, 'p')
	for _, m := range p.Messages {
		h = mixString(mixString(h, m.Role), m.Content)
	}
	return h
}

// mix is a step of SplitMix64 with x added to its state.
//
// References:
//   - Steele, G. L., Lea, D., Flood, C. H., Fast splittable pseudorandom number
//     generators. OOPSLA 2014, 453–472
func mix(h, x uint64) uint64 {
	z := h + (x+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func mixString(h uint64, s string) uint64 {
	h = mix(h, uint64(len(s)))
	for len(s) >= 8 {
		h = mix(h, uint64(s[0])|uint64(s[1])<<8|uint64(s[2])<<16|uint64(s[3])<<24|
			uint64(s[4])<<32|uint64(s[5])<<40|uint64(s[6])<<48|uint64(s[7])<<56)
		s = s[8:]
	}
	for i := range len(s) {
		h = mix(h, uint64(s[i]))
	}
	return h
}

// unit maps h to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }
