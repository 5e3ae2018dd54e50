//go:build cgo && linux

package gpu

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// h200 is what calls take on an H200, in microseconds: idle, and under load.
var h200 = []struct {
	call       string
	idle, busy float64
}{
	{"nvmlDeviceGetUtilizationRates", 10, 20}, // stands for the whole cheap set
	{callSample, 51, 450}, {callMetrics, 60, 100},
	{callPower, 300, 300},
	{"NVML_FI_DEV_PCIE_REPLAY_COUNTER", 150, 151},
	{"NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP", 400, 400},
	{"NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST", 400, 400},
	{"NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", 400, 400},
	{"NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", 400, 400},
	{"NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", 400, 400},
	{"nvmlDeviceGetTotalEnergyConsumption", 3195, 3781},
	{"NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 1160, 1098},
	{"NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 1160, 1098},
	{"NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", 1160, 1098},
	{callProcesses, 9, 81},
}

func h200Costs(busy bool) []CallCost {
	var costs []CallCost
	for _, c := range h200 {
		us := c.idle
		if busy {
			us = c.busy
		}
		costs = append(costs, CallCost{Call: c.call, MedianNS: int64(1000 * us)})
	}
	return costs
}

// TestBudgetOfH200: at the default budget a busy GPU keeps GPM windows of at most
// 200 ms, and what the dear counters lose for it is their second.
func TestBudgetOfH200(t *testing.T) {
	dev := open(t, Options{}, "gpus 1").devices[0]
	for _, busy := range []bool{false, true} {
		b := &budget{}
		dev.shared.budget.level.Store(0)
		b.set(defaultBudget, defaultInterval)
		costs := h200Costs(busy)
		b.plan(dev.spends(costs))
		level := b.level.Load()
		t.Logf("busy %v: %.2f ms a second, level %d, then %.2f", busy, b.planned.at(0)/1e6, level, b.planned.at(level)/1e6)
		if b.planned.at(level) > b.allowed {
			t.Errorf("busy %v: %.2f ms a second", busy, b.planned.at(level)/1e6)
		}
		dev.shared.budget.level.Store(level)
		dev.lanes = nil
		dev.showPlan(costs)
		every := map[string]string{}
		for _, c := range costs {
			every[c.Call] = c.Every
		}
		want := map[string]string{callSample: "125ms", "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP": "1s", "NVML_FI_DEV_PCIE_REPLAY_COUNTER": "1s", "nvmlDeviceGetTotalEnergyConsumption": "10s"}
		if busy {
			want[callSample], want["NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP"] = "200ms", "10s"
		}
		for call, w := range want {
			if every[call] != w {
				t.Errorf("busy %v: %s every %s, want %s", busy, call, every[call], w)
			}
		}
	}
	dev.shared.budget.level.Store(0)
}

// TestBudgetFollows: what a GPU's calls take is watched, what exceeds the budget
// is given up at once as far as it has to be, and taken up again where there
// is room.
func TestBudgetFollows(t *testing.T) {
	dev := open(t, Options{}, "gpus 1").devices[0]
	b := &dev.shared.budget
	*b = budget{}
	b.set(defaultBudget, defaultInterval)
	b.plan(dev.spends(h200Costs(false)))
	out := newSink()
	// A second's calls at what they cost, as often as the level has them made.
	second := func(at int, full spent) {
		for k := range full {
			f := ladder[b.level.Load()][k]
			if k := kind(k); k == kindEnergy { // in one piece
				if at%int(10*f) == 0 {
					b.took[k].Add(int64(10 * f * full[k] / f))
				}
				continue
			}
			b.took[k].Add(int64(full[k] / f))
		}
		b.second(dev, out)
	}
	run := func(seconds int, full spent) {
		for i := range seconds {
			second(i, full)
		}
	}
	idle, busy := dev.spends(h200Costs(false)), dev.spends(h200Costs(true))
	run(200, idle)
	if out.kinds() != "" {
		t.Errorf("within the budget: %s", out.kinds())
	}
	run(2*budgetSpan, busy)
	if !strings.HasPrefix(out.kinds(), EventSlowed) || b.factor(kindDear) != 10 || b.factor(kindActivity) > 1.6 || b.factor(kindCheap) != 1 {
		t.Errorf("busy: level %d after %s", b.level.Load(), out.kinds())
	}
	if !strings.Contains(out.events[0], `"budget_us_per_tick":500`) {
		t.Errorf("event %s", out.events[0])
	}
	settled := out.kinds()
	run(600, busy)
	if out.kinds() != settled {
		t.Errorf("it does not settle: %s", out.kinds())
	}
	run(200, spent{kindCheap: 40e6, kindPower: 1e6})
	if b.factor(kindCheap) < 8 {
		t.Errorf("the base tick is not thinned at 4 ms each: level %d", b.level.Load())
	}
	if dev.lanes = nil; !b.admits(kindActivity, 7) || b.admits(kindCheap, 7) || !b.admits(kindCheap, 0) {
		t.Error("admits")
	}
	run(600, spent{})
	if b.level.Load() != 0 || !strings.HasSuffix(out.kinds(), EventRestored) {
		t.Errorf("level %d with nothing spent, events %s", b.level.Load(), out.kinds())
	}
}

// TestBudgetPlanned: through the driver, with calls that are dear from the
// start, the plan keeps the budget before the first reading, says so, and says
// how often each call is made as that changes.
func TestBudgetPlanned(t *testing.T) {
	script := []string{"gpus 1", "fault nvmlGpmSampleGet 0 slow 500"}
	for _, f := range []string{"268", "269", "270", "271"} {
		script = append(script, "fault field:"+f+" 0 slow 400")
	}
	d := open(t, Options{}, script...)
	dev := d.devices[0]
	b := &dev.shared.budget
	level := b.level.Load()
	if level == 0 || b.planned.at(level) > b.allowed && int(level) < len(ladder)-1 {
		t.Fatalf("level %d, %.2f ms a second planned", level, b.planned.at(level)/1e6)
	}
	every := func(call string) time.Duration {
		for _, c := range d.Plan() {
			if c.Call == call {
				v, err := time.ParseDuration(c.Every)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		t.Fatalf("%s is not in the plan", call)
		return 0
	}
	const throttle = "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN"
	if got := every(throttle); got < 10*time.Second {
		t.Errorf("a dear counter every %v", got)
	}
	d.Sources()
	out := newSink()
	var watch, counter, gpm rankagent.Source
	for _, s := range d.Sources() {
		switch s.Name() {
		case "gpu watch":
			watch = s
		case "counter 0":
			counter = s
		case "gpm 0":
			gpm = s
		}
	}
	read(t, watch, out)
	if out.kinds() != EventSlowed {
		t.Errorf("events %q", out.kinds())
	}
	if pace := gpm.(rankagent.Paced).Pace(); pace != time.Duration(float64(activityInterval)*b.factor(kindActivity)) {
		t.Errorf("GPM every %v at level %d", pace, level)
	}
	// The cheap counters keep their second, the dear ones say why they are null.
	b.level.Store(1)
	for i := range 3 {
		if i > 0 {
			out.skew += clock.NodeTime(time.Second)
		}
		read(t, counter, out)
	}
	rows := out.Batch(table.GPUCounter)
	if rows.Rows() != 3 {
		t.Fatalf("%d rows", rows.Rows())
	}
	if v := rows.Valid(table.CntThrottleSWThermal); !v[0] || v[1] || v[2] {
		t.Errorf("dear: %v", v)
	}
	if v := rows.Valid(table.CntECCCorrected); !v[0] || !v[1] || !v[2] {
		t.Errorf("cheap: %v", v)
	}
	if got := out.reason(table.GPUCounter, table.CntThrottleSWThermal, "0"); got != rankagent.NotSampled {
		t.Errorf("reason %q", got)
	}
	// Where there is room again they are read each second.
	b.level.Store(0)
	out.skew += clock.NodeTime(20 * time.Second)
	read(t, counter, out)
	if v := rows.Valid(table.CntThrottleSWThermal); !v[3] {
		t.Error("it is not read again")
	}
	if got := every(throttle); got >= 10*time.Second {
		t.Errorf("with room again every %v", got)
	}
}

// TestBudgetBearsABurst: while a job makes its CUDA contexts, every call waits;
// that does not thin the base tick, and is forgotten within a minute or so.
func TestBudgetBearsABurst(t *testing.T) {
	dev := open(t, Options{}, "gpus 1").devices[0]
	b := &dev.shared.budget
	*b = budget{}
	b.set(defaultBudget, defaultInterval)
	usual := dev.spends(h200Costs(true))
	b.plan(dev.spends(h200Costs(false)))
	out := newSink()
	run := func(seconds int, full spent) (highest int32) {
		for range seconds {
			for k := range full {
				b.took[k].Add(int64(full[k] / ladder[b.level.Load()][k]))
			}
			b.second(dev, out)
			highest = max(highest, b.level.Load())
		}
		return highest
	}
	waiting := spent{kindCheap: 60e6, kindActivity: 60e6, kindPower: 10e6, kindCounter: 10e6, kindDear: 20e6, kindEnergy: 10e6}
	if l := run(20, waiting); ladder[l][kindCheap] > 1 {
		t.Errorf("20 s of waiting: level %d", l)
	}
	if l := run(60, usual); ladder[l][kindCheap] > 1 {
		t.Errorf("the minute after: level %d", l)
	}
	run(60, usual)
	if f := b.factor(kindActivity); f > 1.6 {
		t.Errorf("two minutes after, GPM is %g times as seldom; %s", f, strings.Join(out.events, "\n"))
	}
	t.Log(strings.Join(out.events, "\n"))
}

// TestThinnedTicksAreAbsent: ticks that the budget has left out are a row of
// absence, from the first to the last.
func TestThinnedTicksAreAbsent(t *testing.T) {
	d := open(t, Options{}, "gpus 1")
	s, out := newCheap(d.devices[0]), newSink()
	b := &d.devices[0].shared.budget
	at := func(level int32, ticks int) {
		b.level.Store(level)
		for range ticks {
			if err := s.Read(out); err != nil && !errors.Is(err, rankagent.ErrSkipped) {
				t.Fatal(err)
			}
		}
	}
	at(0, 4)
	if got := out.reason(table.GPU, wholeRow, "0"); got != "" {
		t.Errorf("reason %q where nothing is left out", got)
	}
	at(int32(len(ladder)-1), 10)
	if got := out.reason(table.GPU, wholeRow, "0"); got != rankagent.NotSampled || out.Batch(table.GPU).Rows() > 5 {
		t.Errorf("reason %q, %d rows", got, out.Batch(table.GPU).Rows())
	}
	at(0, 1)
	if got := out.reason(table.GPU, wholeRow, "0"); got != "" {
		t.Errorf("reason %q where nothing is left out any more", got)
	}
}
