package models

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"

	gguf "github.com/gpustack/gguf-parser-go"
)

// Bounds of what a header may hold. They are far above real models and keep a
// damaged or hostile file from costing memory or time.
const (
	maxBlocks     = 512
	maxKeyLength  = 1<<16 - 1 // the format's own bound
	maxNameLength = 63        // of a tensor: GGML_MAX_NAME less the final NUL
	maxDims       = 4         // GGML_MAX_DIMS
	maxString     = 16 << 20  // of a single text such as a chat template
	maxKeys       = 1 << 16
	maxTensors    = 1 << 20
	maxAlignment  = 1 << 20
	defaultAlign  = 32
)

// A header is what the front of a GGUF file says: its metadata, of which
// arrays are kept as kind and length only, and its tensors.
type header struct {
	version uint32
	values  map[string]any // uint64, int64, float64, bool, string or array
	tensors int
	// parameters is the number of weights, all tensors together.
	parameters uint64
	// Where its tensors lie, and the elements of its lists of texts: kept only of
	// files that are read for them.
	keep  bool
	index []placed
	start uint64 // of the tensor data
	texts map[string][]string
}

// placed is a tensor of a file.
type placed struct {
	name   string
	row    uint64 // length of its first dimension
	count  uint64 // elements
	kind   uint32
	offset uint64 // from the start of the tensor data
}

// array is an array in the metadata, its elements left out.
type array struct {
	kind   uint32
	length uint64
}

// The kinds of metadata values, GGUF specification, section "File structure".
const (
	kindUint8 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// kindSize is the number of bytes of a value of fixed size, 0 for the others.
func kindSize(kind uint32) uint64 {
	switch kind {
	case kindUint8, kindInt8, kindBool:
		return 1
	case kindUint16, kindInt16:
		return 2
	case kindUint32, kindInt32, kindFloat32:
		return 4
	case kindUint64, kindInt64, kindFloat64:
		return 8
	}
	return 0
}

// CheckHeader reads the front of a GGUF file of size bytes and returns an error
// (an *Error without a name) unless it is whole and plausible: magic, version 2
// or 3, counts and lengths within the file, no empty or repeated key, alignment
// a power of two, known tensor types, tensors aligned and inside the file, at
// most 512 blocks. It is what stands between a foreign file and the C loader,
// which ends the process on some of these.
//
// It does not find damage to the weights themselves: only a digest does.
//
// Source: GGUF specification, versions 2 and 3 (ggml, docs/gguf.md).
func CheckHeader(r io.ReaderAt, size int64) error {
	_, err := readHeader(r, size)
	return err
}

func readHeader(r io.ReaderAt, size int64) (*header, error) { return scanHeader(r, size, false) }

// scanHeader reads the front of a file; keep says whether its tensors are listed.
func scanHeader(r io.ReaderAt, size int64, keep bool) (*header, error) {
	s := &scanner{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), size: uint64(max(size, 0))}
	if size == 0 {
		return nil, &Error{Kind: ErrNotGGUF, Problem: "the file is empty", Hint: "fetch the model again"}
	}
	var magic [4]byte
	if err := s.read(magic[:]); err != nil || string(magic[:]) != "GGUF" {
		if err != nil && !errors.Is(err, errPastEnd) {
			return nil, &Error{Kind: ErrUnreadable, Problem: reason(err), Err: err}
		}
		return nil, foreign(magic[:])
	}
	h := &header{values: make(map[string]any), keep: keep, texts: make(map[string][]string)}
	if err := h.scan(s); err != nil {
		switch {
		case errors.Is(err, errPastEnd):
			return nil, &Error{Kind: ErrDamaged, Problem: fmt.Sprintf("the file ends inside its header (%d bytes): it is cut short or damaged", size), Hint: "fetch the model again"}
		case errors.As(err, new(problem)):
			return nil, &Error{Kind: ErrDamaged, Problem: "the header is damaged: " + err.Error(), Hint: "fetch the model again"}
		case errors.As(err, new(*Error)):
			return nil, err
		}
		return nil, &Error{Kind: ErrUnreadable, Problem: reason(err), Err: err}
	}
	return h, nil
}

// foreign says what a file that is not GGUF seems to be.
func foreign(magic []byte) *Error {
	e := &Error{Kind: ErrNotGGUF, Problem: "this is not a GGUF file", Hint: "demur reads models in the GGUF format of llama.cpp"}
	switch {
	case string(magic) == "FUGG":
		e.Problem = "this is a big-endian GGUF file, which cannot be read here"
		e.Hint = "fetch the little-endian file of this model"
	case string(magic[:2]) == "PK":
		e.Problem = "this is a ZIP or PyTorch file, not GGUF"
		e.Hint = "convert the model with llama.cpp's convert_hf_to_gguf.py"
	case string(magic) == "lmgg", string(magic) == "fmgg", string(magic) == "tjgg":
		e.Problem = "this is a GGML file from before GGUF"
		e.Hint = "fetch this model as GGUF"
	case magic[0] == '<' || strings.HasPrefix(string(magic), "vers"):
		// "version https://git-lfs…" or an HTML error page saved by a downloader.
		e.Problem = "this is a text file (a Git LFS pointer or a web page?), not GGUF"
		e.Hint = "fetch the model file itself"
	}
	return e
}

// problem is what is wrong with a header.
type problem string

func (p problem) Error() string { return string(p) }

func problemf(format string, args ...any) error { return problem(fmt.Sprintf(format, args...)) }

// errPastEnd means that the file says it holds more than it does.
var errPastEnd = errors.New("past the end of the file")

// A scanner reads little-endian values and never past the size of the file.
type scanner struct {
	r        *bufio.Reader
	at, size uint64
	buf      [8]byte
}

func (s *scanner) left() uint64 { return s.size - s.at }

func (s *scanner) read(b []byte) error {
	if uint64(len(b)) > s.left() {
		return errPastEnd
	}
	n, err := io.ReadFull(s.r, b)
	s.at += uint64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errPastEnd // the file has shrunk since its size was taken
	}
	return err
}

func (s *scanner) skip(n uint64) error {
	if n > s.left() {
		return errPastEnd
	}
	for n > 0 {
		k, err := s.r.Discard(int(min(n, 1<<30)))
		s.at += uint64(k)
		n -= uint64(k)
		if errors.Is(err, io.EOF) {
			return errPastEnd
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) uint32() (uint32, error) {
	err := s.read(s.buf[:4])
	return binary.LittleEndian.Uint32(s.buf[:4]), err
}

func (s *scanner) uint64() (uint64, error) {
	err := s.read(s.buf[:8])
	return binary.LittleEndian.Uint64(s.buf[:8]), err
}

// text reads a string of at most limit bytes.
func (s *scanner) text(limit uint64, what string) (string, error) {
	n, err := s.uint64()
	if err != nil {
		return "", err
	}
	if n > s.left() {
		return "", errPastEnd
	}
	if n > limit {
		return "", problemf("%s is %d bytes long, more than %d", what, n, limit)
	}
	b := make([]byte, n)
	if err := s.read(b); err != nil {
		return "", err
	}
	return string(b), nil
}

func (h *header) scan(s *scanner) error {
	var err error
	if h.version, err = s.uint32(); err != nil {
		return err
	}
	switch {
	case h.version == 1:
		return &Error{Kind: ErrNotGGUF, Problem: "this is GGUF version 1, which llama.cpp no longer reads", Hint: "fetch a newer conversion of this model"}
	case h.version != 2 && h.version != 3:
		return problemf("GGUF version %d; versions 2 and 3 are known", h.version)
	}
	tensors, err := s.uint64()
	if err != nil {
		return err
	}
	keys, err := s.uint64()
	if err != nil {
		return err
	}
	// The least that a tensor (name length, one byte, dimensions, type, offset)
	// and a key (length, one byte, kind, one byte) take.
	if tensors > maxTensors || tensors > s.left()/25 {
		return problemf("it says it has %d tensors, more than fit", tensors)
	}
	if keys > maxKeys || keys > s.left()/14 {
		return problemf("it says it has %d keys, more than fit", keys)
	}
	for range keys {
		if err := h.scanKey(s); err != nil {
			return err
		}
	}
	if err := h.checkValues(); err != nil {
		return err
	}
	return h.scanTensors(s, tensors)
}

func (h *header) scanKey(s *scanner) error {
	key, err := s.text(maxKeyLength, "a key")
	if err != nil {
		return err
	}
	if key == "" {
		return problemf("a key is empty")
	}
	if !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return problemf("key %.40q is not text", key)
	}
	if _, repeated := h.values[key]; repeated {
		return problemf("key %.80q appears twice", key)
	}
	kind, err := s.uint32()
	if err != nil {
		return err
	}
	h.values[key], err = h.scanValue(s, kind, key)
	return err
}

func (h *header) scanValue(s *scanner, kind uint32, key string) (any, error) {
	switch kind {
	case kindString:
		return s.text(maxString, fmt.Sprintf("the value of %.80q", key))
	case kindArray:
		return h.scanArray(s, key)
	}
	n := kindSize(kind)
	if n == 0 {
		return nil, problemf("key %.80q has a value of unknown kind %d", key, kind)
	}
	if err := s.read(s.buf[:n]); err != nil {
		return nil, err
	}
	for i := n; i < 8; i++ {
		s.buf[i] = 0
	}
	u := binary.LittleEndian.Uint64(s.buf[:])
	switch kind {
	case kindInt8:
		return int64(int8(u)), nil
	case kindInt16:
		return int64(int16(u)), nil
	case kindInt32:
		return int64(int32(u)), nil
	case kindInt64:
		return int64(u), nil
	case kindFloat32:
		return float64(math.Float32frombits(uint32(u))), nil
	case kindFloat64:
		return math.Float64frombits(u), nil
	case kindBool:
		return u != 0, nil
	}
	return u, nil
}

func (h *header) scanArray(s *scanner, key string) (any, error) {
	kind, err := s.uint32()
	if err != nil {
		return nil, err
	}
	n, err := s.uint64()
	if err != nil {
		return nil, err
	}
	a := array{kind: kind, length: n}
	switch size := kindSize(kind); {
	case size > 0:
		if n > s.left()/size {
			return nil, errPastEnd
		}
		return a, s.skip(n * size)
	case kind == kindString:
		if n > s.left()/8 {
			return nil, errPastEnd
		}
		for range n {
			if h.keep && strings.HasPrefix(key, "demur.") {
				text, err := s.text(maxNameLength, fmt.Sprintf("a text of %.80q", key))
				if err != nil {
					return nil, err
				}
				h.texts[key] = append(h.texts[key], text)
				continue
			}
			length, err := s.uint64()
			if err != nil {
				return nil, err
			}
			if err := s.skip(length); err != nil {
				return nil, err
			}
		}
		return a, nil
	case kind == kindArray:
		return nil, problemf("key %.80q holds arrays of arrays", key)
	}
	return nil, problemf("key %.80q holds an array of unknown kind %d", key, kind)
}

// checkValues looks at the keys that the loader computes with.
func (h *header) checkValues() error {
	if v, ok := h.values["general.alignment"]; ok {
		a, ok := v.(uint64)
		if !ok || a == 0 || bits.OnesCount64(a) != 1 || a > maxAlignment {
			return problemf("general.alignment is %v, which is no power of two", v)
		}
	}
	architecture, ok := h.values["general.architecture"].(string)
	if !ok || architecture == "" {
		if part, _ := h.integer("split.no"); part > 0 {
			return nil // gguf-split writes the metadata into the first part only
		}
		return problemf("general.architecture is missing")
	}
	if v, ok := h.values[architecture+".block_count"]; ok {
		if n, ok := v.(uint64); !ok || n == 0 || n > maxBlocks {
			return problemf("the number of blocks (block_count) is %v; 1 to %d can be", v, maxBlocks)
		}
	}
	return nil
}

func (h *header) scanTensors(s *scanner, tensors uint64) error {
	align := uint64(defaultAlign)
	if a, ok := h.values["general.alignment"].(uint64); ok {
		align = a
	}
	names := make(map[string]struct{})
	// The end of each tensor relative to the tensor data; where the data starts
	// is known only after the last tensor is read.
	var end uint64
	var endName string
	for range tensors {
		t, bytes, err := h.scanTensor(s)
		if err != nil {
			return err
		}
		name, offset := t.name, t.offset
		if h.keep {
			h.index = append(h.index, t)
		}
		if _, repeated := names[name]; repeated {
			return problemf("tensor %q appears twice", name)
		}
		names[name] = struct{}{}
		if offset%align != 0 {
			return problemf("tensor %q starts at %d, which is not a multiple of %d", name, offset, align)
		}
		if offset > s.size || bytes > s.size-offset {
			return outside(name)
		}
		if offset+bytes > end {
			end, endName = offset+bytes, name
		}
	}
	h.tensors = int(tensors)
	start := (s.at + align - 1) / align * align
	h.start = start
	if end > 0 && (start > s.size || end > s.size-start) {
		return outside(endName)
	}
	return nil
}

func outside(tensor string) error {
	return &Error{Kind: ErrDamaged, Problem: fmt.Sprintf("the file ends before tensor %q does: it is cut short or damaged", tensor), Hint: "fetch the model again"}
}

// scanTensor reads one entry of the list of tensors.
func (h *header) scanTensor(s *scanner) (t placed, bytes uint64, err error) {
	if t.name, err = s.text(maxNameLength, "the name of a tensor"); err != nil {
		return placed{}, 0, err
	}
	if t.name == "" || !utf8.ValidString(t.name) {
		return placed{}, 0, problemf("the name of a tensor is %q", t.name)
	}
	dims, err := s.uint32()
	if err != nil {
		return placed{}, 0, err
	}
	if dims < 1 || dims > maxDims {
		return placed{}, 0, problemf("tensor %q has %d dimensions", t.name, dims)
	}
	t.count = 1
	for i := range dims {
		n, err := s.uint64()
		if err != nil {
			return placed{}, 0, err
		}
		hi, lo := bits.Mul64(t.count, n)
		if hi != 0 || lo > math.MaxInt64 || n == 0 {
			return placed{}, 0, problemf("tensor %q has an impossible shape", t.name)
		}
		t.count = lo
		if i == 0 {
			t.row = n
		}
	}
	if t.kind, err = s.uint32(); err != nil {
		return placed{}, 0, err
	}
	trait, known := gguf.GGMLType(t.kind).Trait()
	if !known || trait.BlockSize == 0 {
		return placed{}, 0, problemf("tensor %q is of unknown type %d", t.name, t.kind)
	}
	if t.row%trait.BlockSize != 0 {
		return placed{}, 0, problemf("tensor %q has rows of %d, no multiple of its block size %d", t.name, t.row, trait.BlockSize)
	}
	hi, lo := bits.Mul64(t.count/trait.BlockSize, trait.TypeSize)
	if hi != 0 {
		return placed{}, 0, problemf("tensor %q has an impossible shape", t.name)
	}
	if t.offset, err = s.uint64(); err != nil {
		return placed{}, 0, err
	}
	if h.parameters > math.MaxInt64-t.count {
		return placed{}, 0, problemf("tensor %q has an impossible shape", t.name)
	}
	h.parameters += t.count
	return t, lo, nil
}

// text, integer and list return a value of the metadata, and whether it is
// there and of that kind.
func (h *header) text(key string) string {
	s, _ := h.values[key].(string)
	return s
}

func (h *header) integer(key string) (int, bool) {
	switch v := h.values[key].(type) {
	case uint64:
		if v <= math.MaxInt32 {
			return int(v), true
		}
	case int64:
		if v >= 0 && v <= math.MaxInt32 {
			return int(v), true
		}
	}
	return 0, false
}

func (h *header) list(key string) (array, bool) {
	a, ok := h.values[key].(array)
	return a, ok
}
