//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// TestFence: after one call of more than five seconds a GPU gets no further
// calls, says so, and troubles no other GPU. The clock is moved on, not waited
// for.
func TestFence(t *testing.T) {
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		from, to := 4*unit, 12*unit
		d := open(t, Options{}, "gpus 2", line,
			fmt.Sprintf("fault nvmlDeviceGetTemperature 1 hang from %g to %g", from.Seconds(), to.Seconds()))
		defer d.Close()
		if now()-origin > int64(from) {
			return false
		}
		sources := d.Sources()
		named := map[string]rankagent.Source{}
		for _, s := range sources {
			named[s.Name()] = s
		}
		sleepUntil(origin, from)
		done := make(chan error, 1)
		hung := newSink()
		go func() { done <- named["gpu 1"].Read(hung) }()
		time.Sleep(20 * time.Millisecond)
		out := newSink()
		read(t, named["gpu watch"], out)
		if out.kinds() != "" {
			t.Errorf("fenced too early: %s", out.kinds())
		}
		out.skew = fenceAfter + 1
		read(t, named["gpu watch"], out)
		fenced := now()
		for _, name := range []string{"gpm 1", "power 1", "energy 1"} {
			if err := named[name].Read(out); !errors.Is(err, rankagent.ErrSkipped) {
				t.Errorf("%s on a fenced GPU: %v", name, err)
			}
		}
		read(t, named["gpu 0"], out)
		if fenced-origin > int64(to) {
			<-done
			return false
		}
		if out.kinds() != EventFenced || !strings.Contains(out.events[0], "nvmlDeviceGetTemperature") {
			t.Errorf("events %q", out.events)
		}
		for _, tab := range []*table.Table{table.GPU, table.GPUActivity, table.GPUPower, table.GPUCounter, table.GPUProcess} {
			if got := out.reason(tab, wholeRow, "1"); got != rankagent.SourceSlow {
				t.Errorf("%s: %q", tab.Name, got)
			}
		}
		if out.Batch(table.GPU).Rows() != 1 || out.Batch(table.GPU).Ints(table.GPUIndex)[0] != 0 {
			t.Error("the other GPU has no row")
		}
		if err := <-done; err != nil || hung.Batch(table.GPU).Rows() != 0 {
			t.Errorf("the call that hung left %d rows: %v", hung.Batch(table.GPU).Rows(), err)
		}
		read(t, named["gpu watch"], out)
		if out.kinds() != EventFenced+" "+EventReturned {
			t.Errorf("events %q", out.kinds())
		}
		if err := named["gpu 1"].Read(out); !errors.Is(err, rankagent.ErrSkipped) {
			t.Errorf("the fence does not stay: %v", err)
		}
		return true
	})
}

// TestCallTurnsSlow: a call that has become dear is made less often, the others
// as before, and it is said; when it is cheap again it is made at every tick.
func TestCallTurnsSlow(t *testing.T) {
	c := newCall("x", 100*time.Millisecond, CallCost{MedianNS: 1000})
	at := clock.NodeTime(0)
	run := func(n int, took time.Duration) (made, changed int) {
		for range n {
			at += clock.NodeTime(100 * time.Millisecond)
			if at < c.next {
				continue
			}
			made++
			if c.observe(at, took, nvml.SUCCESS) {
				changed++
			}
		}
		return made, changed
	}
	if made, changed := run(100, time.Microsecond); made != 100 || changed != 0 {
		t.Errorf("%d calls, %d changes", made, changed)
	}
	if made, changed := run(1, 50*time.Millisecond); made != 1 || changed != 0 {
		t.Errorf("one slow call: %d changes", changed)
	}
	run(100, time.Microsecond)
	if _, changed := run(600, 20*time.Millisecond); changed == 0 || c.every < 10*time.Second {
		t.Errorf("20 ms a call: %d changes, every %v", changed, c.every)
	}
	made, _ := run(600, 20*time.Millisecond)
	if made > 6 {
		t.Errorf("%d calls of 20 ms in a minute", made)
	}
	run(6000, time.Microsecond)
	if c.every > c.floor {
		t.Errorf("cheap for ten minutes, still every %v", c.every)
	}
}

// TestCallFails: what fails is tried ever less often.
func TestCallFails(t *testing.T) {
	for ret, most := range map[nvml.Return]int{nvml.ERROR_NOT_SUPPORTED: 60, nvml.ERROR_NO_PERMISSION: 60, nvml.ERROR_UNKNOWN: 20} {
		c := newCall("x", 100*time.Millisecond, CallCost{MedianNS: 1000})
		made := 0
		for at := clock.NodeTime(0); at < clock.NodeTime(10*time.Minute); at += clock.NodeTime(100 * time.Millisecond) {
			if at >= c.next {
				made++
				c.observe(at, time.Microsecond, ret)
			}
		}
		if made > most+1 {
			t.Errorf("%s: %d calls in ten minutes", text(ret), made)
		}
	}
}

// TestDearCallPlanned: a call that is dear from the start is planned seldom and
// its column says why it is null in between.
func TestDearCallPlanned(t *testing.T) {
	d := open(t, Options{}, "gpus 1", "fault nvmlDeviceGetMemoryInfo_v2 0 slow 3000")
	out := newSink()
	s := newCheap(d.devices[0])
	for i := range 12 {
		out.skew = clock.NodeTime(i) * clock.NodeTime(100*time.Millisecond)
		read(t, s, out)
	}
	valid := out.Batch(table.GPU).Valid(table.GPUMemUsed)
	if !valid[0] || slices.Contains(valid[1:], true) {
		t.Errorf("3 ms a call: %v", valid)
	}
	if got := out.reason(table.GPU, table.GPUMemUsed, "0"); got != rankagent.NotSampled {
		t.Errorf("reason %q", got)
	}
	out.skew = clock.NodeTime(longest + time.Second)
	read(t, s, out)
	if valid := out.Batch(table.GPU).Valid(table.GPUMemUsed); !valid[12] {
		t.Error("it is not read after a minute either")
	}
}

// TestStagger: GPUs tick apart, and no phase reaches the next tick.
func TestStagger(t *testing.T) {
	d := open(t, Options{})
	seen := map[string]map[time.Duration]bool{}
	for _, s := range d.Sources() {
		p, ok := s.(rankagent.Phased)
		if !ok {
			continue
		}
		kind, _, _ := strings.Cut(s.Name(), " ")
		interval := s.Interval()
		if interval == 0 {
			interval = defaultInterval
		}
		if p.Phase() < 0 || p.Phase() >= interval {
			t.Errorf("%s: phase %v", s.Name(), p.Phase())
		}
		if seen[kind] == nil {
			seen[kind] = map[time.Duration]bool{}
		}
		seen[kind][p.Phase()] = true
	}
	for kind, phases := range seen {
		if len(phases) != 8 {
			t.Errorf("%s: %d phases", kind, len(phases))
		}
	}
}

// TestMIG: each instance is a GPU of its own, after the GPU that it is part of;
// it has memory, activity and processes, and says what it has not.
func TestMIG(t *testing.T) {
	d := open(t, Options{}, "gpus 2", "mig 0 3", "start 45")
	infos := d.Devices()
	if len(infos) != 5 || infos[0].MIG != "enabled" || infos[4].MIG != "disabled" {
		t.Fatalf("%d GPUs: %+v", len(infos), infos)
	}
	for i := 1; i <= 3; i++ {
		info := infos[i]
		if !strings.HasPrefix(info.UUID, "MIG-") || info.Parent != infos[0].UUID || *info.GPUInstance != i || !info.GPM ||
			info.MemoryBytes >= infos[0].MemoryBytes || info.Index != i {
			t.Errorf("instance %+v", info)
		}
	}
	out := newSink()
	for _, s := range d.Sources() {
		read(t, s, out)
	}
	gpm := newActivity(d.devices[2])
	read(t, gpm, out)
	time.Sleep(minWindow + 5*time.Millisecond)
	read(t, gpm, out)
	activity := out.Batch(table.GPUActivity)
	if activity.Rows() != 1 || activity.Strings(table.ActUUID)[0] != infos[2].UUID || !activity.Valid(table.ActSMUtil)[0] {
		t.Errorf("%d windows", activity.Rows())
	}
	b := out.Batch(table.GPU)
	for row, gpu := range b.Ints(table.GPUIndex) {
		instance := gpu >= 1 && gpu <= 3
		if !b.Valid(table.GPUMemUsed)[row] || b.Valid(table.GPUPowerNow)[row] == instance || b.Valid(table.GPUUtil)[row] == instance {
			t.Errorf("GPU %d: memory %v, power %v", gpu, b.Valid(table.GPUMemUsed)[row], b.Valid(table.GPUPowerNow)[row])
		}
	}
	for _, tab := range []*table.Table{table.GPUPower, table.GPUCounter} {
		if out.reason(tab, wholeRow, "2") != rankagent.NotSupported || out.reason(tab, wholeRow, "4") != "" {
			t.Errorf("%s: %v", tab.Name, out.missing)
		}
	}
}

// TestSourcesWithoutPermission: a driver that refuses everything but to say
// what there is has a reason for every column.
func TestSourcesWithoutPermission(t *testing.T) {
	var script []string
	for _, f := range []string{
		"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo",
		"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues",
		"nvmlDeviceGetSamples", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows",
		"nvmlDeviceGetComputeRunningProcesses", "nvmlGpmSampleGet", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents",
	} {
		script = append(script, "fault "+f+" * return 4")
	}
	d := open(t, Options{}, append(script, "gpus 1")...)
	out := newSink()
	for _, s := range d.Sources() {
		read(t, s, out)
		read(t, s, out)
	}
	for key, reason := range out.missing {
		if reason != rankagent.NoPermission {
			t.Errorf("%s: %s", key, reason)
		}
	}
	// 11 columns of gpu, 16 of gpu_counter, four whole tables.
	if len(out.missing) != 11+16+4 {
		t.Errorf("%d reasons: %v", len(out.missing), out.missing)
	}
}
