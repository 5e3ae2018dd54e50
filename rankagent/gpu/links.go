//go:build cgo && linux

package gpu

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// linkCounters are the counters of one NVLink, in the order of the table's
// columns.
var linkCounters = [...]struct {
	column  int
	field   uint32
	unit    int64
	fastest float64 // growth in a second
}{
	{table.LinkTx, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, kib, 1e12},
	{table.LinkRx, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, kib, 1e12},
	{table.LinkReplay, nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, 1, 1e9},
	{table.LinkRecovery, nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, 1, 1e9},
	{table.LinkCRC, nvml.FI_DEV_NVLINK_ERROR_DL_CRC, 1, 1e9},
}

const callLinks = "nvmlDeviceGetFieldValues(each NVLink)"

// links reads the gpu_nvlink table of one GPU: one call for each active link,
// all links in one reading. It exists where it was asked for.
type links struct {
	*lane
	abs    absences
	call   *call
	retry  retry
	active []int
	known  bool
	values [len(linkCounters)]nvml.FieldValue
	state  map[int]*[len(linkCounters)]counterState
}

func newLinks(dev *device) *links {
	s := &links{
		lane:  newLane(dev, table.GPUNVLink, kindEnergy, energyInterval),
		abs:   absences{table: table.GPUNVLink, key: dev.key},
		call:  newCall(callLinks, energyInterval, dev.costs[callLinks]),
		state: map[int]*[len(linkCounters)]counterState{},
	}
	s.calls = []*call{s.call}
	return s
}

// Name returns "nvlink" and the ordinal.
func (s *links) Name() string { return "nvlink " + s.dev.key }

// MayBeSilent marks that a GPU may have no NVLink.
func (*links) MayBeSilent() {}

// Finish reads once more at the end, so that totals cover the job.
func (s *links) Finish(out rankagent.Out) error {
	s.final = true
	if s.call.failures == 0 {
		s.call.next = 0
	}
	return s.Read(out)
}

// Read appends a row for each active link.
func (s *links) Read(out rankagent.Out) error {
	s.sayThinned(out)
	if err := s.enter(out); err != nil {
		return err
	}
	defer s.leave()
	id := s.retry.ready(s.lane, &s.abs)
	if id == nil {
		return nil
	}
	if !s.dev.driver.has[fnFields] {
		s.abs.absent(out, wholeRow, rankagent.NotSupported, func() string { return text(nvml.ERROR_FUNCTION_NOT_FOUND) })
		return nil
	}
	if !s.known {
		s.active, s.known = s.dev.activeLinks(id), true
	}
	if len(s.active) == 0 {
		s.abs.absent(out, wholeRow, rankagent.NotFound, func() string { return "no NVLink is active" })
		return nil
	}
	if !s.begin(s.call) {
		s.abs.again(out, wholeRow)
		return nil
	}
	ret := nvml.SUCCESS
	rows := out.Batch(table.GPUNVLink)
	from := rows.Rows()
	for _, link := range s.active {
		if ret = s.link(out, id, link); ret != nvml.SUCCESS {
			break
		}
	}
	s.end(s.call, ret)
	switch {
	case s.abandoned():
		rows.Truncate(from)
	case isLost(ret):
		s.retry.lost(s.lane, &s.abs, ret)
	case ret != nvml.SUCCESS:
		s.abs.absent(out, wholeRow, reasonOf(ret), func() string { return text(ret) })
	default:
		s.abs.present(out, wholeRow)
	}
	return nil
}

// ask makes the call for one link.
func (s *links) ask(h nvml.Device, link int) nvml.Return {
	for i, c := range linkCounters {
		s.values[i] = nvml.FieldValue{FieldId: c.field, ScopeId: uint32(link)}
	}
	return h.GetFieldValues(s.values[:])
}

// link appends the row of one link.
func (s *links) link(out rankagent.Out, id *identity, link int) nvml.Return {
	begin := out.Now()
	ret := s.ask(id.handle, link)
	begin, end := widen(begin, out.Now())
	if ret != nvml.SUCCESS {
		return ret
	}
	row := out.Batch(table.GPUNVLink).Append()
	row.Read(int64(begin), int64(end))
	row.Int(table.LinkGPU, int64(s.dev.index))
	row.String(table.LinkUUID, id.uuid)
	row.Int(table.LinkLink, int64(link))
	st := s.state[link]
	if st == nil {
		st = new([len(linkCounters)]counterState)
		s.state[link] = st
	}
	for i := range linkCounters {
		s.put(out, row, link, i, &st[i], end)
	}
	return nvml.SUCCESS
}

// put sets one counter of a link, or says why it stays null.
func (s *links) put(out rankagent.Out, row table.Row, link, i int, st *counterState, now clock.NodeTime) {
	c, f := &linkCounters[i], &s.values[i]
	if ret := nvml.Return(f.NvmlReturn); ret != nvml.SUCCESS {
		s.abs.absent(out, c.column, reasonOf(ret), func() string { return text(ret) })
		return
	}
	v, ok := fieldInt(f)
	why := ""
	if !ok || v < 0 || v > math.MaxInt64/c.unit/2 {
		why = fmt.Sprintf("the driver says %d", v)
	} else {
		v *= c.unit
		was := st.value
		var reset bool
		if why, reset = st.next(v, now, c.fastest); reset {
			out.Event(now, EventCounterReset, s.dev.index, -1, linkReset{
				counterDetail{s.dev.uuid(), s.table.Columns[c.column].Name, was, v}, link,
			})
		}
	}
	if why != "" {
		s.abs.absent(out, c.column, rankagent.InvalidValue, func() string { return fmt.Sprintf("link %d: %s", link, why) })
		return
	}
	row.Int(c.column, v)
	s.abs.present(out, c.column)
}

// linkReset is the detail of gpu_counter_reset for one link's counter.
type linkReset struct {
	counterDetail
	Link int `json:"link"`
}
