//go:build cgo && linux

package gpu

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
)

const (
	// cheapCost is what a call may take at every tick without being asked
	// what it is worth.
	cheapCost = 200 * time.Microsecond
	// memoryCost is the same for the memory in use, which changes slowly: 4 us
	// on one H200, 150 to 250 where eight are busy.
	memoryCost = 100 * time.Microsecond
	// gpmCost is the same for a GPM sample, which is worth more: without it
	// nobody knows what a GPU did. On a busy H200 it takes 0.3 to 0.6 ms.
	gpmCost = 3 * time.Millisecond
	// share is how much of the time one dearer call may take.
	share = 1000
	// longest is the longest time between two calls that are dear or fail.
	longest = time.Minute
	// retryUnsupported is how often a call is tried again where the driver
	// says that it has no such value or refuses it.
	retryUnsupported = clock.NodeTime(10 * time.Second)
)

// call is one driver call on one GPU: what it costs and when it may be made
// next. It belongs to its lane's goroutine.
type call struct {
	name    string
	planned CallCost
	// tick is the interval of the source that makes the call, floor the
	// least time between two calls by plan; every is what the cost allows.
	tick, floor, every time.Duration
	next               clock.NodeTime
	cost               float64 // ns, a running mean that a single slow call moves little
	failures           int
	cheap              time.Duration // what it may take at every tick
	// shownCost and shownEvery are what a plan shows, from any goroutine.
	shownCost, shownEvery atomic.Int64
}

// newCall plans a call by what it cost when it was tried.
func newCall(name string, tick time.Duration, c CallCost) *call {
	k := &call{name: name, planned: c, tick: tick, floor: tick, cost: float64(c.MedianNS), cheap: cheapCost}
	switch name {
	case callSample, callMetrics:
		k.cheap = gpmCost
	case callMemory:
		k.cheap = memoryCost
	}
	k.every = k.afford(k.cost)
	k.show()
	return k
}

func (c *call) show() {
	c.shownCost.Store(int64(c.cost))
	c.shownEvery.Store(int64(c.every))
}

// dear says whether the call costs more than is not worth a thought.
func (c *call) dear() bool { return c.cost > float64(c.cheap) }

// stretch sets the least time between two calls.
func (c *call) stretch(floor time.Duration) {
	if floor == c.floor {
		return
	}
	wait := c.every - c.tick/2
	c.floor = floor
	c.every = c.afford(c.cost)
	if c.every > c.tick && c.next > 0 {
		c.next += clock.NodeTime(c.every - c.tick/2 - max(wait, 0))
	}
	c.show()
}

// afford returns the time between calls that a cost allows.
func (c *call) afford(cost float64) time.Duration {
	if cost <= float64(c.cheap) {
		return c.floor
	}
	every := time.Duration(math.Ceil(cost*share/1e9)) * time.Second
	return max(c.floor, min(every, longest))
}

// cadence returns the time between calls as it is now.
func (c *call) cadence() time.Duration { return max(c.every, c.tick) }

// learn takes what a call took into what it is believed to cost. While a job
// makes its CUDA contexts, calls wait for it, by milliseconds, for seconds; a
// call that has become slow stays slow. So a slow one is believed little by
// little, and a quick one nearly at once, and sooner where calls are few.
func (c *call) learn(took float64) {
	const up, down = 1.0 / 16, 1.0 / 2
	switch {
	case took < c.cost:
		c.cost += (took - c.cost) * down
		if c.every > c.floor {
			c.cost = min(c.cost, 2*took)
		}
	case c.every > c.floor:
		c.cost += (min(took, 16*c.cost) - c.cost) * down
	default:
		c.cost += (min(took, 4*c.cost+50e3) - c.cost) * up
	}
}

// observe takes what a call took and how it ended, and says when the next may
// be. It returns true where the cadence changed.
func (c *call) observe(now clock.NodeTime, took time.Duration, ret nvml.Return) (changed bool) {
	c.learn(float64(took))
	if every := c.afford(c.cost); every >= 2*c.every && every > c.tick || c.every > c.floor && c.afford(2*c.cost) <= c.every/2 {
		c.every, changed = every, true
	}
	wait := time.Duration(0)
	if c.every > c.tick {
		// Half a tick early rather than a whole one late.
		wait = c.every - c.tick/2
	}
	c.next = now + clock.NodeTime(wait)
	c.show()
	if ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_TIMEOUT {
		c.failures = 0
		return changed
	}
	c.failures++
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_FUNCTION_NOT_FOUND:
		c.next = max(c.next, now+retryUnsupported)
	default:
		// Twice in a row may be chance; then it is asked ever less often.
		if c.failures > 2 {
			back := min(time.Second<<min(c.failures-3, 6), longest)
			c.next = max(c.next, now+clock.NodeTime(back))
		}
	}
	return changed
}
