//go:build unix

package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/enginetest"
	"demur/inference/worker"
)

// role is the environment variable that makes the test binary play another part.
const role = "DEMUR_WORKER_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "child":
		worker.Main(openSpec)
	case "llamacpp":
		worker.Main(openLlama)
	case "viewed":
		worker.Main(openViewed)
	case "parent":
		parent()
	default: // text to be sent in place of frames
		os.Stdout.WriteString(os.Getenv(role))
		time.Sleep(time.Minute)
	}
}

// A spec is what the tests' children open.
type spec struct {
	Script enginetest.Script
	Open   string // how opening fails
}

type hinted struct{ error }

func (hinted) Hint() string    { return "knead longer" }
func (h hinted) Unwrap() error { return h.error }

func openSpec(raw json.RawMessage, progress inference.Progress) (inference.Engine, error) {
	var s spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	switch s.Open {
	case "unavailable":
		return nil, fmt.Errorf("model bread.gguf: %w", hinted{inference.ErrUnavailable})
	case "not exist":
		return nil, fmt.Errorf("model: %w", &fs.PathError{Op: "open", Path: "bread.gguf", Err: fs.ErrNotExist})
	case "plain":
		return nil, errors.New("context 0 is not at least 1")
	case "abort":
		fmt.Fprintln(os.Stderr, "gguf.cpp:7: GGML_ASSERT(\x1b[31mn_kv\a >= 0) failed")
		syscall.Kill(os.Getpid(), syscall.SIGABRT)
		time.Sleep(time.Minute)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute)
	case "hang":
		time.Sleep(time.Hour)
	case "facts":
		return nil, errors.New(facts())
	}
	script, err := json.Marshal(s.Script)
	if err != nil {
		return nil, err
	}
	return enginetest.OpenJSON(script, progress)
}

// facts says what a child can see of the state it was put into.
func facts() string {
	var core syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_CORE, &core)
	var out, errs, in syscall.Stat_t
	syscall.Fstat(0, &in)
	syscall.Fstat(1, &out)
	syscall.Fstat(2, &errs)
	n, _ := os.Stdin.Read(make([]byte, 1))
	return fmt.Sprintf("core %v, own group %v, stdout is stderr %v, stdin empty %v, GGML_NO_BACKTRACE=%s",
		core.Cur <= 1, syscall.Getpgrp() == os.Getpid(), out.Ino == errs.Ino, n == 0, os.Getenv("GGML_NO_BACKTRACE"))
}

func command(t *testing.T, as string) worker.Command {
	t.Helper()
	c, err := worker.Self()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = []string{role + "=" + as}
	return c
}

func start(t *testing.T, s enginetest.Script, opts worker.Options) *worker.Engine {
	t.Helper()
	if len(s.Faults) > 0 && s.Ledger == "" {
		s.Ledger = t.TempDir()
	}
	e, err := worker.Start(t.Context(), command(t, "child"), spec{Script: s}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func job(text string) inference.Job {
	m := []data.Message{{Role: "user", Content: text}}
	j := inference.Job{Prompt: data.Prompt{ID: data.PromptID(m), Phase: data.Respond, Messages: m}}
	for i := range 6 {
		j.Samplings = append(j.Samplings, data.Sampling{Temperature: float64(i % 3), Seed: uint32(i), MaxTokens: 16})
	}
	j.Continuations = []string{"Sure", "I'm"}
	return j
}

func fourJobs() []inference.Job {
	return []inference.Job{job("bake bread"), job("pick my own lock"), job("fold a plane"), job("sew a button")}
}

func collect(ctx context.Context, e inference.Engine, jobs []inference.Job) ([]inference.Answer, error) {
	var answers []inference.Answer
	for a, err := range e.Generate(ctx, jobs) {
		if err != nil {
			return answers, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// undisturbed returns the answers of the engine in this process.
func undisturbed(t *testing.T, jobs []inference.Job) []inference.Answer {
	t.Helper()
	e, err := enginetest.Open(enginetest.Script{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := collect(t.Context(), e, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// plain returns the answers without what tells of failures.
func plain(answers []inference.Answer) []inference.Answer {
	var out []inference.Answer
	for _, a := range answers {
		a.Attempts, a.Isolated = nil, false
		out = append(out, a)
	}
	return out
}

func TestSameAsInProcess(t *testing.T) {
	tokens := 0
	e := start(t, enginetest.Script{}, worker.Options{Progress: func(n int) { tokens += n }})
	got, err := collect(t.Context(), e, fourJobs())
	if err != nil {
		t.Fatal(err)
	}
	if want := undisturbed(t, fourJobs()); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	direct, _ := enginetest.Open(enginetest.Script{}, nil)
	if !reflect.DeepEqual(e.Info(), direct.Info()) {
		t.Errorf("info: got %+v, want %+v", e.Info(), direct.Info())
	}
	collect(t.Context(), direct, fourJobs())
	if !reflect.DeepEqual(e.Counters(), direct.Counters()) {
		t.Errorf("counters: got %+v, want %+v", e.Counters(), direct.Counters())
	}
	if int64(tokens) != e.Counters().TokensSampled {
		t.Errorf("progress told of %d tokens, counters of %d", tokens, e.Counters().TokensSampled)
	}
	if e.Starts() != 1 {
		t.Errorf("%d starts, want 1", e.Starts())
	}
}

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) inference.Engine {
		return start(t, enginetest.Script{}, worker.Options{})
	}, enginetest.Options{Agreement: 1})
}

// A death in the middle of a unit costs a retry, and the bytes are those of an
// undisturbed run.
func TestUnitIsRetried(t *testing.T) {
	for _, test := range []struct {
		kind, says string
	}{
		{enginetest.FaultSegv, "SIGSEGV: segmentation violation"},
		{enginetest.FaultAbort, "GGML_ASSERT(n_tokens <= n_batch) failed"},
		{enginetest.FaultBus, "fatal error: fault"},
		{enginetest.FaultKill, "killed by SIGKILL"},
		{enginetest.FaultExit, "exit status 1"},
		{enginetest.FaultPanic, "panic: enginetest: scripted panic"},
		{enginetest.FaultError, "decode returned -3"},
		{enginetest.FaultShort, "answered another job"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: test.kind, Contains: "plane", Trial: 3, Times: 1}}}, worker.Options{})
			got, err := collect(t.Context(), e, fourJobs())
			if err != nil {
				t.Fatal(err)
			}
			if want := undisturbed(t, fourJobs()); !reflect.DeepEqual(plain(got), want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			var attempts []data.Attempt
			for _, a := range got {
				attempts = append(attempts, a.Attempts...)
				if a.Isolated {
					t.Errorf("prompt %s: marked isolated", a.PromptID)
				}
			}
			if len(attempts) != 1 || !strings.Contains(attempts[0].Error, test.says) {
				t.Errorf("attempts %+v, want one that says %q", attempts, test.says)
			}
			if e.Starts() != 2 {
				t.Errorf("%d starts, want 2", e.Starts())
			}
		})
	}
}

func TestHangIsKilled(t *testing.T) {
	for _, kind := range []string{enginetest.FaultHang, enginetest.FaultSpin} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: kind, Contains: "plane", Times: 1}}},
				worker.Options{Silence: 300 * time.Millisecond})
			got, err := collect(t.Context(), e, fourJobs())
			if err != nil {
				t.Fatal(err)
			}
			if want := undisturbed(t, fourJobs()); !reflect.DeepEqual(plain(got), want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if n := len(got[0].Attempts); n < 1 || !strings.Contains(got[0].Attempts[0].Error, "no sign of life") {
				t.Errorf("attempts %+v, want one that tells of silence", got[0].Attempts)
			}
		})
	}
}

// A child that computes is given more time than one that does nothing: here the
// job takes five times Silence without a sign, the engine spinning or asleep.
func TestComputingIsNotHung(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processor time of the child is not known here")
	}
	for _, kind := range []string{enginetest.FaultBusy, enginetest.FaultSlow} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: kind, Contains: "plane", Times: 1}}},
				worker.Options{Silence: 400 * time.Millisecond})
			got, err := collect(t.Context(), e, []inference.Job{job("fold a plane")})
			if err != nil {
				t.Fatal(err)
			}
			killed := len(got[0].Attempts) > 0
			if want := kind == enginetest.FaultSlow; killed != want {
				t.Errorf("killed %v, want %v: %+v", killed, want, got[0].Attempts)
			}
		})
	}
}

// Slow is not hung: a unit of many times Silence goes on while tokens come.
func TestSlowIsNotHung(t *testing.T) {
	t.Parallel()
	e := start(t, enginetest.Script{TokenTime: 45 * time.Millisecond}, worker.Options{Silence: 1500 * time.Millisecond})
	got, err := collect(t.Context(), e, fourJobs()[:1])
	if err != nil {
		t.Fatal(err)
	}
	if len(got[0].Attempts) != 0 || e.Starts() != 1 {
		t.Errorf("attempts %+v, %d starts; want none, 1", got[0].Attempts, e.Starts())
	}
}

func TestCulpritIsIsolated(t *testing.T) {
	for _, kind := range []string{enginetest.FaultAbort, enginetest.FaultError} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: kind, Contains: "plane"}}}, worker.Options{})
			got, err := collect(t.Context(), e, fourJobs())
			if err != nil {
				t.Fatal(err)
			}
			want := undisturbed(t, fourJobs())
			attempts := 0
			for i, a := range got {
				attempts += len(a.Attempts)
				if !a.Isolated || a.PromptID != want[i].PromptID {
					t.Errorf("answer %d: isolated %v, prompt %s; want true, %s", i, a.Isolated, a.PromptID, want[i].PromptID)
				}
				if i != 2 {
					if !reflect.DeepEqual(a.Generations, want[i].Generations) {
						t.Errorf("answer %d: got %+v, want %+v", i, a.Generations, want[i].Generations)
					}
					continue
				}
				wantKind, says := data.ErrCrash, "GGML_ASSERT(n_tokens <= n_batch) failed"
				if kind == enginetest.FaultError {
					wantKind, says = data.ErrEngine, "decode returned -3"
				}
				for j, g := range a.Generations {
					if g.StopReason != data.StopError || g.ErrorKind != wantKind || !strings.Contains(g.Error, says) || g.Sampling != want[i].Generations[j].Sampling {
						t.Errorf("culprit's generation %d: %+v", j, g)
					}
				}
			}
			if attempts != 3 { // the unit twice, the culprit alone
				t.Errorf("%d attempts, want 3", attempts)
			}
			// And the run goes on.
			next := []inference.Job{job("boil an egg")}
			after, err := collect(t.Context(), e, next)
			if err != nil || !reflect.DeepEqual(after, undisturbed(t, next)) {
				t.Errorf("next unit: %+v, %v", after, err)
			}
		})
	}
}

func TestCrashOfSingleJob(t *testing.T) {
	e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: enginetest.FaultKill, Contains: "plane"}}}, worker.Options{})
	got, err := collect(t.Context(), e, []inference.Job{job("fold a plane")})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[0].Attempts) != 2 || got[0].Generations[5].ErrorKind != data.ErrCrash {
		t.Errorf("got %+v", got)
	}
}

func TestUnavailableEndsTheRun(t *testing.T) {
	e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: enginetest.FaultUnavailable, Contains: "plane"}}}, worker.Options{})
	got, err := collect(t.Context(), e, fourJobs())
	if len(got) != 0 || !errors.Is(err, inference.ErrUnavailable) {
		t.Errorf("%d answers, %v; want none, ErrUnavailable", len(got), err)
	}
}

func TestKilledBetweenUnits(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV} {
		e := start(t, enginetest.Script{}, worker.Options{})
		collect(t.Context(), e, fourJobs()[:1])
		syscall.Kill(e.PID(), sig)
		waitGone(t, e.PID())
		got, err := collect(t.Context(), e, fourJobs())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plain(got), undisturbed(t, fourJobs())) {
			t.Errorf("%v: got %+v", sig, got)
		}
		if len(got[0].Attempts) != 1 || got[0].Attempts[0].ErrorKind != data.ErrCrash {
			t.Errorf("%v: attempts %+v, want one crash", sig, got[0].Attempts)
		}
		if want := int64(5 * 6 * 4); e.Counters().PromptTokens < want/6 {
			t.Errorf("counters %+v do not count what the dead child did", e.Counters())
		}
	}
}

func TestOpenErrors(t *testing.T) {
	for _, test := range []struct {
		open, says, hint string
		is               error
		isNot            error
	}{
		{"unavailable", "model bread.gguf: engine or model not available", "knead longer", inference.ErrUnavailable, fs.ErrNotExist},
		{"not exist", "open bread.gguf: file does not exist", "", fs.ErrNotExist, inference.ErrUnavailable},
		{"plain", "context 0 is not at least 1", "", nil, inference.ErrUnavailable},
		{"abort", "died while it opened bread.gguf: exit status 2: gguf.cpp:7: GGML_ASSERT(n_kv >= 0) failed", "damaged", inference.ErrUnavailable, fs.ErrNotExist},
		{"kill", "killed by SIGKILL", "memory", inference.ErrUnavailable, fs.ErrNotExist},
		{"facts", "core true, own group true, stdout is stderr true, stdin empty true, GGML_NO_BACKTRACE=1", "", nil, inference.ErrUnavailable},
		{"hang", "no sign of life", "", inference.ErrUnavailable, fs.ErrNotExist},
	} {
		t.Run(test.open, func(t *testing.T) {
			t.Parallel()
			opening := time.Duration(0)
			if test.open == "hang" {
				opening = 300 * time.Millisecond
			}
			_, err := worker.Start(t.Context(), command(t, "child"), spec{Open: test.open}, worker.Options{Opening: opening, Name: "bread.gguf"})
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, want it to say %q", err, test.says)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
			if errors.Is(err, test.isNot) {
				t.Errorf("%v is %v", err, test.isNot)
			}
			var h worker.Hinter
			hint := ""
			if errors.As(err, &h) {
				hint = h.Hint()
			}
			if !strings.Contains(hint, test.hint) || test.hint == "" && hint != "" {
				t.Errorf("hint %q, want %q", hint, test.hint)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		_, err := worker.Start(t.Context(), worker.Command{Path: filepath.Join(t.TempDir(), "none")}, nil, worker.Options{})
		if !errors.Is(err, inference.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := worker.Start(ctx, command(t, "child"), spec{Open: "hang"}, worker.Options{}); err != context.Canceled {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

func TestSlowOpening(t *testing.T) {
	t.Parallel()
	e := start(t, enginetest.Script{OpenTime: 500 * time.Millisecond}, worker.Options{Silence: 100 * time.Millisecond})
	if _, err := collect(t.Context(), e, fourJobs()); err != nil {
		t.Error(err)
	}
}

// Programs that are no workers are found out at once.
func TestForeignChild(t *testing.T) {
	for _, test := range []struct{ name, sends, says string }{
		{"text", "Hello, this is a program.\n", `no frame but "Hello, this`},
		{"oversized", "dmr\x01\xff\xff\xff\x7fabcd", "more than 67108864"},
		{"checksum", "dmr\x01\x02\x00\x00\x00abcd{}", "wrong checksum"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := command(t, "")
			if strings.ContainsRune(test.sends, 0) {
				// An environment cannot hold NUL; let printf say it.
				path, err := exec.LookPath("sh")
				if err != nil {
					t.Skip("no shell to play the foreign program")
				}
				c = worker.Command{Path: path, Args: []string{"-c", `printf '` + octal(test.sends) + `'; sleep 60`}}
			} else {
				c.Env = []string{role + "=" + test.sends}
			}
			_, err := worker.Start(t.Context(), c, spec{}, worker.Options{})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
}

func octal(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\%03o`, s[i])
	}
	return b.String()
}

func TestNoise(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := start(t, enginetest.Script{Faults: []enginetest.Fault{
		{Kind: enginetest.FaultFlood, Contains: "bread"},
		{Kind: enginetest.FaultStdout, Contains: "lock"},
		{Kind: enginetest.FaultFlood, Contains: "button"},
		{Kind: enginetest.FaultAbort, Contains: "button", Times: 1},
	}}, worker.Options{Log: &log})
	got, err := collect(t.Context(), e, fourJobs())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(plain(got), undisturbed(t, fourJobs())) {
		t.Errorf("got %+v", got)
	}
	if n := len(got[0].Attempts); n != 1 || !strings.Contains(got[0].Attempts[0].Error, "GGML_ASSERT") {
		t.Errorf("attempts %+v, want one with the assertion", got[0].Attempts)
	}
	e.Close()
	if !strings.Contains(log.String(), "this went to standard output") {
		t.Error("what the child printed did not come out on its standard error")
	}
}

func TestAwkwardAnswers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{enginetest.FaultHuge, enginetest.FaultUnicode, enginetest.FaultEmpty, enginetest.FaultReasoning, data.ErrOverflow} {
		s := enginetest.Script{Faults: []enginetest.Fault{{Kind: kind}}}
		got, err := collect(t.Context(), start(t, s, worker.Options{}), fourJobs()[:1])
		if err != nil {
			t.Fatal(err)
		}
		direct, _ := enginetest.Open(s, nil)
		want, _ := collect(t.Context(), direct, fourJobs()[:1])
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: answers differ from those in this process", kind)
		}
	}
}

func TestJobThatCannotBeSent(t *testing.T) {
	t.Parallel()
	e := start(t, enginetest.Script{}, worker.Options{})
	jobs := []inference.Job{job(strings.Repeat("bread ", 12<<20)), job("fold a plane")}
	got, err := collect(t.Context(), e, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Generations[0].ErrorKind != data.ErrOverflow {
		t.Errorf("72 MB prompt: got %+v, want an overflow", got[0].Generations[0])
	}
	if !reflect.DeepEqual(got[1], undisturbed(t, jobs[1:])[0]) {
		t.Errorf("its neighbour: got %+v", got[1])
	}
}

func TestCancellation(t *testing.T) {
	for _, test := range []struct {
		name   string
		script enginetest.Script
		starts int // after another unit
	}{
		{"engine stops", enginetest.Script{TokenTime: 20 * time.Millisecond}, 1},
		{"engine does not", enginetest.Script{Faults: []enginetest.Fault{{Kind: enginetest.FaultHang, Contains: "plane", Times: 1}}}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.script, worker.Options{Grace: 500 * time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			got, err := collect(ctx, e, fourJobs())
			if len(got) != 0 || err != context.Canceled {
				t.Errorf("%d answers, %v; want none, context.Canceled", len(got), err)
			}
			after, err := collect(t.Context(), e, fourJobs()[:1])
			if err != nil || !reflect.DeepEqual(after, undisturbed(t, fourJobs()[:1])) {
				t.Errorf("next unit: %+v, %v", after, err)
			}
			if e.Starts() != test.starts {
				t.Errorf("%d starts, want %d", e.Starts(), test.starts)
			}
		})
	}
}

// What a terminal or a supervisor sends to everybody is for the parent to act on.
func TestDeafToSignals(t *testing.T) {
	var e *worker.Engine
	signalled := 0
	e = start(t, enginetest.Script{TokenTime: time.Millisecond}, worker.Options{Progress: func(int) {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			if syscall.Kill(e.PID(), sig) == nil {
				signalled++
			}
		}
	}})
	got, err := collect(t.Context(), e, fourJobs())
	if err != nil || !reflect.DeepEqual(got, undisturbed(t, fourJobs())) {
		t.Errorf("got %+v, %v", got, err)
	}
	if signalled == 0 || e.Starts() != 1 {
		t.Errorf("%d signals, %d starts; want some, 1", signalled, e.Starts())
	}
}

func TestClose(t *testing.T) {
	e := start(t, enginetest.Script{}, worker.Options{})
	pid := e.PID()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("after Close the process is still there or a zombie: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := collect(t.Context(), e, fourJobs()); err == nil {
		t.Error("a closed engine generated")
	}
}

// Nothing stays behind of children: no process, no goroutine, no descriptor.
func TestNothingStaysBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	descriptors := func() int {
		entries, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	round := func() {
		e := start(t, enginetest.Script{Faults: []enginetest.Fault{{Kind: enginetest.FaultKill, Contains: "plane", Times: 3}}}, worker.Options{})
		if _, err := collect(t.Context(), e, fourJobs()); err != nil {
			t.Fatal(err)
		}
		e.Close()
		worker.Start(t.Context(), command(t, "child"), spec{Open: "abort"}, worker.Options{})
	}
	round() // what Go keeps for good is made now
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for range 10 {
		round()
	}
	// Goroutines end a little after what they wait for.
	for try := 0; runtime.NumGoroutine() > goroutines || descriptors() > files; try++ {
		if try == 500 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines and %d descriptors, then %d and %d\n%s", goroutines, files, runtime.NumGoroutine(), descriptors(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A parent that is killed takes its child along, even one stuck in a unit.
func TestParentKilled(t *testing.T) {
	for _, kind := range []string{"idle", enginetest.FaultHang} {
		c, err := worker.Self()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(c.Path)
		cmd.Env = append(os.Environ(), role+"=parent", "DEMUR_WORKER_TEST_FAULT="+kind)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("%s: the child is not there before its parent dies: %v", kind, err)
		}
		cmd.Process.Kill()
		cmd.Wait()
		waitGone(t, pid)
	}
}

// parent is a process that uses a worker until it is killed.
func parent() {
	c, err := worker.Self()
	if err != nil {
		panic(err)
	}
	c.Env = []string{role + "=child"}
	var s spec
	kind := os.Getenv("DEMUR_WORKER_TEST_FAULT")
	if kind != "idle" {
		s.Script.Faults = []enginetest.Fault{{Kind: kind}}
	}
	e, err := worker.Start(context.Background(), c, s, worker.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(e.PID())
	if kind != "idle" {
		collect(context.Background(), e, fourJobs())
	}
	time.Sleep(time.Hour)
}

// waitGone waits until the process is no more, or a zombie that its new parent
// has not waited for.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			if _, after, ok := bytes.Cut(stat, []byte(") ")); ok && after[0] == 'Z' {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}
