// Package models turns the names that users give to models into model files:
// paths, short names of the catalogue, files of demur's own folder, and names
// of an Ollama store. It reads what a GGUF file says about itself, checks its
// header before any C code sees it, and identifies a file by its digest.
//
// Nothing here opens a socket, and nothing is written but a cache of digests.
package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Where a File was found.
const (
	KindFile      = "file"      // a path that the user gave
	KindCatalogue = "catalogue" // a file of the models folder, by its short or file name
	KindOllama    = "ollama"    // a blob of an Ollama store
	KindPhantom   = "phantom"   // built by demur itself; has no path until the caller builds it
)

// Phantom is the name of the model that demur builds itself.
const Phantom = "phantom"

// OllamaPrefix marks a name of an Ollama store.
const OllamaPrefix = "ollama:"

// A File is a model that can be opened.
type File struct {
	Name string `json:"name"` // for tables: no folder, no .gguf
	Kind string `json:"kind"`
	// Path is the file to open, the first part where a model is split. It is
	// empty for the phantom.
	Path  string   `json:"path,omitempty"`
	Parts []string `json:"parts,omitempty"` // every part in order, Path first
	Size  int64    `json:"size,omitempty"`  // bytes, all parts together
	// Ollama is what the store says beside the weights; null for other kinds.
	Ollama *Stored `json:"ollama,omitempty"`
}

// Options says where to look. The zero value means the usual places.
type Options struct {
	// Dir is the models folder; empty means demur/models in the user's cache folder.
	Dir string
	// Ollama is the root of an Ollama store; empty means $OLLAMA_MODELS, else
	// .ollama/models in the user's home, else where the Linux service keeps it.
	Ollama string
	// Digests is the file that remembers digests; empty means
	// demur/digests.json in the user's cache folder.
	Digests string
}

// Resolve finds the model that name means, in this order: the phantom, a name
// with the prefix "ollama:", an existing path, a short name of the catalogue, a
// file of the models folder with or without ".gguf". All parts of a split model
// must be there. An Ollama blob is hashed and must be what its name says. The
// header of the file is not read; ReadFacts does.
//
// Errors are of type *Error.
func Resolve(ctx context.Context, name string, o Options) (File, error) {
	switch {
	case name == "":
		return File{}, &Error{Kind: ErrMissing, Problem: "no model is named", Hint: "give --model a GGUF file, ollama:NAME or phantom"}
	case strings.ContainsRune(name, 0):
		return File{}, &Error{Kind: ErrMissing, Name: strconv.Quote(name), Problem: "the name holds a NUL byte"}
	case name == Phantom:
		return File{Name: Phantom, Kind: KindPhantom}, nil
	case strings.HasPrefix(name, OllamaPrefix):
		return resolveOllama(ctx, strings.TrimPrefix(name, OllamaPrefix), o)
	}
	_, err := os.Stat(name)
	switch {
	case err == nil:
		return open(name, KindFile)
	case errors.Is(err, fs.ErrPermission):
		return File{}, unreadable(name, err)
	}
	if !strings.ContainsRune(name, filepath.Separator) && !strings.Contains(name, "/") {
		dir, err := o.dir()
		if err != nil {
			return File{}, err
		}
		candidates := []string{name, name + ".gguf"}
		entry, listed := lookUp(name)
		if listed {
			candidates = append(candidates, entry.File)
		}
		for _, c := range candidates {
			if _, err := os.Stat(filepath.Join(dir, c)); err == nil {
				return open(filepath.Join(dir, c), KindCatalogue)
			}
		}
		if listed {
			return File{}, &Error{
				Kind: ErrMissing, Name: name, Problem: "this model of the catalogue is not on this machine",
				Hint: "fetch it: tools/models.sh " + entry.Name,
			}
		}
	}
	return File{}, &Error{
		Kind: ErrMissing, Name: name, Problem: "there is no such file, and no such model in the models folder",
		Hint: "give the path of a GGUF file, ollama:NAME for a model of Ollama, or phantom; demur models lists what is there",
	}
}

// open describes the GGUF file at path and finds its other parts.
func open(path, kind string) (File, error) {
	parts, err := splitParts(path)
	if err != nil {
		return File{}, err
	}
	f := File{Name: displayName(path), Kind: kind, Path: parts[0], Parts: parts}
	for _, p := range parts {
		info, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return File{}, &Error{
				Kind: ErrMissing, Name: p, Problem: fmt.Sprintf("this part of a model in %d parts is missing", len(parts)),
				Hint: "put all parts into one folder under their own names",
			}
		case err != nil:
			return File{}, unreadable(p, err)
		case info.IsDir():
			return File{}, &Error{Kind: ErrNotGGUF, Name: p, Problem: "this is a folder, not a model file", Hint: "give the GGUF file itself"}
		case !info.Mode().IsRegular():
			return File{}, &Error{Kind: ErrNotGGUF, Name: p, Problem: "this is not a regular file", Hint: "give a GGUF file"}
		}
		f.Size += info.Size()
	}
	return f, nil
}

// partName is how llama.cpp names the parts of a split model (gguf-split).
var partName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// maxParts bounds the parts that a file name can make us look for.
const maxParts = 9999

// splitParts returns the names of all parts of the model that path is a part
// of, in order; one name where it is not split.
func splitParts(path string) ([]string, error) {
	m := partName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return []string{path}, nil
	}
	n, _ := strconv.Atoi(m[2])
	of, _ := strconv.Atoi(m[3])
	if n < 1 || of < n || of > maxParts {
		return nil, &Error{Kind: ErrDamaged, Name: path, Problem: fmt.Sprintf("the file name says part %d of %d", n, of), Hint: "give the part that ends in -00001-of-…"}
	}
	parts := make([]string, of)
	for i := range parts {
		parts[i] = filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, of))
	}
	return parts, nil
}

// displayName returns the name of a model file for tables: no folder, no
// extension, no part number.
func displayName(path string) string {
	base := filepath.Base(path)
	if m := partName.FindStringSubmatch(base); m != nil {
		return m[1]
	}
	return strings.TrimSuffix(base, ".gguf")
}

// List returns the models of the models folder and of the Ollama store, sorted
// by kind and name. A place that does not exist holds none; what cannot be read
// is left out. Nothing is hashed.
func List(o Options) ([]File, error) {
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	var files []File
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unreadable(dir, err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".gguf" {
			continue
		}
		if m := partName.FindStringSubmatch(e.Name()); m != nil && m[2] != "00001" {
			continue
		}
		if f, err := open(filepath.Join(dir, e.Name()), KindCatalogue); err == nil {
			files = append(files, f)
		}
	}
	files = append(files, listOllama(o)...)
	slices.SortFunc(files, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return files, nil
}

// dir returns the models folder.
func (o Options) dir() (string, error) {
	if o.Dir != "" {
		return o.Dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &Error{Kind: ErrUnreadable, Problem: "the user's cache folder is not known: " + err.Error(), Hint: "set HOME or XDG_CACHE_HOME", Err: err}
	}
	return filepath.Join(cache, "demur", "models"), nil
}
