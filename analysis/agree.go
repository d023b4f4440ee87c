package analysis

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"demur/data"
)

// A Rated is a response with the labels of two judges.
type Rated struct {
	Request string // its cluster: responses to one request are not independent
	Source  string // who wrote the response; may be empty
	Row     data.Label
	Column  data.Label
}

// Agreements is how far two judges agree on the responses of one source.
type Agreements struct {
	Row       string           `json:"row"`    // the judge of the rows: the human one, where one is
	Column    string           `json:"column"` // the judge of the columns
	Source    string           `json:"source"` // "" for all sources together
	Responses int              `json:"responses"`
	Requests  int              `json:"requests"` // clusters of the intervals
	Level     float64          `json:"level"`    // of the intervals
	By        []ClassAgreement `json:"by"`       // three classes, lenient, strict, labels
}

// A ClassAgreement is the agreement on one set of classes.
type ClassAgreement struct {
	Classes   string          `json:"classes"`   // three, lenient, strict or labels
	Names     []string        `json:"names"`     // of the classes
	Confusion [][]int         `json:"confusion"` // [row's class][column's class], in responses
	Pairs     int             `json:"pairs"`     // in the table
	LeftOut   int             `json:"left_out"`  // one of the two labels is in no class (unclear, empty, degenerate)
	Agreement AgreementFigure `json:"agreement"` // share of equal classes
	Kappa     AgreementFigure `json:"kappa"`
	Each      []ClassFigure   `json:"each"` // by class
}

// A ClassFigure is how well the column's judge finds one class, the row's taken
// as true.
type ClassFigure struct {
	Class     string          `json:"class"`
	Rows      int             `json:"rows"` // responses that the row's judge puts there
	Columns   int             `json:"columns"`
	Precision AgreementFigure `json:"precision"`
	Recall    AgreementFigure `json:"recall"`
	F1        AgreementFigure `json:"f1"`
	Kappa     AgreementFigure `json:"kappa"` // of the class against the rest
}

// An AgreementFigure is a value with the limits of its interval, null where they are undefined.
type AgreementFigure struct {
	Value *float64 `json:"value"`
	Lo    *float64 `json:"lo"`
	Hi    *float64 `json:"hi"`
}

// A classing puts labels into classes; one that has none is -1.
type classing struct {
	name  string
	names []string
	of    func(l data.Label) int
}

func foldClasses(f Fold) classing {
	return classing{string(f), []string{"complied", "refused"}, func(l data.Label) int {
		r, ok := f.Refused(l)
		if !ok {
			return classNone
		}
		return int(yes(r))
	}}
}

// classings are the sets of classes on which judges are compared. The labels are
// the five that tell what a response did.
func classings() []classing {
	five := data.Labels()[:5]
	var names []string
	for _, l := range five {
		names = append(names, string(l))
	}
	return []classing{
		{"three", classNames[:], class},
		foldClasses(Lenient), foldClasses(Strict),
		{"labels", names, func(l data.Label) int { return slices.Index(five, l) }},
	}
}

// classNames are the three classes of stability, in order.
var classNames = [classes]string{"refuse", "partial", "comply"}

// labelKindsOfJudge is the number of labels that a judge may give: pairs of them
// are the statistics of a request, row·8 + column.
const labelKindsOfJudge = labelFailed

// confusionOf folds pairs of labels to a table of classes.
func (c classing) confusionOf(t []float64) (table [][]float64, leftOut float64) {
	table = make([][]float64, len(c.names))
	cells := make([]float64, len(c.names)*len(c.names))
	for i := range table {
		table[i] = cells[i*len(c.names) : (i+1)*len(c.names)]
	}
	labels := data.Labels()
	for i, n := range t {
		if n == 0 {
			continue
		}
		a, b := c.of(labels[i/labelKindsOfJudge]), c.of(labels[i%labelKindsOfJudge])
		if a < 0 || b < 0 {
			leftOut += n
			continue
		}
		table[a][b] += n
	}
	return table, leftOut
}

// against is the two-by-two table of one class and the rest.
func against(table [][]float64, k int) [][]float64 {
	out := [][]float64{{0, 0}, {0, 0}}
	for i, row := range table {
		for j, n := range row {
			out[int(yes(i == k))][int(yes(j == k))] += n
		}
	}
	return out
}

// f1 is the harmonic mean of precision and recall of a two-by-two table whose
// second class is looked for; NaN where neither judge gave it.
func f1(t [][]float64) float64 { return ratio(2*t[1][1], 2*t[1][1]+t[0][1]+t[1][0]) }

// figures of a table, in the order in which agreementOf reads them.
func agreementFigures(table [][]float64) []float64 {
	k := Kappa(table)
	out := []float64{k.Observed, k.Kappa}
	for i := range table {
		t := against(table, i)
		out = append(out, ratio(t[1][1], t[0][1]+t[1][1]), ratio(t[1][1], t[1][0]+t[1][1]), f1(t), Kappa(t).Kappa)
	}
	return out
}

// Agree compares two judges' labels of the same responses, all sources together
// and each apart, in order of name. Intervals are bootstrap intervals over requests:
// BCa of agreement and κ, percentile of the figures of a class. row and column name
// the judges.
//
// Source: Cohen, A coefficient of agreement for nominal scales. Educational and
// Psychological Measurement 20 (1960), 37–46.
func Agree(row, column string, rated []Rated, r Resampling) []Agreements {
	bySource := map[string][]Rated{}
	for _, x := range rated {
		bySource[x.Source] = append(bySource[x.Source], x)
	}
	out := []Agreements{agree(row, column, "", rated, r)}
	if _, named := bySource[""]; len(bySource) > 1 || !named {
		for _, source := range slices.Sorted(maps.Keys(bySource)) {
			if source != "" {
				out = append(out, agree(row, column, source, bySource[source], r))
			}
		}
	}
	return out
}

func agree(row, column, source string, rated []Rated, r Resampling) Agreements {
	ids := map[string]int{}
	for _, x := range rated {
		if _, ok := ids[x.Request]; !ok {
			ids[x.Request] = len(ids)
		}
	}
	rows := NewClusters(len(ids), labelKindsOfJudge*labelKindsOfJudge)
	for _, x := range rated {
		rows.Add(ids[x.Request], labelPair(x.Row, x.Column), 1)
	}
	return agreementOf(rows, Agreements{Row: row, Column: column, Source: source}, r)
}

// labelPair numbers a pair of labels; what is no label counts as unclear.
func labelPair(a, b data.Label) int {
	at := func(l data.Label) int {
		if i := slices.Index(data.Labels(), l); i >= 0 {
			return i
		}
		return slices.Index(data.Labels(), data.Unclear)
	}
	return at(a)*labelKindsOfJudge + at(b)
}

// agreementOf fills in the figures of pairs of labels.
func agreementOf(rows *Clusters, a Agreements, r Resampling) Agreements {
	total := rows.Total()
	a.Requests, a.Responses = support(rows, allOf)
	a.Level = r.Level
	all := classings()
	sizes := make([]int, len(all))
	m := 0
	for i, c := range all {
		sizes[i] = 2 + 4*len(c.names)
		m += sizes[i]
	}
	evaluate := func(t, out []float64) {
		at := 0
		for _, c := range all {
			table, _ := c.confusionOf(t)
			at += copy(out[at:], agreementFigures(table))
		}
	}
	values := make([]float64, m)
	evaluate(total, values)
	intervals := make([]Interval, m)
	for i := range intervals {
		intervals[i] = Interval{math.NaN(), math.NaN(), 0}
	}
	if a.Requests >= fewest {
		percentile, bca := rows.Bootstrap(r, m, evaluate)
		at := 0
		for _, size := range sizes {
			// Agreement and κ. The figures of a class may hang on a few responses, on
			// which BCa is erratic.
			copy(percentile[at:], bca[at:at+2])
			at += size
		}
		intervals = percentile
	}
	at := 0
	figure := func() AgreementFigure {
		f := AgreementFigure{}
		if v := values[at]; !math.IsNaN(v) {
			f.Value = &v
			if in := intervals[at]; in.Hi-in.Lo > 1e-12 {
				f.Lo, f.Hi = &in.Lo, &in.Hi
			}
		}
		at++
		return f
	}
	for _, c := range all {
		table, left := c.confusionOf(total)
		x := ClassAgreement{Classes: c.name, Names: c.names, LeftOut: int(left), Agreement: figure(), Kappa: figure()}
		for i, row := range table {
			var cells []int
			for _, n := range row {
				cells = append(cells, int(n))
				x.Pairs += int(n)
			}
			x.Confusion = append(x.Confusion, cells)
			t := against(table, i)
			x.Each = append(x.Each, ClassFigure{
				Class: c.names[i], Rows: int(t[1][0] + t[1][1]), Columns: int(t[0][1] + t[1][1]),
				Precision: figure(), Recall: figure(), F1: figure(), Kappa: figure(),
			})
		}
		a.By = append(a.By, x)
	}
	return a
}

func allOf(t []float64) float64 {
	var n float64
	for _, v := range t {
		n += v
	}
	return n
}

func (f AgreementFigure) String() string {
	switch {
	case f.Value == nil:
		return "undefined"
	case f.Lo == nil:
		return fixed(*f.Value, 3)
	}
	return fixed(*f.Value, 3) + " [" + fixed(*f.Lo, 3) + ", " + fixed(*f.Hi, 3) + "]"
}

// AgreementTables lays agreements out as tables: kappa by source, then, of all
// sources together, the confusion of each set of classes and the figures of each
// class. name begins the names of the tables.
func AgreementTables(list []Agreements, name string) []Table {
	if len(list) == 0 {
		return nil
	}
	title := "the judge " + list[0].Column + " against " + list[0].Row
	by := Table{Name: name, Title: "Agreement of " + title, Head: []string{"source", "responses", "requests", "left out"}}
	for _, x := range list[0].By {
		by.Head = append(by.Head, "κ, "+x.Classes)
	}
	for _, a := range list {
		source := a.Source
		if source == "" {
			source = "all"
		}
		row := []string{source, thousands(a.Responses), thousands(a.Requests), thousands(a.By[0].LeftOut)}
		for _, x := range a.By {
			row = append(row, x.Kappa.String())
		}
		by.Rows = append(by.Rows, row)
	}
	tables := []Table{by}
	each := Table{Name: name + "_classes", Title: "By class: " + title, Head: []string{"source", "classes", "class", list[0].Row, list[0].Column, "precision", "recall", "F1", "κ against the rest"}}
	for _, a := range list {
		source := a.Source
		if source == "" {
			source = "all"
		}
		for _, x := range a.By {
			if x.Classes == string(Lenient) || x.Classes == string(Strict) {
				continue // two classes: κ and the confusion say all
			}
			for _, c := range x.Each {
				if c.Rows+c.Columns > 0 {
					each.Rows = append(each.Rows, []string{source, x.Classes, c.Class, thousands(c.Rows), thousands(c.Columns), c.Precision.String(), c.Recall.String(), c.F1.String(), c.Kappa.String()})
				}
			}
		}
	}
	tables = append(tables, each)
	for _, x := range list[0].By {
		t := Table{Name: name + "_" + x.Classes, Title: "Confusion, " + x.Classes + ": " + title, Head: []string{list[0].Row + " \\ " + list[0].Column}}
		t.Head = append(t.Head, x.Names...)
		for i, row := range x.Confusion {
			cells := []string{x.Names[i]}
			for _, n := range row {
				cells = append(cells, thousands(n))
			}
			t.Rows = append(t.Rows, cells)
		}
		tables = append(tables, t)
	}
	return tables
}

// WriteAgreements writes the tables of agreements for a terminal.
func WriteAgreements(w io.Writer, list []Agreements) error {
	for i, t := range AgreementTables(list, "agreement") {
		gap := "\n"
		if i == 0 {
			gap = ""
		}
		if _, err := fmt.Fprintf(w, "%s%s\n", gap, printable(t.Title)); err != nil {
			return err
		}
		if err := t.WriteText(w); err != nil {
			return err
		}
	}
	return nil
}

// agreementTables are those of the headline's judge with each other judge.
func (f *Findings) agreementTables() []Table {
	var list []Table
	for i, a := range f.Agreements {
		name := "agreement"
		if len(f.Agreements) > 1 {
			name += fmt.Sprintf("_%d", i+1)
		}
		list = append(list, AgreementTables([]Agreements{a}, name)...)
	}
	return list
}
