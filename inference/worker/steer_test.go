//go:build unix

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
	"demur/inference/llamacpp"
	"demur/inference/worker"
	"demur/models/phantom"
)

// Steer makes the first value of a vector added after block 0 the engine's own;
// some values do something else.
func (v *viewed) Steer(ctx context.Context, s *inference.Steering) error {
	v.steered = 0
	if s == nil {
		return nil
	}
	switch x := s.Add[0][0]; x {
	case -1:
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case -2:
		return errors.New("there is no block 99")
	case -3:
		<-ctx.Done()
		return ctx.Err()
	default:
		v.steered = x
	}
	return nil
}

// Distributions yields the steering's value and the length of the text.
func (v *viewed) Distributions(ctx context.Context, jobs []inference.Job) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		for _, j := range jobs {
			text := j.Prompt.Messages[0].Content + j.Prefix
			switch {
			case strings.HasPrefix(text, "die once ") && !exists(strings.TrimPrefix(text, "die once ")):
				os.WriteFile(strings.TrimPrefix(text, "die once "), nil, 0o600)
				time.Sleep(50 * time.Millisecond)
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case text == "wrong":
				yield(nil, errors.New("no such thing"))
				return
			}
			next, err := []float32{v.steered, float32(len(text)), float32(math.Inf(-1))}, error(nil)
			if text == "too long" {
				next, err = nil, fmt.Errorf("%w: too long", inference.ErrPrompt)
			}
			if !yield(next, err) {
				return
			}
		}
	}
}

func added(x float32) *inference.Steering {
	return &inference.Steering{Add: map[int][]float32{0: {x, 2}}}
}

// nexts returns what Distributions yields for texts, an error in its place.
func nexts(t *testing.T, e *worker.Engine, texts ...string) (out []string, last error) {
	t.Helper()
	var jobs []inference.Job
	for _, text := range texts {
		j := job(text)
		j.Prefix = "!"
		if text == "too long" || strings.HasPrefix(text, "die") || text == "wrong" {
			j.Prefix = ""
		}
		jobs = append(jobs, j)
	}
	for next, err := range e.Distributions(t.Context(), jobs) {
		switch {
		case errors.Is(err, inference.ErrPrompt):
			out = append(out, "prompt")
		case err != nil:
			return out, err
		default:
			out = append(out, fmt.Sprint(next))
		}
	}
	return out, nil
}

// The steering in force is that of every child.
func TestSteerOverTheBorder(t *testing.T) {
	e := startViewed(t)
	check := func(want string, texts ...string) {
		t.Helper()
		if got, err := nexts(t, e, texts...); err != nil || strings.Join(got, " ") != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	steer := func(s *inference.Steering, want string) {
		t.Helper()
		err := e.Steer(t.Context(), s)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	check("[0 6 -Inf] prompt", "bread", "too long")
	s := added(1.5)
	steer(s, "")
	s.Add[0][0] = -1 // what the caller does with it is his affair
	check("[1.5 6 -Inf]", "bread")
	// The child dies in the middle: nothing is given twice, and the next is steered.
	died := "die once " + filepath.Join(t.TempDir(), "died")
	check(fmt.Sprintf("[1.5 6 -Inf] prompt [1.5 %d -Inf] [1.5 4 -Inf]", len(died)), "bread", "too long", died, "sea")
	if e.Starts() != 2 {
		t.Errorf("%d starts", e.Starts())
	}
	if _, err := nexts(t, e, "bread", "wrong"); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("error %v", err)
	}
	// It dies between units, and of a steering: the one before stays in force.
	syscall.Kill(e.PID(), syscall.SIGKILL)
	time.Sleep(50 * time.Millisecond)
	answers, err := collect(t.Context(), e, fourJobs())
	if err != nil || len(answers) != 4 || e.Starts() != 3 {
		t.Errorf("%d answers, %v, %d starts", len(answers), err, e.Starts())
	}
	check("[1.5 6 -Inf]", "bread")
	steer(added(-1), "SIGKILL")
	check("[1.5 6 -Inf]", "bread")
	steer(added(-2), "block 99")
	steer(added(float32(math.NaN())), "NaN")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Steer(ctx, added(-3)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	check("[1.5 6 -Inf]", "bread")
	steer(nil, "")
	check("[0 6 -Inf]", "bread")
	syscall.Kill(e.PID(), syscall.SIGKILL)
	check("[0 6 -Inf]", "bread")
	// No other question while one is being answered.
	for range e.Distributions(t.Context(), []inference.Job{job("bread"), job("sea")}) {
		if err := e.Steer(t.Context(), added(3)); err == nil {
			t.Error("steered in the middle of a question")
		}
		break
	}
	check("[0 6 -Inf]", "bread")
}

func TestSteerNotOffered(t *testing.T) {
	e := start(t, enginetest.Script{}, worker.Options{})
	if err := e.Steer(t.Context(), added(1)); !errors.Is(err, inference.ErrUnavailable) {
		t.Errorf("steering: %v", err)
	}
	if _, err := nexts(t, e, "bread"); !errors.Is(err, inference.ErrUnavailable) {
		t.Errorf("distributions: %v", err)
	}
	if answers, err := collect(t.Context(), e, fourJobs()); err != nil || len(answers) != 4 {
		t.Errorf("afterwards: %v", err)
	}
}

// TestLlamaSteers: over the border the same bits as in this process, in a second
// child too.
func TestLlamaSteers(t *testing.T) {
	l := llama{LibDir: library(t), Threads: 1, Model: filepath.Join(t.TempDir(), "phantom.gguf")}
	s, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(l.Model)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.WriteGGUF(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	here, err := llamacpp.Open(llamacpp.Options{Model: l.Model, LibDir: l.LibDir, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := worker.Start(t.Context(), command(t, "llamacpp"), l, worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	_, refusal := m.Directions()
	v := make([]float32, len(refusal.Vector))
	for i, x := range refusal.Vector {
		v[i] = float32(x / 3)
	}
	change := &inference.Steering{Add: map[int][]float32{2: v}, Ablate: map[int][]float32{1: v}}
	type engine interface {
		inference.Engine
		inference.Activator
		inference.Steerer
		inference.Predictor
	}
	type outcome struct {
		answers []inference.Answer
		rows    []data.Activation
		next    [][]float32
	}
	look := func(e engine) (o outcome) {
		t.Helper()
		var err error
		if o.answers, err = collect(t.Context(), e, fourJobs()); err != nil {
			t.Fatal(err)
		}
		for row, err := range e.Activate(t.Context(), []inference.ActivateJob{{Prompt: job("bread").Prompt, Positions: []int{-1}}}) {
			if err != nil {
				t.Fatal(err)
			}
			o.rows = append(o.rows, row)
		}
		for next, err := range e.Distributions(t.Context(), fourJobs()) {
			if err != nil {
				t.Fatal(err)
			}
			o.next = append(o.next, next)
		}
		return o
	}
	plain := look(here)
	for _, e := range []engine{here, there} {
		if err := e.Steer(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	want := look(here)
	if reflect.DeepEqual(want, plain) {
		t.Fatal("the change changes nothing")
	}
	if got := look(there); !reflect.DeepEqual(got, want) {
		t.Error("over the border it is otherwise than here")
	}
	syscall.Kill(there.PID(), syscall.SIGKILL)
	time.Sleep(50 * time.Millisecond)
	got := look(there)
	if there.Starts() != 2 {
		t.Errorf("%d starts", there.Starts())
	}
	for i := range got.answers {
		got.answers[i].Attempts = nil // tell of the death
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("in a second child it is otherwise")
	}
	if err := there.Steer(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := look(there); !reflect.DeepEqual(got, plain) {
		t.Error("after its end it is otherwise than before")
	}
}
