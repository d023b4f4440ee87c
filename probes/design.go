package probes

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A design is the labelled rows of a fit and how they are split: by request,
// in several ways, and how their labels are permuted: by request too.
//
// Rows are sorted by their fold of the first seed, so that these folds are
// contiguous.
type design struct {
	rows     []Row
	prompt   []int // of each row in the states
	graded   bool
	cut      *float64
	cluster  []int
	clusters int
	folds    int
	fold     [][]int // [seed][row]
	start    []int   // of the folds of the first seed; folds+1 elements

	// Columns are labelings: the observed labels under each fold seed, then the
	// permuted ones under the first.
	labels  [][]float64 // [column][row]
	seeds   int
	columns int
}

// ErrFew means that a target has too few requests of one of its labels.
var ErrFew = errors.New("too few requests")

func (d *design) n() int { return len(d.rows) }

// y are the observed labels.
func (d *design) y() []float64 { return d.labels[0] }

// seedOf is the fold seed of a column.
func (d *design) seedOf(column int) int {
	if column < d.seeds {
		return column
	}
	return 0
}

// newDesign splits the rows that have a label and a state. Folds are drawn
// within topics and never by label, so that permuted labels meet the same folds.
func newDesign(rows []Row, states *States, target Target, folds, seeds, permutations int, seed uint64) (*design, error) {
	d := &design{graded: target.Graded, cut: target.Cut, folds: folds, seeds: seeds}
	var y []float64
	seen := make(map[string]bool)
	for _, r := range rows {
		label, ok := target.Label(r)
		p, have := states.at[r.PromptID]
		if !ok || !have {
			continue
		}
		if seen[r.PromptID] {
			return nil, fmt.Errorf("row %s stands there twice", r.name())
		}
		seen[r.PromptID] = true
		if math.IsNaN(label) || math.IsInf(label, 0) {
			return nil, fmt.Errorf("row %s: label %v is no number", r.name(), label)
		}
		if !target.Graded && label != 0 && label != 1 {
			return nil, fmt.Errorf("row %s: label %v is neither 0 nor 1", r.name(), label)
		}
		d.rows, d.prompt, y = append(d.rows, r), append(d.prompt, p), append(y, label)
	}
	index := make(map[string]int)
	topics := make(map[string][]int)
	var names []string
	positive := make(map[int]bool) // clusters by label, to count them
	negative := make(map[int]bool)
	for i, r := range d.rows {
		c, ok := index[r.RequestID]
		if !ok {
			c = len(index)
			index[r.RequestID] = c
			if topics[r.Topic] == nil {
				names = append(names, r.Topic)
			}
			topics[r.Topic] = append(topics[r.Topic], c)
		}
		d.cluster = append(d.cluster, c)
		if y[i] == y[0] {
			negative[c] = true
		} else {
			positive[c] = true
		}
	}
	d.clusters = len(index)
	if len(positive) < 2*folds || len(negative) < 2*folds {
		few := min(len(positive), len(negative))
		return nil, fmt.Errorf("target %s: %w: %d requests have a label and a state, and only %d of them one of its values; %d folds need %d", target.Name, ErrFew, d.clusters, few, folds, 2*folds)
	}
	for s := range seeds {
		rng := rand.New(rand.NewPCG(seed, uint64(s)))
		of := make([]int, d.clusters)
		next := rng.IntN(folds)
		for _, t := range names {
			in := slices.Clone(topics[t])
			rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			for _, c := range in {
				of[c] = next % folds
				next++
			}
		}
		fold := make([]int, len(d.rows))
		for i, c := range d.cluster {
			fold[i] = of[c]
		}
		d.fold = append(d.fold, fold)
	}
	y = d.sort(y)
	for range seeds {
		d.labels = append(d.labels, y)
	}
	for p := range permutations {
		d.labels = append(d.labels, d.permute(y, rand.New(rand.NewPCG(seed, 1<<32+uint64(p)))))
	}
	d.columns = len(d.labels)
	return d, nil
}

// sort orders rows by their fold of the first seed, then by request and wording.
func (d *design) sort(y []float64) []float64 {
	order := all(d.n())
	first := d.fold[0]
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(first[a], first[b]), cmp.Compare(d.cluster[a], d.cluster[b]), cmp.Compare(d.rows[a].Variant, d.rows[b].Variant))
	})
	d.rows, d.prompt, d.cluster, y = pick(d.rows, order), pick(d.prompt, order), pick(d.cluster, order), pick(y, order)
	for s := range d.fold {
		d.fold[s] = pick(d.fold[s], order)
	}
	d.start = make([]int, d.folds+1)
	for _, f := range d.fold[0] {
		d.start[f+1]++
	}
	for f := range d.folds {
		d.start[f+1] += d.start[f]
	}
	return y
}

func pick[T any](x []T, index []int) []T {
	out := make([]T, len(index))
	for k, i := range index {
		out[k] = x[i]
	}
	return out
}

// permute gives each request the labels of another with as many rows: labels
// move as whole requests, so that rows of a request stay as alike as they are.
func (d *design) permute(y []float64, rng *rand.Rand) []float64 {
	members := make([][]int, d.clusters)
	for i, c := range d.cluster {
		members[c] = append(members[c], i)
	}
	bySize := make(map[int][]int)
	var sizes []int
	for c, m := range members {
		if bySize[len(m)] == nil {
			sizes = append(sizes, len(m))
		}
		bySize[len(m)] = append(bySize[len(m)], c)
	}
	out := make([]float64, len(y))
	for _, size := range sizes {
		from := bySize[size]
		for k, j := range rng.Perm(len(from)) {
			for v, i := range members[from[k]] {
				out[i] = y[members[from[j]][v]]
			}
		}
	}
	return out
}

// held returns the rows of a fold, and kept the rows of the others, less a
// second fold if it is not negative.
func (d *design) held(seed, fold int) (held []int) {
	for i, f := range d.fold[seed] {
		if f == fold {
			held = append(held, i)
		}
	}
	return held
}

func (d *design) kept(seed int, out ...int) (kept []int) {
	for i, f := range d.fold[seed] {
		if !slices.Contains(out, f) {
			kept = append(kept, i)
		}
	}
	return kept
}

// A table of scores by fold left out: [fold][row] is the score of a row by what
// was fitted without that fold and without the row's own. So [f][i] of a row i
// of fold f is its held-out score, and the others are what choices are made by
// when f is held out.
type heldOut [][]float64

// outer returns each row's score by what was fitted without its fold alone.
func (h heldOut) outer(fold []int) []float64 {
	out := make([]float64, len(fold))
	for i, f := range fold {
		out[i] = h[f][i]
	}
	return out
}

func newHeldOut(folds, n int) heldOut {
	h := make(heldOut, folds)
	flat := make([]float64, folds*n)
	for f := range h {
		h[f] = flat[f*n : (f+1)*n]
	}
	return h
}
