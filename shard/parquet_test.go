package shard

import (
	"path/filepath"
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
