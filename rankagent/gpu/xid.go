//go:build cgo && linux

package gpu

import (
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// driverEvents are the events that the driver is asked to tell, with the kinds
// that they are recorded as. Clock and power state changes are not among them:
// the cheap set sees them.
var driverEvents = [...]struct {
	bit  uint64
	kind string
}{
	{nvml.EventTypeXidCriticalError, EventXid},
	{nvml.EventTypeSingleBitEccError, "ecc_corrected"},
	{nvml.EventTypeDoubleBitEccError, "ecc_uncorrected"},
	{nvml.EventTypeSingleBitEccErrorStorm, "ecc_corrected_storm"},
	{nvml.EventTypeDramRetirementEvent, "dram_retirement"},
	{nvml.EventTypeDramRetirementFailure, "dram_retirement_failure"},
	{nvml.EventTypeNonFatalPoisonError, "poison_nonfatal"},
	{nvml.EventTypeFatalPoisonError, "poison_fatal"},
	{nvml.EventTypeGpuUnavailableError, "gpu_unavailable"},
	{nvml.EventTypeGpuRecoveryAction, "gpu_recovery_action"},
}

// maxAtOnce is how many events one reading takes: more will be there at the
// next.
const maxAtOnce = 64

// events asks the driver for what has happened since the last tick. It never
// waits: a thread that waits in the driver would hold up the end of the job.
type events struct {
	driver *Driver
	set    nvml.EventSet
	// registered is the identity under which each GPU was last registered.
	registered []*identity
	retryAt    []clock.NodeTime
	last       clock.NodeTime
	failed     nvml.Return
}

func newEvents(d *Driver) *events {
	return &events{driver: d, registered: make([]*identity, len(d.devices)), retryAt: make([]clock.NodeTime, len(d.devices))}
}

// Name appears in the sampler table.
func (*events) Name() string { return "gpu events" }

// Interval is the agent's base interval.
func (*events) Interval() time.Duration { return 0 }

// Close frees the set, unless NVML is gone already.
func (s *events) Close() error {
	if s.driver.gate.enter() {
		defer s.driver.gate.leave()
		if s.set != nil {
			_ = s.set.Free()
			s.set = nil
		}
	}
	return nil
}

// MayBeSilent marks a source without rows of its own.
func (*events) MayBeSilent() {}

// Read registers GPUs that are new or back and records what has happened.
func (s *events) Read(out rankagent.Out) error {
	if !s.driver.gate.enter() {
		return errClosed
	}
	defer s.driver.gate.leave()
	has := s.driver.has
	if !has[fnEventSet] || !has[fnEventRegister] || !has[fnEventWait] || !has[fnEventTypes] {
		out.Absent(table.Event, "", "", rankagent.NotSupported, "the driver tells no events")
		return nil
	}
	if s.failed != nvml.SUCCESS {
		out.Absent(table.Event, "", "", reasonOf(s.failed), text(s.failed))
		return nil
	}
	if s.set == nil {
		set, ret := s.driver.lib.EventSetCreate()
		if ret != nvml.SUCCESS {
			s.failed = ret
			return nil
		}
		s.set = set
	}
	s.register(out)
	if s.last == 0 {
		s.last = out.Now()
	}
	for range maxAtOnce {
		data, ret := s.set.Wait(0)
		if ret != nvml.SUCCESS {
			if ret != nvml.ERROR_TIMEOUT && !isLost(ret) {
				return fmt.Errorf("asking the driver for events: %s", text(ret))
			}
			break
		}
		s.record(out, data)
	}
	s.last = out.Now()
	return nil
}

// register asks for the events of each selected GPU, anew where it came back
// under another identity.
func (s *events) register(out rankagent.Out) {
	now := out.Now()
	for i, dev := range s.driver.devices {
		id := dev.id.Load()
		if !s.driver.selected[i] || dev.parent != nil || id == nil || id == s.registered[i] ||
			now < s.retryAt[i] || dev.shared.fenced.Load() {
			continue
		}
		types, ret := id.handle.GetSupportedEventTypes()
		if ret == nvml.SUCCESS {
			var want uint64
			for _, e := range driverEvents {
				want |= types & e.bit
			}
			if want == 0 {
				ret = nvml.ERROR_NOT_SUPPORTED
			} else {
				ret = id.handle.RegisterEvents(want, s.set)
			}
		}
		if ret != nvml.SUCCESS {
			s.retryAt[i] = now + retryUnsupported
			out.Absent(table.Event, "", dev.key, reasonOf(ret), text(ret))
			continue
		}
		s.registered[i] = id
		out.Present(table.Event, "", dev.key)
	}
}

// xidDetail is the detail of what the driver tells.
type xidDetail struct {
	UUID     string `json:"gpu_uuid,omitempty"`
	Xid      uint64 `json:"xid,omitempty"`
	Instance *int   `json:"gpu_instance,omitempty"`
}

func (s *events) record(out rankagent.Out, data nvml.EventData) {
	now := out.Now()
	detail := xidDetail{}
	row := out.Batch(table.Event).Append()
	row.Read(int64(s.last), int64(now)) // since the tick before
	for _, dev := range s.driver.devices {
		if id := dev.id.Load(); id != nil && id.handle == data.Device && dev.parent == nil {
			row.Int(table.EventGPU, int64(dev.index))
			detail.UUID = id.uuid
		}
	}
	kind := fmt.Sprintf("driver_event_%d", data.EventType)
	for _, e := range driverEvents {
		if e.bit == data.EventType {
			kind = e.kind
		}
	}
	if kind == EventXid {
		detail.Xid = data.EventData
	}
	if data.GpuInstanceId != ^uint32(0) {
		gi := int(data.GpuInstanceId)
		detail.Instance = &gi
	}
	row.String(table.EventKind, kind)
	row.String(table.EventDetail, marshal(detail))
}
