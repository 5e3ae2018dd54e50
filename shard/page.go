package shard

import (
	"fmt"
	"hash/crc32"
	"math"

	"github.com/gswarm/gswarm/table"
)

// dataPage appends one page; it returns its length before compression and the
// encoding of its values.
func (e *Encoder) dataPage(g *Group, col table.Column, d columnData, from, to int, enc byte, width int) (int64, byte, error) {
	valid := d.valid[from:to]
	e.page = e.page[:0]
	if !col.Required {
		e.levels = appendLevels(e.levels[:0], valid)
		e.page = le.AppendUint32(e.page, uint32(len(e.levels)))
		e.page = append(e.page, e.levels...)
	}
	switch col.Type {
	case table.Int64, table.Timestamp, table.Int32:
		var err error
		if enc, err = e.intPage(col, d.ints[from:to], valid, from, to, enc, width); err != nil {
			return 0, enc, err
		}
	case table.Float64:
		e.floats = pick(e.floats[:0], d.floats[from:to], valid)
		for _, v := range e.floats {
			e.page = le.AppendUint64(e.page, math.Float64bits(v))
		}
	case table.Float32:
		e.floats = pick(e.floats[:0], d.floats[from:to], valid)
		for _, v := range e.floats {
			e.page = le.AppendUint32(e.page, math.Float32bits(float32(v)))
		}
	case table.String:
		if enc == encodingDict {
			e.page = append(e.page, byte(width))
			e.picked = pickAt(e.picked[:0], e.indices[from:to])
			e.page = appendHybrid(e.page, e.picked, width)
			break
		}
		for r, v := range d.texts[from:to] {
			if valid[r] {
				e.page = le.AppendUint32(e.page, uint32(len(v)))
				e.page = append(e.page, v...)
			}
		}
	}
	raw, err := e.emit(g, pageData, len(valid), enc)
	return raw, enc, err
}

// pickAt appends the indices of the rows that have one; null rows have -1.
func pickAt(dst, indices []int32) []int32 {
	for _, v := range indices {
		if v >= 0 {
			dst = append(dst, v)
		}
	}
	return dst
}

// emit compresses e.page and appends it behind its header.
func (e *Encoder) emit(g *Group, kind int64, values int, enc byte) (int64, error) {
	if len(e.page) > math.MaxInt32/2 {
		return 0, fmt.Errorf("a page of %d bytes", len(e.page))
	}
	e.levels = e.compress(e.levels[:0])
	if kind == pageDict {
		e.store = 0 // it says nothing of the indices
	}
	h := &e.header
	*h = thriftWriter{b: h.b[:0], outer: h.outer[:0]}
	h.i32(1, kind)
	h.i32(2, int64(len(e.page)))
	h.i32(3, int64(len(e.levels)))
	h.i32(4, int64(int32(crc32.ChecksumIEEE(e.levels))))
	if kind == pageDict {
		h.begin(7)
		h.i32(1, int64(values))
		h.i32(2, encodingPlain)
		h.end()
	} else {
		h.begin(5)
		h.i32(1, int64(values))
		h.i32(2, int64(enc))
		h.i32(3, encodingRLE)
		h.i32(4, encodingRLE)
		h.end()
	}
	h.end()
	g.own = append(append(g.own, h.b...), e.levels...)
	return int64(len(h.b) + len(e.page)), nil
}

// What compression has to gain for a page, as a share of it, and for how many
// pages after one that gained less it is not tried.
const (
	storeGain  = 16
	storePages = 7
)

// compress appends e.page as a zstd frame. Packed differences of noise do not
// get smaller, and to find that out takes as long as to compress.
func (e *Encoder) compress(dst []byte) []byte {
	if e.store > 0 && len(e.page) <= storedMax {
		e.store--
		return appendStored(dst, e.page)
	}
	begin := len(dst)
	dst = e.zstd.EncodeAll(e.page, dst)
	if e.thorough {
		return dst
	}
	if gain := len(e.page) - (len(dst) - begin); gain < len(e.page)/storeGain {
		e.store = storePages
	}
	return dst
}

// storedMax is the greatest length of a block of zstd.
const storedMax = 128 << 10

// appendStored appends b, of storedMax bytes at most, as a zstd frame of one
// block that is not compressed (RFC 8878, 3.1.1).
func appendStored(dst, b []byte) []byte {
	const (
		magic     = 0xfd2fb528
		segment   = 1 << 5 // the window is the content
		sizeBytes = 2 << 6 // four bytes say its length
		lastBlock = 1      // of type 0, raw
	)
	dst = le.AppendUint32(dst, magic)
	dst = append(dst, segment|sizeBytes)
	dst = le.AppendUint32(dst, uint32(len(b)))
	head := uint32(len(b))<<3 | lastBlock
	dst = append(dst, byte(head), byte(head>>8), byte(head>>16))
	return append(dst, b...)
}

// dictionary gathers the distinct strings of a chunk, and says whether they
// repeat enough to gain by it.
func (e *Encoder) dictionary(texts []string, valid []bool) bool {
	clear(e.dict)
	e.values, e.indices = e.values[:0], e.indices[:0]
	last, lastIndex := "", int32(-1)
	for r, s := range texts {
		if !valid[r] {
			e.indices = append(e.indices, -1)
			continue
		}
		if s != last || lastIndex < 0 {
			n, ok := e.dict[s]
			if !ok {
				n = int32(len(e.values))
				e.dict[s] = n
				e.values = append(e.values, s)
				if len(e.values) > 1<<16 || len(e.values) > 64 && len(e.values) > len(texts)/2 {
					return false
				}
			}
			last, lastIndex = s, n
		}
		e.indices = append(e.indices, lastIndex)
	}
	return len(e.values) > 0
}

func (e *Encoder) dictPage(g *Group) int64 {
	e.page = e.page[:0]
	for _, v := range e.values {
		e.page = le.AppendUint32(e.page, uint32(len(v)))
		e.page = append(e.page, v...)
	}
	raw, _ := e.emit(g, pageDict, len(e.values), encodingPlain) // textMax bounds it
	return raw
}

// pick converts the values that are not null.
func pick[D, S int32 | int64 | float32 | float64](dst []D, src []S, valid []bool) []D {
	for r, v := range src {
		if valid[r] {
			dst = append(dst, D(v))
		}
	}
	return dst
}
