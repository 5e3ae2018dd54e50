package merge

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/table"
)

// Node 1 could exchange nothing, but its ranks and those of node 0 marked
// barriers: its rows are placed by them.
func TestNodesMeetInBarriers(t *testing.T) {
	run := testRun{nodes: 2, seconds: 25, killed: -1}
	run.rows = func(node, sec int) []*table.Batch {
		var out []*table.Batch
		for _, b := range second(node, sec) {
			if b.Table != table.ClockExchange {
				out = append(out, b)
			}
		}
		ev := table.NewBatch(table.Event, 4)
		at := base + int64(sec)*1e9 + 500e6
		for rank := range 2 {
			came := at + int64(rank)*3e6 + int64(node)*1e6
			mark(t, ev, rawOf(node, came), 2*node+rank, fmt.Sprint("step ", sec), rows.BarrierEnter)
			mark(t, ev, rawOf(node, at+4e6+int64(rank)*100e3), 2*node+rank, fmt.Sprint("step ", sec), rows.BarrierLeave)
			// A name used twice says nothing, however wrong it is.
			mark(t, ev, rawOf(node, at+int64(node)*5e8), 2*node+rank, "again", rows.BarrierEnter)
			mark(t, ev, rawOf(node, at+int64(node)*5e8), 2*node+rank, "again", rows.BarrierLeave)
		}
		return append(out, ev)
	}
	dir := run.write(t)
	if _, err := Run(context.Background(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	c, err := FitClocks(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if n.Node != "n1" {
			continue
		}
		// Node 0's last rank entered at 3 ms, node 1's at 4 ms, and all left by
		// 4.1 ms: the offset is known to within (1.0 + 0.1) / 2 ms.
		if n.Method != clock.ByBarriers || n.BoundNS == nil || n.BoundNS.Min < 100e3 || n.BoundNS.Max > 2e6 {
			t.Fatalf("%+v, bound %+v", n, n.BoundNS)
		}
		if off := *n.OffsetNS + 1e14; off < -2e6 || off > 2e6 {
			t.Errorf("off by %d ns", off)
		}
		return
	}
	t.Fatal("no node n1")
}

func mark(t *testing.T, b *table.Batch, at int64, rank int, name, side string) {
	t.Helper()
	bound, flight := int64(1000), int64(5000)
	d, err := json.Marshal(rows.Mark{Text: name, PID: 100 + rank, Barrier: side, BoundNS: &bound, Flight: &flight})
	if err != nil {
		t.Fatal(err)
	}
	r := b.Append()
	r.Read(at, at)
	r.String(table.EventKind, rows.MarkKind)
	r.Int(table.EventRank, int64(rank))
	r.String(table.EventDetail, string(d))
}
