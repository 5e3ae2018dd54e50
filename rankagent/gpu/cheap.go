//go:build cgo && linux

package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// What cannot be true of any GPU. The limits lie far beyond the hardware there
// is and below every sentinel of NVML's.
const (
	maxMemory  = 1 << 50
	maxPowerMW = 10_000_000
	maxMHz     = 20_000
	minTemp    = -50
	maxTemp    = 200
	maxReasons = math.MaxUint32 // of 64 bits the driver uses the lowest dozen
	maxPState  = 15             // 32 is NVML's "unknown"
)

// retryLost is the time between attempts to find a lost GPU again: what a call
// costs on a GPU that is gone, nobody knows.
const retryLost = clock.NodeTime(time.Second)

// reading is one value of the cheap set.
type reading struct {
	ret   nvml.Return
	value int64
}

// The columns of the gpu table that readings fill.
const (
	firstReading = table.GPUUtil
	readings     = table.GPUPowerNow + 1
)

// cheap reads the gpu table of one GPU. It is also the one that says when the
// GPU is lost and back.
type cheap struct {
	dev     *device
	abs     absences
	values  [readings]reading
	fields  [2]nvml.FieldValue
	lost    bool
	retryAt clock.NodeTime
}

func newCheap(dev *device) *cheap {
	return &cheap{dev: dev, abs: absences{table: table.GPU, key: dev.key}}
}

// Name returns "gpu" and the ordinal.
func (s *cheap) Name() string { return "gpu " + s.dev.key }

// Interval is the agent's base interval.
func (s *cheap) Interval() time.Duration { return 0 }

// Close has nothing to free.
func (s *cheap) Close() error { return nil }

// Read appends one row, unless the GPU is lost.
func (s *cheap) Read(out rankagent.Out) error {
	if !s.dev.driver.gate.enter() {
		return errClosed
	}
	defer s.dev.driver.gate.leave()
	if s.lost || s.dev.id.Load() == nil {
		if !s.find(out) {
			return nil
		}
	}
	id := s.dev.id.Load()
	begin := out.Now()
	ret := s.read(id.handle)
	end := out.Now()
	if isLost(ret) {
		s.lose(out, ret)
		return nil
	}
	s.found(out)
	row := out.Batch(table.GPU).Append()
	row.Read(int64(begin), int64(end))
	row.Int(table.GPUIndex, int64(s.dev.index))
	row.String(table.GPUUUID, id.uuid)
	for c := firstReading; c < readings; c++ {
		s.put(out, row, c)
	}
	return nil
}

// read fills values. It stops at the first call that says the GPU is lost and
// returns what it said.
func (s *cheap) read(h nvml.Device) nvml.Return {
	has, v := s.dev.driver.has, &s.values
	for i := range v {
		v[i] = reading{ret: nvml.ERROR_FUNCTION_NOT_FOUND}
	}
	if has[fnUtilization] {
		u, ret := h.GetUtilizationRates()
		v[table.GPUUtil] = reading{ret, int64(u.Gpu)}
		v[table.GPUUtilMem] = reading{ret, int64(u.Memory)}
		if isLost(ret) {
			return ret
		}
	}
	if has[fnMemory] {
		m, ret := h.GetMemoryInfo_v2()
		v[table.GPUMemUsed] = reading{ret, int64(min(m.Used, math.MaxInt64))}
		if isLost(ret) {
			return ret
		}
	}
	if has[fnTemperature] {
		t, ret := h.GetTemperature(nvml.TEMPERATURE_GPU)
		v[table.GPUTemp] = reading{ret, int64(int32(t))}
		if isLost(ret) {
			return ret
		}
	}
	if has[fnClock] {
		mhz, ret := h.GetClockInfo(nvml.CLOCK_SM)
		v[table.GPUClockSM] = reading{ret, int64(mhz)}
		if isLost(ret) {
			return ret
		}
		mhz, ret = h.GetClockInfo(nvml.CLOCK_MEM)
		v[table.GPUClockMem] = reading{ret, int64(mhz)}
		if isLost(ret) {
			return ret
		}
	}
	if reasons, ret := eventReasons(has, h); ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		v[table.GPUEventReasons] = reading{ret, int64(min(reasons, math.MaxInt64))}
		if isLost(ret) {
			return ret
		}
	}
	if has[fnPState] {
		p, ret := h.GetPerformanceState()
		v[table.GPUPState] = reading{ret, int64(p)}
		if isLost(ret) {
			return ret
		}
	}
	if has[fnPower] {
		mw, ret := h.GetPowerUsage()
		v[table.GPUPowerAvg] = reading{ret, int64(mw)}
		if isLost(ret) {
			return ret
		}
	}
	if has[fnFields] {
		return s.readFields(h)
	}
	return nvml.SUCCESS
}

// eventReasons asks by the name that the driver knows: it changed with 535.
func eventReasons(has *exports, h nvml.Device) (uint64, nvml.Return) {
	switch {
	case has[fnEventReasons]:
		return h.GetCurrentClocksEventReasons()
	case has[fnThrottleReasons]:
		return h.GetCurrentClocksThrottleReasons()
	}
	return 0, nvml.ERROR_FUNCTION_NOT_FOUND
}

// readFields reads the two field values whose driver calls cost as little as
// the rest, both at once.
func (s *cheap) readFields(h nvml.Device) nvml.Return {
	s.fields[0] = nvml.FieldValue{FieldId: nvml.FI_DEV_MEMORY_TEMP}
	s.fields[1] = nvml.FieldValue{FieldId: nvml.FI_DEV_POWER_INSTANT}
	ret := h.GetFieldValues(s.fields[:])
	for i, c := range [2]int{table.GPUTempMem, table.GPUPowerNow} {
		f := &s.fields[i]
		r := &s.values[c]
		r.ret = ret
		if ret == nvml.SUCCESS {
			r.ret = nvml.Return(f.NvmlReturn)
		}
		if r.ret != nvml.SUCCESS {
			if isLost(r.ret) {
				return r.ret
			}
			continue
		}
		v, ok := fieldInt(f)
		r.value = v
		if !ok {
			r.value = math.MinInt64 // no limit lets it pass
		}
	}
	return ret
}

// fieldInt decodes a field value, which the driver may deliver in any type.
func fieldInt(f *nvml.FieldValue) (int64, bool) {
	raw := binary.NativeEndian.Uint64(f.Value[:])
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		d := math.Float64frombits(raw)
		if math.IsNaN(d) || math.Abs(d) > 1<<62 {
			return 0, false
		}
		return int64(math.Round(d)), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		// A negative temperature in an unsigned field is still negative.
		v := binary.NativeEndian.Uint32(f.Value[:])
		if f.FieldId == nvml.FI_DEV_MEMORY_TEMP {
			return int64(int32(v)), true
		}
		return int64(v), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return int64(min(raw, math.MaxInt64)), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return int64(raw), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return int64(int32(binary.NativeEndian.Uint32(f.Value[:]))), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return int64(binary.NativeEndian.Uint16(f.Value[:])), true
	}
	return 0, false
}

// put sets one column of the row, or says why it stays null.
func (s *cheap) put(out rankagent.Out, row table.Row, column int) {
	r := &s.values[column]
	if r.ret != nvml.SUCCESS {
		s.abs.absent(out, column, reasonOf(r.ret), func() string { return text(r.ret) })
		return
	}
	lo, hi := s.limits(column)
	if r.value < lo || r.value > hi {
		s.abs.absent(out, column, rankagent.InvalidValue, func() string {
			return fmt.Sprintf("the driver says %d", r.value)
		})
		return
	}
	row.Int(column, r.value)
	s.abs.present(out, column)
}

// limits returns the range in which a column's value can be true.
func (s *cheap) limits(column int) (lo, hi int64) {
	switch column {
	case table.GPUUtil, table.GPUUtilMem:
		return 0, 100
	case table.GPUMemUsed:
		if s.dev.memory > 0 {
			return 0, s.dev.memory
		}
		return 0, maxMemory
	case table.GPUTemp, table.GPUTempMem:
		return minTemp, maxTemp
	case table.GPUClockSM, table.GPUClockMem:
		return 0, maxMHz
	case table.GPUEventReasons:
		return 0, maxReasons
	case table.GPUPState:
		return 0, maxPState
	}
	return 0, maxPowerMW
}

// lostDetail is the detail of the events gpu_lost and gpu_back.
type lostDetail struct {
	UUID  string `json:"gpu_uuid,omitempty"`
	Error string `json:"error,omitempty"`
}

// lose says that the whole GPU is missing, and records it once.
func (s *cheap) lose(out rankagent.Out, ret nvml.Return) {
	now := out.Now()
	if !s.lost && s.dev.id.Load() != nil {
		s.lost = true
		out.Event(now, EventLost, s.dev.index, -1, lostDetail{s.dev.id.Load().uuid, text(ret)})
	}
	s.retryAt = now + retryLost
	s.abs.absent(out, wholeRow, reasonOf(ret), func() string { return text(ret) })
}

// find looks for a GPU that is lost or never said who it is, and returns
// whether it is worth reading.
func (s *cheap) find(out rankagent.Out) bool {
	if out.Now() < s.retryAt {
		s.abs.again(out, wholeRow)
		return false
	}
	if ret := s.dev.identify(); ret != nvml.SUCCESS {
		s.lose(out, ret)
		return false
	}
	return true
}

// found says that the GPU answers, and records it where it was lost.
func (s *cheap) found(out rankagent.Out) {
	if s.lost {
		s.lost = false
		out.Event(out.Now(), EventBack, s.dev.index, -1, lostDetail{UUID: s.dev.id.Load().uuid})
	}
	s.abs.present(out, wholeRow)
}
