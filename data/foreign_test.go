package data_test

import (
	"strings"
	"testing"

	"demur/data"
)

// TestParquetOfOthers reads three rows as pyarrow 26 and DuckDB 2.0 write them:
// three codecs and none, pages of both versions, dictionaries, several row
// groups, nulls, lists, structs, maps.
func TestParquetOfOthers(t *testing.T) {
	for _, name := range []string{"snappy_v1", "gzip_v2", "zstd_v2", "none", "duckdb"} {
		set, err := data.ReadRequests("testdata/parquet/"+name+".parquet", data.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		q := set.Requests
		if len(q) != 3 || q[0].ID != "1" || q[0].Text != "How do I pick my own lock?" || q[1].Text != "How do I bake bread? ’é🔒" || q[2].Text != "third" {
			t.Errorf("%s: %+v", name, q)
			continue
		}
		if q[0].Harm != 1 || q[1].Harm != 0 || q[2].Harm != 4 || q[0].Attributes["tags"] != `["a","b"]` || q[1].Attributes["tags"] != "" {
			t.Errorf("%s: %+v", name, q)
		}
		if name == "duckdb" {
			continue
		}
		if q[0].Topic != "home" || q[1].Topic != "food" || q[2].Topic != "" || q[0].Attributes["extra"] != `{"k":"v"}` || q[0].Attributes["flag"] != "true" || q[1].Attributes["small"] != "" || q[2].Attributes["small"] != "3" {
			t.Errorf("%s: %+v", name, q)
		}
	}
	for _, name := range []string{"lz4", "brotli"} {
		if _, err := data.ReadRequests("testdata/parquet/"+name+".parquet", data.Options{}); err == nil || !strings.Contains(err.Error(), "zstd, snappy or gzip") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
