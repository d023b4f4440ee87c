package data

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// TestMutantsTakeLittleMemory damages tables in 2,000 ways, most of them in the
// footer. A reader may fail or not, but takes no more memory than a small file
// can hold, and ends. (Without the checks before reading, one in some hundreds
// takes gigabytes: LZ4 instead of zstd, for one.)
func TestMutantsTakeLittleMemory(t *testing.T) {
	d := newSimDisk(1)
	_, err1 := storeTable(d, Trials, func(yield func(Trial, error) bool) {
		for i := range simUnits {
			for _, tr := range simUnit(i).Trials {
				if !yield(tr, nil) {
					return
				}
			}
		}
	})
	_, err2 := storeTable(d, Requests, func(yield func(Request, error) bool) {
		for i := range 8 {
			q := Request{ID: fmt.Sprint(i), Variant: Base, Text: strings.Repeat("a", 1+i*20), Attributes: map[string]string{"k": "v"}, Messages: []Message{{"user", "x"}}}
			if !yield(q, nil) {
				return
			}
		}
	})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{Trials, Requests} {
		whole := d.dirs["."].names[name+tableExt].data
		failed := 0
		for i := range 1000 {
			b := bytes.Clone(whole)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(b))
				if i%2 == 0 {
					at = len(b) - 1 - rng.IntN(min(len(b), 700))
				}
				b[at] = byte(rng.IntN(256))
			}
			rows := 0
			count := func(err error) bool {
				if err != nil {
					failed++
				}
				rows++
				return err == nil && rows < 1000
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if i%3 == 0 {
				for _, err := range parquetRecords(bytes.NewReader(b), int64(len(b))) {
					if !count(err) {
						break
					}
				}
			} else if name == Trials {
				for _, err := range readParquet[Trial](bytes.NewReader(b), int64(len(b))) {
					if !count(err) {
						break
					}
				}
			} else {
				for _, err := range readParquet[Request](bytes.NewReader(b), int64(len(b))) {
					if !count(err) {
						break
					}
				}
			}
			runtime.ReadMemStats(&after)
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 || rows >= 1000 {
				t.Errorf("%s, mutant %d: %d bytes taken for a file of %d, %d rows", name, i, taken, len(b), rows)
			}
		}
		if failed == 0 {
			t.Errorf("%s: no mutant failed", name)
		}
	}
}

// TestZstdSize: frames put together by RFC 8878; Python's zstandard 0.25, the
// reference decoder, unpacks them to the sizes wanted here.
func TestZstdSize(t *testing.T) {
	tests := []struct {
		name string
		b    string
		want int64
	}{
		{"stated, one raw block", "\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", 5},
		{"not stated, raw", "\x28\xb5\x2f\xfd\x00\x58\x29\x00\x00hello", 5},
		{"not stated, a run", "\x28\xb5\x2f\xfd\x00\x58\x23\x03\x00a", 100},
		{"two frames", "\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", 10},
		{"a skipped frame", "\x50\x2a\x4d\x18\x02\x00\x00\x00xx\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", 5},
	}
	for _, tt := range tests {
		if got, err := zstdSize([]byte(tt.b)); err != nil || got != tt.want {
			t.Errorf("%s: %d, %v, want %d", tt.name, got, err, tt.want)
		}
	}
	bomb := "\x28\xb5\x2f\xfd\x00\x58" + strings.Repeat("\x02\x00\x10a", 5000) // runs of 128 KiB
	if n, err := zstdSize([]byte(bomb)); err == nil {
		t.Errorf("a bomb of %d bytes was taken as %d", len(bomb), n)
	}
	for _, bad := range []string{"hello", "\x28\xb5\x2f\xfd", "\x28\xb5\x2f\xfd\x20\x05\x29\x00", "\x50\x2a\x4d\x18\xff\xff\xff\xff"} {
		if n, err := zstdSize([]byte(bad)); err == nil {
			t.Errorf("%q was taken as %d", bad, n)
		}
	}
}
