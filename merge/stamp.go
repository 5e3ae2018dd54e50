package merge

import (
	"math"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// stamper says when row i of a shard happened on the node's raw clock, and
// within how many nanoseconds of that, the clock model's own bound apart. Known
// is false where nothing bounds it: the row is laid there and has no bound.
type stamper func(b *table.Batch, i int) (raw clock.NodeTime, within int64, known bool)

// stamperOf chooses how rows are stamped; src is the table, or has some of its
// columns. A table whose rows carry another clock's stamp says so itself.
func stamperOf(n *node, src *table.Table) stamper {
	if f := src.Foreign; f.Column != "" && f.Clock == table.Realtime {
		return wallStamps(n, src.Index(f.Column), f.UnitNS)
	}
	return ownStamps
}

// ownStamps are those that the agent took itself: the value was read somewhere
// within the read, of which t_raw_ns is the middle.
func ownStamps(b *table.Batch, i int) (clock.NodeTime, int64, bool) {
	return clock.NodeTime(b.Ints(table.ColT)[i]), (b.Ints(table.ColRead)[i] + 1) / 2, true
}

// wallStamps are those in the given column, in units of the node's wall clock,
// which the node's brackets tie to its raw clock. Where a stamp cannot be
// carried over, because it is null or falls into a step of the wall clock, the
// row is laid where it was read and has no bound: how long it waited in somebody
// else's buffer is not known.
func wallStamps(n *node, column int, unit int64) stamper {
	wall := n.model.Wall()
	return func(b *table.Batch, i int) (clock.NodeTime, int64, bool) {
		stamp := b.Ints(column)[i]
		if b.Valid(column)[i] && stamp <= math.MaxInt64/unit && stamp >= math.MinInt64/unit {
			// A stamp of a unit is of an instant within that unit.
			if raw, within, ok := wall.Raw(stamp * unit); ok {
				return raw, within + unit, true
			}
		}
		return clock.NodeTime(b.Ints(table.ColT)[i]), 0, false
	}
}

// corrected returns the columns of src that the merge looks at, in the form of
// a table, and the names of the timeline's columns that come out of them. All
// other columns are the same in both.
func corrected(n *node, src *table.Table) (sub *table.Table, names []string) {
	sub = &table.Table{Name: src.Name, Shape: src.Shape, Foreign: src.Foreign, Columns: src.Columns[:table.ColBegin:table.ColBegin]}
	names = []string{table.Time, table.TimeNS, table.TimeBound, table.Node}
	if src.Shape == table.Windowed {
		sub.Columns = src.Columns[: table.ColBegin+1 : table.ColBegin+1]
		names = append(names, table.TimeBegin)
	}
	if src.Foreign.Column != "" {
		sub.Columns = append(sub.Columns, src.Columns[src.Index(src.Foreign.Column)])
	}
	if at := src.Index(gpuColumn); at >= 0 && n.renumbered {
		sub.Columns = append(sub.Columns, src.Columns[at])
		names = append(names, gpuColumn)
	}
	return sub, names
}
