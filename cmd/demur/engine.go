package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"demur/inference"
	"demur/inference/llamacpp"
	"demur/inference/ollama"
	"demur/inference/worker"
	"demur/models"
	"demur/protocol"
)

// engineCommand is the hidden first argument by which demur runs itself as the
// child process of an engine.
const engineCommand = "__engine"

// An engineSpec says which engine to open, and how. It crosses to the child
// process as JSON.
type engineSpec struct {
	Engine       string `json:"engine"`
	Model        string `json:"model"` // path of the GGUF file; for ollama, of the blob if it can be read
	Name         string `json:"name"`  // for tables
	Lib          string `json:"lib,omitempty"`
	Context      int    `json:"context"`
	GPULayers    int    `json:"gpu_layers,omitempty"`
	Threads      int    `json:"threads,omitempty"`
	ChatTemplate string `json:"chat_template,omitempty"` // its text
	Adapter      string `json:"adapter,omitempty"`
	Strict       bool   `json:"strict,omitempty"`
	Think        string `json:"think,omitempty"`
	BaseURL      string `json:"base_url,omitempty"`
	AllowRemote  bool   `json:"allow_remote,omitempty"`
	ServerModel  string `json:"server_model,omitempty"` // name on the Ollama server
	ModelDigest  string `json:"model_digest,omitempty"` // of the weights in the store, where they can be read
	Parallel     int    `json:"parallel,omitempty"`     // requests in flight at the server
}

// An opener opens an engine in this process.
type opener func(ctx context.Context, s engineSpec, progress inference.Progress) (inference.Engine, error)

// openEngine opens one of the engines that demur comes with.
func openEngine(ctx context.Context, s engineSpec, progress inference.Progress) (inference.Engine, error) {
	switch s.Engine {
	case "llamacpp":
		return llamacpp.Open(s.llamacpp(progress))
	case "ollama":
		return openOllama(ctx, s, progress)
	}
	return nil, fmt.Errorf("engine %q is not known", s.Engine)
}

// serveEngine is all of an engine's child process.
func serveEngine(open opener) {
	worker.Main(func(raw json.RawMessage, progress inference.Progress) (inference.Engine, error) {
		var s engineSpec
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		return open(context.Background(), s, progress)
	})
}

// startEngine opens an engine in a child process.
func startEngine(ctx context.Context, s engineSpec, progress inference.Progress) (*worker.Engine, error) {
	self, err := worker.Self(engineCommand)
	if err != nil {
		return nil, err
	}
	return worker.Start(ctx, self, s, worker.Options{Name: s.Model, Progress: progress})
}

// startStates starts an engine that shows its residual stream.
func startStates(ctx context.Context, e *env, plan *protocol.Plan, f engineFlags) (*worker.Engine, error) {
	spec, err := specOf(ctx, e, plan, f)
	if err != nil {
		return nil, err
	}
	if spec.Engine != "llamacpp" {
		return nil, usage(fmt.Errorf("engine %s does not show its residual stream; name a GGUF file", spec.Engine))
	}
	return startEngine(ctx, spec, nil)
}

// engineFlags are settings of the machine, not of what is measured.
type engineFlags struct {
	lib         string
	threads     int
	parallel    int
	allowRemote bool
}

// libDir returns the folder of the libraries where it is known here: the flag's,
// or the lib folder of an unpacked bundle, which lies beside the folder of this
// binary. Empty leaves the search to the engine.
func (f engineFlags) libDir() string {
	if f.lib != "" || os.Getenv(llamacpp.LibraryEnv) != "" {
		return f.lib
	}
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(self)), "lib")
	if _, err := os.Stat(filepath.Join(dir, "libllama.so")); err != nil {
		return ""
	}
	return dir
}

// specOf resolves the plan's model and fills in the plan's engine.
func specOf(ctx context.Context, e *env, plan *protocol.Plan, f engineFlags) (engineSpec, error) {
	s := engineSpec{
		Engine: plan.Engine, Lib: f.libDir(), Context: plan.Context, GPULayers: plan.GPULayers, Threads: f.threads,
		Strict: plan.Strict, Think: plan.Think, Adapter: plan.LoRA, AllowRemote: f.allowRemote, Parallel: f.parallel,
	}
	if most := 4 * runtime.NumCPU(); f.threads < 0 || f.threads > most {
		return s, usage(fmt.Errorf("threads %d is not in 0 to %d: more than a few per core only slows it down", f.threads, most))
	}
	if plan.GPULayers < 0 {
		return s, usage(fmt.Errorf("gpu-layers %d is negative", plan.GPULayers))
	}
	if f.parallel < 0 || f.parallel > 64 {
		return s, usage(fmt.Errorf("parallel %d is not in 1 to 64", f.parallel))
	}
	if plan.Model == "" {
		return s, usage(withHint(errors.New("no model is named"), "--model FILE.gguf, --model ollama:NAME, or --model phantom for the model that demur builds itself"))
	}
	if plan.ChatTemplate != "" {
		text, err := readSmall(plan.ChatTemplate)
		if err != nil {
			return s, usage(fmt.Errorf("chat template: %w", err))
		}
		s.ChatTemplate = text
	}
	if s.Engine == "" {
		s.Engine = "llamacpp"
		if strings.HasPrefix(plan.Model, models.OllamaPrefix) {
			s.Engine = "ollama"
		}
	}
	plan.Engine = s.Engine
	switch s.Engine {
	case "scripted":
		s.Model, s.Name = plan.Model, "scripted"
		return s, nil
	case "ollama":
		return ollamaSpec(ctx, e, plan, s)
	}
	file, err := resolveModel(ctx, plan.Model)
	if err != nil {
		return s, err
	}
	if facts, err := models.ReadFacts(file); err == nil && facts.Context > 0 && plan.Context > facts.Context {
		if ctxGiven := plan.Context != protocol.DefaultPlan().Context; ctxGiven {
			return s, usage(fmt.Errorf("ctx %d is more than the %d tokens that %s was trained for", plan.Context, facts.Context, file.Name))
		}
		plan.Context = facts.Context
		s.Context = facts.Context
	}
	s.Model, s.Name = file.Path, file.Name
	return s, nil
}

// ollamaSpec adds what the Ollama engine needs. A blob that cannot be read, of
// a server elsewhere or of another user, leaves the server to render.
func ollamaSpec(ctx context.Context, e *env, plan *protocol.Plan, s engineSpec) (engineSpec, error) {
	s.ServerModel = strings.TrimPrefix(plan.Model, models.OllamaPrefix)
	s.Name = s.ServerModel
	s.BaseURL = plan.BaseURL
	if s.BaseURL == "" {
		s.BaseURL = hostOf(os.Getenv("OLLAMA_HOST"))
	}
	if err := ollama.CheckURL(s.BaseURL, s.AllowRemote); err != nil {
		return s, usage(err)
	}
	file, err := models.Resolve(ctx, models.OllamaPrefix+s.ServerModel, models.Options{})
	if err != nil {
		e.say("the model's file cannot be read here, so the server's own template is used: %v", err)
		if hint := hintOf(modelError(err)); hint != "" {
			e.say("hint: %s", hint)
		}
		return s, nil
	}
	if facts, err := models.ReadFacts(file); err == nil && facts.Template == "" && s.ChatTemplate == "" {
		e.say("the model's file has no chat template, so the server's own is used")
		return s, nil
	}
	s.Model = file.Path
	if digest, err := models.Digest(ctx, file, models.Options{}); err == nil {
		s.ModelDigest = digest
	}
	return s, nil
}

// hostOf turns a server's own setting into an address to call: it may be "all
// interfaces", a port alone, or a host without a port.
func hostOf(setting string) string {
	scheme, host, ok := strings.Cut(setting, "://")
	if !ok {
		scheme, host = "http", setting
	}
	if host == "" {
		return ""
	}
	if strings.HasPrefix(host, ":") {
		host = "127.0.0.1" + host
	}
	host = strings.Replace(host, "0.0.0.0", "127.0.0.1", 1)
	if !strings.Contains(host, ":") {
		host += ":11434"
	}
	return scheme + "://" + host
}

// readSmall reads a text file of at most a mebibyte.
func readSmall(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20+1))
	if err != nil {
		return "", err
	}
	if len(b) > 1<<20 {
		return "", fmt.Errorf("%s is larger than 1 MiB", name)
	}
	return string(b), nil
}
