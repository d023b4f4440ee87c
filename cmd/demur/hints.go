package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// knownCommand refuses what is no command, and says which it may have been.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q", args[0])
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		return withHint(err, "did you mean demur "+strings.Join(like, ", demur ")+"?")
	}
	return withHint(err, "demur --help lists the commands")
}

// flagHint adds which flag an unknown one may have been.
func flagHint(c *cobra.Command, err error) error {
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return withHint(err, c.CommandPath()+" --help lists the flags")
	}
	best, least := "", 3
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := editDistance(name, f.Name); d < least {
			best, least = f.Name, d
		}
	})
	if best == "" {
		return withHint(err, c.CommandPath()+" --help lists the flags")
	}
	return withHint(err, "did you mean --"+best+"?")
}

// needRun asks for run directories as arguments: at least least, at most most
// (−1: any number).
func needRun(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least && least == 1:
			return withHint(fmt.Errorf("%s needs a run directory", c.Name()), "such as demur "+c.Name()+" runs/first")
		case len(args) < least:
			return withHint(fmt.Errorf("%s needs %d run directories, got %d", c.Name(), least, len(args)), "such as demur "+c.Name()+" runs/a runs/b")
		case most >= 0 && len(args) > most:
			return fmt.Errorf("%s takes %d run directories, got %d", c.Name(), most, len(args))
		}
		return nil
	}
}

// editDistance is the number of single letters to add, take away or change that
// turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
