package probes_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"demur/data"
	"demur/probes"
)

func TestCollect(t *testing.T) {
	row := func(prompt string, layer int, anchor string, position int, values ...float32) data.Activation {
		return data.Activation{PromptID: prompt, Layer: layer, Anchor: anchor, Position: position, Values: values}
	}
	// As tables of layers give them: layer by layer, the later one first.
	rows := []data.Activation{
		row("a", 1, probes.Inst, -3, 1, 2), row("b", 1, probes.Inst, -4, 3, 4), row("c", 1, probes.Inst, -3, 5, 6),
		row("a", 0, probes.Inst, -3, 7, 8), row("b", 0, probes.Inst, -4, 9, 10),
		row("a", 0, probes.Post, -1, 11, 12), row("b", 0, probes.Post, -1, 13, 14), row("c", 0, probes.Post, -1, 15, 16),
	}
	s, missing, err := probes.Collect(rowsOf(rows...))
	if err != nil {
		t.Fatal(err)
	}
	want := []probes.Site{{Layer: 0, Anchor: probes.Inst}, {Layer: 1, Anchor: probes.Inst}, {Layer: 0, Anchor: probes.Post}}
	if !slices.Equal(s.Sites(), want) || !slices.Equal(s.Prompts(), []string{"a", "b"}) || !slices.Equal(missing, []string{"c"}) || s.Width() != 2 {
		t.Errorf("sites %v, prompts %v, missing %v", s.Sites(), s.Prompts(), missing)
	}
	for _, r := range rows {
		got := s.Values(r.PromptID, probes.Site{Layer: r.Layer, Anchor: r.Anchor})
		if r.PromptID == "c" && got != nil || r.PromptID != "c" && !slices.Equal(got, r.Values) {
			t.Errorf("%s at %d %s: %v, want %v", r.PromptID, r.Layer, r.Anchor, got, r.Values)
		}
	}
	if v := s.Renamed(map[string]string{"a": "x"}); !slices.Equal(v.Values("x", want[0]), []float32{7, 8}) || v.Values("a", want[0]) != nil {
		t.Error("states under another name")
	}
	for name, bad := range map[string][]data.Activation{
		"twice":     {rows[0], rows[0]},
		"width":     {rows[0], row("b", 1, probes.Inst, -3, 1)},
		"no values": {row("b", 1, probes.Inst, -3)},
		"NaN":       {row("b", 1, probes.Inst, -3, float32(math.NaN()))},
	} {
		if _, _, err := probes.Collect(rowsOf(bad...)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	broken := errors.New("disk")
	_, _, err = probes.Collect(func(yield func(data.Activation, error) bool) { yield(data.Activation{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if s, _, err := probes.Collect(rowsOf[data.Activation]()); err != nil || len(s.Prompts()) != 0 {
		t.Errorf("no rows: %v", err)
	}
}
