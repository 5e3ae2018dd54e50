package shard

import (
	"errors"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/file"
	"github.com/apache/arrow/go/v15/parquet/metadata"

	"github.com/gswarm/gswarm/table"
)

// dictionary is a string column as a dictionary and indices into it.
type dictionary struct {
	values  []string
	indices []int32
	valid   []bool
	nulls   int
}

// newDictionary returns nil where the values repeat too little to gain by it.
func newDictionary(b *table.Batch, i int) *dictionary {
	texts := b.Strings(i)
	d := &dictionary{indices: make([]int32, len(texts)), valid: b.Valid(i)}
	index := make(map[string]int32)
	last, lastIndex := "", int32(-1)
	for r, s := range texts {
		if !d.valid[r] {
			d.nulls++
			continue
		}
		if s != last || lastIndex < 0 {
			n, ok := index[s]
			if !ok {
				n = int32(len(d.values))
				index[s] = n
				d.values = append(d.values, s)
				if len(d.values) > 1<<16 || len(d.values) > 64 && len(d.values) > len(texts)/2 {
					return nil
				}
			}
			last, lastIndex = s, n
		}
		d.indices[r] = lastIndex
	}
	if len(d.values) == 0 {
		return nil
	}
	return d
}

// dictionaryEncoder is the part of the library's encoder that takes a whole
// dictionary; its own type is internal to the library.
type dictionaryEncoder interface {
	PutDictionary(arrow.Array) error
}

func (d *dictionary) write(cw *file.ByteArrayColumnChunkWriter, required bool) error {
	enc, ok := cw.CurrentEncoder().(dictionaryEncoder)
	if !ok {
		return errors.New("the column writer takes no dictionary")
	}
	sb := array.NewStringBuilder(memory.DefaultAllocator)
	defer sb.Release()
	sb.AppendValues(d.values, nil)
	values := sb.NewArray()
	defer values.Release()
	if err := enc.PutDictionary(values); err != nil {
		return err
	}
	// WriteDictIndices leaves the statistics to its caller.
	texts := make([]parquet.ByteArray, len(d.values))
	for i, v := range d.values {
		texts[i] = parquet.ByteArray(v)
	}
	if st, ok := cw.PageStatistics().(*metadata.ByteArrayStatistics); ok {
		st.Update(texts, int64(d.nulls))
		// Update counted each distinct value once.
		if more := int64(len(d.indices) - d.nulls - len(d.values)); more > 0 {
			st.IncNumValues(more)
		}
	}
	var levels []int16
	if !required {
		levels = make([]int16, len(d.valid))
		for r, v := range d.valid {
			if v {
				levels[r] = 1
			}
		}
	} else if d.nulls > 0 {
		return errors.New("the column must not be null and is")
	}
	bufs := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(d.indices))}
	if d.nulls > 0 {
		bufs[0] = memory.NewBufferBytes(packBits(nil, d.valid))
	}
	data := array.NewData(arrow.PrimitiveTypes.Int32, len(d.indices), bufs, nil, d.nulls, 0)
	defer data.Release()
	indices := array.MakeFromData(data)
	defer indices.Release()
	return cw.WriteDictIndices(indices, levels, nil)
}
