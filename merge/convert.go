package merge

import (
	"cmp"
	"math"
	"slices"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// converter turns a node's rows into rows of the timeline.
type converter struct {
	node     *node
	src, dst *table.Table
	stamps   stamper
	out      *table.Batch
	// own is where the table's own columns begin, in src and in dst.
	ownSrc, ownDst int
	// gpu is the column of GPU ordinals in dst, or -1.
	gpu int
}

func newConverter(n *node, src, dst *table.Table) *converter {
	c := &converter{
		node: n, src: src, dst: dst, stamps: stamperOf(n, src), out: table.NewBatch(dst, 0),
		ownSrc: table.ColBegin, ownDst: table.TLBegin, gpu: dst.Index(gpuColumn),
	}
	if src.Shape == table.Windowed {
		c.ownSrc, c.ownDst = table.ColBegin+1, table.TLBegin+1
	}
	return c
}

// convert returns b's rows on the reference clock, valid until the next call.
func (c *converter) convert(b *table.Batch) *table.Batch {
	n := b.Rows()
	c.out.Reset()
	c.out.AppendNulls(n)
	c.times(b)
	for i := c.ownSrc; i < len(c.src.Columns); i++ {
		o := i - c.ownSrc + c.ownDst
		copy(c.out.Valid(o), b.Valid(i))
		switch c.src.Columns[i].Type {
		case table.String:
			copy(c.out.Strings(o), b.Strings(i))
		case table.Float32, table.Float64:
			copy(c.out.Floats(o), b.Floats(i))
		default:
			copy(c.out.Ints(o), b.Ints(i))
		}
	}
	if c.gpu >= 0 {
		c.node.renumber(c.out.Ints(c.gpu), c.out.Valid(c.gpu))
	}
	return c.out
}

func (c *converter) times(b *table.Batch) {
	raw, read := b.Ints(table.ColT), b.Ints(table.ColRead)
	micros, nanos := c.out.Ints(table.TLTime), c.out.Ints(table.TLTimeNS)
	bounds, bounded := c.out.Ints(table.TLBound), c.out.Valid(table.TLBound)
	names, reads := c.out.Strings(table.TLNode), c.out.Ints(table.TLRead)
	for i, r := range raw {
		within, known := (read[i]+1)/2, true
		if c.src.Foreign.Column != "" {
			// Where the stamp cannot be carried over, the row is laid where
			// it was read and has no bound: how long it waited in somebody
			// else's buffer is not known.
			if r, within, known = c.foreign(b, i); !known {
				r = raw[i]
			}
		}
		t, bound, aligned := c.node.model.At(clock.NodeTime(r))
		nanos[i] = int64(t)
		// Towards the past, also before 1970, so that time never is later
		// than time_ns.
		micros[i] = floorDiv(int64(t), 1000)
		if aligned && known {
			// The value was read somewhere within the read, of which
			// t_raw_ns is the middle.
			bounds[i], bounded[i] = bound+within, true
		}
		names[i], reads[i] = c.node.machine, read[i]
	}
	for _, col := range []int{table.TLTime, table.TLTimeNS, table.TLNode, table.TLRead} {
		fill(c.out.Valid(col))
	}
	if c.src.Shape == table.Windowed {
		begins := c.out.Ints(table.TLBegin)
		for i, r := range b.Ints(table.ColBegin) {
			t, _, _ := c.node.model.At(clock.NodeTime(r))
			begins[i] = int64(t)
		}
		fill(c.out.Valid(table.TLBegin))
	}
}

// foreign returns when a row's foreign stamp was made on the node's raw clock,
// within how much, by the brackets in which both clocks were read.
func (c *converter) foreign(b *table.Batch, i int) (raw, within int64, ok bool) {
	col := c.src.Index(c.src.Foreign.Column)
	if c.src.Foreign.Clock != table.Realtime || !b.Valid(col)[i] {
		return 0, 0, false
	}
	unit := c.src.Foreign.UnitNS
	stamp := b.Ints(col)[i]
	if stamp > math.MaxInt64/unit || stamp < math.MinInt64/unit {
		return 0, 0, false
	}
	at, bound, ok := c.node.model.Wall().Raw(stamp * unit)
	// A stamp of a unit is of an instant within that unit.
	return int64(at), bound + unit, ok
}

func fill(b []bool) {
	for i := range b {
		b[i] = true
	}
}

// sortByTime returns the rows in the order of their time, rows of one time in
// the order in which they came; b itself where it is in order.
func sortByTime(b *table.Batch) *table.Batch {
	times := b.Ints(table.TLTimeNS)
	if slices.IsSorted(times) {
		return b
	}
	order := make([]int32, len(times))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(times[x], times[y]) })
	out := table.NewBatch(b.Table, len(times))
	out.AppendNulls(len(times))
	for i, c := range b.Table.Columns {
		gather(out.Valid(i), b.Valid(i), order)
		switch c.Type {
		case table.String:
			gather(out.Strings(i), b.Strings(i), order)
		case table.Float32, table.Float64:
			gather(out.Floats(i), b.Floats(i), order)
		default:
			gather(out.Ints(i), b.Ints(i), order)
		}
	}
	return out
}

// gather puts the values of src into dst in the given order.
func gather[T any](dst, src []T, order []int32) {
	for i, o := range order {
		dst[i] = src[o]
	}
}
