package shard

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/table"
)

type nullFile struct{ n int64 }

func (f *nullFile) Write(p []byte) (int, error) { f.n += int64(len(p)); return len(p), nil }
func (f *nullFile) Truncate(int64) error        { return nil }
func (f *nullFile) Sync() error                 { return nil }
func (f *nullFile) Close() error                { return nil }

var _ io.Writer = (*nullFile)(nil)

func BenchmarkAppend(b *testing.B) {
	for _, rows := range []int{8, 80, 800} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			f := &nullFile{}
			s, err := NewSpool(f, "spool", SpoolMeta{})
			if err != nil {
				b.Fatal(err)
			}
			const variants = 64
			var batches []*table.Batch
			for i := range variants {
				batches = append(batches, gpuRows(i*rows, rows))
			}
			b.ReportAllocs()
			b.ResetTimer()
			start := f.n
			for i := range b.N {
				if err := s.Append(batches[i%variants]); err != nil {
					b.Fatal(err)
				}
				if err := s.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(f.n-start)/float64(b.N*rows), "B/row")
		})
	}
}

// BenchmarkSeal seals five minutes of a node of eight GPUs.
func BenchmarkSeal(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "spool-1")
	b.ReportAllocs()
	var in, out int64
	for range b.N {
		b.StopTimer()
		s, err := CreateSpool(path, SpoolMeta{Node: "n1"})
		if err != nil {
			b.Fatal(err)
		}
		for sec := range 300 {
			s.Append(gpuRows(sec*80, 80))
			s.Append(hostRows(sec, 1))
			if err := s.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		in = s.Size()
		if err := s.End(1, EndTile); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		files, err := Seal(path)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		out = 0
		for _, f := range files {
			st, err := os.Stat(f)
			if err != nil {
				b.Fatal(err)
			}
			out += st.Size()
			os.Remove(f)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(in)/24300, "spoolB/row")
	b.ReportMetric(float64(out)/24300, "shardB/row")
}
