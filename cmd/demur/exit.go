package main

import (
	"context"
	"errors"
	"syscall"

	"demur/data"
	"demur/inference"
	"demur/protocol"
)

// Exit codes; the root command's help lists them.
const (
	exitError       = 1
	exitUsage       = 2
	exitIncomplete  = 3
	exitThreshold   = 4
	exitUnavailable = 5
	exitIntegrity   = 6
	exitInterrupted = 130
)

// A coded error carries its exit code.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// usage marks an error of the user's: usage, configuration or data.
func usage(err error) error { return withCode(exitUsage, err) }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code, err}
}

// A hinted error says what the user can do.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// Hint returns what the user can do. Errors of an engine's process have the same
// method.
func (h *hinted) Hint() string { return h.hint }

func withHint(err error, hint string) error { return &hinted{err, hint} }

// exitCode maps an error to the exit code that the help promises.
func exitCode(err error) int {
	var c *coded
	var plan *data.PlanError
	switch {
	case errors.As(err, &c):
		return c.code
	case errors.Is(err, protocol.ErrStopped), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, inference.ErrUnavailable):
		return exitUnavailable
	case errors.As(err, &plan), errors.Is(err, data.ErrLocked), errors.Is(err, data.ErrNewer):
		return exitUsage
	case errors.Is(err, data.ErrDiskFull), errors.Is(err, syscall.ENOSPC):
		return exitIncomplete
	case errors.Is(err, data.ErrCorrupt):
		return exitIntegrity
	case errors.Is(err, protocol.ErrTooManyFailures):
		return exitIncomplete
	}
	return exitError
}
