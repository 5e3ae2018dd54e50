package rankagent

import (
	"fmt"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// maxPending is how many rows of one table wait in memory while the disk takes
// none: three minutes of eight GPUs. Then every second tick is let go, then
// three of four, and so on, so that what is kept spans the whole outage and the
// agent never grows into the job's memory. The ticks are those of the reference
// clock: all nodes and all GPUs keep the same.
const maxPending = 16_000

// noTick marks rows that belong to no tick; they are not thinned.
const noTick = -1

// maxStride is where thinning ends: at ten ticks a second, one row a day.
const maxStride = 1 << 20

// backlog is the rows of one table that the spool has not taken yet.
type backlog struct {
	rows  *table.Batch
	ticks []int64 // of each row
	// Of every stride ticks one is kept. Dropped rows are counted since the
	// first of them, at since.
	stride  int64
	dropped int64
	since   clock.NodeTime
	until   clock.NodeTime
}

func newBacklog(t *table.Table) *backlog {
	return &backlog{rows: table.NewBatch(t, 64), stride: 1}
}

// add appends b's rows, unless the backlog is full and they are let go.
func (p *backlog) add(b *table.Batch, tick int64) {
	if tick != noTick {
		for p.rows.Rows()+b.Rows() > maxPending && p.stride < maxStride {
			p.thin()
		}
	}
	if tick != noTick && tick%p.stride != 0 || p.rows.Rows()+b.Rows() > maxPending {
		p.drop(b, 0, b.Rows())
		return
	}
	p.rows.AppendBatch(b)
	p.mark(tick)
}

// mark notes the tick of the rows that were appended last.
func (p *backlog) mark(tick int64) {
	for len(p.ticks) < p.rows.Rows() {
		p.ticks = append(p.ticks, tick)
	}
}

// thin lets every second tick go that is left.
func (p *backlog) thin() {
	p.stride *= 2
	kept := table.NewBatch(p.rows.Table, p.rows.Rows()/2)
	var ticks []int64
	for from := 0; from < len(p.ticks); {
		tick, to := p.ticks[from], from+1
		for to < len(p.ticks) && p.ticks[to] == tick {
			to++
		}
		if tick == noTick || tick%p.stride == 0 {
			kept.AppendRange(p.rows, from, to)
			ticks = append(ticks, p.ticks[from:to]...)
		} else {
			p.drop(p.rows, from, to)
		}
		from = to
	}
	p.rows, p.ticks = kept, ticks
}

// drop counts rows that are let go.
func (p *backlog) drop(b *table.Batch, from, to int) {
	for _, t := range b.Ints(table.ColT)[from:to] {
		at := clock.NodeTime(t)
		if p.dropped == 0 {
			p.since, p.until = at, at
		}
		p.since, p.until = min(p.since, at), max(p.until, at)
		p.dropped++
	}
}

// thinned is what was dropped of a table during an outage.
type thinned struct {
	table        *table.Table
	stride, rows int64
	begin, end   clock.NodeTime
}

func (t thinned) String() string {
	return fmt.Sprintf("the disk took no rows: of every %d ticks one was kept in the end, %d rows were dropped", t.stride, t.rows)
}

// relieve ends the thinning once the disk takes rows again, and writes down
// what was dropped.
func (c *collector) relieve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []thinned
	for _, t := range table.All() {
		p := c.pending[t]
		if p == nil || p.dropped == 0 {
			continue
		}
		all = append(all, thinned{t, p.stride, p.dropped, p.since, p.until})
		c.dropped += p.dropped
		p.stride, p.dropped = 1, 0
	}
	for _, t := range all {
		c.writeAbsence(absenceKey{table: t.table.Name}, &absence{begin: t.begin, reason: Dropped, detail: t.String()}, t.end)
	}
}

// abandon counts as dropped what nobody will take any more.
func (c *collector) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		c.dropped += int64(p.rows.Rows())
		p.rows.Reset()
		p.ticks = p.ticks[:0]
	}
}
