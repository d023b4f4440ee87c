package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"demur/probes"
)

// printReport prints the figures of one target.
func printReport(w io.Writer, r *probes.Report) {
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
		fmt.Fprintf(w, "  control %-21s %-24s %s\n", c.Name, valueText(c.Value), c.Note)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "  note: %s\n", warning)
	}
}

func printSubspaces(w io.Writer, t probes.SubspaceTable) {
	fmt.Fprintf(w, "%s, directions together at %s (gain over the first):", t.Target, t.Site)
	for _, k := range t.K {
		fmt.Fprintf(w, "  %d: %s", k.K, shortText(k.Value.Value))
		if k.K > 1 {
			fmt.Fprintf(w, " (%s)", signed(k.Gain.Value))
		}
	}
	fmt.Fprintln(w)
}

// printTransfer prints one table: what is fitted a row, what is tested a column.
func printTransfer(w io.Writer, t probes.TransferTable) {
	var names []string
	for _, c := range t.Cells {
		if !slices.Contains(names, c.Test) {
			names = append(names, c.Test)
		}
	}
	cell := func(train, test string) string {
		for _, c := range t.Cells {
			if c.Train == train && c.Test == test {
				return shortText(c.Value.Value)
			}
		}
		return ""
	}
	measure := "AUROC"
	if t.Graded {
		measure = "concordance"
	}
	fmt.Fprintf(w, "%s, transfer by %s at %s: %s of what is fitted on the row and tested on the column\n", t.Target, t.By, t.Site, measure)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "  fitted on\t")
	for i := range names {
		fmt.Fprintf(tw, "%d\t", i+1)
	}
	fmt.Fprintln(tw)
	for i, train := range names {
		fmt.Fprintf(tw, "  %d %s\t", i+1, train)
		for _, test := range names {
			fmt.Fprintf(tw, "%s\t", cell(train, test))
		}
		fmt.Fprintln(tw)
	}
	if len(names) > 2 {
		fmt.Fprint(tw, "  all others\t")
		for _, test := range names {
			fmt.Fprintf(tw, "%s\t", cell("all but "+test, test))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
}

func printGeometry(w io.Writer, g *probes.GeometryReport) {
	angle := func(a probes.Angle) {
		fmt.Fprintf(w, "  %s · %s: cosine %s, without noise %s, noise floor %.2f and %.2f; whitened %s, without noise %s\n", a.A, a.B,
			valueText(a.Raw.Cosine), shortText(a.Raw.Disattenuated), a.Raw.Reliability[0], a.Raw.Reliability[1], valueText(a.Whitened.Cosine), shortText(a.Whitened.Disattenuated))
	}
	fmt.Fprintf(w, "geometry at layer %d; the noise floor is the cosine of a direction with itself from the other half of the requests\n", g.Layer)
	for _, a := range g.Pairs {
		angle(a)
	}
	if len(g.Topics) > 0 {
		var list []float64
		for _, a := range g.Topics {
			if a.Raw.Disattenuated != nil {
				list = append(list, *a.Raw.Disattenuated)
			}
		}
		slices.Sort(list)
		fmt.Fprintf(w, "  refusal directions of topics, %d pairs: ", len(g.Topics))
		if len(list) == 0 {
			fmt.Fprintln(w, "none is above its noise")
		} else {
			fmt.Fprintf(w, "cosines without noise from %.2f to %.2f, median %.2f\n", list[0], list[len(list)-1], list[len(list)/2])
		}
	}
	for _, text := range g.Warnings {
		fmt.Fprintf(w, "  note: %s\n", text)
	}
}

// someIDs is how many ids of prompts are printed.
const someIDs = 20

func printAct(w io.Writer, a *probes.Act) {
	fmt.Fprintf(w, "state, word and act: %d prompts of %d requests\n", a.Prompts, a.Requests)
	fmt.Fprintf(w, "  %-22s %-24s %-24s %s\n", "predictor of refusals", "concordance", "at the boundary", "AUROC of the majority")
	for _, p := range a.Predictors {
		fmt.Fprintf(w, "  %-22s %-24s %-24s %s\n", p.Name, valueText(p.All), valueText(p.Boundary), valueText(p.Majority))
	}
	for _, g := range a.Gains {
		fmt.Fprintf(w, "  gain %s: %s, at the boundary %s\n", g.Name, valueText(g.All), valueText(g.Boundary))
	}
	g := a.Agreement
	if total := g[0] + g[1] + g[2] + g[3] + g[4] + g[5] + g[6] + g[7]; total > 0 {
		apart := g[2] + g[3] + g[4] + g[5]
		fmt.Fprintf(w, "  state and word differ at %d of %d prompts; there the model did what the state said %d times, what it said %d times\n", apart, total, g[2]+g[5], g[3]+g[4])
	}
	var ids []string
	for _, r := range a.Table {
		if r.Disagree {
			ids = append(ids, r.RequestID+"/"+r.Variant)
		}
	}
	if n := len(ids); n > 0 {
		text := strings.Join(ids[:min(n, someIDs)], " ")
		if n > someIDs {
			text += fmt.Sprintf(" … (%d in all; --json lists them)", n)
		}
		fmt.Fprintf(w, "  where they differ: %s\n", text)
	}
	for _, text := range a.Warnings {
		fmt.Fprintf(w, "  note: %s\n", text)
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

func shortText(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *v)
}

func signed(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%+.3f", *v)
}
