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

// openFinished opens a run directory whose tables are there, as they were written.
func openFinished(dir string) (*data.Run, error) {
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err != nil {
		return nil, notARun(dir, err)
	}
	run, err := data.OpenRun(dir)
	if err != nil {
		return nil, dataError(err)
	}
	m := run.Manifest()
	if len(m.Tables) > 0 {
		// A table that is missing or was changed would be left out in silence.
		if err := tablesHold(dir, m); err != nil {
			return nil, errors.Join(err, run.Close())
		}
	} else if !data.HasTable(dir, data.Trials) {
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
	var names []string
	entries, _ := os.ReadDir(dir) // what cannot be listed holds no runs to name
	for _, entry := range entries {
		inside := filepath.Join(dir, entry.Name())
		if _, err := os.Stat(filepath.Join(inside, "manifest.json")); err == nil && len(names) < 20 {
			names = append(names, inside)
		}
	}
	if len(names) == 0 {
		return usage(fmt.Errorf("%s is no run directory: it holds no manifest.json", dir))
	}
	return usage(fmt.Errorf("%s is no run directory but holds some: name one of %s", dir, strings.Join(names, ", ")))
}

// dataError leaves errors that mean damage, a full disk, another process or no
// permission their own exit codes; all else is usage.
func dataError(err error) error {
	var c *coded
	if errors.As(err, &c) {
		return err
	}
	if errors.Is(err, data.ErrCorrupt) || errors.Is(err, data.ErrDiskFull) || errors.Is(err, data.ErrLocked) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return usage(err)
}
