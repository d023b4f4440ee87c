package protocol

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"demur/data"
)

// Panel is several judges at once: the label that more of them give than any
// other. Unclear is no vote. Where two labels tie, or no judge has one, the
// verdict is unclear.
//
// The reason of a verdict is majority, unanimous, tie or no_vote; its marks
// hold each judge's label under "judge:" and its name, and disagreement = true
// where the votes differ.
type Panel struct {
	judges []Judge
	names  []string
}

var _ Judge = (*Panel)(nil)

// panelBatch is how many exchanges each judge sees at once.
const panelBatch = 64

// NewPanel returns a panel of the judges. Without a judge it panics: that is a
// caller's bug. Judges of one name are told apart by "#2", "#3", ….
func NewPanel(judges ...Judge) *Panel {
	if len(judges) == 0 {
		panic("protocol: a panel without judges")
	}
	p := &Panel{judges: slices.Clone(judges)}
	for _, j := range judges {
		name := j.Name()
		for n := 2; slices.Contains(p.names, name); n++ {
			name = fmt.Sprintf("%s#%d", j.Name(), n)
		}
		p.names = append(p.names, name)
	}
	return p
}

// Name lists the judges: panel(rules,human).
func (p *Panel) Name() string { return "panel(" + strings.Join(p.names, ",") + ")" }

// Version lists the versions of the judges.
func (p *Panel) Version() string {
	var v []string
	for _, j := range p.judges {
		v = append(v, j.Version())
	}
	return "1(" + strings.Join(v, ",") + ")"
}

// Judge puts the exchanges to every judge, a batch at a time. If one fails, the
// panel fails: a majority of those left would be another panel's.
func (p *Panel) Judge(ctx context.Context, exchanges iter.Seq[Exchange]) iter.Seq2[data.Verdict, error] {
	return func(yield func(data.Verdict, error) bool) {
		batch := make([]Exchange, 0, panelBatch)
		flush := func() bool {
			verdicts, err := p.judge(ctx, batch)
			if err != nil {
				yield(data.Verdict{}, err)
				return false
			}
			batch = batch[:0]
			for _, v := range verdicts {
				if !yield(v, nil) {
					return false
				}
			}
			return true
		}
		for e := range exchanges {
			if batch = append(batch, e); len(batch) == panelBatch && !flush() {
				return
			}
		}
		if len(batch) > 0 {
			flush()
		}
	}
}

func (p *Panel) judge(ctx context.Context, batch []Exchange) ([]data.Verdict, error) {
	votes := make([][]data.Verdict, len(batch)) // by exchange, then by judge
	for i, j := range p.judges {
		n := 0
		for v, err := range j.Judge(ctx, slices.Values(batch)) {
			if err != nil {
				return nil, fmt.Errorf("judge %s: %w", p.names[i], err)
			}
			if n >= len(batch) {
				return nil, fmt.Errorf("judge %s: more verdicts than the %d responses", p.names[i], len(batch))
			}
			votes[n] = append(votes[n], v)
			n++
		}
		if n != len(batch) {
			return nil, errors.Join(ctx.Err(), fmt.Errorf("judge %s: %d verdicts for %d responses", p.names[i], n, len(batch)))
		}
	}
	verdicts := make([]data.Verdict, len(batch))
	for i, e := range batch {
		verdicts[i] = p.count(e, votes[i])
	}
	return verdicts, nil
}

func (p *Panel) count(e Exchange, votes []data.Verdict) data.Verdict {
	v := data.Verdict{TrialID: e.TrialID, Judge: p.Name(), JudgeVersion: p.Version(), Label: data.Unclear, Marks: map[string]string{}}
	counts := map[data.Label]int{}
	for i, vote := range votes {
		v.Marks["judge:"+p.names[i]] = string(vote.Label)
		if vote.Label != data.Unclear {
			counts[vote.Label]++
		}
	}
	best, tie := data.Unclear, false
	for _, l := range data.Labels() {
		switch n := counts[l]; {
		case n == 0:
		case best == data.Unclear || n > counts[best]:
			best, tie = l, false
		case n == counts[best]:
			tie = true
		}
	}
	if len(counts) > 1 {
		v.Marks["disagreement"] = "true"
	}
	switch {
	case best == data.Unclear:
		v.Reason = "no_vote"
		return v
	case tie:
		v.Reason = "tie"
		return v
	case len(counts) == 1:
		v.Reason = "unanimous"
	default:
		v.Reason = "majority"
	}
	v.Label = best
	for _, vote := range votes {
		if vote.Label == best && vote.EvidenceStart != nil {
			v.EvidenceStart, v.EvidenceEnd = vote.EvidenceStart, vote.EvidenceEnd
			break
		}
	}
	return v
}
