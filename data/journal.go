package data

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The journal is the record of a run while it grows: files journal/000001.dmj,
// 000002.dmj, … of frames, each appended and synced. A frame is
//
//	magic    4 bytes  D3 44 4D 4A, which begins no UTF-8 text
//	length   4 bytes  of the payload, little endian
//	payload  4 bytes  CRC-32C of the payload
//	header   4 bytes  CRC-32C of the twelve bytes before
//	the payload, one JSON object
//
// The header has a checksum of its own so that a damaged length is not taken
// for a frame that was cut. A bad frame at the very end is the trace of a kill
// or of a loss of power, and was never reported as done: it is cut. A bad frame
// with a good one anywhere behind it is damage, and an error.
const (
	journalDir  = "journal"
	journalExt  = ".dmj"
	frameMagic  = "\xd3DMJ"
	headerSize  = 16
	maxFrame    = 64 << 20
	segmentSize = 256 << 20 // a segment that has reached it is not written any more
)

// The checksums are CRC-32C: what iSCSI, ext4 and Kafka use, in hardware nearly
// everywhere.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A frame has exactly one of its fields.
type frame struct {
	Segment  *segment  `json:"segment,omitempty"` // first of each file
	Requests []Request `json:"requests,omitempty"`
	Unit     *Unit     `json:"unit,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"` // failed, of no finished unit
}

// A segment says to which run a file of the journal belongs.
type segment struct {
	RunID string `json:"run_id"`
	Index int    `json:"index"` // from 1
}

// A corruptError is damage in a file that cannot be the trace of a kill.
type corruptError struct {
	file   string
	offset int64
	what   string
}

func (e *corruptError) Error() string {
	return fmt.Sprintf("%s is %v at byte %d: %s; nothing was changed: restore the file from a copy, or start again in another directory",
		e.file, ErrCorrupt, e.offset, e.what)
}

func (e *corruptError) Unwrap() error { return ErrCorrupt }

// encodeFrame returns the bytes of a frame. Equal frames give equal bytes.
func encodeFrame(fr frame) ([]byte, error) {
	var buf bytes.Buffer
	buf.Write(make([]byte, headerSize))
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fr); err != nil {
		return nil, err
	}
	b := buf.Bytes()
	payload := b[headerSize:]
	if len(payload) > maxFrame {
		return nil, fmt.Errorf("%d bytes are more than the %d that are written at once; use smaller units (--pack)", len(payload), maxFrame)
	}
	copy(b, frameMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
	return b, nil
}

// frameLength returns the length of the payload behind a header, or false if
// the header is none.
func frameLength(header []byte) (int, bool) {
	if string(header[:4]) != frameMagic || binary.LittleEndian.Uint32(header[12:]) != crc32.Checksum(header[:12], castagnoli) {
		return 0, false
	}
	n := binary.LittleEndian.Uint32(header[4:])
	return int(n), n <= maxFrame
}

// A place is where a frame stands.
type place struct {
	segment int   // from 1
	offset  int64 // of the header
}

// A journalEnd is where a journal stops.
type journalEnd struct {
	segments int   // number of files
	offset   int64 // end of the last good frame of the last file
	torn     int64 // bytes behind it
}

func segmentName(index int) string {
	return fmt.Sprintf("%s/%06d%s", journalDir, index, journalExt)
}

// segments returns how many files the journal has. A missing directory is an
// empty journal.
func segments(d disk) (int, error) {
	names, err := d.ReadDir(journalDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, journalExt) })
	for i, name := range names {
		if want := segmentName(i + 1); journalDir+"/"+name != want {
			return 0, &corruptError{want, 0, fmt.Sprintf("the file is missing, but %s is there", name)}
		}
	}
	return len(names), nil
}

// scanJournal calls visit for each good frame, in order. The payload is only
// valid during the call.
func scanJournal(d disk, runID string, visit func(at place, fr frame) error) (journalEnd, error) {
	n, err := segments(d)
	if err != nil {
		return journalEnd{}, err
	}
	end := journalEnd{segments: n}
	for index := 1; index <= n; index++ {
		end.offset, end.torn, err = scanSegment(d, index, func(offset int64, payload []byte) error {
			fr, err := decodeFrame(payload)
			if err != nil {
				return &corruptError{segmentName(index), offset, err.Error()}
			}
			switch {
			case (offset == 0) != (fr.Segment != nil):
				return &corruptError{segmentName(index), offset, "a file of the journal begins with its number and its run, and nowhere else"}
			case fr.Segment != nil && (fr.Segment.RunID != runID || fr.Segment.Index != index):
				return &corruptError{segmentName(index), offset, fmt.Sprintf("it is file %d of run %s", fr.Segment.Index, clip(fr.Segment.RunID))}
			case fr.Segment != nil:
				return nil
			}
			return visit(place{index, offset}, fr)
		})
		if err != nil {
			return journalEnd{}, err
		}
		if end.torn > 0 && index < n {
			return journalEnd{}, &corruptError{segmentName(index), end.offset, "a frame is cut, but another file follows"}
		}
	}
	return end, nil
}

// decodeFrame reads a payload whose checksum is right.
func decodeFrame(payload []byte) (frame, error) {
	var fr frame
	if err := json.Unmarshal(payload, &fr); err != nil {
		return frame{}, fmt.Errorf("the frame is not demur's: %v", err)
	}
	kinds := 0
	for _, is := range []bool{fr.Segment != nil, fr.Requests != nil, fr.Unit != nil, fr.Attempts != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return frame{}, errors.New("the frame is of no known kind; a later version of demur may have written it")
	}
	return fr, nil
}

// scanSegment calls visit for each good frame of a file, and returns where they
// end and how many bytes follow.
func scanSegment(d disk, index int, visit func(offset int64, payload []byte) error) (end, torn int64, err error) {
	name := segmentName(index)
	f, err := d.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, 0, err
	}
	r := &windowReader{r: f, size: size}
	for end < size {
		payload, err := readFrame(r, end)
		if err != nil {
			return 0, 0, fmt.Errorf("reading %s: %w", name, err)
		}
		if payload == nil {
			later, err := findHeader(r, end+1)
			if err != nil {
				return 0, 0, fmt.Errorf("reading %s: %w", name, err)
			}
			if later >= 0 {
				return 0, 0, &corruptError{name, end, fmt.Sprintf("the frame is broken, but another one follows at byte %d", later)}
			}
			return end, size - end, nil
		}
		if err := visit(end, payload); err != nil {
			return 0, 0, err
		}
		end += headerSize + int64(len(payload))
	}
	return end, 0, nil
}

// readFrame returns the payload of the frame at an offset, or nil if there is
// no good one.
func readFrame(r *windowReader, offset int64) ([]byte, error) {
	header, err := r.bytes(offset, headerSize)
	if header == nil || err != nil {
		return nil, err
	}
	n, ok := frameLength(header)
	if !ok {
		return nil, nil
	}
	sum := binary.LittleEndian.Uint32(header[8:])
	payload, err := r.bytes(offset+headerSize, n)
	if payload == nil || err != nil || crc32.Checksum(payload, castagnoli) != sum {
		return nil, err
	}
	return payload, nil
}

// findHeader returns the offset of the first good header at or behind an
// offset, or −1. A header is written only when all before it is durable, and its
// magic bytes stand in no payload, so it alone shows that what lies before it
// was whole once.
func findHeader(r *windowReader, offset int64) (int64, error) {
	for r.size-offset >= headerSize {
		b, err := r.bytes(offset, int(min(r.size-offset, 1<<20)))
		if err != nil {
			return 0, err
		}
		i := bytes.Index(b, []byte(frameMagic))
		if i < 0 {
			offset += int64(len(b) - len(frameMagic) + 1)
			continue
		}
		offset += int64(i)
		header, err := r.bytes(offset, headerSize)
		if header == nil || err != nil {
			return -1, err
		}
		if _, ok := frameLength(header); ok {
			return offset, nil
		}
		offset++
	}
	return -1, nil
}

// A windowReader reads a file through one buffer that grows to the largest
// piece asked for.
type windowReader struct {
	r     io.ReaderAt
	size  int64
	buf   []byte
	start int64 // offset of buf
}

// bytes returns n bytes at an offset, valid until the next call, or nil if the
// file ends before.
func (w *windowReader) bytes(offset int64, n int) ([]byte, error) {
	if offset+int64(n) > w.size {
		return nil, nil
	}
	if offset < w.start || offset+int64(n) > w.start+int64(len(w.buf)) {
		want := int(min(int64(max(n, 256<<10)), w.size-offset))
		w.buf = slices.Grow(w.buf[:0], want)[:want]
		w.start = offset
		if _, err := io.ReadFull(io.NewSectionReader(w.r, offset, int64(want)), w.buf); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	from := int(offset - w.start)
	return w.buf[from : from+n : from+n], nil
}

// A journal is open for appending.
type journal struct {
	disk  disk
	runID string
	index int
	f     file
	size  int64 // of the last file, up to the last frame that is durable
	limit int64 // segmentSize, or less in tests
	err   error // the first failure; final
	// watched is true where the file could be found under its name when it was
	// opened: on a file system that cannot tell, it is never said to be gone.
	watched bool
}

// here returns an error if the file is not where it was opened.
func (j *journal) here() error {
	d, ok := j.disk.(interface{ Here(string, file) error })
	if !ok || j.f == nil {
		return nil
	}
	return d.Here(segmentName(j.index), j.f)
}

// openJournal goes on where a scan ended. It cuts what is behind, and syncs:
// frames that the scan read may stand in the cache of the system alone.
func openJournal(d disk, runID string, end journalEnd, limit int64) (*journal, error) {
	j := &journal{disk: d, runID: runID, index: end.segments, size: end.offset, limit: limit}
	if end.segments == 0 {
		return j, nil
	}
	name := segmentName(end.segments)
	f, err := d.Modify(name)
	if err != nil {
		return nil, err
	}
	j.f = f
	if end.torn > 0 {
		err = f.Truncate(end.offset)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.SyncDir(journalDir)
	}
	if err == nil && j.size == 0 {
		err = j.begin() // the file was made, and the kill came before its first frame
	}
	if err != nil {
		return nil, errors.Join(writeError("opening "+name, 0, err), f.Close())
	}
	j.watched = j.here() == nil
	return j, nil
}

// append makes a frame durable. After a failure the journal takes no more
// frames: once a sync has failed, what the system says about later ones means
// nothing.
func (j *journal) append(doing string, fr frame) (place, error) {
	if j.err != nil {
		return place{}, fmt.Errorf("%s: the journal stopped before: %w", doing, j.err)
	}
	b, err := encodeFrame(fr)
	if err != nil {
		return place{}, fmt.Errorf("%s: %w", doing, err)
	}
	if j.watched {
		if err := j.here(); err != nil {
			j.err = fmt.Errorf("%s: %w", doing, err)
			return place{}, j.err
		}
	}
	if j.f == nil || j.size >= j.limit {
		if err := j.rotate(); err != nil {
			j.err = writeError(doing, int64(len(b)), err)
			return place{}, j.err
		}
	}
	at := place{j.index, j.size}
	if err := j.write(b); err != nil {
		j.err = writeError(doing, int64(len(b)), err)
		return place{}, j.err
	}
	return at, nil
}

// rotate begins the next file.
func (j *journal) rotate() error {
	if j.f != nil {
		if err := j.close(); err != nil {
			return err
		}
	} else if err := j.disk.Mkdir(journalDir); err != nil {
		return err
	} else if err := j.disk.SyncDir("."); err != nil {
		return err
	}
	f, err := j.disk.Create(segmentName(j.index + 1))
	if err != nil {
		return err
	}
	j.f, j.size = f, 0
	j.index++
	if err := j.disk.SyncDir(journalDir); err != nil {
		return err
	}
	j.watched = j.here() == nil
	return j.begin()
}

// begin writes the first frame of a file.
func (j *journal) begin() error {
	b, err := encodeFrame(frame{Segment: &segment{j.runID, j.index}})
	if err != nil {
		return err
	}
	return j.write(b)
}

// write appends bytes and syncs. On failure it takes them back as far as the
// disk lets it, so that nothing is read later that was never durable.
func (j *journal) write(b []byte) error {
	n, err := j.f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		return errors.Join(err, j.f.Truncate(j.size))
	}
	j.size += int64(len(b))
	return nil
}

func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	f := j.f
	j.f = nil
	return f.Close()
}

// checkUnit returns an error if u cannot be stored as it is: JSON would change
// text that is not UTF-8 without a word.
func checkUnit(u Unit) error {
	if u.ID == "" {
		return errors.New("the unit has no id")
	}
	bad := func(id, field string, s string) error {
		if utf8.ValidString(s) {
			return nil
		}
		return fmt.Errorf("%s of %s is not UTF-8", field, clip(id))
	}
	for _, t := range u.Trials {
		if err := errors.Join(bad(t.ID, "text", t.Text), bad(t.ID, "reasoning", t.Reasoning)); err != nil {
			return err
		}
	}
	for _, p := range u.Predictions {
		for field, s := range map[string]*string{"text": p.Text, "reasoning": p.Reasoning} {
			if s != nil {
				if err := bad(p.ID, field, *s); err != nil {
					return err
				}
			}
		}
		for _, v := range []*float64{p.Confidence, p.HarmRating, p.PRefuse, p.Mass} {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
				return fmt.Errorf("a number of %s is not finite", clip(p.ID))
			}
		}
	}
	return nil
}

// clip shortens text from outside for a message, and takes out what a terminal
// could obey.
func clip(s string) string {
	const most = 80
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff {
			return '\uFFFD'
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return s
}
