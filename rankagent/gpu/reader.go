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

// notDue is no return of NVML's: the call was not made, because its time has
// not come, it failed lately or it costs too much.
const notDue = nvml.Return(-1)

// invalid is a value that no limit lets pass.
const invalid = math.MinInt64

// reading is one value and how the call for it ended.
type reading struct {
	ret   nvml.Return
	value int64
	why   string // not empty where the value is not to be believed
}

// item is one driver call and the columns that it fills.
type item struct {
	name string
	// needs are functions of which the driver must have one.
	needs   []function
	columns []int
	// read makes the call and fills r.values.
	read func(r *reader, h nvml.Device) nvml.Return
	// limits say in which range a value can be true.
	lo, hi int64
}

// reader makes the calls of one source of one GPU, each at its own cadence, and
// puts what they give into a row.
type reader struct {
	*lane
	abs    absences
	items  []item
	values [maxColumns]reading
	field  [1]nvml.FieldValue
}

func newReader(dev *device, t *table.Table, k kind, interval time.Duration, items []item) *reader {
	r := &reader{
		lane: newLane(dev, t, k, interval), items: items,
		abs: absences{table: t, key: dev.key},
	}
	tick := interval
	if tick == 0 {
		tick = dev.driver.interval
	}
	for _, it := range items {
		r.calls = append(r.calls, newCall(it.name, tick, dev.costs[it.name]))
	}
	return r
}

// has says whether the driver has what an item needs.
func (it *item) has(has *exports) bool {
	for _, f := range it.needs {
		if has[f] {
			return true
		}
	}
	return false
}

// readAll makes the calls that are due. It stops at the first that says the GPU
// is lost and returns what it said; made is the number of calls that succeeded.
func (r *reader) readAll(h nvml.Device) (made int, lost nvml.Return) {
	for i := range r.items {
		it, c := &r.items[i], r.calls[i]
		if r.kindOf(c) == kindDear {
			c.stretch(time.Duration(float64(r.interval) * r.dev.shared.budget.factor(kindDear)))
		}
		ret := notDue
		switch {
		case !it.has(r.dev.driver.has):
			ret = nvml.ERROR_FUNCTION_NOT_FOUND
		case r.begin(c):
			ret = it.read(r, h)
			r.end(c, ret)
		}
		if isLost(ret) {
			return made, ret
		}
		if ret != nvml.SUCCESS {
			for _, col := range it.columns {
				r.values[col] = reading{ret: ret}
			}
			continue
		}
		made++
	}
	return made, nvml.SUCCESS
}

// put sets the columns of the row, or says why they stay null.
func (r *reader) put(row table.Row) {
	for i := range r.items {
		it := &r.items[i]
		for _, col := range it.columns {
			r.putColumn(row, it, r.calls[i], col)
		}
	}
}

func (r *reader) putColumn(row table.Row, it *item, c *call, col int) {
	v := &r.values[col]
	switch {
	case v.ret == notDue:
		if c.failures == 0 && c.every > c.tick {
			r.abs.absent(r.out, col, rankagent.NotSampled, func() string { return describeEvery(c.cadence()) })
			return
		}
		r.abs.again(r.out, col)
	case v.ret != nvml.SUCCESS:
		r.abs.absent(r.out, col, r.reasonOf(v.ret), func() string { return text(v.ret) })
	case v.why != "":
		r.abs.absent(r.out, col, rankagent.InvalidValue, func() string { return v.why })
	case v.value < it.lo || v.value > it.hi:
		r.abs.absent(r.out, col, rankagent.InvalidValue, func() string { return fmt.Sprintf("the driver says %d", v.value) })
	default:
		row.Int(col, v.value)
		if c.every <= c.tick {
			r.abs.present(r.out, col)
		}
	}
}

// reasonOf is as the function says, but that a MIG instance's handle is an
// invalid argument to calls about the whole GPU.
func (r *reader) reasonOf(ret nvml.Return) rankagent.Reason {
	if ret == nvml.ERROR_INVALID_ARGUMENT && r.dev.parent != nil {
		return rankagent.NotSupported
	}
	return reasonOf(ret)
}

// set is what items fill a column with.
func (r *reader) set(col int, v int64) { r.values[col] = reading{value: v} }

// readField reads one field value into a column, times unit. Fields are asked
// for one by one: a batch costs the sum, and this way each has its own price.
func (r *reader) readField(h nvml.Device, col int, id, scope uint32, unit int64) nvml.Return {
	r.field[0] = nvml.FieldValue{FieldId: id, ScopeId: scope}
	ret := h.GetFieldValues(r.field[:])
	if ret == nvml.SUCCESS {
		ret = nvml.Return(r.field[0].NvmlReturn)
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	v, ok := fieldInt(&r.field[0])
	if !ok || v > math.MaxInt64/unit {
		v, unit = invalid, 1
	}
	r.set(col, v*unit)
	return nvml.SUCCESS
}

// fieldInt decodes a field value, which the driver may deliver in any type.
func fieldInt(f *nvml.FieldValue) (int64, bool) {
	// A negative temperature in an unsigned field is still negative.
	if f.FieldId == nvml.FI_DEV_MEMORY_TEMP && nvml.ValueType(f.ValueType) == nvml.VALUE_TYPE_UNSIGNED_INT {
		return int64(int32(binary.NativeEndian.Uint32(f.Value[:]))), true
	}
	return valueInt(nvml.ValueType(f.ValueType), f.Value)
}

// valueInt decodes a value of a type that the driver names.
func valueInt(t nvml.ValueType, value [8]byte) (int64, bool) {
	raw := binary.NativeEndian.Uint64(value[:])
	switch t {
	case nvml.VALUE_TYPE_DOUBLE:
		d := math.Float64frombits(raw)
		if math.IsNaN(d) || math.Abs(d) > 1<<62 {
			return 0, false
		}
		return int64(math.Round(d)), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return int64(binary.NativeEndian.Uint32(value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return int64(min(raw, math.MaxInt64)), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return int64(raw), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return int64(int32(binary.NativeEndian.Uint32(value[:]))), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return int64(binary.NativeEndian.Uint16(value[:])), true
	}
	return 0, false
}

// retry is what sources that do not look for lost GPUs themselves share: they
// wait a second and use the handle that the cheap set has found by then.
type retry struct {
	at clock.NodeTime
}

// ready returns the handle to use; nil while there is none.
func (t *retry) ready(r *lane, abs *absences) *identity {
	if r.out.Now() < t.at {
		abs.again(r.out, wholeRow)
		return nil
	}
	id := r.dev.id.Load()
	if id == nil {
		t.lost(r, abs, nvml.ERROR_GPU_IS_LOST)
	}
	return id
}

// lost says that the whole GPU is missing.
func (t *retry) lost(r *lane, abs *absences, ret nvml.Return) {
	t.at = r.out.Now() + retryLost
	abs.absent(r.out, wholeRow, reasonOf(ret), func() string { return text(ret) })
}
