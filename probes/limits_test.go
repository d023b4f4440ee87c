package probes_test

import (
	"fmt"
	"math"
	"testing"

	"demur/models/phantom"
	"demur/probes"
)

// majority is the probability that of n trials more than half are refused.
func majority(p float64, n int) float64 {
	var sum float64
	for k := n/2 + 1; k <= n; k++ {
		lgN, _ := math.Lgamma(float64(n + 1))
		lgK, _ := math.Lgamma(float64(k + 1))
		lgR, _ := math.Lgamma(float64(n - k + 1))
		sum += math.Exp(lgN-lgK-lgR) * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
	}
	return sum
}

func show(v probes.Value) string {
	f := func(p *float64) string {
		if p == nil {
			return "undefined"
		}
		return fmt.Sprintf("%.4f", *p)
	}
	return f(v.Value) + " [" + f(v.Lo) + ", " + f(v.Hi) + "]"
}

// at keeps one site.
func at(layer int, anchor string) func(probes.Site) bool {
	return func(s probes.Site) bool { return s == probes.Site{Layer: layer, Anchor: anchor} }
}

// TestMethodsReachTheirLimits: each method, on one draw of labels, finds the
// direction that it converges to as draws grow without bound, computed by the
// phantom from the true probabilities with code of its own.
func TestMethodsReachTheirLimits(t *testing.T) {
	const strength, penalty = 0.1, 0.05
	for _, preset := range []string{"default", "one-direction"} {
		s := studyOf(t, preset)
		for _, c := range []struct {
			target probes.Target
			layer  int
			anchor string
			p      func(i int) (float64, bool)
		}{
			{probes.Harm(), 1, probes.Inst, func(i int) (float64, bool) {
				h := s.rows[i].Harm
				return map[bool]float64{true: 1}[h > 3], h != 3
			}},
			{probes.Refusal(), 3, probes.Post, func(i int) (float64, bool) { return majority(s.truth[i].PRefuse[0], plan.Seeds), true }},
		} {
			name := preset + ", " + c.target.Name
			var x [][]float64
			var p []float64
			for i, r := range s.rows {
				if q, ok := c.p(i); ok {
					v := s.states.Values(r.PromptID, probes.Site{Layer: c.layer, Anchor: c.anchor})
					w := make([]float64, len(v))
					for j := range v {
						w[j] = float64(v[j])
					}
					x, p = append(x, w), append(p, q)
				}
			}
			total, inside, sd := traces(x, p)
			limits, err := phantom.Estimators(x, p, strength*total/inside, 1)
			if err != nil {
				t.Fatal(name, err)
			}
			for i := range x {
				for j := range x[i] {
					x[i][j] /= sd[j]
				}
			}
			scaled, err := phantom.Estimators(x, p, 1, penalty)
			if err != nil {
				t.Fatal(name, err)
			}
			for j := range sd {
				scaled.Logistic[j] /= sd[j]
			}
			r, err := probes.Fit(s.rows, s.states, probes.Options{
				Target: c.target, Sites: at(c.layer, c.anchor), Methods: []probes.Method{probes.MeanDifference, probes.Whitened, probes.Logistic},
				Seeds: 1, Permutations: -1, Resamples: 200, Random: 1, Strengths: []float64{strength}, Penalties: []float64{penalty},
			})
			if err != nil {
				t.Fatal(name, err)
			}
			if c.target.Name == "harm" {
				// Prompts of level 3 have no label, and are scored by the direction itself.
				without := 0
				for _, sc := range r.Methods[0].Scores {
					if sc.Fold == -1 && sc.Label == nil {
						without++
					}
				}
				if without != 200 || len(r.Methods[0].Scores) != 600 || r.Prompts != 400 {
					t.Errorf("%s: %d of %d scores are of prompts without a label", name, without, len(r.Methods[0].Scores))
				}
			}
			for k, limit := range [][]float64{limits.MeanDifference, limits.LDA, scaled.Logistic} {
				m := r.Methods[k]
				got := make([]float64, len(limit))
				for j, v := range m.Directions[0].Weights {
					got[j] = float64(v)
				}
				cos := phantom.Cosine(got, limit)
				t.Logf("%s, %s: cosine with its limit %.5f, AUROC %s, best %.4f", name, m.Method, cos, show(m.Value), limits.BestAUROC)
				if cos < 0.99 {
					t.Errorf("%s: %s has cosine %.4f with what it converges to", name, m.Method, cos)
				}
				// Where that is the planted direction, or what the phantom itself reads the
				// refusal with, it finds it.
				_, refusal := s.model.Directions()
				switch {
				case c.target.Name != "refusal":
				case preset == "one-direction" && m.Method == probes.MeanDifference:
					if cos := phantom.Cosine(got, refusal.Vector); cos < 0.99 {
						t.Errorf("%s: %s has cosine %.4f with the planted direction", name, m.Method, cos)
					}
				case preset == "default" && m.Method == probes.Whitened:
					if cos := phantom.Cosine(got, refusal.ReadOut); cos < 0.95 {
						t.Errorf("%s: %s has cosine %.4f with the phantom's own read-out", name, m.Method, cos)
					}
				}
			}
			if m := r.Methods[1]; *m.Value.Hi < limits.BestAUROC-0.005 && preset == "default" && c.target.Name == "refusal" {
				t.Errorf("%s: AUROC %s, the best there can be is %.4f", name, show(m.Value), limits.BestAUROC)
			}
		}
	}
}

// traces are the sum of squares about the mean, about the class means, and the
// standard deviations.
func traces(x [][]float64, p []float64) (total, inside float64, sd []float64) {
	width, n := len(x[0]), float64(len(x))
	mean, one, zero := make([]float64, width), make([]float64, width), make([]float64, width)
	var n1 float64
	for i, v := range x {
		n1 += p[i]
		for j := range v {
			mean[j] += v[j] / n
			one[j] += p[i] * v[j]
			zero[j] += (1 - p[i]) * v[j]
		}
	}
	sd = make([]float64, width)
	for i, v := range x {
		for j := range v {
			a, b := v[j]-one[j]/n1, v[j]-zero[j]/(n-n1)
			total += (v[j] - mean[j]) * (v[j] - mean[j]) / n
			sd[j] += (v[j] - mean[j]) * (v[j] - mean[j]) / n
			inside += (p[i]*a*a + (1-p[i])*b*b) / n
		}
	}
	for j := range sd {
		sd[j] = math.Sqrt(sd[j])
	}
	return total, inside, sd
}
