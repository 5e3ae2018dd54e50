package shard

import (
	"errors"
	"fmt"
)

// ErrNotSpool says that a file holds nothing that a spool would hold.
var ErrNotSpool = errors.New("not a gswarm spool")

// ErrNotShard says that a file is not a Parquet file of gswarm's.
var ErrNotShard = errors.New("not a gswarm Parquet file")

// CorruptError says where a file is damaged.
type CorruptError struct {
	Path   string
	Offset int64
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.Path, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// NewerError says that a file was written by a later gswarm.
type NewerError struct {
	Path      string
	Have, Max int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, this gswarm reads up to %d: use the gswarm that wrote it, or a newer one", e.Path, e.Have, e.Max)
}

// LossCode says in which way something was lost. The codes are part of the
// format.
type LossCode string

// The loss codes. docs/format.md explains each.
const (
	TornTail     LossCode = "torn_tail"     // the end of a spool was never completely written
	CorruptSpool LossCode = "corrupt_spool" // a stretch within a spool does not verify
	NotWritten   LossCode = "not_written"   // the agent could not write these rows
	CorruptShard LossCode = "corrupt_shard" // a Parquet file does not verify
	MissingShard LossCode = "missing_shard" // a Parquet file that was sealed is gone
	ForeignFile  LossCode = "foreign_file"  // a file of another node or of another program
	NewerVersion LossCode = "newer_version" // a file of a later gswarm
	Unreadable   LossCode = "unreadable"    // the operating system refused to read it
)

// Loss is a stretch of data that is not there any more, or cannot be read.
// What is lost is counted wherever that is possible.
type Loss struct {
	Code LossCode `json:"code" yaml:"code"`
	// File is the file's name within the node's directory.
	File string `json:"file" yaml:"file"`
	// Table is the table concerned, empty where it is not known or more
	// than one.
	Table string `json:"table,omitempty" yaml:"table,omitempty"`
	// Offset and Bytes say which part of the file.
	Offset int64 `json:"offset" yaml:"offset"`
	Bytes  int64 `json:"bytes" yaml:"bytes"`
	// Rows is how many rows were lost, -1 where nobody can tell.
	Rows   int64  `json:"rows" yaml:"rows"`
	Detail string `json:"detail,omitempty" yaml:"detail,omitempty"`
}

func (l Loss) String() string {
	s := fmt.Sprintf("%s: %s", l.File, l.Code)
	if l.Rows >= 0 {
		s += fmt.Sprintf(", %d rows lost", l.Rows)
	}
	if l.Bytes > 0 {
		s += fmt.Sprintf(", %d bytes at %d", l.Bytes, l.Offset)
	}
	if l.Detail != "" {
		s += ": " + l.Detail
	}
	return s
}

// guard turns a panic of a decoder into an error: a library's decoder may meet
// any bytes, and none of them may end the program.
func guard(err *error) {
	if r := recover(); r != nil {
		if e, ok := r.(error); ok {
			*err = fmt.Errorf("decoding: %w", e)
			return
		}
		*err = fmt.Errorf("decoding: %v", r)
	}
}
