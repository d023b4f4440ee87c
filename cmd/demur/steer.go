package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"demur/analysis"
	"demur/data"
	"demur/inference"
	"demur/models"
	"demur/probes"
	"demur/protocol"
)

type steerOptions struct {
	judge  judgeFlags
	read   data.Options
	fold   string
	target []string

	vector     string
	convention string
	layers     []int
	save       string

	requests  string
	variants  []string
	limit     int
	out       string
	doses     []float64
	control   []float64
	unit      string
	operation []string
	controls  int
	folds     int
	maxTokens int
	seed      uint64
	resamples int
	noHarm    bool
	keepText  bool
	quiet     bool
	json      bool
}

func newSteer(e *env) *cobra.Command {
	plan := protocol.DefaultPlan()
	var o steerOptions
	c := &cobra.Command{
		Use:   "steer RUN --model FILE.gguf",
		Short: "Add directions to a model's stream, or take them out, and see what it does",
		Long: `Tests whether the model uses what its state tells. The directions of harm and
refusal are fitted to the activations of a run, each request is steered by what was
fitted without it, and the model answers while the direction is added to its
residual stream in growing doses, or projected out of it, at every position. Beside
each stand directions of equal length: random ones, ones at a right angle, and ones
fitted to shuffled labels. A dose of 1 is the distance of the class means.

It reports what was refused, answered, and broken; how the model then rates the
harm of the request and whether it predicts refusal; how far the next token moved
towards refusing; and how much harmless requests were disturbed. Writes the tables
steering and steering_estimates; the same command continues one that was stopped.

A direction is NAME@LAYER/ANCHOR, such as refusal@14/post; without a site, it is that
of the mean difference in the table that demur fit wrote. Names are those of demur
fit, also refusal-at-equal-harm and harm-at-equal-refusal, which hold the other
constant. With --control-vector, a file takes the place of the fit.

All of it happens in memory, but that ablate-writers needs a small adapter file in
the temporary folder for the moment in which llama.cpp reads it. --save writes a direction as a control-vector file;
demur writes no model whose safety was removed.`,
		Example: `  demur steer runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf --limit 30
  demur steer runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf --targets refusal@14/post --doses 0.5,1,2
  demur steer runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf --control-vector mine.gguf --convention repeng`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return steer(cmd.Context(), e, args[0], plan, o) },
	}
	fs := c.Flags()
	bindJudge(c, &o.judge)
	readFlags(c, &o.read)
	fs.StringVarP(&plan.Model, "model", "m", "", "the model of the run: GGUF file, phantom or phantom:PRESET")
	fs.StringVar(&plan.ChatTemplate, "chat-template", "", "file with a Jinja chat template, for a model without one")
	fs.StringVar(&plan.LoRA, "lora", "", "GGUF file of a LoRA adapter")
	fs.StringVar(&plan.Think, "think", "", "on or off, for models that reason")
	fs.IntVar(&plan.Context, "ctx", plan.Context, "tokens that prompt and answer may have together")
	fs.IntVar(&plan.GPULayers, "gpu-layers", 0, "layers to put on a GPU (needs a library built for it)")
	fs.StringSliceVar(&o.target, "targets", []string{"refusal", "harm"}, "directions: NAME or NAME@LAYER/ANCHOR")
	fs.StringVar(&o.vector, "control-vector", "", "GGUF control-vector file to steer by instead")
	fs.StringVar(&o.convention, "convention", "", "of another tool's control-vector file: repeng or cvector (llama.cpp's cvector-generator)")
	fs.IntSliceVar(&o.layers, "layers", nil, "of the control-vector file: only these blocks")
	fs.StringVar(&o.save, "save", "", "write the first direction, fitted to all requests, as a GGUF control-vector file, and stop")
	fs.StringVar(&o.requests, "requests", "", "steer these requests instead of the run's: a file, or built-in: demo, all")
	fs.StringVarP(&o.out, "out", "o", "", "folder for the tables of --requests (default the run)")
	fs.StringSliceVar(&o.variants, "variants", []string{data.Base}, "wordings to steer; \"all\" for all")
	fs.Var((*limitValue)(&o.limit), "limit", "steer at most N requests, spread evenly over the set")
	fs.Float64SliceVar(&o.doses, "doses", []float64{-4, -2, -1, -0.5, 0.5, 1, 2, 4}, "of what is added")
	fs.Float64SliceVar(&o.control, "control-doses", nil, "of the controls (default the same)")
	fs.StringVar(&o.unit, "unit", data.UnitGap, "of the doses: gap, the distance of the class means, or norm, the mean length of the stream")
	fs.StringSliceVar(&o.operation, "operations", []string{data.SteerAdd, data.SteerAblate}, "add; ablate, after all blocks; ablate-one, after the direction's own; ablate-writers, out of what all blocks write")
	fs.IntVar(&o.controls, "controls", 3, "draws of each kind of control; -1 for none")
	fs.IntVar(&o.folds, "folds", 5, "of the requests: each is steered by what was fitted to the others")
	fs.IntVar(&o.maxTokens, "max-tokens", 48, "tokens a response may have")
	fs.StringVar(&o.fold, "fold", "lenient", "lenient or strict: which labels are refusals")
	fs.Uint64Var(&o.seed, "seed", 0, "of folds, controls and resamples")
	fs.IntVar(&o.resamples, "resamples", 1000, "of the cluster bootstrap; -1 for none")
	fs.BoolVar(&o.noHarm, "no-questions", false, "do not ask for predictions and harm ratings; faster")
	fs.BoolVar(&o.keepText, "keep-text", false, "keep the texts in the table; a steered model may say what it should not")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	fs.BoolVar(&o.json, "json", false, "print the report as JSON")
	return c
}

// A steered is what a steering is made of.
type steered struct {
	dir     string
	model   data.Model
	rows    []probes.Row // of the run
	about   []probes.Row // of the requests that are steered
	prompts []probes.SteerPrompt
	states  *probes.States
	levers  *probes.Levers
}

func steer(ctx context.Context, e *env, dir string, plan protocol.Plan, o steerOptions) error {
	options, err := o.steering()
	if err != nil {
		return usage(err)
	}
	fold, err := analysis.ParseFold(o.fold)
	if err != nil {
		return usage(err)
	}
	s, err := openSteered(e, dir, o, fold)
	if err != nil {
		return err
	}
	if o.save != "" {
		return s.save(e, o)
	}
	if plan.Model == "" {
		return usage(withHint(errors.New("no model is named"), fmt.Sprintf("a run does not say where its model lies; name %s with --model", s.model.Name)))
	}
	if o.vector == "" {
		if err := s.fit(o); err != nil {
			return usage(err)
		}
	}
	engine, err := startStates(ctx, e, &plan, o.judge.engine)
	if err != nil {
		return err
	}
	defer engine.Close()
	info := engine.Info()
	switch {
	case info.ModelDigest != s.model.Digest:
		return usage(fmt.Errorf("the run is of model %s (%s), this one is %s", s.model.Name, s.model.Digest, info.ModelDigest))
	case info.TemplateHash != s.model.TemplateHash:
		return usage(withHint(errors.New("the run was made under another chat template"), "give that of the run with --chat-template"))
	case info.Adapter != s.model.Adapter:
		return usage(withHint(errors.New("the run was made with another adapter, or without one"), "give that of the run with --lora"))
	}
	if o.vector != "" {
		if err := s.given(e, o, info); err != nil {
			return err
		}
	}
	for _, l := range s.levers.Levers {
		if v := l.Folds[0]; l.Control == "" && len(v) == 1 && v[0].Layer == info.Blocks-1 && o.vector == "" {
			e.say("%s is applied after block %d, the last: it acts on the next token alone, and nothing reads it on the way", l, v[0].Layer)
		}
	}
	judge, closeJudge, err := openSteerJudge(ctx, e, o.judge)
	if err != nil {
		return err
	}
	options.Label, options.Refused = labeller(judge), fold.Refused
	options.PlanID = data.Digest([]any{
		info.ModelDigest, info.TemplateHash, info.Adapter, info.Plan, leverDigest(s.levers), s.prompts,
		options.Operations, options.Doses, options.ControlDoses, options.Unit, options.Samplings, options.AskHarm, options.Inquiry != nil, options.KeepText,
		judge.Name(), judge.Version(), o.fold,
	})[:32]
	rows, notes, err := s.run(ctx, e, engine, options, o)
	if err = errors.Join(err, closeJudge()); err != nil {
		return err
	}
	return s.finish(e, rows, notes, judge.Name(), o)
}

// steering turns flags into options.
func (o steerOptions) steering() (probes.SteerOptions, error) {
	s := probes.SteerOptions{Doses: o.doses, ControlDoses: o.control, Unit: o.unit, Samplings: []data.Sampling{{MaxTokens: o.maxTokens}}, KeepText: o.keepText, AskHarm: !o.noHarm}
	if !o.noHarm {
		s.Inquiry = &probes.Inquiry{Job: protocol.ExactJob, Read: protocol.ReadExact}
	}
	for _, name := range o.operation {
		op, ok := map[string]string{data.SteerAdd: data.SteerAdd, data.SteerAblate: probes.AblateAll, "ablate-one": probes.AblateOne, "ablate-writers": probes.AblateWriters}[name]
		if !ok {
			return s, fmt.Errorf("operation %q is none of add, ablate, ablate-one and ablate-writers", name)
		}
		s.Operations = append(s.Operations, op)
	}
	if len(o.doses) == 0 && slices.Contains(s.Operations, data.SteerAdd) {
		return s, errors.New("there is no dose to add")
	}
	switch {
	case o.vector == "" && (o.convention != "" || len(o.layers) > 0):
		return s, errors.New("--convention and --layers are of a control-vector file; name it with --control-vector")
	case o.unit != data.UnitGap && o.unit != data.UnitNorm:
		return s, fmt.Errorf("unit %q is neither gap nor norm", o.unit)
	}
	return s, s.Samplings[0].Validate()
}

// openSteered reads the run and finds out what is steered.
func openSteered(e *env, dir string, o steerOptions, fold analysis.Fold) (*steered, error) {
	run, err := openFinished(dir)
	if err != nil {
		return nil, err
	}
	s := &steered{dir: dir, model: run.Manifest().Model}
	if err := run.Close(); err != nil {
		return nil, err
	}
	join := probes.Join{
		Requests: data.ReadTable[data.Request](dir, data.Requests), Prompts: data.ReadTable[data.Prompt](dir, data.Prompts),
		Trials: data.ReadTable[data.Trial](dir, data.Trials), Judge: o.judge.names, Refused: fold.Refused,
	}
	if strings.ContainsAny(o.judge.names, ",:") {
		join.Judge = "rules" // what the directions are fitted to; the steered texts are labelled by the flag
	}
	if data.HasTable(dir, data.Verdicts) {
		join.Verdicts = data.ReadTable[data.Verdict](dir, data.Verdicts)
	}
	if s.rows, err = join.Rows(); err != nil {
		return nil, dataError(err)
	}
	if o.requests == "" {
		if o.out != "" {
			return nil, usage(errors.New("--out is for the tables of --requests"))
		}
		s.about = s.rows
		err = s.ofRun(o)
	} else {
		err = s.ofRequests(o)
	}
	if err != nil {
		return nil, err
	}
	if len(s.prompts) == 0 {
		return nil, usage(fmt.Errorf("there are no requests to steer in wordings %s", strings.Join(o.variants, ", ")))
	}
	if o.vector != "" {
		return s, nil
	}
	tables, err := data.LayerTables(dir)
	if err != nil || len(tables) == 0 {
		return nil, usage(withHint(fmt.Errorf("%s holds no activations", dir), "demur extract "+dir+" --model FILE.gguf writes them"))
	}
	states, missing, err := probes.Collect(activationTables(dir, tables))
	if err != nil {
		return nil, dataError(err)
	}
	if len(missing) > 0 {
		e.say("%d prompts lack activations at some sites and are not fitted to; the first is %.8s", len(missing), missing[0])
	}
	s.states = states
	return s, nil
}

// steerQuestion is that of the exact prediction.
const steerQuestion = "default"

// ofRun takes the run's own prompts.
func (s *steered) ofRun(o steerOptions) error {
	type key struct{ request, variant string }
	asked := make(map[key]data.Prompt)
	texts := make(map[key]string)
	var respond []data.Prompt
	err := errors.Join(
		each(s.dir, data.Requests, func(r data.Request) { texts[key{r.ID, r.Variant}] = r.Text }),
		each(s.dir, data.Prompts, func(p data.Prompt) {
			k := key{p.RequestID, p.Variant}
			switch {
			case p.Phase == data.Respond:
				respond = append(respond, p)
			case p.Question == steerQuestion && p.Polarity == data.AskRefuse:
				asked[k] = p
			}
		}))
	if err != nil {
		return dataError(err)
	}
	for _, p := range spread(respond, o, func(p data.Prompt) (string, string) { return p.RequestID, p.Variant }) {
		k := key{p.RequestID, p.Variant}
		s.prompts = append(s.prompts, probes.SteerPrompt{Prompt: p, Predict: asked[k], Text: texts[k]})
	}
	return nil
}

// ofRequests takes requests that are not the run's.
func (s *steered) ofRequests(o steerOptions) error {
	set, err := loadRequests(o.requests, o.read)
	if err != nil {
		return err
	}
	q, err := protocol.FindQuestion(steerQuestion)
	if err != nil {
		return err
	}
	for _, r := range spread(set.Requests, o, func(r data.Request) (string, string) { return r.ID, r.Variant }) {
		respond := append(slices.Clone(r.Messages), data.Message{Role: "user", Content: r.Text})
		ask := []data.Message{{Role: "user", Content: q.Ask(r)}}
		p := probes.SteerPrompt{
			Prompt:  data.Prompt{ID: data.PromptID(respond), RequestID: r.ID, Variant: r.Variant, Phase: data.Respond, Messages: respond},
			Predict: data.Prompt{ID: data.PromptID(ask), RequestID: r.ID, Variant: r.Variant, Phase: data.Predict, Question: q.Name, Polarity: q.Polarity, Messages: ask},
			Text:    r.Text,
		}
		s.prompts = append(s.prompts, p)
		s.about = append(s.about, probes.Row{PromptID: p.Prompt.ID, RequestID: r.ID, Variant: r.Variant, Topic: r.Topic, Text: r.Text, Harm: r.Harm, Attributes: r.Attributes})
	}
	return nil
}

// spread takes the wordings that are wanted of at most so many requests, evenly
// over the set.
func spread[T any](all []T, o steerOptions, of func(T) (request, variant string)) (out []T) {
	var ids []string
	seen := make(map[string]bool)
	wanted := func(t T) bool {
		_, v := of(t)
		return slices.Contains(o.variants, "all") || slices.Contains(o.variants, v)
	}
	for _, t := range all {
		if id, _ := of(t); wanted(t) && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if n := len(ids); o.limit > 0 && o.limit < n {
		clear(seen)
		for i := range o.limit {
			seen[ids[i*n/o.limit]] = true
		}
	}
	for _, t := range all {
		if id, _ := of(t); wanted(t) && seen[id] {
			out = append(out, t)
		}
	}
	return out
}

// targets resolves the names of directions and their sites.
func (s *steered) targets(o steerOptions) ([]probes.SteerTarget, error) {
	var out []probes.SteerTarget
	var fitted []data.Direction
	for _, name := range o.target {
		name, at, given := strings.Cut(strings.TrimSpace(name), "@")
		name = strings.NewReplacer("-at-equal-", " at equal ", "-within-", " within ").Replace(name)
		var site probes.Site
		if given {
			layer, anchor, ok := strings.Cut(at, "/")
			n, err := strconv.Atoi(layer)
			if !ok || err != nil || n < 0 || anchor == "" {
				return nil, fmt.Errorf("site %q of target %s is not LAYER/ANCHOR, such as 14/post", at, name)
			}
			site = probes.Site{Layer: n, Anchor: anchor}
		} else {
			if fitted == nil && data.HasTable(s.dir, data.Directions) {
				if err := each(s.dir, data.Directions, func(d data.Direction) { fitted = append(fitted, d) }); err != nil {
					return nil, err
				}
			}
			inner, _, _ := strings.Cut(name, " at equal ")
			k := slices.IndexFunc(fitted, func(d data.Direction) bool {
				return d.Target == inner && d.Method == string(probes.MeanDifference) && d.Layer >= 0
			})
			if k < 0 {
				return nil, withHint(fmt.Errorf("there is no mean difference for %s in the table directions of %s", inner, s.dir), fmt.Sprintf("demur fit %s --targets %s writes it, or name a site: %s@LAYER/ANCHOR", s.dir, inner, name))
			}
			site = probes.Site{Layer: fitted[k].Layer, Anchor: fitted[k].Anchor}
		}
		t, err := probes.ParseSteerTarget(name, site)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// requestDigest names a request by its text, short: enough to know it again.
func requestDigest(text string) string {
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(text), " ")))
	return hex.EncodeToString(sum[:8])
}

// fit makes the levers of the run's directions.
func (s *steered) fit(o steerOptions) error {
	targets, err := s.targets(o)
	if err != nil {
		return err
	}
	lo := probes.LeverOptions{Folds: o.folds, Controls: o.controls, Seed: o.seed}
	if o.requests == "" {
		s.levers, err = probes.FitLevers(s.rows, s.states, targets, lo)
		return err
	}
	// Other requests: what is fitted to all of the run's serves, but not for those
	// that are the run's too, by the text of any wording.
	known := make(map[string]bool)
	for _, r := range s.rows {
		known[requestDigest(r.Text)] = true
	}
	s.levers = &probes.Levers{}
	for _, t := range targets {
		v, err := probes.Whole(s.rows, s.states, t)
		if err != nil {
			return fmt.Errorf("target %s: %w", t.Name, err)
		}
		g := probes.GivenVector{Layer: v.Layer, Gap: v.Gap, Norm: v.Norm}
		for _, x := range v.Values {
			g.Values = append(g.Values, float32(x))
		}
		l, err := probes.GivenLevers(s.about, t.Name, t.Site.Anchor, []probes.GivenVector{g}, func(r probes.Row) bool { return known[requestDigest(r.Text)] }, lo)
		if err != nil {
			return err
		}
		s.levers.Levers, s.levers.Fold = append(s.levers.Levers, l.Levers...), l.Fold
		s.levers.Warnings = append(s.levers.Warnings, l.Warnings...)
	}
	s.drop()
	return nil
}

// drop leaves out the prompts that may not be steered.
func (s *steered) drop() {
	s.prompts = slices.DeleteFunc(s.prompts, func(p probes.SteerPrompt) bool {
		_, ok := s.levers.Fold[p.Prompt.RequestID]
		return !ok
	})
}

// given makes levers of a control-vector file.
func (s *steered) given(e *env, o steerOptions, info inference.Info) error {
	f, err := os.Open(o.vector)
	if err != nil {
		return usage(fmt.Errorf("control vector: %w", err))
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	c, err := models.ReadControlVector(f, stat.Size(), o.convention)
	if err != nil {
		var bad *models.Error
		if errors.As(err, &bad) {
			bad.Name = o.vector
			if bad.Hint != "" {
				return usage(withHint(err, bad.Hint))
			}
		}
		return usage(err)
	}
	if len(o.layers) > 0 {
		c.Layers = slices.DeleteFunc(c.Layers, func(l models.ControlLayer) bool { return !slices.Contains(o.layers, l.Layer) })
		if len(c.Layers) == 0 {
			return usage(fmt.Errorf("%s has no vector for blocks %v", o.vector, o.layers))
		}
	}
	warnings, err := c.Fits(info.Blocks, info.Width, info.ModelDigest, info.TemplateHash)
	if err != nil {
		return usage(err)
	}
	var vectors []probes.GivenVector
	for _, l := range c.Layers {
		vectors = append(vectors, probes.GivenVector{Layer: l.Layer, Values: l.Values, Gap: l.Gap, Norm: l.MeanNorm})
	}
	name, anchor := c.Target, c.Anchor
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(o.vector), ".gguf")
	}
	if c.Operation == models.ControlProject && slices.Contains(o.operation, data.SteerAdd) {
		warnings = append(warnings, "the file says that its direction is to be projected out; it is added too, because --operations says so")
	}
	var fitted func(probes.Row) bool
	if c.FittedOn != nil {
		fitted = func(r probes.Row) bool { return slices.Contains(c.FittedOn, requestDigest(r.Text)) }
	}
	s.levers, err = probes.GivenLevers(s.about, name, anchor, vectors, fitted, probes.LeverOptions{Controls: o.controls, Seed: o.seed})
	if err != nil {
		return usage(withHint(err, "steer other requests with --requests"))
	}
	s.levers.Warnings = append(s.levers.Warnings, warnings...)
	s.drop()
	return nil
}

// save writes the first direction as a control-vector file.
func (s *steered) save(e *env, o steerOptions) error {
	if o.vector != "" {
		return usage(errors.New("--save writes what is fitted, not a file that was read"))
	}
	targets, err := s.targets(o)
	if err != nil {
		return usage(err)
	}
	t := targets[0]
	v, err := probes.Whole(s.rows, s.states, t)
	if err != nil {
		return usage(err)
	}
	c := models.ControlVector{
		Operation: models.ControlAdd, Hint: s.model.Architecture, Target: t.Name, Method: string(probes.MeanDifference), Anchor: t.Site.Anchor,
		Model: s.model.Name, ModelDigest: s.model.Digest, TemplateHash: s.model.TemplateHash,
	}
	scale := v.Gap
	if !slices.Contains(o.operation, data.SteerAdd) {
		c.Operation, scale = models.ControlProject, 1
	}
	l := models.ControlLayer{Layer: v.Layer, LearnedAt: v.Layer, Gap: v.Gap, MeanNorm: v.Norm}
	for _, x := range v.Values {
		l.Values = append(l.Values, float32(x*scale))
	}
	c.Layers = []models.ControlLayer{l}
	for _, r := range s.rows {
		if d := requestDigest(r.Text); !slices.Contains(c.FittedOn, d) {
			c.FittedOn = append(c.FittedOn, d)
		}
	}
	slices.Sort(c.FittedOn)
	err = writeFile(o.save, func(w io.Writer) error { return models.WriteControlVector(w, c) })
	if err != nil {
		return usage(err)
	}
	e.say("%s holds the direction of %s after block %d, for model %s; a strength of 1 is one class gap", o.save, t.Name, l.Layer, s.model.Name)
	return nil
}

// leverDigest covers every vector that is applied.
func leverDigest(l *probes.Levers) string {
	h := sha256.New()
	for _, lever := range l.Levers {
		fmt.Fprintf(h, "%s|%s\n", lever, lever.Anchor)
		for _, fold := range lever.Folds {
			for _, v := range fold {
				fmt.Fprintf(h, "%d %x %x\n", v.Layer, math.Float64bits(v.Gap), math.Float64bits(v.Norm))
				if err := binary.Write(h, binary.LittleEndian, v.Values); err != nil {
					panic("demur: a hash that cannot be written to: " + err.Error())
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// openSteerJudge opens the one judge of the steered texts.
func openSteerJudge(ctx context.Context, e *env, f judgeFlags) (protocol.Judge, func() error, error) {
	if strings.Contains(f.names, ",") || strings.HasPrefix(f.names, "human") {
		return nil, nil, usage(errors.New("steered texts are labelled by one judge, and at once: rules, model:MODEL or command:PROGRAM"))
	}
	judge, closer, err := openOneJudge(ctx, e, strings.TrimSpace(f.names), f)
	if err != nil {
		return nil, nil, err
	}
	return judge, func() error {
		if closer == nil {
			return nil
		}
		return closer.Close()
	}, nil
}

// labeller labels responses by a judge.
func labeller(judge protocol.Judge) func(context.Context, []probes.Response) ([]data.Label, error) {
	return func(ctx context.Context, responses []probes.Response) ([]data.Label, error) {
		exchanges := func(yield func(protocol.Exchange) bool) {
			for i, r := range responses {
				if !yield(protocol.Exchange{TrialID: strconv.Itoa(i), Request: r.Request, Response: r.Text, StopReason: r.StopReason}) {
					return
				}
			}
		}
		var labels []data.Label
		for v, err := range judge.Judge(ctx, exchanges) {
			if err != nil {
				return nil, fmt.Errorf("judge %s: %w", judge.Name(), err)
			}
			labels = append(labels, v.Label)
		}
		return labels, nil
	}
}

// table is where rows and estimates go.
func (s *steered) table(o steerOptions) string {
	if o.out != "" {
		return o.out
	}
	return s.dir
}

// steerCheckpoint is how long rows stay in memory alone.
const steerCheckpoint = time.Minute

// run steers, keeps what was done before, and writes the table.
func (s *steered) run(ctx context.Context, e *env, engine probes.SteerEngine, options probes.SteerOptions, o steerOptions) ([]data.Steered, probes.SteerNotes, error) {
	var notes probes.SteerNotes
	dir := s.table(o)
	if o.out != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, notes, usage(err)
		}
	}
	var rows []data.Steered
	done := make(map[string]bool)
	if data.HasTable(dir, data.Steering) {
		others := 0
		err := each(dir, data.Steering, func(r data.Steered) {
			switch {
			case r.PlanID != options.PlanID:
				others++
			case r.Operation != data.SteerNone: // that is done anew
				rows = append(rows, r)
				done[probes.SteerUnit(r)] = true
			}
		})
		if err != nil {
			return nil, notes, dataError(err)
		}
		if others > 0 {
			e.say("the table steering was made under other settings and is written anew")
		}
		if len(done) > 0 {
			e.say("continuing: %d units were done before", len(done))
		}
	}
	options.Done = func(unit string) bool { return done[unit] }
	options.Report = &notes
	if !o.quiet {
		options.Progress = newPace(e, "units").at
	}
	write := func() error {
		return data.WriteTable(dir, data.Steering, sequence(rows))
	}
	saved := time.Now()
	stopped := false
	for unit, err := range probes.Steer(ctx, engine, s.prompts, s.levers, options) {
		if err != nil {
			if len(rows) > 0 {
				err = errors.Join(err, write())
			}
			return nil, notes, err
		}
		rows = append(rows, unit...)
		if time.Since(saved) > steerCheckpoint {
			if err := write(); err != nil {
				return nil, notes, err
			}
			saved = time.Now()
		}
		select {
		case <-e.stop:
			stopped = true
		default:
		}
		if stopped {
			break
		}
	}
	// Those of the model left alone first, as where nothing was done before.
	slices.SortStableFunc(rows, func(a, b data.Steered) int {
		order := func(r data.Steered) int {
			if r.Operation == data.SteerNone {
				return 0
			}
			return 1
		}
		return order(a) - order(b)
	})
	if err := write(); err != nil {
		return nil, notes, err
	}
	if stopped {
		return nil, notes, withCode(exitInterrupted, errors.New("stopped; the same command continues"))
	}
	return rows, notes, nil
}

// finish sums up.
func (s *steered) finish(e *env, rows []data.Steered, notes probes.SteerNotes, judge string, o steerOptions) error {
	report, err := probes.SummariseSteering(sequence(rows), s.about, probes.SteerSummary{Resamples: o.resamples, Seed: o.seed})
	if err != nil {
		return err
	}
	report.Notes = notes
	report.Notes.Warnings = append(slices.Clone(s.levers.Warnings), notes.Warnings...)
	estimates := report.Estimates()
	for i := range estimates {
		estimates[i].Model, estimates[i].Judge, estimates[i].Reading, estimates[i].Fold = s.model.Name, judge, data.Exact, o.fold
	}
	if err := data.WriteTable(s.table(o), "steering_estimates", sequence(estimates)); err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(e.stdout).Encode(report)
	}
	writeSteering(e.stdout, report)
	return nil
}

// writeSteering prints a report.
func writeSteering(w io.Writer, r *probes.SteerReport) {
	fmt.Fprintf(w, "%d prompts of %d requests, %d harmful, %d harmless; intervals at %g\n", r.Prompts, r.Requests, r.Harmful, r.Harmless, r.Level)
	fmt.Fprintf(w, "%-34s %6s %6s  %-22s %7s %8s %6s %6s %7s %7s\n", "", "dose", "norm", "refused", "harmful", "harmless", "broken", "harm", "logit", "KL")
	line := func(name string, v probes.Effect) {
		ratio := ""
		if v.NormRatio != nil {
			ratio = fmt.Sprintf("%.3f", *v.NormRatio)
		}
		dose := v.Operation
		if v.Dose != nil {
			dose = strconv.FormatFloat(*v.Dose, 'g', -1, 64)
		}
		if v.Operation == data.SteerAblateWriters {
			name, dose = name+" where written", data.SteerAblate
		}
		fmt.Fprintf(w, "%-34s %6s %6s  %-22s %7s %8s %6s %6s %7s %7s\n", name, dose, ratio, valueText(v.All.Refusal), shortValue(v.Harmful.Refusal, 3), shortValue(v.Harmless.Refusal, 3),
			shortValue(v.All.Degenerate, 3), shortValue(v.All.Harm, 2), shortValue(v.All.LogitShift, 2), shortValue(v.Harmless.KL, 3))
	}
	line("left alone", r.Alone)
	for _, e := range r.Effects {
		name := plain(e.Direction)
		if e.Layer != nil {
			name += " " + strconv.Itoa(*e.Layer)
		}
		name += " " + e.Anchor
		if e.Control != "" {
			name = fmt.Sprintf("  %s × %d", e.Control, len(e.Draws))
		}
		line(name, e)
	}
	fmt.Fprintln(w, "harm is the expected rating, logit the shift of the log odds of a refusal's first token, KL that of the next token on harmless prompts, in nats")
	if r.Knob != nil {
		fmt.Fprintf(w, "one knob: over-refusal at equal refusal spreads by %s\n", valueText(r.Knob.Spread))
		for _, p := range r.Knob.Pairs {
			fmt.Fprintf(w, "  %s less %s: %s at %d rates\n", plain(p.A), plain(p.B), valueText(p.Difference), p.Rates)
		}
	}
	if r.Notes.Tokens > 0 {
		words := ""
		if len(r.Notes.Openings) > 0 {
			words = ", the most frequent ones of " + strings.Join(r.Notes.Openings, ", ")
		}
		fmt.Fprintf(w, "tokens that open refusals: %d%s\n", r.Notes.Tokens, plain(words))
	}
	if r.Errors > 0 {
		fmt.Fprintf(w, "note: %d texts failed\n", r.Errors)
	}
	for _, warning := range r.Notes.Warnings {
		fmt.Fprintf(w, "note: %s\n", plain(warning))
	}
}

func shortValue(v probes.Value, digits int) string {
	if v.Value == nil {
		return "–"
	}
	text := strconv.FormatFloat(*v.Value, 'f', digits, 64)
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-") // no −0
	}
	return text
}
