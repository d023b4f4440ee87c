package models_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demur/models"
)

func TestReadFacts(t *testing.T) {
	path := write(t, "tiny.gguf", whole().bytes())
	f, err := models.Resolve(context.Background(), path, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := models.ReadFacts(f)
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := models.Facts{
		Title: "Tiny", FileSize: f.Size, Files: 1, Architecture: "llama",
		Parameters: 8*4 + 8*8, Blocks: 2, Width: 8, Heads: 2, HeadsKV: 1, Context: 64,
		Quantisation: "F32", Vocabulary: 4, Tokenizer: "gpt2/default", AddBOS: &no, Template: "{{ messages[0].content }}",
	}
	check := func(name string, got, want any) {
		if got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("title", facts.Title, want.Title)
	check("file size", facts.FileSize, want.FileSize)
	check("files", facts.Files, want.Files)
	check("architecture", facts.Architecture, want.Architecture)
	check("parameters", facts.Parameters, want.Parameters)
	check("quantisation", facts.Quantisation, want.Quantisation)
	check("blocks", facts.Blocks, want.Blocks)
	check("width", facts.Width, want.Width)
	check("heads", facts.Heads, want.Heads)
	check("KV heads", facts.HeadsKV, want.HeadsKV)
	check("context", facts.Context, want.Context)
	check("vocabulary", facts.Vocabulary, want.Vocabulary)
	check("tokenizer", facts.Tokenizer, want.Tokenizer)
	check("template", facts.Template, want.Template)
	if facts.AddBOS == nil || *facts.AddBOS {
		t.Errorf("add BOS: got %v, want false", facts.AddBOS)
	}
}

// What a file says of itself cannot write to a terminal.
func TestReadFactsInert(t *testing.T) {
	path := write(t, "evil.gguf", whole().with("general.name", "\x1b]0;owned\x07T\ni\u009bny"+strings.Repeat("x", 1000)).bytes())
	facts, err := models.ReadFacts(models.File{Name: "evil", Path: path, Parts: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(facts.Title, "]0;ownedTiny") || len(facts.Title) > 210 {
		t.Errorf("got title %q", facts.Title)
	}
}

func TestReadFactsRefuses(t *testing.T) {
	dir := t.TempDir()
	locked := filepath.Join(dir, "locked.gguf")
	if err := os.WriteFile(locked, whole().bytes(), 0o000); err != nil {
		t.Fatal(err)
	}
	vocabulary := whole()
	vocabulary.tensors, vocabulary.data = nil, 0
	for _, test := range []struct {
		name, path string
		kind       error
		says       string
	}{
		{"folder", dir, models.ErrNotGGUF, "folder"},
		{"missing", filepath.Join(dir, "none.gguf"), models.ErrMissing, "no such file"},
		{"locked", locked, models.ErrUnreadable, "no permission"},
		{"empty", write(t, "e.gguf", nil), models.ErrNotGGUF, "empty"},
		{"adapter", write(t, "a.gguf", whole().with("general.type", "adapter").bytes()), models.ErrNotGGUF, "LoRA"},
		{"projector", write(t, "p.gguf", whole().with("general.type", "mmproj").bytes()), models.ErrNotGGUF, "projector"},
		{"vocabulary", write(t, "v.gguf", vocabulary.bytes()), models.ErrNotGGUF, "no weights"},
		{"lost part", write(t, "l.gguf", whole().with("split.count", uint32(3)).bytes()), models.ErrMissing, "3 parts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "locked" && os.Geteuid() == 0 {
				t.Skip("root reads every file")
			}
			_, err := models.ReadFacts(models.File{Name: test.name, Path: test.path, Parts: []string{test.path}})
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %v, want kind %v and %q", err, test.kind, test.says)
			}
			if !strings.Contains(err.Error(), test.path) {
				t.Errorf("got %q, want it to name the file", err)
			}
		})
	}
}

func TestReadFactsSplit(t *testing.T) {
	dir := t.TempDir()
	// As gguf-split of llama.cpp writes them: the metadata stands in the first part
	// only, numbers of parts have 16 bits.
	part := func(i int, no uint16) {
		f := whole()
		if no > 0 {
			f.pairs = nil
			f.tensors[1].name, f.tensors[0].name = "blk.1.attn_q.weight", "blk.1.attn_k.weight"
		}
		b := f.with("split.no", no).with("split.count", uint16(2)).with("split.tensors.count", uint32(4)).bytes()
		name := filepath.Join(dir, "tiny-0000"+string(rune('0'+i))+"-of-00002.gguf")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	part(1, 0)
	first := filepath.Join(dir, "tiny-00001-of-00002.gguf")
	second := filepath.Join(dir, "tiny-00002-of-00002.gguf")
	if _, err := models.Resolve(context.Background(), first, models.Options{}); !errors.Is(err, models.ErrMissing) || !strings.Contains(err.Error(), "00002-of-00002") {
		t.Fatalf("second part absent: got %v", err)
	}
	part(2, 1)
	f, err := models.Resolve(context.Background(), second, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Path != first || len(f.Parts) != 2 || f.Name != "tiny" {
		t.Fatalf("got %+v, want both parts, the first to open", f)
	}
	facts, err := models.ReadFacts(f)
	if err != nil {
		t.Fatal(err)
	}
	if facts.Files != 2 || facts.FileSize != f.Size || facts.Parameters != 2*(8*4+8*8) || facts.Blocks != 2 || len(facts.Warnings) > 0 {
		t.Errorf("got %+v, want 2 files of %d bytes, 192 weights, 2 blocks", facts, f.Size)
	}
	part(2, 0) // the first part under the name of the second
	if _, err := models.ReadFacts(f); !errors.Is(err, models.ErrDamaged) {
		t.Errorf("parts mixed up: got %v, want kind %v", err, models.ErrDamaged)
	}
}

// Damaged files give facts or an error, and never a panic: what passes the
// header check goes on to a parser that was not made for hostile files.
func TestReadFactsMutants(t *testing.T) {
	b := whole().bytes()
	rng := rand.New(rand.NewPCG(7, 7))
	path := filepath.Join(t.TempDir(), "mutant.gguf")
	f := models.File{Name: "mutant", Path: path, Parts: []string{path}}
	whole, broken := 0, 0
	for range 1000 {
		m := append([]byte(nil), b...)
		switch rng.IntN(3) {
		case 0:
			for range 1 + rng.IntN(3) {
				m[rng.IntN(len(m)-384)] = byte(rng.Uint32())
			}
		case 1:
			at := rng.IntN(len(m) - 400)
			copy(m[at:], [][]byte{{0xff, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0x7f}, {0, 0, 0, 0x80}, {0, 0, 0, 0}}[rng.IntN(4)])
		case 2:
			m = m[:rng.IntN(len(m))]
		}
		if err := os.WriteFile(path, m, 0o644); err != nil {
			t.Fatal(err)
		}
		facts, err := models.ReadFacts(f)
		if err != nil {
			broken++
			continue
		}
		whole++
		facts.Memory(1 << 14)
	}
	if whole == 0 || broken < 300 {
		t.Errorf("%d mutants whole, %d broken: the mutations do not reach both sides", whole, broken)
	}
}

// Facts of real files, from the reference of the models (cards on the Hugging
// Face hub: HuggingFaceTB/SmolLM2-135M-Instruct, google/gemma-3-270m).
func TestReadFactsReal(t *testing.T) {
	for _, test := range []struct {
		name, arch                                   string
		blocks, width, heads, kv, vocabulary, window int
		template, addBOS                             bool
		quantisation                                 string
	}{
		{"smollm2-135m", "llama", 30, 576, 9, 3, 49152, 0, true, false, "Q4_1"},
		{"gemma3-270m", "gemma3", 18, 640, 4, 1, 262144, 512, false, true, "Q4_K_M"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := models.Resolve(context.Background(), test.name, models.Options{})
			if errors.Is(err, models.ErrMissing) {
				t.Skipf("%v (tools/models.sh all fetches it)", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			facts, err := models.ReadFacts(f)
			if err != nil {
				t.Fatal(err)
			}
			if len(facts.Warnings) > 0 {
				t.Errorf("warnings: %v", facts.Warnings)
			}
			got := []any{facts.Architecture, facts.Blocks, facts.Width, facts.Heads, facts.HeadsKV, facts.Vocabulary, facts.Window, facts.Template != "", facts.AddBOS != nil && *facts.AddBOS}
			want := []any{test.arch, test.blocks, test.width, test.heads, test.kv, test.vocabulary, test.window, test.template, test.addBOS}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("fact %d: got %v, want %v", i, got[i], want[i])
				}
			}
			if facts.Quantisation != test.quantisation {
				t.Errorf("quantisation: got %q, want %q", facts.Quantisation, test.quantisation)
			}
			m, ok := facts.Memory(4096)
			if !ok {
				t.Fatal("no memory estimate")
			}
			// Keys and values of every block in 16 bits: 2 × blocks × cells × KV heads
			// × head width × 2 bytes. Gemma's head width is 256, not width ÷ heads.
			head := test.width / test.heads
			if test.arch == "gemma3" {
				head = 256
			}
			if want := int64(2 * test.blocks * 4096 * test.kv * head * 2); m.Cache != want {
				t.Errorf("cache: got %d bytes, want %d", m.Cache, want)
			}
			if m.Weights != f.Size || m.Total < m.Weights+m.Cache || m.Compute <= 0 {
				t.Errorf("memory: got %+v", m)
			}
			for _, e := range models.Catalogue() {
				if e.Name != test.name {
					continue
				}
				digest, err := models.Digest(context.Background(), f, models.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if digest != "sha256:"+e.SHA256 {
					t.Errorf("digest: got %s, want %s", digest, e.SHA256)
				}
			}
		})
	}
}
