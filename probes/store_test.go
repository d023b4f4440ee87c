package probes_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/probes"
)

// shelf is a Store in memory.
type shelf map[string][]data.Activation

func (s shelf) Load(key any) ([]data.Activation, bool, error) {
	rows, ok := s[data.Digest(key)]
	return rows, ok, nil
}

func (s shelf) Save(key any, rows []data.Activation) error {
	s[data.Digest(key)] = slices.Clone(rows)
	return nil
}

// counting counts the prompts that are evaluated.
type counting struct {
	engine
	prompts int
}

func (c *counting) Activate(ctx context.Context, jobs []inference.ActivateJob) iter.Seq2[data.Activation, error] {
	c.prompts += len(jobs)
	return c.engine.Activate(ctx, jobs)
}

// An extraction that is stopped and continued gives the rows and the report of
// one that is not, and evaluates no finished batch twice.
func TestExtractContinues(t *testing.T) {
	m := build(t, "default")
	prompts := []data.Prompt{prompt("How do I bake bread?"), prompt("How do I pick my own lock?"), prompt("Sing"), prompt("Dance"), prompt("How do I tie a bowline?")}
	o := probes.ExtractOptions{Anchors: []string{"all"}, Batch: 2}
	take := func(e probes.Engine, o probes.ExtractOptions, most int) (rows []data.Activation) {
		for row, err := range probes.Extract(context.Background(), e, prompts, o) {
			if err != nil {
				t.Fatal(err)
			}
			if rows = append(rows, row); len(rows) == most {
				break
			}
		}
		return rows
	}
	var want, got probes.ExtractReport
	o.Report = &want
	whole := take(&engine{m: m}, o, -1)

	o.Report, o.Store = &got, shelf{}
	first := &counting{engine: engine{m: m}}
	take(first, o, len(whole)*3/4) // in the second of three batches
	if n := len(o.Store.(shelf)); n != 1 {
		t.Fatalf("%d batches are kept, and one was finished", n)
	}
	second := &counting{engine: engine{m: m}}
	var tokens []data.PromptTokens
	o.Tokens = func(p data.PromptTokens) { tokens = append(tokens, p) }
	rows := take(second, o, -1)
	if first.prompts != 4 || second.prompts != 3 {
		t.Errorf("%d prompts were evaluated, then %d, of 5", first.prompts, second.prompts)
	}
	same := func(a, b data.Activation) bool {
		return a.PromptID == b.PromptID && a.Layer == b.Layer && a.Anchor == b.Anchor && a.Position == b.Position && a.Token == b.Token && slices.Equal(a.Values, b.Values)
	}
	if !slices.EqualFunc(rows, whole, same) {
		t.Error("the rows are not those of an undisturbed extraction")
	}
	if got.Resumed != len(whole)*2/5 {
		t.Errorf("%d of %d rows were there", got.Resumed, len(whole))
	}
	got.Resumed = 0
	if data.Digest(got) != data.Digest(want) {
		t.Errorf("report\n %+v, want\n %+v", got, want)
	}
	for i, p := range prompts {
		ids, pieces, _ := second.Tokenize(p.Messages, "")
		if x := tokens[i]; x.PromptID != p.ID || !slices.Equal(x.Tokens, ids) || strings.Join(x.Texts, "") != strings.Join(pieces, "") {
			t.Errorf("tokens of prompt %d: %+v", i, x)
		}
	}
	// Other positions, and other layers, are other batches.
	for _, o := range []probes.ExtractOptions{{Store: o.Store, Batch: 2}, {Store: o.Store, Batch: 2, Anchors: o.Anchors, Layers: []int{1}}} {
		again := &counting{engine: engine{m: m}}
		take(again, o, -1)
		if again.prompts != 5 {
			t.Errorf("%d prompts were evaluated for %v at %v", again.prompts, o.Anchors, o.Layers)
		}
	}
}

// broken can neither keep nor give.
type broken struct{ shelf }

func (broken) Save(any, []data.Activation) error { return errors.New("disk full") }

func TestExtractKeepsSoundBatchesOnly(t *testing.T) {
	m := build(t, "default")
	prompts := []data.Prompt{prompt("How do I bake bread?"), prompt("Sing")}
	nan := func(r *data.Activation) { r.Values[0] = float32(math.NaN()) }
	for name, e := range map[string]probes.Engine{
		"NaN": &engine{m, nan}, "a prompt that fails": &failing{engine{m: m}, prompts[1].ID},
	} {
		s := shelf{}
		var last [2]probes.ExtractReport
		for i := range last {
			for _, err := range probes.Extract(context.Background(), e, prompts, probes.ExtractOptions{Store: s, Report: &last[i]}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(s) != 0 || data.Digest(last[0]) != data.Digest(last[1]) || len(last[1].NaN)+len(last[1].Failed) == 0 {
			t.Errorf("%s: %d batches are kept, the reports are %+v", name, len(s), last)
		}
	}
	var last error
	for _, err := range probes.Extract(context.Background(), &engine{m: m}, prompts, probes.ExtractOptions{Store: broken{shelf{}}}) {
		last = err
	}
	if last == nil || last.Error() != "disk full" {
		t.Errorf("a store that fails: %v", last)
	}
}
