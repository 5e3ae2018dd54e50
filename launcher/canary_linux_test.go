package launcher

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSightingsOutlastAStop: a Ctrl-Z that wrap notices only when it is
// continued is the one that the canary saw before they were stopped; without a
// stop in between, so old a sighting is another signal's.
func TestSightingsOutlastAStop(t *testing.T) {
	const pressed = int64(1e12)
	ms := func(n int64) int64 { return pressed + n*int64(time.Millisecond) }
	for _, c := range []struct {
		name        string
		slept, woke int64
		noticed     int64
		want        bool
	}{
		{"at once", 0, 0, ms(1), true},
		{"long after", 0, 0, ms(1300), false},
		{"after a stop", ms(2), ms(1300), ms(1301), true},
		{"after a stop that is not noted yet", ms(2), 0, ms(1301), true},
		{"stopped before it was pressed", ms(-5000), ms(-4000), ms(1300), false},
		{"long after a stop", ms(2), ms(1300), ms(2600), false},
	} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		k := &canary{pipe: fds[0], log: map[unix.Signal]sightings{unix.SIGTSTP: {seen: pressed}}}
		if c.slept != 0 {
			k.absent(c.slept, c.woke)
		}
		if got := k.match(unix.SIGTSTP, c.noticed); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
}
