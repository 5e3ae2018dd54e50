//go:build cgo && linux

package gpu

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// quiet is a rankagent.Out that allocates nothing.
type quiet struct {
	batches map[*table.Table]*table.Batch
	skew    clock.NodeTime
}

func newQuiet() *quiet {
	q := &quiet{batches: map[*table.Table]*table.Batch{}}
	for _, t := range table.All() {
		q.batches[t] = table.NewBatch(t, 200)
	}
	return q
}

func (q *quiet) Now() clock.NodeTime { return clock.System{}.Now() + q.skew }

func (q *quiet) Batch(t *table.Table) *table.Batch {
	b := q.batches[t]
	b.Reset()
	return b
}

func (*quiet) Absent(*table.Table, string, string, rankagent.Reason, string) {}
func (*quiet) Present(*table.Table, string, string)                          {}
func (*quiet) Event(clock.NodeTime, string, int, int, any)                   {}

// bareCheap makes the calls of the cheap set and does nothing with them.
func bareCheap(s *cheap, h nvml.Device) {
	_, _ = h.GetUtilizationRates()
	_, _ = h.GetMemoryInfo_v2()
	_, _ = h.GetTemperature(nvml.TEMPERATURE_GPU)
	_, _ = h.GetClockInfo(nvml.CLOCK_SM)
	_, _ = h.GetClockInfo(nvml.CLOCK_MEM)
	_, _ = h.GetCurrentClocksEventReasons()
	_, _ = h.GetPerformanceState()
	_, _ = h.GetPowerUsage()
	_ = h.GetFieldValues(s.field[:])
	_ = h.GetFieldValues(s.field[:])
}

// bareActivity makes the two GPM calls of a window.
func bareActivity(s *activity, h nvml.Device) {
	_ = s.gpm.sample(h)
	_ = s.gpm.lib.GpmMetricsGet(&s.gpm.get)
	s.gpm.advance()
}

// readActivity reads a window of more than minWindow by moving the clock on
// rather than waiting.
func readActivity(t testing.TB, s *activity, out *quiet) {
	out.skew += clock.NodeTime(minWindow) * 2
	if err := s.Read(out); err != nil {
		t.Fatal(err)
	}
}

// TestAllocs: after warm-up a read allocates what go-nvml's wrappers do and
// nothing else, also while values are missing.
func TestAllocs(t *testing.T) {
	for name, script := range map[string]string{
		"sound":   "gpus 1",
		"missing": "fault field:82 0 return 3 from 0",
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, Options{}, "gpus 1", script)
			out := newQuiet()
			h := d.devices[0].id.Load().handle

			c := newCheap(d.devices[0])
			bare := testing.AllocsPerRun(200, func() { bareCheap(c, h) })
			ours := testing.AllocsPerRun(200, func() { _ = c.Read(out) })
			t.Logf("cheap set: %v allocations, of which go-nvml %v", ours, bare)
			if ours > bare {
				t.Errorf("the cheap set allocates %v, go-nvml alone %v", ours, bare)
			}

			a := newActivity(d.devices[0])
			readActivity(t, a, out)
			readActivity(t, a, out)
			if out.batches[table.GPUActivity].Rows() != 1 {
				t.Fatal("no GPM row")
			}
			bare = testing.AllocsPerRun(200, func() { bareActivity(a, h) })
			ours = testing.AllocsPerRun(200, func() { readActivity(t, a, out) })
			t.Logf("GPM: %v allocations, of which go-nvml %v", ours, bare)
			if ours > bare {
				t.Errorf("GPM allocates %v, go-nvml alone %v", ours, bare)
			}
			_ = a.Close()

			n := newCounters(d.devices[0])
			_ = n.Read(out)
			bare = testing.AllocsPerRun(200, func() {
				for i := range n.items {
					_ = n.items[i].read(n.reader, h)
				}
			})
			ours = testing.AllocsPerRun(200, func() { _ = n.Read(out) })
			t.Logf("counters: %v allocations, of which go-nvml %v", ours, bare)
			if ours > bare {
				t.Errorf("counters allocate %v, go-nvml alone %v", ours, bare)
			}

			p := newPower(d.devices[0])
			_ = p.Read(out)
			bare = testing.AllocsPerRun(50, func() {
				_, _ = d.clock.Bracket()
				_, _, _ = h.GetSamples(nvml.TOTAL_POWER_SAMPLES, uint64(p.last))
			})
			ours = testing.AllocsPerRun(50, func() { _ = p.Read(out) })
			t.Logf("power: %v allocations, of which go-nvml and the clocks %v", ours, bare)
			if ours > bare {
				t.Errorf("power allocates %v, go-nvml alone %v", ours, bare)
			}
		})
	}
}

func BenchmarkCheap(b *testing.B) {
	d := open(b, Options{}, "gpus 1")
	out, s := newQuiet(), newCheap(d.devices[0])
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Read(out)
		}
	})
	h := d.devices[0].id.Load().handle
	b.Run("calls", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bareCheap(s, h)
		}
	})
}

func BenchmarkActivity(b *testing.B) {
	d := open(b, Options{}, "gpus 1")
	out, s := newQuiet(), newActivity(d.devices[0])
	readActivity(b, s, out)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			readActivity(b, s, out)
		}
	})
	h := d.devices[0].id.Load().handle
	b.Run("calls", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bareActivity(s, h)
		}
	})
}
