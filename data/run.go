package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"
)

// A Unit is what was executed together: the rows of its prompts. It is durable
// as a whole or not at all.
type Unit struct {
	ID          string       `json:"id"`
	Prompts     []Prompt     `json:"prompts,omitempty"`
	Predictions []Prediction `json:"predictions,omitempty"`
	Trials      []Trial      `json:"trials,omitempty"`
	Attempts    []Attempt    `json:"attempts,omitempty"`
}

// Counts is how far a run has come.
type Counts struct {
	Units       int // committed
	FailedUnits int // of these, with at least one row that has an error kind
	Predictions int
	Trials      int
	FailedRows  int // predictions and trials with an error kind
	Attempts    int
}

// Errors that a caller decides by. Each is wrapped in what was being done and
// what the user can do.
var (
	ErrLocked   = errors.New("in use by another process")
	ErrCorrupt  = errors.New("damaged")
	ErrDiskFull = errors.New("disk full") // the run can be continued once there is room
)

// A Run is a run directory. It is safe for use by several goroutines.
type Run struct {
	dir    string
	disk   disk
	unlock func() error // nil if opened for reading

	mu       sync.Mutex
	manifest Manifest
	journal  *journal
	units    map[string]unitState
	counts   Counts
	notes    []string
}

// A unitState is what is known of a durable unit without reading it again.
type unitState struct {
	at                              place // of the frame that holds; a later one supersedes
	predictions, trials, failedRows int
}

func stateOf(u *Unit, at place) unitState {
	s := unitState{at: at, predictions: len(u.Predictions), trials: len(u.Trials)}
	for i := range u.Predictions {
		if u.Predictions[i].ErrorKind != "" {
			s.failedRows++
		}
	}
	for i := range u.Trials {
		if u.Trials[i].ErrorKind != "" {
			s.failedRows++
		}
	}
	return s
}

// Create makes a run directory and stores its manifest and requests. The
// directory may exist, but may not hold a run: use Resume for that. A run is
// created as a whole or, after a crash, not at all.
func Create(dir string, m Manifest, requests []Request) (*Run, error) {
	d, err := makeDisk(dir)
	if err != nil {
		return nil, writeError("creating run "+dir, 0, err)
	}
	return create(d, dir, m, requests, segmentSize)
}

// Resume opens a run for writing, to go on with it. It must be of the same plan
// as m, else the error is a *PlanError; run id, clocks, version and extras are
// the directory's. The error wraps fs.ErrNotExist if there is no run, ErrLocked
// if another process writes it, ErrCorrupt if it is damaged.
func Resume(dir string, m Manifest) (*Run, error) {
	d, err := openDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("opening run %s: %w", dir, err)
	}
	return resume(d, dir, &m, segmentSize)
}

// Reopen opens a run for writing, whatever its plan: to compact or to note
// something.
func Reopen(dir string) (*Run, error) {
	d, err := openDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("opening run %s: %w", dir, err)
	}
	return resume(d, dir, nil, segmentSize)
}

// OpenRun opens a run for reading its manifest, and with ReadTable its tables.
// It takes no lock and does not read the journal, so it counts no units.
func OpenRun(dir string) (*Run, error) {
	d, err := openDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("opening run %s: %w", dir, err)
	}
	m, err := readManifest(d)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening run %s: %w", dir, err), d.Close())
	}
	return &Run{dir: dir, disk: d, manifest: m}, nil
}

// start locks a directory and clears away what a killed process left half done.
func start(d disk, dir string) (_ *Run, err error) {
	unlock, err := d.Lock("lock")
	if err != nil {
		return nil, err
	}
	r := &Run{dir: dir, disk: d, unlock: unlock, units: map[string]unitState{}}
	for _, folder := range []string{".", activationsDir} {
		names, err := d.ReadDir(folder)
		if err != nil && (folder == "." || !errors.Is(err, fs.ErrNotExist)) {
			return nil, errors.Join(err, unlock())
		}
		for _, name := range names {
			if !isTemp(name) {
				continue
			}
			if err := d.Remove(path.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, errors.Join(err, unlock())
			}
		}
	}
	return r, nil
}

func create(d disk, dir string, m Manifest, requests []Request, segmentLimit int64) (_ *Run, err error) {
	defer func() {
		if err != nil {
			err = writeError("creating run "+dir, 0, err)
		}
	}()
	r, err := start(d, dir)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if f, err := d.Open(manifestName); err == nil {
		f.Close()
		return nil, fmt.Errorf("a run is there already: %w; continue it, or name another directory", fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	m.Schema = SchemaVersion
	m.Finished, m.Tables = "", nil
	if m.Created == "" {
		m.Created = time.Now().UTC().Format(time.RFC3339)
	}
	if err := checkManifest(m); err != nil {
		return nil, err
	}
	// The manifest is what makes the directory a run. Without it, a journal is
	// what a killed Create left, and holds requests only.
	if err := dropUnborn(d); err != nil {
		return nil, err
	}
	r.manifest = m
	r.journal, err = openJournal(d, m.RunID, journalEnd{}, segmentLimit)
	if err != nil {
		return nil, err
	}
	for _, part := range packRequests(requests) {
		if _, err := r.journal.append("storing the requests", frame{Requests: part}); err != nil {
			return nil, err
		}
	}
	if err := writeManifest(d, m); err != nil {
		return nil, err
	}
	return r, nil
}

// dropUnborn removes a journal that belongs to no run.
func dropUnborn(d disk) error {
	n, err := segments(d)
	if err != nil || n == 0 {
		return err
	}
	for i := n; i >= 1; i-- {
		name := segmentName(i)
		_, _, err := scanSegment(d, i, func(offset int64, payload []byte) error {
			if fr, err := decodeFrame(payload); err != nil || fr.Unit != nil || fr.Attempts != nil {
				return fmt.Errorf("%s holds results, but there is no %s; restore it, or name another directory", name, manifestName)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := n; i >= 1; i-- { // from the end, one by one: a crash leaves no gap
		if err := d.Remove(segmentName(i)); err != nil {
			return err
		}
		if err := d.SyncDir(journalDir); err != nil {
			return err
		}
	}
	return nil
}

// packRequests cuts requests into pieces that fit into a frame.
func packRequests(requests []Request) [][]Request {
	const piece = 8 << 20
	var parts [][]Request
	from, size := 0, 0
	for i, q := range requests {
		n := len(q.Text) + 256
		for k, v := range q.Attributes {
			n += len(k) + len(v)
		}
		for _, m := range q.Messages {
			n += len(m.Content)
		}
		if size+n > piece && i > from {
			parts = append(parts, requests[from:i])
			from, size = i, 0
		}
		size += n
	}
	if from < len(requests) {
		parts = append(parts, requests[from:])
	}
	return parts
}

func resume(d disk, dir string, want *Manifest, segmentLimit int64) (_ *Run, err error) {
	defer func() {
		var other *PlanError
		if err != nil && !errors.As(err, &other) {
			err = writeError("opening run "+dir, 0, err)
		}
	}()
	// Before the lock, whose file would stand in a directory that is no run.
	if _, err := readManifest(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	r, err := start(d, dir)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	m, err := readManifest(d)
	if err != nil {
		return nil, err
	}
	r.manifest = m
	if want != nil {
		if err := samePlan(dir, m, *want); err != nil {
			return nil, err
		}
	}
	end, err := r.replay()
	if err != nil {
		return nil, err
	}
	if end.torn > 0 {
		r.notes = append(r.notes, fmt.Sprintf("%d bytes of a unit that was being written when the run was interrupted were cut; it will be run again", end.torn))
	}
	r.journal, err = openJournal(d, m.RunID, end, segmentLimit)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// replay reads the journal into r. A journal that holds less than the manifest
// and the tables were made from is no trace of a kill: requests are durable
// before the manifest is written, and units before a table. Going on would do
// units again whose rows are there, for a set of requests that is not.
func (r *Run) replay() (journalEnd, error) {
	requests := 0
	end, err := scanJournal(r.disk, r.manifest.RunID, func(at place, fr frame) error {
		requests += len(fr.Requests)
		if fr.Unit != nil {
			r.note(fr.Unit, at)
		}
		r.counts.Attempts += len(fr.Attempts)
		return nil
	})
	if err != nil || r.manifest.Model.Engine == ImportEngine { // an import has tables alone
		return end, err
	}
	tables := r.manifest.Tables
	for _, lost := range []lostError{
		{"requests", requests, r.manifest.Requests.Count, len(tables) > 0},
		{Trials, r.counts.Trials, int(tables[Trials].Rows), true},
		{Predictions, r.counts.Predictions, int(tables[Predictions].Rows), true},
	} {
		if lost.have < lost.want {
			return end, &lost
		}
	}
	return end, nil
}

// A lostError is a journal that was emptied, cut or taken away.
type lostError struct {
	what       string
	have, want int
	tables     bool // were written, and may be there still
}

func (e *lostError) Error() string {
	still := ""
	if e.tables {
		still = "; the tables can still be reported, judged and exported"
	}
	return fmt.Sprintf("the journal is %v: it holds %d of the %d %s of the run, so a part of it was removed or cut; nothing was changed: restore the folder %s from a copy, or start again in another directory%s",
		ErrCorrupt, e.have, e.want, e.what, journalDir, still)
}

func (e *lostError) Unwrap() error { return ErrCorrupt }

// CheckJournal reads the journal of a run, which may be open for reading only
// or in use, and counts what it holds. The error wraps ErrCorrupt if it is
// damaged or holds less than the tables were made from, and fs.ErrNotExist if
// it is not there at all.
func (r *Run) CheckJournal() (Counts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	doing := "reading the journal of " + r.dir
	if n, err := segments(r.disk); err != nil || n == 0 {
		return Counts{}, fmt.Errorf("%s: %w", doing, cmp.Or(err, fs.ErrNotExist))
	}
	fresh := Run{dir: r.dir, disk: r.disk, manifest: r.manifest, units: map[string]unitState{}}
	if _, err := fresh.replay(); err != nil {
		return Counts{}, fmt.Errorf("%s: %w", doing, err)
	}
	return fresh.counts, nil
}

// note takes a durable unit into account.
func (r *Run) note(u *Unit, at place) {
	count := func(s unitState, sign int) {
		r.counts.Units += sign
		r.counts.Predictions += sign * s.predictions
		r.counts.Trials += sign * s.trials
		r.counts.FailedRows += sign * s.failedRows
		if s.failedRows > 0 {
			r.counts.FailedUnits += sign
		}
	}
	if before, ok := r.units[u.ID]; ok {
		count(before, -1)
	}
	s := stateOf(u, at)
	r.units[u.ID] = s
	count(s, 1)
	r.counts.Attempts += len(u.Attempts)
}

// Dir returns the directory as it was given.
func (r *Run) Dir() string { return r.dir }

// Manifest returns the manifest.
func (r *Run) Manifest() Manifest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.manifest
}

// Notes says what the user should know about how the run was opened, such as
// an unfinished frame that was cut.
func (r *Run) Notes() []string { return r.notes }

// Done reports whether a unit is durable, with or without errors in it.
func (r *Run) Done(unit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.units[unit]
	return ok
}

// Failed reports whether a unit is durable and holds a row with an error kind.
func (r *Run) Failed(unit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.units[unit].failedRows > 0
}

// Counts returns how far the run has come. Superseded units are not counted,
// their attempts are.
func (r *Run) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Commit makes a unit durable: when it returns nil, the unit survives a kill
// and a loss of power. A unit committed again takes the place of the earlier
// one; its attempts are kept. After an error the run takes no more units; what
// was committed before stands, and Resume goes on from there.
func (r *Run) Commit(u Unit) error {
	doing := fmt.Sprintf("run %s: storing unit %s", r.dir, clip(u.ID))
	if err := checkUnit(u); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	u.Attempts = cleanAttempts(u.Attempts)
	r.mu.Lock()
	defer r.mu.Unlock()
	at, err := r.append(doing, frame{Unit: &u})
	if err != nil {
		return err
	}
	r.note(&u, at)
	return nil
}

// LogAttempts makes failed attempts durable that belong to no finished unit.
func (r *Run) LogAttempts(attempts []Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.append(fmt.Sprintf("run %s: storing failed attempts", r.dir), frame{Attempts: cleanAttempts(attempts)}); err != nil {
		return err
	}
	r.counts.Attempts += len(attempts)
	return nil
}

// cleanAttempts makes the engines' words storable: an error message that is not
// UTF-8 must not cost the rows beside it.
func cleanAttempts(attempts []Attempt) []Attempt {
	clean := make([]Attempt, len(attempts))
	for i, a := range attempts {
		a.Error = strings.ToValidUTF8(a.Error, "\uFFFD")
		clean[i] = a
	}
	return clean
}

func (r *Run) append(doing string, fr frame) (place, error) {
	if r.journal == nil {
		return place{}, fmt.Errorf("%s: the run is open for reading only", doing)
	}
	if r.manifest.Finished != "" {
		m := r.manifest
		m.Finished = ""
		if err := r.store(m); err != nil {
			return place{}, fmt.Errorf("%s: %w", doing, err)
		}
	}
	return r.journal.append(doing, fr)
}

// store writes the manifest, and keeps it if that worked.
func (r *Run) store(m Manifest) error {
	if r.unlock == nil {
		return errors.New("the run is open for reading only")
	}
	if err := writeManifest(r.disk, m); err != nil {
		return err
	}
	r.manifest = m
	return nil
}

// SetExtra stores v's JSON under key in the manifest.
func (r *Run) SetExtra(key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("run %s: noting %s: %w", r.dir, key, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.manifest
	m.Extra = map[string]json.RawMessage{key: b}
	for k, v := range r.manifest.Extra {
		if k != key {
			m.Extra[k] = v
		}
	}
	if err := r.store(m); err != nil {
		return fmt.Errorf("run %s: noting %s: %w", r.dir, key, err)
	}
	return nil
}

// Finish marks the run as finished in the manifest. A finished run stays as it
// is. A later Commit takes the mark away again.
func (r *Run) Finish(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.manifest.Finished != "" {
		return nil
	}
	m := r.manifest
	m.Finished = now.UTC().Format(time.RFC3339)
	if err := r.store(m); err != nil {
		return fmt.Errorf("run %s: marking it as finished: %w", r.dir, err)
	}
	return nil
}

// Close releases the lock. What was committed is durable already.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	if r.journal != nil {
		errs = append(errs, r.journal.close())
		r.journal = nil
	}
	if r.unlock != nil {
		errs = append(errs, r.unlock())
		r.unlock = nil
	}
	if r.disk != nil {
		errs = append(errs, r.disk.Close())
		r.disk = nil
	}
	return errors.Join(errs...)
}
