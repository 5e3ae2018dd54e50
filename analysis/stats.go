package analysis

import (
	"math"
	"slices"
)

// moments sums up values as they pass. Sums are taken from the first value on,
// so that small deviations of large values are kept.
type moments struct {
	n        int64
	shift    float64
	sum, sq  float64
	min, max float64
}

func (m *moments) add(v float64) {
	if m.n == 0 {
		m.shift, m.min, m.max = v, v, v
	}
	m.n++
	d := v - m.shift
	m.sum += d
	m.sq += d * d
	m.min, m.max = min(m.min, v), max(m.max, v)
}

// stat is what the values come to.
func (m *moments) stat() Stat {
	if m.n == 0 {
		return Stat{}
	}
	mean := m.sum / float64(m.n)
	return Stat{
		Mean: m.shift + mean, SD: math.Sqrt(max(0, m.sq/float64(m.n)-mean*mean)),
		Min: m.min, Max: m.max, N: m.n,
	}
}

// quantile is the q-quantile of values, interpolated; NaN of none. It does not
// change values.
func quantile(values []float64, q float64) float64 {
	s := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(s) == 0 {
		return math.NaN()
	}
	slices.Sort(s)
	at := q * float64(len(s)-1)
	i := min(int(at), len(s)-1)
	j := min(i+1, len(s)-1)
	return s[i] + (s[j]-s[i])*(at-float64(i))
}

func median(values []float64) float64 { return quantile(values, 0.5) }

func mean(values []float64) float64 {
	s, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) {
			s += v
			n++
		}
	}
	return s / float64(n)
}

// cv is the coefficient of variation (population) as a share; false with fewer
// than two values or a mean of zero.
func cv(values []float64) (float64, bool) {
	if len(values) < 2 {
		return 0, false
	}
	var m moments
	for _, v := range values {
		m.add(v)
	}
	s := m.stat()
	if s.Mean == 0 {
		return 0, false
	}
	return s.SD / math.Abs(s.Mean), true
}

// classOf puts a coefficient of variation in words.
func classOf(cv float64) Class {
	switch {
	case cv < 0.05:
		return Excellent
	case cv < 0.10:
		return Good
	case cv < 0.20:
		return Fair
	}
	return Poor
}

func clamp(v, lo, hi float64) float64 { return min(max(v, lo), hi) }

func ptr[T any](v T) *T { return &v }

// mad is the median distance from the median, scaled to be a standard deviation
// where values are normal.
func mad(values []float64) float64 {
	m := median(values)
	d := make([]float64, len(values))
	for i, v := range values {
		d[i] = math.Abs(v - m)
	}
	return 1.4826 * median(d)
}
