package llamacpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"

	"demur/models"
)

// weights reads tensors of a model's file as 32-bit numbers. The numbers of
// quantised ones are what llama.cpp's own conversion makes of them.
type weights struct {
	file    *os.File
	tensors map[string]models.Tensor
	traits  uintptr // ggml_get_type_traits
}

var errNoWeights = errors.New("the file has no such tensor")

func openWeights(dir string, f models.File) (*weights, error) {
	all, err := models.Tensors(f)
	if err != nil {
		return nil, err
	}
	lib, err := loader.LoadLibrary(dir, "ggml-base")
	if err != nil {
		return nil, unavailable("load ggml from %s: %w", dir, err)
	}
	p, err := lib.Prep("ggml_get_type_traits", &ffi.TypePointer, &ffi.TypeSint32)
	if err != nil {
		return nil, unavailable("the llama.cpp library in %s lacks ggml_get_type_traits: %w", dir, err)
	}
	w := &weights{tensors: make(map[string]models.Tensor), traits: p.Addr}
	for _, t := range all {
		w.tensors[t.Name] = t
	}
	if w.file, err = os.Open(f.Path); err != nil {
		return nil, fmt.Errorf("read the weights: %w", err)
	}
	return w, nil
}

func (w *weights) close() { w.file.Close() }

func (w *weights) has(name string) bool { _, ok := w.tensors[name]; return ok }

// columns returns the length of a row of a matrix or vector, 0 where there is none.
func (w *weights) columns(name string) int {
	if t, ok := w.tensors[name]; ok {
		return t.Dimensions[0]
	}
	return 0
}

// rows returns the number of rows of a matrix; a vector has one.
func (w *weights) rows(name string) int {
	if t := w.tensors[name]; len(t.Dimensions) > 1 {
		return t.Dimensions[1]
	}
	return 1
}

// ggmlFloat32 is ggml's number of 32-bit numbers. Their type has no conversion.
const ggmlFloat32 = 0

// toFloatAt is where ggml_type_traits of llama.cpp v0.5.0 holds the function
// to_float: after a pointer, two 64-bit integers, a size and a bool
// (ggml/include/ggml.h).
const toFloatAt = 40

// row returns a row of a tensor of one or two dimensions.
func (w *weights) row(name string, i int) ([]float32, error) {
	t, ok := w.tensors[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, errNoWeights)
	}
	if len(t.Dimensions) > 2 || i < 0 || i >= w.rows(name) {
		return nil, fmt.Errorf("%s has no row %d: its dimensions are %d", name, i, t.Dimensions)
	}
	raw := make([]byte, t.RowBytes)
	if _, err := w.file.ReadAt(raw, t.Offset+int64(i)*int64(len(raw))); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read the weights: %w", err)
	}
	out := make([]float32, t.Dimensions[0])
	if t.Kind == ggmlFloat32 {
		for k := range out {
			out[k] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:]))
		}
		return out, nil
	}
	at, _, _ := purego.SyscallN(w.traits, uintptr(t.Kind))
	if at != 0 {
		at += toFloatAt
		at = **(**uintptr)(unsafe.Pointer(&at))
	}
	if at == 0 {
		return nil, fmt.Errorf("%s is of type %d, which cannot be read", name, t.Kind)
	}
	purego.SyscallN(at, uintptr(unsafe.Pointer(&raw[0])), uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)))
	return out, nil
}

// floatsAt copies numbers out of C memory.
func floatsAt(p uintptr, n int) []float32 {
	out := make([]float32, n)
	copy(out, unsafe.Slice(*(**float32)(unsafe.Pointer(&p)), n))
	return out
}

// A ggufWriter gathers the bytes of a small GGUF file (the GGUF specification,
// version 3).
type ggufWriter struct{ bytes.Buffer }

// number writes numbers, or slices of them, little-endian.
func (g *ggufWriter) number(values ...any) {
	for _, v := range values {
		if err := binary.Write(&g.Buffer, binary.LittleEndian, v); err != nil {
			panic(fmt.Sprintf("llamacpp: no fixed size: %T", v))
		}
	}
}

func (g *ggufWriter) text(s string) { g.Buffer.WriteString(s) }

func (g *ggufWriter) string(s string) {
	g.number(uint64(len(s)))
	g.text(s)
}

// entry writes a key with its value, a text or a number of 32 bits.
func (g *ggufWriter) entry(key string, value any) {
	g.string(key)
	switch v := value.(type) {
	case string:
		g.number(uint32(8))
		g.string(v)
	case float32:
		g.number(uint32(6), v)
	default:
		panic(fmt.Sprintf("llamacpp: no kind for %T", v))
	}
}

// pad fills up to where the next tensor may begin.
func (g *ggufWriter) pad() {
	for g.Len()%32 != 0 {
		g.WriteByte(0)
	}
}
