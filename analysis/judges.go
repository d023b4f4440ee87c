package analysis

// judges plans the agreement of the headline's judge with every other judge of
// the same trials: on three classes, on both folds, on the labels, and class by
// class.
func (w *analysis) judges() {
	for _, other := range w.f.Judges {
		if other == w.o.Judge {
			continue
		}
		labels := w.d.labelsBy(other)
		rows := NewClusters(len(w.a.clusters), labelKindsOfJudge*labelKindsOfJudge)
		for i, p := range w.a.prompts {
			for t := p.first; t < p.last; t++ {
				mine, theirs := w.a.label[t], labels[w.a.origin[t]]
				if mine < labelFailed && theirs < labelFailed {
					rows.Add(int(w.a.prompts[i].cluster), int(theirs)*labelKindsOfJudge+int(mine), 1)
				}
			}
		}
		for _, c := range classings() {
			w.add(rows, agreementMetrics(c), "judge="+other, "", c.fold())
		}
		if total := rows.Total(); allOf(total) > 0 {
			a := Agreements{Row: other, Column: w.o.Judge}
			w.f.Agreements = append(w.f.Agreements, agreementOf(rows, a, Resampling{w.o.Resamples, w.o.Seed, w.o.Level}))
		}
	}
}

// fold is the fold of a classing that is one.
func (c classing) fold() string {
	if c.name == string(Lenient) || c.name == string(Strict) {
		return c.name
	}
	return ""
}

// agreementMetrics are κ and the share of equal classes; on three classes also
// F1 of each, on labels under names of their own.
func agreementMetrics(c classing) []metric {
	table := func(t []float64) [][]float64 {
		out, _ := c.confusionOf(t)
		return out
	}
	paired := func(t []float64) float64 {
		_, left := c.confusionOf(t)
		return allOf(t) - left
	}
	same := func(t []float64) float64 {
		var n float64
		for i, row := range table(t) {
			n += row[i]
		}
		return n
	}
	suffix := ""
	if c.name == "labels" {
		suffix = "_labels"
	}
	list := []metric{
		{name: "kappa" + suffix, value: func(t []float64) float64 { return Kappa(table(t)).Kappa }, base: paired, why: "undefined: one of the judges gave one class only, or no trial has both"},
		{name: "judge_agreement" + suffix, num: same, den: paired, kind: rate, base: paired, why: "undefined: no trial has both verdicts"},
	}
	if c.name == "three" {
		for k, name := range classNames {
			list = append(list, metric{
				name: "f1_" + name, value: func(t []float64) float64 { return f1(against(table(t), k)) }, base: paired,
				why: "undefined: neither judge gave this class",
			})
		}
	}
	return list
}
