//go:build cgo && linux

package gpu

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/table"
)

// TestPowerOnce: each sample that the driver has taken since the first read is
// a row, none is twice and none is missing, whatever the time between reads.
func TestPowerOnce(t *testing.T) {
	d := open(t, Options{}, "gpus 2", "start 45")
	out := newSink()
	s := source(t, d, "power 1")
	read(t, s, out)
	b := out.Batch(table.GPUPower)
	if b.Rows() != 0 {
		t.Fatalf("%d samples from before the run", b.Rows())
	}
	for _, wait := range []time.Duration{50, 10, 400, 0, 900, 300} {
		time.Sleep(wait * time.Millisecond)
		read(t, s, out)
	}
	want := recordedPower(t, 1)
	stamps, power := b.Ints(table.PowStamp), b.Ints(table.PowPower)
	if len(stamps) < 60 {
		t.Fatalf("%d samples", len(stamps))
	}
	// The stand-in shifts all stamps by the same time: find the first sample
	// in the recording by its distances, then all must follow.
	at := -1
	for i := range want[:len(want)-len(stamps)] {
		if matches(want[i:], stamps, power) {
			at = i
			break
		}
	}
	if at < 0 {
		t.Fatal("the samples are not those recorded, in their order, without a gap")
	}
	if len(out.missing) != 0 || out.Batch(table.Absence).Rows() != 0 {
		t.Errorf("missing %v, %d gaps", out.missing, out.Batch(table.Absence).Rows())
	}
}

type sample struct{ stamp, power int64 }

func recordedPower(t *testing.T, gpu int) (all []sample) {
	r, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for _, row := range r.Power.Rows {
		if row.GPU == gpu {
			at += row.Value[nvmltest.PowGap]
			all = append(all, sample{at, row.Value[nvmltest.PowPower]})
		}
	}
	return all
}

// matches allows a microsecond for the rounding of shifted stamps.
func matches(want []sample, stamps, power []int64) bool {
	for i := range stamps {
		d := (stamps[i] - stamps[0]) - (want[i].stamp - want[0].stamp)
		if d < -1 || d > 1 || power[i] != want[i].power {
			return false
		}
	}
	return true
}

// TestPowerGap: what the driver's buffer has lost is an interval of absence, in
// the node's raw time.
func TestPowerGap(t *testing.T) {
	d := open(t, Options{}, "gpus 1", "start 45")
	out := newSink()
	s := source(t, d, "power 0")
	read(t, s, out)
	time.Sleep(300 * time.Millisecond)
	read(t, s, out)
	before := now()
	time.Sleep(3500 * time.Millisecond) // the buffer holds 2.4 s
	read(t, s, out)
	gaps := out.Batch(table.Absence)
	if gaps.Rows() != 1 || gaps.Strings(table.AbsTable)[0] != "gpu_power" || gaps.Strings(table.AbsReason)[0] != string(rankagent.NotSampled) {
		t.Fatalf("%d gaps", gaps.Rows())
	}
	from, to := gaps.Ints(table.ColBegin)[0], gaps.Ints(table.ColT)[0]
	if length := time.Duration(to - from); length < 800*time.Millisecond || length > 1500*time.Millisecond {
		t.Errorf("a gap of %v", length)
	}
	if from < before-int64(100*time.Millisecond) || from > before+int64(100*time.Millisecond) {
		t.Errorf("it begins %v after the last read", time.Duration(from-before))
	}
}

// TestPowerFaults: what the driver makes up is not taken for a sample.
func TestPowerFaults(t *testing.T) {
	tests := []struct {
		fault  string
		column int
		reason rankagent.Reason
		rows   bool
	}{
		{"return 3", wholeRow, rankagent.NotSupported, false},
		{"return 4", wholeRow, rankagent.NoPermission, false},
		{"return 6", -1, "", false}, // nothing new
		{"stamp 60000000", wholeRow, rankagent.InvalidValue, false},
		{"stamp -60000000", -1, "", false}, // all older than the run
		{"value -1", table.PowPower, rankagent.InvalidValue, true},
	}
	for _, tc := range tests {
		t.Run(tc.fault, func(t *testing.T) {
			d := open(t, Options{}, "gpus 1", "start 45", "fault nvmlDeviceGetSamples 0 "+tc.fault)
			out := newSink()
			s := source(t, d, "power 0")
			read(t, s, out)
			time.Sleep(150 * time.Millisecond)
			out.skew = retryUnsupported
			read(t, s, out)
			b := out.Batch(table.GPUPower)
			if (b.Rows() > 0) != tc.rows {
				t.Fatalf("%d rows", b.Rows())
			}
			if tc.column >= 0 {
				if got := out.reason(table.GPUPower, tc.column, "0"); got != tc.reason {
					t.Errorf("reason %q", got)
				}
			}
			if tc.rows && b.Valid(table.PowPower)[0] {
				t.Error("power of minus one")
			}
		})
	}
}

// TestCounters: rows at the begin, then as counters are due, and at the end;
// values are the recording's.
func TestCounters(t *testing.T) {
	d := open(t, Options{}, "gpus 1", "start 45")
	out := newSink()
	cheap, dear := newCounters(d.devices[0]), newEnergy(d.devices[0])
	read(t, cheap, out)
	read(t, dear, out)
	time.Sleep(200 * time.Millisecond)
	if err := cheap.Finish(out); err != nil {
		t.Fatal(err)
	}
	if err := dear.Finish(out); err != nil {
		t.Fatal(err)
	}
	b := out.Batch(table.GPUCounter)
	if b.Rows() != 4 {
		t.Fatalf("%d rows", b.Rows())
	}
	for row, dear := range []bool{false, true, false, true} {
		if b.Valid(table.CntEnergy)[row] != dear || b.Valid(table.CntECCCorrected)[row] == dear {
			t.Errorf("row %d: energy %v, ECC %v", row, b.Valid(table.CntEnergy)[row], b.Valid(table.CntECCCorrected)[row])
		}
	}
	energy := b.Ints(table.CntEnergy)
	used, took := energy[3]-energy[1], b.Ints(table.ColT)[3]-b.Ints(table.ColT)[1]
	// 45 s into the recording the GPU works at about 600 W.
	if watts := float64(used) / 1e3 / (float64(took) / 1e9); watts < 300 || watts > 710 {
		t.Errorf("%.0f W", watts)
	}
	if v := b.Ints(table.CntNVLinkTx)[1]; v%kib != 0 || v == 0 {
		t.Errorf("%d bytes sent", v)
	}
	if r := out.reason(table.GPUCounter, table.CntThrottlePower, "0"); r != rankagent.NotSupported {
		t.Errorf("throttling by power: %q", r)
	}
}

// TestCounterFaults: a counter that goes back or jumps is null at that reading.
func TestCounterFaults(t *testing.T) {
	const name = "nvmlDeviceGetTotalEnergyConsumption"
	tests := []struct {
		fault  string
		reason rankagent.Reason
		events string
	}{
		{"value 5", rankagent.InvalidValue, EventCounterReset},
		{"value 0xFFFFFFFFFFFFFFFF", rankagent.InvalidValue, ""},
		{"value 0x0FFFFFFFFFFFFFFF", rankagent.InvalidValue, ""},
		{"return 3", rankagent.NotSupported, ""},
		{"return 4", rankagent.NoPermission, ""},
		{"return 999", rankagent.SourceError, ""},
	}
	for _, tc := range tests {
		t.Run(tc.fault, func(t *testing.T) {
			origin, line := originNow()
			at := 500 * time.Millisecond
			d := open(t, Options{}, "gpus 1", line, fmt.Sprintf("fault %s 0 %s from %g to %g", name, tc.fault, at.Seconds(), (at+300*time.Millisecond).Seconds()))
			out := newSink()
			s := newEnergy(d.devices[0])
			read(t, s, out)
			if now()-origin > int64(at) {
				t.Skip("the machine is too slow")
			}
			sleepUntil(origin, at+10*time.Millisecond)
			read(t, s, out)
			b := out.Batch(table.GPUCounter)
			if valid := b.Valid(table.CntEnergy); !valid[0] || valid[1] {
				t.Fatalf("valid %v", valid)
			}
			if got := out.reason(table.GPUCounter, table.CntEnergy, "0"); got != tc.reason {
				t.Errorf("reason %q", got)
			}
			if got := out.kinds(); got != tc.events {
				t.Errorf("events %q", got)
			}
			sleepUntil(origin, at+310*time.Millisecond)
			out.skew = retryUnsupported
			read(t, s, out)
			if tc.events == "" && (!b.Valid(table.CntEnergy)[2] || out.reason(table.GPUCounter, table.CntEnergy, "0") != "") {
				t.Error("it did not come back")
			}
		})
	}
}

// TestProcesses: rows carry the rank, changes of memory are noticed between
// the regular lists, and coming and going are events.
func TestProcesses(t *testing.T) {
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		end := 4 * unit
		d := open(t, Options{RankOf: func(pid int) int { return pid - 4000 }, ProcessUtil: true}, "gpus 1", line,
			fmt.Sprintf("process 0 4003 1000000000 to %g", end.Seconds()), "process 0 3999 18446744073709551615", "process 0 99999999 5")
		defer d.Close()
		out := newSink()
		s := newProcesses(d.devices[0])
		read(t, s, out)
		if now()-origin > int64(end) {
			return false
		}
		b := out.Batch(table.GPUProcess)
		if b.Rows() != 2 || b.Ints(table.ProcPID)[0] != 4003 || b.Ints(table.ProcRank)[0] != 3 ||
			b.Ints(table.ProcMemUsed)[0] != 1e9 || b.Valid(table.ProcRank)[1] || b.Valid(table.ProcMemUsed)[1] {
			t.Fatalf("%d rows, pids %v", b.Rows(), b.Ints(table.ProcPID))
		}
		if out.reason(table.GPUProcess, table.ProcPID, "0") != rankagent.InvalidValue ||
			out.reason(table.GPUProcess, table.ProcMemUsed, "0") != rankagent.NoPermission {
			t.Errorf("missing %v", out.missing)
		}
		sleepUntil(origin, end)
		read(t, s, out)
		if b.Rows() != 2 {
			t.Error("a list without a reason")
		}
		d.devices[0].memUsed.Add(-1e9)
		read(t, s, out)
		if want := EventProcessStart + " " + EventProcessStart + " " + EventProcessEnd; out.kinds() != want {
			t.Errorf("events %q", out.kinds())
		}
		out.skew += processEvery
		n := b.Rows()
		read(t, s, out)
		if b.Rows() <= n || !b.Valid(table.ProcSMUtil)[n] {
			t.Error("no list after ten seconds, or without use")
		}
		return true
	})
}

// TestDriverEvents: what the driver tells becomes an event of its GPU, once.
func TestDriverEvents(t *testing.T) {
	d := open(t, Options{}, "gpus 2", "event 1 8 79 0.2", "event 0 2 0 0.2", "event 1 1 0 0.25")
	out := newSink()
	s := newEvents(d)
	for range 8 {
		read(t, s, out)
		time.Sleep(50 * time.Millisecond)
	}
	b := out.Batch(table.Event)
	if b.Rows() != 3 {
		t.Fatalf("%d events", b.Rows())
	}
	found := map[string]int64{}
	for i, kind := range b.Strings(table.EventKind) {
		found[kind+" "+b.Strings(table.EventDetail)[i]] = b.Ints(table.EventGPU)[i]
		if length := b.Ints(table.ColRead)[i]; length <= 0 || length > int64(200*time.Millisecond) {
			t.Errorf("it happened within %v", time.Duration(length))
		}
	}
	infos := d.Devices()
	for want, gpu := range map[string]int64{
		`xid {"gpu_uuid":"` + infos[1].UUID + `","xid":79}`:    1,
		`ecc_uncorrected {"gpu_uuid":"` + infos[0].UUID + `"}`: 0,
		`ecc_corrected {"gpu_uuid":"` + infos[1].UUID + `"}`:   1,
	} {
		if got, ok := found[want]; !ok || got != gpu {
			t.Errorf("no %s in %v", want, found)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoDriverEvents: a driver that tells none says so.
func TestNoDriverEvents(t *testing.T) {
	for fault, want := range map[string]rankagent.Reason{
		"nvmlEventSetCreate * return 4":               rankagent.NoPermission,
		"nvmlDeviceRegisterEvents * return 3":         rankagent.NotSupported,
		"nvmlDeviceGetSupportedEventTypes * value 16": rankagent.NotSupported,
	} {
		d := open(t, Options{}, "gpus 1", "fault "+fault)
		out := newSink()
		s := newEvents(d)
		read(t, s, out)
		read(t, s, out)
		got := out.missing["event//"]
		if got == "" {
			got = out.missing["event//0"]
		}
		if got != want {
			t.Errorf("%s: %v", fault, out.missing)
		}
		_ = s.Close()
		_ = d.Close()
	}
}

// TestChanges: throttling and low clocks have a begin and an end, and neither
// flickers.
func TestChanges(t *testing.T) {
	d := open(t, Options{}, "gpus 1")
	out := newSink()
	var c changes
	at := clock.NodeTime(0)
	for _, step := range []struct {
		ticks        int
		reasons, mhz int64
	}{
		{5, 0, 1980},
		{3, 4, 1500}, {2, 0, 1980}, {3, 4, 1400}, // at the power limit, with a pause
		{15, 0, 1980},
		{20, 1, 345}, // idle
		{5, -1, -1},  // unknown
		{20, 0x40, 900},
	} {
		for range step.ticks {
			c.see(out, d.devices[0], at, at+1000, step.reasons, step.mhz)
			at += clock.NodeTime(100 * time.Millisecond)
		}
	}
	want := EventThrottleBegin + " " + EventClockDrop + " " + EventThrottleEnd + " " + EventClockBack + " " + EventThrottleBegin + " " + EventClockDrop
	if got := out.kinds(); got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	b := out.Batch(table.Event)
	if got := b.Strings(table.EventDetail)[3]; got != `{"gpu_uuid":"`+d.devices[0].uuid()+`","clock_sm_mhz":1400,"highest_mhz":1980,"lasted_ms":800,"event_reasons":0}` {
		t.Errorf("clock_back %s", got)
	}
	if b.Ints(table.ColRead)[0] != 100_001_000-1000 {
		t.Errorf("the first began within %d ns", b.Ints(table.ColRead)[0])
	}
}

// TestMeant: what is left out of a GPM value is less than it can mean.
func TestMeant(t *testing.T) {
	for _, v := range []float64{0, 1.0 / 128, 0.5, 12.3456, 73.5365, 99.9999, 100, 1234.5678, 18345.6717, 350000.123} {
		got := meant(v)
		if math.Abs(got-v) > 1.0/256+v/(1<<14) || float64(float32(got)) != got || got != meant(got) {
			t.Errorf("%g becomes %g", v, got)
		}
		if v <= 100 && math.Abs(got-v) > 0.00391 {
			t.Errorf("%g becomes %g", v, got)
		}
	}
}
