package analysis

import (
	"math"
)

// shares says how one GPU spent a stretch of time; they add up to 1. Resident
// time is what the driver's utilisation shows: something was on the GPU, be it a
// kernel that works, one that waits for others, or a copy.
type shares struct {
	known bool
	// work is the share in which the GPU worked for itself, memory of it that
	// in which device memory was nearer to its peak than arithmetic.
	work, memory float64
	// copying and tiny are the shares of copies over PCIe and of kernels too
	// short to fill the GPU, launch gaps included.
	copying, tiny float64
	// wait is the rest of the resident time: communication, and waiting for
	// others in it.
	wait float64
	// link is the part of wait that the NVLink traffic accounts for at the
	// rate that the run has shown.
	link float64
	// idle is the share with nothing on the GPU.
	idle float64
}

// workFloor is the least work, in percent, that counts as a GPU's busy level:
// less is noise.
const workFloor = 10

// level is how hard a GPU works in a stretch when it works: the highest window
// of a block, where three blocks in four stay below. Other work than the
// stretch's does not matter, and windows that hold only part of a step's work
// lie below it.
func (m *model) level(d *device, from, to int64) float64 {
	if d.units == nil {
		return math.NaN()
	}
	var tops []float64
	for b := max(from, d.units.first); b < min(to, d.units.first+int64(d.units.n)); b++ {
		if c := d.units.get(b); c.w > 0 {
			tops = append(tops, float64(c.maxWork))
		}
	}
	return max(workFloor, quantile(tops, 0.75))
}

// shares of a GPU's time, given its busy level.
func (m *model) shares(u usage, level float64) shares {
	var s shares
	resident := u.util
	switch {
	case !u.unitsKnown && !u.utilKnown:
		return s
	case !u.utilKnown:
		// Without the driver's utilisation idle time shows only as SMs that
		// rest; copies do not show then.
		resident = clamp(u.sm+u.copying, 0, 1)
	}
	s.known = true
	if !u.unitsKnown {
		s.work, s.idle = resident, 1-resident
		return s
	}
	s.copying, s.tiny = u.copying, u.tiny
	left := max(0, 1-s.copying-s.tiny)
	s.work = min(left, u.work/level)
	if u.work > 0 {
		s.memory = s.work * clamp(u.memory/u.work, 0, 1)
	}
	left -= s.work
	s.idle = min(left, 1-clamp(resident, 0, 1))
	s.wait = left - s.idle
	s.link = min(s.wait, u.link/m.linkPeak)
	return s
}

// spanShares are the shares of all workers in a span, in their order.
func (m *model) spanShares(s Span) []shares {
	from, to := m.inner(s)
	out := make([]shares, len(m.workers))
	for i, d := range m.workers {
		out[i] = m.shares(m.usageOf(d, from, to), m.level(d, from, to))
	}
	return out
}

// inner returns the blocks of a span without the first and the last, which hold
// windows that reach over the border; all of them where there are few.
func (m *model) inner(s Span) (from, to int64) {
	from, to = m.blocks(s)
	if to-from > 5 {
		return from + 1, to - 1
	}
	return from, to
}
