package llamacpp

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"demur/data"
)

// samplerName stands in the plan. It changes when the same logits may give
// another token.
const samplerName = "inverse-cdf/1 splitmix64(sha256(seed,temperature,prompt)) top-k,temperature,top-p,min-p"

// window is how far below the greatest scaled logit a token still counts. The
// tokens below it have together less than 200,000 × e⁻³⁰ = 2e-8 of the
// probability, also in the largest vocabularies.
const window = 30

// A stream of uniforms in [0, 1), one for each token index, without state.
type uniforms uint64

// newUniforms keys a stream by seed, temperature and prompt. Streams of
// different keys are independent, so that equal seeds at two temperatures are
// not coupled: one uniform for all would bias what is pooled over temperatures.
func newUniforms(s data.Sampling, promptID string) uniforms {
	b := make([]byte, 0, 12+len(promptID))
	b = binary.LittleEndian.AppendUint32(b, s.Seed)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Temperature+0)) // −0 is 0
	b = append(b, promptID...)
	sum := sha256.Sum256(b)
	return uniforms(binary.LittleEndian.Uint64(sum[:]))
}

// at returns the uniform of token index i; draw tells a second draw for the same
// token from the first. It is SplitMix64 at the counter 2i + draw (Steele, Lea
// and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014).
func (k uniforms) at(i, draw int) float64 {
	x := uint64(k) + (2*uint64(i)+uint64(draw)+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) * 0x1p-53
}

// argmax returns the token with the greatest logit, the lowest id of equals.
func argmax(logits []float32) int32 {
	best, at := logits[0], 0
	for i, l := range logits {
		if l > best {
			best, at = l, i
		}
	}
	return int32(at)
}

// A dist is the distribution of one row of logits at one temperature: what
// several continuations need in order to draw, worked out once.
type dist struct {
	logits []float32
	top    float64 // greatest logit
	inv    float64 // 1 / temperature
	sums   []float64
	z      float64
}

// block is the number of tokens whose probabilities are summed apart, so that a
// draw looks through one block and not through the vocabulary.
const block = 512

// newDist sums the row, whose greatest logit is top. Temperature 0 stands for the distribution at
// temperature 1 of which only log-probabilities are wanted.
func newDist(logits []float32, top float32, temperature float64) *dist {
	if temperature == 0 {
		temperature = 1
	}
	d := &dist{logits: logits, top: float64(top), inv: 1 / temperature}
	d.sums = make([]float64, (len(logits)+block-1)/block)
	low := d.lowest()
	for b := range d.sums {
		d.sums[b] = sumExp(logits[b*block:min((b+1)*block, len(logits))], d.top, d.inv, low)
		d.z += d.sums[b]
	}
	return d
}

// lowest returns the least logit inside the window.
func (d *dist) lowest() float32 { return float32(d.top - window/d.inv) }

// draw returns the token at u of the cumulative distribution, which runs in the
// order of token ids.
func (d *dist) draw(u float64) int32 {
	target, low := float64(u*d.z), d.lowest()
	last := int32(-1)
	for b, s := range d.sums {
		if s == 0 {
			continue
		}
		if target >= s && b < len(d.sums)-1 {
			target -= s
			last = int32(b)
			continue
		}
		if t := d.within(b, target, low); t >= 0 {
			return t
		}
	}
	// Rounding carried u past the end: the last token that has a probability.
	return d.within(int(last), math.Inf(1), low)
}

// within returns the token of block b at which the running sum passes target,
// or the block's last token in the window; −1 if it has none.
func (d *dist) within(b int, target float64, low float32) int32 {
	at, s := int32(-1), 0.0
	for i := b * block; i < min((b+1)*block, len(d.logits)); i++ {
		if l := d.logits[i]; l >= low {
			at = int32(i)
			if s += exp(float64((float64(l) - d.top) * d.inv)); s > target {
				break
			}
		}
	}
	return at
}

// logprob returns the natural log of token t's probability.
func (d *dist) logprob(t int32) float64 {
	return float64((float64(d.logits[t])-d.top)*d.inv) - math.Log(d.z)
}

// A candidate is a token that is still in question.
type candidate struct {
	token int32
	logit float32
	p     float64 // unnormalised
}

// candidates returns the tokens whose scaled logit is inside the window, all of
// them if all is true, in the order of ids.
func (d *dist) candidates(all bool) []candidate {
	low := d.lowest()
	var cs []candidate
	for i, l := range d.logits {
		if l >= low || all {
			cs = append(cs, candidate{int32(i), l, math.Exp((float64(l) - d.top) * d.inv)})
		}
	}
	return cs
}

// choose draws from candidates at u and returns the token with its natural log
// probability; false if no candidate has a probability.
func choose(cs []candidate, u float64) (int32, float64, bool) {
	z := 0.0
	for _, c := range cs {
		z += c.p
	}
	if !(z > 0) {
		return 0, 0, false
	}
	target, s := u*z, 0.0
	at := -1
	for i, c := range cs {
		if c.p > 0 {
			at = i
			if s += c.p; s > target {
				break
			}
		}
	}
	return cs[at].token, math.Log(cs[at].p / z), true
}

// best returns the candidate with the greatest logit, the lowest id of equals.
func best(cs []candidate) (int32, bool) {
	at := -1
	for i, c := range cs {
		if !math.IsInf(float64(c.logit), -1) && (at < 0 || c.logit > cs[at].logit) {
			at = i
		}
	}
	if at < 0 {
		return 0, false
	}
	return cs[at].token, true
}

// truncate applies top-k, top-p and min-p to candidates at their temperature, in
// that order, as Ollama's runner and Transformers do (llama.cpp applies the last
// two before the temperature). Ties at a border go to the lower id.
func truncate(cs []candidate, s data.Sampling) []candidate {
	if s.TopK == 0 && (s.TopP == 0 || s.TopP == 1) && s.MinP == 0 {
		return cs
	}
	cs = slices.Clone(cs)
	slices.SortFunc(cs, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.token, b.token))
	})
	if s.TopK > 0 && len(cs) > s.TopK {
		cs = cs[:s.TopK]
	}
	if s.TopP > 0 && s.TopP < 1 {
		z, sum := 0.0, 0.0
		for _, c := range cs {
			z += c.p
		}
		for i, c := range cs {
			if sum += c.p; sum >= s.TopP*z {
				cs = cs[:i+1]
				break
			}
		}
	}
	if s.MinP > 0 {
		for i, c := range cs {
			if c.p < s.MinP*cs[0].p {
				cs = cs[:i]
				break
			}
		}
	}
	slices.SortFunc(cs, func(a, b candidate) int { return cmp.Compare(a.token, b.token) })
	return cs
}
