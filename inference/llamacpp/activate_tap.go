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
)

// A tap looks at the tensors of one llama.cpp context while they are computed,
// and copies rows of those that hold the residual stream.
//
// llama.cpp calls it twice for a node of the graph: first asking whether it is
// wanted, then, where it is, when it has been computed. Only in the second call
// does the node's memory hold what its name says, so that rows are copied there
// and then (ggml/src/ggml-backend.cpp of v0.5.0,
// ggml_backend_sched_compute_splits).
type tap struct {
	lib    *taps
	width  int
	blocks int
	source string // name of the tensor that the first block reads

	on bool // off: no tensor is wanted
	// What the decode in flight has, and what is wanted of it.
	layers  []bool // by block + 1, the embedding first
	tokens  int    // of the batch
	flagged int    // of them with an output
	all     []span // of a tensor that has a row for each token
	outputs []span // of one that has a row for each output
	out     [][]float32
	seen    []bool
	err     error

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

	getName, bytes, rows, elements, elementSize, contiguous, get uintptr

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

// add makes a tap; id is the user data of its callback.
func (s *taps) add(t *tap) (id uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.lib = s
	s.last++
	s.open[s.last] = t
	return s.last
}

func (s *taps) remove(id uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// call is llama.cpp's callback. A panic in it would end the process, for it
// cannot cross C frames.
//
// The answer to the second call is always yes: no would skip the rest of a part
// of the graph without any sign that it did.
func (s *taps) call(tensor, ask, id uintptr) (answer uintptr) {
	asked := ask&0xff != 0 // a C bool fills one byte of its register
	s.mu.Lock()
	t := s.open[id]
	s.mu.Unlock()
	if t == nil || tensor == 0 || !t.on {
		if asked {
			return 0
		}
		return 1
	}
	defer func() {
		if r := recover(); r != nil {
			t.fail(fmt.Errorf("reading a tensor: %v", r))
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
	return ok && t.err == nil && t.layers[layer+1]
}

// take copies the wanted rows of a tensor that has been computed.
func (t *tap) take(tensor uintptr) {
	s := t.lib
	layer, ok := t.layerOf(t.name(tensor))
	if !ok || t.err != nil {
		return
	}
	name := string(t.name(tensor))
	elements, _, _ := purego.SyscallN(s.elements, tensor)
	rows, _, _ := purego.SyscallN(s.rows, tensor)
	size, _, _ := purego.SyscallN(s.elementSize, tensor)
	long, _, _ := purego.SyscallN(s.bytes, tensor)
	whole, _, _ := purego.SyscallN(s.contiguous, tensor)
	var spans []span
	switch {
	case elements > 0 && (size != 4 || long != 4*elements || whole&0xff == 0):
		t.fail(fmt.Errorf("%s has %d numbers in %d bytes, not 32-bit ones side by side", name, elements, long))
		return
	case elements != rows*uintptr(t.width):
		t.fail(fmt.Errorf("%s has %d rows of %d numbers together, not of %d each", name, rows, elements, t.width))
		return
	case int(rows) == t.tokens:
		spans = t.all
	case int(rows) == t.flagged:
		spans = t.outputs
	default:
		t.fail(fmt.Errorf("%s has %d rows for %d tokens of which %d have outputs, so that it is not known which row is which token", name, rows, t.tokens, t.flagged))
		return
	}
	t.seen[layer+1] = true
	out := t.out[layer+1]
	for _, x := range spans {
		if x.count == 0 {
			continue
		}
		dst := out[x.slot*t.width : (x.slot+x.count)*t.width]
		purego.SyscallN(s.get, tensor, uintptr(unsafe.Pointer(&dst[0])), uintptr(4*x.row*t.width), uintptr(4*len(dst)))
	}
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
