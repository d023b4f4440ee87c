//go:build !unix

package enginetest

import "os"

// signalSelf ends the process; there are no signals here.
func signalSelf(string) { os.Exit(3) }

func readTruncated() { os.Exit(3) }
