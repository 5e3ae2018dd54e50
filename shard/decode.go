package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/gswarm/gswarm/table"
)

// unzstd decompresses pages. It may be used from several goroutines.
var unzstd = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}()

var errPage = errors.New("a page does not decode")

// pageHeader is what a page says of itself.
type pageHeader struct {
	kind, raw, size int64
	crc             uint32
	summed          bool
	values          int64
	encoding        byte
	length          int // the header's own
}

func parsePageHeader(b []byte) (h pageHeader, err error) {
	r := &thriftReader{b: b}
	h.kind = -1
	r.fields(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thriftI32:
			h.kind = r.int()
		case id == 2 && kind == thriftI32:
			h.raw = r.int()
		case id == 3 && kind == thriftI32:
			h.size = r.int()
		case id == 4 && kind == thriftI32:
			h.crc, h.summed = uint32(r.int()), true
		case (id == 5 || id == 7) && kind == thriftStruct:
			r.fields(func(id int16, kind byte) bool {
				switch {
				case id == 1 && kind == thriftI32:
					h.values = r.int()
				case id == 2 && kind == thriftI32:
					h.encoding = byte(r.int())
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	h.length = r.at
	if r.err == nil && (h.size < 0 || h.raw < 0 || h.values < 0 || h.raw > math.MaxInt32) {
		r.err = errPage
	}
	return h, r.err
}

// columnReader reads the rows of a column chunk one stretch after another.
type columnReader struct {
	col      table.Column
	physical int8
	optional bool
	// next returns the chunk's pages, header and content.
	next func() (pageHeader, []byte, error)

	dict []string
	page []byte // decompressed
	rest []byte // of the page: values not yet read
	left int    // rows of the page not yet read
	enc  byte
	def  hybrid
	idx  hybrid
	delt delta
	some []bool // scratch
	read int64  // rows
	rows int64
	last string
}

// rewind begins a chunk.
func (c *columnReader) rewind(col table.Column, f fileColumn, rows int64, next func() (pageHeader, []byte, error)) {
	*c = columnReader{
		col: col, physical: f.physical, optional: f.optional, next: next, rows: rows,
		page: c.page, some: c.some, dict: c.dict[:0],
	}
}

// turn reads the next page.
func (c *columnReader) turn() error {
	for {
		h, b, err := c.next()
		if err != nil {
			return err
		}
		if h.summed && crc32.ChecksumIEEE(b) != h.crc {
			return errChecksum
		}
		if cap(c.page) < int(h.raw) {
			// Not what the header claims, but what the frame holds.
			c.page = make([]byte, 0, min(int(h.raw), 1<<20))
		}
		if c.page, err = unzstd.DecodeAll(b, c.page[:0]); err != nil {
			return fmt.Errorf("decompressing: %w", err)
		}
		if int64(len(c.page)) != h.raw {
			return errPage
		}
		switch h.kind {
		case pageDict:
			if err := c.dictionary(int(h.values)); err != nil {
				return err
			}
			continue
		case pageData:
			return c.begin(h)
		}
		return fmt.Errorf("a page of kind %d", h.kind)
	}
}

func (c *columnReader) dictionary(n int) error {
	if c.physical != physBytes || n > len(c.page)/4 {
		return errPage
	}
	b := c.page
	for range n {
		v, rest, err := text(b)
		if err != nil {
			return err
		}
		c.dict = append(c.dict, string(v))
		b = rest
	}
	return nil
}

func text(b []byte) (v, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errPage
	}
	n := le.Uint32(b)
	if int64(n) > int64(len(b)-4) {
		return nil, nil, errPage
	}
	return b[4 : 4+n], b[4+n:], nil
}

func (c *columnReader) begin(h pageHeader) error {
	if h.values == 0 || h.values > c.rows-c.read {
		return fmt.Errorf("a page of %d rows", h.values)
	}
	c.left, c.enc, c.rest = int(h.values), h.encoding, c.page
	if c.optional {
		if len(c.rest) < 4 {
			return errPage
		}
		n := int64(le.Uint32(c.rest))
		if n > int64(len(c.rest)-4) {
			return errPage
		}
		c.def = hybrid{b: c.rest[4 : 4+n], width: 1}
		c.rest = c.rest[4+n:]
	}
	switch {
	case c.enc == encodingDelta && (c.physical == physInt64 || c.physical == physInt32):
		c.delt = delta{narrow: c.physical == physInt32}
		return c.delt.open(c.rest)
	case c.enc == encodingDict && c.physical == physBytes || c.enc == 2 && c.physical == physBytes:
		c.enc = encodingDict
		c.idx = hybrid{}
		if len(c.rest) > 0 {
			c.idx = hybrid{b: c.rest[1:], width: int(c.rest[0])}
			if c.idx.width > 32 {
				return errPage
			}
		}
		return nil
	case c.enc == encodingPlain:
		return nil
	}
	return fmt.Errorf("encoding %d of a %s column", c.enc, c.col.Type)
}

// into sets n rows of a column of b, from row at on. They are null so far.
func (c *columnReader) into(b *table.Batch, column, at, n int) error {
	for n > 0 {
		if c.left == 0 {
			if c.read == c.rows {
				return fmt.Errorf("it ends after %d rows", c.read)
			}
			if err := c.turn(); err != nil {
				return err
			}
		}
		k := min(n, c.left)
		valid := b.Valid(column)[at : at+k]
		if c.optional {
			if err := c.def.bools(valid); err != nil {
				return err
			}
			if c.col.Required {
				for _, v := range valid {
					if !v {
						return errors.New("the required column is null")
					}
				}
			}
		} else {
			for i := range valid {
				valid[i] = true
			}
		}
		var err error
		switch c.physical {
		case physInt64, physInt32:
			err = c.integers(b.Ints(column)[at:at+k], valid)
		case physDouble, physFloat:
			err = c.floats(b.Floats(column)[at:at+k], valid)
		default:
			err = c.texts(b.Strings(column)[at:at+k], valid)
		}
		if err != nil {
			return err
		}
		c.left -= k
		c.read += int64(k)
		at, n = at+k, n-k
	}
	return nil
}

func (c *columnReader) integers(dst []int64, valid []bool) error {
	if c.enc == encodingDelta {
		return c.delt.read(dst, valid)
	}
	size := 8
	if c.physical == physInt32 {
		size = 4
	}
	for i, v := range valid {
		if !v {
			continue
		}
		if len(c.rest) < size {
			return errPage
		}
		if size == 4 {
			dst[i] = int64(int32(le.Uint32(c.rest)))
		} else {
			dst[i] = int64(le.Uint64(c.rest))
		}
		c.rest = c.rest[size:]
	}
	return nil
}

func (c *columnReader) floats(dst []float64, valid []bool) error {
	size := 8
	if c.physical == physFloat {
		size = 4
	}
	for i, v := range valid {
		if !v {
			continue
		}
		if len(c.rest) < size {
			return errPage
		}
		if size == 4 {
			dst[i] = float64(math.Float32frombits(le.Uint32(c.rest)))
		} else {
			dst[i] = math.Float64frombits(le.Uint64(c.rest))
		}
		c.rest = c.rest[size:]
	}
	return nil
}

func (c *columnReader) texts(dst []string, valid []bool) error {
	for i, v := range valid {
		if !v {
			continue
		}
		if c.enc == encodingDict {
			n, err := c.idx.value()
			if err != nil {
				return err
			}
			if int(n) >= len(c.dict) {
				return errPage
			}
			dst[i] = c.dict[n]
			continue
		}
		s, rest, err := text(c.rest)
		if err != nil {
			return err
		}
		if string(s) != c.last { // keys repeat: one string serves a run
			c.last = string(s)
		}
		dst[i], c.rest = c.last, rest
	}
	return nil
}

// hybrid reads runs and packed groups of integers.
type hybrid struct {
	b      []byte
	width  int
	run    int // values left of a run
	packed int // values left of packed groups
	same   uint32
	acc    uint64
	have   int
}

func (h *hybrid) open() error {
	n, k := binary.Uvarint(h.b)
	if k <= 0 || n>>1 == 0 || n>>1 > math.MaxInt32 {
		return errPage
	}
	h.b = h.b[k:]
	if n&1 == 1 {
		// The last group may stand for fewer values than it has bits.
		h.packed, h.acc, h.have = int(n>>1)*8, 0, 0
		return nil
	}
	size := (h.width + 7) / 8
	if len(h.b) < size {
		return errPage
	}
	h.same = 0
	for i := range size {
		h.same |= uint32(h.b[i]) << (8 * i)
	}
	h.b, h.run = h.b[size:], int(n>>1)
	return nil
}

func (h *hybrid) value() (uint32, error) {
	if h.run == 0 && h.packed == 0 {
		if err := h.open(); err != nil {
			return 0, err
		}
	}
	if h.run > 0 {
		h.run--
		return h.same, nil
	}
	for h.have < h.width {
		if len(h.b) == 0 {
			return 0, errPage
		}
		h.acc |= uint64(h.b[0]) << h.have
		h.b, h.have = h.b[1:], h.have+8
	}
	v := uint32(h.acc & (1<<h.width - 1))
	h.acc >>= h.width
	h.have -= h.width
	h.packed--
	return v, nil
}

// bools reads levels of at most 1.
func (h *hybrid) bools(dst []bool) error {
	for i := 0; i < len(dst); {
		if h.run > 0 {
			n := min(h.run, len(dst)-i)
			set := h.same == 1
			for k := range n {
				dst[i+k] = set
			}
			h.run -= n
			i += n
			continue
		}
		if h.packed == 0 {
			if err := h.open(); err != nil {
				return err
			}
			continue
		}
		v, err := h.value()
		if err != nil {
			return err
		}
		dst[i] = v == 1
		i++
	}
	return nil
}

// delta reads delta-encoded integers.
type delta struct {
	b      []byte
	narrow bool
	block  int // values of a block
	minis  int
	total  int // values not yet read
	first  bool
	value  int64
	least  int64
	widths []byte
	left   int // values left of the miniblock
	mini   int // the next miniblock of the block
	width  int
	acc    uint64
	have   int
	packed []byte // the miniblock's, not yet in acc
}

func (d *delta) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.minis = nil, -1
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *delta) open(b []byte) error {
	d.b, d.first = b, true
	block, minis, total := d.uvarint(), d.uvarint(), d.uvarint()
	d.value = unzigzag(d.uvarint())
	if d.minis < 0 || block == 0 || block > 1<<16 || minis == 0 || minis > 256 || block%minis != 0 || block/minis%32 != 0 || total > MaxRowGroup {
		return errPage
	}
	d.block, d.minis, d.total = int(block), int(minis), int(total)
	d.mini = d.minis
	return nil
}

// step begins a miniblock.
func (d *delta) step() error {
	if d.mini == d.minis {
		d.least = unzigzag(d.uvarint())
		if d.minis < 0 || len(d.b) < d.minis {
			return errPage
		}
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
		d.mini = 0
	}
	d.width = int(d.widths[d.mini])
	d.mini++
	d.left = d.block / d.minis
	if d.width > 64 {
		return errPage
	}
	// The last miniblock may be cut behind its last value.
	need := min(d.left*d.width/8, len(d.b))
	d.packed, d.b = d.b[:need], d.b[need:]
	d.acc, d.have = 0, 0
	return nil
}

func (d *delta) read(dst []int64, valid []bool) error {
	for i, v := range valid {
		if !v {
			continue
		}
		if d.total == 0 {
			return errPage
		}
		d.total--
		if d.first {
			d.first = false
			dst[i] = d.value
			continue
		}
		if d.left == 0 {
			if err := d.step(); err != nil {
				return err
			}
		}
		d.left--
		d.value += d.least + int64(d.bits())
		if d.narrow {
			d.value = int64(int32(d.value))
		}
		dst[i] = d.value
	}
	return nil
}

// bits reads one value of the miniblock. What a cut one lacks is zero.
func (d *delta) bits() uint64 {
	w := d.width
	if w == 0 {
		return 0
	}
	if d.have >= w {
		v := d.acc & (1<<w - 1)
		d.acc >>= w
		d.have -= w
		return v
	}
	// Fill up: a miniblock has whole bytes, and 8 of them where it can.
	v, got := d.acc, d.have
	var next uint64
	n := 64
	if len(d.packed) >= 8 {
		next = le.Uint64(d.packed)
		d.packed = d.packed[8:]
	} else {
		n = max(8*len(d.packed), w-got)
		for k, x := range d.packed {
			next |= uint64(x) << (8 * k)
		}
		d.packed = nil
	}
	v |= next << got
	take := w - got
	d.acc, d.have = next>>take, n-take
	if w < 64 {
		v &= 1<<w - 1
	}
	return v
}
