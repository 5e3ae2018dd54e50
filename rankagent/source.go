// Package rankagent is the sampler that runs once on each node of a job: it
// reads its sources on a schedule that all nodes share, keeps what they
// deliver in a spool that survives being killed, and ends when the job does.
//
// It never touches the job. Whatever goes wrong here is recorded in the data
// and the job goes on.
package rankagent

import (
	"errors"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// Source is one kind of reading. The agent calls Read from one goroutine of
// its own for each source, locked to its OS thread, so a source that blocks
// delays no other.
type Source interface {
	// Name appears in the sampler table: "host", "gpu 3".
	Name() string
	// Interval is the time between ticks; zero means the agent's base
	// interval. It is asked once.
	Interval() time.Duration
	// Read takes one reading and puts its rows into out. It returns what
	// concerns the source as a whole; a value that is missing is null and
	// is reported through out.Absent.
	Read(out Out) error
	// Close is called once after the last Read has returned.
	Close() error
}

// Phased is a Source whose ticks fall a set time after those that all nodes
// share: sources that would be in each other's way are staggered by it.
type Phased interface {
	// Phase is less than the interval. It is asked once.
	Phase() time.Duration
}

// Paced is a Source whose ticks may come to lie farther apart than Interval, and
// back. A tick still falls where it does on all nodes of the same pace.
type Paced interface {
	// Pace is at least Interval. It is asked before each tick.
	Pace() time.Duration
}

// Finisher is a Source that takes a last reading when the job is over, such as
// counters whose total matters.
type Finisher interface {
	// Finish is called once, after the last Read and before Close. The agent
	// does not wait long for it.
	Finish(out Out) error
}

// Quiet is a Source that may have nothing to say for as long as it is read:
// that it gives no rows is nothing to report.
type Quiet interface {
	// MayBeSilent only marks.
	MayBeSilent()
}

// ErrSkipped is what Read returns where it left out a tick on purpose: the tick
// was due and is not done.
var ErrSkipped = errors.New("left out on purpose")

// Out takes what a source has read. It is valid during Read only.
type Out interface {
	// Now is the node's raw clock.
	Now() clock.NodeTime
	// Batch returns the batch that rows of t are appended to. The source
	// only appends.
	Batch(t *table.Table) *table.Batch
	// Absent says that a value is missing from now on, or still is; column
	// and key may be empty to mean all. Calls with the same table, column,
	// key and reason extend one interval; Present ends it.
	Absent(t *table.Table, column, key string, reason Reason, detail string)
	// Present says that the value is there again. It is cheap where it was
	// never absent.
	Present(t *table.Table, column, key string)
	// Event records a happening at the given time; gpu and rank are -1
	// where it has none, detail is marshalled as JSON and may be nil.
	Event(at clock.NodeTime, kind string, gpu, rank int, detail any)
}

// Reason says why a value is missing.
type Reason string

// The reasons. docs/format.md explains each.
const (
	NotSupported Reason = "not_supported" // this machine or driver has no such value
	NoPermission Reason = "no_permission" // it has, but not for this user
	NotFound     Reason = "not_found"     // a file or a device is not there
	InvalidValue Reason = "invalid_value" // the source gave what cannot be true
	SourceError  Reason = "source_error"  // the call failed
	SourceSlow   Reason = "source_slow"   // the call hung and is fenced off
	DeviceLost   Reason = "device_lost"   // the GPU fell off the bus
	NoDriver     Reason = "no_driver"     // libnvidia-ml.so.1 cannot be loaded
	NotSampled   Reason = "not_sampled"   // the agent did not get to it
	Dropped      Reason = "dropped"       // it was read but could not be kept
	NodeLost     Reason = "node_lost"     // the agent was killed or its node went down
)
