package shard

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/gswarm/gswarm/table"
)

// parquetFile is a Parquet file whose footer has been verified. It holds no
// open file: a merge knows more of them than it may have open.
type parquetFile struct {
	path string
	// r reads the file where it is none of the operating system's.
	r    io.ReaderAt
	id   identity
	size int64
	data int64 // where the trailer begins
	sum  uint32
	// verified says that the data's checksum was compared.
	verified bool
	version  int
	table    string
	schema   *fileSchema
	kv       map[string]string
	groups   []rowGroup
	footer   int64 // where it begins
}

// identity tells whether a path still leads to the file that it led to.
type identity struct {
	size  int64
	mtime time.Time
}

// errChanged says that a file is not what it was when it was first looked at.
var errChanged = errors.New("it changed while it was read")

func openParquet(path string) (*parquetFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a Parquet file: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening a Parquet file: %w", err)
	}
	p, err := readParquet(path, f, st.Size())
	if err != nil {
		return nil, err
	}
	p.r, p.id = nil, identity{st.Size(), st.ModTime()}
	return p, nil
}

// with calls fn with the open file.
func (p *parquetFile) with(fn func(io.ReaderAt) error) error {
	if p.r != nil {
		return fn(p.r)
	}
	f, err := p.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(f)
}

func (p *parquetFile) open() (*os.File, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return nil, fmt.Errorf("opening a Parquet file: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening a Parquet file: %w", err)
	}
	if st.Size() != p.id.size || !st.ModTime().Equal(p.id.mtime) {
		f.Close()
		return nil, &CorruptError{Path: p.path, Err: errChanged}
	}
	return f, nil
}

// Close lets go of the file.
func (p *parquetFile) Close() error { return nil }

// readParquet is openParquet for any reader.
func readParquet(path string, r io.ReaderAt, size int64) (*parquetFile, error) {
	b, at, err := readFooter(r, size)
	if err != nil {
		return nil, &CorruptError{Path: path, Offset: at, Err: err}
	}
	p := &parquetFile{path: path, r: r, size: size, data: at - trailerLen, footer: at}
	p.sum = le.Uint32(b[len(trailerMagic):])
	if err := p.parse(b[trailerLen : len(b)-8]); err != nil {
		var newer *NewerError
		if errors.As(err, &newer) {
			return nil, err
		}
		return nil, &CorruptError{Path: path, Offset: at, Err: err}
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
	var head [4]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, 0, err
	}
	if !bytes.Equal(head[:], parquetMagic) {
		return nil, 0, fmt.Errorf("%w: it does not begin as a Parquet file does", ErrNotShard)
	}
	length := int64(le.Uint32(end[:]))
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
	if crc32.Checksum(b[trailerLen:], castagnoli) != le.Uint32(b[trailerLen-4:]) {
		return nil, begin + trailerLen, fmt.Errorf("the footer: %w", errChecksum)
	}
	return b, begin + trailerLen, nil
}

// footerMax bounds the footers that are read: one of the largest number of row
// groups is far smaller.
const footerMax = 1 << 30

// parse reads what the footer says.
func (p *parquetFile) parse(b []byte) error {
	f, err := parseFooter(b, p.data)
	if err != nil {
		return err
	}
	version, err := strconv.Atoi(f.kv[keyVersion])
	if err != nil {
		return fmt.Errorf("%w: it has no format version", ErrNotShard)
	}
	if version > table.Version {
		return &NewerError{Path: p.path, Have: version, Max: table.Version}
	}
	p.version, p.table, p.schema, p.kv, p.groups = version, f.kv[keyTable], f.schema, f.kv, f.groups
	return nil
}

// sums reads the row groups' checksums. Files of an earlier gswarm have none.
func (f *footer) sums() error {
	value, ok := f.kv[keySums]
	if !ok {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(b) != 4*len(f.groups) {
		return fmt.Errorf("%s does not fit its %d row groups", keySums, len(f.groups))
	}
	for i := range f.groups {
		f.groups[i].sum, f.groups[i].summed = le.Uint32(b[4*i:]), true
	}
	return nil
}

// verify compares the data's checksum, once.
func (p *parquetFile) verify() error { return p.with(p.verifyFrom) }

func (p *parquetFile) verifyFrom(r io.ReaderAt) error {
	if p.verified {
		return nil
	}
	h := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(h, io.NewSectionReader(r, 0, p.data), make([]byte, min(p.data, 256<<10))); err != nil {
		return fmt.Errorf("reading %s: %w", p.path, err)
	}
	if h.Sum32() != p.sum {
		return &CorruptError{Path: p.path, Offset: 0, Err: fmt.Errorf("its %d bytes of data: %w", p.data, errChecksum)}
	}
	p.verified = true
	return nil
}

// RawGroup is a row group as it lies in its file, its bytes verified.
type RawGroup struct {
	rows   int
	begin  int64 // in the file
	buf    []byte
	schema *fileSchema
	chunks []chunk
	sums   []uint32 // of the chunks, CRC32C
}

// Rows returns the number of rows.
func (raw *RawGroup) Rows() int { return raw.rows }

// verify sums each chunk and compares the sum of all.
func (raw *RawGroup) verify(want uint32) error {
	sum, at := uint32(0), int64(0)
	raw.sums = raw.sums[:0]
	for _, c := range raw.chunks {
		if c.begin-raw.begin != at {
			return errors.New("its column chunks do not follow one another")
		}
		s := crc32.Checksum(raw.buf[at:at+c.size], castagnoli)
		raw.sums = append(raw.sums, s)
		sum = combine(sum, s, c.size)
		at += c.size
	}
	if sum != want {
		return errChecksum
	}
	return nil
}

// fits says whether the file's columns can be copied as those of t's.
func (s *fileSchema) fits(t *table.Table) bool {
	for _, c := range t.Columns {
		i, ok := s.index[c.Name]
		if !ok {
			if c.Required {
				return false
			}
			continue
		}
		if have := s.columns[i]; have.physical != physicalOf(c.Type) || have.optional == c.Required {
			return false
		}
	}
	return true
}

// load reads a row group's bytes and verifies them. Nothing of them is decoded
// before.
func (p *parquetFile) load(i int, g *RawGroup) error {
	return p.with(func(r io.ReaderAt) error { return p.loadFrom(r, i, g) })
}

func (p *parquetFile) loadFrom(r io.ReaderAt, i int, g *RawGroup) error {
	rg := &p.groups[i]
	if !rg.summed {
		if err := p.verifyFrom(r); err != nil {
			return err
		}
	}
	n := int(rg.end - rg.begin)
	if cap(g.buf) < n {
		g.buf = make([]byte, n)
	}
	g.buf = g.buf[:n]
	if _, err := r.ReadAt(g.buf, rg.begin); err != nil {
		return fmt.Errorf("reading %s: %w", p.path, err)
	}
	g.rows, g.begin, g.schema = int(rg.rows), rg.begin, p.schema
	if err := p.chunks(r, i, &g.chunks); err != nil {
		return err
	}
	if rg.summed {
		if err := g.verify(rg.sum); err != nil {
			return &CorruptError{Path: p.path, Offset: rg.begin, Err: fmt.Errorf("row group %d: %w", i, err)}
		}
	}
	return nil
}

// chunks reads what the footer says of a row group's chunks.
func (p *parquetFile) chunks(r io.ReaderAt, i int, chunks *[]chunk) error {
	rg := &p.groups[i]
	b := make([]byte, rg.length)
	if _, err := r.ReadAt(b, p.footer+int64(rg.at)); err != nil {
		return fmt.Errorf("reading %s: %w", p.path, err)
	}
	*chunks = (*chunks)[:0]
	again, err := readRowGroup(&thriftReader{b: b}, p.schema, p.data, chunks)
	if err == nil && (again.rows != rg.rows || again.begin != rg.begin || again.end != rg.end) {
		err = errChanged
	}
	if err != nil {
		return &CorruptError{Path: p.path, Err: err}
	}
	return nil
}

// groupReader reads the columns of a row group side by side.
type groupReader struct {
	columns []*columnReader // nil where the file lacks the column
}

// extraOf returns the columns of the file that its table does not know.
func (p *parquetFile) extraOf(t *table.Table) (extra []string) {
	for _, c := range p.schema.columns {
		if t.Index(c.name) < 0 {
			extra = append(extra, c.name)
		}
	}
	return extra
}

func (raw *RawGroup) reader(t *table.Table) (*groupReader, error) {
	g := &groupReader{}
	return g, g.open(raw, t)
}

// open begins a row group; what the readers hold of the one before serves again.
func (g *groupReader) open(raw *RawGroup, t *table.Table) error {
	if g.columns == nil {
		g.columns = make([]*columnReader, len(t.Columns))
	}
	for i, col := range t.Columns {
		at, ok, err := raw.schema.find(col)
		if err != nil {
			return err
		}
		switch {
		case !ok:
			g.columns[i] = nil
		case g.columns[i] == nil:
			g.columns[i] = raw.column(col, at)
		default:
			g.columns[i].rewind(col, raw.schema.columns[at], int64(raw.rows), raw.pages(at))
		}
	}
	return nil
}

// column returns a reader of the chunk of the file's at-th column.
func (raw *RawGroup) column(col table.Column, at int) *columnReader {
	c := &columnReader{}
	c.rewind(col, raw.schema.columns[at], int64(raw.rows), raw.pages(at))
	return c
}

// pages returns the pages of the chunk of the file's at-th column, one a call.
func (raw *RawGroup) pages(at int) func() (pageHeader, []byte, error) {
	k := raw.chunks[at]
	b := raw.buf[k.begin-raw.begin:][:k.size]
	return func() (h pageHeader, page []byte, err error) {
		if h, err = parsePageHeader(b); err != nil {
			return h, nil, err
		}
		if int64(len(b)-h.length) < h.size {
			return h, nil, errPage
		}
		page = b[h.length:][:h.size]
		b = b[h.length+int(h.size):]
		return h, page, nil
	}
}

// find returns which column of the file holds a table's.
func (s *fileSchema) find(col table.Column) (int, bool, error) {
	at, ok := s.index[col.Name]
	if !ok {
		if col.Required {
			return 0, false, fmt.Errorf("the required column %s is not in the file", col.Name)
		}
		return 0, false, nil
	}
	if !holds(s.columns[at].physical, col.Type) {
		return 0, false, fmt.Errorf("column %s is of another type in the file than %s", col.Name, col.Type)
	}
	return at, true, nil
}

// next appends the next n rows to b, which is empty.
func (g *groupReader) next(b *table.Batch, n int) (err error) {
	defer guard(&err)
	at := b.Rows()
	b.AppendNulls(n)
	for i, c := range g.columns {
		if c == nil {
			continue
		}
		if err := c.into(b, i, at, n); err != nil {
			return fmt.Errorf("column %s: %w", b.Table.Columns[i].Name, err)
		}
	}
	return nil
}

// Columns reads the columns of a table that has some of the row group's, all
// rows, into b.
func (raw *RawGroup) Columns(b *table.Batch) error {
	b.Reset()
	g, err := raw.reader(b.Table)
	if err != nil {
		return err
	}
	return g.next(b, raw.rows)
}
