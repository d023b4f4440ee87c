package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"demur/inference"
)

// protocolVersion rises when messages change. Parent and child are the same
// binary, unless somebody replaced it in between.
const protocolVersion = 3

// Kinds of message, with the fields of each.
const (
	// From the parent.
	kindOpen    = "open"    // Version, Spec
	kindUnit    = "unit"    // Unit, Count: so many jobs follow
	kindJob     = "job"     // Unit, Job
	kindLook    = "look"    // Unit, Count: so many views follow
	kindView    = "view"    // Unit, View
	kindPredict = "predict" // Unit, Count: so many jobs follow
	kindText    = "text"    // Unit, Text: to be tokenised
	kindSteer   = "steer"   // Unit, Steering; nil ends it
	kindCancel  = "cancel"  // Unit
	kindClose   = "close"
	// From the child.
	kindOpened   = "opened"   // Version, and Info or Error
	kindProgress = "progress" // Count tokens
	kindAnswer   = "answer"   // Unit, Answer
	kindRows     = "rows"     // Unit, PromptID, and Rows or Error
	kindTokens   = "tokens"   // Unit, Tokens
	kindNext     = "next"     // Unit, Values or Error
	kindDone     = "done"     // Unit, Count tokens, Counters, Error
	kindClosed   = "closed"   // Error
)

type message struct {
	Kind     string              `json:"kind"`
	Version  int                 `json:"version,omitempty"`
	Spec     json.RawMessage     `json:"spec,omitempty"`
	Unit     uint64              `json:"unit,omitempty"`
	Count    int                 `json:"count,omitempty"`
	Job      *inference.Job      `json:"job,omitempty"`
	Info     *inference.Info     `json:"info,omitempty"`
	Answer   *inference.Answer   `json:"answer,omitempty"`
	Counters *inference.Counters `json:"counters,omitempty"`
	Error    *wireError          `json:"error,omitempty"`

	View     *inference.ActivateJob `json:"view,omitempty"`
	PromptID string                 `json:"prompt_id,omitempty"`
	Rows     []wireRow              `json:"rows,omitempty"`
	Text     *wireText              `json:"text,omitempty"`
	Tokens   *wireTokens            `json:"tokens,omitempty"`
	Steering *inference.Steering    `json:"steering,omitempty"`
	Values   wireValues             `json:"values,omitempty"`
}

func (m message) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func readMessage(r io.Reader) (message, error) {
	payload, err := readFrame(r)
	if err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		return message{}, frameError(fmt.Sprintf("a message that cannot be read: %v", err))
	}
	return m, nil
}

// A sender writes messages, from any goroutine.
type sender struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sender) send(m message) error {
	payload, err := m.encode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return writeFrame(s.w, payload)
}

// A Hinter is an error that knows what the user can do.
type Hinter interface{ Hint() string }

// A wireError is an error on its way between processes: its words, its hint, and
// the names of those sentinels that callers decide by.
type wireError struct {
	Text    string   `json:"text"`
	Hint    string   `json:"hint,omitempty"`
	Classes []string `json:"classes,omitempty"`
}

// classes returns the sentinels that survive the way.
func classes() []struct {
	name string
	err  error
} {
	return []struct {
		name string
		err  error
	}{
		{"unavailable", inference.ErrUnavailable},
		{"not_exist", fs.ErrNotExist},
		{"permission", fs.ErrPermission},
		{"prompt", inference.ErrPrompt},
	}
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Text: err.Error()}
	var h Hinter
	if errors.As(err, &h) {
		w.Hint = h.Hint()
	}
	for _, c := range classes() {
		if errors.Is(err, c.err) {
			w.Classes = append(w.Classes, c.name)
		}
	}
	return w
}

// A remoteError is an error of the child, in the parent.
type remoteError struct {
	wire wireError
}

func (w *wireError) err() error {
	if w == nil {
		return nil
	}
	return &remoteError{*w}
}

func (e *remoteError) Error() string { return e.wire.Text }

// Hint returns what the user can do, or "".
func (e *remoteError) Hint() string { return e.wire.Hint }

// Is reports whether the child's error was of that class.
func (e *remoteError) Is(target error) bool {
	for _, c := range classes() {
		if c.err == target {
			for _, name := range e.wire.Classes {
				if name == c.name {
					return true
				}
			}
		}
	}
	return false
}
