package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

// The formats of an input file.
const (
	formatCSV     = "csv"
	formatJSONL   = "jsonl"
	formatJSON    = "json"
	formatParquet = "parquet"
	formatText    = "text"
)

// A record is one row of an input file, whatever its format: string, float64,
// json.Number, bool, nil, []any and map[string]any by column name.
type record struct {
	line   int // from 1; of Parquet, the row
	values map[string]any
}

// An input is an open file from outside.
type input struct {
	name   string // without its folder
	format string
	comma  byte
	f      *os.File
	r      *bufio.Reader
	size   int64
}

// openInput opens a file and tells its format: by what the caller says, else by
// its first bytes, else by its name.
func openInput(path, format string) (*input, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in := &input{name: filepath.Base(path), f: f, r: bufio.NewReaderSize(f, 256<<10), comma: ','}
	if err := in.tell(format); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return in, nil
}

func (in *input) tell(format string) error {
	info, err := in.f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.New("it is a directory; name a file in it")
	}
	in.size = info.Size()
	head, err := in.r.Peek(64 << 10)
	if err != nil && err != io.EOF {
		return err
	}
	if len(head) == 0 {
		return errors.New("it is empty")
	}
	for magic, what := range map[string]string{
		"\xff\xfe": "it is UTF-16; save it as UTF-8",
		"\xfe\xff": "it is UTF-16; save it as UTF-8",
		"\x1f\x8b": "it is packed with gzip; unpack it first",
		"PK\x03":   "it is a spreadsheet or a ZIP archive; save it as CSV, or unpack it",
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return errors.New(what)
		}
	}
	ext := strings.ToLower(filepath.Ext(in.name))
	if ext == ".tsv" || ext == ".tab" {
		in.comma = '\t'
	}
	first := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case format != "":
	case bytes.HasPrefix(head, []byte("PAR1")):
		format = formatParquet
	case ext == ".csv" || ext == ".tsv" || ext == ".tab":
		format = formatCSV
	case ext == ".jsonl" || ext == ".ndjson":
		format = formatJSONL
	case ext == ".txt" || ext == ".text":
		format = formatText
	case bytes.HasPrefix(first, []byte("[")):
		format = formatJSON
	case bytes.HasPrefix(first, []byte("{")):
		// One object over several lines, or one in each line: the first line tells.
		line, _, _ := bytes.Cut(first, []byte("\n"))
		format = formatJSON
		if json.Valid(line) && ext != ".json" || json.Valid(line) && len(bytes.TrimSpace(first)) > len(line)+1 {
			format = formatJSONL
		}
	case ext == ".parquet":
		return errors.New("it is no Parquet file")
	default:
		return errors.New("its format cannot be told from its name or its beginning; say which: csv, jsonl, json, parquet or text")
	}
	if !slices.Contains([]string{formatCSV, formatJSONL, formatJSON, formatParquet, formatText}, format) {
		return fmt.Errorf("format %q is none of csv, jsonl, json, parquet and text", clip(format))
	}
	in.format = format
	return nil
}

func (in *input) Close() error { return in.f.Close() }

// records yields the rows of the file, a few in memory at a time. Each record
// is the receiver's own. The sequence ends with the first error.
func (in *input) records() iter.Seq2[record, error] {
	switch in.format {
	case formatCSV:
		return csvRecords(in.r, in.comma)
	case formatJSONL:
		return jsonlRecords(in.r)
	case formatJSON:
		if in.size > maxJSON {
			return func(yield func(record, error) bool) {
				yield(record{}, fmt.Errorf("it has %d bytes, and a JSON file is read up to %d; write it as JSONL, one object a line", in.size, maxJSON))
			}
		}
		return jsonRecords(in.r)
	case formatText:
		return textRecords(in.r)
	}
	return parquetRecords(in.f, in.size)
}

// textRecords reads a request a line. Empty lines between them are none.
func textRecords(r *bufio.Reader) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		l := lineReader{r: r}
		for {
			b, err := l.next(0)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(record{}, err)
				return
			}
			s := string(trimEnd(b))
			if strings.TrimSpace(s) == "" {
				continue
			}
			if !yield(record{l.line, map[string]any{"text": s}}, nil) {
				return
			}
		}
	}
}

// csvRecords reads comma-separated values with a header. Where the header has
// no comma but semicolons or tabs, these separate.
func csvRecords(r *bufio.Reader, comma byte) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		fail := func(line int, format string, args ...any) {
			yield(record{}, &lineError{line, fmt.Sprintf(format, args...)})
		}
		c := &csvReader{lines: lineReader{r: r}, comma: comma}
		if head, _ := r.Peek(64 << 10); comma == ',' {
			line, _, _ := bytes.Cut(head, []byte("\n"))
			for _, other := range []byte(";\t") {
				if bytes.IndexByte(line, ',') < 0 && bytes.IndexByte(line, other) >= 0 {
					c.comma = other
				}
			}
		}
		cells, line, err := c.next()
		if err == io.EOF {
			fail(0, "it has no header line")
			return
		}
		if err != nil {
			yield(record{}, err)
			return
		}
		header := slices.Clone(cells)
		seen := map[string]bool{}
		for _, name := range header {
			if strings.Contains(name, "\r") {
				fail(line, "the header has carriage returns inside; end lines with LF or CRLF")
				return
			}
			if seen[name] && name != "" {
				fail(line, "two columns are called %q; rename one", clip(name))
				return
			}
			seen[name] = true
		}
		for {
			cells, line, err := c.next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(record{}, err)
				return
			}
			if len(cells) == 1 && cells[0] == "" && len(header) > 1 {
				continue
			}
			if len(cells) != len(header) {
				fail(line, "it has %d cells and the header has %d; a cell with a separator in it needs quotes around it", len(cells), len(header))
				return
			}
			values := make(map[string]any, len(header))
			for i, name := range header {
				if _, twice := values[name]; !twice {
					values[name] = cells[i]
				}
			}
			if !yield(record{line, values}, nil) {
				return
			}
		}
	}
}

// jsonlRecords reads a JSON object, or a text, a line.
func jsonlRecords(r *bufio.Reader) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		l := lineReader{r: r}
		for {
			b, err := l.next(0)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(record{}, err)
				return
			}
			b = bytes.TrimSpace(b)
			if len(b) == 0 {
				continue
			}
			values, err := jsonValues(b)
			if err != nil {
				yield(record{}, &lineError{l.line, err.Error()})
				return
			}
			if !yield(record{l.line, values}, nil) {
				return
			}
		}
	}
}

// jsonValues reads one row: an object, or a text alone.
func jsonValues(b []byte) (map[string]any, error) {
	v, err := jsonValue(b)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case string:
		return map[string]any{"text": v}, nil
	}
	return nil, fmt.Errorf("it is %s, and neither an object nor a text", kindOf(v))
}

// jsonValue reads one JSON value. What encoding/json would change without a
// word is refused: halves of surrogate pairs become U+FFFD there.
func jsonValue(b []byte) (any, error) {
	if err := checkEscapes(b); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, jsonFault(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more follows the JSON value")
	}
	return v, nil
}

func jsonFault(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too early")
	}
	return fmt.Errorf("it is not JSON: %s", clip(strings.TrimPrefix(err.Error(), "json: ")))
}

// checkEscapes returns an error if JSON has an escape that stands for no
// character: one half of a surrogate pair alone, or NUL.
func checkEscapes(b []byte) error {
	high := false // a high half stands directly before
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			if high {
				return errors.New("half of a surrogate pair (\\ud800 to \\udfff) stands alone; it is no character")
			}
			continue
		}
		i++
		if i >= len(b) || b[i] != 'u' || i+4 >= len(b) {
			if high {
				return errors.New("half of a surrogate pair (\\ud800 to \\udfff) stands alone; it is no character")
			}
			continue
		}
		n, err := strconv.ParseUint(string(b[i+1:i+5]), 16, 32)
		if err != nil {
			continue // the decoder says so better
		}
		i += 4
		low := n >= 0xdc00 && n <= 0xdfff
		if high != low {
			return errors.New("half of a surrogate pair (\\ud800 to \\udfff) stands alone; it is no character")
		}
		high = n >= 0xd800 && n <= 0xdbff
		if n == 0 {
			return errors.New("it has a NUL character (\\u0000)")
		}
	}
	return nil
}

// jsonRecords reads a JSON file: a list of objects or texts; an object with
// such a list under one of the usual names; or an object of ids with a text, a
// list of texts, or an object each.
func jsonRecords(r *bufio.Reader) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		fail := func(line int, err error) { yield(record{}, &lineError{line, err.Error()}) }
		c := &lineCounter{r: r}
		dec := json.NewDecoder(c)
		dec.UseNumber()
		// element reads the next value and the line it ends on.
		element := func() (json.RawMessage, int, error) {
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				return nil, c.lineAt(dec.InputOffset()), jsonFault(err)
			}
			line := c.lineAt(dec.InputOffset())
			switch {
			case len(raw) > maxLine:
				return nil, line, fmt.Errorf("the value that ends here has more than %d bytes", maxLine)
			case !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0:
				return nil, line, errors.New("the value that ends here is not UTF-8; save the file as UTF-8")
			}
			return raw, line - bytes.Count(raw, []byte("\n")), nil
		}
		// list yields the elements of a list whose bracket was read.
		list := func() bool {
			for dec.More() {
				raw, line, err := element()
				if err != nil {
					fail(line, err)
					return false
				}
				values, err := jsonValues(raw)
				if err != nil {
					fail(line, err)
					return false
				}
				if !yield(record{line, values}, nil) {
					return false
				}
			}
			return true
		}
		tok, err := dec.Token()
		if err != nil {
			fail(c.lineAt(dec.InputOffset()), jsonFault(err))
			return
		}
		switch tok {
		case json.Delim('['):
			if !list() {
				return
			}
		case json.Delim('{'):
			found := false
			var loose []record // members that are no list of rows; if there is one, facts about it
			for dec.More() {
				tok, err := dec.Token()
				key, ok := tok.(string)
				if err != nil || !ok {
					fail(c.lineAt(dec.InputOffset()), jsonFault(errors.Join(err, io.ErrUnexpectedEOF)))
					return
				}
				raw, line, err := element()
				if err != nil {
					fail(line, err)
					return
				}
				if !utf8.ValidString(key) {
					fail(line, errors.New("a name is not UTF-8"))
					return
				}
				v, err := jsonValue(raw)
				if err != nil {
					fail(line, err)
					return
				}
				rows, isSet, err := jsonMember(key, v, line)
				if err != nil {
					fail(line, err)
					return
				}
				if isSet && found {
					fail(line, fmt.Errorf("it has a second list of rows, %q; put the rows of one set into a file of their own", clip(key)))
					return
				}
				if !isSet {
					loose = append(loose, rows...)
					continue
				}
				found, loose = true, nil
				for _, row := range rows {
					if !yield(row, nil) {
						return
					}
				}
			}
			for _, row := range loose {
				if found {
					break
				}
				if !yield(row, nil) {
					return
				}
			}
		default:
			fail(1, errors.New("it is neither a list nor an object"))
			return
		}
		if _, err := dec.Token(); err != nil {
			fail(c.lineAt(dec.InputOffset()), jsonFault(err))
			return
		}
		if _, err := dec.Token(); err != io.EOF {
			fail(c.lineAt(dec.InputOffset()), errors.New("more follows the JSON value; if there is one in each line, the format is jsonl"))
		}
	}
}

// Names under which sets keep their rows in one object.
var rowNames = []string{"data", "rows", "requests", "prompts", "questions", "examples", "samples", "instances", "items", "behaviors", "train", "test"}

// jsonMember reads a member of the object of a JSON file.
func jsonMember(key string, v any, line int) (rows []record, isSet bool, err error) {
	row := func(values map[string]any, variant string) {
		m := maps.Clone(values)
		if _, ok := m["request_id"]; !ok {
			m["request_id"] = key
		}
		if variant != "" {
			m["variant"] = variant
		}
		rows = append(rows, record{line, m})
	}
	switch v := v.(type) {
	case string:
		row(map[string]any{"text": v}, "")
		return rows, false, nil
	case map[string]any:
		row(v, "")
		return rows, false, nil
	case []any:
		if slices.Contains(rowNames, strings.ToLower(key)) {
			for _, e := range v {
				switch e := e.(type) {
				case map[string]any:
					rows = append(rows, record{line, e})
				case string:
					rows = append(rows, record{line, map[string]any{"text": e}})
				default:
					return nil, false, fmt.Errorf("a row of %q is %s, and neither an object nor a text", clip(key), kindOf(e))
				}
			}
			return rows, true, nil
		}
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false, fmt.Errorf("%q is a list with %s in it; a list of rows is called one of %s", clip(key), kindOf(e), strings.Join(rowNames, ", "))
			}
			variant := Base
			if i > 0 {
				variant = "v" + strconv.Itoa(i+1)
			}
			row(map[string]any{"text": s}, variant)
		}
		return rows, false, nil
	}
	return nil, false, nil // numbers and such: facts about the set
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// A lineCounter remembers where lines end, a decoder that reads ahead knows
// only offsets.
type lineCounter struct {
	r     io.Reader
	off   int64
	ends  []int64 // offsets of line ends not yet asked for
	lines int     // line ends before them
	begun bool
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if !c.begun && n >= 3 && bytes.HasPrefix(p, []byte("\xef\xbb\xbf")) {
		copy(p, "   ") // a byte order mark is no JSON; blanks are
	}
	c.begun = c.begun || n > 0
	for i, b := range p[:n] {
		if b == '\n' {
			c.ends = append(c.ends, c.off+int64(i))
		}
	}
	c.off += int64(n)
	return n, err
}

// lineAt returns the line of an offset. Offsets must not fall.
func (c *lineCounter) lineAt(offset int64) int {
	i, _ := slices.BinarySearch(c.ends, offset)
	c.lines += i
	c.ends = c.ends[i:]
	return c.lines + 1
}

// parquetRecords reads the rows of any Parquet file.
func parquetRecords(r io.ReaderAt, size int64) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		f, err := openParquet(r, size)
		if err != nil {
			yield(record{}, err)
			return
		}
		if err := checkPages(f, r); err != nil {
			yield(record{}, err)
			return
		}
		var pr *parquet.GenericReader[any]
		if err := guard(func() error { pr = parquet.NewGenericReader[any](f); return nil }); err != nil {
			yield(record{}, err)
			return
		}
		defer func() { guard(pr.Close) }()
		left := f.NumRows()
		rows := make([]any, 16)
		for line := 1; left > 0; {
			n := 0
			err := guard(func() (err error) { n, err = pr.Read(rows); return err })
			left -= int64(n)
			for _, row := range rows[:n] {
				values, err := goValues(row, line)
				if err != nil {
					yield(record{}, err)
					return
				}
				if !yield(record{line, values}, nil) {
					return
				}
				line++
			}
			switch {
			case errors.Is(err, io.EOF) && left > 0 || err == nil && n == 0:
				yield(record{}, fmt.Errorf("%d rows are missing at its end", left))
				return
			case err != nil && !errors.Is(err, io.EOF):
				yield(record{}, err)
				return
			}
		}
	}
}

// goValues makes a row of Parquet look like one of JSON.
func goValues(row any, line int) (map[string]any, error) {
	bad := false
	var plain func(v any, depth int) any
	plain = func(v any, depth int) any {
		text := func(s string) any {
			if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
				bad = true
			}
			return strings.Clone(s)
		}
		if depth > 16 {
			return nil
		}
		switch v := v.(type) {
		case nil, bool, float64:
			return v
		case string:
			return text(v)
		case []byte:
			return text(string(v))
		case *[]byte:
			if v == nil {
				return nil
			}
			return text(string(*v))
		case float32:
			return float64(v)
		case []any:
			list := make([]any, len(v))
			for i := range v {
				list[i] = plain(v[i], depth+1)
			}
			return list
		case map[string]any:
			m := make(map[string]any, len(v))
			for k, e := range v {
				m[k] = plain(e, depth+1)
			}
			return m
		}
		return json.Number(fmt.Sprint(v)) // integers of all widths; others are shown as they print
	}
	m, ok := plain(row, 0).(map[string]any)
	if !ok {
		return nil, &lineError{line, "the row is no set of columns"}
	}
	if bad {
		return nil, &lineError{line, "a text of this row is not UTF-8, or has a NUL byte"}
	}
	return m, nil
}
