package shard

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// Unit is rows of one table that are read together: a row group of a shard, or
// some frames of a spool.
type Unit struct {
	Rows int64
	// TMin and TMax bound the rows' t_raw_ns.
	TMin, TMax clock.NodeTime

	set    *nodeSet
	shard  *parquetFile
	group  int
	frames []frameRef
}

// Units returns the units that hold the rows of t, in the order in which they
// were written.
func (nd *Node) Units(t *table.Table) []Unit {
	var out []Unit
	for _, s := range nd.sets {
		if s.spool != nil {
			out = append(out, s.spoolUnits(t)...)
			continue
		}
		p := s.shards[t.Name]
		if p == nil {
			continue
		}
		for i, g := range p.groups {
			u := Unit{Rows: g.rows, TMin: math.MinInt64, TMax: math.MaxInt64, set: s, shard: p, group: i}
			if g.known {
				u.TMin, u.TMax = clock.NodeTime(g.tMin), clock.NodeTime(g.tMax)
			}
			out = append(out, u)
		}
	}
	return out
}

func (s *nodeSet) spoolUnits(t *table.Table) []Unit {
	var out []Unit
	for _, ref := range s.spool.frames {
		if ref.table != t.Name {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Rows+int64(ref.rows) <= readRows {
			u := &out[n-1]
			u.Rows += int64(ref.rows)
			u.TMin, u.TMax = min(u.TMin, clock.NodeTime(ref.tMin)), max(u.TMax, clock.NodeTime(ref.tMax))
			u.frames = append(u.frames, ref)
			continue
		}
		out = append(out, Unit{
			Rows: int64(ref.rows), TMin: clock.NodeTime(ref.tMin), TMax: clock.NodeTime(ref.tMax),
			set: s, frames: []frameRef{ref},
		})
	}
	return out
}

// Read passes the unit's rows to fn, which must not keep the batch. What cannot
// be read is counted among the losses; the error is fn's alone.
func (nd *Node) Read(u Unit, t *table.Table, fn func(*table.Batch) error) error {
	if u.shard == nil {
		return nd.readFrames(u, t, fn)
	}
	var fnErr error
	err := u.shard.readGroup(t, u.group, func(b *table.Batch) error {
		fnErr = fn(b)
		return fnErr
	})
	if fnErr != nil {
		return fnErr
	}
	nd.noteExtra(filepath.Base(u.shard.path), u.shard.extra)
	if err != nil {
		nd.unreadable(u, t, err)
	}
	return nil
}

// unreadable counts a shard whose rows cannot be read. A wrong checksum costs
// the whole file, anything else the row group.
func (nd *Node) unreadable(u Unit, t *table.Table, err error) {
	l := Loss{Code: CorruptShard, File: u.set.name(t.Name), Table: t.Name, Bytes: u.shard.data, Rows: u.Rows, Detail: err.Error()}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		l.Detail = corrupt.Err.Error()
		if errors.Is(err, errChecksum) {
			l.Rows = 0
			for _, g := range u.shard.groups {
				l.Rows += g.rows
			}
		} else {
			l.Offset, l.Bytes = int64(u.group), 0
		}
	} else {
		l.Code = Unreadable
	}
	nd.lose(l)
}

func (nd *Node) noteExtra(file string, columns []string) {
	for _, c := range columns {
		note := fmt.Sprintf("%s: the column %s is of a newer gswarm and left out", file, c)
		if !slices.Contains(nd.notes, note) {
			nd.notes = append(nd.notes, note)
		}
	}
}

func (nd *Node) readFrames(u Unit, t *table.Table, fn func(*table.Batch) error) error {
	b := table.NewBatch(t, int(u.Rows))
	for _, ref := range u.frames {
		if err := u.set.spool.rows(ref, t, b); err != nil {
			l := undecodable(ref, err)
			l.File = u.set.name("")
			nd.lose(l)
		}
	}
	for key, d := range u.set.spool.decoders {
		if key.table == t.Name {
			nd.noteExtra(u.set.name(""), d.extra)
		}
	}
	if b.Rows() == 0 {
		return nil
	}
	return fn(b)
}

// Rows passes all rows of a table to fn in the order in which they were
// written. The batch is reused. What cannot be read is counted among the losses;
// the error is fn's alone.
func (nd *Node) Rows(t *table.Table, fn func(*table.Batch) error) error {
	for _, u := range nd.Units(t) {
		if err := nd.Read(u, t, fn); err != nil {
			return err
		}
	}
	return nil
}
