package merge

import (
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

// newConverter returns a converter of rows of src that puts its rows into out.
func newConverter(n *node, src *table.Table, out *table.Batch) *converter {
	dst := out.Table
	c := &converter{
		node: n, src: src, dst: dst, stamps: stamperOf(n, src), out: out,
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
	read := b.Ints(table.ColRead)
	micros, nanos := c.out.Ints(table.TLTime), c.out.Ints(table.TLTimeNS)
	bounds, bounded := c.out.Ints(table.TLBound), c.out.Valid(table.TLBound)
	names, reads := c.out.Strings(table.TLNode), c.out.Ints(table.TLRead)
	for i := range nanos {
		raw, within, known := c.stamps(b, i)
		t, bound, aligned := c.node.model.At(raw)
		nanos[i] = int64(t)
		// Towards the past, also before 1970, so that time never is later
		// than time_ns.
		micros[i] = floorDiv(int64(t), 1000)
		if aligned && known {
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

func fill(b []bool) {
	for i := range b {
		b[i] = true
	}
}
