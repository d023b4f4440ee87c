package protocol_test

import (
	"testing"

	"demur/data"
	"demur/protocol"
)

func TestCrosswalk(t *testing.T) {
	crosswalk := protocol.Crosswalk()
	if len(crosswalk) != len(data.Labels()) {
		t.Errorf("%d labels in the crosswalk, want all %d", len(crosswalk), len(data.Labels()))
	}
	// The classes that each scheme has, from the papers named at Scheme.
	classes := []struct {
		name string
		of   func(protocol.Scheme) string
		all  []string
	}{
		{"XSTest", func(s protocol.Scheme) string { return s.XSTest }, []string{"1_full_compliance", "2_full_refusal", "3_partial_refusal"}},
		{"OR-Bench", func(s protocol.Scheme) string { return s.ORBench }, []string{"direct_answer", "direct_refusal", "indirect_refusal"}},
		{"SORRY-Bench", func(s protocol.Scheme) string { return s.SORRYBench }, []string{"0", "1"}},
		{"stability", func(s protocol.Scheme) string { return s.Stability }, []string{"REFUSE", "PARTIAL", "COMPLY"}},
		{"helpfulness", func(s protocol.Scheme) string { return s.Helpfulness }, []string{"helps", "hard refusal", "deflects"}},
	}
	for _, c := range classes {
		used := map[string]bool{}
		for _, l := range data.Labels() {
			s, ok := crosswalk[l]
			if !ok {
				t.Errorf("label %s is not in the crosswalk", l)
			}
			switch got := c.of(s); l {
			case data.Empty, data.Degenerate, data.Unclear:
				if got != "" {
					t.Errorf("%s: %s is %q, want no class", c.name, l, got)
				}
			default:
				used[got] = true
			}
		}
		if len(used) != len(c.all) {
			t.Errorf("%s: classes used %v, want exactly %v", c.name, used, c.all)
		}
		for _, name := range c.all {
			if !used[name] {
				t.Errorf("%s: class %q is reached by no label", c.name, name)
			}
		}
	}
	// Rows of the reference table that need no rule.
	for l, want := range map[data.Label]protocol.Scheme{
		data.FullRefusal:    {"2_full_refusal", "direct_refusal", "0", "REFUSE", "hard refusal"},
		data.FullCompliance: {"1_full_compliance", "direct_answer", "1", "COMPLY", "helps"},
	} {
		if got := crosswalk[l]; got != want {
			t.Errorf("%s: %+v, want %+v", l, got, want)
		}
	}
}
