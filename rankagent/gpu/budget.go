//go:build cgo && linux

package gpu

import (
	"sync/atomic"
	"time"

	"github.com/gswarm/gswarm/rankagent"
)

// kind is one kind of reading of a GPU, by what is given up first where the
// driver's time runs short.
type kind int

const (
	kindCheap kind = iota
	kindActivity
	kindPower
	kindCounter
	kindEnergy
	kindProcess
	kinds
)

const (
	defaultBudget = 500 * time.Microsecond
	// budgetSpan is the time over which the budget is kept, in seconds, and
	// budgetPatience how long it is watched before something is changed.
	budgetSpan     = 60
	budgetPatience = 10
	maxLevel       = 10
)

// budget keeps the time that a GPU's calls take in the driver under a share of
// the time. spent and level are shared by the GPU's sources; the rest is the
// watch's.
type budget struct {
	spent atomic.Int64 // ns since the last second
	level atomic.Int32

	allowed float64 // ns a second
	tick    time.Duration
	seconds [budgetSpan]int64
	n, at   int
}

func (b *budget) set(perTick, tick time.Duration) {
	b.tick = tick
	b.allowed = float64(perTick) / tick.Seconds()
}

// admits says whether the tick-th reading of a kind is to be taken: dear
// readings are thinned first, the base tick last, and the driver's power
// buffer, which would overrun, hardly at all.
func (b *budget) admits(k kind, tick int64) bool {
	level := int64(b.level.Load())
	if level == 0 {
		return true
	}
	every := int64(1)
	switch k {
	case kindCounter, kindEnergy, kindProcess:
		every = 1 << min(level, 5)
	case kindActivity:
		every = 1 << max(0, min(level-2, 3))
	case kindCheap:
		every = 1 << max(0, min(level-3, 6))
	case kindPower:
		every = 1 + level/6
	}
	return tick%every == 0
}

// budgetDetail is the detail of the events sampling_slowed and
// sampling_restored: driver time per tick, over the seconds watched.
type budgetDetail struct {
	UUID     string `json:"gpu_uuid,omitempty"`
	Level    int32  `json:"level"`
	SpentUS  int64  `json:"spent_us_per_tick"`
	BudgetUS int64  `json:"budget_us_per_tick"`
	Seconds  int    `json:"seconds"`
}

// second is called once a second and changes the level where that is due.
func (b *budget) second(dev *device, out rankagent.Out) {
	b.seconds[b.at] = b.spent.Swap(0)
	b.at = (b.at + 1) % budgetSpan
	b.n = min(b.n+1, budgetSpan)
	if b.n < budgetPatience || b.allowed <= 0 {
		return
	}
	var sum int64
	for i := range b.n {
		sum += b.seconds[(b.at-1-i+budgetSpan)%budgetSpan]
	}
	rate := float64(sum) / float64(b.n)
	level := b.level.Load()
	event := ""
	switch {
	case rate > b.allowed && level < maxLevel:
		event = EventSlowed
		level++
	case rate < b.allowed/3 && level > 0 && b.n == budgetSpan:
		event = EventRestored
		level--
	default:
		return
	}
	b.level.Store(level)
	b.n = 0
	out.Event(out.Now(), event, dev.index, -1, budgetDetail{
		UUID: dev.uuid(), Level: level, Seconds: budgetPatience,
		SpentUS:  int64(rate * b.tick.Seconds() / 1e3),
		BudgetUS: int64(b.allowed * b.tick.Seconds() / 1e3),
	})
}
