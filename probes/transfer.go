package probes

import (
	"fmt"
	"slices"
)

// TransferOptions are of Transfer and Subspaces. Zero values are replaced by the
// defaults.
type TransferOptions struct {
	Target    Target
	Method    Method // Whitened; MeanDifference and Ridge too
	Site      Site
	Strength  float64 // 0.1
	Folds     int     // 5, where train and test share requests' topic
	Resamples int     // 1000; −1 for none
	Seed      uint64
	Level     float64 // 0.95
}

func (o *TransferOptions) defaults() {
	if o.Method == "" {
		o.Method = Whitened
		if o.Target.Graded {
			o.Method = Ridge
		}
	}
	if o.Strength == 0 {
		o.Strength = 0.1
	}
	if o.Folds == 0 {
		o.Folds = 5
	}
	if o.Resamples == 0 {
		o.Resamples = 1000
	}
	o.Resamples = max(o.Resamples, 0)
	if o.Level == 0 {
		o.Level = 0.95
	}
}

// A Cell is what a direction fitted on one group reaches on another. Value is
// null where either lacks a label.
type Cell struct {
	Train    string   `json:"train"`
	Test     string   `json:"test"`
	Value    Value    `json:"value"`
	Accuracy *float64 `json:"accuracy"` // balanced, at the threshold of the training rows: ranking may transfer where the threshold does not; null where graded
	Requests int      `json:"requests"` // tested
}

// Transfer fits on each group of rows and tests on each, and on all groups but
// one ("all but g" → g). group names a row's group, such as its topic, its
// wording, or its request set; rows with the empty name are left out. Where
// groups share requests, which wordings do, and within a group, a row is scored
// by what was fitted without its request.
func Transfer(rows []Row, states *States, group func(Row) string, o TransferOptions) ([]Cell, error) {
	o.defaults()
	site := slices.Index(states.sites, o.Site)
	if site < 0 {
		return nil, fmt.Errorf("transfer: there are no states at %s", o.Site)
	}
	d, err := newDesign(rows, states, o.Target, o.Folds, 1, 0, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	var names []string
	of := make([]string, d.n())
	for i, r := range d.rows {
		of[i] = group(r)
		if of[i] != "" && !slices.Contains(names, of[i]) {
			names = append(names, of[i])
		}
	}
	slices.Sort(names)
	t := transfer{d: d, o: o, x: d.plain(states, site), width: states.width, boot: resampler{d.cluster, d.clusters, o.Resamples, o.Seed, o.Level}}
	type pair struct {
		train, test string
		fit, on     func(i int) bool
	}
	var pairs []pair
	for _, b := range names {
		is := func(name string) func(int) bool { return func(i int) bool { return of[i] == name } }
		for _, a := range names {
			pairs = append(pairs, pair{a, b, is(a), is(b)})
		}
		pairs = append(pairs, pair{"all but " + b, b, func(i int) bool { return of[i] != "" && of[i] != b }, is(b)})
	}
	out := make([]Cell, len(pairs))
	errs := make([]error, len(pairs))
	parallel(len(pairs), func(k int) {
		p := pairs[k]
		out[k], errs[k] = t.cell(p.fit, p.on)
		out[k].Train, out[k].Test = p.train, p.test
	})
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("transfer: %w", err)
		}
	}
	return out, nil
}

type transfer struct {
	d     *design
	o     TransferOptions
	x     []float64
	width int
	boot  resampler
}

func (t *transfer) cell(fit, on func(i int) bool) (Cell, error) {
	d := t.d
	y := d.y()
	var test []int
	trained, shared := make(map[int]bool), false
	for i := range d.n() {
		if fit(i) {
			trained[d.cluster[i]] = true
		}
	}
	tested := make(map[int]bool)
	for i := range d.n() {
		if on(i) {
			test = append(test, i)
			tested[d.cluster[i]] = true
			shared = shared || trained[d.cluster[i]]
		}
	}
	c := Cell{Requests: len(tested)}
	scores := make([]float64, d.n())
	score := func(out int) (bool, error) {
		var train []int
		for i := range d.n() {
			if fit(i) && (out < 0 || d.fold[0][i] != out) {
				train = append(train, i)
			}
		}
		if one(y, train) {
			return false, nil
		}
		l, err := direct(t.o.Method, t.x, t.width, train, y, t.o.Strength)
		if err != nil {
			return false, err
		}
		if !d.graded && t.o.Method != MeanDifference {
			l.bias -= evenPoint(y, train)
		}
		for _, i := range test {
			if out < 0 || d.fold[0][i] == out {
				scores[i] = dot(l.w, t.x[i*t.width:(i+1)*t.width]) + l.bias
			}
		}
		return true, nil
	}
	if one(y, test) {
		return c, nil
	}
	parts := []int{-1}
	if shared {
		parts = all(d.folds)
	}
	for _, p := range parts {
		if ok, err := score(p); !ok {
			return c, err
		}
	}
	var folds []int
	if shared {
		folds = d.fold[0]
	}
	rank := newRankings(y, scores, test, folds)
	c.Value = t.boot.intervals(func(w []float64) []float64 { return []float64{rank.concordance(w)} })[0]
	if !d.graded {
		p := make([]float64, len(test))
		for k, i := range test {
			p[k] = scores[i] + 0.5
		}
		c.Accuracy = defined(balanced(p, pick(y, test), nil))
	}
	return c, nil
}

// one reports whether rows have one label alone, or there are none.
func one(y []float64, rows []int) bool {
	for _, i := range rows {
		if y[i] != y[rows[0]] {
			return false
		}
	}
	return true
}
