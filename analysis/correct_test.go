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

// The formula and its inverse: apparent prevalence is p·Se + (1−p)(1−Sp).
func TestRoganGladen(t *testing.T) {
	for _, c := range []struct{ judged, se, sp, want float64 }{
		// Rogan and Gladen 1978, equation 3, by hand: (0.26 + 0.95 − 1)/(0.8 + 0.95 − 1)
		{0.26, 0.8, 0.95, 0.28},
		{0.5, 1, 1, 0.5},
		{0.02, 0.9, 0.95, -0.03 / 0.85},
		{0.3, 0.5, 0.5, math.NaN()},
		{0.3, 0.4, 0.5, math.NaN()},
		{0.3, math.NaN(), 0.9, math.NaN()},
	} {
		got := analysis.RoganGladen(c.judged, c.se, c.sp)
		if math.IsNaN(got) != math.IsNaN(c.want) || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("judged %v, sensitivity %v, specificity %v: %v, want %v", c.judged, c.se, c.sp, got, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(5, 0))
	for range 1000 {
		p, se, sp := rng.Float64(), 0.5+rng.Float64()/2, 0.51+0.49*rng.Float64()
		if got := analysis.RoganGladen(p*se+(1-p)*(1-sp), se, sp); math.Abs(got-p) > 1e-9 {
			t.Fatalf("prevalence %v comes back as %v", p, got)
		}
	}
}

// A table seen through a judge comes back whole: cells are mixed with the judge's
// errors by hand and unmixed by CorrectCounts.
func TestCorrectCounts(t *testing.T) {
	truth := analysis.Counts{Hits: 60, Misses: 20, FalseAlarms: 30, CorrectRejections: 190}
	const se, sp = 0.85, 0.93
	seen := analysis.Counts{
		Hits: 60*se + 30*(1-sp), FalseAlarms: 60*(1-se) + 30*sp,
		Misses: 20*se + 190*(1-sp), CorrectRejections: 20*(1-se) + 190*sp,
	}
	got, below, above := analysis.CorrectCounts(seen, se, sp)
	for _, c := range [][2]float64{{got.Hits, 60}, {got.Misses, 20}, {got.FalseAlarms, 30}, {got.CorrectRejections, 190}, {below, 0}, {above, 0}} {
		if math.Abs(c[0]-c[1]) > 1e-9 {
			t.Errorf("got %+v (%v, %v), want %+v", got, below, above, truth)
		}
	}
	// Trials stay what they are: no prediction is changed, only behaviour.
	if math.Abs(got.Hits+got.FalseAlarms-seen.Hits-seen.FalseAlarms) > 1e-9 {
		t.Error("predicted refusals grew or shrank")
	}
	// Fewer judged refusals than a judge of this specificity gives by mistake.
	got, below, _ = analysis.CorrectCounts(analysis.Counts{Hits: 1, FalseAlarms: 99, Misses: 50, CorrectRejections: 50}, 0.9, 0.9)
	if got.Hits != 0 || math.Abs(below-0.09/0.8) > 1e-12 {
		t.Errorf("clipped to %+v, %v below", got, below)
	}
	if got, _, _ := analysis.CorrectCounts(seen, 0.4, 0.6); !math.IsNaN(got.Hits) {
		t.Errorf("a judge that tells nothing: %+v", got)
	}
}

// A judged is a population whose trials are labelled by a judge of known errors,
// and in part by people who make none.
type judged struct {
	*population
	se, sp    float64
	labelled  float64 // share of the trials that people label
	elsewhere int     // labelled responses of another run, instead
}

func (j judged) sample(seed uint64) *analysis.Dataset {
	rng := rand.New(rand.NewPCG(seed, 7))
	p := j.population
	d := analysis.NewDataset("population")
	judge := func(refused bool) data.Label {
		right := j.sp
		if refused {
			right = j.se
		}
		if (rng.Float64() < right) == refused {
			return data.FullRefusal
		}
		return data.FullCompliance
	}
	for i := range p.requests {
		id := strconv.Itoa(i)
		prob := refusalProbability(p.mean + rng.NormFloat64())
		pred := data.Prediction{RequestID: id, Variant: data.Base, Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: data.WillComply}
		if p.slope*(2*prob-1)+rng.NormFloat64() > 0 {
			pred.Outcome = data.WillRefuse
		}
		d.AddPrediction(pred)
		for s := range p.draws {
			tid := id + "/" + strconv.Itoa(s)
			d.AddTrial(data.Trial{ID: tid, RequestID: id, Variant: data.Base, Temperature: 1, Seed: uint32(s), StopReason: data.StopEnd})
			truth := data.FullCompliance
			if rng.Float64() < prob {
				truth = data.FullRefusal
			}
			d.AddVerdict(data.Verdict{TrialID: tid, Judge: "rules", Label: judge(truth == data.FullRefusal)})
			if j.elsewhere == 0 && rng.Float64() < j.labelled {
				d.AddVerdict(data.Verdict{TrialID: tid, Judge: "human", Label: truth})
			}
		}
	}
	for i := range j.elsewhere {
		truth := data.FullCompliance
		if rng.Float64() < 0.4 {
			truth = data.FullRefusal
		}
		d.AddLabelled("other-"+strconv.Itoa(i), judge(truth == data.FullRefusal), truth)
	}
	return d
}

var correctedMetrics = []string{"refusal_rate_corrected", "accuracy_corrected", "hit_rate_corrected", "false_alarm_rate_corrected", "d_prime_corrected", "criterion_corrected"}

// truths are the population's, by corrected metric.
func (p *population) truths() map[string]float64 {
	h := p.integrate(func(prob float64) float64 { return prob * normalCDF(p.slope*(2*prob-1)) }) / p.base
	f := p.integrate(func(prob float64) float64 { return (1 - prob) * normalCDF(p.slope*(2*prob-1)) }) / (1 - p.base)
	return map[string]float64{
		"refusal_rate_corrected": p.base, "accuracy_corrected": p.truth["accuracy"], "hit_rate_corrected": h, "false_alarm_rate_corrected": f,
		"d_prime_corrected": p.truth["d_prime"], "criterion_corrected": p.truth["criterion"],
	}
}

// A judge with known errors is undone: over redrawn data sets the corrected
// values lie about the truth, where the raw ones do not, and their 95 % intervals
// hold it 92 to 98 % of the time. By default 200 data sets a judge, with room for
// the simulation's own error; with DEMUR_LONG=1 the table of docs/metrics.md, of
// 1,000 data sets a row, whose standard error is 0.7.
func TestCorrectionRecoversPlantedTruth(t *testing.T) {
	sets, room := 200, 2.6*math.Sqrt(0.95*0.05/200)
	if os.Getenv("DEMUR_LONG") != "" {
		sets, room = 1000, 0
	}
	for _, c := range []struct {
		name string
		judged
	}{
		{"a fifth labelled", judged{population: newPopulation(150, 4, 1.5, 0.3), se: 0.85, sp: 0.92, labelled: 0.2}},
		{"all labelled", judged{population: newPopulation(100, 3, 1.5, 0.3), se: 0.8, sp: 0.95, labelled: 1}},
		{"a good judge", judged{population: newPopulation(120, 5, 1.5, 0.3), se: 0.97, sp: 0.98, labelled: 0.15}},
		{"labelled elsewhere", judged{population: newPopulation(120, 4, 1.5, 0.4), se: 0.8, sp: 0.9, elsewhere: 200}},
		{"few labelled", judged{population: newPopulation(100, 3, 1.5, 0.3), se: 0.9, sp: 0.95, labelled: 0.2}},
		{"rare refusals", judged{population: newPopulation(150, 4, 1.5, 0.15), se: 0.85, sp: 0.95, labelled: 0.2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			truth := c.truths()
			var mu sync.Mutex
			held, defined, raw := map[string]int{}, map[string]int{}, map[string]float64{}
			sum := map[string]float64{}
			var wg sync.WaitGroup
			workers := runtime.GOMAXPROCS(0)
			for w := range workers {
				wg.Go(func() {
					for s := w; s < sets; s += workers {
						f, err := analysis.Analyse(c.sample(uint64(s)), analysis.Options{Brief: true, Resamples: 400, Seed: uint64(s)})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						for _, m := range correctedMetrics {
							if e := f.Find(strings.TrimSuffix(m, "_corrected"), ""); e != nil && e.Value != nil {
								raw[m] += *e.Value / float64(sets)
							}
							e := f.Find(m, "")
							if e == nil || e.Value == nil || e.Lo == nil {
								continue
							}
							defined[m]++
							sum[m] += *e.Value
							if *e.Lo <= truth[m] && truth[m] <= *e.Hi {
								held[m]++
							}
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for _, m := range correctedMetrics {
				n := float64(defined[m])
				share, mean := float64(held[m])/n, sum[m]/n
				t.Logf("%-26s truth %6.3f  raw %6.3f  corrected %6.3f  intervals hold it %.1f %% (±%.1f) of %d", m, truth[m], raw[m], mean, 100*share, 100*math.Sqrt(share*(1-share)/n), defined[m])
				if n < 0.99*float64(sets) {
					t.Errorf("%s is defined in %v of %d data sets", m, n, sets)
				}
				if share < 0.92-room || share > 0.98+room {
					t.Errorf("%s: %.1f %% of intervals hold the truth", m, 100*share)
				}
				if off, rawOff := math.Abs(mean-truth[m]), math.Abs(raw[m]-truth[m]); off > 0.05 && off > 0.5*rawOff {
					t.Errorf("%s: mean %.3f, truth %.3f, raw %.3f", m, mean, truth[m], raw[m])
				}
			}
		})
	}
}

// planted builds a data set in which the judge's errors are as given, exactly: of
// n refusals and n compliances of two trials a request each.
func planted(n, missed, invented int, labelled func(i int) bool) *analysis.Dataset {
	d := analysis.NewDataset("m")
	for i := range 2 * n {
		id := fmt.Sprint(i)
		refused := i < n
		truth, judge := data.FullCompliance, data.FullCompliance
		if refused {
			truth = data.FullRefusal
		}
		if refused && i >= missed || !refused && i-n < invented {
			judge = data.FullRefusal
		}
		said := data.WillComply
		if i%3 == 0 {
			said = data.WillRefuse
		}
		d.AddPrediction(data.Prediction{RequestID: id, Variant: data.Base, Question: "default", Polarity: data.AskRefuse, Reading: data.Grammar, Outcome: said})
		d.AddTrial(data.Trial{ID: id, RequestID: id, Variant: data.Base, StopReason: data.StopEnd})
		d.AddVerdict(data.Verdict{TrialID: id, Judge: "rules", Label: judge})
		if labelled(i) {
			d.AddVerdict(data.Verdict{TrialID: id, Judge: "human", Label: truth})
		}
	}
	return d
}

// Where every trial is labelled the corrected refusal rate is that of the labels,
// whatever the judge: the formula gives its inputs back.
func TestCorrectionByAllLabels(t *testing.T) {
	d := planted(60, 12, 6, func(int) bool { return true })
	f := analyse(t, d, analysis.Options{Resamples: 300})
	near(t, "raw", *f.Find("refusal_rate", "").Value, 54.0/120, 1e-12)
	near(t, "corrected", *f.Find("refusal_rate_corrected", "").Value, 0.5, 1e-12)
	near(t, "sensitivity", *f.Find("judge_sensitivity", "").Value, 48.0/60, 1e-12)
	near(t, "specificity", *f.Find("judge_specificity", "").Value, 54.0/60, 1e-12)
	if len(f.JudgeErrors) != 2 || f.JudgeErrors[0].RefusedJudgedComplied != 12 || f.JudgeErrors[0].CompliedJudgedRefused != 6 {
		t.Errorf("judge errors %+v", f.JudgeErrors)
	}
	raw, corrected := f.Find("refusal_rate", ""), f.Find("refusal_rate_corrected", "")
	if !strings.Contains(corrected.Method, "Rogan") || strings.Contains(raw.Method, "Rogan") || len(corrected.Warnings) == 0 {
		t.Errorf("raw %+v, corrected %+v: they could be mixed up", raw, corrected)
	}
	names := map[string]bool{}
	for _, table := range f.Tables() {
		names[table.Name] = true
	}
	if !names["judge_error"] || !names["corrected"] || !names["agreement"] || !names["agreement_three"] {
		t.Errorf("tables %v", names)
	}
	// The judge is its own truth: there is nothing to correct.
	if f := analyse(t, d, analysis.Options{Resamples: 300, Judge: "human"}); f.Find("refusal_rate_corrected", "") != nil {
		t.Error("labels were corrected by themselves")
	}
}

func TestCorrectionUndefinedAndClipped(t *testing.T) {
	// Everything wrong: sensitivity + specificity ≤ 1.
	f := analyse(t, planted(40, 30, 20, func(int) bool { return true }), analysis.Options{Resamples: 200})
	if e := f.Find("refusal_rate_corrected", ""); e == nil || e.Value != nil || !strings.Contains(strings.Join(e.Warnings, ""), "no more than 1") {
		t.Errorf("a judge that tells nothing: %+v", e)
	}
	// Only compliances were labelled.
	f = analyse(t, planted(40, 5, 5, func(i int) bool { return i >= 40 }), analysis.Options{Resamples: 200})
	if e := f.Find("d_prime_corrected", ""); e == nil || e.Value != nil || !strings.Contains(strings.Join(e.Warnings, ""), "sensitivity is not known") {
		t.Errorf("no labelled refusal: %+v", e)
	}
	// Fewer judged refusals than the labelled compliances alone make one expect:
	// the labelled are those that the judge got wrong.
	f = analyse(t, planted(200, 199, 20, func(i int) bool { return i == 199 || i >= 200 && i < 240 }), analysis.Options{Resamples: 200})
	e := f.Find("refusal_rate_corrected", "")
	if e == nil || e.Value == nil || *e.Value != 0 || !strings.Contains(strings.Join(e.Warnings, "; "), "outside 0 to 1: clipped") {
		t.Errorf("a rate below 0: %+v", e)
	}
	if !strings.Contains(strings.Join(f.Warnings, " "), "no random sample") {
		t.Errorf("a chosen sample brings no warning: %q", f.Warnings)
	}
	// Nobody labelled anything.
	if f := analyse(t, planted(40, 5, 5, func(int) bool { return false }), analysis.Options{Resamples: 200}); f.Find("refusal_rate_corrected", "") != nil || len(f.JudgeErrors) != 0 {
		t.Error("corrected without labels")
	}
}
