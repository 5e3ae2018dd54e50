package analysis_test

import (
	"context"
	"fmt"
	"math"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// synthetic is a job in closed form, made while it is read: every GPU computes
// for a part of each step, then waits for the slowest in a collective, then
// rests. It is for sizes and for what is not there; what real GPUs do is in the
// recording.
type synthetic struct {
	nodes, gpus int
	begin       int64
	length      int64
	step        int64
	// compute is the share of a step that a GPU computes, rest the share that
	// it is empty, extra what one rank computes more.
	compute, rest float64
	slow          int
	extra         float64
	// idle lists GPUs, by number over all nodes, that do nothing.
	idle map[int]bool
	// lacks lists tables without rows; null columns of GPUs.
	lacks map[string]bool
	null  bool
	// ends is when a node's rows end, 0 for the run's end.
	ends map[int]int64
}

const tile = int64(300e9)

func (s *synthetic) node(i int) string { return fmt.Sprintf("n%04d", i) }

func (s *synthetic) facts() analysis.Facts {
	f := analysis.Facts{Run: "synthetic", BeginNS: s.begin, EndNS: s.begin + s.length, TickNS: 100e6}
	for n := range s.nodes {
		nf := analysis.NodeFacts{Node: s.node(n), Aligned: true, BoundNS: 50_000, Ended: "stopped", CPUs: 64}
		for g := range s.gpus {
			nf.GPUs = append(nf.GPUs, analysis.GPUFacts{GPU: g, UUID: fmt.Sprintf("GPU-%d-%d", n, g), Name: "synthetic", PowerLimitMW: 700_000, NUMA: -1})
		}
		f.Nodes = append(f.Nodes, nf)
	}
	return f
}

// cadence is the time between the rows of a table, and whether there is one for
// each GPU.
func cadence(t *table.Table) (every int64, perGPU bool) {
	switch t {
	case table.GPU:
		return 100e6, true
	case table.GPUActivity:
		return 200e6, true
	case table.GPUPower:
		return 20e6, true
	case table.GPUCounter, table.Rank:
		return 1e9, true
	case table.Host:
		return 1e9, false
	}
	return 0, false
}

func (s *synthetic) Rows(ctx context.Context, t *table.Table, columns []int, fn func(*table.Batch) error) error {
	every, perGPU := cadence(t)
	if every == 0 || s.lacks[t.Name] {
		return nil
	}
	wanted := make(map[int]bool, len(columns))
	for _, c := range columns {
		wanted[c] = true
	}
	b := table.NewBatch(table.Timeline(t), 4096)
	gpus := 1
	if perGPU {
		gpus = s.gpus
	}
	flush := func() error {
		if b.Rows() == 0 {
			return nil
		}
		err := fn(b)
		b.Reset()
		return err
	}
	for from := s.begin; from < s.begin+s.length; from = (from/tile + 1) * tile {
		to := min(s.begin+s.length, (from/tile+1)*tile)
		for n := range s.nodes {
			end := to
			if e := s.ends[n]; e > 0 {
				end = min(end, e)
			}
			for at := (from + every - 1) / every * every; at < end; at += every {
				if err := ctx.Err(); err != nil {
					return err
				}
				for g := range gpus {
					s.row(b.Append(), t, wanted, n, g, at, every)
				}
				if b.Rows() > 4000 {
					if err := flush(); err != nil {
						return err
					}
				}
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	own      = table.TLRead + 1 - table.ColBegin
	busyW    = 700_000
	waitingW = 130_000
)

// at is what a GPU does at an instant: computing, waiting in a collective, or
// neither.
func (s *synthetic) at(gpu int, t int64) (computes, waits bool) {
	if s.idle[gpu] {
		return false, false
	}
	phase := float64((t-s.begin)%s.step) / float64(s.step)
	compute := s.compute
	if gpu == s.slow {
		compute += s.extra
	}
	return phase < compute, phase >= compute && phase < 1-s.rest
}

// during is the share of a window that a GPU computed and waited.
func (s *synthetic) during(gpu int, from, to int64) (computes, waits float64) {
	const parts = 40
	for i := range int64(parts) {
		c, w := s.at(gpu, from+(to-from)*i/parts)
		if c {
			computes++
		}
		if w {
			waits++
		}
	}
	return computes / parts, waits / parts
}

// late is by how much a reading comes after its tick.
func (s *synthetic) late(gpu int, at, every int64) int64 {
	return int64(gpu%7)*every/9 + int64(random(gpu, at)*float64(every)/5)
}

// random is a value in [0, 1) that is the same each time.
func random(gpu int, at int64) float64 {
	h := (uint64(at)/1000 + uint64(gpu)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>29) * 0x94d049bb133111eb
	return float64((h^h>>32)>>11) / (1 << 53)
}

func (s *synthetic) row(r table.Row, t *table.Table, wanted map[int]bool, n, g int, at, every int64) {
	gpu := n*s.gpus + g
	integer := func(c int, v int64) {
		if wanted[c] {
			r.Int(c, v)
		}
	}
	text := func(c int, v string) {
		if wanted[c] {
			r.String(c, v)
		}
	}
	integer(table.TLTimeNS, at)
	text(table.TLNode, s.node(n))
	// Readings of different GPUs do not fall together, and none is quite as
	// another.
	begin := at - every + s.late(gpu, at-every, every)
	at += s.late(gpu, at, every)
	noise := 2*random(gpu, at) - 1
	switch t {
	case table.GPU:
		integer(table.GPUIndex+own, int64(g))
		if s.null {
			return
		}
		computes, waits := s.at(gpu, at)
		power := int64(100_000 + 2000*noise)
		if computes {
			power = busyW + int64(3000*noise)
		} else if waits {
			power = waitingW + int64(1000*noise)
		}
		c, w := s.during(gpu, at-166e6, at)
		integer(table.GPUUtil+own, int64(math.Round(100*(c+w))))
		integer(table.GPUUtilMem+own, int64(20*c))
		integer(table.GPUMemUsed+own, 80<<30)
		integer(table.GPUTemp+own, 60)
		integer(table.GPUTempMem+own, 70)
		integer(table.GPUClockSM+own, 1900)
		integer(table.GPUClockMem+own, 3201)
		integer(table.GPUEventReasons+own, 0)
		integer(table.GPUPowerAvg+own, power)
		integer(table.GPUPowerNow+own, power)
	case table.GPUActivity:
		integer(table.TLBegin, begin)
		integer(table.ActGPU+own, int64(g))
		if s.null {
			return
		}
		c, w := s.during(gpu, begin, at)
		for col, v := range map[int]float64{
			table.ActSMUtil: 97*c + 17*w + 0.1*noise, table.ActSMOccupancy: 14 * c, table.ActTensor: 90*c + 0.1*noise, table.ActDRAM: 16 * c,
			table.ActFP64: 0, table.ActFP32: 1 * c, table.ActFP16: 0, table.ActPCIeTx: 4, table.ActPCIeRx: 11, table.ActNVLinkTx: 9000 * w, table.ActNVLinkRx: 9000 * w,
		} {
			if wanted[col+own] {
				r.Float(col+own, max(0, v))
			}
		}
	case table.GPUPower:
		integer(table.PowGPU+own, int64(g))
		if s.null {
			return
		}
		computes, _ := s.at(gpu, at)
		power := int64(waitingW + 1000*noise)
		if computes {
			power = busyW + int64(3000*noise)
		}
		integer(table.PowPower+own, power)
	case table.GPUCounter:
		integer(table.CntGPU+own, int64(g))
		text(table.CntUUID+own, fmt.Sprintf("GPU-%d-%d", n, g))
	case table.Rank:
		seconds := (at - s.begin) / 1e9
		integer(table.RankRank+own, int64(gpu))
		integer(table.RankPID+own, int64(1000+gpu))
		integer(table.RankLocal+own, int64(g))
		integer(table.RankGPU+own, int64(g))
		text(table.RankRole+own, "rank")
		integer(table.RankCPUUser+own, seconds*900e6)
		integer(table.RankRunDelay+own, seconds*3e6)
		integer(table.RankRSS+own, 4<<30)
	case table.Host:
		seconds := (at - s.begin) / 1e9
		integer(table.HostCPUUser+own, seconds*16e9)
		integer(table.HostCPUIdle+own, seconds*48e9)
		integer(table.HostMemTotal+own, 1<<40)
		integer(table.HostMemAvailable+own, 1<<39)
	}
}

// training is a job of balanced steps.
func training(nodes, gpus int, length int64) *synthetic {
	return &synthetic{
		nodes: nodes, gpus: gpus, begin: 1_790_000_000e9, length: length, step: 700e6, compute: 0.85, rest: 0.05, slow: -1,
	}
}
