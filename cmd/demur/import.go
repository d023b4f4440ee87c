package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"demur/data"
)

func newImport(e *env) *cobra.Command {
	var o data.ImportOptions
	var out string
	var temperature float64
	var labels map[string]string
	c := &cobra.Command{
		Use:   "import FILE --out RUN",
		Short: "Make a run of the trials of another tool or of API logs",
		Long: `Reads a file with one trial a row (CSV, JSON lines, JSON, Parquet; also sample
logs of Inspect and of lm-evaluation-harness) into a run directory that classify
and report accept. Columns are recognised by name or mapped with --columns:

  ` + strings.Join(data.ImportFields(), ", ") + `

All are optional, but one of predicted, label and response must be there; what a
missing one costs is said.`,
		Example: "  demur import logs.csv --out runs/api --columns response=completion,text=prompt\n  demur report runs/api",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usage(fmt.Errorf("name the run directory with --out"))
			}
			o.Demur, o.Now = version, time.Now().UTC()
			if cmd.Flags().Changed("temperature") {
				o.Temperature = &temperature
			}
			o.Labels = map[string]data.Label{}
			for word, label := range labels {
				if !slices.Contains(data.Labels(), data.Label(label)) {
					return usage(fmt.Errorf("label %q is none of %v", label, data.Labels()))
				}
				o.Labels[strings.ToLower(word)] = data.Label(label)
			}
			runs, err := data.Import(args[0], out, o)
			if errors.Is(err, data.ErrDiskFull) || errors.Is(err, data.ErrLocked) {
				return err
			}
			if err != nil {
				return usage(err)
			}
			for _, r := range runs {
				sayImported(e, r)
			}
			return nil
		},
	}
	fs := c.Flags()
	fs.StringVarP(&out, "out", "o", "", "run directory to make")
	fs.StringVar(&o.Format, "format", "", "csv, jsonl, json or parquet (default: by name and content)")
	fs.StringToStringVar(&o.Columns, "columns", nil, "columns of the file, such as response=completion,text=prompt")
	fs.StringVar(&o.Model, "model-name", "", "name of the model, where no column has it")
	fs.StringVar(&o.Judge, "judge-name", "", "who gave the labels (default imported)")
	fs.Float64Var(&temperature, "temperature", 1, "temperature of trials that the file gives none for")
	fs.StringToStringVar(&labels, "labels", nil, "further names of labels, such as refused=full_refusal")
	return c
}

func sayImported(e *env, r data.Imported) {
	fmt.Fprintf(e.stdout, "%s: %s, %d request wordings, %d trials, %d predictions, %d labels\n",
		r.Dir, plain(r.Model), r.Requests, r.Trials, r.Predictions, r.Verdicts)
	for _, field := range slices.Sorted(maps.Keys(r.Columns)) {
		e.say("  %s from column %q", field, r.Columns[field])
	}
	for _, m := range r.Missing {
		e.say("  %s", m)
	}
	for _, w := range r.Warnings {
		e.say("  %s", w)
	}
	for _, word := range slices.Sorted(maps.Keys(r.Unmapped)) {
		e.say("  %s means nothing here: %d rows", word, r.Unmapped[word])
	}
}
