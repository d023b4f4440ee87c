package inference

import (
	"context"
	"fmt"
	"reflect"

	"demur/data"
)

// A CheckResult says what an engine was seen to do before a run. True means
// seen; an engine that is not Reproducible may show false and still be used.
type CheckResult struct {
	Repeats     bool   `json:"repeats"`          // a unit done twice in a row gave the same bytes
	Isolated    bool   `json:"isolated"`         // the unit gave the same bytes after a foreign one
	SeedsDiffer bool   `json:"seeds_differ"`     // different seeds at temperature 1 gave different texts
	GreedyFixed bool   `json:"greedy_fixed"`     // different seeds at temperature 0 gave one text
	Detail      string `json:"detail,omitempty"` // what differed
}

// checkTokens is how long the texts of the check are: long enough for seeds to
// part, short enough to cost a second or two.
const checkTokens = 24

// Check runs a short unit, the same again, a foreign unit, and the first once
// more, and compares. An error means that the engine failed; a difference is a
// result.
func Check(ctx context.Context, e Engine) (CheckResult, error) {
	unit := []Job{checkJob("Name three things that are found in a bakery, and say a word on each."), checkJob("How does a bicycle stay upright?")}
	foreign := []Job{checkJob("Write a line about the sea in winter.")}
	first, err := runAll(ctx, e, unit)
	if err != nil {
		return CheckResult{}, err
	}
	second, err := runAll(ctx, e, unit)
	if err != nil {
		return CheckResult{}, err
	}
	if _, err := runAll(ctx, e, foreign); err != nil {
		return CheckResult{}, err
	}
	third, err := runAll(ctx, e, unit)
	if err != nil {
		return CheckResult{}, err
	}
	var r CheckResult
	r.Repeats = reflect.DeepEqual(texts(first), texts(second))
	r.Isolated = reflect.DeepEqual(texts(first), texts(third))
	r.GreedyFixed = true
	for _, a := range first {
		r.GreedyFixed = r.GreedyFixed && a.Generations[0].Text == a.Generations[1].Text
		r.SeedsDiffer = r.SeedsDiffer || a.Generations[2].Text != a.Generations[3].Text
	}
	switch {
	case !r.Repeats:
		r.Detail = "the same unit twice in a row gave different texts"
	case !r.Isolated:
		r.Detail = "a unit gave other texts after a foreign one"
	case !r.GreedyFixed:
		r.Detail = "seeds changed the text at temperature 0"
	}
	return r, nil
}

func checkJob(text string) Job {
	messages := []data.Message{{Role: "user", Content: text}}
	job := Job{Prompt: data.Prompt{ID: data.PromptID(messages), Phase: data.Respond, Messages: messages}}
	for _, s := range []data.Sampling{{Seed: 1}, {Seed: 2}, {Temperature: 1, Seed: 1}, {Temperature: 1, Seed: 2}} {
		s.MaxTokens = checkTokens
		job.Samplings = append(job.Samplings, s)
	}
	return job
}

func runAll(ctx context.Context, e Engine, jobs []Job) ([]Answer, error) {
	var answers []Answer
	for a, err := range e.Generate(ctx, jobs) {
		if err != nil {
			return nil, fmt.Errorf("check: %w", err)
		}
		for _, g := range a.Generations {
			if g.ErrorKind != "" {
				return nil, fmt.Errorf("check: %s: %s", g.ErrorKind, g.Error)
			}
		}
		answers = append(answers, a)
	}
	if len(answers) != len(jobs) {
		return nil, fmt.Errorf("check: %d answers to %d jobs", len(answers), len(jobs))
	}
	return answers, nil
}

// texts keeps what must be equal: texts and how they ended.
func texts(answers []Answer) [][2]string {
	var all [][2]string
	for _, a := range answers {
		for _, g := range a.Generations {
			all = append(all, [2]string{g.Text, g.StopReason})
		}
	}
	return all
}
