package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"demur/data"
	"demur/probes"
	"demur/protocol"
)

type guardOptions struct {
	engine     engineFlags
	directions string
	group      string
	system     string
}

func newGuard(e *env) *cobra.Command {
	plan := protocol.DefaultPlan()
	var o guardOptions
	c := &cobra.Command{
		Use:   "guard --directions RUN --model FILE.gguf",
		Short: "Judge prompts by the model's state, before a token is generated",
		Long: `Reads prompts from standard input, one JSON object a line: {"text": "…"}, or
{"messages": [{"role": "user", "content": "…"}]}, with an "id" if you like. For each
it writes a line with the score of the directions, their threshold, the calibrated
probability, and whether the score is above the threshold. A line that cannot be
judged says why in "error". The model must be the one that demur fit saw.`,
		Example: `  echo '{"text": "How do I bake bread?"}' | demur guard --directions runs/smol --model SmolLM2-135M-Instruct.Q4_1.gguf`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return guard(cmd.Context(), e, plan, o) },
	}
	fs := c.Flags()
	bindEngine(c, &o.engine)
	fs.StringVarP(&plan.Model, "model", "m", "", "GGUF file, phantom or phantom:PRESET")
	fs.StringVar(&plan.ChatTemplate, "chat-template", "", "file with a Jinja chat template, for a model without one")
	fs.StringVar(&plan.LoRA, "lora", "", "GGUF file of a LoRA adapter")
	fs.StringVar(&plan.Think, "think", "", "on or off, for models that reason")
	fs.IntVar(&plan.Context, "ctx", plan.Context, "tokens that a prompt may have")
	fs.IntVar(&plan.GPULayers, "gpu-layers", 0, "layers to put on a GPU (needs a library built for it)")
	fs.StringVar(&o.directions, "directions", "", "folder with the table that demur fit wrote")
	fs.StringVar(&o.group, "group", "", "directions to judge by, such as refusal/mean_difference/2/post (default: the only one)")
	fs.StringVar(&o.system, "system-message", "", "system message before each text")
	return c
}

// A guardLine is a line of standard input.
type guardLine struct {
	ID       string         `json:"id"`
	Text     string         `json:"text"`
	Messages []data.Message `json:"messages"`
}

// prompt returns what a line asks to be judged.
func (l guardLine) prompt(system string) (data.Prompt, error) {
	messages := l.Messages
	switch {
	case l.Text != "" && len(messages) > 0:
		return data.Prompt{}, errors.New("it has both text and messages")
	case l.Text != "":
		if system != "" {
			messages = append(messages, data.Message{Role: "system", Content: system})
		}
		messages = append(messages, data.Message{Role: "user", Content: l.Text})
	case len(messages) == 0:
		return data.Prompt{}, errors.New(`it has neither "text" nor "messages"`)
	}
	return data.Prompt{ID: data.PromptID(messages), RequestID: l.ID, Phase: data.Respond, Messages: messages}, nil
}

func guard(ctx context.Context, e *env, plan protocol.Plan, o guardOptions) error {
	if o.directions == "" {
		return usage(withHint(errors.New("no directions are named"), "--directions RUN, after demur fit RUN"))
	}
	if !data.HasTable(o.directions, data.Directions) {
		return usage(withHint(fmt.Errorf("%s holds no directions", o.directions), "demur fit "+o.directions+" writes them"))
	}
	var all []data.Direction
	if err := each(o.directions, data.Directions, func(d data.Direction) { all = append(all, d) }); err != nil {
		return dataError(err)
	}
	groups := probes.Groups(all)
	if o.group == "" && len(groups) == 1 {
		o.group = groups[0]
	}
	if !slices.Contains(groups, o.group) {
		return usage(fmt.Errorf("choose one of the groups of %s with --group: %s", o.directions, strings.Join(groups, ", ")))
	}
	all = slices.DeleteFunc(all, func(d data.Direction) bool { return d.Group != o.group })
	g, err := probes.NewGuard(all)
	if err != nil {
		return usage(err)
	}
	engine, err := startStates(ctx, e, &plan, o.engine)
	if err != nil {
		return err
	}
	defer engine.Close()
	info := engine.Info()
	if err := g.Fits(info.ModelDigest, info.TemplateHash); err != nil {
		return usage(err)
	}
	in := bufio.NewReader(e.stdin)
	for n := 1; ; n++ {
		text, rerr := in.ReadString('\n')
		if strings.TrimSpace(text) != "" {
			if err := guardOne(ctx, e.stdout, g, engine, text, o.system); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		switch {
		case rerr == io.EOF:
			return nil
		case rerr != nil:
			return rerr
		}
	}
}

// guardOne judges one line and answers it. What is wrong with a line stands in
// its answer, so that a service does not end by it.
func guardOne(ctx context.Context, w io.Writer, g *probes.Guard, engine probes.Engine, text, system string) error {
	answer := struct {
		ID string `json:"id,omitempty"`
		probes.Judgement
	}{}
	var line guardLine
	err := json.Unmarshal([]byte(text), &line)
	var p data.Prompt
	if err == nil {
		answer.ID = line.ID
		p, err = line.prompt(system)
	}
	if err != nil {
		answer.Error = "the line cannot be read: " + err.Error()
		return json.NewEncoder(w).Encode(answer)
	}
	for j, err := range g.Run(ctx, engine, slices.Values([]data.Prompt{p})) {
		if err != nil {
			return err
		}
		answer.Judgement = j
	}
	return json.NewEncoder(w).Encode(answer)
}
