package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"
)

// exitPipe is the exit code of a program whose reader went away: 128 and the
// number of SIGPIPE, as shells show it.
const exitPipe = 141

// An output is standard output. It keeps the first error, for many who write to it
// drop it, and on a terminal it lets nothing through that a terminal would obey:
// texts come from models and files of others.
type output struct {
	w        io.Writer
	terminal bool
	rest     []byte // begin of a character that is not whole yet
	err      error
}

func newOutput(w io.Writer) *output {
	f, ok := w.(*os.File)
	return &output{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Write writes to the terminal what is harmless there, and to all else the bytes.
func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	out := p
	if o.terminal {
		whole := append(o.rest, p...)
		n := len(whole)
		for i := 1; i < utf8.UTFMax && i <= len(whole); i++ {
			if c := whole[len(whole)-i]; utf8.RuneStart(c) {
				if !utf8.FullRune(whole[len(whole)-i:]) {
					n -= i
				}
				break
			}
		}
		out, o.rest = []byte(plain(string(whole[:n]))), append([]byte(nil), whole[n:]...)
	}
	if _, err := o.w.Write(out); err != nil {
		o.err = fmt.Errorf("writing to standard output: %w", err)
		return 0, o.err
	}
	return len(p), nil
}

// outcome returns err, or what went wrong with the output where that is all. A
// reader that has seen enough, such as head, is no news.
func (o *output) outcome(err error) error {
	if o.err == nil || err != nil && !errors.Is(err, o.err) {
		return err
	}
	if errors.Is(o.err, syscall.EPIPE) {
		return withCode(exitPipe, errors.New(""))
	}
	return withCode(exitError, o.err)
}

// outlivePipe turns the signal by which a closed pipe ends a process into an error
// of the write, so that temporary files are removed. Programs that demur starts
// keep the signal.
func outlivePipe() (stop func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	return func() { signal.Stop(ignored) }
}
