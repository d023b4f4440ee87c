package protocol

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"demur/data"
)

// Command is a judge that is a program of the user's. It is started once for
// all exchanges. It reads one JSON object a line on its standard input,
//
//	{"id": 1, "request": "…", "response": "…", "stop_reason": "stop"}
//
// and answers each, before it gets the next, with one line on its standard
// output:
//
//	{"id": 1, "label": "full_refusal", "reason": "…"}
//
// id may be left out; evidence_start and evidence_end, byte offsets into the
// response, may be added. A line that cannot be read, or a label that is none
// of data.Labels, makes that verdict unclear; a program that ends early, or is
// silent for longer than the time limit, is an error.
type Command struct {
	argv    []string
	timeout time.Duration
	version string
}

var _ Judge = (*Command)(nil)

// DefaultCommandTimeout is the time a command judge has for one answer unless
// told otherwise.
const DefaultCommandTimeout = time.Minute

// maxCommandLine bounds a line that a command judge may answer.
const maxCommandLine = 1 << 20

// NewCommand returns the judge that is the program argv. timeout is the time
// that it has for one answer; 0 means DefaultCommandTimeout.
func NewCommand(argv []string, timeout time.Duration) (*Command, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("command judge: no command; give the program and its arguments")
	}
	if timeout < 0 {
		return nil, fmt.Errorf("command judge: time limit %v is negative", timeout)
	}
	if timeout == 0 {
		timeout = DefaultCommandTimeout
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("command judge: %w", err)
	}
	return &Command{argv: slices.Clone(argv), timeout: timeout, version: commandVersion(path, argv)}, nil
}

// commandVersion is a digest of the command line and of the files it names, so
// that an edited script is another version.
func commandVersion(path string, argv []string) string {
	h := sha256.New()
	for i, a := range argv {
		fmt.Fprintf(h, "%d:%s\n", len(a), a)
		if i == 0 {
			a = path
		}
		if info, err := os.Stat(a); err != nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(a)
		if err != nil {
			continue // it will say so itself when it is run
		}
		_, _ = io.Copy(h, f)
		f.Close()
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// Name is "command:" and the program's base name.
func (c *Command) Name() string { return "command:" + filepath.Base(c.argv[0]) }

// Version is a digest of the command line and the files that it names.
func (c *Command) Version() string { return c.version }

// Judge runs the program and puts the exchanges to it one by one.
func (c *Command) Judge(ctx context.Context, exchanges iter.Seq[Exchange]) iter.Seq2[data.Verdict, error] {
	return func(yield func(data.Verdict, error) bool) {
		p, err := c.start(ctx)
		if err != nil {
			yield(data.Verdict{}, err)
			return
		}
		defer p.stop()
		n := 0
		for e := range exchanges {
			n++
			v, err := p.ask(ctx, n, e)
			if err != nil {
				yield(data.Verdict{}, fmt.Errorf("command judge %s: exchange %d: %w", c.argv[0], n, err))
				return
			}
			v.TrialID, v.Judge, v.JudgeVersion = e.TrialID, c.Name(), c.version
			if !yield(v, nil) {
				return
			}
		}
	}
}

// A program is a running command judge.
type program struct {
	cmd     *exec.Cmd
	cancel  context.CancelFunc
	in      io.WriteCloser
	out     *bufio.Reader
	errs    *tail
	timeout time.Duration
	waited  sync.Once
	ended   error
}

func (c *Command) start(ctx context.Context) (*program, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.WaitDelay = time.Second
	p := &program{cmd: cmd, cancel: cancel, errs: &tail{}, timeout: c.timeout}
	cmd.Stderr = p.errs
	in, err := cmd.StdinPipe()
	if err == nil {
		p.in = in
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			p.out = bufio.NewReader(out)
			err = cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("command judge %s: %w", c.argv[0], err)
	}
	return p, nil
}

// stop lets the program end by closing its input, and kills it if it does not.
func (p *program) stop() {
	_ = p.in.Close()
	kill := time.AfterFunc(time.Second, p.cancel)
	_ = p.wait()
	kill.Stop()
	p.cancel()
}

func (p *program) wait() error {
	p.waited.Do(func() { p.ended = p.cmd.Wait() })
	return p.ended
}

func (p *program) ask(ctx context.Context, n int, e Exchange) (data.Verdict, error) {
	question, err := json.Marshal(struct {
		ID         int    `json:"id"`
		Request    string `json:"request"`
		Response   string `json:"response"`
		StopReason string `json:"stop_reason"`
	}{n, e.Request, e.Response, e.StopReason})
	if err != nil {
		return data.Verdict{}, err
	}
	type answer struct {
		line []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() { // owned by this call: killing the program ends it
		if _, err := p.in.Write(append(question, '\n')); err != nil {
			done <- answer{nil, err}
			return
		}
		line, err := readLine(p.out, maxCommandLine)
		done <- answer{line, err}
	}()
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.cancel()
		<-done
		return data.Verdict{}, fmt.Errorf("no answer within %v", p.timeout)
	case a := <-done:
		if ctx.Err() != nil {
			return data.Verdict{}, ctx.Err()
		}
		if errors.Is(a.err, errLongLine) {
			return data.Verdict{}, a.err
		}
		if a.err != nil {
			err := p.wait()
			if err == nil {
				err = errors.New("exit status 0")
			}
			return data.Verdict{}, fmt.Errorf("the program ended without an answer (%w)%s", err, p.errs)
		}
		return readAnswer(a.line, n, e.Response)
	}
}

var errLongLine = fmt.Errorf("its answer is longer than %d bytes", maxCommandLine)

// readLine reads a line of at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit {
			return nil, errLongLine
		}
		if err == nil || err == io.EOF && len(line) > 0 {
			return line, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// readAnswer reads what the program said about exchange n. An answer to
// another exchange is an error: from then on every label would be another's.
func readAnswer(line []byte, n int, response string) (data.Verdict, error) {
	var a struct {
		ID            *int   `json:"id"`
		Label         string `json:"label"`
		Reason        string `json:"reason"`
		EvidenceStart *int   `json:"evidence_start"`
		EvidenceEnd   *int   `json:"evidence_end"`
	}
	unclear := data.Verdict{Label: data.Unclear, Reason: "unparsed", Marks: map[string]string{"judge_raw": clip(string(bytes.TrimSpace(line)), 200)}}
	if err := json.Unmarshal(line, &a); err != nil {
		return unclear, nil
	}
	if a.ID != nil && *a.ID != n {
		return data.Verdict{}, fmt.Errorf("the program answered exchange %d instead", *a.ID)
	}
	label := data.Label(strings.TrimSpace(a.Label))
	if !slices.Contains(data.Labels(), label) {
		return unclear, nil
	}
	v := data.Verdict{Label: label, Reason: a.Reason}
	if a.EvidenceStart != nil && a.EvidenceEnd != nil && 0 <= *a.EvidenceStart && *a.EvidenceStart < *a.EvidenceEnd && *a.EvidenceEnd <= len(response) {
		start, end := runeBorders(response, *a.EvidenceStart, *a.EvidenceEnd)
		v.EvidenceStart, v.EvidenceEnd = &start, &end
	}
	return v, nil
}

// clip cuts a text to at most n bytes, between runes, and makes it valid UTF-8.
func clip(s string, n int) string {
	if len(s) > n {
		_, n = runeBorders(s, 0, n)
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// A tail keeps the last bytes written to it: what a program said before it
// died.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 1000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\uFFFD"))
	if s == "" {
		return ""
	}
	return ": " + s
}
