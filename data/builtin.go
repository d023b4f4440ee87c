package data

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the request set
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The built-in request set: 900 lines, one JSON object a wording. How it was
// made, and what it is not good for, stands in requests/README.md.
//
//go:embed requests/requests.jsonl
var builtin []byte

// A builtinRow is a line of the built-in set: a request, and whether it is of
// the demo subset. The mark stays out of Request, because it says something of
// this file and nothing of the request.
type builtinRow struct {
	Request
	Demo bool `json:"demo"`
}

// Builtin returns the 900 rows of the built-in request set in the order of the
// file: 300 requests, 10 topics of 30, each in the wordings base, p1 and p2.
// Harm levels 1 to 5 have 5, 5, 10, 5 and 5 requests a topic.
func Builtin() ([]Request, error) {
	rows, err := builtinRows()
	if err != nil {
		return nil, err
	}
	out := make([]Request, len(rows))
	for i, r := range rows {
		out[i] = r.Request
	}
	return out, nil
}

// Demo returns the 180 rows of the built-in set's demo subset in the order of
// the file: 60 requests, six a topic, of levels 1, 2, 3, 3, 4 and 5.
func Demo() ([]Request, error) {
	rows, err := builtinRows()
	if err != nil {
		return nil, err
	}
	var out []Request
	for _, r := range rows {
		if r.Demo {
			out = append(out, r.Request)
		}
	}
	return out, nil
}

// BuiltinDigest returns the lowercase hex SHA-256 of the built-in set's bytes,
// so that a manifest can name the file that a run was made with.
func BuiltinDigest() string {
	sum := sha256.Sum256(builtin)
	return hex.EncodeToString(sum[:])
}

func builtinRows() ([]builtinRow, error) {
	d := json.NewDecoder(bytes.NewReader(builtin))
	d.DisallowUnknownFields()
	var rows []builtinRow
	for {
		var r builtinRow
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read built-in request set: row %d: %w", len(rows)+1, err)
		}
		rows = append(rows, r)
	}
}
