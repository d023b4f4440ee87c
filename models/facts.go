package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"

	gguf "github.com/gpustack/gguf-parser-go"
)

// Facts is what a GGUF file says about itself. Numbers that it does not give
// are 0.
type Facts struct {
	Title        string `json:"title,omitempty"`   // the name that the file gives itself
	License      string `json:"license,omitempty"` // likewise
	FileSize     int64  `json:"file_size"`         // bytes, all parts together
	Files        int    `json:"files"`             // parts
	Architecture string `json:"architecture"`
	Parameters   int64  `json:"parameters"` // weights
	Quantisation string `json:"quantisation"`
	Blocks       int    `json:"blocks"`
	Width        int    `json:"width"` // of the residual stream
	Heads        int    `json:"heads"`
	HeadsKV      int    `json:"heads_kv"`
	Context      int    `json:"context"` // tokens it was trained for
	Window       int    `json:"window,omitempty"`
	Experts      int    `json:"experts,omitempty"`
	Vocabulary   int    `json:"vocabulary"`
	Tokenizer    string `json:"tokenizer"` // kind and, after a slash, how text is cut up first
	// AddBOS is whether the tokenizer puts a begin-of-text token before a prompt;
	// null where the file leaves that to its kind of tokenizer.
	AddBOS *bool `json:"add_bos,omitempty"`
	// Template is the chat template, Jinja; empty where the file has none.
	Template string `json:"template,omitempty"`
	// Recurrent is true where blocks carry a state that cannot be forked at will.
	Recurrent bool `json:"recurrent,omitempty"`
	// Warnings are what could not be read although the header is whole.
	Warnings []string `json:"warnings,omitempty"`

	parsed *gguf.GGUFFile
}

// ReadFacts checks the header of each part of a model (see CheckHeader) and
// returns what it says. A file that is no language model, such as an adapter or
// a projector, is an error. Errors are of type *Error.
func ReadFacts(f File) (Facts, error) {
	if len(f.Parts) == 0 {
		return Facts{}, &Error{Kind: ErrMissing, Name: f.Name, Problem: "it has no file"}
	}
	var first *header
	facts := Facts{Files: len(f.Parts)}
	for i, path := range f.Parts {
		h, size, err := headerOf(path)
		if err != nil {
			return Facts{}, err
		}
		if err := h.checkPart(i, len(f.Parts)); err != nil {
			err.Name = path
			return Facts{}, err
		}
		facts.FileSize += size
		facts.Parameters += int64(h.parameters)
		if i == 0 {
			first = h
		}
	}
	if err := facts.fill(first); err != nil {
		err.Name = f.Path
		return Facts{}, err
	}
	if err := facts.parse(f.Path); err != nil {
		// llama.cpp is the judge of the file: what this parser does not know yet
		// may well load.
		facts.Warnings = append(facts.Warnings, "no memory estimate: "+err.Error())
	}
	return facts, nil
}

// headerOf opens and reads one file.
func headerOf(path string) (*header, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, 0, &Error{Kind: ErrMissing, Name: path, Problem: "there is no such file", Hint: "check the path"}
		}
		return nil, 0, unreadable(path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, unreadable(path, err)
	}
	if info.IsDir() {
		return nil, 0, &Error{Kind: ErrNotGGUF, Name: path, Problem: "this is a folder, not a model file", Hint: "give the GGUF file itself"}
	}
	h, err := readHeader(file, info.Size())
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Name = path
		}
		return nil, 0, err
	}
	return h, info.Size(), nil
}

// checkPart compares what a header says of its place in a split model with what
// the file names say.
func (h *header) checkPart(i, of int) *Error {
	count, split := h.integer("split.count")
	no, _ := h.integer("split.no")
	switch {
	case !split && of == 1:
		return nil
	case !split:
		return &Error{Kind: ErrDamaged, Problem: fmt.Sprintf("its name says part %d of %d, but it is a whole model", i+1, of), Hint: "rename the file"}
	case count != of && of == 1 && count > 1:
		return &Error{
			Kind: ErrMissing, Problem: fmt.Sprintf("it is one of %d parts of a model, but its name does not say so", count),
			Hint: fmt.Sprintf("name the parts NAME-00001-of-%05d.gguf and so on, as llama.cpp expects", count),
		}
	case count != of || no != i:
		return &Error{Kind: ErrDamaged, Problem: fmt.Sprintf("its name says part %d of %d, its header part %d of %d", i+1, of, no+1, count), Hint: "rename the files"}
	}
	return nil
}

// fill takes the facts from the header of the first part.
func (f *Facts) fill(h *header) *Error {
	f.Architecture = h.text("general.architecture")
	switch kind := h.text("general.type"); {
	case kind == "adapter":
		return &Error{Kind: ErrNotGGUF, Problem: "this is a LoRA adapter, not a model", Hint: "give it to --lora, and its base model to --model"}
	case kind == "mmproj" || f.Architecture == "clip":
		return &Error{Kind: ErrNotGGUF, Problem: "this is the projector of a vision model, not a language model", Hint: "give the model's other GGUF file"}
	case h.tensors == 0 && f.Files == 1:
		return &Error{Kind: ErrNotGGUF, Problem: "it holds no weights, only a vocabulary", Hint: "give the model's own GGUF file"}
	}
	at := func(key string) int {
		n, _ := h.integer(f.Architecture + "." + key)
		return n
	}
	f.Title = oneLine(h.text("general.name"))
	f.License = oneLine(h.text("general.license"))
	f.Blocks = at("block_count")
	f.Width = at("embedding_length")
	f.Heads = at("attention.head_count")
	f.HeadsKV = at("attention.head_count_kv")
	f.Context = at("context_length")
	f.Window = at("attention.sliding_window")
	f.Experts = at("expert_count")
	f.Vocabulary = at("vocab_size")
	if tokens, ok := h.list("tokenizer.ggml.tokens"); ok {
		f.Vocabulary = int(tokens.length)
	}
	f.Tokenizer = oneLine(h.text("tokenizer.ggml.model"))
	if pre := oneLine(h.text("tokenizer.ggml.pre")); pre != "" {
		f.Tokenizer += "/" + pre
	}
	if add, ok := h.values["tokenizer.ggml.add_bos_token"].(bool); ok {
		f.AddBOS = &add
	}
	f.Template = h.text("tokenizer.chat_template")
	for _, key := range []string{"ssm.conv_kernel", "ssm.state_size", "wkv.head_size", "shortconv.l_cache"} {
		if at(key) > 0 {
			f.Recurrent = true
		}
	}
	f.Architecture = oneLine(f.Architecture) // last, for keys begin with it
	return nil
}

// oneLine returns a text of a file as it can be shown on a terminal and in a
// table: one line of bounded length, no control characters.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// parse reads the file again by the parser that knows the architectures. It
// sees only headers that passed the check above; it still may panic on what it
// does not expect, which is then an error.
func (f *Facts) parse(path string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	parsed, err := gguf.ParseGGUFFile(path, gguf.SkipLargeMetadata())
	if err != nil {
		return err
	}
	m, a := parsed.Metadata(), parsed.Architecture()
	f.Quantisation = strings.TrimPrefix(m.FileType.String(), "MOSTLY_")
	if f.HeadsKV == 0 {
		f.HeadsKV = int(a.AttentionHeadCountKV)
	}
	f.Recurrent = f.Recurrent || a.AttentionRecurrent
	f.parsed = parsed
	return nil
}

// Memory is an estimate of what a run takes, in bytes.
type Memory struct {
	Weights int64 `json:"weights"` // the file itself; mapped, so shared and evictable
	Cache   int64 `json:"cache"`   // keys and values
	Compute int64 `json:"compute"` // buffers of the graph and of the logits
	Total   int64 `json:"total"`
}

// Memory estimates what the model takes with a unified cache of that many cells
// (tokens, all sequences together), keys and values in 16 bits, flash attention
// on, everything in main memory. It reports false where the model's
// architecture is not known well enough.
func (f Facts) Memory(cells int) (m Memory, ok bool) {
	if f.parsed == nil || cells < 1 || cells > 1<<30 {
		return Memory{}, false
	}
	defer func() {
		if recover() != nil {
			m, ok = Memory{}, false
		}
	}()
	e := f.parsed.EstimateLLaMACppRun(
		gguf.WithLLaMACppContextSize(int32(cells)),
		gguf.WithLLaMACppOffloadLayers(0),
		gguf.WithFlashAttention(),
		gguf.WithLLaMACppFullSizeSWACache(),
	)
	m.Weights = f.FileSize
	for _, d := range e.Devices {
		m.Cache += int64(d.KVCache.Key + d.KVCache.Value)
		m.Compute += int64(d.Computation.Footprint + d.Computation.Input + d.Computation.Compute + d.Computation.Output)
	}
	m.Total = m.Weights + m.Cache + m.Compute
	return m, true
}
