//go:build cgo && linux

package gpu

import (
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
	maxBusBits = 1 << 16
	minTemp    = -50
	maxTemp    = 200
	maxReasons = math.MaxUint32 // of 64 bits the driver uses the lowest dozen
	maxPState  = 15             // 32 is NVML's "unknown"
)

// retryLost is the time between attempts to find a lost GPU again: what a call
// costs on a GPU that is gone, nobody knows.
const retryLost = clock.NodeTime(time.Second)

const callMemory = "nvmlDeviceGetMemoryInfo_v2"

// cheapItems are the calls of the gpu table.
func cheapItems(dev *device) []item {
	memory := dev.memory
	if memory <= 0 {
		memory = maxMemory
	}
	return []item{
		{name: "nvmlDeviceGetUtilizationRates", needs: []function{fnUtilization}, columns: []int{table.GPUUtil, table.GPUUtilMem}, lo: 0, hi: 100,
			read: func(r *reader, h nvml.Device) nvml.Return {
				u, ret := h.GetUtilizationRates()
				r.set(table.GPUUtil, int64(u.Gpu))
				r.set(table.GPUUtilMem, int64(u.Memory))
				return ret
			}},
		{name: callMemory, needs: []function{fnMemory}, columns: []int{table.GPUMemUsed}, lo: 0, hi: memory,
			read: func(r *reader, h nvml.Device) nvml.Return {
				m, ret := h.GetMemoryInfo_v2()
				r.set(table.GPUMemUsed, int64(min(m.Used, math.MaxInt64)))
				return ret
			}},
		{name: "nvmlDeviceGetTemperature", needs: []function{fnTemperature}, columns: []int{table.GPUTemp}, lo: minTemp, hi: maxTemp,
			read: func(r *reader, h nvml.Device) nvml.Return {
				t, ret := h.GetTemperature(nvml.TEMPERATURE_GPU)
				r.set(table.GPUTemp, int64(int32(t)))
				return ret
			}},
		{name: "nvmlDeviceGetClockInfo(SM)", needs: []function{fnClock}, columns: []int{table.GPUClockSM}, lo: 0, hi: maxMHz,
			read: func(r *reader, h nvml.Device) nvml.Return {
				mhz, ret := h.GetClockInfo(nvml.CLOCK_SM)
				r.set(table.GPUClockSM, int64(mhz))
				return ret
			}},
		{name: "nvmlDeviceGetClockInfo(MEM)", needs: []function{fnClock}, columns: []int{table.GPUClockMem}, lo: 0, hi: maxMHz,
			read: func(r *reader, h nvml.Device) nvml.Return {
				mhz, ret := h.GetClockInfo(nvml.CLOCK_MEM)
				r.set(table.GPUClockMem, int64(mhz))
				return ret
			}},
		{name: "nvmlDeviceGetCurrentClocksEventReasons", needs: []function{fnEventReasons, fnThrottleReasons}, columns: []int{table.GPUEventReasons}, lo: 0, hi: maxReasons,
			read: func(r *reader, h nvml.Device) nvml.Return {
				reasons, ret := eventReasons(r.dev.driver.has, h)
				r.set(table.GPUEventReasons, int64(min(reasons, math.MaxInt64)))
				return ret
			}},
		{name: "nvmlDeviceGetPerformanceState", needs: []function{fnPState}, columns: []int{table.GPUPState}, lo: 0, hi: maxPState,
			read: func(r *reader, h nvml.Device) nvml.Return {
				p, ret := h.GetPerformanceState()
				r.set(table.GPUPState, int64(p))
				return ret
			}},
		{name: "nvmlDeviceGetPowerUsage", needs: []function{fnPower}, columns: []int{table.GPUPowerAvg}, lo: 0, hi: maxPowerMW,
			read: func(r *reader, h nvml.Device) nvml.Return {
				mw, ret := h.GetPowerUsage()
				r.set(table.GPUPowerAvg, int64(mw))
				return ret
			}},
		{name: "NVML_FI_DEV_MEMORY_TEMP", needs: []function{fnFields}, columns: []int{table.GPUTempMem}, lo: minTemp, hi: maxTemp,
			read: func(r *reader, h nvml.Device) nvml.Return {
				return r.readField(h, table.GPUTempMem, nvml.FI_DEV_MEMORY_TEMP, 0, 1)
			}},
		{name: "NVML_FI_DEV_POWER_INSTANT", needs: []function{fnFields}, columns: []int{table.GPUPowerNow}, lo: 0, hi: maxPowerMW,
			read: func(r *reader, h nvml.Device) nvml.Return {
				return r.readField(h, table.GPUPowerNow, nvml.FI_DEV_POWER_INSTANT, 0, 1)
			}},
	}
}

// eventReasons asks by the name that the driver knows: it changed with 535.
func eventReasons(has *exports, h nvml.Device) (uint64, nvml.Return) {
	if has[fnEventReasons] {
		return h.GetCurrentClocksEventReasons()
	}
	return h.GetCurrentClocksThrottleReasons()
}

// cheap reads the gpu table of one GPU. It is also the one that says when the
// GPU is lost and back, when it is throttled and when its clocks drop.
type cheap struct {
	*reader
	lost    bool
	retryAt clock.NodeTime
	changes changes
}

func newCheap(dev *device) *cheap {
	return &cheap{reader: newReader(dev, table.GPU, kindCheap, 0, cheapItems(dev))}
}

// Name returns "gpu" and the ordinal.
func (s *cheap) Name() string { return "gpu " + s.dev.key }

// Read appends one row, unless the GPU is lost.
func (s *cheap) Read(out rankagent.Out) error {
	s.sayThinned(out)
	if err := s.enter(out); err != nil {
		return err
	}
	defer s.leave()
	if s.lost || s.dev.id.Load() == nil {
		if !s.find(out) {
			return nil
		}
	}
	id := s.dev.id.Load()
	begin := out.Now()
	_, ret := s.readAll(id.handle)
	begin, end := widen(begin, out.Now())
	if s.abandoned() {
		return nil
	}
	if isLost(ret) {
		s.lose(out, ret)
		return nil
	}
	s.found(out)
	row := out.Batch(table.GPU).Append()
	row.Read(int64(begin), int64(end))
	row.Int(table.GPUIndex, int64(s.dev.index))
	row.String(table.GPUUUID, id.uuid)
	s.put(row)
	if m := &s.values[table.GPUMemUsed]; m.ret == nvml.SUCCESS {
		s.dev.memUsed.Store(m.value)
	}
	s.changes.see(out, s.dev, begin, end, s.value(table.GPUEventReasons), s.value(table.GPUClockSM))
	return nil
}

// value returns a column's value, -1 where it is not known.
func (s *cheap) value(col int) int64 {
	if v := &s.values[col]; v.ret == nvml.SUCCESS && v.value >= 0 && v.value <= maxReasons {
		return v.value
	}
	return -1
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
		out.Event(now, EventLost, s.dev.index, -1, lostDetail{s.dev.uuid(), text(ret)})
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
		out.Event(out.Now(), EventBack, s.dev.index, -1, lostDetail{UUID: s.dev.uuid()})
	}
	s.abs.present(out, wholeRow)
}
