package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demur/data"
)

// openFinished opens a run directory whose tables are there.
func openFinished(dir string) (*data.Run, error) {
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err != nil {
		return nil, notARun(dir, err)
	}
	run, err := data.OpenRun(dir)
	if err != nil {
		return nil, dataError(err)
	}
	if !data.HasTable(dir, data.Trials) {
		m := run.Manifest()
		return nil, errors.Join(withCode(exitIncomplete, withHint(fmt.Errorf("%s is not finished: it has no tables yet", dir),
			fmt.Sprintf("continue it with the command that began it (demur run --model %s … --out %s)", m.Model.Name, dir))), run.Close())
	}
	return run, nil
}

// notARun says why a folder is no run directory, and what is in it instead.
func notARun(dir string, err error) error {
	info, serr := os.Stat(dir)
	switch {
	case errors.Is(serr, fs.ErrNotExist):
		return usage(withHint(fmt.Errorf("there is no run directory %s", dir), "ls runs shows those that demur made here"))
	case serr != nil:
		return usage(serr)
	case !info.IsDir():
		return usage(fmt.Errorf("%s is a file, not a run directory", dir))
	case !errors.Is(err, fs.ErrNotExist):
		return usage(err)
	}
	inside, gerr := filepath.Glob(filepath.Join(dir, "*", "manifest.json"))
	if gerr != nil || len(inside) == 0 {
		return usage(fmt.Errorf("%s is no run directory: it holds no manifest.json", dir))
	}
	var names []string
	for _, path := range inside {
		names = append(names, filepath.Dir(path))
	}
	return usage(fmt.Errorf("%s is no run directory but holds some: name one of %s", dir, strings.Join(names, ", ")))
}

// dataError leaves errors that mean damage, a full disk or another process their
// own exit codes; all else is usage.
func dataError(err error) error {
	var c *coded
	if errors.As(err, &c) {
		return err
	}
	if errors.Is(err, data.ErrCorrupt) || errors.Is(err, data.ErrDiskFull) || errors.Is(err, data.ErrLocked) {
		return err
	}
	return usage(err)
}
