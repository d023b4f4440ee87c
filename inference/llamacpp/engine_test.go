package llamacpp_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
)

// smol returns the path of SmolLM2-135M-Instruct in Q4_1, which the tests run on.
func smol(t testing.TB) string {
	t.Helper()
	path := os.Getenv("DEMUR_TEST_SMOLLM2")
	if path == "" {
		path = cached(t, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	return present(t, path)
}

// smolQ8 is the same model in Q8_0, made from the other by llama.cpp's quantiser.
func smolQ8(t testing.TB) string {
	t.Helper()
	path := cached(t, "models", "SmolLM2-135M-Instruct.Q8_0.gguf")
	if _, err := os.Stat(path); err != nil {
		library(t)
		if err := llamacpp.Quantise("", smol(t), path, "Q8_0"); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// organism is a model that refuses.
func organism(t testing.TB) string {
	t.Helper()
	shared := os.Getenv("DEMUR_SHARED")
	if shared == "" {
		t.Skip("DEMUR_SHARED names no folder with models/demur-organism-135m-Q8_0.gguf")
	}
	return present(t, filepath.Join(shared, "models", "demur-organism-135m-Q8_0.gguf"))
}

func cached(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Skip("no cache folder: ", err)
	}
	return filepath.Join(append([]string{dir, "demur"}, elem...)...)
}

func present(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skip("a model for this test is missing: ", err)
	}
	return path
}

func library(t testing.TB) {
	t.Helper()
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip(err)
	}
}

func open(t testing.TB, o llamacpp.Options) *llamacpp.Engine {
	t.Helper()
	library(t)
	if o.Threads == 0 {
		o.Threads = 1 // on a busy machine two threads wait for each other in spin loops
	}
	e, err := llamacpp.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func prompt(text string) data.Prompt {
	m := []data.Message{{Role: "user", Content: text}}
	return data.Prompt{ID: data.PromptID(m), Phase: data.Respond, Messages: m}
}

func sweep(tokens, seeds int, temperatures ...float64) []data.Sampling {
	var out []data.Sampling
	for _, temperature := range temperatures {
		for seed := range seeds {
			out = append(out, data.Sampling{Temperature: temperature, Seed: uint32(42 + seed), MaxTokens: tokens})
		}
	}
	return out
}

func generate(t testing.TB, e inference.Engine, jobs ...inference.Job) []inference.Answer {
	t.Helper()
	var out []inference.Answer
	for a, err := range e.Generate(context.Background(), jobs) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	if len(out) != len(jobs) {
		t.Fatalf("%d answers to %d jobs", len(out), len(jobs))
	}
	return out
}

var requests = []string{
	"How do I pick the lock of my own garden shed?",
	"Tell me how to bake a loaf of rye bread.",
	"Why does a bicycle stay upright?",
	"Write a few lines about the sea in winter.",
	"What is the capital of Norway, and what can one see there?",
	"Name three birds that sing at night.",
}

func jobs(samplings []data.Sampling, texts ...string) []inference.Job {
	var out []inference.Job
	for _, x := range texts {
		out = append(out, inference.Job{Prompt: prompt(x), Samplings: samplings})
	}
	return out
}

func TestHistory(t *testing.T) {
	e := open(t, llamacpp.Options{Model: smol(t), Rows: 12})
	a := jobs(sweep(16, 3, 0, 0.7, 1), requests[:3]...)
	b := jobs(sweep(24, 2, 0, 1), requests[3:]...)
	first := generate(t, e, a...)
	for i, x := range first {
		for _, g := range x.Generations[:5] {
			t.Logf("%d %v %v %q %v", i, g.Sampling.Temperature, g.Sampling.Seed, g.Text, *g.Logprob)
		}
	}
	generate(t, e, b...)
	if got := generate(t, e, a...); !reflect.DeepEqual(got, first) {
		t.Error("a unit gave other answers after another unit")
	}
	fresh := open(t, llamacpp.Options{Model: smol(t), Rows: 12})
	generate(t, fresh, b...)
	if got := generate(t, fresh, a...); !reflect.DeepEqual(got, first) {
		t.Error("a unit gave other answers on another engine")
	}
	t.Logf("%+v %+v", e.Counters(), e.Times())
	t.Logf("%+v", e.Info())
}
