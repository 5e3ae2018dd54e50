package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// FuzzReadSpool reads any bytes as a spool: it must not fall over, and what it
// leaves out it must count.
func FuzzReadSpool(f *testing.F) {
	raw, want := smallSpool(f, true)
	f.Add(raw)
	f.Add(raw[:len(raw)-100])
	f.Add(append(bytes.Clone(raw[:300]), raw[500:]...))
	f.Add([]byte("PAR1"))
	f.Add([]byte{})
	total := count(want)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rows, err := readAll(b)
		if err != nil {
			var corrupt *CorruptError
			var newer *NewerError
			if !errors.As(err, &corrupt) && !errors.As(err, &newer) {
				t.Fatal(err)
			}
			return
		}
		if s.end != nil && count(rows) < total && bytes.HasPrefix(raw, b[:min(len(b), 100)]) && len(b) >= 100 && len(s.losses) == 0 {
			t.Errorf("%d of %d rows and no loss", count(rows), total)
		}
	})
}

// FuzzDecodeRows gives the row decoder messages whose checksum would hold.
func FuzzDecodeRows(f *testing.F) {
	for _, b := range []*table.Batch{gpuRows(0, 3), hostRows(0, 2), eventRow(1, "kind", "detail")} {
		enc, err := newEncoder(b.Table)
		if err != nil {
			f.Fatal(err)
		}
		msg, err := enc.encode(b, 0, b.Rows())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(enc.fields, bytes.Clone(msg), uint16(b.Rows()), b.Table.Name)
	}
	f.Fuzz(func(t *testing.T, schema, msg []byte, rows uint16, name string) {
		tb := table.ByName(name)
		if tb == nil || rows > frameRows {
			return
		}
		d, err := newDecoder(tb, schema)
		if err != nil {
			return
		}
		b := table.NewBatch(tb, 0)
		if err := d.decode(msg, int(rows), b); err != nil {
			if b.Rows() != 0 {
				t.Errorf("%d rows beside the error %v", b.Rows(), err)
			}
			return
		}
		if b.Rows() != int(rows) {
			t.Errorf("%d rows, want %d", b.Rows(), rows)
		}
	})
}

// FuzzReadShard reads any bytes as a Parquet file. The checksums are made to
// hold, or no input would get past them to the library.
func FuzzReadShard(f *testing.F) {
	raw, _ := smallShard(f)
	f.Add(raw, false)
	f.Add(raw, true)
	f.Add(raw[:len(raw)-1], true)
	f.Add([]byte("PAR1PAR1"), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix {
			b = fixChecksums(bytes.Clone(b))
		}
		_, err := readShard(b)
		if err != nil {
			var corrupt *CorruptError
			var newer *NewerError
			if !errors.As(err, &corrupt) && !errors.As(err, &newer) {
				t.Fatal(err)
			}
		}
	})
}

// FuzzColumn gives the column decoders pages whose checksums would hold.
func FuzzColumn(f *testing.F) {
	b := gpuRows(0, 400)
	for _, encoder := range []func() (*Encoder, error){NewEncoder, newThoroughEncoder} {
		enc, err := encoder()
		if err != nil {
			f.Fatal(err)
		}
		var g Group
		if err := enc.Encode(&g, b); err != nil {
			f.Fatal(err)
		}
		pages := slices.Concat(g.parts...)
		for i, c := range b.Table.Columns {
			page := pages[:g.chunks[i].size]
			pages = pages[len(page):]
			f.Add(bytes.Clone(page), byte(physicalOf(c.Type)), !c.Required, uint16(400))
		}
	}
	f.Fuzz(func(t *testing.T, page []byte, physical byte, optional bool, rows uint16) {
		kinds := map[byte]table.Type{physInt32: table.Int32, physInt64: table.Int64, physFloat: table.Float32, physDouble: table.Float64, physBytes: table.String}
		kind, ok := kinds[physical]
		if !ok || rows == 0 {
			return
		}
		col := table.Column{Name: "c", Type: kind}
		raw := &RawGroup{
			rows: int(rows), buf: page, chunks: []chunk{{size: int64(len(page)), values: int64(rows)}},
			schema: &fileSchema{columns: []fileColumn{{"c", int8(physical), optional}}, index: map[string]int{"c": 0}},
		}
		out := table.NewBatch(&table.Table{Name: "t", Columns: []table.Column{col}}, 0)
		c := raw.column(col, 0)
		out.AppendNulls(int(rows))
		_ = c.into(out, 0, 0, int(rows)) // an error or any values, but no panic
	})
}

// FuzzFooter parses footers whose checksum would hold.
func FuzzFooter(f *testing.F) {
	raw, _ := smallShard(f)
	foot, at, err := readFooter(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(foot[trailerLen:len(foot)-8], at)
	f.Fuzz(func(t *testing.T, b []byte, data int64) {
		_, _ = parseFooter(b, data)
	})
}

func fixChecksums(b []byte) []byte {
	if len(b) < 8 {
		return b
	}
	length := int64(binary.LittleEndian.Uint32(b[len(b)-8:]))
	at := int64(len(b)) - 8 - length - trailerLen
	if at < 4 {
		return b
	}
	copy(b[at:], trailer(crc32.Checksum(b[:at], castagnoli), crc32.Checksum(b[at+trailerLen:], castagnoli)))
	return b
}
