package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"demur/analysis"
	"demur/data"
	"demur/models"
	"demur/probes"
	"demur/protocol"
)

type fitOptions struct {
	targets      []string
	methods      []string
	judge        string
	fold         string
	phase        string
	permutations int
	resamples    int
	seeds        int
	seed         uint64
	quiet        bool
	json         bool

	engine engineFlags
	twin   bool
}

func newFit(e *env) *cobra.Command {
	plan := protocol.DefaultPlan()
	var o fitOptions
	c := &cobra.Command{
		Use:   "fit RUN [OTHER…]",
		Short: "Fit directions to the states that demur extract kept, with their controls",
		Long: `Fits linear directions for harm, refusal and prediction to the activations of a
run. Folds hold whole requests, site and strength are chosen inside of them, labels
are permuted through the whole procedure. What counts is the increment over the
text alone. Then: what carries over between topics, wordings and temperatures; how
many directions it takes; the angle between harm and refusal with its noise floor;
and which of text, state and word tells best what the model did.

OTHER are further runs whose activations were kept: of the same model, other
request sets; of the same requests, other quantisations of the model. Directions
are fitted on each and tested on each.

With --model, controls are taken that need the model: token embeddings, the same
prompts with their words shuffled, and with --twin the same file with random
weights, which is written to a temporary folder and removed again.

Writes the tables directions and scores into the run directory and its figures
into estimates, under metrics that begin with probe_; demur report shows them. A
folder of demur extract --requests is fitted to as well: harm alone, for it holds
no responses.`,
		Example: `  demur fit runs/smol --targets harm,refusal
  demur fit runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf --twin
  demur fit runs/smol-q4 runs/smol-q8`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return fit(cmd.Context(), e, args, plan, o) },
	}
	fs := c.Flags()
	fs.StringSliceVar(&o.targets, "targets", []string{"harm", "refusal", "prediction"}, "harm, harm_graded, refusal, refusal_rate, prediction, attribute=value; each also \"within harmful\" and the like")
	fs.StringSliceVar(&o.methods, "methods", nil, "mean_difference, whitened, logistic, centroid, centroid_centred, ridge (default: all that suit the target)")
	fs.StringVar(&o.judge, "judge", "rules", "judge whose verdicts count")
	fs.StringVar(&o.fold, "fold", "lenient", "lenient or strict: which labels are refusals")
	fs.StringVar(&o.phase, "phase", string(data.Respond), "prompts whose states are looked at: respond or predict")
	fs.IntVar(&o.permutations, "permutations", 200, "of the labels; -1 for none")
	fs.IntVar(&o.resamples, "resamples", 2000, "of the cluster bootstrap; -1 for none")
	fs.IntVar(&o.seeds, "fold-seeds", 10, "ways to draw the folds")
	fs.Uint64Var(&o.seed, "seed", 0, "of folds, permutations, resamples, shuffled words and random weights")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	fs.BoolVar(&o.json, "json", false, "print everything as one JSON object")
	bindEngine(c, &o.engine)
	fs.StringVarP(&plan.Model, "model", "m", "", "the run's model, for the controls that need it: GGUF file, phantom or phantom:PRESET")
	fs.StringVar(&plan.ChatTemplate, "chat-template", "", "file with a Jinja chat template, for a model without one")
	fs.StringVar(&plan.LoRA, "lora", "", "GGUF file of a LoRA adapter")
	fs.StringVar(&plan.Think, "think", "", "on or off, for models that reason")
	fs.IntVar(&plan.Context, "ctx", plan.Context, "tokens that a prompt may have")
	fs.IntVar(&plan.GPULayers, "gpu-layers", 0, "layers to put on a GPU (needs a library built for it)")
	fs.BoolVar(&o.twin, "twin", false, "with --model: also the untrained twin, the same file with random weights")
	return c
}

// A keptRun is a folder of activations with what is known of its prompts.
type keptRun struct {
	dir, label string
	model      data.Model // zero where the folder is no run
	join       func() probes.Join
	prompts    map[string]data.Prompt // of the phase, by id
	probes.Sample
}

// openKept reads a run with activations, or a folder of demur extract --requests.
func openKept(e *env, dir string, o fitOptions, fold analysis.Fold) (*keptRun, error) {
	k := &keptRun{dir: dir, label: filepath.Base(filepath.Clean(dir)), prompts: make(map[string]data.Prompt)}
	tables, err := data.LayerTables(dir)
	if err != nil {
		return nil, err
	}
	if len(tables) == 0 || !data.HasTable(dir, data.Prompts) || !data.HasTable(dir, data.Requests) {
		if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err != nil {
			return nil, notARun(dir, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
		run, err := openFinished(dir)
		if err != nil {
			return nil, err
		}
		k.model = run.Manifest().Model
		if err := run.Close(); err != nil {
			return nil, err
		}
	}
	if len(tables) == 0 {
		return nil, usage(withHint(fmt.Errorf("%s holds no activations", dir), "demur extract "+dir+" --model FILE.gguf writes them"))
	}
	k.join = func() probes.Join {
		j := probes.Join{
			Requests: data.ReadTable[data.Request](dir, data.Requests), Prompts: data.ReadTable[data.Prompt](dir, data.Prompts),
			Phase: data.Phase(o.phase), Judge: o.judge, Refused: fold.Refused,
		}
		if data.HasTable(dir, data.Trials) && data.HasTable(dir, data.Verdicts) {
			j.Trials, j.Verdicts = data.ReadTable[data.Trial](dir, data.Trials), data.ReadTable[data.Verdict](dir, data.Verdicts)
		}
		if data.HasTable(dir, data.Predictions) {
			j.Predictions = data.ReadTable[data.Prediction](dir, data.Predictions)
		}
		return j
	}
	k.Name = k.label
	if k.Rows, err = k.join().Rows(); err != nil {
		return nil, dataError(err)
	}
	states, missing, err := probes.Collect(activationTables(dir, tables))
	if err != nil {
		return nil, dataError(err)
	}
	states.Only(k.Rows) // those of another phase may be kept too
	k.States = states
	if len(missing) > 0 {
		e.say("%s: %d prompts lack activations at some sites and are left out; the first is %.8s", dir, len(missing), missing[0])
	}
	return k, each(dir, data.Prompts, func(p data.Prompt) {
		if string(p.Phase) == o.phase {
			k.prompts[p.ID] = p
		}
	})
}

// temperatures are samples of the same states with the labels of one temperature
// each.
func (k *keptRun) temperatures() ([]probes.Sample, error) {
	if !data.HasTable(k.dir, data.Trials) || !data.HasTable(k.dir, data.Verdicts) {
		return nil, nil
	}
	var list []float64
	err := each(k.dir, data.Trials, func(t data.Trial) {
		if !slices.Contains(list, t.Temperature) {
			list = append(list, t.Temperature)
		}
	})
	if err != nil || len(list) < 2 {
		return nil, err
	}
	slices.Sort(list)
	var out []probes.Sample
	for _, t := range list {
		j := k.join()
		j.Temperature = &t
		rows, err := j.Rows()
		if err != nil {
			return nil, err
		}
		out = append(out, probes.Sample{Name: strconv.FormatFloat(t, 'g', -1, 64), Rows: rows, States: k.States})
	}
	return out, nil
}

// crossings say between which samples directions are carried over.
func crossings(first *keptRun, others []*keptRun) ([]probes.Crossing, error) {
	var out []probes.Crossing
	byTemperature, err := first.temperatures()
	if err != nil {
		return nil, err
	}
	if len(byTemperature) > 0 {
		out = append(out, probes.Crossing{By: "temperature", Samples: byTemperature, Acts: true})
	}
	sets := probes.Crossing{By: "request set", Samples: []probes.Sample{first.Sample}}
	quantised := probes.Crossing{By: "model", Samples: []probes.Sample{first.Sample}}
	for i, k := range others {
		if slices.ContainsFunc(append([]*keptRun{first}, others[:i]...), func(other *keptRun) bool { return other.Name == k.Name }) {
			k.Name = k.dir
		}
		to := &sets
		if k.model.Digest != first.model.Digest {
			to = &quantised
		}
		to.Samples = append(to.Samples, k.Sample)
	}
	for _, c := range []probes.Crossing{sets, quantised} {
		if len(c.Samples) > 1 {
			out = append(out, c)
		}
	}
	return out, nil
}

// fit asks all that can be asked of the states of a run, and writes and prints it.
func fit(ctx context.Context, e *env, dirs []string, plan protocol.Plan, o fitOptions) error {
	var targets []probes.Target
	for _, name := range o.targets {
		t, err := probes.ParseTarget(strings.TrimSpace(name))
		if err != nil {
			return usage(err)
		}
		targets = append(targets, t)
	}
	fold, err := analysis.ParseFold(o.fold)
	if err != nil {
		return usage(err)
	}
	if o.twin && plan.Model == "" {
		return usage(withHint(errors.New("no model is named, and its twin is asked for"), "name the run's model with --model"))
	}
	first, err := openKept(e, dirs[0], o, fold)
	if err != nil {
		return err
	}
	var others []*keptRun
	for i, dir := range dirs[1:] {
		if slices.ContainsFunc(dirs[:i+1], func(d string) bool { return filepath.Clean(d) == filepath.Clean(dir) }) {
			return usage(fmt.Errorf("%s is named twice", dir))
		}
		k, err := openKept(e, dir, o, fold)
		if err != nil {
			return err
		}
		others = append(others, k)
	}
	options := probes.StudyOptions{Targets: targets, Fit: probes.Options{
		Permutations: o.permutations, Resamples: o.resamples, Seeds: o.seeds, Seed: o.seed,
		Model: first.model.Name, ModelDigest: first.model.Digest, TemplateHash: first.model.TemplateHash,
	}}
	for _, m := range o.methods {
		options.Fit.Methods = append(options.Fit.Methods, probes.Method(strings.TrimSpace(m)))
	}
	if !o.quiet {
		options.Fit.Progress = func(step string, _, of int) {
			if of == 0 {
				e.say("fitting %s", step)
			}
		}
	}
	if options.Crossings, err = crossings(first, others); err != nil {
		return dataError(err)
	}
	states := first.States
	if plan.Model != "" {
		if states, options.Fit.Twins, err = modelControls(ctx, e, first, plan, o); err != nil {
			return err
		}
	}
	study, err := probes.NewStudy(first.Rows, states, options)
	if err != nil {
		return usage(err)
	}
	if err := writeStudy(first, study, o); err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(e.stdout).Encode(study)
	}
	printStudy(e.stdout, study)
	if first.model.Engine != "" {
		e.say("demur report %s shows it with its figures", first.dir)
	}
	return nil
}

// writeStudy writes directions, scores and estimates into the run directory.
// Estimates of other kinds stay as they are.
func writeStudy(k *keptRun, s *probes.Study, o fitOptions) error {
	var estimates []data.Estimate
	err := each(k.dir, data.Estimates, func(x data.Estimate) {
		if !strings.HasPrefix(x.Metric, analysis.ProbeMetric) {
			estimates = append(estimates, x)
		}
	})
	if err != nil {
		return dataError(err)
	}
	for _, x := range s.Estimates() {
		x.Model, x.Judge, x.Fold = k.model.Name, o.judge, o.fold
		estimates = append(estimates, x)
	}
	return errors.Join(
		data.WriteTable(k.dir, data.Directions, sequence(s.Directions())),
		data.WriteTable(k.dir, data.Scores, sequence(s.Scores())),
		data.WriteTable(k.dir, data.Estimates, sequence(estimates)),
	)
}

// addState adds what demur fit found to a data set: its estimates, the held-out
// scores of the method that stands for each target, and those by which state,
// word and act are joined.
func addState(dir string, d *analysis.Dataset) error {
	return errors.Join(
		each(dir, data.Estimates, d.AddProbe),
		each(dir, data.Scores, func(s data.Score) {
			joined := strings.HasPrefix(s.Group, "act/")
			if !joined && s.Method != string(probes.Whitened) && s.Method != string(probes.Ridge) {
				return
			}
			// The group names target, method and the site that is kept.
			site := strings.ReplaceAll(strings.TrimPrefix(s.Group, s.Target+"/"), "/", " ")
			d.AddScore(analysis.Score{RequestID: s.RequestID, Variant: s.Variant, Target: s.Target, Site: site, Value: s.Score, Joined: joined})
		}),
	)
}

// modelControls takes the states that controls need: of the token embeddings,
// which are added to those of the run; of the prompts with their words shuffled;
// and of the untrained twin.
func modelControls(ctx context.Context, e *env, k *keptRun, plan protocol.Plan, o fitOptions) (*probes.States, map[string]*probes.States, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	var anchors []string
	var layers []int
	embedded := false
	for _, s := range k.States.Sites() {
		switch {
		case s.Layer < 0:
			embedded = true
			continue
		case !slices.Contains(layers, s.Layer):
			layers = append(layers, s.Layer)
		}
		if !slices.Contains(anchors, s.Anchor) {
			anchors = append(anchors, s.Anchor)
		}
	}
	var prompts, shuffled []data.Prompt
	names := make(map[string]string) // of shuffled prompts: the original
	for _, id := range k.States.Prompts() {
		p, ok := k.prompts[id]
		if !ok {
			continue
		}
		prompts = append(prompts, p)
		s := probes.Shuffled(p, o.seed)
		for seed := o.seed + 1; names[s.ID] != "" && seed < o.seed+100; seed++ {
			s = probes.Shuffled(p, seed) // another prompt of the same words came out in this order
		}
		if names[s.ID] == "" {
			names[s.ID] = p.ID
			shuffled = append(shuffled, s)
		}
	}
	file, err := resolveModel(ctx, plan.Model)
	if err != nil {
		return nil, nil, err
	}
	engine, err := startStates(ctx, e, &plan, o.engine)
	if err != nil {
		return nil, nil, err
	}
	info := engine.Info()
	if k.model.Digest != "" && (info.ModelDigest != k.model.Digest || info.TemplateHash != k.model.TemplateHash || info.Adapter != k.model.Adapter) {
		return nil, nil, errors.Join(usage(withHint(fmt.Errorf("the run is of model %s (%s), or of another chat template or adapter; this one is %s", k.model.Name, k.model.Digest, info.ModelDigest), "give model, --chat-template and --lora as for the run")), engine.Close())
	}
	take := func(what string, engine probes.Engine, prompts []data.Prompt, layers []int, anchors []string) (*probes.States, error) {
		if !o.quiet {
			e.say("states of %s: %d prompts", what, len(prompts))
		}
		s, _, err := probes.Collect(probes.Extract(ctx, engine, prompts, probes.ExtractOptions{Layers: layers, Anchors: anchors}))
		if err != nil && ctx.Err() != nil {
			return nil, withCode(exitInterrupted, errors.New("stopped; nothing was written"))
		}
		if err != nil {
			return nil, fmt.Errorf("states of %s: %w", what, err)
		}
		return s, nil
	}
	states, twins := k.States, make(map[string]*probes.States)
	of := func() error {
		if !embedded {
			s, err := take("the token embeddings", engine, prompts, []int{-1}, []string{probes.Mean})
			if err != nil {
				return err
			}
			if states, err = states.With(s); err != nil {
				e.say("the control by token embeddings is left out: %v", err)
			}
		}
		s, err := take("the prompts with their words shuffled", engine, shuffled, layers, anchors)
		if err != nil {
			return err
		}
		twins["shuffled"] = s.Renamed(names)
		return nil
	}
	if err := errors.Join(of(), engine.Close()); err != nil {
		return nil, nil, err
	}
	if !o.twin {
		return states, twins, nil
	}
	s, err := withTwin(ctx, e, file, plan, o, func(engine probes.Engine) (*probes.States, error) {
		return take("the untrained twin", engine, prompts, layers, anchors)
	})
	twins["untrained"] = s
	return states, twins, err
}

// withTwin writes the untrained twin of a model to a temporary folder, starts it,
// and removes it again.
func withTwin(ctx context.Context, e *env, file models.File, plan protocol.Plan, o fitOptions, take func(probes.Engine) (*probes.States, error)) (s *probes.States, err error) {
	folder, err := os.MkdirTemp("", "demur-twin-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	plan.Model = filepath.Join(folder, "twin.gguf")
	f, err := os.Create(plan.Model)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(models.WriteTwin(ctx, f, file, o.seed), f.Close()); err != nil {
		return nil, modelError(err)
	}
	engine, err := startStates(ctx, e, &plan, o.engine)
	if err != nil {
		return nil, fmt.Errorf("the untrained twin: %w", err)
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return take(engine)
}

// activationTables yields the rows of all layers.
func activationTables(dir string, tables []string) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		for _, name := range tables {
			for row, err := range data.ReadTable[data.Activation](dir, name) {
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// printStudy prints the figures of all targets.
func printStudy(w io.Writer, s *probes.Study) {
	for _, r := range s.Reports {
		printReport(w, r)
	}
	for _, t := range s.Subspaces {
		printSubspaces(w, t)
	}
	for _, t := range s.Transfers {
		printTransfer(w, t)
	}
	if s.Geometry != nil {
		printGeometry(w, s.Geometry)
	}
	if s.Act != nil {
		printAct(w, s.Act)
	}
	for _, text := range s.Skipped {
		fmt.Fprintf(w, "left out: %s\n", text)
	}
}
