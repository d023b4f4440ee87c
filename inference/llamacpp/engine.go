package llamacpp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/data"
	"demur/inference"
	"demur/models"
)

// Options say which model to open and how. The zero value of each field but
// Model works.
type Options struct {
	Model  string // GGUF file; any part of a split model
	LibDir string // folder of the llama.cpp libraries; see FindLibrary

	// Context is the number of tokens that prompt and answer of one trial may
	// have together. 0 means 2048, or what the model was trained for if that is
	// less.
	Context   int
	GPULayers int // layers computed by a GPU; 0 none, −1 all
	Threads   int // of the products; 0 means one a core, at most GOMAXPROCS

	ChatTemplate string // Jinja source to use instead of the model's own
	Adapter      string // LoRA adapter, a GGUF file, applied at scale 1
	Think        string // enable_thinking of the chat template: on, off, or empty for unset

	// Strict decodes one row at a time and evaluates each prompt alone, so that
	// the text of a trial depends neither on its unit nor on its neighbours. It is
	// several times slower.
	Strict bool
	// Rows bounds the rows of a batch, 1 to 256; 0 means 80: four prompts
	// of a sweep of 4 temperatures × 5 seeds, and room for short jobs beside them.
	Rows int
	// CacheBytes bounds the memory of keys and values, and so the rows where
	// trials are long; 0 means 1 GiB. There is always room for one row.
	CacheBytes int64

	Progress inference.Progress // may be nil
	Log      *slog.Logger       // may be nil
}

const (
	defaultContext = 2048
	defaultRows    = 80
	maxRows        = 256 // LLAMA_MAX_SEQ
	defaultCache   = 1 << 30
	batchTokens    = 2048
	ubatchTokens   = 512
	cellPad        = 256 // llama.cpp rounds streams up to this many cells
)

// An Engine runs one model. It is used by one goroutine at a time.
type Engine struct {
	o        Options
	lib      *library
	model    llama.Model
	adapter  llama.AdapterLora
	vocab    *vocabulary
	template *chatTemplate
	info     inference.Info
	forks    bool // the memory can fork
	cellSize int64

	pools    pools
	arena    *arena // made when first needed; nil before
	viewer   *viewer
	steering *steering // in force; nil for none
	steers   bool      // it was tried that the model can be steered
	vectors  bool      // and that control vectors add as the callback does
	ablates  bool      // it was tried that an ablater leaves nothing of a direction
	prefixes prefixes
	layouts  map[string][]llama.Token

	counters inference.Counters
	times    Times
	cores    coreUse
	closed   bool
}

// Times says where the time of an engine went.
type Times struct {
	Prompt, Decode, Sample time.Duration // evaluating prompts, decoding rows, drawing tokens
	Total                  time.Duration // inside Generate, the caller's own time between answers left out
}

var (
	_ inference.Engine = (*Engine)(nil)
	_ inference.Meter  = (*Engine)(nil)
)

// Open loads a model. An error that is inference.ErrUnavailable means that the
// library or the model cannot be had, one that is ErrNoTemplate that the model
// needs Options.ChatTemplate.
func Open(o Options) (*Engine, error) {
	e := &Engine{o: o, layouts: make(map[string][]llama.Token)}
	if err := e.open(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Engine) open() error {
	o := &e.o
	switch {
	case o.Context < 0:
		return fmt.Errorf("context of %d tokens is negative", o.Context)
	case o.Rows < 0 || o.Rows > maxRows:
		return fmt.Errorf("%d rows are not between 1 and %d", o.Rows, maxRows)
	case o.CacheBytes < 0:
		return fmt.Errorf("cache of %d bytes is negative", o.CacheBytes)
	case o.Threads < 0:
		return fmt.Errorf("%d threads are negative", o.Threads)
	case o.GPULayers < -1:
		return fmt.Errorf("%d GPU layers are fewer than none", o.GPULayers)
	case o.Think != "" && o.Think != "on" && o.Think != "off":
		return fmt.Errorf("think is %q; it is on, off or not set", o.Think)
	}
	if o.Rows == 0 {
		o.Rows = defaultRows
	}
	if o.Strict {
		o.Rows = 1
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCache
	}
	file, facts, err := find(o.Model)
	if err != nil {
		return err
	}
	if e.lib, err = load(o.LibDir); err != nil {
		return err
	}
	if o.Threads == 0 {
		o.Threads = min(int(llama.Threads()), runtime.GOMAXPROCS(0))
	}
	// llama.cpp takes the number in silence and computes on the CPU, so that two
	// plans would have two ids and one meaning.
	if o.GPULayers > 0 && !llama.SupportsGpuOffload() {
		return unavailable("%d layers are to be put on a GPU, but the llama.cpp library has no GPU backend, or found no GPU; leave --gpu-layers out, or name a library built for this GPU with --lib", o.GPULayers)
	}
	if err := e.loadModel(file); err != nil {
		return err
	}
	trained := int(llama.ModelNCtxTrain(e.model))
	switch {
	case o.Context == 0:
		o.Context = defaultContext
		if trained > 0 {
			o.Context = min(o.Context, trained)
		}
	case trained > 0 && o.Context > trained:
		e.note(fmt.Sprintf("the context of %d tokens is longer than the %d that the model was trained for", o.Context, trained))
	}
	e.forks = !llama.ModelIsRecurrent(e.model) && !llama.ModelIsHybrid(e.model)
	if !e.forks {
		e.note("the memory of this model (recurrent or hybrid) is not forked: each continuation evaluates its prompt again, which is slower")
	}
	if llama.ModelHasEncoder(e.model) || !llama.ModelHasDecoder(e.model) {
		return unavailable("model %s: it is not a text generator (%s)", o.Model, facts.Architecture)
	}
	if err := e.loadAdapter(); err != nil {
		return err
	}
	digest, err := models.Digest(context.Background(), file, models.Options{})
	if err != nil {
		return unavailable("%w", err)
	}
	heads := max(1, int(llama.ModelNHead(e.model)))
	width := int(llama.ModelNEmbd(e.model))
	blocks := int(llama.ModelNLayer(e.model))
	key := e.number(facts.Architecture+".attention.key_length", width/heads)
	value := e.number(facts.Architecture+".attention.value_length", width/heads)
	e.cellSize = max(1, int64(blocks)*int64(max(1, int(llama.ModelNHeadKV(e.model))))*int64(key+value)*2)
	e.info.Engine = "llamacpp"
	e.info.Version = e.lib.version
	e.info.Model = file.Name
	e.info.ModelDigest = digest
	e.info.TemplateHash = e.template.digest()
	e.info.Architecture = facts.Architecture
	e.info.Device = e.device()
	e.info.Context = o.Context
	e.info.Blocks = blocks
	e.info.Width = width
	e.info.Reproducible = true
	e.info.Scorer = true
	e.info.Grammars = true
	e.info.Plan = e.plan()
	return nil
}

// find resolves a model and checks its header before any C code sees it.
func find(name string) (models.File, models.Facts, error) {
	file, err := models.Resolve(context.Background(), name, models.Options{})
	if err != nil {
		return file, models.Facts{}, unavailable("%w", err)
	}
	if file.Path == "" {
		return file, models.Facts{}, unavailable("model %s has no file; build it first", name)
	}
	facts, err := models.ReadFacts(file)
	if err != nil {
		return file, facts, unavailable("%w", err)
	}
	return file, facts, nil
}

func (e *Engine) loadModel(file models.File) error {
	p := llama.ModelDefaultParams()
	p.NGpuLayers = int32(e.o.GPULayers)
	var err error
	if e.model, e.vocab, err = loadFile(e.lib, file, p); err != nil {
		return err
	}
	e.template, err = templateOf(e.model, e.vocab, file, e.o)
	return err
}

// loadFile loads a model, or its vocabulary alone.
func loadFile(lib *library, file models.File, p llama.ModelParams) (llama.Model, *vocabulary, error) {
	lib.log.clear()
	// llama.cpp finds the other parts of a split model from the first one's name.
	model, err := llama.ModelLoadFromFile(file.Path, p)
	if err != nil || model == 0 {
		return 0, nil, unavailable("llama.cpp cannot load model %s%s", file.Path, lib.log.said())
	}
	v, err := newVocabulary(model)
	if err != nil {
		llama.ModelFree(model)
		return 0, nil, unavailable("model %s: %w", file.Path, err)
	}
	return model, v, nil
}

// templateOf returns the chat template in force.
func templateOf(model llama.Model, v *vocabulary, file models.File, o Options) (*chatTemplate, error) {
	source := o.ChatTemplate
	if source == "" {
		source = metadata(model, "tokenizer.chat_template")
	}
	if source == "" {
		return nil, &noTemplateError{file.Path}
	}
	t, err := newChatTemplate(source, v.text(v.bos), v.text(v.eos), o.Think)
	if err != nil {
		return nil, unavailable("model %s: %w; give another with --chat-template", file.Path, err)
	}
	return t, nil
}

type noTemplateError struct{ path string }

func (e *noTemplateError) Error() string {
	return "model " + e.path + " has no chat template, so it is not known how to ask it anything; it may be a base model; give a Jinja template with --chat-template"
}

func (e *noTemplateError) Unwrap() []error {
	return []error{ErrNoTemplate, inference.ErrUnavailable}
}

func metadata(model llama.Model, key string) string {
	s, _ := llama.ModelMetaValStr(model, key)
	return s
}

func (e *Engine) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(metadata(e.model, key)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func (e *Engine) loadAdapter() error {
	path := e.o.Adapter
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return unavailable("adapter: %w", err)
	case !info.Mode().IsRegular():
		return unavailable("adapter %s is not a file", path)
	}
	sum, err := fileDigest(path)
	if err != nil {
		return unavailable("adapter: %w", err)
	}
	e.lib.log.clear()
	e.adapter, err = llama.AdapterLoraInit(e.model, path)
	if err != nil || e.adapter == 0 {
		return unavailable("llama.cpp cannot load adapter %s for model %s%s", path, e.o.Model, e.lib.log.said())
	}
	e.info.Adapter = "sha256:" + sum
	return nil
}

func (e *Engine) note(s string) { e.info.Notes = append(e.info.Notes, s) }

// device names the devices that compute.
func (e *Engine) device() string {
	var names []string
	for i := range llama.GGMLBackendDeviceCount() {
		d := llama.GGMLBackendDeviceGet(i)
		name := llama.GGMLBackendDeviceName(d)
		if name != "CPU" && e.o.GPULayers == 0 {
			continue
		}
		if s := strings.TrimSpace(llama.GGMLBackendDeviceDescription(d)); s != "" && s != name {
			name += " (" + s + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "CPU"
	}
	return strings.Join(names, ", ")
}

// plan lists what can change a bit of the output.
//
// The number of threads is among it because of one case; see longRow.
func (e *Engine) plan() map[string]string {
	p := map[string]string{
		"cpu_variant":     e.lib.variant,
		"device":          e.info.Device,
		"gpu_layers":      strconv.Itoa(e.o.GPULayers),
		"threads":         strconv.Itoa(e.o.Threads),
		"flash_attention": "enabled",
		"cache":           "one stream a row, f16",
		"cache_bytes":     strconv.FormatInt(e.o.CacheBytes, 10),
		"n_ctx":           strconv.Itoa(e.o.Context),
		"n_batch":         strconv.Itoa(batchTokens),
		"n_ubatch":        strconv.Itoa(ubatchTokens),
		"n_seq_max":       strconv.Itoa(e.o.Rows),
		"split":           splitName,
		"strict":          strconv.FormatBool(e.o.Strict),
		"sampler":         samplerName,
		"template_sha256": e.info.TemplateHash,
		"template_date":   frozenDate.Format(time.DateOnly),
		"think":           e.o.Think,
		"model":           e.info.ModelDigest,
	}
	for name, sum := range maps.All(e.lib.digests) {
		p[name] = "sha256:" + sum
	}
	if e.info.Adapter != "" {
		p["adapter"] = e.info.Adapter
	}
	if !e.forks {
		p["cache"] = "unified, not forked, f16"
	}
	return p
}

// Info describes the engine. The maps and slices in it are the caller's.
func (e *Engine) Info() inference.Info {
	i := e.info
	i.Plan = maps.Clone(i.Plan)
	i.Notes = append([]string(nil), i.Notes...)
	return i
}

// Counters returns what was done since the engine was opened.
func (e *Engine) Counters() inference.Counters {
	c := e.counters
	c.RowHistogram = maps.Clone(c.RowHistogram)
	return c
}

// Times returns where the time went since the engine was opened.
func (e *Engine) Times() Times { return e.times }

// Close frees the model. The library stays loaded.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	errs := []error{e.closeArenas()}
	e.pools.free()
	e.prefixes = prefixes{}
	if e.model != 0 {
		// It frees its adapters too.
		errs = append(errs, llama.ModelFree(e.model))
		e.model = 0
	}
	return errors.Join(errs...)
}

func (e *Engine) closeArenas() error {
	var errs []error
	if e.arena != nil {
		errs = append(errs, e.arena.close())
		e.arena = nil
	}
	if e.viewer != nil {
		errs = append(errs, e.viewer.a.close())
		e.viewer = nil
	}
	return errors.Join(errs...)
}

// An arena is a llama.cpp context: streams of cells for the rows, and a batch.
type arena struct {
	ctx      llama.Context
	memory   llama.Memory
	batch    llama.Batch
	streams  int
	cells    int  // of each stream
	limit    int  // tokens of a batch
	threads  int  // that it uses now
	tap      *tap // nil without
	vectored bool // it has a control vector
}

// rowsFor returns how many rows of that many cells the cache may have. It is a
// function of the plan and the unit.
func (e *Engine) rowsFor(cells int) int {
	return int(max(1, min(int64(e.o.Rows), e.o.CacheBytes/(e.cellSize*int64(cells)))))
}

// makeArena sees to an arena of at least that many streams and cells. A larger
// one gives the same bits, for the kernels look at the cells in use only.
func (e *Engine) makeArena(streams, cells int) error {
	if a := e.arena; a != nil {
		if a.streams >= streams && a.cells >= cells {
			return nil
		}
		e.arena = nil
		if err := a.close(); err != nil {
			return err
		}
	}
	a, err := e.newArena(streams, cells, e.forks, nil)
	if err != nil {
		return err
	}
	e.arena = a
	return nil
}

// newArena makes an arena; separate gives each stream cells of its own. A tap, if
// not nil, sees the tensors of its decodes, and the caller steers it; else the
// steering in force holds.
func (e *Engine) newArena(streams, cells int, separate bool, t *tap) (*arena, error) {
	return e.newArenaWith(streams, cells, separate, t, nil)
}

// newArenaWith makes one with other settings, for the conformance suite.
func (e *Engine) newArenaWith(streams, cells int, separate bool, t *tap, set func(*llama.ContextParams)) (*arena, error) {
	p := llama.ContextDefaultParams()
	p.NCtx = uint32(streams * cells)
	p.NBatch = batchTokens
	p.NUbatch = ubatchTokens
	p.NSeqMax = uint32(streams)
	p.NThreads = int32(e.o.Threads)
	p.NThreadsBatch = int32(e.o.Threads)
	p.FlashAttentionType = llama.FlashAttentionTypeEnabled
	p.SwaFull = 1
	if !separate {
		p.KVUnified = 1
	}
	if set != nil {
		set(&p)
	}
	a := &arena{threads: e.o.Threads, streams: streams, tap: t}
	if t == nil && e.steering.writes() {
		a.tap = newTap(e.info)
	}
	if a.tap != nil {
		s, err := e.lib.tapping()
		if err != nil {
			return nil, err
		}
		s.add(a.tap)
		p.CbEval, p.CbEvalUserData = s.callback, a.tap.id
	}
	e.lib.log.clear()
	ctx, err := llama.InitFromModel(e.model, p)
	if err != nil || ctx == 0 {
		a.close()
		return nil, fmt.Errorf("make a llama.cpp context of %d × %d cells (%d MiB of keys and values)%s; a smaller --ctx needs less memory",
			streams, cells, int64(streams)*int64(cells)*e.cellSize>>20, e.lib.log.said())
	}
	a.ctx, a.cells, a.limit = ctx, int(llama.NCtxSeq(ctx)), int(llama.NBatch(ctx))
	if err := e.pools.attach(ctx, e.o.Threads, t != nil); err != nil {
		return nil, errors.Join(err, a.close())
	}
	if !separate {
		a.cells = cells
	}
	if a.memory, err = llama.GetMemory(ctx); err != nil || a.memory == 0 {
		return nil, errors.Join(fmt.Errorf("the llama.cpp context has no memory"), err, a.close())
	}
	if int(llama.NSeqMax(ctx)) < streams || a.cells < cells || a.limit < 1 {
		return nil, errors.Join(fmt.Errorf("llama.cpp made a context of %d × %d cells where %d × %d were wanted", llama.NSeqMax(ctx), a.cells, streams, cells), a.close())
	}
	if err := e.setAdapters(a, e.adapters()); err != nil {
		if e.adapter != 0 {
			err = fmt.Errorf("with adapter %s: %w", e.o.Adapter, err)
		}
		return nil, errors.Join(err, a.close())
	}
	if t == nil {
		if err := e.steer(a, e.steering); err != nil {
			return nil, errors.Join(err, a.close())
		}
	}
	a.batch = llama.BatchInit(int32(a.limit), 0, 1)
	return a, nil
}

func (a *arena) close() error {
	if a.batch.Token != nil {
		llama.BatchFree(a.batch)
		a.batch = llama.Batch{}
	}
	var err error
	if a.ctx != 0 {
		err = llama.Free(a.ctx)
		a.ctx = 0
	}
	if a.tap != nil {
		a.tap.lib.remove(a.tap)
		a.tap = nil
	}
	return err
}

func (a *arena) clear() error { return llama.MemoryClear(a.memory, false) }

// drop forgets a stream.
func (a *arena) drop(stream int) error {
	ok, err := llama.MemorySeqRm(a.memory, llama.SeqId(stream), -1, -1)
	if err == nil && !ok {
		err = fmt.Errorf("llama.cpp cannot clear stream %d", stream)
	}
	return err
}

// copy makes stream to equal to stream from. The cells themselves are copied
// when the next batch is decoded.
func (a *arena) copy(from, to int) error {
	return llama.MemorySeqCp(a.memory, llama.SeqId(from), llama.SeqId(to), -1, -1)
}

// save returns a copy of a stream, restore puts one into another stream.
func (a *arena) save(stream int) ([]byte, error) {
	b := make([]byte, llama.StateSeqGetSize(a.ctx, llama.SeqId(stream)))
	if n := llama.StateSeqGetData(a.ctx, b, llama.SeqId(stream)); n == 0 || int(n) != len(b) {
		return nil, fmt.Errorf("llama.cpp saved %d of %d bytes of a sequence", n, len(b))
	}
	return b, nil
}

func (a *arena) restore(state []byte, stream int) error {
	if n := llama.StateSeqSetData(a.ctx, state, llama.SeqId(stream)); n == 0 {
		return fmt.Errorf("llama.cpp cannot restore a sequence of %d bytes", len(state))
	}
	return nil
}

// add puts a token into the batch.
func (a *arena) add(t llama.Token, pos, stream int, output bool) error {
	return a.batch.Add(t, llama.Pos(pos), []llama.SeqId{llama.SeqId(stream)}, output)
}

// decode evaluates the batch.
func (e *Engine) decode(a *arena) error {
	if a.tap != nil {
		a.tap.begin()
	}
	rc, err := llama.Decode(a.ctx, a.batch)
	if err == nil && rc != 0 {
		err = fmt.Errorf("llama.cpp returned %d for a batch of %d tokens%s", rc, a.batch.NTokens, e.lib.log.said())
	}
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	// Waits for the end, so that the time belongs to the decode.
	err = llama.Synchronize(a.ctx)
	if err == nil && a.tap != nil {
		err = a.tap.steered()
	}
	return err
}

// logits returns the row of the batch's i-th token. It is llama.cpp's memory and
// holds until the next decode.
func (e *Engine) logits(a *arena, i int) ([]float32, error) {
	l, err := llama.GetLogitsIth(a.ctx, int32(i), e.vocab.size)
	if err == nil && l == nil {
		err = fmt.Errorf("llama.cpp gives no logits for token %d of the batch", i)
	}
	return l, err
}

// A Renderer shows what a model would be shown. It loads the vocabulary alone.
type Renderer struct {
	model    llama.Model
	vocab    *vocabulary
	template *chatTemplate
}

var _ inference.Renderer = (*Renderer)(nil)

// OpenRenderer opens the vocabulary and the chat template of a model. Of the
// options it uses Model, LibDir, ChatTemplate and Think.
func OpenRenderer(o Options) (*Renderer, error) {
	file, _, err := find(o.Model)
	if err != nil {
		return nil, err
	}
	lib, err := load(o.LibDir)
	if err != nil {
		return nil, err
	}
	p := llama.ModelDefaultParams()
	p.VocabOnly = 1
	model, v, err := loadFile(lib, file, p)
	if err != nil {
		return nil, err
	}
	t, err := templateOf(model, v, file, o)
	if err != nil {
		llama.ModelFree(model)
		return nil, err
	}
	return &Renderer{model: model, vocab: v, template: t}, nil
}

// Render returns the bytes that the model is shown and the number of their
// tokens, a begin-of-text token included that the template leaves to the engine.
func (r *Renderer) Render(messages []data.Message) (string, int, error) {
	if r.model == 0 {
		return "", 0, errors.New("render: the renderer is closed")
	}
	x, err := r.vocab.rendered(r.template, messages)
	if err != nil {
		return "", 0, err
	}
	return x.text, len(x.tokens), nil
}

// TemplateHash returns the lowercase hex SHA-256 of the chat template in force.
func (r *Renderer) TemplateHash() string { return r.template.digest() }

// Close frees the vocabulary.
func (r *Renderer) Close() error {
	if r.model == 0 {
		return nil
	}
	err := llama.ModelFree(r.model)
	r.model = 0
	return err
}

func hexDigest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Quantise writes a copy of a model with all its tensors in the named
// quantisation: Q8_0, Q4_0, Q4_1 or F16. The file appears under its name when it
// is whole. It is meant for tests and measurements that need one model in
// several quantisations; what is quantised twice is worse than what is quantised
// once.
func Quantise(libDir, from, to, kind string) error {
	types := map[string]llama.Ftype{"Q8_0": llama.FtypeMostlyQ8_0, "Q4_0": llama.FtypeMostlyQ4_0, "Q4_1": llama.FtypeMostlyQ4_1, "F16": llama.FtypeMostlyF16}
	ftype, ok := types[kind]
	if !ok {
		return fmt.Errorf("quantise %s: %q is not one of F16, Q8_0, Q4_1, Q4_0", from, kind)
	}
	if _, _, err := find(from); err != nil {
		return err
	}
	lib, err := load(libDir)
	if err != nil {
		return err
	}
	p := llama.ModelQuantizeDefaultParams()
	p.Ftype, p.AllowRequantize, p.Pure = ftype, 1, 1
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("quantise: %w", err)
	}
	part := fmt.Sprintf("%s.%d.part", to, os.Getpid())
	lib.log.clear()
	if rc := llama.ModelQuantize(from, part, &p); rc != 0 {
		os.Remove(part)
		return fmt.Errorf("quantise %s: llama.cpp returned %d%s", from, rc, lib.log.said())
	}
	if err := os.Rename(part, to); err != nil {
		return fmt.Errorf("quantise: %w", err)
	}
	return nil
}
