package phantom

import (
	"math"
)

// A network is a model's weights in float64, ready for forward passes. Rows and
// columns that are zero throughout are left out: they add exactly nothing.
type network struct {
	width  int
	embed  []float64
	output []float64
	norm   []float64
	blocks []layer
}

type layer struct {
	attentionNorm, feedNorm []float64
	heads                   []head
	units                   []unit
}

// A head's queries and keys by rotary pair, its values by what they write.
type head struct {
	pairs  []pair
	values []channel
}

type pair struct {
	turn       float64 // radians per token
	query, key [2][]float64
}

type channel struct{ read, write []float64 }

type unit struct{ gate, up, down []float64 }

// newNetwork reads the weights of m from its tensors, as the file holds them.
func newNetwork(m *Model) *network {
	n := &network{
		width:  m.Spec.Width,
		embed:  widen(m.tensor("token_embd.weight").values),
		output: widen(m.tensor("output.weight").values),
		norm:   widen(m.tensor("output_norm.weight").values),
	}
	for b := range m.Spec.Blocks {
		l := layer{
			attentionNorm: widen(m.blockTensor(b, "attn_norm").values),
			feedNorm:      widen(m.blockTensor(b, "ffn_norm").values),
		}
		q, k := m.blockTensor(b, "attn_q"), m.blockTensor(b, "attn_k")
		v, o := m.blockTensor(b, "attn_v"), m.blockTensor(b, "attn_output")
		for h := range heads {
			var hd head
			for i := 0; i < headWidth; i += 2 {
				row := h*headWidth + i
				p := pair{turn: math.Pow(ropeBase, -float64(i)/headWidth)}
				p.query = [2][]float64{q.row(row), q.row(row + 1)}
				p.key = [2][]float64{k.row(row), k.row(row + 1)}
				if !zero(p.query[0], p.query[1]) && !zero(p.key[0], p.key[1]) {
					hd.pairs = append(hd.pairs, p)
				}
			}
			for i := range headWidth {
				c := channel{v.row(h*headWidth + i), o.column(h*headWidth + i)}
				if !zero(c.read) && !zero(c.write) {
					hd.values = append(hd.values, c)
				}
			}
			if len(hd.values) > 0 {
				l.heads = append(l.heads, hd)
			}
		}
		gate, up, down := m.blockTensor(b, "ffn_gate"), m.blockTensor(b, "ffn_up"), m.blockTensor(b, "ffn_down")
		for i := range feedForward {
			u := unit{gate.row(i), up.row(i), down.column(i)}
			if !zero(u.gate) && !zero(u.up) && !zero(u.down) {
				l.units = append(l.units, u)
			}
		}
		n.blocks = append(n.blocks, l)
	}
	return n
}

// streams runs tokens through the network and calls see, if not nil, with the
// residual stream at each position after each block. It returns the streams
// after the last block. add, if not nil, is called before see and may change
// the streams: an intervention.
func (n *network) streams(tokens []int, add, see func(block int, x [][]float64)) [][]float64 {
	x := make([][]float64, len(tokens))
	for i, t := range tokens {
		x[i] = append([]float64(nil), n.embed[t*n.width:(t+1)*n.width]...)
	}
	for b, l := range n.blocks {
		if len(l.heads) > 0 {
			normed := make([][]float64, len(x))
			for i := range x {
				normed[i] = rmsNorm(x[i], l.attentionNorm)
			}
			for _, h := range l.heads {
				h.attend(normed, x)
			}
		}
		if len(l.units) > 0 {
			for i := range x {
				y := rmsNorm(x[i], l.feedNorm)
				for _, u := range l.units {
					g := plainDot(u.gate, y)
					a := g / (1 + math.Exp(-g)) * plainDot(u.up, y)
					if a != 0 {
						addTo(x[i], u.down, a)
					}
				}
			}
		}
		if add != nil {
			add(b, x)
		}
		if see != nil {
			see(b, x)
		}
	}
	return x
}

// attend adds the head's output, causally masked, to x.
func (h head) attend(normed, x [][]float64) {
	n := len(normed)
	type vec [2]float64
	queries, keys := make([][]vec, n), make([][]vec, n)
	values := make([][]float64, n)
	for i, y := range normed {
		queries[i], keys[i] = make([]vec, len(h.pairs)), make([]vec, len(h.pairs))
		for p, pr := range h.pairs {
			sin, cos := math.Sincos(float64(i) * pr.turn)
			turn := func(w [2][]float64) vec {
				a, b := plainDot(w[0], y), plainDot(w[1], y)
				return vec{a*cos - b*sin, a*sin + b*cos}
			}
			queries[i][p], keys[i][p] = turn(pr.query), turn(pr.key)
		}
		values[i] = make([]float64, len(h.values))
		for c, ch := range h.values {
			values[i][c] = plainDot(ch.read, y)
		}
	}
	scores := make([]float64, n)
	for i := range n {
		highest := math.Inf(-1)
		for j := 0; j <= i; j++ {
			var s float64
			for p := range h.pairs {
				s += queries[i][p][0]*keys[j][p][0] + queries[i][p][1]*keys[j][p][1]
			}
			scores[j] = s / math.Sqrt(headWidth)
			highest = max(highest, scores[j])
		}
		var sum float64
		mixed := make([]float64, len(h.values))
		for j := 0; j <= i; j++ {
			if scores[j] < highest-50 {
				continue // beyond the 53 bits of the sum
			}
			w := 1.0 // as for most: they are equally far from what the head looks for
			if scores[j] != highest {
				w = math.Exp(scores[j] - highest)
			}
			sum += w
			for c, v := range values[j] {
				mixed[c] += w * v
			}
		}
		for c, ch := range h.values {
			addTo(x[i], ch.write, mixed[c]/sum)
		}
	}
}

// logits returns the logit of every token after a stream of the last block.
func (n *network) logits(x []float64) []float64 {
	y := rmsNorm(x, n.norm)
	out := make([]float64, len(n.output)/n.width)
	for t := range out {
		out[t] = plainDot(n.output[t*n.width:(t+1)*n.width], y)
	}
	return out
}

func rmsNorm(x, weights []float64) []float64 {
	scale := 1 / math.Sqrt(plainDot(x, x)/float64(len(x))+normEpsilon)
	y := make([]float64, len(x))
	for i := range x {
		y[i] = x[i] * scale * weights[i]
	}
	return y
}

func plainDot(a, b []float64) float64 {
	var s float64
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

func addTo(x, direction []float64, times float64) {
	for i, v := range direction {
		x[i] += times * v
	}
}

func zero(rows ...[]float64) bool {
	for _, r := range rows {
		for _, v := range r {
			if v != 0 {
				return false
			}
		}
	}
	return true
}

func widen(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func (m *Model) tensor(name string) tensor { return m.tensors[m.byName[name]] }

func (m *Model) blockTensor(b int, part string) tensor { return m.tensor(blockName(b, part)) }

func (t tensor) row(i int) []float64 { return widen(t.values[i*t.columns : (i+1)*t.columns]) }

func (t tensor) column(i int) []float64 {
	c := make([]float64, t.rows)
	for r := range c {
		c[r] = float64(t.values[r*t.columns+i])
	}
	return c
}

// Logits returns the logit of every token after the last of tokens, from a
// forward pass in float64.
func (m *Model) Logits(tokens []int) []float64 {
	x := m.network().streams(tokens, nil, nil)
	return m.network().logits(x[len(x)-1])
}

// Streams returns the residual stream after each block at each position, from a
// forward pass in float64: [block][position][width].
func (m *Model) Streams(tokens []int) [][][]float64 {
	all := make([][][]float64, m.Spec.Blocks)
	m.network().streams(tokens, nil, func(b int, x [][]float64) {
		for _, v := range x {
			all[b] = append(all[b], append([]float64(nil), v...))
		}
	})
	return all
}
