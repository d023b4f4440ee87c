package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Stored is what an Ollama store says about a model beside its weights. The
// Ollama server applies template, system message and parameters where it
// renders prompts itself.
type Stored struct {
	Name           string `json:"name"`            // in full, with its tag
	ManifestDigest string `json:"manifest_digest"` // "sha256:" and 64 hex digits; what the server's list of models shows
	ModelDigest    string `json:"model_digest"`    // of the weights
	Template       string `json:"template,omitempty"`
	System         string `json:"system,omitempty"`
	Parameters     string `json:"parameters,omitempty"` // JSON
	// Adapters are the files of LoRA adapters that the server puts over the
	// weights, Projector is true where the model also reads images.
	Adapters  []string `json:"adapters,omitempty"`
	Projector bool     `json:"projector,omitempty"`
}

// Bounds on what is read from a store.
const (
	maxManifest = 1 << 20
	maxLayers   = 64
	maxLayer    = 1 << 20 // of a template, system message or parameters
)

var (
	digestPattern = regexp.MustCompile(`^sha256[:-][0-9a-f]{64}$`)
	// namePart is a part of a model name. It cannot begin with a dot, so no name
	// leads out of the store.
	namePart = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	hostPart = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,253}(:[0-9]{1,5})?$`)
)

const (
	layerModel     = "application/vnd.ollama.image.model"
	layerAdapter   = "application/vnd.ollama.image.adapter"
	layerProjector = "application/vnd.ollama.image.projector"
	layerTemplate  = "application/vnd.ollama.image.template"
	layerSystem    = "application/vnd.ollama.image.system"
	layerParams    = "application/vnd.ollama.image.params"
)

// manifest is the part of a store's manifest that is used.
type manifest struct {
	SchemaVersion int     `json:"schemaVersion"`
	Layers        []layer `json:"layers"`
}

type layer struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// parseManifest reads a manifest, which may be torn: the server writes it in
// place. It holds exactly one model layer, and every digest has the form of one.
func parseManifest(b []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("its manifest is not JSON (torn by a crash?)")
	}
	if m.SchemaVersion != 2 {
		return m, fmt.Errorf("its manifest has version %d; version 2 is known", m.SchemaVersion)
	}
	if len(m.Layers) > maxLayers {
		return m, fmt.Errorf("its manifest has %d layers", len(m.Layers))
	}
	weights := 0
	for _, l := range m.Layers {
		if !digestPattern.MatchString(l.Digest) {
			return m, fmt.Errorf("its manifest has a malformed digest, %.80q", l.Digest)
		}
		if l.Size < 0 {
			return m, fmt.Errorf("its manifest has a layer of %d bytes", l.Size)
		}
		if l.MediaType == layerModel {
			weights++
		}
	}
	if weights != 1 {
		return m, fmt.Errorf("its manifest has %d model layers; demur reads models of exactly one", weights)
	}
	return m, nil
}

// modelName is a name of Ollama in full: host/namespace/model:tag.
type modelName struct{ host, namespace, model, tag string }

func parseName(s string) (modelName, bool) {
	n := modelName{host: "registry.ollama.ai", namespace: "library", tag: "latest"}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.Contains(s[i:], "/") {
		s, n.tag = s[:i], s[i+1:]
	}
	parts := strings.Split(s, "/")
	switch len(parts) {
	case 3:
		n.host, n.namespace, n.model = parts[0], parts[1], parts[2]
	case 2:
		n.namespace, n.model = parts[0], parts[1]
	case 1:
		n.model = parts[0]
	default:
		return n, false
	}
	return n, hostPart.MatchString(n.host) && namePart.MatchString(n.namespace) && namePart.MatchString(n.model) && namePart.MatchString(n.tag)
}

// String returns the name as the server's list shows it.
func (n modelName) String() string {
	s := n.model + ":" + n.tag
	if n.host != "registry.ollama.ai" {
		return n.host + "/" + n.namespace + "/" + s
	}
	if n.namespace != "library" {
		return n.namespace + "/" + s
	}
	return s
}

func (n modelName) path() string {
	return filepath.Join("manifests", n.host, n.namespace, n.model, n.tag)
}

// stores returns the folders where an Ollama store may be, the likeliest first.
func (o Options) stores() []string {
	if o.Ollama != "" {
		return []string{o.Ollama}
	}
	if dir := os.Getenv("OLLAMA_MODELS"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".ollama", "models"))
	}
	if runtime.GOOS == "linux" {
		// The service runs as a user of its own.
		dirs = append(dirs, "/usr/share/ollama/.ollama/models", "/var/lib/ollama/models")
	}
	return dirs
}

// resolveOllama finds the weights of a model in a store and checks that they
// are what their name says.
func resolveOllama(ctx context.Context, name string, o Options) (File, error) {
	full, ok := parseName(name)
	if !ok {
		return File{}, &Error{Kind: ErrMissing, Name: OllamaPrefix + name, Problem: "this is no name of an Ollama model", Hint: "names look like smollm2, smollm2:135m or user/model:tag"}
	}
	var last error
	for _, store := range o.stores() {
		path, err := findManifest(store, full)
		if err == nil {
			return openStored(ctx, store, path, full, o)
		}
		if last == nil || !errors.Is(err, fs.ErrNotExist) {
			last = err
		}
	}
	if errors.Is(last, fs.ErrPermission) {
		return File{}, &Error{
			Kind: ErrUnreadable, Name: OllamaPrefix + name, Err: last, Problem: "no permission to read Ollama's model store (its service runs as a user of its own)",
			Hint: "run it through the server, --engine ollama, or give OLLAMA_MODELS a store that you can read",
		}
	}
	return File{}, &Error{
		Kind: ErrMissing, Name: OllamaPrefix + name, Err: last, Problem: "Ollama's model store has no such model",
		Hint: "ollama pull " + full.String() + "; if it is pulled, set OLLAMA_MODELS to the folder of the server's models",
	}
}

// findManifest returns the manifest's path. Like the server it takes a name in
// other case where the exact one is absent.
func findManifest(store string, name modelName) (string, error) {
	path := filepath.Join(store, name.path())
	_, err := os.Stat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	for _, m := range manifests(store) {
		if rel, err2 := filepath.Rel(store, m); err2 == nil && strings.EqualFold(rel, name.path()) {
			return m, nil
		}
	}
	return "", err
}

// manifests returns the paths of all manifests of a store.
func manifests(store string) []string {
	// Its only error is a malformed pattern.
	found, _ := fs.Glob(os.DirFS(store), "manifests/*/*/*/*")
	for i, f := range found {
		found[i] = filepath.Join(store, filepath.FromSlash(f))
	}
	return found
}

func openStored(ctx context.Context, store, path string, name modelName, o Options) (File, error) {
	broken := func(problem string, err error) (File, error) {
		return File{}, &Error{Kind: ErrDamaged, Name: OllamaPrefix + name.String(), Problem: problem, Hint: "ollama pull " + name.String(), Err: err}
	}
	b, err := readBounded(path, maxManifest)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return File{}, unreadable(path, err)
		}
		return broken("its manifest cannot be read: "+reason(err), err)
	}
	m, err := parseManifest(b)
	if err != nil {
		return broken(err.Error(), nil)
	}
	sum := sha256.Sum256(b)
	f := File{Name: name.String(), Kind: KindOllama, Ollama: &Stored{Name: name.String(), ManifestDigest: "sha256:" + hex.EncodeToString(sum[:])}}
	for _, l := range m.Layers {
		digest := strings.Replace(l.Digest, "-", ":", 1)
		blob := filepath.Join(store, "blobs", strings.Replace(digest, ":", "-", 1))
		switch l.MediaType {
		case layerModel:
			info, err := os.Stat(blob)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return broken("its weights are not in the store", nil)
			case err != nil:
				return File{}, unreadable(blob, err)
			case info.Size() != l.Size:
				return broken(fmt.Sprintf("its weights have %d bytes, its manifest says %d", info.Size(), l.Size), nil)
			}
			f.Path, f.Parts, f.Size = blob, []string{blob}, l.Size
			f.Ollama.ModelDigest = digest
		case layerAdapter:
			f.Ollama.Adapters = append(f.Ollama.Adapters, blob)
		case layerProjector:
			f.Ollama.Projector = true
		case layerTemplate, layerSystem, layerParams:
			text, err := readLayer(blob, digest)
			if err != nil {
				return broken(err.Error(), err)
			}
			switch l.MediaType {
			case layerTemplate:
				f.Ollama.Template = text
			case layerSystem:
				f.Ollama.System = text
			case layerParams:
				f.Ollama.Parameters = text
			}
		}
	}
	got, err := Digest(ctx, f, o)
	if err != nil {
		return File{}, err
	}
	if got != f.Ollama.ModelDigest {
		return broken("its weights are damaged: their digest is not the one in their name", nil)
	}
	return f, nil
}

// readLayer reads a small text layer and checks its digest.
func readLayer(blob, digest string) (string, error) {
	b, err := readBounded(blob, maxLayer)
	if err != nil {
		return "", fmt.Errorf("a layer cannot be read: %s", reason(err))
	}
	sum := sha256.Sum256(b)
	if "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return "", errors.New("a layer is damaged: its digest is not the one in its name")
	}
	return string(b), nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return b, err
}

// listOllama returns the models of the first store that has any. Blobs are not
// hashed.
func listOllama(o Options) []File {
	for _, store := range o.stores() {
		var files []File
		for _, path := range manifests(store) {
			rel, err := filepath.Rel(filepath.Join(store, "manifests"), path)
			if err != nil {
				continue
			}
			p := strings.Split(filepath.ToSlash(rel), "/")
			if len(p) != 4 {
				continue
			}
			name := modelName{p[0], p[1], p[2], p[3]}
			b, err := readBounded(path, maxManifest)
			if err != nil {
				continue
			}
			m, err := parseManifest(b)
			if err != nil {
				continue
			}
			sum := sha256.Sum256(b)
			f := File{Name: name.String(), Kind: KindOllama, Ollama: &Stored{Name: name.String(), ManifestDigest: "sha256:" + hex.EncodeToString(sum[:])}}
			for _, l := range m.Layers {
				if l.MediaType == layerModel {
					digest := strings.Replace(l.Digest, "-", ":", 1)
					f.Path = filepath.Join(store, "blobs", strings.Replace(digest, ":", "-", 1))
					f.Parts, f.Size, f.Ollama.ModelDigest = []string{f.Path}, l.Size, digest
				}
			}
			files = append(files, f)
		}
		if len(files) > 0 {
			return files
		}
	}
	return nil
}
