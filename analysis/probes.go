package analysis

import (
	"cmp"
	"maps"
	"slices"

	"demur/data"
)

// probes plans how well the held-out scores of each direction tell refusals from
// compliances.
func (w *analysis) probes() {
	type site struct{ target, site string }
	bySite := map[site][]scored{}
	for _, s := range w.d.scores {
		request, ok := w.d.ids[s.RequestID]
		if !ok || s.Joined {
			continue
		}
		i, ok := w.a.byPrompt[promptKey{w.a.rank[request], s.Variant}]
		if !ok {
			continue
		}
		x := scored{cluster: w.a.prompts[i].cluster, score: s.Value}
		n := w.a.labelsOf(&w.a.prompts[i], -1)
		for label, c := range n[:labelFailed] {
			if r, ok := w.o.Fold.Refused(data.Labels()[label]); ok && r {
				x.refused += float64(c)
			} else if ok {
				x.complied += float64(c)
			}
		}
		if x.refused+x.complied > 0 {
			k := site{s.Target, s.Site}
			bySite[k] = append(bySite[k], x)
		}
	}
	keys := slices.SortedFunc(maps.Keys(bySite), func(a, b site) int {
		return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.site, b.site))
	})
	for _, k := range keys {
		list := bySite[k]
		sortScored(list)
		s := &section{
			group: "probe=" + k.target + " at " + k.site, fold: string(w.o.Fold),
			metrics: []metric{{name: "auc_probe", why: "undefined without both refusals and compliances"}},
		}
		seen := map[int32]bool{}
		for _, x := range list {
			s.trials += int(x.refused + x.complied)
			seen[x.cluster] = true
		}
		s.requests = len(seen)
		s.task = &task{m: 1, weighted: func(weights []uint16, out []float64) { out[0] = weightedAUC(list, weights) }}
		w.sections = append(w.sections, s)
	}
}
