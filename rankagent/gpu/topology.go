//go:build cgo && linux

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// activeLinks returns the GPU's active NVLinks.
func (dev *device) activeLinks(id *identity) (active []int) {
	if !dev.driver.has[fnNVLinkState] {
		return nil
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := id.handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break // links that a GPU lacks are the last ones
		}
		if state == nvml.FEATURE_ENABLED {
			active = append(active, link)
		}
	}
	return active
}

// topology says how the GPU reaches each of the others: over how many NVLinks,
// else over which part of the PCI tree.
func (dev *device) topology(id *identity, all []*identity, links int) []string {
	if len(all) < 2 {
		return nil
	}
	direct, switched := dev.linkEnds(id, links)
	out := make([]string, len(all))
	for i, other := range all {
		switch {
		case i == dev.index:
			out[i] = "X"
		case other == nil:
			out[i] = "?"
		case direct[other.pci] > 0:
			out[i] = fmt.Sprintf("NV%d", direct[other.pci])
		case switched > 0:
			out[i] = fmt.Sprintf("NV%d", switched)
		default:
			out[i] = dev.ancestor(id, other)
		}
	}
	return out
}

// linkEnds counts the active links that end at each other GPU and those that
// end at a switch, through which every GPU of the node can be reached.
func (dev *device) linkEnds(id *identity, links int) (direct map[[3]uint32]int, switched int) {
	has := dev.driver.has
	direct = map[[3]uint32]int{}
	if links == 0 || !has[fnNVLinkRemoteType] || !has[fnNVLinkRemotePCI] {
		return direct, 0
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := id.handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		kind, ret := id.handle.GetNvLinkRemoteDeviceType(link)
		if ret != nvml.SUCCESS {
			continue
		}
		switch kind {
		case nvml.NVLINK_DEVICE_TYPE_SWITCH:
			switched++
		case nvml.NVLINK_DEVICE_TYPE_GPU:
			if pci, ret := id.handle.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
				direct[[3]uint32{pci.Domain, pci.Bus, pci.Device}]++
			}
		}
	}
	return direct, switched
}

// ancestor names what two GPUs share in the PCI tree as nvidia-smi does.
func (dev *device) ancestor(id, other *identity) string {
	if !dev.driver.has[fnAncestor] {
		return "?"
	}
	level, ret := id.handle.GetTopologyCommonAncestor(other.handle)
	if ret != nvml.SUCCESS {
		return "?"
	}
	switch level {
	case nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE:
		return "PIX"
	case nvml.TOPOLOGY_MULTIPLE:
		return "PXB"
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return "PHB"
	case nvml.TOPOLOGY_NODE:
		return "NODE"
	case nvml.TOPOLOGY_SYSTEM:
		return "SYS"
	}
	return "?"
}
