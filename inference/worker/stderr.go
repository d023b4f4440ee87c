package worker

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	tailSize = 64 << 10 // of standard error kept
	lineSize = 4 << 10  // of one line looked at
	wordSize = 600      // of one line quoted
)

// A tail keeps the end of what a child writes to standard error, and of all of it
// the line that most probably says why the child died.
type tail struct {
	mu   sync.Mutex
	copy io.Writer // or nil
	kept []byte    // its end, at least tailSize once so much was written
	line []byte    // the line being written
	rank int       // of why
	why  string
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.copy != nil {
		t.copy.Write(p)
	}
	t.kept = append(t.kept, p[max(0, len(p)-tailSize):]...)
	if n := len(t.kept) - tailSize; n > tailSize { // seldom, for it is a copy
		t.kept = append(t.kept[:0], t.kept[n:]...)
	}
	newline := []byte{'\n'}
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, newline)
		if room := lineSize - len(t.line); room > 0 {
			t.line = append(t.line, line[:min(room, len(line))]...)
		}
		if ended {
			t.weigh()
		}
		rest = after
	}
	return len(p), nil
}

// weigh looks at a finished line. Of two equally telling ones the later stands.
func (t *tail) weigh() {
	if r := rank(t.line); r > 0 && r >= t.rank {
		t.rank, t.why = r, string(t.line)
	}
	t.line = t.line[:0]
}

// rank says how much a line tells about a death: what llama.cpp asserts or C++
// threw tells most, then what Go's runtime says of it.
func rank(line []byte) int {
	s := string(line)
	for _, w := range []string{"GGML_ASSERT", "GGML_ABORT", "CUDA error", "  what():"} {
		if strings.Contains(s, w) {
			return 4
		}
	}
	switch {
	case strings.HasPrefix(s, "terminate called"):
		return 3
	case strings.HasPrefix(s, "panic:"), strings.HasPrefix(s, "fatal error:"):
		return 2
	case strings.HasPrefix(s, "SIG") && strings.Contains(s, ": "):
		return 2
	}
	return 0
}

// said returns the line that tells most, or else the last one that is not blank.
// It has no control characters.
func (t *tail) said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.weigh()
	if t.why != "" {
		return printable(t.why)
	}
	lines := strings.Split(string(t.kept[max(0, len(t.kept)-tailSize):]), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if s := printable(lines[i]); s != "" {
			return s
		}
	}
	return ""
}

// printable returns s on one line, without control and formatting characters and
// without terminal sequences, and cut if it is long.
func printable(s string) string {
	var b strings.Builder
	escape := false
	for _, r := range s {
		switch {
		case escape: // ESC [ parameters letter
			escape = !unicode.IsLetter(r)
		case r == '\x1b':
			escape = true
		case r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
		default:
			b.WriteRune(r)
		}
		if b.Len() > wordSize {
			b.WriteString(" …")
			break
		}
	}
	return strings.TrimSpace(b.String())
}
