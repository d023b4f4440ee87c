package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"demur/data"
	"demur/models"
	"demur/models/phantom"
	"demur/protocol"
)

// completeAll lets the shell complete the values of flags, by their names, and the
// arguments of commands that take a run, a request set or a model.
func completeAll(c *cobra.Command) {
	seen := func(f *pflag.Flag) {
		if complete := completionOf(c, f.Name); complete != nil {
			// The error says that there is one already, which is as good.
			_ = c.RegisterFlagCompletionFunc(f.Name, complete)
		}
	}
	c.LocalFlags().VisitAll(seen)
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = argumentsOf(c)
	}
	for _, sub := range c.Commands() {
		completeAll(sub)
	}
}

// argumentsOf returns what completes the arguments of a command.
func argumentsOf(c *cobra.Command) cobra.CompletionFunc {
	switch c.CommandPath() {
	case "demur classify", "demur report", "demur compare", "demur extract", "demur fit", "demur steer", "demur export", "demur verify":
		return runs
	case "demur requests check", "demur requests list":
		return orFiles(requestsDemo, requestsAll)
	case "demur models show":
		return modelNames
	case "demur import":
		return nil // a file
	}
	if c.HasSubCommands() {
		return nil
	}
	return cobra.NoFileCompletions
}

// completionOf returns what completes the value of a flag; nil leaves it to the
// shell, which offers files.
func completionOf(c *cobra.Command, flag string) cobra.CompletionFunc {
	switch flag {
	case "model":
		return modelNames
	case "engine":
		return words("llamacpp", "ollama")
	case "requests":
		return orFiles(requestsDemo, requestsAll)
	case "variants":
		return list(data.Base, data.P1, data.P2)
	case "questions":
		return list(questionNames()...)
	case "question":
		return words(questionNames()...)
	case "judge":
		if c.Name() == "run" || c.Name() == "classify" {
			return judges
		}
		return words("rules")
	case "judge-reason":
		return words("before", "after")
	case "preset":
		if c.Name() == "demo" || c.Name() == "phantom" {
			return words(phantom.PresetNames()...)
		}
		return words(data.Presets()...)
	case "format":
		switch c.Name() {
		case "export":
			return words("csv", "jsonl")
		case "import":
			return words("csv", "jsonl", "json", "parquet")
		}
		return words("csv", "jsonl", "json", "parquet", "text")
	case "think":
		return words("on", "off")
	case "fold":
		return words("lenient", "strict")
	case "reading":
		return words(data.Grammar, data.Free, data.Exact)
	case "polarity":
		return words(data.AskRefuse, data.AskAnswer)
	case "phase":
		return words(string(data.Respond), string(data.Predict), "all")
	case "anchors":
		return list("inst", "post", "mean", "all")
	case "targets":
		return list("harm", "harm_graded", "refusal", "refusal_rate", "prediction")
	case "methods":
		return list("mean_difference", "whitened", "logistic", "centroid", "centroid_centred", "ridge")
	case "plan":
		return ending("yaml", "yml")
	case "lora":
		return ending("gguf")
	case "lib", "tables", "directions":
		return folders
	case "out":
		if c.Name() == "run" || c.Name() == "demo" || c.Name() == "import" || c.Name() == "extract" {
			return folders
		}
	case "limit", "temperatures", "seeds", "predict-temperatures", "predict-seeds", "top-k", "top-p", "min-p", "max-tokens",
		"predict-max-tokens", "ctx", "gpu-layers", "pack", "threads", "parallel", "resamples", "units", "layers", "base-url",
		"system-message", "require", "columns", "labels", "prompt-column", "response-column", "temperature", "model-name", "judge-name":
		if flag != "labels" || c.Name() == "import" {
			return cobra.NoFileCompletions
		}
	}
	return nil
}

func words(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// list completes the last of words separated by commas.
func list(all ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var out []string
		for _, w := range all {
			if !slices.Contains(strings.Split(before, ","), w) {
				out = append(out, before+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func orFiles(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveDefault)
}

func ending(extensions ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt)
}

func folders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func questionNames() []string {
	var names []string
	for _, q := range protocol.Questions() {
		names = append(names, q.Name)
	}
	return names
}

// judges are names and beginnings of names.
func judges(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"rules", "model:", "command:", "human:"}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// modelNames are the phantoms and what lies in demur's folder and Ollama's store.
func modelNames(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := []string{models.Phantom}
	if strings.HasPrefix(typed, models.Phantom) {
		for _, p := range phantom.PresetNames() {
			names = append(names, models.Phantom+":"+p)
		}
	}
	files, err := models.List(models.Options{})
	if err == nil {
		for _, f := range files {
			names = append(names, f.Name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// runs are the run directories at, or one folder below, what is typed.
func runs(_ *cobra.Command, taken []string, typed string) ([]string, cobra.ShellCompDirective) {
	parent := typed[:strings.LastIndexByte(typed, filepath.Separator)+1]
	var found []string
	for _, folder := range []string{parent, filepath.Join(parent, "runs")} {
		entries, err := os.ReadDir(filepath.Join(".", folder))
		if filepath.IsAbs(folder) {
			entries, err = os.ReadDir(folder)
		}
		if err != nil {
			continue
		}
		for _, entry := range entries {
			dir := filepath.Join(folder, entry.Name())
			if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil && !slices.Contains(taken, dir) {
				found = append(found, dir)
			}
		}
	}
	if len(found) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
