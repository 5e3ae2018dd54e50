package shard

import (
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/table"
)

func BenchmarkEncode(b *testing.B) {
	rows := gpuRows(0, 24000)
	enc, err := NewEncoder()
	if err != nil {
		b.Fatal(err)
	}
	var g Group
	b.ReportAllocs()
	for b.Loop() {
		if err := enc.Encode(&g, rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(24000*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
	b.ReportMetric(float64(g.Size())/24000, "B/row")
}

func BenchmarkDecode(b *testing.B) {
	path := filepath.Join(b.TempDir(), "gpu-1.parquet")
	w, err := CreateParquet(path, table.GPU, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Write(gpuRows(0, 24000)); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := ReadParquet(path, table.GPU, func(*table.Batch) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(24000*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
