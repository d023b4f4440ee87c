package llamacpp

import (
	"context"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
)

// TestNoCallbackInVain: texts are made through a callback only while one is
// needed, and control vectors do for additions.
func TestNoCallbackInVain(t *testing.T) {
	e := phantomEngine(t)
	m := []data.Message{{Role: "user", Content: "How do I bake bread?"}}
	unit := []inference.Job{{Prompt: data.Prompt{ID: data.PromptID(m), Messages: m}, Samplings: []data.Sampling{{MaxTokens: 3}}}}
	v := make([]float32, e.info.Width)
	for i := range v {
		v[i] = float32(i%7) / 100
	}
	at := func(l int) map[int][]float32 { return map[int][]float32{l: v} }
	for _, step := range []struct {
		name          string
		s             *inference.Steering
		taps, vectors bool
	}{
		{"nothing", nil, false, false},
		{"added after block 1", &inference.Steering{Add: at(1)}, false, true},
		{"added after block 0", &inference.Steering{Add: at(0)}, true, false},
		{"added after the last block", &inference.Steering{Add: at(3)}, false, true},
		{"ablated", &inference.Steering{Ablate: at(2)}, true, false},
		{"ablated and added at other blocks", &inference.Steering{Ablate: at(2), Add: at(1)}, true, true},
		{"ablated and added at one block", &inference.Steering{Ablate: at(2), Add: at(2)}, true, false},
		{"ended", nil, false, false},
	} {
		if err := e.Steer(t.Context(), step.s); err != nil {
			t.Fatal(err)
		}
		for _, err := range e.Generate(t.Context(), unit) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := e.arena.tap != nil; got != step.taps {
			t.Errorf("%s: a callback: %v, want %v", step.name, got, step.taps)
		}
		if e.arena.vectored != step.vectors {
			t.Errorf("%s: a control vector: %v, want %v", step.name, e.arena.vectored, step.vectors)
		}
	}
}

// TestChangeThatDoesNotCome: a block whose tensor is not computed is an error, not
// an answer that nothing was done to.
func TestChangeThatDoesNotCome(t *testing.T) {
	e := phantomEngine(t)
	if err := e.openViewer(256); err != nil {
		t.Fatal(err)
	}
	w := e.viewer
	edits := make([]*edit, e.info.Blocks+1)
	edits[e.info.Blocks] = &edit{add: make([]float32, e.info.Width)}
	w.a.tap.steering = &steering{edits: edits}
	w.a.tap.written = make([]bool, e.info.Blocks+1)
	err := e.look(context.Background(), w, e.trial(), 0, make([]bool, e.info.Blocks+1))
	if err == nil || !strings.Contains(err.Error(), "did not come") {
		t.Errorf("error %v", err)
	}
	if err := w.a.clear(); err != nil {
		t.Fatal(err)
	}
	// A stream of another width cannot be written.
	w.a.tap.width--
	w.a.tap.steering = &steering{edits: []*edit{{add: make([]float32, e.info.Width)}, nil, nil, nil}}
	err = e.look(context.Background(), w, e.trial(), 0, make([]bool, e.info.Blocks+1))
	if err == nil || !strings.Contains(err.Error(), "not of 63 each") {
		t.Errorf("error %v", err)
	}
}
