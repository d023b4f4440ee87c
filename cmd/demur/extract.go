package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"

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
inst is the last token of the request, post the last one of the prompt. Nothing
in the tables of the run is changed. The model must be the one of the run.`,
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

// extract runs prompts through an engine and writes a table for each layer.
func extract(ctx context.Context, e *env, dir string, prompts []data.Prompt, plan protocol.Plan, o extractOptions, check func(inference.Info) error) error {
	engine, err := startStates(ctx, e, &plan, o.engine)
	if err != nil {
		return err
	}
	defer engine.Close()
	if err := check(engine.Info()); err != nil {
		return err
	}
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
	rows := probes.Extract(ctx, engine, prompts, probes.ExtractOptions{Layers: o.layers, Anchors: o.anchors, Report: &report})
	if err := writeLayers(dir, rows); err != nil {
		if ctx.Err() != nil {
			return withCode(exitInterrupted, errors.New("stopped; no activations were written"))
		}
		return err
	}
	if o.json {
		if err := json.NewEncoder(e.stdout).Encode(report); err != nil {
			return err
		}
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

// writeLayers writes a table for each layer while the rows come, which is prompt
// by prompt. On an error none is left behind.
func writeLayers(dir string, rows iter.Seq2[data.Activation, error]) error {
	type table struct {
		rows chan data.Activation
		done chan error
	}
	tables := map[int]*table{}
	var order []int
	var failed error // set before the channels are closed
	for row, err := range rows {
		if err != nil {
			failed = err
			break
		}
		t := tables[row.Layer]
		if t == nil {
			t = &table{make(chan data.Activation), make(chan error, 1)}
			tables[row.Layer] = t
			order = append(order, row.Layer)
			go func(layer int) {
				err := data.WriteTable(dir, layerTable(layer), func(yield func(data.Activation, error) bool) {
					for row := range t.rows {
						if !yield(row, nil) {
							return
						}
					}
					if failed != nil {
						yield(data.Activation{}, failed)
					}
				})
				t.done <- err
				for range t.rows { // after a full disk
				}
			}(row.Layer)
		}
		t.rows <- row
	}
	for _, layer := range order {
		close(tables[layer].rows)
	}
	var errs []error
	for _, layer := range order {
		if err := <-tables[layer].done; err != nil && failed == nil {
			errs = append(errs, err)
		}
	}
	if failed != nil {
		return failed
	}
	return errors.Join(errs...)
}

// layerTable names the table of a layer; the embedding has a word.
func layerTable(layer int) string {
	if layer < 0 {
		return "activations/embedding"
	}
	return "activations/layer_" + fmt.Sprintf("%02s", strconv.Itoa(layer))
}
