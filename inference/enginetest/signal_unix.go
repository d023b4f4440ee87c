//go:build unix

package enginetest

import (
	"os"
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

// readTruncated maps a file, truncates it and reads what is no longer there, as
// happens to a mapped model that is replaced in place.
func readTruncated() {
	file, err := os.CreateTemp("", "enginetest")
	if err != nil {
		panic(err)
	}
	defer os.Remove(file.Name())
	if err := file.Truncate(1 << 16); err != nil {
		panic(err)
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	os.Remove(file.Name())
	if err := file.Truncate(0); err != nil {
		panic(err)
	}
	os.Exit(int(mapped[1<<15])) // never: the read ends the process
}
