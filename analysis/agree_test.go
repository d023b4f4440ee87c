package analysis_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"demur/analysis"
	"demur/data"
)

func rated(n int, source string, row, column data.Label) []analysis.Rated {
	var out []analysis.Rated
	for i := range n {
		out = append(out, analysis.Rated{Request: fmt.Sprint(source, row, column, i), Source: source, Row: row, Column: column})
	}
	return out
}

func concat(lists ...[]analysis.Rated) []analysis.Rated {
	var out []analysis.Rated
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func classing(t *testing.T, a analysis.Agreements, name string) analysis.ClassAgreement {
	t.Helper()
	for _, c := range a.By {
		if c.Classes == name {
			return c
		}
	}
	t.Fatalf("no classes %q", name)
	return analysis.ClassAgreement{}
}

// Values by hand. Three classes: 40 refusals of which 30 are found and 6 called
// partial, 4 compliance; 10 partial, 5 found, 5 called compliance; 50 compliances,
// 48 found, 2 called refusal. Observed 83/100, expected
// (40·32 + 10·11 + 50·57)/10,000 = 0.424, κ = 0.406/0.576.
func TestAgree(t *testing.T) {
	pairs := concat(
		rated(30, "a", data.FullRefusal, data.FullRefusal), rated(6, "a", data.FullRefusal, data.PartialRefusal), rated(4, "a", data.FullRefusal, data.FullCompliance),
		rated(5, "b", data.PartialRefusal, data.PartialCompliance), rated(5, "b", data.PartialCompliance, data.FullCompliance),
		rated(48, "b", data.FullCompliance, data.FullCompliance), rated(2, "b", data.FullCompliance, data.Deflection),
		rated(3, "b", data.FullCompliance, data.Unclear),
	)
	all := analysis.Agree("human", "rules", pairs, analysis.Resampling{N: 500, Seed: 1, Level: 0.95})
	if len(all) != 3 || all[0].Source != "" || all[1].Source != "a" || all[2].Source != "b" || all[0].Responses != 103 || all[1].Responses != 40 {
		t.Fatalf("sources %+v", all)
	}
	three := classing(t, all[0], "three")
	if three.Pairs != 100 || three.LeftOut != 3 || fmt.Sprint(three.Confusion) != "[[30 6 4] [0 5 5] [2 0 48]]" {
		t.Errorf("three classes: %d pairs, %d left out, %v", three.Pairs, three.LeftOut, three.Confusion)
	}
	near(t, "observed", *three.Agreement.Value, 0.83, 1e-12)
	near(t, "kappa", *three.Kappa.Value, 0.406/0.576, 1e-12)
	if !(*three.Kappa.Lo < *three.Kappa.Value && *three.Kappa.Value < *three.Kappa.Hi) {
		t.Errorf("interval %v", three.Kappa)
	}
	refuse := three.Each[0]
	near(t, "precision", *refuse.Precision.Value, 30.0/32, 1e-12)
	near(t, "recall", *refuse.Recall.Value, 30.0/40, 1e-12)
	near(t, "F1", *refuse.F1.Value, 60.0/72, 1e-12)
	// Strict takes full refusals alone: deflection and partial labels are compliance.
	if c := classing(t, all[0], "strict"); fmt.Sprint(c.Confusion) != "[[60 0] [10 30]]" {
		t.Errorf("strict %v", c.Confusion)
	}
	// Lenient takes deflection and partial refusals in: of 45 refused, 36 judged so.
	if c := classing(t, all[0], "lenient"); fmt.Sprint(c.Confusion) != "[[53 2] [9 36]]" {
		t.Errorf("lenient %v", c.Confusion)
	}
	if c := classing(t, all[0], "labels"); len(c.Names) != 5 || c.Confusion[3][4] != 2 || c.Confusion[2][3] != 5 {
		t.Errorf("labels %v %v", c.Names, c.Confusion)
	}
	// One class only: κ is undefined, agreement is not.
	if c := classing(t, all[1], "lenient"); c.Kappa.Value != nil && !(*c.Kappa.Value == 0) || c.Agreement.Value == nil {
		t.Errorf("one class: %+v", c)
	}
	var b bytes.Buffer
	if err := analysis.WriteAgreements(&b, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Agreement of the judge rules against human", "0.705 [", "human \\ rules", "refuse"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the tables lack %q:\n%s", want, b.String())
		}
	}
}

// The judges changed over: κ, agreement and F1 stay, the table is turned, and
// precision and recall change places. Repeating every response of a request ten
// times leaves the interval as it is: requests are the units.
func TestAgreeProperties(t *testing.T) {
	pairs := concat(
		rated(30, "", data.FullRefusal, data.FullRefusal), rated(7, "", data.FullRefusal, data.FullCompliance),
		rated(9, "", data.FullCompliance, data.PartialRefusal), rated(60, "", data.FullCompliance, data.FullCompliance),
	)
	var turned, repeated []analysis.Rated
	for _, p := range pairs {
		repeated = append(repeated, p, p, p, p, p, p, p, p, p, p)
		p.Row, p.Column = p.Column, p.Row
		turned = append(turned, p)
	}
	r := analysis.Resampling{N: 400, Seed: 2, Level: 0.95}
	a, b, c := analysis.Agree("x", "y", pairs, r)[0], analysis.Agree("y", "x", turned, r)[0], analysis.Agree("x", "y", repeated, r)[0]
	for i := range a.By {
		p, q := a.By[i], b.By[i]
		near(t, p.Classes, *q.Kappa.Value, *p.Kappa.Value, 1e-12)
		for k := range p.Each {
			if p.Each[k].F1.Value == nil {
				continue
			}
			near(t, "F1", *q.Each[k].F1.Value, *p.Each[k].F1.Value, 1e-12)
			if p.Each[k].Precision.Value != nil {
				near(t, "precision", *q.Each[k].Recall.Value, *p.Each[k].Precision.Value, 1e-12)
			}
		}
	}
	if x, y := a.By[0].Kappa, c.By[0].Kappa; math.Abs(*x.Lo-*y.Lo) > 1e-9 || math.Abs(*x.Hi-*y.Hi) > 1e-9 {
		t.Errorf("interval %v, with every response ten times %v", x, y)
	}
	if one := analysis.Agree("x", "y", pairs[:3], r)[0]; one.By[0].Agreement.Lo != nil {
		t.Errorf("an interval from %d requests", one.Requests)
	}
	if none := analysis.Agree("x", "y", nil, r); none[0].Responses != 0 || none[0].By[0].Kappa.Value != nil {
		t.Errorf("nothing rated: %+v", none)
	}
}
