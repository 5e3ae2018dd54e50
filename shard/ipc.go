package shard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"github.com/gswarm/gswarm/table"
)

// encoder turns batches of one table into IPC record batch messages. It
// reuses its buffers; the arrays it builds point into them and into the batch.
type encoder struct {
	table   *table.Table
	schema  *arrow.Schema
	fields  []byte // the schema's frame
	crc     uint32 // of fields
	message []byte // the schema as IPC has it
	out     bytes.Buffer
	w       *ipc.Writer
	started bool

	cols   []columnBuffers
	arrays []arrow.Array
}

// columnBuffers is the memory behind one column's array.
type columnBuffers struct {
	valid   []byte
	ints    []int32
	floats  []float32
	offsets []int32
	text    []byte
}

func newEncoder(t *table.Table) (*encoder, error) {
	e := &encoder{table: t, schema: arrowSchema(t, false)}
	var err error
	if e.message, err = schemaMessage(e.schema); err != nil {
		return nil, err
	}
	if e.fields, err = json.Marshal(fieldsOf(t)); err != nil {
		return nil, err
	}
	e.crc = crc32.Checksum(e.fields, castagnoli)
	e.cols = make([]columnBuffers, len(t.Columns))
	e.arrays = make([]arrow.Array, len(t.Columns))
	e.w = ipc.NewWriter(&e.out, ipc.WithSchema(e.schema))
	return e, nil
}

// encode returns the rows [from, to) of b as an IPC message. It is valid until
// the next call.
func (e *encoder) encode(b *table.Batch, from, to int) ([]byte, error) {
	for i := range e.table.Columns {
		a, err := e.array(b, i, from, to)
		if err != nil {
			return nil, err
		}
		e.arrays[i] = a
	}
	rec := array.NewRecord(e.schema, e.arrays, int64(to-from))
	for _, a := range e.arrays {
		a.Release()
	}
	e.out.Reset()
	err := e.w.Write(rec)
	rec.Release()
	if err != nil {
		return nil, fmt.Errorf("encoding %d rows of %s: %w", to-from, e.table.Name, err)
	}
	msg := e.out.Bytes()
	if !e.started {
		// The stream's first write brings the schema along; the spool
		// has it in a frame and a form of its own.
		msg, e.started = msg[len(e.message):], true
	}
	return msg, nil
}

func (e *encoder) array(b *table.Batch, i, from, to int) (arrow.Array, error) {
	c, col, n := &e.table.Columns[i], &e.cols[i], to-from
	valid := b.Valid(i)[from:to]
	nulls := 0
	for _, v := range valid {
		if !v {
			nulls++
		}
	}
	var bitmap *memory.Buffer
	if nulls > 0 {
		if c.Required {
			return nil, fmt.Errorf("column %s.%s is null in %d of %d rows and must not be", e.table.Name, c.Name, nulls, n)
		}
		col.valid = packBits(col.valid[:0], valid)
		bitmap = memory.NewBufferBytes(col.valid)
	}
	bufs := []*memory.Buffer{bitmap, nil}
	switch c.Type {
	case table.Int64, table.Timestamp:
		bufs[1] = memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(b.Ints(i)[from:to]))
	case table.Int32:
		col.ints = col.ints[:0]
		for r, v := range b.Ints(i)[from:to] {
			if int64(int32(v)) != v && valid[r] {
				return nil, fmt.Errorf("column %s.%s: %d does not fit its 32 bits", e.table.Name, c.Name, v)
			}
			col.ints = append(col.ints, int32(v))
		}
		bufs[1] = memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(col.ints))
	case table.Float64:
		bufs[1] = memory.NewBufferBytes(arrow.Float64Traits.CastToBytes(b.Floats(i)[from:to]))
	case table.Float32:
		col.floats = col.floats[:0]
		for _, v := range b.Floats(i)[from:to] {
			col.floats = append(col.floats, float32(v))
		}
		bufs[1] = memory.NewBufferBytes(arrow.Float32Traits.CastToBytes(col.floats))
	case table.String:
		col.offsets, col.text = append(col.offsets[:0], 0), col.text[:0]
		for r, s := range b.Strings(i)[from:to] {
			if valid[r] {
				col.text = append(col.text, s...)
			}
			if len(col.text) > math.MaxInt32 {
				return nil, fmt.Errorf("column %s.%s: the batch's strings exceed 2 GiB", e.table.Name, c.Name)
			}
			col.offsets = append(col.offsets, int32(len(col.text)))
		}
		bufs[1] = memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(col.offsets))
		bufs = append(bufs, memory.NewBufferBytes(col.text))
	}
	d := array.NewData(arrowType(c.Type), n, bufs, nil, nulls, 0)
	defer d.Release()
	return array.MakeFromData(d), nil
}

func packBits(dst []byte, bits []bool) []byte {
	for i := 0; i < len(bits); i += 8 {
		var b byte
		for j := 0; j < 8 && i+j < len(bits); j++ {
			if bits[i+j] {
				b |= 1 << j
			}
		}
		dst = append(dst, b)
	}
	return dst
}

// decoder turns IPC messages of one schema back into rows of a table, column
// by name: what the message lacks is null, what the table lacks is left out.
type decoder struct {
	table *table.Table
	feed  bytes.Reader
	mem   limitAllocator
	r     *ipc.Reader
	// source[i] is the field that the table's i-th column comes from, or -1.
	source []int
	// extra are the fields that the table does not know.
	extra []string
}

func newDecoder(t *table.Table, schema []byte) (d *decoder, err error) {
	defer guard(&err)
	var fields []field
	if err := json.Unmarshal(schema, &fields); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	sc, err := schemaOf(fields)
	if err != nil {
		return nil, err
	}
	msg, err := schemaMessage(sc)
	if err != nil {
		return nil, err
	}
	d = &decoder{table: t}
	d.feed.Reset(msg)
	d.mem.left = allocSlack
	if d.r, err = ipc.NewReader(&d.feed, ipc.WithAllocator(&d.mem)); err != nil {
		return nil, err
	}
	d.source = make([]int, len(t.Columns))
	for i, c := range t.Columns {
		d.source[i] = -1
		for j, f := range sc.Fields() {
			if f.Name != c.Name {
				continue
			}
			if !convertible(f.Type, c.Type) {
				return nil, fmt.Errorf("column %s.%s is %s in the file and %s here", t.Name, c.Name, f.Type, c.Type)
			}
			d.source[i] = j
		}
		if d.source[i] < 0 && c.Required {
			return nil, fmt.Errorf("the required column %s.%s is not in the file", t.Name, c.Name)
		}
	}
	for _, f := range fields {
		if t.Index(f.Name) < 0 {
			d.extra = append(d.extra, f.Name)
		}
	}
	return d, nil
}

// convertible says whether values of an Arrow type can be held in a column
// without loss.
func convertible(from arrow.DataType, to table.Type) bool {
	switch from.ID() {
	case arrow.INT32:
		return to == table.Int32 || to == table.Int64
	case arrow.FLOAT32:
		return to == table.Float32 || to == table.Float64
	}
	return arrow.TypeEqual(from, arrowType(to))
}

// checkMessage checks the lengths that the message reader would believe.
func checkMessage(msg []byte, limit int) error {
	if len(msg) < 8 {
		return errors.New("the message is cut short")
	}
	length := int64(int32(binary.LittleEndian.Uint32(msg[4:])))
	if binary.LittleEndian.Uint32(msg) != math.MaxUint32 || length <= 0 || length > int64(limit)-8 {
		return errors.New("the message has an impossible length")
	}
	return nil
}

// allocSlack is what a decoder may allocate beyond a few times the length of its
// input: the library copies a message's body and then each column of it.
const allocSlack = 1 << 20

// decode appends the message's rows to b.
func (d *decoder) decode(msg []byte, rows int, b *table.Batch) (err error) {
	before := b.Rows()
	defer func() {
		if err != nil {
			b.Truncate(before)
		}
	}()
	defer guard(&err)
	if err := checkMessage(msg, len(msg)); err != nil {
		return err
	}
	d.feed.Reset(msg)
	d.mem.left = 4*int64(len(msg)) + allocSlack
	if !d.r.Next() {
		if err := d.r.Err(); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}
	rec := d.r.Record()
	if rec.NumRows() != int64(rows) {
		return fmt.Errorf("%d rows where the frame says %d", rec.NumRows(), rows)
	}
	b.AppendNulls(rows)
	for i, src := range d.source {
		if src < 0 {
			continue
		}
		if err := d.column(rec.Column(src), b, i, before); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) column(a arrow.Array, b *table.Batch, i, before int) error {
	c := &d.table.Columns[i]
	valid := b.Valid(i)[before:]
	if a.Len() != len(valid) {
		return fmt.Errorf("column %s has %d values for %d rows", c.Name, a.Len(), len(valid))
	}
	for r := range valid {
		valid[r] = a.IsValid(r)
		if c.Required && !valid[r] {
			return fmt.Errorf("the required column %s is null", c.Name)
		}
	}
	switch a := a.(type) {
	case *array.Int64:
		copyValid(b.Ints(i)[before:], a.Int64Values(), valid)
	case *array.Timestamp:
		for r, v := range a.TimestampValues() {
			b.Ints(i)[before+r] = int64(v)
		}
	case *array.Int32:
		copyValid(b.Ints(i)[before:], a.Int32Values(), valid)
	case *array.Float64:
		copyValid(b.Floats(i)[before:], a.Float64Values(), valid)
	case *array.Float32:
		copyValid(b.Floats(i)[before:], a.Float32Values(), valid)
	case *array.String:
		dst, last := b.Strings(i)[before:], ""
		for r := range dst {
			if !valid[r] {
				continue
			}
			// Keys repeat: one string serves a run of equal values.
			if v := a.Value(r); v != last {
				last = string([]byte(v)) // the array's memory is reused
			}
			dst[r] = last
		}
	default:
		return fmt.Errorf("column %s has the unexpected type %s", c.Name, a.DataType())
	}
	return nil
}

// copyValid widens values; what is null stays zero, so that equal rows are
// equal in memory too.
func copyValid[D, S int32 | int64 | float32 | float64](dst []D, src []S, valid []bool) {
	for r, v := range src[:len(dst)] {
		if valid[r] {
			dst[r] = D(v)
		}
	}
}

// limitAllocator panics instead of allocating more than is left. Decoders run
// under guard, which makes an error of it; running out of memory would not be
// recoverable.
type limitAllocator struct {
	left int64
}

func (a *limitAllocator) take(n int) {
	if a.left -= int64(n); n < 0 || a.left < 0 {
		panic(fmt.Errorf("the input asks for %d bytes more than it may", n))
	}
}

// Allocate implements memory.Allocator.
func (a *limitAllocator) Allocate(size int) []byte {
	a.take(size)
	return memory.DefaultAllocator.Allocate(size)
}

// Reallocate implements memory.Allocator.
func (a *limitAllocator) Reallocate(size int, b []byte) []byte {
	a.take(size - min(size, len(b)))
	return memory.DefaultAllocator.Reallocate(size, b)
}

// Free implements memory.Allocator.
func (a *limitAllocator) Free(b []byte) { memory.DefaultAllocator.Free(b) }
