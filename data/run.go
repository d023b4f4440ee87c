package data

import (
	"encoding/json"
	"errors"
	"iter"
)

// A Manifest says what a run is: all that is needed to run it again, and
// nothing of the machine it ran on (no host, user or path names). It is written
// when the run is created; Finish adds Finished last.
type Manifest struct {
	Schema int    `json:"schema_version"` // SchemaVersion; filled in by Create
	Demur  string `json:"demur_version"`
	RunID  string `json:"run_id"`
	PlanID string `json:"plan_id"` // stands in every row; equal plans, equal bytes
	// Plan is the whole plan, as its package writes it. Resume compares it field
	// by field.
	Plan     json.RawMessage            `json:"plan"`
	Model    Model                      `json:"model"`
	Requests RequestSet                 `json:"requests"`
	Headline map[string]string          `json:"headline,omitempty"` // settings fixed before anything ran: reading, question, polarity, fold, judge …
	Wordings map[string]string          `json:"wordings,omitempty"` // name of a question or rubric → SHA-256 of its text
	Created  string                     `json:"created"`            // UTC, RFC 3339
	Finished string                     `json:"finished,omitempty"` // UTC, RFC 3339; absent while units are missing
	Extra    map[string]json.RawMessage `json:"extra,omitempty"`    // what other packages record: self-tests, imports, notes
}

// A Model is what answered, as far as it can change a result.
type Model struct {
	Name         string            `json:"name"` // for tables, no path
	Digest       string            `json:"digest,omitempty"`
	Adapter      string            `json:"adapter,omitempty"`
	TemplateHash string            `json:"template_sha256,omitempty"`
	Architecture string            `json:"architecture,omitempty"`
	Engine       string            `json:"engine"`
	Version      string            `json:"engine_version,omitempty"`
	Plan         map[string]string `json:"plan,omitempty"` // the engine's settings that fix the bits
	NotVerified  []string          `json:"not_verified,omitempty"`
	Reproducible bool              `json:"reproducible"`
}

// A RequestSet names the requests of a run.
type RequestSet struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // "sha256:" and 64 hex digits, of the rows as read
	Count  int    `json:"count"`  // rows: requests × wordings
}

// A Unit is what was executed together: the rows of its prompts. It is durable
// as a whole or not at all.
type Unit struct {
	ID          string       `json:"id"`
	Prompts     []Prompt     `json:"prompts,omitempty"`
	Predictions []Prediction `json:"predictions,omitempty"`
	Trials      []Trial      `json:"trials,omitempty"`
	Attempts    []Attempt    `json:"attempts,omitempty"`
}

// Counts is how far a run has come.
type Counts struct {
	Units       int // committed
	FailedUnits int // of these, with at least one row that has an error kind
	Predictions int
	Trials      int
	FailedRows  int // predictions and trials with an error kind
	Attempts    int
}

// Errors that a caller decides by.
var (
	ErrLocked   = errors.New("in use by another process")
	ErrCorrupt  = errors.New("damaged")
	ErrDiskFull = errors.New("disk full")
)

// A PlanError says that a directory holds a run of another plan.
type PlanError struct {
	Dir   string
	Field string // dotted path of the first difference
	Want  string // JSON of the plan asked for
	Have  string // JSON of the plan in the directory
}

func (e *PlanError) Error() string { return "" }

// A Run is a run directory. It is safe for use by several goroutines.
type Run struct{}

// Create makes a run directory and stores its manifest and requests.
func Create(dir string, m Manifest, requests []Request) (*Run, error) {
	return nil, errors.ErrUnsupported
}

// Resume opens a run for writing, to go on with it. The plan must be the
// directory's own, else the error is a *PlanError.
func Resume(dir string, m Manifest) (*Run, error) { return nil, errors.ErrUnsupported }

// OpenRun opens a run for reading its manifest and tables.
func OpenRun(dir string) (*Run, error) { return nil, errors.ErrUnsupported }

// Dir returns the directory.
func (r *Run) Dir() string { return "" }

// Manifest returns the manifest.
func (r *Run) Manifest() Manifest { return Manifest{} }

// Notes says what the user should know about how the run was opened, such as
// an unfinished frame that was cut.
func (r *Run) Notes() []string { return nil }

// Done reports whether a unit is durable, with or without errors in it.
func (r *Run) Done(unit string) bool { return false }

// Failed reports whether a unit is durable and holds a row with an error kind.
func (r *Run) Failed(unit string) bool { return false }

// Counts returns how far the run has come.
func (r *Run) Counts() Counts { return Counts{} }

// Commit makes a unit durable: when it returns nil, the unit survives a kill
// and a loss of power. A unit committed again takes the place of the earlier
// one; its attempts are kept.
func (r *Run) Commit(u Unit) error { return errors.ErrUnsupported }

// LogAttempts makes failed attempts durable that belong to no finished unit.
func (r *Run) LogAttempts(attempts []Attempt) error { return errors.ErrUnsupported }

// SetExtra stores v's JSON under key in the manifest.
func (r *Run) SetExtra(key string, v any) error { return errors.ErrUnsupported }

// Compact writes the tables requests, prompts, predictions, trials and attempts
// from journal and manifest. Rows are sorted; done again, it gives the same
// bytes.
func (r *Run) Compact() error { return errors.ErrUnsupported }

// Finish marks the run as finished in the manifest.
func (r *Run) Finish() error { return errors.ErrUnsupported }

// Close releases the lock.
func (r *Run) Close() error { return nil }

// ReadTable yields the rows of a table of a run directory.
func ReadTable[T any](dir, name string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {}
}

// WriteTable writes a table of a run directory as a whole: it is there complete
// or as it was before.
func WriteTable[T any](dir, name string, rows iter.Seq2[T, error]) error {
	return errors.ErrUnsupported
}

// HasTable reports whether a run directory holds a table.
func HasTable(dir, name string) bool { return false }
