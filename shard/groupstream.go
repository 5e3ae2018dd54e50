package shard

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gswarm/gswarm/table"
)

// GroupStream reads a row group a few rows at a time and holds a page of each
// column, so that very many can be read side by side.
type GroupStream struct {
	f      *os.File
	reader groupReader
	beside groupReader // of columns that are read into a batch of their own
	left   int
	buf    []byte // the compressed page, all columns in turn
}

// Paged says whether the unit can be streamed: what an earlier gswarm wrote has
// one page for each column.
func (u *Unit) Paged() bool { return u.Whole && u.shard != nil && u.shard.groups[u.group].summed }

// Stream opens a unit of table src that is paged: as rows of t, but for the
// named columns, and beside them as rows of sub. Its bytes are verified first. Ok
// is false where they cannot be had, which is counted among the losses.
func (nd *Node) Stream(u Unit, src, t *table.Table, but []string, sub *table.Table) (s *GroupStream, ok bool) {
	s, err := u.shard.stream(t, but, sub, u.group)
	if err != nil {
		nd.unreadable(u, src, err)
		return nil, false
	}
	nd.noteExtra(filepath.Base(u.shard.path), u.shard.extraOf(src))
	return s, true
}

// OpenStream streams the i-th row group of a file that the same process wrote.
func OpenStream(path string, t *table.Table, i int) (*GroupStream, error) {
	p, err := openParquet(path)
	if err != nil {
		return nil, err
	}
	if i >= len(p.groups) {
		return nil, fmt.Errorf("%s has %d row groups", path, len(p.groups))
	}
	return p.stream(t, nil, nil, i)
}

func (p *parquetFile) stream(t *table.Table, but []string, sub *table.Table, i int) (s *GroupStream, err error) {
	f, err := p.open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	rg := &p.groups[i]
	sum := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(sum, io.NewSectionReader(f, rg.begin, rg.end-rg.begin), make([]byte, min(rg.end-rg.begin, 128<<10))); err != nil {
		return nil, fmt.Errorf("reading %s: %w", p.path, err)
	}
	if sum.Sum32() != rg.sum {
		return nil, &CorruptError{Path: p.path, Offset: rg.begin, Err: fmt.Errorf("row group %d: %w", i, errChecksum)}
	}
	var chunks []chunk
	if err := p.chunks(f, i, &chunks); err != nil {
		return nil, err
	}
	s = &GroupStream{f: f, left: int(rg.rows)}
	if s.reader, err = s.readers(p, t, but, chunks, rg.rows); err != nil {
		return nil, &CorruptError{Path: p.path, Err: err}
	}
	if sub != nil {
		if s.beside, err = s.readers(p, sub, nil, chunks, rg.rows); err != nil {
			return nil, &CorruptError{Path: p.path, Err: err}
		}
	}
	return s, nil
}

// readers returns readers of a table's columns, but for the named ones.
func (s *GroupStream) readers(p *parquetFile, t *table.Table, but []string, chunks []chunk, rows int64) (groupReader, error) {
	g := groupReader{columns: make([]*columnReader, len(t.Columns))}
	for c, col := range t.Columns {
		if slices.Contains(but, col.Name) {
			continue
		}
		at, ok, err := p.schema.find(col)
		if err != nil {
			return g, err
		}
		if ok {
			g.columns[c] = s.column(col, p.schema.columns[at], chunks[at], rows)
		}
	}
	return g, nil
}

// column returns a reader that fetches its pages from the file.
func (s *GroupStream) column(col table.Column, f fileColumn, k chunk, rows int64) *columnReader {
	pages := (rows + pageRows - 1) / pageRows
	guess := k.size/pages + k.size/pages/8 + 64
	at, end := k.begin, k.begin+k.size
	c := &columnReader{}
	c.rewind(col, f, rows, func() (pageHeader, []byte, error) {
		b, err := s.fetch(at, min(guess, end-at))
		if err != nil {
			return pageHeader{}, nil, err
		}
		h, err := parsePageHeader(b)
		if err != nil {
			return h, nil, err
		}
		n := int64(h.length) + h.size
		if n > end-at {
			return h, nil, errPage
		}
		if n > int64(len(b)) {
			if b, err = s.fetch(at, n); err != nil {
				return h, nil, err
			}
		}
		at += n
		return h, b[h.length:n], nil
	})
	return c
}

func (s *GroupStream) fetch(at, n int64) ([]byte, error) {
	if int64(cap(s.buf)) < n {
		s.buf = make([]byte, n)
	}
	b := s.buf[:n]
	if _, err := s.f.ReadAt(b, at); err != nil {
		return nil, err
	}
	return b, nil
}

// Next appends the next rows to b, at most n of them, and what is read beside
// them to sub. None are left where it appends none.
func (s *GroupStream) Next(b, sub *table.Batch, n int) error {
	n = min(n, s.left)
	if n == 0 {
		return nil
	}
	s.left -= n
	err := s.reader.next(b, n)
	if err == nil && sub != nil {
		err = s.beside.next(sub, n)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.f.Name(), err)
	}
	return nil
}

// Close closes the file.
func (s *GroupStream) Close() { s.f.Close() }
