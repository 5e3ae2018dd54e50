package table

// The names of the time columns of a timeline.
const (
	Time        = "time"
	TimeNS      = "time_ns"
	TimeBegin   = "time_begin_ns"
	TimeBound   = "time_bound_ns"
	Node        = "node"
	timelineDoc = "reference clock of the run"
)

// Indexes of the columns that every timeline table begins with. TLBegin exists
// only in timelines of windowed tables.
const (
	TLTime = iota
	TLTimeNS
	TLBound
	TLNode
	TLRead
	TLBegin
)

// Timeline returns the timeline's form of t: the raw time columns give way to
// cluster time, its bound and the node's name, all other columns stay. The
// i-th own column of t (after its time columns) is the i-th own column of the
// result.
func Timeline(t *Table) *Table {
	own := t.Columns[2:]
	cols := []Column{
		{Name: Time, Type: Timestamp, Unit: "us", Required: true, Window: "instant", Source: timelineDoc, Doc: "When, in UTC, for people and plots: time_ns without its last three digits."},
		{Name: TimeNS, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: timelineDoc, Doc: "When, in nanoseconds since the Unix epoch, exact, for joins."},
		{Name: TimeBound, Type: Int64, Unit: "ns", Window: "instant", Source: "clock model", Doc: "The true instant lies within time_ns plus or minus this; null where the node is unaligned."},
		{Name: Node, Type: String, Required: true, Source: "gswarm", Doc: "The node."},
		{Name: ReadNS, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Length of the read, already part of the bound."},
	}
	if t.Shape == Windowed {
		own = t.Columns[3:]
		cols = append(cols, Column{Name: TimeBegin, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: timelineDoc, Doc: "Begin of the window, nanoseconds since the Unix epoch."})
	}
	return &Table{
		Name: t.Name, Shape: t.Shape, Cadence: t.Cadence, Doc: t.Doc,
		Keys:    append([]string{Node}, t.Keys...),
		Foreign: t.Foreign,
		Columns: append(cols, own...),
	}
}
