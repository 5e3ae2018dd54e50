package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A spool is a sequence of frames. docs/format.md draws the layout; all
// integers are little-endian.
const (
	frameHeader = 56
	// frameMax bounds a frame's length, so that a damaged length cannot ask
	// for memory. Append splits batches long before.
	frameMax = 64 << 20
	nameMax  = 64
)

// frameMagic begins every frame. It is no text and no run of one byte, so that
// a reader can find the next frame behind a damaged stretch.
var frameMagic = [4]byte{0x8f, 'G', 'S', 0xf8}

type frameKind uint8

const (
	kindMeta   frameKind = 1 // SpoolMeta as JSON, the first frame
	kindSchema frameKind = 2 // a table's columns as JSON
	kindRows   frameKind = 3 // an IPC record batch message
	kindEnd    frameKind = 4 // End as JSON, the last frame of a spool that was ended
)

// Codecs of a frame's payload.
const (
	codecNone uint8 = 0
	codecZstd uint8 = 1
)

// frame is a frame's header and what follows it.
type frame struct {
	// seq counts the frames; rowsBefore counts the rows of all frames
	// before this one, those included that could not be written. A jump in
	// either is a loss, and says how large.
	seq        uint32
	rows       uint32
	rowsBefore uint64
	// tMin and tMax are the least and greatest t_raw_ns of the rows.
	tMin, tMax int64
	// schema is the CRC32C of the payload of the schema frame that the rows need.
	schema  uint32
	kind    frameKind
	codec   uint8
	name    string
	payload []byte
}

// beginFrame appends room for a header and the name; finishFrame fills it in
// once the payload is behind it.
func beginFrame(buf []byte, name string) []byte {
	var zero [frameHeader]byte
	return append(append(buf, zero[:]...), name...)
}

func finishFrame(b []byte, f *frame) {
	copy(b, frameMagic[:])
	le := binary.LittleEndian
	le.PutUint32(b[8:], uint32(len(b)-frameHeader))
	le.PutUint32(b[12:], f.seq)
	le.PutUint64(b[16:], f.rowsBefore)
	le.PutUint64(b[24:], uint64(f.tMin))
	le.PutUint64(b[32:], uint64(f.tMax))
	le.PutUint32(b[40:], f.rows)
	le.PutUint32(b[44:], f.schema)
	b[48], b[49], b[50] = uint8(f.kind), f.codec, uint8(len(f.name))
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
}

var (
	errTorn     = errors.New("the frame is cut short")
	errMagic    = errors.New("no frame begins here")
	errChecksum = errors.New("the checksum does not match")
)

// parseHeader reads the header at the beginning of b and returns the whole
// frame's length. Nothing in it is to be believed before verify.
func parseHeader(b []byte) (f frame, size int, nameLen int, err error) {
	if len(b) < frameHeader {
		return f, 0, 0, errTorn
	}
	if !bytes.Equal(b[:4], frameMagic[:]) {
		return f, 0, 0, errMagic
	}
	le := binary.LittleEndian
	length := int64(le.Uint32(b[8:]))
	f = frame{
		seq: le.Uint32(b[12:]), rowsBefore: le.Uint64(b[16:]),
		tMin: int64(le.Uint64(b[24:])), tMax: int64(le.Uint64(b[32:])),
		rows: le.Uint32(b[40:]), schema: le.Uint32(b[44:]),
		kind: frameKind(b[48]), codec: b[49],
	}
	nameLen = int(b[50])
	if length > frameMax || nameLen > nameMax || int64(nameLen) > length {
		return f, 0, 0, fmt.Errorf("impossible frame length %d", length)
	}
	return f, frameHeader + int(length), nameLen, nil
}

// verify checks the frame that fills b.
func (f *frame) verify(b []byte, nameLen int) error {
	if crc32.Checksum(b[8:], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return errChecksum
	}
	f.name = string(b[frameHeader : frameHeader+nameLen])
	f.payload = b[frameHeader+nameLen:]
	return nil
}
