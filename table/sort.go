package table

import (
	"cmp"
	"slices"
)

// SortByTime puts the rows in order of an integer column, rows of one time in
// order of a second one (-1 for none), and else leaves them in the order in
// which they came.
func (b *Batch) SortByTime(time, second int) {
	b.sortRange(0, b.rows, time, second)
}

// SortRange is SortByTime for the rows [from, to).
func (b *Batch) SortRange(from, to, time, second int) { b.sortRange(from, to, time, second) }

// SortedBy says whether the rows are in order of an integer column.
func (b *Batch) SortedBy(col int) bool { return slices.IsSorted(b.cols[col].ints) }

// SortTies puts the rows [from, to), which have one time, in order of a text
// and an integer column; -1 for none.
func (b *Batch) SortTies(from, to, text, second int) {
	less := func(x, y int32) int {
		if text >= 0 {
			if c := cmp.Compare(b.cols[text].strings[x], b.cols[text].strings[y]); c != 0 {
				return c
			}
		}
		return b.compareInts(second, x, y)
	}
	b.permute(from, to, less)
}

func (b *Batch) sortRange(from, to, time, second int) {
	times := b.cols[time].ints
	b.permute(from, to, func(x, y int32) int {
		if c := cmp.Compare(times[x], times[y]); c != 0 {
			return c
		}
		return b.compareInts(second, x, y)
	})
}

// compareInts compares two rows by an integer column, nulls first.
func (b *Batch) compareInts(col int, x, y int32) int {
	if col < 0 {
		return 0
	}
	c := &b.cols[col]
	if c.valid[x] != c.valid[y] {
		if c.valid[y] {
			return -1
		}
		return 1
	}
	return cmp.Compare(c.ints[x], c.ints[y])
}

// permute sorts the rows [from, to), one column after the other, so that it
// needs room for one column only.
func (b *Batch) permute(from, to int, compare func(x, y int32) int) {
	sorted := true
	for i := from + 1; i < to && sorted; i++ {
		sorted = compare(int32(i-1), int32(i)) <= 0
	}
	if sorted {
		return
	}
	order := make([]int32, to-from)
	for i := range order {
		order[i] = int32(from + i)
	}
	slices.SortStableFunc(order, compare)
	var ints []int64
	var floats []float64
	var texts []string
	var valid []bool
	for i := range b.cols {
		c := &b.cols[i]
		valid = rearrange(c.valid, valid, from, order)
		switch b.Table.Columns[i].Type {
		case String:
			texts = rearrange(c.strings, texts, from, order)
		case Float32, Float64:
			floats = rearrange(c.floats, floats, from, order)
		default:
			ints = rearrange(c.ints, ints, from, order)
		}
	}
}

func rearrange[T any](v, scratch []T, from int, order []int32) []T {
	scratch = scratch[:0]
	for _, o := range order {
		scratch = append(scratch, v[o])
	}
	copy(v[from:], scratch)
	return scratch
}
