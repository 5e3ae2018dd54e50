package rankagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
)

// writer keeps what the collector gathers: it appends to the current spool,
// syncs it, begins a new one at each tile and seals the old one in the
// background. One goroutine uses it.
type writer struct {
	dir   rundir.Dir
	node  string
	meta  shard.SpoolMeta
	clock clock.Source
	c     *collector

	spool   *shard.Spool
	number  int
	written int64 // bytes in spools that were closed
	syncAt  clock.NodeTime
	sync    time.Duration
	broken  bool // the last flush failed

	sealing sync.WaitGroup
}

// openWriter creates the node's next spool.
func openWriter(dir rundir.Dir, node string, meta shard.SpoolMeta, every time.Duration, src clock.Source, c *collector) (*writer, error) {
	w := &writer{dir: dir, node: node, meta: meta, clock: src, c: c, sync: every}
	n, err := nextSpool(dir.Node(node))
	if err != nil {
		return nil, err
	}
	w.number = n
	if err := w.create(); err != nil {
		return nil, err
	}
	return w, nil
}

// nextSpool returns a number that no spool and no shard of the node has.
func nextSpool(nodeDir string) (int, error) {
	entries, err := os.ReadDir(nodeDir)
	if err != nil {
		return 0, fmt.Errorf("looking for earlier spools: %w", err)
	}
	next := 0
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".parquet")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			if n, err := strconv.Atoi(name[i+1:]); err == nil && n >= next {
				next = n + 1
			}
		}
	}
	return next, nil
}

// create opens the spool of the current number, or the next free one: another
// sampler of the node may have been quicker.
func (w *writer) create() error {
	for try := 0; ; try++ {
		w.meta.Created = w.clock.Now()
		s, err := shard.CreateSpool(w.dir.Spool(w.node, w.number), w.meta)
		if errors.Is(err, fs.ErrExist) && try < 100 {
			w.number++
			continue
		}
		if err != nil {
			return err
		}
		if err := rundir.LockSpool(s.OSFile()); err != nil {
			s.End(w.clock.Now(), "lock") //nolint:errcheck // the lock's failure is what matters
			return err
		}
		w.spool = s
		return nil
	}
}

// flush writes all that was collected. A failure is recorded, never returned:
// the agent goes on and what was lost is counted.
func (w *writer) flush() {
	var err error
	for _, b := range w.c.take() {
		if e := w.spool.Append(b); e != nil && err == nil {
			err = e
		}
	}
	if e := w.spool.Flush(); e != nil {
		err = e
	}
	now := w.clock.Now()
	if now >= w.syncAt {
		if e := w.spool.Sync(); e != nil && err == nil {
			err = e
		}
		w.syncAt = now + clock.NodeTime(w.sync)
	}
	switch {
	case err != nil && !w.broken:
		w.broken = true
		w.c.event(now, "spool_error", -1, -1, map[string]string{"error": err.Error()})
	case err == nil && w.broken:
		w.broken = false
		w.c.event(now, "spool_recovered", -1, -1, map[string]int64{"rows_lost": w.spool.Dropped()})
	}
}

// dropped returns how many rows could not be kept.
func (w *writer) dropped() int64 { return w.c.droppedRows() + w.spool.Dropped() }

// bytes returns how many bytes the writer has written.
func (w *writer) bytes() int64 { return w.written + w.spool.Size() }

// rotate closes the spool at a tile's end, goes on in a new one and turns the
// old one into Parquet. If the new one cannot be created the old one goes on.
func (w *writer) rotate() {
	w.flush()
	old, oldNumber := w.spool, w.number
	w.number++
	if err := w.create(); err != nil {
		w.spool, w.number = old, oldNumber
		w.c.event(w.clock.Now(), "spool_error", -1, -1, map[string]string{"error": err.Error()})
		return
	}
	w.written += old.Size()
	w.c.lose(old.Dropped())
	if err := old.End(w.clock.Now(), shard.EndTile); err != nil {
		w.c.event(w.clock.Now(), "spool_error", -1, -1, map[string]string{"error": err.Error()})
		return // merge reads it as it is
	}
	w.sealing.Add(1)
	go func() {
		defer w.sealing.Done()
		w.seal(old.Path())
	}()
}

// seal runs on a thread of the lowest priority: the job's CPUs are the job's.
func (w *writer) seal(path string) {
	runtime.LockOSThread()                                 // never unlocked: the thread ends with its priority
	unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) //nolint:errcheck // then at normal priority
	if _, err := shard.Seal(path); err != nil {
		w.c.event(w.clock.Now(), "seal_error", -1, -1, map[string]string{"spool": filepath.Base(path), "error": err.Error()})
	}
}

// end writes the last rows and the end mark. A seal under way is left to
// itself: merge takes the spool where the seal does not get done.
func (w *writer) end(reason string) error {
	w.flush()
	if err := w.spool.End(w.clock.Now(), reason); err != nil {
		return fmt.Errorf("ending the spool: %w", err)
	}
	return nil
}
