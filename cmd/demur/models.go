package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"demur/models"
)

// resolveModel turns a name into a model file whose header is whole. The
// phantom is built if it is not there yet.
func resolveModel(ctx context.Context, name string) (models.File, error) {
	if preset, ok := phantomPreset(name); ok {
		return phantomFile(preset)
	}
	file, err := models.Resolve(ctx, name, models.Options{})
	if err != nil {
		return models.File{}, modelError(err)
	}
	if _, err := models.ReadFacts(file); err != nil {
		return models.File{}, modelError(err)
	}
	return file, nil
}

// modelError gives an error of package models its exit code and hint.
func modelError(err error) error {
	var m *models.Error
	if errors.As(err, &m) && m.Hint != "" {
		err = withHint(err, m.Hint)
	}
	return withCode(exitUnavailable, err)
}

func newModels(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "models",
		Short: "List, show and check model files; build the phantom",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newModelsList(e), newModelsShow(e), newModelsPhantom(e))
	return c
}

func newModelsList(e *env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the models found on this machine: demur's folder and Ollama's store",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := models.List(models.Options{})
			if err != nil {
				e.say("%v", err)
			}
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(files)
			}
			t := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tFROM\tSIZE")
			fmt.Fprintf(t, "%s\tbuilt by demur\t\n", models.Phantom)
			for _, f := range files {
				fmt.Fprintf(t, "%s\t%s\t%.0f MB\n", plain(f.Name), f.Kind, float64(f.Size)/1e6)
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return c
}

func newModelsShow(e *env) *cobra.Command {
	var asJSON, template bool
	c := &cobra.Command{
		Use:     "show MODEL",
		Aliases: []string{"check"},
		Short:   "Check a model file and show what it says about itself",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := resolveModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			facts, err := models.ReadFacts(file)
			if err != nil {
				return modelError(err)
			}
			digest, err := models.Digest(cmd.Context(), file, models.Options{})
			if err != nil {
				return modelError(err)
			}
			if template {
				fmt.Fprintln(e.stdout, plain(facts.Template))
				return nil
			}
			if asJSON {
				return json.NewEncoder(e.stdout).Encode(struct {
					models.File
					models.Facts
					Digest string `json:"digest"`
				}{file, facts, digest})
			}
			return showFacts(e, file, facts, digest)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.Flags().BoolVar(&template, "template", false, "print the chat template alone")
	return c
}

func showFacts(e *env, file models.File, f models.Facts, digest string) error {
	t := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, plain(fmt.Sprintf(format, args...)))
	}
	row("name", "%s", file.Name)
	row("digest", "%s", digest)
	row("architecture", "%s, %d blocks, width %d, %d heads (%d KV)", f.Architecture, f.Blocks, f.Width, f.Heads, f.HeadsKV)
	row("parameters", "%.1f million, %s, %.0f MB", float64(f.Parameters)/1e6, f.Quantisation, float64(f.FileSize)/1e6)
	row("context", "%d tokens", f.Context)
	row("vocabulary", "%d, tokenizer %s", f.Vocabulary, f.Tokenizer)
	if f.Template == "" {
		row("chat template", "none: give one with --chat-template FILE")
	} else {
		row("chat template", "%d bytes (--template prints it)", len(f.Template))
	}
	if f.Recurrent {
		row("memory", "recurrent: cannot be forked, so every answer evaluates its prompt again")
	}
	if f.License != "" {
		row("licence", "%s", f.License)
	}
	for _, w := range f.Warnings {
		row("warning", "%s", w)
	}
	return t.Flush()
}
