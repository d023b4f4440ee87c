package protocol

import (
	"context"
	"fmt"
	"iter"

	"demur/data"
)

// Classify labels the responses of trials, in their order, and yields one
// verdict per trial that has a response; a trial that failed has none, and no
// verdict. requests gives the texts that the trials name.
//
// At temperature 0 the seeds of one prompt give one text and so one verdict:
// judges label texts.
func Classify(ctx context.Context, j Judge, requests []data.Request, trials iter.Seq2[data.Trial, error]) iter.Seq2[data.Verdict, error] {
	texts := make(map[[2]string]string, len(requests))
	for _, r := range requests {
		texts[[2]string{r.ID, r.Variant}] = r.Text
	}
	return func(yield func(data.Verdict, error) bool) {
		var failed error
		exchanges := func(yield func(Exchange) bool) {
			for t, err := range trials {
				if err != nil {
					failed = err
					return
				}
				if t.ErrorKind != "" {
					continue
				}
				request, ok := texts[[2]string{t.RequestID, t.Variant}]
				if !ok {
					failed = fmt.Errorf("trial %s: its request %s (%s) is not in the request table", short(t.ID), t.RequestID, t.Variant)
					return
				}
				if !yield(Exchange{TrialID: t.ID, Request: request, Response: t.Text, StopReason: t.StopReason}) {
					return
				}
			}
		}
		for v, err := range j.Judge(ctx, exchanges) {
			if err != nil {
				yield(data.Verdict{}, fmt.Errorf("judge %s: %w", j.Name(), err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
		if failed != nil {
			yield(data.Verdict{}, failed)
		}
	}
}
