package plant

import (
	"math"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// planters says how each cause is planted.
func planters() map[analysis.Cause]planter {
	return map[analysis.Cause]planter{
		analysis.Imbalance:      {plant: imbalance},
		analysis.ClockDrop:      {plant: clockDrop},
		analysis.PowerCap:       {plant: powerCap},
		analysis.Thermal:        {plant: thermalLimit},
		analysis.LinkSlow:       {plant: linkSlow},
		analysis.PCIeSlow:       {plant: pcieSlow},
		analysis.PCIeReplay:     {plant: pcieReplay},
		analysis.CPUStarved:     {plant: cpuStarved},
		analysis.Affinity:       {plant: affinity, whole: true},
		analysis.MemoryPressure: {plant: memoryPressure},
		analysis.InputStall:     {plant: inputStall},
		analysis.NetRetransmit:  {plant: netRetransmit, nodes: 2},
		analysis.CommBound:      {plant: bound("comm")},
		analysis.LaunchBound:    {plant: bound("launch")},
		analysis.MemoryBound:    {plant: bound("hbm")},
		analysis.TransferBound:  {plant: bound("h2d")},
		analysis.SerialRank:     {plant: serialRank},
		analysis.LowUse:         {plant: lowUse, whole: true},
		analysis.GPUFault:       {plant: gpuFault},
		analysis.NodeMissing:    {plant: nodeMissing, nodes: 2},
		analysis.ClockStep:      {plant: clockStep},
	}
}

// imbalance gives one rank more work.
func imbalance(c *caseMaker) {
	c.Variant = "more work"
	c.slow(c.one(), func(r *rankStep, extra int64) { r.compute += extra })
}

// slowed is what a kernel looks like on a GPU whose clock is low so that it
// takes extra longer: the same share of fewer cycles, and less power.
func (c *caseMaker) slowed(r *rankStep, extra int64) *change {
	f := float64(r.compute) / float64(r.compute+extra)
	ch := c.base.rest()
	clock := 1455.0 // where the recorded kernels run at the power limit
	if l := c.base.light; l != nil {
		ch = *l
		clock = 1980
	}
	ch.clockMax = int64(math.Round(clock*f/15)) * 15
	ch.power *= f * f
	return &ch
}

// clockDrop holds one GPU's clock down without power or heat being the reason.
func clockDrop(c *caseMaker) {
	reasons := []int64{0, 0x2, 0x10}[c.rng.IntN(3)] // none, clocks that somebody set, sync boost
	c.Variant = map[int64]string{0: "no reason given", 2: "clocks set", 0x10: "sync boost"}[reasons]
	c.slow(c.one(), func(r *rankStep, extra int64) {
		ch := c.slowed(r, extra)
		ch.reasons = reasons
		r.compute += extra
		r.onCompute = ch
		// What sets the clock sets it for everything.
		rest := c.base.rest()
		rest.clockMax, rest.reasons = ch.clockMax, reasons
		r.onWait, r.onComm, r.onH2D = &rest, &rest, &rest
	})
}

// powerCap holds one board's power at a limit that the others do not reach, or
// gives it a board that gets less out of the same power.
func powerCap(c *caseMaker) {
	rank := c.one()
	lower := c.base.light != nil || c.rng.IntN(2) == 0
	c.Variant = "same limit, poorer board"
	if lower {
		c.Variant = "lower limit"
	}
	k := c.track(rank)
	limit := 0.0
	c.slow(rank, func(r *rankStep, extra int64) {
		ch := c.slowed(r, extra)
		ch.clockMHz, ch.reasons = 0, 4
		if ch.clockMax > 1440 { // the recorded clocks lie below
			ch.clockMHz = ch.clockMax
		}
		if lower {
			// Compute used 720 W when it was recorded.
			limit = (125e3 + 595e3*ch.power) * k.watts
			ch.powerMW = int64(limit)
		} else {
			ch.power = 1
		}
		r.compute += extra
		r.onCompute = ch
	})
	if lower && c.active.begin == c.begin {
		c.plant = append(c.plant, planting{finish: func(j *job, _ *Source) {
			j.facts.Nodes[rank/perNode].GPUs[rank%perNode].PowerLimitMW = int64(limit/5e3+1) * 5e3
		}})
	}
}

// thermalLimit lets one GPU's heat go away badly until it slows down.
func thermalLimit(c *caseMaker) {
	rank := c.one()
	k := c.track(rank)
	reasons, column := int64(0x20), table.CntThrottleSWThermal
	c.Variant = "by the driver"
	if c.rng.IntN(2) == 0 {
		reasons, column = 0x48, table.CntThrottleHWThermal
		c.Variant = "by the GPU"
	}
	limit := 86 + 4*c.rng.Float64()
	h := k.identity().thermal
	c.slow(rank, func(r *rankStep, extra int64) {
		ch := c.slowed(r, extra)
		ch.reasons = reasons
		r.compute += extra
		r.onCompute = ch
		if k.heat == 0 { // the throttling holds the temperature where it is
			share := float64(r.compute) / float64(c.base.length()+extra)
			watts := 125 + 595*ch.power*share
			k.heat = (limit - h.ambient) / (h.perWatt() * watts) / k.cool
			k.hot = stretch{c.active.begin - int64(2*h.slow.tau*1e9), c.active.end}
		}
	})
	c.counts(rank, map[int]float64{column: 0.8e9})
}

// linkSlow lets one GPU or node exchange less.
func linkSlow(c *caseMaker) {
	switch roll := c.rng.IntN(3); {
	case roll == 0 && len(c.nodes) > 1:
		c.Variant = "the node's port came up slower"
		c.nodes[0].host.kind.rdma = true
		for _, n := range c.nodes {
			n.host.kind.rdma = true
		}
		slow := c.oneNode()
		c.slowRing()
		c.add(planting{rates: func(n int, _ int64, h *nodeRates, _ []rankRates) {
			if n == slow {
				h.ibRate = "200 Gb/sec (2X NDR)"
				h.ibErrors["symbol_errors_count"] += 3
			} else {
				h.ibErrors["tx_wait_count"] += 2e7
			}
		}})
	case roll == 1:
		c.Variant = "one GPU, all-to-all"
		rank := c.one()
		c.base.comm = int64(0.3*float64(c.base.length())) + 200e6
		c.add(planting{shape: func(p *planned) {
			whole := p.comm
			p.comm += c.extra(p)
			slower := c.base.rest()
			slower.nvlink = float64(whole) / float64(p.comm)
			for r := range p.ranks {
				p.ranks[r].sends = whole
			}
			p.ranks[rank].sends, p.ranks[rank].onComm = 0, &slower
		}})
	default:
		c.Variant = "one GPU's NVLink repeats, ring"
		rank := c.one()
		c.slowRing()
		replays := 20 * math.Pow(100, c.rng.Float64())
		c.counts(rank, map[int]float64{
			table.CntNVLinkReplay: replays, table.CntNVLinkCRC: replays * 1.1, table.CntNVLinkRecovery: replays / 300,
		})
	}
}

// slowRing lengthens the exchange of all, as one slow member of a ring does.
func (c *caseMaker) slowRing() {
	c.add(planting{shape: func(p *planned) {
		whole := p.comm
		p.comm += c.extra(p)
		slower := c.base.rest()
		slower.nvlink = float64(whole) / float64(p.comm)
		for r := range p.ranks {
			p.ranks[r].onComm = &slower
		}
	}})
}

// slowCopies lengthens one rank's copies to its GPU.
func (c *caseMaker) slowCopies(rank int) {
	c.slow(rank, func(r *rankStep, extra int64) {
		ch := c.base.rest()
		ch.pcie = float64(r.h2d) / float64(r.h2d+extra)
		r.h2d += extra
		r.onH2D = &ch
	})
}

func pcieSlow(c *caseMaker) {
	c.Variant = "fewer lanes"
	c.base.h2d = int64((0.08 + 0.12*c.rng.Float64()) * float64(c.base.length()))
	c.slowCopies(c.one())
}

func pcieReplay(c *caseMaker) {
	c.Variant = "repeats"
	c.base.h2d = int64((0.08 + 0.12*c.rng.Float64()) * float64(c.base.length()))
	rank := c.one()
	c.slowCopies(rank)
	c.counts(rank, map[int]float64{table.CntPCIeReplay: 10 * math.Pow(100, c.rng.Float64())})
}

// bound puts a stretch into the run in which something else bounds the work.
func bound(phase string) func(c *caseMaker) {
	return func(c *caseMaker) {
		c.Variant = "phase " + phase
		if c.base.light == nil { // at the power limit the steps would be bounded too
			c.base.light = lightKernels(c.rng)
		}
		length := int64(c.Size * float64(c.end-c.begin))
		free := c.end - c.begin - c.idle - length
		c.active.begin = c.begin + c.idle + int64(0.8*c.rng.Float64()*float64(free))
		c.active.end = c.active.begin + length
		c.filler = func(j *job, t int64) int64 {
			if t < c.active.begin || t >= c.active.end {
				return t
			}
			for r := range j.ranks() {
				j.phase(r, phase, length, nil)
			}
			c.active = stretch{t, t + length}
			j.filler = nil
			return t + length
		}
	}
}

// serialRank lets one rank work alone, as for a checkpoint, once or again and
// again.
func serialRank(c *caseMaker) {
	alone := c.rng.IntN(c.ranks())
	if c.rng.Float64() < 0.6 {
		alone = 0
	}
	c.Ranks, c.Nodes = []int{alone}, []string{c.nodes[alone/perNode].name}
	times := int64(1)
	c.Variant = "once"
	if c.rng.IntN(2) == 0 {
		times = 2 + c.rng.Int64N(3)
		c.Variant = "again and again"
	}
	run := c.end - c.begin - c.idle
	length := int64(c.Size*float64(run)) / times
	next, done := c.begin+c.idle+int64((0.1+0.3*c.rng.Float64())*float64(run)/float64(times)), int64(0)
	c.active = stretch{next, c.end}
	c.filler = func(j *job, t int64) int64 {
		if t < next || done == times {
			return t
		}
		for r := range j.ranks() {
			if r == alone {
				j.phaseOf(r, 0, "ckpt", length, nil)
			} else {
				j.phaseOf(r, 1+r%(perNode-1), "ckpt", length, nil)
			}
		}
		done++
		next = t + length + (j.end-t-length)/(times-done+1)
		if done == times {
			c.active.end = t + length
		}
		return t + length
	}
}

// lowUse leaves the GPUs idle but for short bursts at odd times.
func lowUse(c *caseMaker) {
	c.Variant = "short bursts"
	duty := 0.2 - 0.3*c.Size
	c.filler = func(j *job, t int64) int64 {
		busy := 1e9 + j.rng.Int64N(4e9)
		pause := int64(float64(busy) * (1/max(0.03, duty) - 1) * (0.5 + j.rng.Float64()))
		phase := []string{"train", "hbm", "power"}[j.rng.IntN(3)]
		for r := range j.ranks() {
			j.phase(r, phase, busy, nil)
			j.idle(r, pause)
		}
		return t + busy + pause
	}
}
