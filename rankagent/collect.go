package rankagent

import (
	"encoding/json"
	"sync"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// collector holds what the sources have delivered and the spool has not taken
// yet. Sources add whole readings; the writer takes all at once.
type collector struct {
	clock clock.Source

	mu      sync.Mutex
	pending map[*table.Table]*backlog
	spare   map[*table.Table]*table.Batch
	dropped int64
	absent  map[absenceKey]*absence
}

type absenceKey struct {
	table, column, key string
}

type absence struct {
	begin  clock.NodeTime
	reason Reason
	detail string
}

func newCollector(c clock.Source) *collector {
	return &collector{
		clock:   c,
		pending: map[*table.Table]*backlog{},
		spare:   map[*table.Table]*table.Batch{},
		absent:  map[absenceKey]*absence{},
	}
}

// add appends the rows of one tick; it keeps nothing of b.
func (c *collector) add(b *table.Batch, tick int64) {
	if b.Rows() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backlog(b.Table).add(b, tick)
}

// backlog returns the backlog of t; the lock must be held.
func (c *collector) backlog(t *table.Table) *backlog {
	p := c.pending[t]
	if p == nil {
		p = newBacklog(t)
		c.pending[t] = p
	}
	return p
}

// row appends one row of t, filled by fill; the lock must be held.
func (c *collector) row(t *table.Table, fill func(table.Row)) {
	p := c.backlog(t)
	if p.rows.Rows() >= maxPending {
		c.dropped++
		return
	}
	fill(p.rows.Append())
	p.mark(noTick)
}

// take hands over all pending rows, in the order of table.All, and starts
// afresh. The batches are the collector's again at the next take.
func (c *collector) take() []*table.Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*table.Batch
	for _, t := range table.All() {
		p := c.pending[t]
		if p == nil {
			continue
		}
		spare := c.spare[t]
		if spare == nil {
			spare = table.NewBatch(t, 64)
		}
		spare.Reset()
		p.rows, c.spare[t] = spare, p.rows
		p.ticks = p.ticks[:0]
		if c.spare[t].Rows() > 0 {
			out = append(out, c.spare[t])
		}
	}
	return out
}

func (c *collector) droppedRows() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.dropped
	for _, p := range c.pending {
		n += p.dropped
	}
	return n
}

// event records a happening at once.
func (c *collector) event(at clock.NodeTime, kind string, gpu, rank int, detail any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row(table.Event, func(r table.Row) {
		r.Read(int64(at), int64(at))
		r.String(table.EventKind, kind)
		if gpu >= 0 {
			r.Int(table.EventGPU, int64(gpu))
		}
		if rank >= 0 {
			r.Int(table.EventRank, int64(rank))
		}
		if detail != nil {
			if b, err := json.Marshal(detail); err == nil {
				r.String(table.EventDetail, string(b))
			}
		}
	})
}

// setAbsent opens an interval of absence, or leaves the open one as it is.
func (c *collector) setAbsent(t *table.Table, column, key string, reason Reason, detail string) {
	k := absenceKey{t.Name, column, key}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.absent[k]
	if open != nil && open.reason == reason {
		return
	}
	if open != nil {
		c.writeAbsence(k, open, now)
	}
	a := &absence{begin: now, reason: reason, detail: detail}
	c.absent[k] = a
	// The first piece is written at once, so that the reason is on disk
	// even if the agent is killed; later pieces extend it.
	c.writeAbsence(k, a, now)
}

func (c *collector) setPresent(t *table.Table, column, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.absent) == 0 {
		return
	}
	k := absenceKey{t.Name, column, key}
	if open := c.absent[k]; open != nil {
		c.writeAbsence(k, open, c.clock.Now())
		delete(c.absent, k)
	}
}

// absentFor records that whole rows are missing between two instants.
func (c *collector) absentFor(t *table.Table, key string, begin, end clock.NodeTime, reason Reason, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeAbsence(absenceKey{t.Name, "", key}, &absence{begin: begin, reason: reason, detail: detail}, end)
}

// extendAbsences writes a piece of every open interval, from where the last
// piece ended to now.
func (c *collector) extendAbsences(now clock.NodeTime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.backlog(table.Absence).rows.Rows() > maxPending/4 {
		return // the disk takes nothing; the next piece will be longer
	}
	for k, a := range c.absent {
		c.writeAbsence(k, a, now)
		a.begin = now
	}
}

func (c *collector) writeAbsence(k absenceKey, a *absence, end clock.NodeTime) {
	c.row(table.Absence, func(r table.Row) {
		r.Window(int64(a.begin), int64(end), int64(end))
		r.String(table.AbsTable, k.table)
		if k.column != "" {
			r.String(table.AbsColumn, k.column)
		}
		if k.key != "" {
			r.String(table.AbsKey, k.key)
		}
		r.String(table.AbsReason, string(a.reason))
		if a.detail != "" {
			r.String(table.AbsDetail, a.detail)
		}
	})
}

// reading is the Out of one source: rows gather in batches of its own and go to
// the collector when the reading is complete, so a source that hangs holds no
// lock.
type reading struct {
	c       *collector
	batches []*table.Batch
	// tick is the number of the tick that is being read.
	tick int64
}

func (o *reading) Now() clock.NodeTime { return o.c.clock.Now() }

func (o *reading) Batch(t *table.Table) *table.Batch {
	for _, b := range o.batches {
		if b.Table == t {
			return b
		}
	}
	b := table.NewBatch(t, 8)
	o.batches = append(o.batches, b)
	return b
}

func (o *reading) Absent(t *table.Table, column, key string, reason Reason, detail string) {
	o.c.setAbsent(t, column, key, reason, detail)
}

func (o *reading) Present(t *table.Table, column, key string) { o.c.setPresent(t, column, key) }

func (o *reading) Event(at clock.NodeTime, kind string, gpu, rank int, detail any) {
	o.c.event(at, kind, gpu, rank, detail)
}

// deliver moves the rows to the collector and returns how many there were, less
// those that tell of something that happened.
func (o *reading) deliver() int {
	n := 0
	for _, b := range o.batches {
		if !happens(b.Table) {
			n += b.Rows()
		}
		o.c.add(b, o.tick)
		b.Reset()
	}
	return n
}
