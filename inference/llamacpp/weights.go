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
	gguf "github.com/gpustack/gguf-parser-go"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"

	"demur/models"
)

// weights reads tensors of a model's file as 32-bit numbers. The numbers of
// quantised ones are what llama.cpp's own conversion makes of them.
type weights struct {
	file    *os.File
	data    int64
	tensors map[string]gguf.GGUFTensorInfo
	traits  uintptr // ggml_get_type_traits
}

var errNoWeights = errors.New("the file has no such tensor")

func openWeights(dir string, f models.File) (*weights, error) {
	if len(f.Parts) > 1 {
		return nil, errors.New("the model is split over several files, whose weights are not read")
	}
	parsed, err := gguf.ParseGGUFFile(f.Path, gguf.SkipLargeMetadata())
	if err != nil {
		return nil, fmt.Errorf("read the weights of %s: %w", f.Path, err)
	}
	lib, err := loader.LoadLibrary(dir, "ggml-base")
	if err != nil {
		return nil, unavailable("load ggml from %s: %w", dir, err)
	}
	p, err := lib.Prep("ggml_get_type_traits", &ffi.TypePointer, &ffi.TypeSint32)
	if err != nil {
		return nil, unavailable("the llama.cpp library in %s lacks ggml_get_type_traits: %w", dir, err)
	}
	w := &weights{data: parsed.TensorDataStartOffset, tensors: make(map[string]gguf.GGUFTensorInfo), traits: p.Addr}
	for _, t := range parsed.TensorInfos {
		w.tensors[t.Name] = t
	}
	if w.file, err = os.Open(f.Path); err != nil {
		return nil, fmt.Errorf("read the weights: %w", err)
	}
	return w, nil
}

func (w *weights) close() { w.file.Close() }

func (w *weights) has(name string) bool { _, ok := w.tensors[name]; return ok }

// A typeTraits is the beginning of ggml_type_traits of llama.cpp v0.5.0
// (ggml/include/ggml.h).
type typeTraits struct {
	name       uintptr
	block      int64
	interleave int64
	size       uintptr
	quantised  bool
	_          [7]byte
	toFloat    uintptr
}

// columns returns the length of a row of a matrix or vector.
func (w *weights) columns(name string) int { return int(w.tensors[name].Dimensions[0]) }

// rows returns the number of rows of a matrix; a vector has one.
func (w *weights) rows(name string) int {
	t := w.tensors[name]
	if len(t.Dimensions) < 2 {
		return 1
	}
	return int(t.Dimensions[1])
}

// row returns a row of a tensor of one or two dimensions.
func (w *weights) row(name string, i int) ([]float32, error) {
	t, ok := w.tensors[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, errNoWeights)
	}
	if len(t.Dimensions) > 2 {
		return nil, fmt.Errorf("%s has %d dimensions", name, len(t.Dimensions))
	}
	at, _, _ := purego.SyscallN(w.traits, uintptr(t.Type))
	if at == 0 {
		return nil, fmt.Errorf("%s is of type %d, which is not known", name, t.Type)
	}
	traits := *(**typeTraits)(unsafe.Pointer(&at))
	n := w.columns(name)
	if traits.block < 1 || n%int(traits.block) != 0 || traits.size < 1 || traits.size > 1<<12 {
		return nil, fmt.Errorf("%s: a row of %d numbers is not one of blocks of %d", name, n, traits.block)
	}
	raw := make([]byte, n/int(traits.block)*int(traits.size))
	if _, err := w.file.ReadAt(raw, w.data+int64(t.Offset)+int64(i)*int64(len(raw))); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read the weights: %w", err)
	}
	out := make([]float32, n)
	switch {
	case t.Type == gguf.GGMLTypeF32:
		for k := range out {
			out[k] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:]))
		}
	case traits.toFloat == 0:
		return nil, fmt.Errorf("%s is of type %d, which cannot be read", name, t.Type)
	default:
		purego.SyscallN(traits.toFloat, uintptr(unsafe.Pointer(&raw[0])), uintptr(unsafe.Pointer(&out[0])), uintptr(n))
	}
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
