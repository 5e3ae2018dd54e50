package clock

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// System is the machine's own clocks.
type System struct{}

// Now returns CLOCK_MONOTONIC_RAW.
func (System) Now() NodeTime { return NodeTime(get(unix.CLOCK_MONOTONIC_RAW)) }

// bracketTries is how often Bracket reads the clocks to keep the tightest try:
// one preemption must not widen the bound of every stamp that crosses clocks.
const bracketTries = 5

// Bracket reads all clocks together a few times and returns the tightest
// reading.
func (s System) Bracket() (Bracket, error) {
	var best Bracket
	for i := range bracketTries {
		var b Bracket
		b.Raw0 = s.Now()
		b.Realtime = get(unix.CLOCK_REALTIME)
		b.Monotonic = get(unix.CLOCK_MONOTONIC)
		b.Boottime = get(unix.CLOCK_BOOTTIME)
		b.Raw1 = s.Now()
		if i == 0 || b.Raw1-b.Raw0 < best.Raw1-best.Raw0 {
			best = b
		}
	}
	if best.Raw0 == 0 || best.Realtime == 0 {
		return Bracket{}, fmt.Errorf("reading the node's clocks: clock_gettime failed")
	}
	var tx unix.Timex // modes 0: read only, needs no privilege
	if _, err := unix.Adjtimex(&tx); err == nil {
		best.Adj = &Adjtimex{
			Status:   int64(tx.Status),
			MaxError: int64(tx.Maxerror) * 1000,
			EstError: int64(tx.Esterror) * 1000,
			Freq:     int64(tx.Freq),
			TAI:      tx.Tai,
		}
	}
	return best, nil
}

// Glance reads the raw clock and the wall clock once.
func (s System) Glance() (Bracket, error) {
	b := Bracket{Raw0: s.Now(), Realtime: get(unix.CLOCK_REALTIME), Raw1: s.Now()}
	if b.Raw0 == 0 || b.Realtime == 0 {
		return Bracket{}, fmt.Errorf("reading the node's clocks: clock_gettime failed")
	}
	return b, nil
}

// get returns a clock in nanoseconds, 0 where the kernel has no such clock.
func get(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
