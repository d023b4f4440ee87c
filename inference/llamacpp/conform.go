package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"

	"demur/data"
	"demur/inference"
	"demur/models"
)

// Outcomes of an item of the conformance suite.
const (
	Passed        = "passed"
	Failed        = "failed"
	NotApplicable = "not applicable"
)

// A Finding is what one item of the conformance suite came to on a model.
type Finding struct {
	Item    int    `json:"item"` // 1 to 16
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // Passed, Failed or NotApplicable
	// Figure is what was measured, in the unit given; null where nothing was.
	Figure *float64 `json:"figure"`
	Unit   string   `json:"unit,omitempty"`
	Detail string   `json:"detail,omitempty"` // what was seen, or why the item does not apply
	Means  string   `json:"means"`            // what hangs on it
}

// PlainTemplate is a chat template that shows the messages and nothing else, for base
// models, which have none.
const PlainTemplate = "{% for m in messages %}{{ m.content }}{% endfor %}"

// referenceBytes is the size of the largest quantised file that the suite makes a
// copy of in 16-bit numbers, of its own accord.
const referenceBytes = 512 << 20

// Conform runs the conformance suite: it tries on a model whether what is read of
// its residual stream, and what is written to it, is what its names say. One
// finding an item is returned, in order; an item that could not be tried is Failed
// with the reason. An error means that the model could not be opened at all.
//
// Of the options it uses Model, LibDir, Threads, GPULayers, Adapter and
// ChatTemplate. A model without a chat template is taken as it is. Reference names
// a file of the same model in more exact numbers, for the last item; where it is
// empty a quantised model is compared with a copy of its own weights in 16-bit
// numbers, made for the time, unless its file is larger than half a gibibyte.
//
// What each item means stands in docs/probes.md, Conformance.
func Conform(ctx context.Context, o Options, reference string) ([]Finding, error) {
	file, facts, err := find(o.Model)
	if err != nil {
		return nil, err
	}
	if facts.Template == "" && o.ChatTemplate == "" {
		o.ChatTemplate = PlainTemplate
	}
	o.Strict, o.Progress = false, nil
	e, err := Open(o)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	c := &conformance{ctx: ctx, e: e, file: file, facts: facts, reference: reference}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	defer c.close()
	var out []Finding
	for i, item := range c.items() {
		f := Finding{Item: i + 1, Name: item.name, Means: item.means}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		r, err := item.try()
		var reason notApplicable
		switch {
		case errors.As(err, &reason):
			f.Outcome, f.Detail = NotApplicable, string(reason)
		case ctx.Err() != nil:
			return out, ctx.Err()
		case err != nil:
			f.Outcome, f.Detail = Failed, err.Error()
		default:
			f.Outcome, f.Detail = Passed, r.detail
			if !r.good {
				f.Outcome = Failed
			}
			if r.unit != "" && !math.IsNaN(r.figure) && !math.IsInf(r.figure, 0) {
				f.Figure, f.Unit = &r.figure, r.unit
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// notApplicable is why an item does not apply to a model.
type notApplicable string

func (n notApplicable) Error() string { return string(n) }

type tried struct {
	good   bool
	figure float64
	unit   string
	detail string
}

type item struct {
	name, means string
	try         func() (tried, error)
}

// A conformance is the suite while it runs.
type conformance struct {
	ctx       context.Context
	e         *Engine
	file      models.File
	facts     models.Facts
	reference string

	w        *viewer
	tokens   []llama.Token
	bare     *arena // without a callback
	base     [][]float32
	logits   []float32
	weights  *weights
	noWeight error
}

func (c *conformance) items() []item {
	return []item{
		{"hooks are neutral", "logits are the same bits whether the stream is looked at or not", c.neutral},
		{"every block comes once", "each block's stream has one tensor l_out-N, found by its exact name", c.once},
		{"rows are tokens", "a tensor has a row for each token, that of the last block perhaps for each output only", c.rows},
		{"cuts of a batch", "a prompt computed in pieces of four tokens has the rows of the whole, in their order", c.cuts},
		{"order of prompts", "the rows of several prompts in one batch come in the order of their tokens", c.order},
		{"writers sum to the stream", "block N of the file is block N of the tensors: what its parts write makes up the difference", c.writers},
		{"norm and logits rebuilt", "the last block's stream, normed and multiplied by the file's weights, gives the logits", c.rebuilt},
		{"the next block's input", "llama.cpp's own copy of the input of block N+1 is the stream after block N", c.inputs},
		{"writing is a control vector", "a vector that the callback writes does what a control vector does", c.vectors},
		{"no tail of an old vector", "a control vector of one block leaves nothing of one before it at the others", c.tail},
		{"block 0 has no control vector", "llama.cpp ignores a control vector of block 0; there, the callback writes", c.first},
		{"a rank-1 adapter ablates", "an adapter made of the file's weights takes a direction out of what the blocks write", c.adapter},
		{"clean after an early end", "a computation ended in the middle leaves nothing behind", c.early},
		{"copied in time", "rows are copied while the tensor holds them; its memory is used again later", c.stale},
		{"flash attention", "how much the other attention kernel changes the stream; demur always uses flash attention", c.flash},
		{"quantisation", "how far the stream is from that of more exact weights", c.quantised},
	}
}

func (c *conformance) prepare() error {
	e := c.e
	// As the model is asked, so that there is something to say at the end.
	text := "A loaf of rye bread needs flour, water, salt and time. How do I knead the dough, and how long is it baked?"
	t, err := e.promptTokens([]data.Message{{Role: "user", Content: text}}, "")
	if err != nil {
		return err
	}
	if most := 40; len(t) > most {
		t = slices.Concat(t[:1], t[len(t)-most+1:])
	}
	c.tokens = slices.Clone(t)
	if len(c.tokens) < 12 {
		for i := range 12 {
			c.tokens = append(c.tokens, llama.Token((i+1)*(e.vocab.size-1)/13))
		}
	}
	if err := e.openViewer(cellPad); err != nil {
		return err
	}
	c.w = e.viewer
	if c.bare, err = e.newArena(1, cellPad, false, nil); err != nil {
		return err
	}
	if c.base, c.logits, err = c.streams(c.w.a, c.tokens, everyToken); err != nil {
		return errors.Join(err, c.bare.close())
	}
	c.weights, c.noWeight = openWeights(e.lib.dir, c.file)
	return nil
}

func (c *conformance) close() {
	c.bare.close()
	if c.weights != nil {
		c.weights.close()
	}
}

func everyToken(int) bool { return true }
func noToken(int) bool    { return false }

// run evaluates tokens in an empty memory and returns the logits of those with
// outputs, one after the other. Every tensor is shown to each, if that is not nil.
func (c *conformance) run(a *arena, tokens []llama.Token, output func(i int) bool, each func(tensor uintptr) bool) ([]float32, error) {
	if err := errors.Join(c.ctx.Err(), a.clear()); err != nil {
		return nil, err
	}
	if a == c.w.a {
		c.w.prefix = nil
	}
	if each != nil {
		a.tap.every = each
		defer func() { a.tap.every = nil }()
	}
	a.batch.Clear()
	for i, t := range tokens {
		if err := a.add(t, i, 0, output(i)); err != nil {
			return nil, err
		}
	}
	if err := c.e.decode(a); err != nil {
		return nil, err
	}
	var logits []float32
	for i := range tokens {
		if output(i) {
			l, err := c.e.logits(a, i)
			if err != nil {
				return nil, err
			}
			logits = append(logits, l...)
		}
	}
	return logits, nil
}

// streams returns the stream after each block beside the logits.
func (c *conformance) streams(a *arena, tokens []llama.Token, output func(i int) bool) ([][]float32, []float32, error) {
	out := make([][]float32, c.e.info.Blocks)
	var wrong error
	logits, err := c.run(a, tokens, output, func(tensor uintptr) bool {
		if b, ok := blockOf(a.tap.name(tensor)); ok && b < len(out) {
			values, ok := a.tap.read(tensor)
			if !ok {
				wrong = fmt.Errorf("%s is not as wide as the stream", a.tap.name(tensor))
			}
			out[b] = append(out[b], values...)
		}
		return true
	})
	return out, logits, errors.Join(err, wrong)
}

func (c *conformance) neutral() (tried, error) {
	want, err := c.run(c.bare, c.tokens, everyToken, nil)
	if err != nil {
		return tried{}, err
	}
	n := differing(want, c.logits)
	return tried{n == 0, float64(n), fmt.Sprintf("of %d logits differ", len(want)), "every tensor was looked at"}, nil
}

func differing(a, b []float32) int {
	n := max(len(a), len(b)) - min(len(a), len(b))
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// counts returns how many rows the tensors of each block had.
func (c *conformance) counts(output func(int) bool) (rows [][]int, err error) {
	rows = make([][]int, c.e.info.Blocks)
	var wrong error
	a := c.w.a
	_, err = c.run(a, c.tokens, output, func(tensor uintptr) bool {
		if b, ok := blockOf(a.tap.name(tensor)); ok && b < len(rows) {
			n, err := a.tap.shape(tensor)
			wrong = errors.Join(wrong, err)
			rows[b] = append(rows[b], n)
		}
		return true
	})
	return rows, errors.Join(err, wrong)
}

func (c *conformance) once() (tried, error) {
	rows, err := c.counts(everyToken)
	if err != nil {
		return tried{}, err
	}
	n := 0
	var others []string
	for b, r := range rows {
		if len(r) == 1 {
			n++
		} else {
			others = append(others, fmt.Sprintf("l_out-%d came %d times", b, len(r)))
		}
	}
	return tried{n == len(rows), float64(n), fmt.Sprintf("of %d blocks", len(rows)), strings.Join(others, ", ")}, nil
}

func (c *conformance) rows() (tried, error) {
	last := len(c.tokens) - 1
	lastOnly := func(i int) bool { return i == last }
	good := true
	var pruned [3]int
	for k, output := range []func(int) bool{everyToken, lastOnly, noToken} {
		flagged := 0
		for i := range c.tokens {
			if output(i) {
				flagged++
			}
		}
		rows, err := c.counts(output)
		if err != nil {
			return tried{}, err
		}
		for b, r := range rows {
			for _, n := range r {
				if good = good && (n == len(c.tokens) || b == len(rows)-1 && n == flagged); b == len(rows)-1 {
					pruned[k] = n
				}
			}
		}
	}
	detail := fmt.Sprintf("of %d tokens the last block computes %d where all have outputs, %d where the last one has, %d where none has", len(c.tokens), pruned[0], pruned[1], pruned[2])
	return tried{good, float64(pruned[1]), "rows of the last block for one output", detail}, nil
}

// apartOf returns the greatest distance of a row from its counterpart, in lengths of
// the counterpart, over all blocks.
func apartOf(got, want [][]float32, width int) float64 {
	worst := 0.0
	for l := range want {
		if len(got[l]) != len(want[l]) {
			return math.Inf(1)
		}
		for r := 0; r+width <= len(want[l]); r += width {
			d, size := 0.0, 0.0
			for i := r; i < r+width; i++ {
				x := float64(got[l][i]) - float64(want[l][i])
				d += x * x
				size += float64(want[l][i]) * float64(want[l][i])
			}
			if d > 0 {
				worst = max(worst, math.Sqrt(d/size))
			}
			if math.IsNaN(d) {
				return d
			}
		}
	}
	return worst
}

const rowLengths = "of a row's length, at most"

func (c *conformance) cuts() (tried, error) {
	a, err := c.e.newArenaWith(1, cellPad, false, newTap(c.e.info), func(p *llama.ContextParams) { p.NUbatch = 4 })
	if err != nil {
		return tried{}, err
	}
	defer a.close()
	got, _, err := c.streams(a, c.tokens, everyToken)
	if err != nil {
		return tried{}, err
	}
	detail, ordered := "", true
	for l := range got {
		if len(got[l]) != len(c.base[l]) {
			return tried{detail: fmt.Sprintf("block %d has %d rows in pieces, %d whole", l, len(got[l])/c.e.info.Width, len(c.base[l])/c.e.info.Width)}, nil
		}
		if distinct(c.base[l], c.e.info.Width) && !sameOrder(c.base[l], got[l], c.e.info.Width) {
			ordered, detail = false, fmt.Sprintf("rows of block %d are nearer to others than to their own", l)
		}
	}
	d := apartOf(got, c.base, c.e.info.Width)
	return tried{ordered && d < 0.3, d, rowLengths, detail}, nil
}

// distinct says whether all rows differ, so that their order can be told.
func distinct(rows []float32, width int) bool {
	for i := 0; i+width <= len(rows); i += width {
		for j := i + width; j+width <= len(rows); j += width {
			if slices.Equal(rows[i:i+width], rows[j:j+width]) {
				return false
			}
		}
	}
	return true
}

func (c *conformance) order() (tried, error) {
	e, w := c.e, c.w
	if w.pack == 1 {
		return tried{}, notApplicable("each prompt is evaluated alone, for the memory of this model cannot be forked or the rows of several do not come in order")
	}
	layers := make([]bool, e.info.Blocks+1)
	for i := range layers {
		layers[i] = i > 0
	}
	parts := [][]llama.Token{c.tokens[:6], c.tokens[6:9]}
	var alone [][]float32
	var together []seen
	for s, p := range parts {
		states, _, err := c.streams(w.a, p, everyToken)
		if err != nil {
			return tried{}, err
		}
		if alone == nil {
			alone = make([][]float32, len(states))
		}
		for l := range states {
			alone[l] = append(alone[l], states[l]...)
		}
		for i, t := range p {
			together = append(together, seen{token: t, pos: i, seq: s + 1, slot: len(together)})
		}
	}
	look := func(v *viewer) ([][]float32, error) {
		if err := v.a.clear(); err != nil {
			return nil, err
		}
		err := e.look(c.ctx, v, together, len(together), layers)
		return v.tap.out[1:], errors.Join(err, v.a.clear())
	}
	got, err := look(w)
	if err != nil {
		return tried{}, err
	}
	ordered := func(got [][]float32) bool {
		for l := range got {
			if !sameOrder(alone[l], got[l], e.info.Width) {
				return false
			}
		}
		return true
	}
	r := tried{ordered(got), apartOf(got, alone, e.info.Width), rowLengths, "prompts of 6 and 3 tokens beside each other, from the same alone"}
	// What would be without the unified memory.
	v := &viewer{chunk: viewTokens, tap: newTap(e.info)}
	if v.a, err = e.newArena(3, cellPad, true, v.tap); err != nil {
		return tried{}, err
	}
	defer v.a.close()
	if other, err := look(v); err != nil || !ordered(other) {
		r.detail += "; with a memory for each sequence they would come in another order"
	}
	return r, nil
}

// notAdditive are the architectures whose stream is not the one before plus what a
// block writes: a scale, a norm or several streams lie between (src/models of
// llama.cpp v0.5.0).
var notAdditive = []string{"gemma3n", "gemma4", "deepseek4", "kimi-k3", "nanbeige", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"}

func (c *conformance) writers() (tried, error) {
	arch := c.e.info.Architecture
	if slices.Contains(notAdditive, arch) {
		return tried{}, notApplicable("the stream of a " + arch + " model is not the sum of what its blocks write")
	}
	a, width := c.w.a, c.e.info.Width
	if c.w.tap.source == "" {
		return tried{}, notApplicable("the tensor that the first block reads is not known of a " + arch + " model")
	}
	type part struct {
		name   string
		values []float32
	}
	var parts []part
	before, names := []float32(nil), map[string]bool{}
	good, worst, detail := true, 0.0, ""
	_, err := c.run(a, c.tokens, everyToken, func(tensor uintptr) bool {
		name := string(a.tap.name(tensor))
		values, ok := a.tap.read(tensor)
		if !ok || len(values) != len(c.tokens)*width {
			return true
		}
		b, out := blockOf([]byte(name))
		switch {
		case name == c.w.tap.source:
			before, parts = values, nil
		case !out:
			parts = append(parts, part{name, values})
		case before != nil:
			// Which one or two of the tensors of this block make up the difference?
			best, with := math.Inf(1), ""
			for i, x := range parts {
				if d := sumApart(values, before, x.values, nil); d < best {
					best, with = d, x.name
				}
				for _, y := range parts[:i] {
					if d := sumApart(values, before, x.values, y.values); d < best {
						best, with = d, y.name+" + "+x.name
					}
				}
			}
			if !(best < 1e-5) && good {
				good, detail = false, fmt.Sprintf("after block %d no two of %d tensors make up the difference: nearest %s, ", b, len(parts), with)
			}
			for _, n := range strings.Split(with, " + ") {
				n, block, _ := strings.Cut(n, "-")
				if strings.HasPrefix(n, "node_") || strings.Contains(n, " ") {
					n = "an unnamed one"
				} else if block != "" && block != fmt.Sprint(b) {
					good, detail = false, fmt.Sprintf("after block %d comes what block %s wrote, ", b, block)
				}
				names[n] = true
			}
			worst = max(worst, best)
			before, parts = values, nil
		}
		return true
	})
	if err != nil {
		return tried{}, err
	}
	if before == nil {
		return tried{}, errors.New("the embedding did not come")
	}
	var all []string
	for n := range names {
		all = append(all, n)
	}
	slices.Sort(all)
	return tried{good, worst, rowLengths, detail + "written by " + strings.Join(all, ", ")}, nil
}

// sumApart returns the distance of a + x + y from b in lengths of b.
func sumApart(b, a, x, y []float32) float64 {
	d, size := 0.0, 0.0
	for i := range b {
		s := float64(a[i]) + float64(x[i])
		if y != nil {
			s += float64(y[i])
		}
		s -= float64(b[i])
		d += s * s
		size += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(d / size)
}

func (c *conformance) number(key string) (float64, bool) {
	var x float64
	s := metadata(c.e.model, c.e.info.Architecture+"."+key)
	_, err := fmt.Sscan(s, &x)
	return x, err == nil
}

func (c *conformance) rebuilt() (tried, error) {
	if c.weights == nil {
		return tried{}, notApplicable(c.noWeight.Error())
	}
	a, width, e := c.w.a, c.e.info.Width, c.e
	var normed []float32
	if _, err := c.run(a, c.tokens, everyToken, func(tensor uintptr) bool {
		if string(a.tap.name(tensor)) == "result_norm" {
			normed, _ = a.tap.read(tensor)
		}
		return true
	}); err != nil {
		return tried{}, err
	}
	if normed == nil {
		return tried{}, notApplicable("there is no tensor result_norm")
	}
	gain, err := c.weights.row("output_norm.weight", 0)
	if err != nil {
		return tried{}, notApplicable(err.Error())
	}
	eps, rms := c.number("attention.layer_norm_rms_epsilon")
	bias := make([]float32, width)
	if !rms {
		var ok bool
		if eps, ok = c.number("attention.layer_norm_epsilon"); !ok {
			return tried{}, notApplicable("the file does not say what its norm adds to the square")
		}
		if c.weights.has("output_norm.bias") {
			if bias, err = c.weights.row("output_norm.bias", 0); err != nil {
				return tried{}, err
			}
		}
	}
	last := c.base[len(c.base)-1]
	mine := make([]float32, len(last))
	for r := 0; r < len(last); r += width {
		mean, square := 0.0, 0.0
		for _, v := range last[r : r+width] {
			mean += float64(v) / float64(width)
		}
		if rms {
			mean = 0
		}
		for _, v := range last[r : r+width] {
			square += (float64(v) - mean) * (float64(v) - mean) / float64(width)
		}
		for i, v := range last[r : r+width] {
			mine[r+i] = float32((float64(v)-mean)/math.Sqrt(square+eps)*float64(gain[i]) + float64(bias[i]))
		}
	}
	if len(mine) != len(normed) {
		return tried{}, fmt.Errorf("result_norm has %d numbers, the last stream %d", len(normed), len(mine))
	}
	norm := apartOf([][]float32{mine}, [][]float32{normed}, width)
	r := tried{norm < 1e-4, norm, rowLengths, ""}
	matrix := "output.weight"
	if !c.weights.has(matrix) {
		matrix = "token_embd.weight"
	}
	if _, ok := c.number("logit_scale"); ok {
		r.detail = "the norm; the logits are scaled, and were not rebuilt"
		return r, nil
	}
	if c.weights.columns(matrix) != width || c.weights.rows(matrix) != e.vocab.size {
		r.detail = fmt.Sprintf("the norm; %s is of another shape, and the logits were not rebuilt", matrix)
		return r, nil
	}
	soft, capped := c.number("final_logit_softcapping")
	// A sample of tokens and the likeliest of each position, at every position,
	// against the size of the logits.
	sample := make(map[int]bool)
	for id := 0; id < e.vocab.size; id += max(1, e.vocab.size/199) {
		sample[id] = true
	}
	for p := range c.tokens {
		sample[int(argmax(c.logits[p*e.vocab.size:(p+1)*e.vocab.size]))] = true
	}
	var d, spread float64
	for _, id := range slices.Sorted(maps.Keys(sample)) {
		row, err := c.weights.row(matrix, id)
		if err != nil {
			return tried{}, err
		}
		shift := 0.0
		if c.weights.has("output.bias") {
			b, err := c.weights.row("output.bias", 0)
			if err != nil {
				return tried{}, err
			}
			shift = float64(b[id])
		}
		for p := range c.tokens {
			got := shift
			for i, v := range mine[p*width : (p+1)*width] {
				got += float64(v) * float64(row[i])
			}
			if capped && soft > 0 {
				got = soft * math.Tanh(got/soft)
			}
			want := float64(c.logits[p*e.vocab.size+id])
			d += (got - want) * (got - want)
			spread += want * want
		}
	}
	logit := math.Sqrt(d / spread)
	// A quantised product rounds the stream too, to eight bits.
	r.good = r.good && logit < 0.02
	r.detail = fmt.Sprintf("the norm; the logits of %d tokens by %s are %.2g of their size away", len(sample), matrix, logit)
	return r, nil
}

// layerInput are functions of llama.cpp v0.5.0 that no header promises: their names
// are C++.
const (
	setLayerInput = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
	getLayerInput = "_Z30llama_get_embeddings_layer_inpP13llama_contextj"
)

// showsInputs are architectures for which they work; elsewhere they may end the
// process.
var showsInputs = []string{"llama", "qwen3"}

func (c *conformance) inputs() (tried, error) {
	e := c.e
	if !slices.Contains(showsInputs, e.info.Architecture) {
		return tried{}, notApplicable("llama.cpp is not known to show the inputs of the blocks of a " + e.info.Architecture + " model")
	}
	if e.info.Blocks < 2 {
		return tried{}, notApplicable("there is one block only")
	}
	lib, err := loader.LoadLibrary(e.lib.dir, "llama")
	if err != nil {
		return tried{}, err
	}
	var f [2]uintptr
	for i, name := range []string{setLayerInput, getLayerInput} {
		p, err := lib.Prep(name, &ffi.TypePointer, &ffi.TypePointer, &ffi.TypeUint32)
		if err != nil {
			return tried{}, notApplicable("this build of llama.cpp has no function for it")
		}
		f[i] = p.Addr
	}
	a, err := e.newArena(1, cellPad, false, nil)
	if err != nil {
		return tried{}, err
	}
	defer a.close()
	blocks := []int{0, (e.info.Blocks - 2) / 2, e.info.Blocks - 2}
	for _, b := range blocks {
		purego.SyscallN(f[0], uintptr(a.ctx), uintptr(b+1), 1)
	}
	if _, err := c.run(a, c.tokens, everyToken, nil); err != nil {
		return tried{}, err
	}
	differ, all := 0, 0
	for _, b := range blocks {
		p, _, _ := purego.SyscallN(f[1], uintptr(a.ctx), uintptr(b+1))
		if p == 0 {
			return tried{}, notApplicable("llama.cpp shows no input of the blocks of this model")
		}
		differ += differing(floatsAt(p, len(c.base[b])), c.base[b])
		all += len(c.base[b])
	}
	return tried{differ == 0, float64(differ), fmt.Sprintf("of %d numbers differ", all), fmt.Sprintf("after the blocks %d", blocks)}, nil
}

// steered returns streams and logits under a steering.
func (c *conformance) steered(x *steering) ([][]float32, []float32, error) {
	if err := c.e.steer(c.w.a, x); err != nil {
		return nil, nil, err
	}
	states, logits, err := c.streams(c.w.a, c.tokens, everyToken)
	return states, logits, errors.Join(err, c.e.steer(c.w.a, nil))
}

// trials returns an addition to every block from the given one on.
func (c *conformance) trials(from, to int) *inference.Steering {
	s := &inference.Steering{Add: make(map[int][]float32)}
	for l := from; l < to; l++ {
		s.Add[l] = trialVector(c.base[l], c.e.info.Width, l)
	}
	return s
}

func sameStates(a, b [][]float32) bool { return slices.EqualFunc(a, b, slices.Equal[[]float32]) }

func (c *conformance) vectors() (tried, error) {
	blocks, width := c.e.info.Blocks, c.e.info.Width
	if blocks < 2 {
		return tried{}, notApplicable("there is one block only")
	}
	s := c.trials(1, blocks)
	written, logits, err := c.steered(newSteering(s, blocks, width, false))
	if err != nil {
		return tried{}, err
	}
	added, others, err := c.steered(newSteering(s, blocks, width, true))
	if err != nil {
		return tried{}, err
	}
	again, afterwards, err := c.steered(nil)
	if err != nil {
		return tried{}, err
	}
	n := differing(logits, others)
	r := tried{n == 0 && sameStates(written, added), float64(n), fmt.Sprintf("of %d logits differ", len(logits)), ""}
	switch {
	case !slices.Equal(written[1], plus(c.base[1], s.Add[1])):
		r.good, r.detail = false, "what is written does not stand there"
	case differing(logits, c.logits) == 0:
		r.good, r.detail = false, "neither changes anything"
	case !sameStates(again, c.base) || differing(afterwards, c.logits) > 0:
		r.good, r.detail = false, "after its end not all is as before"
	default:
		r.detail = fmt.Sprintf("after blocks 1 to %d; after its end all is as before", blocks-1)
	}
	return r, nil
}

func (c *conformance) tail() (tried, error) {
	e, blocks, width := c.e, c.e.info.Blocks, c.e.info.Width
	if blocks < 3 {
		return tried{}, notApplicable("it takes three blocks")
	}
	all, one := newSteering(c.trials(1, blocks), blocks, width, true), newSteering(c.trials(1, 2), blocks, width, true)
	_, want, err := c.steered(one)
	if err != nil {
		return tried{}, err
	}
	_, old, err := c.steered(all)
	if err != nil {
		return tried{}, err
	}
	// One after the other, as Steer does, and then with a buffer of one block.
	if err := errors.Join(e.steer(c.w.a, all), e.steer(c.w.a, one)); err != nil {
		return tried{}, err
	}
	got, err := c.run(c.w.a, c.tokens, everyToken, nil)
	if err != nil {
		return tried{}, err
	}
	if err := e.steer(c.w.a, all); err != nil {
		return tried{}, err
	}
	llama.SetAdapterCvec(c.w.a.ctx, one.vector[:width], int32(width), 1, int32(blocks-1))
	short, err := c.run(c.w.a, c.tokens, everyToken, nil)
	if err := errors.Join(err, e.steer(c.w.a, nil)); err != nil {
		return tried{}, err
	}
	r := tried{differing(got, want) == 0, float64(differing(got, want)), fmt.Sprintf("of %d logits differ", len(want)), "a buffer of one block's length does the same here"}
	if differing(short, old) < differing(short, want) {
		r.detail = "with a buffer of one block's length the old vector stays in force"
	}
	return r, nil
}

func (c *conformance) first() (tried, error) {
	e, blocks, width := c.e, c.e.info.Blocks, c.e.info.Width
	v := trialVector(c.base[0], width, 0)
	long := make([]float32, max(1, blocks-1)*width)
	copy(long, v)
	c.w.a.vectored = true
	if rc := llama.SetAdapterCvec(c.w.a.ctx, long, int32(width), 0, 0); rc != 0 {
		return tried{}, fmt.Errorf("llama.cpp returned %d for a control vector of block 0%s", rc, e.lib.log.said())
	}
	ignored, err := c.run(c.w.a, c.tokens, everyToken, nil)
	if err := errors.Join(err, e.steer(c.w.a, nil)); err != nil {
		return tried{}, err
	}
	states, logits, err := c.steered(newSteering(&inference.Steering{Add: map[int][]float32{0: v}}, blocks, width, true))
	if err != nil {
		return tried{}, err
	}
	n := differing(ignored, c.logits)
	r := tried{true, float64(n), fmt.Sprintf("of %d logits differ", len(ignored)), "written by the callback, the vector stands after block 0"}
	if n > 0 {
		r.detail = "this build heeds it"
	}
	if !slices.Equal(states[0], plus(c.base[0], v)) || differing(logits, c.logits) == 0 {
		r.good, r.detail = false, "what the callback writes after block 0 does not stand there or changes nothing"
	}
	return r, nil
}

func (c *conformance) adapter() (tried, error) {
	e, width := c.e, c.e.info.Width
	switch {
	case c.weights == nil:
		return tried{}, notApplicable(c.noWeight.Error())
	case c.w.tap.source == "":
		return tried{}, notApplicable("the tensor that the first block reads is not known")
	}
	if why := e.unreached(c.weights); why != "" {
		return tried{}, notApplicable(why)
	}
	x, err := e.newAblater(c.ctx, c.weights, trialVector(c.base[0], width, 11))
	if err != nil {
		return tried{}, err
	}
	defer x.free()
	var a ablation
	err = e.inTrial(func(w *viewer) error {
		a, err = e.ablated(c.ctx, w, x)
		return err
	})
	if err != nil {
		return tried{}, err
	}
	return tried{a.clean(c.facts.Quantisation), a.after / a.before, "of the component stays", fmt.Sprintf("mean over all blocks and tokens: %.3g without, %.3g with", a.before, a.after)}, nil
}

// unquantised says whether a file's weights are not quantised.
func unquantised(quantisation string) bool {
	q := strings.ToUpper(quantisation)
	return strings.HasSuffix(q, "F32") || strings.HasSuffix(q, "F16")
}

func (c *conformance) early() (tried, error) {
	if c.e.o.GPULayers != 0 {
		return tried{}, notApplicable("with layers on a GPU the graph is in several parts, and an end leaves one of them only")
	}
	a, stop := c.w.a, (c.e.info.Blocks-1)/2
	nodes, all := 0, 0
	if _, err := c.run(a, c.tokens, noToken, func(uintptr) bool { all++; return true }); err != nil {
		return tried{}, err
	}
	if _, err := c.run(a, c.tokens, noToken, func(tensor uintptr) bool {
		nodes++
		b, ok := blockOf(a.tap.name(tensor))
		return !ok || b != stop
	}); err != nil {
		return tried{}, err
	}
	states, logits, err := c.streams(a, c.tokens, everyToken)
	if err != nil {
		return tried{}, err
	}
	n := differing(logits, c.logits)
	return tried{
		n == 0 && sameStates(states, c.base) && nodes < all, float64(n), fmt.Sprintf("of %d logits differ afterwards", len(logits)),
		fmt.Sprintf("ended after block %d, when %d of %d tensors had been computed; llama.cpp says nothing of it", stop, nodes, all),
	}, nil
}

func (c *conformance) stale() (tried, error) {
	a := c.w.a
	var at uintptr
	var copied []float32
	if _, err := c.run(a, c.tokens, everyToken, func(tensor uintptr) bool {
		if b, ok := blockOf(a.tap.name(tensor)); ok && b == 0 {
			at = tensor
			copied, _ = a.tap.read(tensor)
		}
		return true
	}); err != nil {
		return tried{}, err
	}
	if at == 0 || len(copied) == 0 {
		return tried{}, errors.New("the stream after block 0 did not come")
	}
	later := make([]float32, len(copied))
	a.tap.move(a.tap.lib.get, at, 0, later)
	// The copy is right: it is what the engine itself copies.
	layers := make([]bool, c.e.info.Blocks+1)
	layers[1] = true
	var batch []seen
	for i, t := range c.tokens {
		batch = append(batch, seen{token: t, pos: i, slot: i})
	}
	if err := errors.Join(a.clear(), c.e.look(c.ctx, c.w, batch, len(batch), layers), a.clear()); err != nil {
		return tried{}, err
	}
	n := differing(copied, c.w.tap.out[1])
	detail := "read after the computation, the tensor still held them; that is not promised"
	if d := differing(later, copied); d > 0 {
		detail = fmt.Sprintf("read after the computation, %d of %d numbers of the same tensor are others", d, len(copied))
	}
	return tried{n == 0, float64(n), fmt.Sprintf("of %d numbers differ", len(copied)), detail}, nil
}

func (c *conformance) flash() (tried, error) {
	a, err := c.e.newArenaWith(1, cellPad, false, newTap(c.e.info), func(p *llama.ContextParams) {
		p.FlashAttentionType = llama.FlashAttentionTypeDisabled
	})
	if err != nil {
		return tried{}, err
	}
	defer a.close()
	got, _, err := c.streams(a, c.tokens, everyToken)
	if err != nil {
		return tried{}, err
	}
	d, cosine := apartOf(got, c.base, c.e.info.Width), leastCosine(got, c.base, c.e.info.Width)
	return tried{cosine > 0.95, d, rowLengths, fmt.Sprintf("without flash attention; least cosine of a row %.6f", cosine)}, nil
}

// leastCosine returns the least cosine of a row with its counterpart.
func leastCosine(got, want [][]float32, width int) float64 {
	least := 1.0
	for l := range want {
		if len(got[l]) != len(want[l]) {
			return -1
		}
		for r := 0; r+width <= len(want[l]); r += width {
			ab, aa, bb := 0.0, 0.0, 0.0
			for i := r; i < r+width; i++ {
				x, y := float64(got[l][i]), float64(want[l][i])
				ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
			}
			least = min(least, ab/math.Sqrt(aa*bb))
		}
	}
	return least
}

func (c *conformance) quantised() (tried, error) {
	e := c.e
	reference, what := c.reference, "the reference file"
	if reference == "" {
		switch {
		case unquantised(c.facts.Quantisation):
			return tried{}, notApplicable("the weights are " + c.facts.Quantisation + ", not quantised; a more exact file can be given as reference")
		case c.facts.FileSize > referenceBytes:
			return tried{}, notApplicable("no reference is given, and the model is too large for a copy in 16-bit numbers to be made for the time")
		case len(c.file.Parts) > 1:
			return tried{}, notApplicable("no reference is given, and the model is split over several files")
		}
		dir, err := os.MkdirTemp("", "demur-conform-")
		if err != nil {
			return tried{}, err
		}
		defer os.RemoveAll(dir)
		reference, what = filepath.Join(dir, "f16.gguf"), "the same weights as 16-bit numbers: what the kernels round, not what the file's weights were rounded by"
		if err := Quantise(e.o.LibDir, c.file.Path, reference, "F16"); err != nil {
			return tried{}, err
		}
	}
	o := e.o
	o.Model = reference
	other, err := Open(o)
	if err != nil {
		return tried{}, fmt.Errorf("the reference: %w", err)
	}
	defer other.Close()
	if other.info.Blocks != e.info.Blocks || other.info.Width != e.info.Width || other.vocab.size != e.vocab.size {
		return tried{}, errors.New("the reference is another model")
	}
	if err := other.openViewer(cellPad); err != nil {
		return tried{}, err
	}
	d := &conformance{ctx: c.ctx, e: other, w: other.viewer}
	want, logits, err := d.streams(other.viewer.a, c.tokens, everyToken)
	if err != nil {
		return tried{}, err
	}
	width := e.info.Width
	middle := e.info.Blocks / 2
	cosine := leastCosine(c.base[middle:middle+1], want[middle:middle+1], width)
	agree := 0
	for p := range c.tokens {
		from, to := p*e.vocab.size, (p+1)*e.vocab.size
		if argmax(logits[from:to]) == argmax(c.logits[from:to]) {
			agree++
		}
	}
	return tried{
		leastCosine(c.base, want, width) > 0.5, apartOf(c.base[middle:middle+1], want[middle:middle+1], width), rowLengths,
		fmt.Sprintf("after block %d, %s against %s; least cosine %.5f, the likeliest next token is the same at %d of %d", middle, c.facts.Quantisation, what, cosine, agree, len(c.tokens)),
	}, nil
}
