package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"demur/data"
	"demur/inference"
)

// Kinds of fault. A kind of data (data.ErrOverflow and its relatives) makes each
// generation of the job fail so; the others are these.
const (
	FaultError       = "error"       // Generate ends with an error
	FaultUnavailable = "unavailable" // … that is inference.ErrUnavailable
	FaultExit        = "exit"        // the process exits with status 1
	FaultPanic       = "panic"       // Go panic
	FaultSegv        = "segv"        // the process gets SIGSEGV
	FaultAbort       = "abort"       // … SIGABRT, after a line like that of a failed GGML_ASSERT
	FaultBus         = "bus"         // … SIGBUS, from a mapped file that was truncated
	FaultKill        = "kill"        // … SIGKILL, as an out-of-memory killer sends
	FaultHang        = "hang"        // blocks for ever, cancelled or not
	FaultSpin        = "spin"        // computes for ever, cancelled or not
	FaultSlow        = "slow"        // waits two seconds before the job, says nothing meanwhile
	FaultBusy        = "busy"        // … computes for two seconds
	FaultFlood       = "flood"       // writes 8 MiB to standard error, then goes on
	FaultStdout      = "stdout"      // prints to standard output, as a C library may
	FaultShort       = "short"       // leaves the job out
	FaultHuge        = "huge"        // answers of 1 MiB
	FaultUnicode     = "unicode"     // answers in many scripts, with NUL and joiners
	FaultEmpty       = "empty"       // empty answers
	FaultReasoning   = "reasoning"   // answers with a reasoning part
)

// A Fault happens at the jobs that meet all of its conditions; empty conditions
// are met.
type Fault struct {
	Kind     string `json:"kind"`
	Contains string `json:"contains,omitempty"` // a message of the prompt contains this
	Phase    string `json:"phase,omitempty"`
	Job      int    `json:"job,omitempty"`  // the n-th job since the engine was opened, from 1
	Unit     int    `json:"unit,omitempty"` // … in the n-th unit, from 1
	// Trial makes the fault strike while the n-th generation of the job is made,
	// from 1; 0 is before the first. For kinds that end or stop the process.
	Trial int `json:"trial,omitempty"`
	// Times is how often the fault happens; 0 means always. It is counted in this
	// process alone, unless the script has a Ledger.
	Times int `json:"times,omitempty"`
}

func (f Fault) meets(p data.Prompt, job, unit int) bool {
	switch {
	case f.Contains != "" && !mentions(p, f.Contains),
		f.Phase != "" && f.Phase != string(p.Phase),
		f.Job != 0 && f.Job != job,
		f.Unit != 0 && f.Unit != unit:
		return false
	}
	return true
}

// due returns the faults that happen at this job, and counts them.
func (e *Scripted) due(p data.Prompt) ([]Fault, error) {
	var due []Fault
	for i, f := range e.script.Faults {
		if !f.meets(p, e.jobs, e.units) {
			continue
		}
		if f.Times > 0 {
			n, err := e.count(i)
			if err != nil {
				return nil, err
			}
			if n > f.Times {
				continue
			}
		}
		due = append(due, f)
	}
	return due, nil
}

// count adds one to the number of times that fault i was due and returns it.
// One byte is added to a file before the fault happens, for afterwards there may
// be nobody left to do it.
func (e *Scripted) count(i int) (int, error) {
	if e.script.Ledger == "" {
		e.happened[i]++
		return e.happened[i], nil
	}
	name := filepath.Join(e.script.Ledger, fmt.Sprintf("fault-%d", i))
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	if _, err := file.Write([]byte{'.'}); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return int(info.Size()), file.Close()
}

// strike does what a fault of the process does. It returns for kinds that leave
// the process going.
func strike(f Fault) error {
	switch f.Kind {
	case FaultError:
		return fmt.Errorf("scripted engine: decode returned -3")
	case FaultUnavailable:
		return fmt.Errorf("scripted engine: the device is gone: %w", inference.ErrUnavailable)
	case FaultExit:
		fmt.Fprintln(os.Stderr, "scripted engine: exit")
		os.Exit(1)
	case FaultPanic:
		panic("enginetest: scripted panic")
	case FaultAbort:
		fmt.Fprintln(os.Stderr, "scripted.c:42: GGML_ASSERT(n_tokens <= n_batch) failed")
		signalSelf(f.Kind)
	case FaultBus:
		readTruncated()
	case FaultSegv, FaultKill:
		signalSelf(f.Kind)
	case FaultHang:
		time.Sleep(1<<63 - 1) // select {} would be a deadlock to the runtime
	case FaultSpin:
		for spin := uint64(0); ; spin = mix(spin, 1) {
			if spin == 1 { // never in practice; keeps the loop from being empty
				return nil
			}
		}
	case FaultBusy:
		for end, spin := time.Now().Add(2*time.Second), uint64(0); time.Now().Before(end); {
			spin = mix(spin, 1)
		}
	case FaultFlood:
		line := strings.Repeat("scripted engine: a line of noise \x1b[31m\a\n", 1024)
		for range 8 << 20 / len(line) {
			fmt.Fprint(os.Stderr, line)
		}
	case FaultStdout:
		fmt.Fprintln(os.Stdout, "llama_print: this went to standard output")
	}
	return nil
}
