//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demur/inference/llamacpp"
)

// TestVerifyTakesTheFilesOfTheRun runs the phantom with a chat template and an
// adapter from files, and runs a unit again: both files must be named and be the
// same, for the manifest keeps their digests alone.
func TestVerifyTakesTheFilesOfTheRun(t *testing.T) {
	if _, err := llamacpp.FindLibrary(""); err != nil {
		t.Skip("no llama.cpp libraries:", err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	requests := write("requests.txt", []byte("How do I bake bread?\nHow do I bake a cake?\n"))
	const chat = "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
	template, other := write("chat.jinja", []byte(chat)), write("other.jinja", []byte(chat+" "))
	adapter, twin := write("adapter.gguf", phantomAdapter(0.01)), write("twin.gguf", phantomAdapter(0.02))
	out := filepath.Join(dir, "out")
	must := func(want int, says string, args ...string) {
		t.Helper()
		c, said := start(t, args...)
		if code := exitCodeOf(c.Wait()); code != want || !strings.Contains(said(), says) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s", args, code, want, says, said())
		}
	}
	must(0, "", "run", "--model", "phantom", "--requests", requests, "--seeds", "1-2", "--temperatures", "0,1", "--max-tokens", "8",
		"--no-check", "--no-report", "--quiet", "--out", out, "--chat-template", template, "--lora", adapter)
	verify := []string{"verify", out, "--model", "phantom"}
	must(0, "8 run again, all texts equal", append(verify, "--chat-template", template, "--lora", adapter)...)
	must(exitUsage, "another adapter", append(verify, "--chat-template", template)...)
	must(exitUsage, "another adapter", append(verify, "--chat-template", template, "--lora", twin)...)
	must(exitUsage, "another chat template", append(verify, "--lora", adapter)...)
	must(exitUsage, "another chat template", append(verify, "--lora", adapter, "--chat-template", other)...)
}

// phantomAdapter returns a LoRA adapter of rank 1 for the query matrix of the
// phantom's first block, 64 × 64, all of whose numbers are x: a GGUF file of
// version 3 as llama.cpp's convert_lora_to_gguf.py writes it.
func phantomAdapter(x float32) []byte {
	var b bytes.Buffer
	number := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	text := func(s string) { number(uint64(len(s))); b.WriteString(s) }
	b.WriteString("GGUF")
	number(uint32(3))
	number(uint64(2)) // tensors
	number(uint64(4)) // metadata
	for _, kv := range [][2]string{{"general.type", "adapter"}, {"general.architecture", "llama"}, {"adapter.type", "lora"}} {
		text(kv[0])
		number(uint32(8)) // a string
		text(kv[1])
	}
	text("adapter.lora.alpha")
	number(uint32(6)) // a float32
	number(float32(1))
	for i, t := range []struct {
		name  string
		shape [2]uint64
	}{{"blk.0.attn_q.weight.lora_a", [2]uint64{64, 1}}, {"blk.0.attn_q.weight.lora_b", [2]uint64{1, 64}}} {
		text(t.name)
		number(uint32(2))
		number(t.shape)
		number(uint32(0)) // float32
		number(uint64(i * 64 * 4))
	}
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	for range 2 * 64 {
		number(x)
	}
	return b.Bytes()
}
