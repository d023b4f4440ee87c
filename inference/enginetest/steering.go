package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"demur/data"
	"demur/inference"
)

// A steered is an engine that can be changed and shows what it did.
type steered interface {
	inference.Engine
	inference.Steerer
	inference.Activator
}

// seen is all that an engine shows of itself: texts, streams, and distributions
// where it has them.
type seen struct {
	answers []inference.Answer
	rows    []data.Activation
	next    [][]float32
}

func (s *suite) look(e steered) seen {
	s.Helper()
	var out seen
	unit := []inference.Job{s.job(s.text(0), s.sweep()...), s.job(s.text(1), s.sampling(0, 0), s.sampling(1, 1))}
	out.answers = s.run(unit...)
	out.rows = s.activate(e)
	if p, ok := e.(inference.Predictor); ok {
		next, err := s.distributions(p, unit...)
		if err != nil {
			s.Fatalf("distributions: %v", err)
		}
		out.next = next
	}
	return out
}

// activate returns the stream at two positions of two prompts.
func (s *suite) activate(e inference.Activator) (rows []data.Activation) {
	s.Helper()
	var jobs []inference.ActivateJob
	for i := range 2 {
		jobs = append(jobs, inference.ActivateJob{Prompt: s.prompt(s.text(i)), Positions: []int{-1, -2}})
	}
	for row, err := range e.Activate(s.Context(), jobs) {
		if err != nil {
			s.Fatalf("activations: %v", err)
		}
		if len(row.Values) != s.info.Width || row.Layer < 0 || row.Layer >= s.info.Blocks {
			s.Fatalf("layer %d has a row of %d numbers", row.Layer, len(row.Values))
		}
		rows = append(rows, row)
	}
	if want := 4 * s.info.Blocks; len(rows) != want {
		s.Fatalf("%d rows, want %d", len(rows), want)
	}
	return rows
}

func (s *suite) distributions(p inference.Predictor, jobs ...inference.Job) ([][]float32, error) {
	s.Helper()
	var out [][]float32
	for next, err := range p.Distributions(s.Context(), jobs) {
		if err != nil {
			return out, err
		}
		out = append(out, next)
	}
	if len(out) != len(jobs) {
		s.Fatalf("%d distributions for %d jobs", len(out), len(jobs))
	}
	return out, nil
}

// alike compares what was seen twice under one steering.
func (s *suite) alike(what string, got, want seen) {
	s.Helper()
	if !s.info.Reproducible {
		return
	}
	for _, x := range []struct {
		what      string
		got, want any
	}{{"answers", got.answers, want.answers}, {"streams", got.rows, want.rows}, {"distributions", got.next, want.next}} {
		if !reflect.DeepEqual(x.got, x.want) {
			s.Errorf("%s: the %s are others", what, x.what)
		}
	}
}

// direction is a vector of a given length along no axis.
func (s *suite) direction(seed int, size float64) []float32 {
	v := make([]float32, s.info.Width)
	sum := 0.0
	for i := range v {
		v[i] = float32(math.Cos(float64(2 + (3+seed)*i*i)))
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] *= float32(size / math.Sqrt(sum))
	}
	return v
}

func along(x, direction []float32) (component, size float64) {
	length := 0.0
	for i := range x {
		component += float64(x[i]) * float64(direction[i])
		size += float64(x[i]) * float64(x[i])
		length += float64(direction[i]) * float64(direction[i])
	}
	return component / math.Sqrt(length), math.Sqrt(size)
}

// A change of the stream is there, where and as it was asked for, in all that the
// engine does; and gone without a trace after its end.
func (s *suite) checkSteering() {
	e, ok := s.engine.(steered)
	if !ok {
		s.Skip("the engine cannot be steered or does not show its stream")
	}
	if err := e.Steer(s.Context(), nil); errors.Is(err, inference.ErrUnavailable) {
		s.Skip("the engine cannot be steered: " + err.Error())
	} else if err != nil {
		s.Fatalf("steering by nothing: %v", err)
	}
	steer := func(x *inference.Steering) {
		s.Helper()
		if err := e.Steer(s.Context(), x); err != nil {
			s.Fatalf("steering: %v", err)
		}
	}
	defer e.Steer(context.WithoutCancel(s.Context()), nil)
	before := s.look(e)
	blocks := s.info.Blocks
	at := blocks / 2
	size := 0.0
	for _, r := range before.rows {
		if r.Layer == at {
			_, x := along(r.Values, r.Values)
			size = max(size, x)
		}
	}
	zeros := make([]float32, s.info.Width)
	for name, nothing := range map[string]*inference.Steering{
		"nothing": {}, "zeros": {Add: map[int][]float32{at: zeros, 0: zeros}},
	} {
		steer(nothing)
		s.alike("steered by "+name, s.look(e), before)
	}

	v := s.direction(1, size/2)
	kept := append([]float32(nil), v...)
	addition := &inference.Steering{Add: map[int][]float32{at: v}}
	steer(addition)
	for i := range v {
		v[i] = 0 // the engine has its own copy
	}
	added := s.look(e)
	addition.Add[at] = kept
	for i, r := range added.rows {
		was := before.rows[i]
		worst := 0.0
		for k, x := range r.Values {
			want := float64(was.Values[k])
			if r.Layer == at {
				want += float64(kept[k])
			}
			worst = max(worst, math.Abs(float64(x)-want))
		}
		switch {
		case r.Layer <= at && worst > 1e-3*size:
			s.Errorf("added after block %d: a row of layer %d is %v away from what it is to be", at, r.Layer, worst)
		case r.Layer > at && worst == 0:
			s.Errorf("added after block %d: layer %d does not notice", at, r.Layer)
		}
	}
	if reflect.DeepEqual(added.answers, before.answers) {
		s.Errorf("added after block %d: the answers are the same, their log probabilities too", at)
	}
	if added.next != nil && reflect.DeepEqual(added.next, before.next) {
		s.Errorf("added after block %d: the distributions are the same", at)
	}
	s.alike("steered in one way twice", s.look(e), added)

	// What is ablated everywhere is nowhere.
	r := s.direction(2, 3)
	ablation := &inference.Steering{Ablate: map[int][]float32{}}
	for l := range blocks {
		ablation.Ablate[l] = r
	}
	steer(ablation)
	most := 0.0
	for _, row := range before.rows {
		c, x := along(row.Values, r)
		most = max(most, math.Abs(c)/x)
	}
	for _, row := range s.look(e).rows {
		if c, x := along(row.Values, r); math.Abs(c) > 1e-4*x || most < 1e-3 {
			s.Errorf("ablated: layer %d has a component of %v in a row of length %v; before, the largest was %v of one", row.Layer, c, x, most)
			break
		}
	}
	// The component first, then the sum.
	ablation.Add = map[int][]float32{at: s.direction(2, size)}
	steer(ablation)
	for _, row := range s.activate(e) {
		want := 0.0
		if row.Layer == at {
			want = size
		}
		if c, _ := along(row.Values, r); math.Abs(c-want) > 1e-3*size {
			s.Errorf("ablated and added to after block %d: layer %d has a component of %v, not %v", at, row.Layer, c, want)
			break
		}
	}
	// A steering takes the place of the one before it, and one that fails does not.
	steer(addition)
	s.alike("steered as before, after another steering", s.look(e), added)
	nan := s.direction(1, 1)
	nan[0] = float32(math.NaN())
	for name, bad := range map[string]*inference.Steering{
		"a block that is not there": {Add: map[int][]float32{blocks: s.direction(1, 1)}},
		"the embedding":             {Add: map[int][]float32{-1: s.direction(1, 1)}},
		"a short vector":            {Ablate: map[int][]float32{0: s.direction(1, 1)[1:]}},
		"no number":                 {Add: map[int][]float32{0: nan}},
		"no direction":              {Ablate: map[int][]float32{0: zeros}},
	} {
		if e.Steer(s.Context(), bad) == nil {
			s.Errorf("steered by %s without an error", name)
		}
	}
	s.alike("after steerings that failed", s.look(e), added)
	steer(nil)
	s.alike("after the end of all steering", s.look(e), before)
}

// The distribution of the next token is one, the prompt's own, and the caller's.
func (s *suite) checkDistributions() {
	p, ok := s.engine.(inference.Predictor)
	if !ok {
		s.Skip("the engine does not show the distribution of the next token")
	}
	a, b := s.job(s.text(0)), s.job(s.text(1))
	begun := a
	begun.Prefix = "First"
	first, err := s.distributions(p, a, b, begun, a)
	if errors.Is(err, inference.ErrUnavailable) {
		s.Skip("the engine does not show the distribution of the next token: " + err.Error())
	}
	if err != nil {
		s.Fatalf("distributions: %v", err)
	}
	for i, d := range first {
		sum := 0.0
		for _, l := range d {
			if math.IsNaN(float64(l)) || l > 1e-5 {
				s.Fatalf("distribution %d has a log probability of %v", i, l)
			}
			sum += math.Exp(float64(l))
		}
		if math.Abs(sum-1) > 1e-4 || len(d) != len(first[0]) || len(d) < 2 {
			s.Errorf("distribution %d: %d probabilities that sum to %v", i, len(d), sum)
		}
	}
	near := func(x, y []float32) bool {
		for i := range x {
			if math.Abs(math.Exp(float64(x[i]))-math.Exp(float64(y[i]))) > 0.05 {
				return false
			}
		}
		return true
	}
	if reflect.DeepEqual(first[0], first[1]) || reflect.DeepEqual(first[0], first[2]) {
		s.Errorf("two prompts, or a prompt with a prefix and without, have one distribution")
	}
	if !near(first[0], first[3]) {
		s.Errorf("a prompt has two distributions in one call")
	}
	kept := make([][]float32, len(first))
	for i := range first {
		kept[i] = append([]float32(nil), first[i]...)
		clear(first[i]) // the slices are the caller's
	}
	again, err := s.distributions(p, a, b, begun, a)
	if err != nil {
		s.Fatalf("distributions: %v", err)
	}
	if s.info.Reproducible && !reflect.DeepEqual(again, kept) {
		s.Errorf("the same question twice has two answers")
	}
	other, err := s.distributions(p, begun, b, a)
	if err != nil {
		s.Fatalf("distributions: %v", err)
	}
	if !near(other[2], kept[0]) || !near(other[0], kept[2]) || !near(other[1], kept[1]) {
		s.Errorf("in another order prompts have other distributions")
	}
	// A prompt that does not fit is told in its place.
	long := s.job(strings.Repeat(s.text(0)+" ", s.info.Context))
	told := ""
	for next, err := range p.Distributions(s.Context(), []inference.Job{a, long, b}) {
		switch {
		case errors.Is(err, inference.ErrPrompt) && next == nil:
			told += "prompt "
		case err != nil:
			told += fmt.Sprintf("error %v ", err)
		default:
			told += "distribution "
		}
	}
	if told != "distribution prompt distribution " {
		s.Errorf("a prompt that does not fit, between two that do: %s", told)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	n := 0
	for _, err := range p.Distributions(ctx, []inference.Job{a, b}) {
		if n++; err != context.Canceled {
			s.Errorf("cancelled beforehand: %v", err)
		}
	}
	if n != 1 {
		s.Errorf("cancelled beforehand: %d elements", n)
	}
}
