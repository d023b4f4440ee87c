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
	"syscall"

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
	ctx, interrupted, stop := interruptible(stderr)
	defer stop()
	root := newRoot(&env{stdin: stdin, stdout: stdout, stderr: stderr, stop: interrupted})
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return report(stderr, root.ExecuteContext(ctx))
}

// An env is what a command may touch outside of itself.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	stop           <-chan struct{} // closed at the first interrupt
}

// say writes a line of talk to standard error.
func (e *env) say(format string, args ...any) {
	fmt.Fprintln(e.stderr, "demur: "+plain(fmt.Sprintf(format, args...)))
}

// interruptible returns a context that the second interrupt cancels and a
// channel that the first one closes. The third ends the process.
func interruptible(stderr io.Writer) (context.Context, <-chan struct{}, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-signals:
			}
			switch n {
			case 1:
				fmt.Fprintln(stderr, "\ndemur: finishing the unit in flight; interrupt again to stop now")
				close(stopping)
			case 2:
				fmt.Fprintln(stderr, "\ndemur: stopping now")
				cancel()
			default:
				// What knows no context, such as a pipe without a writer, may block for
				// ever. All that was reported as finished is synced.
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, stopping, func() {
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
  130  interrupted; what was finished is kept`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(flagHint(c, err)) })
	for _, add := range []func(*env) *cobra.Command{
		newDemo, newRun, newClassify, newReport, newCompare, newExtract, newFit, newGuard, newImport, newExport,
		newModels, newRequests, newDoctor, newVerify,
	} {
		root.AddCommand(add(e))
	}
	wrapArgs(root)
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

// report prints an error for a person and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code, hint := exitCode(err), ""
	var h worker.Hinter
	if errors.As(err, &h) {
		hint = h.Hint()
	}
	if message := err.Error(); message != "" {
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
