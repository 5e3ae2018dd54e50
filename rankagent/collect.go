package rankagent

import (
	"encoding/json"
	"sync"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// maxPending is how many rows of one table wait in memory when the disk takes
// none. At the default rates it is some minutes; what comes after it is counted
// and dropped, so that the agent never grows into the job's memory.
const maxPending = 50_000

// collector holds what the sources have delivered and the spool has not taken
// yet. Sources add whole readings; the writer takes all at once.
type collector struct {
	clock clock.Source

	mu      sync.Mutex
	pending map[*table.Table]*table.Batch
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
		pending: map[*table.Table]*table.Batch{},
		spare:   map[*table.Table]*table.Batch{},
		absent:  map[absenceKey]*absence{},
	}
}

// add appends b's rows; it keeps nothing of b.
func (c *collector) add(b *table.Batch) {
	if b.Rows() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.batch(b.Table)
	if p.Rows()+b.Rows() > maxPending {
		c.dropped += int64(b.Rows())
		return
	}
	p.AppendBatch(b)
}

// batch returns the pending batch of t; the lock must be held.
func (c *collector) batch(t *table.Table) *table.Batch {
	p := c.pending[t]
	if p == nil {
		p = table.NewBatch(t, 64)
		c.pending[t] = p
	}
	return p
}

// take hands over all pending rows, in the order of table.All, and starts
// afresh. The batches are the collector's again at the next take.
func (c *collector) take() []*table.Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending, c.spare = c.spare, c.pending
	var out []*table.Batch
	for _, t := range table.All() {
		if b := c.spare[t]; b != nil && b.Rows() > 0 {
			out = append(out, b)
		}
		if b := c.pending[t]; b != nil {
			b.Reset()
		}
	}
	return out
}

func (c *collector) droppedRows() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// lose counts rows that nobody will write.
func (c *collector) lose(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped += n
}

// event records a happening at once.
func (c *collector) event(at clock.NodeTime, kind string, gpu, rank int, detail any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.batch(table.Event).Append()
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
	for k, a := range c.absent {
		c.writeAbsence(k, a, now)
		a.begin = now
	}
}

func (c *collector) writeAbsence(k absenceKey, a *absence, end clock.NodeTime) {
	r := c.batch(table.Absence).Append()
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
}

// reading is the Out of one source: rows gather in batches of its own and go to
// the collector when the reading is complete, so a source that hangs holds no
// lock.
type reading struct {
	c       *collector
	batches []*table.Batch
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

// deliver moves the rows to the collector and returns how many there were.
func (o *reading) deliver() int {
	n := 0
	for _, b := range o.batches {
		n += b.Rows()
		o.c.add(b)
		b.Reset()
	}
	return n
}
