package llamacpp

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// threadsFor returns how many threads the next decode uses. llama.cpp's threads
// wait for each other in spin loops, so that two of them on a core that others
// use too are several times slower than one. While other programs want the
// cores, fewer are used. That changes no bit, but for the case of longRow.
func (e *Engine) threadsFor() int {
	now, ok := runnable()
	if !ok {
		return e.o.Threads
	}
	if !e.watched {
		e.watched, e.others = true, float64(now)
	}
	e.others += (float64(now) - e.others) / 8 // what runs for a moment only does not count
	return max(1, min(e.o.Threads, runtime.NumCPU()-int(math.Round(e.others))))
}

// runnable returns the number of threads of other programs that run or wait for
// a core, on systems that tell: the fourth field of Linux's /proc/loadavg, less
// the thread that asks.
func runnable() (int, bool) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(b))
	if len(fields) < 4 {
		return 0, false
	}
	now, _, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(now)
	if err != nil {
		return 0, false
	}
	return max(0, n-1), true
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
