package rankagent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// handClock is moved by hand.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() clock.NodeTime { return clock.NodeTime(c.now.Load()) }
func (c *handClock) Bracket() (clock.Bracket, error) {
	return clock.Bracket{Raw0: c.Now(), Raw1: c.Now()}, nil
}

// disk is the files of one node, with faults put in at the lowest seam.
type disk struct {
	mu    sync.Mutex
	err   error // of every write
	part  int   // bytes that are written before it
	block chan struct{}
	sync  error
}

func (d *disk) set(err error, part int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.part = err, part
}

type diskFile struct {
	*os.File
	d *disk
}

func (f diskFile) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	err, part, block := f.d.err, f.d.part, f.d.block
	f.d.mu.Unlock()
	if block != nil {
		<-block
	}
	if err == nil {
		return f.File.Write(p)
	}
	n, werr := f.File.Write(p[:min(part, len(p))])
	if werr != nil {
		return n, werr
	}
	return n, err
}

func (f diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if errors.Is(f.d.err, syscall.EROFS) || errors.Is(f.d.err, syscall.EIO) {
		return f.d.err
	}
	return f.File.Truncate(size)
}

func (f diskFile) Sync() error { return f.d.sync }

// troubled is a writer on such a disk.
type troubled struct {
	*writer
	t    *testing.T
	clk  *handClock
	disk *disk
	tick int64
	rows int64
}

func newTroubled(t *testing.T) *troubled {
	t.Helper()
	clk := &handClock{}
	clk.now.Store(1e15)
	d := &disk{}
	dir := rundir.Dir(t.TempDir())
	if err := os.MkdirAll(dir.Node("n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := &writer{
		dir: dir, node: "n1", clock: clk, c: newCollector(clk),
		meta:    shard.SpoolMeta{Node: "n1", Tile: time.Millisecond},
		restore: func() error { return rundir.WriteNodeMeta(dir, "n1", &rundir.NodeMeta{Node: "n1"}) },
		create: func(path string, meta shard.SpoolMeta) (*shard.Spool, error) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
			if err != nil {
				return nil, err
			}
			return shard.NewSpool(diskFile{f, d}, path, meta)
		},
	}
	if err := openWriter(w, time.Second); err != nil {
		t.Fatal(err)
	}
	return &troubled{writer: w, t: t, clk: clk, disk: d}
}

// ticks delivers n readings of eight GPUs.
func (w *troubled) ticks(n int) {
	for range n {
		w.tick++
		now := w.clk.now.Add(100e6)
		for g := range 8 {
			b := table.NewBatch(table.GPU, 1)
			r := b.Append()
			r.Read(now, now+1000)
			r.Int(table.GPUIndex, int64(g))
			r.String(table.GPUUUID, "u")
			r.Int(table.GPUUtil, w.tick%100)
			w.c.add(b, w.tick)
			w.rows++
		}
	}
}

// flushed flushes and waits for it.
func (w *troubled) flushed() {
	w.t.Helper()
	done := make(chan struct{})
	w.flush(done, false)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		w.t.Fatal("the writer does not answer")
	}
}

// kept ends the writer and returns what the node's directory holds.
type kept struct {
	gpu    *table.Batch
	events string
	absent string
	losses []shard.Loss
	ended  bool
}

func (w *troubled) kept() kept {
	w.t.Helper()
	nd, err := shard.OpenNode(w.dir.Node("n1"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer nd.Close()
	k := kept{gpu: table.NewBatch(table.GPU, 0)}
	read := func(tb *table.Table, fn func(*table.Batch, int)) {
		err := nd.Rows(tb, func(b *table.Batch) error {
			for r := range b.Rows() {
				fn(b, r)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	read(table.GPU, func(b *table.Batch, r int) { k.gpu.AppendRange(b, r, r+1) })
	read(table.Event, func(b *table.Batch, r int) {
		k.events += b.Strings(table.EventKind)[r] + " " + b.Strings(table.EventDetail)[r] + "\n"
	})
	read(table.Absence, func(b *table.Batch, r int) {
		k.absent += fmt.Sprintf("%s %s %s %d %d\n", b.Strings(table.AbsTable)[r], b.Strings(table.AbsReason)[r], b.Strings(table.AbsDetail)[r], b.Ints(table.ColBegin)[r], b.Ints(table.ColT)[r])
	})
	k.losses, k.ended = nd.Losses(), nd.Ended() != nil
	return k
}

func nothing() error { return nil }

// TestTroubleThatPasses checks that a short outage of any kind costs no row.
func TestTroubleThatPasses(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.ESTALE} {
		for _, part := range []int{0, 1, 700, 2500} {
			t.Run(fmt.Sprintf("%s after %d bytes", errno, part), func(t *testing.T) {
				w := newTroubled(t)
				w.ticks(10)
				w.flushed()
				w.disk.set(errno, part)
				for range 5 {
					w.ticks(10)
					w.flushed()
				}
				w.disk.set(nil, 0)
				for range 2 {
					w.ticks(10)
					w.flushed()
				}
				if err := w.end("done", nothing); err != nil {
					t.Fatal(err)
				}
				k := w.kept()
				lost := int64(0)
				for _, l := range k.losses {
					lost += l.Rows // a torn frame that could not be cut off costs no row
				}
				if int64(k.gpu.Rows()) != w.rows || lost != 0 || !k.ended || w.rowsDropped() != 0 {
					t.Errorf("%d of %d rows, losses %v, dropped %d", k.gpu.Rows(), w.rows, k.losses, w.rowsDropped())
				}
				if !strings.Contains(k.events, "spool_error") || !strings.Contains(k.events, "spool_recovered") {
					t.Errorf("events %s", k.events)
				}
			})
		}
	}
}

// TestLongOutage checks the rule by which rows are let go, that memory stays
// bounded, and that each row is kept or counted.
func TestLongOutage(t *testing.T) {
	w := newTroubled(t)
	w.ticks(10)
	w.flushed()
	w.disk.set(syscall.ENOSPC, 0)
	for range 100 {
		w.ticks(100)
		w.flushed()
		w.c.mu.Lock()
		n := w.c.pending[table.GPU].rows.Rows()
		w.c.mu.Unlock()
		if n > maxPending {
			t.Fatalf("%d rows wait", n)
		}
	}
	w.disk.set(nil, 0)
	w.flushed()
	w.ticks(10)
	w.flushed()
	if err := w.end("done", nothing); err != nil {
		t.Fatal(err)
	}
	k := w.kept()
	if int64(k.gpu.Rows())+w.rowsDropped() != w.rows || w.rowsDropped() == 0 || len(k.losses) != 0 {
		t.Errorf("%d rows kept, %d dropped, of %d; losses %v", k.gpu.Rows(), w.rowsDropped(), w.rows, k.losses)
	}
	if !strings.Contains(k.absent, "gpu dropped the disk took no rows: of every 8 ticks") {
		t.Errorf("absences %s", k.absent)
	}
	// Whole ticks are kept, spread over the outage.
	byTick := map[int64]int{}
	for _, at := range k.gpu.Ints(table.ColT) {
		byTick[(at-1e15)/100e6]++
	}
	last, widest := int64(0), int64(0)
	for tick := int64(1); tick <= w.tick; tick++ {
		if n := byTick[tick]; n == 8 {
			widest, last = max(widest, tick-last), tick
		} else if n != 0 {
			t.Fatalf("tick %d has %d rows", tick, n)
		}
	}
	if widest > 8 {
		t.Errorf("%d ticks lie between two that were kept", widest)
	}
}

// TestSlowDisk checks that nobody waits for a write that hangs, except the end,
// and that not for ever.
func TestSlowDisk(t *testing.T) {
	w := newTroubled(t)
	w.ticks(10)
	w.flushed()
	block := make(chan struct{})
	w.disk.mu.Lock()
	w.disk.block = block
	w.disk.mu.Unlock()
	begin := time.Now()
	for range 500 {
		w.ticks(10)
		w.flush(nil, true)
	}
	w.rotate()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("sampling took %s", took)
	}
	w.patience = 50 * time.Millisecond
	if err := w.end("done", nothing); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("got %v", err)
	}
	close(block)
	<-w.done
	k := w.kept()
	if int64(k.gpu.Rows())+w.rowsDropped() != w.rows || !k.ended || len(k.losses) != 0 {
		t.Errorf("%d rows kept, %d dropped, of %d; losses %v", k.gpu.Rows(), w.rowsDropped(), w.rows, k.losses)
	}
}

func TestDirectoryRemoved(t *testing.T) {
	w := newTroubled(t)
	w.ticks(10)
	w.flushed()
	before := w.rows
	if err := os.RemoveAll(w.dir.Nodes()); err != nil {
		t.Fatal(err)
	}
	w.clk.now.Add(int64(goneEvery))
	w.ticks(10)
	w.flushed()
	if err := w.end("done", nothing); err != nil {
		t.Fatal(err)
	}
	k := w.kept()
	if int64(k.gpu.Rows()) != w.rows-before || w.rowsDropped() != before || !k.ended {
		t.Errorf("%d rows kept, %d dropped, of %d", k.gpu.Rows(), w.rowsDropped(), w.rows)
	}
	if !strings.Contains(k.events, "spool_lost") || !strings.Contains(k.absent, "gpu dropped the spool was removed") {
		t.Errorf("events %s, absences %s", k.events, k.absent)
	}
	if _, err := rundir.ReadNodeMeta(w.dir, "n1"); err != nil {
		t.Error(err)
	}
}

func TestRunRemoved(t *testing.T) {
	w := newTroubled(t)
	w.ticks(10)
	w.flushed()
	if err := os.RemoveAll(string(w.dir)); err != nil {
		t.Fatal(err)
	}
	w.clk.now.Add(int64(goneEvery))
	for range 50 {
		w.ticks(100)
		w.flushed()
	}
	if err := w.end("done", nothing); err == nil {
		t.Error("the end has nothing to complain of")
	}
	if _, err := os.Stat(string(w.dir)); err == nil {
		t.Error("the run was brought back")
	}
	if w.rowsDropped() < w.rows { // events are lost too
		t.Errorf("%d rows dropped of %d", w.rowsDropped(), w.rows)
	}
}

// TestFullToTheEnd checks that what could not be kept is counted, and that the
// run does not look whole.
func TestFullToTheEnd(t *testing.T) {
	w := newTroubled(t)
	w.ticks(10)
	w.flushed()
	w.disk.set(syscall.ENOSPC, 300)
	w.ticks(10)
	w.flushed()
	w.ticks(10)
	if err := w.end("done", nothing); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	k := w.kept()
	if k.ended || k.gpu.Rows() != 80 || w.rowsDropped() < 160 {
		t.Errorf("%d rows, ended %t, %d dropped", k.gpu.Rows(), k.ended, w.rowsDropped())
	}
}

// TestNoSync is a filesystem that has no fsync: that is no trouble.
func TestNoSync(t *testing.T) {
	for _, errno := range []error{syscall.EINVAL, syscall.ENOTSUP} {
		w := newTroubled(t)
		w.disk.sync = errno
		w.ticks(10)
		w.clk.now.Add(int64(time.Minute))
		w.flushed()
		if err := w.end("done", nothing); err != nil {
			t.Error(err)
		}
		if k := w.kept(); int64(k.gpu.Rows()) != w.rows || !k.ended || k.events != "" {
			t.Errorf("%s: %d of %d rows, events %s", errno, k.gpu.Rows(), w.rows, k.events)
		}
	}
}

// TestFailingSync is a disk that takes rows and cannot keep them: that is said,
// and the rows that the page cache has are not given up.
func TestFailingSync(t *testing.T) {
	w := newTroubled(t)
	w.disk.sync = syscall.EIO
	w.ticks(10)
	w.clk.now.Add(int64(time.Minute))
	w.flushed()
	w.disk.sync = nil
	w.clk.now.Add(int64(time.Minute))
	w.flushed()
	w.flushed()
	if err := w.end("done", nothing); err != nil {
		t.Error(err)
	}
	k := w.kept()
	if int64(k.gpu.Rows()) != w.rows || !strings.Contains(k.events, "input/output error") || !strings.Contains(k.events, "spool_recovered") {
		t.Errorf("%d of %d rows, events %s", k.gpu.Rows(), w.rows, k.events)
	}
}

// TestFullAtTheStart checks that a node whose disk is full when its agent begins
// keeps what it reads until there is room, and that a disk that refuses for
// good is an error at once.
func TestFullAtTheStart(t *testing.T) {
	w := newTroubled(t)
	make1 := w.create
	full := true
	later := &writer{
		dir: rundir.Dir(t.TempDir()), node: "n1", clock: w.clk, c: newCollector(w.clk), meta: w.meta,
		create: func(path string, meta shard.SpoolMeta) (*shard.Spool, error) {
			if full {
				return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
			}
			return make1(path, meta)
		},
	}
	later.restore = func() error { return rundir.WriteNodeMeta(later.dir, "n1", &rundir.NodeMeta{Node: "n1"}) }
	if err := os.MkdirAll(later.dir.Node("n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := openWriter(later, time.Second); err != nil {
		t.Fatal(err)
	}
	w.writer = later
	for sec := range 30 {
		full = sec < 15
		w.ticks(10)
		w.flushed()
	}
	if err := w.end("done", nothing); err != nil {
		t.Fatal(err)
	}
	k := w.kept()
	if int64(k.gpu.Rows()) != w.rows || !k.ended || w.rowsDropped() != 0 {
		t.Errorf("%d of %d rows, ended %v, dropped %d", k.gpu.Rows(), w.rows, k.ended, w.rowsDropped())
	}
	if !strings.Contains(k.events, "spool_error") || !strings.Contains(k.events, "spool_recovered") {
		t.Errorf("events %s", k.events)
	}

	refused := &writer{
		dir: w.dir, node: "n1", clock: w.clk, c: newCollector(w.clk), meta: w.meta,
		create: func(path string, _ shard.SpoolMeta) (*shard.Spool, error) {
			return nil, &os.PathError{Op: "open", Path: path, Err: syscall.EACCES}
		},
	}
	if err := openWriter(refused, time.Second); !errors.Is(err, syscall.EACCES) {
		t.Errorf("a directory that may not be written: %v", err)
	}
}
