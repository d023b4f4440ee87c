package llamacpp

import (
	"math"
	"math/rand/v2"
	"testing"

	"demur/data"
)

// logitsLike returns a row with the spread of a language model's: most tokens
// far below the few likely ones.
func logitsLike(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()*3 + 2)
	}
	for range 20 {
		x[r.IntN(n)] = float32(14 + 3*r.NormFloat64())
	}
	return x
}

func BenchmarkDraw(b *testing.B) {
	x := logitsLike(49152, 1)
	for _, c := range []struct {
		name        string
		temperature float64
	}{{"0.3", 0.3}, {"0.7", 0.7}, {"1", 1}} {
		b.Run(c.name, func(b *testing.B) {
			for i := range b.N {
				d := newDist(x, x[argmax(x)], c.temperature)
				t := d.draw(uniforms(i).at(i, 0))
				_ = d.logprob(t)
			}
		})
	}
	b.Run("0", func(b *testing.B) {
		for range b.N {
			argmax(x)
		}
	})
}

// exp against math.Exp, which is exact to an ulp or so.
func TestExp(t *testing.T) {
	worst := 0.0
	for x := -700.0; x <= 0; x += 0.00137 {
		if e := math.Abs(exp(x)/math.Exp(x) - 1); e > worst {
			worst = e
		}
	}
	if worst > 1e-12 {
		t.Errorf("relative error %g", worst)
	}
	if exp(0) != 1 {
		t.Errorf("exp(0) = %v", exp(0))
	}
}

// exact returns the softmax at a temperature by the plainest formula.
func exact(x []float32, temperature float64) []float64 {
	top := math.Inf(-1)
	for _, l := range x {
		top = max(top, float64(l))
	}
	p, z := make([]float64, len(x)), 0.0
	for i, l := range x {
		p[i] = math.Exp((float64(l) - top) / temperature)
		z += p[i]
	}
	for i := range p {
		p[i] /= z
	}
	return p
}

func TestLogprobIsSoftmax(t *testing.T) {
	x := logitsLike(5000, 2)
	for _, temperature := range []float64{0.05, 0.3, 0.7, 1, 2, 10} {
		p, d := exact(x, temperature), newDist(x, x[argmax(x)], temperature)
		for i := range x {
			if got := math.Exp(d.logprob(int32(i))); math.Abs(got-p[i]) > 1e-9 {
				t.Fatalf("temperature %v, token %d: %v, want %v", temperature, i, got, p[i])
			}
		}
	}
}

// Draws follow the softmax: chi-squared over the likeliest tokens, each with at
// least 5 expected draws, and the rest as one class. The seeds are fixed, so the
// test cannot fail by chance once it has passed.
func TestDrawFollowsSoftmax(t *testing.T) {
	const draws = 40000
	x := logitsLike(3000, 3)
	for _, temperature := range []float64{0.3, 0.7, 1} {
		p, d := exact(x, temperature), newDist(x, x[argmax(x)], temperature)
		count := make([]int, len(x))
		for seed := range uint32(draws) {
			k := newUniforms(data.Sampling{Temperature: temperature, Seed: seed}, "prompt")
			count[d.draw(k.at(7, 0))]++
		}
		chi, classes, rest, restCount := 0.0, 0, 1.0, draws
		for i := range p {
			if want := p[i] * draws; want >= 5 {
				diff := float64(count[i]) - want
				chi += diff * diff / want
				classes++
				rest -= p[i]
				restCount -= count[i]
			}
		}
		if want := rest * draws; want > 5 {
			diff := float64(restCount) - want
			chi += diff * diff / want
			classes++
		}
		// Mean and variance of chi-squared with k degrees of freedom are k and 2k.
		k := float64(classes - 1)
		if z := (chi - k) / math.Sqrt(2*k); math.Abs(z) > 4 {
			t.Errorf("temperature %v: chi-squared %v with %v degrees of freedom (z = %.1f)", temperature, chi, k, z)
		}
	}
}

// Every u in [0, 1) gives a token, in the order of the cumulative distribution.
func TestDrawIsMonotone(t *testing.T) {
	x := logitsLike(2000, 4)
	d := newDist(x, x[argmax(x)], 1)
	last := int32(-1)
	for i := range 10001 {
		got := d.draw(math.Min(float64(i)/10000, 1-0x1p-53))
		if got < last {
			t.Fatalf("u = %v gives token %d, a smaller u gave %d", float64(i)/10000, got, last)
		}
		last = got
	}
	// Tokens without probability are never drawn.
	x = []float32{float32(math.Inf(-1)), 0, float32(math.Inf(-1)), 0, float32(math.Inf(-1))}
	d = newDist(x, x[argmax(x)], 1)
	for _, u := range []float64{0, 0.25, 0.5, 0.75, 1 - 0x1p-53} {
		if got, want := d.draw(u), int32(1); u < 0.5 && got != want {
			t.Errorf("u = %v: token %d, want %d", u, got, want)
		} else if want = 3; u >= 0.5 && got != want {
			t.Errorf("u = %v: token %d, want %d", u, got, want)
		}
	}
}

func TestArgmaxTies(t *testing.T) {
	for _, c := range []struct {
		x    []float32
		want int32
	}{
		{[]float32{1, 3, 3, 2}, 1},
		{[]float32{3, 1, 3}, 0},
		{[]float32{-1, -2}, 0},
	} {
		if got := argmax(c.x); got != c.want {
			t.Errorf("argmax(%v) = %d, want %d", c.x, got, c.want)
		}
	}
}

// Keys that differ in seed, temperature or prompt give unrelated uniforms; equal
// ones give equal ones.
func TestUniforms(t *testing.T) {
	base := data.Sampling{Temperature: 0.7, Seed: 42}
	same := newUniforms(base, "p")
	others := []uniforms{
		newUniforms(data.Sampling{Temperature: 0.7, Seed: 43}, "p"),
		newUniforms(data.Sampling{Temperature: 1, Seed: 42}, "p"),
		newUniforms(base, "q"),
	}
	if newUniforms(base, "p") != same {
		t.Error("equal keys give different streams")
	}
	const n = 20000
	for i, other := range others {
		// Correlation of n pairs of independent uniforms has standard deviation 1/√n.
		sum, mean := 0.0, 0.0
		for j := range n {
			u, v := same.at(j, 0), other.at(j, 0)
			if u < 0 || u >= 1 {
				t.Fatalf("uniform %v", u)
			}
			sum += (u - 0.5) * (v - 0.5) * 12
			mean += u
		}
		if r := sum / n; math.Abs(r) > 4/math.Sqrt(n) {
			t.Errorf("key %d: correlation %v", i, r)
		}
		if m := mean / n; math.Abs(m-0.5) > 4/math.Sqrt(12*n) {
			t.Errorf("mean %v", m)
		}
	}
	if same.at(3, 0) == same.at(3, 1) {
		t.Error("the second draw of a token repeats the first")
	}
}

func TestTruncate(t *testing.T) {
	// Probabilities 0.4, 0.3, 0.2, 0.1 of tokens 3, 1, 0, 2.
	logits := []float32{float32(math.Log(0.2)), float32(math.Log(0.3)), float32(math.Log(0.1)), float32(math.Log(0.4))}
	cs := newDist(logits, logits[argmax(logits)], 1).candidates(true)
	for _, c := range []struct {
		name string
		s    data.Sampling
		want []int32
	}{
		{"nothing", data.Sampling{}, []int32{0, 1, 2, 3}},
		{"top-k 2", data.Sampling{TopK: 2}, []int32{1, 3}},
		{"top-k beyond", data.Sampling{TopK: 9}, []int32{0, 1, 2, 3}},
		{"top-p 0.65", data.Sampling{TopP: 0.65}, []int32{1, 3}},
		{"top-p 0.75", data.Sampling{TopP: 0.75}, []int32{0, 1, 3}},
		{"top-p 1", data.Sampling{TopP: 1}, []int32{0, 1, 2, 3}},
		{"min-p 0.6", data.Sampling{MinP: 0.6}, []int32{1, 3}},
		{"top-k 3 and min-p 0.6", data.Sampling{TopK: 3, MinP: 0.6}, []int32{1, 3}},
	} {
		var got []int32
		for _, x := range truncate(cs, c.s) {
			got = append(got, x.token)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
}

func FuzzDraw(f *testing.F) {
	f.Add(uint64(1), 0.5, 1.0)
	f.Fuzz(func(t *testing.T, seed uint64, u, temperature float64) {
		if !(u >= 0 && u < 1) || !(temperature > 1e-3 && temperature < 1e3) {
			t.Skip()
		}
		x := logitsLike(int(seed%3000)+1, seed)
		d := newDist(x, x[argmax(x)], temperature)
		got := d.draw(u)
		if got < 0 || int(got) >= len(x) {
			t.Fatalf("token %d of %d", got, len(x))
		}
		if lp := d.logprob(got); lp > 1e-9 || math.IsNaN(lp) {
			t.Fatalf("log probability %v", lp)
		}
	})
}
