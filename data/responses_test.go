package data_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demur/data"
)

func TestResponsesComeBackWithColumnsAdded(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{
			"csv keeps order, quotes and line feeds", "\ufeffn,prompt,completion\r\n1,How do I bake?,\"First, mix.\nThen wait.\"\r\n2,\"\"\"Why?\"\"\",\r\n",
			"n,prompt,completion,label\n1,How do I bake?,\"First, mix.\nThen wait.\",36\n2,\"\"\"Why?\"\"\",,6\n",
		},
		{
			"jsonl", "{\"prompt\":\"How?\",\"completion\":\"So.\",\"n\":1}\n{\"prompt\":\"Why?\",\"completion\":null,\"n\":2}\n",
			"completion,n,prompt,label\nSo.,1,How?,7\n,2,Why?,4\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in."+strings.Fields(c.name)[0])
			if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			columns, rows, err := data.ReadResponses(path, "", "prompt", "completion")
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = data.WriteRows(&out, false, append(columns, "label"), func(yield func(map[string]any, error) bool) {
				for r, err := range rows {
					if err == nil {
						r.Cells["label"] = len(r.Request + r.Response)
					}
					if !yield(r.Cells, err) {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("got\n%q, want\n%q", out.String(), c.want)
			}
		})
	}
	if _, _, err := data.ReadResponses(filepath.Join(t.TempDir(), "none.csv"), "", "a", "b"); err == nil {
		t.Error("a file that is not there is no error")
	}
	path := filepath.Join(t.TempDir(), "in.csv")
	if err := os.WriteFile(path, []byte("a,b\n1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := data.ReadResponses(path, "", "prompt", "b"); err == nil || !strings.Contains(err.Error(), `no column "prompt"`) {
		t.Errorf("got %v, want an error that names the column", err)
	}
}
