package inference

import (
	"context"
	"errors"
	"iter"

	"demur/data"
)

// An ActivateJob asks for the residual stream of one prompt. The prompt is
// evaluated once, in an empty context, nothing is sampled.
type ActivateJob struct {
	Prompt data.Prompt `json:"prompt"`
	// Prefix is a forced start of the answer after the prompt; usually empty.
	Prefix string `json:"prefix,omitempty"`
	// Positions count from the end of the prompt with its prefix: −1 is the last
	// token. Each is within the prompt.
	Positions []int `json:"positions"`
	// Layers are blocks from 0, the stream after them; −1 is the token embedding
	// as the first block reads it. Nil means all blocks, without the embedding.
	Layers []int `json:"layers,omitempty"`
}

// ErrPrompt is wrapped by an error that concerns one prompt of several: it does
// not fit the context, or the template cannot render it.
var ErrPrompt = errors.New("the prompt cannot be evaluated")

// An Activator is an engine that shows its residual stream.
type Activator interface {
	// Activate yields the activations of each job in the order of the jobs, and
	// within a job by layer as asked, then by position as asked. It fills in all
	// but the anchor. Values are yielded as the engine has them, NaN too: what to
	// make of them is the caller's affair. In place of the rows of a prompt that
	// cannot be evaluated it yields a row with the prompt's id alone and an error
	// that wraps ErrPrompt, and goes on with the next job. Any other error (a layer
	// or position that is not there, a failure of the engine) ends the sequence; on
	// cancellation it is ctx.Err().
	Activate(ctx context.Context, jobs []ActivateJob) iter.Seq2[data.Activation, error]
}

// A Tokenizer shows the tokens of a prompt as Activate evaluates it: beginning
// token, chat template, generation prompt and prefix.
type Tokenizer interface {
	// Tokenize returns the tokens and, for each, the bytes it stands for, control
	// tokens written out.
	Tokenize(messages []data.Message, prefix string) (ids []int32, pieces []string, err error)
}
