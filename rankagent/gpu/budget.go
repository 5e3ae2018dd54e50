//go:build cgo && linux

package gpu

import (
	"sync/atomic"
	"time"

	"github.com/gswarm/gswarm/rankagent"
)

// kind is one kind of reading of a GPU.
type kind int

const (
	kindCheap kind = iota
	kindActivity
	kindPower
	kindCounter
	kindDear // counters whose calls are dear
	kindEnergy
	kindProcess
	kinds
)

// ladder says, level by level, how many times longer than planned it is from
// one reading of a kind to the next, so that a GPU's calls keep the budget.
// What is worth least for its price goes first: counters that are dear, which
// lose nothing but the instant of a change. GPM keeps windows of 200 ms as long
// as anything else can go; the base tick goes last, and the driver's power
// buffer, which would overrun, hardly at all.
var ladder = [...][kinds]float64{
	// cheap, GPM, power, counter, dear, energy, process
	{1, 1, 1, 1, 1, 1, 1},
	{1, 1, 1, 1, 10, 1, 1},
	{1, 1.6, 1, 1, 10, 1, 1},
	{1, 1.6, 1, 1, 10, 2, 2},
	{1, 1.6, 1, 5, 30, 6, 6},
	{1, 2, 1, 10, 60, 6, 6},
	{1, 4, 1, 10, 60, 6, 6},
	{2, 8, 2, 10, 60, 6, 6},
	{4, 16, 2, 10, 60, 6, 6},
	{8, 16, 2, 10, 60, 6, 6},
	{16, 16, 2, 10, 60, 6, 6},
	{64, 16, 2, 10, 60, 6, 6},
}

const (
	defaultBudget = 500 * time.Microsecond
	// budgetSpan is the time over which the budget is kept, in seconds: so long
	// is watched before anything is thinned. budgetPatience is the least time
	// between two changes.
	budgetSpan     = 60
	budgetPatience = 20
	// budgetRoom is the share of the budget under which what was given up has
	// to stay to be taken up again.
	budgetRoom = 0.8
	// burst is how many times the usual a second may count. While a job makes
	// its CUDA contexts every call waits for it, for a second and more: that
	// says nothing of what calls cost, and would cost a minute of data. The
	// usual follows what is seen within burstSpan seconds.
	burst     = 4
	burstSpan = 240
	// burstFloor is what counts in any case, ns: what was not tried has no plan.
	burstFloor = 0.2e6
)

// spent is driver time by kind, ns.
type spent [kinds]float64

// at returns what is spent at a level, of what is spent at the first.
func (s spent) at(level int32) (sum float64) {
	for k := range s {
		sum += s[k] / ladder[level][k]
	}
	return sum
}

// fit returns the lowest level at which no more than allowed is spent.
func (s spent) fit(allowed float64) int32 {
	level := int32(0)
	for int(level) < len(ladder)-1 && s.at(level) > allowed {
		level++
	}
	return level
}

// budget keeps the time that a GPU's calls take in the driver under a share of
// the time. took and level are shared by the GPU's sources; the rest is the
// watch's.
type budget struct {
	took  [kinds]atomic.Int64 // ns since the last second
	level atomic.Int32

	allowed float64 // ns a second
	tick    time.Duration
	// seconds is what each would have cost at the first level.
	seconds [budgetSpan]spent
	n, at   int
	since   int   // seconds since the level changed
	planned spent // a second's worth by what the calls cost when they were tried
	usual   spent // a second's worth of late
	told    bool
}

func (b *budget) set(perTick, tick time.Duration) {
	b.tick = tick
	b.allowed = float64(perTick) / tick.Seconds()
}

// plan chooses the level to begin with by what the calls cost when they were
// tried. A GPU's MIG instances share its budget.
func (b *budget) plan(costs spent) {
	for k := range costs {
		b.planned[k] += costs[k]
		b.usual[k] += costs[k]
	}
	if b.allowed > 0 {
		b.level.Store(b.planned.fit(b.allowed))
	}
}

// factor returns how many times longer than planned it is between two readings
// of a kind.
func (b *budget) factor(k kind) float64 { return ladder[b.level.Load()][k] }

// admits says whether the tick-th reading of a kind is to be taken.
func (b *budget) admits(k kind, tick int64) bool {
	every := int64(b.factor(k))
	switch k {
	case kindActivity:
		return true // its ticks themselves lie farther apart
	case kindProcess:
		if every > 1 {
			every *= int64(time.Duration(processEvery) / processInterval)
		}
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
	// Seconds is 0 where the level was chosen before the first reading.
	Seconds int `json:"seconds"`
}

// second is called once a second and changes the level where that is due.
func (b *budget) second(dev *device, out rankagent.Out) {
	if b.allowed <= 0 {
		return
	}
	level := b.level.Load()
	if !b.told {
		b.told = true
		if level > 0 {
			b.tell(dev, out, EventSlowed, b.planned.at(0), 0)
		}
	}
	for k := range kinds {
		ns := float64(b.took[k].Swap(0))
		ns = min(ns, burst*b.usual[k]+burstFloor) * ladder[level][k]
		b.seconds[b.at][k] = ns
		b.usual[k] += (ns - b.usual[k]) / burstSpan
	}
	b.at = (b.at + 1) % budgetSpan
	b.n = min(b.n+1, budgetSpan)
	if b.since++; b.since < budgetPatience || b.n < budgetSpan {
		return
	}
	full := b.mean()
	to, event := full.fit(b.allowed), EventSlowed
	if to < level {
		to, event = min(level, full.fit(budgetRoom*b.allowed)), EventRestored
	}
	if to == level {
		return
	}
	b.level.Store(to)
	b.since = 0
	b.tell(dev, out, event, full.at(level), b.n)
}

// mean returns what a second would have cost at the first level, over the last
// ones.
func (b *budget) mean() (full spent) {
	for i := range b.n {
		for k, ns := range b.seconds[(b.at-1-i+budgetSpan)%budgetSpan] {
			full[k] += ns / float64(b.n)
		}
	}
	return full
}

func (b *budget) tell(dev *device, out rankagent.Out, event string, rate float64, seconds int) {
	out.Event(out.Now(), event, dev.index, -1, budgetDetail{
		UUID: dev.uuid(), Level: b.level.Load(), Seconds: seconds,
		SpentUS:  int64(rate * b.tick.Seconds() / 1e3),
		BudgetUS: int64(b.allowed * b.tick.Seconds() / 1e3),
	})
}
