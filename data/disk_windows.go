package data

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

const errQuota = syscall.Errno(windows.ERROR_DISK_FULL)

// lockFile takes an exclusive lock without waiting. The locked byte lies far
// behind the text, which stays readable.
func lockFile(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	if err != nil {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

// syncDir does nothing: Windows has no such call, and NTFS journals names.
func syncDir(string) error { return nil }
