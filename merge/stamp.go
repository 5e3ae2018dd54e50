package merge

import (
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// stamper says when row i of a shard happened on the node's raw clock, and
// within how many nanoseconds of that, the clock model's own bound apart. Known
// is false where nothing bounds it: the row is laid there and has no bound.
type stamper func(b *table.Batch, i int) (raw clock.NodeTime, within int64, known bool)

// wallStamped names, by table, the column that holds a stamp of the node's wall
// clock, such as a driver's: it says when the row happened, and the agent's own
// stamp only when it was fetched. All that follows takes such rows like any
// other's.
var wallStamped = map[string]string{}

// stamperOf chooses how rows are stamped; b is of the given table or has some
// of its columns.
func stamperOf(n *node, src *table.Table) stamper {
	if name, ok := wallStamped[src.Name]; ok {
		return wallStamps(n, src.Index(name))
	}
	return ownStamps
}

// ownStamps are those that the agent took itself: the value was read somewhere
// within the read, of which t_raw_ns is the middle.
func ownStamps(b *table.Batch, i int) (clock.NodeTime, int64, bool) {
	return clock.NodeTime(b.Ints(table.ColT)[i]), (b.Ints(table.ColRead)[i] + 1) / 2, true
}

// wallStamps are those in the given column, nanoseconds of the node's wall
// clock, which the node's brackets tie to its raw clock. A row whose stamp is
// null, or that falls into a step of the wall clock, is laid where it was read.
func wallStamps(n *node, column int) stamper {
	wall := n.model.Wall()
	return func(b *table.Batch, i int) (clock.NodeTime, int64, bool) {
		if b.Valid(column)[i] {
			if raw, within, ok := wall.Raw(b.Ints(column)[i]); ok {
				return raw, within, true
			}
		}
		return clock.NodeTime(b.Ints(table.ColT)[i]), 0, false
	}
}

// corrected returns the columns of src that the merge looks at, in the form of
// a table, and the names of the timeline's columns that come out of them. All
// other columns are the same in both.
func corrected(n *node, src *table.Table) (sub *table.Table, names []string) {
	sub = &table.Table{Name: src.Name, Shape: src.Shape, Columns: src.Columns[:table.ColBegin:table.ColBegin]}
	names = []string{table.Time, table.TimeNS, table.TimeBound, table.Node}
	if src.Shape == table.Windowed {
		sub.Columns = src.Columns[: table.ColBegin+1 : table.ColBegin+1]
		names = append(names, table.TimeBegin)
	}
	if name, ok := wallStamped[src.Name]; ok {
		sub.Columns = append(sub.Columns, src.Columns[src.Index(name)])
	}
	if at := src.Index(gpuColumn); at >= 0 && n.renumbered {
		sub.Columns = append(sub.Columns, src.Columns[at])
		names = append(names, gpuColumn)
	}
	return sub, names
}
