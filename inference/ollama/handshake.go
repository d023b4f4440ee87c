package ollama

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"demur/data"
	"demur/inference"

	"github.com/ollama/ollama/api"
)

// identity is what must not change while a run goes on.
type identity struct {
	version  string
	manifest string // digest of the model's manifest: weights, template, parameters
	weights  string // digest of the weights; of the manifest where the server does not name them
	adapter  string // digest of a LoRA adapter stored with the model; empty where there is none
}

// shown is the part of a model's description that is used.
type shown struct {
	Modelfile   string         `json:"modelfile"`
	Parameters  string         `json:"parameters"`
	Template    string         `json:"template"`
	System      string         `json:"system"`
	Messages    []api.Message  `json:"messages"`
	ModelInfo   map[string]any `json:"model_info"`
	RemoteHost  string         `json:"remote_host"`
	RemoteModel string         `json:"remote_model"`
}

func (s shown) architecture() string {
	a, _ := s.ModelInfo["general.architecture"].(string)
	return a
}

// number returns an integer of the model's metadata, 0 where it is absent.
func (s shown) number(key string) int {
	n, _ := s.ModelInfo[s.architecture()+"."+key].(float64)
	return int(n)
}

// token returns the text of the token whose number stands at key.
func (s shown) token(key string) string {
	id, ok := s.ModelInfo[key].(float64)
	tokens, _ := s.ModelInfo["tokenizer.ggml.tokens"].([]any)
	if !ok || id < 0 || int(id) >= len(tokens) {
		return ""
	}
	text, _ := tokens[int(id)].(string)
	return text
}

// unknownParameters returns the names of stored parameters that no request
// overrides, sorted.
func (s shown) unknownParameters() []string {
	var names []string
	for line := range strings.Lines(s.Parameters) {
		fields := strings.Fields(line)
		if len(fields) == 0 || slices.Contains(overridden, fields[0]) || slices.Contains(names, fields[0]) {
			continue
		}
		names = append(names, fields[0])
	}
	slices.Sort(names)
	return names
}

// How a modelfile names the blobs of weights and adapter.
var (
	weightsName = regexp.MustCompile(`(?m)^FROM .*sha256-([0-9a-f]{64})\s*$`)
	adapterName = regexp.MustCompile(`(?m)^ADAPTER .*sha256-([0-9a-f]{64})\s*$`)
)

// handshake looks at server and model, loads the model, and settles how prompts
// are sent.
func (e *Engine) handshake(ctx context.Context) error {
	id, s, err := e.identify(ctx)
	if err != nil {
		return err
	}
	if s.RemoteHost != "" || s.RemoteModel != "" {
		return fmt.Errorf("%w: Ollama runs %s on another computer (%s), not here; choose a model that is pulled whole", inference.ErrUnavailable, e.o.Model, s.RemoteHost)
	}
	if want := e.o.ModelDigest; want != "" && id.weights != id.manifest && id.weights != want {
		return fmt.Errorf("%w: the server's %s has other weights (%s) than the store that was read (%s); is OLLAMA_MODELS the store of this server?",
			inference.ErrUnavailable, e.o.Model, short(id.weights), short(want))
	}
	e.server = id
	e.context = e.o.Context
	trained := s.number("context_length")
	if e.context == 0 {
		e.context = 4096
	}
	if trained > 0 {
		e.context = min(e.context, trained)
	}
	if err := e.load(ctx); err != nil {
		return err
	}
	device, window := e.running(ctx)
	if window > 0 && window < e.context {
		return fmt.Errorf("%w: the server gave %s a window of %d tokens where %d were asked for; ask for less with --ctx, or free memory", inference.ErrUnavailable, e.o.Model, window, e.context)
	}
	if e.o.Renderer != nil {
		if err := e.calibrate(ctx); err != nil {
			return err
		}
	}
	e.describe(s, device, window)
	return nil
}

// identify asks the server who it is and what the model is.
func (e *Engine) identify(ctx context.Context) (identity, shown, error) {
	var id identity
	version, err := e.version(ctx)
	if err != nil {
		return id, shown{}, e.notRunning(ctx, err)
	}
	id.version = version
	var s shown
	if err := e.client.call(ctx, http.MethodPost, "/api/show", api.ShowRequest{Model: e.o.Model}, &s); err != nil {
		return id, s, e.notPulled(ctx, err)
	}
	if id.manifest, err = e.manifest(ctx); err != nil {
		return id, s, err
	}
	id.weights = id.manifest
	if m := weightsName.FindStringSubmatch(s.Modelfile); m != nil {
		id.weights = "sha256:" + m[1]
	}
	if m := adapterName.FindStringSubmatch(s.Modelfile); m != nil {
		id.adapter = "sha256:" + m[1]
	}
	return id, s, nil
}

func (e *Engine) version(ctx context.Context) (string, error) {
	// A listener that is no server of Ollama may never answer.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var v struct {
		Version string `json:"version"`
	}
	if err := e.client.call(ctx, http.MethodGet, "/api/version", nil, &v); err != nil {
		return "", err
	}
	if v.Version == "" {
		return "", errors.New("it names no version, so it is no Ollama server")
	}
	return v.Version, nil
}

// manifest returns the digest of the model's manifest by the server's list.
func (e *Engine) manifest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var list api.ListResponse
	if err := e.client.call(ctx, http.MethodGet, "/api/tags", nil, &list); err != nil {
		return "", fmt.Errorf("ollama at %s: %w", e.client.base.Host, err)
	}
	for _, m := range list.Models {
		if sameName(m.Model, e.o.Model) || sameName(m.Name, e.o.Model) {
			return "sha256:" + strings.TrimPrefix(m.Digest, "sha256:"), nil
		}
	}
	return "", e.notPulled(ctx, api.StatusError{StatusCode: http.StatusNotFound})
}

// sameName compares model names as the server does: the tag latest and the
// library's namespace may be left out, case does not matter.
func sameName(a, b string) bool {
	full := func(s string) string {
		s = strings.TrimPrefix(s, "registry.ollama.ai/")
		s = strings.TrimPrefix(s, "library/")
		if i := strings.LastIndexByte(s, ':'); i < strings.LastIndexByte(s, '/') || i < 0 {
			s += ":latest"
		}
		return s
	}
	return strings.EqualFold(full(a), full(b))
}

func (e *Engine) notRunning(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: no Ollama server answers at %s (%v); start it with: ollama serve", inference.ErrUnavailable, e.client.base.Host, root(err))
}

func (e *Engine) notPulled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var status api.StatusError
	if errors.As(err, &status) && (status.StatusCode == http.StatusNotFound || status.StatusCode == http.StatusBadRequest) {
		return fmt.Errorf("%w: the Ollama server at %s has no model %s; fetch it with: ollama pull %s", inference.ErrUnavailable, e.client.base.Host, e.o.Model, e.o.Model)
	}
	return fmt.Errorf("%w: the Ollama server at %s does not describe model %s: %v", inference.ErrUnavailable, e.client.base.Host, e.o.Model, root(err))
}

// load loads the model with the options of the run, so that no trial waits for
// it. It takes as long as it takes.
func (e *Engine) load(ctx context.Context) error {
	req := generateRequest{GenerateRequest: api.GenerateRequest{
		Model: e.o.Model, KeepAlive: &api.Duration{Duration: e.o.KeepAlive}, Options: e.options(data.Sampling{MaxTokens: 1}, 0),
	}}
	var reply struct {
		DoneReason string `json:"done_reason"`
		Error      string `json:"error"`
	}
	err := e.client.call(ctx, http.MethodPost, "/api/generate", req, &reply)
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: the Ollama server at %s cannot load %s: %v; its log says more", inference.ErrUnavailable, e.client.base.Host, e.o.Model, root(err))
	}
	return nil
}

// running returns where the loaded model runs and, where the server reports it,
// the window that it has.
func (e *Engine) running(ctx context.Context) (device string, window int) {
	var list struct {
		Models []struct {
			api.ProcessModelResponse
			ContextLength int `json:"context_length"`
		} `json:"models"`
	}
	if err := e.client.call(ctx, http.MethodGet, "/api/ps", nil, &list); err != nil {
		return "unknown", 0
	}
	for _, m := range list.Models {
		if !sameName(m.Model, e.o.Model) && !sameName(m.Name, e.o.Model) {
			continue
		}
		switch {
		case m.SizeVRAM == 0:
			device = "cpu"
		case m.SizeVRAM >= m.Size:
			device = "gpu"
		default:
			device = fmt.Sprintf("gpu, %d %% of the model", 100*m.SizeVRAM/m.Size)
		}
		return device, m.ContextLength
	}
	return "unknown", 0
}

// plainQuestion is asked to see whether a server works at all.
var plainQuestion = []data.Message{{Role: "user", Content: "How long does bread bake?"}}

// calibrate sends a prompt whose tokens the renderer has counted, and so learns
// whether the server puts a begin-of-text token before raw prompts that the
// template has put there already: a model must see exactly one.
func (e *Engine) calibrate(ctx context.Context) error {
	rendered, tokens, err := e.o.Renderer.Render(plainQuestion)
	if err != nil {
		return fmt.Errorf("%w: the chat template of %s cannot render a plain question: %v", inference.ErrUnavailable, e.o.Model, err)
	}
	count := func(prompt string) (int, error) {
		r, f := e.attempt(ctx, e.request(prompt, nil, data.Sampling{MaxTokens: 1}, "", nil), 1)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case f != nil:
			return 0, fmt.Errorf("%w: the Ollama server at %s does not answer a first question: %s", inference.ErrUnavailable, e.client.base.Host, f.words)
		}
		return r.promptTokens, nil
	}
	e.plain = rendered
	if tokens >= e.context {
		return nil // the server would cut it and count what is left
	}
	first, err := count(rendered)
	if err != nil || first == 0 {
		return err
	}
	// Some servers count only what was not in their cache.
	again, err := count(rendered)
	if err != nil || again != first {
		return err
	}
	e.counts = true
	if first == tokens {
		return nil
	}
	var s shown
	if err := e.client.call(ctx, http.MethodPost, "/api/show", api.ShowRequest{Model: e.o.Model, Verbose: true}, &s); err == nil {
		bos := s.token("tokenizer.ggml.bos_token_id")
		if stripped, ok := strings.CutPrefix(rendered, bos); ok && bos != "" {
			n, err := count(stripped)
			if err != nil {
				return err
			}
			if n == tokens {
				e.bos, e.plain = bos, stripped
				return nil
			}
		}
	}
	e.surplus = first - tokens
	return nil
}

// recheck asks again who server and model are, waiting for a server that has
// gone. Another version or another model ends the run: its rows would mix two.
func (e *Engine) recheck(ctx context.Context) error {
	version, err := e.await(ctx)
	if err != nil {
		return err
	}
	if version != e.server.version {
		return fmt.Errorf("ollama at %s: the server is version %s now, it was %s when the run began", e.client.base.Host, version, e.server.version)
	}
	manifest, err := e.manifest(ctx)
	if err != nil {
		return err
	}
	if manifest != e.server.manifest {
		return fmt.Errorf("ollama at %s: %s is another model now (%s), it was %s when the run began; was a new one pulled?",
			e.client.base.Host, e.o.Model, short(manifest), short(e.server.manifest))
	}
	return nil
}

// await waits until the server answers, for as long as patience lasts.
func (e *Engine) await(ctx context.Context) (version string, err error) {
	until := time.Now().Add(e.o.Patience)
	pause := 50 * time.Millisecond
	for {
		version, err = e.version(ctx)
		if err == nil {
			return version, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if time.Now().After(until) {
			return "", fmt.Errorf("ollama at %s: the server has gone and did not come back in %v (%v); start it and continue the run", e.client.base.Host, e.o.Patience, root(err))
		}
		if err := sleep(ctx, min(pause, time.Until(until))); err != nil {
			return "", err
		}
		pause = min(2*pause, 5*time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// short returns the first digits of a digest.
func short(digest string) string {
	return digest[:min(len(digest), len("sha256:")+12)]
}
