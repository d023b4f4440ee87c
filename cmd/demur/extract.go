package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"demur/data"
	"demur/inference"
	"demur/probes"
	"demur/protocol"
)

type extractOptions struct {
	engine   engineFlags
	read     data.Options
	requests string
	out      string
	phase    string
	anchors  []string
	layers   []int
	half     bool
	quiet    bool
	json     bool
}

func newExtract(e *env) *cobra.Command {
	plan := protocol.DefaultPlan()
	var o extractOptions
	c := &cobra.Command{
		Use:   "extract RUN --model FILE.gguf | extract --requests FILE --out DIR --model FILE.gguf",
		Short: "Keep the residual stream of the prompts of a run, or of any requests",
		Long: `Evaluates each prompt once, without generating, and writes the residual stream
after every block at named positions into DIR/activations, a table for each layer:
inst is the last token of the request, post the last one of the prompt. The table
tokens holds the tokens of each prompt. Nothing in the other tables of the run is
changed. The model must be the one of the run.

The same command continues an extraction that was stopped: what was evaluated is
kept in DIR/parts until the tables are whole. --half halves the size on disk and
keeps 11 significant bits of 24.`,
		Example: `  demur extract runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf
  demur extract --requests mine.csv --out states --model phantom --anchors all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && o.requests == "" && o.out == "":
				return extractRun(cmd.Context(), e, args[0], plan, o)
			case len(args) == 0 && o.requests != "" && o.out != "":
				return extractRequests(cmd.Context(), e, plan, o)
			}
			return usage(errors.New("name either a run directory, or --requests FILE and --out DIR"))
		},
	}
	fs := c.Flags()
	bindEngine(c, &o.engine)
	readFlags(c, &o.read)
	fs.StringVarP(&plan.Model, "model", "m", "", "GGUF file, phantom or phantom:PRESET")
	fs.StringVar(&plan.ChatTemplate, "chat-template", "", "file with a Jinja chat template, for a model without one")
	fs.StringVar(&plan.LoRA, "lora", "", "GGUF file of a LoRA adapter")
	fs.StringVar(&plan.Think, "think", "", "on or off, for models that reason")
	fs.IntVar(&plan.Context, "ctx", plan.Context, "tokens that a prompt may have")
	fs.IntVar(&plan.GPULayers, "gpu-layers", 0, "layers to put on a GPU (needs a library built for it)")
	fs.StringVar(&o.requests, "requests", "", "request set: a file, or built-in: demo, all")
	fs.StringVarP(&o.out, "out", "o", "", "folder for the tables of --requests")
	fs.StringVar(&o.phase, "phase", string(data.Respond), "prompts of a run to take: respond, predict or all")
	fs.StringSliceVar(&o.anchors, "anchors", nil, "positions: inst, post, post-2 …, mean, all (default inst,post)")
	fs.IntSliceVar(&o.layers, "layers", nil, "blocks from 0; -1 is the token embedding (default all blocks)")
	fs.BoolVar(&o.half, "half", false, "write float16 instead of float32; values beyond 65504 are refused")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	fs.BoolVar(&o.json, "json", false, "print what was found in the activations as JSON")
	return c
}

// extractRun keeps the states of the prompts of a run.
func extractRun(ctx context.Context, e *env, dir string, plan protocol.Plan, o extractOptions) error {
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	var prompts []data.Prompt
	seen := map[string]bool{}
	err = each(dir, data.Prompts, func(p data.Prompt) {
		if (o.phase == "all" || string(p.Phase) == o.phase) && !seen[p.ID] {
			seen[p.ID] = true
			prompts = append(prompts, p)
		}
	})
	if err != nil {
		return err
	}
	if len(prompts) == 0 {
		return usage(fmt.Errorf("%s has no prompts of phase %q; it is respond, predict or all", dir, o.phase))
	}
	if plan.Model == "" {
		return usage(withHint(errors.New("no model is named"), fmt.Sprintf("a run does not say where its model lies; name %s with --model", run.Manifest().Model.Name)))
	}
	was := run.Manifest().Model
	return extract(ctx, e, dir, prompts, plan, o, func(info inference.Info) error {
		switch {
		case info.ModelDigest != was.Digest:
			return usage(fmt.Errorf("the run is of model %s (%s), this one is %s", was.Name, was.Digest, info.ModelDigest))
		case info.TemplateHash != was.TemplateHash:
			return usage(withHint(errors.New("the run was made under another chat template"), "give that of the run with --chat-template"))
		case info.Adapter != was.Adapter:
			return usage(withHint(errors.New("the run was made with another adapter, or without one"), "give that of the run with --lora"))
		}
		return nil
	})
}

// extractRequests keeps the states of requests, each the only message.
func extractRequests(ctx context.Context, e *env, plan protocol.Plan, o extractOptions) error {
	set, err := loadRequests(o.requests, o.read)
	if err != nil {
		return err
	}
	var prompts []data.Prompt
	seen := map[string]bool{}
	for _, r := range set.Requests {
		messages := []data.Message{{Role: "user", Content: r.Text}}
		p := data.Prompt{ID: data.PromptID(messages), RequestID: r.ID, Variant: r.Variant, Phase: data.Respond, Messages: messages}
		if !seen[p.ID] {
			seen[p.ID] = true
			prompts = append(prompts, p)
		}
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return usage(err)
	}
	for _, write := range []func() error{
		func() error { return data.WriteTable(o.out, data.Requests, sequence(set.Requests)) },
		func() error { return data.WriteTable(o.out, data.Prompts, sequence(prompts)) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return extract(ctx, e, o.out, prompts, plan, o, func(inference.Info) error { return nil })
}

// kept is a probes.Store of the parts in a directory.
type kept struct{ parts *data.Parts }

func (k kept) Load(key any) ([]data.Activation, bool, error) {
	return data.LoadPart[data.Activation](k.parts, key)
}

func (k kept) Save(key any, rows []data.Activation) error { return data.StorePart(k.parts, key, rows) }

// extract runs prompts through an engine and writes a table for each layer.
func extract(ctx context.Context, e *env, dir string, prompts []data.Prompt, plan protocol.Plan, o extractOptions, check func(inference.Info) error) (err error) {
	engine, err := startStates(ctx, e, &plan, o.engine)
	if err != nil {
		return err
	}
	defer engine.Close()
	info := engine.Info()
	if err := check(info); err != nil {
		return err
	}
	parts, err := data.OpenParts(dir, []any{info.Version, info.ModelDigest, info.Adapter, info.TemplateHash, info.Device, info.Plan})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	var report probes.ExtractReport
	var tokens []data.PromptTokens
	options := probes.ExtractOptions{
		Layers: o.layers, Anchors: o.anchors, Report: &report, Store: kept{parts},
		Tokens: func(t data.PromptTokens) { tokens = append(tokens, t) },
	}
	if !o.quiet {
		options.Progress = newPace(e, "prompts").at
	}
	rows := probes.Extract(ctx, engine, prompts, options)
	layers := len(o.layers)
	if layers == 0 {
		layers = info.Blocks
	}
	if err := writeLayers(dir, data.LayerOptions{Half: o.half, Group: max(layersMemory/max(layers, 1), 1<<20)}, rows); err != nil {
		if ctx.Err() != nil {
			return withCode(exitInterrupted, errors.New("stopped; what was evaluated is kept, and the same command goes on"))
		}
		return err
	}
	if err := errors.Join(data.WriteTable(dir, data.Tokens, sequence(tokens)), parts.Remove()); err != nil {
		return err
	}
	if o.json {
		if err := json.NewEncoder(e.stdout).Encode(report); err != nil {
			return err
		}
	}
	if report.Resumed > 0 {
		e.say("%d activations were there from before", report.Resumed)
	}
	e.say("%d activations of %d prompts, width %d, in %s", report.Rows, report.Prompts-len(report.Unanchored)-len(report.Failed), report.Width, dir)
	for _, found := range []struct {
		what string
		rows []probes.Finding
	}{
		{"prompts have no anchor", report.Unanchored},
		{"prompts could not be evaluated", report.Failed},
		{"activations are zero", report.Zero},
		{"activations equal another prompt's", report.Duplicate},
		{"activations are outliers", report.Outlier},
	} {
		if n := len(found.rows); n > 0 {
			e.say("%d %s; the first is prompt %.8s, layer %d %s %s", n, found.what, found.rows[0].PromptID, found.rows[0].Layer, found.rows[0].Anchor, found.rows[0].What)
		}
	}
	return report.Err()
}

// layersMemory is about how many bytes of rows all tables together hold in
// memory before they are written.
const layersMemory = 64 << 20

// writeLayers writes a table for each layer while the rows come, which is prompt
// by prompt. On an error none is left behind; the first ends the rows.
func writeLayers(dir string, o data.LayerOptions, rows iter.Seq2[data.Activation, error]) error {
	tables := map[int]chan data.Activation{}
	var order []int
	errs := make(chan error)
	// Whoever compresses has some megabytes, so only a few do at a time.
	busy := make(chan struct{}, runtime.GOMAXPROCS(0))
	var failed error // of the rows; set before the channels are closed
	write := func(layer int, rows <-chan data.Activation) {
		errs <- data.WriteLayer(dir, layer, o, func(yield func(data.Activation, error) bool) {
			for row := range rows {
				busy <- struct{}{}
				more := yield(row, nil)
				<-busy
				if !more {
					return
				}
			}
			if failed != nil {
				yield(data.Activation{}, failed)
			}
		})
	}
	writing := 0
	var first error // of a table
take:
	for row, err := range rows {
		if err != nil {
			failed = err
			break
		}
		t := tables[row.Layer]
		if t == nil {
			t = make(chan data.Activation)
			tables[row.Layer] = t
			order = append(order, row.Layer)
			writing++
			go write(row.Layer, t)
		}
		select {
		case t <- row:
		case first = <-errs: // no table ends by itself
			writing--
			failed = first
			break take
		}
	}
	for i, layer := range order {
		close(tables[layer])
		if i >= cap(busy) && writing > 0 {
			first = cmp.Or(first, <-errs)
			writing--
		}
	}
	for ; writing > 0; writing-- {
		first = cmp.Or(first, <-errs)
	}
	return cmp.Or(failed, first)
}
