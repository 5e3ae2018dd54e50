package shard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/compress"
	"github.com/apache/arrow/go/v15/parquet/file"
	"github.com/apache/arrow/go/v15/parquet/metadata"
	"github.com/apache/arrow/go/v15/parquet/schema"
	"github.com/klauspost/compress/zstd"

	"github.com/gswarm/gswarm/table"
)

// Keys of the key-value metadata that every Parquet file of gswarm's has.
const (
	keyVersion = "gswarm.format_version"
	keyTable   = "gswarm.table"
	keySet     = "gswarm.set"
)

// createdBy is part of the files' bytes, so it tells of the format only.
var createdBy = fmt.Sprintf("gswarm format %d", table.Version)

// MaxRowGroup is the number of rows at which a row group ends by itself. It
// bounds the writer's memory: a row group is held until it ends.
const MaxRowGroup = 1 << 18

// MaxRowGroups is the number of row groups that one file can hold.
const MaxRowGroups = math.MaxInt16

// ErrFull says that a Parquet file can hold no more row groups.
var ErrFull = errors.New("the Parquet file can hold no more row groups")

// ParquetWriter writes the rows of one table to a Parquet file. The file
// appears under its name when Close has made it whole. The same batches, cuts
// and metadata give the same bytes.
type ParquetWriter struct {
	path, tmp string
	table     *table.Table
	f         *os.File
	out       *sink
	schema    *schema.Schema
	meta      *metadata.FileMetaDataBuilder
	props     [3]*parquet.WriterProperties // by encoding
	zstd      *zstd.Encoder
	page      []byte // the pager's
	rows      *table.Batch
	text      int // length of the strings in rows
	groups    int
	total     int64
	scratch   columnScratch
}

// sink counts and sums what is written, as the column writers need the offset
// and the trailer the checksum.
type sink struct {
	w   *bufio.Writer
	n   int64
	crc uint32
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	s.crc = crc32.Update(s.crc, castagnoli, p[:n])
	if err != nil && s.err == nil {
		// Some of the library's writers drop errors.
		s.err = err
	}
	return n, err
}

func (s *sink) Tell() int64 { return s.n }

var parquetMagic = []byte("PAR1")

// CreateParquet begins a Parquet file of t's rows. The metadata kv is kept in
// the file beside gswarm's own.
func CreateParquet(path string, t *table.Table, kv map[string]string) (*ParquetWriter, error) {
	// The name does not end in .parquet, so no reader takes it for a file.
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.tmp", filepath.Base(path), os.Getpid()))
	return createParquet(path, tmp, t, kv)
}

// createParquet is CreateParquet that writes to tmp meanwhile, which may be
// path itself.
func createParquet(path, tmp string, t *table.Table, kv map[string]string) (*ParquetWriter, error) {
	sc, err := parquetSchema(t)
	if err != nil {
		return nil, err
	}
	all := metadata.NewKeyValueMetadata()
	described, err := arrowSchemaValue(t)
	if err != nil {
		return nil, err
	}
	own := map[string]string{keyVersion: fmt.Sprint(table.Version), keyTable: t.Name, arrowSchemaKey: described}
	for k, v := range kv {
		own[k] = v
	}
	keys := make([]string, 0, len(own))
	for k := range own {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if err := all.Append(k, own[k]); err != nil {
			return nil, fmt.Errorf("metadata %s of %s: %w", k, path, err)
		}
	}
	enc, err := newZstdEncoder()
	if err != nil {
		return nil, err
	}
	w := &ParquetWriter{path: path, tmp: tmp, table: t, schema: sc, zstd: enc, rows: table.NewBatch(t, 0)}
	for e := range w.props {
		w.props[e] = writerProperties(encoding(e))
	}
	w.meta = metadata.NewFileMetadataBuilder(sc, w.props[encPlain], all)
	if w.f, err = os.OpenFile(w.tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		enc.Close()
		return nil, fmt.Errorf("creating %s: %w", path, err)
	}
	w.out = &sink{w: bufio.NewWriterSize(w.f, 256<<10)}
	w.out.Write(parquetMagic)
	return w, nil
}

// encoding is how a column chunk's values are encoded.
type encoding int

// Integers are counters, times, and levels that move little: delta encoding
// suits them all, and a dictionary of them costs more and gains nothing. Floats
// have no encoding that both helps and is read everywhere. Strings are keys and
// repeat, so they get a dictionary.
const (
	encPlain encoding = iota
	encDelta
	encDict
)

func writerProperties(e encoding) *parquet.WriterProperties {
	enc := parquet.Encodings.Plain
	if e == encDelta {
		enc = parquet.Encodings.DeltaBinaryPacked
	}
	return parquet.NewWriterProperties(
		parquet.WithCreatedBy(createdBy),
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithEncoding(enc),
		parquet.WithDictionaryDefault(e == encDict),
		// A column chunk is one page: the library's delta encoder fails on a
		// page without values, and a fallback from a dictionary halfway
		// would leave the footer to the order of a map.
		parquet.WithDataPageSize(math.MaxInt32),
		parquet.WithDictionaryPageSizeLimit(math.MaxInt32),
		parquet.WithBatchSize(MaxRowGroup),
		parquet.WithMaxStatsSize(256),
	)
}

// deltaSpan is the span of 32-bit values up to which they are delta-encoded:
// the library encodes differences in 64 bits, and other readers refuse any that
// do not fit 32.
const deltaSpan = 1 << 30

// integerEncoding chooses between delta and plain for an integer column.
func integerEncoding(c table.Column, values []int64, valid []bool) encoding {
	lo, hi, any := int64(math.MaxInt64), int64(math.MinInt64), false
	for r, v := range values {
		if valid[r] {
			lo, hi, any = min(lo, v), max(hi, v), true
		}
	}
	if !any || c.Type == table.Int32 && hi-lo > deltaSpan {
		return encPlain
	}
	return encDelta
}

// Write adds the batch's rows. The batch may be reused at once.
func (w *ParquetWriter) Write(b *table.Batch) error {
	for from := 0; from < b.Rows(); {
		n := min(b.Rows()-from, MaxRowGroup-w.rows.Rows())
		n = w.fit(b, from, n)
		w.rows.AppendRange(b, from, from+n)
		from += n
		if w.rows.Rows() == MaxRowGroup || w.text >= textMax {
			if err := w.Cut(); err != nil {
				return err
			}
		}
	}
	return nil
}

// textMax is the length of all strings at which a row group ends: rows alone do
// not bound it.
const textMax = 64 << 20

// fit returns how many of the n rows from row from on the row group takes, one
// at least.
func (w *ParquetWriter) fit(b *table.Batch, from, n int) int {
	for r := from; r < from+n; r++ {
		for i, c := range b.Table.Columns {
			if c.Type == table.String {
				w.text += len(b.Strings(i)[r])
			}
		}
		if w.text >= textMax {
			return r - from + 1
		}
	}
	return n
}

// Pending returns the rows of the row group that is being gathered.
func (w *ParquetWriter) Pending() int { return w.rows.Rows() }

// RowGroups returns the number of row groups that have ended.
func (w *ParquetWriter) RowGroups() int { return w.groups }

// Rows returns the number of rows written so far.
func (w *ParquetWriter) Rows() int64 { return w.total + int64(w.rows.Rows()) }

// Cut ends the row group; without rows it does nothing.
func (w *ParquetWriter) Cut() (err error) {
	n := w.rows.Rows()
	if n == 0 {
		return nil
	}
	if w.groups == MaxRowGroups {
		return fmt.Errorf("%s: %w", w.path, ErrFull)
	}
	defer guard(&err)
	rg := w.meta.AppendRowGroup()
	rg.SetNumRows(n)
	var bytes int64
	for i := range w.table.Columns {
		written, err := w.column(rg.NextColumnChunk(), i)
		if err == nil {
			err = w.out.err
		}
		if err != nil {
			return fmt.Errorf("writing column %s of %s: %w", w.table.Columns[i].Name, w.path, err)
		}
		bytes += written
	}
	if err := rg.Finish(bytes, int16(w.groups)); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	w.groups++
	w.total += int64(n)
	w.rows.Reset()
	w.text = 0
	return nil
}

// pager compresses pages with the writer's one encoder; the library makes a new
// one for every page.
type pager struct {
	file.PageWriter
	w    *ParquetWriter
	meta *metadata.ColumnChunkMetaDataBuilder
}

// Close ends the column chunk. The library claims that it counted the distinct
// values and found none.
func (p *pager) Close(hasDict, fallback bool) error {
	if st := p.meta.Contents().MetaData.Statistics; st != nil {
		st.DistinctCount = nil
	}
	return p.PageWriter.Close(hasDict, fallback)
}

func (p *pager) Compress(_ *bytes.Buffer, src []byte) []byte {
	p.w.page = p.w.zstd.EncodeAll(src, p.w.page[:0])
	return p.w.page
}

// columnScratch is what a column's values are converted in.
type columnScratch struct {
	levels  []int16
	int64s  []int64
	int32s  []int32
	float64 []float64
	float32 []float32
	texts   []parquet.ByteArray
}

func (w *ParquetWriter) column(meta *metadata.ColumnChunkMetaDataBuilder, i int) (int64, error) {
	c := w.table.Columns[i]
	var distinct *dictionary
	e := encPlain
	switch c.Type {
	case table.Int64, table.Int32, table.Timestamp:
		e = integerEncoding(c, w.rows.Ints(i), w.rows.Valid(i))
	case table.String:
		if distinct = newDictionary(w.rows, i); distinct != nil {
			e = encDict
		}
	}
	// The footer names the encoding that the metadata's builder was made
	// with, so it is made again with this one.
	meta = metadata.NewColumnChunkMetaDataBuilderWithContents(w.props[e], meta.Descr(), meta.Contents())
	base, err := file.NewPageWriter(w.out, compress.Codecs.Zstd, 1, meta, int16(w.groups), int16(i),
		memory.DefaultAllocator, false, nil, nil)
	if err != nil {
		return 0, err
	}
	cw := file.NewColumnChunkWriter(meta, &pager{base, w, meta}, w.props[e])
	if distinct != nil {
		err = distinct.write(cw.(*file.ByteArrayColumnChunkWriter), c.Required)
	} else {
		err = w.scratch.write(cw, w.rows, i)
	}
	if err != nil {
		return 0, err
	}
	err = cw.Close()
	return cw.TotalBytesWritten(), err
}

// write gives column i to its column writer.
func (s *columnScratch) write(cw file.ColumnChunkWriter, b *table.Batch, i int) error {
	c := &b.Table.Columns[i]
	valid := b.Valid(i)
	s.levels = s.levels[:0]
	for _, v := range valid {
		l := int16(0)
		if v {
			l = 1
		} else if c.Required {
			return errors.New("the column must not be null and is")
		}
		s.levels = append(s.levels, l)
	}
	levels := s.levels
	if c.Required {
		levels = nil
	}
	var err error
	switch cw := cw.(type) {
	case *file.Int64ColumnChunkWriter:
		s.int64s = pick(s.int64s[:0], b.Ints(i), valid)
		_, err = cw.WriteBatch(s.int64s, levels, nil)
	case *file.Int32ColumnChunkWriter:
		s.int32s = pick(s.int32s[:0], b.Ints(i), valid)
		_, err = cw.WriteBatch(s.int32s, levels, nil)
	case *file.Float64ColumnChunkWriter:
		s.float64 = pick(s.float64[:0], b.Floats(i), valid)
		_, err = cw.WriteBatch(s.float64, levels, nil)
	case *file.Float32ColumnChunkWriter:
		s.float32 = pick(s.float32[:0], b.Floats(i), valid)
		_, err = cw.WriteBatch(s.float32, levels, nil)
	case *file.ByteArrayColumnChunkWriter:
		s.texts = s.texts[:0]
		for r, v := range b.Strings(i) {
			if valid[r] {
				s.texts = append(s.texts, parquet.ByteArray(v))
			}
		}
		_, err = cw.WriteBatch(s.texts, levels, nil)
	default:
		err = fmt.Errorf("no writer for %s", c.Type)
	}
	return err
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

// The trailer stands between the last column chunk and the footer, where
// Parquet's readers do not look: it sums the bytes before it and the footer
// behind it, which Parquet itself leaves unchecked.
const trailerLen = 16

var trailerMagic = []byte("GSWSUM1\n")

func trailer(data, footer uint32) []byte {
	b := append(make([]byte, 0, trailerLen), trailerMagic...)
	b = binary.LittleEndian.AppendUint32(b, data)
	return binary.LittleEndian.AppendUint32(b, footer)
}

// Close ends the last row group, writes the footer, syncs the file and gives it
// its name. After an error the file is gone.
func (w *ParquetWriter) Close() (err error) {
	if w.f == nil {
		return nil
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	if err := w.Cut(); err != nil {
		return err
	}
	meta, err := w.meta.Finish()
	if err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	var footer bytes.Buffer
	if _, err := meta.WriteTo(&footer, nil); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	var tail [4]byte
	binary.LittleEndian.PutUint32(tail[:], uint32(footer.Len()))
	footer.Write(tail[:])
	footer.Write(parquetMagic)
	w.out.Write(trailer(w.out.crc, crc32.Checksum(footer.Bytes(), castagnoli)))
	w.out.Write(footer.Bytes())
	if err := w.out.w.Flush(); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	if err := w.f.Sync(); !syncUnsupported(err) {
		return fmt.Errorf("syncing %s: %w", w.path, err)
	}
	f := w.f
	w.f = nil
	w.zstd.Close()
	if err := f.Close(); err != nil {
		os.Remove(w.tmp)
		return fmt.Errorf("closing %s: %w", w.path, err)
	}
	if w.tmp == w.path {
		return nil
	}
	if err := os.Rename(w.tmp, w.path); err != nil {
		os.Remove(w.tmp)
		return fmt.Errorf("naming %s: %w", w.path, err)
	}
	return nil
}

// Size returns the bytes written so far.
func (w *ParquetWriter) Size() int64 { return w.out.n }

// Abort removes what was written. After Close it does nothing.
func (w *ParquetWriter) Abort() {
	if w.f == nil {
		return
	}
	w.f.Close()
	os.Remove(w.tmp)
	w.f = nil
	w.zstd.Close()
}
