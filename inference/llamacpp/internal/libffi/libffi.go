// Package libffi ends the program with a sentence where the system's libffi is
// missing.
//
// The binding to llama.cpp loads libffi when it is initialised, before main, and
// panics where it cannot. Go initialises packages in the order of their import
// paths as soon as what they import is ready (The Go Programming Language
// Specification, "Program initialization"). This package's path sorts before
// github.com/jupiterrider/ffi and it imports nothing that that one does not
// import too, so it speaks first. That is all it is for; package llamacpp
// imports it for this effect.
package libffi

import (
	"fmt"
	"os"
	"runtime"

	"github.com/ebitengine/purego"
)

// ExitCode is that of an engine that is not available.
const ExitCode = 5

var _ = check()

func check() bool {
	if runtime.GOOS != "linux" && runtime.GOOS != "freebsd" {
		return true // the binding brings its own
	}
	if _, err := purego.Dlopen("libffi.so.8", purego.RTLD_LAZY); err != nil {
		fmt.Fprintf(os.Stderr, "demur: the system library libffi.so.8 cannot be loaded: %v\n", err)
		fmt.Fprintln(os.Stderr, "hint: install it: apt install libffi8 (Debian, Ubuntu), dnf install libffi (Fedora), apk add libffi (Alpine)")
		os.Exit(ExitCode)
	}
	return true
}
