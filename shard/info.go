package shard

import (
	"errors"

	"github.com/gswarm/gswarm/table"
)

// ParquetInfo is what a Parquet file of gswarm's says in its footer.
type ParquetInfo struct {
	Table     string
	Rows      int64
	RowGroups int
	Bytes     int64
	// TMin and TMax bound the file's first column: microseconds since the
	// epoch in a timeline, t_raw_ns in a shard. Timed says whether there
	// are any.
	TMin, TMax int64
	Timed      bool
	Metadata   map[string]string
}

// ReadInfo reads a Parquet file's footer.
func ReadInfo(path string) (ParquetInfo, error) {
	p, err := openParquet(path)
	if err != nil {
		return ParquetInfo{}, err
	}
	defer p.Close()
	in := ParquetInfo{Table: p.table, RowGroups: len(p.groups), Bytes: p.size, Metadata: p.kv}
	for _, g := range p.groups {
		in.Rows += g.rows
		if g.known && (!in.Timed || g.tMin < in.TMin) {
			in.TMin = g.tMin
		}
		if g.known && (!in.Timed || g.tMax > in.TMax) {
			in.TMax = g.tMax
		}
		in.Timed = in.Timed || g.known
	}
	return in, nil
}

// Head returns the first n rows of a Parquet file.
func Head(path string, t *table.Table, n int) (*table.Batch, error) {
	out := table.NewBatch(t, n)
	done := errors.New("enough")
	err := ReadParquet(path, t, func(b *table.Batch) error {
		out.AppendRange(b, 0, min(b.Rows(), n-out.Rows()))
		if out.Rows() == n {
			return done
		}
		return nil
	})
	if err != nil && !errors.Is(err, done) {
		return nil, err
	}
	return out, nil
}

// VerifyParquet compares a Parquet file with the checksums in it.
func VerifyParquet(path string) error {
	p, err := openParquet(path)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.verify()
}
