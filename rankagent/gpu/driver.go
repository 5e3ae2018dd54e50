//go:build cgo && linux

package gpu

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
)

// errClosed is what a source returns whose driver has been closed.
var errClosed = errors.New("NVML is closed")

// Close waits this long for reads in progress, then again for nvmlShutdown;
// together they stay under the 100 ms that the end of a job may take.
const (
	drainTimeout    = 40 * time.Millisecond
	shutdownTimeout = 40 * time.Millisecond
)

// Driver is NVML, initialised once. Devices, Plan and Sources may be called
// from any goroutine; go-nvml keeps state of its own beside the library, so a
// process opens one Driver at a time.
type Driver struct {
	lib      nvml.Interface
	has      *exports
	clock    clock.Source
	interval time.Duration
	devices  []*device
	selected []bool
	infos    []Info
	plan     []CallCost
	gate     gate
}

// Devices returns all GPUs that the driver shows to this process, in order of
// their PCI bus ids. CUDA_VISIBLE_DEVICES has no say in it; a device cgroup
// has.
func (d *Driver) Devices() []Info { return d.infos }

// Plan returns what each call cost on each GPU when Open tried it.
func (d *Driver) Plan() []CallCost { return d.plan }

// Sources returns new sources for the selected GPUs: for each one for the
// cheap set and one for GPM. They know nothing of each other, so that a call
// that hangs holds up its own source only.
func (d *Driver) Sources() []rankagent.Source {
	var all []rankagent.Source
	for i, dev := range d.devices {
		if d.selected[i] {
			all = append(all, newCheap(dev))
		}
	}
	for i, dev := range d.devices {
		if d.selected[i] {
			all = append(all, newActivity(dev))
		}
	}
	return all
}

// Close ends NVML. It returns within 100 ms: where a read is stuck in the
// driver it leaves NVML as it is, for the end of the process to clean up. A
// second Close does nothing.
func (d *Driver) Close() error {
	if d.gate.closed.Swap(true) {
		return nil
	}
	if !d.gate.drain(d.clock, drainTimeout) {
		return errors.New("closing NVML: a call is still stuck in the driver; left as it is")
	}
	done := make(chan nvml.Return, 1)
	go func() { done <- d.lib.Shutdown() }()
	timer := time.NewTimer(shutdownTimeout)
	defer timer.Stop()
	select {
	case ret := <-done:
		if ret != nvml.SUCCESS {
			return errors.New("closing NVML: nvmlShutdown: " + text(ret))
		}
		return nil
	case <-timer.C:
		return errors.New("closing NVML: nvmlShutdown hangs; left as it is")
	}
}

// gate knows how many goroutines are in the driver and turns newcomers away
// once it is closed.
type gate struct {
	inside atomic.Int64
	closed atomic.Bool
}

// enter must be followed by leave where it returns true.
func (g *gate) enter() bool {
	g.inside.Add(1)
	if g.closed.Load() {
		g.inside.Add(-1)
		return false
	}
	return true
}

func (g *gate) leave() { g.inside.Add(-1) }

// drain says whether everyone was out within the timeout.
func (g *gate) drain(c clock.Source, timeout time.Duration) bool {
	deadline := c.Now() + clock.NodeTime(timeout)
	for g.inside.Load() != 0 {
		if c.Now() >= deadline {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}
