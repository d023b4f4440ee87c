package main

import (
	"context"

	"demur/inference"
	"demur/inference/llamacpp"
	"demur/inference/ollama"
)

// llamacpp returns the options of the llama.cpp engine.
func (s engineSpec) llamacpp(progress inference.Progress) llamacpp.Options {
	return llamacpp.Options{
		Model: s.Model, LibDir: s.Lib, Context: s.Context, GPULayers: s.GPULayers, Threads: s.Threads,
		ChatTemplate: s.ChatTemplate, Adapter: s.Adapter, Strict: s.Strict, Think: s.Think, Progress: progress,
	}
}

// openOllama opens the Ollama engine. Where the weights can be read here, demur
// renders the prompts itself, so that both engines show a model the same bytes.
func openOllama(ctx context.Context, s engineSpec, progress inference.Progress) (inference.Engine, error) {
	o := ollama.Options{
		BaseURL: s.BaseURL, Model: s.ServerModel, Context: s.Context, Threads: s.Threads, Parallel: s.Parallel,
		Think: s.Think == "on", AllowRemote: s.AllowRemote, Progress: progress,
	}
	if s.GPULayers > 0 {
		o.GPULayers = &s.GPULayers
	}
	if s.Model != "" {
		r, err := llamacpp.OpenRenderer(s.llamacpp(nil))
		if err != nil {
			return nil, err
		}
		o.Renderer, o.TemplateHash, o.ModelDigest = r, r.TemplateHash(), s.ModelDigest
	}
	e, err := ollama.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}
