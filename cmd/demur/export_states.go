package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"demur/data"
)

// A stateTable is what is known of a table of activations without its values.
type stateTable struct {
	name    string // of the table, and before the anchor in the names of the arrays
	layer   int
	anchors []string
}

// stateArrays are the activations of a folder as arrays: for each layer and
// anchor one of prompts × width, all of the same prompts in the same order.
type stateArrays struct {
	dir     string
	tables  []stateTable
	prompts []string
	row     map[string]int // of a prompt
	width   int
	missing int // prompts that lack a row at some site, and are left out
}

// exportStates writes the activations of a run, or of any folder of demur
// extract, into one file for other programs, and beside it which prompt each
// row is of. One layer is in memory at a time.
func exportStates(e *env, dir, file string) error {
	var write func(io.Writer, *stateArrays) error
	switch filepath.Ext(file) {
	case ".safetensors":
		write = writeSafetensors
	case ".npz":
		write = writeNPZ
	default:
		return usage(fmt.Errorf("%s is neither .safetensors nor .npz", file))
	}
	s, err := openStates(dir)
	if err != nil {
		return err
	}
	err = writeFile(file, func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 1<<20)
		return errors.Join(write(b, s), b.Flush())
	})
	if err == nil {
		err = writeFile(strings.TrimSuffix(file, filepath.Ext(file))+".csv", s.writeIDs)
	}
	if err != nil {
		return err
	}
	if s.missing > 0 {
		e.say("%d prompts lack activations at some sites and are left out", s.missing)
	}
	e.say("%d arrays of %d prompts × %d in %s", len(s.names()), len(s.prompts), s.width, file)
	return nil
}

// openStates finds out which prompts and sites there are.
func openStates(dir string) (*stateArrays, error) {
	tables, err := data.LayerTables(dir)
	if err != nil || len(tables) == 0 {
		return nil, usage(withHint(fmt.Errorf("%s holds no activations", dir), "demur extract writes them"))
	}
	s := &stateArrays{dir: dir, row: map[string]int{}}
	type head struct {
		PromptID string `parquet:"prompt_id,dict"`
		Layer    int    `parquet:"layer"`
		Anchor   string `parquet:"anchor,dict"`
	}
	count := map[string]int{} // rows of a prompt
	sites := 0
	for _, name := range tables {
		t := stateTable{name: path.Base(name)}
		for h, err := range data.ReadTable[head](dir, name) {
			if err != nil {
				return nil, dataError(err)
			}
			if count[h.PromptID]++; count[h.PromptID] == 1 {
				s.prompts = append(s.prompts, h.PromptID)
			}
			if !slices.Contains(t.anchors, h.Anchor) {
				t.anchors = append(t.anchors, h.Anchor)
			}
			t.layer = h.Layer
		}
		sites += len(t.anchors)
		s.tables = append(s.tables, t)
	}
	slices.SortFunc(s.tables, func(a, b stateTable) int { return cmp.Compare(a.layer, b.layer) })
	all := len(s.prompts)
	s.prompts = slices.DeleteFunc(s.prompts, func(p string) bool { return count[p] != sites })
	s.missing = all - len(s.prompts)
	if len(s.prompts) == 0 {
		return nil, dataError(fmt.Errorf("%s: no prompt has activations at all of its %d sites; extract all layers with the same positions", dir, sites))
	}
	for i, p := range s.prompts {
		s.row[p] = i
	}
	for a, err := range data.ReadTable[data.Activation](dir, "activations/"+s.tables[0].name) {
		if err != nil {
			return nil, dataError(err)
		}
		s.width = len(a.Values)
		break
	}
	return s, nil
}

// names returns the arrays' names in the order in which they are written.
func (s *stateArrays) names() []string {
	var names []string
	for _, t := range s.tables {
		for _, a := range t.anchors {
			names = append(names, t.name+"."+a)
		}
	}
	return names
}

// size returns the bytes of an array.
func (s *stateArrays) size() int64 { return 4 * int64(len(s.prompts)) * int64(s.width) }

// each calls write with the little-endian float32 of every array, in the order
// of names.
func (s *stateArrays) each(write func(name string, values []byte) error) error {
	for _, t := range s.tables {
		arrays := map[string][]byte{}
		for _, a := range t.anchors {
			arrays[a] = make([]byte, s.size())
		}
		for row, err := range data.ReadTable[data.Activation](s.dir, "activations/"+t.name) {
			if err != nil {
				return dataError(err)
			}
			i, ok := s.row[row.PromptID]
			if !ok {
				continue
			}
			if len(row.Values) != s.width {
				return dataError(fmt.Errorf("%s: activations of width %d and of width %d cannot stand in one file", s.dir, s.width, len(row.Values)))
			}
			at := arrays[row.Anchor][4*i*s.width:]
			for k, v := range row.Values {
				binary.LittleEndian.PutUint32(at[4*k:], math.Float32bits(v))
			}
		}
		for _, a := range t.anchors {
			if err := write(t.name+"."+a, arrays[a]); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeIDs writes which prompt each row is of.
func (s *stateArrays) writeIDs(w io.Writer) error {
	about := map[string]data.Prompt{}
	err := each(s.dir, data.Prompts, func(p data.Prompt) {
		if _, ok := s.row[p.ID]; ok {
			about[p.ID] = p
		}
	})
	if err != nil {
		return err
	}
	c := csv.NewWriter(w)
	err = c.Write([]string{"row", "prompt_id", "request_id", "variant", "phase"})
	for i, id := range s.prompts {
		p := about[id]
		err = errors.Join(err, c.Write([]string{strconv.Itoa(i), id, p.RequestID, p.Variant, string(p.Phase)}))
	}
	c.Flush()
	return errors.Join(err, c.Error())
}

// writeSafetensors writes the format of https://github.com/huggingface/safetensors:
// the length of a JSON header, the header, the arrays. The prompts' ids stand in
// its metadata, as a JSON list.
func writeSafetensors(w io.Writer, s *stateArrays) error {
	ids, err := json.Marshal(s.prompts)
	if err != nil {
		return err
	}
	header := map[string]any{"__metadata__": map[string]string{"prompt_ids": string(ids)}}
	for i, name := range s.names() {
		header[name] = map[string]any{
			"dtype": "F32", "shape": []int{len(s.prompts), s.width}, "data_offsets": []int64{int64(i) * s.size(), int64(i+1) * s.size()},
		}
	}
	b, err := json.Marshal(header)
	if err != nil {
		return err
	}
	b = append(b, bytes.Repeat([]byte(" "), -len(b)&7)...) // the arrays begin at a multiple of 8
	if err := binary.Write(w, binary.LittleEndian, uint64(len(b))); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return s.each(func(_ string, values []byte) error {
		_, err := w.Write(values)
		return err
	})
}

// writeNPZ writes an uncompressed archive as numpy.savez does, with the ids as an
// array prompt_id.
func writeNPZ(w io.Writer, s *stateArrays) error {
	z := zip.NewWriter(w)
	add := func(name, kind, shape string, values []byte) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		_, err = f.Write(npyHeader(kind, shape))
		if err == nil {
			_, err = f.Write(values)
		}
		return err
	}
	kind, ids := npyText(s.prompts)
	if err := add("prompt_id", kind, fmt.Sprintf("(%d,)", len(s.prompts)), ids); err != nil {
		return err
	}
	err := s.each(func(name string, values []byte) error {
		return add(name, "<f4", fmt.Sprintf("(%d, %d)", len(s.prompts), s.width), values)
	})
	return errors.Join(err, z.Close())
}

// npyHeader returns what stands before the values of an array, version 1.0 of
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: values
// begin at a multiple of 64.
func npyHeader(kind, shape string) []byte {
	const before = 10
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", kind, shape)
	dict += strings.Repeat(" ", -(before+len(dict)+1)&63) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), byte(len(dict)>>8))
	return append(b, dict...)
}

// npyText returns texts as an array of equal width, UTF-32.
func npyText(texts []string) (kind string, values []byte) {
	width := 1
	for _, t := range texts {
		width = max(width, utf8.RuneCountInString(t))
	}
	for _, t := range texts {
		n := 0
		for _, r := range t {
			values = binary.LittleEndian.AppendUint32(values, uint32(r))
			n++
		}
		values = append(values, make([]byte, 4*(width-n))...)
	}
	return "<U" + strconv.Itoa(width), values
}
