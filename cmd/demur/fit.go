package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"demur/analysis"
	"demur/data"
	"demur/probes"
)

type fitOptions struct {
	targets      []string
	methods      []string
	judge        string
	fold         string
	phase        string
	permutations int
	resamples    int
	seeds        int
	seed         uint64
	quiet        bool
	json         bool
}

func newFit(e *env) *cobra.Command {
	var o fitOptions
	c := &cobra.Command{
		Use:   "fit RUN",
		Short: "Fit directions to the states that demur extract kept, with their controls",
		Long: `Fits linear directions for harm, refusal and prediction to the activations of a
run. Folds hold whole requests, site and strength are chosen inside of them, labels
are permuted through the whole procedure. What counts is the increment over the
text alone. Writes the tables directions and scores into the run directory.`,
		Example: "  demur fit runs/smol --targets harm,refusal",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return fit(e, args[0], o) },
	}
	fs := c.Flags()
	fs.StringSliceVar(&o.targets, "targets", []string{"harm", "refusal", "prediction"}, "harm, harm_graded, refusal, refusal_rate, prediction, attribute=value; each also \"within harmful\" and the like")
	fs.StringSliceVar(&o.methods, "methods", nil, "mean_difference, whitened, logistic, centroid, centroid_centred, ridge (default: all that suit the target)")
	fs.StringVar(&o.judge, "judge", "rules", "judge whose verdicts count")
	fs.StringVar(&o.fold, "fold", "lenient", "lenient or strict: which labels are refusals")
	fs.StringVar(&o.phase, "phase", string(data.Respond), "prompts whose states are looked at: respond or predict")
	fs.IntVar(&o.permutations, "permutations", 200, "of the labels; -1 for none")
	fs.IntVar(&o.resamples, "resamples", 2000, "of the cluster bootstrap; -1 for none")
	fs.IntVar(&o.seeds, "fold-seeds", 10, "ways to draw the folds")
	fs.Uint64Var(&o.seed, "seed", 0, "of folds, permutations and resamples")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	fs.BoolVar(&o.json, "json", false, "print the reports as JSON")
	return c
}

// fit fits every target and writes the directions and scores of all.
func fit(e *env, dir string, o fitOptions) error {
	var targets []probes.Target
	for _, name := range o.targets {
		t, err := probes.ParseTarget(strings.TrimSpace(name))
		if err != nil {
			return usage(err)
		}
		targets = append(targets, t)
	}
	fold, err := analysis.ParseFold(o.fold)
	if err != nil {
		return usage(err)
	}
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	tables, err := filepath.Glob(filepath.Join(dir, "activations", "*.parquet"))
	if err != nil || len(tables) == 0 {
		return usage(withHint(fmt.Errorf("%s holds no activations", dir), "demur extract "+dir+" --model FILE.gguf writes them"))
	}
	join := probes.Join{
		Requests: data.ReadTable[data.Request](dir, data.Requests), Prompts: data.ReadTable[data.Prompt](dir, data.Prompts),
		Trials: data.ReadTable[data.Trial](dir, data.Trials), Phase: data.Phase(o.phase), Judge: o.judge, Refused: fold.Refused,
	}
	if data.HasTable(dir, data.Verdicts) {
		join.Verdicts = data.ReadTable[data.Verdict](dir, data.Verdicts)
	}
	if data.HasTable(dir, data.Predictions) {
		join.Predictions = data.ReadTable[data.Prediction](dir, data.Predictions)
	}
	rows, err := join.Rows()
	if err != nil {
		return dataError(err)
	}
	states, missing, err := probes.Collect(activationTables(dir, tables))
	if err != nil {
		return dataError(err)
	}
	if len(missing) > 0 {
		e.say("%d prompts lack activations at some sites and are left out; the first is %.8s", len(missing), missing[0])
	}
	model := run.Manifest().Model
	options := probes.Options{
		Permutations: o.permutations, Resamples: o.resamples, Seeds: o.seeds, Seed: o.seed,
		Model: model.Name, ModelDigest: model.Digest, TemplateHash: model.TemplateHash,
	}
	for _, m := range o.methods {
		options.Methods = append(options.Methods, probes.Method(strings.TrimSpace(m)))
	}
	var reports []*probes.Report
	var directions []data.Direction
	var scores []data.Score
	for _, t := range targets {
		options.Target = t
		if !o.quiet {
			e.say("fitting %s", t.Name)
		}
		r, err := probes.Fit(rows, states, options)
		if err != nil {
			return usage(fmt.Errorf("target %s: %w", t.Name, err))
		}
		reports = append(reports, r)
		directions = append(directions, r.Directions()...)
		scores = append(scores, r.Scores()...)
	}
	err = errors.Join(data.WriteTable(dir, data.Directions, sequence(directions)), data.WriteTable(dir, data.Scores, sequence(scores)))
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(e.stdout).Encode(reports)
	}
	for _, r := range reports {
		writeFit(e.stdout, r)
	}
	return nil
}

// activationTables yields the rows of all layers.
func activationTables(dir string, files []string) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		for _, file := range files {
			name := "activations/" + strings.TrimSuffix(filepath.Base(file), ".parquet")
			for row, err := range data.ReadTable[data.Activation](dir, name) {
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// writeFit prints the figures of one target.
func writeFit(w io.Writer, r *probes.Report) {
	fmt.Fprintf(w, "%s: %d prompts of %d requests, %d positive\n", r.Target, r.Prompts, r.Requests, r.Positives)
	fmt.Fprintf(w, "  %-18s %-10s %-24s %-24s %s\n", "method", "site", r.Measure, "increment over text", "p")
	fmt.Fprintf(w, "  %-18s %-10s %s\n", "text alone", "", valueText(r.Text))
	for _, m := range r.Methods {
		p := ""
		if m.P != nil {
			p = fmt.Sprintf("%.3f", *m.P)
		}
		site := m.Site.String()
		if m.Site.Layer < -1 {
			site = "all " + m.Site.Anchor
		}
		fmt.Fprintf(w, "  %-18s %-10s %-24s %-24s %s\n", m.Method, site, valueText(m.Value), valueText(m.Increment), p)
	}
	for _, c := range r.Controls {
		fmt.Fprintf(w, "  control %-21s %s\n", c.Name, valueText(c.Value))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "  note: %s\n", warning)
	}
}

func valueText(v probes.Value) string {
	switch {
	case v.Value == nil:
		return "undefined"
	case v.Lo == nil || v.Hi == nil:
		return fmt.Sprintf("%.3f", *v.Value)
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", *v.Value, *v.Lo, *v.Hi)
}
