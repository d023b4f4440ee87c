package llamacpp

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// choose makes the decision of every continuation of some rows. Rows are
// independent, so they are shared out over the cores.
func (e *Engine) choose(rows []*row) {
	workers := min(runtime.GOMAXPROCS(0), len(rows))
	if workers < 2 {
		for _, r := range rows {
			r.choose()
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(rows); i = next.Add(1) - 1 {
				rows[i].choose()
			}
		})
	}
	wg.Wait()
}

var (
	errNotFinite = errors.New("the model gave logits that are not numbers")
	errNoToken   = errors.New("the grammar allows no token here")
)

// choose makes the decisions of one row. Continuations of one temperature share
// one distribution.
func (r *row) choose() {
	greedy := argmax(r.logits)
	var dists []struct {
		temperature float64
		d           *dist
	}
	at := func(temperature float64) *dist {
		for _, x := range dists {
			if x.temperature == temperature {
				return x.d
			}
		}
		d := newDist(r.logits, r.logits[greedy], temperature)
		dists = append(dists, struct {
			temperature float64
			d           *dist
		}{temperature, d})
		return d
	}
	if top := float64(r.logits[greedy]); math.IsNaN(top) || math.IsInf(top, 0) {
		for _, c := range r.members {
			c.err = errNotFinite
		}
		return
	}
	for _, c := range r.members {
		if c.at < len(c.forced) {
			c.next = c.forced[c.at]
			if c.sampling == nil && c.at >= c.from {
				c.logprob += at(1).logprob(int32(c.next))
			}
			continue
		}
		s := *c.sampling
		switch {
		case c.grammar:
			r.chooseBound(c, greedy, at)
		case s.Temperature == 0:
			c.next = llama.Token(greedy) // certain: its log probability is 0
		case s.TopK > 0 || s.TopP > 0 && s.TopP < 1 || s.MinP > 0:
			t, lp, ok := choose(truncate(at(s.Temperature).candidates(false), s), c.key.at(len(c.out), 0))
			if !ok {
				c.err = errNotFinite
				continue
			}
			c.next = llama.Token(t)
			c.logprob += lp
		default:
			d := at(s.Temperature)
			t := d.draw(c.key.at(len(c.out), 0))
			c.next = llama.Token(t)
			c.logprob += d.logprob(t)
		}
	}
}

// enough is the share of the probability inside the window that the tokens
// allowed by a grammar must have for the ones outside not to matter.
const enough = 1e-3

// chooseBound draws among the tokens that the grammar allows. At first it looks
// only at the tokens that have a probability to speak of.
func (r *row) chooseBound(c *continuation, greedy int32, at func(float64) *dist) {
	s := *c.sampling
	if s.Temperature == 0 {
		// The likeliest token alone is usually allowed.
		if ok := r.grammar.allowed([]candidate{{token: greedy, logit: r.logits[greedy]}}); len(ok) == 1 {
			c.next = llama.Token(greedy)
			return
		}
	}
	d := at(s.Temperature)
	for _, all := range []bool{false, true} {
		cs := d.candidates(all)
		z := 0.0
		for _, x := range cs {
			z += x.p
		}
		cs = r.grammar.allowed(cs)
		if s.Temperature == 0 {
			if t, ok := best(cs); ok {
				c.next = llama.Token(t)
				return
			}
			continue
		}
		in := 0.0
		for _, x := range cs {
			in += x.p
		}
		if !all && in < enough*z {
			continue
		}
		cs = rescale(cs, d.inv)
		if t, lp, ok := choose(truncate(cs, s), c.key.at(len(c.out), 0)); ok {
			c.next = llama.Token(t)
			c.logprob += lp
			return
		}
	}
	c.err = errNoToken
}

// rescale works the probabilities out again from the greatest logit that is
// left, for where the grammar allows unlikely tokens only, all could round to 0.
func rescale(cs []candidate, inv float64) []candidate {
	top := math.Inf(-1)
	for _, c := range cs {
		top = max(top, float64(c.logit))
	}
	if math.IsInf(top, -1) {
		return nil
	}
	for i := range cs {
		cs[i].p = math.Exp((float64(cs[i].logit) - top) * inv)
	}
	return cs
}
