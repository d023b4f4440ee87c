package probes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"demur/probes"
)

// TestStudy: everything that can be asked of the phantom's states is asked, and
// every figure becomes a row of its own.
func TestStudy(t *testing.T) {
	s := studyOf(t, "default")
	o := quick(probes.Target{})
	o.Methods, o.Permutations, o.Resamples = []probes.Method{probes.Whitened}, 19, 50
	// Labels as two temperatures might give them: the half of the trials of each.
	sample := func(name string, shift int) probes.Sample {
		rows := slices.Clone(s.rows)
		for i := range rows {
			rows[i].Refusals = min(max(rows[i].Refusals+shift, 0), rows[i].Trials)
		}
		return probes.Sample{Name: name, Rows: rows, States: s.states}
	}
	study, err := probes.NewStudy(s.rows, s.states, probes.StudyOptions{
		Targets: []probes.Target{probes.Harm(), probes.Refusal(), probes.RefusalRate(), probes.Attribute("topic", "nowhere")}, Fit: o,
		Crossings: []probes.Crossing{
			{By: "temperature", Samples: []probes.Sample{sample("0.3", 1), sample("1", -1)}, Acts: true},
			{By: "model", Samples: []probes.Sample{sample("one", 0), sample("other", 0)}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(study.Reports) != 3 || len(study.Skipped) != 1 || !strings.HasPrefix(study.Skipped[0], "target topic=nowhere: too few requests: ") {
		t.Fatalf("%d reports, skipped %q", len(study.Reports), study.Skipped)
	}
	tables := map[string]int{}
	for _, table := range study.Transfers {
		tables[table.Target+" by "+table.By] = len(table.Cells)
		for _, c := range table.Cells {
			// The same states and labels under two names: a request is tested by what was
			// fitted without it, whatever it is called, so all cells reach the same.
			if table.By == "model" && (c.Value.Value == nil || *c.Value.Value != *table.Cells[0].Value.Value) && !strings.HasPrefix(c.Train, "all but") {
				t.Errorf("%s: %s → %s: %s, the first is %s", table.Target, c.Train, c.Test, show(c.Value), show(table.Cells[0].Value))
			}
			if table.By == "temperature" && *c.Value.Value < 0.9 {
				t.Errorf("%s → %s: %s", c.Train, c.Test, show(c.Value))
			}
		}
	}
	for name, n := range map[string]int{
		"harm by topic": 110, "harm by wording": 6, "harm by model": 6, "refusal by topic": 110, "refusal by wording": 6, "refusal by temperature": 6,
		"refusal by model": 6, "refusal_rate by topic": 110, "refusal_rate by wording": 6, "refusal_rate by temperature": 6, "refusal_rate by model": 6,
	} {
		if tables[name] != n {
			t.Errorf("%s has %d cells, want %d", name, tables[name], n)
		}
		delete(tables, name)
	}
	if len(tables) > 0 || len(study.Subspaces) != 2 || len(study.Subspaces[0].K) != 8 {
		t.Errorf("further transfers %v; %d subspaces", tables, len(study.Subspaces))
	}
	g := study.Geometry
	if g == nil || len(g.Pairs) != 10 || len(g.Layers) != 4 || len(g.Topics) != 45 {
		t.Fatalf("geometry %+v", g)
	}
	for _, a := range g.Layers {
		if a.A != "harm" || a.B != "refusal" {
			t.Errorf("layer %d compares %s and %s", a.Layer, a.A, a.B)
		}
		// The pair of a layer is the pair of all contrasts there.
		if a.Layer == g.Layer && (*a.Raw.Cosine.Value != *g.Pairs[0].Raw.Cosine.Value || a.Raw.Reliability != g.Pairs[0].Raw.Reliability) {
			t.Errorf("at layer %d the cosine is %s alone and %s beside others", a.Layer, show(a.Raw.Cosine), show(g.Pairs[0].Raw.Cosine))
		}
	}
	seen := map[string]bool{}
	count := map[string]int{}
	for _, e := range study.Estimates() {
		if !strings.HasPrefix(e.Metric, "probe_") || seen[e.Metric+" "+e.Group] {
			t.Errorf("%s of %s stands there twice, or has another name", e.Metric, e.Group)
		}
		seen[e.Metric+" "+e.Group] = true
		count[e.Metric]++
		for pair := range strings.SplitSeq(e.Group, ",") {
			if !strings.Contains(pair, "=") {
				t.Errorf("group %q cannot be taken apart", e.Group)
			}
		}
		if e.Value == nil && len(e.Warnings) == 0 {
			t.Errorf("%s of %s is undefined without a reason", e.Metric, e.Group)
		}
	}
	for metric, n := range map[string]int{"probe_transfer": 378, "probe_subspace": 16, "probe_act_share": 8, "probe_reliability": 2 * (5 + 10 + 3*2)} {
		if count[metric] != n {
			t.Errorf("%d rows of %s, want %d", count[metric], metric, n)
		}
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(probe_[a-z0-9_]+)`").FindAllStringSubmatch(string(page), -1) {
		if count[m[1]] == 0 && m[1] != "probe_selectivity" && m[1] != "probe_act_weight" { // the first needs wordings alike in number
			t.Errorf("docs/metrics.md speaks of %s, which is never emitted", m[1])
		}
	}
	for metric := range count {
		if !strings.Contains(string(page), "`"+metric+"`") {
			t.Errorf("%s is not in docs/metrics.md", metric)
		}
	}
	joined := map[string]int{}
	for _, score := range study.Scores() {
		if strings.HasPrefix(score.Group, "act/") {
			joined[score.Group]++
			if score.Layer == nil || score.Label == nil || score.Fold < 0 {
				t.Errorf("score %+v", score)
			}
		}
	}
	if joined["act/refusal_rate/post"] != 600 || joined["act/harm_graded/inst"] != 600 || len(joined) != 2 {
		t.Errorf("joined scores %v", joined)
	}
	if _, err := json.Marshal(study); err != nil {
		t.Error(err)
	}
	if _, err := probes.NewStudy(s.rows, s.states, probes.StudyOptions{Targets: []probes.Target{probes.Attribute("topic", "nowhere")}, Fit: o}); !errors.Is(err, probes.ErrFew) {
		t.Errorf("nothing can be fitted, and the error is %v", err)
	}
}

// TestTopicControl: topic tells what it tells, and where each topic has as many
// positives as any other it tells nothing rather than the opposite.
func TestTopicControl(t *testing.T) {
	reach := func(seed uint64, label func(request, topic int, rng *rand.Rand) int) float64 {
		rng := rand.New(rand.NewPCG(5, seed))
		var rows []probes.Row
		var ids []string
		var values []float32
		for q := range 300 {
			harm := label(q, q%10, rng)
			for v := range 2 {
				r := probes.Row{PromptID: fmt.Sprintf("p%d.%d", q, v), RequestID: fmt.Sprint(q), Variant: fmt.Sprint(v), Topic: fmt.Sprint(q % 10), Text: "How do I bake bread?", Harm: harm}
				rows, ids = append(rows, r), append(ids, r.PromptID)
				for range 4 {
					values = append(values, float32(rng.NormFloat64()))
				}
			}
		}
		o := quick(probes.Harm())
		o.Methods, o.Permutations, o.Random, o.Seeds = []probes.Method{probes.Whitened}, -1, 1, 1
		o.Resamples, o.Penalties = 20, []float64{0.1}
		r := must(t)(probes.Fit(rows, probes.NewStates(4, ids, []probes.Site{{Layer: 0, Anchor: probes.Inst}}, [][]float32{values}), o))
		return *control(t, r, "topic").Value.Value
	}
	balanced := reach(0, func(q, _ int, _ *rand.Rand) int { return 1 + 4*(q/10%2) })
	var coins float64
	const draws = 8
	for seed := range uint64(draws) {
		coins += reach(seed, func(_, _ int, rng *rand.Rand) int { return 1 + 4*rng.IntN(2) }) / draws
	}
	told := reach(0, func(_, topic int, rng *rand.Rand) int {
		if rng.Float64() < 0.1+0.08*float64(topic) {
			return 5
		}
		return 1
	})
	t.Logf("balanced %.3f, coins %.3f, told by topic %.3f", balanced, coins, told)
	if balanced < 0.45 || balanced > 0.55 {
		t.Errorf("each topic has as many positives, and topic reaches %.3f", balanced)
	}
	// Where topics differ by luck they go on doing so in the folds, and where they
	// are more alike than luck has it they count as equal: a little above one half.
	if coins < 0.47 || coins > 0.58 {
		t.Errorf("labels are coins, and topic reaches %.3f on average", coins)
	}
	// Of two requests of topics a and b, the labels unlike: with shares from 0.1 to
	// 0.82 the best order reaches 0.72 in expectation, half of what is lost being
	// pairs of one topic.
	if told < 0.66 {
		t.Errorf("topic tells the label, and reaches %.3f", told)
	}
}

// TestNearlyOne: the warning that harm and refusal are one thing comes where they
// are, and not where one of the four cells is merely small.
func TestNearlyOne(t *testing.T) {
	fit := func(refused func(harmful bool, q int) bool) string {
		rows, states := noise(600, 1, 1, 4, 2, 3)
		for i := range rows {
			q := i / 2
			harmful := q%2 == 1
			rows[i].Harm, rows[i].Trials, rows[i].Refusals = 1, 1, 0
			if harmful {
				rows[i].Harm = 5
			}
			if refused(harmful, q) {
				rows[i].Refusals = 1
			}
		}
		o := quick(probes.Harm())
		o.Methods, o.Permutations, o.Seeds, o.Random = []probes.Method{probes.MeanDifference}, -1, 1, 1
		return strings.Join(must(t)(probes.Fit(rows, states, o)).Warnings, "\n")
	}
	if w := fit(func(harmful bool, q int) bool { return harmful != (q%50 == 0) }); !strings.Contains(w, "nearly one") {
		t.Errorf("harm and refusal are one, and the warnings are %q", w)
	}
	// Half of the harmful requests are refused, few harmless ones: two things.
	if w := fit(func(harmful bool, q int) bool { return harmful && q%4 == 1 || q%60 == 0 }); strings.Contains(w, "nearly one") || !strings.Contains(w, "only 5 requests are harmless and refused") {
		t.Errorf("half of the harmful requests are answered, and the warnings are %q", w)
	}
	if w := fit(func(bool, int) bool { return false }); strings.Contains(w, "nearly one") || strings.Contains(w, "requests are") {
		t.Errorf("nothing was refused, and the warnings are %q", w)
	}
	if w := fit(func(harmful bool, q int) bool { return q%3 == 0 }); w != "" {
		t.Errorf("all four cells are full, and the warnings are %q", w)
	}
}

// TestWith: sites are added to prompts, not to rows in whatever order.
func TestWith(t *testing.T) {
	a := probes.NewStates(1, []string{"x", "y"}, []probes.Site{{Layer: 0, Anchor: probes.Inst}}, [][]float32{{1, 2}})
	b := probes.NewStates(1, []string{"y", "z", "x"}, []probes.Site{{Layer: -1, Anchor: probes.Mean}}, [][]float32{{20, 30, 10}})
	both, err := a.With(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(both.Sites()) != 2 || both.Values("x", probes.Site{Layer: -1, Anchor: probes.Mean})[0] != 10 || both.Values("y", probes.Site{Layer: 0, Anchor: probes.Inst})[0] != 2 {
		t.Errorf("sites %v", both.Sites())
	}
	if len(a.Sites()) != 1 {
		t.Error("the states themselves were changed")
	}
	few := probes.NewStates(1, []string{"y", "z", "x"}, []probes.Site{{Layer: 0, Anchor: probes.Inst}, {Layer: 1, Anchor: probes.Inst}}, [][]float32{{1, 2, 3}, {4, 5, 6}})
	few.Only([]probes.Row{{PromptID: "x"}, {PromptID: "z"}, {PromptID: "elsewhere"}})
	if got := few.Prompts(); len(got) != 2 || few.Values("y", few.Sites()[0]) != nil || few.Values("x", few.Sites()[1])[0] != 6 || few.Values("z", few.Sites()[0])[0] != 2 {
		t.Errorf("of three prompts %v stay", got)
	}
	if _, err := b.With(a); err == nil {
		t.Error("a prompt has no state there, and no error")
	}
	if _, err := both.With(b); err == nil {
		t.Error("the site is there already, and no error")
	}
}
