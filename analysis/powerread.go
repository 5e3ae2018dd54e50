package analysis

import (
	"context"

	"github.com/gswarm/gswarm/table"
)

// maxPowerGPUs is of how many GPUs the driver's 20 ms samples of power are kept
// one by one; maxPowerBins how many samples they may take together.
const (
	maxPowerGPUs = 64
	maxPowerBins = 32 << 20
	powerUnit    = 64 // mW: 16 bits reach to 4 kW
)

// powerTrack is the power of one GPU in bins of 20 ms, in units of powerUnit, 0
// where it was not sampled.
type powerTrack struct {
	gpu   int
	node  string
	first int64
	bins  []uint16
}

// powerReader reads the table gpu_power of the first maxPowerGPUs GPUs. They
// serve to find steps that windows are too long for.
type powerReader struct {
	tracks[powerTrack]
	fine signal
}

func (r *powerReader) read(ctx context.Context, src Source) error {
	r.fine.dt = 20e6
	columns := []int{table.TLTimeNS, table.TLNode, table.PowGPU + tl, table.PowPower + tl}
	return src.Rows(ctx, table.GPUPower, columns, func(b *table.Batch) error {
		r.batch(b)
		return nil
	})
}

func (r *powerReader) batch(b *table.Batch) {
	times, nodes, ordinals := b.Ints(table.TLTimeNS), b.Strings(table.TLNode), b.Ints(table.PowGPU+tl)
	power, valid := b.Ints(table.PowPower+tl), b.Valid(table.PowPower+tl)
	skip := ""
	for i := range b.Rows() {
		if !valid[i] || (skip != "" && nodes[i] == skip) {
			continue
		}
		if r.byNode[nodes[i]] == nil && len(r.list) >= maxPowerGPUs {
			skip = nodes[i]
			continue
		}
		g := r.get(nodes[i], ordinals[i])
		if g == nil {
			continue
		}
		bin := floorDiv(times[i], r.fine.dt)
		if len(g.bins) == 0 {
			g.node, g.gpu, g.first = nodes[i], int(ordinals[i]), bin
		}
		r.fine.add(times[i], float64(power[i])/1e3)
		k := bin - g.first
		if k < 0 || k >= maxPowerBins/maxPowerGPUs {
			continue
		}
		for int64(len(g.bins)) <= k {
			g.bins = append(g.bins, 0)
		}
		g.bins[k] = uint16(min(max(power[i]/powerUnit, 1), 1<<16-1))
	}
}

// busyPower is the power, in units, above which a GPU is taken to work: the
// middle between what it uses at rest or waiting and at work. 0 where its power
// does not vary enough to tell the two apart.
func (g *powerTrack) busyPower() uint16 {
	var counts [1 << 16]int
	n := 0
	for _, v := range g.bins {
		if v > 0 {
			counts[v]++
			n++
		}
	}
	at := func(q float64) float64 {
		left := int(q * float64(n))
		for v, c := range counts {
			if left -= c; left < 0 {
				return float64(v)
			}
		}
		return 0
	}
	lo, hi := at(0.05), at(0.95)
	if n == 0 || hi < 1.3*lo {
		return 0
	}
	return uint16((lo + hi) / 2)
}

// above is the share of a stretch in which the power was above a level; false
// where less than half of it was sampled.
func (g *powerTrack) above(level uint16, s Span, dt int64) (float64, bool) {
	from, to := max(floorDiv(s.BeginNS, dt)-g.first, 0), min(floorDiv(s.EndNS, dt)-g.first, int64(len(g.bins)))
	above, n := 0, 0
	for i := from; i < to; i++ {
		if v := g.bins[i]; v > 0 {
			n++
			if v > level {
				above++
			}
		}
	}
	if n == 0 || int64(n) < (s.EndNS-s.BeginNS)/dt/2 {
		return 0, false
	}
	return float64(above) / float64(n), true
}
