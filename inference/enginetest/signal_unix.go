//go:build unix

package enginetest

import (
	"syscall"
	"time"
)

// signalSelf ends the process as the kind says.
func signalSelf(kind string) {
	sig := map[string]syscall.Signal{
		FaultSegv:  syscall.SIGSEGV,
		FaultAbort: syscall.SIGABRT,
		FaultKill:  syscall.SIGKILL,
	}[kind]
	syscall.Kill(syscall.Getpid(), sig)
	time.Sleep(time.Hour) // the signal may take a moment to arrive
}
