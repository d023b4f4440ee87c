package analysis_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

// fitted adds rows as demur fit writes them: a state that tells refusal with the
// given AUC, lower and upper limit, and an increment over text.
func fitted(d *analysis.Dataset, auc, lo, hi, gain, gainLo float64) {
	add := func(metric, group string, v ...float64) {
		e := data.Estimate{Metric: metric, Group: group, Value: &v[0], Level: 0.95, Requests: 300, Trials: 900}
		if len(v) == 3 {
			e.Lo, e.Hi = &v[1], &v[2]
		}
		d.AddProbe(e)
	}
	for _, target := range []string{"harm", "refusal"} {
		add("probe_auroc", "target="+target+",method=text", 0.71, 0.66, 0.75)
		add("probe_auroc", "target="+target+",method=mean_difference", 0.95, 0.93, 0.97) // not what stands for the target
		add("probe_increment", "target="+target+",method=mean_difference", 0.2, 0.1, 0.3)
		add("probe_auroc", "target="+target+",method=whitened", auc, lo, hi)
		add("probe_increment", "target="+target+",method=whitened", gain, gainLo, 2*gain-gainLo)
		add("probe_p", "target="+target+",method=whitened", 0.005)
		add("probe_null_95", "target="+target+",method=whitened", 0.57)
		add("probe_stability", "target="+target+",method=whitened,site=2 post", 0.8)
		for layer := range 3 {
			for _, anchor := range []string{"inst", "post"} {
				add("probe_auroc", fmt.Sprintf("target=%s,method=whitened,site=%d %s", target, layer, anchor), 0.6+0.1*float64(layer), 0.5, 0.9)
			}
		}
		add("probe_auroc", "target="+target+",control=length", 0.55, 0.5, 0.6)
		add("probe_auroc", "target="+target+",control=untrained; carried over", 0.5, 0.45, 0.55)
		for _, train := range []string{"bread", "boats", "all but bread", "all but boats"} {
			for _, test := range []string{"bread", "boats"} {
				if train != "all but boats" && test == "boats" || train != "all but bread" && test == "bread" || !strings.HasPrefix(train, "all") {
					add("probe_transfer", "target="+target+",by=topic,train="+train+",test="+test, 0.8, 0.7, 0.9)
				}
			}
		}
		for k := range 3 {
			add("probe_subspace", fmt.Sprintf("target=%s,site=2 post,k=%d", target, k+1), 0.9, 0.8, 0.95)
			add("probe_subspace_gain", fmt.Sprintf("target=%s,site=2 post,k=%d", target, k+1), 0.01, -0.01, 0.02)
		}
	}
	for layer := range 3 {
		for _, space := range []string{"raw", "whitened"} {
			group := fmt.Sprintf("a=harm,b=refusal,space=%s,layer=%d", space, layer)
			add("probe_cosine", group, 0.4, 0.3, 0.5)
			add("probe_cosine_disattenuated", group, 0.45)
			for _, side := range []string{"harm", "refusal"} {
				add("probe_reliability", fmt.Sprintf("direction=%s,space=%s,layer=%d", side, space, layer), 0.9)
			}
		}
	}
	for _, p := range []string{"text", "refusal at post", "stated prediction", "text + state"} {
		add("probe_act_concordance", "predictor="+p, 0.8, 0.7, 0.9)
		add("probe_act_concordance", "predictor="+p+",among=boundary", 0.6, 0.5, 0.7)
	}
	add("probe_act_gain", "gain=refusal at post over text", 0.1, 0.05, 0.15)
	add("probe_act_share", "state=refuse,word=comply,act=refuse", 0.25)
}

func page(t *testing.T, d *analysis.Dataset) string {
	t.Helper()
	var b bytes.Buffer
	if err := analysis.WriteReport(&b, analyse(t, d, analysis.Options{})); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestStateSection: what demur fit found stands in the report, and its first
// question is answered by it; where nothing was fitted nothing of it is there.
func TestStateSection(t *testing.T) {
	small := sweep
	small.requests = 30
	bare := page(t, small.dataset("m", false))
	for _, not := range []string{">State<", "Does its state know?", "residual stream"} {
		if strings.Contains(bare, not) {
			t.Errorf("nothing was fitted, and the report holds %q", not)
		}
	}
	d := small.dataset("m", false)
	fitted(d, 0.92, 0.9, 0.94, 0.06, 0.03)
	f := analyse(t, d, analysis.Options{})
	for _, s := range f.Prompt {
		// The state says the opposite of the word at every second prompt.
		v := 0.1
		if s.Says[f.Options.Reading] == data.WillRefuse {
			v = 0.9
		}
		if len(d.Judges()) > 0 && s.Variant == data.Base {
			v = 1 - v
		}
		d.AddScore(analysis.Score{RequestID: s.RequestID, Variant: s.Variant, Target: "refusal_rate", Site: "post", Value: v, Joined: true})
	}
	f = analyse(t, d, analysis.Options{})
	var names []string
	for _, fig := range f.Figures() {
		if fig.Section == "state" {
			names = append(names, fig.Name)
			if fig.Read == "" || len(fig.Data.Rows) == 0 {
				t.Errorf("figure %s says nothing", fig.Name)
			}
			var b bytes.Buffer
			if err := fig.Write(&b, "svg"); err != nil || b.Len() == 0 {
				t.Errorf("figure %s: %v", fig.Name, err)
			}
		}
	}
	want := []string{
		"state_controls_harm", "state_layers_harm", "state_controls_refusal", "state_layers_refusal", "state_increment", "state_positions", "state_subspaces",
		"state_angle", "state_word_act_predictors", "state_transfer_harm_topic", "state_transfer_refusal_topic",
	}
	if !slices.Equal(names, want) {
		t.Errorf("figures %v", names)
	}
	tables := map[string]analysis.Table{}
	for _, table := range f.Tables() {
		tables[table.Name] = table
	}
	if n := len(tables["probes_by_method"].Rows); n != 6 {
		t.Errorf("%d directions", n)
	}
	base := 0
	for _, p := range f.Prompt {
		if says := p.Says[f.Options.Reading]; p.Variant == data.Base && (says == data.WillRefuse || says == data.WillComply) {
			base++
		}
	}
	if n := len(tables["state_against_word"].Rows); n != base || base == 0 {
		t.Errorf("state and word disagree at %d prompts, want %d", n, base)
	}
	html := page(t, d)
	for _, want := range []string{"Does its state know?", "Yes, and more than the words tell.", "0.920", "[0.900, 0.940]", "whitened, layer 2, post"} {
		if !strings.Contains(html, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(html, "NaN") || strings.Contains(html, "0.950") && strings.Contains(html, "<b>0.950</b>") {
		t.Error("the report shows NaN, or the best method for the fixed one")
	}
	// Estimates are carried over as they are, once.
	n := 0
	for _, e := range f.Estimates {
		if e.Metric == "probe_increment" && e.Group == "target=refusal,method=whitened" && *e.Value == 0.06 {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the increment stands there %d times", n)
	}
}

// TestStateVerdict: the card claims no more than the interval of the increment.
func TestStateVerdict(t *testing.T) {
	small := sweep
	small.requests = 30
	for _, c := range []struct {
		name                    string
		auc, lo, hi, gain, more float64
		want                    string
	}{
		{"as the words", 0.92, 0.9, 0.94, 0.01, -0.01, "It tells, but the words tell as much."},
		{"chance", 0.52, 0.45, 0.59, 0.01, -0.02, "No sign of it."},
		{"wide", 0.7, 0.4, 0.95, 0.01, -0.02, "Too few requests to say."},
		{"good", 0.85, 0.8, 0.9, 0.05, 0.02, "Mostly, and more than the words tell."},
		{"weak", 0.65, 0.6, 0.7, 0.05, 0.02, "A little more than the words tell."},
	} {
		d := small.dataset("m", false)
		fitted(d, c.auc, c.lo, c.hi, c.gain, c.more)
		if html := page(t, d); !strings.Contains(html, `<p class="verdict">`+c.want) {
			t.Errorf("%s: the report lacks %q", c.name, c.want)
		}
	}
}
