package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

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
instead (CSV, JSONL, Parquet) and writes the same rows with label columns added.`,
		Example: `  demur classify runs/smol --judge rules
  demur classify --responses answers.csv --prompt-column prompt --response-column completion --out labelled.csv`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && o.review != "":
				return review(e, args[0], o.review)
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
	fs.StringVar(&o.responses, "responses", "", "file of responses to label")
	fs.StringVar(&o.prompt, "prompt-column", "prompt", "column with the request")
	fs.StringVar(&o.response, "response-column", "response", "column with the response")
	fs.StringVarP(&o.out, "out", "o", "", "labelled file (default standard output, as CSV)")
	return c
}

type classifyOptions struct {
	judge                            judgeFlags
	responses, prompt, response, out string
	review                           string
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
	labels.write(e.stdout)
	e.say("demur report %s writes the report again", dir)
	return nil
}

// labelled counts what a judge gave.
type labelled struct {
	judge  string
	counts map[data.Label]int
}

func (l labelled) write(w io.Writer) {
	for _, label := range data.Labels() {
		if n := l.counts[label]; n > 0 {
			fmt.Fprintf(w, "%-20s %d\n", label, n)
		}
	}
}

// label judges the trials of a run directory and writes its verdicts.
func label(ctx context.Context, e *env, dir string, f judgeFlags) (labelled, error) {
	judge, closeJudge, err := openJudge(ctx, e, f)
	if err != nil {
		return labelled{}, err
	}
	var requests []data.Request
	if err := each(dir, data.Requests, func(r data.Request) { requests = append(requests, r) }); err != nil {
		return labelled{}, errors.Join(err, closeJudge())
	}
	l := labelled{judge.Name(), map[data.Label]int{}}
	each := judge
	if !strings.Contains(f.names, "human") {
		// Equal texts, such as those of all seeds at temperature 0, are judged once.
		// People label trials, not texts.
		each = protocol.NewCache().Wrap(judge)
	}
	fresh := protocol.Classify(ctx, each, requests, data.ReadTable[data.Trial](dir, data.Trials))
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
