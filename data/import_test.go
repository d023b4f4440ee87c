package data_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"demur/data"
)

func importOne(t *testing.T, name, content string, o data.ImportOptions) (data.Imported, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	o.Now = now
	all, err := data.Import(write(t, name, content), out, o)
	must(t, err)
	if len(all) != 1 || all[0].Dir != out {
		t.Fatalf("runs %+v, want one in %s", all, out)
	}
	return all[0], out
}

func TestImport(t *testing.T) {
	got, dir := importOne(t, "trials.csv", "request_id,variant,topic,harm,model,temperature,seed,predicted,confidence,harm_rating,label,response,text\n"+
		"r2,base,locks,2,m,0.7,42,comply,4,1,full_compliance,With a wrench.,How?\n"+
		"r1,base,bread,1,m,0,42,refuse,5,3,full_refusal,No.,Why?\n"+
		"r2,base,locks,2,m,0.7,41,comply,4,1,REFUSE,I can't.,How?\n"+
		"r2,p1,locks,2,m,0.7,42,declined,,,maybe,Hm.,And how?\n", data.ImportOptions{Demur: "0.1.0"})
	if got.Requests != 3 || got.Trials != 4 || got.Predictions != 3 || got.Verdicts != 4 || got.Model != "m" {
		t.Errorf("imported %+v", got)
	}
	if want := []string{"no p_refuse: no ROC from exact probabilities"}; !slices.Equal(got.Missing, want) {
		t.Errorf("missing %q, want %q", got.Missing, want)
	}
	if want := map[string]int{"label=maybe": 1}; !reflect.DeepEqual(got.Unmapped, want) {
		t.Errorf("unmapped %v, want %v", got.Unmapped, want)
	}
	requests := collect[data.Request](t, dir, data.Requests)
	if len(requests) != 3 || requests[0].ID != "r2" || requests[0].Harm != 2 || requests[0].Topic != "locks" || requests[0].Text != "How?" || requests[1].ID != "r1" {
		t.Errorf("requests %+v", requests)
	}
	trials := collect[data.Trial](t, dir, data.Trials)
	var order []string
	labels := map[string]data.Label{}
	for _, v := range collect[data.Verdict](t, dir, data.Verdicts) {
		labels[v.TrialID] = v.Label
		if v.Judge != "imported" {
			t.Errorf("judge %q", v.Judge)
		}
	}
	for _, tr := range trials {
		order = append(order, fmt.Sprint(tr.RequestID, tr.Variant, tr.Temperature, tr.Seed, tr.Text, labels[tr.ID]))
	}
	want := []string{"r2base0.7 41I can't.full_refusal", "r2base0.7 42With a wrench.full_compliance", "r1base0 42No.full_refusal", "r2p10.7 42Hm.unclear"}
	if !slices.Equal(order, want) {
		t.Errorf("trials\n got %q\nwant %q", order, want)
	}
	predictions := collect[data.Prediction](t, dir, data.Predictions)
	var said []string
	for _, p := range predictions {
		said = append(said, p.RequestID+p.Variant+p.Outcome)
	}
	if want := []string{"r2basewill_comply", "r1basewill_refuse", "r2p1declined"}; !slices.Equal(said, want) {
		t.Errorf("predictions %q, want %q", said, want)
	}
	if p := predictions[0]; p.Temperature != 0 || p.Seed != 0 {
		t.Errorf("a prediction that all trials repeat stands at temperature %v, seed %d", p.Temperature, p.Seed)
	}
	if p := predictions[1]; *p.Confidence != 5 || *p.HarmRating != 3 || p.PRefuse != nil || predictions[2].Confidence != nil {
		t.Errorf("prediction %+v", p)
	}
	run, err := data.OpenRun(dir)
	must(t, err)
	defer run.Close()
	m := run.Manifest()
	if m.Model.Engine != data.ImportEngine || m.Finished == "" || m.Tables[data.Trials].Rows != 4 || m.PlanID != trials[0].PlanID || m.Headline["judge"] != "imported" {
		t.Errorf("manifest %+v", m)
	}
	// Compact has no journal to work from, and leaves the tables alone.
	before := snapshot(t, dir)
	again, err := data.Reopen(dir)
	must(t, err)
	must(t, again.Compact())
	must(t, again.Close())
	if !reflect.DeepEqual(before, snapshot(t, dir)) {
		t.Error("compact changed an imported run")
	}
	if _, err := data.Import(write(t, "trials.csv", "label\nrefuse\n"), dir, data.ImportOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("import over a run: %v, want fs.ErrExist", err)
	}
}

// Counts alone make a run: the published table of a model, 232 hits, 3 misses,
// 60 false alarms and 605 correct rejections.
func TestImportOfCounts(t *testing.T) {
	got, dir := importOne(t, "sonnet-4.csv", "predicted,confidence,label,count\n"+
		"refuse,5,full_refusal,232\ncomply,5,full_refusal,3\nrefuse,4,full_compliance,60\ncomply,5,full_compliance,605\n", data.ImportOptions{Model: "Sonnet 4"})
	if got.Requests != 900 || got.Trials != 900 || got.Predictions != 900 || got.Verdicts != 900 || got.Model != "Sonnet 4" {
		t.Errorf("imported %+v", got)
	}
	counts := map[string]int{}
	outcome := map[string]string{}
	for _, p := range collect[data.Prediction](t, dir, data.Predictions) {
		outcome[p.RequestID] = p.Outcome
	}
	request := map[string]string{}
	for _, tr := range collect[data.Trial](t, dir, data.Trials) {
		request[tr.ID] = tr.RequestID
	}
	for _, v := range collect[data.Verdict](t, dir, data.Verdicts) {
		counts[outcome[request[v.TrialID]]+" "+string(v.Label)]++
	}
	want := map[string]int{"will_refuse full_refusal": 232, "will_comply full_refusal": 3, "will_refuse full_compliance": 60, "will_comply full_compliance": 605}
	if !reflect.DeepEqual(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	if !slices.ContainsFunc(got.Missing, func(s string) bool { return strings.HasPrefix(s, "no request_id: each row") }) {
		t.Errorf("missing %q", got.Missing)
	}
}

func TestImportNumbersDrawsWithoutSeeds(t *testing.T) {
	got, dir := importOne(t, "a.csv", "id,response\nr,a\nr,b\ns,c\nr,a\n", data.ImportOptions{})
	var seeds []string
	for _, tr := range collect[data.Trial](t, dir, data.Trials) {
		seeds = append(seeds, fmt.Sprint(tr.RequestID, tr.Seed, tr.Text))
	}
	if want := []string{"r0a", "r1b", "r2a", "s0c"}; !slices.Equal(seeds, want) {
		t.Errorf("trials %q, want %q", seeds, want)
	}
	for _, want := range []string{"no label: classify the run before a report", "no temperature: no stability by temperature; all trials are taken to be of one"} {
		if !slices.Contains(got.Missing, want) {
			t.Errorf("missing %q lacks %q", got.Missing, want)
		}
	}
	if data.HasTable(dir, data.Verdicts) {
		t.Error("there are verdicts, and nobody gave one")
	}
}

func TestImportKeepsPredictionsThatVary(t *testing.T) {
	got, dir := importOne(t, "a.csv", "id,temperature,seed,predicted,label\nr,0.7,1,refuse,direct_answer\nr,0.7,2,comply,indirect_refusal\nr,0.7,3,comply,3_partial_refusal\ns,0.7,1,comply,2_full_refusal\n", data.ImportOptions{})
	var said []string
	for _, p := range collect[data.Prediction](t, dir, data.Predictions) {
		said = append(said, fmt.Sprint(p.RequestID, p.Temperature, " ", p.Seed, p.Outcome))
	}
	if want := []string{"r0.7 1will_refuse", "r0.7 2will_comply", "s0 0will_comply"}; !slices.Equal(said, want) {
		t.Errorf("predictions %q, want %q", said, want)
	}
	var labels []data.Label
	for _, v := range collect[data.Verdict](t, dir, data.Verdicts) {
		labels = append(labels, v.Label)
	}
	if want := []data.Label{data.FullCompliance, data.Deflection, data.PartialRefusal, data.FullRefusal}; !slices.Equal(labels, want) {
		t.Errorf("labels %q, want %q", labels, want)
	}
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "1 predictions differ") {
		t.Errorf("warnings %q", got.Warnings)
	}
}

func TestImportOfConversations(t *testing.T) {
	_, dir := importOne(t, "a.jsonl", `{"prompt":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"},{"role":"user","content":"How do I bake bread?"}],"completion":"Knead."}`, data.ImportOptions{})
	q := collect[data.Request](t, dir, data.Requests)
	if want := []data.Message{{Role: "user", Content: "hi"}, {Role: "assistant", Content: "hello"}}; len(q) != 1 || q[0].Text != "How do I bake bread?" || !reflect.DeepEqual(q[0].Messages, want) {
		t.Errorf("requests %+v", q)
	}
}

func TestImportOfSeveralModels(t *testing.T) {
	out := filepath.Join(t.TempDir(), "runs")
	all, err := data.Import(write(t, "a.csv", "id,model,label\n1,Org/Model A,refuse\n2,b,comply\n1,org/model-a,comply\n"), out, data.ImportOptions{Now: now})
	must(t, err)
	var dirs []string
	for _, i := range all {
		dirs = append(dirs, filepath.Base(i.Dir))
		if n := len(collect[data.Trial](t, i.Dir, data.Trials)); n != 1 {
			t.Errorf("%s: %d trials, want 1", i.Dir, n)
		}
	}
	if want := []string{"org-model-a", "b", "org-model-a-3"}; !slices.Equal(dirs, want) {
		t.Errorf("folders %q, want %q", dirs, want)
	}
	if entries, _ := os.ReadDir(out); len(entries) != 3 {
		t.Errorf("%v is left in %s", entries, out)
	}
}

func TestImportOfSampleLogs(t *testing.T) {
	_, dir := importOne(t, "samples.jsonl", `{"doc_id": 3, "doc": {"question": "How do I bake bread?", "category": "food"}, "target": "", "arguments": {"gen_args_0": {"arg_0": "Q: How do I bake bread?", "arg_1": {"until": []}}}, "resps": [["Knead. "]], "filtered_resps": ["Knead."], "filter": "none", "doc_hash": "x"}`+"\n"+
		`{"doc_id": 4, "doc": {"prompt": "x"}, "arguments": [["y", {}]], "resps": [["z"]]}`, data.ImportOptions{})
	trials, requests := collect[data.Trial](t, dir, data.Trials), collect[data.Request](t, dir, data.Requests)
	if len(trials) != 2 || trials[0].Text != "Knead." || requests[0].ID != "3" || requests[0].Text != "Q: How do I bake bread?" || requests[0].Topic != "food" || trials[1].Text != "z" || requests[1].Text != "y" {
		t.Errorf("lm-evaluation-harness: %+v %+v", trials, requests)
	}

	const sample = `{"id": "s1", "epoch": %d, "input": %s, "target": "", "output": {"model": "ollama/m", "choices": [{"message": {"role": "assistant", "content": %s}, "stop_reason": "stop"}], "completion": ""}, "metadata": {"topic": "food", "harm": 1}, "scores": {}}`
	lines := fmt.Sprintf(sample, 1, `"How do I bake bread?"`, `"Knead."`) + "\n" +
		fmt.Sprintf(sample, 2, `[{"role": "system", "content": "x"}, {"role": "user", "content": "How do I bake bread?"}]`, `[{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Fold."}]`)
	for name, content := range map[string]string{"inspect.jsonl": lines, "inspect.json": `{"version": 2, "eval": {"model": "ollama/m"}, "samples": [` + strings.Replace(lines, "\n", ",", 1) + `]}`} {
		got, dir := importOne(t, name, content, data.ImportOptions{})
		trials, requests := collect[data.Trial](t, dir, data.Trials), collect[data.Request](t, dir, data.Requests)
		if len(trials) != 2 || got.Model != "ollama/m" || trials[0].Text != "Knead." || trials[1].Text != "Fold." || trials[1].Seed != 2 || len(requests) != 1 || requests[0].Text != "How do I bake bread?" || requests[0].Harm != 1 {
			t.Errorf("%s: %+v %+v %+v", name, got, trials, requests)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	tests := []struct {
		name, content string
		options       data.ImportOptions
		want          []string
	}{
		{"nothing", "", data.ImportOptions{}, []string{"empty"}},
		{"no rows", "label\n", data.ImportOptions{}, []string{"no rows"}},
		{"nothing to read", "id,prompt\n1,a\n", data.ImportOptions{}, []string{"id, prompt", "response="}},
		{"a trial twice", "id,seed,label\n1,42,refuse\n2,42,refuse\n1,42,comply\n", data.ImportOptions{}, []string{"line 4", "line 2", "seed 42"}},
		{"a temperature", "id,temperature,label\n1,warm,refuse\n", data.ImportOptions{}, []string{"line 2", `"warm"`}},
		{"a negative temperature", "id,temperature,label\n1,-1,refuse\n", data.ImportOptions{}, []string{"line 2", `"-1"`}},
		{"a seed", "id,seed,label\n1,1.5,refuse\n", data.ImportOptions{}, []string{"line 2", `"1.5"`}},
		{"a confidence", "id,predicted,confidence\n1,refuse,high\n", data.ImportOptions{}, []string{"line 2", `"high"`}},
		{"a count", "label,count\nrefuse,many\n", data.ImportOptions{}, []string{"line 2", `"many"`}},
		{"a field that is none", "label\nrefuse\n", data.ImportOptions{Columns: map[string]string{"x": "label"}}, []string{`"x"`, "harm_rating"}},
		{"a column that is not there", "label\nrefuse\n", data.ImportOptions{Columns: map[string]string{"response": "x"}}, []string{`"x"`}},
		{"ragged", "id,label\n1\n", data.ImportOptions{}, []string{"line 2"}},
	}
	for _, tt := range tests {
		out := filepath.Join(t.TempDir(), "run")
		_, err := data.Import(write(t, "a.csv", tt.content), out, tt.options)
		if err == nil {
			t.Errorf("%s: imported", tt.name)
			continue
		}
		for _, part := range append(tt.want, "a.csv") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the message %q does not say %q", tt.name, err, part)
			}
		}
		if _, err := data.OpenRun(out); err == nil {
			t.Errorf("%s: a run was left", tt.name)
		}
	}
}

// TestImportStreams imports many rows and looks at the memory: DEMUR_TEST_TRIALS
// sets the number, 1000000 say.
func TestImportStreams(t *testing.T) {
	n := 20000
	if s := os.Getenv("DEMUR_TEST_TRIALS"); s != "" {
		_, err := fmt.Sscan(s, &n)
		must(t, err)
	}
	if testing.Short() {
		t.Skip("writes some 10 MB")
	}
	path := filepath.Join(t.TempDir(), "a.csv")
	f, err := os.Create(path)
	must(t, err)
	fmt.Fprintln(f, "request_id,variant,topic,harm,model,temperature,seed,predicted,confidence,harm_rating,label,response")
	for i := range n {
		fmt.Fprintf(f, "r%d,base,t%d,%d,m,%v,%d,%s,%d,%d,%s,%s\n", i%(n/20), i%10, 1+i%5, float64(i/(n/20)%4)/4, i/(n/20), []string{"refuse", "comply"}[i%2], 1+i%5, 1+i%5,
			[]string{"full_refusal", "full_compliance", "partial_refusal"}[i%3], strings.Repeat("With a tension wrench and patience. ", 5))
	}
	must(t, f.Close())
	out := filepath.Join(t.TempDir(), "run")
	start := time.Now()
	var all []data.Imported
	most := peak(func() {
		all, err = data.Import(path, out, data.ImportOptions{Now: now})
		must(t, err)
	})
	t.Logf("%d rows imported in %v, peak %d MiB", n, time.Since(start).Round(time.Millisecond), most)
	if all[0].Trials != int64(n) {
		t.Errorf("%d trials, want %d", all[0].Trials, n)
	}
	if limit := uint64(300 + n/2000); most > limit {
		t.Errorf("%d MiB taken for %d rows, want at most %d", most, n, limit)
	}
}
