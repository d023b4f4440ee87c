// Command bench measures demur against its peers, side by side in one run: the
// same model file, the same plan, the same machine. tools/bench.sh prepares what
// it needs and calls it.
//
// The plan is the sweep of 4 temperatures × 5 seeds × 128 tokens over requests
// of the built-in set, with one free prediction each. demur does it whole: worker
// process, journal, compaction. Peers are generous: loading the model, rendering
// and storing are not counted against them.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
	"demur/protocol"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == engineCommand {
		serveEngine()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options of a bench.
type options struct {
	models      map[string]string // key suffix → file
	rounds      int
	requests    int
	tokens      int
	pack        int
	fraction    int // peers run every n-th request, other ones in each round
	threads     int
	ollama      string
	llamaServer string
	sides       []string
	out         string
	greedyOnce  bool
	extract     extractOptions
}

// fractionOf returns n for a side that runs every n-th request. Where many answers
// are decoded together there are to be enough of them: beyond a fifth of the
// requests, twice as many as elsewhere.
func (o options) fractionOf(side string) int {
	if o.fraction > 5 && (side == "server" || side == "server_n" || side == "bare") {
		return o.fraction / 2
	}
	return o.fraction
}

func parse() (options, error) {
	var o options
	var q8, q4, organism, sides string
	flag.StringVar(&q8, "q8_0", "", "SmolLM2 as Q8_0, the headline")
	flag.StringVar(&q4, "q4_1", "", "SmolLM2 as Q4_1")
	flag.StringVar(&organism, "organism", "", "a small model that refuses")
	flag.IntVar(&o.rounds, "rounds", 3, "interleaved rounds; medians are reported")
	flag.IntVar(&o.requests, "requests", 20, "requests, spread over topics and levels")
	flag.IntVar(&o.tokens, "tokens", 128, "tokens a response may have")
	flag.IntVar(&o.pack, "pack", 0, "requests in a unit of demur's (0: its default)")
	flag.IntVar(&o.fraction, "fraction", 0, "peers run every n-th request only, other ones in each round (1: all; 0: 5, 10 or 20, so that it ends within the hour if it can)")
	flag.IntVar(&o.threads, "threads", 0, "threads of every side (0: one per core)")
	flag.StringVar(&o.ollama, "ollama", "", "address of a running Ollama server")
	flag.StringVar(&o.llamaServer, "llama-server", "", "llama-server binary")
	flag.StringVar(&sides, "sides", "loop,ollama,ollama4,server,server_n,bare,extract,extract_equal", "what to measure: peers of a run, the bare decode, demur extract")
	extractFlags(&o.extract)
	flag.StringVar(&o.out, "out", "bench.json", "file to write")
	flag.BoolVar(&o.greedyOnce, "greedy-once", false, "temperature 0 once a prompt on every side; keys end in _greedy_once")
	flag.Parse()
	o.models = map[string]string{"": q8, "_q4_1": q4, "_organism": organism}
	o.sides = strings.Split(sides, ",")
	if o.threads == 0 {
		o.threads = runtime.NumCPU()
	}
	if o.rounds < 1 || o.requests < 1 || o.tokens < 1 || o.fraction < 0 || o.pack < 0 {
		return o, errors.New("rounds, requests and tokens must be at least 1, fraction and pack at least 0")
	}
	if q8+q4+organism == "" {
		return o, errors.New("no model is given: -q8_0, -q4_1 or -organism")
	}
	return o, nil
}

// A measurement is one side in one round.
type measurement struct {
	Side    string  `json:"side"`
	Round   int     `json:"round"`
	Trials  int     `json:"trials"`
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
}

func (m measurement) perMinute() float64 { return float64(m.Trials) / m.Seconds * 60 }

// A modelResult is all that was measured on one file.
type modelResult struct {
	Model        string             `json:"model"`
	Rounds       []measurement      `json:"rounds"`
	TrialsPerMin map[string]float64 `json:"trials_per_minute"` // medians
	OfSums       map[string]float64 `json:"ratios_of_sums"`    // demur's trials a minute over all rounds by the peer's
	RowsSaved    float64            `json:"rows_saved"`
	PromptRatio  float64            `json:"prompt_tokens_ratio"`
	Bare         []bareMeasurement  `json:"decode_vs_bare_rounds"`
}

// A bareMeasurement is a run of some units in this process, and the bare decode of
// batches of the same row counts. All times are in seconds.
type bareMeasurement struct {
	Ratio   float64 `json:"ratio"` // bare ÷ whole
	Whole   float64 `json:"whole_s"`
	Bare    float64 `json:"bare_s"`
	Prompts float64 `json:"prompts_s"` // of whole: evaluating prompts
	Rows    float64 `json:"rows_s"`    // of whole: decoding rows
	Drawing float64 `json:"drawing_s"` // of whole: drawing tokens

	Histogram map[int]int64 `json:"row_histogram"` // rows of a batch → batches
}

func run(ctx context.Context) error {
	o, err := parse()
	if err != nil {
		return err
	}
	sweeps := slices.ContainsFunc(o.sides, func(side string) bool { return !strings.HasPrefix(side, "extract") })
	if o.fraction == 0 {
		o.fraction = 5
		if path := cmp.Or(o.models[""], o.models["_q4_1"], o.models["_organism"]); sweeps {
			if err := o.chooseFraction(ctx, path); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(path), err)
			}
		}
	}
	result := map[string]any{"conditions": conditions(o)}
	if q8 := o.models[""]; q8 != "" {
		if err := measureExtract(ctx, o, q8, result); err != nil {
			return fmt.Errorf("extract: %w", err)
		}
		if err := writeJSON(o.out, result); err != nil {
			return err
		}
		if !sweeps {
			return nil
		}
	}
	for _, suffix := range []string{"", "_q4_1", "_organism"} {
		path := o.models[suffix]
		if path == "" {
			continue
		}
		each := o
		if suffix == "_organism" {
			// Its answers end when it has said what it has to say, so that some
			// requests are no measure of the others: in three rounds the peers run
			// all of them. The slowest peer is left out.
			each.fraction, each.ollama = min(o.fraction, o.rounds), ""
		}
		r, err := measureModel(ctx, each, path)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		r.put(result, suffix, o)
		// What is measured so far is kept, should a later model fail.
		if err := writeJSON(o.out, result); err != nil {
			return err
		}
	}
	return nil
}

// chooseFraction sets the fraction with which the bench ends within the hour, by
// demur's speed on a fifth of the plan: a plan that takes t minutes makes a bench
// of all sides and files take about rounds × t × (4.2 + 31/n + 14.5/m) + 13, where m
// is fractionOf the sides that decode many answers together. The numbers are demur's
// and the peers' times a file in docs/speed.md; the 13 are the side extract.
func (o *options) chooseFraction(ctx context.Context, path string) error {
	work, err := newPlan(*o)
	if err != nil {
		return err
	}
	m, _, err := measureDemur(ctx, *o, path, work.every(5, 0))
	if err != nil {
		return err
	}
	plan := float64(20*o.requests) / m.perMinute()
	var minutes float64
	for _, o.fraction = range []int{5, 10, 20} {
		minutes = float64(o.rounds)*plan*(4.2+31/float64(o.fraction)+14.5/float64(o.fractionOf("bare"))) + 13
		if minutes <= 60 {
			break
		}
	}
	fmt.Fprintf(os.Stderr, "bench: %.0f trials/min on a fifth of the plan: peers run every %d-th request; all sides on all three files would take about %.0f minutes\n",
		m.perMinute(), o.fraction, minutes)
	return nil
}

func conditions(o options) map[string]any {
	cpu := "unknown"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(b), "\n") {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				cpu = strings.TrimLeft(name, "\t :")
				break
			}
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return map[string]any{
		"cpu": cpu, "cores": runtime.NumCPU(), "threads": o.threads, "os": runtime.GOOS + "/" + runtime.GOARCH, "go": runtime.Version(),
		"load_at_start": strings.TrimSpace(string(load)),
		"plan":          fmt.Sprintf("%d requests, temperatures 0, 0.3, 0.7, 1 × 5 seeds × %d tokens, one free prediction a request", o.requests, o.tokens),
		"peers":         fmt.Sprintf("run every %d-th request of the plan (llama-server every %d-th), other ones in each round; on the organism every %d-th, so that together they run all, and its ratios are of the sums over the rounds, the others' medians of the rounds", o.fraction, o.fractionOf("server"), min(o.fraction, o.rounds)),
		"rounds":        o.rounds, "greedy_once": o.greedyOnce,
	}
}

// measureModel measures all sides on one file, interleaved.
func measureModel(ctx context.Context, o options, path string) (*modelResult, error) {
	work, err := newPlan(o)
	if err != nil {
		return nil, err
	}
	r := &modelResult{Model: filepath.Base(path), TrialsPerMin: map[string]float64{}}
	peers, err := openPeers(ctx, o, path)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	for round := range o.rounds {
		m, counters, err := measureDemur(ctx, o, path, work)
		if err != nil {
			return nil, err
		}
		m.Round = round + 1
		r.add(m)
		// The first token of each answer is drawn from its prompt's own row.
		samplings := int64(m.Trials + len(work.requests))
		r.RowsSaved = 1 - float64(counters.Rows)/float64(counters.TokensSampled-samplings)
		r.PromptRatio = float64(counters.PromptTokens) / float64(counters.PromptNeeded)
		for _, p := range peers {
			m, err := p.measure(ctx, work.every(o.fractionOf(p.side()), round))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.side(), err)
			}
			m.Side, m.Round = p.side(), round+1
			r.add(m)
		}
		if slices.Contains(o.sides, "bare") {
			m, err := measureBare(ctx, o, path, work.every(o.fractionOf("bare"), round))
			if err != nil {
				return nil, fmt.Errorf("bare: %w", err)
			}
			fmt.Fprintf(os.Stderr, "bench: %-34s round %d  bare      %.1f s against %.1f s whole: %.3f; of the whole %.1f s prompts, %.1f s rows, %.1f s drawing\n",
				r.Model, round+1, m.Bare, m.Whole, m.Ratio, m.Prompts, m.Rows, m.Drawing)
			r.Bare = append(r.Bare, m)
		}
	}
	return r, nil
}

func (r *modelResult) add(m measurement) {
	fmt.Fprintf(os.Stderr, "bench: %-34s round %d  %-9s %4d trials in %6.1f s  %7.1f trials/min  %6.0f tokens/s\n",
		r.Model, m.Round, m.Side, m.Trials, m.Seconds, m.perMinute(), float64(m.Tokens)/m.Seconds)
	r.Rounds = append(r.Rounds, m)
}

// put writes the keys of bench.json. A ratio is the median of the ratios of the
// rounds, for the machine's speed drifts; on the organism it is that of the sums,
// for its rounds are of requests with longer and shorter answers.
func (r *modelResult) put(result map[string]any, suffix string, o options) {
	if o.greedyOnce {
		suffix += "_greedy_once"
	}
	rates := map[string][]float64{}
	ratios := map[string][]float64{}
	demur := map[int]float64{}
	for _, m := range r.Rounds {
		rates[m.Side] = append(rates[m.Side], m.perMinute())
		if m.Side == "demur" {
			demur[m.Round] = m.perMinute()
		}
	}
	for _, m := range r.Rounds {
		if m.Side != "demur" {
			ratios[m.Side] = append(ratios[m.Side], demur[m.Round]/m.perMinute())
		}
	}
	for side, list := range rates {
		r.TrialsPerMin[side] = median(list)
	}
	names := map[string]string{
		"loop": "sweep_vs_loop", "ollama": "sweep_vs_ollama", "ollama4": "sweep_vs_ollama_4",
		"server": "sweep_vs_llama_server", "server_n": "sweep_vs_llama_server_n",
	}
	sums := map[string]measurement{}
	for _, m := range r.Rounds {
		sum := sums[m.Side]
		sum.Trials += m.Trials
		sum.Seconds += m.Seconds
		sums[m.Side] = sum
	}
	r.OfSums = map[string]float64{}
	for side, list := range ratios {
		r.OfSums[side] = sums["demur"].perMinute() / sums[side].perMinute()
		ratio := median(list)
		if strings.HasPrefix(suffix, "_organism") {
			ratio = r.OfSums[side]
		}
		result[names[side]+suffix] = ratio
		fmt.Fprintf(os.Stderr, "bench: %s%s = %.2f, of rounds %.2f, of sums %.2f\n", names[side], suffix, ratio, list, r.OfSums[side])
	}
	result["rows_saved"+suffix] = r.RowsSaved
	result["prompt_tokens_ratio"+suffix] = r.PromptRatio
	fmt.Fprintf(os.Stderr, "bench: rows_saved%s = %.3f, prompt_tokens_ratio%s = %.3f\n", suffix, r.RowsSaved, suffix, r.PromptRatio)
	if len(r.Bare) > 0 {
		var list []float64
		for _, m := range r.Bare {
			list = append(list, m.Ratio)
		}
		result["decode_vs_bare"+suffix] = median(list)
		fmt.Fprintf(os.Stderr, "bench: decode_vs_bare%s = %.3f\n", suffix, median(list))
	}
	result["measured"+cmp.Or(suffix, "_q8_0")] = r
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	if n := len(list); n%2 == 1 {
		return list[n/2]
	}
	return (list[len(list)/2-1] + list[len(list)/2]) / 2
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// A plan is the bench's work.
type plan struct {
	plan     protocol.Plan
	requests []data.Request
}

// newPlan chooses the requests: two a topic of the built-in set where there are
// twenty, evenly over the levels.
func newPlan(o options) (*plan, error) {
	all, err := data.Builtin()
	if err != nil {
		return nil, err
	}
	p := protocol.DefaultPlan()
	p.Limit, p.Variants, p.MaxTokens, p.Context = o.requests, []string{data.Base}, o.tokens, 512
	w, err := p.Bind(inference.Info{}, all, "", nil)
	if err != nil {
		return nil, err
	}
	p.Limit, p.Pack = 0, o.pack
	return &plan{p, w.Requests}, nil
}

// every returns the plan with every n-th request, other ones in each round.
func (p *plan) every(n, round int) *plan {
	q := &plan{plan: p.plan}
	for i := round % min(n, len(p.requests)); i < len(p.requests); i += n {
		q.requests = append(q.requests, p.requests[i])
	}
	return q
}

// units returns the jobs of the plan for an engine, without grammar and exact
// readings, which not every peer has.
func (p *plan) units(o options, info inference.Info) ([][]inference.Job, error) {
	info.Grammars, info.Scorer = false, false
	w, err := p.plan.Bind(info, p.requests, "", nil)
	if err != nil {
		return nil, err
	}
	var units [][]inference.Job
	for u := range w.Units() {
		for i := range u.Jobs {
			if o.greedyOnce {
				u.Jobs[i].Samplings = greedyOnce(u.Jobs[i].Samplings)
			}
		}
		units = append(units, u.Jobs)
	}
	return units, nil
}

func greedyOnce(all []data.Sampling) []data.Sampling {
	seen := false
	var kept []data.Sampling
	for _, s := range all {
		if s.Temperature == 0 && seen {
			continue
		}
		seen = seen || s.Temperature == 0
		kept = append(kept, s)
	}
	return kept
}

// measureBare measures the decode alone: demur's engine in this process on some
// units, and then batches of the same row counts without drawing a token.
func measureBare(ctx context.Context, o options, path string, p *plan) (bareMeasurement, error) {
	e, err := llamacpp.Open(llamacpp.Options{Model: path, Context: p.plan.Context, Threads: o.threads})
	if err != nil {
		return bareMeasurement{}, err
	}
	defer e.Close()
	units, err := p.units(o, e.Info())
	if err != nil {
		return bareMeasurement{}, err
	}
	prompt, tokens, n := 0, 1, 0
	began := time.Now()
	for _, jobs := range units {
		for a, err := range e.Generate(ctx, jobs) {
			if err != nil {
				return bareMeasurement{}, err
			}
			prompt += a.PromptTokens
			n++
			for _, g := range a.Generations {
				tokens = max(tokens, g.Tokens)
			}
		}
	}
	whole := time.Since(began).Seconds()
	histogram, times := e.Counters().RowHistogram, e.Times()
	bare, err := e.Bare(ctx, histogram, prompt/n, tokens)
	if err != nil {
		return bareMeasurement{}, err
	}
	return bareMeasurement{
		Ratio: bare.Seconds() / whole, Whole: whole, Bare: bare.Seconds(),
		Prompts: times.Prompt.Seconds(), Rows: times.Decode.Seconds(), Drawing: times.Sample.Seconds(),
		Histogram: histogram,
	}, nil
}
