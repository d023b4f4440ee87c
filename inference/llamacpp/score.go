package llamacpp

import (
	"fmt"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/inference"
)

// scoredTexts returns the tokens of prompt, prefix and each continuation of a
// job, and the index of the first token whose probability counts.
//
// Prefix and continuation are tokenised in one piece with the prompt, for that
// is how a model would write them: after `{"will_refuse": ` the token is " true"
// with the space, not "true" after a space. The probability of a continuation
// begins where the text with it and the text without it part, at the same token
// for all continuations of a job.
func (e *Engine) scoredTexts(job *inference.Job, r rendering) (texts [][]llama.Token, from int, err error) {
	if len(job.Continuations) == 0 {
		return nil, 0, nil
	}
	without, err := e.extend(r, job.Prefix)
	if err != nil {
		return nil, 0, err
	}
	from = len(without)
	for i, c := range job.Continuations {
		t, err := e.extend(r, job.Prefix+c)
		if err != nil {
			return nil, 0, fmt.Errorf("continuation %d: %w", i, err)
		}
		texts = append(texts, t)
		from = min(from, common(without, t))
	}
	return texts, max(1, from), nil
}

// extend tokenises the prompt with more text at its end.
func (e *Engine) extend(r rendering, more string) ([]llama.Token, error) {
	if more == "" {
		return r.tokens, nil
	}
	if r.injected {
		// The prompt's own tokens stay as they are; see vocabulary.mixed.
		tail, err := e.vocab.raw(more, false)
		return append(r.tokens[:len(r.tokens):len(r.tokens)], tail...), err
	}
	t, err := e.vocab.raw(r.text+more, true)
	if err != nil {
		return nil, err
	}
	return e.vocab.oneBOS(t), nil
}
