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
	// rankOf, holders, processUtil and perLink are as in Options.
	rankOf      func(pid int) int
	holders     func(gpu int, pids []int)
	processUtil bool
	perLink     bool
	gate        gate
	// turn is whose GPU is tried, metrics whose GPM metrics are computed.
	turn, metrics turns
}

// Devices returns all GPUs that the driver shows to this process, in order of
// their PCI bus ids. CUDA_VISIBLE_DEVICES has no say in it; a device cgroup
// has.
func (d *Driver) Devices() []Info { return d.infos }

// Plan returns what each call cost on each GPU when Open tried it and of late,
// and how often it is made now.
func (d *Driver) Plan() []CallCost {
	var plan []CallCost
	for _, dev := range d.devices {
		at := len(plan)
		plan = append(plan, dev.plan...)
		dev.showPlan(plan[at:])
	}
	return plan
}

// Sources returns new sources for the selected GPUs, one for each kind of
// reading of each GPU, and two for all of them: what the driver tells of its own
// accord, and a watch. A call that hangs holds up its own source only, and has
// the watch fence off its GPU.
func (d *Driver) Sources() []rankagent.Source {
	var all []rankagent.Source
	each := func(f func(dev *device) rankagent.Source) {
		for i, dev := range d.devices {
			if d.selected[i] {
				if s := f(dev); s != nil {
					all = append(all, s)
				}
			}
		}
	}
	whole := func(f func(dev *device) rankagent.Source) func(dev *device) rankagent.Source {
		return func(dev *device) rankagent.Source {
			if dev.parent != nil {
				return nil // a MIG instance has none of its own
			}
			return f(dev)
		}
	}
	for _, dev := range d.devices {
		dev.lanes = nil
	}
	each(func(dev *device) rankagent.Source { return newCheap(dev) })
	each(func(dev *device) rankagent.Source { return newActivity(dev) })
	each(whole(func(dev *device) rankagent.Source { return newPower(dev) }))
	each(whole(func(dev *device) rankagent.Source { return newCounters(dev) }))
	each(whole(func(dev *device) rankagent.Source { return newEnergy(dev) }))
	each(func(dev *device) rankagent.Source { return newProcesses(dev) })
	if d.perLink {
		each(whole(func(dev *device) rankagent.Source { return newLinks(dev) }))
	}
	return append(all, newEvents(d), newWatch(d))
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
