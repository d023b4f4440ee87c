package phantom

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// formatVersion rises when the file of an unchanged spec changes.
const formatVersion = 1

// Value types of GGUF metadata (the GGUF specification, version 3).
const (
	ggufUint32  = 4
	ggufInt32   = 5
	ggufFloat32 = 6
	ggufBool    = 7
	ggufString  = 8
	ggufArray   = 9
)

// alignment of tensor data in the file, the format's default.
const alignment = 32

// WriteGGUF writes the model as a GGUF file of the llama architecture, all
// weights float32. Equal specs give equal bytes.
func (m *Model) WriteGGUF(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	head := m.header()
	out.Write(head)
	written := len(head)
	for _, t := range m.tensors {
		for ; written%alignment != 0; written++ {
			out.WriteByte(0)
		}
		if err := binary.Write(out, binary.LittleEndian, t.values); err != nil {
			return fmt.Errorf("write phantom, tensor %s: %w", t.name, err)
		}
		written += 4 * len(t.values)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write phantom: %w", err)
	}
	return nil
}

// header returns everything before the tensor data, padded.
func (m *Model) header() []byte {
	v, s := m.vocabulary, m.Spec
	var kv writer
	count := 0
	entry := func(key string, kind uint32) {
		count++
		kv.text(key)
		kv.number(kind)
	}
	text := func(key, value string) { entry(key, ggufString); kv.text(value) }
	number := func(key string, value int) { entry(key, ggufUint32); kv.number(uint32(value)) }
	real := func(key string, value float32) { entry(key, ggufFloat32); kv.number(value) }

	text("general.architecture", "llama")
	text("general.type", "model")
	text("general.name", "demur phantom")
	text("general.description", "weights computed, not trained: a model whose inside is known, for calibration")
	text("general.license", "apache-2.0")
	number("general.alignment", alignment)
	number("general.file_type", 0)
	text("demur.phantom.spec", s.Hash())
	number("llama.vocab_size", len(v.texts))
	number("llama.context_length", contextLength)
	number("llama.embedding_length", s.Width)
	number("llama.block_count", s.Blocks)
	number("llama.feed_forward_length", feedForward)
	number("llama.attention.head_count", heads)
	number("llama.attention.head_count_kv", heads)
	number("llama.attention.key_length", headWidth)
	number("llama.attention.value_length", headWidth)
	number("llama.rope.dimension_count", headWidth)
	real("llama.rope.freq_base", ropeBase)
	real("llama.attention.layer_norm_rms_epsilon", normEpsilon)
	text("tokenizer.ggml.model", "gpt2")
	text("tokenizer.ggml.pre", "llama-bpe")
	entry("tokenizer.ggml.tokens", ggufArray)
	kv.number(uint32(ggufString))
	kv.number(uint64(len(v.texts)))
	for id := range v.texts {
		kv.text(v.fileText(id))
	}
	entry("tokenizer.ggml.token_type", ggufArray)
	kv.number(uint32(ggufInt32))
	kv.number(uint64(len(v.kinds)))
	kv.number(v.kinds)
	// No merges: a piece is a token as a whole, or it is its bytes.
	entry("tokenizer.ggml.merges", ggufArray)
	kv.number(uint32(ggufString))
	kv.number(uint64(0))
	number("tokenizer.ggml.bos_token_id", tokBegin)
	number("tokenizer.ggml.eos_token_id", tokEnd)
	number("tokenizer.ggml.padding_token_id", tokBegin)
	entry("tokenizer.ggml.add_bos_token", ggufBool)
	kv.number(true)
	text("tokenizer.chat_template", template)

	var out writer
	out.WriteString("GGUF")
	out.number(uint32(3))
	out.number(uint64(len(m.tensors)))
	out.number(uint64(count))
	out.Write(kv.Bytes())
	offset := 0
	for _, t := range m.tensors {
		out.text(t.name)
		if t.rows == 1 {
			out.number(uint32(1))
			out.number(uint64(t.columns))
		} else {
			out.number(uint32(2))
			out.number([]uint64{uint64(t.columns), uint64(t.rows)})
		}
		out.number(uint32(0)) // float32
		out.number(uint64(offset))
		offset += (4*len(t.values) + alignment - 1) / alignment * alignment
	}
	for out.Len()%alignment != 0 {
		out.WriteByte(0)
	}
	return out.Bytes()
}

// A writer gathers the parts of a header.
type writer struct{ bytes.Buffer }

func (w *writer) number(v any) {
	if err := binary.Write(&w.Buffer, binary.LittleEndian, v); err != nil {
		panic(fmt.Sprintf("phantom: no fixed size: %T", v))
	}
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.WriteString(s)
}
