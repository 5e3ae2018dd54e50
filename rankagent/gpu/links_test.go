//go:build cgo && linux

package gpu

import (
	"slices"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// links0 opens the driver with the counters of each NVLink and returns GPU 0's
// source of them.
func links0(t *testing.T, script ...string) (*Driver, *links) {
	t.Helper()
	d := open(t, Options{NVLinks: true}, append(script, "gpus 2")...)
	s, ok := source(t, d, "nvlink 0").(*links)
	if !ok {
		t.Fatal("no source of links")
	}
	return d, s
}

// TestLinks: a row for each active link, whose bytes add up to those of all
// links of the GPU, and never without being asked for.
func TestLinks(t *testing.T) {
	for _, s := range open(t, Options{}, "gpus 1").Sources() {
		if _, ok := s.(*links); ok {
			t.Error("read without being asked for")
		}
	}
	d, s := links0(t, "start 125")
	out := newSink()
	energy := source(t, d, "energy 0")
	read(t, energy, out)
	read(t, s, out)
	out.skew = clock.NodeTime(time.Minute)
	if err := s.Finish(out); err != nil {
		t.Fatal(err)
	}
	read(t, energy, out)
	b := out.Batch(table.GPUNVLink)
	if b.Rows() != 2*18 {
		t.Fatalf("%d rows, want 18 of each reading", b.Rows())
	}
	for i := range 18 {
		if b.Ints(table.LinkLink)[i] != int64(i) || b.Ints(table.LinkGPU)[i] != 0 || b.Strings(table.LinkUUID)[i] != d.Devices()[0].UUID {
			t.Errorf("row %d: link %d of GPU %d", i, b.Ints(table.LinkLink)[i], b.Ints(table.LinkGPU)[i])
		}
		if !b.Valid(table.LinkTx)[i] || b.Valid(table.LinkReplay)[i] {
			t.Errorf("row %d: bytes %v, replays %v", i, b.Valid(table.LinkTx)[i], b.Valid(table.LinkReplay)[i])
		}
	}
	all := out.Batch(table.GPUCounter).Ints(table.CntNVLinkTx)
	for i, bytes := range [][]int64{b.Ints(table.LinkTx)[:18], b.Ints(table.LinkTx)[18:]} {
		sum := int64(0)
		for _, v := range bytes {
			sum += v
		}
		lo, hi := all[0], all[len(all)-1]
		if sum < lo-18*kib || sum > hi || sum <= 0 {
			t.Errorf("reading %d: links sent %d together, the GPU %d to %d", i, sum, lo, hi)
		}
	}
	if got := out.reason(table.GPUNVLink, table.LinkReplay, "0"); got != rankagent.NotSupported {
		t.Errorf("replays: %q", got)
	}
	if !slices.ContainsFunc(d.Plan(), func(c CallCost) bool { return c.Call == callLinks && c.Every != "" }) {
		t.Error("the plan does not have the call")
	}
}

// TestLinksBad: a counter that goes back, a driver that lacks it, a GPU without
// links, one that is lost: null with a reason, never a wrong number.
func TestLinksBad(t *testing.T) {
	_, s := links0(t)
	out := newSink()
	read(t, s, out)
	s.state[3][0].value += 1 << 50
	out.skew = clock.NodeTime(time.Minute)
	read(t, s, out)
	if v := out.Batch(table.GPUNVLink).Valid(table.LinkTx); !v[20] || v[21] || out.kinds() != EventCounterReset {
		t.Errorf("a counter that went back is there: %v, events %q", v[18:], out.kinds())
	}
	for fault, want := range map[string]rankagent.Reason{
		"fault nvmlDeviceGetFieldValues 0 return 3":  rankagent.NotSupported,
		"fault nvmlDeviceGetFieldValues 0 return 15": rankagent.DeviceLost,
		"fault nvmlDeviceGetFieldValues 0 return 4":  rankagent.NoPermission,
		"fault nvmlDeviceGetNvLinkState 0 value 0":   rankagent.NotFound,
		"fault nvmlDeviceGetNvLinkState 0 return 3":  rankagent.NotFound,
	} {
		_, s := links0(t, fault)
		out := newSink()
		read(t, s, out)
		if out.Batch(table.GPUNVLink).Rows() != 0 || out.reason(table.GPUNVLink, wholeRow, "0") != want {
			t.Errorf("%s: %d rows, %v", fault, out.Batch(table.GPUNVLink).Rows(), out.missing)
		}
	}
	_, s = links0(t, "fault field:138 0 value -1")
	out = newSink()
	read(t, s, out)
	if out.Batch(table.GPUNVLink).Valid(table.LinkTx)[0] || out.reason(table.GPUNVLink, table.LinkTx, "0") != rankagent.InvalidValue {
		t.Errorf("garbage: %v", out.missing)
	}
}
