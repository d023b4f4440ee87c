package llamacpp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"

	"demur/inference"
	_ "demur/inference/llamacpp/internal/libffi"
)

// LibraryVersion is the version of llama.cpp that this package is made for. The
// binding passes structs by value, so a library of another version would corrupt
// memory instead of failing.
const LibraryVersion = "v0.5.0"

// LibraryEnv names the environment variable with the folder of the libraries.
const LibraryEnv = "DEMUR_LIB"

// knownLibraries are the SHA-256 digests of the libraries of llama.cpp v0.5.0
// that make setup fetches: npm package @node-llama-cpp/linux-x64 3.22.1.
var knownLibraries = map[string]string{
	"libllama":     "2ecd1d85f68456573a664106a9039366b88231579fd65d9669c9a6ab41374fd4",
	"libggml":      "41cd5e6ad78b9f0af31a6f80d637d3168e75ff84db14c495de4d3d9c95607444",
	"libggml-base": "6c342c8aeb20cb31a18099d6f79de4de6703814d1cfd5c4d754a8643087e486e",
}

// FindLibrary returns the folder that holds the llama.cpp libraries: the one
// given, else that of the environment variable DEMUR_LIB, else the one that make
// setup fills in the user's cache folder. The error is an
// inference.ErrUnavailable and says which files were looked for where.
func FindLibrary(dir string) (string, error) {
	source := "the folder given with --lib"
	if dir == "" {
		dir, source = os.Getenv(LibraryEnv), "the folder that "+LibraryEnv+" names"
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", unavailable("find the llama.cpp libraries: %w; give their folder with --lib or "+LibraryEnv, err)
		}
		dir, source = filepath.Join(cache, "demur", "llama.cpp-"+LibraryVersion+"-"+platform()), "the cache folder"
	}
	for _, name := range slices.Sorted(maps.Keys(knownLibraries)) {
		path := libraryFile(dir, name)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", unavailable("the llama.cpp library %s is missing from %s, %s; run make setup, or give a folder with llama.cpp %s by --lib or %s", filepath.Base(path), source, dir, LibraryVersion, LibraryEnv)
		case err != nil:
			return "", unavailable("look for the llama.cpp libraries: %w", err)
		case info.IsDir():
			return "", unavailable("%s is a folder, not a library; run make setup", path)
		}
	}
	return dir, nil
}

func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	system := runtime.GOOS
	switch system {
	case "darwin":
		system = "mac"
	case "windows":
		system = "win"
	}
	return system + "-" + arch
}

func libraryFile(dir, name string) string {
	return loader.GetLibraryFilename(dir, strings.TrimPrefix(name, "lib"))
}

// A library is llama.cpp as it was loaded into this process, once for all
// engines: it cannot be unloaded.
type library struct {
	dir     string
	version string
	digests map[string]string // file name without folder and suffix → SHA-256
	variant string            // of the CPU kernels, such as zen4
	log     *ring

	tapOnce sync.Once // taps are made when first needed
	taps    *taps
	tapErr  error
}

// tapping returns what reads tensors while they are computed.
func (l *library) tapping() (*taps, error) {
	l.tapOnce.Do(func() { l.taps, l.tapErr = newTaps(l.dir) })
	return l.taps, l.tapErr
}

var process struct {
	sync.Mutex
	lib *library
}

// load brings the library of a folder into the process.
func load(flag string) (*library, error) {
	dir, err := FindLibrary(flag)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, unavailable("find the llama.cpp libraries: %w", err)
	}
	process.Lock()
	defer process.Unlock()
	if l := process.lib; l != nil {
		if l.dir != dir {
			return nil, unavailable("llama.cpp is loaded from %s already, and a process can hold one only; start another for %s", l.dir, dir)
		}
		return l, nil
	}
	l := &library{dir: dir, version: "llama.cpp " + LibraryVersion, digests: make(map[string]string), log: new(ring)}
	known := true
	for _, name := range slices.Sorted(maps.Keys(knownLibraries)) {
		sum, err := fileDigest(libraryFile(dir, name))
		if err != nil {
			return nil, unavailable("read the llama.cpp libraries: %w", err)
		}
		l.digests[name] = sum
		known = known && sum == knownLibraries[name]
	}
	if !known {
		if err := probe(dir); err != nil {
			return nil, err
		}
		l.version = "llama.cpp, a build of one's own that matches " + LibraryVersion
	}
	// Without this an abort starts a debugger on the process.
	if err := os.Setenv("GGML_NO_BACKTRACE", "1"); err != nil {
		return nil, unavailable("set GGML_NO_BACKTRACE: %w", err)
	}
	if err := llama.Load(dir); err != nil {
		return nil, unavailable("load llama.cpp from %s: %w", dir, err)
	}
	llama.LogSet(l.log.callback())
	llama.Init()
	for _, line := range l.log.lines() {
		if _, path, ok := strings.Cut(line, "loaded CPU backend from "); ok {
			path = strings.TrimSpace(path)
			name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			sum, err := fileDigest(path)
			if err != nil {
				return nil, unavailable("read the llama.cpp libraries: %w", err)
			}
			l.digests[name] = sum
			l.variant = strings.TrimPrefix(name, "libggml-cpu-")
		}
	}
	if llama.GGMLBackendDeviceCount() == 0 {
		return nil, unavailable("llama.cpp found no device in %s: the libraries for this processor are missing; run make setup%s", dir, l.log.said())
	}
	process.lib = l
	return l, nil
}

// probe refuses a library whose parameter structs are not those of the binding.
// The structs are returned through memory that is larger than any version's and
// filled with a pattern, so that a library with larger ones does no harm.
func probe(dir string) error {
	const size, pattern = 1024, 0xa5
	lib, err := loader.LoadLibrary(dir, "llama")
	if err != nil {
		return unavailable("load llama.cpp from %s: %w", dir, err)
	}
	elements := make([]*ffi.Type, size/8)
	for i := range elements {
		elements[i] = &ffi.TypeUint64
	}
	large := ffi.NewType(elements...)
	ask := func(name string) ([]byte, error) {
		f, err := lib.Prep(name, &large)
		if err != nil {
			return nil, unavailable("the llama.cpp library in %s lacks %s: it is not version %s; run make setup", dir, name, LibraryVersion)
		}
		words := make([]uint64, size/8)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
		for i := range b {
			b[i] = pattern
		}
		f.Call(unsafe.Pointer(&words[0]))
		return b, nil
	}
	wrong := unavailable("the llama.cpp library in %s is not version %s, whose parameters it does not share; run make setup, or give a folder with that version by --lib", dir, LibraryVersion)
	written := func(b []byte) int {
		n := len(b)
		for n > 0 && b[n-1] == pattern {
			n--
		}
		return n
	}

	b, err := ask("llama_context_default_params")
	if err != nil {
		return err
	}
	c := *(*llama.ContextParams)(unsafe.Pointer(&b[0]))
	// llama_context_default_params of version 0.5.0, src/llama-context.cpp.
	want := llama.ContextParams{
		NCtx: 512, NBatch: 2048, NUbatch: 512, NSeqMax: 1, NOutputsMaxPerSeq: 1, NThreads: 4, NThreadsBatch: 4,
		RopeScalingType: llama.RopeScalingTypeUnspecified, PoolingType: llama.PoolingTypeUnspecified,
		AttentionType: llama.AttentionTypeUnspecified, FlashAttentionType: llama.FlashAttentionTypeAuto,
		YarnExtFactor: -1, YarnAttnFactor: -1, YarnBetaFast: -1, YarnBetaSlow: -1, DefragThold: -1,
		TypeK: llama.GGMLTypeF16, TypeV: llama.GGMLTypeF16, Offload_kqv: 1, NoPerf: 1, OpOffload: 1, SwaFull: 1,
	}
	if c != want || written(b) > int(unsafe.Sizeof(c)) {
		return wrong
	}

	if b, err = ask("llama_model_default_params"); err != nil {
		return err
	}
	m := *(*llama.ModelParams)(unsafe.Pointer(&b[0]))
	// llama_model_default_params of version 0.5.0, src/llama-model.cpp. The
	// tensor split may be any pointer.
	m.TensorSplit = nil
	wantModel := llama.ModelParams{
		NGpuLayers: -1, SplitMode: llama.SplitModeLayer, LoadMode: llama.LoadModeAuto,
		LazyMode: llama.LazyModeAuto, UseExtraBufts: 1,
	}
	if m != wantModel || written(b) > int(unsafe.Sizeof(m)) {
		return wrong
	}
	return nil
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// unavailable returns an error that is inference.ErrUnavailable and reads as the
// message alone.
func unavailable(format string, args ...any) error {
	return &unavailableError{fmt.Errorf(format, args...)}
}

type unavailableError struct{ err error }

func (e *unavailableError) Error() string   { return e.err.Error() }
func (e *unavailableError) Unwrap() []error { return []error{inference.ErrUnavailable, e.err} }
