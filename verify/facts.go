package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// facts is what a node's own events, absences and sampler rows say of it.
type facts struct {
	// begin and end are the node's life: from its first agent's start to its
	// last word, or to when its death was noticed.
	begin, end int64
	known      bool
	clean      bool // its last agent ended by itself
	// interval is how often each table's rows are due.
	interval map[string]int64
	// absent are the stretches that absence rows cover.
	absent map[absentKey][]stretch
	// delivered counts rows by source, dropped those that the agents counted
	// as dropped.
	delivered   map[string]int64
	fedBy       map[string][]string // tables by source
	dropped     int64
	lastDropped int64
	started     map[int64]bool
	ended       map[int64]bool
	size        int64
}

type absentKey struct{ table, column, key string }

// stretch is a stretch of absence. Adjoining pieces of one reason are joined.
type stretch struct {
	begin, end int64
	reason     string
}

// extendEvery is how often an agent writes open absences again. One that is
// killed has not written the last piece.
const extendEvery = int64(61e9)

func newFacts() facts {
	return facts{
		interval: make(map[string]int64), absent: make(map[absentKey][]stretch),
		delivered: make(map[string]int64), fedBy: make(map[string][]string),
		started: make(map[int64]bool), ended: make(map[int64]bool),
	}
}

// live extends the node's life to an instant.
func (f *facts) live(t int64) {
	if !f.known {
		f.begin, f.end, f.known = t, t, true
	}
	f.begin, f.end = min(f.begin, t), max(f.end, t)
}

// gather reads one of the tables that tell of others.
func (v *verifier) gather(ctx context.Context, t *table.Table) error {
	take := map[*table.Table]func(*table.Batch){
		table.Event: v.events, table.Absence: v.absences, table.Sampler: v.samplers,
	}[t]
	return v.read(ctx, t, func(b *table.Batch) error {
		take(b)
		return nil
	})
}

// read passes a table's rows to fn, file by file. A file that cannot be read
// after all is a finding.
func (v *verifier) read(ctx context.Context, t *table.Table, fn func(*table.Batch) error) error {
	tl := table.Timeline(t)
	for _, f := range v.good[t.Name] {
		var rows int64
		err := shard.ReadParquet(filepath.Join(v.dir.Timeline(), filepath.FromSlash(f.Name)), tl, func(b *table.Batch) error {
			rows += int64(b.Rows())
			if err := ctx.Err(); err != nil {
				return err
			}
			return fn(b)
		})
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			return err
		case err != nil:
			v.find(Finding{Code: Code(shard.CorruptShard), Incomplete: true, Table: t.Name, File: "timeline/" + f.Name, Detail: cause(err)})
		case rows != f.Rows:
			v.find(Finding{Code: RowCount, Incomplete: true, Table: t.Name, File: "timeline/" + f.Name, Count: f.Rows - rows, Detail: "it has not the rows that the merge wrote"})
		}
	}
	return nil
}

// own returns the index in the timeline of a column of a shard.
func own(t *table.Table, col int) int {
	if t.Shape == table.Windowed {
		return col - (table.ColBegin + 1) + table.TLBegin + 1
	}
	return col - table.ColBegin + table.TLBegin
}

func (v *verifier) events(b *table.Batch) {
	kind, rank, detail := b.Strings(own(table.Event, table.EventKind)), own(table.Event, table.EventRank), b.Strings(own(table.Event, table.EventDetail))
	for r, name := range b.Strings(table.TLNode) {
		n := v.nodes[name]
		if n == nil {
			continue
		}
		f, at := &n.facts, b.Ints(table.TLTimeNS)[r]
		f.live(at)
		switch kind[r] {
		case "agent_start":
			f.clean = false
			var d struct{ Version string }
			if json.Unmarshal([]byte(detail[r]), &d) == nil && d.Version != "" {
				v.versions[d.Version] = true
			}
		case "agent_end":
			f.clean = true
		case "source_start":
			var d struct {
				Source   string   `json:"source"`
				Interval int64    `json:"interval_ns"`
				Tables   []string `json:"tables"`
			}
			if json.Unmarshal([]byte(detail[r]), &d) != nil || d.Interval <= 0 {
				continue
			}
			f.fedBy[d.Source] = d.Tables
			for _, t := range d.Tables {
				f.interval[t] = max(f.interval[t], d.Interval)
			}
		case "rank_start":
			var d struct{ Size int64 }
			if json.Unmarshal([]byte(detail[r]), &d) == nil {
				f.size = max(f.size, d.Size)
			}
			f.started[b.Ints(rank)[r]] = true
		case "rank_exit":
			f.ended[b.Ints(rank)[r]] = true
		case "spool_error", "spool_recovered", "spool_lost", "seal_error", "meta_error":
			v.find(Finding{Code: Disk, Node: n.Node.Node, Key: kind[r], BeginNS: at, EndNS: at, Detail: detail[r]})
		}
	}
}

func (v *verifier) absences(b *table.Batch) {
	col := func(c int) []string { return b.Strings(own(table.Absence, c)) }
	tables, columns, keys, reasons := col(table.AbsTable), col(table.AbsColumn), col(table.AbsKey), col(table.AbsReason)
	begins, ends := b.Ints(table.TLBegin), b.Ints(table.TLTimeNS)
	for r, name := range b.Strings(table.TLNode) {
		n := v.nodes[name]
		if n == nil {
			continue
		}
		n.facts.live(ends[r])
		k := absentKey{tables[r], columns[r], keys[r]}
		s := stretch{begins[r], ends[r], reasons[r]}
		list := n.facts.absent[k]
		// Pieces of one absence follow each other; what other absences lie
		// between them does not matter here.
		if i := len(list) - 1; i >= 0 && list[i].reason == s.reason && s.begin <= list[i].end+int64(1e6) && s.begin >= list[i].begin {
			list[i].end = max(list[i].end, s.end)
			continue
		}
		n.facts.absent[k] = append(list, s)
	}
}

func (v *verifier) samplers(b *table.Batch) {
	col := func(c int) []int64 { return b.Ints(own(table.Sampler, c)) }
	source := b.Strings(own(table.Sampler, table.SamSource))
	rows, dropped := col(table.SamRows), col(table.SamDroppedRows)
	for r, name := range b.Strings(table.TLNode) {
		n := v.nodes[name]
		if n == nil {
			continue
		}
		f := &n.facts
		f.live(b.Ints(table.TLTimeNS)[r])
		if source[r] != "agent" {
			f.delivered[source[r]] += rows[r]
			continue
		}
		// It counts from each agent's start.
		if d := dropped[r]; d < f.lastDropped {
			f.dropped += d
		} else {
			f.dropped += d - f.lastDropped
		}
		f.lastDropped = dropped[r]
	}
}

// settle makes the facts ready to be asked.
func (f *facts) settle() {
	f.interval[table.Sampler.Name] = int64(1e9)
	for k, list := range f.absent {
		slices.SortStableFunc(list, func(a, b stretch) int { return cmp.Compare(a.begin, b.begin) })
		f.absent[k] = list
	}
}

// why returns the reason of an absence of whole rows that touches a gap.
func (f *facts) why(t, key string, begin, end, slack int64) (string, bool) {
	for _, k := range []absentKey{{t, "", key}, {t, "", ""}} {
		for _, s := range after(f.absent[k], begin-slack) {
			if s.begin > end+slack {
				break
			}
			if s.end >= begin-slack {
				return s.reason, true
			}
		}
	}
	return "", false
}

// covers reports whether an absence covers a null at an instant.
func (f *facts) covers(k absentKey, t, slack int64) bool {
	for _, k := range []absentKey{k, {k.table, "", k.key}, {k.table, k.column, ""}, {k.table, "", ""}} {
		for _, s := range after(f.absent[k], t-slack) {
			if s.begin > t+slack {
				break
			}
			if t <= s.end+slack {
				return true
			}
		}
	}
	return false
}

// after returns the stretches from the last that begins before t on, with the
// one before it, which may reach further.
func after(list []stretch, t int64) []stretch {
	i, _ := slices.BinarySearchFunc(list, t, func(s stretch, t int64) int { return cmp.Compare(s.begin, t) })
	return list[max(0, i-2):]
}
