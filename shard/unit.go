package shard

import (
	"errors"
	"fmt"
	"io/fs"
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
	// Whole says that the unit's row group can be loaded as it is: its rows
	// are in order and its columns those of the table.
	Whole bool

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
		whole := p.version == table.Version && p.schema.fits(t)
		for i, g := range p.groups {
			u := Unit{Rows: g.rows, TMin: math.MinInt64, TMax: math.MaxInt64, set: s, shard: p, group: i}
			u.Whole = whole && g.sorted && g.known && g.summed
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
	for _, frames := range s.spool.groups(t) {
		u := Unit{TMin: math.MaxInt64, TMax: math.MinInt64, set: s, frames: frames}
		for _, ref := range frames {
			u.Rows += int64(ref.rows)
			u.TMin, u.TMax = min(u.TMin, clock.NodeTime(ref.tMin)), max(u.TMax, clock.NodeTime(ref.tMax))
		}
		out = append(out, u)
	}
	return out
}

// Load reads the bytes of a unit's row group and verifies them; ok is false
// where they cannot be had, which is counted among the losses. Several
// goroutines may load and read at once.
func (nd *Node) Load(u Unit, t *table.Table, g *RawGroup) (ok bool) {
	if err := u.shard.load(u.group, g); err != nil {
		nd.unreadable(u, t, err)
		return false
	}
	nd.noteExtra(filepath.Base(u.shard.path), u.shard.extraOf(t))
	return true
}

// Undecodable counts a unit among the losses whose bytes verify and make no
// sense.
func (nd *Node) Undecodable(u Unit, t *table.Table, err error) {
	nd.unreadable(u, t, &CorruptError{Path: u.shard.path, Err: err})
}

// Read passes the unit's rows to fn, which must not keep the batch. Those of a
// spool come in order of their time. What cannot be read is counted among the
// losses; the error is fn's alone.
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
	nd.noteExtra(filepath.Base(u.shard.path), u.shard.extraOf(t))
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
		if errors.Is(err, errChecksum) && !u.shard.groups[u.group].summed {
			l.Rows = 0
			for _, g := range u.shard.groups {
				l.Rows += g.rows
			}
		} else {
			l.Offset, l.Bytes = int64(u.group), 0
		}
	} else {
		l.Code = Unreadable
		var pe *fs.PathError
		if errors.As(err, &pe) {
			l.Detail = pe.Err.Error()
		}
	}
	nd.lose(l)
}

func (nd *Node) noteExtra(file string, columns []string) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	for _, c := range columns {
		note := fmt.Sprintf("%s: the column %s is of a newer gswarm and left out", file, c)
		if !slices.Contains(nd.notes, note) {
			nd.notes = append(nd.notes, note)
		}
	}
}

func (nd *Node) readFrames(u Unit, t *table.Table, fn func(*table.Batch) error) error {
	done, err := u.set.spool.use()
	if err != nil {
		l := Loss{Code: Unreadable, File: u.set.name(""), Table: t.Name, Rows: u.Rows, Detail: "it is gone or cannot be opened any more"}
		nd.lose(l)
		return nil
	}
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
	done()
	if b.Rows() == 0 {
		return nil
	}
	sortRows(b)
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
