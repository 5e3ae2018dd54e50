//go:build cgo && linux

package gpu

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// fenceAfter is how long one call may take before its GPU gets no further
// calls: a thread that waits in the driver may hold locks that the job needs.
const fenceAfter = clock.NodeTime(5 * time.Second)

// physical is what a GPU and its MIG instances share.
type physical struct {
	fenced atomic.Bool
	budget budget
}

// lane is the way of one source into the driver. It notes which call is under
// way, so that a watch can tell which hangs, and what calls cost. But for what
// is atomic it belongs to the source's goroutine.
type lane struct {
	dev      *device
	table    *table.Table
	kind     kind
	interval time.Duration
	out      rankagent.Out
	ticks    int64
	calls    []*call
	thinned  absences
	final    bool         // the next reading is the last, which is always taken
	began    atomic.Int64 // when the call under way began, 0 where none is
	doing    atomic.Pointer[call]
}

func newLane(dev *device, t *table.Table, k kind, interval time.Duration) *lane {
	l := &lane{dev: dev, table: t, kind: k, interval: interval, thinned: absences{table: t, key: dev.key}}
	dev.lanes = append(dev.lanes, l)
	return l
}

// Interval and Phase make a source of whatever embeds a lane: GPUs are
// staggered within the interval, and the kinds of reading of a GPU within its
// share.
func (l *lane) Interval() time.Duration { return l.interval }

// Phase is the same on all nodes for GPUs of the same ordinal.
func (l *lane) Phase() time.Duration {
	n := time.Duration(max(len(l.dev.driver.devices), 1))
	interval := l.interval
	if interval == 0 {
		interval = l.dev.driver.interval
	}
	share := interval / n
	return share*time.Duration(l.dev.index) + share*time.Duration(l.kind)/time.Duration(kinds)
}

// Close has nothing to free.
func (l *lane) Close() error { return nil }

// enter begins a reading. It must be followed by leave where it returns nil.
func (l *lane) enter(out rankagent.Out) error {
	if !l.dev.driver.gate.enter() {
		return errClosed
	}
	tick := l.ticks
	l.ticks++
	if l.dev.shared.fenced.Load() || !l.final && !l.dev.shared.budget.admits(l.kind, tick) {
		l.dev.driver.gate.leave()
		return rankagent.ErrSkipped
	}
	l.out = out
	return nil
}

// sayThinned records that rows are missing for as long as the budget has ticks
// left out. It is for lanes that a table's rows come from alone.
func (l *lane) sayThinned(out rankagent.Out) {
	if f := l.dev.shared.budget.factor(l.kind); f > 1 {
		l.thinned.absent(out, wholeRow, rankagent.NotSampled, func() string {
			return fmt.Sprintf("one tick in %d, to keep the budget", int(f))
		})
		return
	}
	l.thinned.present(out, wholeRow)
}

func (l *lane) leave() { l.dev.driver.gate.leave() }

// begin says whether a call is due and may be made. It must be followed by end
// where it returns true.
func (l *lane) begin(c *call) bool {
	if l.dev.shared.fenced.Load() {
		return false
	}
	now := l.out.Now()
	if now < c.next {
		return false
	}
	l.doing.Store(c)
	l.began.Store(int64(now))
	return true
}

// end takes what a call cost and how it ended.
func (l *lane) end(c *call, ret nvml.Return) {
	now := l.out.Now()
	took := now - clock.NodeTime(l.began.Load())
	l.began.Store(0)
	l.dev.shared.budget.took[l.kindOf(c)].Add(int64(took))
	if c.observe(now, time.Duration(took), ret) {
		kind := EventCallSlow
		if c.every <= c.floor {
			kind = EventCallRestored
		}
		l.out.Event(now, kind, l.dev.index, -1, callDetail{
			UUID: l.dev.uuid(), Call: c.name,
			CostUS: int64(c.cost / 1e3), PlannedUS: c.planned.MedianNS / 1e3, EveryMS: c.cadence().Milliseconds(),
		})
	}
}

// kindOf returns what the budget counts a call as.
func (l *lane) kindOf(c *call) kind {
	if l.kind == kindCounter && c.dear() {
		return kindDear
	}
	return l.kind
}

// grain is the step of the times of rows, ns. A read takes tens of microseconds,
// and finer digits of its begin and end are noise that would take two bytes a row.
const grain = 1024

// widen moves the ends of a read apart to whole grains, so that the read still
// lies within.
func widen(begin, end clock.NodeTime) (clock.NodeTime, clock.NodeTime) {
	return begin &^ (grain - 1), (end + grain - 1) &^ (grain - 1)
}

// abandoned says whether the GPU was fenced off while the reading was under
// way: what was read is of no instant that could be stated.
func (l *lane) abandoned() bool { return l.dev.shared.fenced.Load() }

// callDetail is the detail of events about one call.
type callDetail struct {
	UUID      string `json:"gpu_uuid,omitempty"`
	Call      string `json:"call"`
	CostUS    int64  `json:"cost_us,omitempty"`
	PlannedUS int64  `json:"planned_us,omitempty"`
	EveryMS   int64  `json:"every_ms,omitempty"`
	Seconds   int64  `json:"seconds,omitempty"`
}
