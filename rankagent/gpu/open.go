//go:build cgo && linux

package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gswarm/gswarm/clock"
)

const (
	defaultInterval    = 100 * time.Millisecond
	defaultInitTimeout = 30 * time.Second
	// answerTimeout is how long Open waits for the GPUs once nvmlInit has
	// returned. One that takes longer is taken to hang; the others need not
	// wait for it.
	answerTimeout = 5 * time.Second
	// maxGPUs is far more than a node can have.
	maxGPUs = 1024
)

// Open loads and initialises NVML, finds the GPUs, probes what they support and
// measures what each call costs. Its error wraps ErrNoDriver where there is no
// driver to open. A GPU that fails or hangs is listed all the same and its
// sources say why they have no rows.
func Open(opts Options) (*Driver, error) {
	opts = opts.withDefaults()
	has, err := inspect(opts.LibraryPath)
	if err != nil {
		return nil, fmt.Errorf("opening NVML: %w: %w", ErrNoDriver, err)
	}
	d := &Driver{
		lib:      nvml.New(nvml.WithLibraryPath(opts.LibraryPath)),
		has:      has,
		clock:    opts.Clock,
		interval: opts.Interval,
		turn:     newTurns(), metrics: newTurns(),
		rankOf: opts.RankOf, holders: opts.Holders, processUtil: opts.ProcessUtil,
		perLink: opts.NVLinks,
	}
	count, err := d.init(opts.Timeout)
	if err != nil {
		return nil, err
	}
	timeout := min(opts.Timeout, answerTimeout)
	d.enumerate(count, timeout)
	d.describeAll(opts.Sysfs, timeout)
	d.selected = make([]bool, len(d.devices))
	for i := range d.devices {
		d.selected[i] = opts.Select == nil || opts.Select(d.infos[i])
	}
	for _, dev := range d.devices {
		b := &dev.shared.budget
		b.set(opts.Budget, opts.Interval)
		b.plan(dev.spends(dev.plan))
	}
	return d, nil
}

func (o Options) withDefaults() Options {
	if o.LibraryPath == "" {
		o.LibraryPath = defaultLibrary
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Budget == 0 {
		o.Budget = defaultBudget
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Timeout == 0 {
		o.Timeout = defaultInitTimeout
	}
	if o.Sysfs == "" {
		o.Sysfs = "/sys"
	}
	return o
}

// init calls nvmlInit, which may hang like any other call, and counts the GPUs.
func (d *Driver) init(timeout time.Duration) (int, error) {
	type result struct {
		init, counted nvml.Return
		count         int
	}
	done := make(chan result, 1)
	go func() {
		var r result
		if r.init = d.lib.Init(); r.init == nvml.SUCCESS {
			r.count, r.counted = d.lib.DeviceGetCount()
		}
		done <- r
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-done:
		switch {
		case r.init == nvml.ERROR_DRIVER_NOT_LOADED, r.init == nvml.ERROR_LIBRARY_NOT_FOUND, r.init == nvml.ERROR_GPU_NOT_FOUND:
			return 0, fmt.Errorf("opening NVML: %w: nvmlInit: %s", ErrNoDriver, text(r.init))
		case r.init != nvml.SUCCESS:
			return 0, fmt.Errorf("opening NVML: nvmlInit: %s", text(r.init))
		case r.counted != nvml.SUCCESS:
			_ = d.Close()
			return 0, fmt.Errorf("opening NVML: nvmlDeviceGetCount: %s", text(r.counted))
		case r.count < 0 || r.count > maxGPUs:
			_ = d.Close()
			return 0, fmt.Errorf("opening NVML: the driver counts %d GPUs", r.count)
		}
		return r.count, nil
	case <-timer.C:
		return 0, fmt.Errorf("opening NVML: nvmlInit did not return within %v", timeout)
	}
}

// each calls work for 0 to n-1, each in a goroutine of its own, and deliver
// with the results as they come, in the caller's goroutine. What has not come
// by the timeout is left to itself and late is called for it instead.
func each[T any](d *Driver, n int, timeout time.Duration, work func(i int) T, deliver func(i int, v T), late func(i int)) {
	type result struct {
		i int
		v T
	}
	results := make(chan result, n)
	for i := range n {
		go func() {
			if d.gate.enter() {
				defer d.gate.leave()
				results <- result{i, work(i)}
			}
		}()
	}
	waiting := make(map[int]bool, n)
	for i := range n {
		waiting[i] = true
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for len(waiting) > 0 {
		select {
		case r := <-results:
			delete(waiting, r.i)
			deliver(r.i, r.v)
		case <-timer.C:
			for i := range n {
				if waiting[i] {
					late(i)
				}
			}
			return
		}
	}
}

// enumerate finds the GPUs and puts them in the order of their PCI bus ids;
// those that do not say theirs come last.
func (d *Driver) enumerate(count int, timeout time.Duration) {
	devices := make([]*device, count)
	each(d, count, timeout,
		func(i int) *device {
			dev := &device{driver: d, nvmlIndex: i, shared: &physical{}}
			dev.failure = dev.identify()
			return dev
		},
		func(i int, dev *device) { devices[i] = dev },
		func(i int) {
			devices[i] = &device{driver: d, nvmlIndex: i, failure: nvml.ERROR_TIMEOUT, shared: &physical{}}
		})
	devices = append(devices, d.instances(devices, timeout)...)
	slices.SortStableFunc(devices, func(a, b *device) int {
		x, y := a.id.Load(), b.id.Load()
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return cmp.Or(slices.Compare(x.pci[:], y.pci[:]), a.rankInGPU()-b.rankInGPU())
	})
	for i, dev := range devices {
		dev.setIndex(i)
	}
	d.devices = devices
}

// describeAll fills in what Devices and Plan return.
func (d *Driver) describeAll(sysfs string, timeout time.Duration) {
	n := len(d.devices)
	d.infos = make([]Info, n)
	costs := make([][]CallCost, n)
	ids := make([]*identity, n)
	for i, dev := range d.devices {
		ids[i] = dev.id.Load()
	}
	each(d, n, timeout,
		func(i int) description { return d.devices[i].describe(ids, sysfs) },
		func(i int, r description) { d.infos[i], costs[i] = r.info, r.costs },
		func(i int) {
			info := Info{Index: i, Missing: map[string]string{"all": fmt.Sprintf("did not answer within %v", timeout)}}
			if id := ids[i]; id != nil {
				info.UUID, info.PCIBusID = id.uuid, id.busID
			}
			d.infos[i] = info
		})
	for i, dev := range d.devices {
		dev.memory = d.infos[i].MemoryBytes
		dev.plan = costs[i]
	}
}
