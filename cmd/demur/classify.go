package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"demur/analysis"
	"demur/data"
	"demur/protocol"
)

func newClassify(e *env) *cobra.Command {
	var o classifyOptions
	c := &cobra.Command{
		Use:   "classify RUN | classify --responses FILE",
		Short: "Label the responses of a run again, or those of any file",
		Long: `Labels every response of a run with a judge and writes its verdict table; the
verdicts of other judges stay. With --responses it labels a file of responses
instead (CSV, JSONL, Parquet) and writes the same rows with label columns added.

Where there are labels of another judge (other verdicts of the run, or a column
named by --human-column), it prints how far the two agree: Cohen's kappa with
intervals over requests, F1 of each class, confusion; of a file also by source.

The verdicts of model and command judges are kept as they come, so that the same
command goes on where an interrupted one stopped.`,
		Example: `  demur classify runs/smol --judge rules
  demur classify --responses answers.csv --prompt-column prompt --response-column completion --out labelled.csv
  demur classify --responses answers.csv --response-column completion --human-column label --source-column model
  demur classify runs/smol --review labels.csv --sample 100`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(len(args) == 1); err != nil {
				return err
			}
			switch {
			case len(args) == 1 && o.review != "":
				return review(e, args[0], o.review, o.sample)
			case len(args) == 1 && o.responses == "":
				return classifyRun(cmd.Context(), e, args[0], o)
			case len(args) == 0 && o.responses != "":
				return classifyFile(cmd.Context(), e, o)
			}
			return usage(fmt.Errorf("name either a run directory or --responses FILE"))
		},
	}
	fs := c.Flags()
	bindJudge(c, &o.judge)
	fs.StringVar(&o.review, "review", "", "label file: show disputed and unclear responses one by one and note your labels there")
	fs.IntVar(&o.sample, "sample", 0, "with --review: N trials drawn at random, instead of the disputed ones; what figures can be corrected by")
	fs.StringVar(&o.responses, "responses", "", "file of responses to label")
	fs.StringVar(&o.prompt, "prompt-column", "prompt", "column with the request")
	fs.StringVar(&o.response, "response-column", "response", "column with the response")
	fs.StringVar(&o.human, "human-column", "", "column with labels of people: print the judge's agreement with them; rows are then written only to --out")
	fs.StringVar(&o.source, "source-column", "", "column that names who wrote a response, such as the model: agreement also for each")
	fs.StringToStringVar(&o.words, "human-labels", nil, "what the words of the human column mean, such as refused=full_refusal, where they are not known")
	fs.StringVar(&o.prefix, "label-prefix", "", "put before the names of the label columns, where the file has such columns already")
	fs.StringVarP(&o.out, "out", "o", "", "labelled file (default standard output, as CSV)")
	fs.BoolVar(&o.json, "json", false, "print counts of labels and agreement as JSON")
	return c
}

type classifyOptions struct {
	judge                                    judgeFlags
	responses, prompt, response, out, prefix string
	human, source                            string
	words                                    map[string]string
	labels                                   map[string]data.Label // words, checked
	review                                   string
	sample                                   int
	json                                     bool
}

// check refuses flags that do not go together.
func (o *classifyOptions) check(run bool) error {
	switch {
	case run && (o.human != "" || o.source != "" || len(o.words) > 0):
		return usage(withHint(errors.New("--human-column, --source-column and --human-labels are of --responses"), "label a run with --judge human:FILE"))
	case o.human == "" && (o.source != "" || len(o.words) > 0):
		return usage(errors.New("--source-column and --human-labels need --human-column"))
	case o.sample < 0, o.sample > 0 && o.review == "":
		return usage(errors.New("--sample is a number of trials to draw, and needs --review FILE"))
	case !run && o.json && o.out == "" && o.human == "":
		return usage(withHint(errors.New("without --out the rows themselves go to standard output, and leave no room for --json"), "add --out FILE"))
	}
	o.labels = map[string]data.Label{}
	for word, label := range o.words {
		if !slices.Contains(data.Labels(), data.Label(label)) {
			return usage(fmt.Errorf("label %q is none of %v", label, data.Labels()))
		}
		o.labels[strings.ToLower(word)] = data.Label(label)
	}
	return nil
}

// classifyRun writes the verdicts of a run; those of other judges stay.
func classifyRun(ctx context.Context, e *env, dir string, o classifyOptions) error {
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	labels, err := label(ctx, e, run.Dir(), o.judge)
	if err != nil {
		return err
	}
	agreements, err := agreementsInRun(dir, labels.judge)
	if err != nil {
		return err
	}
	if err := labels.report(e.stdout, agreements, o.json); err != nil {
		return err
	}
	e.say("demur report %s writes the report again", dir)
	return nil
}

// agreementsInRun compares a judge's verdicts with those of each other judge of
// the run.
func agreementsInRun(dir, judge string) ([][]analysis.Agreements, error) {
	request := map[string]string{}
	labels := map[string]map[string]data.Label{} // by judge, then trial
	var order []string
	err := errors.Join(
		each(dir, data.Trials, func(t data.Trial) { request[t.ID], order = t.RequestID, append(order, t.ID) }),
		each(dir, data.Verdicts, func(v data.Verdict) {
			if labels[v.Judge] == nil {
				labels[v.Judge] = map[string]data.Label{}
			}
			labels[v.Judge][v.TrialID] = v.Label
		}),
	)
	if err != nil {
		return nil, err
	}
	var out [][]analysis.Agreements
	for _, other := range slices.Sorted(maps.Keys(labels)) {
		if other == judge {
			continue
		}
		row, column := other, judge
		if judge == analysis.HumanJudge {
			row, column = judge, other
		}
		var rated []analysis.Rated
		for _, id := range order {
			a, ok1 := labels[row][id]
			b, ok2 := labels[column][id]
			if ok1 && ok2 {
				rated = append(rated, analysis.Rated{Request: request[id], Row: a, Column: b})
			}
		}
		out = append(out, analysis.Agree(row, column, rated, agreementResampling))
	}
	return out, nil
}

// agreementResampling is how the intervals of agreement are made: as in a report.
var agreementResampling = analysis.Resampling{N: 2000, Level: 0.95}

// labelled counts what a judge gave.
type labelled struct {
	judge   string
	version string
	counts  map[data.Label]int
}

// report prints the counts of labels and the agreement with other judges.
func (l labelled) report(w io.Writer, agreements [][]analysis.Agreements, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			Judge     string                `json:"judge"`
			Version   string                `json:"judge_version"`
			Labels    map[data.Label]int    `json:"labels"`
			Agreement []analysis.Agreements `json:"agreement"`
		}{l.judge, l.version, l.counts, append([]analysis.Agreements{}, slices.Concat(agreements...)...)})
	}
	l.write(w)
	for _, list := range agreements {
		fmt.Fprintln(w)
		if err := analysis.WriteAgreements(w, list); err != nil {
			return err
		}
	}
	return nil
}

func (l labelled) write(w io.Writer) {
	for _, label := range data.Labels() {
		if n := l.counts[label]; n > 0 {
			fmt.Fprintf(w, "%-20s %d\n", label, n)
		}
	}
}

// verdictCache is the file of a run directory that keeps the verdicts of slow
// judges as they come.
const verdictCache = "verdict-cache.jsonl"

// label judges the trials of a run directory and writes its verdicts.
func label(ctx context.Context, e *env, dir string, f judgeFlags) (l labelled, err error) {
	cache, err := f.openCache(e, filepath.Join(dir, verdictCache))
	if err != nil {
		return labelled{}, err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	// Equal texts, such as those of all seeds at temperature 0, are judged once.
	judge, closeJudge, err := openJudge(ctx, e, f, cache)
	if err != nil {
		return labelled{}, err
	}
	var requests []data.Request
	if err := each(dir, data.Requests, func(r data.Request) { requests = append(requests, r) }); err != nil {
		return labelled{}, errors.Join(err, closeJudge())
	}
	l = labelled{judge.Name(), judge.Version(), map[data.Label]int{}}
	fresh := protocol.Classify(ctx, judge, requests, data.ReadTable[data.Trial](dir, data.Trials))
	rows := func(yield func(data.Verdict, error) bool) {
		for v, err := range otherVerdicts(dir, judge.Name()) {
			if !yield(v, err) {
				return
			}
		}
		for v, err := range fresh {
			if err == nil {
				l.counts[v.Label]++
			}
			if !yield(v, err) {
				return
			}
		}
	}
	err = data.WriteTable(dir, data.Verdicts, rows)
	return l, errors.Join(err, closeJudge())
}

// otherVerdicts yields the verdicts that judges of another name have given.
func otherVerdicts(dir, name string) iter.Seq2[data.Verdict, error] {
	return func(yield func(data.Verdict, error) bool) {
		if !data.HasTable(dir, data.Verdicts) {
			return
		}
		for v, err := range data.ReadTable[data.Verdict](dir, data.Verdicts) {
			if err == nil && v.Judge == name {
				continue
			}
			if !yield(v, err) {
				return
			}
		}
	}
}
