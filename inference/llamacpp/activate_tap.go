package llamacpp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"

	"demur/inference"
)

// A tap looks at the tensors of one llama.cpp context while they are computed. It
// copies rows of those that hold the residual stream, and changes them where the
// context is steered.
//
// llama.cpp calls it twice for a node of the graph: first asking whether it is
// wanted, then, where it is, when it has been computed. Only in the second call
// does the node's memory hold what its name says, so that rows are copied there
// and then (ggml/src/ggml-backend.cpp of v0.5.0,
// ggml_backend_sched_compute_splits).
type tap struct {
	lib    *taps
	id     uintptr // the user data of its callback
	width  int
	blocks int
	source string // name of the tensor that the first block reads

	// What is written, whether on or not.
	steering *steering
	written  []bool // blocks, in the decode in flight
	wrong    error  // that came in the way
	row      []float32

	on bool // off: no tensor is copied
	// What the decode in flight has, and what is wanted of it.
	layers  []bool // by block + 1, the embedding first
	tokens  int    // of the batch
	flagged int    // of them with an output
	all     []span // of a tensor that has a row for each token
	outputs []span // of one that has a row for each output
	out     [][]float32
	seen    []bool
	err     error

	// every, if not nil, is called for every tensor when it has been computed; false
	// ends the computation of the graph's part, without a sign.
	every func(tensor uintptr) bool

	names  map[string]bool // of all nodes, while it is found out what there is
	before []string        // names in the order in which they came, up to l_out-0

	nameAt uintptr // where in a tensor its name is; 0 before it is known
}

// A span is some rows of a tensor that are wanted, and the row of out where they
// go.
type span struct{ row, count, slot int }

// embeddingNames are the names of the tensor that the first block reads, by
// architecture; the last of them that comes is it.
var embeddingNames = []string{"embd", "inp_embd", "inp_scaled", "inp_embd_scaled", "model.input_embed", "model.embed_tokens"}

// taps are those of a process. C can call one Go function only that is made
// once, so the taps are told apart by a number.
type taps struct {
	callback uintptr

	getName, bytes, rows, elements, elementSize, contiguous, get, set uintptr

	mu   sync.Mutex
	last uintptr
	open map[uintptr]*tap
}

// newTaps finds what is needed of the library of tensors.
func newTaps(dir string) (*taps, error) {
	lib, err := loader.LoadLibrary(dir, "ggml-base")
	if err != nil {
		return nil, unavailable("load ggml from %s: %w", dir, err)
	}
	s := &taps{open: make(map[uintptr]*tap)}
	for _, f := range []struct {
		name string
		at   *uintptr
	}{
		{"ggml_get_name", &s.getName},
		{"ggml_nbytes", &s.bytes},
		{"ggml_nrows", &s.rows},
		{"ggml_nelements", &s.elements},
		{"ggml_element_size", &s.elementSize},
		{"ggml_is_contiguous", &s.contiguous},
		{"ggml_backend_tensor_get", &s.get},
		{"ggml_backend_tensor_set", &s.set},
	} {
		p, err := lib.Prep(f.name, &ffi.TypePointer, &ffi.TypePointer)
		if err != nil {
			return nil, unavailable("the llama.cpp library in %s lacks %s: it is not version %s; run make setup", dir, f.name, LibraryVersion)
		}
		*f.at = p.Addr
	}
	s.callback = purego.NewCallback(s.call)
	return s, nil
}

func newTap(i inference.Info) *tap {
	return &tap{width: i.Width, blocks: i.Blocks, layers: make([]bool, i.Blocks+1), written: make([]bool, i.Blocks)}
}

// add makes a tap known to the callback.
func (s *taps) add(t *tap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	t.lib, t.id = s, s.last
	s.open[t.id] = t
}

func (s *taps) remove(t *tap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t.id)
}

// call is llama.cpp's callback. A panic in it would end the process, for it
// cannot cross C frames.
//
// The answer to the second call is yes but where the conformance suite tries it: no
// would skip the rest of a part of the graph without any sign that it did.
func (s *taps) call(tensor, ask, id uintptr) (answer uintptr) {
	asked := ask&0xff != 0 // a C bool fills one byte of its register
	s.mu.Lock()
	t := s.open[id]
	s.mu.Unlock()
	if t == nil || tensor == 0 || !t.on && t.steering == nil && t.every == nil {
		if asked {
			return 0
		}
		return 1
	}
	defer func() {
		if r := recover(); r != nil {
			t.fail(fmt.Errorf("reading a tensor: %v", r))
			t.spoil(fmt.Errorf("a tensor could not be written: %v", r))
			answer = 1
			if asked {
				answer = 0
			}
		}
	}()
	if asked {
		if t.wants(tensor) {
			return 1
		}
		return 0
	}
	t.take(tensor)
	if t.every != nil && !t.every(tensor) {
		return 0
	}
	return 1
}

func (t *tap) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// name returns a tensor's name, in C memory.
func (t *tap) name(tensor uintptr) []byte {
	if t.nameAt == 0 {
		at, _, _ := purego.SyscallN(t.lib.getName, tensor)
		t.nameAt = at - tensor
	}
	const most = 64 // GGML_MAX_NAME
	p := tensor + t.nameAt
	b := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), most)
	if n := bytes.IndexByte(b, 0); n >= 0 {
		return b[:n]
	}
	return b
}

// blockOf returns the block of a tensor whose name is that of a block's output.
// Views and copies of it have its name and more.
func blockOf(name []byte) (int, bool) {
	digits, ok := bytes.CutPrefix(name, []byte("l_out-"))
	if !ok || len(digits) == 0 || len(digits) > 6 {
		return 0, false
	}
	n := 0
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int(d-'0')
	}
	return n, true
}

// layerOf returns the layer of a tensor's name: a block, or −1.
func (t *tap) layerOf(name []byte) (int, bool) {
	if b, ok := blockOf(name); ok {
		return b, b < t.blocks
	}
	return -1, t.source != "" && string(name) == t.source
}

func (t *tap) wants(tensor uintptr) bool {
	name := t.name(tensor)
	layer, ok := t.layerOf(name)
	if t.names != nil {
		if !t.names["l_out-0"] && slices.Contains(embeddingNames, string(name)) {
			t.before = append(t.before, string(name))
		}
		t.names[string(name)] = true
	}
	return t.every != nil || ok && (t.steering.at(layer) != nil || t.copies(layer))
}

// copies says whether rows of a layer are to be copied.
func (t *tap) copies(layer int) bool { return t.on && t.err == nil && t.layers[layer+1] }

// take changes and copies the wanted rows of a tensor that has been computed.
func (t *tap) take(tensor uintptr) {
	layer, ok := t.layerOf(t.name(tensor))
	if !ok {
		return
	}
	rows, err := t.shape(tensor)
	if x := t.steering.at(layer); x != nil {
		if err != nil {
			t.spoil(err)
		} else {
			t.write(tensor, rows, x)
			t.written[layer] = true
		}
	}
	if !t.copies(layer) {
		return
	}
	var spans []span
	switch {
	case err != nil:
		t.fail(err)
		return
	case rows == t.tokens:
		spans = t.all
	case rows == t.flagged:
		spans = t.outputs
	default:
		t.fail(fmt.Errorf("%s has %d rows for %d tokens of which %d have outputs, so that it is not known which row is which token", t.name(tensor), rows, t.tokens, t.flagged))
		return
	}
	t.seen[layer+1] = true
	out := t.out[layer+1]
	for _, x := range spans {
		if x.count > 0 {
			t.move(t.lib.get, tensor, x.row, out[x.slot*t.width:(x.slot+x.count)*t.width])
		}
	}
}

// shape returns the number of rows of a tensor, which must be of 32-bit numbers
// side by side and as wide as the stream.
func (t *tap) shape(tensor uintptr) (int, error) {
	s := t.lib
	elements, _, _ := purego.SyscallN(s.elements, tensor)
	rows, _, _ := purego.SyscallN(s.rows, tensor)
	size, _, _ := purego.SyscallN(s.elementSize, tensor)
	long, _, _ := purego.SyscallN(s.bytes, tensor)
	whole, _, _ := purego.SyscallN(s.contiguous, tensor)
	switch {
	case elements > 0 && (size != 4 || long != 4*elements || whole&0xff == 0):
		return 0, fmt.Errorf("%s has %d numbers in %d bytes, not 32-bit ones side by side", t.name(tensor), elements, long)
	case elements != rows*uintptr(t.width):
		return 0, fmt.Errorf("%s has %d rows of %d numbers together, not of %d each", t.name(tensor), rows, elements, t.width)
	}
	return int(rows), nil
}

// move copies rows of a tensor, from the given one on, by ggml_backend_tensor_get
// into data or by ggml_backend_tensor_set out of it.
func (t *tap) move(by, tensor uintptr, row int, data []float32) {
	purego.SyscallN(by, tensor, uintptr(unsafe.Pointer(&data[0])), uintptr(4*row*t.width), uintptr(4*len(data)))
}

// read returns all numbers of a tensor as wide as the stream; false for others.
func (t *tap) read(tensor uintptr) ([]float32, bool) {
	rows, err := t.shape(tensor)
	if err != nil || rows == 0 {
		return nil, err == nil
	}
	values := make([]float32, rows*t.width)
	t.move(t.lib.get, tensor, 0, values)
	return values, true
}

// write changes every row of a tensor.
func (t *tap) write(tensor uintptr, rows int, x *edit) {
	if rows == 0 {
		return
	}
	t.row = slices.Grow(t.row[:0], rows*t.width)[:rows*t.width]
	t.move(t.lib.get, tensor, 0, t.row)
	for r := range slices.Chunk(t.row, t.width) {
		x.apply(r)
	}
	t.move(t.lib.set, tensor, 0, t.row)
}

// spoil keeps what came in the way of a change of the stream.
func (t *tap) spoil(err error) {
	if t.wrong == nil {
		t.wrong = err
	}
}

// begin is called before a decode, steered after it: it returns an error unless
// all was written that was to be.
func (t *tap) begin() {
	t.wrong = nil
	clear(t.written)
}

func (t *tap) steered() error {
	if t.wrong != nil {
		return fmt.Errorf("change the residual stream: %w", t.wrong)
	}
	for l, written := range t.written {
		if t.steering.at(l) != nil && !written {
			return fmt.Errorf("change the residual stream: the tensor of block %d did not come", l)
		}
	}
	return nil
}

// seenNames returns the names that came, without block numbers.
func (t *tap) seenNames() string {
	kinds := make(map[string]bool)
	for name := range t.names {
		kinds[strings.TrimRight(name, "0123456789")] = true
	}
	var all []string
	for k := range kinds {
		if k != "" && !strings.ContainsAny(k, "( ") && !strings.HasPrefix(k, "node_") {
			all = append(all, strings.TrimSuffix(k, "-"))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	const most = 60
	if len(all) > most {
		all = append(all[:most], "…")
	}
	return strings.Join(all, ", ")
}
