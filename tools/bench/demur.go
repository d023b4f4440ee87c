package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
	"demur/inference/worker"
	"demur/protocol"
)

const engineCommand = "__engine"

type engineSpec struct {
	Model   string
	Context int
	Threads int
}

// serveEngine is demur's engine process.
func serveEngine() {
	worker.Main(func(raw json.RawMessage, progress inference.Progress) (inference.Engine, error) {
		var s engineSpec
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		return llamacpp.Open(llamacpp.Options{Model: s.Model, Context: s.Context, Threads: s.Threads, Progress: progress})
	})
}

// measureDemur times demur's whole job: worker process, protocol, journal,
// compaction. Only opening the model is left out, as for the peers.
func measureDemur(ctx context.Context, o options, path string, p *plan) (measurement, inference.Counters, error) {
	self, err := worker.Self(engineCommand)
	if err != nil {
		return measurement{}, inference.Counters{}, err
	}
	e, err := worker.Start(ctx, self, engineSpec{path, p.plan.Context, o.threads}, worker.Options{})
	if err != nil {
		return measurement{}, inference.Counters{}, err
	}
	defer e.Close()
	info := e.Info()
	info.Grammars, info.Scorer = false, false // not every peer has them
	w, err := p.plan.Bind(info, p.requests, "", nil)
	if err != nil {
		return measurement{}, inference.Counters{}, err
	}
	dir, err := os.MkdirTemp("", "demur-bench-*")
	if err != nil {
		return measurement{}, inference.Counters{}, err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	run, err := data.Create(filepath.Join(dir, "run"), data.Manifest{RunID: "bench", PlanID: w.PlanID}, w.Requests)
	if err != nil {
		return measurement{}, inference.Counters{}, err
	}
	defer run.Close()
	m := measurement{Side: "demur"}
	var engine inference.Engine = e
	if o.greedyOnce {
		engine = once{e}
	}
	err = protocol.Run(ctx, engine, w, run, protocol.RunOptions{Finished: func(u data.Unit) {
		for _, t := range u.Trials {
			if t.ErrorKind != "" {
				err = fmt.Errorf("trial %s: %s", t.ID, t.ErrorKind)
			}
			m.Trials++
			m.Tokens += t.Tokens
		}
	}})
	if err != nil {
		return measurement{}, inference.Counters{}, err
	}
	if err := run.Compact(); err != nil {
		return measurement{}, inference.Counters{}, err
	}
	m.Seconds = time.Since(began).Seconds()
	return m, e.Counters(), nil
}

// once asks each prompt once at temperature 0.
type once struct{ inference.Engine }

func (o once) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	short := make([]inference.Job, len(jobs))
	for i, j := range jobs {
		short[i] = j
		short[i].Samplings = greedyOnce(j.Samplings)
	}
	return func(yield func(inference.Answer, error) bool) {
		n := 0
		for a, err := range o.Engine.Generate(ctx, short) {
			if err == nil {
				// The answers that were not asked for again are the first one's.
				full := make([]data.Generation, 0, len(jobs[n].Samplings))
				next := 0
				greedy := -1
				for _, s := range jobs[n].Samplings {
					if s.Temperature == 0 && greedy >= 0 {
						g := a.Generations[greedy]
						g.Sampling = s
						full = append(full, g)
						continue
					}
					if s.Temperature == 0 {
						greedy = next
					}
					full = append(full, a.Generations[next])
					next++
				}
				a.Generations = full
			}
			n++
			if !yield(a, err) {
				return
			}
		}
	}
}
