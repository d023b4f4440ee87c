//go:build unix

package data_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"demur/data"
)

const killUnits = 40

// killRun creates or continues a run and finishes it. Each unit that is durable
// is acknowledged on standard output, and only then.
func killRun(dir string) error {
	r, err := data.Resume(dir, manifest())
	if errors.Is(err, fs.ErrNotExist) {
		r, err = data.Create(dir, manifest(), requests(killUnits))
	}
	if err != nil {
		return err
	}
	for i := range killUnits {
		u := unit(fmt.Sprint("r", i+1), 1)
		if r.Done(u.ID) {
			continue
		}
		if err := r.Commit(u); err != nil {
			return err
		}
		fmt.Println("ack", u.ID)
	}
	if err := r.Compact(); err != nil {
		return err
	}
	if err := r.Finish(now); err != nil {
		return err
	}
	return r.Close()
}

// TestKillChild is the process that TestKill starts and kills.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("DEMUR_TEST_KILL_DIR")
	if dir == "" {
		t.Skip("only a process started by TestKill does this")
	}
	if err := killRun(dir); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKill kills the process that makes a run at random moments and continues
// it (P1, P3): what was acknowledged is there, the tables are those of a run
// that nobody killed. DEMUR_TEST_LONG kills 200 times.
func TestKill(t *testing.T) {
	kills := 20
	if os.Getenv("DEMUR_TEST_LONG") != "" {
		kills = 200
	}
	whole := filepath.Join(t.TempDir(), "whole")
	start := time.Now()
	if out, err := child(t, whole).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	takes := time.Since(start)
	want := tables(t, whole)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	killed, runs := 0, 0
	for killed < kills {
		dir := filepath.Join(t.TempDir(), "run")
		acked := map[string]bool{}
		// Five kills a run: where a process takes longer to start than to
		// work, as under the race detector, one that may always be killed
		// hardly ever ends.
		for done, left := false, 5; !done; left-- {
			c := child(t, dir)
			stdout, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			if left > 0 {
				kill := time.AfterFunc(time.Duration(rng.Int64N(int64(takes))), func() { c.Process.Kill() })
				defer kill.Stop()
			}
			lines := bufio.NewScanner(stdout)
			for lines.Scan() {
				id, ok := strings.CutPrefix(lines.Text(), "ack ")
				if ok && acked[id] {
					t.Errorf("%s was done twice", id)
				}
				if ok {
					acked[id] = true
				}
				if strings.HasPrefix(lines.Text(), "error") {
					t.Errorf("continuing after %d kills: %s", killed, lines.Text())
				}
			}
			err = c.Wait()
			switch {
			case err == nil:
				done = true
			case c.ProcessState.ExitCode() == -1:
				killed++
			default:
				t.Fatalf("the process failed: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
				r, err := data.Reopen(dir)
				must(t, err)
				for id := range acked {
					if !r.Done(id) {
						t.Errorf("%s was acknowledged and is lost", id)
					}
				}
				must(t, r.Close())
			}
			if t.Failed() {
				return
			}
		}
		runs++
		if !reflect.DeepEqual(tables(t, dir), want) {
			t.Fatal("the tables differ from those of a run that nobody killed")
		}
	}
	t.Logf("%d kills in %d runs, each run alone takes %v", killed, runs, takes.Round(time.Millisecond))
}

func child(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self, "-test.run=^TestKillChild$")
	c.Env = append(os.Environ(), "DEMUR_TEST_KILL_DIR="+dir)
	return c
}
