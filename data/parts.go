package data

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strings"
)

// partsDir is where Parts lie while their work goes on.
const partsDir = "parts"

// Parts keep what a long piece of work has done so far, in tables of their own,
// each durable as a whole or not there. A process that is stopped loses the part
// in flight; the next one finds the others. While they are open no other process
// writes the directory.
type Parts struct {
	dir    string
	disk   disk
	unlock func() error
	work   string
}

// OpenParts opens the parts of a piece of work in a directory that exists, and
// locks it; an error wraps ErrLocked if another process writes it. Work is
// whatever the parts depend on, as Digest sees it: parts of other work are
// removed, and so is what a killed process left half written.
func OpenParts(dir string, work any) (_ *Parts, err error) {
	d, err := openDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, err)
	}
	p := &Parts{dir: dir, disk: d, work: Digest(work)[:16]}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening %s: %w", dir, err), d.Close())
		}
	}()
	if p.unlock, err = d.Lock("lock"); err != nil {
		return nil, err
	}
	for folder, old := range map[string]func(string) bool{
		".": isTemp, activationsDir: isTemp,
		partsDir: func(name string) bool { return isTemp(name) || !strings.HasPrefix(name, p.work+"-") },
	} {
		if err := p.clear(folder, old); err != nil {
			return nil, errors.Join(err, p.unlock())
		}
	}
	return p, nil
}

// clear removes the files of a folder that are to go.
func (p *Parts) clear(folder string, goes func(string) bool) error {
	names, err := p.disk.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if !goes(name) {
			continue
		}
		if rerr := p.disk.Remove(path.Join(folder, name)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// table names a part by what it was made of.
func (p *Parts) table(key any) string {
	return partsDir + "/" + p.work + "-" + Digest(key)[:32]
}

// Remove removes all parts, when what they were for is done.
func (p *Parts) Remove() error {
	err := p.clear(partsDir, func(string) bool { return true })
	if err == nil {
		if err = p.disk.Remove(partsDir); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("removing the parts in %s: %w", p.dir, err)
	}
	return nil
}

// Close unlocks the directory.
func (p *Parts) Close() error {
	return errors.Join(p.unlock(), p.disk.Close())
}

// LoadPart returns the rows of a part; ok is false if it was not stored.
func LoadPart[T any](p *Parts, key any) (rows []T, ok bool, err error) {
	for row, err := range readTable[T](p.disk, p.table(key)) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("a part of unfinished work, %s in %s: %w; remove it and start the same command again", p.table(key)+tableExt, p.dir, err)
		}
		rows = append(rows, row)
	}
	return rows, true, nil
}

// StorePart stores the rows of a part, durably.
func StorePart[T any](p *Parts, key any, rows []T) error {
	var all iter.Seq2[T, error] = func(yield func(T, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
	if _, err := storeTable(p.disk, p.table(key), all); err != nil {
		return fmt.Errorf("%s: %w", p.dir, err)
	}
	return nil
}
