package clock

import "math"

// Skewed is a Source whose raw clock is off by an offset and runs at another
// rate. It stands in for another machine's clock, so that everything that
// depends on clocks can be tested where the truth is known.
//
// The rate error counts from the raw clock's zero and not from the first use:
// two processes with the same skew agree.
type Skewed struct {
	Source   Source
	OffsetNS int64
	PPM      float64
	// WallOffsetNS and WallPPM do the same to the wall clock, by which the
	// kernel stamps packets.
	WallOffsetNS int64
	WallPPM      float64
}

// Now returns the skewed raw clock.
func (s Skewed) Now() NodeTime { return s.Skew(s.Source.Now()) }

// Bracket returns the source's bracket with its raw and its wall clock skewed;
// the other clocks stay.
func (s Skewed) Bracket() (Bracket, error) {
	return s.skew(s.Source.Bracket())
}

// Glance is Glance of the source, skewed likewise.
func (s Skewed) Glance() (Bracket, error) { return s.skew(Glance(s.Source)) }

func (s Skewed) skew(b Bracket, err error) (Bracket, error) {
	b.Raw0, b.Raw1 = s.Skew(b.Raw0), s.Skew(b.Raw1)
	b.Realtime = s.Kernel(b.Realtime)
	return b, err
}

// Kernel returns what this node's kernel would have stamped where the source's
// stamped ns.
func (s Skewed) Kernel(ns int64) int64 {
	return ns + s.WallOffsetNS + int64(math.Floor(float64(ns)*(s.WallPPM*1e-6)))
}

// Skew returns what this clock shows when the source's shows t: t + OffsetNS +
// t*PPM/1e6, rounded down.
func (s Skewed) Skew(t NodeTime) NodeTime {
	return t + NodeTime(s.OffsetNS) + NodeTime(math.Floor(float64(t)*(s.PPM*1e-6)))
}
