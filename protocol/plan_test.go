package protocol_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/protocol"
)

func TestPlanRefusesWhatCannotBeRun(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(*protocol.Plan)
		want string
	}{
		{"no temperature", func(p *protocol.Plan) { p.Temperatures = nil }, "no temperature"},
		{"negative temperature", func(p *protocol.Plan) { p.Temperatures = []float64{-0.5} }, "temperature -0.5"},
		{"NaN", func(p *protocol.Plan) { p.Temperatures = []float64{math.NaN()} }, "temperature NaN"},
		{"temperature twice", func(p *protocol.Plan) { p.Temperatures = []float64{0.7, 0.7} }, "given twice"},
		{"no seed", func(p *protocol.Plan) { p.Seeds = nil }, "no seed"},
		{"seed twice", func(p *protocol.Plan) { p.Seeds = []uint32{1, 1} }, "given twice"},
		{"the random seed", func(p *protocol.Plan) { p.Seeds = []uint32{math.MaxUint32} }, "means \"random\""},
		{"no token", func(p *protocol.Plan) { p.MaxTokens = 0 }, "max-tokens 0"},
		{"no room", func(p *protocol.Plan) { p.MaxTokens = p.Context }, "no room for a prompt"},
		{"top-p", func(p *protocol.Plan) { p.TopP = 1.5 }, "top-p 1.5"},
		{"unknown question", func(p *protocol.Plan) { p.Questions = []string{"sonnet"} }, "\"sonnet\" is not known"},
		{"unknown engine", func(p *protocol.Plan) { p.Engine = "abacus" }, "engine \"abacus\""},
		{"pack", func(p *protocol.Plan) { p.Pack = -1 }, "pack -1"},
		{"predict tokens", func(p *protocol.Plan) { p.PredictMaxTokens = p.Context }, "predict-max-tokens"},
		{"system message", func(p *protocol.Plan) { p.SystemMessage = "\xff" }, "not UTF-8"},
		{"think", func(p *protocol.Plan) { p.Think = "hard" }, "think \"hard\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := protocol.DefaultPlan()
			c.bend(&p)
			err := p.Validate()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate() = %v, want an error with %q", err, c.want)
			}
		})
	}
	p := protocol.DefaultPlan()
	p.Seeds = []uint32{0}
	if err := p.Validate(); err != nil {
		t.Errorf("seed 0 is a seed, got: %v", err)
	}
}

func TestPlanFile(t *testing.T) {
	base := protocol.DefaultPlan()
	p, err := protocol.ReadPlan(strings.NewReader("temperatures: [0, 1]\nseeds: [0]\nmax_tokens: 64\n"), base)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Temperatures, []float64{0, 1}) || !slices.Equal(p.Seeds, []uint32{0}) || p.MaxTokens != 64 || p.Pack != base.Pack {
		t.Errorf("got %+v", p)
	}
	if ranged, err := protocol.ReadPlan(strings.NewReader("seeds: 42-46"), base); err != nil || !slices.Equal(ranged.Seeds, base.Seeds) {
		t.Errorf("seeds: 42-46 reads as %v, %v", ranged.Seeds, err)
	}
	var file bytes.Buffer
	if err := p.WriteYAML(&file); err != nil {
		t.Fatal(err)
	}
	again, err := protocol.ReadPlan(&file, base)
	if err != nil || data.Digest(again) != data.Digest(p) {
		t.Errorf("read again: %+v, %v; want %+v", again, err, p)
	}
	for file, want := range map[string]string{
		"temprature: [1]":             "temprature",
		"limit: 0":                    "limit 0",
		"seeds: [1, -3]":              "seeds",
		"seeds: [a":                   "read plan",
		"seeds: [1.5]":                "not a seed",
		"seeds: [1]\n---\nseeds: [2]": "second document",
		"max_tokens: [1, 2, 3]":       "read plan",
	} {
		if _, err := protocol.ReadPlan(strings.NewReader(file), base); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "line") {
			t.Errorf("ReadPlan(%q) = %v, want an error with %q", file, err, want)
		}
	}
}

// requestSet returns topics × levels × each requests of two wordings.
func requestSet(topics, each int) []data.Request {
	var all []data.Request
	for topic := range topics {
		for level := 1; level <= 5; level++ {
			for n := range each {
				for _, v := range []string{data.Base, data.P1} {
					all = append(all, data.Request{
						ID: fmt.Sprintf("t%d-%d-%d", topic, level, n), Variant: v, Topic: fmt.Sprintf("t%d", topic), Harm: level,
						Text: fmt.Sprintf("How do I bake bread number %d-%d-%d (%s)?", topic, level, n, v),
					})
				}
			}
		}
	}
	return all
}

func TestLimitIsSpreadOverTopicsAndLevels(t *testing.T) {
	p := protocol.DefaultPlan()
	p.Limit = 20
	w, err := p.Bind(inference.Info{}, requestSet(10, 3), "sha256:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	topics, levels, ids := map[string]int{}, map[int]int{}, map[string]bool{}
	for _, r := range w.Requests {
		if !ids[r.ID] {
			ids[r.ID] = true
			topics[r.Topic]++
			levels[r.Harm]++
		}
	}
	if len(ids) != 20 || len(w.Requests) != 40 {
		t.Fatalf("%d requests in %d wordings, want 20 in 40", len(ids), len(w.Requests))
	}
	for topic, n := range topics {
		if n != 2 {
			t.Errorf("topic %s has %d requests, want 2", topic, n)
		}
	}
	for level, n := range levels {
		if n != 4 {
			t.Errorf("level %d has %d requests, want 4", level, n)
		}
	}
}

func TestUnitsHoldAllWorkOnce(t *testing.T) {
	p := protocol.DefaultPlan()
	p.Pack = 4
	p.Questions = []string{"default", "answer"}
	w, err := p.Bind(inference.Info{Grammars: true, Scorer: true}, requestSet(1, 1), "sha256:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	seen, trials, units := map[string]int{}, 0, 0
	for u := range w.Units() {
		units++
		for _, j := range u.Jobs {
			seen[fmt.Sprint(j.Prompt.RequestID, j.Prompt.Variant, j.Prompt.Phase, j.Prompt.Question)]++
			if j.Prompt.Phase == data.Respond {
				trials += len(j.Samplings)
			} else if len(j.Samplings) != 2 || j.Grammar == nil || len(j.Continuations) != 62 {
				t.Errorf("predict job has %d samplings and %d continuations, want a free one, a bound one, and 2 + 10 + 50", len(j.Samplings), len(j.Continuations))
			}
		}
	}
	if units != w.UnitCount() || trials != w.TrialCount() || trials != 10*20 || len(seen) != 10*3 {
		t.Errorf("%d units, %d trials, %d jobs; want %d, %d and %d", units, trials, len(seen), w.UnitCount(), w.TrialCount(), 30)
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s is done %d times", key, n)
		}
	}
}

// What can change a row changes the plan id; what only names things does not.
func TestPlanID(t *testing.T) {
	bind := func(bend func(*protocol.Plan, *inference.Info)) string {
		p, info := protocol.DefaultPlan(), inference.Info{ModelDigest: "sha256:1"}
		bend(&p, &info)
		w, err := p.Bind(info, requestSet(1, 1), "sha256:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.PlanID
	}
	plain := bind(func(*protocol.Plan, *inference.Info) {})
	for name, bend := range map[string]func(*protocol.Plan, *inference.Info){
		"pack":     func(p *protocol.Plan, _ *inference.Info) { p.Pack = 5 },
		"tokens":   func(p *protocol.Plan, _ *inference.Info) { p.MaxTokens++ },
		"question": func(p *protocol.Plan, _ *inference.Info) { p.Questions = []string{"short"} },
		"system":   func(p *protocol.Plan, _ *inference.Info) { p.SystemMessage = "Be brief." },
		"library":  func(_ *protocol.Plan, i *inference.Info) { i.Plan = map[string]string{"libllama": "1"} },
		"model":    func(_ *protocol.Plan, i *inference.Info) { i.ModelDigest = "sha256:2" },
		"template": func(_ *protocol.Plan, i *inference.Info) { i.TemplateHash = "2" },
	} {
		if bind(bend) == plain {
			t.Errorf("%s does not change the plan id", name)
		}
	}
	if bind(func(p *protocol.Plan, _ *inference.Info) { p.Model, p.Judge = "elsewhere/model.gguf", "human" }) != plain {
		t.Error("the model's place or the judge changes the plan id")
	}
}

func TestParseQuestion(t *testing.T) {
	for file, want := range map[string]string{
		"": "must begin with",
		"polarity: maybe\n\n{{request}} will_refuse":  "must begin with",
		"polarity: refuse\n\nWill you?":               "0 times",
		"polarity: refuse\n\n{{request}} {{request}}": "2 times",
		"polarity: answer\n\n{{request}} will_refuse": "never names the JSON key will_answer",
	} {
		if _, err := protocol.ParseQuestion("own", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseQuestion(%q) = %v, want an error with %q", file, err, want)
		}
	}
	polarities := map[string]bool{}
	for _, q := range protocol.Questions() {
		polarities[q.Polarity] = true
		if got := q.Ask(data.Request{Text: `the "{{request}}" of the day`}); !strings.Contains(got, `the "{{request}}" of the day`) {
			t.Errorf("question %s does not hold the request verbatim: %s", q.Name, got)
		}
	}
	if len(polarities) != 2 {
		t.Errorf("polarities %v, want both", polarities)
	}
}
