package llamacpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"demur/data"
	"demur/inference"
)

// A continuation is one sampling of a job, or one text whose probability a job
// asks for. It is a list of tokens that grows.
type continuation struct {
	sampling *data.Sampling // nil for a scored text
	score    int            // index of a scored text
	grammar  bool

	// forced are tokens that are given and not drawn: all of a scored text; for a
	// sampling what had to be cut off the end of the prompt, usually nothing.
	forced   []llama.Token
	from     int // the first forced token whose probability counts
	at       int // forced tokens done
	key      uniforms
	out      []llama.Token
	logprob  float64
	stop     string
	err      error
	next     llama.Token // the decision of this step
	finished bool
}

// A jobRun is a job while its unit runs.
type jobRun struct {
	job      *inference.Job
	answer   inference.Answer
	rendered rendering
	root     []llama.Token // the prompt as far as all continuations agree
	cut      int           // how much of root is a shared prefix
	all      []*continuation
	starts   [][]*continuation // what begins as one row
	left     int               // continuations to come
}

// A row is a node of a job's tree: the continuations that have produced the same
// tokens so far, and their stream.
type row struct {
	job     *jobRun
	members []*continuation
	stream  int
	pos     int         // tokens in the stream
	token   llama.Token // to be decoded next
	grammar *grammar    // state of the grammar after these tokens; nil without
	logits  []float32   // after the last decode
	state   []byte      // of a parked row
}

// A unit is a unit while it runs.
type unit struct {
	e      *Engine
	ctx    context.Context
	a      *arena
	width  int // streams that may be used
	jobs   []*jobRun
	queue  []*start // to be begun
	rows   []*row   // by stream
	parked []*row   // forks that found no stream, oldest first
}

// A start is a row that is not begun yet.
type start struct {
	job     *jobRun
	members []*continuation
	room    int // rows that it may soon need
}

var errClosed = errors.New("the engine is closed")

// Generate runs one unit. See package comment.
func (e *Engine) Generate(ctx context.Context, jobs []inference.Job) iter.Seq2[inference.Answer, error] {
	return func(yield func(inference.Answer, error) bool) {
		if e.closed {
			yield(inference.Answer{}, errClosed)
			return
		}
		if err := ctx.Err(); err != nil {
			yield(inference.Answer{}, err)
			return
		}
		begun := time.Now()
		u := &unit{e: e, ctx: ctx}
		defer u.free()
		given := 0
		give := func() bool {
			for given < len(u.jobs) && u.jobs[given].left == 0 {
				e.times.Total += time.Since(begun)
				ok := yield(u.jobs[given].finish(e), nil)
				begun = time.Now()
				if given++; !ok {
					return false
				}
			}
			return true
		}
		err := u.prepare(jobs)
		for err == nil {
			if !give() {
				return
			}
			if given == len(u.jobs) {
				break
			}
			if err = ctx.Err(); err == nil {
				err = u.step()
			}
		}
		e.times.Total += time.Since(begun)
		if err != nil {
			yield(inference.Answer{}, err)
		}
	}
}

// prepare renders and tokenises all prompts, chooses what they share, and
// evaluates that.
func (u *unit) prepare(jobs []inference.Job) error {
	e := u.e
	cells := 1
	for i := range jobs {
		j := e.newJobRun(&jobs[i])
		u.jobs = append(u.jobs, j)
		for _, c := range j.all {
			if !c.finished {
				n := len(j.root) + len(c.forced)
				if c.sampling != nil {
					n += c.sampling.MaxTokens
				}
				cells = max(cells, n)
			}
		}
	}
	if !slices.ContainsFunc(u.jobs, func(j *jobRun) bool { return j.left > 0 }) {
		return nil
	}
	cells = (cells + cellPad - 1) / cellPad * cellPad
	u.width = e.rowsFor(cells)
	if err := e.makeArena(u.width, cells); err != nil {
		return err
	}
	u.a = e.arena
	e.setThreads(u.a, e.threadsFor(), cells, true)
	// Every unit begins with an empty memory: where cells lie changes bits.
	if err := u.a.clear(); err != nil {
		return err
	}
	e.choosePrefixes(u.jobs)
	for _, j := range u.jobs {
		if j.left > 0 && j.cut > 0 {
			if _, err := e.prefix(j.root[:j.cut]); err != nil {
				return err
			}
		}
		for _, s := range j.starts {
			u.queue = append(u.queue, &start{job: j, members: s, room: room(s)})
		}
	}
	// Wide jobs first: a narrow one that is begun last would run alone for as long
	// as its answer is.
	slices.SortStableFunc(u.queue, func(x, y *start) int { return cmp.Compare(y.room, x.room) })
	return nil
}

// newJobRun renders a job and makes its continuations. What cannot be run is
// finished at once, with its error.
func (e *Engine) newJobRun(job *inference.Job) *jobRun {
	j := &jobRun{job: job}
	j.answer.PromptID = job.Prompt.ID
	fail := func(c *continuation, kind string, err error) {
		c.finished, c.stop, c.err = true, kind, err
	}
	for i := range job.Samplings {
		s := &job.Samplings[i]
		c := &continuation{sampling: s, grammar: s.Grammar, key: newUniforms(*s, job.Prompt.ID)}
		j.all = append(j.all, c)
	}
	r, err := e.vocab.rendered(e.template, job.Prompt.Messages)
	if err != nil {
		for _, c := range j.all {
			fail(c, data.ErrRender, err)
		}
		return j
	}
	j.rendered = r
	j.answer.RenderedSHA256 = hexDigest(r.text)
	j.answer.PromptTokens = len(r.tokens)
	j.root = r.tokens
	texts, from, err := e.scoredTexts(job, r)
	if err != nil {
		texts = nil // no scores; the samplings do not need them
	}
	for _, t := range texts {
		if len(t) > e.o.Context {
			texts = nil
			break
		}
	}
	for _, t := range texts {
		j.root = j.root[:common(j.root, t)]
	}
	// The last token of root gives the logits of the first step.
	for i, c := range j.all {
		c.forced = r.tokens[len(j.root):]
		c.from = len(c.forced)
		s := job.Samplings[i]
		switch err := s.Validate(); {
		case err != nil:
			fail(c, data.ErrEngine, err)
		case len(r.tokens)+s.MaxTokens > e.o.Context:
			fail(c, data.ErrOverflow, fmt.Errorf("the prompt has %d tokens and the answer may have %d, together more than the context of %d; raise --ctx or lower --max-tokens", len(r.tokens), s.MaxTokens, e.o.Context))
		case s.Grammar && job.Grammar == nil:
			fail(c, data.ErrEngine, errors.New("the sampling is to be bound by a grammar, but the job has none"))
		}
	}
	for i, t := range texts {
		c := &continuation{score: i, forced: t[len(j.root):], from: from - len(j.root)}
		// An empty continuation, or one that says no more than the prefix, is certain.
		c.finished = len(c.forced) <= c.from
		j.all = append(j.all, c)
	}
	var bound, free, alone []*continuation
	for _, c := range j.all {
		switch {
		case c.finished:
			continue
		case c.grammar:
			bound = append(bound, c)
		default:
			free = append(free, c)
		}
		j.left++
	}
	if len(bound) > 0 {
		g, err := e.newGrammar(job.Grammar)
		if err != nil {
			for _, c := range bound {
				fail(c, data.ErrEngine, err)
				j.left--
			}
			bound = nil
		}
		g.free()
	}
	if e.forks {
		if len(bound)+len(free) > 0 {
			j.starts = append(j.starts, slices.Concat(free, bound))
		}
		return j
	}
	// Without forks a row is what never parts: greedy continuations of one kind.
	for _, kind := range [][]*continuation{free, bound} {
		var greedy []*continuation
		for _, c := range kind {
			if c.sampling != nil && c.sampling.Temperature == 0 {
				greedy = append(greedy, c)
			} else {
				alone = append(alone, c)
			}
		}
		if len(greedy) > 0 {
			j.starts = append(j.starts, greedy)
		}
	}
	for _, c := range alone {
		j.starts = append(j.starts, []*continuation{c})
	}
	return j
}

// room returns how many rows continuations may soon need: greedy ones of a kind
// never part, scored texts are short and count as one.
func room(members []*continuation) int {
	n := 0
	var scored, greedy, bound bool
	for _, c := range members {
		switch {
		case c.sampling == nil:
			scored = true
		case c.sampling.Temperature > 0:
			n++
		case c.grammar:
			bound = true
		default:
			greedy = true
		}
	}
	for _, b := range []bool{scored, greedy, bound} {
		if b {
			n++
		}
	}
	return max(1, n)
}

// step brings every row one token further.
//
// Copies between streams are carried out by llama.cpp at the next decode, while
// saving and restoring act at once. So that they cannot get into each other's
// way, rows are moved only right before a decode.
func (u *unit) step() error {
	if err := u.unpark(); err != nil {
		return err
	}
	if err := u.admit(); err != nil {
		return err
	}
	if err := u.compact(); err != nil {
		return err
	}
	if len(u.rows) == 0 {
		return nil
	}
	if err := u.decodeRows(); err != nil {
		return err
	}
	return u.advance(u.rows)
}

// unpark gives streams that are free to the rows that wait for one.
func (u *unit) unpark() error {
	for len(u.parked) > 0 {
		stream, ok := u.freeStream()
		if !ok {
			return nil
		}
		r := u.parked[0]
		u.parked = u.parked[1:]
		if err := u.a.restore(r.state, stream); err != nil {
			return err
		}
		r.state, r.stream = nil, stream
		u.insert(r)
	}
	return nil
}

// freeStream returns the lowest stream without a row.
func (u *unit) freeStream() (int, bool) {
	for i, r := range u.rows {
		if r.stream != i {
			return i, true
		}
	}
	return len(u.rows), len(u.rows) < u.width
}

func (u *unit) insert(r *row) {
	i, _ := slices.BinarySearchFunc(u.rows, r.stream, func(r *row, s int) int { return cmp.Compare(r.stream, s) })
	u.rows = slices.Insert(u.rows, i, r)
}

// admit begins the next jobs of the unit if there is room for the rows that they
// may soon have.
func (u *unit) admit() error {
	if len(u.parked) > 0 || len(u.queue) == 0 {
		return nil
	}
	top := 0
	if len(u.rows) > 0 {
		top = u.rows[len(u.rows)-1].stream + 1
	}
	var news []*row
	for used := len(u.rows); len(u.queue) > 0 && top+len(news) < u.width; u.queue = u.queue[1:] {
		s := u.queue[0]
		if used > 0 && (u.e.o.Strict || used+s.room > u.width) {
			break
		}
		used += s.room
		news = append(news, &row{job: s.job, members: s.members})
	}
	if len(news) == 0 {
		return nil
	}
	// Neighbouring streams with the longest prompt first: llama.cpp takes as many
	// tokens of each as the shortest still has, and goes on with the others.
	slices.SortStableFunc(news, func(x, y *row) int {
		return cmp.Compare(len(y.job.root)-y.job.cut, len(x.job.root)-x.job.cut)
	})
	for i, r := range news {
		r.stream = top + i
	}
	if err := u.prefill(news); err != nil {
		return err
	}
	u.rows = append(u.rows, news...)
	return u.advance(news)
}

// prefill evaluates the prompts of new rows and leaves each with the logits
// after its prompt.
func (u *unit) prefill(news []*row) error {
	e, a := u.e, u.a
	for _, r := range news {
		if r.members[0].grammar || r.members[len(r.members)-1].grammar {
			g, err := e.newGrammar(r.job.job.Grammar)
			if err != nil {
				return err
			}
			r.grammar = g
		}
		if r.job.cut > 0 {
			p, err := e.prefix(r.job.root[:r.job.cut])
			if err != nil {
				return err
			}
			if err := a.restore(p.state, r.stream); err != nil {
				return err
			}
		}
	}
	begun := time.Now()
	defer func() { e.times.Prompt += time.Since(begun) }()
	var ended []*row // whose last token is in the batch
	var at []int
	flush := func() error {
		if a.batch.NTokens == 0 {
			return nil
		}
		if err := u.ctx.Err(); err != nil {
			return err
		}
		if err := e.decode(a); err != nil {
			return err
		}
		e.counters.PromptTokens += int64(a.batch.NTokens)
		e.counters.PromptNeeded += int64(a.batch.NTokens)
		for i, r := range ended {
			l, err := e.logits(a, at[i])
			if err != nil {
				return err
			}
			// A copy: the next batch of prompts may overwrite it.
			r.logits = slices.Clone(l)
		}
		ended, at = ended[:0], at[:0]
		a.batch.Clear()
		return nil
	}
	a.batch.Clear()
	longest := 0
	for _, r := range news {
		longest = max(longest, len(r.job.root))
	}
	e.setThreads(a, e.threadsFor(), longest, true)
	for _, r := range news {
		root := r.job.root
		for i := r.job.cut; i < len(root); i++ {
			if int(a.batch.NTokens) == a.limit {
				if err := flush(); err != nil {
					return err
				}
			}
			last := i == len(root)-1
			if last {
				ended, at = append(ended, r), append(at, int(a.batch.NTokens))
			}
			if err := a.add(root[i], i, r.stream, last); err != nil {
				return err
			}
		}
		r.pos = len(root)
	}
	return flush()
}

// compact moves rows from the highest streams into holes, for llama.cpp wants
// the streams of a batch to be neighbours.
func (u *unit) compact() error {
	if !u.e.forks {
		return nil
	}
	for {
		hole, _ := u.freeStream()
		if hole >= len(u.rows) {
			return nil
		}
		r := u.rows[len(u.rows)-1]
		if err := errors.Join(u.a.copy(r.stream, hole), u.a.drop(r.stream)); err != nil {
			return err
		}
		u.rows = u.rows[:len(u.rows)-1]
		r.stream = hole
		u.insert(r)
	}
}

// decodeRows decodes the next token of every row.
func (u *unit) decodeRows() error {
	e, a := u.e, u.a
	begun := time.Now()
	a.batch.Clear()
	for _, r := range u.rows {
		if err := a.add(r.token, r.pos, r.stream, true); err != nil {
			return err
		}
		r.pos++
	}
	e.setThreads(a, e.threadsFor(), u.rows[0].pos, len(u.rows) == 1)
	if err := e.decode(a); err != nil {
		return err
	}
	for i, r := range u.rows {
		var err error
		if r.logits, err = e.logits(a, i); err != nil {
			return err
		}
	}
	e.counters.Decodes++
	e.counters.Rows += int64(len(u.rows))
	if e.counters.RowHistogram == nil {
		e.counters.RowHistogram = make(map[int]int64)
	}
	e.counters.RowHistogram[len(u.rows)]++
	e.times.Decode += time.Since(begun)
	return nil
}

// advance chooses the next token of every continuation of some rows, which all
// have logits, and parts the rows whose continuations disagree.
func (u *unit) advance(rows []*row) error {
	e := u.e
	begun := time.Now()
	e.choose(rows)
	e.times.Sample += time.Since(begun)
	tokens := 0
	rows = slices.Clone(rows)
	for _, r := range rows {
		r.logits = nil
		for _, c := range r.members {
			if c.at == len(c.forced) { // drawn, not given
				tokens++
			}
		}
		if err := u.split(r); err != nil {
			return err
		}
	}
	e.counters.TokensSampled += int64(tokens)
	if e.o.Progress != nil {
		e.o.Progress(tokens)
	}
	return nil
}

// split applies the decisions of a row: continuations end, those that agree stay
// together, the first of the groups keeps the stream and the others are forked.
func (u *unit) split(r *row) error {
	e := u.e
	var groups [][]*continuation
	for _, c := range r.members {
		e.apply(c)
		if c.finished {
			r.job.left--
			continue
		}
		i := slices.IndexFunc(groups, func(g []*continuation) bool { return g[0].next == c.next })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], c)
	}
	if len(groups) == 0 {
		r.grammar.free()
		i := slices.Index(u.rows, r)
		u.rows = slices.Delete(u.rows, i, i+1)
		return u.a.drop(r.stream)
	}
	// Forks first: they begin with the state of the grammar before this token.
	for _, g := range groups[1:] {
		if err := u.fork(r, g); err != nil {
			return err
		}
	}
	r.members, r.token = groups[0], groups[0][0].next
	return r.accept()
}

// accept tells the grammar of a row its newest token, or forgets the grammar if
// no continuation is bound any more.
func (r *row) accept() error {
	if r.grammar == nil {
		return nil
	}
	if !slices.ContainsFunc(r.members, func(c *continuation) bool { return c.grammar }) {
		r.grammar.free()
		r.grammar = nil
		return nil
	}
	return r.grammar.accept(r.token)
}

// fork makes a row of some continuations of another, on a stream of its own or
// parked.
func (u *unit) fork(from *row, members []*continuation) error {
	r := &row{job: from.job, members: members, pos: from.pos, token: members[0].next}
	if from.grammar != nil && slices.ContainsFunc(members, func(c *continuation) bool { return c.grammar }) {
		g, err := from.grammar.clone()
		if err != nil {
			return err
		}
		r.grammar = g
		if err := r.accept(); err != nil {
			return err
		}
	}
	stream, ok := u.freeStream()
	if !ok {
		state, err := u.a.save(from.stream)
		if err != nil {
			return err
		}
		r.state = state
		u.parked = append(u.parked, r)
		return nil
	}
	r.stream = stream
	if err := u.a.copy(from.stream, stream); err != nil {
		return err
	}
	u.insert(r)
	return nil
}

// apply carries a continuation's decision out.
func (e *Engine) apply(c *continuation) {
	if c.err != nil {
		c.finished, c.stop = true, data.ErrEngine
		return
	}
	if c.at < len(c.forced) {
		c.at++
		c.finished = c.sampling == nil && c.at == len(c.forced)
		return
	}
	if e.vocab.endsAnswer(c.next) {
		c.finished, c.stop = true, data.StopEnd
		return
	}
	c.out = append(c.out, c.next)
	if len(c.out) == c.sampling.MaxTokens {
		c.finished, c.stop = true, data.StopLength
	}
}

// free gives back what a unit holds in C memory.
func (u *unit) free() {
	for _, r := range slices.Concat(u.rows, u.parked) {
		r.grammar.free()
	}
}

// finish returns the answer of a job.
func (j *jobRun) finish(e *Engine) inference.Answer {
	opened := inference.OpenedReasoning(j.rendered.text)
	var scores []float64
	for _, c := range j.all {
		if c.sampling == nil {
			scores = append(scores, c.logprob)
			continue
		}
		j.answer.Generations = append(j.answer.Generations, e.generation(c, opened))
	}
	if !slices.ContainsFunc(scores, func(s float64) bool { return math.IsNaN(s) }) {
		j.answer.Scores = scores
	}
	return j.answer
}

// generation returns what a continuation came to.
func (e *Engine) generation(c *continuation, opened string) data.Generation {
	g := data.Generation{Sampling: *c.sampling}
	if c.err != nil {
		g.StopReason, g.ErrorKind, g.Error = data.StopError, c.stop, c.err.Error()
		return g
	}
	g.Tokens = len(c.out)
	g.StopReason = c.stop
	lp := c.logprob
	if !math.IsInf(lp, 0) && !math.IsNaN(lp) {
		g.Logprob = &lp
	}
	g.Reasoning, g.Text = inference.SplitReasoning(opened + e.vocab.decode(c.out))
	return g
}
