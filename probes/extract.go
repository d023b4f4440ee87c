package probes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"strings"

	"demur/data"
	"demur/inference"
)

// An Engine shows its residual stream, and its tokens.
type Engine interface {
	inference.Activator
	inference.Tokenizer
}

// ExtractOptions say what of each prompt is kept. The zero value takes all
// blocks at inst and post.
type ExtractOptions struct {
	Layers []int // as in inference.ActivateJob; −1 is the token embedding
	// Anchors are names: inst, post, post-2 …, mean, end, or all for inst, every
	// template token after the request, end, and mean. Nil means inst and post.
	Anchors []string
	// Prefix is the forced start of a prompt's answer, such as its reasoning, whose
	// last token is End. Nil, and the empty string, mean none.
	Prefix func(data.Prompt) string
	Batch  int // prompts a call of the engine; 0 means 16
	// Store, if not nil, keeps the rows of each batch, so that an extraction that
	// was stopped goes on: batches that it has are not evaluated again.
	Store Store
	// Tokens, if not nil, is called with the tokens of each prompt that is anchored,
	// in the order of the prompts.
	Tokens func(data.PromptTokens)
	// Progress, if not nil, is told how many of the prompts are done.
	Progress func(done, of int)
	// Report, if not nil, is filled in while the rows are read, and complete when
	// the sequence has ended.
	Report *ExtractReport
}

// A Store keeps the rows of batches by what they were made of. What it is given
// back must be what it was given: the engine and its settings are not in the key.
type Store interface {
	// Load returns the rows of a batch; ok is false if it has none.
	Load(key any) (rows []data.Activation, ok bool, err error)
	Save(key any, rows []data.Activation) error
}

// An ExtractReport says what was seen in activations that should not be there.
// Nothing of it is repaired; rows with NaN or infinities are left out, since a
// table cannot hold them.
type ExtractReport struct {
	Prompts int `json:"prompts"`
	Rows    int `json:"rows"`
	Resumed int `json:"resumed,omitempty"` // of the rows, that the store had already
	Width   int `json:"width"`
	// Unanchored are prompts that have no rows because the request cannot be told
	// from the template, and Failed those that the engine cannot evaluate, with the
	// reason.
	Unanchored []Finding `json:"unanchored,omitempty"`
	Failed     []Finding `json:"failed,omitempty"`
	// Anchors are those of the first prompt, so that a reader can see which tokens
	// were taken.
	Anchors []Anchor `json:"anchors,omitempty"`

	NaN       []Finding `json:"nan,omitempty"`       // not yielded
	Infinite  []Finding `json:"infinite,omitempty"`  // not yielded
	Zero      []Finding `json:"zero,omitempty"`      // all values 0
	Duplicate []Finding `json:"duplicate,omitempty"` // equal, bit for bit, to another prompt's at the same site; blocks only
	Outlier   []Finding `json:"outlier,omitempty"`   // norm more than ten times the median of its site
	// Massive are coordinates whose root mean square at a site is more than
	// twenty times the median coordinate's: they rule every uncentred cosine.
	Massive []Massive `json:"massive,omitempty"`
}

// A Finding is a prompt at a site.
type Finding struct {
	PromptID string `json:"prompt_id"`
	Layer    int    `json:"layer"`
	Anchor   string `json:"anchor,omitempty"`
	What     string `json:"what,omitempty"`
}

// Massive is a coordinate that is much larger than the others.
type Massive struct {
	Layer      int     `json:"layer"`
	Anchor     string  `json:"anchor"`
	Coordinate int     `json:"coordinate"`
	Ratio      float64 `json:"ratio"` // of its root mean square to the median coordinate's
	Share      float64 `json:"share"` // of the sum of squares
}

const (
	outlierNorm  = 10 // times the median norm of a site
	massiveRatio = 20 // times the median coordinate
)

// Extract yields the activations of prompts at anchors: by prompt, layer and
// anchor, in the order asked. A prompt that cannot be anchored is reported and
// has no rows; if none can, that is an error. A row's Anchor is the name by
// which it was asked for, its Position that of this very prompt.
func Extract(ctx context.Context, engine Engine, prompts []data.Prompt, o ExtractOptions) iter.Seq2[data.Activation, error] {
	return func(yield func(data.Activation, error) bool) {
		report := o.Report
		if report == nil {
			report = new(ExtractReport)
		}
		*report = ExtractReport{Prompts: len(prompts)}
		if len(o.Anchors) == 0 {
			o.Anchors = []string{Inst, Post}
		}
		x := extraction{ctx: ctx, engine: engine, o: o, audit: newAudit(report), locator: locator{tokenizer: engine}}
		batch := o.Batch
		if batch < 1 {
			batch = 16
		}
		anchored, done := 0, 0
		for part := range slices.Chunk(prompts, batch) {
			n, more, err := x.batch(part, yield)
			anchored += n
			if err != nil {
				yield(data.Activation{}, err)
				return
			}
			if !more {
				return
			}
			if done += len(part); o.Progress != nil {
				o.Progress(done, len(prompts))
			}
		}
		if anchored == 0 && len(prompts) > 0 {
			f := report.Unanchored[0]
			yield(data.Activation{}, fmt.Errorf("none of %d prompts could be anchored; the first, %.8s: %s", len(prompts), f.PromptID, f.What))
			return
		}
		if n := len(report.Failed); n == anchored && n > 0 {
			f := report.Failed[0]
			yield(data.Activation{}, fmt.Errorf("none of %d prompts could be evaluated; the first, %.8s: %s", n, f.PromptID, f.What))
			return
		}
		x.audit.finish()
	}
}

type extraction struct {
	ctx     context.Context
	engine  Engine
	o       ExtractOptions
	audit   *audit
	locator locator
}

// wanted are the anchors of one prompt that were asked for, and whether their
// mean is.
type wanted struct {
	prompt    data.Prompt
	prefix    string
	anchors   []Anchor // in the order asked; the mean has position 0
	positions []int    // what the engine is asked for
	request   int      // tokens of the request, the first of positions, if the mean is wanted
	tokens    data.PromptTokens
}

func (x *extraction) batch(prompts []data.Prompt, yield func(data.Activation, error) bool) (anchored int, more bool, err error) {
	var jobs []inference.ActivateJob
	var wants []wanted
	for _, p := range prompts {
		w, err := x.want(p)
		if err != nil {
			if x.ctx.Err() != nil {
				return 0, false, x.ctx.Err()
			}
			x.audit.report.Unanchored = append(x.audit.report.Unanchored, Finding{PromptID: p.ID, What: err.Error()})
			continue
		}
		if len(x.audit.report.Anchors) == 0 {
			x.audit.report.Anchors = slices.Clone(w.anchors)
		}
		if x.o.Tokens != nil {
			x.o.Tokens(w.tokens)
		}
		wants = append(wants, w)
		jobs = append(jobs, inference.ActivateJob{Prompt: p, Prefix: w.prefix, Positions: w.positions, Layers: x.o.Layers})
	}
	if len(jobs) == 0 {
		return 0, true, nil
	}
	if x.o.Store == nil {
		more, err := x.evaluate(jobs, wants, yield)
		return len(wants), more, err
	}
	key := batchKey{Jobs: jobs}
	for _, w := range wants {
		key.Anchors = append(key.Anchors, w.anchors)
	}
	rows, ok, err := x.o.Store.Load(key)
	if err != nil {
		return 0, false, err
	}
	if ok {
		x.audit.report.Resumed += len(rows)
		more, err := x.restore(rows, yield)
		return len(wants), more, err
	}
	lost := x.audit.report.lost()
	more, err = x.evaluate(jobs, wants, func(row data.Activation, err error) bool {
		rows = append(rows, row)
		return yield(row, err)
	})
	// A batch with prompts that fail or rows that were left out is evaluated again,
	// so that the report has them.
	if err == nil && more && x.audit.report.lost() == lost {
		err = x.o.Store.Save(key, rows)
	}
	return len(wants), more, err
}

// A batchKey is all of a batch that its rows depend on, but for the engine.
type batchKey struct {
	Jobs    []inference.ActivateJob `json:"jobs"`
	Anchors [][]Anchor              `json:"anchors"`
}

// restore yields rows that a store had.
func (x *extraction) restore(rows []data.Activation, yield func(data.Activation, error) bool) (more bool, err error) {
	for _, row := range rows {
		good, err := x.audit.see(row)
		if err != nil {
			return false, err
		}
		if good && !yield(row, nil) {
			return false, nil
		}
	}
	return true, x.ctx.Err()
}

// evaluate yields the rows of a batch as the engine makes them.
func (x *extraction) evaluate(jobs []inference.ActivateJob, wants []wanted, yield func(data.Activation, error) bool) (more bool, err error) {
	next, stop := iter.Pull2(x.engine.Activate(x.ctx, jobs))
	defer stop()
	row, err, ok := next()
	for _, w := range wants {
		if ok && errors.Is(err, inference.ErrPrompt) && row.PromptID == w.prompt.ID {
			x.audit.report.Failed = append(x.audit.report.Failed, Finding{PromptID: w.prompt.ID, What: err.Error()})
			row, err, ok = next()
			continue
		}
		for ok && err == nil && row.PromptID == w.prompt.ID {
			layer := row.Layer
			group := make(map[int]data.Activation, len(w.positions))
			for ok && err == nil && row.PromptID == w.prompt.ID && row.Layer == layer {
				if _, twice := group[row.Position]; twice {
					return false, fmt.Errorf("activations of prompt %.8s: layer %d, position %d came twice", w.prompt.ID, layer, row.Position)
				}
				group[row.Position] = row
				row, err, ok = next()
			}
			if err == nil || errors.Is(err, inference.ErrPrompt) && row.PromptID != w.prompt.ID {
				more, err := x.layer(w, layer, group, yield)
				if err != nil || !more {
					return false, err
				}
			}
		}
		if err != nil && !(errors.Is(err, inference.ErrPrompt) && row.PromptID != w.prompt.ID) {
			return false, fmt.Errorf("activations of prompt %.8s: %w", w.prompt.ID, err)
		}
	}
	if ok {
		return false, errors.Join(fmt.Errorf("activations: the engine gave rows of prompt %.8s out of order", row.PromptID), err)
	}
	return true, nil
}

// want resolves the anchors of a prompt.
func (x *extraction) want(p data.Prompt) (wanted, error) {
	w := wanted{prompt: p}
	if x.o.Prefix != nil {
		w.prefix = x.o.Prefix(p)
	}
	l, err := x.locator.locate(p.Messages, w.prefix)
	if err != nil {
		return wanted{}, err
	}
	w.tokens = data.PromptTokens{PromptID: p.ID, Tokens: l.ids, Texts: make([]string, len(l.pieces))}
	for i, piece := range l.pieces {
		w.tokens.Texts[i] = strings.ToValidUTF8(piece, "\uFFFD")
	}
	add := func(a Anchor) { w.anchors = append(w.anchors, a) }
	mean := Anchor{Name: Mean, Token: -1}
	for _, name := range x.o.Anchors {
		switch name {
		case "all":
			for _, a := range l.Anchors {
				add(a)
			}
			add(mean)
		case Mean:
			add(mean)
		default:
			a, ok := l.Anchor(name)
			if !ok {
				return wanted{}, fmt.Errorf("there is no anchor %q in its template; there are %s", name, l.names())
			}
			add(a)
		}
	}
	if slices.ContainsFunc(w.anchors, func(a Anchor) bool { return a.Name == Mean }) {
		if l.First == 0 {
			return wanted{}, fmt.Errorf("%w: its first token merges with what stands before it, so it has no %s", errNoAnchor, Mean)
		}
		for i := l.First; i <= l.Last; i++ {
			w.positions = append(w.positions, i)
		}
		w.request = len(w.positions)
	}
	for _, a := range w.anchors {
		if a.Name != Mean && !slices.Contains(w.positions, a.Position) {
			w.positions = append(w.positions, a.Position)
		}
	}
	return w, nil
}

func (l Layout) names() string {
	s := ""
	for _, a := range l.Anchors {
		s += a.Name + ", "
	}
	return s + "mean, all"
}

// layer yields the rows of one prompt at one layer.
func (x *extraction) layer(w wanted, layer int, group map[int]data.Activation, yield func(data.Activation, error) bool) (more bool, err error) {
	for _, p := range w.positions {
		if _, ok := group[p]; !ok {
			return false, fmt.Errorf("activations of prompt %.8s: layer %d, position %d did not come", w.prompt.ID, layer, p)
		}
	}
	for _, a := range w.anchors {
		row := data.Activation{PromptID: w.prompt.ID, Layer: layer, Anchor: a.Name, Position: a.Position, Token: a.Token}
		if a.Name == Mean {
			row.Values = mean(w.positions[:w.request], group)
		} else {
			got := group[a.Position]
			if got.Token != a.Token {
				return false, fmt.Errorf("activations of prompt %.8s: token %d at position %d, where %s is %d: the engine evaluated another prompt than it tokenised", w.prompt.ID, got.Token, a.Position, a.Name, a.Token)
			}
			row.Values = got.Values
		}
		good, err := x.audit.see(row)
		if err != nil {
			return false, err
		}
		if good && !yield(row, nil) {
			return false, nil
		}
	}
	return true, nil
}

func mean(positions []int, group map[int]data.Activation) []float32 {
	sum := make([]float64, len(group[positions[0]].Values))
	for _, p := range positions {
		for i, v := range group[p].Values {
			if i < len(sum) {
				sum[i] += float64(v)
			}
		}
	}
	out := make([]float32, len(sum))
	for i, s := range sum {
		out[i] = float32(s / float64(len(positions)))
	}
	return out
}

// An audit looks at every row on its way.
type audit struct {
	report *ExtractReport
	seed   maphash.Seed
	sites  map[Site]*siteAudit
	order  []Site
}

type siteAudit struct {
	seen    map[uint64]string // hash of the values: prompt
	prompts []string
	norms   []float64
	squares []float64 // by coordinate
}

func newAudit(r *ExtractReport) *audit {
	return &audit{report: r, seed: maphash.MakeSeed(), sites: make(map[Site]*siteAudit)}
}

// see reports whether a row can be kept.
func (a *audit) see(row data.Activation) (bool, error) {
	r := a.report
	if r.Width == 0 {
		r.Width = len(row.Values)
	}
	if len(row.Values) != r.Width || r.Width == 0 {
		return false, fmt.Errorf("activations of prompt %.8s: layer %d has width %d, others %d", row.PromptID, row.Layer, len(row.Values), r.Width)
	}
	found := Finding{PromptID: row.PromptID, Layer: row.Layer, Anchor: row.Anchor}
	var h maphash.Hash
	h.SetSeed(a.seed)
	var sum float64
	infinite := false
	var b [4]byte
	for _, v := range row.Values {
		f := float64(v)
		if f != f {
			r.NaN = append(r.NaN, found)
			return false, nil
		}
		infinite = infinite || math.IsInf(f, 0)
		sum += f * f
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		h.Write(b[:])
	}
	if infinite {
		r.Infinite = append(r.Infinite, found)
		return false, nil
	}
	r.Rows++
	site := Site{row.Layer, row.Anchor}
	s := a.sites[site]
	if s == nil {
		s = &siteAudit{seen: make(map[uint64]string), squares: make([]float64, r.Width)}
		a.sites[site] = s
		a.order = append(a.order, site)
	}
	if sum == 0 {
		r.Zero = append(r.Zero, found)
	} else if first, ok := s.seen[h.Sum64()]; ok && first != row.PromptID && row.Layer >= 0 {
		found.What = fmt.Sprintf("equal to that of prompt %.8s", first)
		r.Duplicate = append(r.Duplicate, found)
	} else {
		s.seen[h.Sum64()] = row.PromptID
	}
	s.prompts = append(s.prompts, row.PromptID)
	s.norms = append(s.norms, math.Sqrt(sum))
	for i, v := range row.Values {
		s.squares[i] += float64(v) * float64(v)
	}
	return true, nil
}

func (a *audit) finish() {
	r := a.report
	for _, site := range a.order {
		s := a.sites[site]
		mid := median(s.norms)
		for i, n := range s.norms {
			if mid > 0 && n > outlierNorm*mid {
				r.Outlier = append(r.Outlier, Finding{PromptID: s.prompts[i], Layer: site.Layer, Anchor: site.Anchor, What: fmt.Sprintf("norm %.3g, the median is %.3g", n, mid)})
			}
		}
		mid = median(s.squares)
		var total float64
		for _, v := range s.squares {
			total += v
		}
		for i, v := range s.squares {
			if mid > 0 && v > massiveRatio*massiveRatio*mid {
				r.Massive = append(r.Massive, Massive{Layer: site.Layer, Anchor: site.Anchor, Coordinate: i, Ratio: math.Sqrt(v / mid), Share: v / total})
			}
		}
	}
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// lost counts what has no rows and should have.
func (r *ExtractReport) lost() int { return len(r.Failed) + len(r.NaN) + len(r.Infinite) }

// Err returns an error if rows had to be left out, nil else.
func (r *ExtractReport) Err() error {
	var errs []error
	for _, c := range []struct {
		what  string
		found []Finding
	}{{"NaN", r.NaN}, {"infinite values", r.Infinite}} {
		if len(c.found) > 0 {
			f := c.found[0]
			errs = append(errs, fmt.Errorf("%d activations hold %s, the first at layer %d, %s, prompt %.8s", len(c.found), c.what, f.Layer, f.Anchor, f.PromptID))
		}
	}
	return errors.Join(errs...)
}
