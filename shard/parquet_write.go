package shard

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"

	"github.com/gswarm/gswarm/table"
)

// Keys of the key-value metadata that every Parquet file of gswarm's has.
const (
	keyVersion = "gswarm.format_version"
	keyTable   = "gswarm.table"
	keySet     = "gswarm.set"
	keySums    = "gswarm.sums"
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
	kv        map[string]string
	f         *os.File
	out       *sink
	footer    footerWriter
	enc       *Encoder
	group     Group
	rows      *table.Batch
	text      int // length of the strings in rows
}

// sink counts and sums what is written.
type sink struct {
	w   *bufio.Writer
	n   int64
	crc uint32
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	s.crc = crc32.Update(s.crc, castagnoli, p[:n])
	return n, err
}

var parquetMagic = []byte("PAR1")

// CreateParquet begins a Parquet file of t's rows. The metadata kv is kept in
// the file beside gswarm's own.
func CreateParquet(path string, t *table.Table, kv map[string]string) (*ParquetWriter, error) {
	// The name does not end in .parquet, so no reader takes it for a file,
	// and no two writers, of two hosts maybe, choose the same.
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x.tmp", filepath.Base(path), rand.Uint64())) //nolint:gosec // a name, no secret
	return createParquet(path, tmp, t, kv, NewEncoder)
}

// createParquet is CreateParquet that writes to tmp meanwhile, which may be
// path itself.
func createParquet(path, tmp string, t *table.Table, kv map[string]string, encoder func() (*Encoder, error)) (*ParquetWriter, error) {
	described, err := arrowSchemaValue(t)
	if err != nil {
		return nil, err
	}
	own := map[string]string{keyVersion: fmt.Sprint(table.Version), keyTable: t.Name, arrowSchemaKey: described}
	for k, v := range kv {
		own[k] = v
	}
	w := &ParquetWriter{path: path, tmp: tmp, table: t, kv: own, rows: table.NewBatch(t, 0), footer: footerWriter{table: t}}
	if w.enc, err = encoder(); err != nil {
		return nil, err
	}
	if w.f, err = os.OpenFile(w.tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		w.enc.Release()
		return nil, fmt.Errorf("creating %s: %w", path, err)
	}
	w.out = &sink{w: bufio.NewWriterSize(w.f, 64<<10)}
	_, _ = w.out.Write(parquetMagic) // a buffered writer keeps its error
	return w, nil
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

// Path returns the file's path.
func (w *ParquetWriter) Path() string { return w.path }

// Pending returns the rows of the row group that is being gathered.
func (w *ParquetWriter) Pending() int { return w.rows.Rows() }

// RowGroups returns the number of row groups that have ended.
func (w *ParquetWriter) RowGroups() int { return w.footer.n }

// Rows returns the number of rows written so far.
func (w *ParquetWriter) Rows() int64 { return w.footer.rows + int64(w.rows.Rows()) }

// Cut ends the row group; without rows it does nothing.
func (w *ParquetWriter) Cut() error {
	if w.rows.Rows() == 0 {
		return nil
	}
	if err := w.enc.Encode(&w.group, w.rows); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	w.rows.Reset()
	w.text = 0
	return w.append(&w.group)
}

// Append writes a row group that was made elsewhere, behind the rows that were
// gathered so far.
func (w *ParquetWriter) Append(g *Group) error {
	if err := w.Cut(); err != nil {
		return err
	}
	return w.append(g)
}

func (w *ParquetWriter) append(g *Group) error {
	if w.footer.n == MaxRowGroups {
		return fmt.Errorf("%s: %w", w.path, ErrFull)
	}
	at := w.out.n
	for _, p := range g.parts {
		if _, err := w.out.w.Write(p); err != nil {
			return fmt.Errorf("writing %s: %w", w.path, err)
		}
	}
	w.out.n += g.size
	w.out.crc = combine(w.out.crc, g.sum, g.size)
	w.footer.add(g, at)
	return nil
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
	w.kv[keySums] = base64.StdEncoding.EncodeToString(w.footer.sums)
	keys := make([]string, 0, len(w.kv))
	for k := range w.kv {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	footer := w.footer.finish(keys, w.kv)
	if len(footer) > math.MaxInt32 {
		return fmt.Errorf("%s: %w", w.path, ErrFull)
	}
	var end bytes.Buffer
	end.Write(footer)
	end.Write(le.AppendUint32(nil, uint32(len(footer))))
	end.Write(parquetMagic)
	_, _ = w.out.Write(trailer(w.out.crc, crc32.Checksum(end.Bytes(), castagnoli)))
	_, _ = w.out.Write(end.Bytes())
	if err := w.out.w.Flush(); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	if err := w.f.Sync(); !syncUnsupported(err) {
		return fmt.Errorf("syncing %s: %w", w.path, err)
	}
	f := w.f
	w.f = nil
	w.enc.Release()
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

// Sum returns the length of the file and the CRC32C of all its bytes once it is
// closed.
func (w *ParquetWriter) Sum() (int64, string) {
	return w.out.n, fmt.Sprintf("%08x", w.out.crc)
}

// Abort removes what was written. After Close it does nothing.
func (w *ParquetWriter) Abort() {
	if w.f == nil {
		return
	}
	w.f.Close()
	os.Remove(w.tmp)
	w.f = nil
	w.enc.Release()
}
