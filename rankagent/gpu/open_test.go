//go:build cgo && linux

package gpu

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/table"
)

// TestDevices: what meta.yaml gets to know of the recorded GPUs.
func TestDevices(t *testing.T) {
	rec, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	sys := t.TempDir()
	slot := filepath.Join(sys, "bus/pci/devices/0000:00:07.0")
	if err := os.MkdirAll(slot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(slot, "numa_node"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := open(t, Options{Sysfs: sys}, "reverse") // NVML's own order is not ours
	infos := d.Devices()
	if len(infos) != 8 {
		t.Fatalf("%d GPUs", len(infos))
	}
	for i, info := range infos {
		want := rec.GPUs[i]
		if info.Index != i || info.UUID != want.UUID || info.PCIBusID != want.BusID || info.Name != want.Name ||
			info.PowerLimitMW != int64(want.PowerLimitMW) || info.MemoryBytes != int64(want.MemoryByte) || info.MemoryBusBits != 6016 || info.MemoryClockMaxMHz != 3201 || info.ClockSMMaxMHz != 1980 {
			t.Errorf("GPU %d: %+v, recorded %+v", i, info, want)
		}
		if info.DriverVersion != "580.159.04" || info.Architecture != "Hopper" || info.MIG != "disabled" || !info.GPM || info.VBIOS == "" || info.NVLinks != 18 {
			t.Errorf("GPU %d: %+v", i, info)
		}
		topology := slices.Repeat([]string{"NV18"}, 8)
		topology[i] = "X"
		if !slices.Equal(info.Topology, topology) {
			t.Errorf("GPU %d reaches the others by %v", i, info.Topology)
		}
		if i == 1 && (info.NUMANode == nil || *info.NUMANode != 1) {
			t.Errorf("GPU 1: NUMA node %v", info.NUMANode)
		}
		if i != 1 && (info.NUMANode != nil || info.Missing["numa_node"] != "NVML_ERROR_NOT_SUPPORTED") {
			t.Errorf("GPU %d: NUMA node %v, missing %v", i, info.NUMANode, info.Missing)
		}
	}
	if b, err := json.Marshal(infos[0]); err != nil || !strings.Contains(string(b), `"pci_bus_id":"00000000:00:06.0"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestSixteen: the stand-in makes more GPUs than were recorded, each its own.
func TestSixteen(t *testing.T) {
	d := open(t, Options{}, "gpus 16")
	uuids := map[string]bool{}
	for i, info := range d.Devices() {
		uuids[info.UUID] = true
		if i > 0 && info.PCIBusID <= d.Devices()[i-1].PCIBusID {
			t.Errorf("GPU %d at %s", i, info.PCIBusID)
		}
	}
	if len(uuids) != 16 || len(d.Sources()) != 16*6+2 {
		t.Errorf("%d GPUs, %d sources", len(uuids), len(d.Sources()))
	}
}

// TestScriptByEnvironment: the agent's environment may name the script.
func TestScriptByEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	if err := os.WriteFile(path, []byte("gpus 3 # of 8\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GSWARM_NVML_SCRIPT", path)
	d := open(t, Options{}, "gpus 5")
	if n := len(d.Devices()); n != 3 {
		t.Errorf("%d GPUs", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"gpus 0", "gpus 99", "fault", "fault f 0", "fault f 0 explode", "lost", "lost 0 until 3", "nonsense 1"} {
		if err := os.WriteFile(path, []byte(bad+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{LibraryPath: standin(t)}); !errors.Is(err, ErrNoDriver) {
			t.Errorf("script %q: %v", bad, err)
		}
	}
}

// TestTopologyWithoutNVLink: the PCI tree is what is left.
func TestTopologyWithoutNVLink(t *testing.T) {
	d := open(t, Options{}, "gpus 2", "fault nvmlDeviceGetNvLinkState * return 3",
		"fault nvmlDeviceGetTopologyCommonAncestor 0 value 40", "fault nvmlDeviceGetTopologyCommonAncestor 1 return 999")
	infos := d.Devices()
	if got := infos[0].Topology; !slices.Equal(got, []string{"X", "NODE"}) {
		t.Errorf("GPU 0: %v", got)
	}
	if got := infos[1].Topology; !slices.Equal(got, []string{"?", "X"}) {
		t.Errorf("GPU 1: %v", got)
	}
}

// TestPlan: every call that the sources make is measured on every GPU, and a
// slow one shows.
func TestPlan(t *testing.T) {
	d := open(t, Options{}, "gpus 2", "fault nvmlDeviceGetPowerUsage 1 slow 2000", "fault nvmlDeviceGetClockInfo 0 return 4")
	seen := map[string]int{}
	for _, c := range d.Plan() {
		seen[c.Call]++
		if c.MedianNS <= 0 || c.MaxNS < c.MedianNS || c.Tries < 1 || c.Every == "" {
			t.Errorf("%+v", c)
		}
		if slow := c.Call == "nvmlDeviceGetPowerUsage" && c.GPU == 1; slow && (c.MedianNS < 2e6 || c.CPUNS > c.MedianNS/2 || c.Every < "3s") {
			t.Errorf("a call of 2 ms: %+v", c)
		}
		if failed := strings.HasPrefix(c.Call, "nvmlDeviceGetClockInfo") && c.GPU == 0; failed != (c.Error == "NVML_ERROR_NO_PERMISSION") {
			t.Errorf("%+v", c)
		}
	}
	if len(seen) != 29 {
		t.Errorf("calls: %v", seen)
	}
	for call, n := range seen {
		if n != 2 {
			t.Errorf("%s was tried on %d GPUs", call, n)
		}
	}
}

// TestSelect: GPUs that are not selected keep their ordinals and have no
// sources.
func TestSelect(t *testing.T) {
	d := open(t, Options{Select: func(i Info) bool { return i.Index == 2 }}, "gpus 4")
	var names []string
	for _, s := range d.Sources() {
		names = append(names, s.Name())
	}
	if !slices.Equal(names, []string{"gpu 2", "gpm 2", "power 2", "counter 2", "energy 2", "processes 2", "gpu events", "gpu watch"}) || len(d.Devices()) != 4 {
		t.Errorf("sources %v of %d GPUs", names, len(d.Devices()))
	}
}

// TestOldDriver: a driver that lacks functions costs their values, never the
// process.
func TestOldDriver(t *testing.T) {
	if !inChild(t) {
		return
	}
	lib, err := nvmltest.Build(t.TempDir(), nvmltest.Old)
	if err != nil {
		t.Fatal(err)
	}
	if err := nvmltest.WriteScript(lib, "gpus 2", "driver 450.248.02"); err != nil {
		t.Fatal(err)
	}
	d, err := Open(Options{LibraryPath: lib})
	if err != nil {
		t.Fatal(err)
	}
	info := d.Devices()[1]
	if info.UUID == "" || info.PCIBusID == "" || info.DriverVersion != "450.248.02" || info.GPM {
		t.Errorf("%+v", info)
	}
	for _, field := range []string{"architecture", "memory_bytes", "numa_node", "gpm"} {
		if info.Missing[field] != "NVML_ERROR_FUNCTION_NOT_FOUND" {
			t.Errorf("%s: %q", field, info.Missing[field])
		}
	}
	out := newSink()
	for _, s := range d.Sources() {
		read(t, s, out)
		read(t, s, out)
	}
	b := out.Batch(table.GPU)
	if b.Rows() != 4 || out.Batch(table.GPUActivity).Rows() != 0 {
		t.Fatalf("%d rows", b.Rows())
	}
	lacking := []int{table.GPUMemUsed, table.GPUTempMem, table.GPUPowerNow}
	for c := range table.GPU.Columns {
		want := rankagent.Reason("")
		if slices.Contains(lacking, c) {
			want = rankagent.NotSupported
		}
		if c > table.ColRead && out.reason(table.GPU, c, "1") != want || b.Valid(c)[0] != (want == "") {
			t.Errorf("%s: reason %q, valid %v", table.GPU.Columns[c].Name, out.reason(table.GPU, c, "1"), b.Valid(c)[0])
		}
	}
	if got := out.reason(table.GPUActivity, wholeRow, "0"); got != rankagent.NotSupported {
		t.Errorf("GPM: %q", got)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestBareLibrary: a library that cannot even count GPUs is no driver.
func TestBareLibrary(t *testing.T) {
	if !inChild(t) {
		return
	}
	lib, err := nvmltest.Build(t.TempDir(), nvmltest.Bare)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{LibraryPath: lib}); !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "nvmlDeviceGetCount") {
		t.Errorf("%v", err)
	}
}

// TestNoDriver: no library, an empty file, and a library that is not NVML.
func TestNoDriver(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none.so"), empty, "libpthread.so.0"} {
		_, err := Open(Options{LibraryPath: path})
		if !errors.Is(err, ErrNoDriver) {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("not one line that names the library: %q", err)
		}
	}
}

// TestLazyBinding: a process bound at its start would end there wherever the
// driver is missing or lacks a function.
func TestLazyBinding(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tags := []struct {
		tag elf.DynTag
		bit uint64
	}{
		{elf.DT_FLAGS, uint64(elf.DF_BIND_NOW)},
		{elf.DT_FLAGS_1, uint64(elf.DF_1_NOW)},
	}
	for _, want := range tags {
		values, err := f.DynValue(want.tag)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if v&want.bit != 0 {
				t.Errorf("%v is %#x: linked with -z now; link with -extldflags=-Wl,-z,lazy", want.tag, v)
			}
		}
	}
	if v, err := f.DynValue(elf.DT_BIND_NOW); err != nil || len(v) != 0 {
		t.Errorf("DT_BIND_NOW: %v, %v", v, err)
	}
}

// TestCloseTwice: a second Close does no harm.
func TestCloseTwice(t *testing.T) {
	d := open(t, Options{}, "gpus 1")
	sources := d.Sources()
	read(t, sources[1], newSink())
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	_ = d.Close()
	for _, s := range sources {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
