//go:build cgo && linux

package gpu

import (
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

const (
	// activityInterval leaves a tick room to be late by more than a tenth
	// before the next window would fall under minWindow, and divides a
	// second, so that windows of all nodes begin together.
	activityInterval = 125 * time.Millisecond
	// A window longer than this many intervals, and than longestWindow, is
	// given up and a new one begun: it would smear over a gap. Samples that
	// the budget has thinned still make windows without a gap between them.
	maxWindows    = 4
	longestWindow = 3 * time.Second
)

// activity reads the gpu_activity table of one GPU: each sample ends a window
// and begins the next.
type activity struct {
	*lane
	abs       absences
	gpm       *gpm
	get, eval *call
	maxWindow clock.NodeTime
	// The last sample was taken between from and to.
	seeded   bool
	from, to clock.NodeTime
	retryAt  clock.NodeTime
}

func newActivity(dev *device) *activity {
	interval := max(dev.driver.interval, activityInterval)
	s := &activity{
		lane:      newLane(dev, table.GPUActivity, kindActivity, interval),
		abs:       absences{table: table.GPUActivity, key: dev.key},
		gpm:       newGPM(dev),
		get:       newCall(callSample, interval, dev.costs[callSample]),
		eval:      newCall(callMetrics, interval, dev.costs[callMetrics]),
		maxWindow: clock.NodeTime(max(maxWindows*interval, longestWindow)),
	}
	s.calls = []*call{s.get, s.eval}
	return s
}

// Pace implements rankagent.Paced: where the budget does not allow the planned
// windows they are longer, and still one follows the other.
func (s *activity) Pace() time.Duration {
	return time.Duration(float64(s.interval) * s.dev.shared.budget.factor(kindActivity))
}

const (
	callSample  = "nvmlGpmSampleGet"
	callMetrics = "nvmlGpmMetricsGet"
)

// Name returns "gpm" and the ordinal.
func (s *activity) Name() string { return "gpm " + s.dev.key }

// Close frees the samples, unless NVML is gone already.
func (s *activity) Close() error {
	if s.dev.driver.gate.enter() {
		defer s.dev.driver.gate.leave()
		s.gpm.free()
	}
	return nil
}

// Read takes a sample and appends the row of the window that it ends. The first
// sample, and the first after a gap, only begin one.
func (s *activity) Read(out rankagent.Out) error {
	if err := s.enter(out); err != nil {
		return err
	}
	defer s.leave()
	now := out.Now()
	if now < s.retryAt {
		s.abs.again(out, wholeRow)
		return nil
	}
	if s.seeded && now-s.to < clock.NodeTime(minWindow)+grain {
		return nil // a late tick came before; the window goes on
	}
	id := s.dev.id.Load()
	if id == nil {
		s.fail(out, nvml.ERROR_GPU_IS_LOST)
		return nil
	}
	if ret := s.gpm.alloc(); ret != nvml.SUCCESS {
		s.fail(out, ret)
		return nil
	}
	if !s.begin(s.get) {
		s.abs.again(out, wholeRow)
		return nil
	}
	begin := out.Now()
	ret := s.gpm.sample(id.handle)
	begin, end := widen(begin, out.Now())
	s.end(s.get, ret)
	if s.abandoned() {
		s.seeded = false
		return nil
	}
	if ret != nvml.SUCCESS {
		s.fail(out, ret)
		return nil
	}
	start := middle(s.from, s.to)
	seeded := s.seeded
	s.seeded, s.from, s.to = true, begin, end
	defer s.gpm.advance()
	switch {
	case !seeded:
		return nil
	case middle(begin, end)-start > s.maxWindow:
		s.abs.absent(out, wholeRow, rankagent.NotSampled, func() string { return "the samples lie too far apart" })
		return nil
	}
	if !s.begin(s.eval) {
		return nil
	}
	ret = s.gpm.evaluate()
	s.end(s.eval, ret)
	if s.abandoned() {
		s.seeded = false
		return nil
	}
	if ret != nvml.SUCCESS {
		s.fail(out, ret)
		return nil
	}
	s.abs.present(out, wholeRow)
	row := out.Batch(table.GPUActivity).Append()
	row.Window(int64(start), int64(begin), int64(end))
	row.Int(table.ActGPU, int64(s.dev.index))
	row.String(table.ActUUID, id.uuid)
	for i := range metrics {
		s.put(out, row, i)
	}
	return nil
}

func middle(begin, end clock.NodeTime) clock.NodeTime { return begin + (end-begin)/2 }

// fail says that there are no rows and begins anew with the next sample.
func (s *activity) fail(out rankagent.Out, ret nvml.Return) {
	s.seeded = false
	reason := reasonOf(ret)
	now := out.Now()
	switch reason {
	case rankagent.NotSupported, rankagent.NoPermission:
		s.retryAt = now + retryUnsupported
	case rankagent.DeviceLost:
		s.retryAt = now + retryLost
	}
	s.abs.absent(out, wholeRow, reason, func() string { return text(ret) })
}

// put sets the column of the i-th metric, or says why it stays null.
func (s *activity) put(out rankagent.Out, row table.Row, i int) {
	m, got := &metrics[i], &s.gpm.get.Metrics[i]
	if ret := nvml.Return(got.NvmlReturn); ret != nvml.SUCCESS {
		reason := reasonOf(ret)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			reason = rankagent.NotSupported // a metric that the driver does not know
		}
		s.abs.absent(out, m.column, reason, func() string { return text(ret) })
		return
	}
	v := got.Value
	if math.IsNaN(v) || v < 0 || v > m.max {
		s.abs.absent(out, m.column, rankagent.InvalidValue, func() string {
			return fmt.Sprintf("the driver says %g", v)
		})
		return
	}
	row.Float(m.column, meant(v))
	s.abs.present(out, m.column)
}

// meant returns a value with the digits that it can mean, in steps of 1/128 and
// of 14 binary digits: an error of at most 0.004 percent, or of 0.03 per mille of
// a rate. The driver refreshes the counters behind it every 100 ms only, so that
// a window of 125 ms is known to no part in a thousand, and digits beyond would
// be three bytes of noise in each value.
func meant(v float64) float64 {
	frac, exp := math.Frexp(math.Round(v*128) / 128)
	return math.Ldexp(math.Round(frac*(1<<14))/(1<<14), exp)
}
