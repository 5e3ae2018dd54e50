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

const (
	// processInterval is how soon a change is noticed, processEvery how often
	// the list is read without one.
	processInterval = time.Second
	processEvery    = clock.NodeTime(10 * time.Second)
	// memoryChange of a GPU's memory in use is taken for a process that came
	// or went: a CUDA context alone takes several hundred MiB.
	memoryChange = 64 << 20
	maxPID       = 1 << 22 // PID_MAX_LIMIT
)

const (
	callProcesses   = "nvmlDeviceGetComputeRunningProcesses"
	callProcessUtil = "nvmlDeviceGetProcessUtilization"
)

// processes reads which processes hold one GPU.
type processes struct {
	*lane
	abs        absences
	list, util *call
	retry      retry
	fullAt     clock.NodeTime
	memory     int64  // in use when the list was read last
	utilSince  uint64 // the newest sample of process utilisation seen
	known      map[int]holder
	read       bool
}

// holder is what is known of a process that holds the GPU.
type holder struct {
	rank int // -1 none
	seen bool
}

func newProcesses(dev *device) *processes {
	s := &processes{
		lane: newLane(dev, table.GPUProcess, kindProcess, processInterval),
		abs:  absences{table: table.GPUProcess, key: dev.key},
		list: newCall(callProcesses, processInterval, dev.costs[callProcesses]),
		util: newCall(callProcessUtil, processInterval, dev.costs[callProcessUtil]),
		// The first read notes who holds the GPU already.
		known: map[int]holder{},
	}
	s.calls = []*call{s.list, s.util}
	return s
}

// Name returns "processes" and the ordinal.
func (s *processes) Name() string { return "processes " + s.dev.key }

// MayBeSilent marks that a GPU may be held by nobody.
func (*processes) MayBeSilent() {}

// Read lists the processes where it is time or the memory in use has changed.
func (s *processes) Read(out rankagent.Out) error {
	if err := s.enter(out); err != nil {
		return err
	}
	defer s.leave()
	now := out.Now()
	memory := s.dev.memUsed.Load()
	change := memory - s.memory
	if now < s.fullAt && change < memoryChange && change > -memoryChange {
		return nil
	}
	id := s.retry.ready(s.lane, &s.abs)
	if id == nil {
		return nil
	}
	if !s.dev.driver.has[fnProcesses] {
		s.abs.absent(out, wholeRow, rankagent.NotSupported, func() string { return text(nvml.ERROR_FUNCTION_NOT_FOUND) })
		return nil
	}
	if !s.begin(s.list) {
		s.abs.again(out, wholeRow)
		return nil
	}
	begin := out.Now()
	list, ret := id.handle.GetComputeRunningProcesses()
	begin, end := widen(begin, out.Now())
	s.end(s.list, ret)
	switch {
	case s.abandoned():
		return nil
	case isLost(ret):
		s.retry.lost(s.lane, &s.abs, ret)
		return nil
	case ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND:
		s.abs.absent(out, wholeRow, reasonOf(ret), func() string { return text(ret) })
		return nil
	}
	s.fullAt, s.memory = now+processEvery-clock.NodeTime(processInterval)/2, memory
	s.abs.present(out, wholeRow)
	use := s.utilisation(id.handle)
	for i := range list {
		s.holds(out, id, &list[i], use, begin, end)
	}
	s.gone(out, begin, end)
	s.read = true
	s.tell()
	return nil
}

// tell says who holds the GPU to whom it concerns.
func (s *processes) tell() {
	if s.dev.driver.holders == nil {
		return
	}
	pids := make([]int, 0, len(s.known))
	for pid := range s.known {
		pids = append(pids, pid)
	}
	s.dev.driver.holders(s.dev.index, pids)
}

// holds appends the row of one process.
func (s *processes) holds(out rankagent.Out, id *identity, p *nvml.ProcessInfo, use map[uint32]int64, begin, end clock.NodeTime) {
	if p.Pid == 0 || p.Pid > maxPID {
		s.abs.absent(out, table.ProcPID, rankagent.InvalidValue, func() string { return fmt.Sprintf("the driver lists process %d", p.Pid) })
		return
	}
	pid := int(p.Pid)
	h, known := s.known[pid]
	if !known {
		h.rank = -1
		if f := s.dev.driver.rankOf; f != nil {
			h.rank = f(pid)
		}
		s.event(out, EventProcessStart, pid, h.rank, begin, end)
	}
	h.seen = true
	s.known[pid] = h
	row := out.Batch(table.GPUProcess).Append()
	row.Read(int64(begin), int64(end))
	row.Int(table.ProcGPU, int64(s.dev.index))
	row.String(table.ProcUUID, id.uuid)
	row.Int(table.ProcPID, int64(pid))
	if h.rank >= 0 {
		row.Int(table.ProcRank, int64(h.rank))
	}
	limit := uint64(maxMemory)
	if s.dev.memory > 0 {
		limit = uint64(s.dev.memory)
	}
	switch {
	case p.UsedGpuMemory == ^uint64(0):
		s.abs.absent(out, table.ProcMemUsed, rankagent.NoPermission, func() string { return "the driver does not say what the process holds" })
	case p.UsedGpuMemory > limit:
		s.abs.absent(out, table.ProcMemUsed, rankagent.InvalidValue, func() string { return fmt.Sprintf("the driver says %d", p.UsedGpuMemory) })
	default:
		row.Int(table.ProcMemUsed, int64(p.UsedGpuMemory))
		s.abs.present(out, table.ProcMemUsed)
	}
	if pct, ok := use[p.Pid]; ok {
		row.Int(table.ProcSMUtil, pct)
	}
}

// gone says which processes are no longer listed.
func (s *processes) gone(out rankagent.Out, begin, end clock.NodeTime) {
	for pid, h := range s.known {
		if !h.seen {
			delete(s.known, pid)
			s.event(out, EventProcessEnd, pid, h.rank, begin, end)
			continue
		}
		h.seen = false
		s.known[pid] = h
	}
}

// processDetail is the detail of gpu_process_start and gpu_process_end.
type processDetail struct {
	UUID string `json:"gpu_uuid"`
	PID  int    `json:"pid"`
	// First says that the process was there when the list was first read.
	First bool `json:"at_first_read,omitempty"`
}

func (s *processes) event(out rankagent.Out, kind string, pid, rank int, begin, end clock.NodeTime) {
	row := out.Batch(table.Event).Append()
	row.Read(int64(begin), int64(end))
	row.String(table.EventKind, kind)
	row.Int(table.EventGPU, int64(s.dev.index))
	if rank >= 0 {
		row.Int(table.EventRank, int64(rank))
	}
	row.String(table.EventDetail, marshal(processDetail{s.dev.uuid(), pid, !s.read}))
}

// utilisation returns the SM use of each process since the list was read last,
// where that was asked for. A process without samples has none: it was idle or
// the driver did not look.
func (s *processes) utilisation(h nvml.Device) map[uint32]int64 {
	d := s.dev.driver
	if !d.processUtil {
		return nil
	}
	if !d.has[fnProcessUtil] {
		s.abs.absent(s.out, table.ProcSMUtil, rankagent.NotSupported, func() string { return text(nvml.ERROR_FUNCTION_NOT_FOUND) })
		return nil
	}
	if !s.begin(s.util) {
		s.abs.again(s.out, table.ProcSMUtil)
		return nil
	}
	samples, ret := h.GetProcessUtilization(s.utilSince)
	s.end(s.util, ret)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		s.abs.absent(s.out, table.ProcSMUtil, reasonOf(ret), func() string { return text(ret) })
		return nil
	}
	first := s.utilSince == 0 // then the samples are from before the run
	since := s.utilSince
	sum, n := map[uint32]int64{}, map[uint32]int64{}
	for _, u := range samples {
		if u.TimeStamp <= since {
			continue // not filled, or taken before
		}
		s.utilSince = max(s.utilSince, u.TimeStamp)
		if u.SmUtil <= 100 {
			sum[u.Pid] += int64(u.SmUtil)
			n[u.Pid]++
		}
	}
	s.abs.present(s.out, table.ProcSMUtil)
	if first {
		return nil
	}
	for pid := range sum {
		sum[pid] /= n[pid]
	}
	return sum
}
