package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"demur/analysis"
)

func newCompare(e *env) *cobra.Command {
	var o reportOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare A B…",
		Short: "Paired differences of runs over the same requests",
		Long: `Prints the metrics of two runs over the requests that both hold, and their
differences, B − A, paired by request, with intervals and p-values from the
bootstrap, adjusted over the metrics by Holm's method; then the requests whose
usual behaviour changed.

Three runs or more are set side by side with what tells them apart (quantisation,
adapter, system message, temperatures …), the mean over runs and the spread
between them, and every pair is tested, adjusted over all tests.`,
		Example: "  demur compare runs/q8 runs/q4\n  demur compare runs/q8 runs/q6 runs/q4",
		Args:    needRun(2, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			var sets []*analysis.Dataset
			var options []analysis.Options
			for _, dir := range args {
				d, settled, err := dataset(dir, o)
				if err != nil {
					return dataError(fmt.Errorf("%s: %w", dir, err))
				}
				sets, options = append(sets, d), append(options, settled)
			}
			tellApart(sets, args)
			if len(sets) > 2 {
				if asJSON {
					return usage(errors.New("--json prints the differences of two runs; compare them two by two"))
				}
				return compareMany(e.stdout, sets, options)
			}
			c, err := analysis.Compare(sets[0], sets[1], options[0])
			if err != nil {
				return usage(err)
			}
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(c.Estimates())
			}
			return c.WriteTable(e.stdout)
		},
	}
	bindReport(c, &o)
	bindAnalysis(c, &o)
	c.Flags().BoolVar(&asJSON, "json", false, "print the differences as JSON")
	return c
}

// compareMany prints several runs side by side, and every pair of them.
func compareMany(w io.Writer, sets []*analysis.Dataset, options []analysis.Options) error {
	pairs, err := analysis.CompareAll(options[0], sets...)
	if err != nil {
		return usage(err)
	}
	var all []*analysis.Findings
	for i, d := range sets {
		f, err := analysis.Analyse(d, options[i])
		if err != nil {
			return usage(err)
		}
		all = append(all, f)
	}
	if err := writeOverview(w, all); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s: differences are second − first, paired by request, with bootstrap intervals;\np is two-sided from the same resamples, Holm is p adjusted for all tests of the table.\n\n", pairs.Title)
	if err != nil {
		return err
	}
	return pairs.WriteText(w)
}
