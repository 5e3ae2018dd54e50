// Package merge makes a run's timeline from its shards: it reads what the
// nodes recorded of their clocks, fits the clocks, and lays every node's rows
// out on the reference clock, tile by tile.
//
// It orders; it never touches bytes itself: package shard reads and writes
// rows, package clock fits, package rundir knows where things lie. The same
// shards give the same timeline, byte for byte, wherever and whenever it is
// merged.
package merge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// Options are what a caller may choose.
type Options struct {
	// Partial takes what is there of a run that still goes on.
	Partial bool
	// Sort puts all rows of a table into one order: time, node, GPU.
	Sort bool
	// Task and Tasks divide the work: this is the Task-th of Tasks, counted
	// from 0, each of which gets the same run. Tasks of 0 or 1 is the whole.
	Task, Tasks int
	// Progress, if set, is called now and then from Run's goroutine.
	Progress func(Progress)
	// now is the time by which it is judged whether agents are alive.
	now func() time.Time
}

// Progress is how far a merge has come.
type Progress struct {
	Table       string
	Rows, Total int64
}

// Code says in which way something is missing. The codes are part of the
// format.
type Code string

// The codes beside those of shard.Loss, which appear here as they are.
const (
	NodeMissing   Code = "node_missing"    // the run was to sample it and there is no directory
	NodeEmpty     Code = "node_empty"      // there is a directory and no row in it
	NodeKilled    Code = "node_killed"     // its agent ended without an end mark
	NoClock       Code = "no_clock"        // nothing ties its clock to the reference
	Running       Code = "running"         // the run still goes on
	NameClash     Code = "name_clash"      // two directories claim to be one node
	RunCut        Code = "run_cut"         // wrap in front was killed before the job's end
	RunUnreadable Code = "run_unreadable"  // run.yaml is missing or damaged
	NodeUnread    Code = "node_unreadable" // a node's directory cannot be read
)

// Missing is one thing that the timeline lacks.
type Missing struct {
	Code   Code   `yaml:"code" json:"code"`
	Node   string `yaml:"node,omitempty" json:"node,omitempty"`
	Detail string `yaml:"detail" json:"detail"`
}

func (m Missing) String() string {
	if m.Node == "" {
		return fmt.Sprintf("%s: %s", m.Code, m.Detail)
	}
	return fmt.Sprintf("%s: %s: %s", m.Node, m.Code, m.Detail)
}

// Summary is what a merge did.
type Summary struct {
	Dir string `json:"dir"`
	// Nodes are those that have rows in the timeline.
	Nodes []string         `json:"nodes"`
	Rows  map[string]int64 `json:"rows"`
	Files int              `json:"files"`
	Bytes int64            `json:"bytes"`
	// Others is set where this task did its part and others finish, or have
	// finished, the timeline; PartsLeft files of it were still missing. Parts
	// is how many were this task's.
	Others    bool `json:"others,omitempty"`
	Parts     int  `json:"parts,omitempty"`
	PartsLeft int  `json:"parts_left,omitempty"`
	// Incomplete is set where Missing is not empty.
	Incomplete bool      `json:"incomplete"`
	Missing    []Missing `json:"missing"`
	Notes      []string  `json:"notes,omitempty"`
}

// RunningError says that a run still goes on.
type RunningError struct {
	Dir   string
	Nodes []string
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("the run in %s still goes on (%s): wait for its end, or take what is there with --partial", e.Dir, strings.Join(e.Nodes, ", "))
}

// ErrNoData says that a run directory holds nothing to merge.
var ErrNoData = errors.New("there is nothing to merge")

// merger is one merge under way.
type merger struct {
	dir     rundir.Dir
	opts    Options
	run     *rundir.Run
	nodes   []*node
	result  clock.Result
	chosen  bool // the reference was chosen here and not by the run
	tile    int64
	missing []Missing
	notes   []string
	parts   []part
	done    int64
	total   int64
}

// defaultTile is the tile of runs that name none.
const defaultTile = 5 * time.Minute

// Run merges the run in dir.
func Run(ctx context.Context, dir string, opts Options) (Summary, error) {
	if opts.Tasks > 1 && (opts.Task < 0 || opts.Task >= opts.Tasks) {
		return Summary{}, fmt.Errorf("task %d of %d: %w", opts.Task, opts.Tasks, errNoTask)
	}
	d := rundir.Dir(dir)
	unlock, err := lock(d, opts.Tasks > 1)
	if err != nil {
		return Summary{}, err
	}
	defer unlock()
	m, err := prepare(d, opts)
	if err != nil {
		return Summary{}, err
	}
	defer m.close()
	return m.build(ctx)
}

// errNoTask says that a task's number does not fit.
var errNoTask = errors.New("tasks are counted from 0")

// prepare finds out all that a merge has to know before it writes.
func prepare(d rundir.Dir, opts Options) (*merger, error) {
	if opts.now == nil {
		opts.now = time.Now //nolint:forbidigo // how long ago a run was heard of, not a stamp
	}
	m := &merger{dir: d, opts: opts}
	// A timeline of a later gswarm is not replaced.
	var newer *shard.NewerError
	if _, err := ReadMeta(d); errors.As(err, &newer) {
		return nil, fmt.Errorf("merging %s: %w, or remove it", d, err)
	}
	if err := m.readRun(); err != nil {
		return nil, err
	}
	if err := m.scan(); err != nil {
		return nil, err
	}
	if err := m.fit(); err != nil {
		return nil, err
	}
	m.plan()
	return m, nil
}

func (m *merger) miss(code Code, node, detail string) {
	m.missing = append(m.missing, Missing{Code: code, Node: node, Detail: detail})
}

func (m *merger) close() {
	for _, n := range m.nodes {
		n.data.Close()
	}
}

// readRun reads run.yaml and refuses a run that goes on.
func (m *merger) readRun() error {
	var newer *rundir.NewerError
	run, err := rundir.ReadRun(m.dir)
	switch {
	case errors.As(err, &newer):
		return fmt.Errorf("merging %s: %w", m.dir, err)
	case errors.Is(err, fs.ErrNotExist):
		m.miss(RunUnreadable, "", "run.yaml is not there; what it says of the job is lost, the nodes' data is not")
	case err != nil:
		m.miss(RunUnreadable, "", strings.ReplaceAll(err.Error(), string(m.dir)+"/", ""))
	}
	if err != nil || run == nil {
		run = &rundir.Run{}
	}
	m.run = run
	m.tile = int64(run.Tile)
	if m.tile <= 0 {
		m.tile = int64(defaultTile)
	}
	alive, err := m.dir.Alive(m.opts.now())
	if err != nil {
		return fmt.Errorf("merging %s: %w", m.dir, err)
	}
	if len(alive) > 0 {
		if !m.opts.Partial {
			return &RunningError{Dir: string(m.dir), Nodes: alive}
		}
		for _, n := range alive {
			m.miss(Running, n, "its agent still writes; this is what was there at the time")
		}
	} else {
		if m.run.Scheduler.Position == "front" && m.run.End == nil {
			m.miss(RunCut, "", "run.yaml has no end: wrap was killed, and how the job ended is not known")
		}
		// A head that was killed could not remove its key.
		os.Remove(m.dir.HeadFile())
	}
	return nil
}

// sortMissing puts what is missing into an order that depends on the data
// alone.
func (m *merger) sortMissing() {
	sort.SliceStable(m.missing, func(i, j int) bool {
		a, b := m.missing[i], m.missing[j]
		if a.Node != b.Node {
			return a.Node < b.Node
		}
		if a.Code != b.Code {
			return a.Code < b.Code
		}
		return a.Detail < b.Detail
	})
	sort.Strings(m.notes)
	m.notes = slices.Compact(m.notes)
}

// progress reports rows of a table as done.
func (m *merger) progress(t *table.Table, rows int64) {
	m.done += rows
	if m.opts.Progress != nil {
		m.opts.Progress(Progress{Table: t.Name, Rows: m.done, Total: m.total})
	}
}
