package probes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"demur/data"
	"demur/inference"
)

// A SteerEngine generates while its residual stream is changed. One that is also
// an inference.Predictor shows how the next token's distribution moves, and how far
// towards the tokens that open refusals.
type SteerEngine interface {
	inference.Engine
	inference.Steerer
}

// A SteerPrompt is a request to be put to a steered model.
type SteerPrompt struct {
	Prompt data.Prompt // of phase respond
	// Predict asks what the model will do; no messages: it is not asked.
	Predict data.Prompt
	Text    string // of the request
}

// A Response is what a steered model said, to be labelled.
type Response struct {
	RequestID, Variant string
	Request, Text      string
	StopReason         string
}

// An Inquiry asks exactly what the model will do and how harmful it holds a request
// to be, by the probabilities of continuations.
type Inquiry struct {
	// Job asks about a prompt of phase predict.
	Job func(predict data.Prompt) inference.Job
	// Read turns its scores into P(refuse) and an expected harm rating, 1 to 5.
	Read func(predict data.Prompt, scores []float64) (pRefuse, harm float64, err error)
}

// Operations beside data.SteerAdd: where a direction is taken out.
const (
	AblateAll = "ablate all" // after every block
	AblateOne = "ablate one" // after its own block
	// AblateWriters takes it out of what the parts of every block write; not every
	// engine and model can.
	AblateWriters = "ablate writers"
)

// SteerOptions say what is done and how it is looked at. Zero values are replaced
// by the defaults; Label and Refused must be set.
type SteerOptions struct {
	Operations []string // data.SteerAdd and AblateAll; also AblateOne, AblateWriters
	// Doses of what is added; 0 is the model left alone and always there.
	Doses        []float64 // −4, −2, −1, −0.5, 0.5, 1, 2, 4
	ControlDoses []float64 // of the controls: the same; not nil and empty for none
	Unit         string    // of the doses: data.UnitGap or data.UnitNorm

	Samplings []data.Sampling // one, greedy, of 48 tokens
	Batch     int             // 32: prompts in a unit

	// Label labels responses, in their order. Refused folds a label: ok is false for
	// one that is neither a refusal nor a compliance.
	Label   func(ctx context.Context, responses []Response) ([]data.Label, error)
	Refused func(data.Label) (refused, ok bool)

	Inquiry  *Inquiry // asked of each prompt under each condition; nil: not asked
	AskHarm  bool     // also ask in words whether the request could cause harm; see HarmQuestion
	Surprise float64  // nats a token above which a text is degenerate: 5; −1 for no such limit
	KeepText bool     // keep the texts in the rows
	PlanID   string   // stands in every row
	// Done tells whether a unit need not be done again. Nil: none is.
	Done func(unit string) bool
	// Report, if not nil, is filled in while the rows are read.
	Report *SteerNotes
	// Progress, if not nil, is told how many of the units are done.
	Progress func(done, of int)
}

// SteerNotes are what was seen on the way.
type SteerNotes struct {
	// Tokens is how many tokens open refusals: at least four times as probable as the
	// first token where the model left alone refuses than where it answers. Openings
	// are the first words of the texts that begin with the most probable of them.
	Tokens   int      `json:"opening_tokens"`
	Openings []string `json:"openings,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

func (o *SteerOptions) defaults() error {
	if len(o.Operations) == 0 {
		o.Operations = []string{data.SteerAdd, AblateAll}
	}
	for _, op := range o.Operations {
		if all := []string{data.SteerAdd, AblateAll, AblateOne, AblateWriters}; !slices.Contains(all, op) {
			return fmt.Errorf("operation %q is none of %s", op, strings.Join(all, ", "))
		}
	}
	if o.Doses == nil {
		o.Doses = []float64{-4, -2, -1, -0.5, 0.5, 1, 2, 4}
	}
	if o.ControlDoses == nil {
		o.ControlDoses = o.Doses
	}
	for _, doses := range []*[]float64{&o.Doses, &o.ControlDoses} {
		for _, d := range *doses {
			if math.IsNaN(d) || math.IsInf(d, 0) {
				return fmt.Errorf("dose %v is no number", d)
			}
		}
		*doses = slices.DeleteFunc(slices.Clone(*doses), func(d float64) bool { return d == 0 })
		slices.Sort(*doses)
		*doses = slices.Compact(*doses)
	}
	if o.Unit == "" {
		o.Unit = data.UnitGap
	}
	if o.Unit != data.UnitGap && o.Unit != data.UnitNorm {
		return fmt.Errorf("unit %q is neither %s nor %s", o.Unit, data.UnitGap, data.UnitNorm)
	}
	if len(o.Samplings) == 0 {
		o.Samplings = []data.Sampling{{MaxTokens: 48}}
	}
	for _, s := range o.Samplings {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	if o.Batch < 1 {
		o.Batch = 32
	}
	if o.Surprise == 0 {
		o.Surprise = 5
	}
	if o.Label == nil || o.Refused == nil {
		return errors.New("there is no judge, or no rule that folds its labels")
	}
	return nil
}

// A steerCondition is one change of the stream.
type steerCondition struct {
	lever     *Lever // nil for none
	operation string
	dose      float64
}

// conditions are all but none, in the order in which they are done: the directions
// themselves before their controls, so that a run that is stopped has them.
func (o *SteerOptions) conditions(levers []Lever) (all []steerCondition) {
	for _, control := range []bool{false, true} {
		for i := range levers {
			l := &levers[i]
			if (l.Control != "") != control {
				continue
			}
			doses := o.Doses
			if control {
				doses = o.ControlDoses
			}
			for _, op := range o.Operations {
				if op != data.SteerAdd {
					all = append(all, steerCondition{l, op, 0})
					continue
				}
				for _, d := range doses {
					all = append(all, steerCondition{l, op, d})
				}
			}
		}
	}
	return all
}

// row is the condition's part of a row.
func (c steerCondition) row(fold int, unit string) data.Steered {
	if c.lever == nil {
		return data.Steered{Operation: data.SteerNone, Fold: -1}
	}
	row := data.Steered{Direction: c.lever.Name, Control: c.lever.Control, Draw: c.lever.Draw, Fold: fold, Anchor: c.lever.Anchor, Operation: data.SteerAblate}
	if c.lever.Given {
		row.Fold = -1
	}
	vectors := c.lever.vectors(fold)
	if c.operation == AblateWriters {
		row.Operation = data.SteerAblateWriters
	}
	if len(vectors) == 1 && (c.operation == data.SteerAdd || c.operation == AblateOne) {
		row.Layer = &vectors[0].Layer
	}
	if c.operation != data.SteerAdd {
		return row
	}
	row.Operation, row.Dose, row.Unit = data.SteerAdd, &c.dose, unit
	if len(vectors) == 1 {
		v := vectors[0]
		size := c.dose * v.unit(unit)
		row.Gaps = defined(size / v.Gap)
		if v.Norm > 0 {
			row.NormRatio = defined(math.Abs(size) / v.Norm)
		}
	}
	return row
}

func (l *Lever) vectors(fold int) []LeverVector {
	if len(l.Folds) == 1 {
		return l.Folds[0]
	}
	return l.Folds[fold]
}

func (v LeverVector) unit(unit string) float64 {
	if unit == data.UnitNorm {
		return v.Norm
	}
	return v.Gap
}

// steering is what the engine is to do.
func (c steerCondition) steering(fold, blocks int, unit string) *inference.Steering {
	if c.lever == nil {
		return nil
	}
	s := &inference.Steering{Add: map[int][]float32{}, Ablate: map[int][]float32{}}
	vectors := c.lever.vectors(fold)
	for _, v := range vectors {
		switch c.operation {
		case data.SteerAdd:
			s.Add[v.Layer] = narrow(scaledBy(v.Values, c.dose*v.unit(unit)))
		case AblateWriters:
			s.AblateWriters = narrow(v.Values)
		default:
			s.Ablate[v.Layer] = narrow(v.Values)
		}
	}
	if c.operation == AblateAll && len(vectors) == 1 {
		for l := range blocks {
			s.Ablate[l] = s.Ablate[vectors[0].Layer]
		}
	}
	return s
}

// SteerUnit names the unit that a row belongs to: what is done, and continued, as
// a whole.
func SteerUnit(r data.Steered) string {
	name := r.Direction + "|" + r.Control + "|" + strconv.Itoa(r.Draw) + "|" + r.Anchor + "|" + r.Operation + "|" + strconv.Itoa(r.Fold)
	if r.Layer != nil {
		name += "|" + strconv.Itoa(*r.Layer)
	}
	if r.Dose != nil {
		name += "|" + r.Unit + strconv.FormatFloat(*r.Dose, 'g', -1, 64)
	}
	return name
}

// Steer puts the prompts to the model left alone and under every condition:
// each direction of the levers added in each dose or taken out, at every position,
// while prompt and answer are computed; the controls likewise. It yields the rows
// of one unit (a condition and a fold) together. A prompt is steered by what was
// fitted without its request; one whose request is not in the levers' folds is an
// error.
//
// What the model left alone does is always done anew, for the rest is held against
// it. The engine is left unsteered.
func Steer(ctx context.Context, engine SteerEngine, prompts []SteerPrompt, levers *Levers, o SteerOptions) iter.Seq2[[]data.Steered, error] {
	return func(yield func([]data.Steered, error) bool) {
		if err := o.defaults(); err != nil {
			yield(nil, fmt.Errorf("steer: %w", err))
			return
		}
		s := &steering{ctx: ctx, engine: engine, prompts: prompts, levers: levers, o: &o, notes: o.Report, info: engine.Info()}
		if s.notes == nil {
			s.notes = new(SteerNotes)
		}
		*s.notes = SteerNotes{}
		s.predictor, _ = engine.(inference.Predictor)
		if err := s.run(yield); err != nil {
			yield(nil, fmt.Errorf("steer: %w", err))
		}
	}
}

type steering struct {
	ctx       context.Context
	engine    SteerEngine
	predictor inference.Predictor
	prompts   []SteerPrompt
	levers    *Levers
	o         *SteerOptions
	notes     *SteerNotes
	info      inference.Info

	alone    [][]float32     // distribution after each prompt of the model left alone
	openings map[int]bool    // tokens that open refusals
	logits   map[int]float64 // refusal logit of each prompt, alone
}

func (s *steering) run(yield func([]data.Steered, error) bool) (err error) {
	if len(s.prompts) == 0 {
		return errors.New("there are no prompts")
	}
	byFold := make(map[int][]int)
	folds := 0
	for i, p := range s.prompts {
		f, ok := s.levers.Fold[p.Prompt.RequestID]
		if !ok {
			return fmt.Errorf("request %s may not be steered: a direction was fitted to it", p.Prompt.RequestID)
		}
		byFold[f] = append(byFold[f], i)
		folds = max(folds, f+1)
	}
	for _, l := range s.levers.Levers {
		for _, fold := range l.Folds {
			if len(fold) > 1 && slices.Contains(s.o.Operations, AblateWriters) {
				return fmt.Errorf("%s has a vector for each of %d blocks, and one only can be taken out of what all blocks write", l, len(fold))
			}
			for _, v := range fold {
				if s.o.Unit == data.UnitNorm && v.Norm == 0 && slices.Contains(s.o.Operations, data.SteerAdd) {
					return fmt.Errorf("the mean length of the stream is not known for %s: give doses in class gaps", l)
				}
			}
		}
	}
	defer func() {
		// On cancellation too, so that the engine can be used again.
		if e := s.engine.Steer(context.WithoutCancel(s.ctx), nil); e != nil {
			err = errors.Join(err, fmt.Errorf("ending the steering: %w", e))
		}
	}()
	conditions := s.o.conditions(s.levers.Levers)
	done, of := 0, 1+len(conditions)*len(byFold)
	note := func() {
		done++
		if s.o.Progress != nil {
			s.o.Progress(done, of)
		}
	}
	rows, err := s.unit(steerCondition{}, -1, all(len(s.prompts)))
	if err != nil {
		return fmt.Errorf("the model left alone: %w", err)
	}
	note()
	if !yield(rows, nil) {
		return nil
	}
	for _, c := range conditions {
		for f := range folds {
			if len(byFold[f]) == 0 {
				continue
			}
			if s.o.Done != nil && s.o.Done(SteerUnit(c.row(f, s.o.Unit))) {
				note()
				continue
			}
			rows, err := s.unit(c, f, byFold[f])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.lever, c.operation, err)
			}
			note()
			if !yield(rows, nil) {
				return nil
			}
		}
	}
	return nil
}

// unit does one condition for some prompts.
func (s *steering) unit(c steerCondition, fold int, prompts []int) ([]data.Steered, error) {
	var rows []data.Steered
	for part := range slices.Chunk(prompts, s.o.Batch) {
		if err := s.engine.Steer(s.ctx, c.steering(fold, s.info.Blocks, s.o.Unit)); err != nil {
			return nil, err
		}
		more, err := s.asked(c.row(fold, s.o.Unit), part)
		if err != nil {
			return nil, err
		}
		if err := s.distributions(c, part, more); err != nil {
			return nil, err
		}
		if err := s.label(part, more); err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	if c.lever == nil {
		s.checkSurprise(rows)
		s.findOpenings(rows)
	}
	for i := range rows {
		if !s.o.KeepText {
			rows[i].Text = nil
		}
	}
	return rows, nil
}

// at returns the rows of the k-th prompt of a part: one for each sampling.
func (s *steering) at(rows []data.Steered, k int) []data.Steered {
	n := len(s.o.Samplings)
	return rows[k*n : (k+1)*n]
}

// asked generates, and asks what can be asked.
func (s *steering) asked(base data.Steered, part []int) ([]data.Steered, error) {
	var jobs []inference.Job
	inquire := s.o.Inquiry != nil && s.info.Scorer
	askHarm := s.o.AskHarm && s.info.Scorer
	for _, i := range part {
		p := s.prompts[i]
		jobs = append(jobs, inference.Job{Prompt: p.Prompt, Samplings: s.o.Samplings})
		if inquire && len(p.Predict.Messages) > 0 {
			jobs = append(jobs, s.o.Inquiry.Job(p.Predict))
		}
		if askHarm {
			jobs = append(jobs, harmJob(p))
		}
	}
	answers, err := s.generate(jobs)
	if err != nil {
		return nil, err
	}
	var rows []data.Steered
	next := 0
	for _, i := range part {
		p := s.prompts[i]
		own := answers[next]
		next++
		var pRefuse, harm, pHarm *float64
		if inquire && len(p.Predict.Messages) > 0 {
			if scores := answers[next].Scores; len(scores) > 0 {
				// Where the question's own words have become impossible there is no reading.
				if a, b, err := s.o.Inquiry.Read(p.Predict, scores); err == nil {
					pRefuse, harm = defined(a), defined(b)
				}
			}
			next++
		}
		if askHarm {
			pHarm = readHarm(answers[next].Scores)
			next++
		}
		for _, g := range own.Generations {
			row := base
			row.PromptID, row.RequestID, row.Variant = p.Prompt.ID, p.Prompt.RequestID, p.Prompt.Variant
			row.Temperature, row.Seed = g.Sampling.Temperature, g.Sampling.Seed
			row.Tokens, row.StopReason, row.PlanID = g.Tokens, g.StopReason, s.o.PlanID
			row.PRefuse, row.HarmRating, row.PHarm = pRefuse, harm, pHarm
			row.Text = &g.Text
			if g.ErrorKind != "" {
				row.Outcome, row.Reason = data.SteerError, g.ErrorKind
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *steering) generate(jobs []inference.Job) ([]inference.Answer, error) {
	var answers []inference.Answer
	for a, err := range s.engine.Generate(s.ctx, jobs) {
		if err != nil {
			return nil, err
		}
		n := len(answers)
		if n >= len(jobs) || a.PromptID != jobs[n].Prompt.ID || len(a.Generations) != len(jobs[n].Samplings) {
			return nil, fmt.Errorf("the engine's answer %d does not belong to its job", n)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(jobs) {
		return nil, fmt.Errorf("the engine answered %d of %d jobs", len(answers), len(jobs))
	}
	return answers, nil
}

// distributions fills in how the next token's distribution moved. It is called
// before the steering ends.
func (s *steering) distributions(c steerCondition, part []int, rows []data.Steered) error {
	if s.predictor == nil {
		return nil
	}
	var jobs []inference.Job
	for _, i := range part {
		jobs = append(jobs, inference.Job{Prompt: s.prompts[i].Prompt})
	}
	k := 0
	for logs, err := range s.predictor.Distributions(s.ctx, jobs) {
		if err != nil && !errors.Is(err, inference.ErrPrompt) {
			return err
		}
		if k >= len(part) {
			return fmt.Errorf("the engine gave more than %d distributions", len(part))
		}
		if c.lever == nil {
			s.alone = append(s.alone, logs) // in the order of the prompts
		} else if logs != nil {
			i := part[k]
			kl := klDivergence(s.alone[i], logs)
			logit, ok := s.refusalLogit(logs)
			for j := range s.at(rows, k) {
				row := &s.at(rows, k)[j]
				row.KL = defined(kl)
				if before, known := s.logits[i]; ok && known {
					row.RefusalLogit, row.LogitShift = defined(logit), defined(logit-before)
				}
			}
		}
		k++
	}
	if k != len(part) {
		return fmt.Errorf("the engine gave %d of %d distributions", k, len(part))
	}
	return nil
}

// klDivergence of q from p, in nats, of two rows of log probabilities; +Inf where q
// rules out what p does not, NaN if one is missing.
func klDivergence(p, q []float32) float64 {
	if len(p) == 0 || len(p) != len(q) {
		return math.NaN()
	}
	var sum float64
	for i, lp := range p {
		if e := math.Exp(float64(lp)); e > 0 {
			sum += e * (float64(lp) - float64(q[i]))
		}
	}
	return math.Max(sum, 0)
}

// refusalLogit is log P/(1 − P), P the probability that the next token is one that
// opens refusals.
func (s *steering) refusalLogit(logs []float32) (logit float64, ok bool) {
	if len(s.openings) == 0 || len(logs) == 0 {
		return 0, false
	}
	highest := [2]float64{math.Inf(-1), math.Inf(-1)}
	side := func(t int) int {
		if s.openings[t] {
			return 1
		}
		return 0
	}
	for t, l := range logs {
		highest[side(t)] = max(highest[side(t)], float64(l))
	}
	var sum [2]float64
	for t, l := range logs {
		k := side(t)
		if !math.IsInf(highest[k], -1) {
			sum[k] += math.Exp(float64(l) - highest[k])
		}
	}
	logit = highest[1] + math.Log(sum[1]) - highest[0] - math.Log(sum[0])
	return logit, !math.IsNaN(logit) && !math.IsInf(logit, 0)
}

// label judges the texts and says what became of them. It ends the steering, since
// the surprise is that of the model left alone.
func (s *steering) label(part []int, rows []data.Steered) error {
	if err := s.surprise(part, rows); err != nil {
		return err
	}
	var responses []Response
	var of []int
	for k, i := range part {
		p := s.prompts[i]
		for j, row := range s.at(rows, k) {
			if row.Outcome != data.SteerError {
				responses = append(responses, Response{p.Prompt.RequestID, p.Prompt.Variant, p.Text, *row.Text, row.StopReason})
				of = append(of, k*len(s.o.Samplings)+j)
			}
		}
	}
	labels, err := s.o.Label(s.ctx, responses)
	if err != nil {
		return err
	}
	if len(labels) != len(responses) {
		return fmt.Errorf("the judge gave %d labels to %d responses", len(labels), len(responses))
	}
	for k, label := range labels {
		row := &rows[of[k]]
		row.Label = label
		row.Outcome, row.Reason = s.o.outcome(label, *row.Text, row.Surprise)
	}
	return nil
}

// outcome is what a text comes to.
func (o *SteerOptions) outcome(label data.Label, text string, surprise *float64) (outcome, reason string) {
	if reason := degenerate(label, text); reason != "" {
		return data.SteerDegenerate, reason
	}
	if surprise != nil && o.Surprise > 0 && *surprise > o.Surprise {
		return data.SteerDegenerate, "surprise"
	}
	refused, ok := o.Refused(label)
	switch {
	case !ok:
		return data.SteerUnclear, ""
	case refused:
		return data.SteerRefuse, ""
	}
	return data.SteerComply, ""
}

// surprise scores the texts by the model left alone.
func (s *steering) surprise(part []int, rows []data.Steered) error {
	if err := s.engine.Steer(s.ctx, nil); err != nil {
		return err
	}
	if !s.info.Scorer {
		return nil
	}
	var jobs []inference.Job
	var of []int
	for k, i := range part {
		job := inference.Job{Prompt: s.prompts[i].Prompt}
		for _, row := range s.at(rows, k) {
			if row.Outcome != data.SteerError && *row.Text != "" && !slices.Contains(job.Continuations, *row.Text) {
				job.Continuations = append(job.Continuations, *row.Text)
			}
		}
		if len(job.Continuations) > 0 {
			jobs, of = append(jobs, job), append(of, k)
		}
	}
	answers, err := s.generate(jobs)
	if err != nil {
		return err
	}
	for n, a := range answers {
		if len(a.Scores) != len(jobs[n].Continuations) {
			continue
		}
		for j := range s.at(rows, of[n]) {
			row := &s.at(rows, of[n])[j]
			if row.Tokens == 0 {
				continue
			}
			if c := slices.Index(jobs[n].Continuations, *row.Text); c >= 0 {
				row.Surprise = defined(-a.Scores[c] / float64(row.Tokens))
			}
		}
	}
	return nil
}

// A token opens refusals if, among the prompts that the model left alone refuses at
// temperature 0, it is at least four times as probable as first token as among those
// that it answers, and is no rarity.
const (
	openingRatio = 4
	openingLeast = 0.01
)

// findOpenings learns which tokens open refusals, and fills in the refusal logits of
// the model left alone. It takes distributions and not the first tokens of texts:
// what is rarely the most probable opens refusals too, and a text need not have the
// tokens again that it was made of.
func (s *steering) findOpenings(rows []data.Steered) {
	if s.predictor == nil {
		s.notes.Warnings = append(s.notes.Warnings, "the engine does not show its next token's distribution: there are no logit shifts and no KL")
		return
	}
	var mean [2][]float64 // by token, of answered and refused prompts
	var n [2]float64
	begins := make(map[int]string)
	for i := range s.prompts {
		for _, row := range s.at(rows, i) {
			if row.Temperature != 0 || len(s.alone[i]) == 0 || row.Outcome != data.SteerRefuse && row.Outcome != data.SteerComply {
				continue
			}
			k := int(indicator(row.Outcome == data.SteerRefuse))
			if mean[k] == nil {
				mean[k] = make([]float64, len(s.alone[i]))
			}
			n[k]++
			best := 0
			for t, l := range s.alone[i] {
				mean[k][t] += math.Exp(float64(l))
				if l > s.alone[i][best] {
					best = t
				}
			}
			if k == 1 {
				begins[best], _, _ = strings.Cut(strings.TrimSpace(*row.Text), " ")
			}
			break // all greedy texts of a prompt are one
		}
	}
	s.openings, s.logits = make(map[int]bool), make(map[int]float64)
	if n[0] > 0 && n[1] > 0 && len(mean[0]) == len(mean[1]) {
		for t, sum := range mean[1] {
			if p := sum / n[1]; p >= openingLeast && p >= openingRatio*mean[0][t]/n[0] {
				s.openings[t] = true
				if name := begins[t]; name != "" {
					s.notes.Openings = append(s.notes.Openings, name)
				}
			}
		}
	}
	s.notes.Tokens = len(s.openings)
	slices.Sort(s.notes.Openings)
	s.notes.Openings = slices.Compact(s.notes.Openings)
	if len(s.openings) == 0 {
		s.notes.Warnings = append(s.notes.Warnings, "no token opens refusals alone when the model is left alone (or it refuses all, or nothing): there are no logit shifts")
		return
	}
	for i := range s.prompts {
		logit, ok := s.refusalLogit(s.alone[i])
		if !ok {
			continue
		}
		s.logits[i] = logit
		for j := range s.at(rows, i) {
			row := &s.at(rows, i)[j]
			row.RefusalLogit, row.LogitShift = defined(logit), defined(0)
		}
	}
}

// surprisedShare is the share of its own texts that may surprise the model left
// alone.
const surprisedShare = 0.1

// checkSurprise switches the limit off where the model left alone exceeds it at its
// own texts: they then have other tokens when they are read than when they were
// made, and what is scored is another text.
func (s *steering) checkSurprise(rows []data.Steered) {
	var n, over float64
	for _, row := range rows {
		if row.Surprise != nil && (row.Reason == "" || row.Reason == "surprise") {
			n++
			over += indicator(row.Reason == "surprise")
		}
	}
	if over <= surprisedShare*n {
		return
	}
	s.o.Surprise = -1
	s.notes.Warnings = append(s.notes.Warnings, fmt.Sprintf("%.0f of %.0f texts of the model left alone surprise it: they are tokenised otherwise when read, and surprise is no sign of broken text here", over, n))
	for i := range rows {
		if rows[i].Reason == "surprise" {
			rows[i].Outcome, rows[i].Reason = s.o.outcome(rows[i].Label, *rows[i].Text, nil)
		}
	}
}
