package probe

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
)

// programs leaves the exchanges with the program's own stamps.
func programs(xs []clock.Exchange, before, after clock.Bracket, err error) ([]clock.Exchange, clock.Bracket, clock.Bracket, error) {
	return slices.DeleteFunc(xs, func(x clock.Exchange) bool { return x.Kernel }), before, after, err
}

// Kernel stamps are of wall clocks that are days apart and run at other rates
// than the raw ones: what comes out must hold the truth, and be narrower.
func TestKernelStamps(t *testing.T) {
	head, node := headClock, nodeClock
	head.WallOffsetNS, head.WallPPM = 3_600_000_000_000, 11
	node.WallOffsetNS, node.WallPPM = -7_200_000_000_000, -17
	r := startResponder(t, func(c *ResponderConfig) { c.Source = head })
	p := startProber(t, func(c *Config) { c.Source = node }, local(r.Port()))
	if !p.sock.stamps.on {
		t.Skip("the kernel has no stamps")
	}
	from := clock.System{}.Now()
	var all, kernel []clock.Exchange
	var user, narrow []int64
	trip := func(x clock.Exchange) int64 { return int64((x.T4 - x.T1) - (x.T3 - x.T2)) }
	for range 20 {
		xs, _, _, err := p.Burst(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range xs {
			if x.Kernel {
				kernel = append(kernel, x)
				narrow = append(narrow, trip(x))
			} else {
				user = append(user, trip(x))
			}
		}
		all = append(all, xs...)
	}
	to := clock.System{}.Now()
	if len(kernel) < len(user)/2 {
		t.Fatalf("%d exchanges with kernel stamps of %d", len(kernel), len(user))
	}
	truth(t, kernel, from, to)
	truth(t, all, from, to)
	slices.Sort(user)
	slices.Sort(narrow)
	t.Logf("round trips by the program's stamps: median %d ns, 90 %% within %d; by the kernel's: %d, %d",
		user[len(user)/2], user[len(user)*9/10], narrow[len(narrow)/2], narrow[len(narrow)*9/10])
	if narrow[len(narrow)/2] >= user[len(user)/2] {
		t.Error("the kernel's stamps are no better")
	}
}

// Across a step of the wall clock kernel stamps say nothing.
func TestKernelStampsAcrossStep(t *testing.T) {
	before := clock.Bracket{Raw0: 1e9, Raw1: 1e9 + 200, Realtime: 1_700_000_000_000_000_000}
	after := clock.Bracket{Raw0: 1e9 + 20e6, Raw1: 1e9 + 20e6 + 300, Realtime: before.Realtime + 20e6}
	early, late, ok := spanned(clock.System{}, before, after, before.Realtime+10e6)
	if mid := clock.NodeTime(1e9 + 10e6 + 125); !ok || early > mid || late < mid || late-early > 1000 {
		t.Errorf("%d to %d, %v", early, late, ok)
	}
	for _, c := range []struct {
		name  string
		after int64 // realtime
		stamp int64
	}{
		{"step", before.Realtime + 20e6 + 1e9, before.Realtime + 10e6},
		{"step of years", before.Realtime + 1e17, before.Realtime + 10e6},
		{"step back", before.Realtime - 1e9, before.Realtime + 10e6},
		{"before", before.Realtime + 20e6, before.Realtime - 1},
		{"after", before.Realtime + 20e6, before.Realtime + 20e6 + 1},
		{"none", before.Realtime + 20e6, 0},
	} {
		a := after
		a.Realtime = c.after
		if _, _, ok := spanned(clock.System{}, before, a, c.stamp); ok {
			t.Errorf("%s: taken", c.name)
		}
	}
	if _, _, ok := spanned(clock.System{}, clock.Bracket{}, after, before.Realtime+10e6); ok {
		t.Error("taken with one bracket only")
	}
}

// A wall clock that is set during the burst costs the kernel stamps and
// nothing else.
type stepping struct {
	clock.Source
	at clock.NodeTime
}

func (s stepping) Bracket() (clock.Bracket, error) {
	b, err := s.Source.Bracket()
	if b.Raw0 > s.at {
		b.Realtime += 100 * 365 * 86400e9 / 10
	}
	return b, err
}

func TestWallClockStepDuringBurst(t *testing.T) {
	r := startResponder(t, nil)
	s := stepping{Source: nodeClock, at: nodeClock.Now() + 3_000_000}
	p := startProber(t, func(c *Config) { c.Source = s }, local(r.Port()))
	from := clock.System{}.Now()
	xs, before, after, err := p.Burst(context.Background())
	if err != nil || after.Realtime-before.Realtime < 1e17 {
		t.Fatalf("%v; %+v %+v", err, before, after)
	}
	for _, x := range xs {
		if x.Kernel && (x.T1 != xs[x.Seq].T1 || x.T4 != xs[x.Seq].T4) {
			t.Errorf("stamps across the step: %+v", x)
		}
	}
	truth(t, xs, from, clock.System{}.Now())
}

// FuzzStamps: whatever a kernel puts beside a packet is parsed or passed over.
func FuzzStamps(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	good := make([]byte, unix.CmsgSpace(48))
	good[0], good[8], good[12] = byte(unix.CmsgLen(48)), unix.SOL_SOCKET, unix.SO_TIMESTAMPING
	f.Add(good, uint8(3))
	f.Fuzz(func(_ *testing.T, b []byte, _ uint8) { parseStamps(b) })
}

// A kernel that gives no stamps leaves the program's.
func TestNoKernelStamps(t *testing.T) {
	r := startResponder(t, nil)
	p := startProber(t, nil, local(r.Port()))
	for _, s := range []*socket{r.sock, p.sock} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, 0); err != nil {
			t.Skip(err)
		}
	}
	from := clock.System{}.Now()
	xs, _, _, err := p.Burst(context.Background())
	if err != nil || len(xs) != 8 {
		t.Errorf("%d exchanges, %v", len(xs), err)
	}
	truth(t, xs, from, clock.System{}.Now())
	time.Sleep(time.Millisecond)
}
