package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"demur/data"
	"demur/inference"
)

// Version is the version of the protocol: of the prompts' form, the readings
// and the packing. It is part of the plan id.
const Version = "1"

// Limits of a plan, so that a slip of the hand does not become a year of work.
const (
	maxTemperatures = 64
	maxSeeds        = 10_000
	maxPack         = 64
)

// A Plan is a sweep with its model and settings, before it is run. Flags and
// plan file say the same; the zero value of a field is not a default, see
// DefaultPlan.
type Plan struct {
	Model    string `yaml:"model" json:"model"`
	Engine   string `yaml:"engine,omitempty" json:"engine"` // llamacpp or ollama; empty until the model is resolved
	BaseURL  string `yaml:"base_url,omitempty" json:"-"`    // where the server is, not what is measured
	Requests string `yaml:"requests,omitempty" json:"-"`    // file or built-in name; the digest counts

	Limit    int      `yaml:"limit,omitempty" json:"limit,omitempty"`       // requests, spread evenly over topics and levels; 0: all
	Variants []string `yaml:"variants,omitempty" json:"variants,omitempty"` // empty: all

	Temperatures []float64 `yaml:"temperatures" json:"temperatures"`
	Seeds        Seeds     `yaml:"seeds" json:"seeds"`
	TopK         int       `yaml:"top_k,omitempty" json:"top_k,omitempty"`
	TopP         float64   `yaml:"top_p,omitempty" json:"top_p,omitempty"`
	MinP         float64   `yaml:"min_p,omitempty" json:"min_p,omitempty"`
	MaxTokens    int       `yaml:"max_tokens" json:"max_tokens"`

	Questions           []string  `yaml:"questions" json:"questions"`                       // wordings of the prediction question by name
	QuestionFile        string    `yaml:"question_file,omitempty" json:"-"`                 // a wording of one's own
	PredictTemperatures []float64 `yaml:"predict_temperatures" json:"predict_temperatures"` // of the free and the bound reading
	PredictSeeds        Seeds     `yaml:"predict_seeds" json:"predict_seeds"`
	PredictMaxTokens    int       `yaml:"predict_max_tokens" json:"predict_max_tokens"`

	SystemMessage string `yaml:"system_message,omitempty" json:"system_message,omitempty"`
	Context       int    `yaml:"ctx" json:"ctx"`                         // tokens that prompt and answer of one trial may have together
	Think         string `yaml:"think,omitempty" json:"think,omitempty"` // on, off or empty: as the template has it
	ChatTemplate  string `yaml:"chat_template,omitempty" json:"-"`       // file; its digest is the engine's
	LoRA          string `yaml:"lora,omitempty" json:"-"`                // file; its digest is the engine's
	GPULayers     int    `yaml:"gpu_layers,omitempty" json:"gpu_layers,omitempty"`
	Strict        bool   `yaml:"strict,omitempty" json:"strict,omitempty"`
	Pack          int    `yaml:"pack" json:"pack"` // request wordings a unit; 0: chosen from the model's size, see Bind

	Judge string `yaml:"judge,omitempty" json:"-"` // labelling is its own pass and changes no trial
}

// DefaultPlan returns the plan that runs where nothing is said: the sweep of
// Larsen (arXiv:2512.12066; temperatures 0, 0.3, 0.7 and 1, seeds 42 to 46), the
// prediction at temperature 0. 128 tokens show whether an answer is given; a
// judge is told which responses were cut.
func DefaultPlan() Plan {
	return Plan{
		Temperatures:        []float64{0, 0.3, 0.7, 1},
		Seeds:               []uint32{42, 43, 44, 45, 46},
		MaxTokens:           128,
		Questions:           []string{"default"},
		PredictTemperatures: []float64{0},
		PredictSeeds:        []uint32{42},
		PredictMaxTokens:    96,
		Context:             2048,
		Judge:               "rules",
	}
}

// ReadPlan reads a plan file over base: what the file does not name stays. An
// unknown key is an error, for a misspelt setting would act silently.
func ReadPlan(r io.Reader, base Plan) (Plan, error) {
	raw, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return Plan{}, fmt.Errorf("read plan: %w", err)
	}
	if err := refuseZeroLimit(raw); err != nil {
		return Plan{}, err
	}
	plan := base
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&plan); err != nil && !errors.Is(err, io.EOF) {
		return Plan{}, fmt.Errorf("read plan: %w", err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Plan{}, errors.New("read plan: a second document follows the first, and would be ignored")
	}
	return plan, nil
}

// refuseZeroLimit refuses "limit: 0", which would otherwise read as no limit.
func refuseZeroLimit(raw []byte) error {
	var file struct {
		Limit *int `yaml:"limit"`
	}
	if yaml.Unmarshal(raw, &file) == nil && file.Limit != nil && *file.Limit == 0 {
		return errors.New("read plan: limit 0 asks for no request at all; leave it out to take all")
	}
	return nil
}

// WriteYAML writes the plan as a plan file.
func (p Plan) WriteYAML(w io.Writer) error {
	b, err := yaml.Marshal(p)
	if err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	_, err = w.Write(b)
	return err
}

// Validate returns an error that names what cannot be run.
func (p Plan) Validate() error {
	switch {
	case p.Engine != "" && p.Engine != "llamacpp" && p.Engine != "ollama" && p.Engine != "scripted":
		return fmt.Errorf("engine %q is not known; there are llamacpp and ollama", p.Engine)
	case p.Limit < 0:
		return fmt.Errorf("limit %d is negative", p.Limit)
	case len(p.Temperatures) == 0:
		return errors.New("no temperature is given")
	case len(p.Seeds) == 0:
		return errors.New("no seed is given")
	case len(p.Temperatures) > maxTemperatures:
		return fmt.Errorf("%d temperatures are more than %d", len(p.Temperatures), maxTemperatures)
	case len(p.Seeds) > maxSeeds:
		return fmt.Errorf("%d seeds are more than %d", len(p.Seeds), maxSeeds)
	case len(p.Questions) == 0 && p.QuestionFile == "":
		return errors.New("no prediction question is given")
	case p.Context < 64:
		return fmt.Errorf("ctx %d is less than 64 tokens", p.Context)
	case p.MaxTokens >= p.Context:
		return fmt.Errorf("max-tokens %d leave no room for a prompt in a ctx of %d tokens", p.MaxTokens, p.Context)
	case p.PredictMaxTokens >= p.Context:
		return fmt.Errorf("predict-max-tokens %d leave no room for a prompt in a ctx of %d tokens", p.PredictMaxTokens, p.Context)
	case !utf8.ValidString(p.SystemMessage) || strings.ContainsRune(p.SystemMessage, 0):
		return errors.New("the system message is not UTF-8 text, or holds a NUL")
	case p.Pack < 0 || p.Pack > maxPack:
		return fmt.Errorf("pack %d is not in 0 to %d", p.Pack, maxPack)
	case p.Think != "" && p.Think != "on" && p.Think != "off":
		return fmt.Errorf("think %q is neither on nor off", p.Think)
	}
	if err := noRepeats("temperature", p.Temperatures); err != nil {
		return err
	}
	if err := noRepeats("seed", p.Seeds); err != nil {
		return err
	}
	for _, s := range append(p.samplings(), p.predictSamplings(true)...) {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	_, err := p.questions(nil)
	return err
}

// noRepeats refuses a value given twice: it would be one trial counted as two.
func noRepeats[T comparable](what string, values []T) error {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("%s %v is given twice", what, v)
		}
	}
	return nil
}

// samplings returns the sweep of the respond phase, temperatures outermost.
func (p Plan) samplings() []data.Sampling {
	var all []data.Sampling
	for _, t := range p.Temperatures {
		for _, seed := range p.Seeds {
			all = append(all, data.Sampling{
				Temperature: t + 0, Seed: seed, // −0 becomes 0
				TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, MaxTokens: p.MaxTokens,
			})
		}
	}
	return all
}

// predictSamplings returns the samplings of the predict phase: each free one,
// then, where the engine binds answers, each bound one.
func (p Plan) predictSamplings(grammars bool) []data.Sampling {
	var all []data.Sampling
	readings := []bool{false}
	if grammars {
		readings = append(readings, true)
	}
	for _, bound := range readings {
		for _, t := range p.PredictTemperatures {
			for _, seed := range p.PredictSeeds {
				all = append(all, data.Sampling{Temperature: t + 0, Seed: seed, MaxTokens: p.PredictMaxTokens, Grammar: bound})
				if t == 0 {
					break // every seed is the same greedy answer; one row says so
				}
			}
		}
	}
	return all
}

// questions resolves the wordings by name; own is the wording of QuestionFile.
func (p Plan) questions(own *Question) ([]Question, error) {
	var all []Question
	for _, name := range p.Questions {
		q, err := FindQuestion(name)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	if own != nil {
		all = append(all, *own)
	}
	for i, q := range all {
		for _, other := range all[:i] {
			if other.Name == q.Name {
				return nil, fmt.Errorf("question %q is given twice", q.Name)
			}
		}
	}
	return all, nil
}

// A Work is a plan bound to an engine and a request set: all that is to be
// done, and the id under which it is done.
type Work struct {
	Plan      Plan
	Info      inference.Info
	Requests  []data.Request
	Digest    string // of the request set
	Questions []Question
	PlanID    string
}

// Bind joins plan, engine and requests. own is the wording of the plan's
// QuestionFile, or nil.
func (p Plan) Bind(info inference.Info, requests []data.Request, digest string, own *Question) (*Work, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	questions, err := p.questions(own)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(requests, p.Variants, p.Limit)
	if err != nil {
		return nil, err
	}
	if p.Pack == 0 {
		p.Pack = packFor(info)
	}
	w := &Work{Plan: p, Info: info, Requests: chosen, Digest: digest, Questions: questions}
	identity, err := json.Marshal(w.Identity())
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if w.PlanID, err = PlanID(identity); err != nil {
		return nil, err
	}
	return w, nil
}

// packFor returns how many request wordings of a model make a unit. More fill the
// batches better while answers end: on a model of 135 million parameters whose
// answers vary in length 12 were a third faster than 4. But a unit is what a
// crash loses and what an interrupt waits for, which with a large model is minutes.
func packFor(info inference.Info) int {
	const small = 64 << 20 // blocks × width²: about a billion parameters
	if size := info.Blocks * info.Width * info.Width; 0 < size && size < small {
		return 12
	}
	return 4
}

// PlanID returns the plan id of an identity in JSON, whatever the order of its
// keys: the beginning of the SHA-256 of its form with sorted keys.
func PlanID(identity []byte) (string, error) {
	var sorted any
	if err := json.Unmarshal(identity, &sorted); err != nil {
		return "", fmt.Errorf("plan: %w", err)
	}
	return data.Digest(sorted)[:32], nil
}

// Identity is everything that can change a row of the run, in the form whose
// digest is the plan id. Two runs with equal identity on a reproducible engine
// have equal tables.
func (w *Work) Identity() map[string]any {
	questions := map[string]string{}
	for _, q := range w.Questions {
		questions[q.Name] = q.SHA256()
	}
	return map[string]any{
		"protocol":        Version,
		"schema":          data.SchemaVersion,
		"plan":            w.Plan.without(),
		"questions":       questions,
		"requests":        w.Digest,
		"engine":          w.Info.Engine,
		"engine_version":  w.Info.Version,
		"engine_plan":     w.Info.Plan,
		"model_digest":    w.Info.ModelDigest,
		"adapter":         w.Info.Adapter,
		"template_sha256": w.Info.TemplateHash,
		"device":          w.Info.Device,
	}
}

// without returns the plan less what only names things: the model counts by
// its digest, not by where it lies.
func (p Plan) without() Plan {
	p.Model = ""
	return p
}

// choose keeps the wanted variants, then limit requests (0: all). The limit
// takes requests evenly over topics and harm levels: it goes round the strata
// in the order of the set and takes the next of each.
func choose(requests []data.Request, variants []string, limit int) ([]data.Request, error) {
	var kept []data.Request
	for _, r := range requests {
		if len(variants) == 0 || slices.Contains(variants, r.Variant) {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("no request has one of the variants %v", variants)
	}
	if limit == 0 {
		return kept, nil
	}
	type stratum struct {
		topic string
		harm  int
	}
	var ids []string
	var strata []stratum
	in := map[stratum][]string{}
	seen := map[string]bool{}
	for _, r := range kept {
		if seen[r.ID] {
			continue
		}
		seen[r.ID] = true
		s := stratum{r.Topic, r.Harm}
		if len(in[s]) == 0 {
			strata = append(strata, s)
		}
		in[s] = append(in[s], r.ID)
		ids = append(ids, r.ID)
	}
	if limit > len(ids) {
		limit = len(ids)
	}
	// Strata are visited level by level within a rotation of the topics, so that a
	// short limit meets every level and every topic.
	order := interleave(strata, func(s stratum) string { return s.topic }, func(s stratum) int { return s.harm })
	taken := map[string]bool{}
	for round := 0; len(taken) < limit; round++ {
		for _, s := range order {
			if round < len(in[s]) && len(taken) < limit {
				taken[in[s][round]] = true
			}
		}
	}
	return slices.DeleteFunc(kept, func(r data.Request) bool { return !taken[r.ID] }), nil
}

// interleave orders strata so that neighbours differ in topic and in level:
// the k-th stop takes topic k mod T at level (k + k/T) mod L.
func interleave[S comparable](strata []S, topic func(S) string, level func(S) int) []S {
	var topics []string
	var levels []int
	for _, s := range strata {
		if !slices.Contains(topics, topic(s)) {
			topics = append(topics, topic(s))
		}
		if !slices.Contains(levels, level(s)) {
			levels = append(levels, level(s))
		}
	}
	slices.Sort(levels)
	var order []S
	for k := range len(topics) * len(levels) {
		t, l := topics[k%len(topics)], levels[(k+k/len(topics))%len(levels)]
		for _, s := range strata {
			if topic(s) == t && level(s) == l {
				order = append(order, s)
			}
		}
	}
	return order
}

// A Unit is a fixed pack of jobs: what is executed, made durable, retried and
// resumed.
type Unit struct {
	ID    string
	Jobs  []inference.Job
	Asked []Asked // one per job
}

// Asked says what a job was for.
type Asked struct {
	Request  data.Request
	Question *Question // nil in phase respond
}

// Units yields the work in its fixed order and packing: Pack request wordings a
// unit, of each the respond job and then a predict job per question.
func (w *Work) Units() iter.Seq[Unit] {
	return func(yield func(Unit) bool) {
		for from := 0; from < len(w.Requests); from += w.Plan.Pack {
			pack := w.Requests[from:min(from+w.Plan.Pack, len(w.Requests))]
			if !yield(w.unit(pack)) {
				return
			}
		}
	}
}

// UnitCount returns the number of units, TrialCount of trials, and
// PredictionCount of rows of predictions.
func (w *Work) UnitCount() int { return (len(w.Requests) + w.Plan.Pack - 1) / w.Plan.Pack }

// TrialCount returns the number of trials of the whole work.
func (w *Work) TrialCount() int { return len(w.Requests) * len(w.Plan.samplings()) }

func (w *Work) unit(pack []data.Request) Unit {
	var u Unit
	keys := []string{w.PlanID}
	for i := range pack {
		r := pack[i]
		keys = append(keys, r.ID, r.Variant, data.Digest(r))
		u.add(w.respondJob(r), Asked{Request: r})
		for j := range w.Questions {
			u.add(w.predictJob(r, w.Questions[j]), Asked{Request: r, Question: &w.Questions[j]})
		}
	}
	u.ID = data.Digest(keys)[:32]
	return u
}

func (u *Unit) add(job inference.Job, asked Asked) {
	u.Jobs = append(u.Jobs, job)
	u.Asked = append(u.Asked, asked)
}

func (w *Work) respondJob(r data.Request) inference.Job {
	messages := append(w.system(), r.Messages...)
	messages = append(messages, data.Message{Role: "user", Content: r.Text})
	return inference.Job{
		Prompt: data.Prompt{
			ID: data.PromptID(messages), RequestID: r.ID, Variant: r.Variant,
			Phase: data.Respond, Messages: messages,
		},
		Samplings: w.Plan.samplings(),
	}
}

func (w *Work) predictJob(r data.Request, q Question) inference.Job {
	messages := append(w.system(), data.Message{Role: "user", Content: q.Ask(r)})
	job := inference.Job{
		Prompt: data.Prompt{
			ID: data.PromptID(messages), RequestID: r.ID, Variant: r.Variant,
			Phase: data.Predict, Question: q.Name, Polarity: q.Polarity, Messages: messages,
		},
		Samplings: w.Plan.predictSamplings(w.Info.Grammars),
	}
	if w.Info.Grammars {
		job.Grammar = predictionGrammar(q.Key())
	}
	if w.Info.Scorer {
		job.Prefix, job.Continuations = exactPrefix(q.Key()), exactContinuations()
	}
	return job
}

func (w *Work) system() []data.Message {
	if w.Plan.SystemMessage == "" {
		return nil
	}
	return []data.Message{{Role: "system", Content: w.Plan.SystemMessage}}
}
