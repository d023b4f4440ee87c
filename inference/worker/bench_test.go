//go:build unix

package worker_test

import (
	"testing"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
	"demur/inference/worker"
)

// What the border costs: units of 4 prompts with 20 trials each, in this process
// and in a child.
func BenchmarkUnit(b *testing.B) {
	jobs := fourJobs()
	for i := range jobs {
		jobs[i].Samplings = nil
		for k := range 20 {
			jobs[i].Samplings = append(jobs[i].Samplings, data.Sampling{Temperature: float64(k%4) / 3, Seed: uint32(k), MaxTokens: 64})
		}
	}
	run := func(b *testing.B, e inference.Engine) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := collect(b.Context(), e, jobs); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(80*b.N)/b.Elapsed().Seconds(), "trials/s")
	}
	b.Run("here", func(b *testing.B) {
		e, err := enginetest.Open(enginetest.Script{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		run(b, e)
	})
	b.Run("child", func(b *testing.B) {
		c, err := worker.Self()
		if err != nil {
			b.Fatal(err)
		}
		c.Env = []string{role + "=child"}
		e, err := worker.Start(b.Context(), c, spec{}, worker.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		run(b, e)
	})
}

// A start is what a crash costs apart from the unit.
func BenchmarkStart(b *testing.B) {
	c, err := worker.Self()
	if err != nil {
		b.Fatal(err)
	}
	c.Env = []string{role + "=child"}
	for b.Loop() {
		e, err := worker.Start(b.Context(), c, spec{}, worker.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
