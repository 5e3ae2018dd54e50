package shard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/gswarm/gswarm/table"
)

var le = binary.LittleEndian

// pageRows is the number of rows of a page. A merge that orders all rows reads
// every node's row group at once, a page of each column at a time.
const pageRows = 2048

// Group is a row group ready to be appended to a file.
type Group struct {
	rows   int
	sorted bool
	// parts are its bytes, chunk after chunk; sum is their CRC32C.
	parts  [][]byte
	sum    uint32
	size   int64
	chunks []chunk
	// own is where encoded chunks lie, raw where copied ones do.
	own, raw []byte
}

// Rows returns the number of rows.
func (g *Group) Rows() int { return g.rows }

// Size returns the number of bytes.
func (g *Group) Size() int64 { return g.size }

func (g *Group) reset() {
	*g = Group{parts: g.parts[:0], chunks: g.chunks[:0], own: g.own[:0], raw: g.raw[:0]}
}

// add takes a chunk's bytes as the next column's. What the chunk says of its
// place counts from its own begin.
func (g *Group) add(c chunk, b []byte) {
	g.parts = append(g.parts, b)
	g.sum = crc32.Update(g.sum, castagnoli, b)
	g.size += int64(len(b))
	g.chunks = append(g.chunks, c)
}

// Encoder turns batches into row groups. It is used by one goroutine at a
// time.
type Encoder struct {
	zstd    *zstd.Encoder
	page    []byte
	levels  []byte
	header  thriftWriter
	ints    []int64
	floats  []float64
	dict    map[string]int32
	values  []string
	indices []int32
	picked  []int32
	nulls   []bool
	try     Group
	plan    intPlan
	// thorough encoders try for each column what makes it shortest.
	thorough  bool
	intDict   map[int64]int32
	intValues []int64
}

var encoders, thoroughEncoders sync.Pool

// NewEncoder returns an encoder; Release gives it back.
func NewEncoder() (*Encoder, error) { return pooledEncoder(&encoders, false) }

// newThoroughEncoder returns one that takes some times as long and writes less:
// sealing is done once and has time.
func newThoroughEncoder() (*Encoder, error) { return pooledEncoder(&thoroughEncoders, true) }

func pooledEncoder(pool *sync.Pool, thorough bool) (*Encoder, error) {
	if e, ok := pool.Get().(*Encoder); ok {
		return e, nil
	}
	z, err := newZstdEncoder(thorough)
	if err != nil {
		return nil, err
	}
	return &Encoder{zstd: z, dict: make(map[string]int32), thorough: thorough}, nil
}

// Release ends the use of the encoder.
func (e *Encoder) Release() {
	if e.thorough {
		thoroughEncoders.Put(e)
		return
	}
	encoders.Put(e)
}

// Encode makes a row group of all rows of b in g, whose memory is used again.
func (e *Encoder) Encode(g *Group, b *table.Batch) error {
	g.reset()
	g.rows = b.Rows()
	g.sorted = isSorted(b)
	ends := make([]int, 0, len(b.Table.Columns))
	chunks := make([]chunk, 0, len(b.Table.Columns))
	for i := range b.Table.Columns {
		c, err := e.column(g, b.Table.Columns[i], dataOf(b, i))
		if err != nil {
			return err
		}
		chunks, ends = append(chunks, c), append(ends, len(g.own))
	}
	at := 0
	for i, c := range chunks {
		g.add(c, g.own[at:ends[i]])
		at = ends[i]
	}
	return nil
}

// Splice makes a row group of src's rows in g: the named columns are encoded
// from own, the others are copied as they lie in src, and those that src lacks
// are null. Src has to be loaded again before its next use.
func (e *Encoder) Splice(g *Group, t *table.Table, src *RawGroup, own *table.Batch, names []string) error {
	g.reset()
	g.rows = src.rows
	g.raw, src.buf = src.buf, g.raw
	if own.Rows() != g.rows {
		return fmt.Errorf("%d rows of times for %d rows", own.Rows(), g.rows)
	}
	g.sorted = isSorted(own)
	type place struct {
		chunk
		from, to int
		copied   bool
	}
	places := make([]place, len(t.Columns))
	for i, col := range t.Columns {
		p := &places[i]
		var d columnData
		if slices.Contains(names, col.Name) {
			d = dataOf(own, own.Table.Index(col.Name))
		} else if c, ok := src.chunk(col); ok {
			p.chunk, p.copied = c, true
			p.from, p.to = int(c.begin-src.begin), int(c.begin-src.begin+c.size)
			continue
		} else {
			d = e.nothing(g.rows)
		}
		p.from = len(g.own)
		var err error
		if p.chunk, err = e.column(g, col, d); err != nil {
			return err
		}
		p.to = len(g.own)
	}
	for _, p := range places {
		if p.copied {
			g.add(p.chunk, g.raw[p.from:p.to])
		} else {
			g.add(p.chunk, g.own[p.from:p.to])
		}
	}
	return nil
}

// nothing is a column of nulls.
func (e *Encoder) nothing(n int) columnData {
	if len(e.nulls) < n {
		e.nulls = make([]bool, n)
	}
	zeros := make([]int64, n)
	return columnData{zeros, make([]float64, n), make([]string, n), e.nulls[:n]}
}

// isSorted says whether the rows are in order of their first column.
func isSorted(b *table.Batch) bool {
	last := int64(math.MinInt64)
	for _, t := range b.Ints(0) {
		if t < last {
			return false
		}
		last = t
	}
	return true
}

// columnData is a column's values.
type columnData struct {
	ints   []int64
	floats []float64
	texts  []string
	valid  []bool
}

func dataOf(b *table.Batch, i int) columnData {
	return columnData{b.Ints(i), b.Floats(i), b.Strings(i), b.Valid(i)}
}

// column appends a column chunk to g.own.
func (e *Encoder) column(g *Group, col table.Column, d columnData) (chunk, error) {
	valid := d.valid
	if col.Required {
		for _, v := range valid {
			if !v {
				return chunk{}, fmt.Errorf("column %s must not be null and is", col.Name)
			}
		}
	}
	c := chunk{values: int64(len(valid))}
	begin := len(g.own)
	st := newStats(col.Type)
	enc := byte(encodingPlain)
	var hasPlain, hasOther bool
	width := 0
	var err error
	switch col.Type {
	case table.Int64, table.Int32, table.Timestamp:
		e.plan = intPlan{encoding: st.integers(d.ints, valid)}
		switch {
		case e.thorough && st.any:
			e.plan, err = e.choose(col, d, e.plan)
		case e.plan.encoding == encodingDelta && len(valid) >= 4*pageRows:
			e.plan.encoding, err = e.probe(col, d)
		}
		if err != nil {
			return c, err
		}
		if enc = e.plan.encoding; enc == encodingDict {
			width = e.intWidth()
			hasPlain = true // the dictionary's page is
			c.raw += e.intDictPage(g, col)
			c.page = int64(len(g.own) - begin)
			c.dict = 1 // anything but 0: it stands at the beginning
		}
	case table.Float64, table.Float32:
		st.floats(d.floats, valid)
	case table.String:
		st.strings(d.texts, valid)
		if e.dictionary(d.texts, valid) {
			enc = encodingDict
			width = bits.Len(uint(len(e.values) - 1))
			hasPlain = true // the dictionary's page is
			c.raw += e.dictPage(g)
			c.page = int64(len(g.own) - begin)
			c.dict = 1 // anything but 0: it stands at the beginning
		}
	}
	for from := 0; from < len(valid); from += pageRows {
		to := min(from+pageRows, len(valid))
		raw, used, err := e.dataPage(g, col, d, from, to, enc, width)
		if err != nil {
			return c, fmt.Errorf("column %s: %w", col.Name, err)
		}
		c.raw += raw
		hasPlain = hasPlain || used == encodingPlain
		hasOther = hasOther || used != encodingPlain
	}
	c.size = int64(len(g.own) - begin)
	c.encodings = encodingList(enc, hasPlain, hasOther)
	c.stats = st.thrift()
	return c, nil
}

// encodingList is a list of encodings as the footer has it.
func encodingList(enc byte, hasPlain, hasOther bool) []byte {
	list := make([]byte, 1, 4)
	add := func(e byte) { list = append(list, byte(zigzag(int64(e)))) }
	if hasOther {
		add(enc)
	}
	if hasPlain {
		add(encodingPlain)
	}
	add(encodingRLE) // of levels
	list[0] = byte(len(list)-1)<<4 | thriftI32
	return list
}

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
	e.levels = e.zstd.EncodeAll(e.page, e.levels[:0])
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

// appendLevels appends definition levels of at most 1.
func appendLevels(dst []byte, valid []bool) []byte {
	all := true
	for _, v := range valid {
		if v != valid[0] {
			all = false
			break
		}
	}
	if all {
		dst = binary.AppendUvarint(dst, uint64(len(valid))<<1)
		if valid[0] {
			return append(dst, 1)
		}
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64((len(valid)+7)/8)<<1|1)
	return packBits(dst, valid)
}

// appendHybrid appends indices of the given width as runs and packed groups of
// eight.
func appendHybrid(dst []byte, v []int32, width int) []byte {
	const least = 8 // equal values in a row from which a run is shorter
	bytes := (width + 7) / 8
	for i := 0; i < len(v); {
		if n := run(v[i:]); n >= least || i+n == len(v) {
			dst = binary.AppendUvarint(dst, uint64(n)<<1)
			for b := range bytes {
				dst = append(dst, byte(v[i]>>(8*b)))
			}
			i += n
			continue
		}
		// Whole groups of eight, until a run begins at a group's end.
		j := i
		for j < len(v) {
			if j > i && run(v[j:]) >= least {
				break
			}
			j += 8
		}
		groups := (j - i) / 8
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		var acc uint64
		n := 0
		for k := range groups * 8 {
			x := uint64(0)
			if i+k < len(v) {
				x = uint64(v[i+k])
			}
			acc |= x << n
			for n += width; n >= 8; n -= 8 {
				dst = append(dst, byte(acc))
				acc >>= 8
			}
		}
		i = min(j, len(v))
	}
	return dst
}

// run returns how many values at the beginning are equal.
func run(v []int32) int {
	n := 1
	for n < len(v) && v[n] == v[0] {
		n++
	}
	return n
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
