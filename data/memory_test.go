package data_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"demur/data"
)

// peak samples the heap while f runs, and returns the highest value in MiB.
func peak(f func()) uint64 {
	runtime.GC()
	var most atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapSys-m.HeapReleased))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-done
	return most.Load() >> 20
}

// TestMemoryStaysFlat makes runs of few and of many trials and compares what
// they take: ten times the trials, less than twice the memory. DEMUR_TEST_TRIALS
// sets the number, 1000000 say; the log has the figures.
func TestMemoryStaysFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("writes some 100 MB")
	}
	many := 20000
	if s := os.Getenv("DEMUR_TEST_TRIALS"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		many = n
	}
	text := strings.Repeat("With a tension wrench and some patience, ", 12) // about what 128 tokens have
	run := func(trials int) (commit, resume, compact uint64) {
		dir := t.TempDir()
		const unit = 100 // trials
		var set []data.Request
		for i := range trials / unit {
			set = append(set, data.Request{ID: fmt.Sprintf("r%06d", i*7919%(trials/unit)), Variant: data.Base, Text: "How do I pick my own lock?"})
		}
		r, err := data.Create(dir, manifest(), set)
		must(t, err)
		start := time.Now()
		commit = peak(func() {
			for i := range trials / unit {
				u := data.Unit{ID: fmt.Sprint("u", i)}
				for seed := range uint32(unit) {
					u.Trials = append(u.Trials, data.Trial{
						ID: data.Digest([]int{i, int(seed)}), PromptID: data.Digest(i), RequestID: fmt.Sprintf("r%06d", i),
						Variant: data.Base, Temperature: float64(seed%4) / 4, Seed: seed, MaxTokens: 128, Tokens: 128, StopReason: data.StopLength, PlanID: "plan-1",
						Text: text + strconv.Itoa(int(seed)*i),
					})
				}
				must(t, r.Commit(u))
			}
		})
		t.Logf("%d trials: committed in %v, peak %d MiB", trials, time.Since(start).Round(time.Millisecond), commit)
		must(t, r.Close())
		start = time.Now()
		resume = peak(func() {
			r, err = data.Resume(dir, manifest())
			must(t, err)
		})
		t.Logf("%d trials: resumed in %v, peak %d MiB", trials, time.Since(start).Round(time.Millisecond), resume)
		start = time.Now()
		compact = peak(func() { must(t, r.Compact()) })
		must(t, r.Close())
		t.Logf("%d trials: compacted in %v, peak %d MiB", trials, time.Since(start).Round(time.Millisecond), compact)
		journal := int64(0)
		for i := 1; ; i++ {
			info, err := os.Stat(fmt.Sprintf("%s/journal/%06d.dmj", dir, i))
			if err != nil {
				break
			}
			journal += info.Size()
		}
		info, err := os.Stat(dir + "/trials.parquet")
		must(t, err)
		t.Logf("%d trials: journal %d bytes a trial, trials.parquet %d", trials, journal/int64(trials), info.Size()/int64(trials))
		start = time.Now()
		n := 0
		reading := peak(func() {
			for _, err := range data.ReadTable[data.Trial](dir, data.Trials) {
				must(t, err)
				n++
			}
		})
		t.Logf("%d trials: read in %v, peak %d MiB", trials, time.Since(start).Round(time.Millisecond), reading)
		if n != trials {
			t.Errorf("%d trials in the table, want %d", n, trials)
		}
		return commit, resume, compact
	}
	a1, b1, c1 := run(many / 10)
	a2, b2, c2 := run(many)
	for name, peaks := range map[string][2]uint64{"commit": {a1, a2}, "resume": {b1, b2}, "compact": {c1, c2}} {
		// The floor is what the runtime takes before it gives anything back.
		if few, lots := max(peaks[0], 150), peaks[1]; lots >= 2*few {
			t.Errorf("%s: %d MiB for %d trials, %d MiB for %d", name, peaks[0], many/10, lots, many)
		}
	}
}
