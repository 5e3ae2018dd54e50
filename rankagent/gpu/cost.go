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
	// costTries is how often each call is tried: enough for a median, few
	// enough that even a dear call does not hold up the job's start.
	costTries = 5
	// dearTry is a try after which no second one is made.
	dearTry = 10 * time.Millisecond
)

// try makes each call that the sources will make and measures it, and finds out
// by two live samples whether GPM works; where it does not, why says so. GPUs
// are tried all at once, as they will be read.
func (dev *device) try(id *identity) (costs []CallCost, works bool, why string) {
	runtime.LockOSThread() // CPU time is counted by thread
	defer runtime.UnlockOSThread()
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
	dev.tryItems(id.handle, measure)
	if ret != nvml.SUCCESS {
		return costs, false, text(ret)
	}
	time.Sleep(minWindow - time.Duration(dev.driver.clock.Now()-sampled))
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
func (dev *device) tryItems(h nvml.Device, measure func(string, func() nvml.Return) nvml.Return) {
	has := dev.driver.has
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
	if has[fnProcesses] {
		_ = measure(callProcesses, func() nvml.Return { _, ret := h.GetComputeRunningProcesses(); return ret })
	}
	if has[fnProcessUtil] && dev.driver.processUtil {
		_ = measure(callProcessUtil, func() nvml.Return { _, ret := h.GetProcessUtilization(0); return ret })
	}
}

// measure calls f a few times, once where it is dear, and returns what it cost
// and how it ended.
func (dev *device) measure(call string, f func() nvml.Return) (CallCost, nvml.Return) {
	now := dev.driver.clock.Now
	var wall, cpu [costTries]int64
	var ret nvml.Return
	n := 0
	for n < costTries {
		begin, used := now(), threadCPU()
		ret = f()
		wall[n], cpu[n] = int64(now()-begin), threadCPU()-used
		n++
		if wall[n-1] > int64(dearTry) {
			break
		}
	}
	slices.Sort(wall[:n])
	slices.Sort(cpu[:n])
	c := CallCost{
		Call: call, GPU: dev.index, Tries: n,
		MedianNS: wall[n/2], MaxNS: wall[n-1], CPUNS: cpu[n/2],
	}
	if ret != nvml.SUCCESS {
		c.Error = text(ret)
	}
	return c, ret
}

// planned adds to each call's cost how often it will be made. A call that was
// not tried long enough for a fair median is put right while it is made.
func (dev *device) planned(costs []CallCost) []CallCost {
	tick := dev.driver.interval
	floor := map[string]time.Duration{
		callSample: max(tick, activityInterval), callMetrics: max(tick, activityInterval),
		callPower: powerInterval, callProcesses: time.Duration(processEvery), callProcessUtil: time.Duration(processEvery),
	}
	for _, it := range cheapItems(dev) {
		floor[it.name] = tick
	}
	for _, it := range counterItems() {
		floor[it.name] = counterInterval
	}
	for _, it := range energyItems() {
		floor[it.name] = energyInterval
	}
	for i := range costs {
		c := &costs[i]
		c.Every = newCall(c.Call, floor[c.Call], *c).every.String()
	}
	return costs
}

// threadCPU returns the calling thread's CPU time.
func threadCPU() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
