package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits of what is read from outside. A value above them is refused with its
// line, never cut.
const (
	maxLine = 64 << 20 // a line of JSON, a record of CSV
	maxJSON = 1 << 30  // a JSON file
	maxText = 1 << 20  // the text of one request, with its conversation and attributes
)

// A lineError is a fault of an input file at a line.
type lineError struct {
	line int // from 1; 0 for the file as a whole
	what string
}

func (e *lineError) Error() string {
	if e.line == 0 {
		return e.what
	}
	return fmt.Sprintf("line %d: %s", e.line, e.what)
}

// A lineReader reads lines of UTF-8 without NUL, each with its end, and counts
// them.
type lineReader struct {
	r    *bufio.Reader
	line int // number of the last line read
	buf  []byte
}

// next returns the next line, valid until the next call. Used is what the
// caller holds already of the same record, and counts towards the limit.
func (l *lineReader) next(used int) ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if used+len(l.buf)+len(part) > maxLine {
			return nil, &lineError{l.line + 1, fmt.Sprintf("it is longer than %d bytes; is a quote not closed, or the format another one?", maxLine)}
		}
		if err == nil && len(l.buf) == 0 {
			return l.check(part)
		}
		l.buf = append(l.buf, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == io.EOF && len(l.buf) > 0 {
			err = nil
		}
		if err != nil {
			return nil, err
		}
		return l.check(l.buf)
	}
}

func (l *lineReader) check(line []byte) ([]byte, error) {
	l.line++
	if l.line == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, &lineError{l.line, "it has a NUL byte; if the file is UTF-16, save it as UTF-8"}
	}
	if !utf8.Valid(line) {
		at := 0
		for rest := line; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
			rest = rest[n:]
		}
		return nil, &lineError{l.line, fmt.Sprintf("byte %d is not UTF-8; save the file as UTF-8", at+1)}
	}
	return line, nil
}

// A csvReader reads comma-separated values as RFC 4180 has them, and keeps
// cells byte for byte: line ends inside quotes stay as they are, which
// encoding/csv changes.
type csvReader struct {
	lines lineReader
	comma byte
	cells []string
}

// next returns the cells of the next record, valid until the next call, and
// the line it starts on. An empty line is one empty cell.
func (c *csvReader) next() (cells []string, line int, err error) {
	b, err := c.lines.next(0)
	if err != nil {
		return nil, 0, err
	}
	line = c.lines.line
	c.cells = c.cells[:0]
	if bytes.IndexByte(b, '"') < 0 {
		for s := string(trimEnd(b)); ; {
			cell, rest, more := strings.Cut(s, string(rune(c.comma)))
			c.cells = append(c.cells, cell)
			if !more {
				return c.cells, line, nil
			}
			s = rest
		}
	}
	// The line is copied: a quoted cell may read on into the next.
	rest := bytes.Clone(b)
	used := len(rest)
	for {
		if len(rest) == 0 || rest[0] != '"' {
			plain := trimEnd(rest)
			i := bytes.IndexByte(plain, c.comma)
			if i < 0 {
				c.cells = append(c.cells, string(plain))
				return c.cells, line, nil
			}
			c.cells = append(c.cells, string(plain[:i]))
			rest = rest[i+1:]
			continue
		}
		var cell []byte
		opened := c.lines.line
		rest = rest[1:]
		for {
			i := bytes.IndexByte(rest, '"')
			if i < 0 {
				cell = append(cell, rest...)
				b, err := c.lines.next(used)
				if err == io.EOF {
					return nil, 0, &lineError{opened, "a quote opens a cell and is not closed before the file ends"}
				}
				if err != nil {
					return nil, 0, err
				}
				rest = bytes.Clone(b)
				used += len(rest)
				continue
			}
			cell = append(cell, rest[:i]...)
			rest = rest[i+1:]
			if len(rest) == 0 || rest[0] != '"' {
				break
			}
			cell = append(cell, '"')
			rest = rest[1:]
		}
		c.cells = append(c.cells, string(cell))
		switch {
		case len(trimEnd(rest)) == 0:
			return c.cells, line, nil
		case rest[0] == c.comma:
			rest = rest[1:]
		default:
			return nil, 0, &lineError{c.lines.line, "text follows a closing quote; a quote inside a quoted cell is written twice"}
		}
	}
}

// trimEnd takes off the end of a line.
func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
