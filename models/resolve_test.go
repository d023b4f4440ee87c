package models_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demur/models"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	o := models.Options{Dir: dir, Digests: filepath.Join(dir, "digests.json")}
	for _, name := range []string{"Tiny.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"} {
		if err := os.WriteFile(filepath.Join(dir, name), whole().bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ name, want, kind string }{
		{"Tiny.gguf", "Tiny", models.KindCatalogue},
		{"Tiny", "Tiny", models.KindCatalogue},
		{"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1", models.KindCatalogue},
		{"SmolLM2-135M", "SmolLM2-135M-Instruct.Q4_1", models.KindCatalogue},
		{filepath.Join(dir, "Tiny.gguf"), "Tiny", models.KindFile},
		{"phantom", "phantom", models.KindPhantom},
	} {
		f, err := models.Resolve(context.Background(), test.name, o)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if f.Name != test.want || f.Kind != test.kind {
			t.Errorf("%s: got %s of kind %s, want %s of kind %s", test.name, f.Name, f.Kind, test.want, test.kind)
		}
	}
	for _, test := range []struct {
		name string
		kind error
		says string
	}{
		{"", models.ErrMissing, "no model is named"},
		{"nothing", models.ErrMissing, "no such file"},
		{"./Tiny.gguf", models.ErrMissing, "no such file"}, // a path is not looked up in the models folder
		{"gemma3-270m", models.ErrMissing, "catalogue"},
		{dir, models.ErrNotGGUF, "folder"},
		{"a\x00b", models.ErrMissing, "NUL"},
		{os.DevNull, models.ErrNotGGUF, "regular file"},
		{filepath.Join(dir, "x-00003-of-00002.gguf"), models.ErrMissing, "no such file"},
	} {
		_, err := models.Resolve(context.Background(), test.name, o)
		var e *models.Error
		if !errors.Is(err, test.kind) || !errors.As(err, &e) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: got %v, want kind %v and %q", test.name, err, test.kind, test.says)
		}
	}
}

// A store is an Ollama store made by hand, laid out as server v0.6.5 does it.
type store struct {
	t   *testing.T
	dir string
}

func (s store) blob(b []byte) string {
	s.t.Helper()
	sum := sha256.Sum256(b)
	name := "sha256-" + hex.EncodeToString(sum[:])
	s.put(filepath.Join("blobs", name), b)
	return strings.Replace(name, "-", ":", 1)
}

func (s store) put(name string, b []byte) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

type layer struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

func (s store) manifest(path string, layers ...layer) {
	s.t.Helper()
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "layers": layers})
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(filepath.Join("manifests", path), b)
}

const (
	model    = "application/vnd.ollama.image.model"
	template = "application/vnd.ollama.image.template"
	system   = "application/vnd.ollama.image.system"
	params   = "application/vnd.ollama.image.params"
)

func TestResolveOllama(t *testing.T) {
	s := store{t, t.TempDir()}
	o := models.Options{Ollama: s.dir, Digests: filepath.Join(t.TempDir(), "digests.json")}
	weights := whole().bytes()
	digest := s.blob(weights)
	good := layer{model, digest, len(weights)}
	s.manifest("registry.ollama.ai/library/tiny/latest", good,
		layer{template, s.blob([]byte("{{ .Prompt }}")), 13},
		layer{system, s.blob([]byte("You bake bread.")), 15},
		layer{params, s.blob([]byte(`{"stop":["x"]}`)), 14})
	s.manifest("registry.ollama.ai/baker/tiny/7b", good)
	s.manifest("example.org:8080/baker/tiny/latest", good)

	for _, name := range []string{"ollama:tiny", "ollama:tiny:latest", "ollama:TINY", "ollama:library/tiny", "ollama:registry.ollama.ai/library/tiny:latest"} {
		f, err := models.Resolve(context.Background(), name, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Ollama == nil || f.Ollama.ModelDigest != digest || f.Size != int64(len(weights)) {
			t.Errorf("%s: got %+v", name, f)
			continue
		}
		if f.Ollama.Template != "{{ .Prompt }}" || f.Ollama.System != "You bake bread." || f.Ollama.Parameters != `{"stop":["x"]}` {
			t.Errorf("%s: layers: got %+v", name, f.Ollama)
		}
		if _, err := models.ReadFacts(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"ollama:baker/tiny:7b": "baker/tiny:7b", "ollama:example.org:8080/baker/tiny": "example.org:8080/baker/tiny:latest"} {
		f, err := models.Resolve(context.Background(), name, o)
		if err != nil || f.Name != want {
			t.Errorf("%s: got %s, %v, want %s", name, f.Name, err, want)
		}
	}

	files, err := models.List(models.Options{Ollama: s.dir, Dir: filepath.Join(s.dir, "none")})
	if err != nil || len(files) != 3 {
		t.Errorf("list: got %d files, %v, want 3", len(files), err)
	}

	missing := "sha256:" + strings.Repeat("0", 64)
	s.manifest("registry.ollama.ai/library/absent/latest", layer{model, missing, 10})
	s.manifest("registry.ollama.ai/library/none/latest", layer{template, s.blob([]byte("x")), 1})
	s.manifest("registry.ollama.ai/library/two/latest", good, good)
	s.manifest("registry.ollama.ai/library/evil/latest", layer{model, "sha256:../../../../etc/passwd", 10})
	s.manifest("registry.ollama.ai/library/short/latest", layer{model, digest, len(weights) + 1})
	s.put("manifests/registry.ollama.ai/library/torn/latest", []byte(`{"schemaVersion":2,"layers":[{"medi`))
	s.put("manifests/registry.ollama.ai/library/huge/latest", make([]byte, 2<<20))
	s.put(filepath.Join("blobs", "sha256-"+strings.Repeat("1", 64)), weights)
	s.manifest("registry.ollama.ai/library/changed/latest", layer{model, "sha256:" + strings.Repeat("1", 64), len(weights)})
	for _, test := range []struct {
		name string
		kind error
		says string
	}{
		{"ollama:unknown", models.ErrMissing, "no such model"},
		{"ollama:", models.ErrMissing, "no name"},
		{"ollama:../../etc/passwd", models.ErrMissing, "no name"},
		{"ollama:..", models.ErrMissing, "no name"},
		{"ollama:a/b/c/d", models.ErrMissing, "no name"},
		{"ollama:absent", models.ErrDamaged, "not in the store"},
		{"ollama:none", models.ErrDamaged, "0 model layers"},
		{"ollama:two", models.ErrDamaged, "2 model layers"},
		{"ollama:evil", models.ErrDamaged, "malformed digest"},
		{"ollama:short", models.ErrDamaged, "bytes"},
		{"ollama:torn", models.ErrDamaged, "not JSON"},
		{"ollama:huge", models.ErrDamaged, "larger than"},
		{"ollama:changed", models.ErrDamaged, "digest"},
	} {
		_, err := models.Resolve(context.Background(), test.name, o)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want kind %v and %q", test.name, err, test.kind, test.says)
		}
	}
}

// FuzzManifest reads manifests that come from outside: whatever they say, the
// file that comes out lies in the store's folder of blobs.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"layers":[{"mediaType":"` + model + `","digest":"sha256:` + strings.Repeat("0", 64) + `","size":3}]}`))
	f.Add([]byte(`{"schemaVersion":2,"layers":[{"mediaType":"` + model + `","digest":"sha256:../../x","size":-3}]}`))
	f.Add([]byte(`{"schemaVersion":1}`))
	f.Add([]byte(`[`))
	dir := f.TempDir()
	path := filepath.Join(dir, "manifests", "registry.ollama.ai", "library", "m")
	if err := os.MkdirAll(path, 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(path, "latest"), b, 0o644); err != nil {
			t.Fatal(err)
		}
		files, err := models.List(models.Options{Ollama: dir, Dir: filepath.Join(dir, "none")})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if filepath.Dir(file.Path) != filepath.Join(dir, "blobs") {
				t.Fatalf("path %q is outside the store", file.Path)
			}
		}
	})
}

func TestDigestRemembers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.gguf")
	o := models.Options{Digests: filepath.Join(dir, "cache", "digests.json")}
	f := models.File{Name: "a", Path: path, Parts: []string{path}}
	old := time.Now().Add(-time.Hour)
	put := func(content string, changed time.Time) {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	want := func(content string) {
		t.Helper()
		sum := sha256.Sum256([]byte(content))
		got, err := models.Digest(context.Background(), f, o)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("sha256:%x", sum); got != want {
			t.Fatalf("got %s, want %s (of %q)", got, want, content)
		}
	}
	put("one", old)
	want("one")
	// Same size and time: taken from memory. This is the promise, and its limit.
	put("two", old)
	want("one")
	put("two", old.Add(time.Nanosecond*1000))
	want("two")
	put("longer", old)
	want("longer")
	// A file of this moment is not remembered: it may still change unseen.
	now := time.Now()
	put("now", now)
	want("now")
	put("new", now)
	want("new")
	// A memory that is broken is no error.
	if err := os.WriteFile(o.Digests, []byte("{broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	put("three", old)
	want("three")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	put("four!", old.Add(time.Second))
	if _, err := models.Digest(ctx, f, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

// sha256sum a b of "a" and "b", then sha256sum of the two lines.
func TestDigestOfParts(t *testing.T) {
	dir := t.TempDir()
	var f models.File
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		f.Parts = append(f.Parts, path)
	}
	got, err := models.Digest(context.Background(), f, models.Options{Digests: filepath.Join(dir, "d.json")})
	if err != nil {
		t.Fatal(err)
	}
	// printf '%s\n' $(printf a | sha256sum | cut -c-64) $(printf b | sha256sum | cut -c-64) | sha256sum
	if want := "bf75fafab8e46555836b92f1b04106b795a9ed36bd39b351f103b28819895f33"; got != "sha256:"+want {
		t.Errorf("got %s, want %s", got, want)
	}
}
