package models_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"demur/models"
)

func TestCheckHeaderWhole(t *testing.T) {
	b := whole().bytes()
	if err := models.CheckHeader(bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

func TestCheckHeaderBroken(t *testing.T) {
	change := func(f func(*file)) []byte {
		w := whole()
		f(&w)
		return w.bytes()
	}
	huge := uint64(math.MaxUint64)
	for _, test := range []struct {
		name string
		b    []byte
		kind error
		says string
	}{
		{"empty", nil, models.ErrNotGGUF, "empty"},
		{"two bytes", []byte("GG"), models.ErrNotGGUF, "not a GGUF"},
		{"text", []byte("hello, this is a recipe for bread"), models.ErrNotGGUF, "not a GGUF"},
		{"web page", []byte("<!DOCTYPE html><html>"), models.ErrNotGGUF, "web page"},
		{"git lfs", []byte("version https://git-lfs.github.com/spec/v1"), models.ErrNotGGUF, "Git LFS"},
		{"pytorch", []byte("PK\x03\x04 and so on"), models.ErrNotGGUF, "PyTorch"},
		{"ggml", []byte("lmgg and so on"), models.ErrNotGGUF, "before GGUF"},
		{"big endian", []byte("FUGG and so on"), models.ErrNotGGUF, "big-endian"},
		{"version 1", change(func(f *file) { f.version = 1 }), models.ErrNotGGUF, "version 1"},
		{"version 4", change(func(f *file) { f.version = 4 }), models.ErrDamaged, "version 4"},
		{"tensor count", change(func(f *file) { f.tensorCount = &huge }), models.ErrDamaged, "tensors"},
		{"key count", change(func(f *file) { f.pairCount = &huge }), models.ErrDamaged, "keys"},
		{"empty key", whole().with("", "x").bytes(), models.ErrDamaged, "key is empty"},
		{"key twice", change(func(f *file) { f.pairs = append(f.pairs, pair{"general.name", "Other"}) }), models.ErrDamaged, "twice"},
		{"key not text", whole().with("a\xff", "x").bytes(), models.ErrDamaged, "not text"},
		{"no architecture", change(func(f *file) { f.pairs = f.pairs[1:] }), models.ErrDamaged, "general.architecture"},
		{"alignment 0", whole().with("general.alignment", uint32(0)).bytes(), models.ErrDamaged, "alignment"},
		{"alignment 24", whole().with("general.alignment", uint32(24)).bytes(), models.ErrDamaged, "power of two"},
		{"alignment text", whole().with("general.alignment", "32").bytes(), models.ErrDamaged, "alignment"},
		{"513 blocks", whole().with("llama.block_count", uint32(513)).bytes(), models.ErrDamaged, "block_count"},
		{"0 blocks", whole().with("llama.block_count", uint32(0)).bytes(), models.ErrDamaged, "block_count"},
		{"tensor outside", change(func(f *file) { f.tensors[1].offset = 1 << 40 }), models.ErrDamaged, "cut short"},
		{"tensor past the end", change(func(f *file) { f.data -= 1 }), models.ErrDamaged, "attn_q"},
		{"tensor not aligned", change(func(f *file) { f.tensors[1].offset = 4 }), models.ErrDamaged, "multiple of 32"},
		{"tensor twice", change(func(f *file) { f.tensors[1].name = f.tensors[0].name }), models.ErrDamaged, "twice"},
		{"tensor without name", change(func(f *file) { f.tensors[1].name = "" }), models.ErrDamaged, "name of a tensor"},
		{"tensor name long", change(func(f *file) { f.tensors[1].name = strings.Repeat("x", 64) }), models.ErrDamaged, "name of a tensor"},
		{"tensor type", change(func(f *file) { f.tensors[1].kind = 4 }), models.ErrDamaged, "unknown type 4"}, // Q4_2, removed
		{"tensor type 9999", change(func(f *file) { f.tensors[1].kind = 9999 }), models.ErrDamaged, "unknown type"},
		{"five dimensions", change(func(f *file) { f.tensors[1].dims = []uint64{2, 2, 2, 2, 2} }), models.ErrDamaged, "dimensions"},
		{"no dimension", change(func(f *file) { f.tensors[1].dims = nil }), models.ErrDamaged, "dimensions"},
		{"shape overflows", change(func(f *file) { f.tensors[1].dims = []uint64{1 << 33, 1 << 33} }), models.ErrDamaged, "shape"},
		{"shape 0", change(func(f *file) { f.tensors[1].dims = []uint64{0, 8} }), models.ErrDamaged, "shape"},
		{"half a quantisation block", change(func(f *file) { f.tensors[1].kind, f.tensors[1].dims = 8, []uint64{8, 8} }), models.ErrDamaged, "block size 32"}, // Q8_0
	} {
		t.Run(test.name, func(t *testing.T) {
			err := models.CheckHeader(bytes.NewReader(test.b), int64(len(test.b)))
			if !errors.Is(err, test.kind) {
				t.Fatalf("got %v, want kind %v", err, test.kind)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, want it to say %q", err, test.says)
			}
			var e *models.Error
			if !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("got %#v, want an *Error with a hint", err)
			}
		})
	}
}

// Cut at every byte, a file is an error and never a panic.
func TestCheckHeaderTruncated(t *testing.T) {
	b := whole().bytes()
	for n := range b {
		err := models.CheckHeader(bytes.NewReader(b[:n]), int64(n))
		if err == nil {
			t.Fatalf("cut to %d of %d bytes: no error", n, len(b))
		}
		if n >= 4 && !errors.Is(err, models.ErrDamaged) {
			t.Fatalf("cut to %d of %d bytes: got %v, want kind %v", n, len(b), err, models.ErrDamaged)
		}
	}
}

// A file that shrinks after its size was taken is an error too.
func TestCheckHeaderShrinks(t *testing.T) {
	b := whole().bytes()
	if err := models.CheckHeader(bytes.NewReader(b[:100]), int64(len(b))); !errors.Is(err, models.ErrDamaged) {
		t.Fatalf("got %v, want kind %v", err, models.ErrDamaged)
	}
}

func FuzzCheckHeader(f *testing.F) {
	b := whole().bytes()
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte("GGUF"))
	f.Add([]byte{})
	w := whole()
	huge := uint64(math.MaxUint64)
	w.pairCount = &huge
	f.Add(w.bytes())
	f.Add(whole().with("general.alignment", uint32(24)).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		err := models.CheckHeader(bytes.NewReader(b), int64(len(b)))
		var e *models.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("got %T %v, want an *Error", err, err)
		}
	})
}
