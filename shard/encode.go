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

// add takes a chunk's bytes, whose CRC32C is sum, as the next column's. What the
// chunk says of its place counts from its own begin.
func (g *Group) add(c chunk, b []byte, sum uint32) {
	g.chunks = append(g.chunks, c)
	g.sum = combine(g.sum, sum, int64(len(b)))
	g.size += int64(len(b))
	if n := len(g.parts); n > 0 && len(b) > 0 {
		// Bytes that lie together are written together.
		if end := len(g.parts[n-1]); end < cap(g.parts[n-1]) && &g.parts[n-1][:end+1][end] == &b[0] {
			g.parts[n-1] = g.parts[n-1][:end+len(b)]
			return
		}
	}
	g.parts = append(g.parts, b)
}

// addOwn takes a chunk that was encoded.
func (g *Group) addOwn(c chunk, from, to int) {
	b := g.own[from:to]
	g.add(c, b, crc32.Checksum(b, castagnoli))
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
	// store is how many of the chunk's next pages are stored as they are.
	store int
	plan  intPlan
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
		g.addOwn(c, at, ends[i])
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
		sum      uint32
	}
	places := make([]place, len(t.Columns))
	for i, col := range t.Columns {
		p := &places[i]
		var d columnData
		if slices.Contains(names, col.Name) {
			d = dataOf(own, own.Table.Index(col.Name))
		} else if at, ok := src.schema.index[col.Name]; ok {
			p.chunk, p.sum, p.copied = src.chunks[at], src.sums[at], true
			p.from = int(p.begin - src.begin)
			p.to = p.from + int(p.size)
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
			g.add(p.chunk, g.raw[p.from:p.to], p.sum)
		} else {
			g.addOwn(p.chunk, p.from, p.to)
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
	e.store = 0
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
