package shard

import (
	"fmt"
	"math"
	"math/rand"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/table"
)

func sameRows(t *testing.T, got, want *table.Batch) {
	t.Helper()
	if d := diffRows(got, want); d != "" {
		t.Fatal(d)
	}
}

func TestParquetRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu-1.parquet")
	want := gpuRows(0, 30000)
	w, err := CreateParquet(path, table.GPU, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	half := table.NewBatch(table.GPU, 0)
	half.AppendRange(want, 0, 20000)
	if err := w.Write(half); err != nil {
		t.Fatal(err)
	}
	if err := w.Cut(); err != nil {
		t.Fatal(err)
	}
	half.Reset()
	half.AppendRange(want, 20000, 30000)
	if err := w.Write(half); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := openParquet(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.kv["k"] != "v" || p.table != "gpu" || len(p.groups) != 2 {
		t.Errorf("kv %v, table %q, groups %+v", p.kv, p.table, p.groups)
	}
	got := table.NewBatch(table.GPU, 0)
	for i := range p.groups {
		if err := p.readGroup(table.GPU, i, func(b *table.Batch) error { got.AppendBatch(b); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	sameRows(t, got, want)
}

// Values without nulls are read by another way than those among nulls: both
// give what was written, of every width.
func TestDenseIsSparse(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for width := range 65 {
		tab := &table.Table{Name: "gpu", Columns: []table.Column{
			{Name: "t", Type: table.Int64, Required: true},
			{Name: "sparse", Type: table.Int64},
			{Name: "narrow", Type: table.Int32},
			{Name: "text", Type: table.String, Required: true},
		}}
		want := table.NewBatch(tab, 0)
		for range 5000 + rng.Intn(100) {
			r := want.Append()
			v := int64(rng.Uint64() >> (64 - width))
			r.Int(0, v)
			if rng.Intn(9) > 0 {
				r.Int(1, v)
			}
			r.Int(2, int64(int32(v)))
			r.String(3, fmt.Sprint("node", v%3))
		}
		path := filepath.Join(t.TempDir(), "gpu-1.parquet")
		w, err := CreateParquet(path, tab, nil)
		must(t, err)
		must(t, w.Write(want))
		must(t, w.Close())
		got := table.NewBatch(tab, 0)
		must(t, ReadParquet(path, tab, func(b *table.Batch) error { got.AppendBatch(b); return nil }))
		sameRows(t, got, want)
	}
}

func TestReadOfColumnsAndTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu-1.parquet")
	want := gpuRows(0, 24000)
	w, err := CreateParquet(path, table.GPU, nil)
	must(t, err)
	part := table.NewBatch(table.GPU, 0)
	for from := 0; from < want.Rows(); from += 6000 {
		part.Reset()
		part.AppendRange(want, from, from+6000)
		must(t, w.Write(part))
		must(t, w.Cut())
	}
	must(t, w.Close())

	few := table.GPU.Select("power_now_mw", "t_raw_ns", "gpu_uuid")
	times := want.Ints(table.ColT)
	for _, c := range []struct {
		name     string
		from, to int64
		rows     [2]int
	}{
		{"all", math.MinInt64, math.MaxInt64, [2]int{0, 24000}},
		{"one group", times[6001], times[6002], [2]int{6000, 12000}},
		{"two groups", times[6001], times[12001], [2]int{6000, 18000}},
		{"before", 0, times[0] - 1, [2]int{}},
		{"the first row", 0, times[0], [2]int{0, 6000}},
		{"behind", times[23999] + 1, math.MaxInt64, [2]int{}},
	} {
		at := c.rows[0]
		must(t, ReadBetween(path, few, c.from, c.to, func(b *table.Batch) error {
			for r := range b.Rows() {
				if b.Ints(0)[r] != want.Ints(table.GPUPowerNow)[at] || b.Ints(1)[r] != times[at] || b.Strings(2)[r] != want.Strings(table.GPUUUID)[at] {
					t.Fatalf("%s: row %d differs", c.name, at)
				}
				at++
			}
			return nil
		}))
		if at != c.rows[1] {
			t.Errorf("%s: the rows end at %d, want %d", c.name, at, c.rows[1])
		}
	}
}

func BenchmarkReadColumns(b *testing.B) {
	path := filepath.Join(b.TempDir(), "gpu-1.parquet")
	w, err := CreateParquet(path, table.GPU, nil)
	must(b, err)
	for i := range 10 {
		must(b, w.Write(gpuRows(i*24000, 24000)))
		must(b, w.Cut())
	}
	must(b, w.Close())
	for _, c := range [][]string{{"t_raw_ns"}, {"power_now_mw"}, {"gpu_uuid"}, {"t_raw_ns", "gpu", "power_now_mw", "util_gpu_pct"}} {
		few := table.GPU.Select(c...)
		b.Run(strings.Join(c, ","), func(b *testing.B) {
			for b.Loop() {
				must(b, ReadParquet(path, few, func(*table.Batch) error { return nil }))
			}
			b.ReportMetric(240000*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
