package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"demur/analysis"
)

func newCompare(e *env) *cobra.Command {
	var o reportOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Paired differences of two runs over the same requests",
		Long: `Prints the metrics of two runs over the requests that both hold, and their
differences, B − A, paired by request, with intervals and p-values from the
bootstrap, adjusted over the metrics by Holm's method.`,
		Args: needRun(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			a, options, err := dataset(args[0], o)
			if err != nil {
				return dataError(fmt.Errorf("%s: %w", args[0], err))
			}
			b, _, err := dataset(args[1], o)
			if err != nil {
				return dataError(fmt.Errorf("%s: %w", args[1], err))
			}
			c, err := analysis.Compare(a, b, options)
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
	c.Flags().StringVar(&o.analysis.Judge, "judge", "", "judge whose labels are compared")
	c.Flags().StringVar(&o.analysis.Reading, "reading", "", "reading that is compared: grammar, free or exact")
	c.Flags().BoolVar(&asJSON, "json", false, "print the differences as JSON")
	return c
}
