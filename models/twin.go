package models

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	gguf "github.com/gpustack/gguf-parser-go"
)

// twinSpread is the standard deviation of a twin's weights: that from which
// models of the llama and gemma families start their training.
const twinSpread = 0.02

// WriteTwin writes the untrained twin of a model: its GGUF file with the same
// architecture, tokenizer, template and kinds of weights, and weights drawn
// anew, of mean 0 and standard deviation 0.02: normal where a tensor holds
// floating-point numbers, uniform over the levels of a block where it is
// quantised. Weights of norms are 1 and biases 0, as before training; other
// vectors, such as the frequencies of positions, are kept. Equal models and
// seeds give equal bytes.
//
// What a probe reads from a twin's states it reads from the words and where
// they stand, for a twin has learned nothing.
//
// A model in several parts, or with a kind of weights that is not known here,
// is an error.
func WriteTwin(ctx context.Context, w io.Writer, f File, seed uint64) error {
	facts, err := ReadFacts(f)
	if err != nil {
		return err
	}
	switch {
	case len(f.Parts) > 1:
		return &Error{Kind: ErrUnreadable, Name: f.Name, Problem: "its twin cannot be made: it lies in several parts", Hint: "merge the parts with llama.cpp's gguf-split --merge"}
	case facts.parsed == nil:
		return &Error{Kind: ErrUnreadable, Name: f.Name, Problem: "its twin cannot be made: " + strings.Join(facts.Warnings, "; ")}
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return unreadable(f.Path, err)
	}
	defer file.Close()
	tensors := slices.Clone(facts.parsed.TensorInfos)
	slices.SortFunc(tensors, func(a, b gguf.GGUFTensorInfo) int { return int(int64(a.Offset) - int64(b.Offset)) })
	start, at := facts.parsed.TensorDataStartOffset, int64(0)
	out := bufio.NewWriterSize(w, 1<<20)
	kept := func(to int64) error {
		_, err := io.Copy(out, io.NewSectionReader(file, at, to-at))
		at = to
		return err
	}
	for _, t := range tensors {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := kept(start + int64(t.Offset)); err != nil {
			return fmt.Errorf("write twin of %s: %w", f.Name, err)
		}
		fill, err := twinTensor(t, seed)
		if err != nil {
			return &Error{Kind: ErrUnreadable, Name: f.Name, Problem: "its twin cannot be made: " + err.Error(), Hint: "take another quantisation of the model"}
		}
		if fill == nil {
			continue // copied with what comes next
		}
		size := int64(t.Bytes())
		if err := fill(out, size); err != nil {
			return fmt.Errorf("write twin of %s: %w", f.Name, err)
		}
		at += size
	}
	info, err := file.Stat()
	if err != nil {
		return unreadable(f.Path, err)
	}
	if err := kept(info.Size()); err != nil {
		return fmt.Errorf("write twin of %s: %w", f.Name, err)
	}
	return out.Flush()
}

// Kinds of weights, by their number in a GGUF file (ggml.h, enum ggml_type).
const (
	typeF32  = 0
	typeF16  = 1
	typeQ40  = 2
	typeQ41  = 3
	typeQ50  = 6
	typeQ51  = 7
	typeQ80  = 8
	typeQ2K  = 10
	typeQ3K  = 11
	typeQ4K  = 12
	typeQ5K  = 13
	typeQ6K  = 14
	typeBF16 = 30
)

// twinTensor returns what writes so many bytes of a tensor's values; nil for a
// tensor that stays as it is.
func twinTensor(t gguf.GGUFTensorInfo, seed uint64) (func(w io.Writer, size int64) error, error) {
	kind := int(t.Type)
	constant := func(v float32) (func(io.Writer, int64) error, error) {
		b, err := element(kind, v)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		return func(w io.Writer, size int64) error {
			_, err := w.Write(slices.Repeat(b, int(size)/len(b)))
			return err
		}, nil
	}
	switch {
	case t.NDimensions < 2 && strings.HasSuffix(t.Name, "norm.weight"):
		return constant(1)
	case strings.HasSuffix(t.Name, ".bias"):
		return constant(0)
	case t.NDimensions < 2:
		return nil, nil
	}
	h := fnv.New64a()
	io.WriteString(h, t.Name)
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	if _, err := element(kind, 0); err == nil {
		return func(w io.Writer, size int64) error {
			for n := int64(0); n < size; {
				b, err := element(kind, float32(twinSpread*rng.NormFloat64()))
				if err != nil {
					return err
				}
				if _, err := w.Write(b); err != nil {
					return err
				}
				n += int64(len(b))
			}
			return nil
		}, nil
	}
	b, ok := blocks[kind]
	if !ok {
		return nil, fmt.Errorf("tensor %s has weights of kind %s, which is not known here", t.Name, t.Type)
	}
	return func(w io.Writer, size int64) error {
		block := make([]byte, b.size)
		for n := int64(0); n < size; n += int64(b.size) {
			random(rng, block)
			b.set(block, rng.Uint64()&1 == 0)
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func random(rng *rand.Rand, b []byte) {
	var word [8]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		b = b[copy(b, word[:]):]
	}
}

// element is one number of a kind that is not quantised.
func element(kind int, v float32) ([]byte, error) {
	switch kind {
	case typeF32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), nil
	case typeF16:
		return binary.LittleEndian.AppendUint16(nil, half(v)), nil
	case typeBF16:
		return binary.LittleEndian.AppendUint16(nil, uint16((math.Float32bits(v)+0x8000)>>16)), nil
	}
	return nil, fmt.Errorf("kind of weights %d is quantised", kind)
}

// half is v as a 16-bit float, rounded to nearest; v is below 65504.
func half(v float32) uint16 {
	sign := uint16(math.Float32bits(v)>>16) & 0x8000
	x := math.Abs(float64(v))
	if x < 0x1p-14 {
		return sign | uint16(math.RoundToEven(x*0x1p24)) // steps of 2⁻²⁴
	}
	f, e := math.Frexp(x) // x = f·2ᵉ, f from ½
	// A mantissa that rounds up to 1024 carries into the exponent, as it should.
	return sign | uint16((e+14)<<10+int(math.RoundToEven((2*f-1)*1024)))
}

// A block of quantised weights: set writes the scales over random bytes so that
// the weights have mean 0 and the wanted spread. Kinds whose levels are not
// symmetric get scales of either sign.
type block struct {
	size int
	set  func(b []byte, negative bool)
}

// spread is the scale at which equally frequent levels 0 to n−1 have the wanted
// standard deviation.
func spread(n float64) float64 { return twinSpread / math.Sqrt((n*n-1)/12) }

// blocks are laid out as in ggml-common.h.
var blocks = map[int]block{
	typeQ40: {18, func(b []byte, negative bool) { scale(b, spread(16), negative) }},                           // d·(q − 8)
	typeQ50: {22, func(b []byte, negative bool) { scale(b, spread(32), negative) }},                           // d·(q − 16)
	typeQ80: {34, func(b []byte, negative bool) { scale(b, spread(256), negative) }},                          // d·q
	typeQ41: {20, func(b []byte, _ bool) { scale(b, spread(16), false); scale(b[2:], 7.5*spread(16), true) }}, // d·q + m
	typeQ51: {24, func(b []byte, _ bool) { scale(b, spread(32), false); scale(b[2:], 15.5*spread(32), true) }},
	// In blocks of 256, of eight or sixteen parts with small scales of their own,
	// here all alike.
	typeQ2K: {84, func(b []byte, _ bool) { // d·8·q − dmin·8
		fill(b[:16], 0x88)
		scale(b[80:], spread(4)/8, false)
		scale(b[82:], 1.5*spread(4)/8, false)
	}},
	typeQ3K: {110, func(b []byte, negative bool) { // d·(33 − 32)·(q − 4)
		fill(b[96:104], 0x11)
		fill(b[104:108], 0xaa)
		scale(b[108:], spread(8), negative)
	}},
	typeQ4K: {144, func(b []byte, _ bool) { superblock(b, 16) }},
	typeQ5K: {176, func(b []byte, _ bool) { superblock(b, 32) }},
	typeQ6K: {210, func(b []byte, negative bool) { // d·1·(q − 32)
		fill(b[192:208], 1)
		scale(b[208:], spread(64), negative)
	}},
}

// superblock sets d, dmin and the twelve bytes of scales of Q4_K and Q5_K, all
// scales and offsets 32: d·32·q − dmin·32.
func superblock(b []byte, levels float64) {
	scale(b, spread(levels)/32, false)
	scale(b[2:], (levels-1)/2*spread(levels)/32, false)
	fill(b[4:12], 32|2<<6)
	fill(b[12:16], 0)
}

func scale(b []byte, d float64, negative bool) {
	if negative {
		d = -d
	}
	binary.LittleEndian.PutUint16(b, half(float32(d)))
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}
