package models

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Operations of a ControlVector, as its file names them.
const (
	ControlAdd     = "add"     // the vector is added to the stream
	ControlProject = "project" // the stream's component along the vector is taken out
)

// Conventions by which other tools number the vectors of a control-vector file.
const (
	// Repeng is vgel/repeng's: direction.N was learned after block N and is applied
	// there.
	Repeng = "repeng"
	// Cvector is that of llama.cpp's cvector-generator: direction.N was learned after
	// block N − 1, though llama.cpp applies it after block N.
	Cvector = "cvector"
)

// A ControlVector is vectors to be added to a model's residual stream, or to be
// projected out of it, at every position. Blocks count from 0 and mean the stream
// after the block.
type ControlVector struct {
	Operation string         // ControlAdd or ControlProject
	Layers    []ControlLayer // ascending by block
	Hint      string         // architecture of the model, as llama.cpp names it

	// What demur's own files say besides; empty where a file does not.
	Target       string // what the direction tells, such as refusal
	Method       string
	Anchor       string // where it was learned; see package probes
	Model        string
	ModelDigest  string
	TemplateHash string
	// FittedOn are digests of the requests that it was learned from, so that it is
	// not tested on them. Nil where that is not known.
	FittedOn []string
	// Convention is that by which another tool's file was read; empty for demur's own.
	Convention string
}

// A ControlLayer is the vector of one block.
type ControlLayer struct {
	Layer     int       // where it is applied, and in demur's files
	LearnedAt int       // where it was learned
	Values    []float32 // a dose of 1
	// Gap is the distance of the class means along the vector and MeanNorm the mean
	// length of the stream, both where it was learned; 0 where not known.
	Gap, MeanNorm float64
}

// controlVersion is of the keys that demur adds.
const controlVersion = 1

// WriteControlVector writes c as a GGUF file. What is to be added is in the
// tensors direction.N, which llama.cpp (--control-vector-scaled FILE 1), repeng and
// others add after block N; what is to be projected out in tensors project.N, so
// that a program which knows only addition refuses the file instead of adding it.
// Equal vectors give equal bytes.
//
// It returns an error for a vector to be added after block 0, which the format
// has no place for: N begins at 1, and llama.cpp leaves block 0 alone.
func WriteControlVector(w io.Writer, c ControlVector) error {
	if err := c.check(); err != nil {
		return fmt.Errorf("write control vector: %w", err)
	}
	var kv ggufWriter
	keys := 0
	key := func(name string, kind uint32) {
		keys++
		kv.text(name)
		kv.number(kind)
	}
	text := func(name, value string) {
		if value != "" {
			key(name, kindString)
			kv.text(value)
		}
	}
	whole := func(name string, value int) { key(name, kindUint32); kv.number(uint32(value)) }
	real := func(name string, value float64) { key(name, kindFloat64); kv.number(value) }
	text("general.architecture", "controlvector")
	text("controlvector.model_hint", c.Hint)
	whole("controlvector.layer_count", len(c.Layers))
	whole("demur.control_vector", controlVersion)
	text("demur.site", "post_block")
	text("demur.index_base", "block0")
	text("demur.op", c.Operation)
	if c.Operation == ControlAdd {
		text("demur.norm_unit", "class_gap")
	}
	text("demur.target", c.Target)
	text("demur.method", c.Method)
	text("demur.position", c.Anchor)
	text("demur.model", c.Model)
	text("demur.model_sha256", c.ModelDigest)
	text("demur.template_sha256", c.TemplateHash)
	for _, l := range c.Layers {
		n := "." + strconv.Itoa(l.Layer)
		whole("demur.learned_at"+n, l.LearnedAt)
		real("demur.class_gap"+n, l.Gap)
		real("demur.mean_norm"+n, l.MeanNorm)
	}
	if len(c.FittedOn) > 0 {
		key("demur.fitted_on", kindArray)
		kv.number(uint32(kindString))
		kv.number(uint64(len(c.FittedOn)))
		for _, d := range c.FittedOn {
			kv.text(d)
		}
	}
	var out ggufWriter
	out.WriteString("GGUF")
	out.number(uint32(3))
	out.number(uint64(len(c.Layers)))
	out.number(uint64(keys))
	out.Write(kv.Bytes())
	offset := 0
	for _, l := range c.Layers {
		out.text(c.tensor(l.Layer))
		out.number(uint32(1))
		out.number(uint64(len(l.Values)))
		out.number(uint32(0)) // float32
		out.number(uint64(offset))
		offset += (4*len(l.Values) + defaultAlign - 1) / defaultAlign * defaultAlign
	}
	for _, l := range c.Layers {
		for out.Len()%defaultAlign != 0 {
			out.WriteByte(0)
		}
		out.number(l.Values)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write control vector: %w", err)
	}
	return nil
}

// tensor names the tensor of a block.
func (c ControlVector) tensor(layer int) string {
	if c.Operation == ControlProject {
		return "project." + strconv.Itoa(layer)
	}
	return "direction." + strconv.Itoa(layer)
}

// check returns an error unless c can be applied to some model.
func (c ControlVector) check() error {
	if c.Operation != ControlAdd && c.Operation != ControlProject {
		return fmt.Errorf("operation %q is neither %s nor %s", c.Operation, ControlAdd, ControlProject)
	}
	if len(c.Layers) == 0 {
		return errors.New("it has no vector")
	}
	for i, l := range c.Layers {
		switch {
		case l.Layer < 0 || l.Layer >= maxBlocks || l.LearnedAt < 0 || l.LearnedAt >= maxBlocks:
			return fmt.Errorf("block %d, learned at %d: blocks 0 to %d can be", l.Layer, l.LearnedAt, maxBlocks-1)
		case l.Layer == 0 && c.Operation == ControlAdd && c.Convention == "":
			return errors.New("a vector to be added after block 0 has no place in this format, whose directions begin at 1; take a later block")
		case i > 0 && l.Layer <= c.Layers[i-1].Layer:
			return fmt.Errorf("block %d stands after block %d", l.Layer, c.Layers[i-1].Layer)
		case len(l.Values) == 0 || len(l.Values) != len(c.Layers[0].Values):
			return fmt.Errorf("the vector of block %d has %d values, that of block %d has %d", l.Layer, len(l.Values), c.Layers[0].Layer, len(c.Layers[0].Values))
		}
		var sum float64
		for j, v := range l.Values {
			x := float64(v)
			if x-x != 0 {
				return fmt.Errorf("value %d of the vector of block %d is %v", j, l.Layer, x)
			}
			sum += x * x
		}
		if sum == 0 && c.Operation == ControlProject {
			return fmt.Errorf("the vector of block %d has length 0 and so no direction", l.Layer)
		}
		for _, x := range []float64{l.Gap, l.MeanNorm} {
			if x-x != 0 || x < 0 {
				return fmt.Errorf("block %d: a class gap or mean length of %v", l.Layer, x)
			}
		}
	}
	return nil
}

// ReadControlVector reads a control-vector file of size bytes. A file of demur
// says itself what its numbers mean, and convention must be empty; of any other,
// convention is Repeng or Cvector, for the format does not say, and a wrong guess
// is off by one block. Vectors of other tools are to be added. Errors are of type
// *Error, without a name.
//
// Source: llama.cpp, common/common.cpp (the loader) and
// tools/cvector-generator; vgel/repeng, repeng/control.py.
func ReadControlVector(r io.ReaderAt, size int64, convention string) (ControlVector, error) {
	h, err := scanHeader(r, size, true)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && e.Kind == ErrDamaged {
			e.Hint = "make the control vector again"
		}
		return ControlVector{}, err
	}
	bad := func(format string, args ...any) (ControlVector, error) {
		return ControlVector{}, &Error{Kind: ErrDamaged, Problem: fmt.Sprintf(format, args...)}
	}
	if a := h.text("general.architecture"); a != "controlvector" {
		return ControlVector{}, &Error{Kind: ErrNotGGUF, Problem: fmt.Sprintf("this is no control vector: its architecture is %.40q", a), Hint: "give the model itself to --model"}
	}
	version, own := h.integer("demur.control_vector")
	switch {
	case own && convention != "":
		return ControlVector{}, &Error{Kind: ErrNotGGUF, Problem: "this file was written by demur and says itself how it counts blocks", Hint: "leave --convention out"}
	case own && version != controlVersion:
		return ControlVector{}, &Error{Kind: ErrNotGGUF, Problem: fmt.Sprintf("its keys are of version %d; version %d is known here", version, controlVersion), Hint: "use a newer demur"}
	case !own && convention == "":
		return ControlVector{}, &Error{Kind: ErrNotGGUF, Problem: "this file does not say after which block its vectors were learned, and tools differ by one", Hint: "say which tool wrote it: --convention repeng, or --convention cvector for llama.cpp's cvector-generator"}
	case !own && convention != Repeng && convention != Cvector:
		return ControlVector{}, &Error{Kind: ErrNotGGUF, Problem: fmt.Sprintf("convention %.40q is not known", convention), Hint: "conventions are repeng and cvector"}
	}
	c := ControlVector{Operation: ControlAdd, Hint: h.text("controlvector.model_hint"), Convention: convention}
	if own {
		for _, k := range []struct{ key, want string }{{"demur.site", "post_block"}, {"demur.index_base", "block0"}} {
			if got := h.text(k.key); got != k.want {
				return bad("%s is %.40q; %q is known here", k.key, got, k.want)
			}
		}
		c.Operation = h.text("demur.op")
		c.Target, c.Method, c.Anchor = h.text("demur.target"), h.text("demur.method"), h.text("demur.position")
		c.Model, c.ModelDigest, c.TemplateHash = h.text("demur.model"), h.text("demur.model_sha256"), h.text("demur.template_sha256")
		c.FittedOn = h.texts["demur.fitted_on"]
	}
	if len(h.index) > maxBlocks {
		return bad("it has %d vectors, more than %d", len(h.index), maxBlocks)
	}
	for _, t := range h.index {
		l, err := h.controlLayer(r, t, c, own)
		if err != nil {
			return ControlVector{}, err
		}
		c.Layers = append(c.Layers, l)
	}
	slices.SortFunc(c.Layers, func(a, b ControlLayer) int { return a.Layer - b.Layer })
	if err := c.check(); err != nil {
		return bad("%v", err)
	}
	return c, nil
}

// controlLayer reads one vector.
func (h *header) controlLayer(r io.ReaderAt, t placed, c ControlVector, own bool) (ControlLayer, error) {
	bad := func(format string, args ...any) (ControlLayer, error) {
		return ControlLayer{}, &Error{Kind: ErrDamaged, Problem: fmt.Sprintf(format, args...)}
	}
	prefix, _ := strings.CutSuffix(c.tensor(0), "0")
	digits, ok := strings.CutPrefix(t.name, prefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || strconv.Itoa(n) != digits {
		return bad("tensor %q is none of its kind: they are named %sN", t.name, prefix)
	}
	if t.kind != 0 || t.row != t.count || t.count > 1<<20 {
		return bad("tensor %q is not one row of 32-bit floats", t.name)
	}
	if n < 0 || n >= maxBlocks || n == 0 && c.Operation == ControlAdd {
		return bad("tensor %q: directions to be added are numbered 1 to %d", t.name, maxBlocks-1)
	}
	l := ControlLayer{Layer: n, LearnedAt: n}
	if c.Convention == Cvector {
		l.Layer, l.LearnedAt = n-1, n-1
	}
	if own {
		if l.LearnedAt, ok = h.integer("demur.learned_at." + digits); !ok {
			return bad("it does not say where the vector of block %d was learned", n)
		}
		l.Gap, _ = h.values["demur.class_gap."+digits].(float64)
		l.MeanNorm, _ = h.values["demur.mean_norm."+digits].(float64)
	}
	raw := make([]byte, 4*t.count)
	if n, err := r.ReadAt(raw, int64(h.start+t.offset)); n < len(raw) {
		return ControlLayer{}, &Error{Kind: ErrUnreadable, Problem: reason(err), Err: err}
	}
	l.Values = make([]float32, t.count)
	for i := range l.Values {
		l.Values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return l, nil
}

// Fits returns an error if c cannot be applied to a model of so many blocks and
// such a width, or was made for another model or template; and what a user should
// know all the same.
func (c ControlVector) Fits(blocks, width int, modelDigest, templateHash string) (warnings []string, err error) {
	last := blocks - 1
	for _, l := range c.Layers {
		switch {
		case len(l.Values) != width:
			return nil, fmt.Errorf("the control vector has width %d, the model's stream %d: it is of another model", len(l.Values), width)
		case l.Layer > last:
			return nil, fmt.Errorf("the control vector has a direction for block %d, the model's last is %d: it is of another model", l.Layer, last)
		case l.Layer == last && c.Convention == Repeng:
			return nil, fmt.Errorf("the direction of block %d, the last, was learned by repeng after the model's final norm and does not belong into the stream; leave it out with --layers", last)
		case l.Layer == last:
			warnings = append(warnings, fmt.Sprintf("after block %d, the last, a direction acts on the next token alone and nothing reads it on the way", last))
		}
	}
	switch {
	case c.ModelDigest == "":
		warnings = append(warnings, "the control vector does not say of which model it is")
	case c.ModelDigest != modelDigest:
		return nil, fmt.Errorf("the control vector was made for model %s (%s), this one is %s", c.Model, c.ModelDigest, modelDigest)
	}
	if c.TemplateHash != "" && c.TemplateHash != templateHash {
		return nil, fmt.Errorf("the control vector was made under another chat template (%.8s, this one is %.8s)", c.TemplateHash, templateHash)
	}
	if c.FittedOn == nil {
		warnings = append(warnings, "the control vector does not say which requests it was learned from, so it may be tested on its own")
	}
	return warnings, nil
}

// A ggufWriter gathers the parts of a header.
type ggufWriter struct{ bytes.Buffer }

func (w *ggufWriter) number(v any) {
	if err := binary.Write(&w.Buffer, binary.LittleEndian, v); err != nil {
		panic(fmt.Sprintf("models: no fixed size: %T", v))
	}
}

func (w *ggufWriter) text(s string) {
	w.number(uint64(len(s)))
	w.WriteString(s)
}
