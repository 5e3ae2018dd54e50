//go:build cgo && linux

package gpu

import (
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

const (
	// costTries is how often each call is tried after a first time, which may
	// do more than the call will do from then on: enough for a median, few
	// enough that even a dear call does not hold up the job's start.
	costTries = 5
	// dearTry is a try after which no further one is made.
	dearTry = 10 * time.Millisecond
	// tryPatience is how long a GPU waits for another to have been tried: a
	// call that hangs must not keep the others from being read.
	tryPatience = 2 * time.Second
)

// try makes each call that the sources will make and measures it, and finds out
// by two live samples whether GPM works; where it does not, why says so.
//
// GPUs are tried one after another. Eight H200s tried at once showed what it
// costs to wait for each other, 20 ms for calls that take 1 us; and their first
// GPM calls, made at once, crash driver 580.159 in nvmlGpmMetricsGet.
func (dev *device) try(id *identity) (costs []CallCost, works bool, why string) {
	runtime.LockOSThread() // CPU time is counted by thread
	defer runtime.UnlockOSThread()
	turn := dev.driver.turn.take(tryPatience)
	defer func() { turn.give() }()
	measure := func(call string, f func() nvml.Return) nvml.Return {
		c, ret := dev.measure(call, f)
		costs = append(costs, c)
		return ret
	}
	g := newGPM(dev)
	defer g.free()
	ret := g.alloc()
	if ret == nvml.SUCCESS {
		// The last try is the first sample of the window that is evaluated
		// below.
		ret = measure(callSample, func() nvml.Return { return g.sample(id.handle) })
	}
	sampled := dev.driver.clock.Now()
	dev.tryItems(id, measure)
	if ret != nvml.SUCCESS {
		return costs, false, text(ret)
	}
	turn.give()
	time.Sleep(minWindow - time.Duration(dev.driver.clock.Now()-sampled))
	turn = dev.driver.turn.take(tryPatience)
	if !turn.mine() {
		return costs, false, "another GPU's calls hang"
	}
	g.advance()
	if ret := g.sample(id.handle); ret != nvml.SUCCESS {
		return costs, false, text(ret)
	}
	if ret := measure(callMetrics, g.evaluate); ret != nvml.SUCCESS {
		return costs, false, text(ret)
	}
	for i := range metrics {
		m := &g.get.Metrics[i]
		if nvml.Return(m.NvmlReturn) == nvml.SUCCESS && !math.IsNaN(m.Value) {
			return costs, true, ""
		}
	}
	return costs, false, "no metric has a value"
}

// tryItems measures the other calls that the sources make and the driver has.
// Their time counts, not what they return.
func (dev *device) tryItems(id *identity, measure func(string, func() nvml.Return) nvml.Return) {
	has, h := dev.driver.has, id.handle
	items := cheapItems(dev)
	if dev.parent == nil {
		items = append(append(items, counterItems()...), energyItems()...)
	}
	r := &reader{lane: &lane{dev: dev}}
	for i := range items {
		if it := &items[i]; it.has(has) {
			_ = measure(it.name, func() nvml.Return { return it.read(r, h) })
		}
	}
	if has[fnSamples] && dev.parent == nil {
		_ = measure(callPower, func() nvml.Return { _, _, ret := h.GetSamples(nvml.TOTAL_POWER_SAMPLES, 0); return ret })
	}
	if has[fnFields] && dev.driver.perLink && dev.parent == nil {
		s := newLinks(&device{driver: dev.driver})
		active := dev.activeLinks(id)
		_ = measure(callLinks, func() (ret nvml.Return) {
			for _, link := range active {
				if ret = s.ask(h, link); ret != nvml.SUCCESS {
					return ret
				}
			}
			return nvml.SUCCESS
		})
	}
	if has[fnProcesses] {
		_ = measure(callProcesses, func() nvml.Return { _, ret := h.GetComputeRunningProcesses(); return ret })
	}
	if has[fnProcessUtil] && dev.driver.processUtil {
		_ = measure(callProcessUtil, func() nvml.Return { _, ret := h.GetProcessUtilization(0); return ret })
	}
}

// measure calls f a few times, twice where it is dear, and returns what it cost
// and how it ended.
func (dev *device) measure(call string, f func() nvml.Return) (CallCost, nvml.Return) {
	now := dev.driver.clock.Now
	var wall, cpu [costTries]int64
	try := func() (took, used int64, ret nvml.Return) {
		begin, before := now(), threadCPU()
		ret = f()
		return int64(now() - begin), threadCPU() - before, ret
	}
	first, _, ret := try()
	n := 0
	for n < costTries {
		wall[n], cpu[n], ret = try()
		n++
		if wall[n-1] > int64(dearTry) {
			break
		}
	}
	slices.Sort(wall[:n])
	slices.Sort(cpu[:n])
	c := CallCost{
		Call: call, GPU: dev.index, Tries: n,
		MedianNS: wall[n/2], MaxNS: wall[n-1], FirstNS: first, CPUNS: cpu[n/2],
	}
	if ret != nvml.SUCCESS {
		c.Error = text(ret)
	}
	return c, ret
}

// place is where a call stands in the schedule: its kind, and the time between
// two calls where it costs nothing.
type place struct {
	kind  kind
	floor time.Duration
}

// schedule returns the place of each call that the sources make.
func (dev *device) schedule() map[string]place {
	tick := dev.driver.interval
	places := map[string]place{
		callSample: {kindActivity, max(tick, activityInterval)}, callMetrics: {kindActivity, max(tick, activityInterval)},
		callPower: {kindPower, powerInterval}, callLinks: {kindEnergy, energyInterval},
		callProcesses: {kindProcess, time.Duration(processEvery)}, callProcessUtil: {kindProcess, time.Duration(processEvery)},
	}
	for _, it := range cheapItems(dev) {
		places[it.name] = place{kindCheap, tick}
	}
	for _, it := range counterItems() {
		places[it.name] = place{kindCounter, counterInterval}
	}
	for _, it := range energyItems() {
		places[it.name] = place{kindEnergy, energyInterval}
	}
	return places
}

// spends returns what the calls of a second take by what they cost when they
// were tried.
func (dev *device) spends(costs []CallCost) (s spent) {
	places := dev.schedule()
	for _, c := range costs {
		p := places[c.Call]
		k := newCall(c.Call, p.floor, c)
		if p.kind == kindCounter && k.dear() {
			p.kind = kindDear
		}
		s[p.kind] += float64(c.MedianNS) / k.every.Seconds()
	}
	return s
}

// showPlan puts into the plan how often each call is made as it is now, and what
// it has cost of late. A call that was not tried long enough for a fair median
// is put right while it is made.
func (dev *device) showPlan(costs []CallCost) {
	places := dev.schedule()
	live := map[string]*call{}
	for _, l := range dev.lanes {
		for _, c := range l.calls {
			live[c.name] = c
		}
	}
	for i := range costs {
		c := &costs[i]
		p := places[c.Call]
		k := live[c.Call]
		if k == nil {
			k = newCall(c.Call, p.floor, *c)
		}
		if p.kind == kindCounter && k.shownCost.Load() > int64(k.cheap) {
			p.kind = kindDear
		}
		every := time.Duration(float64(p.floor) * dev.shared.budget.factor(p.kind))
		c.Every = max(every, time.Duration(k.shownEvery.Load())).String()
		c.RecentNS = k.shownCost.Load()
	}
}

// threadCPU returns the calling thread's CPU time.
func threadCPU() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
