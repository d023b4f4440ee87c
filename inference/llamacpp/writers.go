package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// An ablater takes a direction out of what each block's attention and feed-forward
// layer write to the stream, and out of nothing else: the part of the token
// embedding along it stays. It is an adapter of rank 1, A = rᵀW and B = −r for each
// weight W that writes, with r of unit length, so that W + BA = (I − rrᵀ)W. It is
// computed in llama.cpp's own graph, without a callback.
type ablater struct {
	direction []float32 // as it was given
	unit      []float64 // the same, of unit length
	adapter   llama.AdapterLora
}

// adapter returns the adapter of a steering, 0 for none.
func (x *steering) adapter() llama.AdapterLora {
	if x == nil || x.ablater == nil {
		return 0
	}
	return x.ablater.adapter
}

// adapters are those of a new context.
func (e *Engine) adapters() []llama.AdapterLora {
	return slices.DeleteFunc([]llama.AdapterLora{e.adapter, e.steering.adapter()}, func(a llama.AdapterLora) bool { return a == 0 })
}

// setAdapters applies adapters to a context at scale 1. There is no taking them out
// again.
func (e *Engine) setAdapters(a *arena, adapters []llama.AdapterLora) error {
	if len(adapters) == 0 {
		return nil
	}
	scales := slices.Repeat([]float32{1}, len(adapters))
	if rc := llama.SetAdaptersLora(a.ctx, adapters, scales); rc != 0 {
		return fmt.Errorf("apply an adapter: llama.cpp returned %d%s", rc, e.lib.log.said())
	}
	return nil
}

// writersOf are the weights of a block that write to the stream.
var writersOf = []string{"attn_output", "ffn_down"}

// unreached says why an adapter of rank 1 does not take a direction out of all that
// the blocks of a model write; empty where it does.
func (e *Engine) unreached(w *weights) string {
	if e.adapter != 0 {
		return "the model has an adapter already, and its part of the weights is not in the file"
	}
	for b := range e.info.Blocks {
		for _, part := range writersOf {
			name := fmt.Sprintf("blk.%d.%s", b, part)
			switch {
			case !w.has(name + ".weight"):
				return "there is no " + name + ".weight, so that an adapter cannot reach all that writes"
			case w.has(name + ".bias"):
				return name + " has a bias, which an adapter does not reach"
			case w.rows(name+".weight") != e.info.Width:
				return name + " does not write the stream directly"
			}
		}
		for _, norm := range []string{"post_attention_norm", "post_ffw_norm", "attn_post_norm", "ffn_post_norm", "layer_output_norm"} {
			if name := fmt.Sprintf("blk.%d.%s.weight", b, norm); w.has(name) {
				return "a norm lies between what is written and the stream (" + name + ")"
			}
		}
	}
	return ""
}

// newAblater makes the ablater of a direction.
func (e *Engine) newAblater(ctx context.Context, w *weights, direction []float32) (*ablater, error) {
	x := &ablater{direction: slices.Clone(direction), unit: unitVector(direction)}
	dir, err := os.MkdirTemp("", "demur-ablate-")
	if err != nil {
		return nil, err
	}
	// llama.cpp reads adapters from files only.
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "rank1.gguf")
	if err := e.writeAblater(ctx, path, w, x.unit); err != nil {
		return nil, err
	}
	e.lib.log.clear()
	x.adapter, err = llama.AdapterLoraInit(e.model, path)
	if err != nil || x.adapter == 0 {
		return nil, fmt.Errorf("llama.cpp cannot load the adapter made here%s", e.lib.log.said())
	}
	return x, nil
}

// free is called when no context has the adapter. What is not freed goes with the
// model.
func (x *ablater) free() {
	if x != nil {
		_ = llama.AdapterLoraFree(x.adapter)
	}
}

func (e *Engine) writeAblater(ctx context.Context, path string, w *weights, r []float64) error {
	type matrix struct {
		name string
		dims []uint64
		v    []float32
	}
	var all []matrix
	minus := make([]float32, len(r))
	for i, x := range r {
		minus[i] = float32(-x)
	}
	for b := range e.info.Blocks {
		for _, part := range writersOf {
			name := fmt.Sprintf("blk.%d.%s.weight", b, part)
			in := w.columns(name)
			sum := make([]float64, in)
			for i, x := range r {
				if err := ctx.Err(); err != nil {
					return err
				}
				row, err := w.row(name, i)
				if err != nil {
					return err
				}
				for k, v := range row {
					sum[k] += x * float64(v)
				}
			}
			v := make([]float32, in)
			for k, x := range sum {
				v[k] = float32(x)
			}
			all = append(all,
				matrix{name + ".lora_a", []uint64{uint64(in), 1}, v},
				matrix{name + ".lora_b", []uint64{1, uint64(len(r))}, minus})
		}
	}
	var g ggufWriter
	g.text("GGUF")
	g.number(uint32(3), uint64(len(all)), uint64(4))
	g.entry("general.architecture", e.info.Architecture)
	g.entry("general.type", "adapter")
	g.entry("adapter.type", "lora")
	g.entry("adapter.lora.alpha", float32(1))
	offset := 0
	for _, m := range all {
		g.string(m.name)
		g.number(uint32(len(m.dims)), m.dims, uint32(0), uint64(offset))
		offset += (4*len(m.v) + 31) / 32 * 32
	}
	g.pad()
	for _, m := range all {
		g.number(m.v)
		g.pad()
	}
	if err := os.WriteFile(path, g.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write an adapter: %w", err)
	}
	return nil
}

// An ablation is the mean component along an ablater's direction of what the blocks
// wrote, after all blocks of some tokens, without it and with it.
type ablation struct {
	before, after float64
	row           float64 // mean length of a row of the stream
}

// clean says whether nothing is left. A quantised product rounds what it multiplies
// to eight bits, that of an adapter does not, so that a part may stay; and a sum of
// 32-bit numbers as long as a row is rounded.
func (a ablation) clean(quantisation string) bool {
	share := 1e-4
	if !unquantised(quantisation) {
		share = 0.1
	}
	return a.after <= max(share*a.before, 1e-6*a.row)
}

// ablated tries an ablater. w is a viewer of its own without one, and is of no more
// use afterwards.
func (e *Engine) ablated(ctx context.Context, w *viewer, x *ablater) (ablation, error) {
	var a ablation
	if w.tap.source == "" {
		return a, errors.New("the tensor that the first block reads is not known")
	}
	batch, width := e.trial(), e.info.Width
	layers := slices.Repeat([]bool{true}, e.info.Blocks+1)
	component := func() (float64, error) {
		if err := w.a.clear(); err != nil {
			return 0, err
		}
		if err := e.look(ctx, w, batch, len(batch), layers); err != nil {
			return 0, err
		}
		embedding, n := w.tap.out[0], float64(e.info.Blocks*len(batch))
		sum := 0.0
		a.row = 0
		for _, states := range w.tap.out[1:] {
			for at := 0; at < len(states); at += width {
				dot, size := 0.0, 0.0
				for i, r := range x.unit {
					v := float64(states[at+i])
					dot += (v - float64(embedding[at+i])) * r
					size += v * v
				}
				sum += math.Abs(dot)
				a.row += math.Sqrt(size) / n
			}
		}
		return sum / n, nil
	}
	var err error
	if a.before, err = component(); err != nil {
		return a, err
	}
	if err := e.setAdapters(w.a, []llama.AdapterLora{x.adapter}); err != nil {
		return a, err
	}
	a.after, err = component()
	return a, err
}

// ablateWriters makes the ablater of a direction, or returns the one in force where
// it is of the same. The first one of an engine is tried.
func (e *Engine) ablateWriters(ctx context.Context, direction []float32) (*ablater, error) {
	if x := e.steering; x != nil && x.ablater != nil && slices.Equal(x.ablater.direction, direction) {
		return x.ablater, nil
	}
	file, facts, err := find(e.o.Model)
	if err != nil {
		return nil, err
	}
	w, err := openWeights(e.lib.dir, file)
	if err != nil {
		return nil, err
	}
	defer w.close()
	cannot := func(why string) error {
		return unavailable("a direction cannot be taken out of what the blocks of this %s model write: %s; take it out of the stream instead", e.info.Architecture, why)
	}
	if why := e.unreached(w); why != "" {
		return nil, cannot(why)
	}
	x, err := e.newAblater(ctx, w, direction)
	if err != nil || e.ablates {
		return x, err
	}
	err = e.inTrial(func(v *viewer) error {
		a, err := e.ablated(ctx, v, x)
		if err == nil && !a.clean(facts.Quantisation) {
			err = cannot(fmt.Sprintf("%.3g of %.3g along it stay", a.after, a.before))
		}
		return err
	})
	if err != nil {
		x.free()
		return nil, err
	}
	e.ablates = true
	return x, nil
}

// inTrial calls f with a small viewer of its own, which it has tried.
func (e *Engine) inTrial(f func(*viewer) error) error {
	w := &viewer{pack: 1, chunk: viewTokens, tap: newTap(e.info)}
	var err error
	if w.a, err = e.newArena(1, cellPad, false, w.tap); err != nil {
		return err
	}
	if err = e.checkViewer(w); err == nil {
		err = f(w)
	}
	return errors.Join(err, w.a.close())
}
