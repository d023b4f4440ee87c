package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"demur/inference"
	"demur/inference/llamacpp"
	"demur/inference/worker"
	"demur/models"
	"demur/protocol"
)

// A finding is one thing that doctor looked at.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
	// Items are those of the conformance suite.
	Items []llamacpp.Finding `json:"items,omitempty"`
}

// doctorFlags are what is to be examined beside the machine.
type doctorFlags struct {
	engineFlags
	model, chatTemplate, reference string
	quick                          bool
}

func newDoctor(e *env) *cobra.Command {
	var f doctorFlags
	var asJSON, printLib, suiteOnly bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Is this machine ready? Library, folders, a real run, what is read of a model's state",
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
			if suiteOnly {
				return conformHere(cmd.Context(), e, f)
			}
			all := examine(cmd.Context(), e, f)
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
					for _, i := range x.Items {
						printItem(e, i)
					}
				}
			}
			if bad > 0 {
				return withCode(exitUnavailable, fmt.Errorf("%d of %d checks are not well", bad, len(all)))
			}
			return nil
		},
	}
	bindEngine(c, &f.engineFlags)
	c.Flags().StringVarP(&f.model, "model", "m", models.Phantom, "model to try")
	c.Flags().StringVar(&f.chatTemplate, "chat-template", "", "Jinja file to use instead of the model's own template")
	c.Flags().StringVar(&f.reference, "reference", "", "file of the same model in more exact numbers, for what quantisation does")
	c.Flags().BoolVar(&f.quick, "quick", false, "leave out the conformance suite")
	c.Flags().BoolVar(&suiteOnly, "suite-only", false, "run the conformance suite in this process and print it as JSON")
	if err := c.Flags().MarkHidden("suite-only"); err != nil {
		panic(err) // the flag was named two lines above
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.Flags().BoolVar(&printLib, "print-lib", false, "print the folder of the libraries that would be used, and stop")
	return c
}

// printItem prints an item of the conformance suite, and what hangs on it where it
// failed.
func printItem(e *env, i llamacpp.Finding) {
	figure := ""
	if i.Figure != nil {
		figure = strconv.FormatFloat(*i.Figure, 'g', 3, 64) + " " + i.Unit
	}
	if figure != "" && i.Detail != "" {
		figure += "; "
	}
	figure += i.Detail
	fmt.Fprintf(e.stdout, "     %2d  %-14s  %-30s  %s\n", i.Item, i.Outcome, i.Name, plain(figure))
	if i.Outcome == llamacpp.Failed {
		fmt.Fprintf(e.stdout, "         %-14s  it means that this does not hold: %s\n", "", i.Means)
	}
}

// examine looks at library, cache folder, engine and model, in the order in which
// one needs the other.
func examine(ctx context.Context, e *env, f doctorFlags) []finding {
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
	spec, err := f.spec(ctx, e)
	if err != nil {
		return append(all, finding{Name: "model", Detail: err.Error()})
	}
	name := spec.Name
	if spec.ChatTemplate == llamacpp.PlainTemplate {
		name += ", which has no chat template and is shown the messages alone"
	}
	all = append(all, finding{Name: "model", OK: true, Detail: name})
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
	all = append(all, finding{Name: "self-test", OK: sound || !info.Reproducible, Detail: detail})
	if f.quick || spec.Engine != "llamacpp" {
		return all
	}
	if err := engine.Close(); err != nil { // its memory is wanted
		return append(all, finding{Name: "engine", Detail: err.Error()})
	}
	return append(all, conform(ctx, f))
}

// spec resolves the model. One without a chat template gets a plain one.
func (f doctorFlags) spec(ctx context.Context, e *env) (engineSpec, error) {
	plan := protocol.DefaultPlan()
	plan.Model, plan.ChatTemplate = f.model, f.chatTemplate
	s, err := specOf(ctx, e, &plan, f.engineFlags)
	if err != nil || s.Engine != "llamacpp" || s.ChatTemplate != "" {
		return s, err
	}
	if file, err := resolveModel(ctx, f.model); err == nil {
		if facts, err := models.ReadFacts(file); err == nil && facts.Template == "" {
			s.ChatTemplate = llamacpp.PlainTemplate
		}
	}
	return s, nil
}

// conform runs the conformance suite in a process of its own, for what it tries may
// end one.
func conform(ctx context.Context, f doctorFlags) finding {
	x := finding{Name: "conformance"}
	args := []string{"doctor", "--suite-only", "--model", f.model, "--reference", f.reference, "--chat-template", f.chatTemplate, "--lib", f.lib, "--threads", strconv.Itoa(f.threads)}
	self, err := worker.Self(args...)
	if err != nil {
		x.Detail = err.Error()
		return x
	}
	c := exec.CommandContext(ctx, self.Path, self.Args...)
	c.Args[0] = os.Args[0]
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &x.Items)
	}
	if err != nil {
		last := strings.TrimSpace(said.String())
		if i := strings.LastIndexByte(last, '\n'); i >= 0 {
			last = last[i+1:]
		}
		x.Detail = fmt.Sprintf("the suite did not come to its end: %v: %.300s", err, last)
		return x
	}
	counts := make(map[string]int)
	for _, i := range x.Items {
		counts[i.Outcome]++
	}
	x.OK = counts[llamacpp.Failed] == 0
	x.Detail = fmt.Sprintf("what is read of the model's state and written to it: %d items passed, %d failed, %d not applicable", counts[llamacpp.Passed], counts[llamacpp.Failed], counts[llamacpp.NotApplicable])
	if !x.OK {
		x.Hint = "do not trust activations, probes or steering of this model on this machine"
	}
	return x
}

// conformHere runs the suite in this process.
func conformHere(ctx context.Context, e *env, f doctorFlags) error {
	s, err := f.spec(ctx, e)
	if err != nil {
		return err
	}
	found, err := llamacpp.Conform(ctx, s.llamacpp(nil), f.reference)
	if err != nil {
		return err
	}
	return json.NewEncoder(e.stdout).Encode(found)
}
