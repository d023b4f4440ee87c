package data

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// LayerTable names the table of a layer's activations; the embedding, layer −1,
// has a word.
func LayerTable(layer int) string {
	if layer < 0 {
		return activationsDir + "/embedding"
	}
	return fmt.Sprintf("%s/layer_%02s", activationsDir, strconv.Itoa(layer))
}

// LayerTables names the tables of activations that a folder holds, sorted; none is
// no error.
func LayerTables(dir string) ([]string, error) {
	// Not filepath.Glob: the folder's own name may hold what a pattern does.
	files, err := fs.Glob(os.DirFS(dir), activationsDir+"/*.parquet")
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".parquet")
	}
	return files, err
}

// LayerOptions say how a layer's activations are written.
type LayerOptions struct {
	// Half writes values as float16, the nearest with ties to even: half the bytes,
	// 11 significant bits, relative error at most 2⁻¹¹ from 6.1e-5 on and absolute
	// error at most 2⁻²⁵ below. A value beyond 65504 is an error.
	Half bool
	// Group is how many bytes of rows are in memory before they are written, so
	// that many tables can be written at once. It is a part of the file's bytes.
	// 0 means 16 MiB.
	Group int
}

// WriteLayer writes the activations of one layer as WriteTable does. ReadTable
// reads them as Activation whether they are float32 or float16.
func WriteLayer(dir string, layer int, o LayerOptions, rows iter.Seq2[Activation, error]) error {
	group := cmp.Or(o.Group, rowGroupSize)
	if !o.Half {
		return writeGrouped(dir, LayerTable(layer), group, rows)
	}
	return writeGrouped(dir, LayerTable(layer), group, func(yield func(halfActivation, error) bool) {
		for row, err := range rows {
			var h halfActivation
			if err == nil {
				h, err = row.half()
			}
			if !yield(h, err) {
				return
			}
		}
	})
}

// A halfActivation is an Activation as it is stored with float16 values.
type halfActivation struct {
	PromptID string `parquet:"prompt_id,dict"`
	Layer    int    `parquet:"layer"`
	Anchor   string `parquet:"anchor,dict"`
	Position int    `parquet:"position"`
	Token    int32  `parquet:"token"`
	Values   []half `parquet:"values,list"`
}

func (a Activation) half() (halfActivation, error) {
	h := halfActivation{a.PromptID, a.Layer, a.Anchor, a.Position, a.Token, make([]half, len(a.Values))}
	for i, v := range a.Values {
		if v != v || v-v != 0 {
			return h, fmt.Errorf("a row holds the number %v; absent numbers are null", v)
		}
		bits := HalfOf(v)
		if bits&0x7fff == 0x7c00 {
			return h, fmt.Errorf("prompt %.8s, layer %d, %s: coordinate %d is %g, and float16 ends at 65504; keep the states as float32 (without --half)", a.PromptID, a.Layer, a.Anchor, i, v)
		}
		h.Values[i] = half{byte(bits), byte(bits >> 8)}
	}
	return h, nil
}

func (h halfActivation) whole() Activation {
	a := Activation{PromptID: h.PromptID, Layer: h.Layer, Anchor: h.Anchor, Position: h.Position, Token: h.Token}
	if len(h.Values) > 0 {
		a.Values = make([]float32, len(h.Values))
	}
	for i, v := range h.Values {
		a.Values[i] = FromHalf(uint16(v[0]) | uint16(v[1])<<8)
	}
	return a
}

// half is a float16, little endian.
type half [2]byte

// HalfOf returns the bits of the float16 (IEEE 754 binary16) nearest to v, ties
// to even. What is beyond the greatest, 65504, by half a step or more becomes an
// infinity, NaN stays one.
func HalfOf(v float32) uint16 {
	b := math.Float32bits(v)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x47800000: // 2¹⁶
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴ a step is 2⁻²⁴, which is what a sum with 2⁻¹ is rounded to
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b -= 112 << 23              // the exponent's bias is 15, not 127
	b += 0xfff + b>>13&1        // half a step, less one bit where that makes a tie even
	return sign | uint16(b>>13) // a carry into the exponent is right
}

// FromHalf returns the value of a float16, exactly.
func FromHalf(bits uint16) float32 {
	sign, exponent, fraction := uint32(bits&0x8000)<<16, uint32(bits>>10&0x1f), uint32(bits&0x3ff)
	switch exponent {
	case 0:
		v := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// readActivations yields activations with float16 values as those of float32;
// ok is false where the file has no such values.
func readActivations(r io.ReaderAt, size int64) (rows iter.Seq2[Activation, error], ok bool) {
	f, err := openParquet(r, size)
	if err != nil {
		return nil, false // readParquet says so
	}
	c := f.Root().Column("values")
	for c != nil && !c.Leaf() {
		if len(c.Columns()) != 1 {
			return nil, false
		}
		c = c.Columns()[0]
	}
	if c == nil || c.Type().Kind() != parquet.FixedLenByteArray || c.Type().Length() != len(half{}) {
		return nil, false
	}
	return func(yield func(Activation, error) bool) {
		for row, err := range readParquet[halfActivation](r, size) {
			if !yield(row.whole(), err) {
				return
			}
		}
	}, true
}

// halfSchema is the schema of a halfActivation, whose pairs of bytes are
// float16: the library has no tag for that.
func halfSchema() *parquet.Schema {
	return parquet.NewSchema(reflect.TypeFor[Activation]().Name(), halfNode{parquet.SchemaOf(halfActivation{})})
}

type halfType struct{ parquet.Type }

func (halfType) LogicalType() *format.LogicalType {
	return &format.LogicalType{Value: &format.Float16Type{}}
}

type halfNode struct{ parquet.Node }

func (n halfNode) Type() parquet.Type {
	t := n.Node.Type()
	if n.Leaf() && t.Kind() == parquet.FixedLenByteArray {
		return halfType{t}
	}
	return t
}

func (n halfNode) Fields() []parquet.Field {
	fields := n.Node.Fields()
	for i, f := range fields {
		fields[i] = halfField{halfNode{f}, f}
	}
	return fields
}

type halfField struct {
	halfNode
	field parquet.Field
}

func (f halfField) Name() string                           { return f.field.Name() }
func (f halfField) Value(base reflect.Value) reflect.Value { return f.field.Value(base) }
