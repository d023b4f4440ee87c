package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A disk is all that the store asks of the operating system, within one run
// directory: names are relative to it, with slashes, and do not lead out of it.
// Nothing is durable before Sync (bytes and length of a file) and SyncDir
// (names in a directory) return nil.
type disk interface {
	Open(name string) (file, error)   // for reading
	Create(name string) (file, error) // for writing, emptied if it exists
	Modify(name string) (file, error) // an existing file, for reading and writing at its end
	Rename(from, to string) error
	Remove(name string) error
	Mkdir(name string) error               // an existing directory is no error
	ReadDir(name string) ([]string, error) // names, sorted
	SyncDir(name string) error
	Lock(name string) (unlock func() error, err error)
	Close() error
}

// A file is an open file of a disk. Writes go to its end.
type file interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// osDisk is the real one. An os.Root keeps every name, links included, inside
// the directory.
type osDisk struct{ root *os.Root }

// openDisk opens a directory that exists.
func openDisk(dir string) (disk, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return osDisk{root}, nil
}

// makeDisk opens a directory, making it durably where it is missing.
func makeDisk(dir string) (disk, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var missing []string
	for d := abs; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	if err := os.MkdirAll(abs, 0o777); err != nil {
		return nil, err
	}
	for _, d := range missing {
		if err := syncDir(filepath.Dir(d)); err != nil {
			return nil, err
		}
	}
	return openDisk(dir)
}

func (d osDisk) Open(name string) (file, error) { return d.open(name, os.O_RDONLY) }
func (d osDisk) Create(name string) (file, error) {
	return d.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}
func (d osDisk) Modify(name string) (file, error) { return d.open(name, os.O_RDWR|os.O_APPEND) }

var errIrregular = errors.New("not a regular file")

func (d osDisk) open(name string, flag int) (file, error) {
	// A directory of somebody else may hold a pipe that never answers, or a link.
	if info, err := d.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	f, err := d.root.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osDisk) Rename(from, to string) error { return d.root.Rename(from, to) }
func (d osDisk) Remove(name string) error     { return d.root.Remove(name) }
func (d osDisk) Close() error                 { return d.root.Close() }

func (d osDisk) Mkdir(name string) error {
	err := d.root.Mkdir(name, 0o777)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (d osDisk) ReadDir(name string) ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (d osDisk) SyncDir(name string) error {
	return syncDir(filepath.Join(d.root.Name(), filepath.FromSlash(name)))
}

// Here returns an error if the directory has been moved or removed since it was
// opened, or no longer has the file under that name: the system lets a program
// write to a file that nobody will find again.
func (d osDisk) Here(name string, f file) error {
	gone := func(what string) error {
		return &fs.PathError{Op: "find", Path: what, Err: errGone}
	}
	mine, err := d.root.Stat(".")
	if err != nil {
		return gone(d.root.Name())
	}
	now, err := os.Stat(d.root.Name())
	if err != nil || !os.SameFile(mine, now) {
		return gone(d.root.Name())
	}
	open, ok := f.(osFile)
	if !ok {
		return nil
	}
	a, err := open.Stat()
	if err != nil {
		return err
	}
	if b, err := d.root.Lstat(name); err != nil || !os.SameFile(a, b) {
		return gone(name)
	}
	return nil
}

var errGone = errors.New("it was moved or removed while the run was going; put it back and start the same command again")

// Lock takes the lock file for this process, or returns an error that wraps
// ErrLocked. The operating system drops the lock of a process that ends in any
// way, so a file left behind locks nothing.
func (d osDisk) Lock(name string) (func() error, error) {
	for {
		f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		if err := lockFile(f); err != nil {
			defer f.Close()
			if !errors.Is(err, ErrLocked) {
				return nil, fmt.Errorf("%w; if the file system has no locks, use a directory on a local disk", err)
			}
			buf := make([]byte, 32)
			n, _ := f.ReadAt(buf, 0)
			if pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n]))); err == nil {
				return nil, fmt.Errorf("%w (process %d); wait for it or stop it", ErrLocked, pid)
			}
			return nil, fmt.Errorf("%w; wait for it or stop it", ErrLocked)
		}
		// Whoever held the lock before may have removed the file since it was
		// opened: then this lock is on a file without a name, and worth nothing.
		mine, err1 := f.Stat()
		named, err2 := d.root.Lstat(name)
		if err1 != nil || err2 != nil || !os.SameFile(mine, named) {
			f.Close()
			continue
		}
		if err := f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			if err != nil && !isFull(err) { // the number is for the message only
				return nil, errors.Join(err, f.Close())
			}
		}
		return func() error { return errors.Join(d.root.Remove(name), f.Close()) }, nil
	}
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// isFull reports whether err means that there is no room for more bytes.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota) || errors.Is(err, syscall.EFBIG)
}

// A fullError is a write for which there was no room.
type fullError struct {
	doing string
	bytes int64
	err   error
}

func (e *fullError) Error() string {
	need := "more room is needed"
	if e.bytes > 0 {
		need = fmt.Sprintf("%d bytes are needed", e.bytes)
	}
	return fmt.Sprintf("%s: the disk is full: %s (%v); free some space and start the same command again: nothing that was finished is lost",
		e.doing, need, e.err)
}

func (e *fullError) Unwrap() []error { return []error{ErrDiskFull, e.err} }

// writeError says what was being written, and marks a full disk.
func writeError(doing string, bytes int64, err error) error {
	if isFull(err) && !errors.Is(err, ErrDiskFull) {
		return &fullError{doing, bytes, err}
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w; name a directory that you may write to", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// tempName returns the name under which a file is written before it gets its
// own. Two processes do not share it.
func tempName(name string) string {
	folder, base := path.Split(name)
	return fmt.Sprintf("%s.%s.%d.tmp", folder, base, os.Getpid())
}

// isTemp reports whether a name was made by tempName.
func isTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp")
}

// replace writes a file as a whole: under its name there is the old content or
// the new, never a part. Check, if given, looks at the closed file before it
// gets its name.
func replace(d disk, name string, write func(w io.Writer) error, check func(r io.ReaderAt, size int64) error) (err error) {
	doing := "writing " + name
	temp := tempName(name)
	count := &counter{}
	defer func() {
		if err != nil {
			err = writeError(doing, count.n, err)
			// What is left of the temporary file is in nobody's way, but takes room.
			if rm := d.Remove(temp); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
				err = errors.Join(err, rm)
			}
		}
	}()
	f, err := d.Create(temp)
	if err != nil {
		return err
	}
	count.w = f
	if err := write(count); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if check != nil {
		f, err := d.Open(temp)
		if err != nil {
			return err
		}
		size, err := f.Size()
		if err == nil {
			err = check(f, size)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if err := d.Rename(temp, name); err != nil {
		return err
	}
	return d.SyncDir(path.Dir(name))
}

// A counter counts the bytes that were asked to be written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

var errLarge = errors.New("more than such a file may have")

// readFile reads a file of at most limit bytes.
func readFile(d disk, name string, limit int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %d bytes: %w", name, size, errLarge)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
