//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// TestCheapFaults: whatever one call gives, its columns become null with the
// right reason, and all other values stay.
func TestCheapFaults(t *testing.T) {
	cols := func(c ...int) []int { return c }
	tests := []struct {
		fault   string
		columns []int
		reason  rankagent.Reason
	}{
		{"nvmlDeviceGetUtilizationRates 0 return 3", cols(table.GPUUtil, table.GPUUtilMem), rankagent.NotSupported},
		{"nvmlDeviceGetUtilizationRates 0 value 101", cols(table.GPUUtil, table.GPUUtilMem), rankagent.InvalidValue},
		{"nvmlDeviceGetUtilizationRates 0 value 0xFFFFFFFF", cols(table.GPUUtil, table.GPUUtilMem), rankagent.InvalidValue},
		{"nvmlDeviceGetMemoryInfo_v2 0 value 0xFFFFFFFFFFFFFFFF", cols(table.GPUMemUsed), rankagent.InvalidValue},
		{"nvmlDeviceGetMemoryInfo_v2 0 value 9223372036854775807", cols(table.GPUMemUsed), rankagent.InvalidValue},
		{"nvmlDeviceGetMemoryInfo_v2 0 return 25", cols(table.GPUMemUsed), rankagent.NotSupported},
		{"nvmlDeviceGetTemperature 0 value -128", cols(table.GPUTemp), rankagent.InvalidValue},
		{"nvmlDeviceGetTemperature 0 value 0xFFFFFFFF", nil, ""}, // minus one degree can be true
		{"nvmlDeviceGetTemperature 0 return 4", cols(table.GPUTemp), rankagent.NoPermission},
		{"field:82 0 value 255", cols(table.GPUTempMem), rankagent.InvalidValue},
		{"field:82 0 return 3", cols(table.GPUTempMem), rankagent.NotSupported},
		{"field:186 0 value 0xFFFFFFFF", cols(table.GPUPowerNow), rankagent.InvalidValue},
		{"nvmlDeviceGetFieldValues 0 return 999", cols(table.GPUTempMem, table.GPUPowerNow), rankagent.SourceError},
		{"nvmlDeviceGetFieldValues 0 stamp -60000000", nil, ""}, // stamps that run backwards are not used
		{"nvmlDeviceGetClockInfo 0 value 0xFFFFFFFF", cols(table.GPUClockSM, table.GPUClockMem), rankagent.InvalidValue},
		{"nvmlDeviceGetCurrentClocksEventReasons 0 value 0xFFFFFFFFFFFFFFFF", cols(table.GPUEventReasons), rankagent.InvalidValue},
		{"nvmlDeviceGetPerformanceState 0 value 32", cols(table.GPUPState), rankagent.InvalidValue},
		{"nvmlDeviceGetPowerUsage 0 value 10000001", cols(table.GPUPowerAvg), rankagent.InvalidValue},
		{"nvmlDeviceGetPowerUsage 0 return 10", cols(table.GPUPowerAvg), rankagent.SourceSlow},
		{"nvmlDeviceGetPowerUsage 0 return 31337", cols(table.GPUPowerAvg), rankagent.SourceError},
	}
	for _, tc := range tests {
		t.Run(tc.fault, func(t *testing.T) {
			d := open(t, Options{}, "gpus 2", "fault "+tc.fault)
			out := newSink()
			for _, s := range d.Sources()[:2] {
				read(t, s, out)
				read(t, s, out)
			}
			b := out.Batch(table.GPU)
			if b.Rows() != 4 {
				t.Fatalf("%d rows", b.Rows())
			}
			bad := map[int]bool{}
			for _, c := range tc.columns {
				bad[c] = true
				if got := out.reason(table.GPU, c, "0"); got != tc.reason {
					t.Errorf("%s: reason %q, want %q", table.GPU.Columns[c].Name, got, tc.reason)
				}
			}
			for c := range table.GPU.Columns {
				for row, valid := range b.Valid(c) {
					faulty := row < 2 && bad[c]
					if valid == faulty {
						t.Errorf("row %d %s: valid %v", row, table.GPU.Columns[c].Name, valid)
					}
				}
			}
			if len(out.missing) != len(tc.columns) {
				t.Errorf("missing: %v", out.missing)
			}
		})
	}
}

// TestFaultEnds: a value that comes back is present again.
func TestFaultEnds(t *testing.T) {
	origin, line := originNow()
	d := open(t, Options{}, "gpus 1", line, "fault nvmlDeviceGetPowerUsage 0 return 3 to 0.6", "fault gpm:10 0 value nan to 0.6")
	cheap, gpm := source(t, d, "gpu 0"), source(t, d, "gpm 0")
	out := newSink()
	begin := now()
	for i := range 3 {
		sleepUntil(begin, time.Duration(i)*activityInterval)
		read(t, cheap, out)
		read(t, gpm, out)
	}
	if now()-origin > 600e6 {
		t.Skip("the machine is too slow for this test's times")
	}
	if r := out.reason(table.GPU, table.GPUPowerAvg, "0"); r != rankagent.NotSupported {
		t.Errorf("power: %q", r)
	}
	if r := out.reason(table.GPUActivity, table.ActDRAM, "0"); r != rankagent.InvalidValue {
		t.Errorf("DRAM: %q", r)
	}
	sleepUntil(origin, 700*time.Millisecond)
	read(t, cheap, out)
	read(t, gpm, out)
	if len(out.missing) != 0 {
		t.Errorf("still missing: %v", out.missing)
	}
}

// TestActivityFaults: what GPM does not know is null, what it refuses leaves no
// rows, and both have a reason.
func TestActivityFaults(t *testing.T) {
	tests := []struct {
		fault  string
		column int
		reason rankagent.Reason
		rows   int
		works  bool
	}{
		{"gpm:5 0 value nan", table.ActTensor, rankagent.InvalidValue, 1, true},
		{"gpm:5 0 value -1", table.ActTensor, rankagent.InvalidValue, 1, true},
		{"gpm:5 0 value 250", table.ActTensor, rankagent.InvalidValue, 1, true},
		{"gpm:61 0 value inf", table.ActNVLinkTx, rankagent.InvalidValue, 1, true},
		{"gpm:61 0 value 9.2e18", table.ActNVLinkTx, rankagent.InvalidValue, 1, true},
		{"gpm:11 0 return 2", table.ActFP64, rankagent.NotSupported, 1, true},
		{"nvmlGpmMetricsGet 0 value nan", table.ActSMUtil, rankagent.InvalidValue, 1, false},
		{"nvmlGpmSampleGet 0 return 3", wholeRow, rankagent.NotSupported, 0, false},
		{"nvmlGpmSampleGet 0 return 4", wholeRow, rankagent.NoPermission, 0, false},
		{"nvmlGpmSampleGet 0 return 999", wholeRow, rankagent.SourceError, 0, false},
		{"nvmlGpmMetricsGet 0 return 3", wholeRow, rankagent.NotSupported, 0, false},
		{"nvmlGpmSampleAlloc * return 20", wholeRow, rankagent.SourceError, 0, false},
		{"nvmlGpmQueryDeviceSupport * return 25", -1, "", 1, true}, // nobody asks
	}
	for _, tc := range tests {
		t.Run(tc.fault, func(t *testing.T) {
			d := open(t, Options{}, "gpus 1", "fault "+tc.fault)
			info := d.Devices()[0]
			if info.GPM != tc.works {
				t.Errorf("GPM: %v, %v", info.GPM, info.Missing)
			}
			out := newSink()
			s := source(t, d, "gpm 0")
			read(t, s, out)
			time.Sleep(minWindow + 5*time.Millisecond)
			read(t, s, out)
			b := out.Batch(table.GPUActivity)
			if b.Rows() != tc.rows {
				t.Fatalf("%d rows, want %d; missing %v", b.Rows(), tc.rows, out.missing)
			}
			if tc.column < 0 {
				return
			}
			if got := out.reason(table.GPUActivity, tc.column, "0"); got != tc.reason {
				t.Errorf("reason %q, want %q", got, tc.reason)
			}
			if tc.rows > 0 && b.Valid(tc.column)[0] {
				t.Error("the value is not null")
			}
		})
	}
}

// TestLostAndBack: a GPU that falls off the bus is said to be lost once, leaves
// no rows, disturbs no other, and is picked up where it comes back.
func TestLostAndBack(t *testing.T) {
	origin, line := originNow()
	d := open(t, Options{}, "gpus 2", line, "lost 1 from 0.6 to 1.2")
	out := newSink()
	var sources []rankagent.Source
	for _, name := range []string{"gpu 0", "gpu 1", "gpm 1"} {
		sources = append(sources, source(t, d, name))
	}
	tick := func(at time.Duration) {
		sleepUntil(origin, at)
		for _, s := range sources {
			read(t, s, out)
		}
	}
	count := func(gpu int64) (n int) {
		for _, g := range out.Batch(table.GPU).Ints(table.GPUIndex) {
			if g == gpu {
				n++
			}
		}
		return n
	}
	if now()-origin > 550e6 {
		t.Skip("the machine is too slow for this test's times")
	}
	tick(0)
	before := count(1)
	if before != 1 {
		t.Fatalf("%d rows of GPU 1 before", before)
	}
	for at := 650; at < 1100; at += 150 {
		tick(time.Duration(at) * time.Millisecond)
	}
	if got := out.kinds(); got != EventLost {
		t.Errorf("events %q", got)
	}
	for _, tb := range []*table.Table{table.GPU, table.GPUActivity} {
		if r := out.reason(tb, wholeRow, "1"); r != rankagent.DeviceLost {
			t.Errorf("%s: reason %q", tb.Name, r)
		}
	}
	if count(1) != before || count(0) != 4 {
		t.Errorf("%d rows of the lost GPU, %d of the other", count(1)-before, count(0))
	}
	for at := 1750; at < 2300; at += 150 {
		tick(time.Duration(at) * time.Millisecond)
	}
	if got := out.kinds(); got != EventLost+" "+EventBack {
		t.Errorf("events %q", got)
	}
	if len(out.missing) != 0 {
		t.Errorf("still missing: %v", out.missing)
	}
	if count(1) <= before || out.Batch(table.GPUActivity).Rows() == 0 {
		t.Error("no rows after it came back")
	}
	if !strings.Contains(out.events[0], "GPU-") || !strings.Contains(out.events[0], "NVML_ERROR_GPU_IS_LOST") {
		t.Errorf("event %s", out.events[0])
	}
}

// TestLostFromTheStart: a GPU that never said who it is has no rows, and others
// have theirs.
func TestLostFromTheStart(t *testing.T) {
	origin, line := originNow()
	d := open(t, Options{}, "gpus 2", line, "lost 0 to 0.7")
	if now()-origin > 650e6 {
		t.Skip("the machine is too slow for this test's times")
	}
	infos := d.Devices()
	if len(infos) != 2 || infos[0].UUID == "" || infos[1].UUID != "" || infos[1].Missing["all"] != "NVML_ERROR_GPU_IS_LOST" {
		t.Fatalf("devices %+v", infos)
	}
	out := newSink()
	sources := []rankagent.Source{source(t, d, "gpu 1"), source(t, d, "gpm 1")}
	for _, s := range sources {
		read(t, s, out)
	}
	if r := out.reason(table.GPU, wholeRow, "1"); r != rankagent.DeviceLost || out.Batch(table.GPU).Rows() != 0 {
		t.Errorf("reason %q, %d rows", r, out.Batch(table.GPU).Rows())
	}
	sleepUntil(origin, 1750*time.Millisecond)
	for range 2 {
		for _, s := range sources {
			read(t, s, out)
		}
		time.Sleep(minWindow + 5*time.Millisecond)
	}
	if len(out.missing) != 0 || out.Batch(table.GPU).Rows() == 0 || out.Batch(table.GPUActivity).Rows() == 0 {
		t.Errorf("missing %v, %d rows", out.missing, out.Batch(table.GPU).Rows())
	}
}

// TestHang: a call that hangs holds up its own source and nothing else; Close
// returns and leaves NVML alone.
func TestHang(t *testing.T) {
	origin, line := originNow()
	d := open(t, Options{}, "gpus 2", line, "fault nvmlDeviceGetTemperature 1 hang from 1 to 3")
	sleepUntil(origin, 1010*time.Millisecond)
	stuck := source(t, d, "gpu 1")
	done := make(chan error, 1)
	go func() { done <- stuck.Read(newSink()) }()
	time.Sleep(20 * time.Millisecond)
	out := newSink()
	before := now()
	for _, name := range []string{"gpu 0", "gpm 0", "gpm 1"} {
		read(t, source(t, d, name), out)
	}
	if took := now() - before; took > 200e6 {
		t.Errorf("the other sources took %v", time.Duration(took))
	}
	before = now()
	err := d.Close()
	if took := now() - before; took > 100e6 {
		t.Errorf("Close took %v", time.Duration(took))
	}
	if err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("Close: %v", err)
	}
	select {
	case err := <-done:
		t.Fatalf("the stuck read returned early: %v", err)
	default:
	}
	if err := <-done; err != nil {
		t.Errorf("the stuck read ended with %v", err)
	}
	if err := source(t, d, "gpu 0").Read(out); !errors.Is(err, errClosed) {
		t.Errorf("Read after Close: %v", err)
	}
}

// TestHangInShutdown: Close gives up on an nvmlShutdown that hangs.
func TestHangInShutdown(t *testing.T) {
	origin, line := originNow()
	d := open(t, Options{}, "gpus 1", line, "fault nvmlShutdown * hang from 0.5 to 2")
	sleepUntil(origin, 510*time.Millisecond)
	before := now()
	if err := d.Close(); err == nil {
		t.Error("Close says that all is well")
	}
	if took := now() - before; took > 100e6 {
		t.Errorf("Close took %v", time.Duration(took))
	}
	sleepUntil(origin, 2100*time.Millisecond) // let it end before the next test
}

// TestHangInOpen: a GPU that hangs from the start is listed, and the others do
// not wait for it.
func TestHangInOpen(t *testing.T) {
	origin, line := originNow()
	d := open(t, Options{Timeout: 400 * time.Millisecond}, "gpus 3", line, "fault nvmlDeviceGetVbiosVersion 1 hang to 2")
	infos := d.Devices()
	if len(infos) != 3 || !infos[0].GPM || !infos[2].GPM || infos[1].GPM {
		t.Fatalf("devices %+v", infos)
	}
	if infos[1].UUID == "" || !strings.Contains(infos[1].Missing["all"], "did not answer") {
		t.Errorf("the hanging GPU: %+v", infos[1])
	}
	out := newSink()
	read(t, source(t, d, "gpu 0"), out)
	read(t, source(t, d, "gpu 1"), out)
	if out.Batch(table.GPU).Rows() != 2 {
		t.Errorf("%d rows", out.Batch(table.GPU).Rows())
	}
	sleepUntil(origin, 2200*time.Millisecond)

	origin, line = originNow()
	lib := standin(t, line, "fault nvmlInit * hang to 1")
	if _, err := Open(Options{LibraryPath: lib, Timeout: 100 * time.Millisecond}); err == nil || errors.Is(err, ErrNoDriver) {
		t.Errorf("nvmlInit hangs: %v", err)
	}
	sleepUntil(origin, 1100*time.Millisecond)
}

// TestInitFails: what is no driver and what is a broken one.
func TestInitFails(t *testing.T) {
	for code, noDriver := range map[int]bool{9: true, 28: true, 999: false, 18: false, 4: false} {
		lib := standin(t, fmt.Sprintf("fault nvmlInit * return %d", code))
		_, err := Open(Options{LibraryPath: lib})
		if err == nil || errors.Is(err, ErrNoDriver) != noDriver {
			t.Errorf("nvmlInit returns %d: %v", code, err)
		}
	}
	for _, fault := range []string{"return 999", "value 0xFFFFFFFF"} {
		lib := standin(t, "fault nvmlDeviceGetCount * "+fault)
		if _, err := Open(Options{LibraryPath: lib}); err == nil || errors.Is(err, ErrNoDriver) {
			t.Errorf("nvmlDeviceGetCount %s: %v", fault, err)
		}
	}
}

// TestVisible: only GPUs whose device node can be opened are seen, and ordinals
// count those.
func TestVisible(t *testing.T) {
	dir := t.TempDir()
	touch := func(n int) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("nvidia%d", n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch(2)
	touch(5)
	// Like a device node without hardware, a socket answers open with ENXIO.
	l, err := net.Listen("unix", filepath.Join(dir, "nvidia6"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	d := open(t, Options{}, "node "+dir+"/nvidia%d")
	rec, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	infos := d.Devices()
	if len(infos) != 3 {
		t.Fatalf("%d GPUs", len(infos))
	}
	for i, number := range []int{2, 5, 6} {
		if infos[i].Index != i || infos[i].UUID != rec.GPUs[number].UUID {
			t.Errorf("GPU %d is %+v", i, infos[i])
		}
	}
}
