package ollama

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"demur/data"
	"demur/inference"

	"github.com/ollama/ollama/api"
)

// overridden are the options that every request sets, so that neither the
// server's defaults nor parameters stored with the model act.
var overridden = []string{
	"frequency_penalty", "min_p", "mirostat", "mirostat_eta", "mirostat_tau", "num_batch", "num_ctx", "num_gpu",
	"num_keep", "num_predict", "num_thread", "presence_penalty", "repeat_last_n", "repeat_penalty", "seed", "stop",
	"temperature", "top_k", "top_p", "typical_p",
}

// fixed returns the options that are the same in every request of a run. Their
// neutral values leave the model's own distribution, as temperature divides it.
func (e *Engine) fixed() map[string]any {
	o := map[string]any{
		"num_ctx":    e.context, // another value would load the model anew
		"num_batch":  e.o.Batch,
		"num_keep":   0, // nothing is ever shifted: prompt and answer fit
		"num_thread": e.o.Threads,
		"num_gpu":    -1,

		"typical_p":         1,
		"repeat_penalty":    1,
		"repeat_last_n":     0,
		"presence_penalty":  0,
		"frequency_penalty": 0,
		"mirostat":          0,
		"mirostat_tau":      5,
		"mirostat_eta":      0.1,
		"stop":              []string{}, // an empty list overrides a stored one, null would not
	}
	if e.o.GPULayers != nil {
		o["num_gpu"] = *e.o.GPULayers
	}
	return o
}

// options returns all options of one trial.
func (e *Engine) options(s data.Sampling, seed uint32) map[string]any {
	o := e.fixed()
	o["temperature"] = s.Temperature
	o["seed"] = seed
	o["num_predict"] = s.MaxTokens
	o["top_k"] = s.TopK // 0 is the whole vocabulary
	o["top_p"] = 1.0
	if s.TopP > 0 {
		o["top_p"] = s.TopP
	}
	o["min_p"] = s.MinP
	return o
}

// fixedOptions returns the fixed options as text, for the plan.
func (e *Engine) fixedOptions() string {
	fixed := e.fixed()
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(fixed)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		v, err := json.Marshal(fixed[name])
		if err != nil {
			panic("ollama: option " + name + " has no JSON form")
		}
		b.WriteString(name + "=" + string(v))
	}
	return b.String()
}

// seedRule names how the seed that is sent comes about.
const seedRule = "first 31 bits of sha256(seed, temperature, prompt), demur/1"

// derivedSeed returns the seed that is sent. The server starts one stream of
// random numbers from it; sent as it is, one seed would draw the same numbers at
// every temperature and for every prompt, and trials would be dependent. The
// result has 31 bits: −1 and 4294967295 would mean "at random" to the server.
func derivedSeed(seed uint32, temperature float64, promptID string) uint32 {
	h := sha256.New()
	var b [12]byte
	binary.BigEndian.PutUint32(b[:], seed)
	binary.BigEndian.PutUint64(b[4:], math.Float64bits(temperature))
	h.Write([]byte("demur/1\x00"))
	h.Write(b[:])
	h.Write([]byte(promptID))
	return binary.BigEndian.Uint32(h.Sum(nil)) & math.MaxInt32
}

// A request is one trial as it is sent.
type request struct {
	path string
	body any
}

// generateRequest and chatRequest add the fields that servers newer than the
// client library know; older ones ignore them.
type generateRequest struct {
	api.GenerateRequest
	extra
}

type chatRequest struct {
	api.ChatRequest
	extra
}

type extra struct {
	Think    *bool `json:"think,omitempty"`
	Truncate *bool `json:"truncate,omitempty"` // an overlong prompt shall be an error
	Shift    *bool `json:"shift,omitempty"`    // and so shall an answer that outgrows the window
}

// request makes the request of one trial: the rendered prompt where there is a
// renderer, else the messages.
func (e *Engine) request(prompt string, messages []data.Message, s data.Sampling, promptID string, g *inference.Grammar) request {
	var format json.RawMessage
	if s.Grammar && g != nil {
		format = spelled(g.Schema)
	}
	yes, no := true, false
	options := e.options(s, derivedSeed(s.Seed, s.Temperature, promptID))
	keep := &api.Duration{Duration: e.o.KeepAlive}
	if e.o.Renderer != nil {
		// think is off: the server shall not part a raw text itself.
		return request{"/api/generate", generateRequest{
			api.GenerateRequest{Model: e.o.Model, Prompt: prompt, Raw: true, Stream: &yes, Format: format, KeepAlive: keep, Options: options},
			extra{Think: &no, Truncate: &no, Shift: &no},
		}}
	}
	turns := make([]api.Message, len(messages))
	for i, m := range messages {
		turns[i] = api.Message{Role: m.Role, Content: m.Content}
	}
	think := e.o.Think
	return request{"/api/chat", chatRequest{
		api.ChatRequest{Model: e.o.Model, Messages: turns, Stream: &yes, Format: format, KeepAlive: keep, Options: options},
		extra{Think: &think, Truncate: &no, Shift: &no},
	}}
}
