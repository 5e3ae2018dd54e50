package analysis

import (
	"math"
	"slices"
)

// Who waits least is whom the others wait for. In a job whose ranks meet in
// every step all ranks have the same period, and the driver's utilisation says
// that all are busy, since a kernel that waits for others is resident like any
// other. What tells them apart is what they do while they are resident: a rank
// that is late works, or its GPU is empty for want of its host; the others sit
// in a collective with neither arithmetic nor memory traffic. Shares of time say
// so without any comparison of clocks.

// There are two ways to see a rank wait. The driver's utilisation says how long
// anything was resident; what of that was neither work nor a copy was waiting.
// And the SMs that a collective holds are active without work: the SMs' activity
// beyond what goes with the work is the time of waiting, times the share of the
// SMs that a collective holds. The second takes no utilisation, whose windows
// trail by up to a second, and tells a copy from waiting; but it needs that share.
const (
	// heldSMs is the share of the SMs that a collective holds where a phase
	// has too little waiting to show it: NCCL takes 16 to 32 of a Hopper's 132.
	heldSMs = 0.17
	// showsHeld is the share of waiting from which on a phase shows it itself.
	showsHeld = 0.10
)

// waiting holds, for a stretch of blocks, how much each worker waited.
type waiting struct {
	first int64
	who   []*device
	// wait is the share of each block in which the worker waited, excess by
	// how much less that was than the median of the others. NaN where it is
	// not known. Indexed by worker, then block.
	wait, excess [][]float64
	// sd is the deviation of an excess for each block of a mean over many.
	sd float64
}

// wait is the share of waiting in a stretch, by utilisation. It is not cut at
// zero: the readings that it is made of are from windows that do not begin
// together, and over many blocks their noise cancels.
func (l levels) wait(u usage) float64 {
	return u.util*(1-u.tiny) - u.work/l.work - min(u.copying, u.util)
}

// held is the share of the SMs that is active beyond what goes with the work.
func (l levels) held(u usage) float64 {
	return u.sm - l.sm*u.work/100
}

// empty is the share of time with nothing on the GPU, by its units: neither work
// nor copies nor SMs that a collective holds.
func (l levels) empty(u usage) float64 {
	return 1 - u.work/l.work - u.copying - u.tiny - l.held(u)/heldSMs
}

// waits measures a span in both ways; what cannot be measured has no workers.
// The span's first and last blocks are left out: they hold windows of the phases
// before and after.
func (m *model) waits(span Span, period float64) (byUtil, bySM *waiting) {
	from, to := m.inner(span)
	byUtil, bySM = &waiting{first: from}, &waiting{first: from}
	var utils, helds []float64
	all := m.allLevels(from, to)
	for i, d := range m.workers {
		l := all[i]
		util, held := make([]float64, to-from), make([]float64, to-from)
		for b := range util {
			u := m.usageOf(d, from+int64(b), from+int64(b)+1)
			util[b], held[b] = l.wait(u), l.held(u)
		}
		if byUtil.add(d, util) {
			utils = append(utils, mean(util))
		}
		if bySM.add(d, held) {
			helds = append(helds, mean(held))
		}
	}
	scale := heldSMs
	if wait := median(utils); wait >= showsHeld {
		scale = median(helds) / wait
	}
	if scale < heldSMs/2 { // collectives that hold a few SMs: lost in the noise
		bySM = &waiting{first: from}
	}
	for _, series := range bySM.wait {
		for b := range series {
			series[b] /= scale
		}
	}
	group := 1 + int(groupSteps*period)/int(m.block)
	byUtil.compare(group)
	bySM.compare(group)
	return byUtil, bySM
}

// add adds a worker whose series is known for at least half of the blocks.
func (w *waiting) add(d *device, series []float64) bool {
	known := 0
	for _, v := range series {
		if !math.IsNaN(v) {
			known++
		}
	}
	if 2*known < len(series) || known == 0 {
		return false
	}
	w.who, w.wait = append(w.who, d), append(w.wait, series)
	return true
}

// groupSteps is how many steps a group of blocks holds whose means are taken to
// be independent. Blocks hold no whole number of steps: what one lacks, the next
// has too much of.
const groupSteps = 4

// compare holds each worker against the others, block by block. The deviation is
// that of groups of blocks, over all workers: most are not late.
func (w *waiting) compare(group int) {
	if len(w.who) == 0 {
		return
	}
	column := make([]float64, len(w.who))
	w.excess = make([][]float64, len(w.who))
	for i := range w.excess {
		w.excess[i] = make([]float64, len(w.wait[0]))
	}
	for b := range w.wait[0] {
		for i := range w.who {
			column[i] = w.wait[i][b]
		}
		for i, others := range othersMedian(column) {
			w.excess[i][b] = others - w.wait[i][b]
		}
	}
	var differences []float64
	for _, x := range w.excess {
		for b := 0; b+2*group <= len(x); b += group {
			differences = append(differences, math.Abs(mean(x[b:b+group])-mean(x[b+group:b+2*group])))
		}
	}
	w.sd = math.Inf(1)
	if len(differences) >= 4 {
		w.sd = 1.4826 / math.Sqrt2 * median(differences) * math.Sqrt(float64(group))
	}
}

// othersMedian is, for each value, the median of the others; NaN counts as no
// value.
func othersMedian(values []float64) []float64 {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	out := make([]float64, len(values))
	n := len(sorted)
	for i, v := range values {
		if math.IsNaN(v) || n < 2 {
			out[i] = math.NaN()
			continue
		}
		k, _ := slices.BinarySearch(sorted, v)
		without := func(j int) float64 { // the j-th of the others
			if j >= k {
				j++
			}
			return sorted[j]
		}
		rest := n - 1
		out[i] = (without((rest-1)/2) + without(rest/2)) / 2
	}
	return out
}

// stretch is a run of blocks in which a worker waited less than the others.
type stretch struct {
	from, to int     // blocks, from the waiting's first
	excess   float64 // mean share of time
	deviates float64 // its standard error
}

// stretches finds where a series lies above floor: of all runs of blocks the one
// whose sum over floor is greatest, then the same on both sides of it, as long
// as the mean there is at least lowest and surely times its standard error. sd is
// the deviation of a block.
func stretches(x []float64, sd, floor, lowest float64, shortest int) []stretch {
	var out []stretch
	var search func(from, to int)
	search = func(from, to int) {
		if to-from < shortest {
			return
		}
		best, begin, end := 0.0, 0, 0
		sum, start := 0.0, from
		for i := from; i < to; i++ {
			if !math.IsNaN(x[i]) {
				sum += x[i] - floor
			}
			if sum > best {
				best, begin, end = sum, start, i+1
			}
			if sum <= 0 {
				sum, start = 0, i+1
			}
		}
		if end-begin < shortest {
			return
		}
		s := stretch{from: begin, to: end, excess: mean(x[begin:end]), deviates: sd / math.Sqrt(float64(end-begin))}
		if s.excess >= lowest && s.excess >= surely*s.deviates {
			out = append(out, s)
		}
		search(from, begin)
		search(end, to)
	}
	search(0, len(x))
	slices.SortFunc(out, func(a, b stretch) int { return a.from - b.from })
	return out
}

// surely is how many standard errors an excess must have. A run of an hour and a
// thousand GPUs has millions of stretches to look at.
const surely = 5

// spread is how much the excess of the others than i lies apart in a stretch:
// what differs between GPUs that nobody waits for.
func (w *waiting) spread(i int, s stretch) float64 {
	var others []float64
	for k := range w.who {
		if k != i {
			others = append(others, mean(w.excess[k][s.from:s.to]))
		}
	}
	if len(others) < 3 {
		return 0
	}
	return mad(others)
}
