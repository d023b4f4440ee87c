package analysis

import (
	"fmt"
	"math"

	"demur/data"
)

// metacognition fits meta-d′ for the headline, with a grouped jackknife over
// requests, because 2,000 fits would cost minutes.
func (w *analysis) metacognition() {
	if len(w.d.preds) == 0 {
		return
	}
	rows := w.a.joint(w.said(w.o.Reading), w.o.Fold, nil)
	total := rows.Total()
	all, merged := ratings(total).Merge(0.05)
	counts := all.Counts()
	base := data.Estimate{Level: w.o.Level, Model: w.d.Model, Judge: w.o.Judge, Reading: w.o.Reading, Fold: string(w.o.Fold)}
	base.Requests, base.Trials = support(rows, both)
	names := []string{"meta_d_prime", "m_ratio", "m_diff", "meta_d_prime_refuse", "meta_d_prime_comply"}
	withhold := func(why string) {
		for _, name := range names {
			e := base
			e.Metric, e.Warnings = name, []string{why}
			w.f.Estimates = append(w.f.Estimates, e)
		}
	}
	d := counts.DPrime(LogLinear)
	levels := len(all.Complied) / 2
	switch {
	case stated(total) == 0 && both(total) > 0:
		withhold(noConfidence)
		return
	case oneAnswer(counts):
		withhold(sameAnswer)
		return
	case math.IsNaN(d):
		withhold("undefined without both refusals and compliances")
		return
	case levels < 2:
		withhold("undefined: only one level of confidence is in use")
		return
	case all.Errors() < 20:
		withhold(fmt.Sprintf("undefined: %.0f wrong predictions, 20 are needed", all.Errors()))
		return
	case math.Abs(d) < 0.5:
		withhold(fmt.Sprintf("undefined: |d′| is %.2f, 0.5 is needed", math.Abs(d)))
		return
	}
	coarse := func(t []float64) Ratings {
		r := ratings(t)
		c := Ratings{make([]float64, 2*levels), make([]float64, 2*levels)}
		for k := 1; k <= 5; k++ {
			i, j := levels-merged[k-1], levels+merged[k-1]-1
			c.Complied[i] += r.Complied[5-k]
			c.Complied[j] += r.Complied[4+k]
			c.Refused[i] += r.Refused[5-k]
			c.Refused[j] += r.Refused[4+k]
		}
		return c.Pad()
	}
	kinds := [3]int{bothResponses, predictedRefuse, predictedComply}
	var whole [3]*MetaFit
	fit := func(t []float64, near [3]*MetaFit) (out []float64, fits [3]*MetaFit) {
		out = make([]float64, len(names))
		for i := range out {
			out[i] = math.NaN()
		}
		r := coarse(t)
		for k, which := range kinds {
			f, err := metaD(r, which, near[k])
			if err != nil {
				continue
			}
			fits[k] = &f
			if which == bothResponses {
				out[0], out[1], out[2] = f.MetaD, f.MRatio, f.MDiff
			} else {
				out[2+k] = f.MetaD
			}
		}
		return out, fits
	}
	value, whole := fit(total, whole)
	groups := min(len(w.a.clusters), 40)
	left := make([][]float64, groups)
	parallel(groups, func(g int) {
		t := append([]float64(nil), total...)
		row := make([]float64, rows.k)
		for i := g; i < rows.n; i += groups {
			rows.row(i, row)
			for d, v := range row {
				t[d] -= v
			}
		}
		left[g], _ = fit(t, whole)
	})
	t := tQuantile((1+w.o.Level)/2, float64(groups-1))
	for i, name := range names {
		e := base
		e.Metric = name
		e.Method = fmt.Sprintf("maximum likelihood on %d levels, 1/%d added to each cell; jackknife over %d groups of requests, t", levels, 2*levels, groups)
		var each []float64
		for _, l := range left {
			each = append(each, l[i])
		}
		se := jackknifeSE(each)
		if math.IsNaN(se) && !math.IsNaN(value[i]) {
			e.Value = &value[i]
			e.Warnings = append(e.Warnings, "no interval: the fit does not converge when some of the requests are left out")
			w.f.Estimates = append(w.f.Estimates, e)
			continue
		}
		fill(&e, value[i], Interval{value[i] - t*se, value[i] + t*se, 0}, "undefined: the fit did not converge")
		w.f.Estimates = append(w.f.Estimates, e)
	}
}
