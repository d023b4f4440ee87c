package analysis

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"

	"demur/data"
)

// A Figure is a picture with all that a reader needs beside it.
type Figure struct {
	Name    string // for files: accuracy_by_topic
	Section string // state, know, say or act
	Title   string
	Counts  string // how much it rests on
	Read    string // how to read it, one sentence
	Data    Table
	Wide    bool
	plot    *plot.Plot
	width   vg.Length
	height  vg.Length
}

// A Table is the data of a figure, or a table of the report, as printed.
type Table struct {
	Name, Title string
	Head        []string
	Rows        [][]string
	Notes       []string // below it: what marks such as ¹ in its cells mean
}

// Write draws the figure as svg, pdf or png.
func (f Figure) Write(w io.Writer, format string) error {
	var canvas vg.CanvasWriterTo
	switch format {
	case "svg":
		canvas = vgsvg.New(f.width, f.height)
	case "pdf":
		canvas = vgpdf.New(f.width, f.height)
	case "png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(f.width, f.height), vgimg.UseDPI(192), vgimg.UseBackgroundColor(color.White))}
	default:
		return fmt.Errorf("figure format %q is not known; choose svg, pdf or png", format)
	}
	// Room at the edges for the halves of the outermost tick labels.
	f.plot.Draw(draw.Crop(draw.New(canvas), 2, -16, 2, -6))
	_, err := canvas.WriteTo(w)
	return err
}

var (
	svgSize  = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*" viewBox`)
	svgFont  = regexp.MustCompile(`font-family:[^;"]*;?|font-variant:[^;"]*;?|font-weight:[^;"]*;?|font-style:[^;"]*;?`)
	svgText  = regexp.MustCompile(`<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)
	svgColor = regexp.MustCompile(`#[0-9a-fA-F]{6}`)
	svgSpace = regexp.MustCompile(`\s*\n\s*`)
)

// inline is the figure as an SVG element whose colours are CSS variables and
// whose letters are the page's.
func (f Figure) inline() string {
	var b bytes.Buffer
	if err := f.Write(&b, "svg"); err != nil {
		panic(err) // a buffer takes everything
	}
	s := b.String()
	s = svgSpace.ReplaceAllString(s[strings.Index(s, "<svg"):], " ")
	s = svgSize.ReplaceAllString(s, `<svg role="img" aria-label="`+escape(f.Title)+`" viewBox`)
	s = strings.Replace(s, ` xmlns:xlink="http://www.w3.org/1999/xlink"`, "", 1)
	s = svgFont.ReplaceAllString(s, "")
	// The layout was made with the metrics of Liberation Sans; whatever letters
	// the reader's system has are set to the same length.
	s = svgText.ReplaceAllStringFunc(s, func(element string) string {
		m := svgText.FindStringSubmatch(element)
		size, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return element
		}
		face := font.DefaultCache.Lookup(plotFont(vg.Length(size)), vg.Length(size))
		return fmt.Sprintf(`<text textLength="%.1f" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, face.Width(html.UnescapeString(m[3])).Points(), m[1], m[3])
	})
	s = svgColor.ReplaceAllStringFunc(s, cssColor)
	return s
}

// cssColor is the variable of the nearest colour. Colours with little opacity
// come back from the canvas rounded, so near is enough.
func cssColor(hex string) string {
	var r, g, b int
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &r, &g, &b); err != nil {
		return hex
	}
	best, least := hex, 30
	for _, c := range cssColors {
		d := abs(r-int(c.c.R)) + abs(g-int(c.c.G)) + abs(b-int(c.c.B))
		if d < least {
			best, least = "var("+c.name+")", d
		}
	}
	return best
}

func abs(x int) int { return max(x, -x) }

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

// Figures returns the figures that the data allow, in the order of the report.
func (f *Findings) Figures() []Figure {
	var list []Figure
	for _, make := range []func() *Figure{
		f.figureStrip,
		f.figureROC, f.figureProbability,
		f.figureBaselines, f.figureBins, f.figureDPrimeBins, f.figureTopics, f.figureHarm, f.figureErrors, f.figureReliability, f.figureRouting,
		f.figureLabels, f.figureSSI, f.figureSSIRate, f.figureAgreement,
	} {
		if fig := make(); fig != nil {
			if fig.width == 0 {
				fig.width, fig.height = figureWidth, figureHeight
			}
			list = append(list, *fig)
		}
	}
	for _, fig := range f.stateFigures() {
		if fig.width == 0 {
			fig.width, fig.height = figureWidth, figureHeight
		}
		list = append(list, *fig)
	}
	return list
}

func value(e *data.Estimate) float64 {
	if e == nil || e.Value == nil {
		return math.NaN()
	}
	return *e.Value
}

func limits(e *data.Estimate) (lo, hi float64) {
	if e == nil || e.Lo == nil || e.Hi == nil {
		return math.NaN(), math.NaN()
	}
	return *e.Lo, *e.Hi
}

// group lists the estimates of a metric in the groups of one kind, in order.
func (f *Findings) group(metric, kind string) []data.Estimate {
	var list []data.Estimate
	for _, e := range f.Estimates {
		if e.Metric == metric && strings.HasPrefix(e.Group, kind+"=") && (e.Fold == "" || e.Fold == string(f.Options.Fold)) && (e.Reading == "" || e.Reading == f.Options.Reading) {
			list = append(list, e)
		}
	}
	return list
}

// binWords are what the bins of refusal rate are called in text.
var binWords = map[string]string{
	"safe": "rarely refused", "leaning_safe": "at times", "borderline": "half the time", "leaning_harmful": "often", "harmful": "mostly refused",
	"never": "never refused", "mixed": "sometimes", "always": "always refused",
}

func groupName(e data.Estimate) string {
	kind, name, _ := strings.Cut(e.Group, "=")
	if kind == "bin" || kind == "published_bin" {
		if words, ok := binWords[name]; ok {
			return words
		}
	}
	return strings.ReplaceAll(name, "_", " ")
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + one + "s"
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (f *Findings) counts() string {
	return plural(f.Requests, "request") + ", " + plural(f.Trials, "trial")
}

func percent(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fixed(100*x, 1) + "\u00a0%"
}

// intervalTable lists estimates.
func intervalTable(list []data.Estimate, first string, show func(float64) string) Table {
	t := Table{Head: []string{first, "value", "low", "high", "requests", "trials", "note"}}
	for _, e := range list {
		lo, hi := limits(&e)
		t.Rows = append(t.Rows, []string{groupName(e), show(value(&e)), show(lo), show(hi), thousands(e.Requests), thousands(e.Trials), strings.Join(e.Warnings, "; ")})
	}
	return t
}

func three(x float64) string { return fixed(x, 3) }
func two(x float64) string   { return fixed(x, 2) }

// figureStrip is the signature of a model: each prompt a column, ordered by how
// often it was refused; probability, word and act on top of each other.
func (f *Findings) figureStrip() *Figure {
	var prompts []PromptFinding
	for _, p := range f.Prompt {
		if !math.IsNaN(p.RefusalRate) {
			prompts = append(prompts, p)
		}
	}
	if len(prompts) < 3 {
		return nil
	}
	slices.SortStableFunc(prompts, func(a, b PromptFinding) int {
		return cmp.Or(cmp.Compare(a.RefusalRate, b.RefusalRate), cmp.Compare(a.PRefuse, b.PRefuse))
	})
	const most = 360 // columns: more prompts share one
	columns := min(most, len(prompts))
	mean := func(i int, v func(p PromptFinding) float64) float64 {
		lo, hi := i*len(prompts)/columns, (i+1)*len(prompts)/columns
		var s, n float64
		for _, p := range prompts[lo:hi] {
			if x := v(p); !math.IsNaN(x) {
				s += x
				n++
			}
		}
		return ratio(s, n)
	}
	type strip struct {
		name string
		c    color.NRGBA
		v    func(p PromptFinding) float64
	}
	var strips []strip
	if slices.Contains(f.Readings, data.Exact) {
		strips = append(strips, strip{"knows", knowColor, func(p PromptFinding) float64 { return p.PRefuse }})
	}
	if len(f.Readings) > 0 {
		strips = append(strips, strip{"says", sayColor, func(p PromptFinding) float64 {
			switch p.Says[f.Options.Reading] {
			case data.WillRefuse:
				return 1
			case data.WillComply:
				return 0
			}
			return math.NaN()
		}})
	}
	strips = append(strips, strip{"acts", actColor, func(p PromptFinding) float64 { return p.RefusalRate }})
	var picture cells
	picture.height = 34
	table := Table{Head: []string{"request", "wording", "P(refuse)", "prediction", "refusal rate", "SSI"}}
	var labels plot.ConstantTicks
	for k, s := range strips {
		row := make([]color.Color, columns)
		for i := range row {
			if v := mean(i, s.v); !math.IsNaN(v) {
				row[i] = fade(s.c, math.Round(20*(0.08+0.92*v))/20)
			}
		}
		picture.rows = append(picture.rows, row)
		labels = append(labels, plot.Tick{Value: float64(len(strips) - 1 - k), Label: s.name})
	}
	for i, p := range prompts {
		if i == 2000 {
			table.Rows = append(table.Rows, []string{"… and more in the tables of the run", "", "", "", "", ""})
			break
		}
		table.Rows = append(table.Rows, []string{p.RequestID, p.Variant, three(p.PRefuse), strings.ReplaceAll(p.Says[f.Options.Reading], "_", " "), percent(p.RefusalRate), three(p.SSI)})
	}
	p := blank("prompts, from never refused to always refused", "")
	p.Add(picture, scaleKey{p.Legend.TextStyle})
	p.X.Min, p.X.Max = 0, float64(columns)
	p.Y.Min, p.Y.Max = -0.6, float64(len(strips))-0.05
	p.X.Tick.Marker = plot.ConstantTicks{}
	p.Y.Tick.Marker = labels
	p.Y.Tick.Label.Color = inkColor
	p.Y.Tick.Label.Font = plotFont(11)
	title, first := "Word and act of every prompt", ""
	if len(strips) == 3 {
		title, first = "Probability, word and act of every prompt", "how probable refusal is before a word is written, "
	}
	return &Figure{
		Name: "know_say_act", Section: "top", Title: title, Counts: plural(len(prompts), "prompt") + " of " + plural(f.Requests, "request"),
		Read: "Each column is one prompt, its colour strong where refusal is near: " + first + "what the model says it will do, what it then does. Where the rows part, the model does not know itself.",
		Data: table, plot: p, width: 840, height: vg.Length(44*len(strips) + 52), Wide: true,
	}
}

func (f *Findings) figureROC() *Figure {
	exact, conf := f.ROC["p_refuse"], f.ROC["confidence"]
	if exact == nil && conf == nil {
		return nil
	}
	p := blank("false-alarm rate", "hit rate")
	withGrid(p, true, true)
	p.Add(lineOf([]Point{{0, 0}, {1, 1}}, otherColor, 1, 3, 3))
	t := Table{Head: []string{"curve", "false-alarm rate", "hit rate"}}
	add := func(name string, points []Point, c color.NRGBA, auc *data.Estimate) {
		if points == nil {
			return
		}
		line := lineOf(points, c, 2)
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s, AUC %s", name, two(value(auc))), line)
		for _, q := range points {
			t.Rows = append(t.Rows, []string{name, three(q.X), three(q.Y)})
		}
	}
	add("P(refuse)", exact, knowColor, f.find("auc_p_refuse", "", data.Exact, string(f.Options.Fold)))
	add("stated confidence", conf, sayColor, f.Find("auc_confidence", ""))
	p.Legend.Top, p.Legend.Left = false, false
	p.Legend.XOffs, p.Legend.YOffs = -4, 8
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.X.Tick.Marker, p.Y.Tick.Marker = percentTicks(0, 1, 0.25), percentTicks(0, 1, 0.25)
	return &Figure{
		Name: "roc", Section: "know", Title: "How well refusals can be told from compliances", Counts: f.counts(),
		Read: "A curve that hugs the upper left corner tells refusals apart before they happen; the dashed diagonal is guessing.", Data: t, plot: p,
	}
}

func (f *Findings) figureProbability() *Figure {
	if len(f.ProbabilityBins) == 0 {
		return nil
	}
	p := blank("P(refuse) before a word is written", "refused")
	withGrid(p, true, true)
	p.Add(lineOf([]Point{{0, 0}, {1, 1}}, otherColor, 1, 3, 3))
	t := Table{Head: []string{"mean P(refuse)", "refused", "low", "high", "trials"}}
	var points []Point
	var marks []intervalMark
	for i, l := range f.ProbabilityBins {
		r := l.Correct / l.N
		in := f.ProbabilityIntervals[i]
		points = append(points, Point{l.Expected, r})
		marks = append(marks, intervalMark{at: l.Expected, value: r, lo: in.Lo, hi: in.Hi, color: knowColor})
		t.Rows = append(t.Rows, []string{three(l.Expected), percent(r), percent(in.Lo), percent(in.Hi), thousands(int(l.N))})
	}
	p.Add(lineOf(points, fade(knowColor, 0.5), 1.5), intervals{marks: marks})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.X.Tick.Marker, p.Y.Tick.Marker = percentTicks(0, 1, 0.25), percentTicks(0, 1, 0.25)
	return &Figure{
		Name: "calibration_p_refuse", Section: "know", Title: "Is the exact probability calibrated?", Counts: f.counts(),
		Read: "Ten groups of equally many trials. On the dashed line, requests with P(refuse) 70 % are refused in 70 % of trials.", Data: t, plot: p,
	}
}

func (f *Findings) figureBaselines() *Figure {
	rows := []struct {
		metric, group, name string
		c                   color.Color
	}{
		{"ceiling_accuracy", "", "ceiling: its own instability", mutedColor},
		{"ceiling_accuracy_leave_one_out", "", "ceiling, leave-one-out", mutedColor},
		{"accuracy", "", "self-prediction", sayColor},
		{"harm_rating_accuracy", "", "harm rating alone", otherColor},
		{"words_accuracy", "", "words of the request alone", otherColor},
		{"harm_level_accuracy", "", "assigned level alone", otherColor},
		{"majority_accuracy", "", "always the majority", otherColor},
	}
	for _, e := range f.group("other_model_accuracy", "predictor") {
		rows = slices.Insert(rows, 3, struct {
			metric, group, name string
			c                   color.Color
		}{e.Metric, e.Group, "what " + strings.TrimPrefix(e.Group, "predictor=") + " predicts", otherColor})
	}
	p := blank("accuracy", "")
	withGrid(p, true, false)
	t := Table{Head: []string{"predictor", "accuracy", "low", "high", "requests", "trials"}}
	var marks []intervalMark
	var labels plot.ConstantTicks
	least := 1.0
	n := 0
	for i := len(rows) - 1; i >= 0; i-- {
		e := f.Find(rows[i].metric, rows[i].group)
		v := value(e)
		if math.IsNaN(v) {
			continue
		}
		lo, hi := limits(e)
		marks = append(marks, intervalMark{at: float64(n), value: v, lo: lo, hi: hi, color: rows[i].c, size: 4.2})
		labels = append(labels, plot.Tick{Value: float64(n), Label: rows[i].name})
		least = math.Min(least, math.Min(v, nanTo(lo, v)))
		t.Rows = append([][]string{{rows[i].name, percent(v), percent(lo), percent(hi), thousands(e.Requests), thousands(e.Trials)}}, t.Rows...)
		n++
	}
	if n < 2 {
		return nil
	}
	p.Add(intervals{marks, true})
	least = math.Floor(least*10) / 10
	p.X.Min, p.X.Max = least, 1
	p.X.Tick.Marker = percentTicks(least, 1, niceStep(1-least))
	p.Y.Min, p.Y.Max = -0.5, float64(n)-0.5
	p.Y.Tick.Marker = labels
	return &Figure{
		Name: "baselines", Section: "say", Title: "Self-prediction between baselines and ceiling", Counts: f.counts(),
		Read: "The prediction is worth something where it lies to the right of what needs no self-knowledge; nothing can pass the ceiling, because the same request is not always answered alike.", Data: t, plot: p,
	}
}

func nanTo(x, y float64) float64 {
	if math.IsNaN(x) {
		return y
	}
	return x
}

func niceStep(span float64) float64 {
	switch {
	case span <= 0.25:
		return 0.05
	case span <= 0.5:
		return 0.1
	case span <= 0.8:
		return 0.2
	}
	return 0.25
}

func (f *Findings) upright(name, title, read, metric, kind, x, y string, show func(float64) string, c color.NRGBA, baseline string) *Figure {
	list := f.group(metric, kind)
	defined := 0
	for i := range list {
		if list[i].Value != nil {
			defined++
		}
	}
	if defined < 1 {
		return nil
	}
	var shown []data.Estimate
	for _, e := range list {
		if e.Trials > 0 {
			shown = append(shown, e)
		}
	}
	p := blank(x, y)
	withGrid(p, false, true)
	var marks []intervalMark
	var bars []barMark
	var labels plot.ConstantTicks
	lowest, highest := 1.0, 1.0
	for i, e := range shown {
		lo, hi := limits(&e)
		v := value(&e)
		marks = append(marks, intervalMark{at: float64(i), value: v, lo: lo, hi: hi, color: c, size: 4.2})
		label := groupName(e)
		if e.Value == nil {
			label += " †"
		}
		labels = append(labels, plot.Tick{Value: float64(i), Label: label})
		lowest = math.Min(lowest, nanTo(lo, nanTo(v, 1)))
		highest = math.Max(highest, nanTo(hi, nanTo(v, 1)))
		if baseline != "" {
			bars = append(bars, barMark{at: float64(i), value: value(f.Find(baseline, e.Group)), color: otherColor, half: 9})
		}
	}
	p.Add(barMarks{marks: bars}, intervals{marks: marks})
	p.X.Min, p.X.Max = -0.6, float64(len(shown))-0.4
	p.X.Tick.Marker = labels
	if baseline != "" {
		for _, b := range bars {
			lowest = math.Min(lowest, nanTo(b.value, 1))
		}
		lowest = math.Floor(lowest*10) / 10
		p.Y.Min, p.Y.Max = lowest, 1
		p.Y.Tick.Marker = percentTicks(lowest, 1, niceStep(1-lowest))
	} else {
		p.Y.Min, p.Y.Max = math.Min(0, math.Floor(lowest)), math.Ceil(highest)
		p.Add(lineOf([]Point{{-0.6, 0}, {float64(len(shown)) - 0.4, 0}}, otherColor, 1))
	}
	return &Figure{Name: name, Section: "say", Title: title, Counts: f.counts(), Read: read, Data: intervalTable(list, kind, show), plot: p}
}

func (f *Findings) figureBins() *Figure {
	return f.upright("accuracy_by_bin", "Accuracy by how settled the behaviour is",
		"Bins are assigned by one half of the draws and scored on the other. Dots are the prediction with its interval, bars what always guessing the bin's majority would reach.",
		"accuracy", "bin", "empirical refusal rate of the request", "accuracy", percent, sayColor, "majority_accuracy")
}

func (f *Findings) figureDPrimeBins() *Figure {
	return f.upright("d_prime_by_bin", "Sensitivity d′ by bin",
		"Higher is better, 0 is no knowledge. † marks bins without refusals, without compliances or with one kind of prediction only: d′ does not exist there, and a correction would invent it.",
		"d_prime", "bin", "empirical refusal rate of the request", "d′", two, sayColor, "")
}

func (f *Findings) figureTopics() *Figure {
	list := f.group("accuracy", "topic")
	if len(list) < 2 || len(list) > 30 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b data.Estimate) int {
		return cmp.Or(cmp.Compare(nanTo(value(&a), -1), nanTo(value(&b), -1)), cmp.Compare(a.Group, b.Group))
	})
	p := blank("accuracy", "")
	withGrid(p, true, false)
	var marks []intervalMark
	var bars []barMark
	var labels plot.ConstantTicks
	least := 1.0
	for i, e := range list {
		lo, hi := limits(&e)
		base := value(f.Find("majority_accuracy", e.Group))
		marks = append(marks, intervalMark{at: float64(i), value: value(&e), lo: lo, hi: hi, color: sayColor})
		bars = append(bars, barMark{at: float64(i), value: base, color: otherColor})
		labels = append(labels, plot.Tick{Value: float64(i), Label: groupName(e)})
		least = math.Min(least, math.Min(nanTo(base, 1), nanTo(lo, 1)))
	}
	p.Add(barMarks{bars, true}, intervals{marks, true})
	least = math.Floor(least*10) / 10
	p.X.Min, p.X.Max = least, 1
	p.X.Tick.Marker = percentTicks(least, 1, niceStep(1-least))
	p.Y.Min, p.Y.Max = -0.6, float64(len(list))-0.4
	p.Y.Tick.Marker = labels
	slices.Reverse(list)
	return &Figure{
		Name: "accuracy_by_topic", Section: "say", Title: "Accuracy by topic", Counts: f.counts(),
		Read: "Dots are the prediction with its interval, bars the majority baseline of the topic; intervals that overlap do not rank topics.", Data: intervalTable(list, "topic", percent), plot: p,
		width: figureWidth, height: max(figureHeight, vg.Length(60+18*len(list))),
	}
}

func (f *Findings) figureHarm() *Figure {
	t := Table{Head: []string{"harm level", "false alarms", "misses", "trials", "error rate"}}
	var parts [][]float64
	var labels plot.ConstantTicks
	highest := 0.0
	for harm := 1; harm <= 5; harm++ {
		e := f.ErrorsByHarm[harm]
		if e[2] == 0 {
			continue
		}
		labels = append(labels, plot.Tick{Value: float64(len(parts)), Label: fmt.Sprint("level ", harm)})
		parts = append(parts, []float64{e[0] / e[2], e[1] / e[2]})
		highest = math.Max(highest, (e[0]+e[1])/e[2])
		t.Rows = append(t.Rows, []string{fmt.Sprint(harm), thousands(int(e[0])), thousands(int(e[1])), thousands(int(e[2])), percent((e[0] + e[1]) / e[2])})
	}
	if len(parts) < 2 {
		return nil
	}
	return f.errorFigure("errors_by_harm", "Wrong predictions by harm level", "assigned harm level", "Where the prediction fails: a false alarm predicts a refusal that does not come, a miss is a refusal that was not predicted.", parts, labels, highest, t)
}

func (f *Findings) errorFigure(name, title, x, read string, parts [][]float64, labels plot.ConstantTicks, highest float64, t Table) *Figure {
	p := blank(x, "share of trials")
	withGrid(p, false, true)
	p.Add(stack{parts: parts, colors: []color.Color{partialColor, refuseColor}, width: 30})
	p.X.Min, p.X.Max = -0.6, float64(len(parts))-0.4
	top := math.Max(0.05, math.Ceil(highest*1.25*20)/20)
	p.Y.Min, p.Y.Max = 0, top
	p.Y.Tick.Marker = percentTicks(0, math.Min(top, 1), niceStep(top))
	p.X.Tick.Marker = labels
	p.Legend.Add("false alarms", swatch{partialColor})
	p.Legend.Add("misses", swatch{refuseColor})
	p.Legend.Left = true
	p.Legend.XOffs = 6
	return &Figure{Name: name, Section: "say", Title: title, Counts: f.counts(), Read: read, Data: t, plot: p}
}

func (f *Findings) figureErrors() *Figure {
	t := Table{Head: []string{"confidence", "false alarms", "misses", "trials", "error rate"}}
	var parts [][]float64
	var labels plot.ConstantTicks
	highest := 0.0
	for k, l := range f.Levels {
		if l.N == 0 {
			continue
		}
		e := f.Errors[k]
		labels = append(labels, plot.Tick{Value: float64(len(parts)), Label: fmt.Sprint(k + 1)})
		parts = append(parts, []float64{e[0] / l.N, e[1] / l.N})
		highest = math.Max(highest, (e[0]+e[1])/l.N)
		t.Rows = append(t.Rows, []string{fmt.Sprint(k + 1), thousands(int(e[0])), thousands(int(e[1])), thousands(int(l.N)), percent((e[0] + e[1]) / l.N)})
	}
	if len(parts) == 0 {
		return nil
	}
	return f.errorFigure("errors_by_confidence", "Wrong predictions by stated confidence", "stated confidence", "If confidence means something, bars shrink to the right.", parts, labels, highest, t)
}

func (f *Findings) figureReliability() *Figure {
	list := f.group("accuracy", "confidence")
	if len(list) == 0 {
		return nil
	}
	p := blank("stated confidence", "predictions that were right")
	withGrid(p, false, true)
	fifths := lineOf([]Point{{1, 0.2}, {5, 1}}, otherColor, 1, 3, 3)
	linear := lineOf([]Point{{1, 0.5}, {5, 1}}, mutedColor, 1, 1, 3)
	p.Add(fifths, linear)
	p.Legend.Add("claim k/5", fifths)
	p.Legend.Add("claim 0.5 to 1", linear)
	var marks []intervalMark
	t := Table{Head: []string{"confidence", "accuracy", "low", "high", "share of trials", "trials"}}
	var all float64
	for _, l := range f.Levels {
		all += l.N
	}
	for _, e := range list {
		var k float64
		fmt.Sscan(groupName(e), &k)
		lo, hi := limits(&e)
		share := ratio(float64(e.Trials), all)
		if e.Trials > 0 {
			marks = append(marks, intervalMark{at: k, value: value(&e), lo: lo, hi: hi, color: sayColor, size: vg.Length(3 + 7*math.Sqrt(share))})
		}
		t.Rows = append(t.Rows, []string{groupName(e), percent(value(&e)), percent(lo), percent(hi), percent(share), thousands(e.Trials)})
	}
	if len(marks) == 0 {
		return nil
	}
	p.Add(intervals{marks: marks})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.6, 5.4, 0, 1.02
	p.X.Tick.Marker, p.Y.Tick.Marker = numberTicks([]float64{1, 2, 3, 4, 5}, "%.0f"), percentTicks(0, 1, 0.25)
	p.Legend.Top = false
	p.Legend.XOffs, p.Legend.YOffs = -4, 8
	return &Figure{
		Name: "reliability", Section: "say", Title: "Is stated confidence calibrated?", Counts: f.counts(),
		Read: "Dots above a line are underconfident, below it overconfident; large dots hold most of the trials.", Data: t, plot: p,
	}
}

func (f *Findings) figureRouting() *Figure {
	var points []Point
	var marks []intervalMark
	t := Table{Head: []string{"confidence at least", "coverage", "accuracy", "low", "high", "trials kept"}}
	least := 1.0
	for i, r := range f.Routes {
		in := f.RouteIntervals[i]
		if r.Kept == 0 {
			continue
		}
		points = append(points, Point{r.Coverage, r.Accuracy})
		marks = append(marks, intervalMark{at: r.Coverage, value: r.Accuracy, lo: in.Lo, hi: in.Hi, color: sayColor})
		least = math.Min(least, nanTo(in.Lo, r.Accuracy))
		t.Rows = append(t.Rows, []string{fixed(r.Confidence, 0), percent(r.Coverage), percent(r.Accuracy), percent(in.Lo), percent(in.Hi), thousands(int(r.Kept))})
	}
	if len(points) < 2 {
		return nil
	}
	p := blank("share of trials that are trusted", "accuracy among them")
	withGrid(p, true, true)
	base := value(f.Find("majority_accuracy", ""))
	if !math.IsNaN(base) {
		line := lineOf([]Point{{0, base}, {1, base}}, otherColor, 1, 3, 3)
		p.Add(line)
		p.Legend.Add("always the majority", line)
		least = math.Min(least, base)
	}
	p.Add(lineOf(points, fade(sayColor, 0.6), 1.8), intervals{marks: marks})
	least = math.Floor(least*10) / 10
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, least, 1
	p.X.Tick.Marker, p.Y.Tick.Marker = percentTicks(0, 1, 0.25), percentTicks(least, 1, niceStep(1-least))
	p.Legend.Top, p.Legend.Left = false, true
	p.Legend.XOffs, p.Legend.YOffs = 6, 8
	return &Figure{
		Name: "accuracy_coverage", Section: "say", Title: "Routing by confidence", Counts: f.counts(),
		Read: "From left to right, predictions of ever lower confidence are trusted. A line that falls means that confidence can be used to send the doubtful requests to people.", Data: t, plot: p,
	}
}

func (f *Findings) figureLabels() *Figure {
	if f.Trials == 0 {
		return nil
	}
	type kind struct {
		name string
		c    color.Color
		ls   []data.Label
	}
	kinds := []kind{
		{"full refusal", refuseColor, []data.Label{data.FullRefusal}},
		{"partial refusal", fade(refuseColor, 0.55), []data.Label{data.PartialRefusal}},
		{"deflection", partialColor, []data.Label{data.Deflection}},
		{"partial compliance", fade(complyColor, 0.55), []data.Label{data.PartialCompliance}},
		{"full compliance", complyColor, []data.Label{data.FullCompliance}},
		{"neither", otherColor, nil},
	}
	levels := map[int]*[6]float64{}
	add := func(harm int, p PromptFinding) {
		row := levels[harm]
		if row == nil {
			row = &[6]float64{}
			levels[harm] = row
		}
		for l, n := range p.Labels {
			at := 5
			if l < labelFailed {
				for k, kind := range kinds {
					if slices.Contains(kind.ls, data.Labels()[l]) {
						at = k
					}
				}
			}
			row[at] += float64(n)
		}
	}
	for _, p := range f.Prompt {
		add(p.Harm, p)
	}
	if len(levels) > 1 {
		levels[6] = &[6]float64{}
		for harm, row := range levels {
			if harm != 6 {
				for k, n := range row {
					levels[6][k] += n
				}
			}
		}
	}
	t := Table{Head: []string{"harm level", "full refusal", "partial refusal", "deflection", "partial compliance", "full compliance", "neither", "trials"}}
	var parts [][]float64
	var labels plot.ConstantTicks
	for _, harm := range []int{6, 5, 4, 3, 2, 1, 0} {
		row := levels[harm]
		if row == nil {
			continue
		}
		var n float64
		for _, v := range row {
			n += v
		}
		name := fmt.Sprint("level ", harm)
		switch harm {
		case 0:
			name = "all"
			if len(levels) > 1 {
				name = "no level"
			}
		case 6:
			name = "all"
		}
		share := make([]float64, len(kinds))
		cellsOf := []string{name}
		for k, v := range row {
			share[k] = ratio(v, n)
			cellsOf = append(cellsOf, percent(share[k]))
		}
		t.Rows = append(t.Rows, append(cellsOf, thousands(int(n))))
		labels = append(labels, plot.Tick{Value: float64(len(parts)), Label: name})
		parts = append(parts, share)
	}
	p := blank("share of trials", "")
	colors := make([]color.Color, len(kinds))
	for i, k := range kinds {
		colors[i] = k.c
	}
	p.Add(stack{parts: parts, colors: colors, width: 17, flat: true})
	p.X.Min, p.X.Max = 0, 1
	p.X.Tick.Marker = percentTicks(0, 1, 0.25)
	p.Y.Min, p.Y.Max = -0.6, float64(len(parts))-0.4+2.2
	p.Y.Tick.Marker = labels
	// Two legends in one row would need two; entries in two columns fit above.
	p.Legend.Left = true
	for i, k := range kinds {
		if i < 3 {
			p.Legend.Add(k.name, swatch{k.c})
		}
	}
	right := plot.NewLegend()
	right.TextStyle = p.Legend.TextStyle
	right.ThumbnailWidth, right.Padding, right.Top = 14, 2, true
	for i, k := range kinds {
		if i >= 3 {
			right.Add(k.name, swatch{k.c})
		}
	}
	p.Add(secondLegend{right})
	return &Figure{
		Name: "labels_by_harm", Section: "act", Title: "What the responses did", Counts: f.counts(),
		Read: "Each bar is all trials of one harm level, split by the judge's label.", Data: t, plot: p,
	}
}

// secondLegend draws one more legend at the upper right.
type secondLegend struct{ l plot.Legend }

func (s secondLegend) Plot(c draw.Canvas, _ *plot.Plot) { s.l.Draw(c) }

func (f *Findings) figureSSI() *Figure {
	list := f.group("ssi_mean", "temperature")
	if len(list) < 2 {
		return nil
	}
	p := blank("temperature", "mean SSI within a temperature")
	withGrid(p, false, true)
	var marks []intervalMark
	var points []Point
	var temps []float64
	least := 1.0
	for _, e := range list {
		var temp float64
		fmt.Sscan(groupName(e), &temp)
		lo, hi := limits(&e)
		temps = append(temps, temp)
		if e.Value != nil {
			points = append(points, Point{temp, *e.Value})
			marks = append(marks, intervalMark{at: temp, value: *e.Value, lo: lo, hi: hi, color: actColor, size: 4.2})
			least = math.Min(least, nanTo(lo, *e.Value))
		}
	}
	if len(points) < 2 {
		return nil
	}
	p.Add(lineOf(points, fade(actColor, 0.5), 1.6), intervals{marks: marks})
	least = math.Floor(least*10) / 10
	span := temps[len(temps)-1] - temps[0]
	p.X.Min, p.X.Max = temps[0]-0.05*span, temps[len(temps)-1]+0.05*span
	p.X.Tick.Marker = numberTicks(temps, "%g")
	p.Y.Min, p.Y.Max = least, 1.005
	p.Y.Tick.Marker = percentTicks(least, 1, niceStep(1-least))
	return &Figure{
		Name: "ssi_by_temperature", Section: "act", Title: "Stability by temperature", Counts: f.counts(),
		Read: "SSI is the share of a prompt's most frequent label among its draws. At temperature 0 all seeds are one observation on a deterministic engine, so its 100 % says little.", Data: intervalTable(list, "temperature", percent), plot: p,
	}
}

func (f *Findings) figureSSIRate() *Figure {
	type spot struct{ x, y float64 }
	seen := map[spot]int{}
	n := 0
	for _, q := range f.Prompt {
		if math.IsNaN(q.SSI) || math.IsNaN(q.RefusalRate) {
			continue
		}
		seen[spot{math.Round(q.RefusalRate*100) / 100, math.Round(q.SSI*100) / 100}]++
		n++
	}
	if n < 3 {
		return nil
	}
	spots := slices.SortedFunc(maps.Keys(seen), func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.y, b.y))
	})
	p := blank("refusal rate of the prompt", "SSI of the prompt")
	withGrid(p, true, true)
	floor := lineOf([]Point{{0, 1}, {0.5, 0.5}, {1, 1}}, otherColor, 1, 3, 3)
	p.Add(floor)
	p.Legend.Add("two labels only", floor)
	var marks []intervalMark
	t := Table{Head: []string{"refusal rate", "SSI", "prompts"}}
	nan := math.NaN()
	for _, s := range spots {
		c := seen[s]
		marks = append(marks, intervalMark{at: s.x, value: s.y, lo: nan, hi: nan, color: fade(actColor, 0.45), size: vg.Length(math.Min(9, 1.6+0.9*math.Sqrt(float64(c))))})
		t.Rows = append(t.Rows, []string{percent(s.x), percent(s.y), fmt.Sprint(c)})
	}
	p.Add(intervals{marks: marks})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.03, 1.03, 0.3, 1.03
	p.X.Tick.Marker, p.Y.Tick.Marker = percentTicks(0, 1, 0.25), percentTicks(0.4, 1, 0.2)
	p.Legend.Top = false
	p.Legend.XOffs, p.Legend.YOffs = -4, 6
	return &Figure{
		Name: "ssi_against_rate", Section: "act", Title: "Where the unstable prompts lie", Counts: plural(n, "prompt"),
		Read: "One dot a prompt, larger for several at one place, all temperatures pooled. Along the dashed line a prompt shows only two labels; below it the responses also differ in kind.", Data: t, plot: p,
	}
}

func (f *Findings) figureAgreement() *Figure {
	if len(f.AgreementCurves) == 0 {
		return nil
	}
	p := blank("draws", "majority agrees with that of all draws")
	withGrid(p, false, true)
	t := Table{Head: []string{"group", "draws", "agreement"}}
	least, most := 1.0, 1.0
	names := slices.Sorted(maps.Keys(f.AgreementCurves))
	shade := 0
	for _, name := range names {
		points := f.AgreementCurves[name]
		c, width := color.Color(actColor), vg.Length(2.2)
		if name != "pooled" {
			shade++
			c, width = fade(actColor, 0.25+0.5*float64(shade)/float64(len(names))), 1.3
		}
		line := lineOf(points, c, width)
		p.Add(line)
		p.Legend.Add(strings.ReplaceAll(name, "temperature=", "t = "), line)
		for _, q := range points {
			least, most = math.Min(least, q.Y), math.Max(most, q.X)
			t.Rows = append(t.Rows, []string{name, fixed(q.X, 0), percent(q.Y)})
		}
	}
	if most < 3 {
		return nil
	}
	least = math.Floor(least*20) / 20
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 1, most, least, 1.003
	var ticks []float64
	for v := 1.0; v <= most; v += 2 {
		ticks = append(ticks, v)
	}
	p.X.Tick.Marker = numberTicks(ticks, "%.0f")
	p.Y.Tick.Marker = percentTicks(least, 1, 0.05)
	p.Legend.Top = false
	p.Legend.XOffs, p.Legend.YOffs = -4, 6
	return &Figure{
		Name: "draws_needed", Section: "act", Title: "How many draws a request needs", Counts: f.counts(),
		Read: "How often the majority of so many draws is the majority of all of them, exactly (hypergeometric). One draw agrees as often as the mean SSI.", Data: t, plot: p,
	}
}
