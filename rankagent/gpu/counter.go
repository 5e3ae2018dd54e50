//go:build cgo && linux

package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

const (
	counterInterval = time.Second
	energyInterval  = 10 * time.Second
	// maxCounter is below every sentinel and above what any counter reaches.
	maxCounter = 1 << 62
	kib        = 1024
	// allLinks asks for the sum over all NVLinks.
	allLinks = math.MaxUint32
)

// fieldItem is a counter that is a field value of one column.
func fieldItem(name string, column int, id, scope uint32, unit int64) item {
	return item{name: name, needs: []function{fnFields}, columns: []int{column}, lo: 0, hi: maxCounter,
		read: func(r *reader, h nvml.Device) nvml.Return { return r.readField(h, column, id, scope, unit) }}
}

func eccItem(name string, column int, kind nvml.MemoryErrorType) item {
	return item{name: name, needs: []function{fnECC}, columns: []int{column}, lo: 0, hi: maxCounter,
		read: func(r *reader, h nvml.Device) nvml.Return {
			n, ret := h.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
			r.set(column, int64(min(n, math.MaxInt64)))
			return ret
		}}
}

// counterItems are the counters that cost little.
func counterItems() []item {
	return []item{
		fieldItem("NVML_FI_DEV_PCIE_REPLAY_COUNTER", table.CntPCIeReplay, nvml.FI_DEV_PCIE_REPLAY_COUNTER, 0, 1),
		eccItem("nvmlDeviceGetTotalEccErrors(CORRECTED)", table.CntECCCorrected, nvml.MEMORY_ERROR_TYPE_CORRECTED),
		eccItem("nvmlDeviceGetTotalEccErrors(UNCORRECTED)", table.CntECCUncorrected, nvml.MEMORY_ERROR_TYPE_UNCORRECTED),
		{name: "nvmlDeviceGetRemappedRows", needs: []function{fnRemapped}, columns: []int{table.CntRemappedCorrected, table.CntRemappedUncorrected}, lo: 0, hi: math.MaxInt32,
			read: func(r *reader, h nvml.Device) nvml.Return {
				corrected, uncorrected, _, _, ret := h.GetRemappedRows()
				r.set(table.CntRemappedCorrected, int64(corrected))
				r.set(table.CntRemappedUncorrected, int64(uncorrected))
				return ret
			}},
		fieldItem("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP", table.CntThrottlePower, nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0, 1),
		fieldItem("NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST", table.CntThrottleSync, nvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, 0, 1),
		fieldItem("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", table.CntThrottleSWThermal, nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0, 1),
		fieldItem("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", table.CntThrottleHWThermal, nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0, 1),
		fieldItem("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", table.CntThrottleHWBrake, nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0, 1),
	}
}

// energyItems are the counters that cost milliseconds.
func energyItems() []item {
	return []item{
		{name: "nvmlDeviceGetTotalEnergyConsumption", needs: []function{fnEnergy}, columns: []int{table.CntEnergy}, lo: 0, hi: maxCounter,
			read: func(r *reader, h nvml.Device) nvml.Return {
				mj, ret := h.GetTotalEnergyConsumption()
				r.set(table.CntEnergy, int64(min(mj, math.MaxInt64)))
				return ret
			}},
		fieldItem("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", table.CntNVLinkTx, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLinks, kib),
		fieldItem("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", table.CntNVLinkRx, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLinks, kib),
		fieldItem("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", table.CntNVLinkReplay, nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, allLinks, 1),
		fieldItem("NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", table.CntNVLinkRecovery, nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, allLinks, 1),
		fieldItem("NVML_FI_DEV_NVLINK_ERROR_DL_CRC", table.CntNVLinkCRC, nvml.FI_DEV_NVLINK_ERROR_DL_CRC, allLinks, 1),
	}
}

// counters reads rows of gpu_counter of one GPU: the cheap ones or the dear
// ones. They are two sources, so that a dear call holds up no cheap one.
type counters struct {
	*reader
	name  string
	retry retry
	state [maxColumns]counterState
}

func newCounters(dev *device) *counters {
	return &counters{name: "counter " + dev.key, reader: newReader(dev, table.GPUCounter, kindCounter, counterInterval, counterItems())}
}

func newEnergy(dev *device) *counters {
	return &counters{name: "energy " + dev.key, reader: newReader(dev, table.GPUCounter, kindEnergy, energyInterval, energyItems())}
}

// Name is that of the kind and the ordinal.
func (s *counters) Name() string { return s.name }

// Finish reads once more at the end, so that totals cover the job: also what is
// not due, unless it failed.
func (s *counters) Finish(out rankagent.Out) error {
	s.final = true
	for _, c := range s.calls {
		if c.failures == 0 {
			c.next = 0
		}
	}
	return s.Read(out)
}

// Read appends a row where any call was due.
func (s *counters) Read(out rankagent.Out) error {
	if err := s.enter(out); err != nil {
		return err
	}
	defer s.leave()
	id := s.retry.ready(s.lane, &s.abs)
	if id == nil {
		return nil
	}
	begin := out.Now()
	made, ret := s.readAll(id.handle)
	begin, end := widen(begin, out.Now())
	switch {
	case s.abandoned():
		return nil
	case isLost(ret):
		s.retry.lost(s.lane, &s.abs, ret)
		return nil
	}
	s.abs.present(out, wholeRow)
	b := out.Batch(table.GPUCounter)
	n := b.Rows()
	row := b.Append()
	row.Read(int64(begin), int64(end))
	row.Int(table.CntGPU, int64(s.dev.index))
	row.String(table.CntUUID, id.uuid)
	s.check(end)
	s.put(row)
	if made == 0 {
		b.Truncate(n) // reasons are said, there is nothing else to say
	}
	return nil
}

// counterState is what a counter showed last.
type counterState struct {
	value int64
	at    clock.NodeTime
	known bool
	bad   int
}

// counterDetail is the detail of the event counter_reset.
type counterDetail struct {
	UUID   string `json:"gpu_uuid"`
	Column string `json:"column"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
}

// fastest is how much a counter can grow in a second.
func fastest(column int) float64 {
	switch column {
	case table.CntEnergy:
		return maxPowerMW
	case table.CntNVLinkTx, table.CntNVLinkRx:
		return 1e13
	case table.CntThrottlePower, table.CntThrottleSync, table.CntThrottleSWThermal, table.CntThrottleHWThermal, table.CntThrottleHWBrake:
		return 1.1e9
	}
	return 1e9
}

// check holds every counter against what it showed before. One that went back
// was reset: its value at that reading is null, and the event says from where
// it counts on. One that jumped farther than hardware can is not believed,
// until it has said so three times.
func (s *counters) check(now clock.NodeTime) {
	for i := range s.items {
		for _, col := range s.items[i].columns {
			v := &s.values[col]
			if v.ret != nvml.SUCCESS || v.value < s.items[i].lo || v.value > s.items[i].hi {
				continue
			}
			was := s.state[col].value
			var reset bool
			if v.why, reset = s.state[col].next(v.value, now, fastest(col)); reset {
				s.out.Event(now, EventCounterReset, s.dev.index, -1, counterDetail{s.dev.uuid(), s.table.Columns[col].Name, was, v.value})
			}
		}
	}
}

// next takes a counter's next value and returns why it is not to be believed,
// and whether the counter was reset; fastest is how much it can grow in a
// second.
func (st *counterState) next(v int64, now clock.NodeTime, fastest float64) (why string, reset bool) {
	was := *st
	// Some counters are refreshed ten times a second only.
	grown := fastest * (float64(now-was.at)/1e9 + 2)
	switch {
	case was.known && v < was.value:
		why, reset = fmt.Sprintf("it went back from %d to %d", was.value, v), true
	case was.known && float64(v-was.value) > grown && was.bad < 2:
		st.bad++
		return fmt.Sprintf("it jumped from %d to %d", was.value, v), false
	}
	*st = counterState{value: v, at: now, known: true}
	return why, reset
}

// marshal returns a detail as JSON, empty where it has none.
func marshal(detail any) string {
	b, err := json.Marshal(detail)
	if err != nil || detail == nil {
		return ""
	}
	return string(b)
}
