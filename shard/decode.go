package shard

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

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
	ints []int64 // the dictionary of a column of integers
	page []byte  // decompressed
	rest []byte  // of the page: values not yet read
	left int     // rows of the page not yet read
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
		page: c.page, some: c.some, dict: c.dict[:0], ints: c.ints[:0],
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
	b := c.page
	switch c.physical {
	case physInt32, physInt64:
		size := 8
		if c.physical == physInt32 {
			size = 4
		}
		if n > len(b)/size {
			return errPage
		}
		for ; n > 0; n-- {
			c.ints = append(c.ints, integer(b, size))
			b = b[size:]
		}
		return nil
	case physBytes:
	default:
		return errPage
	}
	if n > len(b)/4 {
		return errPage
	}
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
	case (c.enc == encodingDict || c.enc == 2) && (c.physical == physBytes || c.physical == physInt32 || c.physical == physInt64):
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
		if err := c.values(b, column, at, valid); err != nil {
			return err
		}
		c.left -= k
		c.read += int64(k)
		at, n = at+k, n-k
	}
	return nil
}

// values sets those of the rows from row at on that are not null.
func (c *columnReader) values(b *table.Batch, column, at int, valid []bool) error {
	dense := !c.optional || !slices.Contains(valid, false)
	end := at + len(valid)
	switch c.physical {
	case physInt64, physInt32:
		return c.integers(b.Ints(column)[at:end], valid, dense)
	case physDouble, physFloat:
		return c.floats(b.Floats(column)[at:end], valid)
	}
	return c.texts(b.Strings(column)[at:end], valid, dense)
}

// integer reads a plain integer of 4 or 8 bytes.
func integer(b []byte, size int) int64 {
	if size == 4 {
		return int64(int32(le.Uint32(b)))
	}
	return int64(le.Uint64(b))
}

func (c *columnReader) integers(dst []int64, valid []bool, dense bool) error {
	if c.enc == encodingDict {
		for i, v := range valid {
			if !v {
				continue
			}
			n, err := c.idx.value()
			if err != nil {
				return err
			}
			if int(n) >= len(c.ints) {
				return errPage
			}
			dst[i] = c.ints[n]
		}
		return nil
	}
	if c.enc == encodingDelta && dense {
		return c.delt.dense(dst)
	}
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
		dst[i] = integer(c.rest, size)
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

func (c *columnReader) texts(dst []string, valid []bool, dense bool) error {
	if c.enc == encodingDict && dense {
		return c.keys(dst)
	}
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

// keys reads texts of the dictionary none of which is null; in runs, mostly.
func (c *columnReader) keys(dst []string) error {
	for len(dst) > 0 {
		n, err := c.idx.value()
		if err != nil {
			return err
		}
		if int(n) >= len(c.dict) {
			return errPage
		}
		same := 1 + min(c.idx.run, len(dst)-1)
		c.idx.run -= same - 1
		for i := range dst[:same] {
			dst[i] = c.dict[n]
		}
		dst = dst[same:]
	}
	return nil
}
