package clock

import "math"

// What the bounds rest on. A smaller limit gives a smaller bound and a larger
// risk that it is wrong without any sign of it, so these stay far above what
// clocks do (docs/clocks.md has figures) and are never tuned to look good.
const (
	// driftLimit is how fast the offset between two raw clocks may change,
	// as a fraction: 200 ppm.
	driftLimit = 200e-6
	// rateKnown is how well the mean rate between two clocks must be known
	// before it is used: 5 ppm either way.
	rateKnown = 5e-6
	// wanderLimit is how far the rate may be from its mean over a segment
	// at any instant: 5 ppm.
	wanderLimit = 5e-6
	// slack in nanoseconds is what stamps may be wrong by without being
	// called contradictory, such as cycle counters that differ between cores.
	slack = 1000
	// rounding in nanoseconds covers stamps cut to whole nanoseconds and the
	// arithmetic below.
	rounding = 2
	// knotSpan is how much node time the exchanges behind one knot may cover.
	knotSpan = 50_000_000
	// maxSegments ends the patience with an edge whose stamps contradict each
	// other throughout; it also bounds the work that garbage can cause.
	maxSegments = 64
	// restartBack is how far the raw clock must fall behind what was recorded
	// before it to be called restarted. Bursts with several peers are recorded
	// as they end, and a raw clock that restarts falls by all of the uptime.
	restartBack = 30_000_000_000
	// maxStamp is the largest stamp taken for one: 36 years of raw clock.
	// Below it differences and their sums cannot overflow.
	maxStamp = 1 << 60
)

// plausible says whether v can be a stamp of a raw clock.
func plausible(v int64) bool { return v > -maxStamp && v < maxStamp }

// add returns a+b, held at the ends of int64 instead of wrapping around.
func add(a, b int64) int64 {
	s := a + b
	if a > 0 && b > 0 && s < 0 {
		return math.MaxInt64
	}
	if a < 0 && b < 0 && s >= 0 {
		return math.MinInt64
	}
	return s
}

// sub returns a-b, held at the ends of int64 instead of wrapping around.
func sub(a, b int64) int64 {
	if b == math.MinInt64 {
		if a < 0 {
			return a - b
		}
		return math.MaxInt64
	}
	return add(a, -b)
}

// whole converts f, whose value no longer matters beyond the ends of int64.
func whole(f float64) int64 {
	switch {
	case f >= 1<<62:
		return 1 << 62
	case f <= -(1 << 62):
		return -(1 << 62)
	case f != f:
		return 0
	}
	return int64(f)
}

// down and up convert a lower and an upper bound, outwards by the rounding of
// stamps and of the floating-point arithmetic that led to them.
func down(f float64) int64 { return whole(math.Floor(f - rounding - math.Abs(f)*0x1p-50)) }
func up(f float64) int64   { return whole(math.Ceil(f + rounding + math.Abs(f)*0x1p-50)) }
