package probes

import (
	"fmt"
	"maps"

	"demur/data"
)

// Estimates returns the report's figures as rows of the table estimates: metrics
// probe_auroc (probe_concordance where graded), probe_increment (text and probe
// together over text), probe_p and their like, each with the group
// target=…,method=…; controls with control=…; sites, at the strength of the
// direction that is kept, with site=….
func (r *Report) Estimates() []data.Estimate {
	var out []data.Estimate
	add := func(metric, group string, v Value, method string, warnings ...string) {
		e := data.Estimate{
			Metric: metric, Group: "target=" + r.Target + group, Value: v.Value, Lo: v.Lo, Hi: v.Hi, Level: r.Level, Method: method,
			Requests: r.Requests, Trials: r.Prompts, Warnings: warnings,
		}
		if v.Value == nil {
			e.Warnings = append(e.Warnings, "undefined")
		}
		out = append(out, e)
	}
	const boot = bootstrapped
	add("probe_"+r.Measure, ",method=text", r.Text, boot)
	for _, m := range r.Methods {
		group := ",method=" + string(m.Method)
		add("probe_"+r.Measure, group, m.Value, boot, r.Warnings...)
		add("probe_increment", group, m.Increment, boot)
		add("probe_difference", group, m.Difference, boot)
		for _, name := range sortedKeys(m.Over) {
			add("probe_increment", group+",over="+name, m.Over[name], boot)
		}
		for _, name := range sortedKeys(m.Strata) {
			add("probe_"+r.Measure, group+",among="+name, m.Strata[name], boot)
		}
		if !r.Graded {
			add("probe_tpr_at_1", group, m.TPR1, boot)
			add("probe_tpr_at_5", group, m.TPR5, boot)
			add("probe_balanced_accuracy", group, m.Accuracy, boot)
			add("probe_brier", group, m.Brier, boot)
			add("probe_ece", group, Value{Value: m.ECE}, "")
		}
		if m.P != nil {
			add("probe_p", group, Value{Value: m.P}, fmt.Sprintf("%d permutations", r.Permutations))
		}
		for _, x := range []struct {
			metric string
			v      *float64
		}{{"probe_null_mean", m.NullMean}, {"probe_null_95", m.Null95}, {"probe_max_null_95", m.MaxNull95}} {
			if x.v != nil {
				add(x.metric, group, Value{Value: x.v}, fmt.Sprintf("%d permutations", r.Permutations))
			}
		}
		// The site and strength of the direction that is kept stand in the group.
		if m.Stability != nil {
			add("probe_stability", group+","+keyed("site", siteName(m.Site)), Value{Value: m.Stability}, "cosines between folds")
		}
		for _, s := range m.Surface {
			if s.Strength == m.Strength {
				add("probe_"+r.Measure, group+","+keyed("site", siteName(s.Site)), s.Value, boot)
			}
		}
	}
	for _, c := range r.Controls {
		metric := "probe_" + r.Measure
		if c.Name == "selectivity" {
			metric = "probe_selectivity"
		}
		add(metric, ","+keyed("control", c.Name), c.Value, boot, c.Note)
	}
	return out
}

// Directions returns the directions of all methods, as rows of their table, with
// the controls' values.
func (r *Report) Directions() []data.Direction {
	controls := make(map[string]float64)
	for _, c := range r.Controls {
		if c.Value.Value != nil {
			controls[c.Name] = *c.Value.Value
		}
	}
	var out []data.Direction
	for _, m := range r.Methods {
		for _, d := range m.Directions {
			d.Controls = maps.Clone(controls)
			d.Warnings = append(d.Warnings, r.Warnings...)
			out = append(out, d)
		}
	}
	return out
}

// Scores returns the held-out scores of all methods, as rows of their table.
func (r *Report) Scores() []data.Score {
	var out []data.Score
	for _, m := range r.Methods {
		out = append(out, m.Scores...)
	}
	return out
}
