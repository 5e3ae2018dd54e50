//go:build cgo && linux

package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

const (
	// changeHolds is how long a state has to be over before it is said to be:
	// a GPU at its power limit comes and goes many times a second.
	changeHolds = clock.NodeTime(time.Second)
	// A clock has dropped under dropPct of the highest seen and is back over
	// backPct.
	dropPct, backPct = 90, 95
)

// throttles are the reasons that keep clocks under what the GPU could do, by
// their bit, with the words of nvmlClocksEventReasons. Idle and the clocks that
// somebody set are none.
var throttles = [...]struct {
	bit  int64
	name string
}{
	{int64(nvml.ClocksEventReasonSwPowerCap), "sw_power_cap"},
	{int64(nvml.ClocksThrottleReasonHwSlowdown), "hw_slowdown"},
	{int64(nvml.ClocksEventReasonSyncBoost), "sync_boost"},
	{int64(nvml.ClocksEventReasonSwThermalSlowdown), "sw_thermal"},
	{int64(nvml.ClocksThrottleReasonHwThermalSlowdown), "hw_thermal"},
	{int64(nvml.ClocksThrottleReasonHwPowerBrakeSlowdown), "hw_power_brake"},
}

const (
	idleBit   = int64(nvml.ClocksEventReasonGpuIdle)
	chosenBit = int64(nvml.ClocksEventReasonApplicationsClocksSetting)
)

// episode is a state that begins and ends: that a throttle reason is set, that
// the clock is low.
type episode struct {
	open bool
	// The state was last seen at seen; it was gone between after and gone.
	after, gone clock.NodeTime
	began       clock.NodeTime
	worst       int64 // lowest clock seen in it
}

// update takes what one read between begin and end says and returns what of
// the episode is worth an event.
func (e *episode) update(on bool, begin, end clock.NodeTime, mhz int64) (begins, ends bool) {
	if on {
		begins = !e.open
		if begins {
			e.open, e.began, e.worst = true, begin, mhz
		}
		if mhz >= 0 && (e.worst < 0 || mhz < e.worst) {
			e.worst = mhz
		}
		e.after, e.gone = end, 0
		return begins, false
	}
	if !e.open {
		return false, false
	}
	if e.gone == 0 {
		e.gone = end
	}
	if end-e.gone >= changeHolds {
		e.open = false
		return false, true
	}
	return false, false
}

// changes turns what the cheap set reads into events.
type changes struct {
	last     clock.NodeTime // end of the read before
	throttle [len(throttles)]episode
	drop     episode
	highest  int64
}

// throttleDetail is the detail of throttle_begin and throttle_end.
type throttleDetail struct {
	UUID     string `json:"gpu_uuid"`
	Reason   string `json:"reason"`
	ClockMHz int64  `json:"clock_sm_mhz,omitempty"`
	MS       int64  `json:"lasted_ms,omitempty"`
}

// clockDetail is the detail of clock_drop and clock_back.
type clockDetail struct {
	UUID    string `json:"gpu_uuid"`
	MHz     int64  `json:"clock_sm_mhz"`
	Highest int64  `json:"highest_mhz"`
	MS      int64  `json:"lasted_ms,omitempty"`
	Reasons int64  `json:"event_reasons"`
}

// see takes one read; reasons and mhz are -1 where they are not known.
func (c *changes) see(out rankagent.Out, dev *device, begin, end clock.NodeTime, reasons, mhz int64) {
	since := c.last
	if since == 0 {
		since = begin
	}
	c.last = end
	if reasons < 0 {
		return
	}
	for i := range throttles {
		e := &c.throttle[i]
		begins, ends := e.update(reasons&throttles[i].bit != 0, begin, end, mhz)
		switch {
		case begins:
			between(out, EventThrottleBegin, dev.index, since, end, throttleDetail{UUID: dev.uuid(), Reason: throttles[i].name, ClockMHz: mhz})
		case ends:
			between(out, EventThrottleEnd, dev.index, e.after, e.gone, throttleDetail{
				UUID: dev.uuid(), Reason: throttles[i].name, ClockMHz: mhz, MS: int64(e.gone-e.began) / 1e6})
		}
	}
	if mhz < 0 {
		return
	}
	c.highest = max(c.highest, mhz)
	// An idle GPU's clock is low by right, and so is one that somebody set.
	low := mhz*100 < c.highest*dropPct || c.drop.open && mhz*100 < c.highest*backPct
	begins, ends := c.drop.update(low && reasons&(idleBit|chosenBit) == 0, begin, end, mhz)
	d := clockDetail{UUID: dev.uuid(), MHz: mhz, Highest: c.highest, Reasons: reasons}
	switch {
	case begins:
		between(out, EventClockDrop, dev.index, since, end, d)
	case ends:
		d.MS = int64(c.drop.gone-c.drop.began) / 1e6
		d.MHz = c.drop.worst
		between(out, EventClockBack, dev.index, c.drop.after, c.drop.gone, d)
	}
}

// between records an event that happened at an instant between two others. The
// row's read is the time between them, so that its bound covers both.
func between(out rankagent.Out, kind string, gpu int, from, to clock.NodeTime, detail any) {
	row := out.Batch(table.Event).Append()
	row.Read(int64(from), int64(max(from, to)))
	row.String(table.EventKind, kind)
	row.Int(table.EventGPU, int64(gpu))
	if s := marshal(detail); s != "" {
		row.String(table.EventDetail, s)
	}
}
