package shard

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// otherGPU is the gpu table of another gswarm of this format: a column less and
// a column more.
func otherGPU() *table.Table {
	t := *table.GPU
	t.Columns = slices.Clone(t.Columns)
	t.Columns[table.GPUPState] = table.Column{Name: "fan_rpm", Type: table.Int32}
	return &t
}

// asOther carries rows of the gpu table to the other one.
func asOther(b *table.Batch) *table.Batch {
	o := table.NewBatch(otherGPU(), b.Rows())
	o.AppendBatch(b)
	for r := range o.Rows() {
		o.Ints(table.GPUPState)[r] = 1234
	}
	return o
}

func TestColumnsOfAnotherVersion(t *testing.T) {
	want := gpuRows(0, 20)
	clear(want.Valid(table.GPUPState))
	dir := t.TempDir()
	for _, sealed := range []bool{false, true} {
		if sealed {
			// As the other gswarm would have sealed it.
			w, err := CreateParquet(filepath.Join(dir, "gpu-2.parquet"), otherGPU(), map[string]string{keySet: `{"node":"n1","rows":{"gpu":20}}`})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(asOther(gpuRows(0, 20))); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			s, err := CreateSpool(filepath.Join(dir, "spool-1"), SpoolMeta{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Write(asOther(gpuRows(0, 20))); err != nil {
				t.Fatal(err)
			}
			if err := s.End(1, EndTile); err != nil {
				t.Fatal(err)
			}
		}
	}
	nd, err := OpenNode(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer nd.Close()
	got := table.NewBatch(table.GPU, 0)
	if err := nd.Rows(table.GPU, func(b *table.Batch) error { got.AppendBatch(b); return nil }); err != nil {
		t.Fatal(err)
	}
	twice := table.NewBatch(table.GPU, 0)
	twice.AppendBatch(want)
	twice.AppendBatch(want)
	sameRows(t, got, twice)
	if len(nd.Losses()) != 0 || len(nd.Notes()) != 2 || !strings.Contains(nd.Notes()[0], "fan_rpm") {
		t.Errorf("losses %v, notes %q", nd.Losses(), nd.Notes())
	}
}

// TestParquetExtremes writes what encoders tend to get wrong.
func TestParquetExtremes(t *testing.T) {
	tb := &table.Table{Name: "gpu", Columns: []table.Column{
		{Name: table.TRaw, Type: table.Int64, Required: true},
		{Name: table.ReadNS, Type: table.Int64, Required: true},
		{Name: "i64", Type: table.Int64}, {Name: "i32", Type: table.Int32},
		{Name: "f64", Type: table.Float64}, {Name: "f32", Type: table.Float32},
		{Name: "text", Type: table.String}, {Name: "never", Type: table.Int64}, {Name: "blank", Type: table.String},
	}}
	ints := []int64{0, math.MaxInt64, math.MinInt64, -1, 1, math.MinInt64, math.MaxInt64}
	ints32 := []int64{0, math.MaxInt32, math.MinInt32, -1}
	floats := []float64{0, math.Copysign(0, -1), math.Inf(1), math.NaN(), 1e-300}
	texts := []string{"", "é", "\x00", strings.Repeat("long ", 200)}
	for _, rows := range []int{1, 33, 129, 20000} {
		want := table.NewBatch(tb, rows)
		for i := range rows {
			r := want.Append()
			r.Read(int64(i), int64(i))
			if i >= rows/2 { // a long run of nulls first
				r.Int(2, ints[i%len(ints)])
				r.Int(3, ints32[i%len(ints32)])
				r.Float(4, floats[i%len(floats)])
				r.Float(5, float64(float32(floats[i%len(floats)])))
				r.String(6, texts[i%len(texts)])
				r.String(8, "")
			}
		}
		path := filepath.Join(t.TempDir(), "x.parquet")
		w, err := CreateParquet(path, tb, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got := table.NewBatch(tb, rows)
		if err := ReadParquet(path, tb, func(b *table.Batch) error { got.AppendBatch(b); return nil }); err != nil {
			t.Fatal(err)
		}
		sameRows(t, got, want)

		enc, err := newEncoder(tb)
		if err != nil {
			t.Fatal(err)
		}
		msg, err := enc.encode(want, 0, rows)
		if err != nil {
			t.Fatal(err)
		}
		d, err := newDecoder(tb, enc.fields)
		if err != nil {
			t.Fatal(err)
		}
		got.Reset()
		if err := d.decode(bytes.Clone(msg), rows, got); err != nil {
			t.Fatal(err)
		}
		sameRows(t, got, want)
	}
}

func TestInfoAndHead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu-1.parquet")
	w, err := CreateParquet(path, table.GPU, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(gpuRows(0, 100)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := ReadInfo(path)
	if err != nil {
		t.Fatal(err)
	}
	times := gpuRows(0, 100).Ints(table.ColT)
	if in.Rows != 100 || in.Table != "gpu" || !in.Timed || in.TMin != slices.Min(times) || in.TMax != slices.Max(times) {
		t.Errorf("%+v", in)
	}
	b, err := Head(path, table.GPU, 7)
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, b, gpuRows(0, 7))
	if err := VerifyParquet(path); err != nil {
		t.Error(err)
	}
}
