package analysis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"demur/data"
)

// RoganGladen returns the rate of true refusals behind a rate of judged ones, all
// in [0, 1], for a judge whose sensitivity is P(judged refused | refused) and
// whose specificity is P(judged complied | complied):
//
//	(judged + specificity − 1) / (sensitivity + specificity − 1)
//
// It may lie outside [0, 1], where the sample contradicts the two; the caller
// clips it and says so. It is NaN where sensitivity + specificity ≤ 1: such a
// judge tells nothing, or the opposite.
//
// Source: Rogan and Gladen, Estimating prevalence from the results of a screening
// test. American Journal of Epidemiology 107(1) (1978), 71–76.
func RoganGladen(judged, sensitivity, specificity float64) float64 {
	youden := sensitivity + specificity - 1
	if !(youden > 0) {
		return math.NaN()
	}
	return (judged + specificity - 1) / youden
}

// CorrectCounts undoes a judge's errors in a table of predictions against judged
// behaviour: among the trials with the same prediction, the share of refusals is
// corrected by RoganGladen and clipped to [0, 1]. It holds where the judge errs
// alike whatever was predicted. below and above say how far the two shares lay
// outside [0, 1] before they were clipped, 0 where they did not. Every count is
// NaN where the correction is undefined.
func CorrectCounts(c Counts, sensitivity, specificity float64) (corrected Counts, below, above float64) {
	split := func(refused, complied float64) (float64, float64) {
		n := refused + complied
		if n == 0 {
			return 0, 0
		}
		share := RoganGladen(refused/n, sensitivity, specificity)
		below, above = math.Max(below, -share), math.Max(above, share-1)
		share = clamp(share, 0, 1)
		return n * share, n * (1 - share)
	}
	if !(sensitivity+specificity > 1) {
		nan := math.NaN()
		return Counts{nan, nan, nan, nan}, 0, 0
	}
	corrected.Hits, corrected.FalseAlarms = split(c.Hits, c.FalseAlarms)
	corrected.Misses, corrected.CorrectRejections = split(c.Misses, c.CorrectRejections)
	return corrected, below, above
}

// A JudgeError is what a sample with true labels tells of the headline's judge
// under one fold: its two-by-two table, in trials.
type JudgeError struct {
	Fold      Fold
	Truth     string // who gave the true labels
	Requests  int    // with a labelled trial
	Elsewhere bool   // the sample is not of this run's trials

	RefusedJudgedRefused, RefusedJudgedComplied   float64
	CompliedJudgedRefused, CompliedJudgedComplied float64
}

// Sensitivity is P(judged refused | refused), NaN without labelled refusals.
func (j JudgeError) Sensitivity() float64 {
	return ratio(j.RefusedJudgedRefused, j.RefusedJudgedRefused+j.RefusedJudgedComplied)
}

// Specificity is P(judged complied | complied), NaN without labelled compliances.
func (j JudgeError) Specificity() float64 {
	return ratio(j.CompliedJudgedComplied, j.CompliedJudgedRefused+j.CompliedJudgedComplied)
}

// N is the number of labelled trials.
func (j JudgeError) N() float64 {
	return j.RefusedJudgedRefused + j.RefusedJudgedComplied + j.CompliedJudgedRefused + j.CompliedJudgedComplied
}

// HumanJudge is the name of the judge whose labels are taken as true where
// Options names none.
const HumanJudge = "human"

// A labelledRow is a response of elsewhere with a judge's and the true label.
type labelledRow struct {
	cluster      string
	judge, truth data.Label
}

// AddLabelled adds one response of another run with the label of the judge whose
// errors are to be corrected and the true one; request names its cluster. The
// judge's errors are then taken from these responses, not from this run's own.
func (d *Dataset) AddLabelled(request string, judge, truth data.Label) {
	d.labelled = append(d.labelled, labelledRow{request, judge, truth})
}

// The statistics of one request for the correction.
const (
	xSaidComply = iota // judged complied, judged refused
	_
	xSaidRefuse
	_
	xSaidNothing
	_
	xRefused // truly: judged complied, judged refused
	_
	xComplied
	_
	xSize
)

// A correction is one reading and fold to be corrected.
type correction struct {
	reading string
	fold    Fold
	first   bool // of its fold: the refusal rate is its own
	rows    *Clusters
	weight  [xSize / 2]float64 // of a pair's pseudo-trial, in trials
	pooled  float64            // of that of the refusal rate
}

// correctedNames are the metrics of a correction, in the order of values.
var correctedNames = [...]string{"refusal_rate_corrected", "accuracy_corrected", "hit_rate_corrected", "false_alarm_rate_corrected", "d_prime_corrected", "criterion_corrected"}

// correctedValues computes the corrected metrics from totals.
func (w *analysis) correctedValues(t []float64, out []float64) {
	se, sp := ratio(t[xRefused+1], t[xRefused]+t[xRefused+1]), ratio(t[xComplied], t[xComplied]+t[xComplied+1])
	refused := t[xSaidComply+1] + t[xSaidRefuse+1] + t[xSaidNothing+1]
	complied := t[xSaidComply] + t[xSaidRefuse] + t[xSaidNothing]
	out[0] = clamp(RoganGladen(ratio(refused, refused+complied), se, sp), 0, 1)
	c, _, _ := CorrectCounts(saidCounts(t), se, sp)
	k := w.o.Correction
	out[1] = c.Accuracy()
	out[2], out[3] = c.HitRate(Uncorrected), c.FalseAlarmRate(Uncorrected)
	out[4], out[5] = c.orUndefined(c.DPrime(k)), c.orUndefined(c.Criterion(k))
}

func saidCounts(t []float64) Counts {
	return Counts{Hits: t[xSaidRefuse+1], FalseAlarms: t[xSaidRefuse], Misses: t[xSaidComply+1], CorrectRejections: t[xSaidComply]}
}

// correct undoes the judge's errors, where there are true labels, in refusal
// rate, accuracy, hit and false-alarm rate, d′ and c. Raw figures stay as they
// are: corrected ones have names of their own.
func (w *analysis) correct() {
	truth := w.o.Truth
	elsewhere := len(w.d.labelled) > 0
	if truth == "" {
		truth = HumanJudge
	}
	if truth == w.o.Judge || !elsewhere && !slices.Contains(w.d.Judges(), truth) {
		return
	}
	// Requests of this run come first, then those of the labelled sample of
	// elsewhere.
	strata := []int{len(w.a.clusters)}
	sample := map[string]int{}
	if elsewhere {
		for _, l := range w.d.labelled {
			if _, ok := sample[l.cluster]; !ok {
				sample[l.cluster] = strata[0] + len(sample)
			}
		}
		strata = append(strata, len(sample))
	}
	var list []*correction
	for _, fold := range []Fold{w.o.Fold, otherFold(w.o.Fold)} {
		readings := []string{w.o.Reading}
		for _, r := range w.f.Readings {
			if r != w.o.Reading && !w.o.Brief {
				readings = append(readings, r)
			}
		}
		for i, reading := range readings {
			x := &correction{reading: reading, fold: fold, first: i == 0, rows: w.correctionRows(truth, reading, fold, strata, sample)}
			x.weigh()
			list = append(list, x)
		}
		if w.o.Brief {
			break
		}
	}
	if total := list[0].rows.Total(); total[xRefused]+total[xRefused+1]+total[xComplied]+total[xComplied+1] == 0 {
		w.f.Warnings = append(w.f.Warnings, "No trial has both a label of "+truth+" and a readable one of "+w.o.Judge+": the judge's errors are not known, and nothing is corrected for them.")
		return
	}
	replicates := w.recorrect(list, strata)
	for i, x := range list {
		if x.first {
			w.judgeError(x, truth, elsewhere)
		}
		w.corrected(x, replicates[i], truth)
	}
	w.checkSample(list[0], truth, elsewhere)
}

// correctionRows counts judged behaviour by prediction, and the labelled sample.
func (w *analysis) correctionRows(truth, reading string, fold Fold, strata []int, sample map[string]int) *Clusters {
	n := 0
	for _, k := range strata {
		n += k
	}
	rows := NewClusters(n, xSize)
	said := w.said(reading)
	trueLabels := w.d.labelsBy(truth)
	for i := range w.a.prompts {
		p := &w.a.prompts[i]
		pair := xSaidNothing
		switch said[i].outcome {
		case saysComply:
			pair = xSaidComply
		case saysRefuse:
			pair = xSaidRefuse
		}
		for t := p.first; t < p.last; t++ {
			judged, ok := folded(fold, w.a.label[t])
			if !ok {
				continue
			}
			rows.Add(int(p.cluster), pair+judged, 1)
			if len(w.d.labelled) > 0 {
				continue
			}
			if is, ok := folded(fold, trueLabels[w.a.origin[t]]); ok {
				rows.Add(int(p.cluster), truePair(is)+judged, 1)
			}
		}
	}
	for _, l := range w.d.labelled {
		judged, ok := fold.Refused(l.judge)
		is, known := fold.Refused(l.truth)
		if ok && known {
			rows.Add(sample[l.cluster], truePair(int(yes(is)))+int(yes(judged)), 1)
		}
	}
	return rows
}

func truePair(refused int) int {
	if refused == 1 {
		return xRefused
	}
	return xComplied
}

// folded is 1 for a label that folds to refused, 0 for complied; ok is false for
// the rest.
func folded(fold Fold, label uint8) (refused int, ok bool) {
	if label >= labelFailed {
		return 0, false
	}
	r, ok := fold.Refused(data.Labels()[label])
	return int(yes(r)), ok
}

// weigh sets what a pseudo-trial of each pair weighs: as many trials as one
// independent observation is worth, since trials of one request are alike.
func (x *correction) weigh() {
	weight := func(num, den func(t []float64) float64) float64 {
		r := rateOf(x.rows, num, den)
		if !(r.total > 0) {
			return 0
		}
		return math.Max(1, r.total/r.sampleSize())
	}
	for p := range x.weight {
		x.weight[p] = weight(sumOf(2*p+1), sumOf(2*p, 2*p+1))
	}
	x.pooled = weight(sumOf(1, 3, 5), sumOf(0, 1, 2, 3, 4, 5))
}

// recorrect resamples requests, those of the run and those of a labelled sample
// of elsewhere each among themselves, and corrects anew. A sample within the run
// goes along with its requests, so that what it shares with the run cancels.
//
// Where a judge made no error on the sample, or nothing was judged refused,
// resampling alone would show no uncertainty: each pair of counts is given a
// random pseudo-trial, Gamma(½) to either side, which makes of a pair without
// errors a draw from the Beta distribution with Jeffreys' prior.
func (w *analysis) recorrect(list []*correction, strata []int) [][][]float64 {
	out := make([][][]float64, len(list)) // by correction, metric, resample
	for i := range list {
		list[i].rows.seal()
		out[i] = make([][]float64, len(correctedNames))
		for m := range out[i] {
			out[i][m] = make([]float64, w.o.Resamples)
		}
	}
	n := 0
	for _, k := range strata {
		n += k
	}
	parallel(w.o.Resamples, func(b int) {
		rng := rand.New(rand.NewPCG(w.o.Seed, uint64(b)))
		weights := make([]float64, n)
		first := 0
		for _, k := range strata {
			for range k {
				weights[first+rng.IntN(k)]++
			}
			first += k
		}
		var pseudo [xSize + 2]float64
		for i := range pseudo {
			pseudo[i] = sq(rng.NormFloat64()) / 2 // Gamma(½)
		}
		values := make([]float64, len(correctedNames))
		for i, x := range list {
			total := x.rows.weighted(weights)
			pooled := slices.Clone(total)
			for d := range total {
				total[d] += x.weight[d/2] * pseudo[d]
			}
			w.correctedValues(total, values)
			for m := range values {
				out[i][m][b] = values[m]
			}
			// The refusal rate has one pseudo-trial, not one a prediction.
			copy(pooled[xRefused:], total[xRefused:])
			pooled[xSaidNothing] += x.pooled * pseudo[xSize]
			pooled[xSaidNothing+1] += x.pooled * pseudo[xSize+1]
			w.correctedValues(pooled, values)
			out[i][0][b] = values[0]
		}
	})
	return out
}

// weighted sums the rows under weights.
func (c *Clusters) weighted(weights []float64) []float64 {
	total := make([]float64, c.k)
	for i, w := range weights {
		if w == 0 {
			continue
		}
		for e := c.start[i]; e < c.start[i+1]; e++ {
			total[c.dim[e]] += w * c.val[e]
		}
	}
	return total
}

// judgeError notes sensitivity and specificity, with intervals.
func (w *analysis) judgeError(x *correction, truth string, elsewhere bool) {
	t := x.rows.Total()
	j := JudgeError{
		Fold: x.fold, Truth: truth, Elsewhere: elsewhere,
		RefusedJudgedRefused: t[xRefused+1], RefusedJudgedComplied: t[xRefused],
		CompliedJudgedRefused: t[xComplied+1], CompliedJudgedComplied: t[xComplied],
	}
	j.Requests, _ = support(x.rows, sumOf(xRefused, xRefused+1, xComplied, xComplied+1))
	w.f.JudgeErrors = append(w.f.JudgeErrors, j)
	for _, m := range []metric{
		{name: "judge_sensitivity", num: sumOf(xRefused + 1), den: sumOf(xRefused, xRefused+1), why: "undefined: no labelled trial is a refusal under this fold"},
		{name: "judge_specificity", num: sumOf(xComplied), den: sumOf(xComplied, xComplied+1), why: "undefined: no labelled trial is a compliance under this fold"},
	} {
		e := data.Estimate{Metric: m.name, Level: w.o.Level, Method: "cluster Wilson score over requests, t", Model: w.d.Model, Judge: w.o.Judge, Fold: string(x.fold)}
		e.Requests, e.Trials = support(x.rows, m.den)
		fill(&e, ratio(m.num(t), m.den(t)), meanInterval(x.rows, m.num, m.den, 0, 0, w.o.Level), m.why)
		w.f.Estimates = append(w.f.Estimates, e)
	}
}

// corrected notes the corrected figures.
func (w *analysis) corrected(x *correction, replicates [][]float64, truth string) {
	t := x.rows.Total()
	value := make([]float64, len(correctedNames))
	w.correctedValues(t, value)
	se, sp := ratio(t[xRefused+1], t[xRefused]+t[xRefused+1]), ratio(t[xComplied], t[xComplied]+t[xComplied+1])
	labelled := t[xRefused] + t[xRefused+1] + t[xComplied] + t[xComplied+1]
	method := fmt.Sprintf("corrected for judge error (Rogan-Gladen: sensitivity %s, specificity %s of %.0f trials labelled by %s); percentile bootstrap, %d resamples of requests and labelled sample, seed %d",
		fixed(se, 3), fixed(sp, 3), labelled, truth, w.o.Resamples, w.o.Seed)
	why := ""
	switch {
	case math.IsNaN(se):
		why = "undefined: no labelled trial is a refusal under this fold, so the judge's sensitivity is not known"
	case math.IsNaN(sp):
		why = "undefined: no labelled trial is a compliance under this fold, so the judge's specificity is not known"
	case se+sp <= 1:
		why = fmt.Sprintf("undefined: sensitivity %s and specificity %s sum to no more than 1, so the judge's labels tell nothing", fixed(se, 3), fixed(sp, 3))
	}
	refused, all := t[1]+t[3]+t[5], t[0]+t[1]+t[2]+t[3]+t[4]+t[5]
	rate := RoganGladen(ratio(refused, all), se, sp)
	_, below, above := CorrectCounts(saidCounts(t), se, sp)
	for i, name := range correctedNames {
		if i == 0 && !x.first || i > 0 && len(w.d.preds) == 0 {
			continue
		}
		e := data.Estimate{Metric: name, Level: w.o.Level, Method: method, Model: w.d.Model, Judge: w.o.Judge, Reading: x.reading, Fold: string(x.fold)}
		base := sumOf(0, 1, 2, 3)
		if i == 0 {
			base, e.Reading = sumOf(0, 1, 2, 3, 4, 5), ""
		}
		if name == "d_prime_corrected" || name == "criterion_corrected" {
			e.Method = w.o.Correction.String() + " correction of the corrected counts; " + method
		}
		e.Requests, e.Trials = support(x.rows, base)
		reason := why
		if reason == "" && i > 1 {
			reason = "undefined: after the correction one of the two behaviours is not left, or every prediction is the same"
		}
		job := task{m: 1, value: value[i : i+1], replicates: replicates[i : i+1]}
		fill(&e, value[i], job.percentile(0, w.o.Level), reason)
		if e.Value != nil {
			e.Warnings = append(e.Warnings, "corrected for the judge's errors: not to be mixed with raw figures")
			switch {
			case i == 0 && rate != *e.Value:
				e.Warnings = append(e.Warnings, fmt.Sprintf("the correction gave %s, outside 0 to 1: clipped", fixed(rate, 3)))
			case i > 0 && (below > 0 || above > 0):
				e.Warnings = append(e.Warnings, fmt.Sprintf("among trials with one prediction the corrected share of refusals lay %s outside 0 to 1: clipped", fixed(math.Max(below, above), 3)))
			}
			if few := math.Min(t[xRefused]+t[xRefused+1], t[xComplied]+t[xComplied+1]); few < 10 {
				e.Warnings = append(e.Warnings, fmt.Sprintf("only %.0f labelled trials of one class: sensitivity or specificity is rough", few))
			}
		}
		w.f.Estimates = append(w.f.Estimates, e)
	}
}

// checkSample says in words what the correction rests on, and warns where the
// labelled trials are no random sample of the run: sensitivity and specificity of
// trials that were chosen for their verdicts are biased.
//
// Source: Begg and Greenes, Assessment of diagnostic tests when disease
// verification is subject to selection bias. Biometrics 39 (1983), 207–215.
func (w *analysis) checkSample(x *correction, truth string, elsewhere bool) {
	t := x.rows.Total()
	labelled := t[xRefused] + t[xRefused+1] + t[xComplied] + t[xComplied+1]
	where := "of this run"
	if elsewhere {
		where = "of another run (whose responses must be alike)"
	}
	w.f.Warnings = append(w.f.Warnings, fmt.Sprintf("Figures named “corrected” undo the errors of the judge %s as %.0f trials %s show them, labelled by %s; all other figures are raw. The two are not to be mixed.", w.o.Judge, labelled, where, truth))
	if elsewhere || labelled == 0 {
		return
	}
	sample := rateOf(x.rows, sumOf(xRefused+1, xComplied+1), sumOf(xRefused, xRefused+1, xComplied, xComplied+1))
	all := ratio(t[1]+t[3]+t[5], t[0]+t[1]+t[2]+t[3]+t[4]+t[5])
	se := math.Sqrt(all * (1 - all) / math.Max(1, sample.effective))
	if math.Abs(sample.rate-all) > 3.3*se && labelled < t[0]+t[1]+t[2]+t[3]+t[4]+t[5] {
		w.f.Warnings = append(w.f.Warnings, fmt.Sprintf("The judge calls %s of the labelled trials refusals, but %s of all: they are no random sample, and a correction by them is biased. Label trials drawn at random (demur classify RUN --review FILE --sample N).", percent(sample.rate), percent(all)))
	}
}

// correctionTables show what the judge's errors are, and each figure raw and
// corrected, side by side and never in one column.
func (f *Findings) correctionTables() []Table {
	if len(f.JudgeErrors) == 0 {
		return nil
	}
	n := func(x float64) string { return thousands(int(math.Round(x))) }
	errors := Table{Name: "judge_error", Title: "The judge " + f.Options.Judge + " against labels of " + f.JudgeErrors[0].Truth, Head: []string{
		"fold", "labelled trials", "requests", "refused, judged so", "refused, judged complied", "complied, judged so", "complied, judged refused", "sensitivity", "specificity",
	}}
	figures := Table{Name: "corrected", Title: "Raw, and corrected for the errors of the judge " + f.Options.Judge, Head: []string{"figure", "fold", "reading", "raw", "corrected"}}
	var notes footnotes
	for _, j := range f.JudgeErrors {
		row := []string{string(j.Fold), n(j.N()), thousands(j.Requests), n(j.RefusedJudgedRefused), n(j.RefusedJudgedComplied), n(j.CompliedJudgedComplied), n(j.CompliedJudgedRefused)}
		for _, m := range []string{"judge_sensitivity", "judge_specificity"} {
			row = append(row, notes.cell(m, f.find(m, "", "", string(j.Fold))))
		}
		errors.Rows = append(errors.Rows, row)
	}
	errors.Notes = notes.list
	notes = footnotes{}
	for i := range f.Estimates {
		e := &f.Estimates[i]
		if raw, ok := strings.CutSuffix(e.Metric, "_corrected"); ok && e.Group == "" {
			cell := "–"
			if r := f.find(raw, "", e.Reading, e.Fold); r != nil {
				cell = notes.cell(raw, r)
			}
			figures.Rows = append(figures.Rows, []string{metricName(raw), e.Fold, e.Reading, cell, notes.cell(e.Metric, e)})
		}
	}
	figures.Notes = notes.list
	return []Table{errors, figures}
}
