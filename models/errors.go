package models

import (
	"errors"
	"io/fs"
	"strings"
)

// Kinds of Error. All mean that the model is not available (exit code 5).
var (
	ErrMissing    = errors.New("model not found")
	ErrUnreadable = errors.New("model not readable")
	ErrNotGGUF    = errors.New("not a GGUF model")
	ErrDamaged    = errors.New("model file damaged")
)

// An Error says what is wrong with a model and what the user can do. It is one
// of the kinds above for errors.Is.
type Error struct {
	Kind    error  // one of the kinds above
	Name    string // what was asked for: a path or a name
	Problem string // what is wrong with it
	Hint    string // what the user can do, for a hint line; may be empty
	Err     error  // underlying error, may be nil; Problem already says it
}

// Error returns name and problem, without the hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model")
	if e.Name != "" {
		b.WriteString(" " + e.Name)
	}
	b.WriteString(": " + e.Problem)
	return b.String()
}

// Unwrap returns the kind and the underlying error.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

func unreadable(path string, err error) *Error {
	e := &Error{Kind: ErrUnreadable, Name: path, Err: err, Problem: reason(err)}
	if errors.Is(err, fs.ErrPermission) {
		e.Problem = "no permission to read it"
		e.Hint = "make it readable for your user, or copy it to a place where it is"
	}
	return e
}

// reason returns what went wrong without repeating the path.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
