package plant

import (
	"math"
	"math/rand/v2"

	"github.com/gswarm/gswarm/table"
)

// gpuReader writes the rows that an agent would have read of one GPU.
type gpuReader struct {
	*track
	out  *Source
	rng  *rand.Rand
	node *nodeClock
	gpu  int
	uuid string
	// noise is the relative deviation that is added to activity and power; a
	// share of missed ticks are left out.
	noise, missed float64
	// counters are what a planter adds to the counters by t, and lost is when
	// the GPU fell off the bus, 0 for never.
	counters func(t int64, column int) int64
	lost     int64
	base     counterBase
}

// counterBase are counters as they stand when the run begins.
type counterBase struct{ energy, nvlink, pcieReplay, corrected int64 }

// nodeClock says how a node's stamps come out on the timeline.
type nodeClock struct {
	name string
	// off is how far the stamps are from true time, and drift how that grows in
	// a second; both stay within bound. A bound below zero: not aligned.
	off, bound int64
	drift      float64
	begin, end int64
}

func (n *nodeClock) stamp(t, read int64) stamp {
	s := stamp{t: n.shifted(t), read: read, bound: -1}
	if n.bound >= 0 {
		s.bound = n.bound + read/2
	}
	return s
}

func (n *nodeClock) shifted(t int64) int64 {
	return t + n.off + int64(n.drift*float64(t-n.begin)/1e9)
}

func (g *gpuReader) row(t *table.Table, at, read int64) cells {
	return keyed(t, g.out.add(t, g.node.name, g.node.stamp(at, read)), g.gpu, g.uuid)
}

// until is when the readings of the GPU end.
func (g *gpuReader) until() int64 {
	if g.lost > 0 {
		return min(g.lost, g.node.end)
	}
	return g.node.end
}

func (g *gpuReader) read() {
	if g.until()-g.node.begin < 1e9 {
		return
	}
	powers := g.powerRows()
	g.gpuRows(powers)
	g.activityRows()
	g.counterRows(powers)
}

// powerRows writes the driver's samples and returns them.
func (g *gpuReader) powerRows() []powerSample {
	recorded := g.identity().power
	at := g.rng.IntN(len(recorded) - 1)
	var all []powerSample
	for t := g.node.begin; t < g.until(); {
		p := g.power(t) * (1 + g.noise*g.rng.NormFloat64())
		all = append(all, powerSample{t, int64(p)})
		r := keyed(table.GPUPower, g.out.add(table.GPUPower, g.node.name, g.node.stamp(t, 0)), g.gpu, g.uuid)
		r.int(table.PowStamp, g.node.shifted(t)/1000)
		r.int(table.PowPower, int64(p))
		if at++; at == len(recorded) {
			at = 1
		}
		t += min(60e6, recorded[at].t-recorded[at-1].t)
	}
	return all
}

func (g *gpuReader) gpuRows(powers []powerSample) {
	is := g.identity()
	var (
		at      int
		memory  = 42.0
		watts   = float64(powers[0].mw) / 1000
		warm    = heat{watts, watts}
		temp    float64
		recent  []powerSample
		sum     int64
		pending = g.rng.Int64N(100e6)
	)
	for t := g.node.begin + pending; t < g.until(); t += 100e6 {
		for ; at < len(powers) && powers[at].t <= t; at++ {
			p := powers[at]
			recent, sum = append(recent, p), sum+p.mw
			temp = warm.next(is.thermal, float64(p.mw)/1000, g.cooling(t), 0.02)
			for len(recent) > 0 && recent[0].t < t-1e9 {
				sum, recent = sum-recent[0].mw, recent[1:]
			}
		}
		if at == 0 || g.rng.Float64() < g.missed {
			continue
		}
		c := g.cheap(t)
		memory += (42 + 0.3*(temp-40) + 0.12*float64(c.utilMem) - memory) * 0.005
		r := g.row(table.GPU, t+g.rng.Int64N(400e3), 12e3+g.rng.Int64N(20e3))
		r.int(table.GPUUtil, c.util)
		r.int(table.GPUUtilMem, c.utilMem)
		r.int(table.GPUMemUsed, c.mem)
		r.int(table.GPUTemp, int64(math.Round(temp)))
		r.int(table.GPUTempMem, int64(math.Round(memory)))
		r.int(table.GPUClockSM, c.clock)
		r.int(table.GPUClockMem, c.clockMem)
		r.int(table.GPUEventReasons, c.reasons)
		r.int(table.GPUPState, 0)
		r.int(table.GPUPowerNow, powers[at-1].mw)
		if len(recent) > 0 {
			r.int(table.GPUPowerAvg, sum/int64(len(recent)))
		}
	}
}

func (g *gpuReader) activityRows() {
	is := g.identity()
	at := g.rng.IntN(len(is.windows) - 1)
	lag := is.lags[g.rng.IntN(len(is.lags))]
	begin := g.node.begin + g.rng.Int64N(50e6)
	for {
		if at++; at == len(is.windows) {
			at = 1
		}
		begin += max(0, min(5e6, is.windows[at].begin-is.windows[at-1].end))
		end := begin + is.windows[at].end - is.windows[at].begin
		if end > g.until() {
			return
		}
		if g.rng.Float64() >= g.missed {
			r := g.row(table.GPUActivity, end, 100e3+g.rng.Int64N(100e3))
			r.Int(table.TLBegin, g.node.shifted(begin))
			for c, v := range g.activity(stretch{begin - lag, end - lag}) {
				v *= 1 + g.noise*g.rng.NormFloat64()
				if c < gpmPCIeTx {
					v = min(v, 100)
				}
				r.float(activityColumn(c), float64(float32(max(0, v))))
			}
		}
		begin = end
	}
}

// activityColumn is the table's column of a recorded one: the recording has
// what NVLink received before what it sent.
func activityColumn(c int) int {
	switch c {
	case gpmNVLinkA:
		return table.ActNVLinkRx
	case gpmNVLinkB:
		return table.ActNVLinkTx
	}
	return table.ActSMUtil + c
}

// counterRows writes the cheap counters each second and the dear ones each ten.
func (g *gpuReader) counterRows(powers []powerSample) {
	var throttled, energy, nvlink float64
	at, last := 0, g.node.begin
	for i := 0; ; i++ {
		t := min(g.node.begin+int64(i)*1e9, g.until()-50e6)
		for u := last; u < t; u += 100e6 {
			if c := g.cheap(u); c.reasons&0x4 != 0 {
				throttled += 100e6
			}
		}
		if t > last {
			v := g.activity(stretch{last, t})
			nvlink += v[gpmNVLinkA] * (1 << 20) * float64(t-last) / 1e9
		}
		for ; at < len(powers) && powers[at].t < t; at++ {
			if at > 0 {
				energy += float64(powers[at].mw) * float64(powers[at].t-powers[at-1].t) / 1e9
			}
		}
		last = t
		extra := func(column int) int64 {
			if g.counters == nil {
				return 0
			}
			return g.counters(t, column)
		}
		if i > 0 && t < g.node.begin+int64(i)*1e9 { // the end
			g.dearRow(t, energy, nvlink, extra)
			return
		}
		r := g.row(table.GPUCounter, t+2e6+g.rng.Int64N(1e6), 400e3+g.rng.Int64N(300e3))
		r.int(table.CntPCIeReplay, g.base.pcieReplay+extra(table.CntPCIeReplay))
		r.int(table.CntECCCorrected, g.base.corrected+extra(table.CntECCCorrected))
		r.int(table.CntECCUncorrected, extra(table.CntECCUncorrected))
		r.int(table.CntRemappedCorrected, 0)
		r.int(table.CntRemappedUncorrected, extra(table.CntRemappedUncorrected))
		r.int(table.CntThrottlePower, int64(throttled))
		r.int(table.CntThrottleSync, 0)
		r.int(table.CntThrottleSWThermal, extra(table.CntThrottleSWThermal))
		r.int(table.CntThrottleHWThermal, extra(table.CntThrottleHWThermal))
		r.int(table.CntThrottleHWBrake, 0)
		if i%10 == 0 {
			g.dearRow(t, energy, nvlink, extra)
		}
	}
}

func (g *gpuReader) dearRow(t int64, energy, nvlink float64, extra func(int) int64) {
	r := g.row(table.GPUCounter, t+5e6+g.rng.Int64N(2e6), 5e6+g.rng.Int64N(3e6))
	r.int(table.CntEnergy, g.base.energy+int64(energy))
	r.int(table.CntNVLinkTx, (g.base.nvlink+int64(nvlink))>>10<<10)
	r.int(table.CntNVLinkRx, (g.base.nvlink+int64(nvlink*1.0001))>>10<<10)
	r.int(table.CntNVLinkReplay, extra(table.CntNVLinkReplay))
	r.int(table.CntNVLinkRecovery, extra(table.CntNVLinkRecovery))
	r.int(table.CntNVLinkCRC, extra(table.CntNVLinkCRC))
}
