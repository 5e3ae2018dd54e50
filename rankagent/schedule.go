package rankagent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// timebase tells when the shared ticks fall: at whole multiples of the interval
// on the reference clock, as well as this node knows it. Until it knows, its
// own wall clock stands in.
type timebase struct {
	clock clock.Source
	// offset returns reference minus raw, in nanoseconds.
	offset func() int64
}

// next returns how long to wait for the next tick of the interval, which falls
// phase after a multiple of it, and the number of that tick.
func (t timebase) next(interval, phase time.Duration) (wait time.Duration, tick int64) {
	now := int64(t.clock.Now()) + t.offset() - int64(phase)
	tick = now/int64(interval) + 1
	return time.Duration(tick*int64(interval) - now), tick
}

// reference returns the reference clock's time now, for cutting tiles.
func (t timebase) reference() clock.ClusterTime {
	return clock.ClusterTime(int64(t.clock.Now()) + t.offset())
}

// runner reads one source at its ticks.
type runner struct {
	src      Source
	interval time.Duration
	phase    time.Duration
	base     timebase
	out      *reading
	stopped  chan struct{}
	// reading is when the reading under way began, 0 where none is.
	reading atomic.Int64
	pause   *pause
	// stuck is set while a reading is reported as slow; the agent's loop's.
	stuck bool
	// feeds and lastRead are account's.
	feeds    []feed
	lastRead clock.NodeTime

	mu    sync.Mutex
	stats stats
}

// stats is what a runner did since the stats were last taken.
type stats struct {
	due, done, late int64
	lateMax         time.Duration
	wall, cpu       time.Duration
	rows            int64
	lastErr         error
}

func newRunner(src Source, base timebase, interval time.Duration, c *collector) *runner {
	if i := src.Interval(); i > 0 {
		interval = i
	}
	r := &runner{src: src, interval: interval, base: base, out: &reading{c: c}, stopped: make(chan struct{})}
	if p, ok := src.(Phased); ok {
		r.phase = p.Phase() % interval
	}
	return r
}

// run reads until the context ends. A reading that takes longer than the
// interval skips the ticks that it missed: they are counted, never queued.
func (r *runner) run(ctx context.Context) {
	defer close(r.stopped)
	// A call into a driver blocks its thread; CPU time is counted by thread.
	runtime.LockOSThread()
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	last := int64(-1)
	_, tick := r.base.next(r.interval, r.phase)
	r.read(0, 1, tick-1) // the first reading does not wait: the job may be short
	for {
		if r.pause.wait(ctx) {
			last = -1 // ticks that were held up are not missed
		}
		if p, ok := r.src.(Paced); ok {
			if pace := p.Pace(); pace > 0 && pace != r.interval {
				r.interval, last = pace, -1 // its ticks are counted anew
			}
		}
		wait, tick := r.base.next(r.interval, r.phase)
		if tick == last { // woken a little early
			wait += r.interval
			tick++
		}
		due := int64(1)
		if last >= 0 && tick > last {
			due = tick - last
		}
		last = tick
		timer.Reset(wait)
		woken := time.Now().Add(wait) //nolint:forbidigo // lateness of a timer against the timer's own clock
		select {
		case <-ctx.Done():
			r.missed(r.base.clock.Now())
			r.finish()
			return
		case <-timer.C:
		}
		r.read(max(0, time.Since(woken)), due, tick) //nolint:forbidigo // as above
	}
}

func (r *runner) read(late time.Duration, due, tick int64) {
	r.out.tick = tick
	r.measure(r.src.Read, late, due)
}

// finish takes the last reading of a source that wants one.
func (r *runner) finish() {
	if f, ok := r.src.(Finisher); ok {
		r.measure(f.Finish, 0, 0)
	}
}

func (r *runner) measure(read func(Out) error, late time.Duration, due int64) {
	begin, cpu := r.base.clock.Now(), threadCPU()
	r.reading.Store(int64(begin))
	err := read(r.out)
	wall := time.Duration(r.base.clock.Now() - begin)
	used := threadCPU() - cpu
	r.reading.Store(0)
	r.account(begin)
	rows := r.out.deliver()

	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	s.due += due
	if errors.Is(err, ErrSkipped) {
		err = nil
	} else {
		s.done++
	}
	if late > r.interval/10 {
		s.late++
	}
	s.lateMax = max(s.lateMax, late)
	s.wall += wall
	s.cpu += used
	s.rows += int64(rows)
	if err != nil && (s.lastErr == nil || err.Error() != s.lastErr.Error()) {
		s.lastErr = err
		r.out.c.event(begin, "source_error", -1, -1, map[string]string{"source": r.src.Name(), "error": err.Error()})
	}
}

// slowAfter is how long a reading may take before it is reported.
const slowAfter = clock.NodeTime(5 * time.Second)

// slow reports a reading that does not return, once, and when it has returned
// after all.
func (r *runner) slow(now clock.NodeTime) {
	began := clock.NodeTime(r.reading.Load())
	stuck := began != 0 && now-began > slowAfter
	if stuck == r.stuck {
		return
	}
	r.stuck = stuck
	kind := "source_slow"
	if !stuck {
		kind = "source_back"
	}
	r.out.c.event(now, kind, -1, -1, map[string]string{"source": r.src.Name()})
}

// take returns the stats since the last call.
func (r *runner) take() stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	r.stats = stats{lastErr: s.lastErr}
	return s
}

// stop waits for the reading under way, at most for patience, and closes the
// source.
func (r *runner) stop(patience time.Duration) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-r.stopped:
	case <-t.C:
		return fmt.Errorf("closing %s: %w", r.src.Name(), errStuck)
	}
	if err := r.src.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", r.src.Name(), err)
	}
	return nil
}

var errStuck = errors.New("a reading has not returned")

// threadCPU returns the calling thread's CPU time.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// row writes the stats of one window into the sampler table.
func (s stats) row(b *table.Batch, source string, begin, end clock.NodeTime) table.Row {
	r := b.Append()
	r.Window(int64(begin), int64(end), int64(end))
	r.String(table.SamSource, source)
	r.Int(table.SamDue, s.due)
	r.Int(table.SamDone, s.done)
	r.Int(table.SamLate, s.late)
	r.Int(table.SamLateMax, int64(s.lateMax))
	r.Int(table.SamWall, int64(s.wall))
	r.Int(table.SamCPU, int64(s.cpu))
	r.Int(table.SamRows, s.rows)
	return r
}
