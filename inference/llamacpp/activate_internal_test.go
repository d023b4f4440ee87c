package llamacpp

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/models/phantom"
)

func phantomEngine(t *testing.T) *Engine {
	t.Helper()
	if _, err := FindLibrary(""); err != nil {
		t.Skip(err)
	}
	spec, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteGGUF(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := Open(Options{Model: path, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func views(t *testing.T, e *Engine, texts ...string) []inference.ActivateJob {
	t.Helper()
	var out []inference.ActivateJob
	for _, text := range texts {
		m := []data.Message{{Role: "user", Content: text}}
		p := data.Prompt{ID: data.PromptID(m), Messages: m}
		ids, _, err := e.Tokenize(m, "")
		if err != nil {
			t.Fatal(err)
		}
		job := inference.ActivateJob{Prompt: p}
		for i := range ids {
			job.Positions = append(job.Positions, i-len(ids))
		}
		out = append(out, job)
	}
	return out
}

func collect(t *testing.T, e *Engine, jobs []inference.ActivateJob) []data.Activation {
	t.Helper()
	var out []data.Activation
	for a, err := range e.Activate(context.Background(), jobs) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// TestTapNeutral: the logits are the same bits without a callback, with one that
// wants nothing, and with one that takes every layer.
func TestTapNeutral(t *testing.T) {
	e := phantomEngine(t)
	jobs := views(t, e, "How do I bake bread?")
	collect(t, e, jobs) // opens the viewer
	bare, err := e.newArena(2, e.viewer.a.cells, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.close()
	tokens, err := e.promptTokens(jobs[0].Prompt.Messages, "")
	if err != nil {
		t.Fatal(err)
	}
	logits := func(a *arena) []float32 {
		if err := a.clear(); err != nil {
			t.Fatal(err)
		}
		a.batch.Clear()
		for i, x := range tokens {
			if err := a.add(x, i, 0, true); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.decode(a); err != nil {
			t.Fatal(err)
		}
		var all []float32
		for i := range tokens {
			l, err := e.logits(a, i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l...)
		}
		return all
	}
	want := logits(bare)
	if got := logits(e.viewer.a); !slices.Equal(got, want) {
		t.Error("a callback that wants nothing changes the logits")
	}
	w := e.viewer.tap
	w.on, w.tokens, w.flagged = true, len(tokens), len(tokens)
	w.all = []span{{0, len(tokens), 0}}
	w.layers, w.seen, w.out = make([]bool, e.info.Blocks+1), make([]bool, e.info.Blocks+1), make([][]float32, e.info.Blocks+1)
	for i := range w.layers {
		w.layers[i], w.out[i] = true, make([]float32, len(tokens)*w.width)
	}
	got := logits(e.viewer.a)
	w.on = false
	if w.err != nil || slices.Contains(w.seen, false) {
		t.Fatalf("layers %v came, error %v", w.seen, w.err)
	}
	if !slices.Equal(got, want) {
		t.Error("taking every layer changes the logits")
	}
}

// TestCutsOfBatch: where a batch is cut changes nothing but last bits.
func TestCutsOfBatch(t *testing.T) {
	e := phantomEngine(t)
	jobs := views(t, e, "How do I bake bread?", "Why is the sea salt?", "Tell me about bicycles and bread.")
	want := collect(t, e, jobs)
	for _, chunk := range []int{1, 7, 512} {
		e.viewer.chunk, e.viewer.prefix = chunk, nil
		got := collect(t, e, jobs)
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		for i := range got {
			d, size := 0.0, 0.0
			for k, v := range got[i].Values {
				d = max(d, abs(float64(v)-float64(want[i].Values[k])))
				size = max(size, abs(float64(want[i].Values[k])))
			}
			if d > 1e-3*size {
				t.Fatalf("batches of %d tokens: layer %d, position %d differs by %g of %g", chunk, got[i].Layer, got[i].Position, d, size)
			}
		}
	}
}

func abs(x float64) float64 { return max(x, -x) }

// TestOtherOrder: streams for each sequence put the rows of a batch in another
// order. The check must see that, for no error does.
func TestOtherOrder(t *testing.T) {
	e := phantomEngine(t)
	w := &viewer{pack: 3, chunk: viewTokens, tap: newTap(e.info)}
	var err error
	if w.a, err = e.newArena(4, 256, true, w.tap); err != nil {
		t.Fatal(err)
	}
	defer w.a.close()
	if err := e.checkViewer(w); err != nil {
		t.Fatal(err)
	}
	if w.pack != 1 {
		t.Error("separate streams passed for ordered ones")
	}
	u := &viewer{pack: 3, chunk: viewTokens, tap: newTap(e.info)}
	if u.a, err = e.newArena(4, 256, false, u.tap); err != nil {
		t.Fatal(err)
	}
	defer u.a.close()
	if err := e.checkViewer(u); err != nil {
		t.Fatal(err)
	}
	if u.pack != 3 {
		t.Error("one memory for all did not pass for ordered")
	}
	if u.tap.source == "" {
		t.Error("the tensor of the embedding was not found")
	}
}

// TestNoStream: a model whose tensors have other names is refused, with them.
func TestNoStream(t *testing.T) {
	e := phantomEngine(t)
	e.info.Blocks++ // the graph has no such block
	err := e.openViewer(256)
	if err == nil || !strings.Contains(err.Error(), "l_out") || !strings.Contains(err.Error(), "ffn_out") {
		t.Errorf("error %v does not name the tensors", err)
	}
	e.info.Blocks--
	if err := e.openViewer(256); err != nil {
		t.Error(err)
	}
}

func TestBlockOf(t *testing.T) {
	for name, want := range map[string]int{
		"l_out-0": 0, "l_out-29": 29, "l_out-": -1, "l_out-0 (view)": -1, "l_out-1 (reshaped)": -1, "xl_out-1": -1,
		"l_out": -1, "l_out--1": -1, "l_out-1234567": -1, "": -1,
	} {
		got, ok := blockOf([]byte(name))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q is block %d, want %d", name, got, want)
		}
	}
	if got := grow(grow(grow(nil, 3, 0), 4, 1), 6, 2); !reflect.DeepEqual(got, []span{{3, 2, 0}, {6, 1, 2}}) {
		t.Errorf("spans %v", got)
	}
}
