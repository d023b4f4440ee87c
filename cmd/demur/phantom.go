package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"demur/data"
	"demur/models"
	"demur/models/phantom"
)

// phantomPreset returns the preset that a model name means: phantom is the
// default one, phantom:NAME another.
func phantomPreset(model string) (preset string, ok bool) {
	if model == models.Phantom {
		return "default", true
	}
	return strings.CutPrefix(model, models.Phantom+":")
}

// phantomFile returns a phantom as a file, built into the cache folder if it is
// not there.
func phantomFile(preset string) (models.File, error) {
	spec, err := phantom.Preset(preset)
	if err != nil {
		return models.File{}, usage(err)
	}
	path, err := cachedPhantom(spec)
	if err != nil {
		return models.File{}, err
	}
	name := models.Phantom
	if preset != "default" {
		name += "-" + preset
	}
	return models.File{Name: name, Kind: models.KindPhantom, Path: path, Parts: []string{path}}, nil
}

// cachedPhantom returns the file of a phantom, whose name is the spec's hash.
// Its bytes are computed anew each time, which takes a fraction of a second, so
// that a damaged file of the cache is mended and not believed.
func cachedPhantom(spec phantom.Spec) (string, error) {
	model, err := phantom.Build(spec)
	if err != nil {
		return "", err
	}
	var file bytes.Buffer
	if err := model.WriteGGUF(&file); err != nil {
		return "", fmt.Errorf("phantom: %w", err)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "demur", "phantoms")
	path := filepath.Join(dir, "phantom-"+spec.Hash()[:16]+".gguf")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, file.Bytes()) {
		return path, nil
	}
	err = os.MkdirAll(dir, 0o755)
	if err == nil {
		err = writeFile(path, func(w io.Writer) error {
			_, err := w.Write(file.Bytes())
			return err
		})
	}
	if err != nil {
		return "", withHint(fmt.Errorf("phantom: %w", err), "set XDG_CACHE_HOME to a folder that can be written")
	}
	return path, nil
}

func newModelsPhantom(e *env) *cobra.Command {
	var o phantomOptions
	spec, err := phantom.Preset("default")
	if err != nil {
		panic("demur: the default phantom: " + err.Error())
	}
	c := &cobra.Command{
		Use:   "phantom --out FILE.gguf",
		Short: "Build a model whose inside is known",
		Long: `Writes a phantom: a small GGUF model whose weights are computed, so that all that
demur measures on it has a known true value. --truth prints the planted values
for the built-in requests. docs/phantom.md explains the construction.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := phantom.Preset(o.preset)
			if err != nil {
				return usage(err)
			}
			over := pflag.NewFlagSet("phantom", pflag.ContinueOnError)
			phantomFlags(over, &s)
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if over.Lookup(f.Name) != nil && err == nil {
					err = over.Set(f.Name, f.Value.String())
				}
			})
			if err != nil {
				return usage(err)
			}
			return buildPhantom(e, s, o)
		},
	}
	phantomFlags(c.Flags(), &spec)
	c.Flags().StringVar(&o.preset, "preset", "default", "spec to start from: default, honest, overrefuser, unaware, one-direction, drifting")
	c.Flags().StringVarP(&o.out, "out", "o", "", "file to write")
	c.Flags().BoolVar(&o.truth, "truth", false, "print the planted values as JSON")
	c.Flags().StringVar(&o.requests, "requests", requestsDemo, "requests that the truth is of")
	return c
}

type phantomOptions struct {
	preset, out, requests string
	truth                 bool
}

// phantomFlags binds the parameters of a phantom.
func phantomFlags(fs *pflag.FlagSet, s *phantom.Spec) {
	fs.IntVar(&s.Width, "width", s.Width, "of the residual stream, 64 to 128, a multiple of 16")
	fs.IntVar(&s.Blocks, "blocks", s.Blocks, "3 to 16")
	fs.IntVar(&s.HarmBlock, "harm-block", s.HarmBlock, "block that writes the harm direction")
	fs.IntVar(&s.RefusalBlock, "refusal-block", s.RefusalBlock, "block that writes the refusal direction")
	fs.Uint64Var(&s.Seed, "seed", s.Seed, "of the basis rotation")
	fs.Uint64Var(&s.WordSeed, "word-seed", s.WordSeed, "of triggers, errors of the self-prediction and kinds of answers")
	fs.Float64Var(&s.Noise, "noise", s.Noise, "size of what words bring along that means nothing")
	fs.Float64Var(&s.Angle, "angle", s.Angle, "between harm and refusal direction, in degrees; 0: one direction")
	fs.Float64Var(&s.Correlation, "correlation", s.Correlation, "of a word's trigger with its harm")
	fs.Float64Var(&s.Threshold, "threshold", s.Threshold, "refusal component at which refusing and complying are even")
	fs.Float64Var(&s.Slope, "slope", s.Slope, "of the log odds of refusing")
	fs.Float64Var(&s.SelfWeight, "self-weight", s.SelfWeight, "of the true refusal component in the self-prediction")
	fs.Float64Var(&s.SelfBias, "self-bias", s.SelfBias, "added to it")
	fs.Float64Var(&s.SelfError, "self-error", s.SelfError, "standard deviation of its per-word error")
	fs.Float64Var(&s.SelfSlope, "self-slope", s.SelfSlope, "of the log odds of predicting refusal")
	fs.Float64Var(&s.ConfidenceBase, "confidence-base", s.ConfidenceBase, "confidence where the prediction is a coin's toss")
	fs.Float64Var(&s.ConfidenceGain, "confidence-gain", s.ConfidenceGain, "confidence more per unit of the prediction's log odds")
	fs.Float64Var(&s.DigitSharpness, "digit-sharpness", s.DigitSharpness, "log odds between the digit meant and the next")
	fs.Float64Var(&s.Partial, "partial", s.Partial, "share of trigger words whose refusals are mostly partial")
	fs.Float64Var(&s.Deflect, "deflect", s.Deflect, "share of trigger words whose refusals are mostly deflections")
}

func buildPhantom(e *env, s phantom.Spec, o phantomOptions) error {
	if o.out == "" && !o.truth {
		return usage(fmt.Errorf("name a file with --out, or ask for the planted values with --truth"))
	}
	model, err := phantom.Build(s)
	if err != nil {
		return usage(err)
	}
	if o.out != "" {
		if err := writeFile(o.out, model.WriteGGUF); err != nil {
			return fmt.Errorf("phantom: %w", err)
		}
		info, err := os.Stat(o.out)
		if err != nil {
			return fmt.Errorf("phantom: %w", err)
		}
		e.say("%s: %d bytes, spec %s", o.out, info.Size(), s.Hash()[:16])
	}
	if !o.truth {
		return nil
	}
	set, err := loadRequests(o.requests, data.Options{})
	if err != nil {
		return err
	}
	truth, err := truthOf(model, set.Requests, demoPlan())
	if err != nil {
		return err
	}
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Spec       phantom.Spec       `json:"spec"`
		Quantities []phantom.Quantity `json:"quantities"`
		Truth      *phantom.Truth     `json:"truth"`
	}{s, truth.Quantities(), truth})
}
