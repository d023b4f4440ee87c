package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Limits of a Parquet file from outside. Without them a few bytes can ask for
// gigabytes.
const (
	maxFooter = 64 << 20
	maxPage   = 256 << 20 // decoded
)

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
	for i := range v.NumField() {
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

// checkPages walks the page headers of a file from outside. A page says how
// long it is when unpacked, and the library takes the memory before it looks.
func checkPages(f *parquet.File, r io.ReaderAt) error {
	return guard(func() error {
		protocol := new(thrift.CompactProtocol)
		for _, g := range f.Metadata().RowGroups {
			for _, c := range g.Columns {
				m := c.MetaData
				at := m.DataPageOffset
				if m.DictionaryPageOffset > 0 {
					at = min(at, m.DictionaryPageOffset)
				}
				end := at + m.TotalCompressedSize
				for values := int64(0); at < end && values < m.NumValues; {
					section := io.NewSectionReader(r, at, end-at)
					buffered := bufio.NewReaderSize(section, 4<<10)
					var h format.PageHeader
					if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&h); err != nil {
						return fmt.Errorf("a page header cannot be read: %w", err)
					}
					read, _ := section.Seek(0, io.SeekCurrent)
					at += read - int64(buffered.Buffered())
					if h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > end-at || h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPage {
						return fmt.Errorf("a page says to have %d bytes, unpacked %d; up to %d are read", h.CompressedPageSize, h.UncompressedPageSize, maxPage)
					}
					at += int64(h.CompressedPageSize)
					switch h.Type {
					case format.DataPage:
						values += int64(h.DataPageHeader.V.NumValues)
					case format.DataPageV2:
						values += int64(h.DataPageHeaderV2.V.NumValues)
					}
				}
			}
		}
		return nil
	})
}
