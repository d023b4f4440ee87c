package worker

import (
	"slices"
	"time"

	"demur/inference"
)

// add adds two counts.
func add(a, b inference.Counters) inference.Counters {
	sum := inference.Counters{
		PromptTokens:  a.PromptTokens + b.PromptTokens,
		PromptNeeded:  a.PromptNeeded + b.PromptNeeded,
		Rows:          a.Rows + b.Rows,
		TokensSampled: a.TokensSampled + b.TokensSampled,
		Decodes:       a.Decodes + b.Decodes,
	}
	if len(a.RowHistogram)+len(b.RowHistogram) > 0 {
		sum.RowHistogram = make(map[int]int64)
	}
	for _, h := range []map[int]int64{a.RowHistogram, b.RowHistogram} {
		for rows, n := range h {
			sum.RowHistogram[rows] += n
		}
	}
	return sum
}

// gaps keeps the last times between two signs of life of a unit.
type gaps struct {
	last  time.Time
	times [63]time.Duration
	n     int // times so far
}

func (g *gaps) start() { g.last = time.Now() }

func (g *gaps) sign() {
	now := time.Now()
	g.times[g.n%len(g.times)] = now.Sub(g.last)
	g.last = now
	g.n++
}

// median returns the median, 0 before there were a few.
func (g *gaps) median() time.Duration {
	if g.n < 5 {
		return 0
	}
	times := g.times[:min(g.n, len(g.times))]
	sorted := slices.Clone(times)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
