// Package gpu reads the node's NVIDIA GPUs through NVML.
//
// It is the only importer of go-nvml and the only place where the driver is
// called. nvmlInit happens in Open and nowhere else, so only the agent's
// process ever holds the driver. Without cgo the package is a stub that knows
// no driver.
//
// Rows leave as the driver gave them: a value that is missing or cannot be
// true becomes null with a reason, never a sentinel.
package gpu

import (
	"errors"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// ErrNoDriver is what Open's error wraps where the node has no NVIDIA driver
// that can be used: a laptop, a login node, a container without the library.
var ErrNoDriver = errors.New("no NVIDIA driver")

// Options says how Open uses the driver. The zero value is what a job wants.
type Options struct {
	// LibraryPath is the NVML library; empty means libnvidia-ml.so.1 by the
	// dynamic linker's own search. A path is never taken from the
	// environment, which the job inherits.
	LibraryPath string
	// Clock stamps the rows' windows and measures the calls; nil means the
	// machine's own.
	Clock clock.Source
	// Interval is the agent's base interval; 0 means 100 ms. GPM windows
	// are never shorter than it.
	Interval time.Duration
	// Select says which GPUs get sources; nil means all. The others are
	// listed by Devices and keep their ordinals.
	Select func(Info) bool
	// Budget is how much driver time each GPU may cost per base interval,
	// averaged over a minute; 0 means 0.5 ms. It is kept by reading less
	// often.
	Budget time.Duration
	// ProcessUtil asks for the SM use of each process, which costs 2.5 ms.
	ProcessUtil bool
	// NVLinks asks for the counters of each NVLink, which cost a millisecond
	// each.
	NVLinks bool
	// RankOf returns the rank of a process, -1 where it is none of the job's;
	// nil where nobody knows.
	RankOf func(pid int) int
	// Holders is told which processes hold a GPU whenever the driver was
	// asked, from any goroutine; may be nil.
	Holders func(gpu int, pids []int)
	// Timeout is how long Open waits for nvmlInit and again for the GPUs;
	// 0 means 30 s, since without persistence mode the driver starts each
	// GPU at the first call.
	Timeout time.Duration
	// Sysfs is where sysfs is mounted; empty means /sys.
	Sysfs string
}

// Info describes one GPU for meta.yaml. A field that the driver did not answer
// is left out, and Missing says why.
type Info struct {
	// Index is the ordinal by PCI bus id among the GPUs that can be seen.
	Index         int    `yaml:"gpu" json:"gpu"`
	UUID          string `yaml:"uuid,omitempty" json:"uuid,omitempty"`
	PCIBusID      string `yaml:"pci_bus_id,omitempty" json:"pci_bus_id,omitempty"`
	Name          string `yaml:"name,omitempty" json:"name,omitempty"`
	Architecture  string `yaml:"architecture,omitempty" json:"architecture,omitempty"`
	DriverVersion string `yaml:"driver_version,omitempty" json:"driver_version,omitempty"`
	VBIOS         string `yaml:"vbios,omitempty" json:"vbios,omitempty"`
	MemoryBytes   int64  `yaml:"memory_bytes,omitempty" json:"memory_bytes,omitempty"`
	// MemoryBusBits and MemoryClockMaxMHz are the width and the highest clock of
	// the bus to the GPU's memory: its peak bandwidth is two transfers a clock.
	MemoryBusBits     int64 `yaml:"memory_bus_bits,omitempty" json:"memory_bus_bits,omitempty"`
	MemoryClockMaxMHz int64 `yaml:"memory_clock_max_mhz,omitempty" json:"memory_clock_max_mhz,omitempty"`
	// ClockSMMaxMHz is the highest clock of the SMs.
	ClockSMMaxMHz int64 `yaml:"clock_sm_max_mhz,omitempty" json:"clock_sm_max_mhz,omitempty"`
	PowerLimitMW  int64 `yaml:"power_limit_mw,omitempty" json:"power_limit_mw,omitempty"`
	// NUMANode is nil where the kernel knows none.
	NUMANode *int `yaml:"numa_node,omitempty" json:"numa_node,omitempty"`
	// MIG is "enabled", "disabled", or empty where the GPU has no such mode.
	MIG string `yaml:"mig,omitempty" json:"mig,omitempty"`
	// Parent is the UUID of the GPU that a MIG instance is part of, and
	// GPUInstance its number there.
	Parent      string `yaml:"mig_parent,omitempty" json:"mig_parent,omitempty"`
	GPUInstance *int   `yaml:"mig_gpu_instance,omitempty" json:"mig_gpu_instance,omitempty"`
	// NVLinks is the number of active NVLinks.
	NVLinks int `yaml:"nvlinks,omitempty" json:"nvlinks,omitempty"`
	// Topology is the way to every GPU in the order of Devices, in the
	// words of nvidia-smi: "X" for itself, "NV18", "PIX", "NODE", "SYS".
	Topology []string `yaml:"topology,omitempty,flow" json:"topology,omitempty"`
	// GPM says whether two live samples gave metrics. The driver's own
	// answer to the question is not trusted: it promises GPM in guests
	// where every sample fails.
	GPM bool `yaml:"gpm" json:"gpm"`
	// Missing says, by field, why the driver did not answer.
	Missing map[string]string `yaml:"missing,omitempty" json:"missing,omitempty"`
}

// CallCost is what one driver call took on one GPU when Open tried it, and how
// often it is made for that.
type CallCost struct {
	Call string `yaml:"call" json:"call"`
	GPU  int    `yaml:"gpu" json:"gpu"`
	// FirstNS is the first call, in which the driver may make ready what it
	// needs; MedianNS and MaxNS are over the Tries calls that followed.
	FirstNS  int64 `yaml:"first_ns" json:"first_ns"`
	MedianNS int64 `yaml:"median_ns" json:"median_ns"`
	MaxNS    int64 `yaml:"max_ns" json:"max_ns"`
	// CPUNS is the median of the CPU time that they took.
	CPUNS int64 `yaml:"cpu_ns" json:"cpu_ns"`
	Tries int   `yaml:"tries" json:"tries"`
	// RecentNS is what it has cost of late, a running mean.
	RecentNS int64 `yaml:"recent_ns,omitempty" json:"recent_ns,omitempty"`
	// Every is the time between two calls as it is now.
	Every string `yaml:"every,omitempty" json:"every,omitempty"`
	// Error is how the last try ended where it failed.
	Error string `yaml:"error,omitempty" json:"error,omitempty"`
}

// The kinds of events that the sources record.
const (
	EventLost = "gpu_lost" // the GPU fell off the bus or needs a reset
	EventBack = "gpu_back" // it answers again

	EventFenced        = "gpu_fenced"        // a call hangs: no further ones
	EventReturned      = "gpu_call_returned" // the call that hung came back; the fence stays
	EventCallSlow      = "gpu_call_slow"     // a call has become dear and is made less often
	EventCallRestored  = "gpu_call_restored" // it is made as planned again
	EventSlowed        = "sampling_slowed"   // the budget is exceeded: everything dear is read less often
	EventRestored      = "sampling_restored" // there is room for more again
	EventCounterReset  = "gpu_counter_reset" // a counter went back
	EventProcessStart  = "gpu_process_start" // a process holds the GPU
	EventProcessEnd    = "gpu_process_end"   // it does no longer
	EventXid           = "xid"               // the driver reports an error of the GPU
	EventThrottleBegin = "throttle_begin"    // something keeps the clocks down
	EventThrottleEnd   = "throttle_end"      // it has not for a second
	EventClockDrop     = "clock_drop"        // the SM clock fell by a tenth while the GPU works
	EventClockBack     = "clock_back"        // it is back
)

// missingInterval is how often Missing repeats itself.
const missingInterval = 10 * time.Second

// Missing returns a source that says why there are no GPU rows: it stands in
// for a driver's sources where Open failed.
func Missing(err error) rankagent.Source {
	reason := rankagent.SourceError
	if errors.Is(err, ErrNoDriver) {
		reason = rankagent.NoDriver
	}
	return &missing{reason: reason, detail: err.Error()}
}

type missing struct {
	reason rankagent.Reason
	detail string
}

func (*missing) Name() string            { return "gpu" }
func (*missing) Interval() time.Duration { return missingInterval }
func (*missing) Close() error            { return nil }

func (m *missing) Read(out rankagent.Out) error {
	for _, t := range []*table.Table{table.GPU, table.GPUActivity, table.GPUPower, table.GPUCounter, table.GPUProcess} {
		out.Absent(t, "", "", m.reason, m.detail)
	}
	return nil
}
