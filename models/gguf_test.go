package models_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// A writer lays out GGUF files by the specification (ggml, docs/gguf.md), so
// that tests can make whole and broken ones.
type writer struct{ bytes.Buffer }

func (w *writer) u32(v uint32) { binary.Write(w, binary.LittleEndian, v) }
func (w *writer) u64(v uint64) { binary.Write(w, binary.LittleEndian, v) }
func (w *writer) text(s string) {
	w.u64(uint64(len(s)))
	w.WriteString(s)
}

// pair is a key and its value: uint16, uint32, bool, string or []string.
type pair struct {
	key   string
	value any
}

func (w *writer) pair(p pair) {
	w.text(p.key)
	switch v := p.value.(type) {
	case uint16:
		w.u32(2)
		binary.Write(w, binary.LittleEndian, v)
	case uint32:
		w.u32(4)
		w.u32(v)
	case bool:
		w.u32(7)
		if v {
			w.WriteByte(1)
		} else {
			w.WriteByte(0)
		}
	case string:
		w.u32(8)
		w.text(v)
	case []string:
		w.u32(9)
		w.u32(8)
		w.u64(uint64(len(v)))
		for _, s := range v {
			w.text(s)
		}
	default:
		panic("unknown kind of value")
	}
}

// tensor is a tensor of 32-bit floats unless kind says otherwise.
type tensor struct {
	name   string
	dims   []uint64
	kind   uint32
	offset uint64
}

type file struct {
	magic   string
	version uint32
	pairs   []pair
	tensors []tensor
	data    int // bytes of tensor data
	// counts override what the header says, where not nil
	tensorCount, pairCount *uint64
}

func (f file) bytes() []byte {
	var w writer
	w.WriteString(f.magic)
	w.u32(f.version)
	nt, np := uint64(len(f.tensors)), uint64(len(f.pairs))
	if f.tensorCount != nil {
		nt = *f.tensorCount
	}
	if f.pairCount != nil {
		np = *f.pairCount
	}
	w.u64(nt)
	w.u64(np)
	for _, p := range f.pairs {
		w.pair(p)
	}
	for _, t := range f.tensors {
		w.text(t.name)
		w.u32(uint32(len(t.dims)))
		for _, d := range t.dims {
			w.u64(d)
		}
		w.u32(t.kind)
		w.u64(t.offset)
	}
	for w.Len()%32 != 0 {
		w.WriteByte(0)
	}
	w.Write(make([]byte, f.data))
	return w.Bytes()
}

// whole returns a small file that is in order: two blocks, width 8, a
// vocabulary of four.
func whole() file {
	return file{
		magic: "GGUF", version: 3,
		pairs: []pair{
			{"general.architecture", "llama"},
			{"general.name", "Tiny"},
			{"general.file_type", uint32(0)},
			{"llama.block_count", uint32(2)},
			{"llama.embedding_length", uint32(8)},
			{"llama.feed_forward_length", uint32(16)},
			{"llama.attention.head_count", uint32(2)},
			{"llama.attention.head_count_kv", uint32(1)},
			{"llama.context_length", uint32(64)},
			{"tokenizer.ggml.model", "gpt2"},
			{"tokenizer.ggml.pre", "default"},
			{"tokenizer.ggml.tokens", []string{"a", "b", "c", "<end>"}},
			{"tokenizer.ggml.add_bos_token", false},
			{"tokenizer.chat_template", "{{ messages[0].content }}"},
		},
		tensors: []tensor{
			{"token_embd.weight", []uint64{8, 4}, 0, 0},
			{"blk.0.attn_q.weight", []uint64{8, 8}, 0, 128},
		},
		data: 128 + 256,
	}
}

// with returns f with the value of a key changed, or the key added.
func (f file) with(key string, value any) file {
	pairs := append([]pair(nil), f.pairs...)
	for i := range pairs {
		if pairs[i].key == key {
			pairs[i].value = value
			f.pairs = pairs
			return f
		}
	}
	f.pairs = append(pairs, pair{key, value})
	return f
}

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
