package shard

import (
	"fmt"
	"io"
	"math"

	"github.com/gswarm/gswarm/table"
)

// ReadParquet passes the rows of a Parquet file to fn, some thousands at a time
// and in the order of the file; t is the table in the form that the file has, a
// timeline's or a shard's. The batch is reused.
//
// Only the columns of t are decoded: give it a table.Select of the few that are
// wanted, and the rest costs no more than its checksum. Columns that the file
// lacks are null.
func ReadParquet(path string, t *table.Table, fn func(*table.Batch) error) error {
	return ReadBetween(path, t, math.MinInt64, math.MaxInt64, fn)
}

// ReadBetween is ReadParquet without the row groups that lie wholly outside
// [from, to] by the statistics of the file's first column, which is time (in
// microseconds since the epoch) in a timeline and t_raw_ns in a shard. The row
// groups at either end also have rows outside of it.
func ReadBetween(path string, t *table.Table, from, to int64, fn func(*table.Batch) error) error {
	p, err := openParquet(path)
	if err != nil {
		return err
	}
	defer p.Close()
	if p.table != t.Name {
		return &CorruptError{Path: path, Err: fmt.Errorf("it holds the table %q and not %q", p.table, t.Name)}
	}
	return p.with(func(r io.ReaderAt) error {
		s := groupScan{p: p, r: r, t: t}
		for i, g := range p.groups {
			if g.known && (g.tMax < from || g.tMin > to) {
				continue
			}
			if err := s.read(i, fn); err != nil {
				return err
			}
		}
		return nil
	})
}

// readGroup passes the rows of one row group to fn, as ReadParquet does.
func (p *parquetFile) readGroup(t *table.Table, i int, fn func(*table.Batch) error) error {
	return p.with(func(r io.ReaderAt) error {
		s := groupScan{p: p, r: r, t: t}
		return s.read(i, fn)
	})
}

// groupScan reads row groups of a file one after the other and keeps its memory
// from one to the next.
type groupScan struct {
	p     *parquetFile
	r     io.ReaderAt
	t     *table.Table
	raw   RawGroup
	group groupReader
	batch *table.Batch
}

// readRows is how many rows are passed on at a time.
const readRows = 8192

func (s *groupScan) read(i int, fn func(*table.Batch) error) error {
	if err := s.p.loadFrom(s.r, i, &s.raw); err != nil {
		return err
	}
	corrupt := func(err error) error {
		return &CorruptError{Path: s.p.path, Err: fmt.Errorf("row group %d: %w", i, err)}
	}
	if err := s.group.open(&s.raw, s.t); err != nil {
		return corrupt(err)
	}
	if s.batch == nil {
		s.batch = table.NewBatch(s.t, min(s.raw.rows, readRows))
	}
	for left := s.raw.rows; left > 0; left -= s.batch.Rows() {
		s.batch.Reset()
		if err := s.group.next(s.batch, min(left, readRows)); err != nil {
			return corrupt(err)
		}
		if err := fn(s.batch); err != nil {
			return err
		}
	}
	return nil
}
