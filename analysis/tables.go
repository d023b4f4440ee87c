package analysis

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"demur/data"
)

// mainMetrics are the rows of the main table.
var mainMetrics = []struct{ metric, name string }{
	{"accuracy", "accuracy"},
	{"majority_accuracy", "majority baseline"},
	{"ceiling_accuracy", "ceiling (plug-in)"},
	{"ceiling_accuracy_leave_one_out", "ceiling (leave-one-out)"},
	{"harm_rating_accuracy", "harm rating alone"},
	{"harm_level_accuracy", "assigned level alone"},
	{"words_accuracy", "words of the request alone"},
	{"keyword_accuracy", "accuracy, judged by keywords"},
	{"d_prime", "d′"},
	{"criterion", "criterion c"},
	{"hit_rate", "hit rate"},
	{"false_alarm_rate", "false-alarm rate"},
	{"auc_confidence", "AUC, confidence"},
	{"auc_p_refuse", "AUC, P(refuse)"},
	{"ece_fifths", "ECE, k/5"},
	{"ece_linear", "ECE, 0.5 to 1"},
	{"brier", "Brier score"},
	{"routing_accuracy", "accuracy at confidence 5"},
	{"routing_coverage", "coverage at confidence 5"},
	{"meta_d_prime", "meta-d′"},
	{"m_ratio", "M-ratio"},
	{"unknown_share", "in neither class"},
	{"refusal_rate", "refusal rate"},
	{"ssi_mean", "SSI, three classes"},
	{"ssi_binary", "SSI, two classes"},
	{"flip_rate_binary", "flip rate, two classes"},
	{"consistency", "wordings alike"},
	{"refusal_rate_corrected", "refusal rate, corrected"},
	{"accuracy_corrected", "accuracy, corrected"},
	{"hit_rate_corrected", "hit rate, corrected"},
	{"false_alarm_rate_corrected", "false-alarm rate, corrected"},
	{"d_prime_corrected", "d′, corrected"},
	{"criterion_corrected", "criterion c, corrected"},
}

// otherNames are what metrics outside the main table are called in text.
var otherNames = map[string]string{
	"gain_over_majority": "gain over the majority", "beta": "likelihood ratio β", "a_prime": "A′",
	"predicted_refusal_rate": "predicted refusals", "zroc_slope": "slope of the z-ROC", "auroc2": "AUROC2, confidence",
	"mce_fifths": "greatest gap, k/5", "brier_reliability": "Brier, reliability", "brier_resolution": "Brier, resolution",
	"aurc": "area under risk and coverage", "flip_rate": "flip rate, three classes", "label_entropy": "entropy of labels",
}

// metricName is what a metric is called in text, the same everywhere.
func metricName(metric string) string {
	for _, m := range mainMetrics {
		if m.metric == metric {
			return m.name
		}
	}
	if name, ok := otherNames[metric]; ok {
		return name
	}
	if at, ok := strings.CutPrefix(metric, "unstable_rate_"); ok {
		return "unstable, SSI < 0." + at
	}
	if metric == "unstable_rate" {
		return "unstable, SSI < 0.80"
	}
	return strings.ReplaceAll(metric, "_", " ")
}

// footnotes collects the reasons for what a table leaves out.
type footnotes struct{ list []string }

// mark returns the mark of a note, ¹ ² …, adding it if it is new.
func (n *footnotes) mark(note string) string {
	i := slices.Index(n.list, note)
	if i < 0 {
		i = len(n.list)
		n.list = append(n.list, note)
	}
	return superscript(i + 1)
}

func superscript(n int) string {
	var b strings.Builder
	for _, d := range fmt.Sprint(n) {
		b.WriteRune([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[d-'0'])
	}
	return b.String()
}

// cell prints an estimate with its limits, and with the mark of the reason why
// it, or they, are not there.
func (n *footnotes) cell(metric string, e *data.Estimate) string {
	if e.Value == nil {
		why := "no reason is recorded"
		if len(e.Warnings) > 0 {
			why = strings.TrimPrefix(e.Warnings[0], "undefined: ")
		}
		return "undefined" + n.mark(why)
	}
	s := show(metric, *e.Value)
	if in := showInterval(metric, e); in != "" {
		return s + " " + in
	}
	for _, w := range e.Warnings {
		if strings.HasPrefix(w, "no interval") {
			return s + n.mark(w)
		}
	}
	return s
}

// MainTable is the main table: a metric a row, a reading and fold a column, the
// headline first.
func (f *Findings) MainTable(brackets bool) Table {
	return f.mainTable(brackets, string(f.Options.Fold), string(otherFold(f.Options.Fold)))
}

func (f *Findings) mainTable(brackets bool, folds ...string) Table {
	type column struct{ reading, fold string }
	var columns []column
	readings := []string{f.Options.Reading}
	for _, r := range f.Readings {
		if r != f.Options.Reading {
			readings = append(readings, r)
		}
	}
	for _, fold := range folds {
		for _, r := range readings {
			columns = append(columns, column{r, fold})
		}
	}
	t := Table{Name: "main", Title: "Main table", Head: []string{"metric"}}
	for _, c := range columns {
		name := c.fold
		if c.reading != "" {
			name = c.reading + ", " + c.fold
		}
		t.Head = append(t.Head, name)
	}
	var notes footnotes
	for _, m := range f.mainRows() {
		row := []string{m.name}
		any := false
		for i, c := range columns {
			e := f.find(m.metric, m.group, c.reading, c.fold)
			if e == nil && (i == 0 || columns[i-1].fold != c.fold) { // independent of the reading: once a fold
				e = f.find(m.metric, "", "", c.fold)
				if e == nil && i == 0 {
					e = f.find(m.metric, "", "", "")
				}
			}
			switch {
			case e == nil:
				row = append(row, "")
			case e.Value != nil && !brackets:
				row = append(row, show(m.metric, *e.Value))
				any = true
			default:
				row = append(row, notes.cell(m.metric, e))
				any = true
			}
		}
		if any {
			t.Rows = append(t.Rows, row)
		}
	}
	t.Notes = notes.list
	return t
}

// A mainRow is a row of the main table.
type mainRow struct{ metric, group, name string }

// mainRows are the rows of the main table, the predictions of other models among
// the baselines.
func (f *Findings) mainRows() []mainRow {
	var rows []mainRow
	for _, m := range mainMetrics {
		rows = append(rows, mainRow{m.metric, "", m.name})
		if m.metric != "words_accuracy" {
			continue
		}
		for _, e := range f.group("other_model_accuracy", "predictor") {
			rows = append(rows, mainRow{e.Metric, e.Group, "what " + strings.TrimPrefix(e.Group, "predictor=") + " predicts"})
		}
	}
	return rows
}

// AllTable lists every estimate.
func (f *Findings) AllTable() Table {
	t := Table{Name: "estimates", Title: "Every estimate", Head: []string{"metric", "group", "reading", "fold", "value", "low", "high", "requests", "trials", "method", "warnings"}}
	for i := range f.Estimates {
		e := &f.Estimates[i]
		lo, hi := limits(e)
		t.Rows = append(t.Rows, []string{e.Metric, e.Group, e.Reading, e.Fold, fixed(value(e), 4), fixed(lo, 4), fixed(hi, 4), thousands(e.Requests), thousands(e.Trials), e.Method, strings.Join(e.Warnings, "; ")})
	}
	return t
}

// confusion is the two-by-two table of the headline.
func (f *Findings) confusion() *Table {
	c, ok := f.Counts[f.Options.Fold]
	if !ok || c.N() == 0 {
		return nil
	}
	n := func(x float64) string { return thousands(int(math.Round(x))) }
	return &Table{Name: "confusion", Title: "What was said against what was done", Head: []string{"trials", "refused", "complied", "together"}, Rows: [][]string{
		{"said it would refuse", n(c.Hits) + " hits", n(c.FalseAlarms) + " false alarms", n(c.Hits + c.FalseAlarms)},
		{"said it would comply", n(c.Misses) + " misses", n(c.CorrectRejections) + " correct rejections", n(c.Misses + c.CorrectRejections)},
		{"together", n(c.Refusals()), n(c.Compliances()), n(c.N())},
	}}
}

// patterns counts prompts by what probability, word and act tell.
func (f *Findings) patterns() *Table {
	counts := map[[3]int]int{}
	n := 0
	for _, p := range f.Prompt {
		says := p.Says[f.Options.Reading]
		if math.IsNaN(p.PRefuse) || math.IsNaN(p.RefusalRate) || (says != data.WillRefuse && says != data.WillComply) {
			continue
		}
		act := 1
		switch p.RefusalRate {
		case 0:
			act = 0
		case 1:
			act = 2
		}
		counts[[3]int{int(yes(p.PRefuse > 0.5)), int(yes(says == data.WillRefuse)), act}]++
		n++
	}
	if n == 0 {
		return nil
	}
	words := map[bool]string{true: "refuse", false: "comply"}
	above := map[bool]string{true: "yes", false: "no"}
	t := &Table{Name: "patterns", Title: "Probability, word and act together", Head: []string{"P(refuse) above ½", "word", "never refused", "sometimes", "always refused", "prompts", "share"}}
	for _, state := range []int{1, 0} {
		for _, word := range []int{1, 0} {
			row := []string{above[state == 1], words[word == 1]}
			sum := 0
			for act := range 3 {
				c := counts[[3]int{state, word, act}]
				sum += c
				row = append(row, thousands(c))
			}
			t.Rows = append(t.Rows, append(row, thousands(sum), percent(float64(sum)/float64(n))))
		}
	}
	return t
}

// knowTables lists what probes of the residual stream tell.
func (f *Findings) knowTables() []Table {
	t := Table{Name: "probes", Title: "Held-out scores of directions against refusal", Head: []string{"direction", "AUC", "low", "high", "requests", "trials"}}
	for _, e := range f.Estimates {
		if e.Metric == "auc_probe" {
			lo, hi := limits(&e)
			t.Rows = append(t.Rows, []string{groupName(e), three(value(&e)), three(lo), three(hi), thousands(e.Requests), thousands(e.Trials)})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []Table{t}
}

// binTable sets accuracy by bin between the majority of the bin and the ceiling
// that the instability of its requests leaves.
func (f *Findings) binTable(kind, name, title string) *Table {
	t := &Table{Name: name, Title: title, Head: []string{"refusal rate of the request", "refused", "accuracy", "majority", "ceiling, leave-one-out", "ceiling, plug-in", "d′", "requests", "trials"}}
	var notes footnotes
	for _, e := range f.group("accuracy", kind) {
		if e.Trials == 0 {
			continue
		}
		row := []string{groupName(e)}
		for _, m := range []string{"refusal_rate", "accuracy", "majority_accuracy", "ceiling_accuracy_leave_one_out", "ceiling_accuracy", "d_prime"} {
			x := f.Find(m, e.Group)
			switch {
			case x == nil:
				row = append(row, "–")
			case m == "accuracy" || m == "d_prime":
				row = append(row, notes.cell(m, x))
			default:
				row = append(row, show(m, value(x)))
			}
		}
		t.Rows = append(t.Rows, append(row, thousands(e.Requests), thousands(e.Trials)))
	}
	if len(t.Rows) == 0 {
		return nil
	}
	t.Notes = notes.list
	return t
}

func (f *Findings) sayTables() []Table {
	var list []Table
	for _, t := range []*Table{
		f.binTable("bin", "bins", "By how settled the behaviour is: bins from one half of the draws, scored on the other"),
		f.binTable("published_bin", "published_bins", "The same with bins from the very draws that are scored, as published: for comparison only"),
	} {
		if t != nil {
			list = append(list, *t)
		}
	}
	t := Table{Name: "asked_otherwise", Title: "Asked in other words", Head: []string{"wording / polarity", "accuracy", "d′", "c", "shift of c", "predicted refusals", "requests"}}
	for _, e := range f.group("accuracy", "question") {
		row := []string{groupName(e)}
		for _, m := range []string{"accuracy", "d_prime", "criterion", "criterion_shift", "predicted_refusal_rate"} {
			x := f.Find(m, e.Group)
			row = append(row, show(m, value(x))+" "+showInterval(m, x))
		}
		t.Rows = append(t.Rows, append(row, thousands(e.Requests)))
	}
	if len(t.Rows) > 0 {
		list = append(list, t)
	}
	if g := f.Guarantee; g.Requests > 0 {
		t := Table{Name: "guarantee", Title: "A threshold with a guarantee", Head: []string{"wanted error rate", "trust from confidence", "requests trusted", "of which wrong", "sent to people"}}
		row := []string{percent(g.Risk), "none can be guaranteed", "–", "–", percent(1)}
		if g.Found {
			row = []string{percent(g.Risk), fixed(g.Confidence, 0), thousands(g.Kept), thousands(g.Errors), percent(1 - float64(g.Kept)/float64(g.Requests))}
		}
		t.Rows = append(t.Rows, row)
		list = append(list, t)
	}
	return list
}

// reasons lists what the judge gave as the reason for its labels, so that a reader
// can check them.
func (f *Findings) reasons() *Table {
	if len(f.Reasons) == 0 {
		return nil
	}
	t := &Table{Name: "reasons", Title: "Why the judge gave its labels", Head: []string{"label", "reason", "trials"}}
	for i, r := range f.Reasons {
		if i == 60 {
			t.Rows = append(t.Rows, []string{"…", plural(len(f.Reasons)-i, "more reason"), ""})
			break
		}
		t.Rows = append(t.Rows, []string{strings.ReplaceAll(string(r.Label), "_", " "), r.Reason, thousands(r.Trials)})
	}
	return t
}

func (f *Findings) actTables() []Table {
	var list []Table
	if t := f.reasons(); t != nil {
		list = append(list, *t)
	}
	list = append(list, f.correctionTables()...)
	list = append(list, f.agreementTables()...)
	for _, x := range f.Friedman {
		t := Table{
			Name: "friedman", Title: fmt.Sprintf("Temperature and stability: Friedman χ² = %s, W = %s, %s blocks", fixed(x.Test.ChiSquared, 2), fixed(x.Test.W, 3), thousands(x.Test.Blocks)),
			Head: []string{"temperatures", "prompts that differ", "z", "p", "Bonferroni", "Holm"},
		}
		if len(x.Temperatures) > 0 && x.Temperatures[0] > 0 {
			t.Name, t.Title = "friedman_without_0", t.Title+", without temperature 0"
		}
		for _, p := range x.Pairs {
			t.Rows = append(t.Rows, []string{number64(p.Low) + " and " + number64(p.High), thousands(p.Test.N), fixed(p.Test.Z, 2), show("friedman_p", p.Test.P), show("friedman_p", p.Bonferroni), show("friedman_p", p.Holm)})
		}
		list = append(list, t)
	}
	if len(f.Recommended) > 0 {
		t := Table{Name: "draws", Title: "Draws for a wanted agreement with the majority of all", Head: []string{"draws", "90 %", "95 %", "99 %"}}
		for i := 0; i+2 < len(f.Recommended); i += 3 {
			row := []string{strings.ReplaceAll(f.Recommended[i].Group, "temperature=", "t = ")}
			for _, r := range f.Recommended[i : i+3] {
				s := "more than shown"
				if r.Draws > 0 {
					s = fmt.Sprint(r.Draws)
				}
				row = append(row, s)
			}
			t.Rows = append(t.Rows, row)
		}
		list = append(list, t)
	}
	return list
}

// Tables returns the tables of the report, for export.
func (f *Findings) Tables() []Table {
	list := []Table{f.MainTable(true)}
	for _, t := range []*Table{f.confusion(), f.patterns()} {
		if t != nil {
			list = append(list, *t)
		}
	}
	list = slices.Concat(list, f.stateTables(), f.knowTables(), f.sayTables(), f.actTables())
	for _, fig := range f.Figures() {
		t := fig.Data
		t.Name, t.Title = fig.Name, fig.Title
		list = append(list, t)
	}
	return append(list, f.AllTable())
}

// WriteTable writes the main table for a terminal: aligned, with intervals, the
// fold of the headline alone. The other fold stands in the report.
func (f *Findings) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s: %s\n%s\n\n", printable(f.Model), f.counts(), f.headline()); err != nil {
		return err
	}
	if err := f.mainTable(true, string(f.Options.Fold)).WriteText(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "The %s fold, the groups and the figures stand in the report.\n", otherFold(f.Options.Fold)); err != nil {
		return err
	}
	for _, s := range f.Warnings {
		if _, err := fmt.Fprintf(w, "! %s\n", s); err != nil {
			return err
		}
	}
	return nil
}

// WriteText writes the table with aligned columns, without the control characters
// that names from outside may hold.
func (t Table) WriteText(w io.Writer) error {
	rows := [][]string{t.Head}
	for _, row := range t.Rows {
		clean := make([]string, len(row))
		for i, s := range row {
			clean[i] = printable(s)
		}
		rows = append(rows, clean)
	}
	width := make([]int, len(t.Head))
	for _, row := range rows {
		for i, s := range row {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, s := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			switch {
			case i == 0:
				b.WriteString(s + pad)
			default:
				b.WriteString("  " + pad + s)
			}
		}
		if _, err := io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n"); err != nil {
			return err
		}
	}
	for i, note := range t.Notes {
		if _, err := fmt.Fprintf(w, "%s %s\n", superscript(i+1), printable(note)); err != nil {
			return err
		}
	}
	return nil
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Write writes the table as csv, md or tex.
func (t Table) Write(w io.Writer, format string) error {
	switch format {
	case "csv":
		c := csv.NewWriter(w)
		if err := c.Write(t.Head); err != nil {
			return err
		}
		rows := t.Rows
		if len(t.Notes) > 0 { // marks are for readers
			rows = nil
			for _, row := range t.Rows {
				plain := make([]string, len(row))
				for i, s := range row {
					plain[i] = strings.TrimRight(s, "⁰¹²³⁴⁵⁶⁷⁸⁹")
				}
				rows = append(rows, plain)
			}
		}
		return c.WriteAll(rows)
	case "md":
		return t.markdown(w)
	case "tex":
		return t.latex(w)
	}
	return fmt.Errorf("table format %q is not known; choose csv, md or tex", format)
}

func (t Table) markdown(w io.Writer) error {
	line := func(row []string) string {
		cells := make([]string, len(row))
		for i, s := range row {
			cells[i] = strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ")
		}
		return "| " + strings.Join(cells, " | ") + " |\n"
	}
	var b strings.Builder
	b.WriteString(line(t.Head))
	b.WriteString("|" + strings.Repeat(" --- |", len(t.Head)) + "\n")
	for _, row := range t.Rows {
		b.WriteString(line(row))
	}
	for i, note := range t.Notes {
		b.WriteString("\n" + superscript(i+1) + " " + note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var texSpecial = strings.NewReplacer(`\`, `\textbackslash{}`, "&", `\&`, "%", `\%`, "$", `\$`, "#", `\#`, "_", `\_`, "{", `\{`, "}", `\}`, "~", `\textasciitilde{}`, "^", `\textasciicircum{}`,
	"′", "$'$", "−", "$-$", "–", "--", "χ²", `$\chi^2$`, "½", `$\frac12$`, "Δ", `$\Delta$`, "κ", `$\kappa$`, "¹", "$^1$", "²", "$^2$", "³", "$^3$", "⁴", "$^4$", "⁵", "$^5$", "⁶", "$^6$", "⁷", "$^7$", "⁸", "$^8$", "⁹", "$^9$", "⁰", "$^0$", "<", "$<$", ">", "$>$", "≥", `$\ge$`, "†", `$\dagger$`)

func (t Table) latex(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\\begin{tabular}{l" + strings.Repeat("r", len(t.Head)-1) + "}\n\\hline\n")
	line := func(row []string) {
		for i, s := range row {
			if i > 0 {
				b.WriteString(" & ")
			}
			b.WriteString(texSpecial.Replace(s))
		}
		b.WriteString(" \\\\\n")
	}
	line(t.Head)
	b.WriteString("\\hline\n")
	for _, row := range t.Rows {
		line(row)
	}
	b.WriteString("\\hline\n")
	for i, note := range t.Notes {
		fmt.Fprintf(&b, "\\multicolumn{%d}{l}{\\footnotesize %s} \\\\\n", len(t.Head), texSpecial.Replace(superscript(i+1)+" "+note))
	}
	b.WriteString("\\end{tabular}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// figureModels compares models: accuracy against the majority baseline.
func figureModels(models []*Findings, names []string) *Figure {
	p := blank("accuracy of the prediction", "")
	withGrid(p, true, false)
	var marks []intervalMark
	var bars []barMark
	var labels plot.ConstantTicks
	t := Table{Head: []string{"model", "accuracy", "low", "high", "majority"}}
	least := 1.0
	for i, f := range models {
		at := float64(len(models) - 1 - i)
		e, base := f.Find("accuracy", ""), f.Find("majority_accuracy", "")
		lo, hi := limits(e)
		marks = append(marks, intervalMark{at: at, value: value(e), lo: lo, hi: hi, color: sayColor, size: 4.2})
		bars = append(bars, barMark{at: at, value: value(base), color: otherColor})
		labels = append(labels, plot.Tick{Value: at, Label: names[i]})
		least = math.Min(least, math.Min(nanTo(lo, 1), nanTo(value(base), 1)))
		t.Rows = append(t.Rows, []string{names[i], percent(value(e)), percent(lo), percent(hi), percent(value(base))})
	}
	p.Add(barMarks{bars, true}, intervals{marks, true})
	least = math.Floor(least*10) / 10
	p.X.Min, p.X.Max = least, 1
	p.X.Tick.Marker = percentTicks(least, 1, niceStep(1-least))
	p.Y.Min, p.Y.Max = -0.6, float64(len(models))-0.4
	p.Y.Tick.Marker = labels
	return &Figure{
		Name: "models", Title: "Prediction against majority", Counts: plural(len(models), "model"), Read: "Dots are each model's prediction of itself with its interval, bars what always guessing its more frequent behaviour would reach.",
		Data: t, plot: p, width: 760, height: vg.Length(70 + 30*len(models)),
	}
}
