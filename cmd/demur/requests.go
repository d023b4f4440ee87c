package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"demur/data"
	"demur/protocol"
)

// Names of the built-in request sets.
const (
	requestsDemo = "demo" // 60 requests, all topics and levels
	requestsAll  = "all"  // 300 requests
)

// loadRequests reads a request set: a built-in one by name, or a file.
func loadRequests(name string, o data.Options) (data.Set, error) {
	var rows []data.Request
	var err error
	switch name {
	case requestsDemo:
		rows, err = data.Demo()
	case requestsAll:
		rows, err = data.Builtin()
	default:
		set, err := data.ReadRequests(name, o)
		return set, usage(err)
	}
	if err != nil {
		return data.Set{}, err
	}
	if o.Format != "" || o.Preset != "" || len(o.Columns) > 0 {
		return data.Set{}, usage(withHint(fmt.Errorf("--format, --preset and --columns say how a file is read, but %s is the built-in request set", name),
			"leave them out, or name a file with its folder: ./"+name))
	}
	return data.Set{Name: "built-in " + name, Digest: data.DigestRequests(rows), Requests: rows}, nil
}

func newRequests(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "requests",
		Short: "List, show and check request sets",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newRequestsCheck(e), newRequestsList(e), newRequestsQuestions(e))
	return c
}

func newRequestsCheck(e *env) *cobra.Command {
	var o data.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE|demo|all",
		Short: "Report duplicates, near-duplicates, balance and encoding faults",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := loadRequests(args[0], o)
			if err != nil {
				return err
			}
			r := data.CheckRequests(set.Requests)
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(r)
			}
			for _, w := range set.Warnings {
				e.say("%s", w)
			}
			return r.Write(e.stdout)
		},
	}
	readFlags(c, &o)
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

func newRequestsList(e *env) *cobra.Command {
	var o data.Options
	var showText bool
	c := &cobra.Command{
		Use:   "list FILE|demo|all",
		Short: "List the requests of a set: ids, topics and levels (texts with --show-text)",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := loadRequests(args[0], o)
			if err != nil {
				return err
			}
			for _, r := range set.Requests {
				fmt.Fprintf(e.stdout, "%s\t%s\t%s\t%d", cell(r.ID), cell(r.Variant), cell(r.Topic), r.Harm)
				if showText {
					fmt.Fprintf(e.stdout, "\t%q", r.Text)
				}
				fmt.Fprintln(e.stdout)
			}
			return nil
		},
	}
	readFlags(c, &o)
	c.Flags().BoolVar(&showText, "show-text", false, "also print the texts; some are offensive")
	return c
}

func newRequestsQuestions(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "questions",
		Short: "List the wordings of the prediction question",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all := protocol.Questions()
			slices.SortFunc(all, func(a, b protocol.Question) int {
				if a.Name == "default" {
					return -1
				}
				return 0
			})
			for _, q := range all {
				fmt.Fprintf(e.stdout, "%s (asks whether it will %s)\n\n%s\n\n", q.Name, q.Polarity, indent(q.Text))
			}
			return nil
		},
	}
}

// readFlags binds how a request set is read.
func readFlags(c *cobra.Command, o *data.Options) {
	c.Flags().StringVar(&o.Format, "format", "", "csv, jsonl, json, parquet or text (default: by name and content)")
	c.Flags().StringVar(&o.Preset, "preset", "", "layout of a known set, such as xstest or harmbench (default: by columns)")
	c.Flags().StringToStringVar(&o.Columns, "columns", nil, "columns of the file, such as text=prompt,request_id=id")
}
