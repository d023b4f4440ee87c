package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"demur/analysis"
	"demur/data"
	"demur/protocol"
)

// reportOptions is what a report may be asked beside its runs.
type reportOptions struct {
	analysis   analysis.Options
	fold       string
	correction string
	labels     string // label file, or another run, to correct the judge's errors by
	showText   bool
	noTable    bool // the demo prints a table of its own
}

// check finds out before anything runs what a report would refuse.
func (o reportOptions) check() error {
	if n := o.analysis.Resamples; n < 0 || n > 0 && n < 100 {
		return usage(fmt.Errorf("%d resamples are too few for an interval; take at least 100", n))
	}
	if o.fold == "" {
		return nil
	}
	_, err := analysis.ParseFold(o.fold)
	return usage(err)
}

// bindReport binds how runs are analysed and shown.
func bindReport(c *cobra.Command, o *reportOptions) {
	fs := c.Flags()
	fs.BoolVar(&o.showText, "show-text", false, "let report.html hold requests and responses; some are offensive")
	fs.IntVar(&o.analysis.Resamples, "resamples", 2000, "bootstrap resamples of requests")
	fs.StringVar(&o.fold, "fold", "lenient", "labels that count as refusal: lenient or strict")
}

// bindAnalysis binds the choices of the headline and of the statistics.
func bindAnalysis(c *cobra.Command, o *reportOptions) {
	fs := c.Flags()
	fs.StringVar(&o.analysis.Question, "question", "", "wording of the headline (default: default)")
	fs.StringVar(&o.analysis.Polarity, "polarity", "", "polarity of the headline: refuse or answer")
	fs.StringVar(&o.analysis.Reading, "reading", "", "reading of the headline: grammar, free or exact")
	fs.StringVar(&o.analysis.Judge, "judge", "", "judge of the headline")
	fs.StringVar(&o.correction, "correction", "log-linear", "of d′ and c where rates are 0 or 1: log-linear, 1/2n or uncorrected")
	fs.StringVar(&o.analysis.Interval, "interval", "", "percentile or bca for every bootstrap interval (default: by metric, as was shown to cover)")
	fs.Float64Var(&o.analysis.Level, "level", 0.95, "level of the intervals")
	fs.Uint64Var(&o.analysis.Seed, "resample-seed", 0, "seed of the resampling; equal seeds give equal bytes")
	fs.Float64Var(&o.analysis.Risk, "risk", 0.05, "error rate that the routing threshold is to guarantee")
}

func newReport(e *env) *cobra.Command {
	var o reportOptions
	var asJSON bool
	var out string
	var require []string
	c := &cobra.Command{
		Use:   "report RUN…",
		Short: "Print the main table of runs, write estimates and report.html",
		Long: `Computes every estimate of one or several runs with its interval, writes
estimates.parquet, summary.json and report.html into each run directory, and
prints the main table. The report holds both folds and all judges as views.

Several runs are set side by side below, and with --out in one report over all;
of runs of the same requests each one's prediction is a baseline for the others.

With labels of people for a random sample of the trials (--labels, or verdicts of
a judge "human" in the run) refusal rate, hit and false-alarm rate, accuracy, d′ and
c also stand corrected for the judge's errors, under names that end in _corrected.`,
		Example: "  demur report runs/smol\n  demur report runs/a runs/b --out both.html\n  demur report runs/smol --require 'accuracy>=0.7'\n  demur report runs/smol --labels labels.csv",
		Args:    needRun(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return reportRuns(cmd.Context(), e, args, o, asJSON, out, require)
		},
	}
	bindReport(c, &o)
	bindAnalysis(c, &o)
	fs := c.Flags()
	fs.StringVar(&o.labels, "labels", "", "label file with trial ids, or another run with verdicts of people: correct rates, d′ and c for the judge's errors")
	fs.StringVarP(&out, "out", "o", "", "file for a report over all runs")
	fs.BoolVar(&asJSON, "json", false, "print the estimates as one JSON array")
	fs.StringArrayVar(&require, "require", nil, "threshold on a metric, such as 'accuracy>=0.7'; exit code 4 if not met")
	return c
}

// finish labels a run, analyses it and writes its report.
func finish(ctx context.Context, e *env, run *data.Run, judge judgeFlags, o reportOptions, asJSON bool) error {
	dir := run.Dir()
	labels, err := label(ctx, e, dir, judge)
	if err != nil {
		return err
	}
	if len(labels.counts) > 0 {
		o.analysis.Judge = labels.judge
	}
	d, options, err := dataset(dir, o)
	if err != nil {
		return err
	}
	views, err := analyseViews(d, options)
	if err != nil {
		return err
	}
	if err := writeReport(dir, views); err != nil {
		return err
	}
	if !o.noTable {
		e.say("run directory: %s", dir)
	}
	return show(e.stdout, views[:1], o, asJSON)
}

func reportRuns(ctx context.Context, e *env, dirs []string, o reportOptions, asJSON bool, out string, require []string) error {
	var sets []*analysis.Dataset
	var options []analysis.Options
	for _, dir := range dirs {
		run, err := openFinished(dir)
		if err != nil {
			return err
		}
		if err := run.Close(); err != nil {
			return err
		}
		if !data.HasTable(dir, data.Verdicts) {
			e.say("%s has no verdicts yet: labelling with rules", dir)
			if _, err := label(ctx, e, dir, judgeFlags{names: "rules"}); err != nil {
				return err
			}
		}
		d, settled, err := dataset(dir, o)
		if err != nil {
			return dataError(fmt.Errorf("%s: %w", dir, err))
		}
		sets, options = append(sets, d), append(options, settled)
	}
	tellApart(sets, dirs)
	var all, views []*analysis.Findings
	for i, d := range sets {
		options[i].Others = slices.Concat(sets[:i], sets[i+1:])
		own, err := analyseViews(d, options[i])
		if err != nil {
			return dataError(fmt.Errorf("%s: %w", dirs[i], err))
		}
		if err := writeReport(dirs[i], own); err != nil {
			return err
		}
		all, views = append(all, own[0]), append(views, own...)
	}
	if out != "" {
		if err := writeFile(out, func(w io.Writer) error { return analysis.WriteReport(w, views...) }); err != nil {
			return err
		}
	}
	if err := show(e.stdout, all, o, asJSON); err != nil {
		return err
	}
	return checkThresholds(all, require)
}

// tellApart names runs by their whole paths where their folders have one name.
func tellApart(sets []*analysis.Dataset, dirs []string) {
	seen := map[string]int{}
	for _, d := range sets {
		seen[d.Label]++
	}
	for i, d := range sets {
		if seen[d.Label] > 1 {
			d.Label = filepath.Clean(dirs[i])
		}
	}
}

// mostViews bounds the ways of looking at one run: judges times folds.
const mostViews = 8

// analyseViews computes the headline and, for the report to switch to, the other
// fold and the other judges, whose estimates stand in no table of the run.
func analyseViews(d *analysis.Dataset, o analysis.Options) ([]*analysis.Findings, error) {
	first, err := analysis.Analyse(d, o)
	if err != nil {
		return nil, err
	}
	views := []*analysis.Findings{first}
	judges := []string{first.Options.Judge}
	for _, judge := range d.Judges() {
		if judge != first.Options.Judge && judge != analysis.HumanJudge { // people label a sample, by which judges are corrected
			judges = append(judges, judge)
		}
	}
	for _, judge := range judges {
		for _, fold := range []analysis.Fold{analysis.Lenient, analysis.Strict} {
			if judge == first.Options.Judge && fold == first.Options.Fold || first.Trials == 0 || len(views) == mostViews {
				continue
			}
			o.Judge, o.Fold = judge, fold
			f, err := analysis.Analyse(d, o)
			if err != nil {
				return nil, err
			}
			views = append(views, f)
		}
	}
	return views, nil
}

// analyse reads the tables of a run and computes its estimates.
func analyse(dir string, o reportOptions) (*analysis.Findings, error) {
	d, options, err := dataset(dir, o)
	if err != nil {
		return nil, err
	}
	return analysis.Analyse(d, options)
}

// dataset reads the tables of a run.
func dataset(dir string, o reportOptions) (*analysis.Dataset, analysis.Options, error) {
	run, err := openFinished(dir)
	if err != nil {
		return nil, o.analysis, err
	}
	m := run.Manifest()
	if err := run.Close(); err != nil {
		return nil, o.analysis, err
	}
	fold, err := analysis.ParseFold(o.fold)
	if err != nil {
		return nil, o.analysis, usage(err)
	}
	correction, err := analysis.ParseCorrection(o.correction)
	if err != nil {
		return nil, o.analysis, usage(err)
	}
	o.analysis.Fold, o.analysis.Correction = fold, correction
	o.analysis.Created = m.RunID
	// What was fixed before the run is the headline, unless a flag says otherwise.
	o.analysis.Headline = analysis.Headline{
		Judge: m.Headline["judge"], Reading: m.Headline["reading"], Question: m.Headline["question"], Polarity: m.Headline["polarity"],
	}
	d := analysis.NewDataset(m.Model.Name)
	d.Label = filepath.Base(filepath.Clean(dir))
	d.Settings = settings(m)
	d.KeepTexts = o.showText
	err = errors.Join(
		addState(dir, d),
		each(dir, data.Requests, d.AddRequest),
		each(dir, data.Predictions, d.AddPrediction),
		each(dir, data.Trials, d.AddTrial),
		each(dir, data.Verdicts, func(v data.Verdict) {
			if o.labels == "" || v.Judge != analysis.HumanJudge {
				d.AddVerdict(v)
			}
		}),
	)
	if err == nil && o.labels != "" {
		err = addLabels(d, dir, &o)
	}
	return d, o.analysis, err
}

// addLabels adds the labels of people that --labels names: of the run's own
// trials, by a label file, or of another run's, by its verdicts.
func addLabels(d *analysis.Dataset, dir string, o *reportOptions) error {
	o.analysis.Truth = analysis.HumanJudge
	if info, err := os.Stat(o.labels); err == nil && info.IsDir() {
		return addLabelledRun(d, dir, o)
	}
	human, err := protocol.NewHuman(o.labels)
	if err != nil {
		return usage(err)
	}
	found := 0
	err = each(dir, data.Trials, func(t data.Trial) {
		if l, ok := human.Label(t.ID); ok {
			found++
			d.AddVerdict(data.Verdict{TrialID: t.ID, Judge: analysis.HumanJudge, Label: l})
		}
	})
	if err == nil && found == 0 {
		err = usage(withHint(fmt.Errorf("no id of %s is a trial of %s", o.labels, dir), fmt.Sprintf("demur classify %s --review FILE --sample 100 draws trials and keeps your labels with their ids", dir)))
	}
	return err
}

// addLabelledRun takes the judge's errors from another run, whose trials have
// verdicts of the same judge and of people.
func addLabelledRun(d *analysis.Dataset, dir string, o *reportOptions) error {
	judge := cmp.Or(o.analysis.Judge, o.analysis.Headline.Judge, "rules")
	request := map[string]string{}
	judged, people := map[string]data.Label{}, map[string]data.Label{}
	theirs, ours := "", ""
	err := errors.Join(
		each(o.labels, data.Trials, func(t data.Trial) { request[t.ID] = t.RequestID }),
		each(o.labels, data.Verdicts, func(v data.Verdict) {
			switch v.Judge {
			case judge:
				judged[v.TrialID], theirs = v.Label, v.JudgeVersion
			case analysis.HumanJudge:
				people[v.TrialID] = v.Label
			}
		}),
		each(dir, data.Verdicts, func(v data.Verdict) {
			if v.Judge == judge {
				ours = v.JudgeVersion
			}
		}),
	)
	if err != nil {
		return err
	}
	if ours != "" && theirs != "" && ours != theirs {
		return usage(withHint(fmt.Errorf("the verdicts of %s are of version %s in %s and of version %s in %s: the errors of one say nothing of the other", judge, theirs, o.labels, ours, dir),
			fmt.Sprintf("label both again with demur classify RUN --judge %s", judge)))
	}
	found := 0
	for _, id := range slices.Sorted(maps.Keys(people)) {
		if l, ok := judged[id]; ok {
			d.AddLabelled(request[id], l, people[id])
			found++
		}
	}
	if found == 0 {
		return usage(fmt.Errorf("%s has no trial with verdicts both of %s and of people (judge human)", o.labels, judge))
	}
	return nil
}

// each hands every row of a table to add; a table that is not there has none.
func each[T any](dir, table string, add func(T)) error {
	if !data.HasTable(dir, table) {
		return nil
	}
	for row, err := range data.ReadTable[T](dir, table) {
		if err != nil {
			return err
		}
		add(row)
	}
	return nil
}

// writeReport writes estimates and summary of the first view, and the report of
// all, into the run directory.
func writeReport(dir string, views []*analysis.Findings) error {
	f := views[0]
	if err := data.WriteTable(dir, data.Estimates, sequence(f.Estimates)); err != nil {
		return err
	}
	err := writeFile(filepath.Join(dir, "summary.json"), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(f.Estimates)
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "report.html"), func(w io.Writer) error { return analysis.WriteReport(w, views...) })
}

// sequence yields the elements of a slice as rows.
func sequence[T any](rows []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// writeFile writes a file under another name and renames it.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			err = p.Err // it names the file that was to be there for a moment
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(os.Chmod(f.Name(), 0o644), os.Rename(f.Name(), path))
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// show prints the main table, or the estimates as JSON.
func show(w io.Writer, all []*analysis.Findings, o reportOptions, asJSON bool) error {
	if asJSON {
		var rows []data.Estimate
		for _, f := range all {
			rows = append(rows, f.Estimates...)
		}
		return json.NewEncoder(w).Encode(rows)
	}
	if o.noTable {
		return nil
	}
	for _, f := range all {
		if err := f.WriteTable(w); err != nil {
			return err
		}
	}
	if len(all) < 2 {
		return nil
	}
	return writeOverview(w, all)
}

// writeOverview prints runs side by side.
func writeOverview(w io.Writer, all []*analysis.Findings) error {
	t := analysis.Overview(all...)
	if _, err := fmt.Fprintf(w, "\n%s\n\n", t.Title); err != nil {
		return err
	}
	return t.WriteText(w)
}
