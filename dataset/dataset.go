// Package dataset opens a run's timeline and passes the rows of its tables to
// whoever asks: all of a table, or the few columns and the stretch of time that
// are wanted. It holds one batch of rows at a time, whatever the run's size, and
// changes nothing.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// Timeline is a merged run.
type Timeline struct {
	Dir rundir.Dir
	// Meta says what the timeline was made from and how good it is.
	Meta *merge.Meta
}

// Open opens the timeline of a run. Where there is none yet the error is
// fs.ErrNotExist, and gswarm merge makes it.
func Open(dir rundir.Dir) (*Timeline, error) {
	meta, err := merge.ReadMeta(dir)
	if err != nil {
		return nil, err
	}
	return &Timeline{Dir: dir, Meta: meta}, nil
}

// Losses says in words what the timeline lacks.
func (tl *Timeline) Losses() []string {
	var say []string
	for _, m := range tl.Meta.Missing {
		say = append(say, m.String())
	}
	return say
}

// Read passes the rows of a table to fn, some thousands at a time. The form is
// table.Timeline(t), or a table.Select of it: then only those columns are
// decoded. The batch is reused, so fn must copy what it keeps; strings may be
// kept.
//
// The rows come tile by tile, within a tile node by node, and within a node in
// order of time; a row may lie a little on the other side of its tile's border.
// A merge that was told to sort gives them in order of time altogether.
func (tl *Timeline) Read(ctx context.Context, form *table.Table, fn func(*table.Batch) error) error {
	return tl.between(ctx, form, math.MinInt64, math.MaxInt64, fn)
}

// Rows is Read for whoever knows columns by their index: the batches are of
// table.Timeline(t), the columns named are decoded, and the others are null.
func (tl *Timeline) Rows(ctx context.Context, t *table.Table, columns []int, fn func(*table.Batch) error) error {
	form := table.Timeline(t)
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = form.Columns[c].Name
	}
	return tl.Read(ctx, form.Select(names...), func(b *table.Batch) error { return fn(b.Spread(form, columns)) })
}

// Between is Read without the row groups that have no row in [from, to],
// nanoseconds since the epoch. Those at either end also hold rows outside of it.
func (tl *Timeline) Between(ctx context.Context, form *table.Table, from, to int64, fn func(*table.Batch) error) error {
	// The files' statistics are of the column time, in microseconds.
	return tl.between(ctx, form, floorMicros(from), floorMicros(to), fn)
}

func floorMicros(ns int64) int64 {
	us := ns / 1000
	if ns%1000 < 0 {
		us--
	}
	return us
}

func (tl *Timeline) between(ctx context.Context, form *table.Table, fromUS, toUS int64, fn func(*table.Batch) error) error {
	for _, f := range tl.files(form) {
		var own error
		err := shard.ReadBetween(tl.path(f), form, fromUS, toUS, func(b *table.Batch) error {
			if own = ctx.Err(); own == nil {
				own = fn(b)
			}
			return own
		})
		if err != nil && own == nil {
			return unreadable(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Span returns the least and greatest time of a table's rows in nanoseconds
// since the epoch, to the microsecond, from the files' footers; ok is false
// where it has none.
func (tl *Timeline) Span(t *table.Table) (from, to int64, ok bool, err error) {
	for _, f := range tl.files(t) {
		in, err := shard.ReadInfo(tl.path(f))
		if err != nil {
			return 0, 0, false, unreadable(err)
		}
		if !in.Timed {
			continue
		}
		begin, end := in.TMin*1000, in.TMax*1000+999
		if !ok {
			from, to, ok = begin, end, true
		}
		from, to = min(from, begin), max(to, end)
	}
	return from, to, ok, nil
}

// Count returns the number of a table's rows.
func (tl *Timeline) Count(t *table.Table) (rows int64) {
	for _, f := range tl.files(t) {
		rows += f.Rows
	}
	return rows
}

func (tl *Timeline) files(t *table.Table) []merge.FileMeta {
	var files []merge.FileMeta
	for _, f := range tl.Meta.Files {
		if f.Table == t.Name {
			files = append(files, f)
		}
	}
	return files
}

func (tl *Timeline) path(f merge.FileMeta) string {
	return filepath.Join(tl.Dir.Timeline(), filepath.FromSlash(f.Name))
}

// unreadable names the way out of a timeline that cannot be read: it can be made
// again as long as the shards are there.
func unreadable(err error) error {
	var newer *shard.NewerError
	if errors.As(err, &newer) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the timeline has lost a file, gswarm merge makes it again: %w", err)
	}
	return fmt.Errorf("the timeline cannot be read, gswarm merge makes it again: %w", err)
}
