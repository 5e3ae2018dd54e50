package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"

	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/compress"
	"github.com/apache/arrow/go/v15/parquet/file"
	"github.com/apache/arrow/go/v15/parquet/metadata"

	"github.com/gswarm/gswarm/table"
)

// parquetFile is an open Parquet file whose footer has been verified.
type parquetFile struct {
	path string
	r    io.ReaderAt
	done func() error
	size int64
	data int64 // where the trailer begins
	sum  uint32
	pq   *file.Reader
	mem  *limitAllocator
	// verified says that the data's checksum was compared.
	verified bool
	table    string
	kv       map[string]string
	groups   []rowGroup
	// extra are columns of the file that its table does not know.
	extra []string
}

// rowGroup is what the footer says of a row group.
type rowGroup struct {
	rows int64
	// tMin and tMax bound the first column, the time; known says whether
	// the file has them.
	tMin, tMax int64
	known      bool
}

// memoryFor is what decoding one row group may allocate: generous, but no
// damaged length gets through it.
func memoryFor(size int64) int64 { return 64<<20 + 64*size }

func openParquet(path string) (*parquetFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a Parquet file: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening a Parquet file: %w", err)
	}
	p, err := readParquet(path, f, st.Size())
	if err != nil {
		f.Close()
		return nil, err
	}
	p.done = f.Close
	return p, nil
}

func (p *parquetFile) Close() error { return p.done() }

// readParquet is openParquet for any reader.
func readParquet(path string, r io.ReaderAt, size int64) (*parquetFile, error) {
	footer, data, err := readFooter(r, size)
	if err != nil {
		return nil, &CorruptError{Path: path, Offset: data, Err: err}
	}
	p := &parquetFile{path: path, r: r, size: size, data: data - trailerLen, done: func() error { return nil }}
	p.sum = binary.LittleEndian.Uint32(footer[len(trailerMagic):])
	if err := p.parse(); err != nil {
		var newer *NewerError
		if errors.As(err, &newer) {
			return nil, err
		}
		return nil, &CorruptError{Path: path, Offset: data, Err: err}
	}
	return p, nil
}

// readFooter reads the trailer and the footer and verifies the footer. It also
// returns where the footer begins, or where the damage was seen.
func readFooter(r io.ReaderAt, size int64) ([]byte, int64, error) {
	const tail = 8
	least := int64(len(parquetMagic) + trailerLen + tail)
	if size < least {
		return nil, 0, fmt.Errorf("%w: it has %d bytes, the least is %d; it was cut, or never finished", ErrNotShard, size, least)
	}
	var end [tail]byte
	if _, err := r.ReadAt(end[:], size-tail); err != nil {
		return nil, size - tail, err
	}
	if !bytes.Equal(end[4:], parquetMagic) {
		return nil, size - 4, fmt.Errorf("%w: it does not end as a Parquet file does; it was cut, or never finished", ErrNotShard)
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	begin := size - tail - length - trailerLen
	if length > footerMax || begin < int64(len(parquetMagic)) {
		return nil, size - tail, fmt.Errorf("%w: impossible footer length %d", ErrNotShard, length)
	}
	b := make([]byte, size-begin)
	if _, err := r.ReadAt(b, begin); err != nil {
		return nil, begin, err
	}
	if !bytes.HasPrefix(b, trailerMagic) {
		return nil, begin, fmt.Errorf("%w: it has no checksum, so another program wrote it or it is damaged", ErrNotShard)
	}
	if crc32.Checksum(b[trailerLen:], castagnoli) != binary.LittleEndian.Uint32(b[trailerLen-4:]) {
		return nil, begin + trailerLen, fmt.Errorf("the footer: %w", errChecksum)
	}
	return b, begin + trailerLen, nil
}

// footerMax bounds the footers that are read: one of the largest number of row
// groups is far smaller.
const footerMax = 1 << 30

// parse reads what the footer says. It runs the library's decoders.
func (p *parquetFile) parse() (err error) {
	defer guard(&err)
	p.mem = &limitAllocator{left: memoryFor(p.size)}
	p.pq, err = file.NewParquetReader(io.NewSectionReader(p.r, 0, p.size), file.WithReadProps(parquet.NewReaderProperties(p.mem)))
	if err != nil {
		return err
	}
	meta := p.pq.MetaData()
	p.kv = make(map[string]string)
	for _, kv := range meta.KeyValueMetadata() {
		p.kv[kv.Key] = kv.GetValue()
	}
	version, err := strconv.Atoi(p.kv[keyVersion])
	if err != nil {
		return fmt.Errorf("%w: it has no format version", ErrNotShard)
	}
	if version > table.Version {
		return &NewerError{Path: p.path, Have: version, Max: table.Version}
	}
	p.table = p.kv[keyTable]
	for i := range p.pq.NumRowGroups() {
		g, err := p.group(meta, i)
		if err != nil {
			return err
		}
		p.groups = append(p.groups, g)
	}
	return nil
}

func (p *parquetFile) group(meta *metadata.FileMetaData, i int) (rowGroup, error) {
	rg := meta.RowGroup(i)
	g := rowGroup{rows: rg.NumRows()}
	if g.rows < 0 || g.rows > MaxRowGroup {
		return g, fmt.Errorf("row group %d claims %d rows", i, g.rows)
	}
	for c := range rg.NumColumns() {
		chunk, err := rg.ColumnChunk(c)
		if err != nil {
			return g, err
		}
		begin := chunk.DataPageOffset()
		if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
			begin = min(begin, chunk.DictionaryPageOffset())
		}
		if n := chunk.TotalCompressedSize(); begin < 0 || n < 0 || begin > p.data || n > p.data-begin {
			return g, fmt.Errorf("column %d of row group %d lies outside the file", c, i)
		}
		if chunk.Compression() != compress.Codecs.Zstd || chunk.NumValues() != g.rows {
			return g, fmt.Errorf("column %d of row group %d is not as gswarm writes it", c, i)
		}
		if c == 0 {
			g.tMin, g.tMax, g.known = timeRange(chunk)
		}
	}
	return g, nil
}

func timeRange(chunk *metadata.ColumnChunkMetaData) (lo, hi int64, ok bool) {
	st, err := chunk.Statistics()
	if err != nil || st == nil || !st.HasMinMax() {
		return 0, 0, false
	}
	s, ok := st.(*metadata.Int64Statistics)
	if !ok {
		return 0, 0, false
	}
	return s.Min(), s.Max(), true
}

// verify compares the data's checksum, once. No page is decoded before.
func (p *parquetFile) verify() error {
	if p.verified {
		return nil
	}
	h := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(h, io.NewSectionReader(p.r, 0, p.data), make([]byte, min(p.data, 256<<10))); err != nil {
		return fmt.Errorf("reading %s: %w", p.path, err)
	}
	if h.Sum32() != p.sum {
		return &CorruptError{Path: p.path, Offset: 0, Err: fmt.Errorf("its %d bytes of data: %w", p.data, errChecksum)}
	}
	p.verified = true
	return nil
}

// readGroup passes the rows of one row group to fn, some thousands at a time.
// The batch is reused. Columns that the file lacks are null.
func (p *parquetFile) readGroup(t *table.Table, i int, fn func(*table.Batch) error) error {
	if err := p.verify(); err != nil {
		return err
	}
	g, err := p.openGroup(t, i)
	if err != nil {
		return &CorruptError{Path: p.path, Err: err}
	}
	b := table.NewBatch(t, int(min(p.groups[i].rows, readRows)))
	for left := p.groups[i].rows; left > 0; left -= int64(b.Rows()) {
		b.Reset()
		if err := g.next(b, int(min(left, readRows))); err != nil {
			return &CorruptError{Path: p.path, Err: fmt.Errorf("row group %d: %w", i, err)}
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}

// readRows is how many rows readGroup passes on at a time.
const readRows = 8192

// groupReader reads the columns of a row group side by side.
type groupReader struct {
	table   *table.Table
	columns []file.ColumnChunkReader // nil where the file lacks the column
	levels  []int16
	int64s  []int64
	int32s  []int32
	float64 []float64
	float32 []float32
	texts   []parquet.ByteArray
}

func (p *parquetFile) openGroup(t *table.Table, i int) (g *groupReader, err error) {
	defer guard(&err)
	p.mem.left = memoryFor(p.size)
	n := min(p.groups[i].rows, readRows)
	g = &groupReader{
		table: t, columns: make([]file.ColumnChunkReader, len(t.Columns)),
		levels: make([]int16, n), int64s: make([]int64, n), int32s: make([]int32, n),
		float64: make([]float64, n), float32: make([]float32, n), texts: make([]parquet.ByteArray, n),
	}
	sc := p.pq.MetaData().Schema
	rg := p.pq.RowGroup(i)
	p.extra = p.extra[:0]
	found := make(map[string]int, sc.NumColumns())
	for c := range sc.NumColumns() {
		name := sc.Column(c).Name()
		found[name] = c
		if t.Index(name) < 0 {
			p.extra = append(p.extra, name)
		}
	}
	for c, col := range t.Columns {
		at, ok := found[col.Name]
		if !ok {
			if col.Required {
				return nil, fmt.Errorf("the required column %s is not in the file", col.Name)
			}
			continue
		}
		d := sc.Column(at)
		if d.MaxRepetitionLevel() != 0 || d.MaxDefinitionLevel() > 1 {
			return nil, fmt.Errorf("column %s is nested", col.Name)
		}
		if !physicalFits(d.PhysicalType(), col.Type) {
			return nil, fmt.Errorf("column %s is %s in the file and %s here", col.Name, d.PhysicalType(), col.Type)
		}
		if g.columns[c], err = rg.Column(at); err != nil {
			return nil, fmt.Errorf("column %s: %w", col.Name, err)
		}
	}
	return g, nil
}

func physicalFits(from parquet.Type, to table.Type) bool {
	switch from {
	case parquet.Types.Int64:
		return to == table.Int64 || to == table.Timestamp
	case parquet.Types.Int32:
		return to == table.Int32 || to == table.Int64
	case parquet.Types.Double:
		return to == table.Float64
	case parquet.Types.Float:
		return to == table.Float32 || to == table.Float64
	case parquet.Types.ByteArray:
		return to == table.String
	}
	return false
}

// next appends the next n rows to b, which is empty.
func (g *groupReader) next(b *table.Batch, n int) (err error) {
	defer guard(&err)
	b.AppendNulls(n)
	for i, r := range g.columns {
		if r == nil {
			continue
		}
		if err := g.column(r, b, i, n); err != nil {
			return fmt.Errorf("column %s: %w", g.table.Columns[i].Name, err)
		}
	}
	return nil
}

func (g *groupReader) column(r file.ColumnChunkReader, b *table.Batch, i, n int) error {
	valid := b.Valid(i)
	switch r := r.(type) {
	case *file.Int64ColumnChunkReader:
		return fill(g, r.ReadBatch, g.int64s, b.Ints(i), valid, r.Descriptor().MaxDefinitionLevel(), i, n)
	case *file.Int32ColumnChunkReader:
		return fill(g, r.ReadBatch, g.int32s, b.Ints(i), valid, r.Descriptor().MaxDefinitionLevel(), i, n)
	case *file.Float64ColumnChunkReader:
		return fill(g, r.ReadBatch, g.float64, b.Floats(i), valid, r.Descriptor().MaxDefinitionLevel(), i, n)
	case *file.Float32ColumnChunkReader:
		return fill(g, r.ReadBatch, g.float32, b.Floats(i), valid, r.Descriptor().MaxDefinitionLevel(), i, n)
	case *file.ByteArrayColumnChunkReader:
		return g.strings(r, b.Strings(i), valid, i, n)
	}
	return errors.New("unexpected reader")
}

// readBatch is the library's: it returns the levels and the values read.
type readBatch[V any] func(n int64, values []V, def, rep []int16) (int64, int, error)

// read fills values with the next n rows' values, without the nulls, and
// returns for each row whether it has one.
func read[V any](g *groupReader, next readBatch[V], values []V, maxDef int16, i, n int) ([]int16, error) {
	levels := g.levels[:n]
	if maxDef == 0 {
		for r := range levels {
			levels[r] = 1
		}
	}
	for rows, got := 0, 0; rows < n; {
		l, v, err := next(int64(n-rows), values[got:n], levels[rows:], nil)
		if err != nil {
			return nil, err
		}
		if l <= 0 || int(l) > n-rows {
			return nil, fmt.Errorf("it ends after %d of %d rows", rows, n)
		}
		if maxDef == 0 {
			for r := range levels[rows : rows+int(l)] {
				levels[rows+r] = 1
			}
		}
		rows, got = rows+int(l), got+v
		if rows == n {
			present := 0
			for _, d := range levels {
				present += int(d)
			}
			if present != got {
				return nil, fmt.Errorf("%d values for %d rows that have one", got, present)
			}
		}
	}
	if g.table.Columns[i].Required {
		for _, d := range levels {
			if d == 0 {
				return nil, errors.New("the required column is null")
			}
		}
	}
	return levels, nil
}

func fill[V int32 | int64 | float32 | float64, D int64 | float64](g *groupReader, next readBatch[V], values []V, dst []D, valid []bool, maxDef int16, i, n int) error {
	levels, err := read(g, next, values, maxDef, i, n)
	if err != nil {
		return err
	}
	at := 0
	for r, d := range levels {
		if d == 1 {
			dst[r], valid[r] = D(values[at]), true
			at++
		}
	}
	return nil
}

func (g *groupReader) strings(r *file.ByteArrayColumnChunkReader, dst []string, valid []bool, i, n int) error {
	levels, err := read(g, r.ReadBatch, g.texts, r.Descriptor().MaxDefinitionLevel(), i, n)
	if err != nil {
		return err
	}
	at, last := 0, ""
	for row, d := range levels {
		if d == 1 {
			if v := g.texts[at]; string(v) != last {
				last = string(v)
			}
			dst[row], valid[row] = last, true
			at++
		}
	}
	return nil
}
