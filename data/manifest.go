package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
)

const manifestName = "manifest.json"

// A Manifest says what a run is: all that is needed to run it again, and
// nothing of the machine it ran on (no host, user or path names). It is written
// when the run is created; Finish adds Finished last.
type Manifest struct {
	Schema int    `json:"schema_version"` // SchemaVersion; filled in by Create
	Demur  string `json:"demur_version"`
	RunID  string `json:"run_id"`
	PlanID string `json:"plan_id"` // stands in every row; equal plans, equal bytes
	// Plan is the whole plan, as its package writes it. Resume compares it field
	// by field.
	Plan     json.RawMessage            `json:"plan"`
	Model    Model                      `json:"model"`
	Requests RequestSet                 `json:"requests"`
	Headline map[string]string          `json:"headline,omitempty"` // settings fixed before anything ran: reading, question, polarity, fold, judge …
	Wordings map[string]string          `json:"wordings,omitempty"` // name of a question or rubric → SHA-256 of its text
	Created  string                     `json:"created"`            // UTC, RFC 3339
	Finished string                     `json:"finished,omitempty"` // UTC, RFC 3339; absent while units are missing
	Tables   map[string]Table           `json:"tables,omitempty"`   // what Compact wrote
	Extra    map[string]json.RawMessage `json:"extra,omitempty"`    // what other packages record: self-tests, imports, notes
}

// A Model is what answered, as far as it can change a result.
type Model struct {
	Name         string            `json:"name"` // for tables, no path
	Digest       string            `json:"digest,omitempty"`
	Adapter      string            `json:"adapter,omitempty"`
	TemplateHash string            `json:"template_sha256,omitempty"`
	Architecture string            `json:"architecture,omitempty"`
	Engine       string            `json:"engine"`
	Version      string            `json:"engine_version,omitempty"`
	Plan         map[string]string `json:"plan,omitempty"` // the engine's settings that fix the bits
	NotVerified  []string          `json:"not_verified,omitempty"`
	Reproducible bool              `json:"reproducible"`
}

// A RequestSet names the requests of a run.
type RequestSet struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // "sha256:" and 64 hex digits, of the rows as read
	Count  int    `json:"count"`  // rows: requests × wordings
}

// A Table is what a table file was when it was written.
type Table struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"`
}

// A PlanError says that a directory holds a run of another plan.
type PlanError struct {
	Dir   string
	Field string // dotted path of the first difference, such as plan.temperatures.2
	Have  string // JSON of the field in the directory; "" where it has none
	Want  string // JSON of the field asked for; "" where it has none
}

func (e *PlanError) Error() string {
	or := func(s string) string {
		if s == "" {
			return "nothing"
		}
		return clip(s)
	}
	return fmt.Sprintf("%s holds a run of another plan: %s is %s there and %s here; ask for the same to continue it, or name another directory",
		e.Dir, e.Field, or(e.Have), or(e.Want))
}

// samePlan returns a *PlanError if two manifests do not describe the same run.
// Versions of demur, clocks and notes may differ: what can change a bit is in
// the plan.
func samePlan(dir string, have, want Manifest) error {
	part := func(m Manifest) any {
		b, err := json.Marshal(struct {
			Plan     json.RawMessage   `json:"plan"`
			Model    Model             `json:"model"`
			Requests RequestSet        `json:"requests"`
			Headline map[string]string `json:"headline"`
			Wordings map[string]string `json:"wordings"`
		}{m.Plan, m.Model, m.Requests, m.Headline, m.Wordings})
		if err != nil {
			return err.Error()
		}
		var v any
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			return err.Error()
		}
		return v
	}
	h, w := part(have), part(want)
	for _, key := range []string{"plan", "model", "requests", "headline", "wordings"} {
		hm, _ := h.(map[string]any)
		wm, _ := w.(map[string]any)
		if field, a, b, differ := firstDifference(key, hm[key], wm[key]); differ {
			return &PlanError{dir, field, a, b}
		}
	}
	if have.PlanID != want.PlanID {
		return &PlanError{dir, "plan_id", have.PlanID, want.PlanID}
	}
	return nil
}

// firstDifference walks two JSON values in the order of their keys.
func firstDifference(path string, a, b any) (field, have, want string, differ bool) {
	text := func(v any) string {
		if v == nil {
			return ""
		}
		s, _ := json.Marshal(v)
		return string(s)
	}
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			keys := slices.Collect(maps.Keys(a))
			for k := range b {
				if _, ok := a[k]; !ok {
					keys = append(keys, k)
				}
			}
			slices.Sort(keys)
			for _, k := range keys {
				if field, have, want, differ := firstDifference(path+"."+k, a[k], b[k]); differ {
					return field, have, want, true
				}
			}
			return "", "", "", false
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				if field, have, want, differ := firstDifference(fmt.Sprintf("%s.%d", path, i), a[i], b[i]); differ {
					return field, have, want, true
				}
			}
			return "", "", "", false
		}
	default:
		if _, isMap := b.(map[string]any); isMap {
			break
		}
		if _, isList := b.([]any); isList {
			break
		}
		if a == b {
			return "", "", "", false
		}
	}
	return path, text(a), text(b), true
}

var runIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// checkManifest returns an error if m cannot be the manifest of a run.
func checkManifest(m Manifest) error {
	switch {
	case !runIDForm.MatchString(m.RunID):
		return fmt.Errorf("run id %q is not 1 to 128 letters, digits, dots, dashes or underscores", clip(m.RunID))
	case m.Schema < 1:
		return errors.New("it has no schema version")
	case m.Schema > SchemaVersion:
		return fmt.Errorf("its schema version is %d and this demur reads up to %d; %w", m.Schema, SchemaVersion, ErrNewer)
	}
	return nil
}

// readManifest reads and checks the manifest of a run directory.
func readManifest(d disk) (Manifest, error) {
	b, err := readFile(d, manifestName, maxFrame)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, fmt.Errorf("no run is here: %w", err)
	}
	if errors.Is(err, errIrregular) || errors.Is(err, errLarge) {
		return Manifest{}, &manifestError{err}
	}
	if err != nil { // the file may be as good as ever
		return Manifest{}, err
	}
	m, err := parseManifest(b)
	if errors.Is(err, ErrNewer) {
		return Manifest{}, fmt.Errorf("%s: %w", manifestName, err)
	}
	if err != nil {
		return Manifest{}, &manifestError{err}
	}
	return m, nil
}

// ErrNewer is the kind of the error for a run that a later version wrote.
var ErrNewer = errors.New("use a later demur")

// A manifestError is a manifest that cannot be one.
type manifestError struct{ err error }

func (e *manifestError) Error() string {
	return fmt.Sprintf("%s is %v: %v; nothing was changed: restore it from a copy, or start again in another directory", manifestName, ErrCorrupt, e.err)
}

func (e *manifestError) Unwrap() []error { return []error{ErrCorrupt, e.err} }

func parseManifest(b []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("it is not a manifest: %w", err)
	}
	return m, checkManifest(m)
}

func writeManifest(d disk, m Manifest) error {
	if err := checkManifest(m); err != nil {
		return fmt.Errorf("writing %s: %w", manifestName, err)
	}
	return replace(d, manifestName, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(m)
	}, nil)
}
