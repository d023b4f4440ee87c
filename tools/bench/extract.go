package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
)

// extractOptions say what the side extract needs beside the models.
type extractOptions struct {
	demur        string // binary
	f16          string // SmolLM2 as F16
	transformers string // a Python that has torch and transformers
	script       string
	prompts      int
}

func extractFlags(o *extractOptions) {
	flag.StringVar(&o.demur, "demur", "bin/demur", "binary, for the side extract")
	flag.StringVar(&o.f16, "f16", "", "SmolLM2 as F16, for the side extract at equal precision")
	flag.StringVar(&o.transformers, "transformers", "", "Python with torch, transformers, gguf and accelerate, for the side extract")
	flag.StringVar(&o.script, "transformers-script", "tools/transformers/speed.py", "what that Python runs")
	flag.IntVar(&o.prompts, "extract-prompts", 160, "prompts that are extracted")
}

// An extraction is one side of the extract measurements in one round.
type extraction struct {
	Side    string  `json:"side"`
	Round   int     `json:"round"`
	Prompts int     `json:"prompts"`
	Seconds float64 `json:"seconds"`
}

// prefillSide is the library's prefill alone, of the same packed prompts: no state
// is looked at and nothing is stored. What it falls short of, no extraction by this
// library can reach.
const prefillSide = "prefill q8_0, nothing kept"

func (x extraction) perSecond() float64 { return float64(x.Prompts) / x.Seconds }

// extractResult is all that was measured.
type extractResult struct {
	Rounds           []extraction       `json:"rounds"`
	PromptsPerSecond map[string]float64 `json:"prompts_per_second"` // medians
	Overhead         []float64          `json:"capture_overhead_rounds"`
	Batch            map[string]int     `json:"batch"` // of Transformers, the fastest
	Torch            string             `json:"torch,omitempty"`
}

// measureExtract measures what looking at the residual stream costs, and the whole
// of demur extract (a process from start to end: model, tokens, states of all
// blocks at two positions, Parquet) against Transformers, which has its model
// loaded, its prompts tokenised and sorted, and stores nothing. The side extract is
// the model as users run it; extract_equal is both at equal precision, with the
// prompts' common beginning evaluated once on either side.
func measureExtract(ctx context.Context, o options, q8 string, result map[string]any) error {
	dir, err := os.MkdirTemp("", "demur-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	requests, err := writeRequests(dir, o.extract.prompts)
	if err != nil {
		return err
	}
	r := &extractResult{PromptsPerSecond: map[string]float64{}, Batch: map[string]int{}}
	var sides []extractSide
	first, equal := slices.Contains(o.sides, "extract"), slices.Contains(o.sides, "extract_equal") && o.extract.f16 != ""
	if first {
		sides = append(sides, &demurSide{"demur q8_0", o, q8, requests, dir})
	}
	if equal {
		sides = append(sides, &demurSide{"demur f16", o, o.extract.f16, requests, dir})
	}
	if len(sides) == 0 {
		return nil
	}
	// The first run warms the files, and says which tokens the prompts have.
	for _, s := range sides {
		if _, err := s.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
	}
	work, err := readWork(filepath.Join(dir, sides[0].name()))
	if err != nil {
		return err
	}
	reference := o.extract.f16
	if reference == "" {
		reference = q8
	}
	if o.extract.transformers == "" {
		fmt.Fprintln(os.Stderr, "bench: extract is not measured against Transformers: -transformers names no Python that has it")
	} else {
		for _, prefix := range []bool{false, true} {
			if prefix && !equal || !prefix && !first {
				continue
			}
			for _, dtype := range []string{"float32", "bfloat16"} {
				s, err := startTransformers(ctx, o, reference, dtype, prefix, work)
				if err != nil {
					return fmt.Errorf("transformers, %s: %w", dtype, err)
				}
				defer s.close()
				r.Batch[s.name()], r.Torch = s.batch, s.torch
				sides = append(sides, s)
			}
		}
	}
	var look *looker
	if first {
		if look, err = openLooker(o, q8, work.prompts); err != nil {
			return err
		}
		defer look.close()
	}
	for round := range o.rounds {
		if look != nil {
			plain, seen, err := look.measure(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "bench: round %d  %-32s %+.3f\n", round+1, "capture over plain prefill", seen/plain-1)
			r.Overhead = append(r.Overhead, seen/plain-1)
			r.add(extraction{prefillSide, round + 1, len(work.prompts), plain})
		}
		for _, s := range sides {
			x, err := s.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name(), err)
			}
			x.Side, x.Round = s.name(), round+1
			r.add(x)
		}
	}
	r.put(result)
	return nil
}

func (r *extractResult) add(x extraction) {
	fmt.Fprintf(os.Stderr, "bench: round %d  %-32s %4d prompts in %6.1f s  %6.1f prompts/s\n", x.Round, x.Side, x.Prompts, x.Seconds, x.perSecond())
	r.Rounds = append(r.Rounds, x)
}

// put writes the keys of bench.json.
func (r *extractResult) put(result map[string]any) {
	rates := map[string][]float64{}
	for _, x := range r.Rounds {
		rates[x.Side] = append(rates[x.Side], x.perSecond())
	}
	for side, list := range rates {
		r.PromptsPerSecond[side] = median(list)
	}
	keys := map[string]float64{}
	if len(r.Overhead) > 0 {
		keys["capture_overhead"] = median(r.Overhead)
	}
	for _, k := range []struct{ key, demur, peer string }{
		{"extract_vs_transformers", "demur q8_0", "float32"},
		{"prefill_vs_transformers", prefillSide, "float32"},
		{"extract_vs_transformers_bfloat16", "demur q8_0", "bfloat16"},
		{"extract_vs_transformers_equal", "demur f16", "float32, prefix cached"},
		{"extract_vs_transformers_equal_bfloat16", "demur f16", "bfloat16, prefix cached"},
	} {
		mine, theirs := rates[k.demur], rates["transformers "+k.peer]
		if len(mine) == 0 || len(theirs) == 0 {
			continue
		}
		var ratios []float64
		for i := range mine {
			ratios = append(ratios, mine[i]/theirs[i])
		}
		keys[k.key] = median(ratios)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		result[key] = keys[key]
		fmt.Fprintf(os.Stderr, "bench: %s = %.3f\n", key, keys[key])
	}
	result["measured_extract"] = r
}

// writeRequests writes requests of the built-in set, one wording each, evenly
// over the set.
func writeRequests(dir string, n int) (string, error) {
	all, err := data.Builtin()
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(r data.Request) bool { return r.Variant != data.Base })
	if n < 1 || n > len(all) {
		return "", fmt.Errorf("-extract-prompts %d is not in 1 to %d", n, len(all))
	}
	path := filepath.Join(dir, "requests.jsonl")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	enc := json.NewEncoder(f)
	for i := range n {
		r := all[i*len(all)/n]
		err = errors.Join(err, enc.Encode(map[string]string{"id": r.ID, "text": r.Text}))
	}
	return path, errors.Join(err, f.Close())
}

// An extractSide gives the states of all prompts once.
type extractSide interface {
	name() string
	measure(ctx context.Context) (extraction, error)
}

// demurSide is the command demur extract.
type demurSide struct {
	side            string
	o               options
	model, requests string
	dir             string
}

func (d *demurSide) name() string { return d.side }

func (d *demurSide) measure(ctx context.Context) (extraction, error) {
	out := filepath.Join(d.dir, d.side)
	if err := os.RemoveAll(out); err != nil {
		return extraction{}, err
	}
	c := exec.CommandContext(ctx, d.o.extract.demur, "extract", "--requests", d.requests, "--out", out, "--model", d.model, "--threads", strconv.Itoa(d.o.threads), "--ctx", "512")
	began := time.Now()
	if said, err := c.CombinedOutput(); err != nil {
		return extraction{}, fmt.Errorf("%w: %s", err, said)
	}
	return extraction{Prompts: d.o.extract.prompts, Seconds: time.Since(began).Seconds()}, nil
}

// extractWork is what demur extracted: prompts with their tokens and positions.
type extractWork struct {
	IDs       [][]int32 `json:"ids"`
	Positions [][]int   `json:"positions"`
	prompts   []data.Prompt
}

func readWork(dir string) (extractWork, error) {
	var w extractWork
	positions := map[string][]int{}
	for row, err := range data.ReadTable[data.Activation](dir, data.LayerTable(0)) {
		if err != nil {
			return w, err
		}
		positions[row.PromptID] = append(positions[row.PromptID], row.Position)
	}
	for t, err := range data.ReadTable[data.PromptTokens](dir, data.Tokens) {
		if err != nil {
			return w, err
		}
		w.IDs = append(w.IDs, t.Tokens)
		w.Positions = append(w.Positions, positions[t.PromptID])
	}
	for p, err := range data.ReadTable[data.Prompt](dir, data.Prompts) {
		if err != nil {
			return w, err
		}
		w.prompts = append(w.prompts, p)
	}
	if len(w.IDs) != len(w.prompts) {
		return w, fmt.Errorf("%d of %d prompts have states", len(w.IDs), len(w.prompts))
	}
	return w, nil
}

// transformersSide is a process of tools/transformers/speed.py.
type transformersSide struct {
	side    string
	prompts int
	batch   int
	torch   string
	c       *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

func startTransformers(ctx context.Context, o options, model, dtype string, prefix bool, work extractWork) (*transformersSide, error) {
	s := &transformersSide{side: "transformers " + dtype}
	args := []string{o.extract.script, model, "--dtype", dtype, "--threads", strconv.Itoa(o.threads)}
	if prefix {
		s.side += ", prefix cached"
		args = append(args, "--prefix")
	}
	// As with the other peers, some of the prompts will do.
	some := extractWork{}
	for i := 0; i < len(work.IDs); i += min(o.fraction, 4) {
		some.IDs = append(some.IDs, work.IDs[i])
		some.Positions = append(some.Positions, work.Positions[i])
	}
	s.prompts = len(some.IDs)
	s.c = exec.CommandContext(ctx, o.extract.transformers, args...)
	s.c.Env = append(os.Environ(), "OMP_NUM_THREADS="+strconv.Itoa(o.threads), "PYTHONWARNINGS=ignore", "TQDM_DISABLE=1", "TRANSFORMERS_VERBOSITY=error")
	s.c.Stderr = os.Stderr
	var err error
	if s.in, err = s.c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	if err := s.c.Start(); err != nil {
		return nil, err
	}
	line, err := json.Marshal(some)
	if err != nil {
		return nil, err
	}
	var ready struct {
		Batch int
		Torch string
	}
	if err := s.ask(string(line), &ready); err != nil {
		s.close()
		return nil, err
	}
	s.batch, s.torch = ready.Batch, ready.Torch
	return s, nil
}

func (s *transformersSide) name() string { return s.side }

func (s *transformersSide) ask(line string, answer any) error {
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		return err
	}
	if !s.out.Scan() {
		return errors.Join(errors.New("it gave no answer"), s.out.Err())
	}
	return json.Unmarshal(s.out.Bytes(), answer)
}

func (s *transformersSide) measure(context.Context) (extraction, error) {
	var answer struct{ Seconds float64 }
	err := s.ask("again", &answer)
	return extraction{Prompts: s.prompts, Seconds: answer.Seconds}, err
}

func (s *transformersSide) close() {
	s.in.Close()
	s.c.Wait()
}

// A looker evaluates the batches of an extraction with and without looking.
type looker struct {
	e    *llamacpp.Engine
	jobs [][]inference.ActivateJob
}

func openLooker(o options, model string, prompts []data.Prompt) (*looker, error) {
	e, err := llamacpp.Open(llamacpp.Options{Model: model, Context: 512, Threads: o.threads})
	if err != nil {
		return nil, err
	}
	l := &looker{e: e}
	for part := range slices.Chunk(prompts, 16) { // as probes.Extract does
		var jobs []inference.ActivateJob
		for _, p := range part {
			jobs = append(jobs, inference.ActivateJob{Prompt: p, Positions: []int{-6, -1}})
		}
		l.jobs = append(l.jobs, jobs)
	}
	first := &looker{e, l.jobs[:1]} // it sets up the context
	if _, _, err := first.measure(context.Background()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return l, nil
}

func (l *looker) close() { l.e.Close() }

// measure returns the seconds of the batches without a look at any block, and
// with all blocks at two positions. The first computes no output rows either: it
// is the least that a prefill can cost.
func (l *looker) measure(ctx context.Context) (plain, seen float64, err error) {
	// Halves of both, in turn, so that a machine whose speed drifts favours neither.
	for i, jobs := range l.jobs {
		for _, look := range []bool{i%2 == 0, i%2 != 0} {
			part := slices.Clone(jobs)
			rows := 0
			for k := range part {
				if !look {
					part[k].Layers = []int{}
				}
			}
			began := time.Now()
			for _, err := range l.e.Activate(ctx, part) {
				if err != nil {
					return 0, 0, err
				}
				rows++
			}
			took := time.Since(began).Seconds()
			if want := 2 * l.e.Info().Blocks * len(part); look && rows != want || !look && rows != 0 {
				return 0, 0, fmt.Errorf("%d activations came", rows)
			}
			if look {
				seen += took
			} else {
				plain += took
			}
		}
	}
	return plain, seen, nil
}
