// Package table defines every table of a gswarm dataset: the columns, their
// types and units, which span of time a value covers and which call it came
// from. It also holds Batch, the column buffers in which rows travel from a
// source to the spool and from a shard to the timeline.
//
// The definitions are the single source for the shards' schemas, for the
// timeline's schemas and for docs/metrics.md. The package knows nothing of
// files, of Arrow or of clocks.
package table

import "fmt"

// Version is the format version of the tables below. It is written into every
// shard and every run. A change of a column's meaning, type or unit raises it;
// a new nullable column does not.
const Version = 1

// Type is a column's type on disk.
type Type uint8

// The column types. Integers of every width travel in a Batch as int64 and
// floats as float64; the width below is the width on disk.
const (
	Int64 Type = iota
	Int32
	Float64
	Float32
	String
	// Timestamp is microseconds since the Unix epoch, UTC; only timelines
	// have it.
	Timestamp
)

func (t Type) String() string {
	switch t {
	case Int64:
		return "int64"
	case Int32:
		return "int32"
	case Float64:
		return "float64"
	case Float32:
		return "float32"
	case String:
		return "string"
	case Timestamp:
		return "timestamp[us, UTC]"
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Column describes one column of a table.
type Column struct {
	// Name ends in its unit (_ns, _bytes, _mw, _pct, _count, ...) where it
	// has one.
	Name string
	Type Type
	// Unit in words for people and for the column's metadata, for example
	// "ns", "bytes", "mW", "percent". Empty for identifiers.
	Unit string
	// Required columns are never null: time stamps and keys.
	Required bool
	// Window is the span of time that one value stands for ("instant",
	// "since boot", "1/6 to 1 s before the read, set by the driver", ...).
	Window string
	// Age is the worst age of a value when it is read ("100 ms: the driver
	// refreshes it no faster"). Empty means that it is fresh.
	Age string
	// Source is the call, file or field that the value comes from.
	Source string
	// Rate is how often the column is read where that is not the table's
	// cadence.
	Rate string
	// Cost is what reading it takes in the driver, measured on an H200.
	Cost string
	// GPUs says which GPUs have it; empty means all, or that it is none of a
	// GPU's.
	GPUs string
	// Doc is one sentence for docs/metrics.md.
	Doc string
}

// Foreign names a column that holds a stamp made by somebody else, such as a
// driver that buffers its samples. Shards keep it as delivered, beside the read
// that delivered it; a merge makes the row's time of it.
type Foreign struct {
	// Column is an Int64 column that is never null; empty where the table
	// has no such stamps.
	Column string
	// Clock is the node's clock that the stamp was taken from.
	Clock ClockName
	// UnitNS is the stamp's unit in nanoseconds.
	UnitNS int64
}

// ClockName is one of a node's clocks.
type ClockName string

// Realtime is CLOCK_REALTIME, counted from the Unix epoch.
const Realtime ClockName = "CLOCK_REALTIME"

// Shape says which time columns a table has.
type Shape uint8

const (
	// Polled rows have t_raw_ns, the middle of the read, and read_ns, its
	// length, both on the node's CLOCK_MONOTONIC_RAW.
	Polled Shape = iota
	// Windowed rows have t_begin_raw_ns and t_raw_ns, the begin and end of
	// the window that the row covers, and read_ns, the length of the read
	// that closed it.
	Windowed
)

// Table describes one table.
type Table struct {
	Name    string
	Shape   Shape
	Cadence string
	Doc     string
	// Keys names the columns that, with the time, tell rows apart.
	Keys    []string
	Columns []Column
	// Foreign is set where the rows' own time is a stamp of somebody else's.
	Foreign Foreign
}

// The names of the time columns of shards.
const (
	TRaw      = "t_raw_ns"
	TBeginRaw = "t_begin_raw_ns"
	ReadNS    = "read_ns"
)

// Every table begins with the same time columns, at these indexes. ColBegin
// exists in windowed tables only, whose own columns begin at 3; those of a
// polled table begin at 2.
const (
	ColT     = 0
	ColRead  = 1
	ColBegin = 2
)

// Index returns the index of the column called name, or -1.
func (t *Table) Index(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// Select returns t with the named columns alone, in the order in which they are
// named: column i of its batches is names[i]. A reader that is given it decodes
// no others. A name that t does not have is a programming error and panics.
func (t *Table) Select(names ...string) *Table {
	few := *t
	few.Columns = make([]Column, len(names))
	for i, name := range names {
		at := t.Index(name)
		if at < 0 {
			panic("table " + t.Name + " has no column " + name)
		}
		few.Columns[i] = t.Columns[at]
	}
	return &few
}

// All returns every table in the order in which documents list them. The
// caller must not change what it gets.
func All() []*Table {
	return []*Table{
		GPU, GPUActivity, GPUPower, GPUCounter, GPUNVLink, GPUProcess, Host, NUMA, Net, Infiniband, Disk, Filesystem, Rank,
		Event, Absence, ClockExchange, ClockBracket, Sampler,
	}
}

// ByName returns the table called name, or nil.
func ByName(name string) *Table {
	for _, t := range All() {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// polled and windowed put the common time columns in front of a table's own.
func polled(own ...Column) []Column {
	return append([]Column{
		{Name: TRaw, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Middle of the read on the node's raw monotonic clock."},
		{Name: ReadNS, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Length of the read: all values of the row were taken within it."},
	}, own...)
}

func windowed(own ...Column) []Column {
	return append([]Column{
		{Name: TRaw, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "End of the window on the node's raw monotonic clock: the middle of the read that closed it."},
		{Name: ReadNS, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Length of the read that closed the window."},
		{Name: TBeginRaw, Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Begin of the window on the node's raw monotonic clock."},
	}, own...)
}
