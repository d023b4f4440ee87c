package analysis

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"demur/data"
)

// stateFigures are the figures of the section on the state; none where nothing
// was fitted.
func (f *Findings) stateFigures() []*Figure {
	var list []*Figure
	add := func(fig *Figure) {
		if fig != nil {
			fig.Section = "state"
			list = append(list, fig)
		}
	}
	targets := f.probed()
	for _, p := range targets {
		add(f.figureControls(p))
		add(f.figureSites(p))
	}
	add(f.figureGains(targets))
	add(f.figurePositions(targets))
	add(f.figureSubspaces(targets))
	add(f.figureAngles())
	add(f.figureTopicAngles())
	add(f.figurePredictors())
	for _, k := range f.transfers() {
		if drawnTransfer(k.target, k.by) {
			add(f.figureTransfer(k.target, k.by))
		}
	}
	return list
}

// drawnTransfer says which transfers get a figure: others are in a table.
func drawnTransfer(target, by string) bool {
	return (target == "harm" || target == "refusal") && by != "wording"
}

func targetCounts(e *data.Estimate) string {
	if e == nil {
		return ""
	}
	return plural(e.Requests, "request") + ", " + plural(e.Trials, "prompt")
}

// controlWords are what controls are called in figures.
var controlWords = map[string]string{
	"length": "length and punctuation", "topic": "topic alone", "wording": "wording alone", "embedding": "token embeddings",
	"untrained": "untrained twin", "shuffled": "words shuffled", "random directions": "random directions",
	"untrained, carried over": "direction on the twin", "shuffled, carried over": "direction on shuffled words",
}

// figureControls sets a target's direction beside the text alone and beside what
// should not know.
func (f *Findings) figureControls(p probed) *Figure {
	metric := ProbeMetric + p.measure
	own := f.stateRow(metric, "target", p.target, "method", p.method).estimate()
	text := f.stateRow(metric, "target", p.target, "method", "text").estimate()
	gain := f.stateRow(ProbeMetric+"increment", "target", p.target, "method", p.method).estimate()
	if value(own) != value(own) {
		return nil
	}
	type line struct {
		name string
		e    *data.Estimate
		c    color.Color
	}
	lines := []line{{"state, " + words(p.method), own, knowColor}, {"words of the request", text, sayColor}}
	for _, r := range f.stateRows(metric, map[string]string{"target": p.target}, "control") {
		name := r.keys["control"]
		if w, ok := controlWords[strings.ReplaceAll(name, ";", ",")]; ok {
			name = w
		}
		lines = append(lines, line{name, &r.Estimate, otherColor})
	}
	plotted := blank(measureWords(p.measure)+" on held-out requests", "")
	withGrid(plotted, true, false)
	t := Table{Head: []string{"what is read", "value", "low", "high", "what it is"}}
	var marks []intervalMark
	var ticks plot.ConstantTicks
	least := 0.5
	for i, l := range lines {
		at := float64(len(lines) - 1 - i)
		lo, hi := limits(l.e)
		marks = append(marks, intervalMark{at: at, value: value(l.e), lo: lo, hi: hi, color: l.c, size: 4.2})
		ticks = append(ticks, plot.Tick{Value: at, Label: l.name})
		t.Rows = append(t.Rows, []string{l.name, three(value(l.e)), three(lo), three(hi), strings.Join(l.e.Warnings, "; ")})
		least = math.Min(least, nanTo(lo, nanTo(value(l.e), 1)))
	}
	least = math.Floor(10*least) / 10
	height := float64(len(lines))
	if v := value(f.stateRow(ProbeMetric+"null_95", "target", p.target, "method", p.method).estimate()); !math.IsNaN(v) {
		plotted.Add(lineOf([]Point{{v, -0.5}, {v, height - 0.5}}, refuseColor, 1, 3, 3))
	}
	plotted.Add(lineOf([]Point{{0.5, -0.5}, {0.5, height - 0.5}}, mutedColor, 1), intervals{marks, true})
	plotted.X.Min, plotted.X.Max, plotted.Y.Min, plotted.Y.Max = least, 1, -0.5, height-0.5
	plotted.X.Tick.Marker = tenths(least, 1)
	plotted.Y.Tick.Marker = ticks
	read := "Text and state together reach " + withLimits(gain) + " more than the words alone: that is the finding. The line is chance"
	if f.stateRow(ProbeMetric+"null_95", "target", p.target, "method", p.method) != nil {
		read += ", the dashed line what 95 % of permuted labels stay below, every choice made anew"
	}
	return &Figure{
		Name: "state_controls_" + fileName(p.target), Title: "Telling " + words(p.target) + ": state, words and controls", Counts: targetCounts(own),
		Read: read + ".", Data: t, plot: plotted, width: figureWidth, height: vg.Length(90 + 20*len(lines)),
	}
}

func measureWords(measure string) string {
	if measure == "auroc" {
		return "AUC"
	}
	return "concordance"
}

// fileName is a target as a part of a file's name.
func fileName(target string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(target))
}

func tenths(lo, hi float64) plot.ConstantTicks {
	step := 0.1
	if hi-lo > 0.6 {
		step = 0.2
	}
	var list []float64
	for v := lo; v <= hi+1e-9; v += step {
		list = append(list, v)
	}
	return numberTicks(list, "%.1f")
}

// anchorColors are of the positions, in their order.
var anchorColors = []color.NRGBA{actColor, knowColor, sayColor, complyColor, partialColor, refuseColor, otherColor}

// figureSites draws what each layer reaches, a line for each position.
func (f *Findings) figureSites(p probed) *Figure {
	metric := ProbeMetric + p.measure
	anchors, at := byLayer(f.stateRows(metric, map[string]string{"target": p.target, "method": p.method}, "site"))
	if len(anchors) == 0 || len(at[anchors[0]]) < 2 {
		return nil
	}
	plotted := blank("layer", measureWords(p.measure)+" on held-out requests")
	withGrid(plotted, false, true)
	t := Table{Head: []string{"position", "layer", "value", "low", "high"}}
	least, last := 0.5, 0.0
	for i, a := range anchors {
		c := anchorColors[i%len(anchorColors)]
		var points []Point
		var area band
		for _, r := range at[a] {
			lo, hi := limits(&r.Estimate)
			x, y := layerOf(r), value(&r.Estimate)
			t.Rows = append(t.Rows, []string{a, fixed(x, 0), three(y), three(lo), three(hi)})
			if math.IsNaN(y) {
				continue
			}
			points = append(points, Point{x, y})
			area.x, area.lo, area.hi = append(area.x, x), append(area.lo, nanTo(lo, y)), append(area.hi, nanTo(hi, y))
			least, last = math.Min(least, nanTo(lo, y)), math.Max(last, x)
		}
		area.c = fade(c, 0.14)
		line := lineOf(points, c, 2)
		plotted.Add(area, line)
		plotted.Legend.Add(a, line)
	}
	flat := func(v float64, name string, c color.Color) {
		if !math.IsNaN(v) {
			line := lineOf([]Point{{0, v}, {last, v}}, c, 1.2, 4, 3)
			plotted.Add(line)
			plotted.Legend.Add(name, line)
			t.Rows = append(t.Rows, []string{name, "", three(v), "", ""})
		}
	}
	flat(value(f.stateRow(metric, "target", p.target, "method", "text").estimate()), "words alone", mutedColor)
	flat(value(f.stateRow(ProbeMetric+"max_null_95", "target", p.target, "method", p.method).estimate()), "chance, all sites", refuseColor)
	least = math.Floor(10*least) / 10
	plotted.X.Min, plotted.X.Max, plotted.Y.Min, plotted.Y.Max = 0, last, aboveLegend(least, 1, len(anchors)+2), 1
	plotted.Y.Tick.Marker = tenths(least, 1)
	plotted.X.Tick.Marker = layerTicks(last)
	plotted.Legend.Top, plotted.Legend.Left = false, false
	plotted.Legend.XOffs, plotted.Legend.YOffs = -4, 8
	own := f.stateRow(metric, "target", p.target, "method", p.method).estimate()
	return &Figure{
		Name: "state_layers_" + fileName(p.target), Title: "Where " + words(p.target) + " can be read, by layer", Counts: targetCounts(own),
		Read: "Each layer alone, " + words(p.method) + ", with its band; no layer was chosen here. A layer counts where it lies above what the greatest of all sites reaches by chance, and is of interest where it lies above the words alone.",
		Data: t, plot: plotted,
	}
}

func layerTicks(last float64) plot.ConstantTicks {
	step := math.Max(1, math.Ceil(last/8))
	var list []float64
	for v := 0.0; v <= last; v += step {
		list = append(list, v)
	}
	return numberTicks(list, "%.0f")
}

// A band is the area between two lines.
type band struct {
	x, lo, hi []float64
	c         color.Color
}

func (b band) Plot(c draw.Canvas, p *plot.Plot) {
	if len(b.x) < 2 {
		return
	}
	tx, ty := p.Transforms(&c)
	var around []vg.Point
	for i := range b.x {
		around = append(around, vg.Point{X: tx(b.x[i]), Y: ty(math.Max(b.lo[i], p.Y.Min))})
	}
	for i := len(b.x) - 1; i >= 0; i-- {
		around = append(around, vg.Point{X: tx(b.x[i]), Y: ty(math.Max(b.hi[i], p.Y.Min))})
	}
	c.FillPolygon(b.c, around)
}

// figureGains draws the increment over text of every method.
func (f *Findings) figureGains(targets []probed) *Figure {
	type line struct {
		name string
		e    *data.Estimate
		main bool
	}
	var lines []line
	for _, p := range targets {
		for _, r := range f.stateRows(ProbeMetric+"increment", map[string]string{"target": p.target}, "method") {
			lines = append(lines, line{words(p.target) + ", " + words(r.keys["method"]), &r.Estimate, r.keys["method"] == p.method})
		}
	}
	if len(lines) == 0 {
		return nil
	}
	plotted := blank("what the state adds to the words, in AUC", "")
	withGrid(plotted, true, false)
	t := Table{Head: []string{"direction", "increment", "low", "high"}}
	var marks []intervalMark
	var ticks plot.ConstantTicks
	least, most := -0.02, 0.02
	for i, l := range lines {
		at := float64(len(lines) - 1 - i)
		lo, hi := limits(l.e)
		c := fade(knowColor, 0.5)
		if l.main {
			c = knowColor
		}
		marks = append(marks, intervalMark{at: at, value: value(l.e), lo: lo, hi: hi, color: c, size: 4.2})
		ticks = append(ticks, plot.Tick{Value: at, Label: l.name})
		t.Rows = append(t.Rows, []string{l.name, three(value(l.e)), three(lo), three(hi)})
		least, most = math.Min(least, nanTo(lo, least)), math.Max(most, nanTo(hi, most))
	}
	n := float64(len(lines))
	plotted.Add(lineOf([]Point{{0, -0.5}, {0, n - 0.5}}, mutedColor, 1), intervals{marks, true})
	plotted.X.Min, plotted.X.Max, plotted.Y.Min, plotted.Y.Max = least, most, -0.5, n-0.5
	plotted.Y.Tick.Marker = ticks
	step := 0.05
	for (most-least)/step > 6 {
		step *= 2
	}
	var list []float64
	for k := math.Ceil(least / step); k*step <= most; k++ {
		list = append(list, k*step+0) // no −0
	}
	plotted.X.Tick.Marker = numberTicks(list, "%.2f")
	return &Figure{
		Name: "state_increment", Title: "What the state adds to the words", Counts: plural(len(targets), "target"),
		Read: "The AUC of words and state together less that of the words alone, on the same held-out requests, with a paired interval. At the line the state adds nothing. The strong mark is the method that stands for its target, fixed beforehand.",
		Data: t, plot: plotted, width: figureWidth, height: vg.Length(90 + 18*len(lines)),
	}
}

// figurePositions is the map of all sites: a target and position a row.
func (f *Findings) figurePositions(targets []probed) *Figure {
	m := matrix{low: 0.5, high: 1}
	t := Table{Head: []string{"target", "position"}}
	var rows []string
	for _, p := range targets {
		anchors, at := byLayer(f.stateRows(ProbeMetric+p.measure, map[string]string{"target": p.target, "method": p.method}, "site"))
		for _, a := range anchors {
			var values []float64
			cells := []string{words(p.target), a}
			for _, r := range at[a] {
				for len(values) < int(layerOf(r)) {
					values, cells = append(values, math.NaN()), append(cells, "–")
				}
				values, cells = append(values, value(&r.Estimate)), append(cells, two(value(&r.Estimate)))
			}
			m.values, rows, t.Rows = append(m.values, values), append(rows, words(p.target)+" at "+a), append(t.Rows, cells)
		}
	}
	columns := m.columns()
	if len(rows) == 0 || columns < 2 {
		return nil
	}
	for l := range columns {
		t.Head = append(t.Head, strconv.Itoa(l))
	}
	plotted := blank("layer", "")
	plotted.Add(m)
	plotted.X.Min, plotted.X.Max, plotted.Y.Min, plotted.Y.Max = -0.5, float64(columns)-0.5, -0.5, float64(len(rows))-0.5
	plotted.X.Tick.Marker, plotted.Y.Tick.Marker = layerTicks(float64(columns-1)), rowTicks(rows)
	return &Figure{
		Name: "state_positions", Title: "Position and layer", Counts: plural(len(rows)*columns, "site"),
		Read: "Each field is one site; no colour is chance, full colour an AUC of 1, red below one half. Where the prompt ends (post) the model has what it needs to answer; where the request ends (inst) it has read the request alone.",
		Data: t, plot: plotted, Wide: true, width: 840, height: vg.Length(64 + 24*len(rows)),
	}
}

// rowTicks names the rows of a matrix, the first on top.
func rowTicks(names []string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: float64(len(names) - 1 - i), Label: name})
	}
	return ticks
}

// A matrix draws values as coloured fields, the first row on top: no colour at
// low, full at high, red as far below low; with the numbers if they have room.
type matrix struct {
	values    [][]float64
	low, high float64
	style     *draw.TextStyle // nil for no numbers
}

func (m matrix) columns() int {
	n := 0
	for _, r := range m.values {
		n = max(n, len(r))
	}
	return n
}

func (m matrix) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for i, row := range m.values {
		y := float64(len(m.values) - 1 - i)
		for j, v := range row {
			if math.IsNaN(v) {
				continue
			}
			x := float64(j)
			share, hue := (v-m.low)/(m.high-m.low), knowColor
			if share < 0 {
				share, hue = -share, refuseColor
			}
			share = math.Round(20*clamp(share, 0, 1)) / 20
			lo, hi := vg.Point{X: tx(x - 0.47), Y: ty(y - 0.45)}, vg.Point{X: tx(x + 0.47), Y: ty(y + 0.45)}
			c.FillPolygon(fade(hue, 0.04+0.66*share), []vg.Point{lo, {X: hi.X, Y: lo.Y}, hi, {X: lo.X, Y: hi.Y}})
			if m.style != nil {
				s := *m.style
				s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
				c.FillText(s, vg.Point{X: tx(x), Y: ty(y)}, strings.TrimPrefix(two(v), "0"))
			}
		}
	}
}

// figureSubspaces draws what 1 to 8 directions reach together.
func (f *Findings) figureSubspaces(targets []probed) *Figure {
	plotted := blank("directions together", "AUC on held-out requests")
	withGrid(plotted, false, true)
	t := Table{Head: []string{"target", "directions", "value", "low", "high", "gain over the first", "low", "high"}}
	least, most, n := 0.9, 1.0, 0
	for i, p := range targets {
		rows := f.stateRows(ProbeMetric+"subspace", map[string]string{"target": p.target}, "site", "k")
		if len(rows) == 0 {
			continue
		}
		c := anchorColors[(i+1)%len(anchorColors)]
		var points []Point
		var marks []intervalMark
		for _, r := range rows {
			k, err := strconv.Atoi(r.keys["k"])
			if err != nil || r.Value == nil {
				continue
			}
			lo, hi := limits(&r.Estimate)
			x := float64(k) + 0.08*float64(i-1)
			points = append(points, Point{x, *r.Value})
			marks = append(marks, intervalMark{at: x, value: *r.Value, lo: lo, hi: hi, color: c, size: 3})
			gain := f.stateRow(ProbeMetric+"subspace_gain", "target", p.target, "site", r.keys["site"], "k", r.keys["k"]).estimate()
			glo, ghi := limits(gain)
			t.Rows = append(t.Rows, []string{words(p.target), r.keys["k"], three(*r.Value), three(lo), three(hi), three(value(gain)), three(glo), three(ghi)})
			least, most = math.Min(least, nanTo(lo, *r.Value)), math.Max(most, x)
		}
		line := lineOf(points, fade(c, 0.6), 1.5)
		plotted.Add(line, intervals{marks: marks})
		plotted.Legend.Add(words(p.target), line)
		n++
	}
	if n == 0 || len(t.Rows) < 2 {
		return nil
	}
	least = math.Floor(10*least) / 10
	plotted.X.Min, plotted.X.Max, plotted.Y.Min, plotted.Y.Max = 0.7, most+0.3, aboveLegend(least, 1, n), 1
	plotted.Y.Tick.Marker = tenths(least, 1)
	plotted.X.Tick.Marker = numberTicks([]float64{1, 2, 3, 4, 5, 6, 7, 8}, "%.0f")
	plotted.Legend.Top = false
	plotted.Legend.XOffs, plotted.Legend.YOffs = -4, 8
	return &Figure{
		Name: "state_subspaces", Title: "How many directions does it take?", Counts: plural(n, "target"),
		Read: "One is the difference of the means; each further one is what best tells the label of what the ones before leave. A line that stays level says that one direction is enough; a rise says that the difference of the means holds more than the label.",
		Data: t, plot: plotted,
	}
}

// figureAngles draws the cosine between harm and refusal over layers, beside the
// noise floor and without noise.
func (f *Findings) figureAngles() *Figure {
	layerOf := func(r stateRow) float64 {
		n, err := strconv.Atoi(r.keys["layer"])
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	}
	rows := f.stateRows(ProbeMetric+"cosine", map[string]string{"a": "harm", "b": "refusal", "space": "raw"}, "layer")
	if len(rows) < 2 {
		return nil
	}
	slices.SortFunc(rows, func(a, b stateRow) int { return int(layerOf(a) - layerOf(b)) })
	plotted := blank("layer", "cosine")
	withGrid(plotted, false, true)
	t := Table{Head: []string{"layer", "cosine", "low", "high", "without noise", "most that noise allows", "whitened", "low", "high", "whitened, without noise"}}
	var raw, clean, floor, white []Point
	area := band{c: fade(knowColor, 0.14)}
	least := 0.0
	for _, r := range rows {
		x, v := layerOf(r), value(&r.Estimate)
		lo, hi := limits(&r.Estimate)
		without := value(f.withoutNoise(r))
		most := math.Sqrt(f.floor(r, "a") * f.floor(r, "b"))
		w := f.stateRow(ProbeMetric+"cosine", "a", "harm", "b", "refusal", "space", "whitened", "layer", r.keys["layer"])
		wlo, whi := limits(w.estimate())
		wn := math.NaN()
		if w != nil {
			wn = value(f.withoutNoise(*w))
		}
		t.Rows = append(t.Rows, []string{r.keys["layer"], three(v), three(lo), three(hi), three(without), three(most), three(value(w.estimate())), three(wlo), three(whi), three(wn)})
		put := func(to *[]Point, y float64) {
			if !math.IsNaN(y) {
				*to = append(*to, Point{x, clamp(y, -1, 1)})
				least = math.Min(least, clamp(y, -1, 1))
			}
		}
		put(&raw, v)
		put(&clean, without)
		put(&floor, most)
		put(&white, value(w.estimate()))
		if !math.IsNaN(v) {
			area.x, area.lo, area.hi = append(area.x, x), append(area.lo, nanTo(lo, v)), append(area.hi, nanTo(hi, v))
			least = math.Min(least, nanTo(lo, v))
		}
	}
	plotted.Add(area)
	for _, l := range []struct {
		name   string
		points []Point
		c      color.Color
		dashes []vg.Length
	}{{"cosine", raw, knowColor, nil}, {"without noise", clean, actColor, nil}, {"whitened", white, sayColor, nil}, {"noise floor", floor, mutedColor, []vg.Length{4, 3}}} {
		line := lineOf(l.points, l.c, 1.8, l.dashes...)
		plotted.Add(line)
		plotted.Legend.Add(l.name, line)
	}
	last := layerOf(rows[len(rows)-1])
	plotted.X.Min, plotted.X.Max = layerOf(rows[0]), last
	plotted.Y.Min, plotted.Y.Max = math.Floor(5*least)/5, 1
	plotted.Y.Tick.Marker = numberTicks(spaced(plotted.Y.Min, 1, 0.2), "%.1f")
	plotted.X.Tick.Marker = layerTicks(last)
	plotted.Legend.Top = false
	plotted.Legend.XOffs, plotted.Legend.YOffs = -4, 8
	return &Figure{
		Name: "state_angle", Title: "The angle between harm and refusal", Counts: plural(rows[0].Requests, "request"),
		Read: "Harm where the request ends against refusal where the prompt ends, differences of means, at the same layer. No cosine can be expected above the dashed line, for each direction has noise; without it the cosine is that of the green line. At 1 the two are one direction. Whitened is the angle that a linear reader sees.",
		Data: t, plot: plotted,
	}
}

func spaced(lo, hi, step float64) []float64 {
	var list []float64
	for i := 0; lo+float64(i)*step <= hi+1e-9; i++ {
		list = append(list, lo+float64(i)*step)
	}
	return list
}

// figureTopicAngles is the matrix of cosines between the refusals of topics.
func (f *Findings) figureTopicAngles() *Figure {
	const prefix = "refusal of "
	rows := f.stateRows(ProbeMetric+"cosine", map[string]string{"space": "raw"}, "a", "b", "layer")
	rows = slices.DeleteFunc(rows, func(r stateRow) bool { return !strings.HasPrefix(r.keys["a"], prefix) })
	if len(rows) == 0 {
		return nil
	}
	var names []string
	note := func(name string) int {
		name = strings.TrimPrefix(name, prefix)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return slices.Index(names, name)
	}
	t := Table{Head: []string{"refusals of", "and of", "cosine", "low", "high", "without noise", "noise floors"}}
	type cell struct {
		i, j int
		v    float64
	}
	var list []cell
	for _, r := range rows {
		lo, hi := limits(&r.Estimate)
		v := value(f.withoutNoise(r))
		list = append(list, cell{note(r.keys["a"]), note(r.keys["b"]), v})
		t.Rows = append(t.Rows, []string{
			strings.TrimPrefix(r.keys["a"], prefix), strings.TrimPrefix(r.keys["b"], prefix), three(value(&r.Estimate)), three(lo), three(hi), three(v),
			two(f.floor(r, "a")) + " and " + two(f.floor(r, "b")),
		})
	}
	m := square(len(names))
	for _, c := range list {
		m.values[c.i][c.j], m.values[c.j][c.i] = c.v, c.v
	}
	plotted := blank("", "")
	m.low, m.high = 0, 1
	m.numbers(plotted, len(names))
	plotted.Add(m)
	squareAxes(plotted, names, names)
	return &Figure{
		Name: "state_topic_angles", Title: "Is refusal one direction, whatever the topic?", Counts: "layer " + rows[0].keys["layer"] + ", " + plural(len(names), "topic"),
		Read: "Cosines between the directions of the refusals of two topics, without noise; all share the compliances they are set against, which alone makes them alike. Columns are the rows in order. Empty fields are below their noise.",
		Data: t, plot: plotted, width: figureWidth, height: vg.Length(70 + 22*len(names)),
	}
}

func square(n int) matrix {
	var m matrix
	for range n {
		row := make([]float64, n)
		for j := range row {
			row[j] = math.NaN()
		}
		m.values = append(m.values, row)
	}
	return m
}

// numbers lets a matrix show its values, if there is room.
func (m *matrix) numbers(p *plot.Plot, columns int) {
	if columns <= 14 {
		s := p.Legend.TextStyle
		s.Font.Size = 8.5
		m.style = &s
	}
}

// squareAxes numbers the columns and names the rows.
func squareAxes(p *plot.Plot, rows, columns []string) {
	var named []string
	for i, r := range rows {
		if i < len(columns) && r == columns[i] {
			r = fmt.Sprintf("%s (%d)", words(r), i+1)
		}
		named = append(named, r)
	}
	var ticks []float64
	for i := range columns {
		ticks = append(ticks, float64(i))
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(columns))-0.5, -0.5, float64(len(rows))-0.5
	p.Y.Tick.Marker = rowTicks(named)
	marks := numberTicks(ticks, "%.0f")
	for i := range marks {
		marks[i].Label = strconv.Itoa(i + 1)
	}
	p.X.Tick.Marker = marks
}

// figureTransfer is the matrix of what is fitted on one part and tested on
// another.
func (f *Findings) figureTransfer(target, by string) *Figure {
	rows := f.stateRows(ProbeMetric+"transfer", map[string]string{"target": target, "by": by}, "train", "test")
	var names []string
	for _, r := range rows {
		if name := r.keys["test"]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) < 2 {
		return nil
	}
	m := square(len(names))
	m.low, m.high = 0.5, 1
	others := slices.Clone(square(len(names)).values[0])
	for _, r := range rows {
		j := slices.Index(names, r.keys["test"])
		if i := slices.Index(names, r.keys["train"]); i >= 0 {
			m.values[i][j] = value(&r.Estimate)
		} else {
			others[j] = value(&r.Estimate)
		}
	}
	rowNames := slices.Clone(names)
	read := "Fitted on the row, tested on the column, at the site kept for all prompts; on the diagonal a request is tested by what was fitted without it. Columns are the rows in order."
	if len(names) > 2 {
		m.values, rowNames = append(m.values, others), append(rowNames, "all others")
		read += " The last row is fitted on all others: what it reaches, a new " + by + " can expect."
	}
	plotted := blank("tested on", "")
	m.numbers(plotted, len(names))
	plotted.Add(m)
	squareAxes(plotted, rowNames, names)
	return &Figure{
		Name: "state_transfer_" + fileName(target) + "_" + fileName(by), Title: "Does " + words(target) + " carry over to another " + by + "?", Counts: plural(len(names), by),
		Read: read, Data: f.transferRows(target, by), plot: plotted, width: figureWidth, height: vg.Length(80 + 22*len(rowNames)),
	}
}

// figurePredictors draws which of text, state and word tells behaviour best.
func (f *Findings) figurePredictors() *Figure {
	rows := f.stateRows(ProbeMetric+"act_concordance", nil, "predictor")
	if len(rows) == 0 {
		return nil
	}
	plotted := blank("concordance with the refusal rate, held-out requests", "")
	withGrid(plotted, true, false)
	t := Table{Head: []string{"predictor", "all prompts", "low", "high", "boundary", "low", "high", "AUC of the majority"}}
	var marks []intervalMark
	var ticks plot.ConstantTicks
	least, edges := 0.5, false
	for i, r := range rows {
		name := r.keys["predictor"]
		at := float64(len(rows) - 1 - i)
		c := knowColor
		switch {
		case name == "text":
			c = otherColor
		case strings.HasSuffix(name, " prediction"):
			c = sayColor
		case strings.Contains(name, "+"):
			c = actColor
		}
		lo, hi := limits(&r.Estimate)
		marks = append(marks, intervalMark{at: at + 0.13, value: value(&r.Estimate), lo: lo, hi: hi, color: c, size: 4.2})
		edge := f.stateRow(ProbeMetric+"act_concordance", "predictor", name, "among", "boundary").estimate()
		elo, ehi := limits(edge)
		if !math.IsNaN(value(edge)) {
			edges = true
			marks = append(marks, intervalMark{at: at - 0.2, value: value(edge), lo: elo, hi: ehi, color: fade(c, 0.45), size: 3})
		}
		ticks = append(ticks, plot.Tick{Value: at, Label: name})
		auc := f.stateRow(ProbeMetric+"act_auroc", "predictor", name).estimate()
		t.Rows = append(t.Rows, []string{name, three(value(&r.Estimate)), three(lo), three(hi), three(value(edge)), three(elo), three(ehi), three(value(auc))})
		least = math.Min(least, math.Min(nanTo(lo, 1), nanTo(elo, 1)))
	}
	least = math.Floor(10*least) / 10
	n := float64(len(rows))
	plotted.Add(lineOf([]Point{{0.5, -0.5}, {0.5, n - 0.5}}, mutedColor, 1), intervals{marks, true})
	plotted.X.Min, plotted.X.Max, plotted.Y.Min, plotted.Y.Max = least, 1, -0.5, n-0.5
	plotted.X.Tick.Marker, plotted.Y.Tick.Marker = tenths(least, 1), ticks
	read := "How often of two prompts with unlike refusal rates the one refused more often has the higher score: from the words of the request, from the state, from what the model says, and from these together."
	if edges {
		read += " Faint marks are among the prompts refused in 20 to 80 % of their trials."
	}
	return &Figure{
		Name: "state_word_act_predictors", Title: "State, word, act: what tells best what the model does?", Counts: targetCounts(&rows[0].Estimate),
		Read: read, Data: t, plot: plotted, Wide: true, width: 840, height: vg.Length(90 + 26*len(rows)),
	}
}
