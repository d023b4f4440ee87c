package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"demur/models"
	"demur/protocol"
)

// judgeFlags say how responses are labelled.
type judgeFlags struct {
	names  string
	cache  string
	reason string
	ctx    int
	engine engineFlags
}

// judgeUsage lists the judges, for help and errors.
const judgeUsage = "rules, model:MODEL, command:PROGRAM, human:FILE; several with commas vote"

func bindJudge(c *cobra.Command, f *judgeFlags) {
	c.Flags().StringVar(&f.names, "judge", "rules", judgeUsage)
	c.Flags().StringVar(&f.reason, "judge-reason", "", "model judge: ask for a reason, before or after the label")
	c.Flags().StringVar(&f.cache, "judge-cache", "", "file that keeps the verdicts of model and command judges, so that an interrupted command goes on (default: in the run directory, or beside --out until that is whole)")
	c.Flags().IntVar(&f.ctx, "judge-ctx", 4096, "model judge: tokens that rubric, request, response and label may have together")
	bindEngine(c, &f.engine)
}

// slow tells whether a judge is worth a cache in a file: the rules are faster
// than the file, and people label trials, not texts.
func (f judgeFlags) slow() bool {
	for _, name := range strings.Split(f.names, ",") {
		switch kind, _, _ := strings.Cut(strings.TrimSpace(name), ":"); kind {
		case "model", "command":
			return true
		}
	}
	return false
}

// openCache opens the file in which the verdicts of slow judges are kept, or,
// where no judge is slow or there is no file, a cache in memory.
func (f judgeFlags) openCache(e *env, file string) (*protocol.Cache, error) {
	if f.cache != "" {
		file = f.cache
	}
	if !f.slow() || file == "" {
		return protocol.NewCache(), nil
	}
	cache, err := protocol.OpenCache(file)
	if err == nil && cache.Len() > 0 {
		e.say("%d verdicts are kept in %s: those texts are not judged again", cache.Len(), file)
	}
	return cache, err
}

// openJudge returns the judge that the flags name. close ends what it runs. Each
// of the judges but people, who label trials and not texts, is asked only for
// what the cache lacks; a nil cache asks for all.
func openJudge(ctx context.Context, e *env, f judgeFlags, cache *protocol.Cache) (judge protocol.Judge, close func() error, err error) {
	var judges []protocol.Judge
	var closers []io.Closer
	closeAll := func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	for _, name := range strings.Split(f.names, ",") {
		j, closer, err := openOneJudge(ctx, e, strings.TrimSpace(name), f)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		if closer != nil {
			closers = append(closers, closer)
		}
		if _, people := j.(*protocol.Human); cache != nil && !people {
			j = cache.Wrap(j)
		}
		judges = append(judges, j)
	}
	if len(judges) == 1 {
		return judges[0], closeAll, nil
	}
	return protocol.NewPanel(judges...), closeAll, nil
}

// checkJudge finds out before anything runs that a judge cannot be had.
func checkJudge(ctx context.Context, f judgeFlags) error {
	for _, name := range strings.Split(f.names, ",") {
		kind, argument, _ := strings.Cut(strings.TrimSpace(name), ":")
		if kind != "rules" && argument == "" {
			return usage(withHint(fmt.Errorf("judge %q is not known or lacks what it needs", name), "judges are "+judgeUsage))
		}
		switch kind {
		case "model":
			if strings.HasPrefix(argument, models.OllamaPrefix) {
				continue // the server is asked when it is needed
			}
			if _, err := resolveModel(ctx, argument); err != nil {
				return err
			}
		default:
			_, _, err := openOneJudge(ctx, nil, strings.TrimSpace(name), f)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func openOneJudge(ctx context.Context, e *env, name string, f judgeFlags) (protocol.Judge, io.Closer, error) {
	kind, argument, _ := strings.Cut(name, ":")
	switch kind {
	case "rules":
		return protocol.NewRules(), nil, nil
	case "human":
		j, err := protocol.NewHuman(argument)
		return j, nil, usage(err)
	case "command":
		j, err := protocol.NewCommand(strings.Fields(argument), 0)
		return j, nil, usage(err)
	case "model":
		return openModelJudge(ctx, e, argument, f)
	}
	return nil, nil, usage(withHint(fmt.Errorf("judge %q is not known", name), "judges are "+judgeUsage))
}

func openModelJudge(ctx context.Context, e *env, model string, f judgeFlags) (protocol.Judge, io.Closer, error) {
	plan := protocol.DefaultPlan()
	plan.Model, plan.Context = model, f.ctx
	spec, err := specOf(ctx, e, &plan, f.engine)
	if err != nil {
		return nil, nil, err
	}
	engine, err := startEngine(ctx, spec, nil)
	if err != nil {
		return nil, nil, err
	}
	j, err := protocol.NewModel(engine, protocol.ModelOptions{Reason: protocol.ReasonOrder(f.reason)})
	if err != nil {
		return nil, nil, errors.Join(usage(err), engine.Close())
	}
	return j, engine, nil
}
