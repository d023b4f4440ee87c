package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"demur/data"
	"demur/inference/llamacpp"
)

// TestProbeScripts runs the commands that look into a model, on the phantom.
func TestProbeScripts(t *testing.T) {
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/probes",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			cache, err := os.UserCacheDir()
			if err != nil {
				return err
			}
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("DEMUR_LIB", os.Getenv("DEMUR_LIB"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": wantCode},
	})
}

// TestLayersMemory writes the states of many prompts, as extract does, and looks
// at the heap on the way: it is bounded whatever their number. The log has the
// figure.
func TestLayersMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 400 MB")
	}
	const layers, width, prompts = 30, 576, 6000
	values := make([]float32, width)
	r := rand.New(rand.NewPCG(1, 0))
	var most uint64
	dir := t.TempDir()
	err := writeLayers(dir, data.LayerOptions{Group: layersMemory / layers}, func(yield func(data.Activation, error) bool) {
		for i := range prompts {
			if i%100 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
			for l := range layers {
				row := data.Activation{PromptID: data.Digest(i), Layer: l, Anchor: "post", Position: -1, Values: append([]float32(nil), values...)}
				row.Values[r.IntN(width)] = r.Float32()
				if !yield(row, nil) {
					return
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MB of states, %d MB of heap at most", prompts*layers*width*4>>20, most>>20)
	if most > 5*layersMemory {
		t.Errorf("%d MB of heap for tables that keep %d MB in memory", most>>20, layersMemory>>20)
	}
	for l := range layers {
		n := 0
		for _, err := range data.ReadTable[data.Activation](dir, data.LayerTable(l)) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != prompts {
			t.Fatalf("layer %d has %d rows", l, n)
		}
	}
}

// An error of the rows, or of one table, ends the writing and leaves no table.
func TestLayersEndWithTheFirstError(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("engine gone")
	row := func(layer int) data.Activation {
		return data.Activation{PromptID: "p", Layer: layer, Anchor: "post", Values: []float32{1}}
	}
	err := writeLayers(dir, data.LayerOptions{}, func(yield func(data.Activation, error) bool) {
		_ = yield(row(0), nil) && yield(row(1), nil) && yield(data.Activation{}, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	given := 0
	err = writeLayers(dir, data.LayerOptions{Half: true}, func(yield func(data.Activation, error) bool) {
		for given < 1e6 {
			x := row(given % 3)
			x.Values[0] = 1e6 // more than float16 holds
			if given++; !yield(x, nil) {
				return
			}
		}
	})
	if err == nil || given > 1e5 {
		t.Errorf("after %d rows: %v", given, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "activations", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "activations", ".*.tmp")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
