package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"demur/protocol"
)

// planFlags binds the settings of a plan. The same names are the keys of a plan
// file, with _ for -.
func planFlags(fs *pflag.FlagSet, p *protocol.Plan) {
	fs.StringVarP(&p.Model, "model", "m", p.Model, "GGUF file, ollama:NAME, phantom or phantom:PRESET")
	fs.StringVar(&p.Engine, "engine", p.Engine, "llamacpp (in process) or ollama (a server); ollama:NAME implies ollama")
	fs.StringVar(&p.BaseURL, "base-url", p.BaseURL, "address of the Ollama server (default $OLLAMA_HOST or http://127.0.0.1:11434)")
	fs.StringVar(&p.Requests, "requests", p.Requests, "request set: a file, or built-in: demo, all (default demo)")
	fs.Var((*limitValue)(&p.Limit), "limit", "at most N requests, spread evenly over topics and harm levels")
	fs.Var((*wordsValue)(&p.Variants), "variants", "wordings of the requests to use (default all)")
	fs.Var((*temperaturesValue)(&p.Temperatures), "temperatures", "temperatures of the responses")
	fs.Var((*seedsValue)(&p.Seeds), "seeds", "seeds of the responses, such as 42-46 or 1,5,9")
	fs.IntVar(&p.TopK, "top-k", p.TopK, "keep the k most probable tokens (0: off)")
	fs.Float64Var(&p.TopP, "top-p", p.TopP, "keep the most probable tokens that hold this share (0: off)")
	fs.Float64Var(&p.MinP, "min-p", p.MinP, "keep tokens at least this share of the most probable (0: off)")
	fs.IntVar(&p.MaxTokens, "max-tokens", p.MaxTokens, "tokens a response may have")
	fs.Var((*wordsValue)(&p.Questions), "questions", "wordings of the prediction question; demur requests questions lists them")
	fs.StringVar(&p.QuestionFile, "question-file", p.QuestionFile, "a wording of your own")
	fs.Var((*temperaturesValue)(&p.PredictTemperatures), "predict-temperatures", "temperatures of the predictions")
	fs.Var((*seedsValue)(&p.PredictSeeds), "predict-seeds", "seeds of the predictions")
	fs.IntVar(&p.PredictMaxTokens, "predict-max-tokens", p.PredictMaxTokens, "tokens a prediction may have")
	fs.StringVar(&p.SystemMessage, "system-message", p.SystemMessage, "system message of both phases")
	fs.IntVar(&p.Context, "ctx", p.Context, "tokens that prompt and answer may have together")
	fs.StringVar(&p.Think, "think", p.Think, "on or off, for models that reason (default: as their template has it)")
	fs.StringVar(&p.ChatTemplate, "chat-template", p.ChatTemplate, "file with a Jinja chat template, for a model without one")
	fs.StringVar(&p.LoRA, "lora", p.LoRA, "GGUF file of a LoRA adapter")
	fs.IntVar(&p.GPULayers, "gpu-layers", p.GPULayers, "layers to put on a GPU (needs a library built for it)")
	fs.BoolVar(&p.Strict, "strict", p.Strict, "one row at a time: text that does not depend on the packing; slower")
	fs.IntVar(&p.Pack, "pack", p.Pack, "request wordings run together; part of the plan (0: 12 for small models, 4 for others)")
	fs.StringVar(&p.Judge, "judge", p.Judge, "judge of the responses")
}

// readPlan returns the plan of flags over plan file over defaults.
func readPlan(fs *pflag.FlagSet, flags protocol.Plan, file string) (protocol.Plan, error) {
	if file == "" {
		return flags, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return protocol.Plan{}, fmt.Errorf("plan file: %w", err)
	}
	defer f.Close()
	plan, err := protocol.ReadPlan(f, protocol.DefaultPlan())
	if err != nil {
		return protocol.Plan{}, fmt.Errorf("%s: %w", file, err)
	}
	over := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	planFlags(over, &plan)
	var failed error
	fs.Visit(func(f *pflag.Flag) {
		if over.Lookup(f.Name) != nil && failed == nil {
			failed = over.Set(f.Name, f.Value.String())
		}
	})
	return plan, failed
}

// limitValue is a count of at least 1; 0 would read as "all" and is refused.
type limitValue int

func (v *limitValue) Type() string { return "N" }
func (v *limitValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.Itoa(int(*v))
}

func (v *limitValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	if n < 1 {
		return fmt.Errorf("%d asks for no request at all; leave the flag out to take all", n)
	}
	*v = limitValue(n)
	return nil
}

// wordsValue is a list of words, separated by commas.
type wordsValue []string

func (v *wordsValue) Type() string   { return "list" }
func (v *wordsValue) String() string { return strings.Join(*v, ",") }

func (v *wordsValue) Set(s string) error {
	*v = nil
	for _, w := range strings.Split(s, ",") {
		w = strings.TrimSpace(w)
		if w == "" {
			return fmt.Errorf("%q holds an empty word", s)
		}
		*v = append(*v, w)
	}
	return nil
}

// temperaturesValue is a list of numbers, separated by commas.
type temperaturesValue []float64

func (v *temperaturesValue) Type() string { return "list" }
func (v *temperaturesValue) String() string {
	var words []string
	for _, t := range *v {
		words = append(words, strconv.FormatFloat(t, 'g', -1, 64))
	}
	return strings.Join(words, ",")
}

func (v *temperaturesValue) Set(s string) error {
	*v = nil
	for _, w := range strings.Split(s, ",") {
		t, err := strconv.ParseFloat(strings.TrimSpace(w), 64)
		if err != nil || math.IsNaN(t) || math.IsInf(t, 0) || t < 0 {
			return fmt.Errorf("%q is not a temperature: a finite number of at least 0", strings.TrimSpace(w))
		}
		*v = append(*v, t)
	}
	return nil
}

// seedsValue is a list of seeds and ranges of seeds: 1,5,42-46.
type seedsValue protocol.Seeds

func (v *seedsValue) Type() string   { return "list" }
func (v *seedsValue) String() string { return protocol.Seeds(*v).String() }

func (v *seedsValue) Set(s string) error {
	seeds, err := protocol.ParseSeeds(s)
	*v = seedsValue(seeds)
	return err
}
