package plant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// Tile is the stretch of the timeline after which the next node's rows begin,
// as in a timeline that was merged by default.
const Tile = 5 * time.Minute

// Source is a run's timeline in memory.
type Source struct {
	tables map[string]*rows
}

var _ analysis.Source = (*Source)(nil)

// rows are those of one table: a batch in the timeline's form for each node,
// in order of time once sorted.
type rows struct {
	form  *table.Table
	nodes []string
	of    map[string]*table.Batch
}

// newSource returns a source without rows.
func newSource() *Source { return &Source{tables: map[string]*rows{}} }

// batch returns the rows of a node in a table, in the timeline's form.
func (s *Source) batch(t *table.Table, node string) *table.Batch {
	r := s.tables[t.Name]
	if r == nil {
		r = &rows{form: table.Timeline(t), of: map[string]*table.Batch{}}
		s.tables[t.Name] = r
	}
	b := r.of[node]
	if b == nil {
		b = table.NewBatch(r.form, 0)
		r.of[node] = b
		r.nodes = append(r.nodes, node)
		slices.Sort(r.nodes)
	}
	return b
}

// stamp is the time of a row on the timeline. A bound below zero is unknown.
type stamp struct{ t, read, bound int64 }

// add appends a row with its time columns set.
func (s *Source) add(t *table.Table, node string, at stamp) table.Row {
	r := s.batch(t, node).Append()
	r.Int(table.TLTime, at.t/1000)
	r.Int(table.TLTimeNS, at.t)
	if at.bound >= 0 {
		r.Int(table.TLBound, at.bound)
	}
	r.String(table.TLNode, node)
	r.Int(table.TLRead, at.read)
	return r
}

// own is the index in the timeline's form of a table's own column: the
// timeline has three time columns more, in windowed tables as in polled ones.
func own(col int) int { return col + table.TLRead + 1 - table.ColBegin }

// sort puts the rows of each node in order of time.
func (s *Source) sort() {
	for _, r := range s.tables {
		for node, b := range r.of {
			r.of[node] = sorted(b)
		}
	}
}

func sorted(b *table.Batch) *table.Batch {
	times := b.Ints(table.TLTimeNS)
	order := make([]int32, b.Rows())
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(i, j int32) int { return int(min(1, max(-1, times[i]-times[j]))) })
	from := make([]*table.Batch, len(order))
	for i := range from {
		from[i] = b
	}
	out := table.NewBatch(b.Table, b.Rows())
	out.Gather(from, order)
	return out
}

// Len returns the number of rows of a table.
func (s *Source) Len(t *table.Table) int {
	n := 0
	if r := s.tables[t.Name]; r != nil {
		for _, b := range r.of {
			n += b.Rows()
		}
	}
	return n
}

// Node returns the rows of a node in a table, in the timeline's form and in
// order of time, nil where there are none. The caller must not change them.
func (s *Source) Node(t *table.Table, node string) *table.Batch {
	if r := s.tables[t.Name]; r != nil {
		return r.of[node]
	}
	return nil
}

// batchRows is how many rows travel at once.
const batchRows = 4096

// Rows passes the rows as analysis.Source says.
func (s *Source) Rows(ctx context.Context, t *table.Table, columns []int, fn func(*table.Batch) error) error {
	r := s.tables[t.Name]
	if r == nil {
		return nil
	}
	for _, c := range columns {
		if c < 0 || c >= len(r.form.Columns) {
			return fmt.Errorf("table %s has no column %d in its timeline's form", t.Name, c)
		}
	}
	pos := map[string]int{}
	for {
		tile, more := r.nextTile(pos)
		if !more {
			return nil
		}
		for _, node := range r.nodes {
			b := r.of[node]
			times := b.Ints(table.TLTimeNS)
			for pos[node] < b.Rows() && times[pos[node]]/int64(Tile) == tile {
				from := pos[node]
				to := from
				for to < b.Rows() && to-from < batchRows && times[to]/int64(Tile) == tile {
					to++
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := fn(only(b, columns, from, to)); err != nil {
					return err
				}
				pos[node] = to
			}
		}
	}
}

// nextTile is the earliest tile of which rows have not been passed.
func (r *rows) nextTile(pos map[string]int) (tile int64, more bool) {
	for _, node := range r.nodes {
		b := r.of[node]
		if pos[node] == b.Rows() {
			continue
		}
		if k := b.Ints(table.TLTimeNS)[pos[node]] / int64(Tile); !more || k < tile {
			tile, more = k, true
		}
	}
	return tile, more
}

// only copies the rows [from, to) with the columns asked for; the others are
// null.
func only(b *table.Batch, columns []int, from, to int) *table.Batch {
	out := table.NewBatch(b.Table, to-from)
	out.AppendNulls(to - from)
	for _, c := range columns {
		copy(out.Valid(c), b.Valid(c)[from:to])
		switch b.Table.Columns[c].Type {
		case table.String:
			copy(out.Strings(c), b.Strings(c)[from:to])
		case table.Float32, table.Float64:
			copy(out.Floats(c), b.Floats(c)[from:to])
		default:
			copy(out.Ints(c), b.Ints(c)[from:to])
		}
	}
	return out
}
