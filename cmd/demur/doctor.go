package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"demur/inference"
	"demur/inference/llamacpp"
	"demur/models"
	"demur/protocol"
)

// A finding is one thing that doctor looked at.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

func newDoctor(e *env) *cobra.Command {
	var f engineFlags
	var asJSON, printLib bool
	var model string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Is this machine ready? Library, folders, a real run of the phantom",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printLib {
				dir, err := llamacpp.FindLibrary(f.libDir())
				if err != nil {
					return err
				}
				fmt.Fprintln(e.stdout, dir)
				return nil
			}
			all := examine(cmd.Context(), e, f, model)
			bad := 0
			for _, x := range all {
				if !x.OK {
					bad++
				}
			}
			if asJSON {
				if err := json.NewEncoder(e.stdout).Encode(all); err != nil {
					return err
				}
			} else {
				for _, x := range all {
					mark := "ok  "
					if !x.OK {
						mark = "BAD "
					}
					fmt.Fprintf(e.stdout, "%s %-12s %s\n", mark, x.Name, plain(x.Detail))
					if x.Hint != "" && !x.OK {
						fmt.Fprintf(e.stdout, "     %-12s hint: %s\n", "", plain(x.Hint))
					}
				}
			}
			if bad > 0 {
				return withCode(exitUnavailable, fmt.Errorf("%d of %d checks are not well", bad, len(all)))
			}
			return nil
		},
	}
	bindEngine(c, &f)
	c.Flags().StringVarP(&model, "model", "m", models.Phantom, "model to try")
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.Flags().BoolVar(&printLib, "print-lib", false, "print the folder of the libraries that would be used, and stop")
	return c
}

// examine looks at library, cache folder and engine, in the order in which one
// needs the other.
func examine(ctx context.Context, e *env, f engineFlags, model string) []finding {
	all := []finding{{Name: "platform", OK: true, Detail: fmt.Sprintf("%s/%s, %d cores, demur %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), version)}}
	dir, err := llamacpp.FindLibrary(f.libDir())
	if err != nil {
		return append(all, finding{Name: "library", Detail: err.Error(), Hint: "run make setup, or name the folder with --lib or DEMUR_LIB"})
	}
	all = append(all, finding{Name: "library", OK: true, Detail: dir})
	if cache, err := os.UserCacheDir(); err != nil {
		all = append(all, finding{Name: "cache", Detail: err.Error(), Hint: "set HOME or XDG_CACHE_HOME"})
	} else {
		all = append(all, finding{Name: "cache", OK: true, Detail: cache})
	}
	plan := protocol.DefaultPlan()
	plan.Model = model
	spec, err := specOf(ctx, e, &plan, f)
	if err != nil {
		return append(all, finding{Name: "model", Detail: err.Error()})
	}
	all = append(all, finding{Name: "model", OK: true, Detail: spec.Name})
	began := time.Now()
	engine, err := startEngine(ctx, spec, nil)
	if err != nil {
		return append(all, finding{Name: "engine", Detail: err.Error()})
	}
	defer engine.Close()
	info := engine.Info()
	all = append(all, finding{Name: "engine", OK: true, Detail: fmt.Sprintf("%s %s on %s, opened in %s", info.Engine, info.Version, info.Device, time.Since(began).Round(time.Millisecond))})
	result, err := inference.Check(ctx, engine)
	if err != nil {
		return append(all, finding{Name: "self-test", Detail: err.Error()})
	}
	sound := result.Repeats && result.Isolated && result.GreedyFixed
	detail := "same unit, same bytes; no trace of other prompts"
	if !sound {
		detail = result.Detail
	}
	return append(all, finding{Name: "self-test", OK: sound || !info.Reproducible, Detail: detail})
}
