package analysis

// signal is a mean over GPUs in short bins of time, counted from the epoch.
type signal struct {
	dt    int64
	first int64
	sum   []float32
	n     []float32
}

// maxBins bounds a signal: 2.3 days of bins of 100 ms, 11 hours of 20 ms. What
// comes later has no steps.
const maxBins = 2e6

// bin returns the index of the bin at t, made at need, or -1.
func (s *signal) bin(t int64) int {
	b := floorDiv(t, s.dt)
	if len(s.sum) == 0 {
		s.first = b - 300e9/s.dt // another node may begin earlier in the tile
	}
	i := b - s.first
	if i < 0 || i >= maxBins {
		return -1
	}
	for int64(len(s.sum)) <= i {
		s.sum = append(s.sum, 0)
		s.n = append(s.n, 0)
	}
	return int(i)
}

// add adds the value of an instant.
func (s *signal) add(t int64, v float64) {
	if i := s.bin(t); i >= 0 {
		s.sum[i] += float32(v)
		s.n[i]++
	}
}

// spread adds the value of a window to the bins that it covers.
func (s *signal) spread(begin, end int64, v float64) {
	if end-begin > 100*s.dt {
		return // no such window: a gap
	}
	for t := begin; t < end; {
		next := min((floorDiv(t, s.dt)+1)*s.dt, end)
		if i := s.bin(t); i >= 0 {
			w := float32(next-t) / float32(s.dt)
			s.sum[i] += float32(v) * w
			s.n[i] += w
		}
		t = next
	}
}

// between returns the means of the bins that lie in the span; an empty bin takes
// the value of the one before. It returns nil where more than a quarter of the
// bins are empty.
func (s *signal) between(span Span) []float64 {
	from := floorDiv(span.BeginNS+s.dt-1, s.dt) - s.first
	to := floorDiv(span.EndNS, s.dt) - s.first
	from, to = max(from, 0), min(to, int64(len(s.sum)))
	if from >= to {
		return nil
	}
	x := make([]float64, 0, to-from)
	empty := 0
	last := 0.0
	for i := from; i < to; i++ {
		if s.n[i] > 0 {
			last = float64(s.sum[i] / s.n[i])
			if len(x) == empty { // all before were empty
				for j := range x {
					x[j] = last
				}
			}
		} else {
			empty++
		}
		x = append(x, last)
	}
	if empty > len(x)/4 {
		return nil
	}
	return x
}
