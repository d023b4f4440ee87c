package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// pools are the threads that compute the graphs of an engine's contexts. Without
// them llama.cpp makes new ones for each graph, and for each piece of one between
// two looks of a tap: on two cores, at 30 looks a graph, looking cost a fifth of the
// time of evaluating prompts with those and a twelfth with these. They are made when
// first needed; 0 before, and where a library has none.
type pools struct{ generate, view llama.Threadpool }

// How long threads wait for more work before they sleep, in ggml's measure from 0
// to 100. Between two decodes tokens are drawn on all cores, where a waiting thread
// would be in the way; the pieces of a graph that is looked at follow one another.
const (
	generatePoll = 1
	viewPoll     = 50
)

// attach gives a context its threads.
func (p *pools) attach(ctx llama.Context, threads int, views bool) error {
	pool, poll := &p.generate, uint32(generatePoll)
	if views {
		pool, poll = &p.view, viewPoll
	}
	if *pool == 0 {
		o := llama.ThreadpoolParamsDefault(int32(threads))
		o.Poll = poll
		made, err := llama.ThreadpoolNew(&o)
		if errors.Is(err, llama.ErrNoThreadpool) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("make %d threads: %w", threads, err)
		}
		*pool = made
	}
	llama.AttachThreadpool(ctx, uintptr(*pool), uintptr(*pool))
	return nil
}

// free is called when the contexts are gone.
func (p *pools) free() {
	llama.ThreadpoolFree(p.generate)
	llama.ThreadpoolFree(p.view)
	*p = pools{}
}

// threadsFor returns how many threads the next decode uses. llama.cpp's threads
// wait for each other in spin loops, so that two of them on a core that others
// use too are several times slower than one. While other programs want the
// cores, fewer are used. That changes no bit, but for the case of longRow.
func (e *Engine) threadsFor() int {
	if cores, ok := e.cores.free(); ok {
		return max(1, min(e.o.Threads, int(math.Round(cores))))
	}
	return e.o.Threads
}

// coreWindow is over how long the use of the cores is averaged. The system counts
// in hundredths of a second, and what runs for a moment only does not count.
const coreWindow = 300 * time.Millisecond

// coreUse follows how many cores this process can have: those that it uses and
// those that nobody does. How many threads are runnable at one moment would not
// tell, for a thread of the last decode may still be spinning.
type coreUse struct {
	since     time.Time
	idle, own int64 // hundredths of a second, at since
	cores     float64
	known     bool
}

// free returns the number of cores over the last whole window, on systems that
// tell.
func (c *coreUse) free() (float64, bool) {
	now := time.Now()
	if span := now.Sub(c.since); span >= coreWindow {
		idle, ok1 := ticks("/proc/stat", 4, 5)
		own, ok2 := ticks("/proc/self/stat", 13, 14)
		if !ok1 || !ok2 {
			return 0, false
		}
		// After a pause the mean would be one over what was before it.
		if !c.since.IsZero() && span < 10*coreWindow {
			c.cores, c.known = float64(idle-c.idle+own-c.own)/100/span.Seconds(), true
		}
		c.since, c.idle, c.own = now, idle, own
	}
	return c.cores, c.known
}

// ticks returns the sum of some fields of the first line of a file of Linux's
// /proc that counts hundredths of a second: of /proc/stat time without work and
// waiting for a disk, of /proc/self/stat the process's time outside and inside
// the kernel (proc(5); fields from 0). A program's name may hold blanks and stands
// in parentheses.
func ticks(file string, fields ...int) (sum int64, ok bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')'); 0 <= open && open < end {
		line = line[:open] + "name" + line[end+1:]
	}
	all := strings.Fields(line)
	for _, f := range fields {
		if f >= len(all) {
			return 0, false
		}
		n, err := strconv.ParseInt(all[f], 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

// longRow is the number of cells from which on the attention kernel of the CPU
// cuts the cells of a single token into as many parts as there are threads
// (llama.cpp v0.5.0, ggml/src/ggml-cpu/ops.cpp,
// ggml_compute_forward_flash_attn_ext_f16: neq1 == 1 and nek1 >= 512). The sum
// over the parts then depends on their number, so that where it may happen the
// threads of the plan are used.
const longRow = 512

// setThreads chooses the threads of the next decode. cells is how many the
// longest stream uses then; single says that a token may be computed alone.
func (e *Engine) setThreads(a *arena, threads, cells int, single bool) {
	if single && cells > longRow-cellPad {
		threads = e.o.Threads // llama.cpp rounds the cells up
	}
	if a.threads != threads {
		a.threads = threads
		llama.SetNThreads(a.ctx, int32(threads), int32(threads))
	}
}
