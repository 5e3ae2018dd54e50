//go:build cgo && linux

package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxInstances is more MIG instances than a GPU can be cut into.
const maxInstances = 64

// instances finds the MIG instances of the GPUs that are cut into some. One
// that this process may not use does not answer and is left out, like a GPU
// whose device node it cannot open.
func (d *Driver) instances(gpus []*device, timeout time.Duration) []*device {
	if !d.has[fnMIG] || !d.has[fnMIGCount] || !d.has[fnMIGHandle] || !d.has[fnMIGInstance] {
		return nil
	}
	found := make([][]*device, len(gpus))
	each(d, len(gpus), timeout,
		func(i int) []*device { return gpus[i].instances() },
		func(i int, devs []*device) { found[i] = devs },
		func(int) {})
	var all []*device
	for _, devs := range found {
		all = append(all, devs...)
	}
	return all
}

func (dev *device) instances() []*device {
	id := dev.id.Load()
	if id == nil {
		return nil
	}
	mode, _, ret := id.handle.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	n, ret := id.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var all []*device
	for i := range min(max(n, 0), maxInstances) {
		instance := &device{driver: dev.driver, parent: dev, migIndex: i, shared: dev.shared}
		if instance.failure = instance.identifyMIG(); instance.failure == nvml.SUCCESS {
			all = append(all, instance)
		}
	}
	return all
}

// identifyMIG asks the GPU for its instance. An instance that was destroyed and
// made anew is another one: its UUID tells.
func (dev *device) identifyMIG() nvml.Return {
	parent := dev.parent.id.Load()
	if parent == nil {
		return nvml.ERROR_GPU_IS_LOST
	}
	handle, ret := parent.handle.GetMigDeviceHandleByIndex(dev.migIndex)
	if ret != nvml.SUCCESS {
		return ret
	}
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS {
		return ret
	}
	gi, ret := handle.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return ret
	}
	switch old := dev.id.Load(); {
	case old == nil:
		dev.gpuInstance = gi // nobody reads it yet
	case old.uuid != uuid || dev.gpuInstance != gi:
		return nvml.ERROR_NOT_FOUND
	}
	dev.id.Store(&identity{handle: handle, uuid: uuid, busID: parent.busID, pci: parent.pci})
	return nvml.SUCCESS
}

// rankInGPU orders a GPU before its instances, and those by their number.
func (dev *device) rankInGPU() int {
	if dev.parent == nil {
		return 0
	}
	return 1 + dev.migIndex
}
