package probes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/stat/distuv"
)

// A Contrast is a target at an anchor: the direction that tells it there.
type Contrast struct {
	Name   string
	Target Target // not graded
	Anchor string
}

// Contrasts that are compared by default: harm where the request ends, refusal
// where the prompt ends, and the three that Joad et al. (arXiv:2602.02132) keep
// apart there, since "refused and harmful against answered and harmless" holds
// both.
func Contrasts() []Contrast {
	harm, refusal := Harm(), Refusal()
	is := func(t Target, want float64) func(Row) bool {
		return func(r Row) bool { y, ok := t.Label(r); return ok && y == want }
	}
	both := Target{Name: "harm and refusal", Label: func(r Row) (float64, bool) {
		h, ok1 := harm.Label(r)
		a, ok2 := refusal.Label(r)
		return h, ok1 && ok2 && h == a
	}}
	return []Contrast{
		{"harm", harm, Inst},
		{"refusal", refusal, Post},
		{"refusal among harmful", refusal.Within("harmful", is(harm, 1)), Post},
		{"refusal among harmless", refusal.Within("harmless", is(harm, 0)), Post},
		{"harmful refused against harmless complied", both, Post},
	}
}

// ByTopic makes a contrast of each topic: its refusals against all compliances.
func ByTopic(rows []Row, anchor string) (contrasts []Contrast) {
	refusal := Refusal()
	var topics []string
	for _, r := range rows {
		if r.Topic != "" && !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
	}
	for _, topic := range topics {
		t := refusal.Within(topic, func(r Row) bool { y, _ := refusal.Label(r); return y == 0 || r.Topic == topic })
		contrasts = append(contrasts, Contrast{"refusal of " + topic, t, anchor})
	}
	return contrasts
}

// GeometryOptions are of Geometry. Zero values are replaced by the defaults.
type GeometryOptions struct {
	Layer    int     // at which directions are compared
	Splits   int     // 100: halvings of the requests
	Strength float64 // 0.1: shrinkage of the whitening
	Seed     uint64
	Level    float64 // 0.95
}

// An Angle compares the mean differences of two contrasts. Reliability is the
// cosine of a direction with itself as estimated from the other half of the
// requests: no cosine between two directions can be expected to exceed
// √(Reliability[0]·Reliability[1]), and Disattenuated is Cosine over that of the
// halves. Within(0, 1) it is the angle; it is null where a reliability is below
// 0.1, and may exceed 1 by chance.
//
// Whitened is the same with each vector multiplied by the inverse root of the
// covariance within the classes, the mean over all contrasts: the angle that a
// linear reader sees.
type Angle struct {
	A        string      `json:"a"`
	B        string      `json:"b"`
	Layer    int         `json:"layer"`
	Raw      AngleValues `json:"raw"`
	Whitened AngleValues `json:"whitened"`
	Requests [2]int      `json:"requests"` // with a label, of either
}

// AngleValues are of Angle.
type AngleValues struct {
	Cosine        Value      `json:"cosine"`
	Reliability   [2]float64 `json:"reliability"`   // between halves
	Disattenuated *float64   `json:"disattenuated"` // of halves: mean cross cosine over the root of the product
}

// Geometry compares each pair of contrasts at a layer. A contrast without
// requests on both sides is left out, and a warning says so.
func Geometry(rows []Row, states *States, contrasts []Contrast, o GeometryOptions) ([]Angle, []string, error) {
	if o.Splits == 0 {
		o.Splits = 100
	}
	if o.Strength == 0 {
		o.Strength = 0.1
	}
	if o.Level == 0 {
		o.Level = 0.95
	}
	index := make(map[string]int)
	for _, r := range rows {
		if _, ok := index[r.RequestID]; !ok {
			index[r.RequestID] = len(index)
		}
	}
	var sides []*side
	var warnings []string
	for _, c := range contrasts {
		s, err := newSide(c, rows, states, index, o)
		if err != nil {
			return nil, nil, err
		}
		if s.clusters[0] < 4 || s.clusters[1] < 4 {
			warnings = append(warnings, fmt.Sprintf("%s is left out: %d requests on one side and %d on the other", c.Name, s.clusters[1], s.clusters[0]))
			continue
		}
		sides = append(sides, s)
	}
	if err := whiten(sides, o.Strength); err != nil {
		return nil, nil, err
	}
	var out []Angle
	for i := range sides {
		for j := i + 1; j < len(sides); j++ {
			out = append(out, angle(sides[i], sides[j], len(index), o))
		}
	}
	return out, warnings, nil
}

// A side is a contrast's states, raw and whitened, summed by request and label.
type side struct {
	c          Contrast
	clusters   [2]int
	sum        [2][2]map[int][]float64 // [raw, whitened][label][request]
	count      [2]map[int]float64
	width      int
	covariance []float64 // within the classes
}

func newSide(c Contrast, rows []Row, states *States, index map[string]int, o GeometryOptions) (*side, error) {
	site := slices.Index(states.sites, Site{o.Layer, c.Anchor})
	if site < 0 {
		return nil, fmt.Errorf("geometry: contrast %s: there are no states at layer %d, %s", c.Name, o.Layer, c.Anchor)
	}
	w := states.width
	s := &side{c: c, width: w}
	var x, y []float64
	var request []int
	for _, r := range rows {
		label, ok := c.Target.Label(r)
		p, have := states.at[r.PromptID]
		if !ok || !have {
			continue
		}
		for _, v := range states.values[site][p*w : (p+1)*w] {
			x = append(x, float64(v))
		}
		y = append(y, label)
		request = append(request, index[r.RequestID])
	}
	if len(y) == 0 {
		return s, nil
	}
	for label := range 2 {
		s.count[label] = make(map[int]float64)
		for k := range s.sum {
			s.sum[k][label] = make(map[int][]float64)
		}
	}
	for i, q := range request {
		label := int(y[i])
		if s.sum[0][label][q] == nil {
			s.sum[0][label][q] = make([]float64, w)
			s.clusters[label]++
		}
		s.count[label][q]++
		add(s.sum[0][label][q], x[i*w:(i+1)*w], 1)
	}
	s.covariance = within(x, w, y)
	return s, nil
}

// within is the upper triangle of the covariance within the classes, nil if there
// is one class alone.
func within(x []float64, width int, y []float64) []float64 {
	c := centre(x, width, all(len(y)))
	one, zero, err := c.classMeans(y)
	if err != nil {
		return nil
	}
	for i, v := range y {
		if v == 1 {
			add(c.row(i), one, -1)
		} else {
			add(c.row(i), zero, -1)
		}
	}
	cov := make([]float64, width*width)
	blas64.Syrk(blas.Trans, 1/float64(len(y)), blas64.General{Rows: len(y), Cols: width, Stride: width, Data: c.data}, 0,
		blas64.Symmetric{N: width, Stride: width, Data: cov, Uplo: blas.Upper})
	return cov
}

// whiten fills in the whitened sums of all sides: multiplied by the inverse of the
// triangular root of the mean of their covariances, shrunk towards a multiple of
// the identity. Cosines are the same with any root.
func whiten(sides []*side, strength float64) error {
	if len(sides) == 0 {
		return nil
	}
	width := sides[0].width
	cov := make([]float64, width*width)
	var trace float64
	for _, s := range sides {
		add(cov, s.covariance, 1/float64(len(sides)))
	}
	for j := range width {
		trace += cov[j*width+j]
	}
	for j := range width {
		cov[j*width+j] += strength * trace / float64(width)
	}
	root, ok := lapack64.Potrf(blas64.Symmetric{N: width, Stride: width, Data: cov, Uplo: blas.Upper})
	if !ok {
		return fmt.Errorf("geometry: the covariance within the classes has no root; is the layer constant?")
	}
	for _, s := range sides {
		for label := range 2 {
			for request, sum := range s.sum[0][label] {
				v := slices.Clone(sum)
				blas64.Trsv(blas.Trans, root, vector(v))
				s.sum[1][label][request] = v
			}
		}
	}
	return nil
}

// totals are the sums over all requests, so that one can be left out fast.
type totals struct {
	sum   [2][]float64 // [label]
	count [2]float64
}

func (s *side) totals(space int) (t totals) {
	for label := range 2 {
		t.sum[label] = make([]float64, s.width)
		for _, q := range sortedInts(s.count[label]) {
			t.count[label] += s.count[label][q]
			add(t.sum[label], s.sum[space][label][q], 1)
		}
	}
	return t
}

// without is the mean difference without a request, −1 for none.
func (s *side) without(t totals, space, request int) ([]float64, bool) {
	out := make([]float64, s.width)
	for label := range 2 {
		n, sum := t.count[label], t.sum[label]
		if own, ok := s.sum[space][label][request]; ok {
			n -= s.count[label][request]
			sum = slices.Clone(sum)
			add(sum, own, -1)
		}
		if n == 0 {
			return nil, false
		}
		add(out, sum, float64(2*label-1)/n)
	}
	return out, true
}

// difference is the mean difference over requests with weights.
func (s *side) difference(space int, weight []float64) ([]float64, bool) {
	out := make([]float64, s.width)
	for label := range 2 {
		var n float64
		sum := make([]float64, s.width)
		for _, q := range sortedInts(s.count[label]) {
			if w := weight[q]; w != 0 {
				n += w * s.count[label][q]
				add(sum, s.sum[space][label][q], w)
			}
		}
		if n == 0 {
			return nil, false
		}
		add(out, sum, float64(2*label-1)/n)
	}
	return out, true
}

func sortedInts[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func angle(a, b *side, requests int, o GeometryOptions) Angle {
	out := Angle{A: a.c.Name, B: b.c.Name, Layer: o.Layer, Requests: [2]int{a.clusters[0] + a.clusters[1], b.clusters[0] + b.clusters[1]}}
	for space, to := range []*AngleValues{&out.Raw, &out.Whitened} {
		*to = a.compare(b, space, requests, o)
	}
	return out
}

func (s *side) compare(b *side, space, requests int, o GeometryOptions) AngleValues {
	ts, tb := s.totals(space), b.totals(space)
	cosine := func(without int) float64 {
		u, ok1 := s.without(ts, space, without)
		v, ok2 := b.without(tb, space, without)
		if !ok1 || !ok2 {
			return math.NaN()
		}
		return Cosine(u, v)
	}
	out := AngleValues{Cosine: jackknife(cosine, requests, o.Level)}
	type halves struct {
		own, other, cross float64
		ok                bool
	}
	parts := make([]halves, o.Splits)
	parallel(o.Splits, func(k int) {
		rng := rand.New(rand.NewPCG(o.Seed, 4<<32+uint64(k)))
		first, second := make([]float64, requests), make([]float64, requests)
		for i, q := range rng.Perm(requests) {
			if i%2 == 0 {
				first[q] = 1
			} else {
				second[q] = 1
			}
		}
		a1, ok1 := s.difference(space, first)
		a2, ok2 := s.difference(space, second)
		b1, ok3 := b.difference(space, first)
		b2, ok4 := b.difference(space, second)
		if ok1 && ok2 && ok3 && ok4 {
			parts[k] = halves{Cosine(a1, a2), Cosine(b1, b2), (Cosine(a1, b2) + Cosine(a2, b1)) / 2, true}
		}
	})
	var own, other, cross, n float64
	for _, p := range parts {
		if p.ok {
			own, other, cross = own+p.own, other+p.other, cross+p.cross
			n++
		}
	}
	if n == 0 {
		return out
	}
	out.Reliability = [2]float64{own / n, other / n}
	if own/n > 0.1 && other/n > 0.1 {
		out.Disattenuated = defined(cross / n / math.Sqrt(own/n*other/n))
	}
	return out
}

// jackknife returns a cosine with an interval over requests: leaving out one at a
// time gives the standard error of Fisher's z. The percentiles of a bootstrap
// would not do, since each resample adds noise to both directions and so makes
// every cosine smaller than it is.
//
// Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 11.
func jackknife(cosine func(without int) float64, n int, level float64) Value {
	value := cosine(-1)
	out := Value{Value: defined(value)}
	z := make([]float64, n)
	parallel(n, func(i int) { z[i] = fisher(cosine(i)) })
	var mean, sum float64
	for _, v := range z {
		mean += v / float64(n)
	}
	for _, v := range z {
		sum += (v - mean) * (v - mean)
	}
	half := distuv.UnitNormal.Quantile((1+level)/2) * math.Sqrt(sum*float64(n-1)/float64(n))
	out.Lo, out.Hi = defined(math.Tanh(fisher(value)-half)), defined(math.Tanh(fisher(value)+half))
	return out
}

// fisher is atanh, bounded where a cosine is 1 but for rounding.
func fisher(c float64) float64 { return math.Atanh(math.Max(-1+1e-12, math.Min(1-1e-12, c))) }
