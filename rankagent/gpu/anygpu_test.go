//go:build cgo && linux

package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// anyGPU is for tests that assert what holds for every GPU: on the stand-in,
// or on real hardware where GSWARM_TEST_NVML names the library ("default" for
// the system's own).
func anyGPU(t testing.TB, opts Options) *Driver {
	t.Helper()
	switch path := os.Getenv("GSWARM_TEST_NVML"); path {
	case "":
		return open(t, opts)
	case "default":
	default:
		opts.LibraryPath = path
	}
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestAnyGPUDevices: identities are whole and in order.
func TestAnyGPUDevices(t *testing.T) {
	before := now()
	d := anyGPU(t, Options{})
	t.Logf("Open took %v", time.Duration(now()-before))
	infos := d.Devices()
	if len(infos) == 0 {
		t.Fatal("no GPU")
	}
	uuids := map[string]bool{}
	for i, info := range infos {
		b, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", b)
		if info.Index != i || !strings.HasPrefix(info.UUID, "GPU-") || uuids[info.UUID] {
			t.Errorf("GPU %d: index %d, UUID %q", i, info.Index, info.UUID)
		}
		uuids[info.UUID] = true
		if i > 0 && info.PCIBusID <= infos[i-1].PCIBusID {
			t.Errorf("GPU %d at %s comes after %s", i, info.PCIBusID, infos[i-1].PCIBusID)
		}
		if info.Name == "" || info.DriverVersion == "" || info.MemoryBytes <= 0 {
			t.Errorf("GPU %d lacks what every GPU says: %s", i, b)
		}
		if n := len(info.Topology); n != 0 && (n != len(infos) || info.Topology[i] != "X") {
			t.Errorf("GPU %d: topology %v", i, info.Topology)
		}
		if info.GPM == (info.Missing["gpm"] != "") {
			t.Errorf("GPU %d: GPM %v, but %q", i, info.GPM, info.Missing["gpm"])
		}
	}
}

// TestAnyGPUCosts: every call was tried on every GPU, within reason.
func TestAnyGPUCosts(t *testing.T) {
	d := anyGPU(t, Options{})
	calls := map[string][]CallCost{}
	var order []string
	for _, c := range d.Plan() {
		if calls[c.Call] == nil {
			order = append(order, c.Call)
		}
		calls[c.Call] = append(calls[c.Call], c)
		if c.MedianNS < 0 || c.MaxNS < c.MedianNS || c.MedianNS > int64(100*time.Millisecond) {
			t.Errorf("%+v", c)
		}
	}
	t.Logf("%-40s %12s %12s", "call, worst GPU", "median us", "max us")
	for _, call := range order {
		var median, most int64
		failed := ""
		for _, c := range calls[call] {
			median, most, failed = max(median, c.MedianNS), max(most, c.MaxNS), c.Error
		}
		t.Logf("%-40s %12.1f %12.1f %s", call, float64(median)/1e3, float64(most)/1e3, failed)
		if len(calls[call]) != len(d.Devices()) {
			t.Errorf("%s was tried on %d GPUs", call, len(calls[call]))
		}
	}
	if len(order) < 9 {
		t.Errorf("only %d calls were tried", len(order))
	}
}

// TestAnyGPURows runs all sources for two seconds as the agent does, each in
// its own goroutine, and asserts what holds of every row.
func TestAnyGPURows(t *testing.T) {
	d := anyGPU(t, Options{})
	sources := d.Sources()
	outs := make([]*sink, len(sources))
	reads := make([]int64, len(sources))
	var wg sync.WaitGroup
	for i, s := range sources {
		outs[i] = newSink()
		wg.Go(func() {
			interval := s.Interval()
			if interval == 0 {
				interval = defaultInterval
			}
			begin := now()
			for at := time.Duration(0); at < 2*time.Second; at += interval {
				sleepUntil(begin, at)
				before := now()
				if err := s.Read(outs[i]); err != nil {
					t.Errorf("%s: %v", s.Name(), err)
					return
				}
				reads[i] = max(reads[i], now()-before)
			}
			if f, ok := s.(rankagent.Finisher); ok {
				if err := f.Finish(outs[i]); err != nil {
					t.Errorf("%s: %v", s.Name(), err)
				}
			}
		})
	}
	wg.Wait()
	for i, s := range sources {
		var kind *table.Table
		var own []int // the columns that the source fills, of those that several do
		switch s := s.(type) {
		case *cheap:
			kind = table.GPU
		case *activity:
			kind = table.GPUActivity
		case *power:
			kind = table.GPUPower
		case *counters:
			kind = table.GPUCounter
			for _, it := range s.items {
				own = append(own, it.columns...)
			}
		case *processes:
			kind = table.GPUProcess
		default:
			t.Logf("%s: longest read %v, missing %v, events %v", s.Name(), time.Duration(reads[i]), outs[i].missing, outs[i].events)
			if err := s.Close(); err != nil {
				t.Errorf("%s: %v", s.Name(), err)
			}
			continue
		}
		b := outs[i].Batch(kind)
		t.Logf("%s: %d rows, longest read %v, missing %v, events %v", s.Name(), b.Rows(), time.Duration(reads[i]), outs[i].missing, outs[i].events)
		checkRows(t, d, outs[i], kind, own)
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", s.Name(), err)
		}
	}
	before := now()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("Close took %v", time.Duration(now()-before))
}

// checkRows asserts what holds of every row of one source, and prints the last.
func checkRows(t *testing.T, d *Driver, out *sink, kind *table.Table, own []int) {
	t.Helper()
	b := out.Batch(kind)
	first, gpuColumn := table.GPUUtil, table.GPUIndex
	// Nobody need hold a GPU, and a list or a buffer gives many rows at once.
	many := kind == table.GPUProcess || kind == table.GPUPower
	if kind == table.GPUActivity {
		first, gpuColumn = table.ActSMUtil, table.ActGPU
	}
	if b.Rows() == 0 {
		key := ""
		for k := range out.missing {
			key = k
		}
		if !strings.HasPrefix(key, kind.Name+"//") && kind != table.GPUProcess {
			t.Errorf("no rows and no reason")
		}
		return
	}
	for row := range b.Rows() {
		gpu := b.Ints(gpuColumn)[row]
		if got := b.Strings(gpuColumn + 1)[row]; got != d.Devices()[gpu].UUID {
			t.Errorf("GPU %d has UUID %q", gpu, got)
		}
		if kind == table.GPUPower && row > 0 && b.Ints(table.PowStamp)[row] <= b.Ints(table.PowStamp)[row-1] {
			t.Error("a sample twice")
		}
		if !many && row > 0 && b.Ints(table.ColT)[row] <= b.Ints(table.ColT)[row-1] {
			t.Error("time does not advance")
		}
		if l := b.Ints(table.ColRead)[row]; l < 0 || l > int64(time.Second) {
			t.Errorf("a read of %v", time.Duration(l))
		}
		if kind == table.GPUActivity {
			from, to := b.Ints(table.ColBegin)[row], b.Ints(table.ColT)[row]
			if to-from < int64(minWindow) {
				t.Errorf("a window of %v", time.Duration(to-from))
			}
			if row > 0 && from < b.Ints(table.ColT)[row-1] {
				t.Error("windows overlap")
			}
		}
		for c := first; c < len(kind.Columns); c++ {
			name := kind.Columns[c].Name
			if !b.Valid(c)[row] {
				continue
			}
			v := 0.0
			if kind.Columns[c].Type == table.Float32 {
				v = b.Floats(c)[row]
			} else {
				v = float64(b.Ints(c)[row])
			}
			if strings.HasSuffix(name, "_pct") && (v < 0 || v > maxPct) || v < minTemp {
				t.Errorf("%s is %g", name, v)
			}
		}
	}
	last := b.Rows() - 1
	var values []string
	for c := range kind.Columns {
		name, reason := kind.Columns[c].Name, out.reason(kind, c, fmt.Sprint(b.Ints(gpuColumn)[last]))
		if valid := b.Valid(c)[last]; !valid {
			values = append(values, name+"=null("+string(reason)+")")
			if reason == "" && (own == nil || slices.Contains(own, c)) && kind != table.GPUProcess {
				t.Errorf("%s is null without a reason", name)
			}
			continue
		}
		switch kind.Columns[c].Type {
		case table.String:
			values = append(values, name+"="+b.Strings(c)[last])
		case table.Float32:
			values = append(values, fmt.Sprintf("%s=%.4g", name, b.Floats(c)[last]))
		default:
			values = append(values, fmt.Sprintf("%s=%d", name, b.Ints(c)[last]))
		}
	}
	t.Log(strings.Join(values, " "))
}

// TestAnyGPUIgnoresVisibleDevices: what the job may use of a node's GPUs says
// nothing of what the sampler sees.
func TestAnyGPUIgnoresVisibleDevices(t *testing.T) {
	uuids := func() (all []string) {
		d := anyGPU(t, Options{})
		defer d.Close()
		for _, info := range d.Devices() {
			all = append(all, info.UUID)
		}
		return all
	}
	all := uuids()
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	if some := uuids(); !slices.Equal(some, all) {
		t.Errorf("with no visible devices %v, else %v", some, all)
	}
}

// TestAnyGPUReopen: a driver can be closed and opened again.
func TestAnyGPUReopen(t *testing.T) {
	for range 2 {
		d := anyGPU(t, Options{})
		out := newSink()
		var s rankagent.Source = newCheap(d.devices[0])
		read(t, s, out)
		if out.Batch(table.GPU).Rows() != 1 {
			t.Errorf("no row: %v", out.missing)
		}
		if err := d.Close(); err != nil {
			if strings.Contains(err.Error(), "hangs") {
				// With eight GPUs nvmlShutdown may take longer than a
				// job's end has time for; then it is left alone.
				t.Log(err)
				return
			}
			t.Error(err)
		}
	}
}

// BenchmarkAnyGPURead is what one tick of one GPU costs.
func BenchmarkAnyGPURead(b *testing.B) {
	d := anyGPU(b, Options{})
	out, s := newQuiet(), newCheap(d.devices[0])
	b.ReportAllocs()
	for b.Loop() {
		_ = s.Read(out)
	}
}

// BenchmarkAnyGPUSample is one GPM sample and its metrics; the window is too
// short for values, which does not change the cost.
func BenchmarkAnyGPUSample(b *testing.B) {
	d := anyGPU(b, Options{})
	if !d.Devices()[0].GPM {
		b.Skip("no GPM")
	}
	out, s := newQuiet(), newActivity(d.devices[0])
	readActivity(b, s, out)
	b.ReportAllocs()
	for b.Loop() {
		readActivity(b, s, out)
	}
}
