package rankagent

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// A dataset says itself how often its rows were due, so that whoever checks it
// later needs nothing else: each source's first rows come with an event of kind
// source_start, and ticks that it missed with a row of absence.

// sourceStart is the detail of an event of kind source_start.
type sourceStart struct {
	Source   string   `json:"source"`
	Interval int64    `json:"interval_ns"`
	Tables   []string `json:"tables"`
}

// gapTicks is how many intervals may lie between two readings before the ticks
// between them count as missed: a tick may be late by one and the next early.
const gapTicks = 2.5

// feed is one table that a source has delivered rows of.
type feed struct {
	table *table.Table
	// key is the first key's value where all rows have the same.
	key string
}

// account writes down which tables a source feeds, and what it missed since its
// last reading.
func (r *runner) account(begin clock.NodeTime) {
	last := r.lastRead
	r.missed(begin)
	known := len(r.feeds)
	for _, b := range r.out.batches {
		if happens(b.Table) {
			continue
		}
		if b.Rows() > 0 && !slices.ContainsFunc(r.feeds, func(f feed) bool { return f.table == b.Table }) {
			r.feeds = append(r.feeds, feed{b.Table, commonKey(b)})
		}
	}
	// A source that may be silent is announced before its first row.
	_, quiet := r.src.(Quiet)
	if len(r.feeds) == known && (!quiet || last != 0) {
		return
	}
	d := sourceStart{Source: r.src.Name(), Interval: int64(r.interval), Tables: []string{}}
	for _, f := range r.feeds {
		d.Tables = append(d.Tables, f.table.Name)
	}
	r.out.c.event(begin, "source_start", -1, -1, d)
}

// missed writes down the ticks that were missed between the last reading and
// the one that begins, or the end.
func (r *runner) missed(begin clock.NodeTime) {
	last := r.lastRead
	r.lastRead = begin
	if gap := begin - last; last != 0 && float64(gap) > gapTicks*float64(r.interval) {
		missed := int64(float64(gap)/float64(r.interval)+0.5) - 1
		for _, f := range r.feeds {
			// A window only gets longer where a tick was missed.
			// What is stamped by others waits in their buffer; the source
			// says what was lost there.
			if f.table.Shape == table.Polled && f.table.Foreign.Column == "" {
				r.out.c.absentFor(f.table, f.key, last, begin, NotSampled, fmt.Sprintf("%d ticks were missed", missed))
			}
		}
	}
}

// commonKey returns the first key's value where all rows have the same, else
// nothing.
func commonKey(b *table.Batch) string {
	if len(b.Table.Keys) == 0 {
		return ""
	}
	col := b.Table.Index(b.Table.Keys[0])
	if b.Table.Columns[col].Type == table.String {
		return common(b.Strings(col), func(v string) string { return v })
	}
	return common(b.Ints(col), func(v int64) string { return strconv.FormatInt(v, 10) })
}

func common[T comparable](values []T, text func(T) string) string {
	for _, v := range values[1:] {
		if v != values[0] {
			return ""
		}
	}
	return text(values[0])
}

// happens says whether rows of a table come as things happen, whoever writes
// them: no source owes any.
func happens(t *table.Table) bool { return t == table.Event || t == table.Absence }
