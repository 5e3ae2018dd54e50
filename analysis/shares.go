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
	// unknown is what was waiting or empty: without the driver's utilisation
	// the two cannot be told apart.
	unknown float64
}

// workFloor is the least work, in percent, that counts as a GPU's busy level:
// less is noise.
const workFloor = 10

// levels are what a GPU's units reach in a stretch when they are at it.
type levels struct {
	// work is in percent, see work.
	work float64
	// sm is the SMs' activity for each percent of work, in percent.
	sm float64
}

// levels are the highest window of a block, where nine blocks in ten stay below:
// windows that hold only part of a step's work lie below it.
func (m *model) levels(d *device, from, to int64) levels {
	l := levels{work: math.NaN(), sm: math.NaN()}
	if d.units == nil {
		if d.busyPower > 0 {
			l.work = 100
		}
		return l
	}
	var work, sm []float64
	for b := max(from, d.units.first); b < min(to, d.units.first+int64(d.units.n)); b++ {
		if c := d.units.get(b); c.w > 0 {
			work = append(work, float64(c.maxWork))
			if c.maxWork > workFloor {
				sm = append(sm, float64(c.smAtMax/c.maxWork))
			}
		}
	}
	l.work = max(workFloor, quantile(work, 0.9))
	l.sm = median(sm)
	return l
}

// shares of a GPU's time, given what its units reach.
func (m *model) shares(u usage, l levels) shares {
	var s shares
	switch {
	case !u.unitsKnown && !u.utilKnown:
		return s
	case !u.unitsKnown:
		s.known = true
		s.work, s.idle = clamp(u.util, 0, 1), 1-clamp(u.util, 0, 1)
		return s
	}
	s.known = true
	s.work = min(1, u.work/l.work)
	if u.work > 0 {
		s.memory = s.work * clamp(u.memory/u.work, 0, 1)
	}
	// Copies may go on beside work: then they cost nothing.
	s.copying = min(u.copying, 1-s.work)
	s.tiny = min(u.tiny, 1-s.work-s.copying)
	left := 1 - s.work - s.copying - s.tiny
	if !u.utilKnown {
		s.unknown = left
		return s
	}
	s.idle = min(left, 1-clamp(u.util, 0, 1))
	s.wait = left - s.idle
	s.link = min(s.wait, u.link/m.linkPeak)
	return s
}

// alikeLevel is what a worker's level must be of the median worker's: they run
// the same kernels, and one whose windows are never full of work, since its host
// interrupts it, has a level that cannot be seen.
const alikeLevel = 0.98

// allLevels are the levels of all workers.
func (m *model) allLevels(from, to int64) []levels {
	out := make([]levels, len(m.workers))
	work := make([]float64, len(m.workers))
	for i, d := range m.workers {
		out[i] = m.levels(d, from, to)
		work[i] = out[i].work
	}
	typical := median(work)
	for i := range out {
		out[i].work = max(out[i].work, alikeLevel*typical)
	}
	return out
}

// spanShares are the shares of all workers in a span, in their order.
func (m *model) spanShares(s Span) []shares {
	from, to := m.inner(s)
	out := make([]shares, len(m.workers))
	all := m.allLevels(from, to)
	for i, d := range m.workers {
		out[i] = m.shares(m.usageOf(d, from, to), all[i])
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
