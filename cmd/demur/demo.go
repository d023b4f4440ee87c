package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"demur/data"
	"demur/models"
	"demur/models/phantom"
	"demur/protocol"
)

// demoPlan is the sweep of the demo: 4 temperatures × 5 seeds.
func demoPlan() protocol.Plan {
	p := protocol.DefaultPlan()
	p.Model = models.Phantom
	p.Requests = requestsDemo
	p.MaxTokens = 64
	p.Context = 1024
	p.Pack = 12
	return p
}

// A comparison is a row of the demo: what was planted and what was measured. The
// accepted range, Lo to Hi, stands about the measurement and is simultaneous over
// all rows; it is of the sampling of answers alone, for the requests are fixed.
type comparison struct {
	Quantity string  `json:"quantity"`
	Group    string  `json:"group,omitempty"`
	Reading  string  `json:"reading,omitempty"` // free; empty for the bound one and for behaviour
	Planted  float64 `json:"planted"`
	Measured float64 `json:"measured"`
	Lo       float64 `json:"lo"`
	Hi       float64 `json:"hi"`
	OK       bool    `json:"ok"`
	Why      string  `json:"why,omitempty"` // a row is not ok because …
}

func newDemo(e *env) *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole instrument on a model whose inside is known",
		Long: `Builds the phantom, a small model whose weights are computed so that every
quantity demur measures has a known true value; asks it the built-in requests
through the same engine, store, judge and analysis as any model; and prints what
was planted beside what was measured. Exit code 6 if they do not agree.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd.Context(), e, o) },
	}
	bindEngine(c, &o.engine)
	bindReport(c, &o.report)
	c.Flags().StringVar(&o.preset, "preset", "default", "phantom to use; demur models phantom --help lists them")
	c.Flags().StringVarP(&o.out, "out", "o", "", "run directory (default a temporary one, removed at the end)")
	c.Flags().BoolVar(&o.json, "json", false, "print the rows as JSON")
	c.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	return c
}

type demoOptions struct {
	engine      engineFlags
	report      reportOptions
	preset, out string
	json, quiet bool
}

func demo(ctx context.Context, e *env, o demoOptions) error {
	spec, err := phantom.Preset(o.preset)
	if err != nil {
		return usage(err)
	}
	model, err := phantom.Build(spec)
	if err != nil {
		return err
	}
	plan := demoPlan()
	plan.Model = models.Phantom + ":" + o.preset
	dir := o.out
	if dir == "" {
		if dir, err = os.MkdirTemp("", "demur-demo-*"); err != nil {
			return usage(withHint(fmt.Errorf("temporary folder: %w", err), "set TMPDIR to a folder that can be written, or name one with --out"))
		}
		defer os.RemoveAll(dir)
		dir = filepath.Join(dir, "run")
	}
	silent := *e
	silent.stdout = e.stderr
	run := runOptions{engine: o.engine, out: dir, quiet: o.quiet, report: o.report}
	run.report.noTable = true
	if err := runAll(ctx, &silent, plan, run); err != nil {
		return err
	}
	rows, err := compareWithTruth(model, dir, plan)
	if err != nil {
		return err
	}
	return judgeDemo(e, rows, o)
}

// compareWithTruth puts the estimates of a run beside what was planted.
func compareWithTruth(model *phantom.Model, dir string, plan protocol.Plan) ([]comparison, error) {
	var requests []data.Request
	for r, err := range data.ReadTable[data.Request](dir, data.Requests) {
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	truth, err := truthOf(model, requests, plan)
	if err != nil {
		return nil, err
	}
	measured := measurements{}
	for x, err := range data.ReadTable[data.Estimate](dir, data.Estimates) {
		if err != nil {
			return nil, err
		}
		measured.add(x)
	}
	if err := measured.addMeans(dir); err != nil {
		return nil, err
	}
	return compareRows(truth.Quantities(), measured), nil
}

// measurements are the values of a run under the keys of the truth.
type measurements map[measurementKey]float64

type measurementKey struct{ name, group, reading string }

// keyOf names a quantity of the truth: the bound reading has no name there.
func keyOf(q phantom.Quantity) measurementKey { return measurementKey{q.Name, q.Group, q.Reading} }

// add notes an estimate of the headline's fold. The stability of labels is of
// three classes and so has no fold; behaviour has no reading, nor has the truth
// a name for the bound one.
func (m measurements) add(x data.Estimate) {
	labels := x.Metric == "ssi_mean" || x.Metric == "flip_rate"
	if x.Value == nil || labels != (x.Fold == "") || !labels && x.Fold != "lenient" {
		return
	}
	reading := x.Reading
	if reading == data.Grammar {
		reading = ""
	}
	m[measurementKey{x.Metric, x.Group, reading}] = *x.Value
}

// addMeans notes what the predictions state, averaged over prompts.
func (m measurements) addMeans(dir string) error {
	type sums struct{ n, harm, confidence, pRefuse float64 }
	by := map[string]*sums{"": {}, data.Exact: {}}
	err := each(dir, data.Predictions, func(p data.Prediction) {
		reading := p.Reading
		if reading == data.Grammar {
			reading = ""
		}
		of := by[reading]
		if of == nil || p.Confidence == nil || p.HarmRating == nil {
			return
		}
		of.n++
		of.harm += *p.HarmRating
		of.confidence += *p.Confidence
		if p.PRefuse != nil {
			of.pRefuse += *p.PRefuse
		}
	})
	for reading, of := range by {
		if of.n == 0 {
			continue
		}
		m[measurementKey{name: "harm_rating_mean", reading: reading}] = of.harm / of.n
		m[measurementKey{name: "confidence_mean", reading: reading}] = of.confidence / of.n
		if reading == data.Exact {
			m[measurementKey{name: "p_refuse_mean", reading: reading}] = of.pRefuse / of.n
		}
	}
	return err
}

// truthOf computes the truth of requests under a plan.
func truthOf(model *phantom.Model, requests []data.Request, plan protocol.Plan) (*phantom.Truth, error) {
	question, err := protocol.FindQuestion(plan.Questions[0])
	if err != nil {
		return nil, err
	}
	prompts := make([]phantom.Prompt, len(requests))
	for i, r := range requests {
		prompts[i] = phantom.Prompt{
			RequestID: r.ID, Variant: r.Variant,
			Respond: []phantom.Message{{Role: "user", Content: r.Text}},
			Predict: []phantom.Message{{Role: "user", Content: question.Ask(r)}},
		}
	}
	return model.Truth(prompts, phantom.Plan{Temperatures: plan.Temperatures, Seeds: len(plan.Seeds), Fold: phantom.Lenient})
}

// sharpness is the greatest half-width that a 95 % interval of a quantity may
// have: a row that says less than this is not ok, however well it agrees.
var sharpness = map[string]float64{
	"d_prime": 0.15, "criterion": 0.1,
	"refusal_rate": 0.03, "hit_rate": 0.03, "false_alarm_rate": 0.03, "predicted_refusal_rate": 0.03,
	"flip_rate": 0.05, "accuracy": 0.05, "routing_accuracy": 0.05, "routing_coverage": 0.05,
	"ece_fifths": 0.05, "ssi_mean": 0.05, "auc_p_refuse": 0.05, "auc_confidence": 0.05,
	"harm_rating_mean": 0.05, "confidence_mean": 0.05, "p_refuse_mean": 0.03,
}

// freeRows are the rows that are also given for the free reading.
var freeRows = map[string]bool{"accuracy": true, "hit_rate": true, "false_alarm_rate": true, "d_prime": true, "criterion": true, "predicted_refusal_rate": true}

// tolerance is what a quantity that is not sampled may be off: the engine
// computes in float32, with flash attention, what the truth has in float64.
const tolerance = 2e-3

// familyRisk is the chance that a sound instrument is called unsound, shared out
// over all rows.
const familyRisk = 0.01

// compareRows makes the table. Rows by temperature are given for the refusal
// rate alone: it is where a temperature that is not applied shows.
func compareRows(planted []phantom.Quantity, measured measurements) []comparison {
	var kept []phantom.Quantity
	for _, q := range planted {
		_, wanted := sharpness[q.Name]
		if q.Reading == phantom.FreeReading {
			wanted = freeRows[q.Name]
		}
		if wanted && (q.Group == "" || q.Name == "refusal_rate") {
			kept = append(kept, q)
		}
	}
	var rows []comparison
	for _, q := range kept {
		c := comparison{Quantity: q.Name, Group: q.Group, Reading: q.Reading, Planted: q.Planted}
		value, ok := measured[keyOf(q)]
		lo, hi := q.Interval(1-familyRisk, len(kept))
		// The interval is told around the measurement: what lies in it agrees.
		c.Measured, c.Lo, c.Hi = value, value-(hi-q.Planted)-tolerance, value+(q.Planted-lo)+tolerance
		limit := sharpness[q.Name]
		if q.Group != "" {
			limit *= 2 // a quarter of the trials
		}
		switch {
		case !ok:
			c.Measured, c.Lo, c.Hi = 0, 0, 0
			c.Why = "not measured"
		case 1.96*q.SE > limit:
			c.Why = fmt.Sprintf("95 %% half-width %.3f is more than %.3f", 1.96*q.SE, limit)
		case q.Planted < c.Lo || q.Planted > c.Hi:
			c.Why = "the planted value is outside"
		default:
			c.OK = true
		}
		rows = append(rows, c)
	}
	return rows
}

// judgeDemo prints the rows and says whether the instrument is calibrated.
func judgeDemo(e *env, rows []comparison, o demoOptions) error {
	bad := 0
	for _, r := range rows {
		if !r.OK {
			bad++
		}
	}
	if o.json {
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(rows); err != nil {
			return err
		}
	} else {
		t := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "quantity\tplanted\tmeasured\taccepted\t\t")
		for _, r := range rows {
			name, verdict := r.Quantity, "ok"
			if r.Group+r.Reading != "" {
				name += " (" + r.Group + r.Reading + ")"
			}
			if !r.OK {
				verdict = "OFF: " + r.Why
			}
			fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f to %.3f\t%s\t\n", name, r.Planted, r.Measured, r.Lo, r.Hi, verdict)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if bad > 0 {
		return withCode(exitIntegrity, fmt.Errorf("the instrument is NOT calibrated: %d of %d quantities are off", bad, len(rows)))
	}
	e.say("the instrument is calibrated: all %d quantities agree with what was planted", len(rows))
	if o.out != "" {
		e.say("report: %s", filepath.Join(o.out, "report.html"))
	} else {
		e.say("next: demur demo --out runs/demo keeps the run and its report.html; demur run --model FILE.gguf measures a model of yours")
	}
	return nil
}
