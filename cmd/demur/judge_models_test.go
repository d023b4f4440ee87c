//go:build unix

package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

// TestModelJudgesOnXSTest puts fifty human-labelled responses to SmolLM2 and to the
// organism as judges, and prints how often no label could be read and how far they
// agree with people, however low. The rows are spread evenly over those whose prompt
// number is not divisible by three: the others are sealed.
func TestModelJudgesOnXSTest(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		t.Skip("takes minutes; set DEMUR_LONG=1")
	}
	shared := os.Getenv("DEMUR_SHARED")
	if shared == "" {
		t.Skip("DEMUR_SHARED is not set: no human-labelled responses here")
	}
	f, err := os.Open(filepath.Join(shared, "data", "labelled", "xstest", "xstest_v2_mistral_dev.csv"))
	if err != nil {
		t.Skip("no human-labelled responses here:", err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var worked [][]string
	for _, r := range records[1:] {
		n, err := strconv.Atoi(r[0][strings.LastIndexByte(r[0], '-')+1:])
		if err != nil || records[0][0] != "id" {
			t.Fatalf("prompt id %q has no number", r[0])
		}
		if n%3 != 0 {
			worked = append(worked, r)
		}
	}
	const rows = 50
	dir := t.TempDir()
	fifty := filepath.Join(dir, "fifty.csv")
	out, err := os.Create(fifty)
	if err != nil {
		t.Fatal(err)
	}
	w := csv.NewWriter(out)
	w.Write(records[0])
	for i := range rows {
		w.Write(worked[i*len(worked)/rows])
	}
	w.Flush()
	if err := out.Close(); err != nil || w.Error() != nil {
		t.Fatal(err, w.Error())
	}
	for name, model := range map[string]string{"SmolLM2": testModel(t), "organism": filepath.Join(shared, "models", "demur-organism-135m-Q8_0.gguf")} {
		for _, reason := range []string{"", "before"} {
			t.Run(name+"/"+reason, func(t *testing.T) {
				if _, err := os.Stat(model); err != nil {
					t.Skip("the model is not here:", err)
				}
				labelled := filepath.Join(t.TempDir(), "labelled.csv")
				c, said := start(t, "classify", "--responses", fifty, "--response-column", "completion", "--human-column", "final_label",
					"--judge", "model:"+model, "--judge-reason", reason, "--out", labelled, "--json")
				if err := c.Wait(); err != nil {
					t.Fatalf("%v\n%s", err, said())
				}
				var result struct {
					Labels    map[data.Label]int
					Agreement []analysis.Agreements
				}
				text := said()
				if err := json.Unmarshal([]byte(text[strings.IndexByte(text, '{'):]), &result); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				failed, judged := unparsedRows(t, labelled)
				if judged != rows {
					t.Fatalf("%d rows are labelled, want %d", judged, rows)
				}
				t.Logf("%d of %d verdicts could not be read; labels %v", failed, judged, result.Labels)
				for _, x := range result.Agreement[0].By {
					t.Logf("%-8s kappa %s, agreement %s, %d pairs, %d left out", x.Classes, x.Kappa, x.Agreement, x.Pairs, x.LeftOut)
				}
			})
		}
	}
}

// unparsedRows counts the rows whose verdict could not be read, and all.
func unparsedRows(t *testing.T, path string) (failed, rows int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range records[0] {
		column[name] = i
	}
	for _, r := range records[1:] {
		if r[column["reason"]] == "unparsed" || strings.HasPrefix(r[column["reason"]], "judge_") {
			failed++
		}
		if r[column["label"]] != "" {
			rows++
		}
	}
	return failed, rows
}
