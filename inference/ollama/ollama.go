// Package ollama runs a model on an Ollama server through its native API.
//
// Where a Renderer is given, prompts are rendered by the model's own chat
// template and sent raw, so that this engine and llama.cpp in process show a
// model the same bytes. Without one the server renders them by its own
// template, and Info says so.
//
// The server's defaults do not act: every option that changes an answer is sent,
// neutral ones too. An answer counts only with its end: the server's own client
// returns no error for a stream that was cut. Answers are comparable with those
// of other engines in distribution only; same seed, same text is not promised.
package ollama

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"demur/data"
	"demur/inference"
)

// DefaultURL is where a server listens unless told otherwise.
const DefaultURL = "http://127.0.0.1:11434"

// Options says which model of which server to run, and how. The zero value of
// each but Model means its default.
type Options struct {
	BaseURL string // of the server; empty means DefaultURL; a bare host:port will do
	Model   string // as Ollama names it, without "ollama:"
	// ModelDigest, where known, is the digest of the model's weights as read from
	// the store ("sha256:…"): a server that runs other weights is refused.
	ModelDigest string
	// Renderer renders prompts and counts their tokens; nil where the weights
	// cannot be read here. The engine closes it.
	Renderer inference.Renderer
	// TemplateHash is the SHA-256, in hex, of the chat template that Renderer
	// applies.
	TemplateHash string
	Context      int  // tokens that prompt and answer may have together; 0 means 4096 or what the model was trained for, if less
	Batch        int  // prompt tokens evaluated at a time; 0 means 512
	Threads      int  // 0 lets the server choose
	GPULayers    *int // blocks on the GPU; nil lets the server choose
	// Parallel is how many trials of a unit are in flight at a time; 0 means 1.
	// With more than one the server's batches, and so its texts, depend on timing.
	Parallel    int
	Think       bool // asks a model that can to reason first; only where the server renders
	AllowRemote bool // permits a server that is not on this machine
	// MaxRetries is how often a trial is asked again, whole, after a failure that
	// may pass; 0 means 3, a negative number none.
	MaxRetries int
	// Patience is how long to wait for a server that has gone to come back; 0
	// means a minute.
	Patience time.Duration
	// TrialTimeout is how long one trial may take; 0 lets the engine choose
	// generously by what it has measured. Loading the model has no limit.
	TrialTimeout time.Duration
	// KeepAlive is how long the server keeps the model loaded after a trial; 0
	// means an hour.
	KeepAlive time.Duration
	Progress  inference.Progress
}

// An Engine is one model on one server. It is used by one goroutine at a time.
type Engine struct {
	o       Options
	client  *client
	info    inference.Info
	server  identity // what the server said of itself and the model when it was opened
	context int

	// bos is the text of the begin-of-text token where the server puts that token
	// before raw prompts too, so that rendered prompts must be sent without it.
	bos   string
	plain string // the plain question as it is sent, where there is a renderer
	// counts is whether the server's count of prompt tokens can be compared with
	// the renderer's, surplus what it is above it.
	counts  bool
	surplus int

	mu       sync.Mutex
	slowest  time.Duration // per token, over all trials so far; 0 before the first
	failures int           // trials in a row that the server failed
	closed   bool
}

var _ inference.Engine = (*Engine)(nil)

// Open finds the server and the model, checks that they are what they should
// be, and loads the model, however long that takes. Errors say what to type;
// those of the server and the model wrap inference.ErrUnavailable, those of the
// options do not.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e, err := open(ctx, o)
	if err != nil && o.Renderer != nil {
		err = errors.Join(err, o.Renderer.Close())
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

func open(ctx context.Context, o Options) (*Engine, error) {
	if o.Model == "" {
		return nil, fmt.Errorf("%w: no Ollama model is named; ollama list shows what the server has", inference.ErrUnavailable)
	}
	if o.Context < 0 || o.Batch < 0 || o.Parallel < 0 || o.Threads < 0 {
		return nil, fmt.Errorf("ollama: context %d, batch %d, parallel %d, threads %d: none may be negative", o.Context, o.Batch, o.Parallel, o.Threads)
	}
	base, err := parseURL(o.BaseURL, o.AllowRemote)
	if err != nil {
		return nil, err
	}
	o = o.filled()
	e := &Engine{o: o, client: newClient(base, o.AllowRemote)}
	if err := e.handshake(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// filled returns o with its defaults in place.
func (o Options) filled() Options {
	if o.Batch == 0 {
		o.Batch = 512
	}
	if o.Parallel == 0 {
		o.Parallel = 1
	}
	switch {
	case o.MaxRetries == 0:
		o.MaxRetries = 3
	case o.MaxRetries < 0:
		o.MaxRetries = 0
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = time.Hour
	}
	if o.Progress == nil {
		o.Progress = func(int) {}
	}
	return o
}

// Info returns what Open found.
func (e *Engine) Info() inference.Info { return e.info }

// Close lets go of the connections and of the renderer. The model stays loaded
// on the server until its time is over: other users may need it.
func (e *Engine) Close() error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return nil
	}
	e.client.http.CloseIdleConnections()
	if e.o.Renderer != nil {
		return e.o.Renderer.Close()
	}
	return nil
}

// describe fills in Info after the handshake.
func (e *Engine) describe(s shown, device string, window int) {
	o := e.o
	info := inference.Info{
		Engine:       "ollama",
		Version:      e.server.version,
		Model:        strings.TrimSuffix(o.Model, ":latest"),
		ModelDigest:  e.server.weights,
		Adapter:      e.server.adapter,
		TemplateHash: o.TemplateHash,
		Architecture: s.architecture(),
		Device:       device,
		Context:      e.context,
		Blocks:       s.number("block_count"),
		Width:        s.number("embedding_length"),
		Grammars:     true,
	}
	info.Plan = map[string]string{
		"endpoint": e.endpoint(),
		"manifest": e.server.manifest,
		"options":  e.fixedOptions(),
		"parallel": strconv.Itoa(o.Parallel),
		"seed":     seedRule,
		"think":    strconv.FormatBool(o.Think && o.Renderer == nil),
	}
	info.NotVerified = []string{
		"sampler and its options: temperature, seed, top_k, top_p, min_p, typical_p, penalties, mirostat, stop",
		"num_batch, num_thread, flash attention and type of the cache",
		"build of the server's llama.cpp and its CPU kernels",
	}
	if window == 0 {
		info.NotVerified = append(info.NotVerified, "num_ctx: this server does not report the window of a loaded model")
	}
	if e.server.weights == e.server.manifest {
		info.Notes = append(info.Notes, "the server does not name the model's weights; its model digest is that of the manifest")
	}
	if o.Renderer == nil {
		sum := sha256.Sum256([]byte(s.Template))
		info.TemplateHash = hex.EncodeToString(sum[:])
		info.Notes = append(info.Notes, "prompts are rendered by the server with its own template, which may differ from the model's own; their bytes are not known")
		info.NotVerified = append(info.NotVerified,
			"length of a prompt before it is sent, and that no earlier message of a long conversation was dropped")
		if s.System != "" {
			info.Notes = append(info.Notes, "the server puts the model's stored system message before conversations that have none")
			info.Plan["stored_system"] = data.Digest(s.System)
		}
		if len(s.Messages) > 0 {
			info.Notes = append(info.Notes, fmt.Sprintf("the server puts %d stored messages before each conversation", len(s.Messages)))
			info.Plan["stored_messages"] = data.Digest(s.Messages)
		}
	} else {
		if e.bos != "" {
			info.Notes = append(info.Notes, "the server puts the begin-of-text token before a prompt itself; prompts are sent without it")
			info.Plan["bos"] = "server"
		}
		if !e.counts {
			info.NotVerified = append(info.NotVerified, "that the server sees all tokens of a prompt: it does not count them")
		}
		if e.surplus != 0 {
			info.Notes = append(info.Notes, fmt.Sprintf("the server counts %+d tokens in a prompt against the model's own tokenizer", e.surplus))
			info.Plan["surplus"] = strconv.Itoa(e.surplus)
		}
	}
	if o.Context > e.context {
		info.Notes = append(info.Notes, fmt.Sprintf("context %d is more than the model was trained for; %d is used", o.Context, e.context))
	}
	if o.Parallel > 1 {
		info.Notes = append(info.Notes, fmt.Sprintf("%d trials are in flight at a time: the server's batches depend on timing", o.Parallel))
	}
	for _, name := range s.unknownParameters() {
		info.Notes = append(info.Notes, "the stored model sets "+name+", which demur does not override")
	}
	e.info = info
}

// endpoint names how prompts are sent.
func (e *Engine) endpoint() string {
	if e.o.Renderer != nil {
		return "generate, raw"
	}
	return "chat"
}

// CheckURL returns an error if an address is none, or is not on this machine
// while remote ones are not allowed. It asks nobody.
func CheckURL(address string, allowRemote bool) error {
	_, err := parseURL(address, allowRemote)
	return err
}

// parseURL returns the address of a server, which must be on this machine
// unless remote ones are allowed.
func parseURL(s string, allowRemote bool) (*url.URL, error) {
	if s == "" {
		s = DefaultURL
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("ollama: %q is no address of a server; it looks like %s", s, DefaultURL)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("ollama: the address of a server has a host and a port, no user and no query")
	}
	if !allowRemote && !loopbackName(u.Hostname()) {
		return nil, fmt.Errorf("ollama: %s is not this machine; prompts would leave it. Allow that with --allow-remote", u.Host)
	}
	return u, nil
}
