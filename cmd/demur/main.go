// Command demur asks of every request whether a model's state knows that it
// will refuse, whether the model says so, and whether it acts so. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"demur/inference/worker"
)

// version is set by the build (-X main.version=…).
var version = "unknown"

func main() {
	if len(os.Args) > 1 && os.Args[1] == engineCommand {
		serveEngine(openEngine)
	}
	os.Exit(mainCode(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// mainCode runs one command and returns its exit code.
func mainCode(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	defer outlivePipe()()
	e := &env{stdin: stdin, stderr: stderr, asking: new(atomic.Bool)}
	ctx, stop := e.interruptible()
	defer stop()
	out := newOutput(stdout)
	e.stdout = out
	root := newRoot(e)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	return report(stderr, out.outcome(root.ExecuteContext(ctx)))
}

// An env is what a command may touch outside of itself.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	stop           <-chan struct{} // closed at the first interrupt
	asking         *atomic.Bool    // a unit is in flight, whose end is worth waiting for
}

// say writes a line of talk to standard error.
func (e *env) say(format string, args ...any) {
	fmt.Fprintln(e.stderr, "demur: "+plain(fmt.Sprintf(format, args...)))
}

// patience is how long a command that was told to stop may take, before the
// process ends whatever it is doing: not all work knows a context, and a pipe
// without a writer may block for ever. All that was reported as finished is synced.
const patience = 3 * time.Second

// interruptible returns a context that an interrupt cancels. While a unit is in
// flight the first interrupt only closes e.stop, and the second cancels; one more
// ends the process.
func (e *env) interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopping, done := make(chan struct{}), make(chan struct{})
	e.stop = stopping
	go func() {
		var late <-chan time.Time
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-late:
				os.Exit(exitInterrupted)
			case <-signals:
			}
			asking := e.asking.Load()
			switch {
			case n == 1 && asking:
				fmt.Fprintln(e.stderr, "\ndemur: finishing the unit in flight; interrupt again to stop now")
				close(stopping)
			case n == 1 || n == 2 && ctx.Err() == nil:
				fmt.Fprintln(e.stderr, "\ndemur: stopping now")
				if n == 1 {
					close(stopping)
				}
				if !asking {
					late = time.After(patience)
				}
				cancel()
			default:
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "demur",
		Short: "Does a model know that it will refuse, does it say so, does it act so?",
		Long: `demur runs an open-weight language model on this machine and asks of every
request: does the model's state know it will refuse, does the model say so, and
does it act so?

  demur demo                          the whole job on a model whose inside is known
  demur run --model model.gguf        the whole job on your own model
  demur report RUN                    the main table of a run; report.html has the rest

Exit codes:
  0    complete
  1    internal error, or reading or writing failed
  2    usage, configuration or data error, before any generation
  3    incomplete; the run can be continued by the same command
  4    a threshold given by a flag is not met
  5    engine or model not available
  6    an integrity check failed
  130  interrupted; what was finished is kept
  141  whoever read the output, such as head, has gone`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(flagHint(c, err)) })
	for _, add := range []func(*env) *cobra.Command{
		newDemo, newRun, newClassify, newReport, newCompare, newExtract, newFit, newSteer, newGuard, newImport, newExport,
		newModels, newRequests, newDoctor, newVerify,
	} {
		root.AddCommand(add(e))
	}
	wrapArgs(root)
	completeAll(root)
	return root
}

// wrapArgs makes a wrong number of arguments a usage error, for every command.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage(err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// hintOf returns what the user can do about an error, "" if nothing is known.
func hintOf(err error) string {
	var h worker.Hinter
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// report prints an error for a person and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code, hint := exitCode(err), hintOf(err)
	message := err.Error()
	if errors.Is(err, context.Canceled) && !errors.As(err, new(*coded)) {
		message = "stopped before the end"
	}
	if message != "" {
		fmt.Fprintln(stderr, "demur: "+plain(message))
	}
	if hint != "" {
		fmt.Fprintln(stderr, "hint: "+plain(hint))
	}
	return code
}

// plain makes text from outside harmless on a terminal: control characters and
// those that turn the direction of writing are shown by their code.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '\uFFFD'
		}
		return r
	}, text)
}
