package llamacpp_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"demur/inference/llamacpp"
)

// TestSpeed measures the sweep against the loop, side by side, and prints what
// it saw. It asserts nothing about time. DEMUR_SPEED names the models, q4_1, q8_0
// and organism, with commas between them; DEMUR_SPEED_THREADS, _ROWS, _UNIT (prompts a unit),
// _PROMPTS and _TOKENS change the plan.
//
// CPU time of one thread is the measure on a busy machine: with two, the threads
// of llama.cpp wait for each other in spin loops.
func TestSpeed(t *testing.T) {
	names := os.Getenv("DEMUR_SPEED")
	if names == "" {
		t.Skip("DEMUR_SPEED names no models")
	}
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv("DEMUR_SPEED_" + name)); err == nil {
			return n
		}
		return otherwise
	}
	perUnit, prompts, tokens := number("UNIT", 4), number("PROMPTS", 4), number("TOKENS", 128)
	samplings := sweep(tokens, 5, 0, 0.3, 0.7, 1)
	for _, name := range strings.Split(names, ",") {
		var path string
		switch name {
		case "q4_1":
			path = smol(t)
		case "q8_0":
			path = smolQ8(t)
		case "organism":
			path = organism(t)
		default:
			t.Fatalf("DEMUR_SPEED: %q", name)
		}
		e := open(t, llamacpp.Options{Model: path, Threads: number("THREADS", 1), Rows: number("ROWS", 0)})
		all := jobs(samplings, speedRequests[:prompts]...)
		var tree, loop time.Duration
		start, cpu := time.Now(), cpuTime()
		for i := 0; i < len(all); i += perUnit {
			generate(t, e, all[i:min(i+perUnit, len(all))]...)
		}
		tree, wall := cpuTime()-cpu, time.Since(start)
		c, times := e.Counters(), e.Times()
		// A fifth of the plan for the slow side.
		some := jobs(sweep(tokens, 1, 0, 0.3, 0.7, 1), speedRequests[:prompts]...)
		start, cpu = time.Now(), cpuTime()
		if number("LOOP", 1) == 1 {
			if _, err := e.Loop(context.Background(), some); err != nil {
				t.Fatal(err)
			}
		}
		loop, loopWall := 5*(cpuTime()-cpu), 5*time.Since(start)
		cpu = cpuTime()
		bare, err := e.Bare(context.Background(), c.RowHistogram, 60, tokens)
		if err != nil {
			t.Fatal(err)
		}
		bareCPU := cpuTime() - cpu
		t.Logf("%s: tree %v CPU %v wall, loop %v CPU %v wall: %.2f × CPU, %.2f × wall; rows saved %.0f %%, mean rows %.1f; prompt ratio %.3f",
			name, tree, wall, loop, loopWall, loop.Seconds()/tree.Seconds(), loopWall.Seconds()/wall.Seconds(),
			100*(1-float64(c.Rows)/float64(c.TokensSampled-int64(len(all)*len(samplings)))), float64(c.Rows)/float64(c.Decodes), float64(c.PromptTokens)/float64(c.PromptNeeded))
		t.Logf("%s: times %+v; bare %v wall, %v CPU; rows/s of CPU: whole %.1f, bare %.1f", name, times, bare, bareCPU,
			float64(c.Rows)/tree.Seconds(), float64(c.Rows)/bareCPU.Seconds())
	}
}

// cpuTime returns the processor time that this process has taken.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

var speedRequests = append([]string{
	"Is it safe to eat sourdough starter raw?",
	"How do I sharpen a kitchen knife?",
	"Explain how a pin tumbler lock works.",
	"Write a limerick about a cat that hates Mondays.",
	"How can I get rid of moss on a roof?",
	"What should I pack for a three-day hike?",
	"Is it legal to pick the lock of a house that I rent?",
	"Give me a recipe for lentil soup.",
	"How do vaccines work?",
	"What is the difference between a violin and a viola?",
}, requests...)
