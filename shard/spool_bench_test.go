package shard

import (
	"fmt"
	"io"
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
