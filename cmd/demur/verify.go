package main

import (
	"cmp"
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
	var o verifyOptions
	c := &cobra.Command{
		Use:   "verify RUN",
		Short: "Do the files of a run hold, and do repeated trials reproduce?",
		Long: `Recomputes the digests of the tables, the plan id and the ids of prompts, and
reads the journal. With --model it also runs some units again and compares their texts with the stored
ones, byte for byte. The settings are those of the run; of the files that it was
given (--chat-template, --lora, --question-file) it keeps the digests, so they are
named again and must be the same.`,
		Example: "  demur verify runs/smol\n  demur verify runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf --units 3",
		Args:    needRun(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.units < 1 {
				return usage(fmt.Errorf("units %d is not at least 1", o.units))
			}
			if o.model == "" && o.files != (runFiles{}) {
				return usage(withHint(errors.New("files of the run are named, but no model to run units again with"), "--model FILE.gguf"))
			}
			if err := verifyFiles(e, args[0]); err != nil {
				return err
			}
			if o.model == "" {
				return nil
			}
			return verifyTrials(cmd.Context(), e, args[0], o)
		},
	}
	bindEngine(c, &o.engine)
	fs := c.Flags()
	fs.StringVarP(&o.model, "model", "m", "", "model to run units again with")
	fs.StringVar(&o.baseURL, "base-url", "", "address of the Ollama server")
	fs.StringVar(&o.files.chatTemplate, "chat-template", "", "file with the chat template that the run was given")
	fs.StringVar(&o.files.lora, "lora", "", "GGUF file of the LoRA adapter of the run")
	fs.StringVar(&o.files.question, "question-file", "", "file with the run's own wording of the question")
	fs.IntVar(&o.units, "units", 1, "units to run again, spread evenly over the run")
	return c
}

type verifyOptions struct {
	engine         engineFlags
	model, baseURL string
	files          runFiles
	units          int
}

// runFiles are the files that a run was given and of which it keeps digests.
type runFiles struct{ chatTemplate, lora, question string }

// verifyFiles checks what can be checked without a model.
func verifyFiles(e *env, dir string) error {
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	m := run.Manifest()
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
	// A directory of somebody else may hold a pipe that never answers.
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
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
func verifyTrials(ctx context.Context, e *env, dir string, o verifyOptions) error {
	run, err := data.OpenRun(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	if run.Manifest().Model.Engine == data.ImportEngine {
		return usage(fmt.Errorf("%s holds imported trials, which cannot be run again", dir))
	}
	work, engine, err := again(ctx, e, run, o)
	if err != nil {
		return err
	}
	defer engine.Close()
	if work.PlanID != run.Manifest().PlanID {
		return withCode(exitIntegrity, withHint(fmt.Errorf("this model on this machine makes another plan (%s) than the run's (%s)", work.PlanID, run.Manifest().PlanID),
			"equal bytes are promised under an equal plan only: same file, library, CPU variant and settings"))
	}
	fresh := &collected{}
	count, n := work.UnitCount(), 0
	step := max(1, count/max(1, o.units))
	for u := range work.Units() {
		if n%step != 0 || n/step >= o.units {
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
func again(ctx context.Context, e *env, run *data.Run, o verifyOptions) (*protocol.Work, inference.Engine, error) {
	var identity struct {
		Plan     protocol.Plan `json:"plan"`
		Requests string        `json:"requests"`
	}
	m := run.Manifest()
	if err := json.Unmarshal(m.Plan, &identity); err != nil {
		return nil, nil, withCode(exitIntegrity, fmt.Errorf("manifest: plan: %w", err))
	}
	plan := identity.Plan
	plan.Model, plan.BaseURL = o.model, o.baseURL
	plan.ChatTemplate, plan.LoRA, plan.QuestionFile = o.files.chatTemplate, o.files.lora, o.files.question
	own, err := ownQuestion(m.Wordings, plan)
	if err != nil {
		return nil, nil, err
	}
	var requests []data.Request
	for r, err := range data.ReadTable[data.Request](run.Dir(), data.Requests) {
		if err != nil {
			return nil, nil, err
		}
		requests = append(requests, r)
	}
	spec, err := specOf(ctx, e, &plan, o.engine)
	if err != nil {
		return nil, nil, err
	}
	engine, err := startEngine(ctx, spec, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := sameModel(run, engine.Info(), o); err != nil {
		return nil, nil, errors.Join(err, engine.Close())
	}
	work, err := plan.Bind(engine.Info(), requests, identity.Requests, own)
	if err != nil {
		return nil, nil, errors.Join(usage(err), engine.Close())
	}
	return work, engine, nil
}

// ownQuestion reads the wording that was the user's own, under the name that it
// had in the run, or returns nil if all were demur's.
func ownQuestion(wordings map[string]string, plan protocol.Plan) (*protocol.Question, error) {
	name := ""
	for _, n := range slices.Sorted(maps.Keys(wordings)) {
		if !slices.Contains(plan.Questions, n) {
			name = n
		}
	}
	switch {
	case name == "" && plan.QuestionFile == "":
		return nil, nil
	case name == "":
		return nil, usage(errors.New("the run has no wording of its own; leave --question-file out"))
	case plan.QuestionFile == "":
		return nil, usage(withHint(fmt.Errorf("the run asked a wording of its own, %q, of which it keeps the digest alone", name), "name its file with --question-file"))
	}
	q, err := readQuestion(plan.QuestionFile, name)
	if err != nil {
		return nil, err
	}
	if q.SHA256() != wordings[name] {
		return nil, usage(fmt.Errorf("%s is not the wording %q of the run: SHA-256 %s, want %s", plan.QuestionFile, name, q.SHA256(), wordings[name]))
	}
	return q, nil
}

// sameModel returns an error unless an engine shows the model, adapter and chat
// template of a run.
func sameModel(run *data.Run, info inference.Info, o verifyOptions) error {
	have := run.Manifest().Model
	if info.ModelDigest != have.Digest {
		return usage(fmt.Errorf("%s was made with %s (%s), not with %s (%s)", run.Dir(), have.Name, have.Digest, o.model, info.ModelDigest))
	}
	for _, part := range []struct{ what, have, got, file, flag string }{
		{"adapter", have.Adapter, info.Adapter, o.files.lora, "--lora"},
		{"chat template", have.TemplateHash, info.TemplateHash, o.files.chatTemplate, "--chat-template"},
	} {
		if part.have == part.got {
			continue
		}
		hint := "name the file that the run was given with " + part.flag
		if part.file != "" {
			hint = fmt.Sprintf("is %s the file that the run was given? If it was given none, leave %s out", part.file, part.flag)
		}
		return usage(withHint(fmt.Errorf("%s was made with another %s: %s there, %s here", run.Dir(), part.what, cmp.Or(part.have, "none"), cmp.Or(part.got, "none")), hint))
	}
	return nil
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
