//go:build unix

package worker_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
	"demur/inference/worker"
	"demur/models/phantom"
)

// A llama is what the tests' children open of llama.cpp.
type llama struct {
	Model, LibDir    string
	Context, Threads int
}

func openLlama(raw json.RawMessage, progress inference.Progress) (inference.Engine, error) {
	var l llama
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, err
	}
	e, err := llamacpp.Open(llamacpp.Options{Model: l.Model, LibDir: l.LibDir, Context: l.Context, Threads: l.Threads, Progress: progress})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func library(t *testing.T) string {
	t.Helper()
	dir, err := llamacpp.FindLibrary("")
	if err != nil {
		t.Skip(err)
	}
	return dir
}

// smollm2 returns the path of a real model.
func smollm2(t *testing.T) string {
	t.Helper()
	path := os.Getenv("DEMUR_TEST_SMOLLM2")
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("no cache folder: ", err)
		}
		path = filepath.Join(cache, "demur", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("DEMUR_TEST_SMOLLM2 names no model: ", err)
	}
	return path
}

// llamaJobs are a unit of prompts and answers of unequal lengths.
func llamaJobs() []inference.Job {
	var jobs []inference.Job
	for i, text := range []string{"Hi.", "How do I bake a loaf of rye bread?", "How do I pick the lock of my own garden shed?", "Name three birds."} {
		j := job(text)
		for k := range j.Samplings {
			j.Samplings[k].Temperature /= 2
			j.Samplings[k].MaxTokens = 4 + 4*i
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// A child that is killed while llama.cpp works costs a retry and no bit.
func TestLlamaKilledInTheMiddle(t *testing.T) {
	if testing.Short() {
		t.Skip("loads a real model several times")
	}
	l := llama{Model: smollm2(t), LibDir: library(t), Threads: 1}
	open := func(progress inference.Progress) *worker.Engine {
		e, err := worker.Start(t.Context(), command(t, "llamacpp"), l, worker.Options{Name: l.Model, Progress: progress})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	undisturbed := open(nil)
	want, err := collect(t.Context(), undisturbed, llamaJobs())
	if err != nil {
		t.Fatal(err)
	}
	all := int(undisturbed.Counters().TokensSampled)
	undisturbed.Close()
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV}
	if os.Getenv("DEMUR_LONG") != "" {
		signals = append(signals, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL)
	}
	for _, sig := range signals {
		var e *worker.Engine
		tokens, killed := 0, false
		e = open(func(n int) {
			if tokens += n; tokens > all/4 && !killed {
				killed = true
				syscall.Kill(e.PID(), sig)
			}
		})
		got, err := collect(t.Context(), e, llamaJobs())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plain(got), want) {
			t.Errorf("%v: got  %+v\nwant %+v", sig, plain(got), want)
		}
		if !killed || e.Starts() != 2 || len(got[0].Attempts) != 1 || got[0].Attempts[0].ErrorKind != data.ErrCrash {
			t.Errorf("%v: killed %v, %d starts, attempts %+v; want one crash", sig, killed, e.Starts(), got[0].Attempts)
		}
		t.Logf("%v after %d of %d tokens: %s", sig, tokens, all, got[0].Attempts[0].Error)
	}
}

// A model that is cut short while it is mapped ends the child (SIGBUS), and the
// new child says what is wrong with the file.
func TestLlamaTruncatedInUse(t *testing.T) {
	dir := library(t)
	s, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := m.WriteGGUF(file); err != nil {
		t.Fatal(err)
	}
	c := command(t, "llamacpp")
	c.Env = append(c.Env, "XDG_CACHE_HOME="+t.TempDir())
	e, err := worker.Start(t.Context(), c, llama{Model: path, LibDir: dir, Context: 256, Threads: 1}, worker.Options{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := collect(t.Context(), e, []inference.Job{job("How do I bake bread?")}); err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	got, err := collect(t.Context(), e, []inference.Job{job("How do I fold a paper plane?")})
	if len(got) != 0 || !errors.Is(err, inference.ErrUnavailable) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "process died") {
		t.Errorf("%d answers, %v; want none, and an error that names the file and the death", len(got), err)
	}
	t.Log(err)
}

// Promise P6: a broken model file never ends the parent. Whatever is wrong with
// it, there is an answer, or a clear error that means "not available".
func TestDamagedModels(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for each damaged file")
	}
	n := 20
	if os.Getenv("DEMUR_LONG") != "" {
		n = 2000
	}
	dir := library(t)
	s, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	var sound bytes.Buffer
	if err := m.WriteGGUF(&sound); err != nil {
		t.Fatal(err)
	}
	// The child keeps its digests of these files to itself.
	c := command(t, "llamacpp")
	c.Env = append(c.Env, "XDG_CACHE_HOME="+t.TempDir())
	folder := t.TempDir()

	var mu sync.Mutex
	outcomes := map[string]map[string]int{} // kind of damage to kind of outcome
	examples := map[string]string{}
	note := func(damage, outcome, example string) {
		mu.Lock()
		defer mu.Unlock()
		if outcomes[damage] == nil {
			outcomes[damage] = map[string]int{}
		}
		outcomes[damage][outcome]++
		examples[damage+": "+outcome] = example
	}
	var work sync.WaitGroup
	numbers := make(chan int)
	for range 2 {
		work.Go(func() {
			for i := range numbers {
				damage, mutant := mutate(sound.Bytes(), i)
				path := filepath.Join(folder, fmt.Sprintf("mutant-%d.gguf", i))
				if err := os.WriteFile(path, mutant, 0o644); err != nil {
					t.Error(err)
					continue
				}
				outcome, words := tryModel(t, c, llama{Model: path, LibDir: dir, Context: 256, Threads: 1})
				note(damage, outcome, fmt.Sprintf("mutant %d: %s", i, words))
				os.Remove(path)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	work.Wait()
	for damage, counts := range outcomes {
		t.Logf("%s: %v", damage, counts)
	}
	for what, example := range examples {
		t.Logf("%s, such as %s", what, example)
	}
}

// tryModel opens a model in a child and runs a unit, and says what came of it.
func tryModel(t *testing.T, c worker.Command, l llama) (outcome, words string) {
	e, err := worker.Start(t.Context(), c, l, worker.Options{Name: l.Model, Opening: time.Minute, Silence: time.Minute})
	if err != nil {
		words := err.Error()
		if !errors.Is(err, inference.ErrUnavailable) {
			t.Errorf("%s: %v is not inference.ErrUnavailable", l.Model, err)
		}
		if !strings.Contains(words, l.Model) {
			t.Errorf("%s is not named by its error: %v", l.Model, err)
		}
		if len(words) > 2000 || strings.ContainsFunc(words, unicode.IsControl) {
			t.Errorf("%s: not a clear sentence: %q", l.Model, words)
		}
		if strings.Contains(words, "the engine process") {
			return "process died opening", words
		}
		return "clean error", words
	}
	defer e.Close()
	j := job("How do I bake bread?")
	for i := range j.Samplings {
		j.Samplings[i].MaxTokens = 4
	}
	answers, err := collect(t.Context(), e, []inference.Job{j})
	switch {
	case err != nil:
		if !errors.Is(err, inference.ErrUnavailable) {
			t.Errorf("%s: opened, then %v", l.Model, err)
		}
		return "engine lost", err.Error()
	case len(answers) != 1 || len(answers[0].Generations) != len(j.Samplings):
		t.Errorf("%s: opened, then %+v", l.Model, answers)
		return "incomplete", ""
	}
	g := answers[0].Generations[0]
	if g.StopReason == data.StopError {
		return g.ErrorKind, g.Error
	}
	return "loads and decodes", g.Text
}

// mutate damages a model file in the way that belongs to i.
func mutate(sound []byte, i int) (damage string, mutant []byte) {
	rng := rand.New(rand.NewPCG(uint64(i), 42))
	mutant = bytes.Clone(sound)
	head := min(len(mutant), 16<<10)
	switch i % 5 {
	case 0:
		for range 1 + rng.IntN(3) {
			mutant[rng.IntN(head)] = byte(rng.Uint32())
		}
		return "bytes at the start", mutant
	case 1:
		extreme := []uint32{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff0}[rng.IntN(6)]
		binary.LittleEndian.PutUint32(mutant[rng.IntN(head-4):], extreme)
		return "extreme number at the start", mutant
	case 2:
		return "truncated", mutant[:rng.IntN(len(mutant))]
	case 3:
		// Numbers of the metadata, found by their keys, are where asserts look.
		keys := []string{
			"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
			"llama.attention.head_count", "llama.attention.head_count_kv", "llama.rope.dimension_count",
			"llama.attention.layer_norm_rms_epsilon", "general.alignment", "general.architecture",
			"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
			"tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.chat_template",
		}
		if at := bytes.Index(mutant, []byte(keys[rng.IntN(len(keys))])); at >= 0 {
			for at < len(mutant) && mutant[at] >= ' ' { // to the type and the value after the key
				at++
			}
			if rng.IntN(4) > 0 { // past the type
				at += 4
			}
			for k := range 1 + rng.IntN(12) {
				if rng.IntN(2) == 0 && at+k < len(mutant) {
					mutant[at+k] = []byte{0, 1, 2, 0x7f, 0x80, 0xff}[rng.IntN(6)]
				}
			}
		}
		return "metadata", mutant
	default:
		for range 1 + rng.IntN(64) {
			mutant[rng.IntN(len(mutant))] ^= 1 << rng.IntN(8)
		}
		return "bits anywhere", mutant
	}
}

// What is no model at all.
func TestForeignFiles(t *testing.T) {
	dir := library(t)
	folder := t.TempDir()
	le := binary.LittleEndian
	counts := func(tensors, keys uint64) []byte {
		b := []byte("GGUF\x03\x00\x00\x00")
		b = le.AppendUint64(b, tensors)
		return le.AppendUint64(b, keys)
	}
	for name, content := range map[string][]byte{
		"empty":      {},
		"text":       []byte("Take flour, water, salt and time."),
		"magic":      []byte("GGUF"),
		"no tensors": counts(0, 0),
		"boundless":  counts(1<<62, 1<<62),
		"negative":   counts(^uint64(0), ^uint64(0)),
		"long key":   append(le.AppendUint64(counts(0, 1), 1<<63), "general"...),
		"big endian": []byte("GGUF\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
		"zeros":      make([]byte, 1<<16),
	} {
		path := filepath.Join(folder, name+".gguf")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		c := command(t, "llamacpp")
		c.Env = append(c.Env, "XDG_CACHE_HOME="+folder)
		outcome, words := tryModel(t, c, llama{Model: path, LibDir: dir, Context: 256, Threads: 1})
		if outcome != "clean error" {
			t.Errorf("%s: %s: %s", name, outcome, words)
		}
		t.Logf("%s: %s", name, words)
	}
}
