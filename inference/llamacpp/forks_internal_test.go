package llamacpp

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/models/phantom"
)

// TestWithoutForks runs a memory that can fork as one that cannot: every
// continuation evaluates its prompt, greedy answers stay what they are, and the
// counters say what it costs.
func TestWithoutForks(t *testing.T) {
	if _, err := FindLibrary(""); err != nil {
		t.Skip(err)
	}
	spec, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteGGUF(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(forks bool) ([]inference.Answer, inference.Counters) {
		e, err := Open(Options{Model: path, Threads: 1, Rows: 5})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		e.forks = forks
		var unit []inference.Job
		for _, text := range []string{"How do I bake bread?", "Why is the sea salt?", "Tell me about bicycles."} {
			messages := []data.Message{{Role: "user", Content: text}}
			job := inference.Job{Prompt: data.Prompt{ID: data.PromptID(messages), Messages: messages}, Continuations: []string{"Sure", "No", "Surely not"}}
			for seed := range uint32(4) {
				job.Samplings = append(job.Samplings, data.Sampling{Seed: seed, Temperature: float64(seed / 2), MaxTokens: 30})
			}
			unit = append(unit, job)
		}
		var out []inference.Answer
		for range 2 { // the second time everything must be as the first
			var answers []inference.Answer
			for a, err := range e.Generate(context.Background(), unit) {
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, a)
			}
			if out != nil && !reflect.DeepEqual(out, answers) {
				t.Errorf("forks %v: the same unit gave other answers", forks)
			}
			out = answers
		}
		return out, e.Counters()
	}
	with, c := run(true)
	without, d := run(false)
	for i := range with {
		for j := range with[i].Generations {
			if a, b := with[i].Generations[j], without[i].Generations[j]; a.Sampling.Temperature == 0 && a.Text != b.Text {
				t.Errorf("with forks %q, without %q", a.Text, b.Text)
			}
		}
		if len(without[i].Scores) != 3 {
			t.Errorf("scores %v", without[i].Scores)
		}
	}
	if d.PromptTokens < 3*c.PromptTokens {
		t.Errorf("%d prompt tokens with forks, %d without", c.PromptTokens, d.PromptTokens)
	}
}
