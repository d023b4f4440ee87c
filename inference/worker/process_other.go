//go:build !unix

package worker

import (
	"os"
	"os/exec"
	"time"
)

// takeStreams returns the process's input and output. What Go code prints to
// standard output comes out on standard error; what C code prints would be taken
// for damage.
func takeStreams() (in, out *os.File, err error) {
	in, out = os.Stdin, os.Stdout
	os.Stdout = os.Stderr
	return in, out, nil
}

func attributes(*exec.Cmd) {}

func settle() {}

func killGroup(cmd *exec.Cmd) { cmd.Process.Kill() }

func ending(state *os.ProcessState) string { return state.String() }

func executable() (string, error) { return os.Executable() }

// cpuTime is not known here.
func cpuTime(int) (used time.Duration, known bool) { return 0, false }
