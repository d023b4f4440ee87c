package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"reflect"
	"regexp"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

const tableExt = ".parquet"

var tableForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}(/[a-z0-9][a-z0-9_-]{0,63})?$`)

// tableFile returns the name of a table's file within a run directory.
func tableFile(name string) (string, error) {
	if !tableForm.MatchString(name) {
		return "", fmt.Errorf("%q is not the name of a table: lowercase letters, digits and underscores, and at most one folder", clip(name))
	}
	return name + tableExt, nil
}

// HasTable reports whether a run directory holds a table, such as "trials" or
// "activations/layer_07".
func HasTable(dir, name string) bool {
	d, err := openDisk(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	n, err := tableFile(name)
	if err != nil {
		return false
	}
	f, err := d.Open(n)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// ReadTable yields the rows of a table of a run directory, in order, a few in
// memory at a time. T is a struct with parquet tags; columns that the file has
// and T lacks are skipped, columns that an older file lacks stay zero. The
// sequence ends with the first error. A table that is not there is an error
// that wraps fs.ErrNotExist.
func ReadTable[T any](dir, name string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		d, err := openDisk(dir)
		if err != nil {
			yield(zero, fmt.Errorf("reading table %s of %s: %w", name, dir, err))
			return
		}
		defer d.Close()
		for row, err := range readTable[T](d, name) {
			if err != nil {
				err = fmt.Errorf("reading table %s of %s: %w", name, dir, err)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func readTable[T any](d disk, name string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		n, err := tableFile(name)
		if err != nil {
			yield(zero, err)
			return
		}
		f, err := d.Open(n)
		if err != nil {
			yield(zero, err)
			return
		}
		defer f.Close()
		size, err := f.Size()
		if err != nil {
			yield(zero, err)
			return
		}
		rows := readParquet[T](f, size)
		if _, ok := any(zero).(Activation); ok {
			if wide, ok := readActivations(f, size); ok {
				rows = any(wide).(iter.Seq2[T, error])
			}
		}
		for row, err := range rows {
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// WriteTable writes a table of a run directory as a whole: under its name there
// is the old table or the new one, durable, never a part. An error in rows ends
// the writing and is returned. T is a struct with parquet tags.
func WriteTable[T any](dir, name string, rows iter.Seq2[T, error]) error {
	return writeGrouped(dir, name, rowGroupSize, rows)
}

func writeGrouped[T any](dir, name string, group int, rows iter.Seq2[T, error]) (err error) {
	d, err := openDisk(dir)
	if err == nil {
		_, err = storeGrouped(d, name, group, rows)
		err = errors.Join(err, d.Close())
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", dir, err)
	}
	return nil
}

func storeTable[T any](d disk, name string, rows iter.Seq2[T, error]) (Table, error) {
	return storeGrouped(d, name, rowGroupSize, rows)
}

// storeGrouped writes a table whose row groups are cut at about group bytes.
func storeGrouped[T any](d disk, name string, group int, rows iter.Seq2[T, error]) (Table, error) {
	file, err := tableFile(name)
	if err != nil {
		return Table{}, err
	}
	if folder := path.Dir(file); folder != "." {
		if err := d.Mkdir(folder); err != nil {
			return Table{}, err
		}
		if err := d.SyncDir("."); err != nil {
			return Table{}, err
		}
	}
	sum := sha256.New()
	count := int64(0)
	err = replace(d, file, func(w io.Writer) error {
		tw := newTableWriter[T](io.MultiWriter(w, sum), group)
		for row, err := range rows {
			if err != nil {
				return err
			}
			if err := tw.add(row); err != nil {
				return err
			}
			count++
		}
		return tw.close()
	}, func(r io.ReaderAt, size int64) error {
		f, err := openParquet(r, size)
		if err != nil {
			return fmt.Errorf("what was written cannot be read: %w", err)
		}
		if f.NumRows() != count {
			return fmt.Errorf("%d rows were written and %d can be read", count, f.NumRows())
		}
		return nil
	})
	if err != nil {
		return Table{}, err
	}
	return Table{Rows: count, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// A tableWriter writes Parquet: zstd, row groups cut by the size of their rows,
// no clock and no version of a library, so that equal rows give equal bytes.
type tableWriter[T any] struct {
	w     *parquet.GenericWriter[T]
	buf   []T
	group int // estimated bytes of the row group so far
	most  int // of a row group
}

// A row group is cut when its rows have about this size in memory: it bounds
// the memory of writer and readers.
const rowGroupSize = 16 << 20

func newTableWriter[T any](w io.Writer, group int) *tableWriter[T] {
	options := []parquet.WriterOption{
		parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("demur-tables", strconv.Itoa(SchemaVersion)+".0.0", "0"),
		parquet.KeyValueMetadata("demur.schema_version", strconv.Itoa(SchemaVersion)),
	}
	var zero T
	if _, ok := any(zero).(halfActivation); ok {
		options = append(options, halfSchema())
	}
	return &tableWriter[T]{w: parquet.NewGenericWriter[T](w, options...), most: group}
}

func (t *tableWriter[T]) add(row T) error {
	t.buf = append(t.buf, row)
	size, err := sizeOf(reflect.ValueOf(&row).Elem())
	if err != nil {
		return err
	}
	t.group += size
	if t.group >= t.most {
		t.group = 0
		if err := t.drain(); err != nil {
			return err
		}
		return t.w.Flush()
	}
	if len(t.buf) >= 256 {
		return t.drain()
	}
	return nil
}

func (t *tableWriter[T]) drain() error {
	_, err := t.w.Write(t.buf)
	clear(t.buf)
	t.buf = t.buf[:0]
	return err
}

func (t *tableWriter[T]) close() error {
	if err := t.drain(); err != nil {
		return err
	}
	return t.w.Close()
}

// sizeOf returns about how many bytes a row takes in memory, and refuses
// numbers that are none: readers disagree about NaN in Parquet, and DuckDB
// gives wrong answers to filters on it. Absent numbers are null.
func sizeOf(v reflect.Value) (int, error) {
	switch v.Kind() {
	case reflect.String:
		return 16 + v.Len(), nil
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); f != f || f-f != 0 {
			return 0, fmt.Errorf("a row holds the number %v; absent numbers are null", f)
		}
		return 8, nil
	case reflect.Pointer:
		if v.IsNil() {
			return 8, nil
		}
		return sizeOf(v.Elem())
	case reflect.Slice, reflect.Array:
		if values, ok := v.Interface().([]float32); ok { // activations are long
			for _, f := range values {
				if f != f || f-f != 0 {
					return 0, fmt.Errorf("a row holds the number %v; absent numbers are null", f)
				}
			}
			return 24 + 4*len(values), nil
		}
		if values, ok := v.Interface().([]half); ok { // looked at when they were made
			return 24 + len(half{})*len(values), nil
		}
		n := 24
		for i := range v.Len() {
			m, err := sizeOf(v.Index(i))
			if err != nil {
				return 0, err
			}
			n += m
		}
		return n, nil
	case reflect.Map:
		n := 8
		for it := v.MapRange(); it.Next(); {
			k, err1 := sizeOf(it.Key())
			e, err2 := sizeOf(it.Value())
			if err := errors.Join(err1, err2); err != nil {
				return 0, err
			}
			n += k + e
		}
		return n, nil
	case reflect.Struct:
		n, fields := 0, v.NumField() // Fields would describe each field anew
		for i := range fields {
			m, err := sizeOf(v.Field(i))
			if err != nil {
				return 0, err
			}
			n += m
		}
		return n, nil
	}
	return 8, nil
}
