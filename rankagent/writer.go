package rankagent

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
)

const (
	// spoolMax is the size at which a spool ends before its tile does: a seal
	// holds a spool in memory.
	spoolMax = 32 << 20
	// goneEvery is how often the spool is asked whether it was removed.
	goneEvery = clock.NodeTime(30 * time.Second)
	// createEvery is how often a new spool is tried where there is none.
	createEvery = clock.NodeTime(10 * time.Second)
	// endPatience is how long the end waits for a disk that does not answer.
	endPatience = 20 * time.Second
)

// writer keeps what the collector gathers: it appends to the current spool,
// syncs it, begins a new one at each tile and has the old one sealed.
//
// Everything that touches the disk happens on one goroutine of its own. Others
// only leave it orders, which never block: a disk that hangs stops no reading,
// and what it is owed waits in the collector, which is bounded.
type writer struct {
	dir   rundir.Dir
	node  string
	meta  shard.SpoolMeta
	clock clock.Source
	c     *collector
	// create makes a spool's file; tests put faults in.
	create func(path string, meta shard.SpoolMeta) (*shard.Spool, error)
	// restore writes the node's meta.yaml again where it was removed.
	restore func() error
	// patience is how long end waits for the disk.
	patience time.Duration

	mu     sync.Mutex
	orders orders
	wake   chan struct{}
	done   chan struct{} // closed when the goroutine has ended
	err    error         // how it ended; read after done

	// What follows is the goroutine's own.
	spool    *shard.Spool // nil where none can be created
	number   int
	closed   int64 // bytes in spools that were closed
	lost     int64 // rows dropped with spools that were closed
	every    clock.NodeTime
	syncAt   clock.NodeTime
	goneAt   clock.NodeTime
	createAt clock.NodeTime
	broken   bool  // the last write failed
	why      error // what last kept it from writing, but for the lack of a spool
	sealer   *sealer

	written atomic.Int64
	dropped atomic.Int64
}

// orders is what the writer has been asked to do and has not done yet. An order
// that is given twice is done once.
type orders struct {
	flush, sync, rotate bool
	waiting             []chan struct{}
	end                 *ending
}

// ending is the last order.
type ending struct {
	reason string
	after  func() error
}

// openWriter creates the node's next spool and begins to wait for orders.
func openWriter(w *writer, every time.Duration) error {
	w.wake, w.done = make(chan struct{}, 1), make(chan struct{})
	w.every = clock.NodeTime(every)
	if w.patience == 0 {
		w.patience = endPatience
	}
	if w.create == nil {
		w.create = shard.CreateSpool
	}
	n, err := nextSpool(w.dir.Node(w.node))
	if err != nil {
		return err
	}
	w.number = n
	now := w.clock.Now()
	if err := w.open(); err != nil {
		if !passing(err) {
			return err
		}
		w.createAt = now + createEvery
		w.judge(now, err)
	}
	w.syncAt, w.goneAt = now+clock.NodeTime(phase(w.node, every)), now+goneEvery
	w.sealer = newSealer(w.c, w.clock, phase(w.node+"/seal", min(w.meta.Tile/4, time.Minute)))
	go w.run()
	return nil
}

// phase spreads what all nodes do at an interval over that interval.
func phase(node string, every time.Duration) time.Duration {
	if every <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(node))
	return time.Duration(h.Sum64() % uint64(every))
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

// open creates the spool of the current number, or the next free one: another
// sampler of the node may have been quicker.
func (w *writer) open() error {
	for try := 0; ; try++ {
		w.meta.Created = w.clock.Now()
		s, err := w.create(w.dir.Spool(w.node, w.number), w.meta)
		if errors.Is(err, fs.ErrExist) && try < 100 {
			w.number++
			continue
		}
		if err != nil {
			return err
		}
		if f := s.OSFile(); f != nil {
			if err := rundir.LockSpool(f); err != nil {
				s.End(w.clock.Now(), "lock") //nolint:errcheck // the lock's failure is what matters
				return err
			}
		}
		w.spool = s
		return nil
	}
}

// order changes what the writer is to do next; it never waits.
func (w *writer) order(change func(*orders)) {
	w.mu.Lock()
	change(&w.orders)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// flush has all written that was collected. Then answer is closed, if there is
// one.
func (w *writer) flush(answer chan struct{}, sync bool) {
	w.order(func(o *orders) {
		o.flush, o.sync = true, o.sync || sync
		if answer != nil {
			o.waiting = append(o.waiting, answer)
		}
	})
}

// rotate ends the spool with its tile and goes on in a new one.
func (w *writer) rotate() { w.order(func(o *orders) { o.rotate = true }) }

// end has the last rows and the end mark written, then after called. It waits
// for that, though not for ever.
func (w *writer) end(reason string, after func() error) error {
	w.order(func(o *orders) { o.end = &ending{reason, after} })
	t := time.NewTimer(w.patience)
	defer t.Stop()
	select {
	case <-w.done:
		return w.err
	case <-t.C:
		return fmt.Errorf("ending the spool: the disk has not answered for %s", w.patience)
	}
}

// rowsDropped returns how many rows could not be kept.
func (w *writer) rowsDropped() int64 { return w.c.droppedRows() + w.dropped.Load() }

// bytes returns how many bytes the writer has written.
func (w *writer) bytes() int64 { return w.written.Load() }

func (w *writer) run() {
	defer close(w.done)
	for range w.wake {
		w.mu.Lock()
		o := w.orders
		w.orders = orders{}
		w.mu.Unlock()
		if o.flush || o.rotate || o.end != nil {
			w.write(o.sync)
		}
		if (o.rotate || w.spool != nil && w.spool.Size() > spoolMax) && !w.broken && o.end == nil {
			w.next()
		}
		if o.end != nil {
			w.err = w.finish(o.end)
		}
		w.count()
		for _, c := range o.waiting {
			close(c)
		}
		if o.end != nil {
			return
		}
	}
}

// count makes the numbers known to others.
func (w *writer) count() {
	written, dropped := w.closed, w.lost
	if w.spool != nil {
		written, dropped = written+w.spool.Size(), dropped+w.spool.Dropped()
	}
	w.written.Store(written)
	w.dropped.Store(dropped)
}

// finish writes the end mark. A seal under way is left to itself: merge takes
// the spool where the seal does not get done.
func (w *writer) finish(e *ending) error {
	var err error
	if w.spool == nil {
		err = fmt.Errorf("there is no spool to end: %w", w.why)
	} else if err = w.spool.End(w.clock.Now(), e.reason); err != nil {
		err = fmt.Errorf("ending the spool: %w", err)
	}
	if err != nil {
		w.c.abandon()
	}
	if after := e.after(); err == nil {
		err = after
	}
	return err
}
