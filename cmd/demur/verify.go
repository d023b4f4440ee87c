package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"demur/data"
	"demur/inference"
	"demur/protocol"
)

func newVerify(e *env) *cobra.Command {
	var f engineFlags
	var model, baseURL string
	var units int
	c := &cobra.Command{
		Use:   "verify RUN",
		Short: "Do the files of a run hold, and do repeated trials reproduce?",
		Long: `Recomputes the digests of the tables, the plan id and the ids of prompts, and
reads the journal. With --model it also runs some units again and compares their texts with the stored
ones, byte for byte.`,
		Example: "  demur verify runs/smol\n  demur verify runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf --units 3",
		Args:    needRun(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if units < 1 {
				return usage(fmt.Errorf("units %d is not at least 1", units))
			}
			if err := verifyFiles(e, args[0]); err != nil {
				return err
			}
			if model == "" {
				return nil
			}
			return verifyTrials(cmd.Context(), e, args[0], model, baseURL, units, f)
		},
	}
	bindEngine(c, &f)
	c.Flags().StringVarP(&model, "model", "m", "", "model to run units again with")
	c.Flags().StringVar(&baseURL, "base-url", "", "address of the Ollama server")
	c.Flags().IntVar(&units, "units", 1, "units to run again, spread evenly over the run")
	return c
}

// verifyFiles checks what can be checked without a model.
func verifyFiles(e *env, dir string) error {
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	m := run.Manifest()
	if err := tablesHold(dir, m); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tables)) {
		fmt.Fprintf(e.stdout, "ok   %-12s %d rows, digest holds\n", name, m.Tables[name].Rows)
	}
	prompts := 0
	for p, err := range data.ReadTable[data.Prompt](dir, data.Prompts) {
		if err != nil {
			return withCode(exitIntegrity, err)
		}
		if data.PromptID(p.Messages) != p.ID {
			return withCode(exitIntegrity, fmt.Errorf("prompt %s of request %s: its messages do not have that id", p.ID, p.RequestID))
		}
		prompts++
	}
	fmt.Fprintf(e.stdout, "ok   %-12s %d recomputed\n", "prompt ids", prompts)
	fmt.Fprintf(e.stdout, "     %-12s verdicts, estimates, summary.json and report.html: demur classify and demur report make them again\n", "not checked")
	if m.Model.Engine == data.ImportEngine {
		return nil
	}
	id, err := protocol.PlanID(m.Plan)
	if err != nil {
		return withCode(exitIntegrity, fmt.Errorf("manifest: %w", err))
	}
	if id != m.PlanID {
		return withCode(exitIntegrity, fmt.Errorf("the plan in the manifest does not have the plan id %s", m.PlanID))
	}
	fmt.Fprintf(e.stdout, "ok   %-12s %s\n", "plan id", m.PlanID)
	return verifyJournal(e, run)
}

// verifyJournal reads the journal. A run may be passed on without it: the tables
// are whole, but the run cannot be continued.
func verifyJournal(e *env, run *data.Run) error {
	counts, err := run.CheckJournal()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(e.stdout, "     %-12s not there: the run cannot be continued, nor its tables made again\n", "journal")
	case err != nil:
		return withCode(exitIntegrity, err)
	default:
		fmt.Fprintf(e.stdout, "ok   %-12s %d units, checksums hold\n", "journal", counts.Units)
	}
	return nil
}

// tablesHold checks that the tables are there and are those that the manifest
// names.
func tablesHold(dir string, m data.Manifest) error {
	for _, name := range slices.Sorted(maps.Keys(m.Tables)) {
		hint := "the command that made the run, given again, makes the table again from the journal"
		digest, err := fileDigest(filepath.Join(dir, name+".parquet"))
		if err != nil {
			return withCode(exitIntegrity, withHint(fmt.Errorf("table %s: %w", name, err), hint))
		}
		if digest != m.Tables[name].SHA256 {
			return withCode(exitIntegrity, withHint(fmt.Errorf("table %s is not the one that the manifest names: SHA-256 %s, want %s", name, digest, m.Tables[name].SHA256), hint))
		}
	}
	return nil
}

func fileDigest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// verifyTrials runs units again and compares.
func verifyTrials(ctx context.Context, e *env, dir, model, baseURL string, units int, f engineFlags) error {
	run, err := data.OpenRun(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	have := run.Manifest().Model
	if have.Engine == data.ImportEngine {
		return usage(fmt.Errorf("%s holds imported trials, which cannot be run again", dir))
	}
	work, engine, err := again(ctx, e, run, model, baseURL, f)
	if err != nil {
		return err
	}
	defer engine.Close()
	if work.Info.ModelDigest != have.Digest {
		return usage(fmt.Errorf("%s was made with %s (%s), not with %s (%s)", dir, have.Name, have.Digest, model, work.Info.ModelDigest))
	}
	if work.PlanID != run.Manifest().PlanID {
		return withCode(exitIntegrity, withHint(fmt.Errorf("this model on this machine makes another plan (%s) than the run's (%s)", work.PlanID, run.Manifest().PlanID),
			"equal bytes are promised under an equal plan only: same file, library, CPU variant and settings"))
	}
	fresh := &collected{}
	count, n := work.UnitCount(), 0
	step := max(1, count/max(1, units))
	for u := range work.Units() {
		if n%step != 0 || n/step >= units {
			fresh.skip(u.ID)
		}
		n++
	}
	if err := protocol.Run(ctx, engine, work, fresh, protocol.RunOptions{Stop: e.stop}); err != nil {
		return err
	}
	same, differ, err := fresh.compare(dir)
	if err != nil {
		return err
	}
	if missing := len(fresh.trials) - same - differ; missing > 0 || len(fresh.trials) == 0 {
		return withCode(exitIntegrity, fmt.Errorf("%d of the %d trials run again are not in the run", missing, len(fresh.trials)))
	}
	if differ > 0 {
		return withCode(exitIntegrity, fmt.Errorf("%d of %d trials gave another text than the stored one", differ, same+differ))
	}
	fmt.Fprintf(e.stdout, "ok   %-12s %d run again, all texts equal\n", "trials", same)
	return nil
}

// again rebuilds the work of a run from its manifest and opens its engine.
func again(ctx context.Context, e *env, run *data.Run, model, baseURL string, f engineFlags) (*protocol.Work, inference.Engine, error) {
	var identity struct {
		Plan     protocol.Plan `json:"plan"`
		Requests string        `json:"requests"`
	}
	if err := json.Unmarshal(run.Manifest().Plan, &identity); err != nil {
		return nil, nil, fmt.Errorf("manifest: plan: %w", err)
	}
	plan := identity.Plan
	plan.Model, plan.BaseURL = model, baseURL
	var requests []data.Request
	for r, err := range data.ReadTable[data.Request](run.Dir(), data.Requests) {
		if err != nil {
			return nil, nil, err
		}
		requests = append(requests, r)
	}
	spec, err := specOf(ctx, e, &plan, f)
	if err != nil {
		return nil, nil, err
	}
	engine, err := startEngine(ctx, spec, nil)
	if err != nil {
		return nil, nil, err
	}
	work, err := plan.Bind(engine.Info(), requests, identity.Requests, nil)
	if err != nil {
		engine.Close()
		return nil, nil, err
	}
	return work, engine, nil
}

// collected is a store in memory of the units that were run again.
type collected struct {
	skipped map[string]bool
	trials  map[string]data.Trial
}

func (c *collected) skip(unit string) {
	if c.skipped == nil {
		c.skipped = map[string]bool{}
	}
	c.skipped[unit] = true
}

func (c *collected) Done(unit string) bool { return c.skipped[unit] }

func (c *collected) Commit(u data.Unit) error {
	if c.trials == nil {
		c.trials = map[string]data.Trial{}
	}
	for _, t := range u.Trials {
		c.trials[t.ID] = t
	}
	return nil
}

// compare counts the stored trials that have the same and another text.
func (c *collected) compare(dir string) (same, differ int, err error) {
	for t, err := range data.ReadTable[data.Trial](dir, data.Trials) {
		if err != nil {
			return 0, 0, err
		}
		fresh, ok := c.trials[t.ID]
		switch {
		case !ok:
		case fresh.Text == t.Text && fresh.StopReason == t.StopReason:
			same++
		default:
			differ++
		}
	}
	return same, differ, nil
}
