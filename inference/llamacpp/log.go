package llamacpp

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A ring keeps llama.cpp's last words, so that they can stand in an error.
type ring struct {
	mu   sync.Mutex
	kept []logLine
}

type logLine struct {
	level int32
	text  string
}

const (
	ringLines = 256
	lineBytes = 4096

	levelWarn     = 3
	levelError    = 4
	levelContinue = 5
)

// callback returns a C function that writes into the ring. Such functions are
// never freed, so it is called once in a process. It may run on any thread and
// must not panic, for a panic cannot cross C frames.
func (r *ring) callback() uintptr {
	return purego.NewCallback(func(level int32, text, _ uintptr) uintptr {
		r.add(level, goString(text))
		return 0
	})
}

func (r *ring) add(level int32, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if level == levelContinue && len(r.kept) > 0 {
		if last := &r.kept[len(r.kept)-1]; len(last.text) < lineBytes {
			last.text += text
		}
		return
	}
	if len(r.kept) == ringLines {
		copy(r.kept, r.kept[1:])
		r.kept = r.kept[:ringLines-1]
	}
	r.kept = append(r.kept, logLine{level, text})
}

// lines returns what is kept, oldest first.
func (r *ring) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, l := range r.kept {
		out = append(out, strings.TrimRight(l.text, "\r\n"))
	}
	return out
}

// clear forgets what was said, so that the next error shows what belongs to it.
func (r *ring) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = r.kept[:0]
}

// said returns the last warnings and errors as the end of an error's text.
func (r *ring) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var words []string
	for _, l := range r.kept {
		if l.level == levelWarn || l.level == levelError {
			words = append(words, strings.Join(strings.Fields(l.text), " "))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " (llama.cpp: " + strings.Join(words[max(0, len(words)-4):], "; ") + ")"
}

// goString copies a C string of bounded length.
func goString(p uintptr) string {
	if p == 0 {
		return ""
	}
	// p is C memory, which the garbage collector does not move.
	b := *(**byte)(unsafe.Pointer(&p))
	n := 0
	for n < lineBytes && *(*byte)(unsafe.Add(unsafe.Pointer(b), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(b, n))
}
