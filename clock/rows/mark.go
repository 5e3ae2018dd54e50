package rows

import (
	"bytes"
	"encoding/json"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// MarkKind is the kind of the events that are marks.
const MarkKind = "mark"

// The sides of a barrier that a mark can be: set right before a rank enters,
// and right after it left.
const (
	BarrierEnter = "enter"
	BarrierLeave = "leave"
)

// Mark is the detail of an event of MarkKind.
type Mark struct {
	Text string `json:"text"`
	PID  int    `json:"pid"`
	// Flight is how long the mark was under way; left out where the kernel
	// did not stamp it, and the event has the time of its arrival.
	Flight *int64 `json:"flight_ns,omitempty"`
	// Barrier is BarrierEnter or BarrierLeave for a mark at a barrier, named
	// by Text; BoundNS is how far the event's time may be off, left out where
	// that is not known.
	Barrier string `json:"barrier,omitempty"`
	BoundNS *int64 `json:"bound_ns,omitempty"`
}

// Barriers collects the barriers that a node's ranks marked.
type Barriers struct {
	sides map[barrierSide]barrierMark
	// ambiguous are names that a rank used twice.
	ambiguous map[string]bool
	names     []string
}

type barrierSide struct {
	name  string
	rank  int64
	leave bool
}

type barrierMark struct{ at, bound int64 }

// Add takes the marks among the rows of table.Event. Only those of a known
// rank with a known bound count.
func (c *Barriers) Add(b *table.Batch) {
	kinds, details, ranks, at := b.Strings(table.EventKind), b.Strings(table.EventDetail), b.Ints(table.EventRank), b.Ints(table.ColT)
	for i := range b.Rows() {
		if kinds[i] != MarkKind || !valid(b, i, table.EventDetail, table.EventRank) || !bytes.Contains([]byte(details[i]), []byte(`"barrier"`)) {
			continue
		}
		var m Mark
		if err := json.Unmarshal([]byte(details[i]), &m); err != nil || m.BoundNS == nil || *m.BoundNS < 0 {
			continue
		}
		if m.Barrier != BarrierEnter && m.Barrier != BarrierLeave {
			continue
		}
		if c.sides == nil {
			c.sides, c.ambiguous = map[barrierSide]barrierMark{}, map[string]bool{}
		}
		side := barrierSide{m.Text, ranks[i], m.Barrier == BarrierLeave}
		if _, again := c.sides[side]; again {
			c.ambiguous[m.Text] = true
		}
		c.sides[side] = barrierMark{at[i], *m.BoundNS}
		c.names = append(c.names, m.Text)
	}
}

// All returns the barriers: of each, the last entry and the first exit that
// any rank marked, each as early and as late as its bound allows. A name that a
// rank used twice is left out, since nobody can say which mark met which; and
// so is one of which one side is missing.
func (c *Barriers) All() []clock.Barrier {
	type ends struct{ enter, leave *int64 }
	by := map[string]*ends{}
	for side, m := range c.sides {
		if c.ambiguous[side.name] {
			continue
		}
		e := by[side.name]
		if e == nil {
			e = &ends{}
			by[side.name] = e
		}
		if side.leave {
			if t := m.at + m.bound; e.leave == nil || t < *e.leave {
				e.leave = &t
			}
		} else if t := m.at - m.bound; e.enter == nil || t > *e.enter {
			e.enter = &t
		}
	}
	var out []clock.Barrier
	for _, name := range c.names {
		if e := by[name]; e != nil && e.enter != nil && e.leave != nil {
			out = append(out, clock.Barrier{Name: name, Enter: clock.NodeTime(*e.enter), Leave: clock.NodeTime(*e.leave)})
			delete(by, name)
		}
	}
	return out
}
