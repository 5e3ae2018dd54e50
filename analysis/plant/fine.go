package plant

import (
	"math"
	"slices"
	"sort"
)

// fine is what GPM would have shown with windows as short as one likes: values
// that are constant between edges, and whose mean over each recorded window is
// what was recorded.
type fine struct {
	edges []int64
	// sum[i] is the integral up to edges[i], in units times nanoseconds.
	sum [][activities]float64
}

// mean is the average over a stretch of the recording.
func (f *fine) mean(s stretch) (v [activities]float64) {
	a, b := f.upTo(s.begin), f.upTo(s.end)
	for c := range v {
		v[c] = max(0, (b[c]-a[c])/float64(s.end-s.begin))
	}
	return v
}

func (f *fine) upTo(t int64) (v [activities]float64) {
	i := sort.Search(len(f.edges), func(i int) bool { return f.edges[i] > t })
	if i == 0 {
		return f.sum[0]
	}
	if i == len(f.edges) {
		return f.sum[i-1]
	}
	part := float64(t-f.edges[i-1]) / float64(f.edges[i]-f.edges[i-1])
	for c := range v {
		v[c] = f.sum[i-1][c] + part*(f.sum[i][c]-f.sum[i-1][c])
	}
	return v
}

func (f *fine) add(from, to int64, value [activities]float64) {
	if len(f.edges) == 0 {
		f.edges, f.sum = append(f.edges, from), append(f.sum, [activities]float64{})
	}
	last := len(f.edges) - 1
	if f.edges[last] < from { // a gap between windows: nothing is known of it
		f.edges, f.sum = append(f.edges, from), append(f.sum, f.sum[last])
		last++
	}
	s := f.sum[last]
	for c := range s {
		s[c] += value[c] * float64(to-f.edges[last])
	}
	f.edges, f.sum = append(f.edges, to), append(f.sum, s)
}

// shares is how much of a stretch each state took; the rest is unknown.
func shares(states []stateAt, s stretch) (x [unknown]float64) {
	first := sort.Search(len(states), func(i int) bool { return states[i].end > s.begin })
	for _, st := range states[first:] {
		if st.begin >= s.end {
			break
		}
		x[st.is] += float64(min(st.end, s.end)-max(st.begin, s.begin)) / float64(s.length())
	}
	return x
}

func known(x [unknown]float64) bool { return x[computes]+x[spins]+x[exchanges]+x[rests] > 0.999 }

// levels fits one value for each state and column to the windows, by least
// squares, and says how much of the tensor pipes' variance that explains.
func levels(windows []window, states []stateAt) (level [unknown][activities]float64, explained float64) {
	var ata [unknown][unknown]float64
	var aty [unknown][activities]float64
	var n, sum, squares float64
	var xs [][unknown]float64
	var ys []float64
	for _, w := range windows {
		x := shares(states, w.shows())
		if !known(x) {
			continue
		}
		for i := range x {
			for j := range x {
				ata[i][j] += x[i] * x[j]
			}
			for c, y := range w.value {
				aty[i][c] += x[i] * y
			}
		}
		n, sum, squares = n+1, sum+w.value[gpmTensor], squares+w.value[gpmTensor]*w.value[gpmTensor]
		xs, ys = append(xs, x), append(ys, w.value[gpmTensor])
	}
	for i := range ata {
		ata[i][i] += 1e-6 // a GPU that never waited has no share of it
	}
	for c := range activities {
		var y [unknown]float64
		for i := range y {
			y[i] = aty[i][c]
		}
		for i, v := range solve(ata, y) {
			level[i][c] = v
		}
	}
	rest := 0.0
	for k, x := range xs {
		d := ys[k]
		for i := range x {
			d -= x[i] * level[i][gpmTensor]
		}
		rest += d * d
	}
	for i := range level {
		for c := range level[i] {
			level[i][c] = max(0, level[i][c])
		}
		if state(i) != exchanges { // nothing else of the job used NVLink
			level[i][gpmNVLinkA], level[i][gpmNVLinkB] = 0, 0
		}
	}
	return level, 1 - rest/(squares-sum*sum/n)
}

// shows is when what a window measured went on.
func (w window) shows() stretch { return stretch{w.begin - w.lag, w.end - w.lag} }

// findLags finds, for each stretch of some seconds of training, the delay of the
// windows with which the states explain most. Where states are not known nothing
// changes within many windows, and the lag before does as well.
func (u *recordedGPU) findLags(truth *Truth, states []stateAt) {
	const atOnce = 7e9
	for _, name := range training {
		p := truth.Phase(name)
		for begin := p.BeginNS; begin+atOnce <= p.EndNS; begin += atOnce {
			end := begin + atOnce
			if end+atOnce > p.EndNS {
				end = p.EndNS
			}
			first := sort.Search(len(u.windows), func(i int) bool { return u.windows[i].begin >= begin })
			last := sort.Search(len(u.windows), func(i int) bool { return u.windows[i].begin >= end })
			lag := bestLag(u.windows[first:last], states)
			u.lags = append(u.lags, lag)
			for i := first; i < len(u.windows); i++ {
				u.windows[i].lag = lag
			}
		}
	}
}

// bestLag is the delay with which the states explain most of these windows.
func bestLag(windows []window, states []stateAt) int64 {
	tried := slices.Clone(windows)
	best, most := int64(0), math.Inf(-1)
	for lag := int64(0); lag <= 250e6; lag += 5e6 {
		for i := range tried {
			tried[i].lag = lag
		}
		if _, r := levels(tried, states); r > most {
			best, most = lag, r
		}
	}
	return best
}

// refine spreads each window's value over what the GPU did in it: as the levels
// of the states stand to each other where these are known, and so that the
// window's mean stays what was recorded.
func refine(windows []window, states []stateAt) (f fine) {
	level, _ := levels(windows, states)
	for _, w := range windows {
		s := w.shows()
		if n := len(f.edges); n > 0 { // the lag has grown
			s.begin = max(s.begin, f.edges[n-1])
		}
		if s.length() <= 0 {
			continue
		}
		x := shares(states, s)
		if !known(x) {
			f.add(s.begin, s.end, w.value)
			continue
		}
		var expected [activities]float64
		for i := range x {
			for c := range expected {
				expected[c] += x[i] * level[i][c]
			}
		}
		first := sort.Search(len(states), func(i int) bool { return states[i].end > s.begin })
		for _, st := range states[first:] {
			if st.begin >= s.end {
				break
			}
			v := level[st.is]
			for c := range v {
				if expected[c] > 0.01*level[computes][c] && expected[c] > 0 {
					v[c] *= w.value[c] / expected[c]
				}
			}
			if to := min(st.end, s.end); to > max(st.begin, s.begin) {
				f.add(max(st.begin, s.begin), to, v)
			}
		}
	}
	return f
}

// solve solves the linear equations a x = y by elimination.
func solve(a [unknown][unknown]float64, y [unknown]float64) (x [unknown]float64) {
	const n = int(unknown)
	for i := range n {
		pivot := i
		for r := i + 1; r < n; r++ {
			if math.Abs(a[r][i]) > math.Abs(a[pivot][i]) {
				pivot = r
			}
		}
		a[i], a[pivot] = a[pivot], a[i]
		y[i], y[pivot] = y[pivot], y[i]
		for r := i + 1; r < n; r++ {
			f := a[r][i] / a[i][i]
			for c := i; c < n; c++ {
				a[r][c] -= f * a[i][c]
			}
			y[r] -= f * y[i]
		}
	}
	for i := n - 1; i >= 0; i-- {
		x[i] = y[i]
		for c := i + 1; c < n; c++ {
			x[i] -= a[i][c] * x[c]
		}
		x[i] /= a[i][i]
	}
	return x
}
