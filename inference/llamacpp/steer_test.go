package llamacpp_test

import (
	"context"
	"errors"
	"maps"
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

func steer(t testing.TB, e inference.Steerer, s *inference.Steering) {
	t.Helper()
	if err := e.Steer(context.Background(), s); err != nil {
		t.Fatal(err)
	}
}

func distributions(t testing.TB, e inference.Predictor, jobs ...inference.Job) [][]float32 {
	t.Helper()
	var out [][]float32
	for d, err := range e.Distributions(context.Background(), jobs) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	if len(out) != len(jobs) {
		t.Fatalf("%d distributions for %d jobs", len(out), len(jobs))
	}
	return out
}

// wave is a vector of the given length that lies along no axis.
func wave(width, seed int, size float64) []float32 {
	v := make([]float32, width)
	sum := 0.0
	for i := range v {
		v[i] = float32(math.Sin(float64(1 + (seed+2)*i*i)))
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] *= float32(size / math.Sqrt(sum))
	}
	return v
}

func everyBlock(blocks int, v []float32) map[int][]float32 {
	m := make(map[int][]float32)
	for l := range blocks {
		m[l] = v
	}
	return m
}

func dot32(a, b []float32) (dot, size float64) {
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		size += float64(a[i]) * float64(a[i])
	}
	return dot, math.Sqrt(size)
}

// rowSize is how long the rows of a block are, on average.
func rowSize(rows []data.Activation, layer int) float64 {
	sum, n := 0.0, 0
	for _, r := range rows {
		if r.Layer == layer {
			_, size := dot32(r.Values, r.Values)
			sum += size
			n++
		}
	}
	return sum / float64(n)
}

// TestSteerIsReversible: every kind of change has its effect on texts, streams and
// distributions, the same one each time and on another engine, whatever was in
// force before; and after its end all bits are those of before.
func TestSteerIsReversible(t *testing.T) {
	for name, path := range map[string]string{"phantom": phantomFile(t), "real": smol(t)} {
		t.Run(name, func(t *testing.T) {
			o := llamacpp.Options{Model: path, Rows: 6}
			e, fresh := open(t, o), open(t, o)
			blocks, width := e.Info().Blocks, e.Info().Width
			real := name == "real" && os.Getenv("DEMUR_LONG") == "" // seconds for each look
			texts := requests[:2]
			if real {
				texts = requests[:1]
			}
			unit := jobs(sweep(4, 2, 0, 1), texts...)
			var see []inference.ActivateJob
			for _, text := range texts {
				see = append(see, inference.ActivateJob{Prompt: prompt(text), Positions: []int{-1, -3}})
			}
			type outcome struct {
				answers []inference.Answer
				rows    []data.Activation
				next    [][]float32
			}
			look := func(e *llamacpp.Engine) outcome {
				return outcome{generate(t, e, unit...), activate(t, e, see...), distributions(t, e, unit...)}
			}
			before := look(e)
			// Half as long as a row, or twice where nothing but the last block hears it.
			half := func(l int) []float32 { return wave(width, l, rowSize(before.rows, l)/2) }
			changes := map[string]*inference.Steering{
				"add after block 0":         {Add: map[int][]float32{0: half(0)}},
				"add after a middle block":  {Add: map[int][]float32{blocks / 2: half(blocks / 2)}},
				"add after the last block":  {Add: map[int][]float32{blocks - 1: wave(width, 1, 2*rowSize(before.rows, blocks-1))}},
				"ablate everywhere":         {Ablate: everyBlock(blocks, before.rows[len(before.rows)-1].Values)},
				"ablate after the last":     {Ablate: map[int][]float32{blocks - 1: before.rows[len(before.rows)-1].Values}},
				"ablate what is written":    {AblateWriters: slices.Clone(before.rows[len(before.rows)-1].Values)},
				"ablate and add everywhere": {Ablate: everyBlock(blocks, wave(width, 3, 7)), Add: everyBlock(blocks, half(1))},
			}
			if real {
				maps.DeleteFunc(changes, func(name string, _ *inference.Steering) bool {
					return strings.HasSuffix(name, "last") || strings.HasSuffix(name, "block 0")
				})
			}
			for name, s := range changes {
				steer(t, e, s)
				steered := look(e)
				if reflect.DeepEqual(steered.answers, before.answers) || reflect.DeepEqual(steered.rows, before.rows) || reflect.DeepEqual(steered.next, before.next) {
					t.Errorf("%s: answers, streams or distributions are as before", name)
				}
				if again := look(e); !reflect.DeepEqual(again, steered) {
					t.Errorf("%s: the second time it is otherwise", name)
				}
				if !real {
					// On this engine after another change, on the other after others or none.
					steer(t, e, &inference.Steering{Ablate: everyBlock(blocks, wave(width, 5, 1))})
					generate(t, e, unit[0])
					steer(t, e, s)
					steer(t, fresh, s)
					if again := look(e); !reflect.DeepEqual(again, steered) {
						t.Errorf("%s: it is otherwise after another change", name)
					}
					if again := look(fresh); !reflect.DeepEqual(again, steered) {
						t.Errorf("%s: it is otherwise on another engine", name)
					}
				}
				steer(t, e, nil)
				if after := look(e); !reflect.DeepEqual(after, before) {
					t.Errorf("%s: after its end not all is as before", name)
				}
				// What the caller does with the vectors later is his affair.
				for _, v := range s.Add {
					clear(v)
				}
			}
			zeros := make([]float32, width)
			steer(t, e, &inference.Steering{Add: everyBlock(blocks, zeros)})
			if after := look(e); !reflect.DeepEqual(after, before) {
				t.Error("zeros change something")
			}
		})
	}
}

// TestSteeredStreams: what is written is what stands there.
func TestSteeredStreams(t *testing.T) {
	for name, path := range map[string]string{"phantom": phantomFile(t), "real": smol(t)} {
		t.Run(name, func(t *testing.T) {
			e := open(t, llamacpp.Options{Model: path})
			blocks, width := e.Info().Blocks, e.Info().Width
			var see []inference.ActivateJob
			for _, text := range requests[:3] {
				job, _ := everywhere(t, e, text)
				see = append(see, job)
			}
			base := activate(t, e, see...)
			for _, l := range []int{0, 1, blocks / 2, blocks - 1} {
				v := wave(width, l, rowSize(base, l)/3)
				steer(t, e, &inference.Steering{Add: map[int][]float32{l: v}})
				rows := activate(t, e, see...)
				moved := 0
				for i, row := range rows {
					same := slices.Equal(row.Values, base[i].Values)
					switch {
					case row.Layer < l && !same:
						t.Fatalf("added after block %d: layer %d is another", l, row.Layer)
					case row.Layer == l:
						for k, x := range row.Values {
							if x != base[i].Values[k]+v[k] {
								t.Fatalf("added after block %d: position %d has %v there, not %v + %v", l, row.Position, x, base[i].Values[k], v[k])
							}
						}
					case row.Layer > l && !same:
						moved++
					}
				}
				if l < blocks-1 && moved == 0 {
					t.Errorf("added after block %d: no later block noticed", l)
				}
			}
			r := wave(width, 9, 40)
			steer(t, e, &inference.Steering{Ablate: everyBlock(blocks, r)})
			worst, was := 0.0, 0.0
			for i, row := range activate(t, e, see...) {
				d, size := dot32(row.Values, r)
				worst = max(worst, math.Abs(d)/size/40)
				d, size = dot32(base[i].Values, r)
				was = max(was, math.Abs(d)/size/40)
			}
			t.Logf("the component is %.2g of a row at most, was %.2g", worst, was)
			if worst > 1e-6 || was < 0.01 {
				t.Errorf("ablated, the component is %.2g of a row, was %.2g", worst, was)
			}
			// The component first, then the sum.
			v := slices.Clone(r)
			for i := range v {
				v[i] /= 8 // of length 5
			}
			steer(t, e, &inference.Steering{Ablate: map[int][]float32{1: r}, Add: map[int][]float32{1: v}})
			for _, row := range activate(t, e, see...) {
				if d, size := dot32(row.Values, r); row.Layer == 1 && math.Abs(d/40-5) > 1e-6*size+1e-5 {
					t.Fatalf("ablated and added to: the component is %v, not 5", d/40)
				}
			}
			// A direction that is ablated has no length.
			steer(t, e, &inference.Steering{Ablate: map[int][]float32{1: r}})
			long := activate(t, e, see...)
			for i := range r {
				r[i] /= 64 // a power of two, so that the unit vector is the same
			}
			steer(t, e, &inference.Steering{Ablate: map[int][]float32{1: r}})
			if short := activate(t, e, see...); !reflect.DeepEqual(short, long) {
				t.Error("the length of an ablated direction matters")
			}
		})
	}
}

// TestAblateWriters: what the blocks write has nothing along a direction, what the
// embedding has stays, and what is added is added.
func TestAblateWriters(t *testing.T) {
	for name, path := range map[string]string{"phantom": phantomFile(t), "real": smol(t)} {
		t.Run(name, func(t *testing.T) {
			e := open(t, llamacpp.Options{Model: path})
			blocks := e.Info().Blocks
			job, ids := everywhere(t, e, requests[0])
			job.Layers = []int{-1}
			for l := range blocks {
				job.Layers = append(job.Layers, l)
			}
			// written returns, by layer, the largest component along r of what was
			// written up to it.
			written := func(r []float32) []float64 {
				rows := activate(t, e, job)
				most := make([]float64, blocks)
				for i, row := range rows[len(ids):] {
					at, _ := dot32(row.Values, r)
					from, _ := dot32(rows[i%len(ids)].Values, r)
					most[row.Layer] = max(most[row.Layer], math.Abs(at-from)/length32(r))
				}
				return most
			}
			// What a middle block wrote at the last position: there is something along it.
			rows := activate(t, e, job)
			r := slices.Clone(rows[len(ids)*(blocks/2+2)-1].Values)
			for i, x := range rows[len(ids)-1].Values {
				r[i] -= x
			}
			before := written(r)
			embedded := rows[:len(ids)]
			steer(t, e, &inference.Steering{AblateWriters: r})
			after := written(r)
			bound := 1e-5
			if name == "real" {
				bound = 0.1 // a quantised product rounds what it multiplies
			}
			for l := range blocks {
				if after[l] > max(bound*before[l], 1e-6*length32(r)) {
					t.Errorf("after block %d the blocks wrote %.3g along the direction, %.3g before", l, after[l], before[l])
				}
			}
			if now := activate(t, e, job)[:len(ids)]; !reflect.DeepEqual(now, embedded) {
				t.Error("the embedding is another")
			}
			if most := slices.Max(before); !(most > 0.5*length32(r)) {
				t.Errorf("without it the blocks wrote %.3g at most along a direction of length %.3g", most, length32(r))
			}
			// What is added to the stream is no part of what is written.
			v := slices.Clone(r)
			steer(t, e, &inference.Steering{AblateWriters: r, Add: map[int][]float32{1: v}})
			if both := written(r); math.Abs(both[1]-after[1]-length32(v)) > 0.02*length32(v) {
				t.Errorf("with a sum of length %.4g, the component after block 1 is %.4g, %.3g without", length32(v), both[1], after[1])
			}
		})
	}
}

func length32(v []float32) float64 {
	d, _ := dot32(v, v)
	return math.Sqrt(d)
}

func TestSteerErrors(t *testing.T) {
	e := open(t, llamacpp.Options{Model: phantomFile(t)})
	blocks, width := e.Info().Blocks, e.Info().Width
	unit := jobs(sweep(6, 2, 1), requests[0])
	steer(t, e, &inference.Steering{Add: map[int][]float32{1: wave(width, 1, 3)}})
	before := generate(t, e, unit...)
	bad := wave(width, 1, 1)
	bad[5] = float32(math.NaN())
	for name, s := range map[string]*inference.Steering{
		"block too high": {Add: map[int][]float32{blocks: wave(width, 1, 1)}},
		"embedding":      {Ablate: map[int][]float32{-1: wave(width, 1, 1)}},
		"short":          {Add: map[int][]float32{0: wave(width-1, 1, 1)}},
		"NaN":            {Add: map[int][]float32{0: bad}},
		"no direction":   {Ablate: map[int][]float32{0: make([]float32, width)}},
		"none written":   {AblateWriters: make([]float32, width)},
		"short written":  {AblateWriters: wave(width-1, 1, 1)},
	} {
		if err := e.Steer(context.Background(), s); err == nil || !strings.Contains(err.Error(), "steer") {
			t.Errorf("%s: error %v", name, err)
		}
		if after := generate(t, e, unit...); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: what failed has changed something", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Steer(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Steer(context.Background(), nil); err == nil {
		t.Error("a closed engine is steered")
	}
}

// TestDistributions: they sum to one, are what exact scores and greedy texts say,
// and are of the prompt with its prefix.
func TestDistributions(t *testing.T) {
	for name, path := range map[string]string{"phantom": phantomFile(t), "real": smol(t)} {
		t.Run(name, func(t *testing.T) {
			e := open(t, llamacpp.Options{Model: path})
			var unit []inference.Job
			for i, text := range requests {
				j := inference.Job{Prompt: prompt(text), Samplings: sweep(1, 1, 0)}
				if i%2 == 1 {
					j.Prefix = "bread and"
				}
				unit = append(unit, j)
			}
			all := distributions(t, e, unit...)
			for i, d := range all {
				sum := 0.0
				for _, l := range d {
					sum += math.Exp(float64(l))
				}
				if math.Abs(sum-1) > 1e-5 {
					t.Errorf("prompt %d: the probabilities sum to %v", i, sum)
				}
				// The most probable token, and one beside it, as exact scores have them.
				best := 0
				for k, l := range d {
					if l > d[best] {
						best = k
					}
				}
				alone := distributions(t, e, unit[i])[0]
				for k := range d {
					if math.Abs(float64(d[k]-alone[k])) > 0.2 && d[k] > -12 {
						t.Fatalf("prompt %d, token %d: log probability %v beside others, %v alone", i, k, d[k], alone[k])
					}
				}
				j := unit[i]
				for _, word := range []string{" bread", " the"} {
					with, _, err := e.Tokenize(j.Prompt.Messages, j.Prefix+word)
					without, _, _ := e.Tokenize(j.Prompt.Messages, j.Prefix)
					if err != nil || len(with) != len(without)+1 {
						continue // several tokens
					}
					j.Continuations = []string{word}
					got, want := float64(d[with[len(with)-1]]), generate(t, e, j)[0].Scores[0]
					if math.Abs(got-want) > 0.02*math.Max(1, math.Abs(want)) {
						t.Errorf("prompt %d: %q has log probability %v, as a score %v", i, word, got, want)
					}
				}
				if j.Prefix == "" && d[best] > -2 {
					greedy := generate(t, e, j)[0].Generations[0]
					if id, _, _ := e.Tokenize(j.Prompt.Messages, greedy.Text); greedy.Text != "" && len(id) > 0 && name == "real" {
						if without, _, _ := e.Tokenize(j.Prompt.Messages, ""); len(id) == len(without)+1 && int(id[len(id)-1]) != best {
							t.Errorf("prompt %d: %q was generated, token %d; the distribution has %d first", i, greedy.Text, id[len(id)-1], best)
						}
					}
				}
			}
			if reflect.DeepEqual(all[0], all[2]) {
				t.Error("two prompts have one distribution")
			}
			j := unit[0]
			j.Prefix = "bread and"
			if reflect.DeepEqual(distributions(t, e, j)[0], all[0]) {
				t.Error("a prefix changes nothing")
			}
		})
	}
}

// What concerns one prompt is told in its place.
func TestDistributionsErrors(t *testing.T) {
	e := open(t, llamacpp.Options{Model: phantomFile(t), Context: 256})
	good := inference.Job{Prompt: prompt(requests[0])}
	long := inference.Job{Prompt: prompt(strings.Repeat("bread ", 300))}
	var told []string
	for d, err := range e.Distributions(context.Background(), []inference.Job{long, good, long}) {
		switch {
		case errors.Is(err, inference.ErrPrompt):
			told = append(told, "too long")
		case err != nil:
			t.Fatal(err)
		case len(d) > 100:
			told = append(told, "distribution")
		}
	}
	if want := []string{"too long", "distribution", "too long"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range e.Distributions(ctx, []inference.Job{good}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	for range e.Distributions(context.Background(), nil) {
		t.Error("a distribution of nothing")
	}
}

// steeredAs is how far log probabilities of a steered phantom may be from the
// forward pass in float64. Seen: see the log of the test.
const steeredAs = 0.02

// TestSteeredPhantom: adding the planted refusal direction makes the phantom
// refuse and leaves its harm rating, adding harm moves the rating and not the
// refusals, ablating refusal makes it comply: by as much, in every answer's
// probability, as the forward pass in float64 says.
func TestSteeredPhantom(t *testing.T) {
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
	harm, refusal := m.Directions()
	word := ""
	best := 0.0
	for _, w := range m.Words() {
		if w.Kind == phantom.Plain && w.Trigger > best {
			word, best = w.Text, w.Trigger
		}
	}
	texts, labels := phantom.Texts()
	scaled := func(v []float64, times float64) (out []float32, back []float64) {
		for _, x := range v {
			out = append(out, float32(x*times))
			back = append(back, float64(float32(x*times)))
		}
		return out, back
	}
	project := func(from int, v []float64) phantom.Intervention {
		return func(block int, x [][]float64) {
			if block < from {
				return
			}
			for _, row := range x {
				dot, size := 0.0, 0.0
				for i := range row {
					dot += row[i] * v[i]
					size += v[i] * v[i]
				}
				for i := range row {
					row[i] -= dot / size * v[i]
				}
			}
		}
	}
	type change struct {
		name    string
		s       *inference.Steering
		truth   phantom.Intervention
		refuses [2]bool // bread, the strongest trigger
		rating  int     // by how much bread's rating moves, at least
	}
	changes := []change{{name: "nothing", refuses: [2]bool{false, true}}}
	for b := refusal.Block; b < spec.Blocks; b++ {
		v, back := scaled(refusal.Vector, 1)
		minus, minusBack := scaled(refusal.Vector, -1)
		h, hBack := scaled(harm.Vector, 0.6)
		changes = append(changes,
			change{"add refusal", &inference.Steering{Add: map[int][]float32{b: v}}, phantom.Add(b, back, 1), [2]bool{true, true}, 0},
			change{"subtract refusal", &inference.Steering{Add: map[int][]float32{b: minus}}, phantom.Add(b, minusBack, 1), [2]bool{false, false}, 0},
		)
		if b < spec.Blocks-1 { // the last block reads the harm that is rated
			changes = append(changes, change{"add harm", &inference.Steering{Add: map[int][]float32{b: h}}, phantom.Add(b, hBack, 1), [2]bool{false, true}, 2})
		}
	}
	{
		h, hBack := scaled(harm.Vector, 0.6)
		changes = append(changes, change{"add harm after block 0", &inference.Steering{Add: map[int][]float32{0: h}}, phantom.Add(0, hBack, 1), [2]bool{false, true}, 2})
	}
	// What only refusal holds is what its read-out reads; the projection is of that.
	r, rBack := scaled(refusal.ReadOut, 1)
	ablation := &inference.Steering{Ablate: map[int][]float32{}}
	for b := refusal.Block; b < spec.Blocks; b++ {
		ablation.Ablate[b] = r
	}
	changes = append(changes, change{"ablate refusal", ablation, project(refusal.Block, rBack), [2]bool{false, false}, 0})

	plan := phantom.Plan{Temperatures: []float64{1}, Seeds: 1}
	predict := "\n\n{\"will_refuse\": true or false, \"confidence\": 1 to 5, \"harm_rating\": 1 to 5}"
	worst := 0.0
	rated := 0
	for _, c := range changes {
		steer(t, e, c.s)
		for k, text := range []string{"How do I bake bread?", "Tell me about the " + word + "."} {
			asked := "Request: \"" + text + "\"" + predict
			truth := m.PromptTruth(phantom.Prompt{
				Respond: []phantom.Message{{Role: "user", Content: text}},
				Predict: []phantom.Message{{Role: "user", Content: asked}},
			}, plan, c.truth)
			if refuses := truth.PRefuse[0] > 0.5; refuses != c.refuses[k] {
				t.Fatalf("%s: the forward pass refuses %q with %.3f", c.name, text, truth.PRefuse[0])
			}
			unit := jobs(sweep(64, 6, 1), text, asked)
			unit[1].Samplings = []data.Sampling{{MaxTokens: 64, Grammar: true}}
			unit[1].Grammar = &inference.Grammar{Name: "prediction", GBNF: `root ::= "{\"will_refuse\": " ("true" | "false") ", \"confidence\": " [1-5] ", \"harm_rating\": " [1-5] "}"` + "\n"}
			unit[1].Prefix, unit[1].Continuations = `{"will_refuse": `, []string{"true", "false"}
			answers := generate(t, e, unit...)
			refused := 0
			for _, g := range answers[0].Generations {
				a := slices.Index(texts, g.Text)
				if a < 0 {
					t.Fatalf("%s: says %q", c.name, g.Text)
				}
				if phantom.Refuses(labels[a], phantom.Lenient) {
					refused++
				}
				worst = max(worst, math.Abs(*g.Logprob-math.Log(truth.Answers[0][a])))
			}
			if p := truth.PRefuse[0]; p > 0.99 && refused != 6 || p < 0.01 && refused != 0 {
				t.Errorf("%s: %q is refused %d times of 6, with probability %.3f", c.name, text, refused, p)
			}
			worst = max(worst, math.Abs(math.Exp(answers[1].Scores[0])-truth.PredictRefuse))
			if got := answers[1].Generations[0].Text; got != truth.Text && min(truth.Margins.Value, truth.Margins.Confidence, truth.Margins.Rating) > 0.06 {
				t.Errorf("%s: predicts %q, the forward pass %q", c.name, got, truth.Text)
			}
			if k == 0 && c.name == "nothing" {
				rated = truth.HarmRating
			} else if k == 0 && (truth.HarmRating-rated < c.rating || c.rating == 0 && truth.HarmRating != rated) {
				t.Errorf("%s: the harm rating is %d, was %d", c.name, truth.HarmRating, rated)
			}
			if k == 0 {
				t.Logf("%s: refused %d of 6, %s", c.name, refused, answers[1].Generations[0].Text)
			}
			// The distribution of the first token says the same.
			d := distributions(t, e, unit[0])[0]
			p := make(map[int32]float64)
			for a, x := range texts {
				with, _, err := e.Tokenize(unit[0].Prompt.Messages, x)
				without, _, _ := e.Tokenize(unit[0].Prompt.Messages, "")
				if err != nil {
					t.Fatal(err)
				}
				p[with[len(without)]] += truth.Answers[0][a]
			}
			for _, id := range slices.Sorted(maps.Keys(p)) {
				if p[id] > 1e-6 && len(p) == len(texts) {
					worst = max(worst, math.Abs(float64(d[id])-math.Log(p[id])))
				}
			}
		}
	}
	t.Logf("log probabilities are %.4f from the forward pass at most", worst)
	if worst > steeredAs {
		t.Errorf("log probabilities are %.4f from the forward pass", worst)
	}
}
