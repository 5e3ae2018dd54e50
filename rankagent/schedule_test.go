package rankagent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// bubbleClock is a raw clock that runs with the test's time, from an origin of
// its own.
type bubbleClock struct {
	begin  time.Time
	origin int64
}

func (c bubbleClock) Now() clock.NodeTime {
	return clock.NodeTime(c.origin + int64(time.Since(c.begin)))
}
func (c bubbleClock) Bracket() (clock.Bracket, error) {
	return clock.Bracket{Raw0: c.Now(), Raw1: c.Now(), Realtime: time.Now().UnixNano()}, nil
}

// fakeSource notes when it was read.
type fakeSource struct {
	interval time.Duration
	at       []clock.NodeTime
	takes    func(n int) time.Duration
	err      error
	closed   bool
}

func (f *fakeSource) Name() string            { return "fake" }
func (f *fakeSource) Interval() time.Duration { return f.interval }
func (f *fakeSource) Close() error            { f.closed = true; return nil }
func (f *fakeSource) Read(out Out) error {
	begin := out.Now()
	f.at = append(f.at, begin)
	if f.takes != nil {
		time.Sleep(f.takes(len(f.at)))
	}
	out.Batch(table.Host).Append().Read(int64(begin), int64(out.Now()))
	return f.err
}

// run reads src for d and returns what it did.
func run(t *testing.T, src Source, offset int64, d time.Duration) (stats, *collector) {
	t.Helper()
	k := bubbleClock{begin: time.Now(), origin: 12_345_678}
	c := newCollector(k)
	base := timebase{clock: k, offset: func() int64 { return offset }}
	r := newRunner(src, base, 100*time.Millisecond, c)
	ctx, cancel := context.WithCancel(t.Context())
	go r.run(ctx)
	time.Sleep(d)
	cancel()
	if err := r.stop(time.Minute); err != nil {
		t.Error(err)
	}
	return r.take(), c
}

// TestTicksFallOnReferenceInstants checks that every tick but the first is at a
// whole multiple of the interval on the reference clock, whatever this node's
// clock shows.
func TestTicksFallOnReferenceInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{}
		const offset = 98_765_432_109
		s, _ := run(t, src, offset, 2*time.Second)
		if len(src.at) < 20 || len(src.at) > 21 {
			t.Errorf("%d readings in 2 s at 10 Hz", len(src.at))
		}
		for i, at := range src.at[1:] {
			if rest := (int64(at) + offset) % int64(100*time.Millisecond); rest != 0 {
				t.Errorf("tick %d is %d ns off the grid", i+1, rest)
			}
		}
		if s.late != 0 || s.due != s.done || !src.closed {
			t.Errorf("stats %+v, closed %v", s, src.closed)
		}
	})
}

// pacedSource ticks twice as slowly from its tenth reading to its fifteenth.
type pacedSource struct{ fakeSource }

func (s *pacedSource) Pace() time.Duration {
	if n := len(s.at); n >= 10 && n < 15 {
		return 200 * time.Millisecond
	}
	return 100 * time.Millisecond
}

// TestPace checks that a source that changes its pace ticks on the grid of each,
// and that no tick between is taken for a missed one.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &pacedSource{}
		s, _ := run(t, src, 98_765_432_109, 3*time.Second)
		if len(src.at) < 22 || s.due != s.done || s.late != 0 {
			t.Errorf("%d readings, stats %+v", len(src.at), s)
		}
		slow := 0
		for i := 2; i < len(src.at); i++ {
			rest := (int64(src.at[i]) + 98_765_432_109) % int64(100*time.Millisecond)
			if gap := time.Duration(src.at[i] - src.at[i-1]); rest != 0 || gap != 100*time.Millisecond && gap != 200*time.Millisecond {
				t.Errorf("reading %d: %v after the one before, %d ns off the grid", i, gap, rest)
			} else if gap == 200*time.Millisecond {
				slow++
			}
		}
		if slow < 4 || slow > 6 {
			t.Errorf("%d readings at half the pace", slow)
		}
	})
}

// TestSlowReadingsSkipTicks checks that a reading longer than the interval
// costs ticks, which are counted, and is never made up for.
func TestSlowReadingsSkipTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{takes: func(n int) time.Duration {
			if n == 5 {
				return 450 * time.Millisecond
			}
			return time.Millisecond
		}}
		s, c := run(t, src, 0, 2*time.Second)
		if missed := s.due - s.done; missed != 4 {
			t.Errorf("%d ticks missed, want 4 (due %d, done %d)", missed, s.due, s.done)
		}
		for i := 1; i < len(src.at); i++ {
			if gap := src.at[i] - src.at[i-1]; gap < clock.NodeTime(99*time.Millisecond) && i > 1 {
				t.Errorf("readings %d and %d are only %d ns apart", i-1, i, gap)
			}
		}
		all := c.take()
		if rows := all[0].Rows(); int64(rows) != s.rows {
			t.Errorf("%d rows collected, %d counted", rows, s.rows)
		}
		// The dataset tells of it: what was due, and why it is not there.
		starts, missed := all[1].Strings(table.EventDetail), all[2].Strings(table.AbsDetail)
		if len(starts) != 1 || !strings.Contains(starts[0], `"interval_ns":100000000,"tables":["`) {
			t.Errorf("events %q", starts)
		}
		if len(missed) != 1 || missed[0] != "4 ticks were missed" || all[2].Strings(table.AbsReason)[0] != "not_sampled" {
			t.Errorf("absences %q", missed)
		}
	})
}

// TestFailingSourceIsSaidOnce checks that an error becomes one event, not one a
// tick.
func TestFailingSourceIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := run(t, &fakeSource{interval: time.Second, err: errors.New("broken")}, 0, 5*time.Second)
		for _, b := range c.take() {
			if b.Table != table.Event {
				continue
			}
			said := 0
			for _, kind := range b.Strings(table.EventKind) {
				if kind == "source_error" {
					said++
				}
			}
			if said != 1 {
				t.Errorf("%d events for one error", said)
			}
		}
	})
}

// TestStuckSourceIsLeftBehind checks that the end does not wait for a reading
// that never returns.
func TestStuckSourceIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		src := &fakeSource{takes: func(int) time.Duration { <-release; return 0 }}
		k := bubbleClock{begin: time.Now()}
		r := newRunner(src, timebase{clock: k, offset: func() int64 { return 0 }}, time.Second, newCollector(k))
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		synctest.Wait()
		cancel()
		begin := time.Now()
		if err := r.stop(50 * time.Millisecond); !errors.Is(err, errStuck) {
			t.Errorf("stop returned %v", err)
		}
		if took := time.Since(begin); took != 50*time.Millisecond {
			t.Errorf("stop took %s", took)
		}
		if src.closed {
			t.Error("a source was closed under its own reading")
		}
		close(release)
		<-r.stopped
	})
}
