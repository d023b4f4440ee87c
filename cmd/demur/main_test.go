package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"demur/inference"
	"demur/inference/enginetest"
)

// TestMain makes the test binary serve as demur: as the child process of an
// engine, and as the command of the scripts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == engineCommand {
		serveEngine(openForTests)
	}
	if os.Getenv(asDemur) != "" {
		os.Exit(mainCode(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){
		"demur": func() { os.Exit(mainCode(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// asDemur is the environment variable that turns the test binary into demur,
// for tests that start it themselves.
const asDemur = "DEMUR_TEST_AS_DEMUR"

// openForTests also opens scripted engines: the model is a script's file.
func openForTests(ctx context.Context, s engineSpec, progress inference.Progress) (inference.Engine, error) {
	if s.Engine != "scripted" {
		return openEngine(ctx, s, progress)
	}
	raw, err := os.ReadFile(s.Model)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	var script enginetest.Script
	if err := json.Unmarshal(raw, &script); err != nil {
		return nil, fmt.Errorf("script %s: %w", s.Model, err)
	}
	return enginetest.Open(script, progress)
}

// TestScripts runs the command as a user would; see testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// Libraries, models and the phantom lie in the user's cache folder.
			cache, err := os.UserCacheDir()
			if err != nil {
				return err
			}
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("DEMUR_LIB", os.Getenv("DEMUR_LIB"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": wantCode,
		},
	})
}

// wantCode runs a command and checks its exit code: code N demur args…
func wantCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		coded, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = coded.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}
