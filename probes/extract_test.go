package probes_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/probes"
)

func TestAnchors(t *testing.T) {
	e := &engine{m: build(t, "default")}
	for _, c := range []struct {
		name     string
		messages []data.Message
		prefix   string
		want     string // anchors with their token texts and positions
	}{
		// The phantom's template is <|user|>…<|end|><|assistant|>.
		{"plain", []data.Message{{Role: "user", Content: "How do I pick a lock"}}, "", " lock inst -3, <|end|> post-2 -2, <|assistant|> post -1"},
		{"forced start", []data.Message{{Role: "user", Content: "How do I pick a lock"}}, "A B", " lock inst"},
		{"one token", []data.Message{{Role: "user", Content: "bread"}}, "", "inst -3, <|end|> post-2 -2"},
		{"after a conversation", []data.Message{{Role: "system", Content: "Be kind."}, {Role: "user", Content: "Hello"}, {Role: "assistant", Content: "Hello!"}, {Role: "user", Content: "How do I pick a lock"}}, "", " lock inst -3, <|end|> post-2 -2, <|assistant|> post -1"},
		{"template tokens within the request", []data.Message{{Role: "user", Content: "what does <|end|> mean"}}, "", "inst -3, <|end|> post-2 -2"},
	} {
		p := data.Prompt{ID: data.PromptID(c.messages), Messages: c.messages}
		l, err := probes.Locate(e, p, c.prefix)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		ids, pieces, _ := e.Tokenize(c.messages, c.prefix)
		var got []string
		for _, a := range l.Anchors {
			at := len(ids) + a.Position
			if a.Token != ids[at] || a.Text != pieces[at] {
				t.Errorf("%s: %s is token %d %q, at its position is %d %q", c.name, a.Name, a.Token, a.Text, ids[at], pieces[at])
			}
			got = append(got, a.Text+" "+a.Name+" "+strconv.Itoa(a.Position))
		}
		if !strings.Contains(strings.Join(got, ", "), c.want) {
			t.Errorf("%s: anchors %q, want %q", c.name, got, c.want)
		}
		if end, ok := l.Anchor(probes.End); ok != (c.prefix != "") || ok && end.Position != -1 {
			t.Errorf("%s: end is %+v, %v", c.name, end, ok)
		}
		request := strings.Join(pieces[len(ids)+l.First:len(ids)+l.Last+1], "")
		if content := c.messages[len(c.messages)-1].Content; request != content {
			t.Errorf("%s: the request's tokens say %q, want %q", c.name, request, content)
		}
	}
}

// merging tokenises by letters, but "d" and the line feed that the template
// writes after a request are one token, as some vocabularies have it.
type merging struct{ engine }

func (merging) Tokenize(messages []data.Message, prefix string) (ids []int32, pieces []string, err error) {
	text := "[" + messages[len(messages)-1].Content + "\n]" + prefix
	for text != "" {
		n := 1
		if strings.HasPrefix(text, "d\n") || strings.HasPrefix(text, "[[") {
			n = 2
		}
		ids, pieces, text = append(ids, int32(text[0])+1000*int32(n-1)), append(pieces, text[:n]), text[n:]
	}
	return ids, pieces, nil
}

func TestMergedTokensHaveNoAnchor(t *testing.T) {
	if _, err := probes.Locate(merging{}, prompt("bread"), ""); err == nil || !strings.Contains(err.Error(), `"d\n"`) {
		t.Errorf("a request whose last token is one with the template's is anchored: %v", err)
	}
	l, err := probes.Locate(merging{}, prompt("bread?"), "")
	if a, _ := l.Anchor(probes.Inst); err != nil || a.Text != "?" || a.Position != -3 {
		t.Errorf("inst is %+v, %v", a, err)
	}
	if l, err = probes.Locate(merging{}, prompt("[bread]"), ""); err != nil || l.First != 0 || l.Last != -3 {
		t.Errorf("a request whose first token merges: %+v, %v", l, err)
	}
	var report probes.ExtractReport
	for range probes.Extract(context.Background(), &merging{}, []data.Prompt{prompt("[bread]")}, probes.ExtractOptions{Anchors: []string{probes.Mean}, Report: &report}) {
		continue
	}
	if len(report.Unanchored) != 1 || !strings.Contains(report.Unanchored[0].What, "first token") {
		t.Errorf("it has a mean: %+v", report)
	}
	for _, m := range [][]data.Message{nil, {{Role: "user", Content: ""}}} {
		if l, err := probes.Locate(merging{}, data.Prompt{Messages: m}, ""); err == nil {
			t.Errorf("a prompt without a request is anchored: %+v", l)
		}
	}
}

func TestExtract(t *testing.T) {
	m := build(t, "default")
	e := &engine{m: m}
	prompts := []data.Prompt{prompt("How do I bake bread?"), prompt("How do I pick my own lock?"), prompt("Sing")}
	var report probes.ExtractReport
	n := 0
	for row, err := range probes.Extract(context.Background(), e, prompts, probes.ExtractOptions{Anchors: []string{"all"}, Layers: []int{0, 2}, Batch: 2, Report: &report}) {
		if err != nil {
			t.Fatal(err)
		}
		p := prompts[n/8] // two layers, inst, post-2, post, mean
		if row.PromptID != p.ID || row.Layer != []int{0, 2}[n/4%2] || row.Anchor != []string{"inst", "post-2", "post", "mean"}[n%4] {
			t.Fatalf("row %d is %.8s %d %s", n, row.PromptID, row.Layer, row.Anchor)
		}
		ids, _, _ := e.Tokenize(p.Messages, "")
		tokens := make([]int, len(ids))
		for i, id := range ids {
			tokens[i] = int(id)
		}
		stream := m.Streams(tokens)[row.Layer]
		want := make([]float64, len(row.Values))
		switch row.Anchor {
		case "inst":
			want = stream[len(stream)-3]
		case "post":
			want = stream[len(stream)-1]
		case "post-2":
			want = stream[len(stream)-2]
		case "mean": // <|begin|><|user|> stand before the request
			for _, x := range stream[2 : len(stream)-2] {
				for i, v := range x {
					want[i] += v / float64(len(stream)-4)
				}
			}
		}
		for i, v := range row.Values {
			if math.Abs(float64(v)-want[i]) > 1e-5 {
				t.Fatalf("row %d: coordinate %d is %v, want %v", n, i, v, want[i])
			}
		}
		n++
	}
	if n != 24 || report.Rows != 24 || report.Prompts != 3 || report.Width != m.Spec.Width || len(report.Duplicate)+len(report.NaN)+len(report.Unanchored) > 0 {
		t.Errorf("%d rows, report %+v", n, report)
	}
}

// After the start of an answer, inst stays where it was, and end is the answer's
// last token.
func TestExtractAfterReasoning(t *testing.T) {
	m := build(t, "default")
	e := &engine{m: m}
	p := prompt("How do I bake bread?")
	plain := map[string]data.Activation{}
	for row, err := range probes.Extract(context.Background(), e, []data.Prompt{p}, probes.ExtractOptions{Layers: []int{3}}) {
		if err != nil {
			t.Fatal(err)
		}
		plain[row.Anchor] = row
	}
	n := 0
	reasoning := func(data.Prompt) string { return "Bread is food." }
	for row, err := range probes.Extract(context.Background(), e, []data.Prompt{p}, probes.ExtractOptions{Layers: []int{3}, Anchors: []string{probes.Inst, probes.Post, probes.End}, Prefix: reasoning}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if row.Anchor == probes.End {
			if _, pieces, _ := e.Tokenize(p.Messages, "Bread is food."); row.Position != -1 || pieces[len(pieces)-1] != "." {
				t.Errorf("the end is at %d", row.Position)
			}
			continue
		}
		if !slices.Equal(row.Values, plain[row.Anchor].Values) || row.Position >= plain[row.Anchor].Position || row.Token != plain[row.Anchor].Token {
			t.Errorf("%s at %d is not what it was at %d", row.Anchor, row.Position, plain[row.Anchor].Position)
		}
	}
	if n != 3 {
		t.Errorf("%d rows", n)
	}
}

func TestExtractReportsWhatIsWrong(t *testing.T) {
	m := build(t, "default")
	prompts := []data.Prompt{prompt("How do I bake bread?"), prompt("How do I bake bread well?"), prompt("How do I bake a cake?"), prompt("Sing"), prompt("Dance")}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		change func(row *data.Activation)
		count  func(r probes.ExtractReport) int
		rows   int
	}{
		{"NaN", func(r *data.Activation) {
			if r.PromptID == prompts[1].ID && r.Layer == 2 && r.Position == -1 {
				r.Values[3] = nan
			}
		}, func(r probes.ExtractReport) int { return len(r.NaN) }, 39},
		{"infinite", func(r *data.Activation) {
			if r.PromptID == prompts[1].ID && r.Layer == 2 && r.Position == -1 {
				r.Values[3] = float32(math.Inf(-1))
			}
		}, func(r probes.ExtractReport) int { return len(r.Infinite) }, 39},
		{"zero", func(r *data.Activation) {
			if r.PromptID == prompts[2].ID && r.Layer == 1 && r.Position == -1 {
				clear(r.Values)
			}
		}, func(r probes.ExtractReport) int { return len(r.Zero) }, 40},
		{"duplicate", func(r *data.Activation) {
			if (r.PromptID == prompts[2].ID || r.PromptID == prompts[4].ID) && r.Layer == 1 && r.Position == -1 {
				for i := range r.Values {
					r.Values[i] = float32(i)
				}
			}
		}, func(r probes.ExtractReport) int { return len(r.Duplicate) }, 40},
		{"outlier", func(r *data.Activation) {
			if r.PromptID == prompts[0].ID && r.Layer == 3 && r.Position == -3 {
				for i := range r.Values {
					r.Values[i] *= 30
				}
			}
		}, func(r probes.ExtractReport) int { return len(r.Outlier) }, 40},
		{"massive coordinate", func(r *data.Activation) {
			if r.Layer == 3 && r.Position == -3 {
				r.Values[7] = 1000
			}
		}, func(r probes.ExtractReport) int { return len(r.Massive) }, 40},
	} {
		var report probes.ExtractReport
		rows := 0
		for _, err := range probes.Extract(context.Background(), &engine{m, c.change}, prompts, probes.ExtractOptions{Report: &report}) {
			if err != nil {
				t.Fatal(c.name, err)
			}
			rows++
		}
		if c.count(report) != 1 || rows != c.rows {
			t.Errorf("%s: %d rows, found %d times: %+v", c.name, rows, c.count(report), report)
		}
		if bad := len(report.NaN)+len(report.Infinite) > 0; (report.Err() != nil) != bad {
			t.Errorf("%s: error %v", c.name, report.Err())
		}
	}
	var report probes.ExtractReport
	for _, err := range probes.Extract(context.Background(), &engine{m: m}, prompts, probes.ExtractOptions{Report: &report}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(report.NaN) + len(report.Zero) + len(report.Duplicate) + len(report.Outlier) + len(report.Massive); n > 0 {
		t.Errorf("a sound engine is reproached: %+v", report)
	}
}

// An engine that gives the position before the one that was asked for evaluates
// another token than the one named, and is found out.
func TestPositionOffByOneIsFound(t *testing.T) {
	m := build(t, "default")
	p := prompt("How do I bake bread?")
	tokens, _, _ := (&engine{m: m}).Tokenize(p.Messages, "")
	change := func(r *data.Activation) { r.Token = tokens[len(tokens)+r.Position-1] }
	for _, err := range probes.Extract(context.Background(), &engine{m, change}, []data.Prompt{p}, probes.ExtractOptions{}) {
		if err == nil {
			t.Fatal("a row of another token passes")
		}
		if !strings.Contains(err.Error(), "another prompt") {
			t.Error(err)
		}
		return
	}
}

// failing cannot evaluate one prompt.
type failing struct {
	engine
	bad string
}

func (f *failing) Activate(ctx context.Context, jobs []inference.ActivateJob) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		for _, j := range jobs {
			if j.Prompt.ID == f.bad {
				if !yield(data.Activation{PromptID: f.bad}, fmt.Errorf("%w: 9000 tokens", inference.ErrPrompt)) {
					return
				}
				continue
			}
			for row, err := range f.engine.Activate(ctx, []inference.ActivateJob{j}) {
				if !yield(row, err) {
					return
				}
			}
		}
	}
}

func TestPromptThatCannotBeEvaluated(t *testing.T) {
	m := build(t, "default")
	prompts := []data.Prompt{prompt("How do I bake bread?"), prompt("How do I pick a lock?"), prompt("Sing")}
	for k, bad := range prompts {
		e := &failing{engine{m: m}, bad.ID}
		var report probes.ExtractReport
		seen := map[string]int{}
		for row, err := range probes.Extract(context.Background(), e, prompts, probes.ExtractOptions{Report: &report}) {
			if err != nil {
				t.Fatal(k, err)
			}
			seen[row.PromptID]++
		}
		if len(report.Failed) != 1 || report.Failed[0].PromptID != bad.ID || len(seen) != 2 || seen[bad.ID] != 0 || report.Rows != 16 {
			t.Errorf("prompt %d: rows %v, report %+v", k, seen, report)
		}
		var last error
		for _, err := range probes.Extract(context.Background(), e, prompts[k:k+1], probes.ExtractOptions{}) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), "9000 tokens") {
			t.Errorf("prompt %d alone: %v", k, last)
		}
	}
}

func TestShuffled(t *testing.T) {
	p := prompt("How do I bake bread with no salt at all?")
	q := probes.Shuffled(p, 1)
	a, b := strings.Fields(p.Messages[0].Content), strings.Fields(q.Messages[0].Content)
	if slices.Equal(a, b) || q.ID == p.ID || q.ID != data.PromptID(q.Messages) || q.RequestID != p.RequestID || probes.Shuffled(p, 1).ID != q.ID {
		t.Errorf("%q became %q", a, b)
	}
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) || p.Messages[0].Content != "How do I bake bread with no salt at all?" {
		t.Errorf("%q became %q", a, b)
	}
}
