package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"demur/data"
	"demur/protocol"
)

// labelColumns are added to a file of responses.
var labelColumns = []string{"label", "judge", "reason", "evidence"}

// classifyFile labels a file of responses and writes its rows again with the
// label columns added.
func classifyFile(ctx context.Context, e *env, o classifyOptions) error {
	columns, rows, err := data.ReadResponses(o.responses, "", o.prompt, o.response)
	if err != nil {
		return usage(withHint(err, "--prompt-column and --response-column name the columns with request and response"))
	}
	judge, closeJudge, err := openJudge(ctx, e, o.judge)
	if err != nil {
		return err
	}
	counts := labelled{judge.Name(), map[data.Label]int{}}
	write := func(w io.Writer) error {
		b := bufio.NewWriter(w)
		jsonl := strings.HasSuffix(o.out, ".jsonl") || strings.HasSuffix(o.out, ".ndjson")
		err := data.WriteRows(b, jsonl, append(columns, labelColumns...), labelRows(ctx, judge, rows, counts))
		return errors.Join(err, b.Flush())
	}
	if o.out == "" {
		err = write(e.stdout)
	} else {
		err = writeFile(o.out, write)
	}
	if err = errors.Join(err, closeJudge()); err != nil {
		return err
	}
	if o.out != "" {
		counts.write(e.stdout)
	}
	return nil
}

// labelRows hands rows to the judge and yields their cells with the label
// columns. A judge yields in order, but may read ahead: rows wait for it.
func labelRows(ctx context.Context, judge protocol.Judge, rows iter.Seq2[data.Response, error], counts labelled) iter.Seq2[map[string]any, error] {
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
			counts.counts[v.Label]++
			r.Cells["label"], r.Cells["judge"], r.Cells["reason"] = string(v.Label), v.Judge, v.Reason
			r.Cells["evidence"] = ""
			if v.EvidenceStart != nil && v.EvidenceEnd != nil {
				r.Cells["evidence"] = r.Response[*v.EvidenceStart:*v.EvidenceEnd]
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
