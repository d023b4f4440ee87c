package analysis

import (
	"fmt"

	"demur/data"
)

// The statistics of another model's prediction.
const (
	oRight = iota
	oSelf
	oOf
	oSize
)

// others plans what the predictions of other models are worth for this model's
// behaviour: a model that knows itself predicts itself better than another does
// (Binder et al., arXiv:2410.13787).
func (w *analysis) others(said []predictionRow) {
	for _, other := range w.o.Others {
		_, name := names2(w.d, other)
		theirs := other.predictionsOf(w.o.Question, w.o.Polarity, w.o.Reading)
		rows := NewClusters(len(w.a.clusters), oSize)
		shared, any := false, false
		for i := range w.a.prompts {
			p := &w.a.prompts[i]
			id := w.d.requests[w.a.clusters[p.cluster]].id
			if _, ok := other.ids[id]; ok {
				shared = true
			}
			q, ok := theirs[wording{id, w.d.variants.list[p.variant]}]
			if !ok || q.outcome > saysRefuse || said[i].outcome > saysRefuse {
				continue
			}
			n := w.a.labelsOf(p, -1)
			for label, k := range n[:labelFailed] {
				refused, known := w.o.Fold.Refused(data.Labels()[label])
				if !known || k == 0 {
					continue
				}
				any = true
				rows.Add(int(p.cluster), oOf, float64(k))
				rows.Add(int(p.cluster), oSelf, float64(k)*yes(refused == (said[i].outcome == saysRefuse)))
				rows.Add(int(p.cluster), oRight, float64(k)*yes(refused == (q.outcome == saysRefuse)))
			}
		}
		if !shared {
			continue // runs of other requests, side by side in one report
		}
		if !any {
			w.f.Warnings = append(w.f.Warnings, fmt.Sprintf("%s has no prediction of the same wording and reading for these requests: it is no baseline here.", name))
			continue
		}
		const why = "undefined: no prompt has both predictions"
		w.add(rows, []metric{
			{name: "other_model_accuracy", num: sumOf(oRight), den: sumOf(oOf), base: sumOf(oOf), kind: rate, why: why},
			{name: "gain_over_other_model", value: func(t []float64) float64 { return ratio(t[oSelf]-t[oRight], t[oOf]) }, base: sumOf(oOf), why: why},
		}, "predictor="+name, w.o.Reading, string(w.o.Fold))
	}
}

// A wording is one request in one wording.
type wording struct{ id, variant string }

// predictionsOf returns the prediction of each wording under one question and
// reading; of several that of the lowest temperature and seed.
func (d *Dataset) predictionsOf(question, polarity, reading string) map[wording]predictionRow {
	chosen := map[wording]predictionRow{}
	for _, p := range d.preds {
		if d.labels.list[p.question] != question || d.labels.list[p.polarity] != polarity || d.labels.list[p.reading] != reading {
			continue
		}
		at := wording{d.requests[p.request].id, d.variants.list[p.variant]}
		old, ok := chosen[at]
		if !ok || p.temperature < old.temperature || (p.temperature == old.temperature && p.seed < old.seed) {
			chosen[at] = p
		}
	}
	return chosen
}
