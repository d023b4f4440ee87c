package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"demur/analysis"
	"demur/data"
	"demur/protocol"
)

// labelColumns are added to a file of responses.
var labelColumns = []string{"label", "judge", "reason", "evidence"}

// classifyFile labels a file of responses, writes its rows again with the label
// columns added, and compares the labels with those of people where the file has
// them.
func classifyFile(ctx context.Context, e *env, o classifyOptions) (err error) {
	columns, rows, err := data.ReadResponses(o.responses, "", o.prompt, o.response)
	if err != nil {
		return usage(withHint(err, "--prompt-column and --response-column name the columns with request and response"))
	}
	c := fileLabels{o: o, people: o.labels, unmapped: map[string]int{}}
	for _, name := range labelColumns {
		c.added = append(c.added, o.prefix+name)
	}
	if err := c.check(columns); err != nil {
		return err
	}
	kept := ""
	if o.out != "" {
		kept = o.out + ".verdicts"
	}
	cache, err := o.judge.openCache(e, kept)
	if err != nil {
		return err
	}
	if !o.judge.slow() {
		cache.Close()
		cache = nil
	}
	defer func() {
		if cache != nil {
			err = errors.Join(err, cache.Close())
		}
		if err == nil && o.judge.cache == "" && o.judge.slow() && kept != "" {
			err = os.Remove(kept) // the labels stand in the output now
		}
	}()
	judge, closeJudge, err := openJudge(ctx, e, o.judge, cache)
	if err != nil {
		return err
	}
	c.counts = labelled{judge.Name(), judge.Version(), map[data.Label]int{}}
	labels := c.rows(ctx, judge, rows)
	write := func(w io.Writer) error {
		b := bufio.NewWriter(w)
		jsonl := strings.HasSuffix(o.out, ".jsonl") || strings.HasSuffix(o.out, ".ndjson")
		err := data.WriteRows(b, jsonl, append(columns, c.added...), labels)
		return errors.Join(err, b.Flush())
	}
	switch {
	case o.out != "":
		err = writeFile(o.out, write)
	case o.human == "":
		err = write(e.stdout)
	default:
		for _, err = range labels {
			if err != nil {
				break
			}
		}
	}
	if err = errors.Join(err, closeJudge()); err != nil {
		return err
	}
	for _, word := range slices.Sorted(maps.Keys(c.unmapped)) {
		e.say("the human label %s means nothing here: %d rows are left out; --human-labels says what it means", strconv.Quote(word), c.unmapped[word])
	}
	var agreements [][]analysis.Agreements
	if o.human != "" {
		agreements = append(agreements, analysis.Agree(analysis.HumanJudge, judge.Name(), c.rated, agreementResampling))
	}
	if o.out == "" && o.human == "" {
		return nil
	}
	return c.counts.report(e.stdout, agreements, o.json)
}

// fileLabels are the labels of a file of responses, as they come.
type fileLabels struct {
	o        classifyOptions
	added    []string // names of the label columns
	people   map[string]data.Label
	counts   labelled
	rated    []analysis.Rated
	unmapped map[string]int // words of the human column that are no label
}

// check refuses columns that are not there, and label columns that are: the file's
// own would be there twice, or lost.
func (c *fileLabels) check(columns []string) error {
	for _, name := range []string{c.o.human, c.o.source} {
		if name != "" && !slices.Contains(columns, name) {
			return usage(fmt.Errorf("%s has no column %q; it has %s", c.o.responses, name, strings.Join(columns, ", ")))
		}
	}
	for _, name := range c.added {
		if slices.Contains(columns, name) {
			return usage(taken(c.o.responses, name))
		}
	}
	return nil
}

func taken(file, column string) error {
	return withHint(fmt.Errorf("%s has a column %q already, which the labels would take the place of", file, column),
		"--label-prefix second_ names the new columns second_label, second_judge, …")
}

// rows hands rows to the judge and yields their cells with the label
// columns. A judge yields in order, but may read ahead: rows wait for it.
func (c *fileLabels) rows(ctx context.Context, judge protocol.Judge, rows iter.Seq2[data.Response, error]) iter.Seq2[map[string]any, error] {
	return func(yield func(map[string]any, error) bool) {
		var waiting []data.Response
		var failed error
		exchanges := func(yield func(protocol.Exchange) bool) {
			for r, err := range rows {
				if err != nil {
					failed = err
					return
				}
				waiting = append(waiting, r)
				if !yield(protocol.Exchange{TrialID: strconv.Itoa(r.Line), Request: r.Request, Response: r.Response}) {
					return
				}
			}
		}
		for v, err := range judge.Judge(ctx, exchanges) {
			if err != nil {
				yield(nil, fmt.Errorf("judge %s: %w", judge.Name(), err))
				return
			}
			r := waiting[0]
			waiting = waiting[1:]
			c.counts.counts[v.Label]++
			c.rate(r, v.Label)
			evidence := ""
			if v.EvidenceStart != nil && v.EvidenceEnd != nil {
				evidence = r.Response[*v.EvidenceStart:*v.EvidenceEnd]
			}
			for i, value := range []string{string(v.Label), v.Judge, v.Reason, evidence} {
				if _, there := r.Cells[c.added[i]]; there { // a line of JSON with more fields than the first
					yield(nil, usage(fmt.Errorf("line %d: %w", r.Line, taken(c.o.responses, c.added[i]))))
					return
				}
				r.Cells[c.added[i]] = value
			}
			if !yield(r.Cells, nil) {
				return
			}
		}
		if failed != nil {
			yield(nil, failed)
		}
	}
}

// rate notes a pair of labels, where people gave one that is known.
func (c *fileLabels) rate(r data.Response, label data.Label) {
	if c.o.human == "" {
		return
	}
	word := cellText(r.Cells[c.o.human])
	if strings.TrimSpace(word) == "" {
		return
	}
	people, ok := data.ParseLabel(word, c.people)
	if !ok {
		c.unmapped[word]++
		return
	}
	source := ""
	if c.o.source != "" {
		source = cellText(r.Cells[c.o.source])
	}
	c.rated = append(c.rated, analysis.Rated{Request: r.Request, Source: source, Row: people, Column: label})
}

func cellText(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
