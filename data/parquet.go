package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"

	"github.com/parquet-go/parquet-go"
)

const maxFooter = 64 << 20

// openParquet opens a file that may be anything. The library trusts lengths
// that it reads, and panics on some damage: what can be checked is checked
// before, and a panic becomes an error.
func openParquet(r io.ReaderAt, size int64) (f *parquet.File, err error) {
	if size < 12 {
		return nil, fmt.Errorf("%d bytes are no Parquet file", size)
	}
	var head [4]byte
	var tail [8]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	if n, err := r.ReadAt(tail[:], size-8); n < len(tail) {
		return nil, err
	}
	if string(head[:]) != "PAR1" || string(tail[4:]) != "PAR1" {
		return nil, errors.New("it is no Parquet file, or its end is missing")
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > size-12 || n > maxFooter {
		return nil, fmt.Errorf("its footer says to have %d bytes, of %d in the file", n, size)
	}
	err = guard(func() error {
		f, err = parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := int64(0)
	for _, g := range f.Metadata().RowGroups {
		if g.NumRows < 0 {
			return nil, errors.New("a row group has a negative number of rows")
		}
		rows += g.NumRows
		for _, c := range g.Columns {
			m := c.MetaData
			start := m.DataPageOffset
			if m.DictionaryPageOffset > 0 {
				start = min(start, m.DictionaryPageOffset)
			}
			if start < 4 || m.TotalCompressedSize < 0 || m.TotalUncompressedSize < 0 || m.NumValues < 0 || start > size || m.TotalCompressedSize > size-start {
				return nil, errors.New("a column says to lie outside the file")
			}
		}
	}
	if rows != f.NumRows() {
		return nil, fmt.Errorf("its row groups have %d rows together, its footer says %d", rows, f.NumRows())
	}
	return f, nil
}

// readParquet yields the rows of a file as T.
func readParquet[T any](r io.ReaderAt, size int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		f, err := openParquet(r, size)
		if err == nil {
			err = checkPages(f, r)
		}
		if err != nil {
			yield(zero, err)
			return
		}
		var pr *parquet.GenericReader[T]
		err = guard(func() error {
			schema := parquet.SchemaOf(zero)
			found := false
			for _, c := range schema.Fields() {
				if f.Root().Column(c.Name()) != nil {
					found = true
				}
			}
			if !found {
				return fmt.Errorf("it has none of the columns of a %T", zero)
			}
			pr = parquet.NewGenericReader[T](f)
			return nil
		})
		if err != nil {
			yield(zero, err)
			return
		}
		defer func() { guard(pr.Close) }()
		left := f.NumRows()
		rows := make([]T, 64)
		for left > 0 {
			n := 0
			err := guard(func() (err error) {
				clear(rows)
				n, err = pr.Read(rows)
				return err
			})
			left -= int64(n)
			for _, row := range rows[:n] {
				clearEmpty(reflect.ValueOf(&row).Elem())
				if !yield(row, nil) {
					return
				}
			}
			switch {
			case errors.Is(err, io.EOF) && left > 0 || err == nil && n == 0:
				yield(zero, fmt.Errorf("%d rows are missing at its end", left))
				return
			case err != nil && !errors.Is(err, io.EOF):
				yield(zero, err)
				return
			}
		}
	}
}

// clearEmpty makes empty lists and maps nil, as they were when they were written:
// the library gives back empty ones, which have another JSON.
func clearEmpty(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	fields := v.NumField() // Fields would describe each field anew
	for i := range fields {
		f := v.Field(i)
		if k := f.Kind(); (k == reflect.Slice || k == reflect.Map) && f.Len() == 0 && !f.IsNil() && f.CanSet() {
			f.SetZero()
		}
	}
}

// guard turns a panic of the library into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	return f()
}
