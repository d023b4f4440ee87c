package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/data"
	"demur/inference"
)

var (
	_ inference.Activator = (*Engine)(nil)
	_ inference.Tokenizer = (*Engine)(nil)
)

// A viewer is a context of its own whose tensors are looked at, so that no
// generation ever runs through a callback.
//
// Its memory is unified: llama.cpp then cuts a batch in the order of its tokens,
// while with a stream for each sequence it puts the sequences' tokens in another
// order, which no error would show. That the order holds is tried on each model
// (check) before prompts are put together; where it does not, or where the
// memory cannot share a prefix, each prompt is evaluated alone.
type viewer struct {
	a      *arena
	tap    *tap
	pack   int           // prompts in a batch, at most
	chunk  int           // tokens of a decode, at most
	prefix []llama.Token // that stands in sequence 0
}

const (
	viewPack = 16 // prompts in a batch
	// viewTokens bounds the tokens of a batch. From 64 tokens on the attention
	// kernel of the CPU is another, with other last bits (llama.cpp v0.5.0,
	// ggml/src/ggml-cpu/ops.cpp, ggml_compute_forward_flash_attn_ext_f16: neq1 >=
	// Q_TILE_SZ), which a quantised model turns into some hundredths of a row's
	// length. Below it a prompt has the same bits alone, with a shared prefix and
	// beside others, and on SmolLM2-135M Q8_0 larger batches are no faster: 28 ms a
	// prompt of 18 tokens after the prefix with batches of 63, 128, 256 and 512.
	viewTokens = 63
	// gpuTokens bounds it where a GPU computes, which wants larger batches. One
	// graph a batch all the same, so that a row is a token.
	gpuTokens = ubatchTokens
)

// Tokenize returns the tokens of a prompt as Activate evaluates it, and their
// bytes.
func (e *Engine) Tokenize(messages []data.Message, prefix string) (ids []int32, pieces []string, err error) {
	if e.closed {
		return nil, nil, errClosed
	}
	tokens, err := e.promptTokens(messages, prefix)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range tokens {
		ids = append(ids, int32(t))
		pieces = append(pieces, e.vocab.piece(t))
	}
	return ids, pieces, nil
}

func (e *Engine) promptTokens(messages []data.Message, prefix string) ([]llama.Token, error) {
	r, err := e.vocab.rendered(e.template, messages)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inference.ErrPrompt, err)
	}
	tokens, err := e.extend(r, prefix)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inference.ErrPrompt, err)
	}
	if len(tokens) > e.o.Context {
		return nil, fmt.Errorf("%w: it has %d tokens, more than the context of %d; raise --ctx", inference.ErrPrompt, len(tokens), e.o.Context)
	}
	return tokens, nil
}

// A view is a job of Activate or Distributions while its batch runs.
type view struct {
	job    *inference.ActivateJob
	tokens []llama.Token
	cut    int // tokens of the shared prefix
	slots  map[int]int
	layers []int
	ends   bool      // the distribution after the last token is wanted
	next   []float32 // and what it is
	err    error
}

// Activate yields the residual stream of prompts. See inference.Activator.
//
// The template's beginning is evaluated once and shared, and the rest of several
// short prompts together, in the order of the jobs; on the CPU that changes no
// bit, see viewTokens. Attention is the flash attention of Generate. With
// Options.Strict each prompt is evaluated whole and alone.
func (e *Engine) Activate(ctx context.Context, jobs []inference.ActivateJob) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		e.evaluate(ctx, jobs, false, func(v *view, err error) bool {
			switch {
			case v == nil:
				return yield(data.Activation{}, err)
			case err != nil:
				return yield(data.Activation{PromptID: v.job.Prompt.ID}, err)
			}
			return e.yieldView(v, yield)
		})
	}
}

// evaluate evaluates the prompts of jobs and gives each to done when it has been:
// a view with an error is one that cannot be evaluated, an error without a view is
// the end. With ends the distribution after each prompt is wanted.
func (e *Engine) evaluate(ctx context.Context, jobs []inference.ActivateJob, ends bool, done func(*view, error) bool) {
	if e.closed {
		done(nil, errClosed)
		return
	}
	if err := ctx.Err(); err != nil {
		done(nil, err)
		return
	}
	views := make([]*view, len(jobs))
	cells := 0
	for i := range jobs {
		v, err := e.newView(&jobs[i])
		if err != nil {
			done(nil, fmt.Errorf("evaluate prompt %.8s: %w", jobs[i].Prompt.ID, err))
			return
		}
		if v.ends = ends; ends && v.err == nil && len(v.tokens) == 0 {
			v.err = errNoTokens
		}
		views[i] = v
		cells = max(cells, len(v.tokens))
	}
	if slices.ContainsFunc(views, func(v *view) bool { return v.err == nil }) {
		if err := e.openViewer(cells); err != nil {
			done(nil, err)
			return
		}
	}
	for len(views) > 0 {
		n := len(views)
		if e.viewer != nil { // else there is nothing to evaluate
			n = e.viewer.fit(views)
			if err := e.see(ctx, views[:n]); err != nil {
				done(nil, err)
				return
			}
		}
		for _, v := range views[:n] {
			if !done(v, v.err) {
				return
			}
		}
		views = views[n:]
	}
}

// newView renders a job. An error is one that ends all; of one that concerns the
// prompt alone the view knows.
func (e *Engine) newView(job *inference.ActivateJob) (*view, error) {
	v := &view{job: job, layers: job.Layers}
	if v.layers == nil {
		for l := range e.info.Blocks {
			v.layers = append(v.layers, l)
		}
	}
	for _, l := range v.layers {
		if l < -1 || l >= e.info.Blocks {
			return nil, fmt.Errorf("there is no layer %d: the model has the layers 0 to %d, and −1 for the embedding", l, e.info.Blocks-1)
		}
	}
	if v.tokens, v.err = e.promptTokens(job.Prompt.Messages, job.Prefix); v.err != nil {
		v.tokens = nil
		return v, nil
	}
	first := len(v.tokens)
	for _, p := range job.Positions {
		if p > -1 || p < -len(v.tokens) {
			return nil, fmt.Errorf("there is no position %d: the prompt has %d tokens, from −%d to −1", p, len(v.tokens), len(v.tokens))
		}
		first = min(first, len(v.tokens)+p)
	}
	if e.forks && !e.o.Strict && len(v.tokens) > 0 {
		// A job that wants to see a part of the prefix evaluates it itself.
		if cut := common(v.tokens[:len(v.tokens)-1], e.layoutPrefix(job.Prompt.Messages)); cut <= first {
			v.cut = cut
		}
	}
	return v, nil
}

// fit returns how many of the next views share a batch: those that have the same
// prefix and fit.
func (w *viewer) fit(views []*view) int {
	tokens, prompts := 0, 0
	var first *view
	for i, v := range views {
		if v.err != nil {
			continue
		}
		if first == nil {
			first = v
		} else if prompts == w.pack || tokens+len(v.tokens)-v.cut > w.chunk || !slices.Equal(v.tokens[:v.cut], first.tokens[:first.cut]) {
			return i
		}
		tokens += len(v.tokens) - v.cut
		prompts++
	}
	return len(views)
}

// openViewer sees to a viewer with room for a prefix and a batch.
func (e *Engine) openViewer(cells int) error {
	cells = (cells + gpuTokens + cellPad - 1) / cellPad * cellPad
	if w := e.viewer; w != nil {
		if w.a.cells >= cells {
			return nil
		}
		e.viewer = nil
		if err := w.a.close(); err != nil {
			return err
		}
	}
	w := &viewer{pack: viewPack, chunk: viewTokens, tap: newTap(e.info)}
	if e.o.GPULayers != 0 {
		w.chunk = gpuTokens
	}
	if !e.forks || e.o.Strict {
		w.pack = 1
	}
	var err error
	if w.a, err = e.newArena(w.pack+1, cells, false, w.tap); err != nil {
		return err
	}
	err = e.checkViewer(w)
	if err == nil {
		err = e.steer(w.a, e.steering) // after the check, which is of the model as it is
	}
	if err != nil {
		return errors.Join(err, w.a.close())
	}
	e.viewer = w
	return nil
}

// A seen is a token of a batch.
type seen struct {
	token    llama.Token
	pos, seq int
	slot     int   // row of the output where its stream goes; −1 for one that is not wanted
	ends     *view // whose distribution is the one after it; nil for none
}

// see evaluates a batch of prompts and leaves the wanted rows in the tap.
func (e *Engine) see(ctx context.Context, views []*view) error {
	w := e.viewer
	layers := make([]bool, e.info.Blocks+1)
	var batch []seen
	var shared []llama.Token
	slots, seq := 0, 0
	for _, v := range views {
		if v.err != nil {
			continue
		}
		seq++
		for _, l := range v.layers {
			layers[l+1] = true
		}
		v.slots = make(map[int]int, len(v.job.Positions))
		for _, p := range v.job.Positions {
			v.slots[len(v.tokens)+p] = -1
		}
		shared = v.tokens[:v.cut]
		for i := v.cut; i < len(v.tokens); i++ {
			x := seen{token: v.tokens[i], pos: i, seq: seq, slot: -1}
			if v.ends && i == len(v.tokens)-1 {
				x.ends = v
			}
			if _, ok := v.slots[i]; ok {
				x.slot = slots
				v.slots[i] = slots
				slots++
			}
			batch = append(batch, x)
		}
	}
	if seq == 0 {
		return nil
	}
	begun := time.Now()
	defer func() { e.times.Prompt += time.Since(begun) }()
	if err := e.viewPrefix(w, shared); err != nil {
		return err
	}
	for s := 1; s <= seq && len(shared) > 0; s++ {
		if err := w.a.copy(0, s); err != nil {
			return err
		}
	}
	if err := e.look(ctx, w, batch, slots, layers); err != nil {
		w.prefix = nil
		return err
	}
	e.counters.PromptTokens += int64(len(batch))
	e.counters.PromptNeeded += int64(len(batch))
	for s := 1; s <= seq; s++ {
		if err := w.a.drop(s); err != nil {
			return err
		}
	}
	return nil
}

// viewPrefix sees to a prefix in sequence 0 and to nothing else in the memory.
func (e *Engine) viewPrefix(w *viewer, shared []llama.Token) error {
	if len(shared) > 0 && slices.Equal(w.prefix, shared) {
		return nil
	}
	w.prefix = nil
	if err := w.a.clear(); err != nil {
		return err
	}
	var batch []seen
	for i, t := range shared {
		batch = append(batch, seen{token: t, pos: i, slot: -1})
	}
	if err := e.look(context.Background(), w, batch, 0, make([]bool, e.info.Blocks+1)); err != nil {
		return fmt.Errorf("evaluate the shared prefix: %w", err)
	}
	e.counters.PromptTokens += int64(len(batch))
	e.counters.PromptNeeded += int64(len(batch))
	w.prefix = slices.Clone(shared)
	return nil
}

// look decodes tokens and copies the stream of those with a slot.
func (e *Engine) look(ctx context.Context, w *viewer, batch []seen, slots int, layers []bool) error {
	t := w.tap
	t.layers = layers
	t.out = make([][]float32, len(layers))
	t.seen = make([]bool, len(layers))
	wanting := false
	for i, wanted := range layers {
		if wanted && slots > 0 {
			wanting = true
			t.out[i] = make([]float32, slots*t.width)
		}
	}
	// The last block computes those tokens only that have outputs.
	last := layers[len(layers)-1] && slots > 0
	t.on = wanting || t.names != nil
	defer func() { t.on = false }()
	for part := range evenly(batch, min(w.chunk, w.a.limit)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		t.err, t.tokens, t.flagged, t.all, t.outputs = nil, len(part), 0, nil, nil
		clear(t.seen)
		w.a.batch.Clear()
		for i, x := range part {
			output := last && x.slot >= 0 || x.ends != nil
			if err := w.a.add(x.token, x.pos, x.seq, output); err != nil {
				return err
			}
			if x.slot >= 0 {
				t.all = grow(t.all, i, x.slot)
			}
			if output {
				if x.slot >= 0 {
					t.outputs = grow(t.outputs, t.flagged, x.slot)
				}
				t.flagged++
			}
		}
		e.setThreads(w.a, e.threadsFor(), w.a.cells, len(part) == 1)
		if err := e.decode(w.a); err != nil {
			return err
		}
		if e.o.Progress != nil {
			e.o.Progress(0)
		}
		if t.err != nil {
			return unavailable("read the residual stream of a %s model: %w", e.info.Architecture, t.err)
		}
		for i, x := range part {
			if x.ends == nil {
				continue
			}
			logits, err := e.logits(w.a, i)
			if err == nil {
				x.ends.next, err = logSoftmax(logits)
			}
			if err != nil {
				return fmt.Errorf("the distribution after prompt %.8s: %w", x.ends.job.Prompt.ID, err)
			}
		}
		if len(t.all) == 0 {
			continue
		}
		for i, wanted := range layers {
			if wanted && wanting && !t.seen[i] {
				return unavailable("read the residual stream of a %s model: the tensor of layer %d did not come", e.info.Architecture, i-1)
			}
		}
	}
	return nil
}

// evenly cuts a batch into as few parts of at most n tokens as can be, all about
// as long: a part of few tokens would be computed by other kernels.
func evenly(batch []seen, n int) iter.Seq[[]seen] {
	if len(batch) == 0 {
		return func(func([]seen) bool) {}
	}
	parts := (len(batch) + n - 1) / n
	return slices.Chunk(batch, (len(batch)+parts-1)/parts)
}

// grow adds a row to spans, to the last one where it goes on.
func grow(spans []span, row, slot int) []span {
	if n := len(spans); n > 0 {
		if s := &spans[n-1]; s.row+s.count == row && s.slot+s.count == slot {
			s.count++
			return spans
		}
	}
	return append(spans, span{row, 1, slot})
}

// yieldView yields the rows of a job.
func (e *Engine) yieldView(v *view, yield func(data.Activation, error) bool) bool {
	t := e.viewer.tap
	for _, l := range v.layers {
		for _, p := range v.job.Positions {
			i := len(v.tokens) + p
			at := v.slots[i] * t.width
			row := data.Activation{
				PromptID: v.job.Prompt.ID, Layer: l, Position: p, Token: int32(v.tokens[i]),
				Values: slices.Clone(t.out[l+1][at : at+t.width]),
			}
			if !yield(row, nil) {
				return false
			}
		}
	}
	return true
}

// checkViewer finds out where a model has its residual stream, and whether rows
// of several sequences come in the order of their tokens.
func (e *Engine) checkViewer(w *viewer) error {
	// Three sequences of different tokens and lengths.
	var parts [3][]seen
	n := 0
	for s, length := range []int{3, 1, 2} {
		for i := range length {
			n++
			parts[s] = append(parts[s], seen{token: llama.Token(n * (e.vocab.size - 1) / 7), pos: i, seq: s + 1, slot: i})
		}
	}
	layers := make([]bool, e.info.Blocks+1)
	for i := range layers {
		layers[i] = i > 0
	}
	alone := make([][]float32, len(layers))
	t := w.tap
	for s, part := range parts {
		if w.pack == 1 {
			for i := range part {
				part[i].seq = 0
			}
		}
		if s == 0 {
			t.names = make(map[string]bool)
		}
		err := e.look(context.Background(), w, part, len(part), layers)
		if s == 0 {
			missing := 0
			for b := range e.info.Blocks {
				if !t.names[fmt.Sprintf("l_out-%d", b)] {
					missing++
				}
			}
			if missing > 0 {
				return unavailable("the residual stream of a %s model cannot be read: of its %d blocks %d have no tensor l_out-N; there are %s", e.info.Architecture, e.info.Blocks, missing, t.seenNames())
			}
			if k := len(t.before); k > 0 {
				t.source = t.before[k-1]
			}
			t.names, t.before = nil, nil
		}
		if err != nil {
			return err
		}
		for l := range layers {
			alone[l] = append(alone[l], t.out[l]...)
		}
		if err := w.a.clear(); err != nil {
			return err
		}
		if w.pack == 1 {
			return nil
		}
	}
	var together []seen
	for _, part := range parts {
		for _, x := range part {
			x.slot = len(together)
			together = append(together, x)
		}
	}
	ordered := true
	if err := e.look(context.Background(), w, together, len(together), layers); err != nil {
		if t.err == nil {
			return err
		}
		ordered = false // they did not even come in one piece
	}
	for l := 1; l < len(layers) && ordered; l++ {
		ordered = sameOrder(alone[l], t.out[l], t.width)
	}
	if !ordered {
		w.pack = 1
		e.note("activations: the rows of several prompts do not come in their order, so each prompt is evaluated alone, which is slower")
	}
	return w.a.clear()
}

// sameOrder reports whether each row of b is nearer to that row of a than to any
// other by far.
func sameOrder(a, b []float32, width int) bool {
	n := len(a) / width
	distance := func(x, y []float32) float64 {
		sum := 0.0
		for i := range x {
			d := float64(x[i]) - float64(y[i])
			sum += d * d
		}
		return math.Sqrt(sum)
	}
	row := func(x []float32, i int) []float32 { return x[i*width : (i+1)*width] }
	for i := range n {
		own := distance(row(b, i), row(a, i))
		for j := range n {
			if j != i && !(own < distance(row(b, i), row(a, j))/4) {
				return false
			}
		}
	}
	return true
}
