package protocol

import (
	"context"
	"iter"

	"demur/data"
)

// An Exchange is a request and the response to it, as a judge sees them. It
// carries nothing of the request set's own labels and nothing of the model's
// name, so that a judge cannot use them.
type Exchange struct {
	TrialID    string
	Request    string
	Response   string // the answer, reasoning split off
	StopReason string // length where the response was cut
}

// A Judge labels responses. It yields one verdict per exchange, in order, and
// labels by the texts alone: equal judge, version, request and response give an
// equal verdict. What it cannot read is data.Unclear, never a guess; an error
// means that the judge itself failed.
type Judge interface {
	Name() string
	Version() string // changes whenever a label may change
	Judge(ctx context.Context, exchanges iter.Seq[Exchange]) iter.Seq2[data.Verdict, error]
}
