package probes

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"demur/data"
)

// Kinds of controls that stand beside a direction, at its length.
const (
	ControlRandom     = "random"     // drawn from all directions alike
	ControlOrthogonal = "orthogonal" // the same, at a right angle to the direction
	ControlShuffled   = "shuffled"   // fitted like the direction, to labels moved between requests
)

// Controls lists the kinds of controls.
func Controls() []string { return []string{ControlRandom, ControlOrthogonal, ControlShuffled} }

// A SteerTarget is a direction to steer by: the mean difference of a target's two
// classes at a site. Where Equal is set it is taken inside strata, those with both
// classes, and averaged with the weights of least squares, n₁n₀/(n₁+n₀): what the
// strata stand for is held constant.
type SteerTarget struct {
	Name  string
	Site  Site
	label Target
	equal *Target
}

// ParseSteerTarget returns the target of a name: as ParseTarget, but for graded
// ones, or with " at equal harm" or " at equal refusal" after it.
func ParseSteerTarget(name string, site Site) (SteerTarget, error) {
	t := SteerTarget{Name: name, Site: site}
	inner, held, ok := strings.Cut(name, " at equal ")
	if ok {
		var e Target
		switch held {
		case "harm":
			e = HarmGraded()
		case "refusal":
			e = Refusal()
		default:
			return t, fmt.Errorf("target %q: what is held equal is harm or refusal", name)
		}
		t.equal = &e
	}
	var err error
	if t.label, err = ParseTarget(inner); err != nil {
		return t, err
	}
	if t.label.Graded {
		return t, fmt.Errorf("target %q is graded and has no two classes; take harm or refusal", name)
	}
	return t, nil
}

// A Lever is a direction to steer by, or a control beside one.
type Lever struct {
	Name    string // of the direction, also that of a control
	Anchor  string // where it was fitted
	Control string // kind; empty for the direction itself
	Draw    int    // of the control, from 1; 0 for the direction itself
	// Folds are its vectors by fold of requests, one for each block at which it acts.
	// Where there is one fold, it serves all requests.
	Folds [][]LeverVector
	// Given is true where the direction was fitted elsewhere.
	Given bool
}

// A LeverVector is a vector of length 1 with the lengths that make it a dose.
type LeverVector struct {
	Layer  int       // block after which it is added, or taken out
	Values []float64 // of length 1
	Gap    float64   // distance of the class means along it; that of the direction itself for a control
	Norm   float64   // mean length of the stream where it was fitted; 0 where not known
}

// LeverOptions are of FitLevers. Zero values are replaced by the defaults.
type LeverOptions struct {
	Folds    int // 5: a request is steered by what was fitted without its fold
	Controls int // 3: draws of each kind of control; −1 for none
	Seed     uint64
}

// Levers are directions with their controls, and the folds of the requests.
type Levers struct {
	Levers []Lever
	// Fold is the fold of each request that may be steered. Requests that are not
	// in it may not: a direction was fitted to them.
	Fold     map[string]int
	Warnings []string
}

// FitLevers fits each target without each fold of the requests, and draws
// controls. Folds are drawn within topics and never by label; all rows of a request
// are in one, so that no request is steered by a direction that saw it, in any
// wording. Rows without a state cannot be fitted to, and may be steered.
func FitLevers(rows []Row, states *States, targets []SteerTarget, o LeverOptions) (*Levers, error) {
	if o.Folds == 0 {
		o.Folds = 5
	}
	if o.Controls == 0 {
		o.Controls = 3
	}
	if o.Folds < 2 {
		return nil, fmt.Errorf("steer: %d folds: a direction has to be fitted on other requests than those it steers", o.Folds)
	}
	if len(targets) == 0 {
		return nil, errors.New("steer: no direction")
	}
	out := &Levers{Fold: requestFolds(rows, o.Folds, o.Seed)}
	for k, t := range targets {
		if slices.ContainsFunc(targets[:k], func(u SteerTarget) bool { return u.Name == t.Name && u.Site == t.Site }) {
			return nil, fmt.Errorf("steer: target %s is there twice", t.Name)
		}
		if err := out.fit(rows, states, t, o, uint64(k)); err != nil {
			return nil, fmt.Errorf("steer: target %s at %s: %w", t.Name, t.Site, err)
		}
	}
	return out, nil
}

// requestFolds deals requests to folds, topic by topic.
func requestFolds(rows []Row, folds int, seed uint64) map[string]int {
	var topics []string
	by := make(map[string][]string)
	fold := make(map[string]int)
	for _, r := range rows {
		if _, ok := fold[r.RequestID]; ok {
			continue
		}
		fold[r.RequestID] = 0
		if by[r.Topic] == nil {
			topics = append(topics, r.Topic)
		}
		by[r.Topic] = append(by[r.Topic], r.RequestID)
	}
	rng := rand.New(rand.NewPCG(seed, 5<<32))
	next := 0
	for _, t := range topics {
		in := by[t]
		rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		for _, id := range in {
			fold[id] = next % folds
			next++
		}
	}
	return fold
}

// A leverFit is what a target is fitted to: the labelled rows with a state.
type leverFit struct {
	design // rows, clusters; for permute
	layer  int
	x      []float64
	width  int
	y      []float64
	fold   []int
	strata []int // −1 where the row has none
}

func (l *Levers) fit(rows []Row, states *States, t SteerTarget, o LeverOptions, stream uint64) error {
	f, err := newLeverFit(rows, states, t, l.Fold)
	if err != nil {
		return err
	}
	main := Lever{Name: t.Name, Anchor: t.Site.Anchor}
	for k := range o.Folds {
		v, err := f.direction(f.y, k)
		if err != nil {
			return err
		}
		main.Folds = append(main.Folds, []LeverVector{v})
	}
	l.Levers = append(l.Levers, main)
	// Directions of the folds that differ are noise, and so is what they do.
	least := 1.0
	for i, a := range main.Folds {
		for _, b := range main.Folds[:i] {
			least = min(least, Cosine(a[0].Values, b[0].Values))
		}
	}
	if least < 0.5 {
		l.Warnings = append(l.Warnings, fmt.Sprintf("the directions for %s of two folds have a cosine of %.2f: there are too few requests to fit it", t.Name, least))
	}
	for draw := 1; draw <= o.Controls; draw++ {
		l.Levers = append(l.Levers, drawn(main, ControlRandom, draw, o.Seed, stream), drawn(main, ControlOrthogonal, draw, o.Seed, stream))
		shuffled := Lever{Name: t.Name, Anchor: t.Site.Anchor, Control: ControlShuffled, Draw: draw}
		y := f.permute(f.y, controlRand(ControlShuffled, draw, o.Seed, stream))
		for k := range o.Folds {
			v, err := f.direction(y, k)
			if err != nil {
				return fmt.Errorf("control %s: %w", ControlShuffled, err)
			}
			v.Gap, v.Norm = main.Folds[k][0].Gap, main.Folds[k][0].Norm
			shuffled.Folds = append(shuffled.Folds, []LeverVector{v})
		}
		l.Levers = append(l.Levers, shuffled)
	}
	return nil
}

func newLeverFit(rows []Row, states *States, t SteerTarget, fold map[string]int) (*leverFit, error) {
	site := slices.Index(states.sites, t.Site)
	if site < 0 {
		return nil, fmt.Errorf("there are no states there")
	}
	f := &leverFit{layer: t.Site.Layer, width: states.width}
	cluster := make(map[string]int)
	strata := make(map[float64]int)
	for _, r := range rows {
		label, ok := t.label.Label(r)
		p, have := states.at[r.PromptID]
		if !ok || !have {
			continue
		}
		stratum := 0
		if t.equal != nil {
			s, ok := t.equal.Label(r)
			if !ok {
				continue
			}
			if _, seen := strata[s]; !seen {
				strata[s] = len(strata)
			}
			stratum = strata[s]
		}
		if _, ok := cluster[r.RequestID]; !ok {
			cluster[r.RequestID] = len(cluster)
		}
		f.rows, f.cluster = append(f.rows, r), append(f.cluster, cluster[r.RequestID])
		f.y, f.fold, f.strata = append(f.y, label), append(f.fold, fold[r.RequestID]), append(f.strata, stratum)
		for _, v := range states.values[site][p*f.width : (p+1)*f.width] {
			f.x = append(f.x, float64(v))
		}
	}
	f.clusters = len(cluster)
	return f, nil
}

// direction fits to the rows that are not in a fold; −1 is none.
func (f *leverFit) direction(y []float64, out int) (LeverVector, error) {
	type sums struct {
		n   [2]float64
		sum [2][]float64
	}
	var strata []sums
	var norms, rows float64
	requests := [2]map[int]bool{{}, {}}
	for i, s := range f.strata {
		if f.fold[i] == out {
			continue
		}
		for len(strata) <= s {
			strata = append(strata, sums{sum: [2][]float64{make([]float64, f.width), make([]float64, f.width)}})
		}
		x, c := f.x[i*f.width:(i+1)*f.width], int(y[i])
		strata[s].n[c]++
		add(strata[s].sum[c], x, 1)
		requests[c][f.cluster[i]] = true
		norms += norm(x)
		rows++
	}
	v := make([]float64, f.width)
	var weight float64
	for _, s := range strata {
		if s.n[0] == 0 || s.n[1] == 0 {
			continue
		}
		w := s.n[0] * s.n[1] / (s.n[0] + s.n[1])
		add(v, s.sum[1], w/s.n[1])
		add(v, s.sum[0], -w/s.n[0])
		weight += w
	}
	if few := min(len(requests[0]), len(requests[1])); few < 2 || weight == 0 {
		return LeverVector{}, fmt.Errorf("without fold %d, %d requests are of one class and %d of the other, or none of both is left where something is held equal: too few to fit a direction", out, len(requests[1]), len(requests[0]))
	}
	gap := norm(v) / weight
	if gap == 0 {
		return LeverVector{}, errors.New("the class means are equal")
	}
	return LeverVector{Layer: f.layer, Values: scaledBy(v, 1/norm(v)), Gap: gap, Norm: norms / rows}, nil
}

// Whole returns the direction of a target fitted to all rows, for a file.
func Whole(rows []Row, states *States, t SteerTarget) (LeverVector, error) {
	f, err := newLeverFit(rows, states, t, nil)
	if err != nil {
		return LeverVector{}, err
	}
	return f.direction(f.y, -1)
}

func controlRand(kind string, draw int, seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 6<<56+stream<<40+uint64(slices.Index(Controls(), kind))<<32+uint64(draw)))
}

// drawn is a control made of random directions: one a block for all folds, turned
// in each to be orthogonal if it is to be.
func drawn(main Lever, kind string, draw int, seed, stream uint64) Lever {
	out := Lever{Name: main.Name, Anchor: main.Anchor, Control: kind, Draw: draw, Given: main.Given}
	for _, fold := range main.Folds {
		rng := controlRand(kind, draw, seed, stream)
		var vectors []LeverVector
		for _, m := range fold {
			v := make([]float64, len(m.Values))
			for j := range v {
				v[j] = rng.NormFloat64()
			}
			if kind == ControlOrthogonal {
				add(v, m.Values, -dot(v, m.Values))
			}
			vectors = append(vectors, LeverVector{m.Layer, scaledBy(v, 1/norm(v)), m.Gap, m.Norm})
		}
		out.Folds = append(out.Folds, vectors)
	}
	return out
}

// A GivenVector is the vector of a direction that was fitted elsewhere.
type GivenVector struct {
	Layer  int       // block after which it is added, or taken out
	Values []float32 // of any length
	Gap    float64   // 0 where not known: the length of Values is then the dose of 1
	Norm   float64   // 0 where not known
}

// GivenLevers makes levers of a direction fitted elsewhere, by blocks, with its
// controls but for shuffled labels, which need what it was fitted to. fitted says
// whether it was fitted to a request: such requests may not be steered. Nil where
// that is not known.
func GivenLevers(rows []Row, name, anchor string, vectors []GivenVector, fitted func(Row) bool, o LeverOptions) (*Levers, error) {
	if o.Controls == 0 {
		o.Controls = 3
	}
	out := &Levers{Fold: make(map[string]int)}
	main := Lever{Name: name, Anchor: anchor, Given: true, Folds: [][]LeverVector{nil}}
	for _, g := range vectors {
		v := make([]float64, len(g.Values))
		for i, x := range g.Values {
			v[i] = float64(x)
		}
		length := norm(v)
		if !(length > 0) || math.IsInf(length, 0) {
			return nil, fmt.Errorf("steer: direction %s at block %d has length %v", name, g.Layer, length)
		}
		if g.Gap == 0 {
			g.Gap = length
			out.Warnings = append(out.Warnings, fmt.Sprintf("the class gap of %s at block %d is not known: a dose of 1 is the vector as it was given, of length %.3g", name, g.Layer, length))
		}
		main.Folds[0] = append(main.Folds[0], LeverVector{g.Layer, scaledBy(v, 1/length), g.Gap, g.Norm})
	}
	if len(vectors) == 0 {
		return nil, errors.New("steer: no direction")
	}
	out.Levers = []Lever{main}
	for draw := 1; draw <= o.Controls; draw++ {
		out.Levers = append(out.Levers, drawn(main, ControlRandom, draw, o.Seed, 0), drawn(main, ControlOrthogonal, draw, o.Seed, 0))
	}
	barred := make(map[string]bool)
	for _, r := range rows {
		if fitted != nil && fitted(r) {
			barred[r.RequestID] = true
		}
	}
	for _, r := range rows {
		if !barred[r.RequestID] {
			out.Fold[r.RequestID] = 0
		}
	}
	if len(barred) > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d requests are left out: %s was fitted to them", len(barred), name))
	}
	if len(out.Fold) == 0 {
		return nil, fmt.Errorf("steer: direction %s was fitted to all of these requests; steer others", name)
	}
	return out, nil
}

// GivenDirection takes a direction of the table directions. Only that of the mean
// difference can be steered by: the others' weights read a direction, which is not
// what has to be written to move along it.
func GivenDirection(d data.Direction) (GivenVector, error) {
	if d.Method != string(MeanDifference) {
		return GivenVector{}, fmt.Errorf("direction %s: the weights of method %s are what reads a direction, not the direction itself; steer by %s", d.Group, d.Method, MeanDifference)
	}
	var squares float64
	for _, w := range d.Weights {
		squares += float64(w) * float64(w)
	}
	if squares == 0 {
		return GivenVector{}, fmt.Errorf("direction %s is 0", d.Group)
	}
	// Fit scales the weights so that the class means are 1 apart: w = v/|v|².
	return GivenVector{Layer: d.Layer, Values: d.Weights, Gap: 1 / math.Sqrt(squares)}, nil
}

// String names a lever in messages.
func (l Lever) String() string {
	if l.Control == "" {
		return l.Name
	}
	return l.Control + " " + strconv.Itoa(l.Draw) + " beside " + l.Name
}
