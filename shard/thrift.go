package shard

import (
	"encoding/binary"
	"errors"
)

// Parquet's footers and page headers are structs in Thrift's compact protocol.
// What stands here reads and writes as much of it as they need: the library's
// own objects cost kilobytes for each column chunk, and a merge meets millions.

// Types of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// thriftWriter appends structs to b.
type thriftWriter struct {
	b     []byte
	last  int16
	outer []int16 // last of the structs around this one
}

func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func (w *thriftWriter) uvarint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

// field begins a field; ids rise within a struct.
func (w *thriftWriter) field(id int16, kind byte) {
	if d := id - w.last; d > 0 && d < 16 {
		w.b = append(w.b, byte(d)<<4|kind)
	} else {
		w.b = append(w.b, kind)
		w.uvarint(zigzag(int64(id)))
	}
	w.last = id
}

func (w *thriftWriter) i16(id int16, v int64) { w.field(id, thriftI16); w.uvarint(zigzag(v)) }
func (w *thriftWriter) i32(id int16, v int64) { w.field(id, thriftI32); w.uvarint(zigzag(v)) }
func (w *thriftWriter) i64(id int16, v int64) { w.field(id, thriftI64); w.uvarint(zigzag(v)) }

func (w *thriftWriter) bool(id int16, v bool) {
	kind := byte(thriftFalse)
	if v {
		kind = thriftTrue
	}
	w.field(id, kind)
}

func (w *thriftWriter) bytes(id int16, v []byte) {
	w.field(id, thriftBinary)
	w.uvarint(uint64(len(v)))
	w.b = append(w.b, v...)
}

func (w *thriftWriter) string(id int16, v string) {
	w.field(id, thriftBinary)
	w.element(v)
}

// element is a string within a list.
func (w *thriftWriter) element(v string) {
	w.uvarint(uint64(len(v)))
	w.b = append(w.b, v...)
}

func (w *thriftWriter) list(id int16, kind byte, n int) {
	w.field(id, thriftList)
	if n < 15 {
		w.b = append(w.b, byte(n)<<4|kind)
		return
	}
	w.b = append(w.b, 0xf0|kind)
	w.uvarint(uint64(n))
}

// begin begins a struct, a field of this one.
func (w *thriftWriter) begin(id int16) {
	w.field(id, thriftStruct)
	w.beginElement()
}

// beginElement begins a struct within a list.
func (w *thriftWriter) beginElement() {
	w.outer = append(w.outer, w.last)
	w.last = 0
}

// end ends the struct that was begun last.
func (w *thriftWriter) end() {
	w.b = append(w.b, 0)
	if n := len(w.outer); n > 0 {
		w.last, w.outer = w.outer[n-1], w.outer[:n-1]
	}
}

var errThrift = errors.New("its metadata do not decode")

// thriftReader reads structs from b. After an error everything reads as zero.
type thriftReader struct {
	b   []byte
	at  int
	err error
}

func (r *thriftReader) fail() {
	if r.err == nil {
		r.err = errThrift
	}
	r.at = len(r.b)
}

func (r *thriftReader) byte() byte {
	if r.at >= len(r.b) {
		r.fail()
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

func (r *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.fail()
		return 0
	}
	r.at += n
	return v
}

func (r *thriftReader) int() int64 { return unzigzag(r.uvarint()) }

// bytes returns a string or binary; it points into b.
func (r *thriftReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)-r.at) {
		r.fail()
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

// list returns the length of a list and the type of its elements. No element
// is shorter than a byte, so no length is longer than what is left.
func (r *thriftReader) list() (int, byte) {
	h := r.byte()
	n := uint64(h >> 4)
	if n == 15 {
		n = r.uvarint()
	}
	if n > uint64(len(r.b)-r.at) {
		r.fail()
		return 0, 0
	}
	return int(n), h & 15
}

// fields calls fn for each field of a struct. Fn says whether it has read the
// field; the others are skipped.
func (r *thriftReader) fields(fn func(id int16, kind byte) bool) {
	id := int16(0)
	for r.err == nil {
		h := r.byte()
		if h == 0 {
			return
		}
		if d := int16(h >> 4); d != 0 {
			id += d
		} else {
			id = int16(r.int())
		}
		if !fn(id, h&15) {
			r.skip(h&15, 0)
		}
	}
}

// skipDepth is how deep structs may lie within each other.
const skipDepth = 16

func (r *thriftReader) skip(kind byte, depth int) {
	if depth > skipDepth {
		r.fail()
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		r.byte()
	case thriftI16, thriftI32, thriftI64:
		r.uvarint()
	case thriftDouble:
		for range 8 {
			r.byte()
		}
	case thriftBinary:
		r.bytes()
	case thriftList, thriftSet:
		n, kind := r.list()
		for ; n > 0 && r.err == nil; n-- {
			if kind == thriftTrue || kind == thriftFalse {
				r.byte() // within lists a bool is a byte
			} else {
				r.skip(kind, depth+1)
			}
		}
	case thriftStruct:
		r.fields(func(_ int16, kind byte) bool {
			r.skip(kind, depth+1)
			return true
		})
	default: // a map among them: Parquet has none
		r.fail()
	}
}
