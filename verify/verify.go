// Package verify certifies a run's dataset: it says, node by node and table by
// table, how many rows there should be and how many there are, what is missing
// and why, and whether what is there is what was written.
//
// It reads the run directory as any other program could, and changes nothing.
// Memory stays bounded: files are read one row group at a time, and what is
// kept are intervals and counts.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
)

// Code says what was found. The codes are part of the format; docs/verify.md
// explains each. Those of merge.Missing and shard.Loss appear as they are.
type Code string

// The codes that are verify's own.
const (
	// Of files.
	FileMissing   Code = "file_missing"  // a file of the timeline is not there
	FileChanged   Code = "file_changed"  // a file is not the one that was merged
	FileUnlisted  Code = "file_unlisted" // a file that the merge did not write
	FileUnread    Code = "file_unreadable"
	RowCount      Code = "row_count"      // a file has not the rows that it should have
	TimelineStale Code = "timeline_stale" // the shards hold what the timeline lacks
	ShardsGone    Code = "shards_gone"    // only the timeline is left
	MetaUnread    Code = "meta_unreadable"
	// Of columns.
	SchemaType   Code = "schema_type"
	SchemaUnit   Code = "schema_unit"
	SchemaColumn Code = "schema_column"
	// Of rows.
	Gap         Code = "gap"              // rows are missing and nothing says why
	Absent      Code = "absent"           // rows are missing for the reason given
	Duplicate   Code = "duplicate"        // a row is there twice
	OutOfOrder  Code = "out_of_order"     // time runs backwards
	NullNoWhy   Code = "null_unexplained" // a value is null and nothing says why
	Unaccounted Code = "rows_unaccounted" // the sampler delivered rows that are not there
	Disk        Code = "spool_trouble"    // the agent met trouble with its disk
	// Of clocks.
	BoundMissing    Code = "bound_missing"
	BoundImpossible Code = "bound_impossible"
	TimeMismatch    Code = "time_mismatch"
	Contradiction   Code = "clock_contradiction"
	// Of the job.
	RankMissing Code = "rank_missing"
	RankNoEnd   Code = "rank_end_unknown"
	RunNoEnd    Code = "run_end_unknown"
	Versions    Code = "versions_differ"
)

// Finding is one thing that was found. Findings of one code about the same
// table, column and key of a node are one.
type Finding struct {
	Code Code `json:"code"`
	// Incomplete findings make the dataset incomplete; others are worth
	// knowing.
	Incomplete bool   `json:"incomplete"`
	Node       string `json:"node,omitempty"`
	Table      string `json:"table,omitempty"`
	Column     string `json:"column,omitempty"`
	Key        string `json:"key,omitempty"`
	File       string `json:"file,omitempty"`
	// Reason is a reason of absence, where Code is absent.
	Reason string `json:"reason,omitempty"`
	// Count is how many rows, values or ticks are concerned, over Times
	// stretches.
	Count int64 `json:"count,omitempty"`
	Times int64 `json:"times,omitempty"`
	// BeginNS and EndNS are the first and the last instant concerned.
	BeginNS int64  `json:"begin_ns,omitempty"`
	EndNS   int64  `json:"end_ns,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Node is what a node should have given, and gave.
type Node struct {
	Node    string `json:"node"`
	BeginNS int64  `json:"begin_ns"`
	EndNS   int64  `json:"end_ns"`
	// Clock is how the node came to cluster time; BoundMaxNS is the worst
	// bound of its rows, absent where it is unaligned.
	Clock      string      `json:"clock"`
	BoundMaxNS *int64      `json:"bound_max_ns,omitempty"`
	Tables     []*Coverage `json:"tables"`
}

// Coverage is what a table of a node should hold, and holds.
type Coverage struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
	// IntervalNS is how often rows of each key were due, 0 where they come
	// as things happen; then nothing was expected.
	IntervalNS int64 `json:"interval_ns,omitempty"`
	Keys       int   `json:"keys,omitempty"`
	// Expected is the rows there are, those that are missing and nobody
	// knows why, and those that are absent for a reason.
	Expected int64            `json:"expected,omitempty"`
	Missing  int64            `json:"missing,omitempty"`
	Absent   map[string]int64 `json:"absent,omitempty"`
	Tiles    int              `json:"tiles"`
	// Lacking are the tiles that lack rows; LackingMore counts those that
	// are left out of the list.
	Lacking     []Tile `json:"lacking,omitempty"`
	LackingMore int    `json:"lacking_more,omitempty"`

	tiles tileRows
}

// Tile is one tile of a table of a node that lacks rows.
type Tile struct {
	BeginNS int64 `json:"begin_ns"`
	Rows    int64 `json:"rows"`
	Missing int64 `json:"missing"`
}

// Report is what verify found.
type Report struct {
	Dir    string `json:"dir"`
	Format int    `json:"format"`
	// Complete is set where no finding is an incomplete one.
	Complete  bool  `json:"complete"`
	Rows      int64 `json:"rows"`
	Files     int   `json:"files"`
	Shards    int   `json:"shards"`
	Bytes     int64 `json:"bytes"`
	TileNS    int64 `json:"tile_ns"`
	NodesSeen int   `json:"nodes_seen"`
	// NodesExpected is how many the run was to sample, 0 where it does not
	// say.
	NodesExpected int       `json:"nodes_expected"`
	RanksSeen     int       `json:"ranks_seen"`
	RanksExpected int       `json:"ranks_expected"`
	Nodes         []*Node   `json:"nodes"`
	Findings      []Finding `json:"findings"`
	// FindingsMore counts findings that were too many to list, by code.
	FindingsMore map[Code]int64 `json:"findings_more,omitempty"`
}

// Options are what a caller may choose.
type Options struct {
	// Allow is the share of a table's expected rows that a node may lack
	// for reasons of the moment (a late tick, a failed call) and still count
	// as complete. What a second of ticks holds is always allowed.
	Allow float64
	// Progress, if set, is handed to the merge where one is needed.
	Progress func(merge.Progress)
}

// DefaultAllow is the share of missing rows that a loaded node is forgiven.
const DefaultAllow = 0.01

// Run verifies the run in dir; it merges first where there is no timeline.
func Run(ctx context.Context, dir string, opts Options) (*Report, error) {
	d := rundir.Dir(dir)
	meta, err := merge.ReadMeta(d)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := merge.Run(ctx, dir, merge.Options{Progress: opts.Progress}); err != nil {
			return nil, err
		}
		meta, err = merge.ReadMeta(d)
	}
	if err != nil {
		return nil, fmt.Errorf("verifying %s: %w", dir, err)
	}
	v := newVerifier(d, meta, opts)
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("verifying %s: %w", dir, err)
	}
	return v.finish(), nil
}
