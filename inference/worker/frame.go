package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is 4 bytes of magic, the length of the payload and a CRC-32C of
// length and payload, both 4 bytes little-endian, and the payload. The magic is
// there so that text on the wrong stream is known at once, not after waiting for
// the gigabyte that its first bytes would announce.
const (
	frameMagic = "dmr\x01"
	headSize   = 12
	// maxPayload bounds a frame. Jobs and answers have a frame each.
	maxPayload = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTooLarge is the error of a message that would need a larger frame.
var errTooLarge = errors.New("longer than a frame may be")

// A frameError is a stream that is not one of frames.
type frameError string

func (e frameError) Error() string { return string(e) }

// writeFrame writes one frame by one call of Write, so that a frame is torn only
// by a death in the middle of it.
func writeFrame(w io.Writer, payload []byte) error {
	if len(payload) > maxPayload {
		return fmt.Errorf("message of %d bytes: %w (%d)", len(payload), errTooLarge, maxPayload)
	}
	frame := make([]byte, headSize, headSize+len(payload))
	copy(frame, frameMagic)
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(frame[8:], checksum(frame[4:8], payload))
	_, err := w.Write(append(frame, payload...))
	return err
}

// readFrame returns the payload of the next frame: io.EOF where the stream ends
// between frames, io.ErrUnexpectedEOF where it ends inside of one, a frameError
// where it is damaged or something else.
func readFrame(r io.Reader) ([]byte, error) {
	var head [headSize]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if n > 0 && !bytes.HasPrefix([]byte(frameMagic), head[:min(n, len(frameMagic))]) {
			return nil, frameError(fmt.Sprintf("no frame but %q", printable(string(head[:n]))))
		}
		return nil, err
	}
	if string(head[:4]) != frameMagic {
		return nil, frameError(fmt.Sprintf("no frame but %q", printable(string(head[:]))))
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n > maxPayload {
		return nil, frameError(fmt.Sprintf("a frame of %d bytes, more than %d", n, maxPayload))
	}
	// The buffer grows with what arrives: a length is only a claim.
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if checksum(head[4:8], payload.Bytes()) != binary.LittleEndian.Uint32(head[8:]) {
		return nil, frameError(fmt.Sprintf("a frame of %d bytes with a wrong checksum", n))
	}
	return payload.Bytes(), nil
}

func checksum(length, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, payload)
}
