package analysis

import (
	"context"

	"github.com/gswarm/gswarm/table"
)

// Source passes the rows of a run's timeline.
type Source interface {
	// Rows passes the rows of a table's timeline form (table.Timeline) to fn,
	// batch by batch, tile after tile and within a tile node after node; the
	// rows of a node come in order of time. Only the columns named are filled,
	// by their index in the timeline form; the others are null. A batch is
	// fn's until it returns. A table without rows passes none.
	Rows(ctx context.Context, t *table.Table, columns []int, fn func(*table.Batch) error) error
}

// Facts is what is known of a run beside its tables.
type Facts struct {
	// Run names the run; Command is what was run.
	Run     string
	Command []string
	// JobID is the scheduler's, empty without one.
	JobID string
	// BeginNS and EndNS are the run's, on the timeline, in nanoseconds since
	// the Unix epoch; EndNS is 0 while it goes on or where it is not known.
	BeginNS, EndNS int64
	// Running says that the run still goes on.
	Running bool
	// LimitNS is when the scheduler will end the job, 0 where it will not or
	// where that is not known.
	LimitNS int64
	// Exit is how the job ended, in words, empty where that is not known.
	Exit string
	// ActivityNS and TickNS are the cadence that was asked for: of the GPUs'
	// windows and of the base tick.
	TickNS int64
	Nodes  []NodeFacts
	// Missing are what the merge says is not in the data, in words.
	Missing []string
}

// NodeFacts is what is known of a node.
type NodeFacts struct {
	Node string
	// Aligned says that the node's stamps have a bound; BoundNS is the widest
	// one of its rows, in nanoseconds to either side.
	Aligned bool
	BoundNS int64
	// Missing says that the node was to be sampled and left nothing.
	Missing bool
	// Ended is how its agent ended, empty where it was killed or lost.
	Ended string
	// CPUs is how many logical CPUs the job may use there, 0 if not known;
	// MemoryBytes is the job's limit or the node's memory.
	CPUs        int
	MemoryBytes int64
	GPUs        []GPUFacts
}

// GPUFacts is what is known of a GPU.
type GPUFacts struct {
	// GPU is the ordinal in the tables, UUID the identity.
	GPU  int
	UUID string
	Name string
	// PowerLimitMW, MemoryBytes, ClockMaxMHz and NUMA are 0, and -1 for NUMA,
	// where they are not known.
	PowerLimitMW int64
	MemoryBytes  int64
	ClockMaxMHz  int
	NUMA         int
}
