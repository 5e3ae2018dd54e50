package analysis

import (
	"math"
	"math/bits"
)

// A signal's period counts where its autocorrelation there is at least
// minPeriodicity and stands out of the trough before by minRise.
const (
	minPeriodicity = 0.3
	minRise        = 0.15
	// sharedPeriodicity is how much of the best peak's autocorrelation an
	// earlier peak must have to be the period, of which the best is a multiple.
	sharedPeriodicity = 0.7
	// partRise is how far the period's peak, or one at a part of it, must stand
	// out of the trough before, as a share of the best peak: near lag zero noise
	// has peaks, too.
	partRise = 0.4
)

// chunkBins is the length of the pieces in which a long phase is looked at.
const chunkBins = 1 << 15

// periodOf finds the period of x, in bins, zero where x has none. part is a
// second to fourth of it that repeats almost as well, zero where none does: bins
// that are no divisor of a short period hide it behind a multiple.
func periodOf(x []float64) (period, part float64) {
	n := len(x)
	if n < 16 {
		return 0, 0
	}
	ac := autocorrelation(detrend(x, n/3))
	if ac == nil {
		return 0, 0
	}
	type peak struct {
		lag      int
		ac, rise float64
	}
	var peaks []peak
	best, trough := 0.0, 1.0
	for lag := 1; lag < len(ac)/3; lag++ {
		trough = min(trough, ac[lag])
		if lag > finer && ac[lag] >= ac[lag-1] && ac[lag] > ac[lag+1] && ac[lag]-trough > minRise {
			peaks = append(peaks, peak{lag, ac[lag], ac[lag] - trough})
			best = max(best, ac[lag])
		}
	}
	if best < max(minPeriodicity, 5/math.Sqrt(float64(n))) {
		return 0, 0
	}
	for i, p := range peaks {
		if p.ac < sharedPeriodicity*best || p.rise < partRise*best {
			continue
		}
		for _, q := range peaks[:i] {
			k := math.Round(float64(p.lag) / float64(q.lag))
			off := math.Abs(k*float64(q.lag) - float64(p.lag))
			if k >= 2 && k <= 4 && off <= k*finer/2 && q.rise >= partRise*best {
				part = float64(q.lag) / finer
				break
			}
		}
		return refine(ac, top(ac, p.lag)) / finer, part
	}
	return 0, 0
}

// top is the highest of the peaks about the one at lag: noise makes several of
// one.
func top(ac []float64, lag int) int {
	best := lag
	for l := lag - lag/10; l <= lag+lag/10 && l < len(ac); l++ {
		if ac[l] > ac[best] {
			best = l
		}
	}
	return best
}

// refine sharpens a period by its multiples: the k-th peak is at k periods, so
// its place divided by k is k times as good.
func refine(ac []float64, lag int) float64 {
	period := vertex(ac, lag)
	first := ac[lag]
	for k := 2; ; k++ {
		at := float64(k) * period
		reach := max(1, int(period/4))
		if k > 3 {
			reach = max(1, min(reach, int(at*0.02)+1))
		}
		c := int(math.Round(at))
		if c+reach+1 >= len(ac)/2 {
			return period
		}
		top := c
		for l := c - reach; l <= c+reach; l++ {
			if ac[l] > ac[top] {
				top = l
			}
		}
		if ac[top] < first/2 {
			return period
		}
		period = vertex(ac, top) / float64(k)
	}
}

// vertex is where the parabola through a peak and its neighbours is highest.
func vertex(ac []float64, i int) float64 {
	if i < 1 || i+1 >= len(ac) {
		return float64(i)
	}
	a, b, c := ac[i-1], ac[i], ac[i+1]
	d := a - 2*b + c
	if d >= 0 {
		return float64(i)
	}
	return float64(i) + clamp((a-c)/(2*d), -0.5, 0.5)
}

// detrend takes the mean of width bins around off each value.
func detrend(x []float64, width int) []float64 {
	n := len(x)
	sums := make([]float64, n+1)
	for i, v := range x {
		sums[i+1] = sums[i] + v
	}
	out := make([]float64, n)
	for i, v := range x {
		lo, hi := max(0, i-width/2), min(n, i+width/2+1)
		out[i] = v - (sums[hi]-sums[lo])/float64(hi-lo)
	}
	return out
}

// finer is how many lags the autocorrelation has for each bin: between bins it is
// interpolated as its spectrum says, since a period is rarely a whole number of
// bins.
const finer = 4

// autocorrelation of x at lags of 1/finer bins, one at lag zero, each lag by the
// terms that it has; nil where x does not vary.
func autocorrelation(x []float64) []float64 {
	n := len(x)
	size := 1 << bits.Len(uint(2*n-1))
	re, im := make([]float64, finer*size), make([]float64, finer*size)
	copy(re, x)
	fft(re[:size], im[:size])
	for i := range size {
		re[i], im[i] = re[i]*re[i]+im[i]*im[i], 0
	}
	// The spectrum of the finer autocorrelation is the same, with nothing at
	// the frequencies that x cannot hold.
	clear(im)
	copy(re[(finer-1)*size+size/2:], re[size/2:size])
	clear(re[size/2 : (finer-1)*size+size/2])
	fft(re, im) // the spectrum is even: forward serves as inverse
	if re[0] <= 1e-9*float64(size) {
		return nil
	}
	ac := make([]float64, finer*n)
	zero := re[0]
	for lag := range ac {
		ac[lag] = re[lag] / zero * float64(n) / (float64(n) - float64(lag)/finer)
	}
	return ac
}

// fft transforms in place; the length is a power of two.
func fft(re, im []float64) {
	n := len(re)
	shift := bits.LeadingZeros64(uint64(n - 1))
	for i := range re {
		if j := int(bits.Reverse64(uint64(i)) >> shift); i < j {
			re[i], re[j] = re[j], re[i]
			im[i], im[j] = im[j], im[i]
		}
	}
	for half := 1; half < n; half *= 2 {
		for k := range half {
			s, c := math.Sincos(-math.Pi * float64(k) / float64(half))
			for i := k; i < n; i += 2 * half {
				j := i + half
				tr, ti := re[j]*c-im[j]*s, re[j]*s+im[j]*c
				re[j], im[j] = re[i]-tr, im[i]-ti
				re[i], im[i] = re[i]+tr, im[i]+ti
			}
		}
	}
}
