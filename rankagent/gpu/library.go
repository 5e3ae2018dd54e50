//go:build cgo && linux

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

const defaultLibrary = "libnvidia-ml.so.1"

// function is an NVML function that the package calls, or a choice between
// versions of it that go-nvml makes by itself.
type function int

const (
	fnShutdown function = iota
	fnCount
	fnHandle
	fnHandleByPCI
	fnUUID
	fnPCI
	fnName
	fnDriverVersion
	fnVBIOS
	fnArchitecture
	fnBusWidth
	fnMaxClock
	fnPowerLimit
	fnMIG
	fnNUMA
	fnMemory
	fnNVLinkState
	fnNVLinkRemoteType
	fnNVLinkRemotePCI
	fnAncestor
	fnUtilization
	fnTemperature
	fnClock
	fnEventReasons
	fnThrottleReasons
	fnPState
	fnPower
	fnFields
	fnGPMAlloc
	fnGPMFree
	fnGPMGet
	fnGPMMetrics
	fnGPMMIGGet
	fnSamples
	fnEnergy
	fnECC
	fnRemapped
	fnProcesses
	fnProcessUtil
	fnEventSet
	fnEventTypes
	fnEventRegister
	fnEventWait
	fnMIGCount
	fnMIGHandle
	fnMIGInstance
	functions
)

// symbols holds, for each function, the names it goes by; one of them is
// enough.
var symbols = [functions][]string{
	fnShutdown:         {"nvmlShutdown"},
	fnCount:            {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	fnHandle:           {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	fnHandleByPCI:      {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"},
	fnUUID:             {"nvmlDeviceGetUUID"},
	fnPCI:              {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
	fnName:             {"nvmlDeviceGetName"},
	fnDriverVersion:    {"nvmlSystemGetDriverVersion"},
	fnVBIOS:            {"nvmlDeviceGetVbiosVersion"},
	fnArchitecture:     {"nvmlDeviceGetArchitecture"},
	fnBusWidth:         {"nvmlDeviceGetMemoryBusWidth"},
	fnMaxClock:         {"nvmlDeviceGetMaxClockInfo"},
	fnPowerLimit:       {"nvmlDeviceGetEnforcedPowerLimit"},
	fnMIG:              {"nvmlDeviceGetMigMode"},
	fnNUMA:             {"nvmlDeviceGetNumaNodeId"},
	fnMemory:           {"nvmlDeviceGetMemoryInfo_v2"},
	fnNVLinkState:      {"nvmlDeviceGetNvLinkState"},
	fnNVLinkRemoteType: {"nvmlDeviceGetNvLinkRemoteDeviceType"},
	fnNVLinkRemotePCI:  {"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"},
	fnAncestor:         {"nvmlDeviceGetTopologyCommonAncestor"},
	fnUtilization:      {"nvmlDeviceGetUtilizationRates"},
	fnTemperature:      {"nvmlDeviceGetTemperature"},
	fnClock:            {"nvmlDeviceGetClockInfo"},
	fnEventReasons:     {"nvmlDeviceGetCurrentClocksEventReasons"},
	fnThrottleReasons:  {"nvmlDeviceGetCurrentClocksThrottleReasons"},
	fnPState:           {"nvmlDeviceGetPerformanceState"},
	fnPower:            {"nvmlDeviceGetPowerUsage"},
	fnFields:           {"nvmlDeviceGetFieldValues"},
	fnGPMAlloc:         {"nvmlGpmSampleAlloc"},
	fnGPMFree:          {"nvmlGpmSampleFree"},
	fnGPMGet:           {"nvmlGpmSampleGet"},
	fnGPMMetrics:       {"nvmlGpmMetricsGet"},
	fnGPMMIGGet:        {"nvmlGpmMigSampleGet"},
	fnSamples:          {"nvmlDeviceGetSamples"},
	fnEnergy:           {"nvmlDeviceGetTotalEnergyConsumption"},
	fnECC:              {"nvmlDeviceGetTotalEccErrors"},
	fnRemapped:         {"nvmlDeviceGetRemappedRows"},
	fnProcesses:        {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"},
	fnProcessUtil:      {"nvmlDeviceGetProcessUtilization"},
	fnEventSet:         {"nvmlEventSetCreate"},
	fnEventTypes:       {"nvmlDeviceGetSupportedEventTypes"},
	fnEventRegister:    {"nvmlDeviceRegisterEvents"},
	fnEventWait:        {"nvmlEventSetWait_v2", "nvmlEventSetWait"},
	fnMIGCount:         {"nvmlDeviceGetMaxMigDeviceCount"},
	fnMIGHandle:        {"nvmlDeviceGetMigDeviceHandleByIndex"},
	fnMIGInstance:      {"nvmlDeviceGetGpuInstanceId"},
}

// exports says which functions a driver has. go-nvml calls through lazily
// bound symbols, and binding one that the library lacks ends the process: no
// function is called that was not found here first. A process that is bound at
// its start (LD_BIND_NOW in its environment, or linked with -z now) ends before
// main: whoever starts the agent removes the variable.
type exports [functions]bool

// inspect loads the library to see what it exports. It stays loaded: go-nvml
// loads the same one, and a library that calls have been bound to cannot be
// unloaded anyway.
func inspect(path string) (*exports, error) {
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := lib.Open(); err != nil {
		return nil, err
	}
	has := func(names ...string) bool {
		for _, name := range names {
			if lib.Lookup(name) == nil {
				return true
			}
		}
		return false
	}
	if !has("nvmlInit_v2", "nvmlInit") {
		return nil, fmt.Errorf("%s has no nvmlInit", path)
	}
	var e exports
	for f, names := range symbols {
		e[f] = has(names...)
	}
	for _, need := range []function{fnShutdown, fnCount, fnHandle, fnUUID, fnPCI} {
		if !e[need] {
			return nil, fmt.Errorf("%s has no %s", path, symbols[need][0])
		}
	}
	return &e, nil
}
