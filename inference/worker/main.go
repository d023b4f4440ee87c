package worker

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main is all of a child process: it serves on standard input and output and
// exits. It moves both streams away first, for C libraries print: what goes to
// standard output comes out on standard error. It leaves no core dump behind,
// ends when its parent does, and is deaf to the signals that a terminal or a
// supervisor sends to everybody, since the parent decides what becomes of a unit.
func Main(open Open) {
	in, out, err := takeStreams()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker: taking over the standard streams:", err)
		os.Exit(1)
	}
	settle()
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := Serve(context.Background(), in, out, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
