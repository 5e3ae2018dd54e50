package shard

import (
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/file"
	"github.com/apache/arrow/go/v15/parquet/metadata"

	"github.com/gswarm/gswarm/table"
)

// oracleTable has a column of each type, required and not.
var oracleTable = &table.Table{Name: "gpu", Columns: []table.Column{
	{Name: table.TRaw, Type: table.Int64, Required: true},
	{Name: table.ReadNS, Type: table.Int64, Required: true},
	{Name: "i64", Type: table.Int64}, {Name: "i32", Type: table.Int32}, {Name: "i32r", Type: table.Int32, Required: true},
	{Name: "f64", Type: table.Float64}, {Name: "f32", Type: table.Float32},
	{Name: "key", Type: table.String, Required: true}, {Name: "text", Type: table.String},
	{Name: "never", Type: table.Int32}, {Name: "when", Type: table.Timestamp},
	{Name: "step32", Type: table.Int32}, {Name: "step64", Type: table.Int64, Required: true}, {Name: "few", Type: table.Int32, Required: true},
	{Name: "stamp", Type: table.Int64, Required: true},
}}

func oracleRows(rng *rand.Rand, n int) *table.Batch {
	b := table.NewBatch(oracleTable, n)
	t := rng.Int63()
	bits := rng.Intn(64)
	stamp := int64(1_795_206_826_910_077)
	for i := range n {
		r := b.Append()
		t += rng.Int63n(1 << 20)
		r.Int(0, t)
		r.Int(1, rng.Int63n(1e6))
		if rng.Intn(3) > 0 && (i < 3000 || i > 6000) { // whole pages without a value
			r.Int(2, int64(rng.Uint64()>>bits))
			r.Int(3, int64(int32(rng.Uint32()>>(bits%32))))
			r.Float(5, rng.NormFloat64())
			r.Float(6, float64(float32(rng.NormFloat64())))
			r.String(8, string(rune('a'+rng.Intn(26)))+string(make([]byte, rng.Intn(5))))
			r.Int(10, t/1000)
		}
		if i%100 > 3 {
			r.Int(11, int64(rng.Intn(700))*1297-400_000) // as of a converter
		}
		r.Int(12, int64(rng.Intn(300))<<40-1<<44)
		r.Int(13, int64(rng.Intn(3)))
		stamp += 20_000 + int64(60*rng.NormFloat64()) // ticks that jitter, and now and then miss one
		if rng.Intn(30) == 0 {
			stamp += 20_000
		}
		r.Int(14, stamp)
		r.Int(4, int64(rng.Intn(7)))
		r.String(7, []string{"x", "yy", "zzz", "", "wwwww"}[rng.Intn(5)])
	}
	return b
}

// TestLibraryReadsOurs reads what the writer wrote with Arrow's own reader: the
// values, and the statistics against the values.
func TestLibraryReadsOurs(t *testing.T) {
	for seed := range int64(24) {
		encoder := NewEncoder
		if seed%2 == 1 {
			encoder = newThoroughEncoder
		}
		rng := rand.New(rand.NewSource(seed / 2))
		want := oracleRows(rng, 1+rng.Intn(9000))
		path := filepath.Join(t.TempDir(), "x.parquet")
		w, err := createParquet(path, path, oracleTable, map[string]string{"k": "v"}, encoder)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		pq, err := file.NewParquetReader(f)
		if err != nil {
			t.Fatal(err)
		}
		if kv := pq.MetaData().KeyValueMetadata().FindValue("k"); kv == nil || *kv != "v" {
			t.Error("the metadata are lost")
		}
		rg := pq.RowGroup(0)
		for i := range oracleTable.Columns {
			libraryColumn(t, rg, want, i)
		}
		got := table.NewBatch(oracleTable, 0)
		if err := ReadParquet(path, oracleTable, func(b *table.Batch) error { got.AppendBatch(b); return nil }); err != nil {
			t.Fatal(err)
		}
		sameRows(t, got, want)
		f.Close()
	}
}

func libraryColumn(t *testing.T, rg *file.RowGroupReader, want *table.Batch, i int) {
	t.Helper()
	name := want.Table.Columns[i].Name
	n := int64(want.Rows())
	cr, err := rg.Column(i)
	if err != nil {
		t.Fatal(err)
	}
	levels := make([]int16, n)
	var ints []int64
	var floats []float64
	var texts []string
	read := func(next func(levels []int16, left int64) (int64, int, error)) {
		for rows := int64(0); rows < n; {
			got, _, err := next(levels[rows:], n-rows)
			if err != nil || got == 0 {
				t.Fatalf("%s: %d of %d rows, %v", name, rows, n, err)
			}
			rows += got
		}
	}
	switch r := cr.(type) {
	case *file.Int64ColumnChunkReader:
		v := make([]int64, n)
		read(func(l []int16, left int64) (int64, int, error) {
			a, b, err := r.ReadBatch(left, v, l, nil)
			ints = append(ints, v[:b]...)
			return a, b, err
		})
	case *file.Int32ColumnChunkReader:
		v := make([]int32, n)
		read(func(l []int16, left int64) (int64, int, error) {
			a, b, err := r.ReadBatch(left, v, l, nil)
			for _, x := range v[:b] {
				ints = append(ints, int64(x))
			}
			return a, b, err
		})
	case *file.Float64ColumnChunkReader:
		v := make([]float64, n)
		read(func(l []int16, left int64) (int64, int, error) {
			a, b, err := r.ReadBatch(left, v, l, nil)
			floats = append(floats, v[:b]...)
			return a, b, err
		})
	case *file.Float32ColumnChunkReader:
		v := make([]float32, n)
		read(func(l []int16, left int64) (int64, int, error) {
			a, b, err := r.ReadBatch(left, v, l, nil)
			for _, x := range v[:b] {
				floats = append(floats, float64(x))
			}
			return a, b, err
		})
	case *file.ByteArrayColumnChunkReader:
		for rows := int64(0); rows < n; { // a dictionary's values last until the next page
			v := make([]parquet.ByteArray, n-rows)
			got, k, err := r.ReadBatch(n-rows, v, levels[rows:], nil)
			if err != nil || got == 0 {
				t.Fatalf("%s: %v", name, err)
			}
			for _, x := range v[:k] {
				texts = append(texts, string(x))
			}
			rows += got
		}
	}
	at, lo, hi := 0, int64(math.MaxInt64), int64(math.MinInt64)
	for r, v := range want.Valid(i) {
		if !want.Table.Columns[i].Required && (levels[r] == 1) != v {
			t.Fatalf("%s: row %d: level %d, valid %v", name, r, levels[r], v)
		}
		if !v {
			continue
		}
		same := true
		switch {
		case ints != nil:
			same = ints[at] == want.Ints(i)[r]
			lo, hi = min(lo, ints[at]), max(hi, ints[at])
		case floats != nil:
			same = floats[at] == want.Floats(i)[r]
		case texts != nil:
			same = texts[at] == want.Strings(i)[r]
		}
		if !same {
			t.Fatalf("%s: row %d differs", name, r)
		}
		at++
	}
	meta, err := rg.MetaData().ColumnChunk(i)
	if err != nil {
		t.Fatal(err)
	}
	st, err := meta.Statistics()
	if err != nil || st == nil {
		t.Fatalf("%s: no statistics: %v", name, err)
	}
	if st.NullCount() != n-int64(at) {
		t.Errorf("%s: %d nulls, want %d", name, st.NullCount(), n-int64(at))
	}
	if s, ok := st.(*metadata.Int64Statistics); ok && at > 0 && (s.Min() != lo || s.Max() != hi) {
		t.Errorf("%s: %d to %d, want %d to %d", name, s.Min(), s.Max(), lo, hi)
	}
}
