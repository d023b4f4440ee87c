package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"slices"

	"demur/data"
	"demur/inference"
)

const (
	toyBlocks = 3
	toyWidth  = 8
	toyTokens = 12
)

// streamed is a scripted engine with a small residual stream beside it: one block
// after the other adds a fixed function of what came before. What it answers
// depends on the stream's end where that was changed. Its fields are ways to be
// wrong.
type streamed struct {
	*wrong
	now *inference.Steering

	forgetsEnd   bool // goes on after nil
	zeros        bool // is another for zeros
	textsAsWere  bool
	nextAsWas    bool
	late         bool // shows the stream before it is changed
	early        bool // changes the block before, too
	deaf         bool // later blocks do not read what was written
	addsFirst    bool
	long         bool // takes a direction's length along
	sums         bool // adds to the steering before
	unchecked    bool
	failsChanged bool // a steering that fails ends the one before
	borrows      bool // keeps the caller's vectors
	cached       map[string][]float32

	unnormal, position, ignoresPrefix, ownsSlices, stopsAtLong bool
}

func (x *streamed) on(w *wrong) *streamed {
	x.wrong = w
	w.jobs = func(jobs []inference.Job) []inference.Job {
		for i := range jobs {
			if x.now == nil || x.textsAsWere {
				continue
			}
			rows := x.stream(jobs[i].Prompt, "", -1)
			plain := (&streamed{}).stream(jobs[i].Prompt, "", -1)
			if last := rows[toyBlocks-1]; !slices.Equal(last, plain[toyBlocks-1]) {
				m := slices.Clone(jobs[i].Prompt.Messages)
				jobs[i].Prompt.Messages = append(m, data.Message{Role: "user", Content: fmt.Sprint(last)})
			}
		}
		return jobs
	}
	w.answers = func(jobs []inference.Job, a []inference.Answer) []inference.Answer {
		for i := range a { // of the prompt as it was asked
			rendered, tokens := render(jobs[i].Prompt.Messages)
			sum := sha256.Sum256([]byte(rendered))
			a[i].RenderedSHA256, a[i].PromptTokens = hex.EncodeToString(sum[:]), tokens
		}
		return a
	}
	return x
}

func (x *streamed) Info() inference.Info {
	i := x.wrong.Info()
	i.Blocks, i.Width = toyBlocks, toyWidth
	return i
}

// stream returns the stream after each block at a position.
func (x *streamed) stream(p data.Prompt, prefix string, position int) [][]float32 {
	h := fnv.New64a()
	fmt.Fprint(h, p.Messages, prefix, position)
	key := h.Sum64()
	row := make([]float32, toyWidth)
	for i := range row {
		row[i] = float32(unit(mix(key, uint64(i)))) + 0.5
	}
	var out [][]float32
	for l := range toyBlocks {
		next := slices.Clone(row)
		for i := range row {
			next[i] += float32(math.Sin(float64(3 * row[(i+l+1)%toyWidth])))
		}
		shown := slices.Clone(next)
		x.change(l, next)
		if x.early && l+1 < toyBlocks {
			x.change(l+1, next)
		}
		if !x.late {
			shown = slices.Clone(next)
		}
		out = append(out, shown)
		row = next
		if x.deaf {
			row = make([]float32, toyWidth)
			copy(row, (&streamed{}).streamTo(p, prefix, position, l))
		}
	}
	return out
}

func (x *streamed) streamTo(p data.Prompt, prefix string, position, l int) []float32 {
	return x.stream(p, prefix, position)[l]
}

func (x *streamed) change(l int, row []float32) {
	if x.now == nil {
		return
	}
	add := func() {
		for i, v := range x.now.Add[l] {
			row[i] += v
		}
		if x.zeros && len(x.now.Add[l]) > 0 {
			row[0] += 0.01
		}
	}
	if x.addsFirst {
		add()
	}
	if r := x.now.Ablate[l]; len(r) == len(row) { // else it was not checked
		dot, length := 0.0, 0.0
		for i := range row {
			dot += float64(row[i]) * float64(r[i])
			length += float64(r[i]) * float64(r[i])
		}
		if x.long {
			length = 1
		}
		for i := range row {
			row[i] -= float32(dot / length * float64(r[i]))
		}
	}
	if !x.addsFirst {
		add()
	}
}

func (x *streamed) Steer(ctx context.Context, s *inference.Steering) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Check(toyBlocks, toyWidth); err != nil && !x.unchecked {
		if x.failsChanged {
			x.now = nil
		}
		return err
	}
	if s.Empty() {
		if !x.forgetsEnd {
			x.now = nil
		}
		return nil
	}
	if x.borrows {
		x.now = s
		return nil
	}
	c := &inference.Steering{Add: map[int][]float32{}, Ablate: map[int][]float32{}}
	if x.sums && x.now != nil {
		c = x.now
	}
	for l, v := range s.Add {
		c.Add[l] = slices.Clone(v)
	}
	for l, v := range s.Ablate {
		c.Ablate[l] = slices.Clone(v)
	}
	x.now = c
	return nil
}

func (x *streamed) Activate(ctx context.Context, jobs []inference.ActivateJob) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		for _, j := range jobs {
			for l := range toyBlocks {
				for _, p := range j.Positions {
					if !yield(data.Activation{PromptID: j.Prompt.ID, Layer: l, Position: p, Values: x.stream(j.Prompt, j.Prefix, p)[l]}, ctx.Err()) {
						return
					}
				}
			}
		}
	}
}

func (x *streamed) Distributions(ctx context.Context, jobs []inference.Job) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		for k, j := range jobs {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if _, n := render(j.Prompt.Messages); n > x.script.context() {
				err := fmt.Errorf("%w: too long", inference.ErrPrompt)
				if x.stopsAtLong {
					err = fmt.Errorf("too long")
				}
				if !yield(nil, err) || x.stopsAtLong {
					return
				}
				continue
			}
			prefix := j.Prefix
			if x.ignoresPrefix {
				prefix = ""
			}
			y := x
			if x.nextAsWas {
				y = &streamed{}
			}
			last := y.stream(j.Prompt, prefix, -1)[toyBlocks-1]
			next, sum := make([]float32, toyTokens), 0.0
			for i := range next {
				for c, v := range last {
					next[i] += v * float32(math.Cos(float64(i*c+1)))
				}
				if x.position {
					next[i] += float32(5 * k * (i % 2))
				}
				sum += math.Exp(float64(next[i]))
			}
			for i := range next {
				if !x.unnormal {
					next[i] -= float32(math.Log(sum))
				}
			}
			if x.ownsSlices {
				if x.cached == nil {
					x.cached = map[string][]float32{}
				}
				if c, ok := x.cached[j.Prompt.ID+prefix]; ok {
					next = c
				}
				x.cached[j.Prompt.ID+prefix] = next
			}
			if !yield(next, nil) {
				return
			}
		}
	}
}

// wrongStreams are the ways to be wrong of an engine that is steered.
func wrongStreams() map[string]struct {
	make func() *streamed
	by   string
} {
	type w = struct {
		make func() *streamed
		by   string
	}
	return map[string]w{
		"stays steered":                     {func() *streamed { return &streamed{forgetsEnd: true} }, "steering"},
		"is changed by zeros":               {func() *streamed { return &streamed{zeros: true} }, "steering"},
		"steers no text":                    {func() *streamed { return &streamed{textsAsWere: true} }, "steering"},
		"steers no distribution":            {func() *streamed { return &streamed{nextAsWas: true} }, "steering"},
		"shows the stream before":           {func() *streamed { return &streamed{late: true} }, "steering"},
		"is one block off":                  {func() *streamed { return &streamed{early: true} }, "steering"},
		"does not read what it wrote":       {func() *streamed { return &streamed{deaf: true} }, "steering"},
		"adds before it ablates":            {func() *streamed { return &streamed{addsFirst: true} }, "steering"},
		"ablates by the direction's length": {func() *streamed { return &streamed{long: true} }, "steering"},
		"sums steerings up":                 {func() *streamed { return &streamed{sums: true} }, "steering"},
		"takes any steering":                {func() *streamed { return &streamed{unchecked: true} }, "steering"},
		"is unsteered by a failure":         {func() *streamed { return &streamed{failsChanged: true} }, "steering"},
		"keeps the caller's vectors":        {func() *streamed { return &streamed{borrows: true} }, "steering"},
		"gives logits":                      {func() *streamed { return &streamed{unnormal: true} }, "distributions"},
		"mixes prompts up":                  {func() *streamed { return &streamed{position: true} }, "distributions"},
		"forgets the prefix":                {func() *streamed { return &streamed{ignoresPrefix: true} }, "distributions"},
		"hands out its own slices":          {func() *streamed { return &streamed{ownsSlices: true} }, "distributions"},
		"ends at a prompt that is too long": {func() *streamed { return &streamed{stopsAtLong: true} }, "distributions"},
	}
}
