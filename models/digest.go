package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Digest returns the SHA-256 of the model as "sha256:" and 64 hex digits. For a
// split model it is the digest of the parts' digests, each 64 hex digits and a
// line feed, in order. Only a digest identifies a model: most damage to a GGUF
// file goes unnoticed by its loader.
//
// Digests are remembered by path, size and time of change, so that a large file
// is read once; a memory that cannot be read or written is no error.
func Digest(ctx context.Context, f File, o Options) (string, error) {
	if len(f.Parts) == 0 {
		return "", &Error{Kind: ErrMissing, Name: f.Name, Problem: "it has no file to take a digest of"}
	}
	sums := make([]string, len(f.Parts))
	for i, path := range f.Parts {
		sum, err := fileDigest(ctx, path, o.digests())
		if err != nil {
			return "", err
		}
		sums[i] = sum
	}
	if len(sums) == 1 {
		return "sha256:" + sums[0], nil
	}
	all := sha256.Sum256([]byte(strings.Join(sums, "\n") + "\n"))
	return "sha256:" + hex.EncodeToString(all[:]), nil
}

// remembered is one line of the file of digests.
type remembered struct {
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // nanoseconds since 1970
	SHA256  string `json:"sha256"`
}

const (
	maxDigestFile  = 4 << 20
	maxRemembered  = 4096
	settleInterval = 2 * time.Second
)

// fileDigest returns the SHA-256 of a file in hex, from memory where the file
// has not changed since.
func fileDigest(ctx context.Context, path, memory string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	file, err := os.Open(abs)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", &Error{Kind: ErrMissing, Name: path, Problem: "there is no such file", Hint: "check the path"}
		}
		return "", unreadable(path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", unreadable(path, err)
	}
	known := readDigests(memory)
	key := remembered{Size: info.Size(), Changed: info.ModTime().UnixNano()}
	if r, ok := known[abs]; ok && r.Size == key.Size && r.Changed == key.Changed && digestPattern.MatchString("sha256:"+r.SHA256) {
		return r.SHA256, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, &contextReader{ctx, file}); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", unreadable(path, err)
	}
	key.SHA256 = hex.EncodeToString(hash.Sum(nil))
	after, err := file.Stat()
	// A file that changed while it was read, or so recently that a further change
	// could fall into the same tick of the file system's clock, is not remembered.
	if err == nil && after.Size() == info.Size() && after.ModTime().Equal(info.ModTime()) && time.Since(info.ModTime()) > settleInterval {
		rememberDigest(memory, abs, key)
	}
	return key.SHA256, nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// readDigests returns what is remembered; nothing if that cannot be read.
func readDigests(memory string) map[string]remembered {
	known := make(map[string]remembered)
	if memory == "" {
		return known
	}
	file, err := os.Open(memory)
	if err != nil {
		return known
	}
	defer file.Close()
	if json.NewDecoder(io.LimitReader(file, maxDigestFile)).Decode(&known) != nil || known == nil {
		return make(map[string]remembered)
	}
	return known
}

// rememberDigest adds to what is remembered, by an atomic replacement: of two
// processes that write at once one loses its entry, and hashes again later.
func rememberDigest(memory, path string, r remembered) {
	if memory == "" {
		return
	}
	known := readDigests(memory)
	for old := range known {
		if _, err := os.Stat(old); err != nil || len(known) > maxRemembered {
			delete(known, old)
		}
	}
	known[path] = r
	b, err := json.MarshalIndent(known, "", " ")
	if err != nil {
		return
	}
	if os.MkdirAll(filepath.Dir(memory), 0o755) != nil {
		return
	}
	tmp, err := os.CreateTemp(filepath.Dir(memory), ".digests-*")
	if err != nil {
		return
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), memory)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
}

// digests returns the file that remembers digests, "" where there is no place
// for it.
func (o Options) digests() string {
	if o.Digests != "" {
		return o.Digests
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "demur", "digests.json")
}
