package ollama

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"demur/data"
)

// body is a server whose every answer is the same bytes.
type body []byte

func (b body) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(b))}, nil
}

// FuzzStream feeds arbitrary bytes as a server's answer: there is an answer only
// if a whole line of them says done, for a reason that is one.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"",
		`{"response":"Knead"}` + "\n" + `{"response":"","done":true,"done_reason":"stop","eval_count":2}`,
		`{"response":"Knead","done":false}`,
		`{"error":"an error was encountered while running the model"}`,
		`{"response":"","done":true,"done_reason":"load"}`,
		`{"message":{"content":"Knead"},"done":true,"done_reason":"length","eval_count":-5}`,
		"{\"response\":\"\xff\"}\n\n\n{",
		`[1]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &Engine{
			o:      Options{Model: "tiny"}.filled(),
			client: &client{base: &url.URL{Scheme: "http", Host: "127.0.0.1"}, http: &http.Client{Transport: body(b)}},
		}
		r, failure := e.attempt(context.Background(), e.request("", nil, data.Sampling{MaxTokens: 4}, "", nil), 4)
		done := slices.ContainsFunc(bytes.Split(b, []byte("\n")), func(line []byte) bool {
			var m message
			return json.Unmarshal(bytes.TrimSpace(line), &m) == nil && m.Done && (m.DoneReason == "stop" || m.DoneReason == "length")
		})
		if failure == nil && !done {
			t.Fatalf("%q: got answer %+v without an end", b, r)
		}
		if failure != nil && (failure.kind == "" || failure.words == "") {
			t.Fatalf("%q: got a failure without kind or words: %+v", b, failure)
		}
		if failure == nil && r.tokens < 0 {
			t.Fatalf("%q: %d tokens", b, r.tokens)
		}
	})
}
