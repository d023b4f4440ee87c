//go:build unix

package worker

import (
	"os"
	"os/exec"
	"syscall"
)

// takeStreams returns the process's input and output and points standard input
// at nothing and standard output at standard error.
func takeStreams() (in, out *os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	inFD, err := dup(0)
	if err != nil {
		return nil, nil, err
	}
	outFD, err := dup(1)
	if err != nil {
		return nil, nil, err
	}
	if err := dup2(int(null.Fd()), 0); err != nil {
		return nil, nil, err
	}
	if err := dup2(2, 1); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(inFD), "parent"), os.NewFile(uintptr(outFD), "parent"), nil
}

// dup duplicates a descriptor; children of this process do not get it.
func dup(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	n, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(n)
	}
	return n, err
}

// noCore forbids core dumps: a model's worth of memory, and what it was asked.
// The limit is 1 and not 0, for Linux ignores 0 where dumps are piped to a
// program, and takes 1 for "none" there; as a file size both are none (core(5)).
func noCore() {
	syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: 1, Max: 1})
}

// killGroup kills the child and all that it started.
func killGroup(cmd *exec.Cmd) {
	if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) != nil {
		cmd.Process.Kill()
	}
}

// ending says how a process ended.
func ending(state *os.ProcessState) string {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return state.String()
	}
	if status.Signal() == syscall.SIGKILL {
		return "killed by SIGKILL, as by the out-of-memory killer"
	}
	return "ended by " + signalName(status.Signal())
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGSEGV:
		return "SIGSEGV"
	case syscall.SIGABRT:
		return "SIGABRT"
	case syscall.SIGBUS:
		return "SIGBUS"
	case syscall.SIGILL:
		return "SIGILL"
	case syscall.SIGFPE:
		return "SIGFPE"
	}
	return s.String()
}
