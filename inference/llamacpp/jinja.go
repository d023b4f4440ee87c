package llamacpp

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"time"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// Limits of a chat template. It is a program from outside: the interpreter has no
// limit of its own. What real templates need is far below (a loop over the
// messages, some with a second one inside).
const (
	maxTemplateSource = 1 << 20          // bytes
	maxTemplateSteps  = 300_000          // turns of all loops and calls of macros together
	maxTemplateDepth  = 200              // macros that call macros
	maxTemplateRange  = 100_000          // numbers of one range()
	maxTemplateTime   = 10 * time.Second // of one rendering
	maxTemplateHeap   = 512 << 20        // bytes that memory may grow by, as seen at a step
	maxTemplateText   = 64 << 20         // bytes of the result
)

// errRunaway is the kind of the error for a template that goes beyond its limits.
var errRunaway = errors.New("the template does not come to an end, or is no chat template")

// A budget counts what one rendering has used. Templates are given its methods as
// functions, which prepare calls in every loop and macro.
type budget struct {
	steps, depth int
	start        time.Time
	heap         uint64
	sample       []metrics.Sample
}

func newBudget() *budget {
	b := &budget{start: time.Now(), sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}}
	b.heap = b.used()
	return b
}

// used returns the bytes of the heap.
func (b *budget) used() uint64 {
	metrics.Read(b.sample)
	return b.sample[0].Value.Uint64()
}

func (b *budget) step([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	b.steps++
	switch {
	case b.steps > maxTemplateSteps:
		return jinja.Undefined(), fmt.Errorf("%d turns of loops: %w", maxTemplateSteps, errRunaway)
	case time.Since(b.start) > maxTemplateTime:
		return jinja.Undefined(), fmt.Errorf("%v of rendering: %w", maxTemplateTime, errRunaway)
	case b.used() > b.heap+maxTemplateHeap:
		return jinja.Undefined(), fmt.Errorf("more than %d MiB of memory: %w", maxTemplateHeap>>20, errRunaway)
	}
	return jinja.Undefined(), nil
}

func (b *budget) enter(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
	if b.depth++; b.depth > maxTemplateDepth {
		return jinja.Undefined(), fmt.Errorf("%d macros that call each other: %w", maxTemplateDepth, errRunaway)
	}
	return b.step(args, named)
}

func (b *budget) leave([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	b.depth--
	return jinja.Undefined(), nil
}

// watch ends the process if a rendering takes far too long or too much memory
// within one step, where nothing can stop the interpreter: a text repeated ten
// thousand million times, say. An engine lives in a process of its own, whose end
// costs a prompt; the machine's memory would cost more.
func (b *budget) watch() (stop func()) {
	w := &budget{start: b.start, heap: b.heap, sample: []metrics.Sample{{Name: b.sample[0].Name}}}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticks.C:
			}
			if time.Since(w.start) > 3*maxTemplateTime || w.used() > w.heap+4*maxTemplateHeap {
				panic("chat template: one expression takes too much time or memory; give another template with --chat-template")
			}
		}
	}()
	return func() { close(done); <-ended }
}

// boundedRange is Jinja's range() with an end.
func boundedRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	start, stop, step := int64(0), int64(0), int64(1)
	for _, a := range args {
		if !a.IsInt() {
			return jinja.Undefined(), errors.New("range: its arguments are whole numbers")
		}
	}
	switch len(args) {
	case 1:
		stop = args[0].AsInt()
	case 2:
		start, stop = args[0].AsInt(), args[1].AsInt()
	case 3:
		start, stop, step = args[0].AsInt(), args[1].AsInt(), args[2].AsInt()
	default:
		return jinja.Undefined(), fmt.Errorf("range: 1 to 3 arguments, not %d", len(args))
	}
	if step == 0 {
		return jinja.Undefined(), errors.New("range: its step is zero")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) == maxTemplateRange {
			return jinja.Undefined(), fmt.Errorf("range of more than %d numbers: %w", maxTemplateRange, errRunaway)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}

// A piece is a part of a template's source.
type piece struct {
	kind        byte // 't' text, 'r' raw text, '{' expression, '%' statement, '#' comment
	text        string
	left, right byte // '-', '+' or 0: the marks of whitespace control
}

// prepare rewrites a template's source for the interpreter.
//
// It applies the whitespace control of Jinja with trim_blocks and lstrip_blocks,
// under which chat templates are written (Transformers' apply_chat_template and
// llama.cpp set both), and drops comments: the interpreter knows neither setting,
// and its own "-" reaches past the next tag. And it calls the budget's functions in
// each loop and macro.
//
// Rules: Jinja 3.1, lexer.py (Lexer.tokeniter).
func prepare(source string) (string, error) {
	if len(source) > maxTemplateSource {
		return "", fmt.Errorf("it has %d bytes, and up to %d are read", len(source), maxTemplateSource)
	}
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	pieces, err := cut(strings.TrimSuffix(source, "\n"))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i := range pieces {
		p := &pieces[i]
		if p.kind != 't' && p.kind != 'r' {
			writeTag(&out, p)
			continue
		}
		text, lineStart := p.text, true
		if i > 0 {
			var consumed string
			text, consumed = trimAfter(&pieces[i-1], text)
			lineStart = strings.HasSuffix(consumed, "\n")
		}
		if i+1 < len(pieces) {
			text = trimBefore(&pieces[i+1], text, lineStart)
		}
		switch {
		case p.kind == 'r':
			writeLiteral(&out, text)
		case strings.HasSuffix(text, "{"): // it would make another tag of the next one
			out.WriteString(text[:len(text)-1])
			writeLiteral(&out, "{")
		default:
			out.WriteString(text)
		}
	}
	return out.String(), nil
}

// trimAfter takes away what the tag before a text takes.
func trimAfter(tag *piece, text string) (rest, consumed string) {
	switch {
	case tag.right == '-':
		rest = strings.TrimLeftFunc(text, unicode.IsSpace)
	case tag.right == 0 && tag.kind != '{' && !isRaw(tag, "raw"):
		rest = strings.TrimPrefix(text, "\n")
	default:
		rest = text
	}
	return rest, text[:len(text)-len(rest)]
}

// trimBefore takes away what the tag after a text takes.
func trimBefore(tag *piece, text string, lineStart bool) string {
	switch {
	case tag.left == '-':
		return strings.TrimRightFunc(text, unicode.IsSpace)
	case tag.left == '+' || tag.kind == '{':
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || lineStart) && strings.TrimSpace(text[line:]) == "" {
		return text[:line]
	}
	return text
}

func isRaw(p *piece, word string) bool {
	return p.kind == '%' && strings.TrimSpace(p.text) == word
}

// writeTag writes a tag without marks of whitespace control.
func writeTag(out *strings.Builder, p *piece) {
	switch {
	case p.kind == '#' || isRaw(p, "raw") || isRaw(p, "endraw"):
		return
	case p.kind == '{':
		out.WriteString("{{ " + p.text + " }}")
		return
	}
	tag := "{% " + p.text + " %}"
	switch keyword(p.text) {
	case "for":
		out.WriteString(tag + "{% set demur_budget = demur_step() %}")
	case "macro", "call":
		out.WriteString(tag + "{% set demur_budget = demur_enter() %}")
	case "endmacro", "endcall":
		out.WriteString("{% set demur_budget = demur_leave() %}" + tag)
	default:
		out.WriteString(tag)
	}
}

// keyword returns the first word of a statement.
func keyword(statement string) string {
	statement = strings.TrimSpace(statement)
	if i := strings.IndexFunc(statement, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' }); i >= 0 {
		return statement[:i]
	}
	return statement
}

// writeLiteral writes text as an expression.
func writeLiteral(out *strings.Builder, text string) {
	out.WriteString("{{ '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "' }}")
}

// cut cuts a template's source into its pieces.
func cut(source string) ([]piece, error) {
	var pieces []piece
	text := func(s string, kind byte) {
		if s != "" {
			pieces = append(pieces, piece{kind: kind, text: s})
		}
	}
	for rest := source; ; {
		at := opening(rest)
		if at < 0 {
			text(rest, 't')
			return pieces, nil
		}
		text(rest[:at], 't')
		tag, n, err := readTag(rest[at:])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", 1+strings.Count(source[:len(source)-len(rest)+at], "\n"), err)
		}
		pieces = append(pieces, tag)
		rest = rest[at+n:]
		if !isRaw(&tag, "raw") {
			continue
		}
		// Raw text goes to the tag "endraw", whatever stands in it.
		for i := 0; ; i += 2 {
			j := strings.Index(rest[i:], "{%")
			if j < 0 {
				return nil, errors.New("raw text without an end")
			}
			i += j
			if end, n, err := readTag(rest[i:]); err == nil && isRaw(&end, "endraw") {
				text(rest[:i], 'r')
				pieces = append(pieces, end)
				rest = rest[i+n:]
				break
			}
		}
	}
}

// opening returns where the next tag begins, or −1.
func opening(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// readTag reads the tag at the beginning of s, and returns its length. Closing
// marks within quotes or brackets do not close it; a comment knows neither.
func readTag(s string) (piece, int, error) {
	p := piece{kind: s[1]}
	at := 2
	if at < len(s) && (s[at] == '-' || s[at] == '+') {
		p.left = s[at]
		at++
	}
	closing := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[p.kind]
	var inner strings.Builder
	depth := 0
	for at < len(s) {
		c := s[at]
		if depth <= 0 || p.kind == '#' {
			mark := byte(0)
			if c == '-' || c == '+' && p.kind != '{' {
				mark = c
			}
			switch {
			case strings.HasPrefix(s[at:], closing):
				p.text = inner.String()
				return p, at + 2, nil
			case mark != 0 && strings.HasPrefix(s[at+1:], closing):
				p.text, p.right = inner.String(), mark
				return p, at + 3, nil
			}
		}
		switch {
		case p.kind == '#':
		case c == '\'' || c == '"':
			n := quoted(s[at:])
			inner.WriteString(s[at : at+n])
			at += n
			continue
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
			if c == '}' && strings.HasSuffix(inner.String(), "}") {
				inner.WriteByte(' ') // "}}" of nested dicts would close the tag for the interpreter
			}
		}
		inner.WriteByte(c)
		at++
	}
	return p, 0, fmt.Errorf("the tag %.20q is not closed", s)
}

// quoted returns the length of the quoted text at the beginning of s.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}
