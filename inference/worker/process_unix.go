//go:build unix && !linux

package worker

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

func dup2(from, to int) error { return syscall.Dup2(from, to) }

// attributes puts the child into a process group of its own, so that Ctrl-C
// reaches the parent alone. That the parent has died, the child learns from the
// end of its standard input.
func attributes(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// settle makes this process a harmless one to lose.
func settle() { noCore() }

func executable() (string, error) { return os.Executable() }

// cpuTime is not known here.
func cpuTime(int) (used time.Duration, known bool) { return 0, false }
