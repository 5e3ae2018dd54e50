package analysis_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// again passes what a synthetic job has in a stretch of a few steps again and
// again, for every node and for as long as is asked: rows cost next to nothing
// to make, so that what is measured is the analysis.
type again struct {
	*synthetic
	stretch int64
	parts   map[string][]*table.Batch
	rows    atomic.Int64
}

func newAgain(nodes int, length int64) *again {
	a := &again{synthetic: training(nodes, 8, length), stretch: 7e9, parts: map[string][]*table.Batch{}}
	few := training(1, 8, a.stretch)
	for _, t := range []*table.Table{table.GPU, table.GPUActivity, table.GPUPower, table.GPUCounter, table.Rank, table.Host} {
		form := table.Timeline(t)
		all := make([]int, len(form.Columns))
		for i := range all {
			all[i] = i
		}
		err := few.Rows(context.Background(), t, all, func(b *table.Batch) error {
			c := table.NewBatch(form, b.Rows())
			c.AppendBatch(b)
			a.parts[t.Name] = append(a.parts[t.Name], c)
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	return a
}

func (a *again) Rows(_ context.Context, t *table.Table, _ []int, fn func(*table.Batch) error) error {
	parts := a.parts[t.Name]
	var batches []*table.Batch
	for _, p := range parts { // each reader its own
		b := table.NewBatch(p.Table, p.Rows())
		b.AppendBatch(p)
		batches = append(batches, b)
	}
	for tile := int64(0); tile < a.length; tile += 300e9 / a.stretch * a.stretch {
		for n := range a.nodes {
			node := a.node(n)
			for off := tile; off < min(a.length, tile+300e9/a.stretch*a.stretch); off += a.stretch {
				for i, b := range batches {
					a.shift(b, parts[i], node, n, off)
					if err := fn(b); err != nil {
						return err
					}
					a.rows.Add(int64(b.Rows()))
				}
			}
		}
	}
	return nil
}

// shift moves the rows of a part to another time and node.
func (a *again) shift(b, part *table.Batch, node string, n int, off int64) {
	columns := []int{table.TLTimeNS}
	if b.Table.Shape == table.Windowed {
		columns = append(columns, table.TLBegin)
	}
	for _, c := range columns {
		from, to := part.Ints(c), b.Ints(c)
		for i := range to {
			to[i] = from[i] + off
		}
	}
	nodes := b.Strings(table.TLNode)
	for i := range nodes {
		nodes[i] = node
	}
	if b.Table.Name == table.Rank.Name {
		seconds := off / 1e9
		from, to := part.Ints(table.RankRank+own), b.Ints(table.RankRank+own)
		cpu, fromCPU := b.Ints(table.RankCPUUser+own), part.Ints(table.RankCPUUser+own)
		for i := range to {
			to[i] = from[i] + int64(n*a.gpus)
			cpu[i] = fromCPU[i] + seconds*900e6
		}
	}
}

// BenchmarkAnalyze is the analysis of an hour of 128 nodes with eight GPUs each,
// at the default cadences: 29.5 million rows of gpu, 184 million of gpu_power.
// It reports rows a second and the most memory that was in use.
func BenchmarkAnalyze(b *testing.B) {
	for _, size := range []struct {
		name   string
		nodes  int
		length int64
	}{{"8nodes10min", 8, 600e9}, {"128nodes1h", 128, 3600e9}} {
		b.Run(size.name, func(b *testing.B) {
			a := newAgain(size.nodes, size.length)
			facts := a.facts()
			stop, peak := make(chan struct{}), make(chan uint64)
			go watchMemory(stop, peak)
			b.ResetTimer()
			for range b.N {
				r, err := analysis.Analyze(context.Background(), a, facts)
				if err != nil {
					b.Fatal(err)
				}
				if len(r.GPUs) != size.nodes*8 || r.Steps.Count == 0 {
					b.Fatalf("%d GPUs, %d steps", len(r.GPUs), r.Steps.Count)
				}
			}
			b.StopTimer()
			close(stop)
			b.ReportMetric(float64(a.rows.Load())/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(<-peak)/(1<<20), "MiB-peak")
		})
	}
}

// watchMemory reports the most memory that the program had from the system,
// without what it had given back.
func watchMemory(stop chan struct{}, peak chan uint64) {
	var most uint64
	for {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		most = max(most, s.Sys-s.HeapReleased)
		select {
		case <-stop:
			peak <- most
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
