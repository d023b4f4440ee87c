package protocol

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"demur/data"
)

// Human is the judge "human": labels that people gave, joined by trial id. What
// has no label yet is unclear, with the reason no_label.
type Human struct {
	labels  map[string]humanLabel
	version string
}

type humanLabel struct {
	label  data.Label
	reason string
	line   int
}

var _ Judge = (*Human)(nil)

// NewHuman reads a label file: CSV with a header, or JSON lines, with the
// fields trial_id (or id), label and, if there, reason. A label must be one of
// data.Labels; two that disagree on one trial are an error, since a label is
// never guessed.
func NewHuman(path string) (*Human, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("label file: %w", err)
	}
	defer f.Close()
	h, err := ReadHuman(f)
	if err != nil {
		return nil, fmt.Errorf("label file %s: %w", path, err)
	}
	return h, nil
}

// ReadHuman is NewHuman for a file that is open.
func ReadHuman(r io.Reader) (*Human, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	h := &Human{labels: map[string]humanLabel{}, version: hex.EncodeToString(sum[:6])}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if text := bytes.TrimLeft(b, " \t\r\n"); len(text) > 0 && text[0] == '{' {
		err = h.readLines(b)
	} else {
		err = h.readCSV(b)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Human) add(id, label, reason string, line int) error {
	id, label = strings.TrimSpace(id), strings.TrimSpace(label)
	l := data.Label(label)
	switch {
	case id == "":
		return fmt.Errorf("line %d: no trial id", line)
	case label == "":
		return nil // not labelled yet
	case !slices.Contains(data.Labels(), l):
		return fmt.Errorf("line %d: label %q is none of %v", line, label, data.Labels())
	}
	if old, ok := h.labels[id]; ok && old.label != l {
		return fmt.Errorf("lines %d and %d: trial %s is %s and %s; keep one", old.line, line, id, old.label, l)
	}
	h.labels[id] = humanLabel{l, reason, line}
	return nil
}

func (h *Human) readLines(b []byte) error {
	line := 0
	for text := range bytes.Lines(b) {
		line++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var row struct {
			TrialID string `json:"trial_id"`
			ID      string `json:"id"`
			Label   string `json:"label"`
			Reason  string `json:"reason"`
		}
		if err := json.Unmarshal(text, &row); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if row.TrialID == "" {
			row.TrialID = row.ID
		}
		if err := h.add(row.TrialID, row.Label, row.Reason, line); err != nil {
			return err
		}
	}
	return nil
}

func (h *Human) readCSV(b []byte) error {
	r := csv.NewReader(bytes.NewReader(b))
	header, err := r.Read()
	if err == io.EOF {
		return errors.New("empty; want a header with trial_id and label")
	}
	if err != nil {
		return err
	}
	id, label, reason := -1, -1, -1
	for i, name := range header {
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "trial_id":
			id = i
		case "id":
			if id < 0 {
				id = i
			}
		case "label":
			label = i
		case "reason":
			reason = i
		}
	}
	if id < 0 || label < 0 {
		return fmt.Errorf("columns are %v; want trial_id and label", header)
	}
	for {
		row, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		why := ""
		if reason >= 0 {
			why = row[reason]
		}
		line, _ := r.FieldPos(0)
		if err := h.add(row[id], row[label], why, line); err != nil {
			return err
		}
	}
}

// Name returns "human".
func (*Human) Name() string { return "human" }

// Version is a digest of the label file.
func (h *Human) Version() string { return h.version }

// Len is the number of trials that have a label.
func (h *Human) Len() int { return len(h.labels) }

// Label returns the label of a trial; ok is false where it has none.
func (h *Human) Label(trialID string) (l data.Label, ok bool) {
	row, ok := h.labels[trialID]
	return row.label, ok
}

// Judge looks the exchanges up by their trial ids.
func (h *Human) Judge(ctx context.Context, exchanges iter.Seq[Exchange]) iter.Seq2[data.Verdict, error] {
	return func(yield func(data.Verdict, error) bool) {
		for e := range exchanges {
			if err := ctx.Err(); err != nil {
				yield(data.Verdict{}, err)
				return
			}
			v := data.Verdict{TrialID: e.TrialID, Judge: h.Name(), JudgeVersion: h.version, Label: data.Unclear, Reason: "no_label"}
			if l, ok := h.labels[e.TrialID]; ok {
				v.Label, v.Reason = l.label, l.reason
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// AppendLabel adds a label to a CSV label file, which it begins if there is
// none, and makes it durable. A review uses it after each answer, so that
// nothing is lost when it is broken off.
func AppendLabel(path, trialID string, label data.Label, reason string) (err error) {
	if !slices.Contains(data.Labels(), label) {
		return fmt.Errorf("label %q is none of %v", label, data.Labels())
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("label file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("label file: %w", err)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if info.Size() == 0 {
		w.Write([]string{"trial_id", "label", "reason"})
	}
	w.Write([]string{trialID, string(label), reason})
	w.Flush() // to memory: cannot fail
	if _, err := f.Write(b.Bytes()); err != nil {
		return fmt.Errorf("label file %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("label file %s: %w", path, err)
	}
	return nil
}

// Trials returns the ids of the trials that have a label, sorted.
func (h *Human) Trials() []string { return slices.Sorted(maps.Keys(h.labels)) }
