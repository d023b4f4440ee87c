//go:build unix

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
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

// viewed is an engine with a made-up residual stream: its value is 1000 times the
// layer plus the position, but for the words that do something else.
type viewed struct {
	*enginetest.Scripted
	progress inference.Progress
	steered  float32 // by Steer
}

func openViewed(raw json.RawMessage, progress inference.Progress) (inference.Engine, error) {
	e, err := enginetest.OpenJSON(raw, progress)
	if err != nil {
		return nil, err
	}
	return &viewed{Scripted: e.(*enginetest.Scripted), progress: progress}, nil
}

func (v *viewed) Activate(ctx context.Context, jobs []inference.ActivateJob) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		for _, job := range jobs {
			text := job.Prompt.Messages[0].Content
			switch {
			case strings.HasPrefix(text, "die once ") && !exists(strings.TrimPrefix(text, "die once ")):
				os.WriteFile(strings.TrimPrefix(text, "die once "), nil, 0o600)
				time.Sleep(50 * time.Millisecond) // what was said before is on its way
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case text == "die":
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case text == "too long":
				if !yield(data.Activation{PromptID: job.Prompt.ID}, errors.Join(inference.ErrPrompt)) {
					return
				}
				continue
			case text == "wrong":
				yield(data.Activation{}, errors.New("there is no layer 99"))
				return
			case text == "wait":
				<-ctx.Done()
				yield(data.Activation{}, ctx.Err())
				return
			}
			for _, l := range job.Layers {
				for _, p := range job.Positions {
					row := data.Activation{PromptID: job.Prompt.ID, Layer: l, Position: p, Token: int32(-p), Values: make([]float32, 300)}
					for i := range row.Values {
						row.Values[i] = float32(1000*l+p) + float32(i)/512
					}
					row.Values[1], row.Values[2] = float32(math.NaN()), float32(math.Inf(-1))
					if !yield(row, nil) {
						return
					}
				}
			}
			v.progress(0)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (v *viewed) Tokenize(messages []data.Message, prefix string) ([]int32, []string, error) {
	if messages[0].Content == "too long" {
		return nil, nil, inference.ErrPrompt
	}
	return []int32{3, 1}, []string{"a\xff", prefix}, nil
}

func look(text string) inference.ActivateJob {
	return inference.ActivateJob{Prompt: job(text).Prompt, Layers: []int{-1, 0, 7}, Positions: []int{-1, -4}}
}

func startViewed(t *testing.T) *worker.Engine {
	t.Helper()
	e, err := worker.Start(t.Context(), command(t, "viewed"), enginetest.Script{}, worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

type shown struct {
	id              string
	layer, position int
	first, last     float32
	err             string
}

func activations(t *testing.T, e *worker.Engine, texts ...string) (rows []shown, last error) {
	t.Helper()
	var jobs []inference.ActivateJob
	for _, text := range texts {
		jobs = append(jobs, look(text))
	}
	for row, err := range e.Activate(t.Context(), jobs) {
		switch {
		case errors.Is(err, inference.ErrPrompt):
			rows = append(rows, shown{id: row.PromptID, err: "prompt"})
			continue
		case err != nil:
			return rows, err
		}
		if v := row.Values; len(v) != 300 || !math.IsNaN(float64(v[1])) || !math.IsInf(float64(v[2]), -1) || row.Token != int32(-row.Position) {
			t.Errorf("row %+v", row)
		}
		rows = append(rows, shown{row.PromptID, row.Layer, row.Position, row.Values[0], row.Values[299], ""})
	}
	return rows, nil
}

func want(texts ...string) (rows []shown) {
	for _, text := range texts {
		j := look(text)
		if text == "too long" {
			rows = append(rows, shown{id: j.Prompt.ID, err: "prompt"})
			continue
		}
		for _, l := range j.Layers {
			for _, p := range j.Positions {
				rows = append(rows, shown{j.Prompt.ID, l, p, float32(1000*l + p), float32(1000*l+p) + float32(299)/512, ""})
			}
		}
	}
	return rows
}

func TestActivateOverTheBorder(t *testing.T) {
	e := startViewed(t)
	texts := []string{"bread", "too long", "sea", "sea"}
	got, err := activations(t, e, texts...)
	if err != nil || !reflect.DeepEqual(got, want(texts...)) {
		t.Errorf("got %v, %v\nwant %v", got, err, want(texts...))
	}
	ids, pieces, err := e.Tokenize(job("bread").Prompt.Messages, "Sure")
	if err != nil || !reflect.DeepEqual(ids, []int32{3, 1}) || !reflect.DeepEqual(pieces, []string{"a\xff", "Sure"}) {
		t.Errorf("tokens %v %q %v", ids, pieces, err)
	}
	if _, _, err := e.Tokenize(job("too long").Prompt.Messages, ""); !errors.Is(err, inference.ErrPrompt) {
		t.Errorf("a prompt that cannot be tokenised: %v", err)
	}
	if _, err := activations(t, e, "bread", "wrong", "sea"); err == nil || !strings.Contains(err.Error(), "layer 99") {
		t.Errorf("a wrong question: %v", err)
	}
	// It generates as before, in the same process.
	answers, err := collect(t.Context(), e, fourJobs())
	if err != nil || len(answers) != 4 || e.Starts() != 1 {
		t.Errorf("%d answers, %v, %d starts", len(answers), err, e.Starts())
	}
}

// A child that dies costs no row: what was given is not given twice.
func TestActivateAfterDeath(t *testing.T) {
	e := startViewed(t)
	texts := []string{"bread", "too long", "die once " + filepath.Join(t.TempDir(), "died"), "sea"}
	got, err := activations(t, e, texts...)
	if err != nil || !reflect.DeepEqual(got, want(texts...)) || e.Starts() != 2 {
		t.Errorf("got %v, %v after %d starts", got, err, e.Starts())
	}
	if _, err := activations(t, e, "bread", "die"); err == nil || !strings.Contains(err.Error(), "SIGKILL") {
		t.Errorf("a prompt that always kills: %v", err)
	}
	if got, err := activations(t, e, "sea"); err != nil || len(got) != 6 {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

func TestActivateStops(t *testing.T) {
	e := startViewed(t)
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	n := 0
	for _, err := range e.Activate(ctx, []inference.ActivateJob{look("bread"), look("sea"), look("wait")}) {
		if n++; n == 2 {
			if _, _, err := e.Tokenize(job("bread").Prompt.Messages, ""); err == nil {
				t.Error("two questions at a time")
			}
			cancel()
		}
		last = err
	}
	cancel()
	if !errors.Is(last, context.Canceled) {
		t.Errorf("cancelled: %v after %d rows", last, n)
	}
	for range e.Activate(t.Context(), []inference.ActivateJob{look("bread"), look("sea"), look("wait")}) {
		break
	}
	if got, err := activations(t, e, "sea"); err != nil || len(got) != 6 || e.Starts() != 1 {
		t.Errorf("afterwards: %v, %v, %d starts", got, err, e.Starts())
	}
}

// An engine that has no stream to show says so.
func TestActivateNotOffered(t *testing.T) {
	e := start(t, enginetest.Script{}, worker.Options{})
	if _, err := activations(t, e, "bread"); !errors.Is(err, inference.ErrUnavailable) {
		t.Errorf("activations: %v", err)
	}
	if _, _, err := e.Tokenize(job("bread").Prompt.Messages, ""); !errors.Is(err, inference.ErrUnavailable) {
		t.Errorf("tokens: %v", err)
	}
	if answers, err := collect(t.Context(), e, fourJobs()); err != nil || len(answers) != 4 {
		t.Errorf("afterwards: %v", err)
	}
}

// TestLlamaActivates: over the border the same bits as in this process.
func TestLlamaActivates(t *testing.T) {
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
	var jobs []inference.ActivateJob
	for _, text := range []string{"How do I bake bread?", "Why is the sea salt?"} {
		jobs = append(jobs, inference.ActivateJob{Prompt: job(text).Prompt, Positions: []int{-1, -2}})
	}
	rows := func(e inference.Activator) (out []data.Activation) {
		for row, err := range e.Activate(t.Context(), jobs) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, row)
		}
		return out
	}
	got, want := rows(there), rows(here)
	if len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d rows over the border are not the %d here", len(got), len(want))
	}
	ids, pieces, err := there.Tokenize(jobs[0].Prompt.Messages, "Sure")
	wantIDs, wantPieces, _ := here.Tokenize(jobs[0].Prompt.Messages, "Sure")
	if err != nil || !reflect.DeepEqual(ids, wantIDs) || !reflect.DeepEqual(pieces, wantPieces) {
		t.Errorf("tokens %v %q %v, here %v %q", ids, pieces, err, wantIDs, wantPieces)
	}
}
