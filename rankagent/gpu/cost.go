//go:build cgo && linux

package gpu

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// costTries is how often each call is tried: enough for a median, few enough
// that even a dear call does not hold up the job's start.
const costTries = 5

// try makes each call that the sources will make and measures it, and finds out
// by two live samples whether GPM works; where it does not, why says so. GPUs
// are tried all at once, as they will be read.
func (dev *device) try(id *identity) (costs []CallCost, works bool, why string) {
	measure := func(call string, f func() nvml.Return) nvml.Return {
		c, ret := dev.measure(call, f)
		costs = append(costs, c)
		return ret
	}
	g := newGPM(dev.driver)
	defer g.free()
	ret := g.alloc()
	if ret == nvml.SUCCESS {
		// The last try is the first sample of the window that is evaluated
		// below.
		ret = measure("nvmlGpmSampleGet", func() nvml.Return { return g.sample(id.handle) })
	}
	dev.tryCheap(id.handle, measure)
	if ret != nvml.SUCCESS {
		return costs, false, text(ret)
	}
	time.Sleep(minWindow)
	g.advance()
	if ret := g.sample(id.handle); ret != nvml.SUCCESS {
		return costs, false, text(ret)
	}
	if ret := measure("nvmlGpmMetricsGet", g.evaluate); ret != nvml.SUCCESS {
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

// tryCheap measures the calls of the cheap set that the driver has. Their
// time counts, not what they return.
func (dev *device) tryCheap(h nvml.Device, measure func(string, func() nvml.Return) nvml.Return) {
	has := dev.driver.has
	if has[fnUtilization] {
		_ = measure("nvmlDeviceGetUtilizationRates", func() nvml.Return { _, ret := h.GetUtilizationRates(); return ret })
	}
	if has[fnMemory] {
		_ = measure("nvmlDeviceGetMemoryInfo_v2", func() nvml.Return { _, ret := h.GetMemoryInfo_v2(); return ret })
	}
	if has[fnTemperature] {
		_ = measure("nvmlDeviceGetTemperature", func() nvml.Return { _, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); return ret })
	}
	if has[fnClock] {
		_ = measure("nvmlDeviceGetClockInfo(SM)", func() nvml.Return { _, ret := h.GetClockInfo(nvml.CLOCK_SM); return ret })
		_ = measure("nvmlDeviceGetClockInfo(MEM)", func() nvml.Return { _, ret := h.GetClockInfo(nvml.CLOCK_MEM); return ret })
	}
	if has[fnEventReasons] || has[fnThrottleReasons] {
		_ = measure("nvmlDeviceGetCurrentClocksEventReasons", func() nvml.Return { _, ret := eventReasons(has, h); return ret })
	}
	if has[fnPState] {
		_ = measure("nvmlDeviceGetPerformanceState", func() nvml.Return { _, ret := h.GetPerformanceState(); return ret })
	}
	if has[fnPower] {
		_ = measure("nvmlDeviceGetPowerUsage", func() nvml.Return { _, ret := h.GetPowerUsage(); return ret })
	}
	if has[fnFields] {
		s := &cheap{dev: dev}
		_ = measure("nvmlDeviceGetFieldValues(82,186)", func() nvml.Return { return s.readFields(h) })
	}
}

// measure calls f a few times and returns what it cost and how it ended.
func (dev *device) measure(call string, f func() nvml.Return) (CallCost, nvml.Return) {
	now := dev.driver.clock.Now
	var took [costTries]int64
	var ret nvml.Return
	for i := range took {
		begin := now()
		ret = f()
		took[i] = int64(now() - begin)
	}
	slices.Sort(took[:])
	c := CallCost{
		Call: call, GPU: dev.index, Tries: costTries,
		MedianNS: took[costTries/2], MaxNS: took[costTries-1],
	}
	if ret != nvml.SUCCESS {
		c.Error = text(ret)
	}
	return c, ret
}
