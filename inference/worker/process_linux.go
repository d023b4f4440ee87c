package worker

import (
	"os"
	"os/exec"
	"syscall"
)

func dup2(from, to int) error { return syscall.Dup3(from, to, 0) }

// attributes puts the child into a process group of its own, so that Ctrl-C
// reaches the parent alone, and has the kernel kill it when the parent dies. The
// kernel means the parent's thread, see (*child).run.
func attributes(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// settle makes this process a harmless one to lose.
func settle() {
	noCore()
	// The out-of-memory killer should take the child, whose unit can be done again.
	// Where that is not allowed, nothing is lost but the preference.
	os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
}

// executable returns a path to this very program, also after its file has been
// replaced by a newer build.
func executable() (string, error) {
	if _, err := os.Stat(selfPath); err == nil {
		return selfPath, nil
	}
	return os.Executable()
}
