package rankagent

import (
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// stillClock shows what a test sets.
type stillClock struct{ now clock.NodeTime }

func (c *stillClock) Now() clock.NodeTime { return c.now }
func (c *stillClock) Bracket() (clock.Bracket, error) {
	return clock.Bracket{Raw0: c.now, Raw1: c.now + 100, Realtime: int64(c.now) + 1e18}, nil
}

func eventBatch(n int) *table.Batch {
	b := table.NewBatch(table.Event, n)
	for range n {
		r := b.Append()
		r.Read(1, 2)
		r.String(table.EventKind, "x")
	}
	return b
}

// TestCollectorTakesAllAndBoundsMemory checks that rows are handed over once
// and that a disk that takes none costs rows, not memory.
func TestCollectorTakesAllAndBoundsMemory(t *testing.T) {
	c := newCollector(&stillClock{})
	c.add(eventBatch(3), noTick)
	c.event(5, "y", 2, -1, map[string]int{"a": 1})
	got := c.take()
	if len(got) != 1 || got[0].Rows() != 4 {
		t.Fatalf("took %d batches", len(got))
	}
	if d := got[0].Strings(table.EventDetail)[3]; d != `{"a":1}` {
		t.Errorf("detail %q", d)
	}
	if got[0].Valid(table.EventRank)[3] || !got[0].Valid(table.EventGPU)[3] {
		t.Error("gpu 2 and no rank were given")
	}
	if again := c.take(); len(again) != 0 {
		t.Errorf("the second take has %d batches", len(again))
	}
	for range 11 {
		c.add(eventBatch(maxPending/10), noTick)
	}
	if n := c.droppedRows(); n != maxPending/10 {
		t.Errorf("dropped %d rows, want %d", n, maxPending/10)
	}
	if n := c.take()[0].Rows(); n != maxPending {
		t.Errorf("kept %d rows, want %d", n, maxPending)
	}
}

// TestAbsences checks that the reason is on record from the first moment, that
// pieces join without a gap, and that a change of reason ends one interval.
func TestAbsences(t *testing.T) {
	k := &stillClock{now: 100}
	c := newCollector(k)
	c.setAbsent(table.GPU, "temp_c", "0", NotSupported, "no sensor")
	k.now = 150
	c.setAbsent(table.GPU, "temp_c", "0", NotSupported, "no sensor")
	c.extendAbsences(200)
	k.now = 250
	c.setAbsent(table.GPU, "temp_c", "0", DeviceLost, "gone")
	k.now = 300
	c.setPresent(table.GPU, "temp_c", "0")
	c.setPresent(table.GPU, "temp_c", "0")
	b := c.take()[0]
	type piece struct {
		begin, end int64
		reason     string
	}
	want := []piece{{100, 100, "not_supported"}, {100, 200, "not_supported"}, {200, 250, "not_supported"}, {250, 250, "device_lost"}, {250, 300, "device_lost"}}
	if b.Rows() != len(want) {
		t.Fatalf("%d pieces, want %d", b.Rows(), len(want))
	}
	for i, w := range want {
		got := piece{b.Ints(table.ColBegin)[i], b.Ints(table.ColT)[i], b.Strings(table.AbsReason)[i]}
		if got != w {
			t.Errorf("piece %d is %v, want %v", i, got, w)
		}
	}
}

// TestReadingKeepsWhatTheSourceMadeApart checks that a reading under way is
// seen by nobody, and that its batches are reused.
func TestReadingKeepsWhatTheSourceMadeApart(t *testing.T) {
	c := newCollector(&stillClock{})
	out := &reading{c: c}
	out.Batch(table.Host).Append().Read(1, 2)
	out.Batch(table.Net).Append().Read(1, 2)
	if len(c.take()) != 0 {
		t.Error("an unfinished reading was taken")
	}
	if n := out.deliver(); n != 2 {
		t.Errorf("delivered %d rows", n)
	}
	if len(c.take()) != 2 {
		t.Error("the finished reading is not there")
	}
	cycle := func() {
		out.Batch(table.Host).Append().Read(1, 2)
		out.deliver()
		c.take()
	}
	cycle()
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n > 2 { // take's two lists
		t.Errorf("a reading allocates %v times after warm-up", n)
	}
}
