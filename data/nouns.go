// Package data holds the nouns of demur (request, prompt, trial, verdict, …)
// and how they are stored: request sets come in, run directories go out.
//
// Rows are never changed once written. Absent values are null: pointers here,
// nulls in Parquet, never NaN and never a corrected number.
package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
)

// SchemaVersion is the version of the stored tables. It rises when the meaning
// of stored data changes.
const SchemaVersion = 1

// Variants of a request: its base wording and two paraphrases. A request set
// may name others.
const (
	Base = "base"
	P1   = "p1"
	P2   = "p2"
)

// A Request is one wording of one item of a request set. Rows with one ID are
// the wordings of one request, and one cluster in every interval.
type Request struct {
	ID       string `json:"request_id" parquet:"request_id"`
	Variant  string `json:"variant" parquet:"variant,dict"`
	Text     string `json:"text" parquet:"text"`
	Topic    string `json:"topic,omitempty" parquet:"topic,optional,dict"`
	Harm     int    `json:"harm,omitempty" parquet:"harm,optional"` // 1 (clearly safe) … 5 (clearly harmful); 0 where not assigned
	Source   string `json:"source,omitempty" parquet:"source,optional,dict"`
	Language string `json:"language,omitempty" parquet:"language,optional,dict"`
	// Attributes are further columns of the request set, as text.
	Attributes map[string]string `json:"attributes,omitempty" parquet:"attributes"`
	// Messages is the conversation before Text, oldest first; empty for a
	// single-turn request.
	Messages []Message `json:"messages,omitempty" parquet:"messages,list"`
}

// A Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role" parquet:"role,dict"` // system, user or assistant
	Content string `json:"content" parquet:"content"`
}

// A Phase is a step of the protocol that asks the model, in a fresh context.
type Phase string

// The phases that ask the model.
const (
	Predict Phase = "predict"
	Respond Phase = "respond"
)

// A Prompt is exactly what a model was shown.
type Prompt struct {
	ID        string    `json:"prompt_id" parquet:"prompt_id"` // PromptID(Messages)
	RequestID string    `json:"request_id" parquet:"request_id"`
	Variant   string    `json:"variant" parquet:"variant,dict"`
	Phase     Phase     `json:"phase" parquet:"phase,dict"`
	Question  string    `json:"question,omitempty" parquet:"question,optional,dict"` // name of the prediction wording; empty in phase respond
	Polarity  string    `json:"polarity,omitempty" parquet:"polarity,optional,dict"` // refuse or answer: what the question asks; empty in phase respond
	Messages  []Message `json:"messages" parquet:"messages,list"`
	// RenderedSHA256 and Tokens are filled in from the engine's answer: digest of
	// the rendered bytes, and the number of prompt tokens.
	RenderedSHA256 string `json:"rendered_sha256,omitempty" parquet:"rendered_sha256,optional"`
	Tokens         int    `json:"tokens,omitempty" parquet:"tokens,optional"`
}

// Polarities of a prediction question.
const (
	AskRefuse = "refuse" // "will you refuse?", key will_refuse
	AskAnswer = "answer" // "will you answer?", key will_answer
)

// PromptID returns the lowercase hex SHA-256 of the messages' canonical JSON.
func PromptID(messages []Message) string { return Digest(messages) }

// Digest returns the lowercase hex SHA-256 of v's JSON. It panics if v has no
// JSON form, which is a caller's bug.
func Digest(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("data: digest of %T: %v", v, err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A Sampling says how tokens are drawn. The zero value of TopK, TopP and MinP
// means off: plain sampling from the whole vocabulary, on which all engines
// agree. Temperature 0 is greedy, ties by lower token id.
type Sampling struct {
	Temperature float64 `json:"temperature"`
	Seed        uint32  `json:"seed"` // every value but 0xFFFFFFFF is a seed, 0 too
	TopK        int     `json:"top_k,omitempty"`
	TopP        float64 `json:"top_p,omitempty"`
	MinP        float64 `json:"min_p,omitempty"`
	MaxTokens   int     `json:"max_tokens"`
	// Grammar is true where the answer is bound by the grammar of the job.
	Grammar bool `json:"grammar,omitempty"`
}

// Validate returns an error if s cannot be run as it stands.
func (s Sampling) Validate() error {
	switch {
	case math.IsNaN(s.Temperature) || math.IsInf(s.Temperature, 0) || s.Temperature < 0:
		return fmt.Errorf("temperature %v is not a finite number of at least 0", s.Temperature)
	case s.Seed == math.MaxUint32:
		return fmt.Errorf("seed %d means \"random\" to the engines; choose another", s.Seed)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d is negative", s.TopK)
	case math.IsNaN(s.TopP) || s.TopP < 0 || s.TopP > 1:
		return fmt.Errorf("top-p %v is not in [0, 1]", s.TopP)
	case math.IsNaN(s.MinP) || s.MinP < 0 || s.MinP >= 1:
		return fmt.Errorf("min-p %v is not in [0, 1)", s.MinP)
	case s.MaxTokens < 1:
		return fmt.Errorf("max-tokens %d is not at least 1", s.MaxTokens)
	}
	return nil
}

// Why a generation ended.
const (
	StopEnd       = "stop"   // the model ended its answer
	StopLength    = "length" // MaxTokens reached
	StopError     = "error"  // no generation: see ErrorKind
	StopCancelled = "cancelled"
)

// Kinds of failure of one trial. A failure is an outcome that is counted and
// shown; it is never an answer.
const (
	ErrOverflow  = "context_overflow" // prompt and answer do not fit the context
	ErrCrash     = "engine_crash"     // the worker process died on this prompt twice
	ErrEngine    = "engine_error"     // the engine reported a failure
	ErrRender    = "render_error"     // the chat template cannot render these messages
	ErrTransport = "transport_error"  // a server's answer was lost or cut
)

// A Generation is what came out for one prompt under one sampling, with why it
// stopped.
type Generation struct {
	Sampling   Sampling `json:"sampling"`
	Text       string   `json:"text"`                // the answer, reasoning split off; valid UTF-8
	Reasoning  string   `json:"reasoning,omitempty"` // the thinking part, where the model has one
	Tokens     int      `json:"tokens"`              // generated, the end token not counted
	StopReason string   `json:"stop_reason"`
	Logprob    *float64 `json:"logprob,omitempty"` // natural log of the probability of the generated tokens under the sampling, end token included; null where the engine cannot tell
	ErrorKind  string   `json:"error_kind,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// A Prediction is one reading of what the model says it will do.
type Prediction struct {
	ID          string   `json:"prediction_id" parquet:"prediction_id"`
	PromptID    string   `json:"prompt_id" parquet:"prompt_id"`
	RequestID   string   `json:"request_id" parquet:"request_id"`
	Variant     string   `json:"variant" parquet:"variant,dict"`
	Question    string   `json:"question" parquet:"question,dict"`
	Polarity    string   `json:"polarity" parquet:"polarity,dict"`
	Reading     string   `json:"reading" parquet:"reading,dict"` // free, grammar or exact
	Temperature float64  `json:"temperature" parquet:"temperature"`
	Seed        uint32   `json:"seed" parquet:"seed"`
	Outcome     string   `json:"outcome" parquet:"outcome,dict"`             // will_refuse, will_comply, declined, unparsed; error
	Confidence  *float64 `json:"confidence" parquet:"confidence,optional"`   // 1–5 as stated; the expectation for exact
	HarmRating  *float64 `json:"harm_rating" parquet:"harm_rating,optional"` // 1–5 as stated; the expectation for exact
	PRefuse     *float64 `json:"p_refuse" parquet:"p_refuse,optional"`       // exact only: P(refuse) among the two values
	Mass        *float64 `json:"mass" parquet:"mass,optional"`               // exact only: probability of the two values together
	Text        *string  `json:"text" parquet:"text,optional"`
	Reasoning   *string  `json:"reasoning" parquet:"reasoning,optional"`
	Tokens      *int     `json:"tokens" parquet:"tokens,optional"`
	StopReason  *string  `json:"stop_reason" parquet:"stop_reason,optional"`
	ErrorKind   string   `json:"error_kind,omitempty" parquet:"error_kind,optional,dict"`
	Isolated    bool     `json:"isolated" parquet:"isolated"`
	PlanID      string   `json:"plan_id" parquet:"plan_id,dict"`
}

// Readings of a prediction.
const (
	Free    = "free"
	Grammar = "grammar"
	Exact   = "exact"
)

// Outcomes of a prediction.
const (
	WillRefuse = "will_refuse"
	WillComply = "will_comply"
	Declined   = "declined" // would not predict
	Unparsed   = "unparsed" // no prediction could be read
	Failed     = "error"    // the engine gave no answer
)

// A Trial is one variant of one request under one sampling, done: one response.
type Trial struct {
	ID          string   `json:"trial_id" parquet:"trial_id"`
	PromptID    string   `json:"prompt_id" parquet:"prompt_id"`
	RequestID   string   `json:"request_id" parquet:"request_id"`
	Variant     string   `json:"variant" parquet:"variant,dict"`
	Temperature float64  `json:"temperature" parquet:"temperature"`
	Seed        uint32   `json:"seed" parquet:"seed"`
	TopK        int      `json:"top_k" parquet:"top_k"`
	TopP        float64  `json:"top_p" parquet:"top_p"`
	MinP        float64  `json:"min_p" parquet:"min_p"`
	MaxTokens   int      `json:"max_tokens" parquet:"max_tokens"`
	Text        string   `json:"text" parquet:"text"`
	Reasoning   string   `json:"reasoning" parquet:"reasoning"`
	Tokens      int      `json:"tokens" parquet:"tokens"`
	StopReason  string   `json:"stop_reason" parquet:"stop_reason,dict"`
	Logprob     *float64 `json:"logprob" parquet:"logprob,optional"`
	ErrorKind   string   `json:"error_kind,omitempty" parquet:"error_kind,optional,dict"`
	Isolated    bool     `json:"isolated" parquet:"isolated"`
	PlanID      string   `json:"plan_id" parquet:"plan_id,dict"`
}

// An Attempt is one try at a trial or a prediction. It is the only row with
// clocks in it, and so outside the promise of equal bytes.
type Attempt struct {
	ID        string `json:"id" parquet:"id"` // trial_id or prediction_id, or the unit's id for a failure of a whole unit
	Unit      string `json:"unit" parquet:"unit"`
	Started   string `json:"started" parquet:"started"` // UTC, RFC 3339
	ElapsedMS int64  `json:"elapsed_ms" parquet:"elapsed_ms"`
	Isolated  bool   `json:"isolated" parquet:"isolated"`
	ErrorKind string `json:"error_kind,omitempty" parquet:"error_kind,optional,dict"`
	Error     string `json:"error,omitempty" parquet:"error,optional"`
}

// A Label is what a response did, as judged.
type Label string

// The labels.
const (
	FullRefusal       Label = "full_refusal"
	PartialRefusal    Label = "partial_refusal"
	PartialCompliance Label = "partial_compliance"
	FullCompliance    Label = "full_compliance"
	Deflection        Label = "deflection"
	Empty             Label = "empty"
	Degenerate        Label = "degenerate"
	Unclear           Label = "unclear"
)

// Labels lists every label, in the order of the tables.
func Labels() []Label {
	return []Label{FullRefusal, PartialRefusal, PartialCompliance, FullCompliance, Deflection, Empty, Degenerate, Unclear}
}

// A Verdict is one judge's label of one trial's response, with its reason.
type Verdict struct {
	TrialID       string            `json:"trial_id" parquet:"trial_id"`
	Judge         string            `json:"judge" parquet:"judge,dict"`
	JudgeVersion  string            `json:"judge_version" parquet:"judge_version,dict"`
	Label         Label             `json:"label" parquet:"label,dict"`
	Reason        string            `json:"reason" parquet:"reason,dict"`                     // name of the rule, or the judge's own words
	EvidenceStart *int              `json:"evidence_start" parquet:"evidence_start,optional"` // byte offsets into the response, half open
	EvidenceEnd   *int              `json:"evidence_end" parquet:"evidence_end,optional"`
	Marks         map[string]string `json:"marks,omitempty" parquet:"marks"`
}

// A Site is a layer and a position: layer l (from 0) is the stream after block
// l, positions count from the end of the prompt, −1 is its last token.
type Site struct {
	Layer    int `json:"layer" parquet:"layer"`
	Position int `json:"position" parquet:"position"`
}

// An Activation is the residual stream of one prompt at one site.
type Activation struct {
	PromptID string    `json:"prompt_id" parquet:"prompt_id,dict"`
	Layer    int       `json:"layer" parquet:"layer"`
	Anchor   string    `json:"anchor" parquet:"anchor,dict"` // name of the position: inst, post, …
	Position int       `json:"position" parquet:"position"`
	Token    int32     `json:"token" parquet:"token"`
	Values   []float32 `json:"values" parquet:"values,list"`
}

// PromptTokens are the tokens of a prompt as its activations were taken: the
// position −1 of an Activation is the last of them.
type PromptTokens struct {
	PromptID string   `json:"prompt_id" parquet:"prompt_id"`
	Tokens   []int32  `json:"tokens" parquet:"tokens,list"`
	Texts    []string `json:"texts" parquet:"texts,list"` // of each; bytes that are no character of their own are U+FFFD
}

// An Estimate is a value with its interval, its counts, its warnings, and what
// it was computed from. An undefined estimate has a null value and a warning.
type Estimate struct {
	Metric   string   `json:"metric" parquet:"metric,dict"`
	Group    string   `json:"group" parquet:"group,dict"` // "" for all, else key=value
	Value    *float64 `json:"value" parquet:"value,optional"`
	Lo       *float64 `json:"lo" parquet:"lo,optional"`
	Hi       *float64 `json:"hi" parquet:"hi,optional"`
	Level    float64  `json:"level" parquet:"level"` // of the interval, 0.95
	Method   string   `json:"method" parquet:"method,dict"`
	Requests int      `json:"requests" parquet:"requests"` // clusters
	Trials   int      `json:"trials" parquet:"trials"`
	Warnings []string `json:"warnings" parquet:"warnings,list"`
	Model    string   `json:"model" parquet:"model,dict"`
	Judge    string   `json:"judge" parquet:"judge,dict"`
	Reading  string   `json:"reading" parquet:"reading,dict"`
	Fold     string   `json:"fold" parquet:"fold,dict"` // lenient or strict
}
