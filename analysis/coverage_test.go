package analysis_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"demur/analysis"
	"demur/data"
)

// A population of requests whose every estimand is known by integration, with
// code of its own. Request u ~ N(mean, 1) refuses with probability
// p = 1/(1+exp(−6u)); its prediction is a refusal if slope·(2p−1) + N(0, 1) > 0,
// and the size of that evidence gives the confidence.
type population struct {
	requests, draws int
	dprime, base    float64
	mean, slope     float64
	truth           map[string]float64
}

var confidenceCuts = []float64{0.3, 0.8, 1.4, 2.2}

func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

func refusalProbability(u float64) float64 { return 1 / (1 + math.Exp(-6*u)) }

// integrate averages f over u.
func (p *population) integrate(f func(prob float64) float64) float64 {
	const n = 2000
	var sum float64
	for i := range n {
		sum += f(refusalProbability(p.mean + normalQuantile((float64(i)+0.5)/n)))
	}
	return sum / n
}

func bisect(lo, hi float64, f func(x float64) float64) float64 {
	for range 60 {
		mid := (lo + hi) / 2
		if f(mid) < 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

func newPopulation(requests, draws int, dprime, base float64) *population {
	p := &population{requests: requests, draws: draws, dprime: dprime, base: base}
	p.mean = bisect(-5, 5, func(m float64) float64 {
		p.mean = m
		return p.integrate(func(prob float64) float64 { return prob }) - base
	})
	rates := func(slope float64) (h, f float64) {
		h = p.integrate(func(prob float64) float64 { return prob * normalCDF(slope*(2*prob-1)) }) / base
		f = p.integrate(func(prob float64) float64 { return (1 - prob) * normalCDF(slope*(2*prob-1)) }) / (1 - base)
		return h, f
	}
	p.slope = bisect(0, 20, func(s float64) float64 {
		h, f := rates(s)
		return normalQuantile(h) - normalQuantile(f) - dprime
	})
	h, f := rates(p.slope)
	p.truth = map[string]float64{
		"d_prime":      normalQuantile(h) - normalQuantile(f),
		"criterion":    -(normalQuantile(h) + normalQuantile(f)) / 2,
		"accuracy":     base*h + (1-base)*(1-f),
		"refusal_rate": base,
	}
	// P(level = k and right), P(level = k): evidence in (a, b] or [−b, −a).
	var ece float64
	for k := range 5 {
		a, b := 0.0, math.Inf(1)
		if k > 0 {
			a = confidenceCuts[k-1]
		}
		if k < 4 {
			b = confidenceCuts[k]
		}
		gap := p.integrate(func(prob float64) float64 {
			m := p.slope * (2*prob - 1)
			refuse, comply := normalCDF(b-m)-normalCDF(a-m), normalCDF(-a-m)-normalCDF(-b-m)
			return prob*refuse + (1-prob)*comply - float64(k+1)/5*(refuse+comply)
		})
		ece += math.Abs(gap)
	}
	p.truth["ece_fifths"] = ece
	p.truth["ssi_mean"] = p.integrate(func(prob float64) float64 {
		var sum float64
		choose := 1.0
		for x := 0; x <= draws; x++ {
			sum += choose * math.Pow(prob, float64(x)) * math.Pow(1-prob, float64(draws-x)) * float64(max(x, draws-x)) / float64(draws)
			choose *= float64(draws-x) / float64(x+1)
		}
		return sum
	})
	return p
}

// sample draws the population's requests anew.
func (p *population) sample(seed uint64) *analysis.Dataset {
	rng := rand.New(rand.NewPCG(seed, 99))
	d := analysis.NewDataset("population")
	for i := range p.requests {
		id := strconv.Itoa(i)
		prob := refusalProbability(p.mean + rng.NormFloat64())
		evidence := p.slope*(2*prob-1) + rng.NormFloat64()
		level := 1.0
		for _, cut := range confidenceCuts {
			if math.Abs(evidence) > cut {
				level++
			}
		}
		pred := data.Prediction{RequestID: id, Variant: data.Base, Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: data.WillComply, Confidence: &level}
		if evidence > 0 {
			pred.Outcome = data.WillRefuse
		}
		d.AddPrediction(pred)
		for s := range p.draws {
			tid := id + "/" + strconv.Itoa(s)
			d.AddTrial(data.Trial{ID: tid, RequestID: id, Variant: data.Base, Temperature: 1, Seed: uint32(s), StopReason: data.StopEnd})
			label := data.FullCompliance
			if rng.Float64() < prob {
				label = data.FullRefusal
			}
			d.AddVerdict(data.Verdict{TrialID: tid, Judge: "rules", Label: label})
		}
	}
	return d
}

var covered = []string{"d_prime", "criterion", "accuracy", "ece_fifths", "refusal_rate", "ssi_mean"}

// cover returns how often each interval holds the truth over data sets, and how
// often it was defined.
func (p *population) cover(t *testing.T, sets int) (share map[string]float64, defined map[string]int) {
	t.Helper()
	var mu sync.Mutex
	held, defined := map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for s := w; s < sets; s += workers {
				f, err := analysis.Analyse(p.sample(uint64(s)), analysis.Options{Brief: true})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, m := range covered {
					e := f.Find(m, "")
					if e == nil || e.Value == nil || e.Lo == nil {
						continue
					}
					defined[m]++
					if *e.Lo <= p.truth[m] && p.truth[m] <= *e.Hi {
						held[m]++
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	share = map[string]float64{}
	for m, n := range defined {
		share[m] = float64(held[m]) / float64(n)
	}
	return share, defined
}

// The 95 % intervals hold the truth between 92 and 98 % of the time when
// requests are redrawn. By default one population and 400 data sets, with room
// for the simulation's own error (2.6 standard errors); with DEMUR_LONG=1 the
// whole grid with 2,000 data sets a cell, which takes many minutes.
func TestCoverage(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		p := newPopulation(120, 5, 1.5, 0.3)
		share, _ := p.cover(t, 400)
		for _, m := range covered {
			se := math.Sqrt(0.95 * 0.05 / 400)
			if share[m] < 0.92-1.5*se || share[m] > 0.98+1.5*se {
				t.Errorf("%s: %.1f %% of intervals hold the truth", m, 100*share[m])
			}
		}
		return
	}
	sets := 2000
	if s := os.Getenv("DEMUR_COVERAGE_SETS"); s != "" {
		sets, _ = strconv.Atoi(s)
	}
	fmt.Printf("coverage in %% of 95 %% intervals over %d data sets a cell; standard error about %.1f\n", sets, 100*math.Sqrt(0.95*0.05/float64(sets)))
	fmt.Println("requests draws d′   base  " + strings.Join(covered, "  ") + "  (share of sets in which d′ is defined)")
	for _, requests := range []int{60, 100, 300} {
		for _, draws := range []int{3, 5, 20} {
			for _, dprime := range []float64{0.5, 1.5, 2.5} {
				for _, base := range []float64{0.1, 0.3, 0.5} {
					if only := os.Getenv("DEMUR_COVERAGE_ONLY"); only != "" && only != fmt.Sprint(requests) {
						continue
					}
					p := newPopulation(requests, draws, dprime, base)
					share, defined := p.cover(t, sets)
					line := fmt.Sprintf("%8d %5d %4.1f %5.2f ", requests, draws, dprime, base)
					for _, m := range covered {
						mark := " "
						switch outside := share[m] < 0.92 || share[m] > 0.98; {
						case outside && float64(requests)*base < 10:
							mark = "~" // such estimates carry a warning that says so
						case outside:
							mark = "*"
							t.Errorf("%d requests, %d draws, d′ %.1f, base %.2f: %s %.1f %%", requests, draws, dprime, base, m, 100*share[m])
						}
						line += fmt.Sprintf(" %*.1f%s", len(m)-1, 100*share[m], mark)
					}
					fmt.Printf("%s  %.3f\n", line, float64(defined["d_prime"])/float64(sets))
				}
			}
		}
	}
}
