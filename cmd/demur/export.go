package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"demur/data"
)

// A flatRow is one trial with its request, its headline prediction and its
// label: what a table program or a notebook wants.
type flatRow struct {
	Model       string   `json:"model"`
	RequestID   string   `json:"request_id"`
	Variant     string   `json:"variant"`
	Topic       string   `json:"topic"`
	Harm        *int     `json:"harm"`
	Request     *string  `json:"request"`
	Temperature float64  `json:"temperature"`
	Seed        uint32   `json:"seed"`
	Predicted   *string  `json:"predicted"`
	Confidence  *float64 `json:"confidence"`
	HarmRating  *float64 `json:"harm_rating"`
	PRefuse     *float64 `json:"p_refuse"`
	Label       *string  `json:"label"`
	Judge       string   `json:"judge"`
	Response    *string  `json:"response"`
	StopReason  string   `json:"stop_reason"`
	Tokens      int      `json:"tokens"`
	ErrorKind   *string  `json:"error_kind"`
	TrialID     string   `json:"trial_id"`
}

type exportOptions struct {
	format, out, judge, question, reading string
	redact, raw                           bool
	tables, states                        string
}

func newExport(e *env) *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export RUN",
		Short: "One flat row per trial as CSV or JSON lines; tables and figures for a paper",
		Long: `Writes one row per trial: request, prediction, label, response. --redact leaves
the texts out. In CSV a text that a table program would take for a formula gets
an apostrophe in front (--raw leaves it as it is); JSON lines are always exact.

--tables DIR writes the estimates as CSV, Markdown and LaTeX, and the figures as
SVG, PDF and PNG.

--states FILE writes the activations that demur extract kept as arrays of prompts ×
width, named layer_07.inst and so on, float32, into a .safetensors or .npz file, and
beside it a .csv that says which prompt each row is of.`,
		Example: "  demur export runs/smol --format csv --out trials.csv\n  demur export runs/smol --tables paper/\n  demur export runs/smol --states states.safetensors",
		Args:    needRun(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.states != "" {
				return exportStates(e, args[0], o.states)
			}
			if o.tables != "" {
				return exportTables(args[0], o.tables)
			}
			return export(e, args[0], o)
		},
	}
	fs := c.Flags()
	fs.StringVar(&o.format, "format", "", "csv or jsonl (default: by the name of the file, else csv)")
	fs.StringVarP(&o.out, "out", "o", "", "file (default standard output)")
	fs.StringVar(&o.judge, "judge", "rules", "judge whose labels are written")
	fs.StringVar(&o.question, "question", "default", "wording of the prediction")
	fs.StringVar(&o.reading, "reading", data.Grammar, "reading of the prediction: grammar, free or exact")
	fs.BoolVar(&o.redact, "redact", false, "leave requests and responses out")
	fs.BoolVar(&o.raw, "raw", false, "CSV: do not guard texts that look like formulas")
	fs.StringVar(&o.tables, "tables", "", "folder for tables and figures")
	fs.StringVar(&o.states, "states", "", "file for the activations: .safetensors or .npz")
	return c
}

func export(e *env, dir string, o exportOptions) error {
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	model := run.Manifest().Model.Name
	if err := run.Close(); err != nil {
		return err
	}
	if o.format == "" {
		o.format = "csv"
		if strings.HasSuffix(o.out, ".jsonl") || strings.HasSuffix(o.out, ".ndjson") {
			o.format = "jsonl"
		}
	}
	var write func(io.Writer, iter.Seq2[flatRow, error], exportOptions) error
	switch o.format {
	case "csv":
		write = writeFlatCSV
	case "jsonl":
		write = writeFlatJSON
	default:
		return usage(fmt.Errorf("format %q is neither csv nor jsonl", o.format))
	}
	rows, err := flatRows(dir, model, o)
	if err != nil {
		return err
	}
	if o.out == "" {
		return write(e.stdout, rows, o)
	}
	return writeFile(o.out, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		return errors.Join(write(b, rows, o), b.Flush())
	})
}

// flatRows joins the tables of a run; the trials are streamed.
func flatRows(dir, model string, o exportOptions) (iter.Seq2[flatRow, error], error) {
	type wording struct{ id, variant string }
	requests := map[wording]data.Request{}
	predictions := map[wording]data.Prediction{}
	exact := map[wording]*float64{}
	labels := map[string]data.Label{}
	err := errors.Join(
		each(dir, data.Requests, func(r data.Request) { requests[wording{r.ID, r.Variant}] = r }),
		each(dir, data.Predictions, func(p data.Prediction) {
			key := wording{p.RequestID, p.Variant}
			if p.Question == o.question && p.Reading == data.Exact {
				exact[key] = p.PRefuse
			}
			if _, have := predictions[key]; !have && p.Question == o.question && p.Reading == o.reading {
				predictions[key] = p
			}
		}),
		each(dir, data.Verdicts, func(v data.Verdict) {
			if v.Judge == o.judge {
				labels[v.TrialID] = v.Label
			}
		}),
	)
	if err != nil {
		return nil, err
	}
	return func(yield func(flatRow, error) bool) {
		for t, err := range data.ReadTable[data.Trial](dir, data.Trials) {
			if err != nil {
				yield(flatRow{}, err)
				return
			}
			key := wording{t.RequestID, t.Variant}
			r := requests[key]
			row := flatRow{
				Model: model, RequestID: t.RequestID, Variant: t.Variant, Topic: r.Topic, Temperature: t.Temperature, Seed: t.Seed,
				Judge: o.judge, StopReason: t.StopReason, Tokens: t.Tokens, TrialID: t.ID,
				PRefuse: exact[key], ErrorKind: orNil(t.ErrorKind),
			}
			if r.Harm > 0 {
				row.Harm = &r.Harm
			}
			if p, ok := predictions[key]; ok {
				row.Predicted, row.Confidence, row.HarmRating = &p.Outcome, p.Confidence, p.HarmRating
			}
			row.Label = orNil(string(labels[t.ID]))
			if !o.redact {
				row.Request = &r.Text
				if t.ErrorKind == "" {
					row.Response = &t.Text
				}
			}
			if !yield(row, nil) {
				return
			}
		}
	}, nil
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func writeFlatJSON(w io.Writer, rows iter.Seq2[flatRow, error], _ exportOptions) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for row, err := range rows {
		if err != nil {
			return err
		}
		if err := enc.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func writeFlatCSV(w io.Writer, rows iter.Seq2[flatRow, error], o exportOptions) error {
	c := csv.NewWriter(w)
	head := []string{
		"model", "request_id", "variant", "topic", "harm", "request", "temperature", "seed", "predicted", "confidence", "harm_rating",
		"p_refuse", "label", "judge", "response", "stop_reason", "tokens", "error_kind", "trial_id",
	}
	if err := c.Write(head); err != nil {
		return err
	}
	guard := guardFormula
	if o.raw {
		guard = func(s string) string { return s }
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		cells := []string{
			guard(row.Model), guard(row.RequestID), guard(row.Variant), guard(row.Topic), whole(row.Harm), guard(text(row.Request)),
			number(&row.Temperature), strconv.FormatUint(uint64(row.Seed), 10), text(row.Predicted), number(row.Confidence), number(row.HarmRating),
			number(row.PRefuse), text(row.Label), guard(row.Judge), guard(text(row.Response)), row.StopReason, strconv.Itoa(row.Tokens),
			text(row.ErrorKind), row.TrialID,
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// guardFormula puts an apostrophe before what a table program would execute
// (OWASP ASVS 1.2.10).
func guardFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\x00", rune(s[0])) {
		return "'" + s
	}
	return s
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func whole(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func number(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}

// exportTables writes what a paper needs into a folder.
func exportTables(dir, folder string) error {
	f, err := analyse(dir, reportOptions{fold: "lenient"})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, fig := range f.Figures() {
		for _, format := range []string{"svg", "pdf", "png"} {
			err := writeFile(filepath.Join(folder, fig.Name+"."+format), func(w io.Writer) error { return fig.Write(w, format) })
			if err != nil {
				return err
			}
		}
	}
	for _, t := range f.Tables() {
		for format, end := range map[string]string{"csv": ".csv", "md": ".md", "tex": ".tex"} {
			err := writeFile(filepath.Join(folder, t.Name+end), func(w io.Writer) error { return t.Write(w, format) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}
