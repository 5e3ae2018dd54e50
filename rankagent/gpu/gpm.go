//go:build cgo && linux

package gpu

import (
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/table"
)

// minWindow is the shortest GPM window. The driver refreshes its counters every
// 100 ms: shorter windows give NaN while idle and repeat themselves under load.
const minWindow = 110 * time.Millisecond

// metric ties a column of gpu_activity to a GPM metric and says what it cannot
// exceed.
type metric struct {
	column int
	id     uint32
	max    float64
}

const (
	// A ratio of two counters that are not read at the same instant may
	// exceed 100 by a little.
	maxPct   = 101
	maxMiBps = 1e8 // two orders of magnitude over NVLink 5
)

// metrics are the GPM metrics in the order in which they are asked.
var metrics = [...]metric{
	{table.ActSMUtil, uint32(nvml.GPM_METRIC_SM_UTIL), maxPct},
	{table.ActSMOccupancy, uint32(nvml.GPM_METRIC_SM_OCCUPANCY), maxPct},
	{table.ActTensor, uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL), maxPct},
	{table.ActDRAM, uint32(nvml.GPM_METRIC_DRAM_BW_UTIL), maxPct},
	{table.ActFP64, uint32(nvml.GPM_METRIC_FP64_UTIL), maxPct},
	{table.ActFP32, uint32(nvml.GPM_METRIC_FP32_UTIL), maxPct},
	{table.ActFP16, uint32(nvml.GPM_METRIC_FP16_UTIL), maxPct},
	{table.ActPCIeTx, uint32(nvml.GPM_METRIC_PCIE_TX_PER_SEC), maxMiBps},
	{table.ActPCIeRx, uint32(nvml.GPM_METRIC_PCIE_RX_PER_SEC), maxMiBps},
	{table.ActNVLinkTx, uint32(nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC), maxMiBps},
	{table.ActNVLinkRx, uint32(nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC), maxMiBps},
}

// gpm is a pair of GPM samples of one GPU: the last one and the one to come.
type gpm struct {
	dev     *device
	lib     nvml.Interface
	has     *exports
	samples [2]nvml.GpmSample
	next    int // index of the sample to come
	get     nvml.GpmMetricsGetType
}

func newGPM(dev *device) *gpm { return &gpm{dev: dev, lib: dev.driver.lib, has: dev.driver.has} }

// alloc makes room for the samples, once.
func (g *gpm) alloc() nvml.Return {
	if g.samples[1] != nil {
		return nvml.SUCCESS
	}
	for _, f := range [...]function{fnGPMAlloc, fnGPMFree, fnGPMGet, fnGPMMetrics} {
		if !g.has[f] {
			return nvml.ERROR_FUNCTION_NOT_FOUND
		}
	}
	for i := range g.samples {
		if g.samples[i] != nil {
			continue
		}
		s, ret := g.lib.GpmSampleAlloc()
		if ret != nvml.SUCCESS {
			return ret
		}
		g.samples[i] = s
	}
	return nvml.SUCCESS
}

func (g *gpm) free() {
	for i, s := range g.samples {
		if s != nil {
			_ = s.Free()
			g.samples[i] = nil
		}
	}
}

// sample takes the sample to come. That of a MIG instance is asked of its GPU.
func (g *gpm) sample(h nvml.Device) nvml.Return {
	if p := g.dev.parent; p != nil {
		id := p.id.Load()
		if id == nil || !g.has[fnGPMMIGGet] {
			return nvml.ERROR_NOT_SUPPORTED
		}
		return id.handle.GpmMigSampleGet(g.dev.gpuInstance, g.samples[g.next])
	}
	return h.GpmSampleGet(g.samples[g.next])
}

// advance makes the sample just taken the last one.
func (g *gpm) advance() { g.next = 1 - g.next }

// evaluatePatience is how long one GPU's metrics wait for another's. They take
// 20 us.
const evaluatePatience = 20 * time.Millisecond

// evaluate computes the metrics between the last sample and the one just
// taken; they stand in get.Metrics, in the order of metrics. One GPU at a time:
// see device.try.
func (g *gpm) evaluate() nvml.Return {
	turn := g.dev.driver.metrics.take(evaluatePatience)
	if !turn.mine() {
		return nvml.ERROR_TIMEOUT
	}
	defer turn.give()
	g.get.NumMetrics = uint32(len(metrics))
	g.get.Sample1, g.get.Sample2 = g.samples[1-g.next], g.samples[g.next]
	for i, m := range metrics {
		g.get.Metrics[i] = nvml.GpmMetric{MetricId: m.id, Value: math.NaN()}
	}
	return g.lib.GpmMetricsGet(&g.get)
}
