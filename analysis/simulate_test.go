package analysis_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"demur/analysis"
	"demur/data"
)

// A world is a simulated model whose behaviour and self-prediction are known.
// Each request has an evidence value; it refuses with a probability that rises
// with it, the prediction sees it through noise.
type world struct {
	requests, variants int
	temps              []float64
	seeds              int
	bias               float64 // of the prediction: below 0 it predicts refusals too readily
	noise              float64 // of the prediction
	seed               uint64
}

var topics = []string{"baking", "gardening", "locks", "medicine", "money", "sailing"}

func (w world) dataset(name string, texts bool) *analysis.Dataset {
	rng := rand.New(rand.NewPCG(w.seed, 1))
	d := analysis.NewDataset(name)
	d.KeepTexts = texts
	for i := range w.requests {
		harm := 1 + i%5
		id := fmt.Sprintf("r-%04d", i)
		topic := topics[(i/5)%len(topics)]
		base := 2.6*(float64(harm)-3.4) + 1.2*rng.NormFloat64()
		for v := range w.variants {
			variant := []string{data.Base, data.P1, data.P2}[v]
			d.AddRequest(data.Request{ID: id, Variant: variant, Topic: topic, Harm: harm, Text: "How do I bake bread at home? <b>" + id + "</b>"})
			x := base + 0.8*rng.NormFloat64()
			seen := x + w.bias + w.noise*rng.NormFloat64()
			confidence := clampf(math.Round(2.8+math.Abs(seen)*0.8+0.5*rng.NormFloat64()), 1, 5)
			rating := clampf(math.Round(float64(harm)+0.7*rng.NormFloat64()), 1, 5)
			p := 1 / (1 + math.Exp(-1.3*(x+0.5*rng.NormFloat64())))
			for _, reading := range []string{data.Free, data.Grammar, data.Exact} {
				pred := data.Prediction{RequestID: id, Variant: variant, Question: "default", Polarity: data.AskRefuse, Reading: reading, Outcome: data.WillComply}
				if seen > 0 {
					pred.Outcome = data.WillRefuse
				}
				c, h := confidence, rating
				switch {
				case reading == data.Free && rng.Float64() < 0.25:
					pred.Outcome = data.Unparsed
				case reading == data.Exact:
					c = clampf(c+0.3*rng.NormFloat64(), 1, 5)
					pred.PRefuse = &p
					pred.Outcome = data.WillComply
					if p > 0.5 {
						pred.Outcome = data.WillRefuse
					}
					fallthrough
				default:
					pred.Confidence, pred.HarmRating = &c, &h
				}
				pred.ID = fmt.Sprint(id, variant, reading)
				d.AddPrediction(pred)
			}
			for _, temp := range w.temps {
				logit := 2.2 * x / (0.35 + temp)
				greedy := logit > 0
				for s := range w.seeds {
					refuses := rng.Float64() < 1/(1+math.Exp(-logit))
					if temp == 0 {
						refuses = greedy
					}
					label := data.FullCompliance
					switch u := rng.Float64(); {
					case refuses && u < 0.75:
						label = data.FullRefusal
					case refuses && u < 0.9:
						label = data.PartialRefusal
					case refuses:
						label = data.Deflection
					case u < 0.1:
						label = data.PartialCompliance
					case u < 0.12:
						label = data.Unclear
					}
					text := fmt.Sprint(label, " ", s)
					switch {
					case temp == 0 && refuses:
						label, text = data.FullRefusal, "no"
					case temp == 0:
						label, text = data.FullCompliance, "yes"
					}
					trial := data.Trial{ID: fmt.Sprint(id, variant, temp, s), RequestID: id, Variant: variant, Temperature: temp, Seed: uint32(42 + s), Text: text + " <script>alert(1)</script>", StopReason: data.StopEnd}
					d.AddTrial(trial)
					d.AddVerdict(data.Verdict{TrialID: trial.ID, Judge: "rules", Label: label})
				}
			}
		}
	}
	return d
}

func clampf(x, lo, hi float64) float64 { return math.Min(math.Max(x, lo), hi) }

// sweep is the plan of the stability paper on 300 requests in three wordings.
var sweep = world{requests: 300, variants: 3, temps: []float64{0, 0.3, 0.7, 1}, seeds: 5, bias: 0.4, noise: 1.2, seed: 7}
