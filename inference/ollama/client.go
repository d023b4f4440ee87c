package ollama

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/ollama/ollama/api"
)

// Bounds on what is read from a server.
const (
	maxReply = 256 << 20 // a model's whole vocabulary, described
	maxLine  = 4 << 20
	maxError = 4 << 10
)

// A client speaks to one server. It is not the client of ollama/api because that
// one returns no error for a stream that was cut, nor the status of one that
// failed, and knows no fields newer than itself.
type client struct {
	base *url.URL
	http *http.Client
}

func newClient(base *url.URL, allowRemote bool) *client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !allowRemote {
		// The name was checked; this checks what it resolves to.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().IsLoopback() {
				return fmt.Errorf("%s is not this machine", address)
			}
			return nil
		}
	}
	return &client{base: base, http: &http.Client{
		// No proxy and no redirection: bytes go to the address given and to no
		// other. No timeout: a model may take minutes to load.
		Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

func loopbackName(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// send makes one request. A status of 300 or above is an api.StatusError with
// the server's words.
func (c *client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	default:
		j, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // a status without words is said without them
	e := api.StatusError{StatusCode: resp.StatusCode, Status: resp.Status}
	if json.Unmarshal(b, &e) != nil || e.ErrorMessage == "" {
		e.ErrorMessage = strings.TrimSpace(string(b))
	}
	return nil, e
}

// call makes one request and reads its JSON reply into reply.
func (c *client) call(ctx context.Context, method, path string, body, reply any) error {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return fmt.Errorf("its reply to %s was lost: %w", path, err)
	case len(b) > maxReply:
		return fmt.Errorf("its reply to %s is larger than %d bytes", path, maxReply)
	case reply == nil:
		return nil
	}
	if err := json.Unmarshal(b, reply); err != nil {
		return fmt.Errorf("its reply to %s is not what an Ollama server says: %w", path, err)
	}
	return nil
}

// errCut means that a stream ended before its last line said so.
var errCut = errors.New("the stream ended without its end")

// lines calls f for each line of a stream, until f returns false or an error.
// The end of the stream is errCut.
func lines(r io.Reader, f func([]byte) (bool, error)) error {
	b := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return fmt.Errorf("a line of the stream is longer than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		end := err != nil
		if text := bytes.TrimSpace(line); len(text) > 0 {
			more, err := f(text)
			if err != nil || !more {
				return err
			}
		}
		if end {
			return errCut
		}
		line = line[:0]
	}
}
