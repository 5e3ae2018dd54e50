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

// waiting holds, for a stretch of blocks, how much each worker waited.
type waiting struct {
	first int64
	who   []*device
	// wait is the share of each block in which the worker was resident and did
	// nothing of its own; excess by how much less it waited than the median of
	// the others. NaN where it is not known. Indexed by worker, then block.
	wait, excess [][]float64
}

// wait is the share of waiting in a stretch. It is not cut at zero: the readings
// that it is made of are from windows that do not begin together, and over many
// blocks their noise cancels.
func (l levels) wait(u usage) float64 {
	return u.util*(1-u.tiny) - u.work/l.work - min(l.copies(u), u.util) - u.link/l.link
}

// waits measures a span. Its first and last blocks are left out: they hold
// windows of the phases before and after.
func (m *model) waits(span Span) *waiting {
	from, to := m.inner(span)
	w := &waiting{first: from}
	n := int(to - from)
	for _, d := range m.workers {
		l := m.levels(d, from, to)
		series := make([]float64, n)
		known := 0
		for b := range n {
			u := m.usageOf(d, from+int64(b), from+int64(b)+1)
			series[b] = l.wait(u)
			if !math.IsNaN(series[b]) {
				known++
			}
		}
		if 2*known < n {
			continue // nothing to compare
		}
		w.who = append(w.who, d)
		w.wait = append(w.wait, series)
		w.excess = append(w.excess, make([]float64, n))
	}
	column := make([]float64, len(w.who))
	for b := range n {
		for i := range w.who {
			column[i] = w.wait[i][b]
		}
		others := othersMedian(column)
		for i := range w.who {
			w.excess[i][b] = others[i] - w.wait[i][b]
		}
	}
	return w
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
// as the mean there is at least lowest and surely times its standard error.
func stretches(x []float64, floor, lowest float64, shortest int) []stretch {
	var out []stretch
	sd := jitter(x)
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

// jitter is the deviation of values about a level that may change, from the
// differences of neighbours.
func jitter(x []float64) float64 {
	var d []float64
	for i := 1; i < len(x); i++ {
		if v := math.Abs(x[i] - x[i-1]); !math.IsNaN(v) {
			d = append(d, v)
		}
	}
	if len(d) == 0 {
		return math.Inf(1)
	}
	return 1.4826 / math.Sqrt2 * median(d)
}

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
