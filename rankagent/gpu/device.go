//go:build cgo && linux

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// identity is what a GPU is addressed by. A GPU that was lost may come back
// under another handle.
type identity struct {
	handle nvml.Device
	uuid   string
	busID  string
	pci    [3]uint32 // domain, bus, device
}

// device is one GPU. Two sources read it from goroutines of their own; all but
// id is set before they exist.
type device struct {
	driver    *Driver
	nvmlIndex int
	index     int         // ordinal by PCI bus id
	key       string      // the ordinal as the absence table has it
	memory    int64       // 0 where the GPU did not say
	failure   nvml.Return // why it had not said who it is when Open asked
	// parent is the GPU that a MIG instance is part of, nil for a GPU, and
	// gpuInstance its number there; migIndex is what it is asked for by.
	parent                *device
	migIndex, gpuInstance int
	// shared is what the GPU has in common with its MIG instances.
	shared *physical
	// costs is what each call took when Open tried it.
	costs map[string]CallCost
	plan  []CallCost // the same, in order
	// lanes are those of its sources; Sources fills them.
	lanes []*lane
	// memUsed is what the cheap set read last.
	memUsed atomic.Int64
	// id is nil as long as the GPU has not said who it is.
	id atomic.Pointer[identity]
}

func (dev *device) setIndex(i int) {
	dev.index, dev.key = i, strconv.Itoa(i)
}

// identify asks the GPU who it is: by its PCI slot where that is known, since a
// look-up by UUID would have the driver ask every GPU of the node, else by its
// index, which holds until nvmlShutdown.
func (dev *device) identify() nvml.Return {
	if dev.parent != nil {
		return dev.identifyMIG()
	}
	lib, has := dev.driver.lib, dev.driver.has
	var handle nvml.Device
	var ret nvml.Return
	if old := dev.id.Load(); old != nil && old.busID != "" && has[fnHandleByPCI] {
		handle, ret = lib.DeviceGetHandleByPciBusId(old.busID)
	} else {
		handle, ret = lib.DeviceGetHandleByIndex(dev.nvmlIndex)
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS {
		return ret
	}
	id := &identity{handle: handle, uuid: uuid}
	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		id.busID = busID(pci)
		id.pci = [3]uint32{pci.Domain, pci.Bus, pci.Device}
	}
	dev.id.Store(id)
	return nvml.SUCCESS
}

// busID returns the bus id as nvidia-smi writes it.
func busID(pci nvml.PciInfo) string {
	return fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
}

type description struct {
	info  Info
	costs []CallCost
}

// describe asks everything that does not change and tries every call that the
// sources will make.
func (dev *device) describe(all []*identity, sysfs string) description {
	info := Info{Index: dev.index}
	id := dev.id.Load()
	if id == nil {
		info.Missing = map[string]string{"all": text(dev.failure)}
		return description{info: info}
	}
	info.UUID, info.PCIBusID = id.uuid, id.busID
	if dev.parent != nil {
		gi := dev.gpuInstance
		info.Parent, info.GPUInstance = dev.parent.uuid(), &gi
	}
	dev.describeStatic(id, &info, sysfs)
	info.NVLinks = len(dev.activeLinks(id))
	info.Topology = dev.topology(id, all, info.NVLinks)
	costs, gpm, why := dev.try(id)
	if len(dev.costs) == 0 {
		dev.costs = map[string]CallCost{}
	}
	for _, c := range costs {
		dev.costs[c.Call] = c
	}
	info.GPM = gpm
	if !gpm {
		info.missing("gpm", why)
	}
	return description{info: info, costs: costs}
}

func (i *Info) missing(field, why string) {
	if i.Missing == nil {
		i.Missing = map[string]string{}
	}
	i.Missing[field] = why
}

func (dev *device) describeStatic(id *identity, info *Info, sysfs string) {
	has, lib, h := dev.driver.has, dev.driver.lib, id.handle
	// ask runs one call where the driver has it, and keeps why it failed.
	ask := func(f function, field string, call func() nvml.Return) {
		ret := nvml.ERROR_FUNCTION_NOT_FOUND
		if has[f] {
			ret = call()
		}
		if ret != nvml.SUCCESS {
			info.missing(field, text(ret))
		}
	}
	ask(fnName, "name", func() (ret nvml.Return) {
		info.Name, ret = h.GetName()
		return ret
	})
	ask(fnDriverVersion, "driver_version", func() (ret nvml.Return) {
		info.DriverVersion, ret = lib.SystemGetDriverVersion()
		return ret
	})
	ask(fnVBIOS, "vbios", func() (ret nvml.Return) {
		info.VBIOS, ret = h.GetVbiosVersion()
		return ret
	})
	ask(fnArchitecture, "architecture", func() nvml.Return {
		arch, ret := h.GetArchitecture()
		if ret == nvml.SUCCESS {
			info.Architecture = architecture(arch)
		}
		return ret
	})
	ask(fnMemory, "memory_bytes", func() nvml.Return {
		m, ret := h.GetMemoryInfo_v2()
		if ret == nvml.SUCCESS && m.Total <= maxMemory {
			info.MemoryBytes = int64(m.Total)
		}
		return ret
	})
	ask(fnBusWidth, "memory_bus_bits", func() nvml.Return {
		bits, ret := h.GetMemoryBusWidth()
		if ret == nvml.SUCCESS && bits <= maxBusBits {
			info.MemoryBusBits = int64(bits)
		}
		return ret
	})
	for _, c := range []struct {
		field string
		clock nvml.ClockType
		to    *int64
	}{
		{"memory_clock_max_mhz", nvml.CLOCK_MEM, &info.MemoryClockMaxMHz},
		{"clock_sm_max_mhz", nvml.CLOCK_SM, &info.ClockSMMaxMHz},
	} {
		ask(fnMaxClock, c.field, func() nvml.Return {
			mhz, ret := h.GetMaxClockInfo(c.clock)
			if ret == nvml.SUCCESS && mhz <= maxMHz {
				*c.to = int64(mhz)
			}
			return ret
		})
	}
	ask(fnPowerLimit, "power_limit_mw", func() nvml.Return {
		mw, ret := h.GetEnforcedPowerLimit()
		if ret == nvml.SUCCESS && mw <= maxPowerMW {
			info.PowerLimitMW = int64(mw)
		}
		return ret
	})
	ask(fnMIG, "mig", func() nvml.Return {
		current, _, ret := h.GetMigMode()
		if ret == nvml.SUCCESS {
			info.MIG = "disabled"
			if current == nvml.DEVICE_MIG_ENABLE {
				info.MIG = "enabled"
			}
		}
		return ret
	})
	if node, ok := numaFromSysfs(sysfs, id); ok {
		info.NUMANode = &node
		return
	}
	// Only GPUs that share the host's memory have a node of their own.
	ask(fnNUMA, "numa_node", func() nvml.Return {
		node, ret := h.GetNumaNodeId()
		if ret == nvml.SUCCESS && node >= 0 && node < 1<<16 {
			info.NUMANode = &node
		}
		return ret
	})
}

// numaFromSysfs returns the NUMA node that the GPU's slot belongs to. The
// kernel says -1 where it does not know.
func numaFromSysfs(sysfs string, id *identity) (int, bool) {
	name := fmt.Sprintf("%04x:%02x:%02x.0", id.pci[0], id.pci[1], id.pci[2])
	b, err := os.ReadFile(filepath.Join(sysfs, "bus/pci/devices", name, "numa_node"))
	if err != nil {
		return 0, false
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return node, err == nil && node >= 0
}

func architecture(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_KEPLER:
		return "Kepler"
	case nvml.DEVICE_ARCH_MAXWELL:
		return "Maxwell"
	case nvml.DEVICE_ARCH_PASCAL:
		return "Pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "Volta"
	case nvml.DEVICE_ARCH_TURING:
		return "Turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "Ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "Ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "Hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "Blackwell"
	}
	return fmt.Sprintf("architecture %d", uint32(a))
}
