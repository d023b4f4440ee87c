package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"demur/inference/llamacpp"
)

// TestProbeScripts runs the commands that look into a model, on the phantom.
func TestProbeScripts(t *testing.T) {
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/probes",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			cache, err := os.UserCacheDir()
			if err != nil {
				return err
			}
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("DEMUR_LIB", os.Getenv("DEMUR_LIB"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": wantCode},
	})
}
