//go:build cgo && linux

package gpu

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/table"
)

// replayed ties the gpu table's columns to the recording's.
var replayed = map[int]int{
	table.GPUUtil: nvmltest.ColUtil, table.GPUUtilMem: nvmltest.ColUtilMem,
	table.GPUMemUsed: nvmltest.ColMemUsed, table.GPUTemp: nvmltest.ColTemp,
	table.GPUTempMem: nvmltest.ColTempMem, table.GPUClockSM: nvmltest.ColSM,
	table.GPUClockMem: nvmltest.ColMem, table.GPUEventReasons: nvmltest.ColReasons,
	table.GPUPowerAvg: nvmltest.ColPowerAvg, table.GPUPowerNow: nvmltest.ColPowerNow,
}

var replayedActivity = map[int]int{
	table.ActSMUtil: nvmltest.ActSM, table.ActSMOccupancy: nvmltest.ActOccupancy,
	table.ActTensor: nvmltest.ActTensor, table.ActDRAM: nvmltest.ActDRAM,
	table.ActFP64: nvmltest.ActFP64, table.ActFP32: nvmltest.ActFP32,
	table.ActFP16: nvmltest.ActFP16, table.ActPCIeTx: nvmltest.ActPCIeTx,
	table.ActPCIeRx: nvmltest.ActPCIeRx, table.ActNVLinkTx: nvmltest.ActNVLinkTx,
	table.ActNVLinkRx: nvmltest.ActNVLinkRx,
}

// TestReplayCheap: every value of the gpu table is what the recorded GPU said at
// the instant that the row names.
func TestReplayCheap(t *testing.T) {
	rec, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	const straggler = 60 * time.Second // rank 3 is slow then
	period := time.Duration(nvmltest.NewReplay(rec, 0, 0).Period())
	for name, start := range map[string]time.Duration{
		"straggler": straggler,
		"loop":      period - 350*time.Millisecond, // it ends and begins anew
	} {
		t.Run(name, func(t *testing.T) { testReplayCheap(t, rec, start) })
	}
}

func testReplayCheap(t *testing.T, rec *nvmltest.Recording, start time.Duration) {
	// Whole microseconds survive the way through the script's decimals.
	start = start.Truncate(time.Microsecond)
	origin, line := originNow()
	d := open(t, Options{}, line, fmt.Sprintf("start %.6f", start.Seconds()))
	want := nvmltest.NewReplay(rec, origin, int64(start))
	out := newSink()
	sources := d.Sources()[:8]
	for range 8 {
		for _, s := range sources {
			read(t, s, out)
		}
		time.Sleep(60 * time.Millisecond)
	}
	b := out.Batch(table.GPU)
	if b.Rows() != 64 {
		t.Fatalf("%d rows", b.Rows())
	}
	for i := range b.Rows() {
		g := int(b.Ints(table.GPUIndex)[i])
		if got := b.Strings(table.GPUUUID)[i]; got != rec.GPUs[g].UUID {
			t.Errorf("GPU %d has UUID %s", g, got)
		}
		mid, length := b.Ints(table.ColT)[i], b.Ints(table.ColRead)[i]
		// A microsecond more on both sides: start went through a decimal.
		from, to := mid-length/2-1000, mid+length/2+1000
		for column, recorded := range replayed {
			allowed := want.Cheap(g, recorded, from, to)
			if got := b.Ints(column)[i]; !b.Valid(column)[i] || !slices.Contains(allowed, got) {
				t.Errorf("GPU %d %s: %d (valid %v), recorded %d", g, table.GPU.Columns[column].Name, got, b.Valid(column)[i], allowed)
			}
		}
		if !b.Valid(table.GPUPState)[i] || b.Ints(table.GPUPState)[i] != 0 {
			t.Errorf("GPU %d: no performance state 0", g)
		}
	}
	if len(out.missing) != 0 {
		t.Errorf("missing: %v", out.missing)
	}
}

// TestReplayActivity: GPM rows lie back to back and hold what was recorded of
// their windows.
func TestReplayActivity(t *testing.T) {
	rec, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	origin, line := originNow()
	d := open(t, Options{}, line, "start 125") // all-reduce, then memory-bound
	want := nvmltest.NewReplay(rec, origin, 125e9)
	out := newSink()
	s := source(t, d, "gpm 3")
	begin := now()
	for i := range 8 {
		sleepUntil(begin, time.Duration(i)*activityInterval)
		read(t, s, out)
	}
	b := out.Batch(table.GPUActivity)
	if b.Rows() < 5 {
		t.Fatalf("%d rows of 7", b.Rows())
	}
	for i := range b.Rows() {
		from, to := b.Ints(table.ColBegin)[i], b.Ints(table.ColT)[i]
		if to-from < int64(minWindow) {
			t.Errorf("a window of %v", time.Duration(to-from))
		}
		if i == 0 {
			continue // how long the read took that began it is not in the table
		}
		if prev := b.Ints(table.ColT)[i-1]; from != prev {
			t.Errorf("a window begins %v after the one before ended", time.Duration(from-prev))
		}
		r0, r1 := b.Ints(table.ColRead)[i-1]/2+1, b.Ints(table.ColRead)[i]/2+1
		for column, recorded := range replayedActivity {
			lo, hi := math.Inf(1), math.Inf(-1)
			for _, f := range []int64{from - r0, from + r0} {
				for _, e := range []int64{to - r1, to + r1} {
					v := want.Average(3, recorded, f, e)
					lo, hi = min(lo, v), max(hi, v)
				}
			}
			slack := 1.0/256 + 1e-3*math.Abs(hi)
			if v := b.Floats(column)[i]; !b.Valid(column)[i] || v < lo-slack || v > hi+slack {
				t.Errorf("%s: %g (valid %v), recorded %g to %g", table.GPUActivity.Columns[column].Name, v, b.Valid(column)[i], lo, hi)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestActivityWindows: a window is never shorter than the driver's refresh, nor
// stretched over a gap.
func TestActivityWindows(t *testing.T) {
	d := open(t, Options{}, "gpus 1")
	s := source(t, d, "gpm 0")
	out := newSink()
	rows := func(want int, when string) {
		t.Helper()
		if got := out.Batch(table.GPUActivity).Rows(); got != want {
			t.Fatalf("%s: %d rows, want %d", when, got, want)
		}
	}
	read(t, s, out)
	rows(0, "after the first sample")
	out.skew += 40e6 // the clock is moved on, not waited for
	read(t, s, out)
	rows(0, "after 40 ms")
	out.skew += 80e6
	read(t, s, out)
	rows(1, "after 120 ms")
	out.skew += 10e9
	read(t, s, out)
	rows(1, "after a gap")
	if got := out.reason(table.GPUActivity, wholeRow, "0"); got != "not_sampled" {
		t.Errorf("the gap's reason is %q", got)
	}
	out.skew += 120e6
	read(t, s, out)
	rows(2, "after the gap")
	if got := out.reason(table.GPUActivity, wholeRow, "0"); got != "" {
		t.Errorf("still missing: %q", got)
	}
	b := out.Batch(table.GPUActivity)
	if w := b.Ints(table.ColT)[1] - b.Ints(table.ColBegin)[1]; w > 1e9 {
		t.Errorf("the window after the gap is %v long", time.Duration(w))
	}
}

// TestActivityInterval: GPM follows a slower base interval and never a faster
// one.
func TestActivityInterval(t *testing.T) {
	for base, want := range map[time.Duration]time.Duration{
		0: activityInterval, 10 * time.Millisecond: activityInterval, time.Second: time.Second,
	} {
		d := open(t, Options{Interval: base}, "gpus 1")
		if got := source(t, d, "gpm 0").Interval(); got != want {
			t.Errorf("base %v: %v, want %v", base, got, want)
		}
		if got := source(t, d, "gpu 0").Interval(); got != 0 {
			t.Errorf("the cheap set's interval is %v", got)
		}
		_ = d.Close()
	}
}
