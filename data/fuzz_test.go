package data

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// What every reader of a request set promises about any bytes whatever: an
// error, or requests that can be asked, with a digest that the run's own table
// gives again. fuzzRequests checks it for one format.
func fuzzRequests(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			t.Skip()
		}
		path := filepath.Join(dir, "in")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		set, err := ReadRequests(path, Options{Format: format})
		if err != nil {
			if !strings.Contains(err.Error(), path) || !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\x00\x1b\n\r") {
				t.Errorf("the message %q does not name the file, or could move a terminal", err)
			}
			return
		}
		checkSet(t, set)
	})
}

func checkSet(t *testing.T, set Set) {
	t.Helper()
	if len(set.Requests) == 0 {
		t.Fatal("an empty set was read")
	}
	seen := map[variantKey]bool{}
	for _, q := range set.Requests {
		key := variantKey{q.ID, q.Variant}
		switch {
		case q.ID == "" || q.Variant == "" || strings.TrimSpace(q.Text) == "":
			t.Fatalf("a request without id, variant or text: %+v", q)
		case seen[key]:
			t.Fatalf("two requests are %v", key)
		case q.Harm < 0 || q.Harm > 5:
			t.Fatalf("harm level %d", q.Harm)
		}
		seen[key] = true
		b, err := json.Marshal(q)
		if err != nil || bytes.Contains(b, []byte(`\u0000`)) {
			t.Fatalf("a request that cannot be stored: %v, %q", err, b)
		}
		var again Request
		if err := json.Unmarshal(b, &again); err != nil || again.Text != q.Text || again.ID != q.ID {
			t.Fatalf("a text changes when it is stored: %q, %q", q.Text, again.Text)
		}
	}
	if DigestRequests(set.Requests) != set.Digest {
		t.Fatal("the digest is not that of the rows")
	}
}

func FuzzCSV(f *testing.F) {
	fuzzRequests(f, formatCSV,
		"id,prompt\n1,a\n2,b\n", "\ufeffid,prompt\r\n1,\"a\r\n\"\"b\"\"\"\r\n", ",Goal,Target,Behavior,Category,Source\n0,a,b,c,d,e\n",
		"id;prompt\n1;a\n", "prompt,category\na,b", "id,prompt\n1\n", "id,prompt\n1,\"a", "prompt\n\n\na\n", "prompt,prompt\n", "\"id\",prompt\n1,a\"b\n")
}

func FuzzJSONL(f *testing.F) {
	fuzzRequests(f, formatJSONL,
		`{"id":1,"prompt":"a","x":{"y":[1,null,true]}}`, "\n\"a\"\n\"b\"\n", `{"messages":[{"role":"user","content":"a"}]}`, `{"prompt":"\ud83d\udd12"}`,
		`{"prompt":"\ud83d"}`, `{"prompt":"a\u0000"}`, `{"question_id":1,"category":"1","turns":["a"],"prompt_style":"base"}`, `[]`, `{"prompt":"a","category":{"b":true}}`, `{`)
}

func FuzzJSON(f *testing.F) {
	fuzzRequests(f, formatJSON,
		`["a","b"]`, `[{"id":1,"prompt":"a"},`+"\n"+`{"id":2,"prompt":"b"}]`, `{"data":[{"prompt":"a"}],"n":1}`, `{"a":"b","c":["d","e"],"f":{"text":"g"}}`,
		`{"data":["a"],"rows":["b"]}`, `[`, `{"a":`, `[3]`, `"a"`, "\ufeff[\"a\"]", `["\udd12"]`, `[] []`)
}

func FuzzText(f *testing.F) {
	fuzzRequests(f, formatText, "a\nb\r\n\r\nc", "\ufeffa", "a\xff", "a\x00", "\n\n")
}

func FuzzParquet(f *testing.F) {
	var seeds []string
	for _, rows := range [][]Request{
		nil,
		{{ID: "1", Variant: Base, Text: "a", Topic: "t", Harm: 3, Attributes: map[string]string{"k": "v"}}},
		{{ID: "1", Variant: Base, Text: "a", Messages: []Message{{"user", "x"}, {"assistant", "y"}}}, {ID: "2", Variant: P1, Text: strings.Repeat("b", 300)}},
	} {
		d := newSimDisk(1)
		if _, err := storeTable(d, Requests, func(yield func(Request, error) bool) {
			for _, q := range rows {
				if !yield(q, nil) {
					return
				}
			}
		}); err != nil {
			f.Fatal(err)
		}
		b := d.dirs["."].names[Requests+tableExt].data
		seeds = append(seeds, string(b), string(b[:len(b)-1]), string(b[:len(b)/2])+string(b[len(b)/2+1:]))
	}
	fuzzRequests(f, formatParquet, append(seeds, "PAR1PAR1", "PAR1\x00\x00\x00\x00PAR1", "PAR1\xff\xff\xff\x7fPAR1")...)
}

// FuzzTable reads any bytes as a table of a run directory.
func FuzzTable(f *testing.F) {
	d := newSimDisk(1)
	if _, err := storeTable(d, Trials, func(yield func(Trial, error) bool) {
		for _, tr := range simUnit(0).Trials {
			if !yield(tr, nil) {
				return
			}
		}
	}); err != nil {
		f.Fatal(err)
	}
	b := d.dirs["."].names[Trials+tableExt].data
	f.Add(b)
	f.Add(b[:len(b)-9])
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			t.Skip()
		}
		rows := 0
		for _, err := range readParquet[Trial](bytes.NewReader(b), int64(len(b))) {
			if err != nil {
				return
			}
			if rows++; rows > 1<<20 {
				t.Skip("many rows")
			}
		}
	})
}

// FuzzJournal opens any bytes as a journal file: an error, or frames that stay
// the same when what is behind them is cut and more is written.
func FuzzJournal(f *testing.F) {
	d := newSimDisk(1)
	r, err := create(d, "sim", simManifest(), simRequests()[:1], segmentSize)
	if err != nil {
		f.Fatal(err)
	}
	if err := r.Commit(simUnit(0)); err != nil {
		f.Fatal(err)
	}
	if err := r.LogAttempts([]Attempt{{ID: "a"}}); err != nil {
		f.Fatal(err)
	}
	whole := d.dirs[journalDir].names["000001.dmj"].data
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte{})
	f.Add(append(bytes.Clone(whole), whole...))
	f.Add(append(bytes.Clone(whole), frameMagic...))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newSimDisk(1)
		if err := writeManifest(d, func() Manifest { m := simManifest(); m.Schema = 1; return m }()); err != nil {
			t.Fatal(err)
		}
		if err := d.Mkdir(journalDir); err != nil {
			t.Fatal(err)
		}
		d.dirs[journalDir].names["000001.dmj"] = &simNode{data: bytes.Clone(b)}
		m := simManifest()
		r, err := resume(d, "sim", &m, segmentSize)
		if err != nil {
			return
		}
		before := r.Counts()
		if err := r.Commit(simUnit(5)); err != nil {
			t.Fatal(err)
		}
		after := r.Counts()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if d.openFDs != 0 {
			t.Fatalf("%d files are open", d.openFDs)
		}
		r, err = resume(d, "sim", &m, segmentSize)
		if err != nil {
			t.Fatalf("opened with %+v, it cannot be opened again: %v", before, err)
		}
		if r.Counts() != after || !r.Done("u5") {
			t.Fatalf("counts %+v, want %+v", r.Counts(), after)
		}
	})
}

func FuzzManifest(f *testing.F) {
	m := simManifest()
	m.Schema = 1
	m.Model.Plan = map[string]string{"a": "b"}
	b, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"schema_version":1,"run_id":"../x","plan":null}`))
	f.Add([]byte(`{"schema_version":1,"run_id":"x","plan":{"a":[1,{"b":1e999}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		if strings.ContainsAny(m.RunID, "/\\\x00 ") || m.RunID == "" {
			t.Fatalf("run id %q", m.RunID)
		}
		if err := samePlan("x", m, m); err != nil {
			t.Fatalf("a plan differs from itself: %v", err)
		}
	})
}

// FuzzImport reads any bytes as trials of another tool: an error and no run, or
// a run whose tables have the rows that were counted.
func FuzzImport(f *testing.F) {
	for _, s := range []string{
		"request_id,variant,topic,harm,model,temperature,seed,predicted,confidence,harm_rating,label,response\nr,base,t,1,m,0.7,42,comply,4,1,full_compliance,a\n",
		"predicted,confidence,label,count\nrefuse,5,full_refusal,3\n", "id,model,label\n1,a,x\n1,b,y\n",
	} {
		f.Add(formatCSV, []byte(s))
	}
	for _, s := range []string{
		`{"doc_id":3,"doc":{"question":"a"},"arguments":{"gen_args_0":{"arg_0":"b"}},"resps":[["c"]],"filtered_resps":["d"]}`,
		`{"id":"s","epoch":1,"input":[{"role":"user","content":[{"type":"text","text":"a"}]}],"output":{"model":"m","choices":[{"message":{"content":"b"}}]},"metadata":{"topic":"t"}}`,
	} {
		f.Add(formatJSONL, []byte(s))
	}
	f.Fuzz(func(t *testing.T, format string, b []byte) {
		if len(b) > 1<<16 {
			t.Skip()
		}
		dir := t.TempDir()
		path, out := filepath.Join(dir, "in"), filepath.Join(dir, "run")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		all, err := Import(path, out, ImportOptions{Format: format})
		if err != nil {
			if _, err := os.Stat(filepath.Join(out, manifestName)); err == nil {
				t.Fatal("a run was left")
			}
			return
		}
		for _, m := range all {
			rows := int64(0)
			for tr, err := range ReadTable[Trial](m.Dir, Trials) {
				if err != nil || tr.RequestID == "" || !utf8.ValidString(tr.Text) {
					t.Fatal(tr, err)
				}
				rows++
			}
			if rows != m.Trials {
				t.Fatalf("%d trials, want %d", rows, m.Trials)
			}
			run, err := OpenRun(m.Dir)
			if err != nil {
				t.Fatal(err)
			}
			run.Close()
		}
	})
}
