package probes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Fit fits directions that tell target at every site of the states and tests
// them. Rows without a label or a state are left out and counted in a warning.
// Equal arguments give equal results, on any number of processors.
func Fit(rows []Row, states *States, o Options) (*Report, error) {
	if err := o.defaults(); err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	d, err := newDesign(rows, states, o.Target, o.Folds, o.Seeds, o.Permutations, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	f := &fitting{d: d, o: &o, states: states, all: rows}
	f.report = &Report{
		Target: o.Target.Name, Graded: o.Target.Graded, Measure: "auroc", Requests: d.clusters, Prompts: d.n(),
		Folds: o.Folds, Seeds: o.Seeds, Permutations: o.Permutations, Resamples: o.Resamples, Level: o.Level,
	}
	if o.Target.Graded {
		f.report.Measure = "concordance"
	}
	f.count(rows)
	f.boot = resampler{d.cluster, d.clusters, o.Resamples, o.Seed, o.Level}
	if err := f.run(); err != nil {
		return nil, fmt.Errorf("fit target %s: %w", o.Target.Name, err)
	}
	return f.report, nil
}

type fitting struct {
	d      *design
	o      *Options
	states *States
	all    []Row // those without a label too
	report *Report
	boot   resampler
	text   *search
	// selectAt is the best site over all rows, where controls are tested.
	selectAt candidate
}

func (f *fitting) warn(format string, args ...any) {
	f.report.Warnings = append(f.report.Warnings, fmt.Sprintf(format, args...))
}

func (f *fitting) count(rows []Row) {
	harm, refusal := Harm(), Refusal()
	for _, r := range f.d.rows {
		h, ok1 := harm.Label(r)
		a, ok2 := refusal.Label(r)
		if ok1 && ok2 {
			f.report.Cells[2*int(h)+int(a)]++
		}
	}
	if !f.o.Target.Graded {
		for _, y := range f.d.y() {
			f.report.Positives += int(y)
		}
	}
	if n := len(rows) - f.d.n(); n > 0 {
		f.warn("%d of %d rows have no label or no state and are left out", n, len(rows))
	}
	f.cells()
}

// oneThing is the correlation between harm and refusal from which a direction of
// the one is called one of the other; fewCell how many requests a cell of the
// two by two needs for the two to be told apart.
const (
	oneThing = 0.8
	fewCell  = 10
)

// cells warns where harm and refusal can hardly be told apart in these prompts.
func (f *fitting) cells() {
	if !slices.Contains([]string{Harm().Name, HarmGraded().Name, Refusal().Name, RefusalRate().Name}, f.report.Target) {
		return
	}
	c := f.report.Cells
	a, b, d, e := float64(c[0]), float64(c[1]), float64(c[2]), float64(c[3])
	counts := fmt.Sprintf("harmless complied %d, harmless refused %d, harmful complied %d, harmful refused %d", c[0], c[1], c[2], c[3])
	// Matthews' correlation of the two, undefined where either does not vary.
	phi := (a*e - b*d) / math.Sqrt((a+b)*(d+e)*(a+d)*(b+e))
	switch {
	case math.IsNaN(phi):
		return
	case phi >= oneThing:
		f.warn("harm and refusal are nearly one in these prompts, correlation %.2f (%s): a direction of the one is one of the other", phi, counts)
		return
	}
	names := [4]string{"harmless and complied with", "harmless and refused", "harmful and complied with", "harmful and refused"}
	for k, n := range f.cellRequests() {
		if n < fewCell {
			f.warn("only %d requests are %s (%s): what tells harm from refusal rests on few", n, names[k], counts)
		}
	}
}

// cellRequests counts the requests with a prompt in each cell.
func (f *fitting) cellRequests() (n [4]int) {
	harm, refusal := Harm(), Refusal()
	var seen [4]map[int]bool
	for k := range seen {
		seen[k] = make(map[int]bool)
	}
	for i, r := range f.d.rows {
		h, ok1 := harm.Label(r)
		y, ok2 := refusal.Label(r)
		if ok1 && ok2 {
			seen[2*int(h)+int(y)][f.d.cluster[i]] = true
		}
	}
	for k := range n {
		n[k] = len(seen[k])
	}
	return n
}

// searched are the sites that are searched; of layer −1, if below is true, those
// that are not.
func (f *fitting) searched(s *States, below bool) (sites []int) {
	for k, site := range s.sites {
		if (site.Layer < 0) == below && (f.o.Sites == nil || below || f.o.Sites(site)) {
			sites = append(sites, k)
		}
	}
	return sites
}

func (f *fitting) run() error {
	d, o := f.d, f.o
	sites := f.searched(f.states, false)
	if len(sites) == 0 {
		return fmt.Errorf("there are no sites to search")
	}
	linear := Whitened
	closed := []Method{linear}
	if o.Target.Graded {
		linear = Ridge
		closed = []Method{linear}
	} else {
		for _, m := range o.Methods {
			if m != Logistic && m != Whitened {
				closed = append(closed, m)
			}
		}
	}
	searches, warnings := d.closedForm(f.states, sites, closed, o.Strengths, o.step("sites"))
	f.report.Warnings = append(f.report.Warnings, warnings...)
	if len(searches[linear].candidates) == 0 {
		return fmt.Errorf("no site could be fitted")
	}
	if err := f.textBaseline(); err != nil {
		return err
	}
	if slices.Contains(o.Methods, Logistic) {
		s, err := f.logistic(searches[Whitened])
		if err != nil {
			return err
		}
		searches[Logistic] = s
	}
	for _, m := range o.Methods {
		if err := f.fitted(m, searches); err != nil {
			return fmt.Errorf("method %s: %w", m, err)
		}
	}
	f.selectAt = searches[linear].bestSite()
	f.report.At, f.report.AtStrength, f.report.Linear = f.states.sites[f.selectAt.site], f.selectAt.strength, linear
	return f.controls(linear)
}

// binary is the design with labels for methods that need two values: graded ones
// are cut.
func (d *design) binary() *design {
	if !d.graded {
		return d
	}
	cut := median(d.y())
	if d.cut != nil {
		cut = *d.cut
	}
	b := *d
	b.graded = false
	b.labels = nil
	b.columns = d.seeds
	y := make([]float64, d.n())
	for i, v := range d.y() {
		y[i] = indicator(v > cut)
	}
	for range d.seeds {
		b.labels = append(b.labels, y)
	}
	return &b
}

// textBaseline fits logistic regression on TF-IDF; for graded labels on whether
// they are above the median, which is as good for an order.
func (f *fitting) textBaseline() error {
	d := f.d.binary()
	var texts []string
	for _, r := range d.rows {
		texts = append(texts, r.Text)
	}
	g := newGrams(texts)
	s, err := d.logisticPath(f.o.Penalties, func(int, int) maker { return g.features })
	if err != nil {
		return fmt.Errorf("text baseline: %w", err)
	}
	f.text = s
	return nil
}

// logistic fits at the site that the whitened difference chose without the fold:
// a search of logistic regressions over all sites would take hours and choose
// among nearly the same.
func (f *fitting) logistic(by *search) (*search, error) {
	d := f.d
	s, err := d.logisticPath(f.o.Penalties, func(seed, out int) maker {
		site := 0
		if k := by.chosen[seed][out]; k >= 0 {
			site = by.candidates[k].site
		}
		return d.siteFeatures(f.states, site)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// siteFeatures are the states at a site, scaled by the training rows.
func (d *design) siteFeatures(states *States, site int) maker {
	x, _ := d.centred(states, site)
	return func(_ int, train, test []int) (matrix, matrix) {
		s := newScaling(x, states.width, train)
		return s.apply(x, states.width, train), s.apply(x, states.width, test)
	}
}

// outerScores are the held-out scores of a search, by seed.
func (s *search) outerScores() [][]float64 {
	out := make([][]float64, s.d.seeds)
	for seed := range out {
		out[seed] = s.scores[seed].outer(s.d.fold[seed])
	}
	return out
}

// rankings of scores by seed.
func (f *fitting) rankings(scores [][]float64) []rankings {
	out := make([]rankings, len(scores))
	for s := range scores {
		out[s] = newRankings(f.d.y(), scores[s], all(f.d.n()), f.d.fold[s])
	}
	return out
}

// mean over seeds of the concordance.
func concordance(r []rankings, weight []float64) float64 {
	var sum float64
	for _, r := range r {
		sum += r.concordance(weight)
	}
	return sum / float64(len(r))
}

// stack fits a logistic regression on the inner scores of several searches and
// returns its held-out scores. fixed are further features that no fold was
// needed for.
func (f *fitting) stack(searches []*search, fixed [][]float64) ([][]float64, error) {
	d := f.d
	b := d.binary()
	out := make([][]float64, d.seeds)
	errs := make([]error, d.seeds)
	parallel(d.seeds, func(seed int) {
		out[seed] = make([]float64, d.n())
		for fold := range d.folds {
			features := make([][]float64, d.n())
			for i := range features {
				for _, s := range searches {
					features[i] = append(features[i], s.scores[seed][fold][i])
				}
				for _, x := range fixed {
					features[i] = append(features[i], x[i])
				}
			}
			test := d.held(seed, fold)
			train := d.kept(seed, fold)
			x, z := scaled(features)(seed, train, test)
			l, err := logisticFit(x, pick(b.y(), train), stackPenalty, nil, 1e-6)
			if err != nil {
				errs[seed] = fmt.Errorf("stack: %w", err)
				return
			}
			for i, v := range l.scores(z) {
				out[seed][test[i]] = v
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stackPenalty keeps the few weights of a stack finite where a score separates.
const stackPenalty = 1e-3

// fitted fills in the report of one method.
func (f *fitting) fitted(m Method, searches map[Method]*search) error {
	d, o := f.d, f.o
	s := searches[m]
	r := Fitted{Method: m, Over: make(map[string]Value), Strata: make(map[string]Value)}
	scores := s.outerScores()
	own, text := f.rankings(scores), f.rankings(f.text.outerScores())
	both, err := f.stack([]*search{f.text, s}, nil)
	if err != nil {
		return err
	}
	together := f.rankings(both)
	type over struct {
		name        string
		with, alone []rankings
	}
	var overs []over
	for _, name := range sortedKeys(o.Baselines) {
		x := f.baseline(o.Baselines[name])
		alone, err1 := f.stack(nil, [][]float64{x})
		with, err2 := f.stack([]*search{s}, [][]float64{x})
		if err := cmp.Or(err1, err2); err != nil {
			return err
		}
		overs = append(overs, over{name, f.rankings(with), f.rankings(alone)})
	}
	strata := f.strata()
	var inStrata [][]rankings
	for _, in := range strata {
		var rs []rankings
		for seed := range d.seeds {
			rs = append(rs, newRankings(d.y(), scores[seed], in.rows, d.fold[seed]))
		}
		inStrata = append(inStrata, rs)
	}
	var pooled []*ranking // a threshold is one for all folds
	for _, x := range scores {
		pooled = append(pooled, newRanking(d.y(), x, all(d.n())))
	}
	values := f.boot.intervals(func(w []float64) []float64 {
		a, b := concordance(own, w), concordance(text, w)
		out := []float64{a, b, a - b, concordance(together, w) - b}
		for _, v := range overs {
			out = append(out, concordance(v.with, w)-concordance(v.alone, w))
		}
		for _, v := range inStrata {
			out = append(out, concordance(v, w))
		}
		if !o.Target.Graded {
			var t1, t5 float64
			for _, v := range pooled {
				t1 += v.rate(w, 0.01) / float64(len(pooled))
				t5 += v.rate(w, 0.05) / float64(len(pooled))
			}
			out = append(out, t1, t5)
		}
		return out
	})
	r.Value, f.report.Text, r.Difference, r.Increment = values[0], values[1], values[2], values[3]
	values = values[4:]
	for _, v := range overs {
		r.Over[v.name], values = values[0], values[1:]
	}
	for _, v := range strata {
		r.Strata[v.name], values = values[0], values[1:]
	}
	if !o.Target.Graded {
		r.TPR1, r.TPR5 = values[0], values[1]
	}
	var bySeed []float64
	for _, v := range own {
		bySeed = append(bySeed, v.concordance(nil))
	}
	r.SeedSD = defined(deviation(bySeed))
	f.choices(&r, s, searches)
	if err := f.null(&r, s); err != nil {
		return err
	}
	f.surface(&r, s)
	c, held, err := f.calibrate(&r, s)
	if err != nil {
		return err
	}
	by := s
	if m == Logistic {
		by = searches[Whitened]
	}
	if err := f.directions(&r, s, c, held, by); err != nil {
		return err
	}
	f.report.Methods = append(f.report.Methods, r)
	return nil
}

func deviation(x []float64) float64 {
	if len(x) < 2 {
		return math.NaN()
	}
	var mean, sum float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(x)-1))
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// baseline lines given scores up with the rows.
func (f *fitting) baseline(scores map[string]float64) []float64 {
	x := make([]float64, f.d.n())
	var sum, n float64
	for _, r := range f.d.rows {
		if v, ok := scores[r.PromptID]; ok {
			sum += v
			n++
		}
	}
	for i, r := range f.d.rows {
		v, ok := scores[r.PromptID]
		if !ok && n > 0 {
			v = sum / n
		}
		x[i] = v
	}
	return x
}

type stratum struct {
	name string
	rows []int
}

// strata in which a probe must hold if it tells its target and not the other.
func (f *fitting) strata() []stratum {
	harm, refusal := Harm(), Refusal()
	all := []stratum{{name: "refused"}, {name: "complied"}, {name: "harmful"}, {name: "harmless"}, {name: "boundary"}}
	for i, r := range f.d.rows {
		if a, ok := refusal.Label(r); ok {
			k := 1 - int(a)
			all[k].rows = append(all[k].rows, i)
		}
		if h, ok := harm.Label(r); ok {
			k := 3 - int(h)
			all[k].rows = append(all[k].rows, i)
		}
		if boundary(r) {
			all[4].rows = append(all[4].rows, i)
		}
	}
	y := f.d.y()
	return slices.DeleteFunc(all, func(s stratum) bool {
		for _, i := range s.rows {
			if y[i] != y[s.rows[0]] {
				return false
			}
		}
		return true // nothing to tell there
	})
}

// boundary tells whether a prompt was refused in 20 to 80 % of its trials.
func boundary(r Row) bool {
	return r.Trials > 0 && 5*r.Refusals >= r.Trials && 5*r.Refusals <= 4*r.Trials
}

// allLayers stands for the layer where all count.
const allLayers = -2

func (f *fitting) siteOf(m Method, c candidate) Site {
	site := f.states.sites[c.site]
	if m == Centroid || m == CentroidCentred {
		site.Layer = allLayers
	}
	return site
}
