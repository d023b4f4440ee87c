package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"demur/data"
	"demur/inference"
	"demur/protocol"
)

// runOptions is what a run needs beside its plan.
type runOptions struct {
	engine   engineFlags
	read     data.Options
	out      string
	planFile string

	estimate    bool
	retryErrors bool
	noCheck     bool
	noReport    bool
	printPlan   bool

	quiet  bool
	json   bool
	report reportOptions
}

func newRun(e *env) *cobra.Command {
	plan := protocol.DefaultPlan()
	var o runOptions
	c := &cobra.Command{
		Use:   "run --model FILE.gguf",
		Short: "Ask a model for its predictions and its responses, label them, report",
		Long: `Takes every request in every wording: asks the model in a fresh context whether
it will refuse (three readings: free, bound by a grammar, exact probabilities),
takes its real responses over temperatures and seeds, labels them, and writes
tables, estimates and report.html into a run directory.

The same command continues a run that was interrupted. Interrupt once to finish
the unit in flight, twice to stop now; nothing that was finished is lost.`,
		Example: `  demur run --model SmolLM2-135M-Instruct.Q4_1.gguf --limit 30 --out runs/smol
  demur run --model ollama:smollm2 --temperatures 0,0.7 --seeds 1-10
  demur run --model phantom --requests all
  demur run --plan plan.yaml --estimate`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return withHint(fmt.Errorf("run takes no argument, but got %q", args[0]), "a model is named by --model "+args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := readPlan(cmd.Flags(), plan, o.planFile)
			if err != nil {
				return usage(err)
			}
			return runAll(cmd.Context(), e, p, o)
		},
	}
	fs := c.Flags()
	planFlags(fs, &plan)
	readFlags(c, &o.read)
	bindEngine(c, &o.engine)
	bindReport(c, &o.report)
	fs.StringVar(&o.planFile, "plan", "", "plan file (YAML); flags go before it")
	fs.StringVarP(&o.out, "out", "o", "", "run directory (default runs/TIME_MODEL_ID)")
	fs.BoolVar(&o.estimate, "estimate", false, "measure a little, print hours, disk and memory, and stop")
	fs.BoolVar(&o.printPlan, "print-plan", false, "print the plan as a plan file, and stop")
	fs.BoolVar(&o.retryErrors, "retry-errors", false, "do again the units that hold errors")
	fs.BoolVar(&o.noCheck, "no-check", false, "skip the self-test of the engine at the start")
	fs.BoolVar(&o.noReport, "no-report", false, "only predictions and trials; classify and report later")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	fs.BoolVar(&o.json, "json", false, "print the estimates as JSON to standard output")
	return c
}

// bindEngine binds the settings of the machine.
func bindEngine(c *cobra.Command, f *engineFlags) {
	c.Flags().StringVar(&f.lib, "lib", "", "folder of the llama.cpp libraries (default $DEMUR_LIB, then the cache)")
	c.Flags().IntVar(&f.threads, "threads", 0, "threads (default: one per core)")
	c.Flags().IntVar(&f.parallel, "parallel", 1, "requests in flight at an Ollama server; above 1 its texts depend on timing")
	c.Flags().BoolVar(&f.allowRemote, "allow-remote", false, "allow an Ollama server that is not on this machine")
}

// A session is an open run: what runAll and the demo share.
type session struct {
	env    *env
	plan   protocol.Plan
	engine inference.Engine
	work   *protocol.Work
	run    *data.Run
	meter  *meter
}

// runAll does the whole job.
func runAll(ctx context.Context, e *env, plan protocol.Plan, o runOptions) error {
	if err := plan.Validate(); err != nil {
		return usage(err)
	}
	if err := o.report.check(); err != nil {
		return err
	}
	if o.printPlan {
		return plan.WriteYAML(e.stdout)
	}
	set, own, err := loadInputs(&plan, o)
	if err != nil {
		return err
	}
	judge := judgeFlags{names: plan.Judge, ctx: 4096, engine: o.engine}
	if err := checkJudge(ctx, judge); err != nil {
		return err
	}
	for _, w := range set.Warnings {
		e.say("%s", w)
	}
	m := newMeter(e.stderr, 0, 1, plan.MaxTokens, true)
	spec, err := specOf(ctx, e, &plan, o.engine)
	if err != nil {
		return err
	}
	made, err := writable(o.out)
	if err != nil {
		return err
	}
	// A run that never began leaves no empty folder behind; Remove spares others.
	defer func() {
		if made != "" {
			_ = os.Remove(made)
		}
	}()
	engine, err := startEngine(ctx, spec, func(n int) { m.sampled(n) })
	if err != nil {
		return err
	}
	defer engine.Close()
	info := engine.Info()
	info.Model = spec.Name
	for _, note := range info.Notes {
		e.say("%s", note)
	}
	work, err := plan.Bind(info, set.Requests, set.Digest, own)
	if err != nil {
		return usage(err)
	}
	if o.estimate {
		return estimate(ctx, e, engine, work, spec, o.json)
	}
	run, fresh, err := openRun(e, work, set, o)
	if err != nil {
		return err
	}
	defer run.Close()
	s := &session{env: e, plan: plan, engine: engine, work: work, run: run}
	if fresh && !o.noCheck {
		if err := s.check(ctx); err != nil {
			return err
		}
	}
	*m = *newMeter(e.stderr, run.Counts().Trials, work.TrialCount(), plan.MaxTokens, o.quiet)
	s.meter = m
	if err := s.ask(ctx, o); err != nil {
		return err
	}
	// The model's memory is given back before the tables are worked on, and a
	// model judge may need it.
	if err := engine.Close(); err != nil {
		return err
	}
	if o.noReport {
		fmt.Fprintln(e.stdout, run.Dir())
		return nil
	}
	return finish(ctx, e, run, judge, o.report, o.json)
}

// loadInputs reads the request set and the user's own question.
func loadInputs(plan *protocol.Plan, o runOptions) (data.Set, *protocol.Question, error) {
	name := plan.Requests
	if name == "" {
		name = requestsDemo
	}
	set, err := loadRequests(name, o.read)
	if err != nil {
		return data.Set{}, nil, err
	}
	if plan.QuestionFile == "" {
		return set, nil, nil
	}
	q, err := readQuestion(plan.QuestionFile, strings.TrimSuffix(filepath.Base(plan.QuestionFile), ".txt"))
	return set, q, err
}

// readQuestion reads a wording of the user's own.
func readQuestion(file, name string) (*protocol.Question, error) {
	text, err := readSmall(file)
	if err != nil {
		return nil, usage(fmt.Errorf("question file: %w", err))
	}
	q, err := protocol.ParseQuestion(name, text)
	if err != nil {
		return nil, usage(fmt.Errorf("question file: %w", err))
	}
	return &q, nil
}

// writable finds out before a model is loaded that the output cannot be written.
// It returns the folder if it was not there before.
func writable(dir string) (made string, err error) {
	if dir == "" {
		dir = "runs"
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		made = dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", usage(withHint(fmt.Errorf("output folder: %w", err), "name another folder with --out"))
	}
	probe, err := os.CreateTemp(dir, ".write-test-*")
	if err != nil {
		return made, usage(withHint(fmt.Errorf("output folder: %w", err), "name another folder with --out"))
	}
	return made, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// noStrangers refuses a folder that is no run but holds files under the names
// that a run would write: they would be replaced.
func noStrangers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return usage(fmt.Errorf("output folder: %w", err))
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".parquet") || name == "summary.json" || name == "report.html" {
			return usage(withHint(fmt.Errorf("%s is no run directory, but holds %s, which a run could replace", dir, name),
				"name another folder with --out; if this was a run, restore its manifest.json"))
		}
	}
	return nil
}

// openRun creates the run directory, or opens the one that is there to go on
// with it. fresh reports whether nothing was in it.
func openRun(e *env, work *protocol.Work, set data.Set, o runOptions) (run *data.Run, fresh bool, err error) {
	m, err := manifestOf(work, set)
	if err != nil {
		return nil, false, err
	}
	dir := o.out
	if dir == "" {
		dir = filepath.Join("runs", m.RunID)
	}
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
		run, err = data.Resume(dir, m)
		if err != nil {
			return nil, false, err
		}
		if c := run.Counts(); c.Units > 0 {
			e.say("continuing %s: %d of %d units are done", dir, c.Units, work.UnitCount())
		}
		for _, note := range run.Notes() {
			e.say("%s", note)
		}
		return run, run.Counts().Units == 0, nil
	}
	if err := noStrangers(dir); err != nil {
		return nil, false, err
	}
	run, err = data.Create(dir, m, work.Requests)
	return run, true, err
}

// manifestOf says what the run is.
func manifestOf(work *protocol.Work, set data.Set) (data.Manifest, error) {
	plan, err := json.Marshal(work.Identity())
	if err != nil {
		return data.Manifest{}, fmt.Errorf("plan: %w", err)
	}
	info := work.Info
	wordings := map[string]string{}
	for _, q := range work.Questions {
		wordings[q.Name] = q.SHA256()
	}
	now := time.Now().UTC()
	return data.Manifest{
		Demur:  version,
		RunID:  now.Format("20060102T150405Z") + "_" + slug(info.Model) + "_" + work.PlanID[:4],
		PlanID: work.PlanID,
		Plan:   plan,
		Model: data.Model{
			Name: info.Model, Digest: info.ModelDigest, Adapter: info.Adapter, TemplateHash: info.TemplateHash,
			Architecture: info.Architecture, Engine: info.Engine, Version: info.Version, Plan: info.Plan,
			NotVerified: info.NotVerified, Reproducible: info.Reproducible,
		},
		Requests: data.RequestSet{Name: set.Name, Digest: set.Digest, Count: len(work.Requests)},
		Headline: map[string]string{
			"reading": data.Grammar, "question": work.Questions[0].Name, "polarity": work.Questions[0].Polarity,
			"prediction_temperature": "0", "fold": "lenient", "judge": work.Plan.Judge,
		},
		Wordings: wordings,
		Created:  now.Format(time.RFC3339),
	}, nil
}

// slug makes a name fit for a file on any system.
func slug(name string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	return strings.Trim(s[:min(len(s), 40)], "-.")
}

// check tries the engine before the run and notes what it saw.
func (s *session) check(ctx context.Context) error {
	result, err := inference.Check(ctx, s.engine)
	if err != nil {
		return err
	}
	if err := s.run.SetExtra("check", result); err != nil {
		return err
	}
	if s.engine.Info().Reproducible && !(result.Repeats && result.Isolated && result.GreedyFixed) {
		return withCode(exitIntegrity, withHint(fmt.Errorf("self-test of the engine: %s", result.Detail),
			"this machine or this build of llama.cpp does not give the same bytes twice; --no-check runs all the same, and the report says so"))
	}
	return nil
}

// ask runs the units that are missing and compacts the journal into tables.
func (s *session) ask(ctx context.Context, o runOptions) error {
	var retry func(string) bool
	if o.retryErrors {
		retry = s.run.Failed
	}
	s.env.asking.Store(true)
	err := protocol.Run(ctx, s.engine, s.work, s.run, protocol.RunOptions{
		Stop:     s.env.stop,
		Retry:    retry,
		Finished: func(u data.Unit) { s.meter.finished(len(u.Trials)) },
	})
	s.env.asking.Store(false)
	summary := s.meter.close()
	if err != nil {
		if errors.Is(err, protocol.ErrStopped) || ctx.Err() != nil {
			c := s.run.Counts()
			return withCode(exitInterrupted, withHint(fmt.Errorf("stopped after %d of %d units; what was finished is kept", c.Units, s.work.UnitCount()),
				"the same command continues the run in "+s.run.Dir()))
		}
		return err
	}
	s.env.say("%s", summary)
	if m, ok := s.engine.(inference.Meter); ok {
		if err := s.run.SetExtra("counters", m.Counters()); err != nil {
			return err
		}
	}
	if err := s.run.Compact(); err != nil {
		return err
	}
	if n := s.run.Counts().FailedRows; n > 0 {
		s.env.say("%d rows are errors; they are counted in the report, and --retry-errors does their units again", n)
	}
	return s.run.Finish(time.Now())
}
