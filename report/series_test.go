package report

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// rows is a source of rows that a test made: functions that fill a batch.
type rows map[*table.Table]func(*table.Batch)

func (s rows) Rows(_ context.Context, t *table.Table, _ []int, fn func(*table.Batch) error) error {
	fill := s[t]
	if fill == nil {
		return nil
	}
	b := table.NewBatch(table.Timeline(t), 0)
	fill(b)
	return fn(b)
}

// put appends a row and returns a setter by column name.
func put(b *table.Batch, seconds float64, node string) func(column string, v any) {
	r := b.Append()
	r.Int(table.TLTimeNS, begin+int64(seconds*1e9))
	r.String(table.TLNode, node)
	return func(column string, v any) {
		at := b.Table.Index(column)
		switch v := v.(type) {
		case int:
			r.Int(at, int64(v))
		case float64:
			r.Float(at, v)
		case string:
			r.String(at, v)
		}
	}
}

func TestReadSeries(t *testing.T) {
	r := job(1)
	src := rows{
		table.GPU: func(b *table.Batch) {
			for i := range 2420 {
				set := put(b, float64(i)/10, "n1")
				set("gpu", 3)
				set("util_gpu_pct", 97)
				power := 500_000
				if i == 1234 {
					power = 992_000 // a peak of one reading
				}
				if i%2 == 0 {
					set("power_now_mw", power)
				} else {
					set("power_avg_mw", power)
				}
			}
			put(b, -5, "n1")("gpu", 3)   // before the run
			put(b, 5000, "n1")("gpu", 3) // after it
			put(b, 1, "n9")("gpu", 0)    // of a GPU that the result does not have
		},
		table.GPUActivity: func(b *table.Batch) {
			set := put(b, 100.9, "n1") // the window's middle is at 100.5
			set("gpu", 3)
			set(table.TimeBegin, int(begin+100.1e9))
			set("sm_active_pct", 91.0)
			set("pcie_rx_mib_s", 1000.0)
			set("pcie_tx_mib_s", 24.0)
		},
		table.Host: func(b *table.Batch) {
			for i := range 242 {
				set := put(b, float64(i), "n1")
				for _, c := range []string{"cpu_nice_ns", "cpu_system_ns", "cpu_irq_ns", "cpu_softirq_ns", "cpu_steal_ns", "cpu_iowait_ns"} {
					set(c, 0)
				}
				set("cpu_user_ns", i*int(1e9))
				set("cpu_idle_ns", i*int(3e9))
				set("mem_total_bytes", int(100e9))
				set("mem_available_bytes", int(60e9))
			}
		},
		table.Rank: func(b *table.Batch) {
			for i := range 242 {
				for pid, role := range []string{"rank", "worker"} {
					set := put(b, float64(i), "n1")
					set("rank", 3)
					set("pid", pid+10)
					set("role", role)
					set("cpu_user_ns", i*int(5e8))
					set("cpu_system_ns", i*int(5e8))
					set("run_delay_ns", i*int(1e7))
				}
			}
		},
		table.Event: func(b *table.Batch) {
			for i := range 1000 {
				set := put(b, float64(i)/10, "n1")
				set("kind", "mark")
				set("detail", fmt.Sprintf(`{"text":"epoch %d"}`, i))
			}
			put(b, 1, "n1")("kind", "xid")
		},
	}
	s, err := ReadSeries(context.Background(), src, r, 100)
	if err != nil {
		t.Fatal(err)
	}
	if s.GPUGrid.Buckets != 100 || s.GPUGrid.BucketNS != 2.42e9 || len(s.GPUs) != 8 {
		t.Fatalf("%+v, %d GPUs", s.GPUGrid, len(s.GPUs))
	}
	power := s.GPUs[3].Curves[curvePower]
	at := 50 // 123.4 s / 2.42 s
	if power.Max[at] != 992 || power.Min[at] != 500 || power.Max[at+1] != 500 || power.Mean[at] < 500 || power.Mean[at] > 530 {
		t.Errorf("the peak: mean %v, min %v, max %v", power.Mean[at], power.Min[at], power.Max[at])
	}
	active := s.GPUs[3].Curves[curveActive]
	at = 41 // 100.5 s / 2.42 s
	if active.Mean[at] != 91 || !math.IsNaN(float64(active.Mean[at+1])) || s.GPUs[2].Curves[curveActive] != nil {
		t.Errorf("activity %v, then %v", active.Mean[at], active.Mean[at+1])
	}
	if pcie := s.GPUs[3].Curves[curvePCIe].Mean[at]; math.Abs(float64(pcie)-1.0737) > 1e-3 {
		t.Errorf("PCIe %v GB/s", pcie)
	}
	host := s.Hosts[0]
	if len(s.Hosts) != 1 || host.Curves[curveCPU].Mean[10] != 25 || host.Curves[curveHostMemory].Mean[10] != 40 {
		t.Errorf("host: CPU %v, memory %v", host.Curves[curveCPU].Mean[10], host.Curves[curveHostMemory].Mean[10])
	}
	if len(s.Ranks) != 1 || s.Ranks[0].Curves[curveCores].Mean[10] != 1 || math.Abs(float64(s.Ranks[0].Curves[curveWaited].Mean[10])-1) > 1e-5 {
		t.Errorf("ranks: %+v", s.Ranks)
	}
	if len(s.Marks) != mostMarks || s.Marks[1].Text != "epoch 5" {
		t.Errorf("%d marks, the second %+v", len(s.Marks), s.Marks[1])
	}
}

type brokenSource struct{}

var errBroken = errors.New("torn")

func (brokenSource) Rows(context.Context, *table.Table, []int, func(*table.Batch) error) error {
	return errBroken
}

func TestReadSeriesFails(t *testing.T) {
	if _, err := ReadSeries(context.Background(), brokenSource{}, job(1), 100); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	if s, err := ReadSeries(context.Background(), rows{}, &analysis.Result{}, 100); err != nil || len(s.GPUs) != 0 {
		t.Errorf("a run without anything: %+v, %v", s, err)
	}
}

// randomSeries are curves of a result such as compress worst: noise.
func randomSeries(r *analysis.Result, buckets int) *Series {
	random := rand.New(rand.NewPCG(3, 4))
	s := &Series{GPUGrid: gridOf(runSpan(r), buckets, leastGPUBucket), HostGrid: gridOf(runSpan(r), buckets, leastHostBucket)}
	noise := func(g Grid, most float64) *Curve {
		c := newCurve(g.Buckets)
		for i := range g.Buckets {
			if random.IntN(100) == 0 {
				continue // nothing was read
			}
			for range 3 {
				c.add(i, most*random.Float64())
			}
		}
		c.finish()
		return c
	}
	most := [gpuCurves]float64{100, 100, 100, 100, 700, 140, 90, 1980, 400, 50}
	for _, g := range r.GPUs {
		subject := &Subject{Place: g.Place, Curves: make([]*Curve, gpuCurves)}
		for m := range subject.Curves {
			subject.Curves[m] = noise(s.GPUGrid, most[m])
		}
		s.GPUs = append(s.GPUs, subject)
	}
	for _, h := range r.Hosts {
		s.Hosts = append(s.Hosts, &Subject{Place: analysis.Place{Node: h.Node}, Curves: []*Curve{noise(s.HostGrid, 100), noise(s.HostGrid, 1000)}})
	}
	for _, k := range r.Ranks {
		s.Ranks = append(s.Ranks, &Subject{Place: k.Place, Curves: []*Curve{noise(s.HostGrid, 8), noise(s.HostGrid, 20)}})
	}
	return s
}

// storySeries are curves that fit the story of job: steps, and rank 3 ahead of
// all others in phase 2.
func storySeries(r *analysis.Result, buckets int) *Series {
	s := randomSeries(r, buckets)
	phase := func(t float64) analysis.Phase {
		for _, p := range r.Phases {
			if begin+int64(t*1e9) < p.EndNS {
				return p
			}
		}
		return analysis.Phase{}
	}
	for i, g := range s.GPUs {
		random := rand.New(rand.NewPCG(uint64(i), 9))
		active, power, memory, temp, clock := newCurve(s.GPUGrid.Buckets), newCurve(s.GPUGrid.Buckets), newCurve(s.GPUGrid.Buckets), newCurve(s.GPUGrid.Buckets), newCurve(s.GPUGrid.Buckets)
		for b := range s.GPUGrid.Buckets {
			for k := range 3 {
				at := (float64(b) + float64(k)/3) * float64(s.GPUGrid.BucketNS) / 1e9
				p := phase(at)
				v := p.Metrics["sm_active_pct"]
				if p.StepNS != nil && math.Mod(at, float64(*p.StepNS)/1e9) < 0.2 {
					v *= 0.55
				}
				if p.Bottleneck.Name == "imbalance" && g.Rank != nil && *g.Rank == 3 {
					v = 92
				}
				v = min(v*(0.97+0.05*random.Float64()), 100)
				active.add(b, v)
				power.add(b, 80+6*v+4*random.Float64())
				memory.add(b, 12.8+0.02*float64(i%8))
				temp.add(b, 38+0.2*v+random.Float64())
				clock.add(b, 1980-3*max(v-80, 0))
			}
		}
		for m, c := range map[int]*Curve{curveActive: active, curvePower: power, curveMemory: memory, curveTemp: temp, curveClock: clock} {
			c.finish()
			g.Curves[m] = c
		}
	}
	s.Marks = []Mark{{begin + 29e9, "epoch 1"}, {begin + 110e9, "epoch 2 <b>bold</b>"}}
	return s
}
