package data_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"demur/data"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func manifest() data.Manifest {
	return data.Manifest{
		Demur:    "0.1.0",
		RunID:    "20261201T120000Z_scripted_0001",
		PlanID:   "plan-1",
		Plan:     json.RawMessage(`{"temperatures":[0,0.7],"seeds":[42,43],"pack":2}`),
		Model:    data.Model{Name: "scripted", Engine: "scripted", Plan: map[string]string{"rows": "20", "flash": "on"}},
		Requests: data.RequestSet{Name: "locks", Digest: "sha256:00"},
	}
}

func requests(n int) []data.Request {
	var rows []data.Request
	for i := range n {
		// Ids whose order as text is not their order in the set.
		id := fmt.Sprintf("r%d", n-i)
		for _, v := range []string{data.Base, data.P1} {
			rows = append(rows, data.Request{
				ID: id, Variant: v, Text: "How do I pick my own lock? " + id + v,
				Topic: "locks", Harm: 1 + i%5, Attributes: map[string]string{"a": "1", "b": id, "c": "", "d": v},
			})
		}
	}
	return rows
}

// unit makes the rows of one request: deterministic, as an engine's would be.
func unit(requestID string, attempt int) data.Unit {
	u := data.Unit{ID: "unit-" + requestID}
	for _, v := range []string{data.Base, data.P1} {
		messages := []data.Message{{Role: "user", Content: "How do I pick my own lock? " + requestID + v}}
		p := data.Prompt{ID: data.PromptID(messages), RequestID: requestID, Variant: v, Phase: data.Respond, Messages: messages, Tokens: 9}
		u.Prompts = append(u.Prompts, p)
		half := 0.5
		u.Predictions = append(u.Predictions, data.Prediction{
			ID: "p" + requestID + v, PromptID: p.ID, RequestID: requestID, Variant: v,
			Reading: data.Exact, Outcome: data.WillComply, PRefuse: &half, PlanID: "plan-1",
		})
		for _, temperature := range []float64{0, 0.7} {
			for seed := uint32(42); seed < 44; seed++ {
				u.Trials = append(u.Trials, data.Trial{
					ID: data.Digest([]any{p.ID, temperature, seed}), PromptID: p.ID, RequestID: requestID,
					Variant: v, Temperature: temperature, Seed: seed, TopP: 1, MaxTokens: 16,
					Text: fmt.Sprintf("With a tension wrench,\r\n\x00\"%s\" \u2028 é 🔒 %v %d", requestID, temperature, seed), Tokens: 12, StopReason: data.StopEnd, PlanID: "plan-1",
				})
			}
		}
	}
	u.Attempts = []data.Attempt{{ID: "unit-" + requestID, Unit: "unit-" + requestID, Started: now.Add(time.Duration(attempt) * time.Second).Format(time.RFC3339), ElapsedMS: int64(attempt)}}
	return u
}

// collect returns the rows of a table.
func collect[T any](t testing.TB, dir, name string) []T {
	t.Helper()
	var rows []T
	for row, err := range data.ReadTable[T](dir, name) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func values[T any](rows []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// tables returns the bytes of the tables that are promised to be equal.
func tables(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{data.Requests, data.Prompts, data.Predictions, data.Trials} {
		b, err := os.ReadFile(filepath.Join(dir, name+".parquet"))
		must(t, err)
		files[name] = string(b)
	}
	return files
}

func TestRunFromCreateToTables(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	set := requests(3)
	r, err := data.Create(dir, manifest(), set)
	must(t, err)
	want := []data.Trial{}
	for _, id := range []string{"r1", "r3", "r2"} { // done out of order
		if r.Done("unit-" + id) {
			t.Errorf("unit-%s is done before it was committed", id)
		}
		must(t, r.Commit(unit(id, 1)))
		if !r.Done("unit-" + id) {
			t.Errorf("unit-%s is not done after it was committed", id)
		}
	}
	for _, id := range []string{"r3", "r2", "r1"} { // the order of the set
		want = append(want, unit(id, 1).Trials...)
	}
	must(t, r.LogAttempts([]data.Attempt{{ID: "unit-r2", Unit: "unit-r2", ErrorKind: data.ErrCrash, Error: "signal: \xff killed"}}))
	must(t, r.Compact())
	must(t, r.Finish(now))
	must(t, r.Close())

	if got := collect[data.Trial](t, dir, data.Trials); !reflect.DeepEqual(got, want) {
		t.Errorf("trials\n got %v\nwant %v", got, want)
	}
	if got := collect[data.Request](t, dir, data.Requests); !reflect.DeepEqual(got, set) {
		t.Errorf("requests\n got %v\nwant %v", got, set)
	}
	if got := collect[data.Prompt](t, dir, data.Prompts); len(got) != 6 || !reflect.DeepEqual(got[0], unit("r3", 1).Prompts[0]) {
		t.Errorf("prompts %v", got)
	}
	if got := collect[data.Prediction](t, dir, data.Predictions); len(got) != 6 || !reflect.DeepEqual(got[5], unit("r1", 1).Predictions[1]) {
		t.Errorf("predictions %v", got)
	}
	if got := collect[data.Attempt](t, dir, data.Attempts); len(got) != 4 || got[3].Error != "signal: \uFFFD killed" {
		t.Errorf("attempts %v", got)
	}
	open, err := data.OpenRun(dir)
	must(t, err)
	defer open.Close()
	if m := open.Manifest(); m.Finished != "2026-12-01T12:00:00Z" || m.Tables[data.Trials].Rows != 24 || m.Schema != data.SchemaVersion {
		t.Errorf("manifest %+v", m)
	}
	if err := open.Commit(unit("r1", 1)); err == nil {
		t.Error("a run that is open for reading takes units")
	}
}

func TestTablesDoNotDependOnHistory(t *testing.T) {
	// One run straight through; one in another order, with a unit done twice,
	// closed and continued in between.
	straight := t.TempDir()
	r, err := data.Create(straight, manifest(), requests(5))
	must(t, err)
	for _, id := range []string{"r1", "r2", "r3", "r4", "r5"} {
		must(t, r.Commit(unit(id, 1)))
	}
	must(t, r.Compact())
	must(t, r.Close())

	crooked := t.TempDir()
	r, err = data.Create(crooked, manifest(), requests(5))
	must(t, err)
	failed := unit("r4", 1)
	failed.Trials[3].ErrorKind, failed.Trials[3].Text = data.ErrCrash, ""
	must(t, r.Commit(failed))
	must(t, r.Commit(unit("r1", 7)))
	if c := r.Counts(); c.FailedUnits != 1 || c.FailedRows != 1 || c.Units != 2 || c.Trials != 16 {
		t.Errorf("counts %+v", c)
	}
	must(t, r.Compact())
	must(t, r.Finish(now))
	must(t, r.Close())

	r, err = data.Resume(crooked, manifest())
	must(t, err)
	if !r.Failed("unit-r4") || r.Failed("unit-r1") || r.Done("unit-r2") {
		t.Error("what was done is not known after resume")
	}
	for _, id := range []string{"r5", "r4", "r3", "r2"} {
		must(t, r.Commit(unit(id, 3)))
	}
	if r.Manifest().Finished != "" {
		t.Error("a run that goes on is still marked as finished")
	}
	if c := r.Counts(); c.FailedUnits != 0 || c.FailedRows != 0 || c.Units != 5 || c.Trials != 40 || c.Attempts != 6 {
		t.Errorf("counts %+v", c)
	}
	must(t, r.Compact())
	must(t, r.Close())
	if !reflect.DeepEqual(tables(t, straight), tables(t, crooked)) {
		t.Error("the tables differ")
	}
	if got := collect[data.Attempt](t, crooked, data.Attempts); len(got) != 6 {
		t.Errorf("%d attempts, want 6: those of a superseded unit are kept", len(got))
	}

	before := tables(t, straight)
	r, err = data.Reopen(straight)
	must(t, err)
	must(t, r.Compact())
	must(t, r.Close())
	if !reflect.DeepEqual(before, tables(t, straight)) {
		t.Error("compacted again, the tables differ")
	}
}

func TestResumingAFinishedRunWritesNothing(t *testing.T) {
	dir := t.TempDir()
	r, err := data.Create(dir, manifest(), requests(1))
	must(t, err)
	must(t, r.Commit(unit("r1", 1)))
	must(t, r.Compact())
	must(t, r.Finish(now))
	must(t, r.Close())
	before := snapshot(t, dir)
	r, err = data.Resume(dir, manifest())
	must(t, err)
	must(t, r.Compact())
	must(t, r.Finish(now.Add(time.Hour)))
	must(t, r.Close())
	if after := snapshot(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("files before %v, after %v", len(before), len(after))
	}
}

// snapshot returns the bytes of every file below a directory.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	}))
	return files
}

// A journal that was emptied, cut or taken away under a manifest and tables that
// stay is no run to go on with: its units would be done again without requests.
func TestLostJournalIsDamage(t *testing.T) {
	frames := func(b []byte) (starts []int) {
		for i := range b {
			if strings.HasPrefix(string(b[i:]), "\xd3DMJ") {
				starts = append(starts, i)
			}
		}
		return starts
	}
	for _, c := range []struct {
		name   string
		tables bool
		spoil  func(segment string) error
		says   string
	}{
		{"folder gone", true, func(s string) error { return os.RemoveAll(filepath.Dir(s)) }, "0 of the 6 requests"},
		{"folder gone before there are tables", false, func(s string) error { return os.RemoveAll(filepath.Dir(s)) }, "0 of the 6 requests"},
		{"file gone", true, os.Remove, "0 of the 6 requests"},
		{"emptied", true, func(s string) error { return os.Truncate(s, 0) }, "0 of the 6 requests"},
		{"emptied before there are tables", false, func(s string) error { return os.Truncate(s, 0) }, "0 of the 6 requests"},
		{"last unit gone", true, func(s string) error {
			b, err := os.ReadFile(s)
			starts := frames(b)
			return errors.Join(err, os.Truncate(s, int64(starts[len(starts)-1])))
		}, "16 of the 24 trials"},
		{"last unit torn", true, func(s string) error {
			info, err := os.Stat(s)
			return errors.Join(err, os.Truncate(s, info.Size()-9))
		}, "16 of the 24 trials"},
	} {
		dir := t.TempDir()
		m := manifest()
		m.Requests.Count = 6
		r, err := data.Create(dir, m, requests(3))
		must(t, err)
		for _, id := range []string{"r1", "r2", "r3"} {
			must(t, r.Commit(unit(id, 1)))
		}
		if c.tables {
			must(t, r.Compact())
			must(t, r.Finish(now))
		}
		must(t, r.Close())
		must(t, c.spoil(filepath.Join(dir, "journal", "000001.dmj")))
		before := snapshot(t, dir)

		_, err = data.Resume(dir, m)
		if !errors.Is(err, data.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want ErrCorrupt with %q", c.name, err, c.says)
		}
		if still := strings.Contains(fmt.Sprint(err), "tables can still"); still != c.tables {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := snapshot(t, dir); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: %d files were changed or removed", c.name, len(before))
		}
		open, err := data.OpenRun(dir)
		must(t, err)
		if _, err := open.CheckJournal(); !errors.Is(err, data.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: CheckJournal: %v", c.name, err)
		}
		must(t, open.Close())
	}
}

func TestDamagedManifest(t *testing.T) {
	for content, want := range map[string]error{
		"":                                      data.ErrCorrupt,
		"{":                                     data.ErrCorrupt,
		"[]":                                    data.ErrCorrupt,
		`{"schema_version": 1}`:                 data.ErrCorrupt,
		`{"schema_version": 0, "run_id": "a"}`:  data.ErrCorrupt,
		`{"schema_version": 1, "run_id": "/a"}`: data.ErrCorrupt,
		`{"schema_version": 99, "run_id": "a"}`: data.ErrNewer,
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(content), 0o644))
		for name, open := range map[string]func() (*data.Run, error){
			"OpenRun": func() (*data.Run, error) { return data.OpenRun(dir) },
			"Reopen":  func() (*data.Run, error) { return data.Reopen(dir) },
			"Resume":  func() (*data.Run, error) { return data.Resume(dir, manifest()) },
		} {
			if _, err := open(); !errors.Is(err, want) || !strings.Contains(err.Error(), "manifest.json") {
				t.Errorf("%s of %q: error %v, want %v", name, content, err, want)
			}
		}
		if got := snapshot(t, dir); len(got) != 1 {
			t.Errorf("%q: files %d, want the manifest alone", content, len(got))
		}
	}
}

// A unit that is written where nobody will find it is no unit done.
func TestDirectoryTakenAway(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"moved":           func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"removed":         os.RemoveAll,
		"journal removed": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "journal")) },
		"another put in its place": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-moved"), os.MkdirAll(filepath.Join(dir, "journal"), 0o755))
		},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		r, err := data.Create(dir, manifest(), requests(2))
		must(t, err)
		must(t, r.Commit(unit("r1", 1)))
		must(t, take(dir))
		if err := r.Commit(unit("r2", 1)); err == nil || !strings.Contains(err.Error(), "moved or removed") {
			t.Errorf("%s: error %v", name, err)
		}
		if r.Done("unit-r2") {
			t.Errorf("%s: the unit counts as done", name)
		}
		_ = r.Close()
		if name != "moved" {
			continue
		}
		must(t, os.Rename(dir+"-moved", dir))
		r, err = data.Resume(dir, manifest())
		must(t, err)
		if !r.Done("unit-r1") || r.Done("unit-r2") {
			t.Error("put back, it does not go on where it was")
		}
		must(t, r.Commit(unit("r2", 1)))
		must(t, r.Close())
	}
}

func TestCheckJournalCounts(t *testing.T) {
	dir := t.TempDir()
	m := manifest()
	m.Requests.Count = 4
	r, err := data.Create(dir, m, requests(2))
	must(t, err)
	must(t, r.Commit(unit("r1", 1)))
	open, err := data.OpenRun(dir) // while the other writes
	must(t, err)
	got, err := open.CheckJournal()
	must(t, err)
	if want := r.Counts(); got != want || got.Units != 1 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	must(t, errors.Join(open.Close(), r.Close()))
}

func TestAnotherPlanIsRefused(t *testing.T) {
	dir := t.TempDir()
	r, err := data.Create(dir, manifest(), requests(1))
	must(t, err)
	must(t, r.Close())
	tests := []struct {
		field, have, want string
		change            func(*data.Manifest)
	}{
		{"plan.temperatures", "[0,0.7]", "[0,0.7,1]", func(m *data.Manifest) {
			m.Plan = json.RawMessage(`{"temperatures":[0,0.7,1],"seeds":[42,43],"pack":2}`)
		}},
		{"plan.seeds.1", "43", "44", func(m *data.Manifest) { m.Plan = json.RawMessage(`{"temperatures":[0,0.7],"seeds":[42,44],"pack":2}`) }},
		{"plan.width", "", "8", func(m *data.Manifest) {
			m.Plan = json.RawMessage(`{"temperatures":[0,0.7],"seeds":[42,43],"pack":2,"width":8}`)
		}},
		{"model.plan.flash", `"on"`, `"off"`, func(m *data.Manifest) { m.Model.Plan = map[string]string{"rows": "20", "flash": "off"} }},
		{"model.template_sha256", "", `"ab"`, func(m *data.Manifest) { m.Model.TemplateHash = "ab" }},
		{"requests.digest", `"sha256:00"`, `"sha256:01"`, func(m *data.Manifest) { m.Requests.Digest = "sha256:01" }},
		{"wordings", "", `{"default":"ab"}`, func(m *data.Manifest) { m.Wordings = map[string]string{"default": "ab"} }},
		{"plan_id", "plan-1", "plan-2", func(m *data.Manifest) { m.PlanID = "plan-2" }},
	}
	for _, tt := range tests {
		m := manifest()
		tt.change(&m)
		_, err := data.Resume(dir, m)
		var other *data.PlanError
		if !errors.As(err, &other) {
			t.Errorf("%s: error %v, want a *PlanError", tt.field, err)
			continue
		}
		if other.Field != tt.field || other.Have != tt.have || other.Want != tt.want {
			t.Errorf("field %s: %s → %s, want %s: %s → %s", other.Field, other.Have, other.Want, tt.field, tt.have, tt.want)
		}
		if !strings.Contains(err.Error(), tt.field) {
			t.Errorf("the message does not name %s: %v", tt.field, err)
		}
	}
	// Order of keys, spaces, clocks and versions make no other plan.
	m := manifest()
	m.Plan = json.RawMessage(`{ "pack":2, "seeds":[42,43], "temperatures":[0, 0.7]}`)
	m.Demur, m.RunID, m.Created = "0.2.0", "another", "2030-01-01T00:00:00Z"
	r, err = data.Resume(dir, m)
	must(t, err)
	if id := r.Manifest().RunID; id != manifest().RunID {
		t.Errorf("run id %s, want the directory's", id)
	}
	must(t, r.Close())
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	r, err := data.Create(dir, manifest(), requests(1))
	must(t, err)
	_, err = data.Resume(dir, manifest())
	if !errors.Is(err, data.ErrLocked) {
		t.Fatalf("a second writer: %v, want ErrLocked", err)
	}
	if want := fmt.Sprintf("process %d", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	if _, err := data.OpenRun(dir); err != nil {
		t.Errorf("a reader beside the writer: %v", err)
	}
	must(t, r.Commit(unit("r1", 1))) // the refused one did no harm

	// A directory that is copied while locked has the file and not the lock.
	copied := t.TempDir()
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	c, err := data.Resume(copied, manifest())
	must(t, err)
	must(t, c.Close())
	must(t, r.Close())

	// A file of a process that was killed is no lock.
	must(t, os.WriteFile(filepath.Join(dir, "lock"), []byte("1\n"), 0o666))
	r, err = data.Resume(dir, manifest())
	must(t, err)
	if !r.Done("unit-r1") {
		t.Error("unit-r1 is lost")
	}
	must(t, r.Close())
	if _, err := os.Stat(filepath.Join(dir, "lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock file stays: %v", err)
	}
}

func TestCreateAndResumeRefuse(t *testing.T) {
	dir := t.TempDir()
	if _, err := data.Resume(dir, manifest()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resume of nothing: %v, want fs.ErrNotExist", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("resume of nothing left %v", entries)
	}
	r, err := data.Create(dir, manifest(), requests(1))
	must(t, err)
	must(t, r.Close())
	if _, err := data.Create(dir, manifest(), requests(1)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a run: %v, want fs.ErrExist", err)
	}
	path := filepath.Join(dir, "manifest.json")
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte(strings.Replace(string(b), `"schema_version": 1`, `"schema_version": 99`, 1)), 0o666))
	if _, err := data.OpenRun(dir); err == nil || !strings.Contains(err.Error(), "later demur") {
		t.Errorf("a later schema: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o666))
	if _, err := data.Create(file, manifest(), nil); err == nil {
		t.Error("a run was created in a file")
	}
	closed := filepath.Join(t.TempDir(), "closed")
	must(t, os.Mkdir(closed, 0o555))
	if _, err := data.Create(filepath.Join(closed, "run"), manifest(), nil); os.Getuid() != 0 && (err == nil || !strings.Contains(err.Error(), "may write to")) {
		t.Errorf("a directory that is not writable: %v", err)
	}
	bad := manifest()
	bad.RunID = "../up"
	if _, err := data.Create(filepath.Join(t.TempDir(), "x"), bad, nil); err == nil {
		t.Error("a run id that is a path was taken")
	}
}

func TestCommitRefusesWhatItCannotKeep(t *testing.T) {
	r, err := data.Create(t.TempDir(), manifest(), requests(1))
	must(t, err)
	defer r.Close()
	u := unit("r1", 1)
	u.Trials[0].Text = "\xff"
	if err := r.Commit(u); err == nil {
		t.Error("text that is not UTF-8 was taken")
	}
	u = unit("r1", 1)
	u.ID = ""
	if err := r.Commit(u); err == nil {
		t.Error("a unit without an id was taken")
	}
	u = unit("r1", 1)
	u.Trials[0].Text = strings.Repeat("x", 64<<20)
	if err := r.Commit(u); err == nil {
		t.Error("a unit of more than 64 MiB was taken")
	}
	if r.Done("unit-r1") {
		t.Error("a refused unit is done")
	}
	must(t, r.Commit(unit("r1", 1))) // a refusal is not a failure of the disk
}

func TestATrialInTwoUnitsIsAnError(t *testing.T) {
	r, err := data.Create(t.TempDir(), manifest(), requests(1))
	must(t, err)
	defer r.Close()
	must(t, r.Commit(unit("r1", 1)))
	u := unit("r1", 1)
	u.ID = "unit-again"
	must(t, r.Commit(u))
	if err := r.Compact(); err == nil || !strings.Contains(err.Error(), "is in unit unit-again and again in unit unit-r1") {
		t.Errorf("error %v", err)
	}
}

func TestWriteTable(t *testing.T) {
	dir := t.TempDir()
	one, none := 1.5, (*float64)(nil)
	want := []data.Estimate{
		{Metric: "d_prime", Value: &one, Lo: none, Hi: none, Level: 0.95, Requests: 3, Trials: 9, Warnings: []string{"few requests", "x"}},
		{Metric: "criterion", Group: "topic=locks", Level: 0.95},
	}
	must(t, data.WriteTable(dir, data.Estimates, values(want)))
	if got := collect[data.Estimate](t, dir, data.Estimates); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !data.HasTable(dir, data.Estimates) || data.HasTable(dir, data.Verdicts) {
		t.Error("HasTable is wrong")
	}
	for _, err := range data.ReadTable[data.Verdict](dir, data.Verdicts) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a table that is not there: %v", err)
		}
	}
	// An error in the rows leaves the table as it was, and nothing beside it.
	broken := errors.New("the judge went home")
	err := data.WriteTable(dir, data.Estimates, func(yield func(data.Estimate, error) bool) {
		_ = yield(want[0], nil) && yield(data.Estimate{}, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if got := collect[data.Estimate](t, dir, data.Estimates); len(got) != 2 {
		t.Errorf("%d rows after a failed write, want 2", len(got))
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("files %v, want the table alone", entries)
	}
	nan := func() float64 { z := 0.0; return z / z }()
	if err := data.WriteTable(dir, "x", values([]data.Estimate{{Value: &nan}})); err == nil {
		t.Error("NaN was written")
	}
	if err := data.WriteTable(dir, "x", values([]data.Activation{{Values: []float32{1, float32(nan)}}})); err == nil {
		t.Error("NaN was written in a list")
	}
	for _, name := range []string{"", "../x", "a/b/c", "A", "x.parquet", "/x", "a/../b"} {
		if err := data.WriteTable(dir, name, values(want)); err == nil {
			t.Errorf("a table was written under the name %q", name)
		}
	}
	must(t, data.WriteTable(dir, "activations/layer_07", values([]data.Activation{{PromptID: "p", Layer: 7, Values: []float32{1, 2}}})))
	if got := collect[data.Activation](t, dir, "activations/layer_07"); len(got) != 1 || !slices.Equal(got[0].Values, []float32{1, 2}) {
		t.Errorf("activations %v", got)
	}
	must(t, data.WriteTable(dir, "empty", values([]data.Trial(nil))))
	if got := collect[data.Trial](t, dir, "empty"); len(got) != 0 {
		t.Errorf("%d rows in an empty table", len(got))
	}
	for _, err := range data.ReadTable[data.Trial](dir, data.Estimates) {
		if err == nil {
			t.Error("estimates were read as trials")
		}
		break
	}
}

func TestNotesOfOtherParts(t *testing.T) {
	dir := t.TempDir()
	r, err := data.Create(dir, manifest(), requests(1))
	must(t, err)
	must(t, r.SetExtra("check", map[string]int{"identical": 3}))
	must(t, r.SetExtra("note", "<b>&"))
	must(t, r.SetExtra("check", map[string]int{"identical": 4}))
	must(t, r.Close())
	open, err := data.OpenRun(dir)
	must(t, err)
	defer open.Close()
	extra := open.Manifest().Extra
	var check map[string]int
	must(t, json.Unmarshal(extra["check"], &check))
	if len(extra) != 2 || check["identical"] != 4 {
		t.Errorf("extra %s", extra)
	}
	if err := open.SetExtra("x", 1); err == nil {
		t.Error("a run that is open for reading was written to")
	}
	if err := open.LogAttempts([]data.Attempt{{ID: "x"}}); err == nil {
		t.Error("a run that is open for reading takes attempts")
	}
	if err := open.Compact(); err == nil {
		t.Error("a run that is open for reading was compacted")
	}
}

// A request set larger than a frame of the journal is cut into several.
func TestLargeRequestSets(t *testing.T) {
	var set []data.Request
	for i := range 20 {
		set = append(set, data.Request{ID: fmt.Sprint(i), Variant: data.Base, Text: strings.Repeat("x", 1<<20-i)})
	}
	dir := t.TempDir()
	r, err := data.Create(dir, manifest(), set)
	must(t, err)
	must(t, r.Compact())
	must(t, r.Close())
	i := 0
	for q, err := range data.ReadTable[data.Request](dir, data.Requests) {
		must(t, err)
		if q.ID != set[i].ID || q.Text != set[i].Text {
			t.Fatalf("request %d is %s", i, q.ID)
		}
		i++
	}
	if i != len(set) {
		t.Errorf("%d requests, want %d", i, len(set))
	}
}
