package table

import "slices"

// Batch holds rows of one table, column by column. It is filled by one
// goroutine at a time and reused by Reset: after warm-up it allocates nothing
// but the strings that the caller makes.
//
// Int64, Int32 and Timestamp columns are read with Ints, Float64 and Float32
// with Floats, String with Strings; Valid says which rows of a column are not
// null. What these return is the batch's own memory: it is valid until the next
// Append or Reset.
type Batch struct {
	Table *Table
	rows  int
	cols  []column
}

type column struct {
	ints    []int64
	floats  []float64
	strings []string
	valid   []bool
}

// NewBatch returns an empty batch of t with room for n rows.
func NewBatch(t *Table, n int) *Batch {
	b := &Batch{Table: t, cols: make([]column, len(t.Columns))}
	for i := range b.cols {
		c := &b.cols[i]
		c.valid = make([]bool, 0, n)
		switch t.Columns[i].Type {
		case String:
			c.strings = make([]string, 0, n)
		case Float32, Float64:
			c.floats = make([]float64, 0, n)
		default:
			c.ints = make([]int64, 0, n)
		}
	}
	return b
}

// Rows returns the number of rows.
func (b *Batch) Rows() int { return b.rows }

// Reset forgets all rows and keeps the memory.
func (b *Batch) Reset() {
	b.Truncate(0)
}

// Truncate keeps the first n rows. It is how a reader takes back a row it
// could not complete.
func (b *Batch) Truncate(n int) {
	b.rows = n
	for i := range b.cols {
		c := &b.cols[i]
		c.valid = c.valid[:n]
		switch {
		case c.strings != nil:
			clear(c.strings[n:])
			c.strings = c.strings[:n]
		case c.floats != nil:
			c.floats = c.floats[:n]
		default:
			c.ints = c.ints[:n]
		}
	}
}

// Append adds a row whose values are all null and returns it.
func (b *Batch) Append() Row {
	for i := range b.cols {
		c := &b.cols[i]
		c.valid = append(c.valid, false)
		switch b.Table.Columns[i].Type {
		case String:
			c.strings = append(c.strings, "")
		case Float32, Float64:
			c.floats = append(c.floats, 0)
		default:
			c.ints = append(c.ints, 0)
		}
	}
	b.rows++
	return Row{b: b, i: b.rows - 1}
}

// AppendNulls adds n rows whose values are all null, for a caller that fills
// them column by column through Ints, Floats, Strings and Valid.
func (b *Batch) AppendNulls(n int) {
	for i := range b.cols {
		c := &b.cols[i]
		c.valid = extend(c.valid, n)
		switch b.Table.Columns[i].Type {
		case String:
			c.strings = extend(c.strings, n)
		case Float32, Float64:
			c.floats = extend(c.floats, n)
		default:
			c.ints = extend(c.ints, n)
		}
	}
	b.rows += n
}

// extend lengthens s by n zero values.
func extend[T any](s []T, n int) []T {
	s = slices.Grow(s, n)[:len(s)+n]
	clear(s[len(s)-n:])
	return s
}

// AppendBatch adds all rows of o, which must be of the same table.
func (b *Batch) AppendBatch(o *Batch) { b.AppendRange(o, 0, o.rows) }

// AppendRange adds the rows [from, to) of o, which must be of the same table.
func (b *Batch) AppendRange(o *Batch, from, to int) {
	for i := range b.cols {
		c, s := &b.cols[i], &o.cols[i]
		c.valid = append(c.valid, s.valid[from:to]...)
		switch b.Table.Columns[i].Type {
		case String:
			c.strings = append(c.strings, s.strings[from:to]...)
		case Float32, Float64:
			c.floats = append(c.floats, s.floats[from:to]...)
		default:
			c.ints = append(c.ints, s.ints[from:to]...)
		}
	}
	b.rows += to - from
}

// Gather adds, for each i, row rows[i] of from[i], all of which must be of the
// same table. It goes column by column, which for rows from many batches is much
// faster than adding them one by one.
func (b *Batch) Gather(from []*Batch, rows []int32) {
	for i := range b.cols {
		c := &b.cols[i]
		for k, o := range from {
			c.valid = append(c.valid, o.cols[i].valid[rows[k]])
		}
		switch b.Table.Columns[i].Type {
		case String:
			for k, o := range from {
				c.strings = append(c.strings, o.cols[i].strings[rows[k]])
			}
		case Float32, Float64:
			for k, o := range from {
				c.floats = append(c.floats, o.cols[i].floats[rows[k]])
			}
		default:
			for k, o := range from {
				c.ints = append(c.ints, o.cols[i].ints[rows[k]])
			}
		}
	}
	b.rows += len(from)
}

// CopyColumn copies a column of o, which has as many rows, to a column of the
// same type.
func (b *Batch) CopyColumn(col int, o *Batch, from int) {
	c, s := &b.cols[col], &o.cols[from]
	copy(c.valid, s.valid)
	copy(c.ints, s.ints)
	copy(c.floats, s.floats)
	copy(c.strings, s.strings)
}

// Spread returns b, whose i-th column is column columns[i] of t, as a batch of t
// that shares b's memory. The other columns are null in every row and have no
// values to read.
func (b *Batch) Spread(t *Table, columns []int) *Batch {
	wide := &Batch{Table: t, rows: b.rows, cols: make([]column, len(t.Columns))}
	null := make([]bool, b.rows)
	for i := range wide.cols {
		wide.cols[i].valid = null
	}
	for i, at := range columns {
		wide.cols[at] = b.cols[i]
	}
	return wide
}

// Ints returns the values of an integer or timestamp column.
func (b *Batch) Ints(col int) []int64 { return b.cols[col].ints }

// Floats returns the values of a floating-point column.
func (b *Batch) Floats(col int) []float64 { return b.cols[col].floats }

// Strings returns the values of a string column.
func (b *Batch) Strings(col int) []string { return b.cols[col].strings }

// Valid returns, for each row, whether the column's value is not null.
func (b *Batch) Valid(col int) []bool { return b.cols[col].valid }

// Row is one row of a batch; it stays good until the batch is truncated.
// Setting a value of another type than the column's is a programming error and
// panics by index.
type Row struct {
	b *Batch
	i int
}

// Int sets an integer column.
func (r Row) Int(col int, v int64) {
	c := &r.b.cols[col]
	c.ints[r.i], c.valid[r.i] = v, true
}

// Float sets a floating-point column.
func (r Row) Float(col int, v float64) {
	c := &r.b.cols[col]
	c.floats[r.i], c.valid[r.i] = v, true
}

// String sets a string column.
func (r Row) String(col int, v string) {
	c := &r.b.cols[col]
	c.strings[r.i], c.valid[r.i] = v, true
}

// Read sets the time columns of a polled row, or the end of a windowed one,
// from the begin and end of the read on the node's raw clock.
func (r Row) Read(begin, end int64) {
	r.Int(ColT, begin+(end-begin)/2)
	r.Int(ColRead, end-begin)
}

// Window sets the time columns of a windowed row: the window began at start
// and was closed by a read from begin to end.
func (r Row) Window(start, begin, end int64) {
	r.Read(begin, end)
	r.Int(ColBegin, start)
}
