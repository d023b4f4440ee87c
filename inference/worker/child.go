package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// reapTime is how long a child that has closed its end may take to exit, and its
// last words to arrive.
const reapTime = 2 * time.Second

// A child is one process of the engine. Its owner reads frames; when they end the
// child is dead or as good as dead, and end says why.
type child struct {
	cmd    *exec.Cmd
	frames chan message // closed when the child can say no more
	said   error        // why frames ended
	writes chan [][]byte
	words  *tail
	gone   chan struct{} // closed when the child must not be listened to any more
	exited chan struct{} // closed when the process has been waited for
	heard  chan struct{} // closed when standard error has ended

	mu      sync.Mutex // between killing and reaping: a dead pid is another's soon
	reaped  bool
	discard sync.Once
}

// spawn starts the process.
func spawn(command Command, log io.Writer) (*child, error) {
	// Three pipes; the child's ends are closed here once it has them.
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close())
	}
	errs, childErr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close(), out.Close(), childOut.Close())
	}
	c := &child{
		cmd:    exec.Command(command.Path, command.Args...),
		frames: make(chan message, 64),
		writes: make(chan [][]byte, 8),
		words:  &tail{copy: log},
		gone:   make(chan struct{}),
		exited: make(chan struct{}),
		heard:  make(chan struct{}),
	}
	if command.Path == selfPath {
		c.cmd.Args[0] = os.Args[0] // for ps
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = childIn, childOut, childErr
	// A debugger that ggml starts for a backtrace would outlive the child.
	c.cmd.Env = append(append(os.Environ(), "GGML_NO_BACKTRACE=1"), command.Env...)
	attributes(c.cmd)

	started := make(chan error)
	go c.run(started)
	err = <-started
	childIn.Close()
	childOut.Close()
	childErr.Close()
	if err != nil {
		in.Close()
		out.Close()
		errs.Close()
		return nil, err
	}
	go c.read(out)
	go c.write(in)
	go c.listen(errs)
	return c, nil
}

// run starts the process and waits for it on one locked thread, for the kernel
// sends the parent-death signal when the thread that started the child ends, and
// Go ends threads as it likes.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	state, _ := c.cmd.Process.Wait()
	c.mu.Lock()
	c.reaped = true
	c.cmd.ProcessState = state
	c.mu.Unlock()
	close(c.exited)
}

func (c *child) read(out *os.File) {
	defer out.Close()
	defer close(c.frames)
	go c.lastCall(out)
	for {
		m, err := readMessage(out)
		if err != nil {
			c.said = err
			return
		}
		select {
		case c.frames <- m:
		case <-c.gone:
			return
		}
	}
}

// write writes what is queued. Errors are not looked at: a child that does not
// read is dead or will be found silent.
func (c *child) write(in *os.File) {
	defer in.Close()
	for {
		select {
		case batch := <-c.writes:
			for _, payload := range batch {
				if writeFrame(in, payload) != nil {
					return
				}
			}
		case <-c.exited:
			return
		case <-c.gone:
			return
		}
	}
}

func (c *child) listen(errs *os.File) {
	defer close(c.heard)
	defer errs.Close()
	go c.lastCall(errs)
	io.Copy(c.words, errs)
}

// lastCall bounds the reading of a pipe once the child is dead, for what the child
// started may hold it open.
func (c *child) lastCall(pipe *os.File) {
	<-c.exited
	pipe.SetReadDeadline(time.Now().Add(reapTime))
}

// send queues payloads. It does not wait: no more than a unit, its cancellation
// and a close are ever on their way.
func (c *child) send(payloads ...[]byte) {
	select {
	case c.writes <- payloads:
	case <-c.exited:
	}
}

func (c *child) sendMessage(m message) {
	payload, err := m.encode()
	if err != nil {
		panic("worker: a message of the parent has no JSON form: " + err.Error())
	}
	c.send(payload)
}

// kill kills the process if there still is one.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		killGroup(c.cmd)
	}
}

// bury makes sure that the process is dead, waits for it, and lets its goroutines
// end. It may be called more than once.
func (c *child) bury() {
	c.kill()
	<-c.exited
	c.discard.Do(func() { close(c.gone) })
	<-c.heard
}

// obituary says how a child whose frames have ended came to its end, and buries
// it.
func (c *child) obituary() string {
	var bad frameError
	if errors.As(c.said, &bad) {
		c.bury()
		return c.lastWords("sent " + string(bad))
	}
	how := ""
	select {
	case <-c.exited:
		how = ending(c.cmd.ProcessState)
	case <-time.After(reapTime):
		how = "closed its output and was killed"
	}
	c.bury()
	return c.lastWords(how)
}

// lastWords adds to how what the child wrote to standard error.
func (c *child) lastWords(how string) string {
	if said := c.words.said(); said != "" {
		return how + ": " + said
	}
	return how
}

// dead reports whether the frames have ended; for a child between units. Progress
// that came late belongs to no unit and is dropped.
func (c *child) dead() bool {
	for {
		select {
		case _, ok := <-c.frames:
			if !ok {
				return true
			}
		case <-c.exited:
			for range c.frames {
			}
			return true
		default:
			return false
		}
	}
}

// errSilent and errEnded are why next has no message.
var (
	errSilent = errors.New("silent")
	errEnded  = errors.New("ended")
)

// next returns the next message, or errSilent after the limit, errEnded, or the
// error of ctx.
func (c *child) next(ctx context.Context, limit time.Duration) (message, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	// A second chance after the limit: if this process was stopped for a while,
	// the clock has run and the messages are still in the pipe.
	for chance := 2; ; {
		select {
		case m, ok := <-c.frames:
			if !ok {
				return message{}, errEnded
			}
			return m, nil
		case <-ctx.Done():
			return message{}, ctx.Err()
		case <-t.C:
			if chance--; chance == 0 {
				return message{}, errSilent
			}
			t.Reset(min(limit, time.Second))
		}
	}
}

// patience is how many times the limit a silent child is given while it computes.
const patience = 4

const (
	// clockTick is the step in which the system counts a process's time.
	clockTick = 10 * time.Millisecond
	// idleTicks is what a sleeping child may use of it in a window.
	idleTicks = 2
)

// nextOfUnit is next for a child at work. Silence is not enough to call it hung:
// a long prompt of a large model on a small machine takes many minutes without a
// token. So a child that uses the processor is given patience times the limit,
// one that does not is not. Its runtime uses a little even while it sleeps, and
// the clock steps by clockTick: up to idleTicks of it are no computing.
func (c *child) nextOfUnit(ctx context.Context, limit time.Duration) (message, error) {
	for n := 1; ; n++ {
		m, err := c.next(ctx, limit)
		if err != errSilent || n == patience {
			return m, err
		}
		window := min(limit/2, 5*time.Second)
		before, known := cpuTime(c.cmd.Process.Pid)
		if m, err = c.next(ctx, window); err != errSilent {
			return m, err
		}
		if used, _ := cpuTime(c.cmd.Process.Pid); !known || used-before < max(window/100, idleTicks*clockTick) {
			return m, errSilent
		}
	}
}

// open sends the spec and waits for the engine.
func (c *child) open(ctx context.Context, spec []byte, limit time.Duration) (message, error) {
	c.sendMessage(message{Kind: kindOpen, Version: protocolVersion, Spec: spec})
	for {
		m, err := c.next(ctx, limit)
		switch {
		case err != nil:
			return m, err
		case m.Kind == kindProgress:
		case m.Kind != kindOpened || m.Version != protocolVersion || (m.Info == nil) == (m.Error == nil):
			return m, fmt.Errorf("the child answered %q, protocol %d: the program was replaced while it ran; start it again", m.Kind, m.Version)
		default:
			return m, nil
		}
	}
}

// signalled reports whether the description speaks of a process that somebody
// killed, for the hint about memory.
func signalled(how string) bool { return strings.HasPrefix(how, "killed by SIGKILL") }
