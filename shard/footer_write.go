package shard

import (
	"github.com/gswarm/gswarm/table"
)

// footerWriter gathers a footer. A row group is kept as the bytes that it will
// be, so that a file of many costs no more than its footer's length.
type footerWriter struct {
	table  *table.Table
	groups thriftWriter
	n      int
	rows   int64
	sums   []byte
}

// add appends a row group whose first chunk begins at the file's offset at.
// The chunks' places count from there.
func (f *footerWriter) add(g *Group, at int64) {
	w := &f.groups
	w.beginElement()
	w.list(1, thriftStruct, len(g.chunks))
	compressed, raw := int64(0), int64(0)
	for i := range g.chunks {
		c := &g.chunks[i]
		w.beginElement()
		w.i64(2, 0) // file_offset: deprecated, and 0 is what the format says it be
		w.begin(3)
		w.i32(1, int64(physicalOf(f.table.Columns[i].Type)))
		w.field(2, thriftList)
		w.b = append(w.b, c.encodings...)
		w.list(3, thriftBinary, 1)
		w.element(f.table.Columns[i].Name)
		w.i32(4, codecParquetZstd)
		w.i64(5, c.values)
		w.i64(6, c.raw)
		w.i64(7, c.size)
		w.i64(9, at+compressed+c.page-c.begin)
		if c.dict > 0 || c.page > c.begin {
			w.i64(11, at+compressed)
		}
		if len(c.stats) > 0 {
			w.field(12, thriftStruct)
			w.b = append(w.b, c.stats...)
		}
		w.end()
		w.end()
		compressed += c.size
		raw += c.raw
	}
	w.i64(2, raw)
	w.i64(3, int64(g.rows))
	if g.sorted {
		w.list(4, thriftStruct, 1)
		w.beginElement()
		w.i32(1, 0)
		w.bool(2, false)
		w.bool(3, false)
		w.end()
	}
	w.i64(5, at)
	w.i64(6, compressed)
	w.i16(7, int64(f.n))
	w.end()
	f.n++
	f.rows += int64(g.rows)
	f.sums = le.AppendUint32(f.sums, g.sum)
}

// finish returns the footer.
func (f *footerWriter) finish(keys []string, kv map[string]string) []byte {
	w := &thriftWriter{b: make([]byte, 0, len(f.groups.b)+64<<10)}
	w.i32(1, 2)
	w.list(2, thriftStruct, len(f.table.Columns)+1)
	w.beginElement()
	w.string(4, "schema")
	w.i32(5, int64(len(f.table.Columns)))
	w.end()
	for _, c := range f.table.Columns {
		writeColumn(w, c)
	}
	w.i64(3, f.rows)
	w.list(4, thriftStruct, f.n)
	w.b = append(w.b, f.groups.b...)
	w.list(5, thriftStruct, len(keys))
	for _, k := range keys {
		w.beginElement()
		w.string(1, k)
		w.string(2, kv[k])
		w.end()
	}
	w.string(6, createdBy)
	w.list(7, thriftStruct, len(f.table.Columns))
	for range f.table.Columns {
		w.beginElement()
		w.begin(1) // the order that the type defines
		w.end()
		w.end()
	}
	w.end()
	return w.b
}

func writeColumn(w *thriftWriter, c table.Column) {
	w.beginElement()
	w.i32(1, int64(physicalOf(c.Type)))
	repetition := int64(1)
	if c.Required {
		repetition = 0
	}
	w.i32(3, repetition)
	w.string(4, c.Name)
	switch c.Type {
	case table.String:
		w.i32(6, 0) // converted type UTF8
		w.begin(10)
		w.begin(1)
		w.end()
		w.end()
	case table.Timestamp:
		w.i32(6, 10) // converted type TIMESTAMP_MICROS
		w.begin(10)
		w.begin(8)
		w.bool(1, true) // UTC
		w.begin(2)
		w.begin(2) // microseconds
		w.end()
		w.end()
		w.end()
		w.end()
	}
	w.end()
}

func physicalOf(t table.Type) int8 {
	switch t {
	case table.Int32:
		return physInt32
	case table.Float64:
		return physDouble
	case table.Float32:
		return physFloat
	case table.String:
		return physBytes
	}
	return physInt64
}
