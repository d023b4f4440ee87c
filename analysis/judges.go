package analysis

import "demur/data"

// judges plans the agreement of the headline's judge with every other judge of
// the same trials, on three classes.
func (w *analysis) judges() {
	for _, other := range w.f.Judges {
		if other == w.o.Judge {
			continue
		}
		labels := w.d.labelsBy(other)
		rows := NewClusters(len(w.a.clusters), classes*classes)
		for i, p := range w.a.prompts {
			for t := p.first; t < p.last; t++ {
				mine, theirs := w.a.label[t], labels[w.a.origin[t]]
				if mine >= labelFailed || theirs >= labelFailed {
					continue
				}
				a, b := class(data.Labels()[mine]), class(data.Labels()[theirs])
				if a != classNone && b != classNone {
					rows.Add(int(w.a.prompts[i].cluster), classes*a+b, 1)
				}
			}
		}
		table := func(t []float64) [][]float64 {
			var out [][]float64
			for k := range classes {
				out = append(out, t[classes*k:classes*(k+1)])
			}
			return out
		}
		all := func(t []float64) float64 {
			var n float64
			for _, v := range t {
				n += v
			}
			return n
		}
		same := func(t []float64) float64 { return t[0] + t[classes+1] + t[2*classes+2] }
		w.add(rows, []metric{
			{name: "kappa", value: func(t []float64) float64 { return Kappa(table(t)).Kappa }, base: all, why: "undefined: one of the judges gave one class only, or no trial has both"},
			{name: "judge_agreement", num: same, den: all, kind: rate, base: all, why: "undefined: no trial has both verdicts"},
		}, "judge="+other, "", "")
	}
}
