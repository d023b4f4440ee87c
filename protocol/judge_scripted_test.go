package protocol_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference/enginetest"
	"demur/protocol"
)

// A whole engine as judge, whatever it says: every exchange has a verdict, in
// order, with a label; what does not fit is unclear and says so; a crash and a
// cancellation end it.
func TestModelOnScriptedEngine(t *testing.T) {
	open := func(s enginetest.Script) *enginetest.Scripted {
		t.Helper()
		e, err := enginetest.Open(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	var exchanges []protocol.Exchange
	for i := range 20 {
		exchanges = append(exchanges, protocol.Exchange{TrialID: string(rune('a' + i)), Request: bread, Response: strings.Repeat("Mix, wait, bake. ", i)})
	}
	for _, s := range []enginetest.Script{{}, {NoGrammars: true}} {
		e := open(s)
		m, err := protocol.NewModel(e, protocol.ModelOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := judgeAll(m, exchanges...)
		if err != nil || len(got) != len(exchanges) {
			t.Fatalf("%d verdicts, %v", len(got), err)
		}
		again, err := judgeAll(m, exchanges...)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v.TrialID != exchanges[i].TrialID || !slices.Contains(data.Labels(), v.Label) || v.Reason == "" {
				t.Errorf("verdict %d: %+v", i, v)
			}
			if !s.NoGrammars && v.Reason != "model" && v.Reason != "empty" {
				t.Errorf("verdict %d: no label under a grammar: %s %v", i, v.Reason, v.Marks)
			}
			if s.NoGrammars && v.Label != data.Empty && v.Reason != "unparsed" {
				t.Errorf("verdict %d: prose was read as %s", i, v.Label)
			}
			if again[i].Label != v.Label {
				t.Errorf("verdict %d: %s, then %s", i, v.Label, again[i].Label)
			}
		}
		if got[0].Label != data.Empty {
			t.Errorf("an empty response is %s", got[0].Label)
		}
	}

	// A context that the texts were not cut to.
	small := open(enginetest.Script{Context: 1000})
	m, err := protocol.NewModel(small, protocol.ModelOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	got, err := judgeAll(m, protocol.Exchange{Response: strings.Repeat("word ", 5000)}, protocol.Exchange{Response: "short"})
	if err != nil || got[0].Label != data.Unclear || got[0].Reason != "judge_"+data.ErrOverflow || got[1].Reason == got[0].Reason {
		t.Errorf("overflow: %+v, %v", got, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range m.Judge(ctx, slices.Values(exchanges)) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}
