// Package worker runs an engine in a child process, so that a native crash, an
// abort, a hang or an out-of-memory kill costs one unit and never a run.
//
// The parent owns every result; the child owns the engine and nothing else. They
// speak checksummed frames of JSON over the child's standard input and output.
// An Engine is used like the engine that it runs: units go over, answers come
// back, and nothing of a unit is seen before the whole unit has been answered. If
// the child fails, the unit is done again from its beginning in a new child. If
// that fails too, its jobs are done one by one, each answer marked Isolated, and
// only the job that fails even alone becomes an error, with the child's last
// words.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"demur/data"
	"demur/inference"
)

// A Command says how to start the child. Its program must call Main.
type Command struct {
	Path string
	Args []string // without the name of the program
	Env  []string // added to this process's environment, KEY=value
}

// selfPath is the running program on Linux, whatever became of its file.
const selfPath = "/proc/self/exe"

// Self returns the command that starts this same program with the given
// arguments.
func Self(args ...string) (Command, error) {
	path, err := executable()
	if err != nil {
		return Command{}, fmt.Errorf("worker: finding this program: %w", err)
	}
	return Command{Path: path, Args: args}, nil
}

// Options of an Engine. The zero value is good.
type Options struct {
	// Name is what the child opens, for messages: "the model" if empty.
	Name string
	// Silence is how long a child may work on a unit without a sign of life before
	// it is taken for hung and killed: five minutes if 0. It is never less than 50
	// times the median time between its signs so far, doubles with each further try
	// at a unit, and is four times as long for a child that uses the processor (seen
	// on Linux only), so that a slow machine is not taken for a hang.
	Silence time.Duration
	// Opening is how long the engine may take to open without a sign of life: an
	// hour if 0.
	Opening time.Duration
	// Grace is how long a child may take to stop after a cancellation and to close:
	// ten seconds if 0. Then it is killed.
	Grace time.Duration
	// Progress is called, on the goroutine of Generate, with the number of tokens
	// sampled since the last call. It may be nil.
	Progress inference.Progress
	// Log gets all that children write to standard error. It may be nil.
	Log io.Writer
}

// Engine is an engine in a child process. It is used by one goroutine at a time.
type Engine struct {
	command Command
	spec    []byte
	opts    Options
	info    inference.Info
	child   *child // nil where there is none just now
	unit    uint64 // number of the last unit sent
	closed  bool
	starts  int
	counts  inference.Counters // of children that are gone
	current inference.Counters // of this one, after its last unit
	gaps    gaps
	idle    []data.Attempt // deaths between units, not told yet
	looking bool           // a question of ask is open
	// steering is in force, in every child; nil for none.
	steering *inference.Steering
}

var (
	_ inference.Engine    = (*Engine)(nil)
	_ inference.Meter     = (*Engine)(nil)
	_ inference.Activator = (*Engine)(nil)
	_ inference.Tokenizer = (*Engine)(nil)
	_ inference.Steerer   = (*Engine)(nil)
	_ inference.Predictor = (*Engine)(nil)
)

// Start starts the child and opens its engine; spec is sent as JSON to the
// child's Open. Cancelling ctx ends the opening, not the engine. If Open returns
// an error, so does Start, with its words, its Hint, and with errors.Is for
// inference.ErrUnavailable, fs.ErrNotExist and fs.ErrPermission. A child that dies
// while it opens an engine, as on a damaged model file, is
// inference.ErrUnavailable.
func Start(ctx context.Context, command Command, spec any, opts Options) (*Engine, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("worker: encoding the engine's settings: %w", err)
	}
	if opts.Name == "" {
		opts.Name = "the model"
	}
	if opts.Silence <= 0 {
		opts.Silence = 5 * time.Minute
	}
	if opts.Opening <= 0 {
		opts.Opening = time.Hour
	}
	if opts.Grace <= 0 {
		opts.Grace = 10 * time.Second
	}
	if opts.Progress == nil {
		opts.Progress = func(int) {}
	}
	e := &Engine{command: command, spec: encoded, opts: opts}
	info, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	e.info = info
	return e, nil
}

// Info describes the engine in the child.
func (e *Engine) Info() inference.Info { return e.info }

// Counters adds up what the engines of all children have counted, a dead child's
// up to its last whole unit. It is zero where the engine does not count.
func (e *Engine) Counters() inference.Counters { return add(e.counts, e.current) }

// Starts returns how often a child was started: once, and once more for each
// that was lost.
func (e *Engine) Starts() int { return e.starts }

// PID returns the process id of the child, 0 where there is none.
func (e *Engine) PID() int {
	if e.child == nil {
		return 0
	}
	return e.child.cmd.Process.Pid
}

// open starts a child and opens its engine.
func (e *Engine) open(ctx context.Context) (inference.Info, error) {
	c, err := spawn(e.command, e.opts.Log)
	if err != nil {
		return inference.Info{}, unavailable("starting the engine process %s: %v", e.command.Path, err)
	}
	e.starts++
	m, err := c.open(ctx, e.spec, e.opts.Opening)
	switch {
	case err == nil && m.Error == nil:
		e.child = c
		return *m.Info, nil
	case err == nil:
		c.bury()
		return inference.Info{}, m.Error.err()
	case err == errEnded:
		how := c.obituary()
		err := unavailable("the engine process died while it opened %s: %s", e.opts.Name, how)
		err.died = true
		if signalled(how) {
			err.hint = "if memory ran out, choose a smaller model or a smaller context"
		} else {
			err.hint = "the model file may be damaged; compare its SHA-256 with the one published"
		}
		return inference.Info{}, err
	case err == errSilent:
		c.bury()
		return inference.Info{}, unavailable("%s", c.lastWords(fmt.Sprintf("the engine process gave no sign of life for %v while it opened %s", e.opts.Opening, e.opts.Name)))
	default:
		c.bury()
		if ctx.Err() != nil {
			return inference.Info{}, ctx.Err()
		}
		return inference.Info{}, unavailable("opening %s: %v", e.opts.Name, err)
	}
}

// A openError is an engine that cannot be had.
type openError struct {
	text string
	hint string
	died bool // the process, of itself
}

func unavailable(format string, args ...any) *openError {
	return &openError{text: fmt.Sprintf(format, args...)}
}

func (e *openError) Error() string { return e.text }

// Hint returns what the user can do, or "".
func (e *openError) Hint() string { return e.hint }

// Unwrap makes it an inference.ErrUnavailable.
func (e *openError) Unwrap() error { return inference.ErrUnavailable }

// ensure starts a child if there is none, and checks that its engine is the one
// of before.
func (e *Engine) ensure(ctx context.Context) error {
	if e.child != nil && e.child.dead() {
		how := e.child.obituary()
		e.drop()
		e.idle = append(e.idle, data.Attempt{
			Started:   time.Now().UTC().Format(time.RFC3339Nano),
			ErrorKind: data.ErrCrash,
			Error:     "the engine process died between units: " + how,
		})
	}
	if e.child != nil {
		return nil
	}
	info, err := e.open(ctx)
	var failed *openError
	if errors.As(err, &failed) && failed.died {
		info, err = e.open(ctx) // memory may have been short for a moment
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("restarting the engine: %w", err)
	}
	if field := differs(e.info, info); field != "" {
		e.drop()
		return fmt.Errorf("restarting the engine: its %s is not what it was when the run began", field)
	}
	return e.steerAgain(ctx)
}

// drop gives up the child, dead or alive.
func (e *Engine) drop() {
	e.child.bury()
	e.child = nil
	e.counts = add(e.counts, e.current)
	e.current = inference.Counters{}
}

// differs names the first field in which two descriptions differ that can change
// an answer, or "".
func differs(a, b inference.Info) string {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"engine", a.Engine, b.Engine},
		{"version", a.Version, b.Version},
		{"model digest", a.ModelDigest, b.ModelDigest},
		{"adapter", a.Adapter, b.Adapter},
		{"template", a.TemplateHash, b.TemplateHash},
		{"context", a.Context, b.Context},
	} {
		if f.a != f.b {
			return f.name
		}
	}
	for _, k := range slices.Sorted(maps.Keys(a.Plan)) {
		if v, ok := b.Plan[k]; !ok || v != a.Plan[k] {
			return "plan (" + k + ")"
		}
	}
	if !reflect.DeepEqual(a.Plan, b.Plan) {
		return "plan"
	}
	return ""
}

// Generate runs one unit in the child; see the package comment for what happens
// when it fails. The answers come after the whole unit has been done. Failures of
// the unit stand as Attempts in its first answer, those of a job done alone in
// that job's; ID and Unit of an Attempt are the caller's to fill in. An error
// means that the engine cannot be had any more.
func (e *Engine) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) {
		if len(jobs) == 0 {
			return
		}
		answers, err := e.policy(ctx, jobs)
		for _, a := range answers {
			if !yield(a, nil) {
				return
			}
		}
		if err != nil {
			yield(inference.Answer{}, err)
		}
	}
}

// policy answers all jobs, or none with an error.
func (e *Engine) policy(ctx context.Context, jobs []inference.Job) ([]inference.Answer, error) {
	if e.closed {
		return nil, errors.New("worker: generate: the engine is closed")
	}
	if e.looking {
		return nil, errors.New("worker: generate: the engine is still answering another question")
	}
	var failures []data.Attempt
	for try := range 2 {
		answers, failure, err := e.try(ctx, jobs, try)
		failures = append(failures, e.takeIdle()...)
		if err != nil {
			return nil, after(err, failures)
		}
		if failure == nil {
			answers[0].Attempts = append(failures, answers[0].Attempts...)
			return answers, nil
		}
		failures = append(failures, *failure)
	}
	if len(jobs) == 1 { // it was alone both times
		last := failures[len(failures)-1]
		a := errorAnswer(jobs[0], last.ErrorKind, last.Error)
		a.Attempts = failures
		return []inference.Answer{a}, nil
	}
	var all []inference.Answer
	for _, job := range jobs {
		answers, failure, err := e.try(ctx, []inference.Job{job}, 2)
		idle := e.takeIdle()
		if err != nil {
			return nil, after(err, append(failures, idle...))
		}
		if failure != nil {
			failure.Isolated = true
			answers = []inference.Answer{errorAnswer(job, failure.ErrorKind, failure.Error)}
			idle = append(idle, *failure)
		}
		answers[0].Isolated = true
		answers[0].Attempts = append(idle, answers[0].Attempts...)
		all = append(all, answers[0])
	}
	all[0].Attempts = append(failures, all[0].Attempts...)
	return all, nil
}

// after adds to the error of a restart why there had to be one.
func after(err error, failures []data.Attempt) error {
	if len(failures) == 0 || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w (after this: %s)", err, failures[len(failures)-1].Error)
}

func (e *Engine) takeIdle() []data.Attempt {
	idle := e.idle
	e.idle = nil
	return idle
}

// try sends the jobs as one unit. It returns all answers, or how the child or its
// engine failed, or an error after which no other try can help.
func (e *Engine) try(ctx context.Context, jobs []inference.Job, try int) ([]inference.Answer, *data.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	answers := make([]inference.Answer, len(jobs))
	frames, sent := e.encode(jobs, answers)
	if len(sent) == 0 {
		return answers, nil, nil
	}
	if err := e.ensure(ctx); err != nil {
		return nil, nil, err
	}
	start := time.Now()
	fail := func(kind, format string, args ...any) ([]inference.Answer, *data.Attempt, error) {
		return nil, &data.Attempt{
			Started:   start.UTC().Format(time.RFC3339Nano),
			ElapsedMS: time.Since(start).Milliseconds(),
			ErrorKind: kind,
			Error:     fmt.Sprintf(format, args...),
		}, nil
	}
	e.child.send(frames...)
	e.gaps.start()
	heard := start
	for n := 0; ; {
		limit := max(e.opts.Silence, 50*e.gaps.median()) << min(try, 8)
		m, err := e.child.nextOfUnit(ctx, limit)
		switch {
		case err == errEnded:
			how := e.child.obituary()
			e.drop()
			return fail(data.ErrCrash, "the engine process died: %s", how)
		case err == errSilent:
			how := e.child.lastWords(fmt.Sprintf("the engine process gave no sign of life for %v and was killed", time.Since(heard).Round(time.Millisecond)))
			e.drop()
			return fail(data.ErrCrash, "%s", how)
		case err != nil:
			e.cancel()
			return nil, nil, ctx.Err()
		}
		heard = time.Now()
		switch {
		case m.Kind == kindProgress:
			e.gaps.sign()
			e.opts.Progress(max(0, m.Count))
		case m.Kind == kindAnswer && m.Unit == e.unit && m.Answer != nil && n < len(sent):
			i := sent[n]
			if !answersTo(jobs[i], *m.Answer) {
				e.drop()
				return fail(data.ErrEngine, "the engine answered another job than the one it was asked: %d generations of prompt %s, want %d of %s",
					len(m.Answer.Generations), m.Answer.PromptID, len(jobs[i].Samplings), jobs[i].Prompt.ID)
			}
			answers[i] = *m.Answer
			n++
		case m.Kind == kindDone && m.Unit == e.unit:
			e.opts.Progress(max(0, m.Count))
			if m.Counters != nil {
				e.current = *m.Counters
			}
			if err := m.Error.err(); err != nil {
				how := err.Error()
				e.drop() // a new engine may fare better
				if errors.Is(err, inference.ErrUnavailable) {
					return nil, nil, err
				}
				return fail(data.ErrEngine, "%s", how)
			}
			if n < len(sent) {
				e.drop()
				return fail(data.ErrEngine, "the engine answered %d of %d jobs", n, len(sent))
			}
			return answers, nil, nil
		default:
			how := e.child.lastWords(fmt.Sprintf("the engine process sent %q out of turn and was killed", m.Kind))
			e.drop()
			return fail(data.ErrCrash, "%s", how)
		}
	}
}

// answersTo reports whether the answer is one to the job.
func answersTo(job inference.Job, a inference.Answer) bool {
	return a.PromptID == job.Prompt.ID && slices.EqualFunc(a.Generations, job.Samplings,
		func(g data.Generation, s data.Sampling) bool { return g.Sampling == s })
}

// encode returns the frames of a unit and the indices of the jobs in it. A job
// that cannot be sent gets its answer at once.
func (e *Engine) encode(jobs []inference.Job, answers []inference.Answer) (frames [][]byte, sent []int) {
	e.unit++
	frames = [][]byte{nil} // the head, when it is known how many there are
	for i := range jobs {
		payload, err := message{Kind: kindJob, Unit: e.unit, Job: &jobs[i]}.encode()
		switch {
		case err != nil:
			answers[i] = errorAnswer(jobs[i], data.ErrEngine, fmt.Sprintf("the job cannot be sent to the engine: %v", err))
		case len(payload) > maxPayload:
			answers[i] = errorAnswer(jobs[i], data.ErrOverflow, fmt.Sprintf("a prompt of %d bytes fits no context", len(payload)))
		default:
			frames = append(frames, payload)
			sent = append(sent, i)
		}
	}
	head, err := message{Kind: kindUnit, Unit: e.unit, Count: len(sent)}.encode()
	if err != nil {
		panic("worker: the head of a unit has no JSON form: " + err.Error())
	}
	frames[0] = head
	return frames, sent
}

// cancel stops the unit in flight and keeps the child if it stops in time.
func (e *Engine) cancel() {
	e.child.sendMessage(message{Kind: kindCancel, Unit: e.unit})
	ctx, stop := context.WithTimeout(context.Background(), e.opts.Grace)
	defer stop()
	for {
		m, err := e.child.next(ctx, e.opts.Grace)
		if err != nil {
			e.drop()
			return
		}
		if m.Kind == kindDone && m.Unit == e.unit {
			if m.Counters != nil {
				e.current = *m.Counters
			}
			return
		}
	}
}

// Close closes the engine and ends the child. It may be called twice.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	if e.child == nil {
		return nil
	}
	defer e.drop()
	if e.child.dead() {
		return nil // it held nothing that must be written
	}
	e.child.sendMessage(message{Kind: kindClose})
	ctx, stop := context.WithTimeout(context.Background(), e.opts.Grace)
	defer stop()
	for {
		m, err := e.child.next(ctx, e.opts.Grace)
		switch {
		case err == errEnded:
			return fmt.Errorf("worker: closing the engine: %s", e.child.obituary())
		case err != nil:
			return fmt.Errorf("worker: closing the engine: the process did not end within %v and was killed", e.opts.Grace)
		case m.Kind == kindClosed:
			select {
			case <-e.child.exited:
			case <-ctx.Done():
			}
			return m.Error.err()
		}
	}
}
