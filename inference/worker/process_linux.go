package worker

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// cpuTime returns the processor time that a process has used, in its user and
// system parts: fields 14 and 15 of its stat file, in hundredths of a second
// (proc(5)).
func cpuTime(pid int) (used time.Duration, known bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The second field, a name in parentheses, may contain anything.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, false
	}
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, false
		}
		used += time.Duration(n) * clockTick
	}
	return used, true
}
