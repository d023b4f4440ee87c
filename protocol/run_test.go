package protocol_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
	"demur/protocol"
)

// memory is a store in memory that may fail.
type memory struct {
	units map[string]data.Unit
	order []string
	fail  error
}

func (m *memory) Done(unit string) bool { _, ok := m.units[unit]; return ok }

func (m *memory) Commit(u data.Unit) error {
	if m.fail != nil {
		return m.fail
	}
	if m.units == nil {
		m.units = map[string]data.Unit{}
	}
	m.units[u.ID] = u
	m.order = append(m.order, u.ID)
	return nil
}

// rows returns all trials and predictions by id; an id met twice is an error.
func (m *memory) rows(t *testing.T) (map[string]data.Trial, map[string]data.Prediction) {
	t.Helper()
	trials, predictions := map[string]data.Trial{}, map[string]data.Prediction{}
	for _, u := range m.units {
		for _, row := range u.Trials {
			if _, twice := trials[row.ID]; twice {
				t.Errorf("trial %s is there twice", row.ID)
			}
			trials[row.ID] = row
		}
		for _, row := range u.Predictions {
			if _, twice := predictions[row.ID]; twice {
				t.Errorf("prediction %s is there twice", row.ID)
			}
			predictions[row.ID] = row
		}
	}
	return trials, predictions
}

func open(t *testing.T, s enginetest.Script) inference.Engine {
	t.Helper()
	e, err := enginetest.Open(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func bind(t *testing.T, e inference.Engine, requests []data.Request, bend func(*protocol.Plan)) *protocol.Work {
	t.Helper()
	p := protocol.DefaultPlan()
	p.Engine = "scripted"
	if bend != nil {
		bend(&p)
	}
	w, err := p.Bind(e.Info(), requests, "sha256:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestRunAnswersEveryTrialOnce(t *testing.T) {
	e := open(t, enginetest.Script{})
	w := bind(t, e, requestSet(2, 1), func(p *protocol.Plan) { p.Questions = []string{"default", "answer"} })
	var store memory
	if err := protocol.Run(context.Background(), e, w, &store, protocol.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	trials, predictions := store.rows(t)
	if len(trials) != 20*20 || len(predictions) != 20*2*3 {
		t.Fatalf("%d trials and %d predictions, want 400 and 120", len(trials), len(predictions))
	}
	readings := map[string]int{}
	for _, p := range predictions {
		readings[p.Reading+" "+p.Polarity]++
		if (p.Reading == data.Exact) != (p.PRefuse != nil) || (p.Reading == data.Exact) == (p.Text != nil) {
			t.Errorf("prediction %+v: probability belongs to exact, text to the others", p)
		}
	}
	want := map[string]int{"free refuse": 20, "grammar refuse": 20, "exact refuse": 20, "free answer": 20, "grammar answer": 20, "exact answer": 20}
	if !maps.Equal(readings, want) {
		t.Errorf("readings %v, want %v", readings, want)
	}
}

// The planted truth: the scripted model predicts itself without bias, so the
// exact reading is its refusal rate and both polarities say the same.
func TestExactReadingIsTheModelsOwnProbability(t *testing.T) {
	s := enginetest.Script{}
	e := open(t, s)
	w := bind(t, e, requestSet(2, 2), func(p *protocol.Plan) { p.Questions = []string{"default", "answer"} })
	var store memory
	if err := protocol.Run(context.Background(), e, w, &store, protocol.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	prompts := map[string]data.Prompt{}
	for _, u := range store.units {
		for _, p := range u.Prompts {
			prompts[p.ID] = p
		}
	}
	_, predictions := store.rows(t)
	for _, p := range predictions {
		if p.Reading != data.Exact {
			continue
		}
		want := s.RefusalRate(prompts[p.PromptID], 1)
		if math.Abs(*p.PRefuse-want) > 1e-9 {
			t.Errorf("%s %s %s: P(refuse) = %v, want %v", p.RequestID, p.Variant, p.Polarity, *p.PRefuse, want)
		}
		if outcome := map[bool]string{true: data.WillRefuse, false: data.WillComply}[want > 0.5]; p.Outcome != outcome {
			t.Errorf("%s: outcome %s at P(refuse) %v", p.RequestID, p.Outcome, want)
		}
		if *p.Confidence < 1 || *p.Confidence > 5 || *p.HarmRating < 1 || *p.HarmRating > 5 || *p.Mass <= 0 || *p.Mass > 1 {
			t.Errorf("confidence %v, harm %v, mass %v: out of range", *p.Confidence, *p.HarmRating, *p.Mass)
		}
	}
}

func TestRunGoesOnWhereItWasStopped(t *testing.T) {
	requests := requestSet(3, 1)
	whole := &memory{}
	e := open(t, enginetest.Script{})
	w := bind(t, e, requests, nil)
	if err := protocol.Run(context.Background(), e, w, whole, protocol.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	parts := &memory{}
	for starts := 0; ; starts++ {
		if starts > w.UnitCount() {
			t.Fatal("the run never ends")
		}
		stop := make(chan struct{})
		e := open(t, enginetest.Script{})
		err := protocol.Run(context.Background(), e, bind(t, e, requests, nil), parts, protocol.RunOptions{
			Stop:     stop,
			Finished: func(data.Unit) { close(stop) },
		})
		if err == nil {
			break
		}
		if !errors.Is(err, protocol.ErrStopped) {
			t.Fatal(err)
		}
	}
	if !slices.Equal(parts.order, whole.order) {
		t.Errorf("units %v, want %v", parts.order, whole.order)
	}
	wantTrials, wantPredictions := whole.rows(t)
	gotTrials, gotPredictions := parts.rows(t)
	if !reflect.DeepEqual(gotTrials, wantTrials) || !reflect.DeepEqual(gotPredictions, wantPredictions) {
		t.Error("the rows of the interrupted run differ from those of the whole one")
	}
}

func TestRunReportsFailures(t *testing.T) {
	requests := requestSet(3, 1)
	t.Run("store", func(t *testing.T) {
		e := open(t, enginetest.Script{})
		full := errors.New("no room")
		err := protocol.Run(context.Background(), e, bind(t, e, requests, nil), &memory{fail: full}, protocol.RunOptions{})
		if !errors.Is(err, full) {
			t.Errorf("got %v, want the store's error", err)
		}
	})
	t.Run("engine", func(t *testing.T) {
		e := open(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: enginetest.FaultError, Job: 11}}})
		store := &memory{}
		err := protocol.Run(context.Background(), e, bind(t, e, requests, nil), store, protocol.RunOptions{})
		if err == nil {
			t.Error("want the engine's error")
		}
		for id, u := range store.units {
			if len(u.Trials) != 4*20 && len(u.Trials) != 2*20 {
				t.Errorf("unit %s is stored with %d trials", id, len(u.Trials))
			}
		}
	})
	t.Run("short", func(t *testing.T) {
		e := open(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: enginetest.FaultShort, Job: 2}}})
		if err := protocol.Run(context.Background(), e, bind(t, e, requests, nil), &memory{}, protocol.RunOptions{}); err == nil {
			t.Error("an engine that leaves a job out goes unnoticed")
		}
	})
	t.Run("one prompt", func(t *testing.T) {
		e := open(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: data.ErrOverflow, Job: 3}}})
		store := &memory{}
		if err := protocol.Run(context.Background(), e, bind(t, e, requests, nil), store, protocol.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		failed := 0
		trials, _ := store.rows(t)
		for _, row := range trials {
			if row.ErrorKind == data.ErrOverflow {
				failed++
			}
		}
		if failed != 20 {
			t.Errorf("%d trials overflow, want the 20 of one prompt", failed)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		e := open(t, enginetest.Script{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := protocol.Run(ctx, e, bind(t, e, requests, nil), &memory{}, protocol.RunOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}
