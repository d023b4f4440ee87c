package data_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"demur/data"
)

// shared returns the path of a public file that is no part of the project.
func shared(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("DEMUR_SHARED")
	if root == "" {
		t.Skip("DEMUR_SHARED does not name the folder of public data")
	}
	path := filepath.Join(root, "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the public data is not here: %v", err)
	}
	return path
}

func TestPublicSets(t *testing.T) {
	// Row counts: README of the folder of public data.
	tests := []struct {
		file, preset string
		rows         int
	}{
		{"xstest/xstest_prompts.csv", "xstest", 450},
		{"coconot/coconot_eval.jsonl", "coconot", 1001},
		{"coconot/coconot_contrast_eval.jsonl", "coconot", 379},
		{"harmbench/harmbench_behaviors_text_all.csv", "harmbench", 400},
		{"harmbench/harmbench_behaviors_text_val.csv", "harmbench", 80},
		{"harmbench/advbench_behaviors.csv", "harmbench", 520},
		{"harmbench/tdc2023_test_phase_behaviors.csv", "harmbench", 50},
		{"jbb/jailbreakbench.csv", "jailbreakbench", 100},
	}
	for _, tt := range tests {
		set, err := data.ReadRequests(shared(t, "prompts/"+tt.file), data.Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		if len(set.Requests) != tt.rows || set.Preset != tt.preset {
			t.Errorf("%s: %d rows by preset %q, want %d by %s", tt.file, len(set.Requests), set.Preset, tt.rows, tt.preset)
		}
		t.Logf("%s %s\n  columns %v\n  unmapped %v\n  warnings %q\n  first %s %s %s", tt.file, set.Digest, set.Columns, set.Unmapped, set.Warnings, set.Requests[0].ID, set.Requests[0].Topic, set.Requests[0].Variant)
	}
}

// write stores a file and returns its path.
func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(content), 0o666))
	return path
}

func TestReadRequests(t *testing.T) {
	const lock, bread = "How do I pick my own lock?", "How do I bake bread?"
	// Python: d = sha256(b"null").hexdigest(); "t-" + sha256((d + text).encode()).hexdigest()[:12]
	const lockID, breadID = "t-b0ec543b7d75", "t-42f55af1f54c"
	tests := []struct {
		name, file, content string
		options             data.Options
		want                []data.Request
	}{
		{
			"own columns", "a.csv", "request_id,variant,text,topic,harm,source,language\nr1,base," + lock + ",locks,2,mine,en\nr1,p1,x,locks,5.0,mine,en\n",
			data.Options{},
			[]data.Request{{ID: "r1", Variant: "base", Text: lock, Topic: "locks", Harm: 2, Source: "mine", Language: "en"}, {ID: "r1", Variant: "p1", Text: "x", Topic: "locks", Harm: 5, Source: "mine", Language: "en"}},
		},
		{
			"BOM, CRLF, line ends and quotes inside cells, verbatim", "a.csv", "\ufeffid,prompt\r\n1,\"say \"\"hi\"\"\r\n  twice\nhere, \"\r\n2,  leading\u2019\r\n",
			data.Options{},
			[]data.Request{{ID: "1", Variant: "base", Text: "say \"hi\"\r\n  twice\nhere, "}, {ID: "2", Variant: "base", Text: "  leading\u2019"}},
		},
		{
			"an empty first header", "a.csv", ",Goal,Target,Behavior,Category,Source\n0," + lock + ",Sure,Locks,Home,Original\n",
			data.Options{},
			[]data.Request{{ID: "0", Variant: "base", Text: lock, Topic: "Home", Source: "Original", Attributes: map[string]string{"Behavior": "Locks"}}},
		},
		{
			"ids that differ by a prefix only", "a.csv", "id,prompt\nv2-1,a\n1,b\n01,c\n",
			data.Options{},
			[]data.Request{{ID: "v2-1", Variant: "base", Text: "a"}, {ID: "1", Variant: "base", Text: "b"}, {ID: "01", Variant: "base", Text: "c"}},
		},
		{
			"a mapping", "a.csv", "name;frage;stufe\nx;" + lock + ";3\n",
			data.Options{Columns: map[string]string{"id": "name", "text": "frage", "harm": "stufe"}},
			[]data.Request{{ID: "x", Variant: "base", Text: lock, Harm: 3}},
		},
		{
			"tabs", "a.tsv", "id\ttext\n1\ta, b\n",
			data.Options{},
			[]data.Request{{ID: "1", Variant: "base", Text: "a, b"}},
		},
		{
			"a conversation", "a.jsonl", `{"id": 7, "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, {"role": "user", "content": [{"type": "text", "text": "` + lock + `"}]}]}` + "\n",
			data.Options{},
			[]data.Request{{ID: "7", Variant: "base", Text: lock, Messages: []data.Message{{Role: "system", Content: "Be kind."}, {Role: "user", Content: "hi"}, {Role: "assistant", Content: "hello"}}}},
		},
		{
			"a conversation under the name of a text", "a.jsonl", `{"id": 7, "prompt": [{"role": "user", "content": "hi"}]}`,
			data.Options{},
			[]data.Request{{ID: "7", Variant: "base", Text: "hi"}},
		},
		{
			"a conversation with its answer, in a cell", "a.csv", `id,messages` + "\n" + `1,"[{""from"": ""human"", ""value"": ""hi""}, {""from"": ""gpt"", ""value"": ""hello""}]"` + "\n",
			data.Options{},
			[]data.Request{{ID: "1", Variant: "base", Text: "hi"}},
		},
		{
			"a list of texts", "a.json", "[\n\"" + lock + "\",\n\"" + bread + "\"]",
			data.Options{Columns: map[string]string{}},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock}, {ID: breadID, Variant: "base", Text: bread}},
		},
		{
			"rows under a name", "a.json", `{"version": 1, "licence": "CC-BY", "about": {"by": "me"}, "data": [{"id": "a", "prompt": "` + lock + `", "n": 1.50, "deep": {"x": [1]}}]}`,
			data.Options{},
			[]data.Request{{ID: "a", Variant: "base", Text: lock, Attributes: map[string]string{"n": "1.50", "deep": `{"x":[1]}`}}},
		},
		{
			"ids with cases", "a.json", `{"b1": ["one", "two"], "b2": "three"}`,
			data.Options{},
			[]data.Request{{ID: "b1", Variant: "base", Text: "one"}, {ID: "b1", Variant: "v2", Text: "two"}, {ID: "b2", Variant: "base", Text: "three"}},
		},
		{
			"one object a line under a JSON name", "a.json", "{\"id\": \"a\", \"prompt\": \"x\"}\n{\"id\": \"b\", \"prompt\": \"\\ud83d\\udd12\"}\n",
			data.Options{},
			[]data.Request{{ID: "a", Variant: "base", Text: "x"}, {ID: "b", Variant: "base", Text: "🔒"}},
		},
		{
			"a request a line", "a.txt", lock + "\r\n\r\n" + bread,
			data.Options{},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock}, {ID: breadID, Variant: "base", Text: bread}},
		},
		{
			"HarmBench context", "a.csv", "Behavior,FunctionalCategory,SemanticCategory,Tags,ContextString,BehaviorID\n" + lock + ",contextual,home,,A lock has pins.,b1\n" + bread + ",standard,food,,,b2\n",
			data.Options{},
			[]data.Request{
				{ID: "b1", Variant: "base", Text: "A lock has pins.\n\n---\n\n" + lock, Topic: "home", Attributes: map[string]string{"FunctionalCategory": "contextual"}},
				{ID: "b2", Variant: "base", Text: bread, Topic: "food", Attributes: map[string]string{"FunctionalCategory": "standard"}},
			},
		},
		{
			"StrongREJECT", "a.csv", "category,source,forbidden_prompt\nhome,custom," + lock + "\n",
			data.Options{},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock, Topic: "home", Source: "custom"}},
		},
		{
			"SORRY-Bench", "a.jsonl", `{"question_id": 1, "category": "12", "turns": ["` + lock + `"], "prompt_style": "base"}` + "\n" + `{"question_id": 1, "category": "12", "turns": ["x"], "prompt_style": "slang"}`,
			data.Options{},
			[]data.Request{{ID: "1", Variant: "base", Text: lock, Topic: "12"}, {ID: "1", Variant: "slang", Text: "x", Topic: "12"}},
		},
		{
			"OR-Bench", "a.csv", "prompt,category\n" + lock + ",home\n",
			data.Options{},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock, Topic: "home"}},
		},
		{
			"Do-Not-Answer", "a.csv", "id,risk_area,types_of_harm,specific_harms,question\n4,Home,Doors,Locks," + lock + "\n",
			data.Options{},
			[]data.Request{{ID: "4", Variant: "base", Text: lock, Topic: "Home", Attributes: map[string]string{"types_of_harm": "Doors", "specific_harms": "Locks"}}},
		},
		{
			"BeaverTails", "a.jsonl", `{"prompt": "` + lock + `", "response": "r", "category": {"b": true, "a": true, "c": false}, "is_safe": false}` + "\n" + `{"prompt": "` + lock + `", "response": "another", "category": {}, "is_safe": true}`,
			data.Options{},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock, Topic: "a+b", Attributes: map[string]string{"is_safe": "false"}}},
		},
		{
			"Health-ORSC", "a.jsonl", `{"id": "h1", "question": "` + bread + `", "original_question": "dropped", "classification": "food", "refuse_rate": 0.25}`,
			data.Options{},
			[]data.Request{{ID: "h1", Variant: "base", Text: bread, Topic: "food", Attributes: map[string]string{"refuse_rate": "0.25"}}},
		},
		{
			"AdvBench", "a.csv", "goal,target\n" + lock + ",\"Sure, here\"\n",
			data.Options{},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock}},
		},
		{
			"ids that are the texts", "a.csv", "Behavior,Category,Tags,ContextString,BehaviorID\n" + lock + ",,,," + lock + "\n",
			data.Options{},
			[]data.Request{{ID: lockID, Variant: "base", Text: lock}},
		},
		{
			"labels are no harm levels", "a.csv", "id,prompt,label,harm\n1,a,unsafe,high\n2,b,safe,6\n3,c,safe,4\n",
			data.Options{},
			[]data.Request{
				{ID: "1", Variant: "base", Text: "a", Attributes: map[string]string{"label": "unsafe"}},
				{ID: "2", Variant: "base", Text: "b", Attributes: map[string]string{"label": "safe"}},
				{ID: "3", Variant: "base", Text: "c", Harm: 4, Attributes: map[string]string{"label": "safe"}},
			},
		},
	}
	for _, tt := range tests {
		set, err := data.ReadRequests(write(t, tt.file, tt.content), tt.options)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if !reflect.DeepEqual(set.Requests, tt.want) {
			t.Errorf("%s\n got %+v\nwant %+v", tt.name, set.Requests, tt.want)
		}
		if set.Name != "a" || !strings.HasPrefix(set.Digest, "sha256:") || len(set.Digest) != 71 {
			t.Errorf("%s: name %q, digest %q", tt.name, set.Name, set.Digest)
		}
		// The same rows from a run's own table.
		dir := t.TempDir()
		must(t, data.WriteTable(dir, data.Requests, values(set.Requests)))
		again, err := data.ReadRequests(filepath.Join(dir, "requests.parquet"), data.Options{})
		if err != nil {
			t.Errorf("%s, from Parquet: %v", tt.name, err)
			continue
		}
		if again.Digest != set.Digest {
			t.Errorf("%s, from Parquet\n got %+v\nwant %+v", tt.name, again.Requests, set.Requests)
		}
	}
}

func TestUnmappedLabelsAreCounted(t *testing.T) {
	set, err := data.ReadRequests(write(t, "a.csv", "id,prompt,label,harm\n1,a,unsafe,high\n2,b,safe,6\n3,c,safe,4\n"), data.Options{})
	must(t, err)
	want := map[string]int{"label=unsafe": 1, "label=safe": 2, "harm=high": 1, "harm=6": 1}
	if !reflect.DeepEqual(set.Unmapped, want) {
		t.Errorf("unmapped %v, want %v", set.Unmapped, want)
	}
}

func TestReadRequestsRefuses(t *testing.T) {
	big := strings.Repeat("x", 5<<20)
	tests := []struct {
		name, file, content string
		options             data.Options
		want                []string // parts of the message
	}{
		{"nothing", "a.csv", "", data.Options{}, []string{"empty"}},
		{"a header alone", "a.csv", "id,prompt\n", data.Options{}, []string{"no request"}},
		{"an empty list", "a.json", "[]", data.Options{}, []string{"no request"}},
		{"blank texts", "a.csv", "id,prompt\n1,a\n2, \n3,\"\"\n", data.Options{}, []string{"line 3 and 4", "blank"}},
		{"a missing value", "a.csv", "id,prompt\n1,nan\n", data.Options{}, []string{"line 2", "nan"}},
		{"null", "a.jsonl", "{\"id\":1,\"prompt\":null}\n", data.Options{}, []string{"line 1", "blank"}},
		{"equal ids", "a.csv", "id,prompt\n7,a\n8,b\n7,c\n", data.Options{}, []string{"line 4", `"7"`, "line 2"}},
		{"a blank id", "a.csv", "id,prompt\n,a\n8,b\n", data.Options{}, []string{"line 2", "id is blank"}},
		{"too few cells", "a.csv", "id,prompt\n1,a\n\"2\nx\",b\n3\n", data.Options{}, []string{"line 5", "1 cells", "header has 2"}},
		{"too many cells", "a.csv", "id,prompt\n1,a,b\n", data.Options{}, []string{"line 2", "3 cells", "quotes"}},
		{"an open quote", "a.csv", "id,prompt\n1,\"a\n2,b\n", data.Options{}, []string{"line 2", "not closed"}},
		{"text after a quote", "a.csv", "id,prompt\n1,\"a\"b\n", data.Options{}, []string{"line 2", "twice"}},
		{"two columns of one name", "a.csv", "prompt,prompt\na,b\n", data.Options{}, []string{"line 1", "prompt"}},
		{"NUL", "a.csv", "id,prompt\n1,a\x00b\n", data.Options{}, []string{"line 2", "NUL"}},
		{"NUL in JSON", "a.jsonl", "\n{\"id\":1,\"prompt\":\"a\\u0000\"}\n", data.Options{}, []string{"line 2", "NUL"}},
		{"not UTF-8", "a.txt", "a\n\xe9\n", data.Options{}, []string{"line 2", "UTF-8"}},
		{"not UTF-8 in a list", "a.json", "[\"a\",\n\"\xe9\"]", data.Options{}, []string{"line 2", "UTF-8"}},
		{"half a surrogate pair", "a.jsonl", `{"id":1,"prompt":"a \ud83d b"}`, data.Options{}, []string{"line 1", "surrogate"}},
		{"the other half", "a.json", `["\udd12"]`, data.Options{}, []string{"line 1", "surrogate"}},
		{"two first halves", "a.jsonl", `"\ud83d\ud83d\udd12"`, data.Options{}, []string{"line 1", "surrogate"}},
		{"broken JSON", "a.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\n", data.Options{}, []string{"line 2", "JSON"}},
		{"JSON that ends", "a.json", "[{\"prompt\":\"a\"},\n", data.Options{}, []string{"JSON"}},
		{"a number for a row", "a.jsonl", "3\n", data.Options{}, []string{"line 1", "a number"}},
		{"UTF-16", "a.csv", "\xff\xfei\x00", data.Options{}, []string{"UTF-16"}},
		{"gzip", "a.csv", "\x1f\x8b\x08", data.Options{}, []string{"gzip"}},
		{"a spreadsheet", "a.xlsx", "PK\x03\x04", data.Options{}, []string{"CSV"}},
		{"no Parquet", "a.parquet", "hello", data.Options{}, []string{"Parquet"}},
		{"Parquet without an end", "a.parquet", "PAR1hello, world", data.Options{}, []string{"Parquet"}},
		{"a footer longer than the file", "a.parquet", "PAR1\xff\xff\xff\x7fPAR1", data.Options{}, []string{"footer"}},
		{"eight bytes", "a.parquet", "PAR1PAR1", data.Options{}, []string{"Parquet"}},
		{"5 MB", "a.csv", "id,prompt\n1," + big + "\n", data.Options{}, []string{"line 2", "5242880", "1048576"}},
		{"no known column", "a.csv", "x,y\n1,2\n", data.Options{}, []string{"x, y", "text=y"}},
		{"an unknown format", "a.bin", "hello", data.Options{}, []string{"csv, jsonl, json, parquet or text"}},
		{"a format that is none", "a.csv", "id,prompt\n1,a\n", data.Options{Format: "yaml"}, []string{`"yaml"`}},
		{"a preset that is none", "a.csv", "id,prompt\n1,a\n", data.Options{Preset: "x"}, []string{`"x"`, "harmbench"}},
		{"a preset that does not fit", "a.csv", "id,prompt\n1,a\n", data.Options{Preset: "harmbench"}, []string{"behavior"}},
		{"a field that is none", "a.csv", "id,prompt\n1,a\n", data.Options{Columns: map[string]string{"level": "id"}}, []string{`"level"`, "harm"}},
		{"a column that is not there", "a.csv", "id,prompt\n1,a\n", data.Options{Columns: map[string]string{"text": "promt"}}, []string{`"promt"`, "id, prompt"}},
		{"turns without roles", "a.jsonl", `{"question_id":1,"category":"1","turns":["a","b"]}`, data.Options{}, []string{"line 1", "roles"}},
		{"a strange role", "a.jsonl", `{"messages":[{"role":"wizard","content":"a"}]}`, data.Options{}, []string{"line 1", "wizard"}},
		{"a conversation without a request", "a.jsonl", `{"messages":[{"role":"system","content":"a"}]}`, data.Options{}, []string{"line 1", "user"}},
		{"a picture", "a.jsonl", `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, data.Options{}, []string{"line 1", "no text"}},
	}
	for _, tt := range tests {
		set, err := data.ReadRequests(write(t, tt.file, tt.content), tt.options)
		if err == nil {
			t.Errorf("%s: read as %+v", tt.name, set.Requests)
			continue
		}
		for _, part := range append(tt.want, tt.file) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the message %q does not say %q", tt.name, err, part)
			}
		}
	}
	if _, err := data.ReadRequests(t.TempDir(), data.Options{}); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := data.ReadRequests(filepath.Join(t.TempDir(), "none.csv"), data.Options{}); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestManyFaultsAreNamedTogether(t *testing.T) {
	var b strings.Builder
	b.WriteString("id,prompt\n")
	for i := range 30 {
		fmt.Fprintf(&b, "%d,\n", i)
	}
	_, err := data.ReadRequests(write(t, "a.csv", b.String()), data.Options{})
	if err == nil || !strings.Contains(err.Error(), "line 2, 3, 4, 5, 6, 7, 8, 9, 10, 11: the text is blank; and 20 more") {
		t.Errorf("error %v", err)
	}
}

func TestOwnIDsDoNotDependOnOrder(t *testing.T) {
	one, err := data.ReadRequests(write(t, "a.txt", "a\nb\nc\n"), data.Options{})
	must(t, err)
	other, err := data.ReadRequests(write(t, "a.txt", "c\na\n"), data.Options{})
	must(t, err)
	if one.Requests[2].ID != other.Requests[0].ID || one.Requests[0].ID != other.Requests[1].ID || one.Requests[0].ID == one.Requests[1].ID {
		t.Errorf("ids %v and %v", one.Requests, other.Requests)
	}
}
