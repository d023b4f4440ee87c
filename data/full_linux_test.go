package data_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"demur/data"
)

// TestFullFileSystem makes a run on real file systems that are too small for it,
// at 50 sizes, makes them larger, and continues (P4).
func TestFullFileSystem(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
	resize := func(bytes int64) {
		must(t, syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)))
	}
	dir := filepath.Join(mount, "run")
	must(t, quietRun(dir))
	want := tables(t, dir)
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(mount, &fs))
	needed := int64(fs.Blocks-fs.Bfree) * fs.Bsize
	must(t, os.RemoveAll(dir))

	full := 0
	for i := range int64(50) {
		resize(max(8<<10, needed*i/50))
		err := quietRun(dir)
		switch {
		case err == nil: // pages are coarse: the last sizes may be enough
		case !errors.Is(err, data.ErrDiskFull):
			t.Fatalf("%d of %d bytes: error %v, want ErrDiskFull", needed*i/50, needed, err)
		case !strings.Contains(err.Error(), "start the same command again"):
			t.Errorf("%q does not say what to do", err)
		default:
			full++
		}
		for name := range want {
			// A table that stands under its name is whole.
			if b, err := os.ReadFile(filepath.Join(dir, name+".parquet")); err == nil && string(b) != want[name] {
				t.Fatalf("%d bytes: %s is not whole", needed*i/50, name)
			}
		}
		resize(16 << 20)
		must(t, quietRun(dir))
		if !reflect.DeepEqual(tables(t, dir), want) {
			t.Fatalf("%d bytes: the tables differ", needed*i/50)
		}
		must(t, os.RemoveAll(dir))
	}
	if full < 40 {
		t.Errorf("the file system was full %d times of 50", full)
	}
}

// quietRun creates or continues a run of a few units and finishes it.
func quietRun(dir string) error {
	r, err := data.Resume(dir, manifest())
	if errors.Is(err, os.ErrNotExist) {
		r, err = data.Create(dir, manifest(), requests(12))
	}
	if err != nil {
		return err
	}
	for i := range 12 {
		u := unit(fmt.Sprint("r", i+1), 1)
		if r.Done(u.ID) {
			continue
		}
		if err := r.Commit(u); err != nil {
			return errors.Join(err, r.Close())
		}
	}
	if err := r.Compact(); err != nil {
		return errors.Join(err, r.Close())
	}
	return errors.Join(r.Finish(now), r.Close())
}
