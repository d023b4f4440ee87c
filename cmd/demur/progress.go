package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A meter shows how far a run has come: a bar with rate and time left on a
// terminal, one line a minute elsewhere.
type meter struct {
	mu       sync.Mutex
	w        io.Writer
	bar      *progressbar.ProgressBar
	done     int // trials, also those of an earlier start
	total    int
	began    int // trials that were there at the start
	tokens   int64
	start    time.Time
	lastLine time.Time
	now      func() time.Time
}

// newMeter begins with done of total trials. quiet shows nothing.
func newMeter(w io.Writer, done, total int, quiet bool) *meter {
	m := &meter{w: w, done: done, began: done, total: total, now: time.Now}
	m.start = m.now()
	m.lastLine = m.start
	f, isFile := w.(*os.File)
	switch {
	case quiet:
		m.w = io.Discard
	case isFile && term.IsTerminal(int(f.Fd())):
		m.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription("trials"),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(200*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
		_ = m.bar.Set(done)
	}
	return m
}

// sampled notes tokens; it is called by engines while a unit runs.
func (m *meter) sampled(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens += int64(n)
	m.show()
}

// finished notes trials that are durable.
func (m *meter) finished(trials int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += trials
	m.show()
}

func (m *meter) show() {
	now := m.now()
	if m.bar != nil {
		if s := now.Sub(m.start).Seconds(); s > 1 {
			m.bar.Describe(fmt.Sprintf("trials, %.0f tokens/s", float64(m.tokens)/s))
		}
		_ = m.bar.Set(m.done)
		return
	}
	if now.Sub(m.lastLine) < time.Minute {
		return
	}
	m.lastLine = now
	fmt.Fprintf(m.w, "demur: %s\n", m.line(now))
}

// line says trials, rate and time left.
func (m *meter) line(now time.Time) string {
	elapsed := now.Sub(m.start)
	line := fmt.Sprintf("%d of %d trials, %.0f tokens/s", m.done, m.total, float64(m.tokens)/max(elapsed.Seconds(), 1e-3))
	if fresh := m.done - m.began; fresh > 0 {
		left := time.Duration(float64(elapsed) / float64(fresh) * float64(m.total-m.done))
		line += fmt.Sprintf(", %.0f trials/min, %s left", float64(fresh)/elapsed.Minutes(), left.Round(time.Second))
	}
	return line
}

// close ends the bar and returns a line on the whole.
func (m *meter) close() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	elapsed := m.now().Sub(m.start)
	return fmt.Sprintf("%d trials in %s (%.0f trials/min, %.0f tokens/s)", m.done-m.began, elapsed.Round(time.Second),
		float64(m.done-m.began)/max(elapsed.Minutes(), 1e-6), float64(m.tokens)/max(elapsed.Seconds(), 1e-6))
}
