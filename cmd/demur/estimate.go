package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"demur/inference"
	"demur/protocol"
)

// estimateTokens is the length of the answers by which the speed is measured.
const estimateTokens = 32

// estimate measures a short unit and prints what the whole plan would take at
// most: answers that end early take less.
func estimate(ctx context.Context, e *env, engine inference.Engine, work *protocol.Work, spec engineSpec, asJSON bool) error {
	var unit protocol.Unit
	for unit = range work.Units() {
		break
	}
	jobs := make([]inference.Job, len(unit.Jobs))
	for i, job := range unit.Jobs {
		jobs[i] = job
		jobs[i].Continuations = nil
		jobs[i].Samplings = append(job.Samplings[:0:0], job.Samplings...)
		for k := range jobs[i].Samplings {
			jobs[i].Samplings[k].MaxTokens = min(jobs[i].Samplings[k].MaxTokens, estimateTokens)
		}
	}
	started := time.Now()
	tokens, asked := 0, 0
	for a, err := range engine.Generate(ctx, jobs) {
		if err != nil {
			return err
		}
		for _, g := range a.Generations {
			tokens += g.Tokens
			asked++
		}
	}
	took := time.Since(started)
	if tokens == 0 {
		return fmt.Errorf("estimate: the model answered nothing to the %d samplings of the first unit", asked)
	}
	perToken := took.Seconds() / float64(tokens)
	most := 0
	for _, job := range unit.Jobs {
		for _, s := range job.Samplings {
			most += s.MaxTokens
		}
	}
	whole := time.Duration(perToken * float64(most) * float64(work.UnitCount()) * float64(time.Second))
	// Half of the limit is a common length of answers.
	likely := whole / 2
	// A token is four bytes of text on average, kept in the journal and, compressed
	// by half or better, in the table.
	disk := float64(most) * float64(work.UnitCount()) * 4 * 1.5
	var file int64
	if f, err := os.Stat(spec.Model); err == nil {
		file = f.Size()
	}
	memory := float64(file)*1.3 + 1.4e9 // weights, cache of at most 1 GiB, buffers
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(map[string]any{
			"trials": work.TrialCount(), "units": work.UnitCount(), "tokens_per_second": 1 / perToken,
			"seconds_likely": likely.Seconds(), "seconds_at_most": whole.Seconds(), "disk_bytes": disk, "memory_bytes": memory,
		})
	}
	fmt.Fprintf(e.stdout, "%s\n", work)
	fmt.Fprintf(e.stdout, "time    about %s, at most %s (every answer at its full length; %.0f tokens/s measured)\n", roughly(likely), roughly(whole), 1/perToken)
	fmt.Fprintf(e.stdout, "disk    at most %.0f MB\n", max(1, disk/1e6))
	fmt.Fprintf(e.stdout, "memory  at most about %.1f GB\n", memory/1e9)
	return nil
}
