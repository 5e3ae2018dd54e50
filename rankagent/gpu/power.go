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
	// powerInterval is well under the two seconds and more that the driver's
	// buffer of 120 samples holds.
	powerInterval = time.Second
	// A stretch between two samples is a gap from so many usual ones, and
	// from so long.
	gapPeriods = 4
	gapLeast   = 200_000 // us
	// stepLeast is from how far the wall clock is taken to have been set
	// rather than slewed between two reads.
	stepLeast = int64(50 * time.Millisecond)
	// futureMost is how far a stamp may lie after the read that delivered it.
	futureMost = 1_000_000 // us
)

// power reads the driver's buffer of power samples of one GPU.
type power struct {
	*lane
	abs   absences
	call  *call
	retry retry
	// last is the stamp of the last sample taken, in us of CLOCK_REALTIME;
	// offset is REALTIME less RAW at the last read, which was at lastRead.
	last, offset int64
	lastRead     clock.NodeTime
	started      bool
	period       int64 // us between samples, 0 unknown
}

func newPower(dev *device) *power {
	s := &power{
		lane: newLane(dev, table.GPUPower, kindPower, powerInterval),
		abs:  absences{table: table.GPUPower, key: dev.key},
		call: newCall(callPower, powerInterval, dev.costs[callPower]),
	}
	s.calls = []*call{s.call}
	return s
}

const callPower = "nvmlDeviceGetSamples(TOTAL_POWER)"

// Name returns "power" and the ordinal.
func (s *power) Name() string { return "power " + s.dev.key }

// Finish fetches what the driver has sampled since the last read.
func (s *power) Finish(out rankagent.Out) error {
	s.final = true
	if s.call.failures == 0 {
		s.call.next = 0
	}
	return s.Read(out)
}

// Read appends a row for each sample that is newer than the last one taken. The
// first read takes none: what the buffer holds then is from before the run.
func (s *power) Read(out rankagent.Out) error {
	if err := s.enter(out); err != nil {
		return err
	}
	defer s.leave()
	id := s.retry.ready(s.lane, &s.abs)
	if id == nil {
		return nil
	}
	if !s.dev.driver.has[fnSamples] {
		s.abs.absent(out, wholeRow, rankagent.NotSupported, func() string { return text(nvml.ERROR_FUNCTION_NOT_FOUND) })
		return nil
	}
	wall, err := s.dev.driver.clock.Bracket()
	if err != nil {
		return fmt.Errorf("reading the clock that the driver stamps with: %w", err)
	}
	s.follow(out, wall)
	if !s.begin(s.call) {
		s.abs.again(out, wholeRow)
		return nil
	}
	begin := out.Now()
	kind, samples, ret := id.handle.GetSamples(nvml.TOTAL_POWER_SAMPLES, uint64(s.last))
	begin, end := widen(begin, out.Now())
	s.end(s.call, ret)
	switch {
	case s.abandoned():
		return nil
	case isLost(ret):
		s.retry.lost(s.lane, &s.abs, ret)
		return nil
	case ret == nvml.ERROR_NOT_FOUND: // none since the last
		return nil
	case ret != nvml.SUCCESS:
		s.abs.absent(out, wholeRow, reasonOf(ret), func() string { return text(ret) })
		return nil
	}
	s.take(out, id, kind, samples, begin, end, wall.Realtime/1000)
	return nil
}

// follow keeps last on the wall clock's present reckoning: where the clock was
// set, the samples of the second before have stamps that cannot be compared.
func (s *power) follow(out rankagent.Out, wall clock.Bracket) {
	raw := wall.Raw0 + (wall.Raw1-wall.Raw0)/2
	offset := wall.Realtime - int64(raw)
	switch {
	case !s.started:
		s.started = true
		s.last = wall.Realtime / 1000
	case offset-s.offset > stepLeast || s.offset-offset > stepLeast:
		s.missing(out, s.lastRead, raw, "the wall clock was set")
		s.last = wall.Realtime / 1000
	}
	s.offset, s.lastRead = offset, raw
}

// take appends the samples that are newer than the last one. go-nvml hands over
// as many as the buffer could hold; those that the driver did not fill have no
// stamp.
func (s *power) take(out rankagent.Out, id *identity, kind nvml.ValueType, samples []nvml.Sample, begin, end clock.NodeTime, nowUS int64) {
	b := out.Batch(table.GPUPower)
	future := false
	for i := range samples {
		stamp := int64(samples[i].TimeStamp)
		if stamp > nowUS+futureMost || stamp < 0 {
			future = true
			continue
		}
		if stamp <= s.last {
			continue // taken before, not filled, or out of order
		}
		s.step(out, stamp)
		row := b.Append()
		row.Read(int64(begin), int64(end))
		row.Int(table.PowGPU, int64(s.dev.index))
		row.String(table.PowUUID, id.uuid)
		row.Int(table.PowStamp, stamp)
		if mw, ok := valueInt(kind, samples[i].SampleValue); ok && mw >= 0 && mw <= maxPowerMW {
			row.Int(table.PowPower, mw)
			s.abs.present(out, table.PowPower)
		} else {
			s.abs.absent(out, table.PowPower, rankagent.InvalidValue, func() string { return fmt.Sprintf("the driver says %d", mw) })
		}
	}
	if future {
		s.abs.absent(out, wholeRow, rankagent.InvalidValue, func() string { return "stamps that lie in the future" })
		return
	}
	s.abs.present(out, wholeRow)
}

// step goes from the last sample to the next and records a gap between them.
func (s *power) step(out rankagent.Out, stamp int64) {
	gap := stamp - s.last
	if s.period > 0 && gap > max(gapPeriods*s.period, gapLeast) || s.period == 0 && gap > 2*int64(powerInterval/time.Microsecond) {
		s.missing(out, clock.NodeTime(s.last*1000-s.offset), clock.NodeTime(stamp*1000-s.offset), "the driver delivered no samples of this time")
	} else if s.period == 0 {
		s.period = gap
	} else {
		s.period += (gap - s.period) / 8
	}
	s.last = stamp
}

// missing records a stretch of time without samples.
func (s *power) missing(out rankagent.Out, from, to clock.NodeTime, detail string) {
	row := out.Batch(table.Absence).Append()
	row.Window(int64(min(from, to)), int64(to), int64(to))
	row.String(table.AbsTable, table.GPUPower.Name)
	row.String(table.AbsKey, s.dev.key)
	row.String(table.AbsReason, string(rankagent.NotSampled))
	row.String(table.AbsDetail, detail)
}
