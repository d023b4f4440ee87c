package probes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// planted are rows with two wordings a request, a label each request, and
// states that hold the label along the first coordinate, a large constant, and
// noise.
func planted(requests, width int, signal float64, graded bool) ([]Row, *States) {
	rng := rand.New(rand.NewPCG(1, 2))
	var rows []Row
	var ids []string
	var values [2][]float32
	for q := range requests {
		refusals := rng.IntN(2)
		if graded {
			refusals = rng.IntN(10)
		}
		for v := range 2 {
			r := Row{PromptID: fmt.Sprintf("p%d.%d", q, v), RequestID: fmt.Sprint(q), Variant: fmt.Sprint(v), Topic: fmt.Sprint(q % 3), Trials: 1, Refusals: refusals}
			if graded {
				r.Trials = 10
			}
			rows, ids = append(rows, r), append(ids, r.PromptID)
			for k := range values {
				for j := range width {
					x := rng.NormFloat64() + 3
					if j == 0 {
						x += signal * float64(refusals) * float64(k)
					}
					values[k] = append(values[k], float32(x))
				}
			}
		}
	}
	return rows, NewStates(width, ids, []Site{{0, Inst}, {1, Inst}}, [][]float32{values[0], values[1]})
}

// TestFastFitsAreFits holds the scores that come from inner products and from one
// inverse for all folds, labelings and pairs of folds against fits done one by
// one on the rows that stay.
func TestFastFitsAreFits(t *testing.T) {
	for _, width := range []int{7, 90} { // fewer and more than rows
		rows, states := planted(30, width, 1, false)
		d, err := newDesign(rows, states, Refusal(), 4, 2, 3, 5)
		if err != nil {
			t.Fatal(err)
		}
		g := newGram(d, states, 1)
		x := d.plain(states, 1)
		fast := map[Method][]heldOut{}
		for _, m := range []Method{MeanDifference, Whitened, Centroid, CentroidCentred} {
			fast[m] = make([]heldOut, d.columns)
		}
		g.eachSums(func(col int, s *sums) {
			fold := d.fold[d.seedOf(col)]
			fast[MeanDifference][col] = g.meanDifference(fold, s)
			fast[Centroid][col] = g.centroid(fold, s, false)
			fast[CentroidCentred][col] = g.centroid(fold, s, true)
		})
		const strength = 0.1
		each, err := g.whitened(strength)
		if err != nil {
			t.Fatal(err)
		}
		each(func(col int, h heldOut) { fast[Whitened][col] = h })
		if d.columns != 5 {
			t.Fatalf("%d columns, want 2 seeds and 3 permutations", d.columns)
		}
		for m, byColumn := range fast {
			for col, h := range byColumn {
				seed := d.seedOf(col)
				for i, own := range d.fold[seed] {
					for out := range d.folds {
						train := d.kept(seed, own, out)
						row := x[i*width : (i+1)*width]
						var want float64
						switch m {
						case Centroid, CentroidCentred:
							w, origin := centroidOf(x, width, train, d.labels[col], m == CentroidCentred)
							h := scaledBy(row, 1)
							if origin != nil {
								add(h, origin, -1)
							}
							want = dot(w, h) / norm(h)
						default:
							s := strength
							if m == Whitened {
								// The ridge of the fast fit is that of all rows.
								c := centre(x, width, train)
								var trace float64
								for k := range train {
									trace += dot(c.row(k), c.row(k))
								}
								s *= g.trace * float64(width) / trace
							}
							l, err := direct(m, x, width, train, d.labels[col], s)
							if err != nil {
								t.Fatal(err)
							}
							want = dot(l.w, row) + l.bias
						}
						if got := h[out][i]; math.Abs(got-want) > 1e-8*(1+math.Abs(want)) {
							t.Fatalf("width %d, %s, column %d, row %d of fold %d, fold %d out: %v, a fit of its own says %v", width, m, col, i, own, out, got, want)
						}
					}
				}
			}
		}
	}
}

// TestFoldsAreByRequest: no request is in two folds, and folds do not look at labels.
func TestFoldsAreByRequest(t *testing.T) {
	rows, states := planted(40, 3, 1, false)
	d, err := newDesign(rows, states, Refusal(), 5, 10, 20, 5)
	if err != nil {
		t.Fatal(err)
	}
	for seed, fold := range d.fold {
		of := map[string]int{}
		size := make([]int, d.folds)
		for i, f := range fold {
			if had, ok := of[d.rows[i].RequestID]; ok && had != f {
				t.Fatalf("seed %d: request %s is in folds %d and %d", seed, d.rows[i].RequestID, had, f)
			}
			of[d.rows[i].RequestID] = f
			size[f]++
		}
		for f, n := range size {
			if n != 16 {
				t.Errorf("seed %d: fold %d has %d rows of 80", seed, f, n)
			}
		}
	}
	flipped := append([]Row(nil), rows...)
	for i := range flipped {
		flipped[i].Refusals = 1 - flipped[i].Refusals
	}
	e, err := newDesign(flipped, states, Refusal(), 5, 10, 20, 5)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.rows {
		if d.rows[i].PromptID != e.rows[i].PromptID || d.fold[3][i] != e.fold[3][i] {
			t.Fatal("folds hang on the labels")
		}
	}
	for col := d.seeds; col < d.columns; col++ {
		count, differ := 0.0, false
		for i, y := range d.labels[col] {
			count += y - d.y()[i]
			differ = differ || y != d.y()[i]
			if i > 0 && d.cluster[i] == d.cluster[i-1] && y != d.labels[col][i-1] {
				t.Fatalf("permutation %d tears request %s", col, d.rows[i].RequestID)
			}
		}
		if count != 0 || !differ {
			t.Errorf("permutation %d is none", col)
		}
	}
}

func TestConcordanceFastAndSlow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		n, levels := 2+rng.IntN(40), 2+rng.IntN(5)
		y, score, level := make([]float64, n), make([]float64, n), make([]int, n)
		for i := range y {
			level[i] = rng.IntN(levels)
			y[i] = float64(level[i])
			score[i] = math.Round(4*rng.NormFloat64()) / 4 // ties, both signs, −0
		}
		var good, pairs float64
		for i := range y {
			for j := range y {
				if y[i] > y[j] {
					pairs++
					switch {
					case score[i] > score[j]:
						good++
					case score[i] == score[j]:
						good += 0.5
					}
				}
			}
		}
		want := good / pairs
		fast := (&orderer{}).concordance(level, score, make([]int, n), 1, -1)
		slow := Concordance(y, score)
		same := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 || math.IsNaN(a) && math.IsNaN(b) }
		if !same(fast, want) || !same(slow, want) {
			t.Fatalf("labels %v, scores %v: fast %v, slow %v, want %v", y, score, fast, slow, want)
		}
		weight := make([]float64, n)
		for i := range weight {
			weight[i] = 1
		}
		if r := newRankings(y, score, all(n), nil); !same(r.concordance(weight), want) {
			t.Fatalf("with equal weights %v, want %v", r.concordance(weight), want)
		}
	}
}
