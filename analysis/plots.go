package analysis

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours of figures. In the report each becomes a CSS variable, so that
// figures follow light and dark; none is pure black, which SVG leaves out.
var (
	inkColor     = color.NRGBA{0x1b, 0x25, 0x33, 0xff}
	mutedColor   = color.NRGBA{0x66, 0x70, 0x85, 0xff}
	gridColor    = color.NRGBA{0xe2, 0xe6, 0xed, 0xff}
	knowColor    = color.NRGBA{0x5b, 0x5b, 0xd6, 0xff}
	sayColor     = color.NRGBA{0xb8, 0x72, 0x0a, 0xff}
	actColor     = color.NRGBA{0x0e, 0x7c, 0x66, 0xff}
	refuseColor  = color.NRGBA{0xc4, 0x4b, 0x3a, 0xff}
	partialColor = color.NRGBA{0xe0, 0xa4, 0x4a, 0xff}
	complyColor  = color.NRGBA{0x3f, 0x7f, 0xb0, 0xff}
	otherColor   = color.NRGBA{0x9a, 0xa3, 0xb0, 0xff}
)

// cssColors maps them to the variables of the report's style sheet.
var cssColors = []struct {
	c    color.NRGBA
	name string
}{
	{inkColor, "--ink"},
	{mutedColor, "--muted"},
	{gridColor, "--grid"},
	{knowColor, "--know"},
	{sayColor, "--say"},
	{actColor, "--act"},
	{refuseColor, "--refuse"},
	{partialColor, "--partial"},
	{complyColor, "--comply"},
	{otherColor, "--other"},
}

const (
	figureWidth  = vg.Length(400)
	figureHeight = vg.Length(270)
)

func plotFont(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// blank returns a plot in the report's manner: no box, a light grid, labels at
// the ends of the axes.
func blank(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width = 0
		axis.Tick.LineStyle.Width = 0
		axis.Tick.Length = 3
		axis.Tick.Label.Font = plotFont(10)
		axis.Tick.Label.Color = mutedColor
		axis.Label.TextStyle.Font = plotFont(10.5)
		axis.Label.TextStyle.Color = inkColor
		axis.Label.Padding = 4
		axis.Padding = 2
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.TextStyle.Font = plotFont(10)
	p.Legend.TextStyle.Color = inkColor
	p.Legend.ThumbnailWidth = 14
	p.Legend.Padding = 2
	p.Legend.Top = true
	return p
}

func withGrid(p *plot.Plot, vertical, horizontal bool) {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = gridColor, gridColor
	g.Vertical.Width, g.Horizontal.Width = 0.7, 0.7
	if !vertical {
		g.Vertical.Color = nil
	}
	if !horizontal {
		g.Horizontal.Color = nil
	}
	p.Add(g)
}

// aboveLegend returns where an axis of y has to begin so that a legend of some lines
// at its lower end lies below least.
func aboveLegend(least, most float64, lines int) float64 {
	share := float64(vg.Length(13*lines+10) / (figureHeight - 60)) // of the height, the labels' left out
	return most - (most-least)/(1-min(share, 0.5))
}

// percentTicks marks the unit interval in percent.
func percentTicks(lo, hi, step float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for v := lo; v <= hi+1e-9; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.0f%%", 100*v)})
	}
	return ticks
}

func numberTicks(values []float64, format string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, v := range values {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf(format, v)})
	}
	return ticks
}

func lineOf(points []Point, c color.Color, width vg.Length, dashes ...vg.Length) *plotter.Line {
	xy := make(plotter.XYs, len(points))
	for i, p := range points {
		xy[i] = plotter.XY{X: p.X, Y: p.Y}
	}
	return &plotter.Line{XYs: xy, LineStyle: draw.LineStyle{Color: c, Width: width, Dashes: dashes}}
}

// An intervalMark is a value with its interval.
type intervalMark struct {
	at            float64 // position on the other axis
	value, lo, hi float64 // limits may be NaN
	color         color.Color
	size          vg.Length
}

// intervals draws values with their intervals, along x if flat, else along y.
type intervals struct {
	marks []intervalMark
	flat  bool
}

func (v intervals) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, m := range v.marks {
		if math.IsNaN(m.value) {
			continue
		}
		point := func(along float64) vg.Point {
			if v.flat {
				return vg.Point{X: tx(along), Y: ty(m.at)}
			}
			return vg.Point{X: tx(m.at), Y: ty(along)}
		}
		r := m.size
		if r == 0 {
			r = 3.6
		}
		if !math.IsNaN(m.lo) && !math.IsNaN(m.hi) {
			a, b := point(m.lo), point(m.hi)
			c.StrokeLine2(draw.LineStyle{Color: m.color, Width: 1.6}, a.X, a.Y, b.X, b.Y)
		}
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: m.color, Radius: r, Shape: draw.CircleGlyph{}}, point(m.value))
	}
}

// A hollow mark for baselines: a short bar across.
type barMark struct {
	at, value float64
	color     color.Color
	half      vg.Length
}

type barMarks struct {
	marks []barMark
	flat  bool
}

func (v barMarks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, m := range v.marks {
		if math.IsNaN(m.value) {
			continue
		}
		half := m.half
		if half == 0 {
			half = 6
		}
		style := draw.LineStyle{Color: m.color, Width: 2}
		if v.flat {
			c.StrokeLine2(style, tx(m.value), ty(m.at)-half, tx(m.value), ty(m.at)+half)
		} else {
			c.StrokeLine2(style, tx(m.at)-half, ty(m.value), tx(m.at)+half, ty(m.value))
		}
	}
}

// stack draws bars made of parts, at whole positions; flat bars run along x.
type stack struct {
	parts  [][]float64 // [bar][part]
	colors []color.Color
	width  vg.Length
	flat   bool
}

func (s stack) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for i, parts := range s.parts {
		var sum float64
		for k, v := range parts {
			if v <= 0 || math.IsNaN(v) {
				continue
			}
			var lo, hi vg.Point
			if s.flat {
				lo = vg.Point{X: tx(sum), Y: ty(float64(i)) - s.width/2}
				hi = vg.Point{X: tx(sum + v), Y: ty(float64(i)) + s.width/2}
			} else {
				lo = vg.Point{X: tx(float64(i)) - s.width/2, Y: ty(sum)}
				hi = vg.Point{X: tx(float64(i)) + s.width/2, Y: ty(sum + v)}
			}
			c.FillPolygon(s.colors[k], []vg.Point{lo, {X: hi.X, Y: lo.Y}, hi, {X: lo.X, Y: hi.Y}})
			sum += v
		}
	}
}

// swatch is the legend's square.
type swatch struct{ c color.Color }

func (s swatch) Thumbnail(c *draw.Canvas) {
	m := c.Center()
	const h = 4
	c.FillPolygon(s.c, []vg.Point{{X: m.X - h, Y: m.Y - h}, {X: m.X + h, Y: m.Y - h}, {X: m.X + h, Y: m.Y + h}, {X: m.X - h, Y: m.Y + h}})
}

// cells draws a strip of coloured columns for each row: what the probability, the
// word and the act of each prompt are, prompts side by side.
type cells struct {
	rows   [][]color.Color // [row from the top][column]
	height vg.Length
}

func (s cells) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for r, row := range s.rows {
		y := ty(float64(len(s.rows) - 1 - r))
		for i := 0; i < len(row); {
			j := i
			for j < len(row) && row[j] == row[i] {
				j++
			}
			if row[i] != nil {
				lo, hi := tx(float64(i)), tx(float64(j))
				c.FillPolygon(row[i], []vg.Point{{X: lo, Y: y - s.height/2}, {X: hi, Y: y - s.height/2}, {X: hi, Y: y + s.height/2}, {X: lo, Y: y + s.height/2}})
			}
			i = j
		}
	}
}

// fade is a colour at part of its strength.
func fade(c color.NRGBA, alpha float64) color.NRGBA {
	c.A = uint8(math.Round(255 * clamp(alpha, 0, 1)))
	return c
}

// scaleKey says, above a strip, what the strength of its colours means.
type scaleKey struct{ style draw.TextStyle }

func (k scaleKey) Plot(c draw.Canvas, _ *plot.Plot) {
	const steps, width, height = 10, 9, 8
	style := k.style
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	y := c.Max.Y - height
	x := c.Min.X
	write := func(s string) {
		c.FillText(style, vg.Point{X: x, Y: y}, s)
		x += style.Width(s) + 6
	}
	write("compliance")
	for i := range steps {
		lo := x + vg.Length(i*width)
		c.FillPolygon(fade(mutedColor, 0.08+0.92*float64(i)/(steps-1)), []vg.Point{{X: lo, Y: y - height/2}, {X: lo + width, Y: y - height/2}, {X: lo + width, Y: y + height/2}, {X: lo, Y: y + height/2}})
	}
	x += steps*width + 6
	write("refusal; no colour: not known")
}
