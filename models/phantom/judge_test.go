package phantom_test

import (
	"context"
	"strconv"
	"testing"

	"demur/models/phantom"
	"demur/protocol"
)

// The judge that reads demur's demo labels every answer as it is meant, whatever
// the request.
func TestJudgeReadsTheAnswers(t *testing.T) {
	texts, labels := phantom.Texts()
	var exchanges []protocol.Exchange
	var want []string
	for i, r := range requests(t) {
		if i%5 != 0 {
			continue
		}
		for k, text := range texts {
			exchanges = append(exchanges, protocol.Exchange{TrialID: strconv.Itoa(len(exchanges)), Request: r.Text, Response: text, StopReason: "stop"})
			want = append(want, labels[k])
		}
	}
	each := func(yield func(protocol.Exchange) bool) {
		for _, e := range exchanges {
			if !yield(e) {
				return
			}
		}
	}
	i, wrong := 0, map[string]int{}
	for v, err := range protocol.NewRules().Judge(context.Background(), each) {
		if err != nil {
			t.Fatal(err)
		}
		if string(v.Label) != want[i] {
			wrong[exchanges[i].Response+" → "+string(v.Label)]++
		}
		i++
	}
	for what, n := range wrong {
		t.Errorf("%d times: %s", n, what)
	}
	if i != len(exchanges) {
		t.Errorf("%d verdicts of %d", i, len(exchanges))
	}
}
