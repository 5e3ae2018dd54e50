package rankagent

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// write puts on disk what was collected. Where the disk takes nothing, rows
// stay where they are, in the spool's buffer and in the collector, and the next
// write tries again.
func (w *writer) write(sync bool) {
	now := w.clock.Now()
	err := w.ready(now)
	if err == nil {
		// What an earlier write left comes first.
		err = w.spool.Flush()
	}
	var unfit error
	if err == nil {
		for _, b := range w.c.take() {
			if e := w.spool.Append(b); e != nil && unfit == nil {
				unfit = e // the spool has counted it; it is no trouble of the disk's
			}
		}
		err = w.spool.Flush()
	}
	if err == nil && (sync || now >= w.syncAt) {
		err = w.spool.Sync()
		w.syncAt += w.every
		if w.syncAt <= now {
			w.syncAt = now + w.every
		}
	}
	w.judge(now, err)
	if unfit != nil {
		w.c.event(now, "spool_error", -1, -1, map[string]string{"error": unfit.Error()})
	}
}

// errNoSpool says that the time to try to create one again has not come.
var errNoSpool = errors.New("there is no spool")

// errRunGone says that somebody removed the whole run: it is not brought back
// against his will.
var errRunGone = errors.New("the run's directory was removed")

// ready sees to it that there is a spool that can be read one day.
func (w *writer) ready(now clock.NodeTime) error {
	if w.spool != nil && (w.broken || now >= w.goneAt) {
		w.goneAt = now + goneEvery
		if w.spool.Gone() {
			w.leave(now)
		}
	}
	if w.spool != nil {
		return nil
	}
	if now < w.createAt {
		return errNoSpool
	}
	w.createAt = now + createEvery
	if _, err := os.Stat(string(w.dir)); err != nil {
		return fmt.Errorf("%w: %w", errRunGone, err)
	}
	if err := os.MkdirAll(w.dir.Node(w.node), rundir.DirMode); err != nil {
		return fmt.Errorf("creating the node's directory again: %w", err)
	}
	if _, err := os.Stat(w.dir.MetaFile(w.node)); err != nil && w.restore != nil {
		if err := w.restore(); err != nil {
			return err
		}
	}
	return w.open()
}

// passing says whether a disk's trouble may pass while the job runs: what is
// read meanwhile is kept in memory, as far as that is allowed to grow.
func passing(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ESTALE)
}

// leave gives a spool up that nobody will read, and writes down what was in it.
func (w *writer) leave(now clock.NodeTime) {
	s := w.spool
	s.GiveUp()
	rows := s.Rows() + s.Dropped()
	w.lost += rows
	w.closed += s.Size()
	for _, name := range s.Tables() {
		if t := table.ByName(name); t != nil {
			w.c.absentFor(t, "", w.meta.Created, now, Dropped, "the spool was removed with all that was in it")
		}
	}
	w.c.event(now, "spool_lost", -1, -1, map[string]any{"spool": w.number, "rows": rows})
	s.Close()
	w.spool, w.broken, w.createAt = nil, true, 0
	w.number++
}

// judge notes when trouble begins and ends.
func (w *writer) judge(now clock.NodeTime, err error) {
	if err == nil {
		// Also where nothing failed and the disk was only slow.
		w.c.relieve()
	} else if !errors.Is(err, errNoSpool) {
		w.why = err
	}
	switch {
	case err != nil && !w.broken:
		w.broken = true
		w.c.event(now, "spool_error", -1, -1, map[string]string{"error": err.Error()})
	case err == nil && w.broken:
		w.broken = false
		w.count()
		w.c.event(now, "spool_recovered", -1, -1, map[string]int64{"rows_dropped": w.rowsDropped()})
	}
}

// next closes the spool at a tile's end, goes on in a new one and has the old
// one turned into Parquet. If the new one cannot be created the old one goes on.
func (w *writer) next() {
	old, oldNumber := w.spool, w.number
	w.number++
	if err := w.open(); err != nil {
		w.spool, w.number = old, oldNumber
		w.c.event(w.clock.Now(), "spool_error", -1, -1, map[string]string{"error": err.Error()})
		return
	}
	w.closed += old.Size()
	if err := old.End(w.clock.Now(), shard.EndTile); err != nil {
		w.c.event(w.clock.Now(), "spool_error", -1, -1, map[string]string{"error": err.Error()})
		w.lost += old.Dropped()
		return // merge reads it as it is
	}
	w.lost += old.Dropped()
	w.sealer.add(old.Path())
}
