package clock

import (
	"cmp"
	"slices"
	"sort"
)

// WallMap carries stamps of a node's wall clock, such as those of a driver or
// of the kernel, to its raw clock, through the brackets in which both were
// read. It is not changed once made and may be used from several goroutines.
type WallMap struct {
	pins  []pin // by raw time
	steps []Step
}

// Step is a jump of one of the node's clocks against its raw clock, seen
// between two brackets.
type Step struct {
	// Since and At are the brackets on either side of it.
	Since NodeTime `yaml:"since_raw_ns" json:"since_raw_ns"`
	At    NodeTime `yaml:"at_raw_ns" json:"at_raw_ns"`
	// Clock is one of the Step constants.
	Clock string `yaml:"clock" json:"clock"`
	// ByNS is how far the clock jumped, positive forwards.
	ByNS int64 `yaml:"by_ns" json:"by_ns"`
}

// What stepped.
const (
	StepRealtime    = "realtime"    // the wall clock was set
	StepSuspend     = "suspend"     // the node slept: BOOTTIME moved against MONOTONIC
	StepMonotonic   = "monotonic"   // MONOTONIC and the raw clock parted
	StepClocksource = "clocksource" // the kernel counts by another device
)

// pin is a bracket that can be used, and the stretch without steps that it
// belongs to.
type pin struct {
	raw0, raw1, real int64
	run              int
}

func (p pin) mid() int64  { return p.raw0 + (p.raw1-p.raw0)/2 }
func (p pin) half() int64 { return (p.raw1-p.raw0)/2 + 1 }

const (
	// stepFixed and stepRate tell a step from slewing, which moves a clock by
	// at most 500 ppm: 50 us + 500 ppm of the time between two brackets.
	stepFixed = 50_000
	stepRate  = 500e-6
	// wallReach is how far beyond the first and last bracket a stamp is
	// carried: brackets are never farther apart than this while a node runs.
	wallReach = 10_000_000_000
	// wallMax keeps sums of wall clock stamps from overflowing: the year 2116.
	wallMax = 1 << 62
)

// NewWallMap makes a map of the brackets, in any order. Those that cannot be
// true are left out.
func NewWallMap(brackets []Bracket) *WallMap {
	bs := make([]Bracket, 0, len(brackets))
	for _, b := range brackets {
		if plausible(int64(b.Raw0)) && plausible(int64(b.Raw1)) && b.Raw1 >= b.Raw0 &&
			b.Realtime > -wallMax && b.Realtime < wallMax {
			bs = append(bs, b)
		}
	}
	slices.SortStableFunc(bs, func(a, b Bracket) int {
		if c := cmp.Compare(a.Raw0, b.Raw0); c != 0 {
			return c
		}
		return cmp.Compare(a.Realtime, b.Realtime)
	})
	w := &WallMap{pins: make([]pin, 0, len(bs))}
	run := 0
	for i, b := range bs {
		if i > 0 && b.Clocksource == "" { // not read with every bracket
			b.Clocksource = bs[i-1].Clocksource
			bs[i] = b
		}
		if i > 0 && w.compare(bs[i-1], b) {
			run++
		}
		w.pins = append(w.pins, pin{int64(b.Raw0), int64(b.Raw1), b.Realtime, run})
	}
	return w
}

// compare records what stepped between two brackets and says whether the wall
// clock did.
func (w *WallMap) compare(a, b Bracket) (stepped bool) {
	allow := int64(stepFixed) + int64(stepRate*float64(b.Raw1-a.Raw0)) +
		int64(a.Raw1-a.Raw0) + int64(b.Raw1-b.Raw0)
	see := func(name string, by int64) bool {
		if by <= allow && by >= -allow {
			return false
		}
		w.steps = append(w.steps, Step{Since: a.Raw1, At: b.Raw0, Clock: name, ByNS: by})
		return true
	}
	raw := int64(b.Raw0 - a.Raw0)
	if a.Monotonic != 0 && b.Monotonic != 0 {
		see(StepMonotonic, sub(sub(b.Monotonic, a.Monotonic), raw))
		if a.Boottime != 0 && b.Boottime != 0 {
			see(StepSuspend, sub(sub(b.Boottime, a.Boottime), sub(b.Monotonic, a.Monotonic)))
		}
	}
	if a.Clocksource != "" && b.Clocksource != "" && a.Clocksource != b.Clocksource {
		w.steps = append(w.steps, Step{Since: a.Raw1, At: b.Raw0, Clock: StepClocksource})
	}
	return see(StepRealtime, sub(sub(b.Realtime, a.Realtime), raw))
}

// Steps returns what jumped, by time.
func (w *WallMap) Steps() []Step { return slices.Clone(w.steps) }

// forget drops the steps between two boots: those are no steps of one clock.
func (w *WallMap) forget(bs []boot) {
	w.steps = slices.DeleteFunc(w.steps, func(s Step) bool {
		return bootAt(bs, int64(s.Since)) != bootAt(bs, int64(s.At))
	})
}

// Raw returns what the raw clock showed when the wall clock showed
// realtimeNS, give or take bound nanoseconds. The brackets on either side
// enter with their own lengths and with what they differ by. It refuses (ok is
// false) where the wall clock stepped between them, where it showed this value
// twice, and farther than 10 s from any bracket.
func (w *WallMap) Raw(realtimeNS int64) (t NodeTime, bound int64, ok bool) {
	if realtimeNS <= -wallMax || realtimeNS >= wallMax {
		return 0, 0, false
	}
	for from := 0; from < len(w.pins); {
		run := w.pins[from].run
		to := from + sort.Search(len(w.pins)-from, func(i int) bool { return w.pins[from+i].run != run })
		if to < len(w.pins) && unsure(w.pins[to-1], w.pins[to], realtimeNS) {
			return 0, 0, false
		}
		r, b, in := within(w.pins[from:to], realtimeNS, from == 0, to == len(w.pins))
		if in {
			if ok { // shown before a step back and after it
				return 0, 0, false
			}
			t, bound, ok = r, b, true
		}
		from = to
	}
	return t, bound, ok
}

// unsure says whether the wall clock may have shown real between two brackets
// between which it stepped: before the step, running on from a, or after it, on
// the way to b.
func unsure(a, b pin, real int64) bool {
	gap := b.raw1 - a.raw0
	gap += up(stepRate*float64(gap)) + stepFixed
	return real > a.real && sub(real, a.real) < gap || real < b.real && sub(b.real, real) < gap
}

// within looks a wall clock value up in a stretch without steps; head and tail
// say whether it may be extended before its first and after its last bracket.
func within(ps []pin, real int64, head, tail bool) (t NodeTime, bound int64, ok bool) {
	i := sort.Search(len(ps), func(i int) bool { return ps[i].real > real }) - 1
	alone := func(p pin, far int64) (NodeTime, int64, bool) {
		if far > wallReach {
			return 0, 0, false
		}
		return NodeTime(p.mid() + (real - p.real)), p.half() + up(stepRate*float64(far)), true
	}
	switch {
	case i < 0:
		if far := ps[0].real - real; head {
			return alone(ps[0], far)
		}
		return 0, 0, false
	case ps[i].real == real:
		return NodeTime(ps[i].mid()), ps[i].half(), true
	case i+1 == len(ps):
		if far := real - ps[i].real; tail {
			return alone(ps[i], far)
		}
		return 0, 0, false
	}
	a, b := ps[i], ps[i+1]
	share := float64(real-a.real) / float64(b.real-a.real)
	off0, off1 := a.mid()-a.real, b.mid()-b.real // both within slewing of each other
	off := off0 + whole(float64(off1-off0)*share)
	apart := off1 - off0
	if apart < 0 {
		apart = -apart
	}
	return NodeTime(real + off), max(a.half(), b.half()) + apart + rounding, true
}
