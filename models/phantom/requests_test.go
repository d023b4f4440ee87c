package phantom_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"demur/models/phantom"
)

// A request of the built-in set, as its file holds it.
type request struct {
	ID      string `json:"request_id"`
	Variant string `json:"variant"`
	Text    string `json:"text"`
	Harm    int    `json:"harm"`
	Demo    bool   `json:"demo"`
}

func requests(t testing.TB) []request {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "data", "requests", "requests.jsonl"))
	if err != nil {
		t.Skipf("the built-in request set is not there: %v", err)
	}
	defer f.Close()
	var all []request
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// wording returns a wording of the prediction question, {{request}} in it.
func wording(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "protocol", "prompts", name+".txt"))
	if err != nil {
		t.Skipf("the wording is not there: %v", err)
	}
	_, text, _ := strings.Cut(string(b), "\n\n")
	return strings.TrimSpace(text)
}

func prompt(r request, question string) phantom.Prompt {
	return phantom.Prompt{
		RequestID: r.ID, Variant: r.Variant, Groups: []string{"harm=" + strconv.Itoa(r.Harm)},
		Respond: []phantom.Message{{Role: "user", Content: r.Text}},
		Predict: []phantom.Message{{Role: "user", Content: strings.Replace(question, "{{request}}", r.Text, 1)}},
	}
}

var sweep = phantom.Plan{Temperatures: []float64{0, 0.3, 0.7, 1}, Seeds: 5}

// truths are computed once for all tests: of the demo subset, by preset.
var truths struct {
	sync.Mutex
	byPreset   map[string]*phantom.Truth
	quantities map[string][]phantom.Quantity
}

func demoQuantities(t testing.TB, preset string) []phantom.Quantity {
	t.Helper()
	truth := demoTruth(t, preset)
	truths.Lock()
	defer truths.Unlock()
	if truths.quantities == nil {
		truths.quantities = map[string][]phantom.Quantity{}
	}
	if _, there := truths.quantities[preset]; !there {
		truths.quantities[preset] = truth.Quantities()
	}
	return truths.quantities[preset]
}

func demoTruth(t testing.TB, preset string) *phantom.Truth {
	t.Helper()
	question := wording(t, "default")
	var prompts []phantom.Prompt
	for _, r := range requests(t) {
		if r.Demo {
			prompts = append(prompts, prompt(r, question))
		}
	}
	if len(prompts) == 0 {
		t.Skip("the built-in request set has no demo subset")
	}
	truths.Lock()
	defer truths.Unlock()
	if got, there := truths.byPreset[preset]; there {
		return got
	}
	truth, err := build(t, preset).Truth(prompts, sweep)
	if err != nil {
		t.Fatal(err)
	}
	if truths.byPreset == nil {
		truths.byPreset = map[string]*phantom.Truth{}
	}
	truths.byPreset[preset] = truth
	return truth
}

func TestWordListCoversTheBuiltInRequests(t *testing.T) {
	m := build(t, "default")
	all := requests(t)
	question := wording(t, "default")
	plan := phantom.Plan{Temperatures: []float64{1}, Seeds: 1}
	var level, pieces, tokens, triggered, middle int
	for i, r := range all {
		if i%3 != 0 { // a third of the rows is enough
			continue
		}
		p := m.PromptTruth(phantom.Prompt{Respond: prompt(r, question).Respond}, plan, nil)
		if got := int(p.Harm + 0.5); max(got, 1) == r.Harm {
			level++
		}
		if p.Refusal > 1.0/1024 {
			triggered++
		}
		if p.PRefuse[0] > 0.1 && p.PRefuse[0] < 0.9 {
			middle++
		}
		pieces += len(strings.Fields(r.Text))
		tokens += len(m.Tokenize(r.Text))
	}
	n := float64(len(all)+2) / 3
	const hint = "; if the request set has changed, run go generate in models/phantom"
	if share := float64(level) / n; share < 0.85 {
		t.Errorf("the harm of %.0f %% of the requests is their level, want 85 %%%s", 100*share, hint)
	}
	if share := float64(triggered) / n; share < 0.95 {
		t.Errorf("%.0f %% of the requests have a word with a trigger, want 95 %%%s", 100*share, hint)
	}
	if share := float64(middle) / n; share < 0.2 || share > 0.6 {
		t.Errorf("%.0f %% of the requests are refused with a probability of 0.1 to 0.9, want 20 to 60 %%%s", 100*share, hint)
	}
	if tokens > 2*pieces {
		t.Errorf("%d words are %d tokens: too many fall into bytes%s", pieces, tokens, hint)
	}
}

func TestQuestionsCarryNothing(t *testing.T) {
	m := build(t, "default")
	plan := phantom.Plan{Temperatures: []float64{1}, Seeds: 1}
	for _, name := range []string{"default", "short", "answer"} {
		text := strings.Replace(wording(t, name), "{{request}}", "How do I bake bread?", 1)
		ask := []phantom.Message{{Role: "user", Content: text}}
		p := m.PromptTruth(phantom.Prompt{Respond: ask, Predict: ask}, plan, nil)
		bread := m.PromptTruth(phantom.Prompt{Respond: []phantom.Message{{Role: "user", Content: "How do I bake bread?"}}}, plan, nil)
		if d := p.Harm - bread.Harm; d > 0.01 || d < -0.01 {
			t.Errorf("%s: words of the question change the harm by %v", name, d)
		}
		if d := p.Refusal - bread.Refusal; d > 0.01 || d < -0.01 {
			t.Errorf("%s: words of the question change the refusal component by %v", name, d)
		}
		if !p.Asked {
			t.Errorf("%s: the question is not taken for one", name)
		}
		if p.Mass < 1-1e-9 {
			t.Errorf("%s: true and false have probability %v together", name, p.Mass)
		}
	}
}
