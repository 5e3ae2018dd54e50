package merge

import (
	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// stamper says when row i of a shard happened on the node's raw clock, and
// within how many nanoseconds of that, the clock model's own bound apart. Known
// is false where nothing bounds it: the row is laid there and has no bound.
type stamper func(b *table.Batch, i int) (raw clock.NodeTime, within int64, known bool)

// stamperOf chooses how the rows of a table are stamped. A table whose rows
// carry the stamp of another clock, such as a driver's, has a case here; all
// that follows takes its rows like any other's.
func stamperOf(_ *node, src *table.Table) stamper {
	switch src.Name {
	// case table.X.Name: return wallStamps(n, table.XStamp)
	default:
		return ownStamps
	}
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
