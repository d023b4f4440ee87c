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
	unit     int64   // tokens since the last finished unit
	perTrial float64 // tokens a trial takes: at first its limit, then the mean so far
	start    time.Time
	lastLine time.Time
	now      func() time.Time
}

// newMeter begins with done of total trials, of at most that many tokens each.
// quiet shows nothing.
func newMeter(w io.Writer, done, total, maxTokens int, quiet bool) *meter {
	m := &meter{w: w, done: done, began: done, total: total, perTrial: float64(maxTokens), now: time.Now}
	m.start = m.now()
	// The first line comes soon, the next ones by the minute.
	m.lastLine = m.start.Add(-50 * time.Second)
	f, isFile := w.(*os.File)
	switch {
	case quiet:
		m.w = io.Discard
	case isFile && term.IsTerminal(int(f.Fd())):
		m.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription("trials"),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false),
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
	m.unit += int64(n)
	m.show()
}

// finished notes trials that are durable.
func (m *meter) finished(trials int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += trials
	m.unit = 0
	if fresh := m.done - m.began; fresh > 0 && m.tokens > 0 {
		m.perTrial = float64(m.tokens) / float64(fresh)
	}
	m.show()
}

// reached is how many trials are done, those of the unit in flight by its tokens:
// answers of a unit come together at its end.
func (m *meter) reached() float64 {
	return min(float64(m.done)+float64(m.unit)/max(m.perTrial, 1), float64(m.total))
}

func (m *meter) show() {
	now := m.now()
	if m.bar != nil {
		m.bar.Describe(m.rates(now))
		_ = m.bar.Set(int(m.reached()))
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
	return fmt.Sprintf("about %.0f of %d trials, %s", m.reached(), m.total, m.rates(now))
}

// rates says the speed and, once there is something to tell it by, the time left.
func (m *meter) rates(now time.Time) string {
	elapsed := now.Sub(m.start)
	if elapsed < time.Second {
		return "starting"
	}
	line := fmt.Sprintf("%.0f tokens/s", float64(m.tokens)/elapsed.Seconds())
	if fresh := m.reached() - float64(m.began); fresh > 0 && elapsed > 5*time.Second {
		left := time.Duration(float64(elapsed) / fresh * (float64(m.total) - m.reached()))
		line += fmt.Sprintf(", %.0f trials/min, about %s left", fresh/elapsed.Minutes(), roughly(left))
	}
	return line
}

// roughly rounds a time as one would say it.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds())+1)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes())+1)
	}
	return fmt.Sprintf("%.1f h", d.Hours())
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
