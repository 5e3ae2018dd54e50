package probe

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gswarm/gswarm/clock"
)

// LoopConfig says when bursts happen and who gets them.
type LoopConfig struct {
	// OnBurst gets every burst with its brackets, from the goroutine that
	// runs the loop. xs is empty where nobody answered. A bracket that could
	// not be read is zero.
	OnBurst func(xs []clock.Exchange, before, after clock.Bracket)
	// OnError gets what went wrong with a burst; nil ignores it.
	OnError func(error)
	// StartBursts bursts are done StartGap apart at first: 8 and 250 ms if
	// zero, which is 64 exchanges in 2 s.
	StartBursts int
	StartGap    time.Duration
	// Interval is the time between bursts, give or take 20 %: 1 s if zero.
	// It grows to MaxInterval, 10 s if zero, while the clocks run steadily.
	Interval, MaxInterval time.Duration
	// EndTimeout is how long the burst at the end may take, 200 ms if zero.
	EndTimeout time.Duration
}

const (
	// jitter is the share by which the time between bursts varies, so that
	// the nodes of a run spread out.
	jitter = 0.2
	// stretch is by how much the interval grows with each burst, once
	// steadyBursts of them in a row fitted one rate.
	stretch      = 1.25
	steadyBursts = 30
	// trackBursts is how much the live estimate looks back on.
	trackBursts = 64
)

// Loop does bursts all through a run and keeps a live estimate of the offset.
type Loop struct {
	cfg    LoopConfig
	prober *Prober

	pace    atomic.Int64 // least time between bursts, ns
	mu      sync.Mutex
	tracker *clock.Tracker
}

// NewLoop prepares a loop over p, which it uses alone from then on.
func NewLoop(p *Prober, cfg LoopConfig) *Loop {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if cfg.StartBursts <= 0 {
		cfg.StartBursts = 8
	}
	set(&cfg.StartGap, 250*time.Millisecond)
	set(&cfg.Interval, time.Second)
	set(&cfg.MaxInterval, 10*time.Second)
	set(&cfg.EndTimeout, 200*time.Millisecond)
	cfg.MaxInterval = max(cfg.MaxInterval, cfg.Interval)
	return &Loop{cfg: cfg, prober: p, tracker: clock.NewTracker(trackBursts)}
}

// SetPace sets the least time between two bursts, for a peer that many ask. It
// may be called from any goroutine and holds from the next burst on.
func (l *Loop) SetPace(d time.Duration) { l.pace.Store(int64(d)) }

// Run does bursts until ctx ends, then one more, which is worth the most: with
// the first ones it spans the whole run. It returns when that is done.
func (l *Loop) Run(ctx context.Context) {
	interval := l.cfg.Interval
	steady := 0
	for n := 1; ctx.Err() == nil; n++ {
		if l.once(ctx) {
			steady++
		} else {
			steady, interval = 0, l.cfg.Interval
		}
		wait := max(l.cfg.StartGap, time.Duration(l.pace.Load()))
		if n >= l.cfg.StartBursts {
			if steady > steadyBursts {
				interval = min(time.Duration(float64(interval)*stretch), l.cfg.MaxInterval)
			}
			interval = max(interval, time.Duration(l.pace.Load()))
			wait = time.Duration(float64(interval) * (1 - jitter + 2*jitter*rand.Float64()))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.EndTimeout)
	defer cancel()
	l.once(end)
}

// once does a burst and says whether all is as it was.
func (l *Loop) once(ctx context.Context) bool {
	xs, before, after, err := l.prober.Burst(ctx)
	if err != nil && ctx.Err() == nil && l.cfg.OnError != nil {
		l.cfg.OnError(err)
	}
	l.mu.Lock()
	l.tracker.Add(xs)
	steady := l.tracker.Steady()
	l.mu.Unlock()
	if l.cfg.OnBurst != nil {
		l.cfg.OnBurst(xs, before, after)
	}
	return err == nil && steady && 2*l.prober.answered() > l.prober.cfg.Burst
}

// Offset returns the peer's raw clock minus the node's, now, give or take
// bound nanoseconds; ok is false until the first burst was answered. It may be
// called from any goroutine.
func (l *Loop) Offset() (ns, bound int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracker.Offset(l.prober.cfg.Source.Now())
}
