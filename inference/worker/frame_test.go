package worker

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"
)

func TestFrames(t *testing.T) {
	var stream bytes.Buffer
	want := []string{"", "{}", strings.Repeat("bread", 100_000)}
	for _, s := range want {
		if err := writeFrame(&stream, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	whole := stream.Bytes()
	r := iotest.HalfReader(bytes.NewReader(whole))
	for _, s := range want {
		got, err := readFrame(r)
		if err != nil || string(got) != s {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(s))
		}
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Errorf("at the end: %v, want io.EOF", err)
	}

	// A stream that is cut anywhere inside of a frame is torn.
	small := whole[:headSize+headSize+2]
	for n := headSize + 1; n < len(small); n++ {
		r := bytes.NewReader(small[:n])
		readFrame(r)
		if _, err := readFrame(r); err != io.ErrUnexpectedEOF {
			t.Errorf("cut at %d: %v, want io.ErrUnexpectedEOF", n, err)
		}
	}

	// A changed bit is noticed, whichever it is. A longer length may also read
	// as a torn stream.
	frame := small[headSize:]
	for i := range len(frame) * 8 {
		bad := bytes.Clone(frame)
		bad[i/8] ^= 1 << (i % 8)
		_, err := readFrame(bytes.NewReader(bad))
		var fe frameError
		if !errors.As(err, &fe) && err != io.ErrUnexpectedEOF {
			t.Errorf("bit %d changed: %v", i, err)
		}
	}
}

func TestFrameTooLarge(t *testing.T) {
	var stream bytes.Buffer
	if err := writeFrame(&stream, make([]byte, maxPayload+1)); !errors.Is(err, errTooLarge) || stream.Len() != 0 {
		t.Errorf("got %v and %d bytes written, want errTooLarge and none", err, stream.Len())
	}
}

func FuzzReadMessage(f *testing.F) {
	for _, s := range []string{"", "{}", `{"kind":"open","version":1,"spec":{}}`, `{"kind":"job","job":{"prompt":{"messages":null}}}`} {
		var b bytes.Buffer
		writeFrame(&b, []byte(s))
		f.Add(b.Bytes())
	}
	f.Add([]byte("Hello, this is a program that is no worker."))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for {
			before := r.Len()
			payload, err := readFrame(r)
			if err != nil {
				break
			}
			// What was read as a frame is one: written again, it is the same bytes.
			var again bytes.Buffer
			if err := writeFrame(&again, payload); err != nil {
				t.Fatal(err)
			}
			start := len(stream) - before
			if !bytes.Equal(again.Bytes(), stream[start:start+again.Len()]) {
				t.Fatalf("frame at %d does not survive", start)
			}
			// The payload may be any bytes; a message of them is read or refused.
			if m, err := readMessage(bytes.NewReader(again.Bytes())); err == nil {
				if _, err := m.encode(); err != nil {
					t.Fatalf("message %+v was read and cannot be written: %v", m, err)
				}
			}
		}
		// The fuzzer hardly guesses a checksum, so its bytes are also a payload.
		var framed bytes.Buffer
		if writeFrame(&framed, stream) == nil {
			if m, err := readMessage(&framed); err == nil {
				if _, err := m.encode(); err != nil {
					t.Fatalf("message %+v was read and cannot be written: %v", m, err)
				}
			}
		}
	})
}

func TestTail(t *testing.T) {
	for _, test := range []struct{ name, writes, want string }{
		{"last line", "loading\nready\n\n", "ready"},
		{"unfinished line", "loading\nready", "ready"},
		{"assertion", "load\nggml.c:1: GGML_ASSERT(n > 0) failed\nSIGABRT: abort\nPC=0x0\ngoroutine 1\n", "ggml.c:1: GGML_ASSERT(n > 0) failed"},
		{"exception", "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nSIGABRT: abort\n", "what():  std::bad_alloc"},
		{"signal", "fatal error: unexpected signal during runtime execution\n[signal SIGSEGV]\nlast\n", "fatal error: unexpected signal during runtime execution"},
		{"control", "a\x1b[31mb\x07c\u202ed\x00e\tf\xffg\n", "abcde fg"},
		{"nothing", "\n \n", ""},
	} {
		var w tail
		for i := range len(test.writes) { // byte by byte, as pipes may deliver
			w.Write([]byte{test.writes[i]})
		}
		if got := w.said(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	var w tail
	for range 100 {
		w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	if len(w.kept) > 2*tailSize || len(w.line) > lineSize || len(w.said()) > wordSize+10 {
		t.Errorf("a line of 100 MiB: kept %d and %d bytes, said %d", len(w.kept), len(w.line), len(w.said()))
	}
}

// FuzzTail holds that whatever a child writes, and in whatever pieces, what is
// quoted of it is one printable line of bounded length.
func FuzzTail(f *testing.F) {
	f.Add([]byte("ggml.c:1: GGML_ASSERT(n > 0) failed\n"), 3)
	f.Add([]byte("\x1b]0;title\x07\x1b[31mred\u2028line\u202e\xff\n"), 1)
	f.Add([]byte("terminate called\n  what():  std::bad_alloc"), 100)
	f.Fuzz(func(t *testing.T, written []byte, piece int) {
		var w tail
		for rest := written; len(rest) > 0; {
			n := min(len(rest), 1+int(uint(piece)%1000))
			w.Write(rest[:n])
			rest = rest[n:]
		}
		said := w.said()
		if !utf8.ValidString(said) || len(said) > wordSize+10 {
			t.Errorf("said %d bytes, valid %v", len(said), utf8.ValidString(said))
		}
		for _, r := range said {
			if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Errorf("said %q, with %U", said, r)
			}
		}
	})
}
