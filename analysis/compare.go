package analysis

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"demur/data"
)

// A Comparison is two runs over the requests that both hold: two models, two
// quantisations or checkpoints of one, or one model under two settings.
type Comparison struct {
	A, B     string
	Requests int // shared
	OnlyA    int // requests that B lacks, and the other way round
	OnlyB    int
	Values   []Difference
	Flips    []Flip  // prompts whose usual behaviour changed
	Changed  [2]int  // requests usually refused by A alone, by B alone
	McNemar  float64 // p-value of those two numbers
	Warnings []string
}

// A Difference is one metric on the shared requests.
type Difference struct {
	Metric string
	A, B   float64       // NaN where undefined
	Delta  data.Estimate // B − A, paired by request
	P      float64       // two-sided, from the bootstrap; NaN where undefined
	Holm   float64       // P adjusted for the number of metrics
}

// A Flip is a prompt that one run usually refuses and the other does not.
type Flip struct {
	RequestID, Variant string
	A, B               float64 // refusal rates
}

// Compare computes paired differences, B − A, over the requests that both data
// sets hold, and what each model's prediction is worth for the other: a model
// that knows itself predicts itself better than another model does (Binder et
// al., arXiv:2410.13787). Options are read as for Analyse and hold for both.
func Compare(a, b *Dataset, o Options) (*Comparison, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	oa, _, err := o.settle(a)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", a.Model, err)
	}
	ob, _, err := o.settle(b)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", b.Model, err)
	}
	c := &Comparison{}
	c.A, c.B = names2(a, b)
	if s := differences(a, b); s != "" {
		c.Warnings = append(c.Warnings, "The two were made with different settings: "+s+".")
	} else if a.Model == b.Model {
		c.Warnings = append(c.Warnings, "The two are runs of one model, and no setting that is known here differs.")
	}
	if oa.Judge != ob.Judge || oa.Reading != ob.Reading || oa.Question != ob.Question {
		c.Warnings = append(c.Warnings, fmt.Sprintf("The two differ in judge, reading or wording (%s/%s/%s against %s/%s/%s): a difference may come from that.", oa.Judge, oa.Reading, oa.Question, ob.Judge, ob.Reading, ob.Question))
	}
	x, y := a.arrange(oa.Judge), b.arrange(ob.Judge)
	shared := map[string]int{}
	var ids []string
	has := func(s *arranged) map[string]bool {
		m := map[string]bool{}
		for _, p := range s.prompts {
			m[s.d.requests[s.clusters[p.cluster]].id] = true
		}
		return m
	}
	inA, inB := has(x), has(y)
	for id := range inA {
		if inB[id] {
			ids = append(ids, id)
		} else {
			c.OnlyA++
		}
	}
	for id := range inB {
		if !inA[id] {
			c.OnlyB++
		}
	}
	slices.Sort(ids)
	for i, id := range ids {
		shared[id] = i
	}
	c.Requests = len(ids)
	if c.Requests < enough {
		c.Warnings = append(c.Warnings, "Only "+plural(c.Requests, "shared request")+": the intervals and p-values are rough, and withheld below "+fmt.Sprint(fewest)+".")
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("compare %s and %s: they share no request; compare runs of one request set", a.Model, b.Model)
	}
	if c.OnlyA+c.OnlyB > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%d requests of the first and %d of the second have no counterpart and are left out.", c.OnlyA, c.OnlyB))
	}
	saidA, _ := x.predictions(oa.Question, oa.Polarity, oa.Reading)
	saidB, _ := y.predictions(ob.Question, ob.Polarity, ob.Reading)

	rows := NewClusters(len(ids), 2*jSize)
	spread(rows, x, x.joint(saidA, o.Fold, nil), shared, 0)
	spread(rows, y, y.joint(saidB, o.Fold, nil), shared, jSize)
	metrics := slices.Concat(jointMetrics(o.Correction), behaviourMetrics()[:1])
	if len(a.preds) == 0 || len(b.preds) == 0 {
		metrics = behaviourMetrics()[:1]
	}
	c.difference(rows, jSize, metrics, o, c.B+" − "+c.A, oa)

	cache := agreementCache{}
	stable := NewClusters(len(ids), 2*sSize)
	spread(stable, x, x.stability(-1, cache), shared, 0)
	spread(stable, y, y.stability(-1, cache), shared, sSize)
	c.difference(stable, sSize, slices.Concat(stabilityMetrics("")[:3], stabilityMetrics(o.Fold)), o, c.B+" − "+c.A, oa)

	if len(a.preds) > 0 && len(b.preds) > 0 {
		c.cross(x, y, saidA, saidB, shared, o, oa)
	}
	var p []float64
	for _, d := range c.Values {
		if !math.IsNaN(d.P) {
			p = append(p, d.P)
		}
	}
	adjusted := Holm(p)
	for i, k := 0, 0; i < len(c.Values); i++ {
		c.Values[i].Holm = math.NaN()
		if !math.IsNaN(c.Values[i].P) {
			c.Values[i].Holm = adjusted[k]
			k++
		}
	}
	c.flips(x, y, shared, o.Fold)
	return c, nil
}

// spread copies rows of one run to the shared clusters, at an offset.
func spread(to *Clusters, s *arranged, from *Clusters, shared map[string]int, offset int) {
	from.seal()
	row := make([]float64, from.k)
	for i := range from.n {
		at, ok := shared[s.d.requests[s.clusters[i]].id]
		if !ok || !from.row(i, row) {
			continue
		}
		for d, v := range row {
			to.Add(at, offset+d, v)
		}
	}
}

func (m metric) of(total []float64) float64 {
	if m.value != nil {
		return m.value(total)
	}
	return ratio(m.num(total), m.den(total))
}

// difference resamples B − A of every metric.
func (c *Comparison) difference(rows *Clusters, half int, metrics []metric, o Options, model string, settled Options) {
	t := &task{rows: rows, m: 3 * len(metrics), eval: func(total, out []float64) {
		for i, m := range metrics {
			a, b := m.of(total[:half]), m.of(total[half:])
			out[3*i], out[3*i+1], out[3*i+2] = a, b, b-a
		}
	}}
	resample(rows.n, []*task{t}, Resampling{o.Resamples, o.Seed, o.Level})
	for i, m := range metrics {
		d := Difference{Metric: m.name, A: finite(t.value[3*i]), B: finite(t.value[3*i+1]), P: math.NaN()}
		d.Delta = data.Estimate{
			Metric: "delta_" + m.name, Level: o.Level, Model: model, Judge: settled.Judge, Reading: settled.Reading, Fold: string(o.Fold),
			Method: fmt.Sprintf("paired BCa bootstrap, %d resamples of shared requests, seed %d", o.Resamples, o.Seed),
		}
		base := m.base
		if base == nil {
			base = m.den
		}
		if base == nil {
			base = both
		}
		d.Delta.Requests, d.Delta.Trials = support(rows, func(row []float64) float64 { return base(row[:half]) + base(row[half:]) })
		why := m.why
		if why == "" || m.fromCounts {
			why = "undefined in one of the two: a class or a kind of prediction is missing"
		}
		fill(&d.Delta, t.value[3*i+2], t.bca(3*i+2, o.Level), why)
		d.test(t.replicates[3*i+2])
		c.Values = append(c.Values, d)
	}
}

// test fills in the p-value, where there is an interval beside it, and marks
// what the two disagree on.
func (d *Difference) test(replicates []float64) {
	if d.Delta.Value == nil || d.Delta.Lo == nil {
		return
	}
	d.P = signTest(replicates)
	if d.Disagrees() {
		d.Delta.Warnings = append(d.Delta.Warnings, "the p-value and the interval disagree on whether there is a difference: it is not settled")
	}
}

// Disagrees reports that the p-value finds a difference which the interval does
// not, or the other way round, as happens near the limit and on few requests.
func (d *Difference) Disagrees() bool {
	if d.Delta.Lo == nil || math.IsNaN(d.P) {
		return false
	}
	holds := *d.Delta.Lo <= 0 && *d.Delta.Hi >= 0
	return holds == (d.P < 1-d.Delta.Level)
}

// names2 are names that tell two data sets apart.
func names2(a, b *Dataset) (string, string) {
	switch {
	case a.Model != b.Model:
		return a.Model, b.Model
	case a.Label != b.Label && a.Label != "" && b.Label != "":
		return a.Label, b.Label
	}
	return a.Model + " (A)", b.Model + " (B)"
}

// differences says in words what two runs were made with that differs.
func differences(a, b *Dataset) string {
	x, y := a.settings(), b.settings()
	keys := maps.Clone(x)
	maps.Copy(keys, y)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if x[k] != y[k] {
			list = append(list, fmt.Sprintf("%s (%s against %s)", k, cmp.Or(x[k], "none"), cmp.Or(y[k], "none")))
		}
	}
	return strings.Join(list, "; ")
}

// settings are what a data set was made with: what it was told, and what its
// trials show.
func (d *Dataset) settings() map[string]string {
	m := maps.Clone(d.Settings)
	if m == nil {
		m = map[string]string{}
	}
	var temps []string
	for _, t := range slices.Sorted(slices.Values(d.temps)) {
		temps = append(temps, number64(t))
	}
	seeds, limits := map[uint32]bool{}, map[int32]bool{}
	for _, t := range d.trials {
		seeds[t.seed], limits[t.limit] = true, true
	}
	var tokens []string
	for _, l := range slices.Sorted(maps.Keys(limits)) {
		if l > 0 {
			tokens = append(tokens, fmt.Sprint(l))
		}
	}
	m["temperatures"], m["seeds"], m["token limit"] = strings.Join(temps, ", "), fmt.Sprint(len(seeds)), strings.Join(tokens, ", ")
	return m
}

// signTest is the two-sided bootstrap p-value of zero: twice the smaller share of
// replicates on one side, never below what their number can show.
func signTest(replicates []float64) float64 {
	var below, above, n float64
	for _, v := range replicates {
		if math.IsNaN(v) {
			continue
		}
		n++
		if v <= 0 {
			below++
		}
		if v >= 0 {
			above++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return math.Min(1, 2*(math.Min(below, above)+1)/(n+1))
}

// cross adds how well each model's prediction foretells the other's behaviour.
func (c *Comparison) cross(x, y *arranged, saidA, saidB []predictionRow, shared map[string]int, o Options, settled Options) {
	const own, other, of, size = 0, 1, 2, 3
	for _, side := range []struct {
		behaves    *arranged
		self       []predictionRow
		predictor  *arranged
		theirs     []predictionRow
		name, from string
	}{{x, saidA, y, saidB, c.A, c.B}, {y, saidB, x, saidA, c.B, c.A}} {
		rows := NewClusters(len(shared), size)
		for i, p := range side.behaves.prompts {
			id := side.behaves.d.requests[side.behaves.clusters[p.cluster]].id
			at, ok := shared[id]
			if !ok {
				continue
			}
			request, ok := side.predictor.d.ids[id]
			if !ok {
				continue
			}
			j, ok := side.predictor.byPrompt[promptKey{side.predictor.rank[request], side.behaves.d.variants.list[p.variant]}]
			if !ok || side.self[i].outcome > saysRefuse || side.theirs[j].outcome > saysRefuse {
				continue
			}
			n := side.behaves.labelsOf(&side.behaves.prompts[i], -1)
			for label, k := range n[:labelFailed] {
				r, known := o.Fold.Refused(data.Labels()[label])
				if !known || k == 0 {
					continue
				}
				rows.Add(at, of, float64(k))
				rows.Add(at, own, float64(k)*yes(r == (side.self[i].outcome == saysRefuse)))
				rows.Add(at, other, float64(k)*yes(r == (side.theirs[j].outcome == saysRefuse)))
			}
		}
		t := &task{rows: rows, m: 1, eval: func(total, out []float64) { out[0] = ratio(total[own]-total[other], total[of]) }}
		resample(rows.n, []*task{t}, Resampling{o.Resamples, o.Seed, o.Level})
		total := rows.Total()
		d := Difference{Metric: "self_over_other of " + side.name, A: ratio(total[other], total[of]), B: ratio(total[own], total[of]), P: math.NaN()}
		d.Delta = data.Estimate{
			Metric: "gain_over_other_model", Group: "predictor=" + side.from, Level: o.Level, Model: side.name, Judge: settled.Judge, Reading: settled.Reading, Fold: string(o.Fold),
			Method: fmt.Sprintf("paired BCa bootstrap, %d resamples of shared requests, seed %d", o.Resamples, o.Seed),
		}
		d.Delta.Requests, d.Delta.Trials = support(rows, sumOf(of))
		fill(&d.Delta, t.value[0], t.bca(0, o.Level), "undefined: no prompt has both predictions")
		d.test(t.replicates[0])
		c.Values = append(c.Values, d)
	}
}

// flips lists prompts on different sides of one half, and tests the direction
// over requests.
func (c *Comparison) flips(x, y *arranged, shared map[string]int, fold Fold) {
	type rates struct{ a, b [2]float64 }
	byRequest := make([]rates, len(shared))
	rateOf := func(s *arranged, p *promptRow) (refused, n float64) {
		labels := s.labelsOf(p, -1)
		for label, k := range labels[:labelFailed] {
			if r, ok := fold.Refused(data.Labels()[label]); ok {
				n += float64(k)
				refused += float64(k) * yes(r)
			}
		}
		return refused, n
	}
	for i := range x.prompts {
		p := &x.prompts[i]
		id := x.d.requests[x.clusters[p.cluster]].id
		at, ok := shared[id]
		if !ok {
			continue
		}
		j, ok := y.byPrompt[promptKey{y.rank[y.d.ids[id]], x.d.variants.list[p.variant]}]
		if !ok {
			continue
		}
		ra, na := rateOf(x, p)
		rb, nb := rateOf(y, &y.prompts[j])
		if na == 0 || nb == 0 {
			continue
		}
		byRequest[at].a[0] += ra
		byRequest[at].a[1] += na
		byRequest[at].b[0] += rb
		byRequest[at].b[1] += nb
		if (ra/na > 0.5) != (rb/nb > 0.5) {
			c.Flips = append(c.Flips, Flip{id, x.d.variants.list[p.variant], ra / na, rb / nb})
		}
	}
	for _, r := range byRequest {
		if r.a[1] == 0 || r.b[1] == 0 {
			continue
		}
		a, b := r.a[0]/r.a[1] > 0.5, r.b[0]/r.b[1] > 0.5
		if a && !b {
			c.Changed[0]++
		}
		if b && !a {
			c.Changed[1]++
		}
	}
	c.McNemar = McNemar(c.Changed[0], c.Changed[1])
}

// Estimates returns the differences as rows.
func (c *Comparison) Estimates() []data.Estimate {
	var list []data.Estimate
	for _, d := range c.Values {
		d.Delta.Warnings = orEmpty(d.Delta.Warnings)
		list = append(list, d.Delta)
	}
	return list
}

// Table is the comparison as printed.
func (c *Comparison) Table() Table {
	t := Table{Name: "comparison", Title: c.B + " against " + c.A, Head: []string{"metric", c.A, c.B, "difference", "p", "Holm"}}
	var notes footnotes
	for _, d := range c.Values {
		name := strings.TrimPrefix(d.Metric, "delta_")
		of, label := name, metricName(name)
		if strings.HasPrefix(d.Metric, "self_over_other") {
			of, label = "accuracy", "predicting "+d.Delta.Model+": the other, itself"
		}
		delta := notes.cell(of, &d.Delta)
		if d.Disagrees() {
			delta += notes.mark("the p-value and the interval disagree on whether there is a difference: it is not settled")
		}
		if of != name {
			t.Rows = append(t.Rows, []string{label, percent(d.A), percent(d.B), delta, show("friedman_p", d.P), show("friedman_p", d.Holm)})
			continue
		}
		t.Rows = append(t.Rows, []string{label, show(name, d.A), show(name, d.B), delta, show("friedman_p", d.P), show("friedman_p", d.Holm)})
	}
	t.Notes = notes.list
	return t
}

// WriteTable writes the comparison for a terminal, flips below it.
func (c *Comparison) WriteTable(w io.Writer) error {
	tests := 0
	for _, d := range c.Values {
		tests += int(yes(!math.IsNaN(d.P)))
	}
	if _, err := fmt.Fprintf(w, "%s against %s: %s shared\n", c.B, c.A, plural(c.Requests, "request")); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "Differences are %s − %s, paired by request, with bootstrap intervals;\np is two-sided from the same resamples, Holm is p adjusted for the %d tests of this table.\n\n", c.B, c.A, tests); err != nil {
		return err
	}
	if err := c.Table().WriteText(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\nusually refused by %s alone: %d requests; by %s alone: %d (McNemar p %s)\n", c.A, c.Changed[0], c.B, c.Changed[1], show("friedman_p", c.McNemar)); err != nil {
		return err
	}
	for i, f := range c.Flips {
		if i == 50 {
			_, err := fmt.Fprintf(w, "… and %d more prompts\n", len(c.Flips)-i)
			return err
		}
		if _, err := fmt.Fprintf(w, "  %s %s: refused %s → %s\n", f.RequestID, f.Variant, percent(f.A), percent(f.B)); err != nil {
			return err
		}
	}
	for _, s := range c.Warnings {
		if _, err := fmt.Fprintf(w, "! %s\n", s); err != nil {
			return err
		}
	}
	return nil
}

// pairMetrics are those that CompareAll tests.
var pairMetrics = []string{"accuracy", "d_prime", "criterion", "ece_fifths", "refusal_rate", "ssi_mean"}

// CompareAll compares every pair of data sets on the requests that both hold, with
// Holm's correction over all tests of the table. Of runs of one model it compares
// what was changed: quantisation, checkpoint, temperature.
func CompareAll(o Options, sets ...*Dataset) (Table, error) {
	t := Table{Name: "pairs", Title: "Every pair", Head: []string{"pair", "metric", "first", "second", "difference", "p", "Holm", "shared requests"}}
	var p []float64
	var at []int
	var notes footnotes
	runs := map[string]int{}
	for _, d := range sets {
		runs[d.Model]++
	}
	name := func(d *Dataset) string {
		if runs[d.Model] > 1 && d.Label != "" {
			return d.Label
		}
		return d.Model
	}
	for i, a := range sets {
		for _, b := range sets[i+1:] {
			c, err := Compare(a, b, o)
			if err != nil {
				return Table{}, err
			}
			for _, d := range c.Values {
				if !slices.Contains(pairMetrics, d.Metric) {
					continue
				}
				if !math.IsNaN(d.P) {
					p = append(p, d.P)
					at = append(at, len(t.Rows))
				}
				t.Rows = append(t.Rows, []string{name(a) + " → " + name(b), metricName(d.Metric), show(d.Metric, d.A), show(d.Metric, d.B), notes.cell(d.Metric, &d.Delta), show("friedman_p", d.P), "–", thousands(c.Requests)})
			}
		}
	}
	for i, adjusted := range Holm(p) {
		t.Rows[at[i]][6] = show("friedman_p", adjusted)
	}
	t.Notes = notes.list
	return t, nil
}

// A Pooled effect summarises one metric over several models.
type Pooled struct {
	Value, Lo, Hi float64 // mean effect over models of this kind
	Tau           float64 // standard deviation between models
	I2            float64 // share of the spread that is between models, in [0, 1]
}

// RandomEffects pools values with their standard errors over models, which are
// taken as a sample of models. NaN with fewer than two. The interval uses the t
// distribution with one less degree of freedom than models.
//
// Source: DerSimonian and Laird, Meta-analysis in clinical trials. Controlled
// Clinical Trials 7 (1986), 177–188; interval of Hartung and Knapp, A refined
// method for the meta-analysis of controlled clinical trials. Statistics in
// Medicine 20 (2001), 3875–3889.
func RandomEffects(values, errors []float64, level float64) Pooled {
	k := float64(len(values))
	if len(values) < 2 || len(values) != len(errors) {
		nan := math.NaN()
		return Pooled{nan, nan, nan, nan, nan}
	}
	var w, wx, w2 float64
	for i, v := range values {
		u := 1 / sq(errors[i])
		w += u
		wx += u * v
		w2 += u * u
	}
	fixedMean := wx / w
	var q float64
	for i, v := range values {
		q += sq(v-fixedMean) / sq(errors[i])
	}
	tau2 := math.Max(0, (q-(k-1))/(w-w2/w))
	w, wx = 0, 0
	for i, v := range values {
		u := 1 / (sq(errors[i]) + tau2)
		w += u
		wx += u * v
	}
	p := Pooled{Value: wx / w, Tau: math.Sqrt(tau2)}
	if q > 0 {
		p.I2 = math.Max(0, (q-(k-1))/q)
	}
	var s float64
	for i, v := range values {
		s += sq(v-p.Value) / (sq(errors[i]) + tau2)
	}
	se := math.Sqrt(math.Max(s/(k-1), 1e-12) / w)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: k - 1}.Quantile((1 + level) / 2)
	p.Lo, p.Hi = p.Value-t*se, p.Value+t*se
	return p
}
