package data

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"reflect"
	"slices"
)

// A sorter sorts any number of rows in little memory: what does not fit is
// written, sorted, to temporary files beside the table, which are merged.
type sorter[T any] struct {
	disk  disk
	name  string
	cmp   func(a, b *T) int
	limit int // bytes of rows in memory

	rows  []T
	size  int
	files []string
}

const sortMemory = 16 << 20

func (s *sorter[T]) add(row T) error {
	n, err := sizeOf(reflect.ValueOf(&row).Elem())
	if err != nil {
		return err
	}
	s.rows = append(s.rows, row)
	s.size += n
	if s.size >= s.limit {
		return s.spill()
	}
	return nil
}

func (s *sorter[T]) sort() {
	slices.SortStableFunc(s.rows, func(a, b T) int { return s.cmp(&a, &b) })
}

// spill writes the rows in memory to a file of their own. It needs no sync:
// nothing is taken from it after a crash.
func (s *sorter[T]) spill() (err error) {
	s.sort()
	name := tempName(fmt.Sprintf("%s-%06d", s.name, len(s.files)))
	var written int64
	defer func() {
		if err != nil {
			err = writeError("sorting "+s.name, written, err)
		}
	}()
	f, err := s.disk.Create(name)
	if err != nil {
		return err
	}
	s.files = append(s.files, name)
	c := &counter{w: f}
	w := bufio.NewWriterSize(c, 256<<10)
	for i := range s.rows {
		b, err := json.Marshal(&s.rows[i])
		if err != nil {
			return errors.Join(err, f.Close())
		}
		// Errors of a bufio.Writer stay until Flush.
		w.Write(binary.AppendUvarint(nil, uint64(len(b))))
		w.Write(b)
	}
	err = errors.Join(w.Flush(), f.Close())
	written = c.n
	clear(s.rows)
	s.rows, s.size = s.rows[:0], 0
	return err
}

// sorted yields all rows in order; equal rows come in the order of add.
func (s *sorter[T]) sorted() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		s.sort()
		if len(s.files) == 0 {
			for _, row := range s.rows {
				if !yield(row, nil) {
					return
				}
			}
			return
		}
		m := &merge[T]{cmp: s.cmp}
		defer m.close()
		for i, name := range s.files {
			if err := m.open(s.disk, name, i); err != nil {
				yield(zero, err)
				return
			}
		}
		m.add(source[T]{rows: s.rows, order: len(s.files)})
		for m.Len() > 0 {
			if !yield(m.sources[0].head, nil) {
				return
			}
			if err := m.advance(); err != nil {
				yield(zero, err)
				return
			}
		}
	}
}

// close removes the temporary files.
func (s *sorter[T]) close() error {
	var errs []error
	for _, name := range s.files {
		if err := s.disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	s.rows, s.files = nil, nil
	return errors.Join(errs...)
}

// A source is one sorted sequence of a merge: a file, or rows in memory.
type source[T any] struct {
	head  T
	order int // of the sequences among themselves
	r     *bufio.Reader
	rows  []T
}

// next reads the next row into head, or returns io.EOF.
func (s *source[T]) next() error {
	if s.r == nil {
		if len(s.rows) == 0 {
			return io.EOF
		}
		s.head, s.rows = s.rows[0], s.rows[1:]
		return nil
	}
	n, err := binary.ReadUvarint(s.r)
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return err
	}
	var row T
	if err := json.Unmarshal(b, &row); err != nil {
		return err
	}
	s.head = row
	return nil
}

// A merge is a heap of sources by their heads.
type merge[T any] struct {
	cmp     func(a, b *T) int
	sources []source[T]
	files   []file
}

func (m *merge[T]) open(d disk, name string, order int) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	m.files = append(m.files, f)
	size, err := f.Size()
	if err != nil {
		return err
	}
	return m.add(source[T]{order: order, r: bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 64<<10)})
}

func (m *merge[T]) add(s source[T]) error {
	if err := s.next(); err == io.EOF {
		return nil
	} else if err != nil {
		return err
	}
	heap.Push(m, s)
	return nil
}

func (m *merge[T]) advance() error {
	err := m.sources[0].next()
	if err == io.EOF {
		heap.Pop(m)
		return nil
	}
	if err != nil {
		return err
	}
	heap.Fix(m, 0)
	return nil
}

func (m *merge[T]) close() {
	for _, f := range m.files {
		f.Close() // read only
	}
}

func (m *merge[T]) Len() int { return len(m.sources) }

func (m *merge[T]) Less(i, j int) bool {
	if c := m.cmp(&m.sources[i].head, &m.sources[j].head); c != 0 {
		return c < 0
	}
	return m.sources[i].order < m.sources[j].order
}

func (m *merge[T]) Swap(i, j int) { m.sources[i], m.sources[j] = m.sources[j], m.sources[i] }
func (m *merge[T]) Push(s any)    { m.sources = append(m.sources, s.(source[T])) }

func (m *merge[T]) Pop() any {
	last := len(m.sources) - 1
	s := m.sources[last]
	m.sources[last] = source[T]{}
	m.sources = m.sources[:last]
	return s
}
