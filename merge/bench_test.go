package merge

import (
	"context"
	"os"
	"testing"
)

// BenchmarkDir merges the run that GSWARM_BENCH_DIR names; mergebench makes
// one.
func BenchmarkDir(b *testing.B) {
	dir := os.Getenv("GSWARM_BENCH_DIR")
	if dir == "" {
		b.Skip("GSWARM_BENCH_DIR names no run")
	}
	rows := int64(0)
	for b.Loop() {
		s, err := Run(context.Background(), dir, Options{Sort: os.Getenv("GSWARM_BENCH_SORT") != ""})
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range s.Rows {
			rows += n
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
