package ollama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"demur/data"

	"github.com/ollama/ollama/api"
)

// A result is one answer, whole.
type result struct {
	text         string
	thinking     string // where the server parted it
	reason       string // data.StopEnd or data.StopLength
	promptTokens int    // 0 where the server does not say
	tokens       int    // generated, the end token not counted
}

// A failure is why an attempt gave no answer, in the server's words.
type failure struct {
	kind  string // data.ErrTransport, data.ErrEngine or data.ErrOverflow
	words string
	again again
	// trial is true where the failure lies in this trial and says nothing of the
	// server's health.
	trial bool
}

// again says whether asking once more can help.
type again int

const (
	never    again = iota // the same would happen again
	later                 // the server is busy
	reborn                // the model's runner died; the server starts another
	returned              // the connection was lost: the server may have gone
)

// retries returns how many times a failure of this sort is worth it, of at most
// most.
func (a again) retries(most int) int {
	switch a {
	case never:
		return 0
	case reborn:
		return min(2, most) // a prompt that kills the runner kills the next one too
	}
	return most
}

// maxText bounds the text of one answer, whatever the server sends.
const maxText = 64 << 20

// repeatGuard is the number of equal pieces in a row after which the server ends
// an answer without saying so (ollama/ollama issues 7547 and 8967).
const repeatGuard = 30

// message is one line of a stream, of either endpoint.
type message struct {
	Error    string `json:"error"`
	Response string `json:"response"`
	Thinking string `json:"thinking"`
	Message  struct {
		Content  string `json:"content"`
		Thinking string `json:"thinking"`
	} `json:"message"`
	Done            bool   `json:"done"`
	DoneReason      string `json:"done_reason"`
	PromptEvalCount int    `json:"prompt_eval_count"`
	EvalCount       int    `json:"eval_count"` // left out where it is 0
}

// attempt asks once. It returns an answer only if the server said that it is
// whole: done, with a reason.
func (e *Engine) attempt(ctx context.Context, req request, maxTokens int) (result, *failure) {
	limit := e.timeLimit(maxTokens)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	resp, err := e.client.send(timed, http.MethodPost, req.path, req.body)
	if err != nil {
		return result{}, e.sendFailure(timed, ctx, err, limit)
	}
	defer resp.Body.Close()

	var r result
	var text, thinking strings.Builder
	var last string
	var same, pieces, lineCount int
	err = lines(resp.Body, func(line []byte) (bool, error) {
		lineCount++
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return false, fmt.Errorf("a line of the stream is cut or no JSON: %w", err)
		}
		if m.Error != "" {
			return false, serverError(m.Error)
		}
		piece := m.Response + m.Message.Content
		thought := m.Thinking + m.Message.Thinking
		text.WriteString(piece)
		thinking.WriteString(thought)
		if text.Len()+thinking.Len() > maxText {
			return false, fmt.Errorf("the answer is larger than %d bytes", maxText)
		}
		if piece+thought != "" {
			pieces++
			e.o.Progress(1)
			if trimmed := strings.TrimSpace(piece + thought); trimmed == last {
				same++
			} else {
				last, same = trimmed, 0
			}
		}
		if !m.Done {
			return true, nil
		}
		r.reason, r.promptTokens, r.tokens = m.DoneReason, max(0, m.PromptEvalCount), max(0, m.EvalCount)
		return false, nil
	})
	if err != nil {
		return result{}, streamFailure(timed, ctx, err, limit, lineCount, same)
	}
	// Reading to the end lets the connection be used again and the server be done
	// with this answer before the next question; a server that leaves the stream
	// open is not waited for.
	stuck := time.AfterFunc(time.Second, cancel)
	io.Copy(io.Discard, io.LimitReader(resp.Body, maxLine))
	stuck.Stop()
	switch r.reason {
	case data.StopEnd:
		// The server counts the end token, which is no part of the answer.
		r.tokens = max(0, r.tokens-1)
	case data.StopLength:
	default:
		return result{}, &failure{kind: data.ErrEngine, words: fmt.Sprintf("the server ended the answer with reason %q", r.reason)}
	}
	if r.tokens > pieces {
		e.o.Progress(r.tokens - pieces) // pieces of several tokens
	}
	r.text, r.thinking = text.String(), thinking.String()
	e.measured(time.Since(began), r.tokens)
	return r, nil
}

// serverError is an error that the server wrote into a stream.
type serverError string

func (s serverError) Error() string { return string(s) }

// sendFailure says why no stream began.
func (e *Engine) sendFailure(timed, ctx context.Context, err error, limit time.Duration) *failure {
	if f := endedByContext(timed, ctx, limit); f != nil {
		return f
	}
	var status api.StatusError
	if !errors.As(err, &status) {
		return &failure{data.ErrTransport, fmt.Sprintf("no answer from the server: %v", root(err)), returned, false}
	}
	f := &failure{kind: data.ErrEngine, words: fmt.Sprintf("the server answered %d: %s", status.StatusCode, status.ErrorMessage)}
	switch {
	case status.StatusCode == http.StatusServiceUnavailable, status.StatusCode == http.StatusTooManyRequests:
		f.again = later
	case status.StatusCode == http.StatusBadRequest && strings.Contains(status.ErrorMessage, "context length"):
		f.kind, f.trial = data.ErrOverflow, true
	case status.StatusCode >= 500:
		f.again = reborn
	}
	return f
}

// streamFailure says why a stream that began gave no answer.
func streamFailure(timed, ctx context.Context, err error, limit time.Duration, lineCount, same int) *failure {
	if f := endedByContext(timed, ctx, limit); f != nil {
		return f
	}
	var words serverError
	switch {
	case errors.As(err, &words):
		return &failure{data.ErrEngine, "the server broke off: " + string(words), reborn, false}
	case errors.Is(err, errCut) && lineCount == 0:
		return &failure{data.ErrTransport, "the server's answer is empty", returned, false}
	case errors.Is(err, errCut) && same >= repeatGuard:
		return &failure{data.ErrEngine, fmt.Sprintf("the server ended the answer early, after %d equal pieces in a row", same+1), never, true}
	case errors.Is(err, errCut):
		return &failure{data.ErrTransport, "the server's answer ended without its last line", returned, false}
	}
	return &failure{data.ErrTransport, "the server's answer was lost: " + root(err).Error(), returned, false}
}

// endedByContext returns a failure where the caller or the limit ended the
// attempt, else nil.
func endedByContext(timed, ctx context.Context, limit time.Duration) *failure {
	switch {
	case ctx.Err() != nil:
		return &failure{data.ErrTransport, ctx.Err().Error(), never, false}
	case timed.Err() != nil:
		return &failure{data.ErrTransport, fmt.Sprintf("no end of the answer in %v", limit.Round(time.Millisecond)), never, false}
	}
	return nil
}

// root returns what went wrong without the method and address before it.
func root(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// timeLimit returns how long an answer of so many tokens may take: minutes of
// grace, for the model may have to be loaded again, and twenty times what the
// slowest trial so far took per token.
func (e *Engine) timeLimit(maxTokens int) time.Duration {
	if e.o.TrialTimeout > 0 {
		return e.o.TrialTimeout
	}
	e.mu.Lock()
	perToken := e.slowest
	e.mu.Unlock()
	if perToken == 0 {
		perToken = time.Second
	}
	return time.Duration(e.o.Parallel) * (10*time.Minute + 20*time.Duration(maxTokens)*perToken)
}

// measured remembers how long an answer took.
func (e *Engine) measured(d time.Duration, tokens int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slowest = max(e.slowest, d/time.Duration(tokens+1), time.Millisecond)
}
