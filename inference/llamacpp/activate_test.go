package llamacpp_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
	"demur/models/phantom"
)

// The engine keeps keys and values as 16-bit numbers, the forward pass has 64
// bits. Seen over the prompts of these tests: 2.3e-5 of the length of a row.
const streamTolerance = 5e-5

func activate(t testing.TB, e inference.Activator, jobs ...inference.ActivateJob) []data.Activation {
	t.Helper()
	var out []data.Activation
	for a, err := range e.Activate(context.Background(), jobs) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// everywhere asks for all positions of a prompt.
func everywhere(t testing.TB, e inference.Tokenizer, text string) (inference.ActivateJob, []int32) {
	t.Helper()
	p := prompt(text)
	ids, pieces, err := e.Tokenize(p.Messages, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(pieces) != len(ids) {
		t.Fatalf("%d tokens, %d pieces", len(ids), len(pieces))
	}
	job := inference.ActivateJob{Prompt: p}
	for i := range ids {
		job.Positions = append(job.Positions, i-len(ids))
	}
	return job, ids
}

func length(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// apart is the distance of a captured row from one in float64.
func apart(got []float32, want []float64) float64 {
	d := make([]float64, len(want))
	for i := range d {
		d[i] = float64(got[i]) - want[i]
	}
	return length(d)
}

// TestStreamsOfPhantom holds every block and position of packed prompts against
// the phantom's own forward pass in float64. A row of the layer or the position
// beside the right one would be far away, which is tested too.
func TestStreamsOfPhantom(t *testing.T) {
	spec, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.WriteGGUF(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	e := open(t, llamacpp.Options{Model: path})
	texts := append(slices.Clone(requests), strings.Repeat("Tell me how to bake bread and ride a bicycle. ", 8))
	var jobs []inference.ActivateJob
	for _, text := range texts {
		job, _ := everywhere(t, e, text)
		jobs = append(jobs, job)
		// The same with a shared prefix: only tokens after it.
		job.Positions = []int{-1, -4, -2}
		jobs = append(jobs, job)
	}
	rows := activate(t, e, jobs...)
	worst := 0.0
	blocks := e.Info().Blocks
	// Mean distance, by block, from the row of the token before and of the block
	// before: what an engine that is off by one would be away.
	token, block, n := make([]float64, blocks), make([]float64, blocks), make([]float64, blocks)
	for _, job := range jobs {
		var messages []phantom.Message
		for _, x := range job.Prompt.Messages {
			messages = append(messages, phantom.Message{Role: x.Role, Content: x.Content})
		}
		tokens := m.Tokenize(phantom.Render(messages))
		streams := m.Streams(tokens)
		for l := range streams {
			for _, p := range job.Positions {
				if len(rows) == 0 {
					t.Fatal("rows are missing")
				}
				row := rows[0]
				rows = rows[1:]
				i := len(tokens) + p
				if row.PromptID != job.Prompt.ID || row.Layer != l || row.Position != p || int(row.Token) != tokens[i] || len(row.Values) != m.Width() {
					t.Fatalf("row is layer %d, position %d, token %d, want %d, %d, %d", row.Layer, row.Position, row.Token, l, p, tokens[i])
				}
				size := length(streams[l][i])
				worst = max(worst, apart(row.Values, streams[l][i])/size)
				if i > 0 && l > 0 {
					token[l] += apart(row.Values, streams[l][i-1]) / size
					block[l] += apart(row.Values, streams[l-1][i]) / size
					n[l]++
				}
			}
		}
	}
	if len(rows) > 0 {
		t.Errorf("%d rows too many", len(rows))
	}
	t.Logf("worst distance %.2g of a row's length", worst)
	if worst > streamTolerance {
		t.Errorf("a row is %.2g of its length away from the forward pass, more than %.2g", worst, streamTolerance)
	}
	for l := 1; l < blocks; l++ {
		t.Logf("block %d: the token before is %.2g away, the block before %.2g", l, token[l]/n[l], block[l]/n[l])
		if min(token[l], block[l])/n[l] < 20*worst {
			t.Errorf("block %d: a row beside the right one is so near that the test cannot tell them", l)
		}
	}
}

// TestActivateNeutral: looking changes no text, and what was looked at or
// generated before changes no stream.
func TestActivateNeutral(t *testing.T) {
	for name, path := range map[string]string{"phantom": phantomFile(t), "real": smol(t)} {
		t.Run(name, func(t *testing.T) {
			e := open(t, llamacpp.Options{Model: path, Rows: 8})
			unit := jobs(sweep(6, 2, 0, 1), requests[:2]...)
			var see []inference.ActivateJob
			for _, text := range requests[:4] {
				see = append(see, inference.ActivateJob{Prompt: prompt(text), Positions: []int{-1, -3}})
			}
			before := generate(t, e, unit...)
			streams := activate(t, e, see...)
			if after := generate(t, e, unit...); !reflect.DeepEqual(after, before) {
				t.Error("texts are others after the streams were looked at")
			}
			activate(t, e, inference.ActivateJob{Prompt: prompt(requests[5]), Positions: []int{-1}})
			if again := activate(t, e, see...); !reflect.DeepEqual(again, streams) {
				t.Error("the same jobs gave other streams the second time")
			}
			fresh := open(t, llamacpp.Options{Model: path})
			if again := activate(t, fresh, see...); !reflect.DeepEqual(again, streams) {
				t.Error("the same jobs gave other streams on another engine")
			}
		})
	}
}

// TestActivateAlone: a prompt has the same bits evaluated with a shared prefix and
// beside others as whole and alone. Its lengths stand on both sides of a batch.
func TestActivateAlone(t *testing.T) {
	texts := append(slices.Clone(requests[:4]), "Bread?", strings.Repeat(requests[1]+" ", 6), strings.Repeat(requests[3]+" ", 15)+"Why?")
	for name, path := range map[string]string{"phantom": phantomFile(t), "Q4_1": smol(t), "Q8_0": smolQ8(t)} {
		t.Run(name, func(t *testing.T) {
			packed, strict := open(t, llamacpp.Options{Model: path}), open(t, llamacpp.Options{Model: path, Strict: true})
			var see []inference.ActivateJob
			for _, text := range texts {
				see = append(see, inference.ActivateJob{Prompt: prompt(text), Positions: []int{-1, -3, -6}})
			}
			a, b := activate(t, packed, see...), activate(t, strict, see...)
			if len(a) != len(b) || len(a) != len(see)*3*packed.Info().Blocks {
				t.Fatalf("%d rows together, %d alone", len(a), len(b))
			}
			for i := range a {
				if !reflect.DeepEqual(a[i], b[i]) {
					want := make([]float64, len(b[i].Values))
					for k, v := range b[i].Values {
						want[k] = float64(v)
					}
					t.Fatalf("prompt %d, layer %d, position %d: %.2g of the row's length away from the prompt alone", i/(3*packed.Info().Blocks), a[i].Layer, a[i].Position, apart(a[i].Values, want)/length(want))
				}
			}
			if p := packed.Counters(); p.PromptTokens >= strict.Counters().PromptTokens {
				t.Errorf("%d tokens evaluated with a shared prefix, %d without", p.PromptTokens, strict.Counters().PromptTokens)
			}
		})
	}
}

// TestActivateLayers: layers and positions come in the order asked, the embedding
// of a token does not depend on where it stands.
func TestActivateLayers(t *testing.T) {
	for name, path := range map[string]string{"phantom": phantomFile(t), "real": smol(t)} {
		t.Run(name, func(t *testing.T) {
			e := open(t, llamacpp.Options{Model: path})
			all, ids := everywhere(t, e, "salt bread and salt water and salt")
			all.Layers = []int{2, -1, 0}
			rows := activate(t, e, all)
			n := len(ids)
			if len(rows) != 3*n {
				t.Fatalf("%d rows, want %d", len(rows), 3*n)
			}
			byToken := map[int32]data.Activation{}
			same := 0
			for i, row := range rows {
				if want := all.Layers[i/n]; row.Layer != want || row.Position != i%n-n || row.Token != ids[i%n] {
					t.Fatalf("row %d is layer %d, position %d", i, row.Layer, row.Position)
				}
				if row.Layer != -1 {
					continue
				}
				if first, ok := byToken[row.Token]; ok {
					same++
					if !reflect.DeepEqual(first.Values, row.Values) {
						t.Errorf("token %d has two embeddings", row.Token)
					}
				}
				for id, other := range byToken {
					if id != row.Token && reflect.DeepEqual(other.Values, row.Values) {
						t.Errorf("tokens %d and %d have one embedding", id, row.Token)
					}
				}
				byToken[row.Token] = row
			}
			if same == 0 {
				t.Error("no token stands twice in the prompt")
			}
			// The middle layers alone, when no token has an output, are the same.
			all.Layers = []int{0}
			if got := activate(t, e, all); !reflect.DeepEqual(got, rows[2*n:]) {
				t.Error("layer 0 alone is not layer 0 of several")
			}
		})
	}
}

// TestActivateErrors: what concerns a prompt is told with its id and the others
// go on; what is wrong with the question ends it.
func TestActivateErrors(t *testing.T) {
	e := open(t, llamacpp.Options{Model: phantomFile(t), Context: 256})
	good := inference.ActivateJob{Prompt: prompt(requests[0]), Positions: []int{-1}, Layers: []int{0}}
	long := inference.ActivateJob{Prompt: prompt(strings.Repeat("bread ", 300)), Positions: []int{-1}}
	nul := inference.ActivateJob{Prompt: prompt("a\x00b"), Positions: []int{-1}}
	var told []string
	for row, err := range e.Activate(context.Background(), []inference.ActivateJob{long, good, nul, good}) {
		switch {
		case errors.Is(err, inference.ErrPrompt):
			told = append(told, "error of "+row.PromptID)
		case err != nil:
			t.Fatal(err)
		default:
			told = append(told, row.PromptID)
		}
	}
	want := []string{"error of " + long.Prompt.ID, good.Prompt.ID, "error of " + nul.Prompt.ID, good.Prompt.ID}
	if !reflect.DeepEqual(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
	for name, change := range map[string]func(*inference.ActivateJob){
		"position 0":        func(j *inference.ActivateJob) { j.Positions = []int{0} },
		"position too far":  func(j *inference.ActivateJob) { j.Positions = []int{-1000} },
		"layer too high":    func(j *inference.ActivateJob) { j.Layers = []int{e.Info().Blocks} },
		"layer below −1":    func(j *inference.ActivateJob) { j.Layers = []int{-2} },
		"context cancelled": nil,
	} {
		ctx, cancel := context.WithCancel(context.Background())
		bad := good
		if change != nil {
			change(&bad)
		} else {
			cancel()
		}
		var last error
		n := 0
		for _, err := range e.Activate(ctx, []inference.ActivateJob{good, bad, good}) {
			last = err
			n++
		}
		cancel()
		if last == nil || errors.Is(last, inference.ErrPrompt) || n > 2 {
			t.Errorf("%s: error %v after %d rows", name, last, n)
		}
		if change == nil && !errors.Is(last, context.Canceled) {
			t.Errorf("%s: %v", name, last)
		}
	}
}

// TestActivateLong: a prompt longer than a batch is evaluated in parts.
func TestActivateLong(t *testing.T) {
	e := open(t, llamacpp.Options{Model: phantomFile(t), Context: 1500})
	text := strings.Repeat("bread and water for a bicycle ", 40)
	job, ids := everywhere(t, e, text)
	if len(ids) < 600 {
		t.Fatalf("only %d tokens", len(ids))
	}
	job.Layers = []int{0, e.Info().Blocks - 1}
	rows := activate(t, e, job)
	if len(rows) != 2*len(ids) {
		t.Fatalf("%d rows of %d tokens", len(rows), len(ids))
	}
	job.Positions = job.Positions[len(ids)-3:]
	short := activate(t, e, job)
	for k, row := range short {
		want := rows[k/3*len(ids)+len(ids)-3+k%3]
		ref := make([]float64, len(want.Values))
		for i, v := range want.Values {
			ref[i] = float64(v)
		}
		if d := apart(row.Values, ref) / length(ref); d > streamTolerance {
			t.Errorf("layer %d, position %d differs by %.2g if the others are not asked for", row.Layer, row.Position, d)
		}
	}
}

// BenchmarkActivate is what looking costs: every block against the last alone, at
// two positions of 48 prompts. Both evaluate the same tokens.
func BenchmarkActivate(b *testing.B) {
	e := open(b, llamacpp.Options{Model: smolQ8(b)})
	for name, layers := range map[string][]int{"all blocks": nil, "last block": {e.Info().Blocks - 1}} {
		b.Run(name, func(b *testing.B) {
			var see []inference.ActivateJob
			for i := range 48 {
				see = append(see, inference.ActivateJob{Prompt: prompt(strings.Repeat("Why? ", i%3) + requests[i%len(requests)]), Positions: []int{-1, -6}, Layers: layers})
			}
			for b.Loop() {
				activate(b, e, see...)
			}
			b.ReportMetric(float64(len(see)*b.N)/b.Elapsed().Seconds(), "prompts/s")
		})
	}
}
