package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demur/inference"
)

// A part is a tensor of a small random model: its name, its dimensions (a row's
// length first), and what its numbers are about, for those of norms are not 0.
type part struct {
	name string
	dims []int
	mean float32
}

// An architecture is a kind of model that llama.cpp knows, and what it wants.
type architecture struct {
	name  string
	block func(width, inner int) []part // of one block, names without their beginning
	ends  []part
	keys  func(r *randomModel)
	none  []int // items that do not apply
}

const (
	randomWidth  = 64
	randomInner  = 96
	randomBlocks = 3
	randomHeads  = 4
)

func weight(name string, in, out int) part { return part{name + ".weight", []int{in, out}, 0} }
func norm(name string) part                { return part{name + ".weight", []int{randomWidth}, 1} }
func bias(name string, n int) part         { return part{name + ".bias", []int{n}, 0} }

func gated(w, inner int) []part {
	return []part{
		norm("attn_norm"), weight("attn_q", w, w), weight("attn_k", w, w), weight("attn_v", w, w), weight("attn_output", w, w),
		norm("ffn_norm"), weight("ffn_gate", w, inner), weight("ffn_up", w, inner), weight("ffn_down", inner, w),
	}
}

// architectures differ in what matters to the suite: norms of queries and keys, norms
// after the writers and capped logits, norms with a mean and a bias, attention and
// feed-forward layer side by side.
func architectures() []architecture {
	head := []int{randomWidth / randomHeads}
	rms := func(r *randomModel) { r.real("attention.layer_norm_rms_epsilon", 1e-6) }
	mean := func(r *randomModel) {
		r.real("attention.layer_norm_epsilon", 1e-5)
		r.integer("rope.dimension_count", randomWidth/randomHeads)
	}
	neox := func(w, inner int) []part {
		return []part{
			norm("attn_norm"), bias("attn_norm", w), weight("attn_qkv", w, 3*w), bias("attn_qkv", 3*w), weight("attn_output", w, w), bias("attn_output", w),
			norm("ffn_norm"), bias("ffn_norm", w), weight("ffn_up", w, inner), bias("ffn_up", inner), weight("ffn_down", inner, w), bias("ffn_down", w),
		}
	}
	untied := []part{weight("output", randomWidth, 257)}
	last := append(untied, bias("output_norm", randomWidth))
	return []architecture{
		{"llama", gated, untied, rms, []int{16}},
		{"qwen3", func(w, inner int) []part {
			return append(gated(w, inner), part{"attn_q_norm.weight", head, 1}, part{"attn_k_norm.weight", head, 1})
		}, nil, rms, []int{16}},
		{"gemma2", func(w, inner int) []part {
			return append(gated(w, inner), norm("post_attention_norm"), norm("post_ffw_norm"))
		}, nil, func(r *randomModel) {
			rms(r)
			r.real("attn_logit_softcapping", 50)
			r.real("final_logit_softcapping", 30)
			r.integer("attention.sliding_window", 64)
		}, []int{8, 12, 16}},
		{"gptneox", neox, last, func(r *randomModel) { mean(r); r.truth("use_parallel_residual", true) }, []int{8, 12, 16}},
		{"gptneox", neox, last, func(r *randomModel) { mean(r); r.truth("use_parallel_residual", false) }, []int{8, 12, 16}},
	}
}

// A randomModel gathers the metadata of a file.
type randomModel struct {
	ggufWriter
	arch  string
	count int
}

func (r *randomModel) key(name string, kind uint32, values ...any) {
	r.count++
	r.string(name)
	r.number(kind)
	r.number(values...)
}

func (r *randomModel) integer(name string, v int)  { r.key(r.arch+"."+name, 4, uint32(v)) }
func (r *randomModel) real(name string, v float32) { r.key(r.arch+"."+name, 6, v) }
func (r *randomModel) truth(name string, v bool)   { r.key(r.arch+"."+name, 7, v) }

// write writes a model of random weights whose tokens are the bytes.
func (a architecture) write(path string) error {
	r := &randomModel{arch: a.name}
	r.count++
	r.entry("general.architecture", a.name)
	r.integer("context_length", 512)
	r.integer("embedding_length", randomWidth)
	r.integer("block_count", randomBlocks)
	r.integer("feed_forward_length", randomInner)
	r.integer("attention.head_count", randomHeads)
	r.integer("attention.head_count_kv", randomHeads)
	r.integer("attention.key_length", randomWidth/randomHeads)
	r.integer("attention.value_length", randomWidth/randomHeads)
	a.keys(r)
	// Bytes as byte-level BPE writes them: those that are no visible sign of Latin-1
	// by signs from U+0100 on.
	var texts []string
	for b, next := 0, rune(256); b < 256; b++ {
		if b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad {
			texts = append(texts, string(rune(b)))
			continue
		}
		texts = append(texts, string(next))
		next++
	}
	texts = append(texts, "<|end|>")
	r.count += 2
	r.entry("tokenizer.ggml.model", "gpt2")
	r.entry("tokenizer.ggml.pre", "gpt-2")
	r.key("tokenizer.ggml.tokens", 9, uint32(8), uint64(len(texts)))
	for _, t := range texts {
		r.string(t)
	}
	kinds := slices.Repeat([]int32{1}, len(texts))
	kinds[len(kinds)-1] = 3
	r.key("tokenizer.ggml.token_type", 9, uint32(5), uint64(len(kinds)), kinds)
	r.key("tokenizer.ggml.merges", 9, uint32(8), uint64(0))
	r.key("tokenizer.ggml.eos_token_id", 4, uint32(len(texts)-1))
	r.key("tokenizer.ggml.bos_token_id", 4, uint32(len(texts)-1))

	parts := slices.Concat([]part{weight("token_embd", randomWidth, len(texts)), norm("output_norm")}, a.ends)
	for b := range randomBlocks {
		for _, p := range a.block(randomWidth, randomInner) {
			p.name = fmt.Sprintf("blk.%d.%s", b, p.name)
			parts = append(parts, p)
		}
	}
	var g ggufWriter
	g.text("GGUF")
	g.number(uint32(3), uint64(len(parts)), uint64(r.count))
	g.Write(r.Bytes())
	offset := 0
	size := func(p part) int {
		n := 1
		for _, d := range p.dims {
			n *= d
		}
		return n
	}
	for _, p := range parts {
		g.string(p.name)
		g.number(uint32(len(p.dims)))
		for _, d := range p.dims {
			g.number(uint64(d))
		}
		g.number(uint32(0), uint64(offset))
		offset += (4*size(p) + 31) / 32 * 32
	}
	g.pad()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range parts {
		v := make([]float32, size(p))
		for i := range v {
			v[i] = p.mean + float32(rng.NormFloat64()/math.Sqrt(float64(p.dims[0])))
		}
		g.number(v)
		g.pad()
	}
	return os.WriteFile(path, g.Bytes(), 0o600)
}

// TestWritersThatNormsFollow: a model of which an adapter would not take out all is
// not steered by one, and stays as it was.
func TestWritersThatNormsFollow(t *testing.T) {
	if _, err := FindLibrary(""); err != nil {
		t.Skip(err)
	}
	for _, a := range architectures() {
		path := filepath.Join(t.TempDir(), a.name+".gguf")
		if err := a.write(path); err != nil {
			t.Fatal(err)
		}
		e, err := Open(Options{Model: path, Threads: 1, ChatTemplate: "{{ messages[0].content }}"})
		if err != nil {
			t.Fatal(err)
		}
		r := make([]float32, e.Info().Width)
		r[3], r[7] = 1, -2
		err = e.Steer(t.Context(), &inference.Steering{AblateWriters: r})
		if want := a.name == "llama" || a.name == "qwen3"; want != (err == nil) {
			t.Errorf("%s: error %v", a.name, err)
		}
		if err != nil && (!errors.Is(err, inference.ErrUnavailable) || !strings.Contains(err.Error(), "blk.0")) {
			t.Errorf("%s: error %v", a.name, err)
		}
		if (e.steering != nil) != (err == nil) {
			t.Errorf("%s: steering %v with error %v", a.name, e.steering, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestConformRandom: small random models of other architectures conform, or say
// what does not apply.
func TestConformRandom(t *testing.T) {
	if _, err := FindLibrary(""); err != nil {
		t.Skip(err)
	}
	for i, a := range architectures() {
		t.Run(fmt.Sprintf("%s %d", a.name, i), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), a.name+".gguf")
			if err := a.write(path); err != nil {
				t.Fatal(err)
			}
			found, err := Conform(t.Context(), Options{Model: path, Threads: 1}, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				figure := "none"
				if f.Figure != nil {
					figure = fmt.Sprintf("%.3g %s", *f.Figure, f.Unit)
				}
				t.Logf("%2d %-30s %-14s %s; %s", f.Item, f.Name, f.Outcome, figure, f.Detail)
				want := Passed
				if slices.Contains(a.none, f.Item) {
					want = NotApplicable
				}
				if f.Outcome != want {
					t.Errorf("item %d, %s, is %s: %s", f.Item, f.Name, f.Outcome, f.Detail)
				}
			}
		})
	}
}
