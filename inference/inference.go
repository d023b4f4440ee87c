// Package inference says what it means to run a model.
//
// An Engine answers jobs. A job is one prompt and everything that is wanted of
// it, so that the prompt is evaluated once. Jobs come in units: one call of
// Generate is one unit, which is what is executed, made durable, retried and
// resumed. The promise of an engine that says Reproducible is: same plan (see
// Info), same unit, same bytes, whatever ran before on the same engine.
package inference

import (
	"context"
	"errors"
	"iter"

	"demur/data"
)

// ErrUnavailable is wrapped by errors that mean: this engine or this model cannot
// be had here, and trying again will not help. A library or a server is missing,
// a model file is absent, damaged or of an unknown kind.
var ErrUnavailable = errors.New("engine or model not available")

// A Grammar binds an answer to a form. Engines use the description that they
// understand; both must describe the same language.
type Grammar struct {
	Name   string `json:"name"`
	GBNF   string `json:"gbnf"`   // llama.cpp's grammar notation, root rule "root"
	Schema string `json:"schema"` // JSON Schema, for Ollama's format
}

// A Job is one prompt and what is wanted of it. It is evaluated once, each
// sampling is answered in a fresh context.
type Job struct {
	Prompt    data.Prompt     `json:"prompt"`
	Samplings []data.Sampling `json:"samplings"`
	// Grammar binds the samplings whose Grammar is true. It must be set if one is.
	Grammar *Grammar `json:"grammar,omitempty"`
	// Prefix and Continuations ask a Scorer for exact probabilities: the log
	// probability of each continuation after the prompt and the forced start of
	// the answer, Prefix. No continuation, no question.
	Prefix        string   `json:"prefix,omitempty"`
	Continuations []string `json:"continuations,omitempty"`
}

// An Answer is all that came out for one job.
type Answer struct {
	PromptID       string `json:"prompt_id"`
	RenderedSHA256 string `json:"rendered_sha256"` // of the bytes shown to the model; empty where the server renders
	PromptTokens   int    `json:"prompt_tokens"`   // 0 where the engine cannot tell
	// Generations has one element per sampling of the job, in its order. A trial
	// that failed has StopReason error and an ErrorKind.
	Generations []data.Generation `json:"generations"`
	// Scores are natural log probabilities, one per continuation of the job, in
	// its order; null where the question was not asked or the engine is no Scorer.
	Scores []float64 `json:"scores,omitempty"`
	// Isolated is true where the job was run alone after its unit had failed
	// twice: another plan, and so outside the promise of equal bytes.
	Isolated bool `json:"isolated,omitempty"`
	// Attempts are the failures that came before this answer, if any.
	Attempts []data.Attempt `json:"attempts,omitempty"`
}

// Info describes an open engine. Plan is everything that can change a bit of
// the output; its digest is part of the plan id that stands in every row.
type Info struct {
	Engine       string            `json:"engine"`            // llamacpp, ollama, scripted
	Version      string            `json:"version"`           // of the engine's library or server
	Model        string            `json:"model"`             // name for tables, no path
	ModelDigest  string            `json:"model_digest"`      // "sha256:" and 64 hex digits
	Adapter      string            `json:"adapter,omitempty"` // digest of a LoRA adapter
	TemplateHash string            `json:"template_sha256"`   // of the chat template in force
	Architecture string            `json:"architecture,omitempty"`
	Device       string            `json:"device"`
	Context      int               `json:"context"` // tokens that prompt and answer of one trial may have together
	Blocks       int               `json:"blocks,omitempty"`
	Width        int               `json:"width,omitempty"`
	Plan         map[string]string `json:"plan"`                   // settings that fix the bits: library digests, CPU variant, flash attention, batch sizes, sampler …
	NotVerified  []string          `json:"not_verified,omitempty"` // settings that were sent but that the engine cannot report back
	Notes        []string          `json:"notes,omitempty"`        // what the user should know, such as a memory that cannot fork
	Reproducible bool              `json:"reproducible"`           // same plan, same bytes
	Scorer       bool              `json:"scorer"`                 // fills in Answer.Scores
	Grammars     bool              `json:"grammars"`               // can bind an answer to a grammar
}

// An Engine runs one model. It is used by one goroutine at a time.
type Engine interface {
	Info() Info
	// Generate runs one unit: it answers each job and yields the answers in the
	// order of the jobs, each when it is complete. A trial that cannot be run
	// (overflow, a template that fails) is an answer with an ErrorKind; an error
	// ends the sequence and means that the engine failed. On cancellation the
	// error is ctx.Err(). Jobs yielded before an error stand.
	Generate(ctx context.Context, jobs []Job) iter.Seq2[Answer, error]
	Close() error
}

// A Renderer turns messages into the bytes that a model is shown, by the
// model's own chat template, with the generation prompt added, and counts their
// tokens.
type Renderer interface {
	Render(messages []data.Message) (rendered string, tokens int, err error)
	Close() error
}

// Counters is what an engine has done since it was opened.
type Counters struct {
	PromptTokens  int64 `json:"prompt_tokens"`  // evaluated
	PromptNeeded  int64 `json:"prompt_needed"`  // shared template prefix once, the rest of each prompt once
	Rows          int64 `json:"rows"`           // decoded rows after the prompts
	TokensSampled int64 `json:"tokens_sampled"` // over all continuations; Rows would equal this if nothing were shared
	Decodes       int64 `json:"decodes"`        // batches
	// RowHistogram[n] is the number of decodes with n rows, so that a bare decode
	// of the same shapes can be timed.
	RowHistogram map[int]int64 `json:"row_histogram,omitempty"`
}

// A Meter is an engine that counts.
type Meter interface {
	Counters() Counters
}

// Progress is called by an engine while a unit runs, from any goroutine, with
// the number of tokens sampled since the last call.
type Progress func(tokens int)
