package probes

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"demur/data"
)

// directions fits on all rows at the method's site and writes directions and
// held-out scores as rows of their tables.
func (f *fitting) directions(r *Fitted, s *search, c *calibration, held []float64, by *search) error {
	d, o := f.d, f.o
	layer := "all"
	if r.Site.Layer != allLayers {
		layer = strconv.Itoa(r.Site.Layer)
	}
	group := o.Target.Name + "/" + string(r.Method) + "/" + layer + "/" + r.Site.Anchor
	base := data.Direction{
		Group: group, Target: o.Target.Name, Method: string(r.Method), Anchor: r.Site.Anchor,
		Measure: f.report.Measure, Value: r.Value.Value, Lo: r.Value.Lo, Hi: r.Value.Hi, Text: f.report.Text.Value,
		Increment: r.Increment.Value, IncrementLo: r.Increment.Lo, IncrementHi: r.Increment.Hi, P: r.P, Level: o.Level,
		Folds:    fmt.Sprintf("%d folds by request, %d seeds, site and strength chosen inside", o.Folds, o.Seeds),
		Requests: d.clusters, Prompts: d.n(), Positives: f.report.Positives,
		Model: o.Model, ModelDigest: o.ModelDigest, TemplateHash: o.TemplateHash,
	}
	if r.Strength > 0 {
		base.Strength = defined(r.Strength)
	}
	if c != nil {
		base.Slope, base.Intercept = defined(c.slope), defined(c.intercept)
		if c.slope > 0 {
			base.Threshold = -c.intercept / c.slope
		}
	} else if d.graded {
		base.Threshold = median(d.y())
	}
	for k, site := range f.states.sites {
		layered := r.Site.Layer == allLayers && site.Anchor == r.Site.Anchor && site.Layer >= 0 && (o.Sites == nil || o.Sites(site))
		if site != r.Site && !layered {
			continue
		}
		row := base
		row.Layer = site.Layer
		if p := f.states.position(k); p != 0 {
			row.Position = &p
		}
		if err := f.weights(&row, r, k); err != nil {
			return err
		}
		row.ID = data.Digest(struct {
			Group, Model, Template string
			Layer                  int
			Weights, Origin        []float32
			Bias                   float64
		}{group, o.ModelDigest, o.TemplateHash, row.Layer, row.Weights, row.Origin, row.Bias})
		r.Directions = append(r.Directions, row)
	}
	y := d.y()
	outer := s.scores[0].outer(d.fold[0])
	for i, row := range d.rows {
		fold := d.fold[0][i]
		score := data.Score{
			PromptID: row.PromptID, RequestID: row.RequestID, Variant: row.Variant, Group: group, Target: o.Target.Name, Method: string(r.Method),
			Anchor: r.Site.Anchor, Fold: fold, Score: outer[i], Label: defined(y[i]),
		}
		if k := by.chosen[0][fold]; k >= 0 {
			site := f.siteOf(r.Method, by.candidates[k])
			score.Anchor = site.Anchor
			if site.Layer != allLayers {
				score.Layer = &site.Layer
			}
		}
		if held != nil {
			score.Probability = defined(held[i])
		}
		r.Scores = append(r.Scores, score)
	}
	return f.unlabelled(r, c)
}

// unlabelled scores the prompts without a label by the directions that are kept,
// unless another wording of their request has a label: those were fitted to.
func (f *fitting) unlabelled(r *Fitted, c *calibration) error {
	fitted := make(map[string]bool)
	for _, row := range f.d.rows {
		fitted[row.RequestID] = true
	}
	seen := make(map[string]bool)
	for _, row := range f.all {
		p, ok := f.states.at[row.PromptID]
		if !ok || fitted[row.RequestID] || seen[row.PromptID] {
			continue
		}
		seen[row.PromptID] = true
		var sum float64
		for _, d := range r.Directions {
			k := slices.Index(f.states.sites, Site{d.Layer, d.Anchor})
			w := f.states.width
			s, err := ScoreOf(d, f.states.values[k][p*w:(p+1)*w])
			if err != nil {
				f.warn("prompt %s has no score: %v", row.name(), err)
				sum = math.NaN()
				break
			}
			sum += s / float64(len(r.Directions))
		}
		if math.IsNaN(sum) {
			continue
		}
		first := r.Directions[0]
		score := data.Score{
			PromptID: row.PromptID, RequestID: row.RequestID, Variant: row.Variant, Group: first.Group, Target: first.Target, Method: first.Method,
			Anchor: first.Anchor, Fold: -1, Score: sum,
		}
		if len(r.Directions) == 1 {
			score.Layer = &first.Layer
		}
		if c != nil {
			score.Probability = defined(c.probability(sum))
		}
		r.Scores = append(r.Scores, score)
	}
	return nil
}

// weights fits row's weights at a site on all rows, and the stability of the
// method there: the mean cosine between the directions of the folds.
func (f *fitting) weights(row *data.Direction, r *Fitted, site int) error {
	d, w := f.d, f.states.width
	x := d.plain(f.states, site)
	y := d.y()
	if r.Method == Centroid || r.Method == CentroidCentred {
		weights, origin := centroidOf(x, w, all(d.n()), y, r.Method == CentroidCentred)
		row.Weights, row.Unit = narrow(weights), true
		if origin != nil {
			row.Origin = narrow(origin)
		}
		return nil
	}
	l, err := direct(r.Method, x, w, all(d.n()), y, r.Strength)
	if err != nil {
		return err
	}
	row.Weights, row.Bias = narrow(l.w), l.bias
	folds := make([][]float64, d.folds)
	errs := make([]error, d.folds)
	parallel(d.folds, func(k int) {
		var l line
		l, errs[k] = direct(r.Method, x, w, d.kept(0, k), y, r.Strength)
		folds[k] = l.w
	})
	var sum, n float64
	for i := range folds {
		if errs[i] != nil {
			return errs[i]
		}
		for j := range i {
			sum += Cosine(folds[i], folds[j])
			n++
		}
	}
	r.Stability = defined(sum / n)
	return nil
}

// plain are the states at a site, n×width.
func (d *design) plain(states *States, site int) []float64 {
	w := states.width
	x := make([]float64, 0, d.n()*w)
	for _, p := range d.prompt {
		for _, v := range states.values[site][p*w : (p+1)*w] {
			x = append(x, float64(v))
		}
	}
	return x
}

// centroidOf returns μ1/|μ1| − μ0/|μ0|; centred, of means less the mean of all,
// which is the origin.
func centroidOf(x []float64, width int, rows []int, y []float64, centred bool) (weights, origin []float64) {
	one, zero := make([]float64, width), make([]float64, width)
	var n1, n0 float64
	for _, i := range rows {
		n1, n0 = n1+y[i], n0+1-y[i]
		add(one, x[i*width:(i+1)*width], y[i])
		add(zero, x[i*width:(i+1)*width], 1-y[i])
	}
	if centred {
		origin = make([]float64, width)
		add(origin, one, 1/(n1+n0))
		add(origin, zero, 1/(n1+n0))
		add(one, origin, -n1)
		add(zero, origin, -n0)
	}
	weights = make([]float64, width)
	if a, b := norm(one), norm(zero); a > 0 && b > 0 {
		add(weights, one, 1/a)
		add(weights, zero, -1/b)
	}
	return weights, origin
}

// ScoreOf returns what a direction says of an activation.
func ScoreOf(d data.Direction, values []float32) (float64, error) {
	if len(values) != len(d.Weights) || len(d.Origin) != 0 && len(d.Origin) != len(values) {
		return 0, fmt.Errorf("direction %s at layer %d has width %d, the activation %d: another model", d.Group, d.Layer, len(d.Weights), len(values))
	}
	var sum, squares float64
	for i, v := range values {
		h := float64(v)
		if len(d.Origin) > 0 {
			h -= float64(d.Origin[i])
		}
		sum += h * float64(d.Weights[i])
		squares += h * h
	}
	if d.Unit {
		if squares == 0 {
			return 0, fmt.Errorf("direction %s at layer %d: the activation is 0 and has no cosine", d.Group, d.Layer)
		}
		sum /= math.Sqrt(squares)
	}
	return sum + d.Bias, nil
}

// controls fits what should not know, or knows little, on the same folds.
func (f *fitting) controls(linear Method) error {
	d, o := f.d, f.o
	note := func(name string, s *search, text string) {
		ranks := f.rankings(s.outerScores())
		v := f.boot.intervals(func(w []float64) []float64 { return []float64{concordance(ranks, w)} })[0]
		f.report.Controls = append(f.report.Controls, Control{name, v, text})
	}
	b := d.binary()
	var length [][]float64
	for _, r := range d.rows {
		length = append(length, lengths(r.Text))
	}
	wording := d.indicators(func(r Row) string { return r.Variant })
	for _, c := range []struct {
		name, note string
		x          [][]float64
	}{{"length", "letters, words, punctuation, capitals, digits, question mark", length}, {"wording", "which of a request's wordings", wording}} {
		s, err := b.logisticPath(o.Penalties[:1], func(int, int) maker { return scaled(c.x) })
		if err != nil {
			return fmt.Errorf("control %s: %w", c.name, err)
		}
		note(c.name, s, c.note)
	}
	f.topics()
	if below := f.searched(f.states, true); len(below) > 0 {
		s, _ := d.closedForm(f.states, below, []Method{linear}, o.Strengths, nil)
		note("embedding", s[linear], "token embeddings, before the first block; "+string(linear))
	}
	for _, name := range sortedKeys(o.Twins) {
		if err := f.twin(name, o.Twins[name], linear, note); err != nil {
			return err
		}
	}
	f.random()
	f.selectivity(linear)
	return nil
}

// indicators are 0 and 1 for each value that rows have.
func (d *design) indicators(of func(Row) string) [][]float64 {
	var values []string
	for _, r := range d.rows {
		if v := of(r); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	out := make([][]float64, d.n())
	for i, r := range d.rows {
		out[i] = make([]float64, len(values))
		out[i][slices.Index(values, of(r))] = 1
	}
	return out
}

// topics scores each row by the mean label of its topic in the training rows.
// Where the means of topics differ by no more than chance would have it, they
// count as equal and tell nothing: in a set with as many positives in each topic,
// the topic that has more of them in the fold has fewer left to learn from, so
// that bare means would be wrong nearly always, and look as if topic told the
// label backwards.
//
// The test is the ratio of mean squares between and within topics, of the mean
// labels of requests: up to 1, its expectation where topics are alike, the
// estimated variance between topics is 0 (Searle, Casella and McCulloch, Variance
// Components (1992), section 3.5), and with it the best guess of every topic
// the mean of all.
func (f *fitting) topics() {
	d := f.d
	index := make(map[string]int)
	topic := make([]int, d.clusters)
	for i, r := range d.rows {
		if _, ok := index[r.Topic]; !ok {
			index[r.Topic] = len(index)
		}
		topic[d.cluster[i]] = index[r.Topic]
	}
	if len(index) < 2 {
		return
	}
	scores := make([][]float64, d.seeds)
	alike := 0
	for seed := range scores {
		scores[seed] = make([]float64, d.n())
		for fold := range d.folds {
			means, differ := topicMeans(d.y(), d.cluster, d.kept(seed, fold), topic, len(index))
			if !differ {
				alike++
				continue
			}
			for _, i := range d.held(seed, fold) {
				scores[seed][i] = means[topic[d.cluster[i]]]
			}
		}
	}
	ranks := f.rankings(scores)
	v := f.boot.intervals(func(w []float64) []float64 { return []float64{concordance(ranks, w)} })[0]
	text := "which of the topics"
	if alike > 0 {
		text += fmt.Sprintf("; in %d of %d training sets the topics are alike and tell nothing", alike, d.seeds*d.folds)
	}
	f.report.Controls = append(f.report.Controls, Control{"topic", v, text})
}

// topicMeans are the mean labels of topics over the requests of rows, and whether
// they differ by more than chance.
func topicMeans(y []float64, cluster, rows, topic []int, topics int) (means []float64, differ bool) {
	sum, count := make(map[int]float64), make(map[int]float64)
	for _, i := range rows {
		sum[cluster[i]] += y[i]
		count[cluster[i]]++
	}
	means, n := make([]float64, topics), make([]float64, topics)
	var all float64
	for _, c := range sortedInts(sum) {
		m := sum[c] / count[c]
		means[topic[c]] += m
		n[topic[c]]++
		all += m / float64(len(sum))
	}
	var between, within, have float64
	for t := range means {
		if n[t] == 0 {
			means[t] = all
			continue
		}
		means[t] /= n[t]
		between += n[t] * (means[t] - all) * (means[t] - all)
		have++
	}
	for _, c := range sortedInts(sum) {
		e := sum[c]/count[c] - means[topic[c]]
		within += e * e
	}
	free := float64(len(sum)) - have
	return means, have > 1 && free > 0 && between/(have-1) > within/free
}

const controlSeeds = 3

// observed is a design with the observed labels alone, at other states.
func (d *design) observed(states *States) (*design, bool) {
	t := *d
	t.prompt = make([]int, d.n())
	for i, r := range d.rows {
		p, ok := states.at[r.PromptID]
		if !ok {
			return nil, false
		}
		t.prompt[i] = p
	}
	// A few ways to draw the folds are enough for a control: the requests, not the
	// folds, make its interval.
	t.seeds = min(d.seeds, controlSeeds)
	t.fold, t.labels, t.columns = d.fold[:t.seeds], d.labels[:t.seeds], t.seeds
	return &t, true
}

func (f *fitting) twin(name string, states *States, linear Method, note func(string, *search, string)) error {
	t, ok := f.d.observed(states)
	if !ok {
		f.warn("control %s is left out: it lacks states of prompts", name)
		return nil
	}
	s, warnings := t.closedForm(states, f.searched(states, false), []Method{linear}, f.o.Strengths, nil)
	f.report.Warnings = append(f.report.Warnings, warnings...)
	if len(s[linear].candidates) == 0 {
		return fmt.Errorf("control %s: no site could be fitted", name)
	}
	note(name, s[linear], "other activations of the same prompts, fitted and tested there; "+string(linear))
	if states.width == f.states.width {
		f.carry(name, states)
	}
	return nil
}

// carry tests the kept method's directions on other activations: fitted without
// the fold on the states, scored on the twin's.
func (f *fitting) carry(name string, twin *States) {
	d := f.d
	r := f.report.Methods[0]
	if r.Site.Layer == allLayers {
		return
	}
	site, there := slices.Index(f.states.sites, r.Site), slices.Index(twin.sites, r.Site)
	if site < 0 || there < 0 {
		return
	}
	t, _ := d.observed(twin)
	x, z := d.plain(f.states, site), t.plain(twin, there)
	scores := make([]float64, d.n())
	for fold := range d.folds {
		l, err := direct(r.Method, x, twin.width, d.kept(0, fold), d.y(), r.Strength)
		if err != nil {
			f.warn("control %s, carried over: %v", name, err)
			return
		}
		for _, i := range d.held(0, fold) {
			scores[i] = dot(l.w, z[i*twin.width:(i+1)*twin.width]) + l.bias
		}
	}
	rank := newRankings(d.y(), scores, all(d.n()), d.fold[0])
	v := f.boot.intervals(func(w []float64) []float64 { return []float64{rank.concordance(w)} })[0]
	f.report.Controls = append(f.report.Controls, Control{name + ", carried over", v, fmt.Sprintf("%s fitted at %s on the states, tested on these", r.Method, r.Site)})
}
