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
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		end := 6 * unit
		d := open(t, Options{}, "gpus 1", line,
			fmt.Sprintf("fault nvmlDeviceGetPowerUsage 0 return 3 to %g", end.Seconds()),
			fmt.Sprintf("fault gpm:10 0 value nan to %g", end.Seconds()))
		defer d.Close()
		cheap, gpm := source(t, d, "gpu 0"), source(t, d, "gpm 0")
		out := newSink()
		begin := now()
		for i := range 3 {
			sleepUntil(begin, time.Duration(i)*activityInterval)
			read(t, cheap, out)
			read(t, gpm, out)
		}
		power := out.reason(table.GPU, table.GPUPowerAvg, "0")
		dram := out.reason(table.GPUActivity, table.ActDRAM, "0")
		if now()-origin > int64(end) {
			return false
		}
		if power != rankagent.NotSupported || dram != rankagent.InvalidValue {
			t.Errorf("power: %q, DRAM: %q", power, dram)
		}
		sleepUntil(origin, end+activityInterval)
		out.skew = retryUnsupported // what is not supported is asked for seldom
		read(t, cheap, out)
		out.skew = 0
		read(t, gpm, out)
		if len(out.missing) != 0 {
			t.Errorf("still missing: %v", out.missing)
		}
		return true
	})
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
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		from, to := 4*unit, 8*unit
		d := open(t, Options{}, "gpus 2", line, fmt.Sprintf("lost 1 from %g to %g", from.Seconds(), to.Seconds()))
		defer d.Close()
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
		rows := func(gpu int64) (n int) {
			for _, g := range out.Batch(table.GPU).Ints(table.GPUIndex) {
				if g == gpu {
					n++
				}
			}
			return n
		}
		tick(0)
		before := rows(1)
		if now()-origin > int64(from) {
			return false
		}
		for range 3 {
			tick(from)
		}
		events, others, lost := out.kinds(), rows(0), rows(1)-before
		cheap, gpm := out.reason(table.GPU, wholeRow, "1"), out.reason(table.GPUActivity, wholeRow, "1")
		if now()-origin > int64(to) {
			return false
		}
		if events != EventLost || cheap != rankagent.DeviceLost || gpm != rankagent.DeviceLost {
			t.Errorf("events %q, reasons %q and %q", events, cheap, gpm)
		}
		if before != 1 || lost != 0 || others != 4 {
			t.Errorf("%d rows before, %d of the lost GPU, %d of the other", before, lost, others)
		}
		// It is looked for once a second.
		for i := range 3 {
			tick(to + time.Duration(retryLost) + time.Duration(i)*activityInterval)
		}
		if got := out.kinds(); got != EventLost+" "+EventBack {
			t.Errorf("events %q", got)
		}
		if len(out.missing) != 0 {
			t.Errorf("still missing: %v", out.missing)
		}
		if rows(1) <= before || out.Batch(table.GPUActivity).Rows() == 0 {
			t.Error("no rows after it came back")
		}
		if !strings.Contains(out.events[0], "GPU-") || !strings.Contains(out.events[0], "NVML_ERROR_GPU_IS_LOST") {
			t.Errorf("event %s", out.events[0])
		}
		return true
	})
}

// TestLostFromTheStart: a GPU that never said who it is has no rows, and others
// have theirs.
func TestLostFromTheStart(t *testing.T) {
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		end := 4 * unit
		d := open(t, Options{}, "gpus 2", line, fmt.Sprintf("lost 0 to %g", end.Seconds()))
		defer d.Close()
		out := newSink()
		sources := []rankagent.Source{source(t, d, "gpu 1"), source(t, d, "gpm 1")}
		for _, s := range sources {
			read(t, s, out)
		}
		if now()-origin > int64(end) {
			return false
		}
		infos := d.Devices()
		if len(infos) != 2 || infos[0].UUID == "" || infos[1].UUID != "" || infos[1].Missing["all"] != "NVML_ERROR_GPU_IS_LOST" {
			t.Fatalf("devices %+v", infos)
		}
		if r := out.reason(table.GPU, wholeRow, "1"); r != rankagent.DeviceLost || out.Batch(table.GPU).Rows() != 0 {
			t.Errorf("reason %q, %d rows", r, out.Batch(table.GPU).Rows())
		}
		sleepUntil(origin, end+time.Duration(retryLost))
		for range 3 {
			for _, s := range sources {
				read(t, s, out)
			}
			time.Sleep(activityInterval)
		}
		if len(out.missing) != 0 || out.Batch(table.GPU).Rows() == 0 || out.Batch(table.GPUActivity).Rows() == 0 {
			t.Errorf("missing %v, %d rows", out.missing, out.Batch(table.GPU).Rows())
		}
		return true
	})
}

// TestHang: a call that hangs holds up its own source and nothing else; Close
// returns and leaves NVML alone.
func TestHang(t *testing.T) {
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		from, to := 4*unit, 12*unit
		d := open(t, Options{}, "gpus 2", line,
			fmt.Sprintf("fault nvmlDeviceGetTemperature 1 hang from %g to %g", from.Seconds(), to.Seconds()))
		if now()-origin > int64(from) {
			return false
		}
		sleepUntil(origin, from)
		stuck := source(t, d, "gpu 1")
		done := make(chan error, 1)
		go func() { done <- stuck.Read(newSink()) }()
		time.Sleep(20 * time.Millisecond)
		out := newSink()
		for _, name := range []string{"gpu 0", "gpm 0", "gpm 1"} {
			read(t, source(t, d, name), out)
		}
		before := now()
		err := d.Close()
		took := time.Duration(now() - before)
		closed := now()
		if err := <-done; err != nil {
			t.Errorf("the stuck read ended with %v", err)
		}
		if closed-origin > int64(to) {
			return false // it was not stuck any more
		}
		t.Logf("Close took %v", took)
		if err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("Close: %v", err)
		}
		if err := source(t, d, "gpu 0").Read(out); !errors.Is(err, errClosed) {
			t.Errorf("Read after Close: %v", err)
		}
		return true
	})
}

// TestHangInShutdown: Close gives up on an nvmlShutdown that hangs. What is left
// of it changes go-nvml's global state later, hence a process of its own.
func TestHangInShutdown(t *testing.T) {
	if !inChild(t) {
		return
	}
	d := open(t, Options{}, "gpus 1", "fault nvmlShutdown * hang")
	before := now()
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "nvmlShutdown hangs") {
		t.Errorf("Close: %v", err)
	}
	t.Logf("Close took %v", time.Duration(now()-before))
}

// TestHangInOpen: a GPU that hangs from the start is listed, and the others do
// not wait for it.
func TestHangInOpen(t *testing.T) {
	scaled(t, func(unit time.Duration) bool {
		origin, line := originNow()
		end := 12 * unit
		d := open(t, Options{Timeout: 4 * unit}, "gpus 3", line,
			fmt.Sprintf("fault nvmlDeviceGetVbiosVersion 1 hang to %g", end.Seconds()))
		opened := now()
		infos := d.Devices()
		out := newSink()
		read(t, source(t, d, "gpu 0"), out)
		read(t, source(t, d, "gpu 1"), out)
		sleepUntil(origin, end+unit) // before the script changes
		if opened-origin > int64(end) || !infos[0].GPM || !infos[2].GPM {
			return false
		}
		if len(infos) != 3 || infos[1].GPM || infos[1].UUID == "" || !strings.Contains(infos[1].Missing["all"], "did not answer") {
			t.Errorf("devices %+v", infos)
		}
		if out.Batch(table.GPU).Rows() != 2 {
			t.Errorf("%d rows", out.Batch(table.GPU).Rows())
		}
		return true
	})
}

// TestHangInInit: Open gives up on an nvmlInit that hangs.
func TestHangInInit(t *testing.T) {
	if !inChild(t) {
		return
	}
	lib := standin(t, "fault nvmlInit * hang")
	if _, err := Open(Options{LibraryPath: lib, Timeout: 100 * time.Millisecond}); err == nil || errors.Is(err, ErrNoDriver) {
		t.Errorf("nvmlInit hangs: %v", err)
	}
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
	// A node that cannot be opened is as good as none.
	if err := os.Mkdir(filepath.Join(dir, "nvidia4"), 0o700); err != nil {
		t.Fatal(err)
	}
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
