package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A simDisk is a disk in memory that fails, fills up, and loses power. What was
// not synced may be there after a loss of power, or not, or in part: file
// systems promise no order between the bytes of files and the names in
// directories.
type simDisk struct {
	rng    *rand.Rand
	dirs   map[string]*simDir
	locked bool

	calls   int
	log     []string                        // what each call was
	fail    func(call int, op string) error // an error for this call, or nil
	down    bool                            // the power is off: every call fails
	offAt   int                             // the call at which the power goes; 0 for never
	room    int64                           // bytes that files may have together; 0 for no limit
	openFDs int
}

type simDir struct {
	names   map[string]*simNode
	durable map[string]*simNode
	pending []func(map[string]*simNode)
}

type simNode struct {
	data    []byte
	durable []byte
	lost    [2]int // bytes that a failed sync dropped: they read well and are never written
}

var errPower = errors.New("the power is off")

func newSimDisk(seed uint64) *simDisk {
	d := &simDisk{rng: rand.New(rand.NewPCG(seed, 0)), dirs: map[string]*simDir{}}
	d.dirs["."] = &simDir{names: map[string]*simNode{}, durable: map[string]*simNode{}}
	return d
}

// call counts a call and decides its fate.
func (d *simDisk) call(op, name string) error {
	if d.down {
		return errPower
	}
	d.calls++
	d.log = append(d.log, op+" "+name)
	if d.offAt > 0 && d.calls >= d.offAt {
		d.down = true
		return errPower
	}
	if d.fail != nil {
		if err := d.fail(d.calls, op); err != nil {
			return &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return nil
}

func (d *simDisk) dir(name string) (*simDir, string, error) {
	folder, base := path.Split(name)
	dir, ok := d.dirs[path.Clean(folder)]
	if !ok {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return dir, base, nil
}

func (dir *simDir) do(change func(map[string]*simNode)) {
	change(dir.names)
	dir.pending = append(dir.pending, change)
}

func (d *simDisk) open(op, name string, create, truncate bool) (file, error) {
	if err := d.call(op, name); err != nil {
		return nil, err
	}
	dir, base, err := d.dir(name)
	if err != nil {
		return nil, err
	}
	n, ok := dir.names[base]
	if !ok {
		if !create {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		n = &simNode{}
		dir.do(func(m map[string]*simNode) { m[base] = n })
	}
	if truncate {
		n.data = nil
	}
	d.openFDs++
	return &simFile{d: d, n: n, name: name}, nil
}

func (d *simDisk) Open(name string) (file, error)   { return d.open("open", name, false, false) }
func (d *simDisk) Create(name string) (file, error) { return d.open("create", name, true, true) }
func (d *simDisk) Modify(name string) (file, error) { return d.open("modify", name, false, false) }

func (d *simDisk) Rename(from, to string) error {
	if err := d.call("rename", to); err != nil {
		return err
	}
	dir, a, err := d.dir(from)
	if err != nil {
		return err
	}
	_, b, _ := d.dir(to)
	n, ok := dir.names[a]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	dir.do(func(m map[string]*simNode) { delete(m, a); m[b] = n })
	return nil
}

func (d *simDisk) Remove(name string) error {
	if err := d.call("remove", name); err != nil {
		return err
	}
	dir, base, err := d.dir(name)
	if err != nil {
		return err
	}
	if _, ok := dir.names[base]; !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	dir.do(func(m map[string]*simNode) { delete(m, base) })
	return nil
}

func (d *simDisk) Mkdir(name string) error {
	if err := d.call("mkdir", name); err != nil {
		return err
	}
	if d.dirs[name] == nil {
		d.dirs[name] = &simDir{names: map[string]*simNode{}, durable: map[string]*simNode{}}
		d.dirs["."].do(func(m map[string]*simNode) { m[name+"/"] = &simNode{} })
	}
	return nil
}

func (d *simDisk) ReadDir(name string) ([]string, error) {
	if err := d.call("readdir", name); err != nil {
		return nil, err
	}
	dir, ok := d.dirs[name]
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Sorted(maps.Keys(dir.names)), nil
}

func (d *simDisk) SyncDir(name string) error {
	if err := d.call("syncdir", name); err != nil {
		return err
	}
	dir := d.dirs[name]
	dir.durable = maps.Clone(dir.names)
	dir.pending = nil
	return nil
}

func (d *simDisk) Lock(name string) (func() error, error) {
	if err := d.call("lock", name); err != nil {
		return nil, err
	}
	if d.locked {
		return nil, ErrLocked
	}
	d.locked = true
	return func() error { d.locked = false; return d.call("unlock", name) }, nil
}

func (d *simDisk) Close() error { return nil }

// restart returns the disk as it is found after a loss of power.
func (d *simDisk) restart() *simDisk {
	after := &simDisk{rng: d.rng, dirs: map[string]*simDir{}}
	old := map[*simNode]*simNode{} // a file with two names stays one
	for name, dir := range d.dirs {
		names := maps.Clone(dir.durable)
		for _, change := range dir.pending {
			if d.rng.IntN(2) == 0 {
				change(names)
			}
		}
		for base, n := range names {
			if old[n] == nil {
				b := d.torn(n)
				old[n] = &simNode{data: b, durable: bytes.Clone(b)}
			}
			names[base] = old[n]
		}
		after.dirs[name] = &simDir{names: names, durable: maps.Clone(names)}
	}
	for name := range after.dirs {
		if name != "." && after.dirs["."].names[name+"/"] == nil {
			delete(after.dirs, name)
		}
	}
	return after
}

// torn returns what of a file is left: all that was synced, and any part of
// what was not, sector by sector.
func (d *simDisk) torn(n *simNode) []byte {
	if bytes.Equal(n.data, n.durable) && n.lost[1] == 0 {
		return bytes.Clone(n.durable)
	}
	current := n.written()
	switch d.rng.IntN(3) {
	case 0:
		return bytes.Clone(n.durable)
	case 1:
		return current
	}
	same := 0
	for same < len(current) && same < len(n.durable) && current[same] == n.durable[same] {
		same++
	}
	size := same + d.rng.IntN(max(len(current), len(n.durable))-same+1)
	const sector = 64
	b := make([]byte, size)
	for i := 0; i < size; i += sector {
		from := current
		if d.rng.IntN(2) == 0 {
			from = nil // zeros: the length was written before the bytes
		}
		if i < len(from) {
			copy(b[i:min(i+sector, size)], from[i:])
		}
	}
	copy(b[:min(same, size)], n.durable)
	return b
}

// written returns what the system would write: without what a failed sync has
// dropped.
func (n *simNode) written() []byte {
	b := bytes.Clone(n.data)
	for i := n.lost[0]; i < n.lost[1] && i < len(b); i++ {
		b[i] = 0
	}
	return b
}

func (d *simDisk) used() int64 {
	n := int64(0)
	for _, dir := range d.dirs {
		for _, f := range dir.names {
			n += int64(len(f.data))
		}
	}
	return n
}

type simFile struct {
	d    *simDisk
	n    *simNode
	name string
}

func (f *simFile) Write(p []byte) (int, error) {
	err := f.d.call("write", f.name)
	if err != nil && len(p) > 0 {
		n := f.d.rng.IntN(len(p)) // a part may have been written
		f.n.data = append(f.n.data, p[:n]...)
		return n, err
	}
	if left := f.d.room - f.d.used(); f.d.room > 0 && left < int64(len(p)) {
		f.n.data = append(f.n.data, p[:max(left, 0)]...)
		return int(max(left, 0)), &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	f.n.data = append(f.n.data, p...)
	return len(p), nil
}

func (f *simFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.d.call("read", f.name); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *simFile) Size() (int64, error) {
	return int64(len(f.n.data)), f.d.call("size", f.name)
}

func (f *simFile) Truncate(size int64) error {
	if err := f.d.call("truncate", f.name); err != nil {
		return err
	}
	f.n.data = f.n.data[:size:size]
	f.n.lost[1] = min(f.n.lost[1], int(size))
	return nil
}

func (f *simFile) Sync() error {
	if err := f.d.call("sync", f.name); err != nil {
		if !f.d.down {
			f.n.lost = [2]int{len(f.n.durable), len(f.n.data)}
		}
		return err
	}
	f.n.durable = f.n.written()
	return nil
}

func (f *simFile) Close() error {
	f.d.openFDs--
	return f.d.call("close", f.name)
}

// The workload: a run of eight units, with small journal files and little memory
// for sorting, so that files rotate and sorts spill.
const (
	simUnits   = 8
	simSegment = 3000
	simMemory  = 2000
)

func simManifest() Manifest {
	return Manifest{RunID: "sim", PlanID: "p", Plan: json.RawMessage(`{"a":1}`), Requests: RequestSet{Count: simUnits}, Created: "2026-12-01T00:00:00Z"}
}

func simRequests() []Request {
	var rows []Request
	for i := range simUnits {
		rows = append(rows, Request{ID: fmt.Sprint("r", i), Variant: Base, Text: "How do I bake bread?"})
	}
	return rows
}

func simUnit(i int) Unit {
	id := fmt.Sprint("r", i)
	u := Unit{ID: fmt.Sprint("u", i), Prompts: []Prompt{{ID: "p" + id, RequestID: id, Variant: Base, Phase: Respond}}}
	for seed := range uint32(3) {
		u.Trials = append(u.Trials, Trial{
			ID: fmt.Sprint(id, "-", seed), RequestID: id, Variant: Base, Seed: seed,
			Text: strings.Repeat("Knead. ", 3+i), PlanID: "p",
		})
	}
	u.Predictions = []Prediction{{ID: "q" + id, RequestID: id, Variant: Base, Reading: Exact, Outcome: WillComply}}
	u.Attempts = []Attempt{{ID: u.ID, Unit: u.ID}}
	return u
}

// work creates or continues the run and finishes it. Acked gets the units whose
// commit returned.
func work(d disk, acked map[string]bool) (err error) {
	m := simManifest()
	r, err := resume(d, "sim", &m, simSegment)
	if errors.Is(err, fs.ErrNotExist) {
		r, err = create(d, "sim", m, simRequests(), simSegment)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for id := range acked {
		if !r.Done(id) {
			return fmt.Errorf("unit %s was reported as done, and is lost", id)
		}
	}
	for i := simUnits - 1; i >= 0; i-- {
		u := simUnit(i)
		if r.Done(u.ID) {
			continue
		}
		if err := r.Commit(u); err != nil {
			return err
		}
		acked[u.ID] = true
	}
	if err := r.compact(simMemory); err != nil {
		return err
	}
	return r.Finish(time.Unix(0, 0))
}

// simTables returns the tables that are there, by name.
func simTables(d *simDisk) map[string]string {
	tables := map[string]string{}
	for name, n := range d.dirs["."].names {
		if strings.HasSuffix(name, tableExt) {
			tables[name] = string(n.data)
		}
	}
	return tables
}

// reference is the outcome of a run that nothing disturbed.
func reference(t *testing.T) (tables map[string]string, log []string) {
	t.Helper()
	d := newSimDisk(1)
	if err := work(d, map[string]bool{}); err != nil {
		t.Fatal(err)
	}
	tables = simTables(d)
	if len(tables) != 5 || len(d.dirs[journalDir].names) < 3 || !slices.ContainsFunc(d.log, func(s string) bool { return strings.HasPrefix(s, "create .trials-000001") }) {
		t.Fatalf("the workload has %d tables, %d journal files, or did not spill", len(tables), len(d.dirs[journalDir].names))
	}
	if d.openFDs != 0 {
		t.Fatalf("%d files are still open", d.openFDs)
	}
	return tables, d.log
}

// recover continues a run on a disk that works again, and compares the outcome.
// What happened to attempts is not promised.
func recoverAndCompare(d *simDisk, acked map[string]bool, want map[string]string) error {
	for name, content := range simTables(d) {
		if name != Attempts+tableExt && content != want[name] {
			return fmt.Errorf("%s stands under its name and is not whole", name)
		}
		if _, err := openParquet(bytes.NewReader([]byte(content)), int64(len(content))); err != nil {
			return fmt.Errorf("%s stands under its name: %w", name, err)
		}
	}
	if err := work(d, acked); err != nil {
		return fmt.Errorf("continuing: %w", err)
	}
	got := simTables(d)
	for name := range want {
		if name != Attempts+tableExt && got[name] != want[name] {
			return fmt.Errorf("%s differs from that of an undisturbed run", name)
		}
	}
	for name := range d.dirs["."].names {
		if isTemp(name) {
			return fmt.Errorf("%s is left over", name)
		}
	}
	return nil
}

// TestPowerLossAtEveryCall takes the power away at each call in turn (P1, P2,
// P3): what was reported as done is there, and the run continues to the same
// bytes.
func TestPowerLossAtEveryCall(t *testing.T) {
	t.Parallel()
	want, log := reference(t)
	seeds := uint64(1)
	if os.Getenv("DEMUR_TEST_LONG") != "" {
		seeds = 50
	}
	for call := 1; call <= len(log); call += callStep() {
		for seed := range seeds {
			d := newSimDisk(seed<<32 | uint64(call))
			d.offAt = call
			acked := map[string]bool{}
			if err := work(d, acked); !errors.Is(err, errPower) {
				t.Fatalf("call %d (%s): error %v", call, log[call-1], err)
			}
			// The power goes again while the run is being continued.
			d = d.restart()
			d.offAt = 1 + d.rng.IntN(len(log))
			if err := work(d, acked); err != nil && !errors.Is(err, errPower) {
				t.Fatalf("call %d (%s), seed %d: continuing: %v", call, log[call-1], seed, err)
			}
			if err := recoverAndCompare(d.restart(), acked, want); err != nil {
				t.Fatalf("call %d (%s), seed %d: %v", call, log[call-1], seed, err)
			}
		}
	}
	t.Logf("%d calls, %d seeds", len(log), seeds)
}

// callStep is the distance between the calls that the tests below visit. Short
// is how the race detector runs them, under which a run of the work takes ten
// times as long and every seventh call shows what there is to see of races.
func callStep() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// TestFailureAtEveryCall lets each call fail in turn, for once and for good
// (P5): the run says so or is whole, and nothing that was reported is lost,
// power gone right after or not.
func TestFailureAtEveryCall(t *testing.T) {
	t.Parallel()
	want, log := reference(t)
	for _, forGood := range []bool{false, true} {
		for call := 1; ; call += callStep() {
			d := newSimDisk(uint64(call))
			var failed string
			d.fail = func(n int, op string) error {
				if n == call || forGood && n > call {
					if n == call {
						failed = op
					}
					return syscall.EIO
				}
				return nil
			}
			acked := map[string]bool{}
			err := work(d, acked)
			if failed == "" {
				if err != nil {
					t.Fatalf("nothing failed, and the run did: %v", err)
				}
				t.Logf("%d calls, for good %v", call-1, forGood)
				break
			}
			if err != nil && !errors.Is(err, syscall.EIO) {
				t.Fatalf("call %d (%s): error %v does not say EIO", call, log[call-1], err)
			}
			// Only a look at something optional may fail without harm.
			if err == nil && (failed == "sync" || failed == "rename" || failed == "syncdir" || failed == "write") {
				t.Fatalf("call %d (%s) failed, and nobody said so", call, log[call-1])
			}
			if d.openFDs != 0 {
				t.Errorf("call %d (%s): %d files are still open", call, log[call-1], d.openFDs)
			}
			d.fail = nil
			for _, after := range []*simDisk{d.restart(), d} {
				after.locked = false
				if err := recoverAndCompare(after, maps.Clone(acked), want); err != nil {
					t.Fatalf("call %d (%s), for good %v: %v", call, log[call-1], forGood, err)
				}
			}
		}
	}
}

// TestFullDisk gives the run less room than it needs, at 50 sizes (P4).
func TestFullDisk(t *testing.T) {
	t.Parallel()
	want, _ := reference(t)
	d := newSimDisk(1)
	if err := work(d, map[string]bool{}); err != nil {
		t.Fatal(err)
	}
	most := d.used()
	full := 0
	const sizes = 50
	for i := int64(0); i < sizes; i += int64(callStep()) {
		d := newSimDisk(uint64(i))
		d.room = 1 + most*i/sizes
		acked := map[string]bool{}
		err := work(d, acked)
		if !errors.Is(err, ErrDiskFull) {
			t.Fatalf("room for %d of %d bytes: error %v, want ErrDiskFull", d.room, most, err)
		}
		full += callStep()
		for _, part := range []string{"needed", "start the same command again"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
		d.room = 0
		for _, after := range []*simDisk{d.restart(), d} {
			if err := recoverAndCompare(after, maps.Clone(acked), want); err != nil {
				t.Fatalf("room for %d bytes: %v", 1+most*i/sizes, err)
			}
		}
	}
	if full < sizes {
		t.Errorf("the disk was full for %d of %d sizes", full, sizes)
	}
}

// TestNothingIsCommittedAfterAFailure: what the system says after a failed sync
// means nothing.
func TestNothingIsCommittedAfterAFailure(t *testing.T) {
	d := newSimDisk(1)
	r, err := create(d, "sim", simManifest(), simRequests(), segmentSize)
	if err != nil {
		t.Fatal(err)
	}
	d.fail = func(_ int, op string) error {
		if op == "sync" {
			return syscall.EIO
		}
		return nil
	}
	if err := r.Commit(simUnit(0)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v, want EIO", err)
	}
	d.fail = nil
	if err := r.Commit(simUnit(1)); !errors.Is(err, syscall.EIO) {
		t.Errorf("after a failed sync, a commit gives %v, want the first error", err)
	}
	if r.Done("u0") || r.Done("u1") {
		t.Error("a unit is done that was not stored")
	}
}

// TestDamageIsNotCut tells a cut frame at the end from damage before it.
func TestDamageIsNotCut(t *testing.T) {
	t.Parallel()
	build := func() *simDisk {
		d := newSimDisk(1)
		r, err := create(d, "sim", simManifest(), simRequests(), segmentSize)
		if err != nil {
			t.Fatal(err)
		}
		for i := range simUnits {
			if err := r.Commit(simUnit(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := build()
	whole := bytes.Clone(d.dirs[journalDir].names["000001.dmj"].data)
	var starts []int
	for i := range whole {
		if strings.HasPrefix(string(whole[i:]), frameMagic) {
			starts = append(starts, i)
		}
	}
	last := starts[len(starts)-1]
	open := func(b []byte) (*Run, error) {
		d.locked = false
		n := d.dirs[journalDir].names["000001.dmj"]
		n.data, n.durable = bytes.Clone(b), bytes.Clone(b)
		m := simManifest()
		return resume(d, "sim", &m, segmentSize)
	}
	// Cut anywhere behind the requests: all whole frames are there. The requests
	// were durable before there was a manifest, so without them it is damage.
	for size := 0; size <= len(whole); size += 7 {
		r, err := open(whole[:size])
		if size < starts[2] {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "requests") {
				t.Errorf("cut at %d: error %v, want ErrCorrupt", size, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
		units := 0
		for i, s := range starts {
			end := len(whole)
			if i+1 < len(starts) {
				end = starts[i+1]
			}
			if i >= 2 && s < size && end <= size { // after the head and the requests
				units++
			}
		}
		if got := r.Counts().Units; got != units {
			t.Errorf("cut at %d: %d units, want %d", size, got, units)
		}
		if torn := size > 0 && !slices.Contains(starts, size) && size != len(whole); torn != (len(r.Notes()) > 0) {
			t.Errorf("cut at %d: notes %q", size, r.Notes())
		}
		if err := r.Commit(simUnit(0)); err != nil || !r.Done("u0") {
			t.Errorf("cut at %d: the next unit: %v", size, err)
		}
		r.Close()
	}
	// A changed byte: damage, but in the last frame, which a kill can tear.
	for at := 0; at < len(whole); at += 5 {
		b := bytes.Clone(whole)
		b[at] ^= 0x20
		r, err := open(b)
		if at >= last {
			if err != nil {
				t.Errorf("byte %d changed, in the last frame: %v", at, err)
			} else if got := r.Counts().Units; got != simUnits-1 {
				t.Errorf("byte %d changed, in the last frame: %d units", at, got)
			}
			continue
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "journal/000001.dmj") || !strings.Contains(err.Error(), "byte") {
			t.Errorf("byte %d changed: error %v, want ErrCorrupt with file and offset", at, err)
		}
	}
	// A missing file, a file of another run.
	d = build()
	files := d.dirs[journalDir].names
	files["000003.dmj"] = files["000001.dmj"]
	m := simManifest()
	if _, err := resume(d, "sim", &m, segmentSize); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "000002") {
		t.Errorf("a missing file: %v", err)
	}
	d = build()
	d.dirs["."].names[manifestName].data = bytes.Replace(d.dirs["."].names[manifestName].data, []byte(`"run_id": "sim"`), []byte(`"run_id": "other"`), 1)
	if _, err := resume(d, "sim", &m, segmentSize); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a journal of another run: %v", err)
	}
}

// TestSorter compares the merge of many small files with a sort in memory.
func TestSorter(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	for _, n := range []int{0, 1, 10, 1000} {
		d := newSimDisk(1)
		s := &sorter[ranked[Trial]]{disk: d, name: "x", limit: 3000, cmp: compareTrials}
		var want []ranked[Trial]
		for i := range n {
			row := ranked[Trial]{Rank: rng.IntN(20), Unit: fmt.Sprint(i), Row: Trial{RequestID: "r", Seed: uint32(rng.IntN(5)), Text: "é\x00\U0001f512"}}
			want = append(want, row)
			if err := s.add(row); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortStableFunc(want, func(a, b ranked[Trial]) int { return compareTrials(&a, &b) })
		i := 0
		for row, err := range s.sorted() {
			if err != nil {
				t.Fatal(err)
			}
			if i >= n || row != want[i] {
				t.Fatalf("%d rows: row %d is %v, want %v", n, i, row, want[i])
			}
			i++
		}
		if i != n {
			t.Errorf("%d rows came out of %d", i, n)
		}
		if err := s.close(); err != nil || len(d.dirs["."].names) != 0 || d.openFDs != 0 {
			t.Errorf("%d rows: %v, files left %d, open %d", n, err, len(d.dirs["."].names), d.openFDs)
		}
	}
}
