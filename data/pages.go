package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Limits of the pages of a Parquet file. A few bytes can ask for gigabytes: the
// library takes the memory before it looks, and unpacks for as long as there is
// something to unpack.
const (
	maxGroup      = 512 << 20 // largest unpacked pages of the columns of a row group, together
	maxDictionary = 16 << 20  // unpacked: any row may repeat any of its values
	maxValues     = 1 << 26   // of a page: a run of nulls takes no bytes
)

// checkPages looks at every page of a file before any is unpacked, and returns
// an error if reading them could take more memory than the limits say.
func checkPages(f *parquet.File, r io.ReaderAt) error {
	return guard(func() error {
		for _, g := range f.Metadata().RowGroups {
			together := int64(0)
			for _, c := range g.Columns {
				largest, err := checkChunk(&c.MetaData, r)
				if err != nil {
					return err
				}
				if together += largest; together > maxGroup {
					return fmt.Errorf("its pages have more than %d bytes when they are unpacked; write it with smaller pages", maxGroup)
				}
			}
		}
		return nil
	})
}

// checkChunk walks the pages of a column chunk, and returns the unpacked size
// of the largest.
func checkChunk(m *format.ColumnMetaData, r io.ReaderAt) (largest int64, err error) {
	at := m.DataPageOffset
	if m.DictionaryPageOffset > 0 {
		at = min(at, m.DictionaryPageOffset)
	}
	end := at + m.TotalCompressedSize
	protocol := new(thrift.CompactProtocol)
	var packed []byte
	for values := int64(0); at < end && values < m.NumValues; {
		section := io.NewSectionReader(r, at, end-at)
		buffered := bufio.NewReaderSize(section, 4<<10)
		var h format.PageHeader
		if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&h); err != nil {
			return 0, fmt.Errorf("a page header cannot be read: %w", err)
		}
		read, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return 0, err
		}
		at += read - int64(buffered.Buffered())
		size, unpacked := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
		if size < 0 || size > end-at || unpacked < 0 || unpacked > maxGroup {
			return 0, fmt.Errorf("a page says to have %d bytes, and %d unpacked", size, unpacked)
		}
		levels, rows, codec := int64(0), int64(0), m.Codec
		switch h.Type {
		case format.DataPage:
			rows = int64(h.DataPageHeader.V.NumValues)
		case format.DataPageV2:
			v2 := h.DataPageHeaderV2.V
			rows = int64(v2.NumValues)
			levels = int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength) // never packed
			if v2.IsCompressed.Valid && !v2.IsCompressed.V {
				codec = format.Uncompressed
			}
		case format.DictionaryPage:
			if unpacked > maxDictionary || int64(h.DictionaryPageHeader.V.NumValues) > maxValues {
				return 0, fmt.Errorf("a dictionary has %d bytes unpacked; up to %d are read", unpacked, maxDictionary)
			}
		}
		if rows < 0 || rows > maxValues || levels < 0 || levels > size {
			return 0, fmt.Errorf("a page says to have %d values; up to %d are read", rows, maxValues)
		}
		values += rows
		if codec != format.Uncompressed && size > levels {
			packed = append(packed[:0], make([]byte, size-levels)...)
			if _, err := io.ReadFull(io.NewSectionReader(r, at+levels, size-levels), packed); err != nil {
				return 0, err
			}
			n, err := unpackedSize(codec, packed)
			if err != nil {
				return 0, err
			}
			unpacked = max(unpacked, n+levels)
		}
		largest = max(largest, unpacked)
		at += size
	}
	return largest, nil
}

// unpackedSize returns what packed bytes unpack to, at most, without unpacking
// them into memory.
func unpackedSize(codec format.CompressionCodec, b []byte) (int64, error) {
	switch codec {
	case format.Zstd:
		return zstdSize(b)
	case format.Snappy:
		n, k := binary.Uvarint(b) // the format begins with it
		if k <= 0 || n > maxGroup {
			return 0, errors.New("a page is no Snappy")
		}
		return int64(n), nil
	case format.Gzip:
		zr, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return 0, fmt.Errorf("a page is no gzip: %w", err)
		}
		n, err := io.Copy(io.Discard, io.LimitReader(zr, maxGroup))
		if err != nil {
			return 0, fmt.Errorf("a page is no gzip: %w", err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("its pages are packed with %v; write it with zstd, snappy or gzip", codec)
}

// zstdSize returns a bound of what zstd frames unpack to: the size that a frame
// states, which the decoder holds it to; else what its blocks can have at most.
//
// Format: RFC 8878, section 3.1.1.
func zstdSize(b []byte) (int64, error) {
	const maxBlock = 128 << 10
	broken := errors.New("a page is no zstd")
	total := int64(0)
	for len(b) > 0 {
		if len(b) < 5 {
			return 0, broken
		}
		magic := binary.LittleEndian.Uint32(b)
		if magic&0xfffffff0 == 0x184d2a50 { // a frame to be skipped
			if len(b) < 8 || int64(binary.LittleEndian.Uint32(b[4:])) > int64(len(b)-8) {
				return 0, broken
			}
			b = b[8+binary.LittleEndian.Uint32(b[4:]):]
			continue
		}
		if magic != 0xfd2fb528 {
			return 0, broken
		}
		descriptor := b[4]
		single := descriptor&0x20 != 0
		at := 5
		if !single {
			at++ // window descriptor
		}
		at += []int{0, 1, 2, 4}[descriptor&3] // dictionary id
		width := []int{0, 2, 4, 8}[descriptor>>6]
		if width == 0 && single {
			width = 1
		}
		if at+width > len(b) {
			return 0, broken
		}
		var field [8]byte
		copy(field[:], b[at:at+width])
		stated := binary.LittleEndian.Uint64(field[:])
		if width == 2 {
			stated += 256
		}
		at += width
		blocks := int64(0)
		for last := false; !last; {
			if at+3 > len(b) {
				return 0, broken
			}
			header := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
			last = header&1 != 0
			size := header >> 3
			switch header >> 1 & 3 {
			case 0: // as it is
				blocks += int64(size)
			case 1: // one byte, repeated
				blocks += int64(size)
				size = 1
			default: // packed
				blocks += maxBlock
			}
			at += 3 + size
			if at > len(b) {
				return 0, broken
			}
		}
		if descriptor&4 != 0 {
			at += 4 // checksum
		}
		if at > len(b) {
			return 0, broken
		}
		b = b[at:]
		if width > 0 && stated < uint64(blocks) {
			blocks = int64(stated)
		}
		if total += blocks; total > maxGroup {
			return 0, fmt.Errorf("a page has up to %d bytes unpacked; up to %d are read", total, maxGroup)
		}
	}
	return total, nil
}
