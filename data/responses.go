package data

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A Response is one row of a file of responses: what was asked, what was
// answered, and the row's own cells, so that it can be written again with
// columns added.
type Response struct {
	Line     int // from 1; of Parquet, the row
	Request  string
	Response string
	// Cells are the row as it stands, by column.
	Cells map[string]any
}

// ReadResponses reads the rows of a file of responses (CSV, JSONL, JSON,
// Parquet), of which two columns hold request and response. columns are the
// file's, in its order for CSV and by name for the others. A row that lacks one
// of the two columns, or has something else than text there, is an error with
// its line.
func ReadResponses(path, format, requestColumn, responseColumn string) (columns []string, rows iter.Seq2[Response, error], err error) {
	columns, err = columnsOf(path, format)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range []string{requestColumn, responseColumn} {
		if !slices.Contains(columns, c) {
			return nil, nil, fmt.Errorf("%s has no column %q; it has %s", path, c, strings.Join(columns, ", "))
		}
	}
	return columns, func(yield func(Response, error) bool) {
		in, err := openInput(path, format)
		if err != nil {
			yield(Response{}, err)
			return
		}
		defer in.Close()
		for r, err := range in.records() {
			if err != nil {
				yield(Response{}, fmt.Errorf("%s: %w", path, err))
				return
			}
			request, ok1 := cellText(r.values[requestColumn])
			response, ok2 := cellText(r.values[responseColumn])
			if !ok1 || !ok2 {
				yield(Response{}, fmt.Errorf("%s: line %d: the columns %q and %q must hold text", path, r.line, requestColumn, responseColumn))
				return
			}
			if !yield(Response{Line: r.line, Request: request, Response: response, Cells: r.values}, nil) {
				return
			}
		}
	}, nil
}

// cellText is a cell as text; an absent or null one is empty.
func cellText(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	}
	return "", false
}

// columnsOf returns the columns of a file.
func columnsOf(path, format string) ([]string, error) {
	in, err := openInput(path, format)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if in.format == formatCSV {
		return csvHeader(path, rune(in.comma))
	}
	for r, err := range in.records() {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return slices.Sorted(maps.Keys(r.values)), nil
	}
	return nil, fmt.Errorf("%s has no rows", path)
}

// csvHeader reads the first row of a CSV file.
func csvHeader(path string, comma rune) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.LazyQuotes = comma, true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: line 1: %w", path, err)
	}
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	for i, name := range head {
		head[i] = strings.TrimSpace(name)
	}
	return head, nil
}

// WriteRows writes rows of cells as CSV, or as JSON lines if jsonl is set, with
// the columns in the order given. CSV quotes as RFC 4180 wants and changes no
// text.
func WriteRows(w io.Writer, jsonl bool, columns []string, rows iter.Seq2[map[string]any, error]) error {
	if jsonl {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for row, err := range rows {
			if err != nil {
				return err
			}
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
	c := csv.NewWriter(w)
	if err := c.Write(columns); err != nil {
		return err
	}
	cells := make([]string, len(columns))
	for row, err := range rows {
		if err != nil {
			return err
		}
		for i, name := range columns {
			cells[i] = csvCell(row[name])
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func csvCell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case int:
		return strconv.Itoa(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.Trim(string(b), `"`)
}
