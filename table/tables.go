package table

// Indexes of the columns of the gpu table.
const (
	GPUIndex = iota + 2
	GPUUUID
	GPUUtil
	GPUUtilMem
	GPUMemUsed
	GPUTemp
	GPUTempMem
	GPUClockSM
	GPUClockMem
	GPUEventReasons
	GPUPState
	GPUPowerAvg
	GPUPowerNow
)

// GPU is the cheap set: what the driver answers in microseconds.
var GPU = &Table{
	Name: "gpu", Shape: Polled, Cadence: "base tick (100 ms by default)",
	Doc:  "The readings of each GPU that cost the driver next to nothing.",
	Keys: []string{"gpu"},
	Columns: polled(
		Column{Name: "gpu", Type: Int32, Required: true, Source: "PCI bus order", Doc: "Ordinal of the GPU by PCI bus id among the node's GPUs that the run saw."},
		Column{Name: "gpu_uuid", Type: String, Required: true, Source: "nvmlDeviceGetUUID", Doc: "The GPU's identity, the same under every index."},
		Column{Name: "util_gpu_pct", Type: Int32, Unit: "percent", Window: "1/6 s to 1 s before the read, set by the driver", Source: "nvmlDeviceGetUtilizationRates", Cost: "0.5 us", GPUs: "all; not MIG instances", Doc: "Share of the window in which at least one kernel was resident; not how much of the GPU it used."},
		Column{Name: "util_mem_pct", Type: Int32, Unit: "percent", Window: "1/6 s to 1 s before the read, set by the driver", Source: "nvmlDeviceGetUtilizationRates", Cost: "with util_gpu_pct", GPUs: "all; not MIG instances", Doc: "Share of the window in which device memory was read or written."},
		Column{Name: "mem_used_bytes", Type: Int64, Unit: "bytes", Window: "instant", Source: "nvmlDeviceGetMemoryInfo_v2", Cost: "4 us", GPUs: "all", Doc: "Device memory in use, without what the driver reserves for itself."},
		Column{Name: "temp_c", Type: Int32, Unit: "degrees Celsius", Window: "instant", Source: "nvmlDeviceGetTemperature", Cost: "0.5 us", GPUs: "all", Doc: "GPU core temperature."},
		Column{Name: "temp_mem_c", Type: Int32, Unit: "degrees Celsius", Window: "instant", Source: "NVML_FI_DEV_MEMORY_TEMP", Cost: "0.4 us", GPUs: "with HBM", Doc: "Device memory temperature."},
		Column{Name: "clock_sm_mhz", Type: Int32, Unit: "MHz", Window: "instant", Source: "nvmlDeviceGetClockInfo(SM)", Cost: "0.6 us", GPUs: "all", Doc: "Current SM clock."},
		Column{Name: "clock_mem_mhz", Type: Int32, Unit: "MHz", Window: "instant", Source: "nvmlDeviceGetClockInfo(MEM)", Cost: "0.5 us", GPUs: "all", Doc: "Current memory clock."},
		Column{Name: "event_reasons", Type: Int64, Unit: "bit mask", Window: "instant", Source: "nvmlDeviceGetCurrentClocksEventReasons", Cost: "0.6 us", GPUs: "all", Doc: "Why the clocks are not at their highest, as the driver's bit mask (nvmlClocksEventReasons)."},
		Column{Name: "pstate", Type: Int32, Window: "instant", Source: "nvmlDeviceGetPerformanceState", Cost: "0.5 us", GPUs: "all", Doc: "Performance state, 0 is the highest."},
		Column{Name: "power_avg_mw", Type: Int32, Unit: "mW", Window: "1 s before the read on Ampere and later", Age: "100 ms", Source: "nvmlDeviceGetPowerUsage", Cost: "0.3 us", GPUs: "all; not MIG instances", Doc: "Board power, averaged by the driver."},
		Column{Name: "power_now_mw", Type: Int32, Unit: "mW", Window: "instant", Age: "100 ms", Source: "NVML_FI_DEV_POWER_INSTANT", Cost: "0.4 us", GPUs: "driver 525 and later; not MIG instances", Doc: "Board power at the driver's last refresh."},
	),
}

// Indexes of the columns of the gpu_activity table.
const (
	ActGPU = iota + 3
	ActUUID
	ActSMUtil
	ActSMOccupancy
	ActTensor
	ActDRAM
	ActFP64
	ActFP32
	ActFP16
	ActPCIeTx
	ActPCIeRx
	ActNVLinkTx
	ActNVLinkRx
)

// GPUActivity is what GPM measures between two samples.
var GPUActivity = &Table{
	Name: "gpu_activity", Shape: Windowed, Cadence: "back to back, at least 110 ms each",
	Doc:  "Averages over each window of what the GPU's units did; Hopper and later.",
	Keys: []string{"gpu"},
	Columns: windowed(
		Column{Name: "gpu", Type: Int32, Required: true, Source: "PCI bus order", Doc: "Ordinal of the GPU by PCI bus id among the node's GPUs that the run saw."},
		Column{Name: "gpu_uuid", Type: String, Required: true, Source: "nvmlDeviceGetUUID", Doc: "The GPU's identity, the same under every index."},
		Column{Name: "sm_active_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 2 SM_UTIL", Cost: "50 us for the sample, 100 us for all columns", GPUs: "Hopper and later", Doc: "Average share of SMs that had a warp resident."},
		Column{Name: "sm_occupancy_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 3 SM_OCCUPANCY", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "Average share of warp slots in use."},
		Column{Name: "tensor_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 5 ANY_TENSOR_UTIL", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "Average share of cycles in which a tensor pipe was busy."},
		Column{Name: "dram_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 10 DRAM_BW_UTIL", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "Share of the peak device memory bandwidth."},
		Column{Name: "fp64_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 11 FP64_UTIL", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "Share of cycles in which the FP64 pipe was busy, tensor pipes apart."},
		Column{Name: "fp32_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 12 FP32_UTIL", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "Share of cycles in which the FP32 pipe was busy."},
		Column{Name: "fp16_pct", Type: Float32, Unit: "percent", Window: "the row's", Source: "GPM 13 FP16_UTIL", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "Share of cycles in which the FP16 pipe was busy, tensor pipes apart."},
		Column{Name: "pcie_tx_mib_s", Type: Float32, Unit: "MiB/s", Window: "the row's", Source: "GPM 20 PCIE_TX_PER_SEC", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "PCIe traffic sent by the GPU."},
		Column{Name: "pcie_rx_mib_s", Type: Float32, Unit: "MiB/s", Window: "the row's", Source: "GPM 21 PCIE_RX_PER_SEC", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "PCIe traffic received by the GPU."},
		Column{Name: "nvlink_tx_mib_s", Type: Float32, Unit: "MiB/s", Window: "the row's", Source: "GPM 61 NVLINK_TOTAL_TX_PER_SEC", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "NVLink traffic sent by the GPU, all links."},
		Column{Name: "nvlink_rx_mib_s", Type: Float32, Unit: "MiB/s", Window: "the row's", Source: "GPM 60 NVLINK_TOTAL_RX_PER_SEC", Cost: "with sm_active_pct", GPUs: "Hopper and later", Doc: "NVLink traffic received by the GPU, all links."},
	),
}

// Indexes of the columns of the host table.
const (
	HostCPUUser = iota + 2
	HostCPUNice
	HostCPUSystem
	HostCPUIdle
	HostCPUIOWait
	HostCPUIRQ
	HostCPUSoftIRQ
	HostCPUSteal
	HostContextSwitches
	HostInterrupts
	HostForks
	HostProcsRunning
	HostProcsBlocked
	HostLoad1
	HostMemTotal
	HostMemFree
	HostMemAvailable
	HostMemCached
	HostMemDirty
	HostSwapUsed
	HostPSICPUSome
	HostPSIMemSome
	HostPSIMemFull
	HostPSIIOSome
	HostPSIIOFull
)

// Host is the node as a whole, as the kernel counts it.
var Host = &Table{
	Name: "host", Shape: Polled, Cadence: "1 s",
	Doc: "CPU time by mode, memory, pressure, load, soft interrupts and TCP of the whole node.",
	Columns: polled(append([]Column{
		cpuTime("cpu_user_ns", "in user mode"),
		cpuTime("cpu_nice_ns", "in user mode at low priority"),
		cpuTime("cpu_system_ns", "in kernel mode"),
		cpuTime("cpu_idle_ns", "idle"),
		cpuTime("cpu_iowait_ns", "idle with I/O outstanding"),
		cpuTime("cpu_irq_ns", "serving interrupts"),
		cpuTime("cpu_softirq_ns", "serving soft interrupts"),
		cpuTime("cpu_steal_ns", "taken by the hypervisor"),
		{Name: "context_switches_count", Type: Int64, Unit: "count", Window: "since boot", Source: "/proc/stat ctxt", Doc: "Context switches of all CPUs."},
		{Name: "interrupts_count", Type: Int64, Unit: "count", Window: "since boot", Source: "/proc/stat intr", Doc: "Interrupts served."},
		{Name: "forks_count", Type: Int64, Unit: "count", Window: "since boot", Source: "/proc/stat processes", Doc: "Processes and threads created."},
		{Name: "procs_running_count", Type: Int32, Unit: "count", Window: "instant", Source: "/proc/stat procs_running", Doc: "Runnable threads."},
		{Name: "procs_blocked_count", Type: Int32, Unit: "count", Window: "instant", Source: "/proc/stat procs_blocked", Doc: "Threads waiting for I/O."},
		{Name: "load1", Type: Float32, Window: "1 min, exponentially weighted", Source: "/proc/loadavg", Doc: "Load average of one minute."},
		memory("mem_total_bytes", "MemTotal", "Memory that the kernel manages."),
		memory("mem_free_bytes", "MemFree", "Memory that nothing uses."),
		memory("mem_available_bytes", "MemAvailable", "Memory that programs could get without swapping."),
		memory("mem_cached_bytes", "Cached", "Page cache."),
		memory("mem_dirty_bytes", "Dirty", "Page cache waiting to be written."),
		memory("swap_used_bytes", "SwapTotal-SwapFree", "Swap in use."),
		pressure("psi_cpu_some_ns", "cpu", "some", "some task waited for a CPU"),
		pressure("psi_mem_some_ns", "memory", "some", "some task waited for memory"),
		pressure("psi_mem_full_ns", "memory", "full", "every task waited for memory"),
		pressure("psi_io_some_ns", "io", "some", "some task waited for I/O"),
		pressure("psi_io_full_ns", "io", "full", "every task waited for I/O"),
	}, hostMore()...)...),
}

func cpuTime(name, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: "ns", Window: "since boot", Age: "10 ms", Source: "/proc/stat cpu", Doc: "Time that all CPUs together spent " + doc + "."}
}

func memory(name, field, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: "bytes", Window: "instant", Source: "/proc/meminfo " + field, Doc: doc}
}

func pressure(name, file, line, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: "ns", Window: "since boot", Age: "2 s", Source: "/proc/pressure/" + file + " " + line, Doc: "Time in which " + doc + "."}
}

func counter(name, unit, source, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: unit, Window: "since boot", Source: source, Doc: doc}
}

// Indexes of the columns of the net table.
const (
	NetDevice = iota + 2
	NetRxBytes
	NetTxBytes
	NetRxPackets
	NetTxPackets
	NetRxErrors
	NetTxErrors
	NetRxDropped
	NetTxDropped
)

// Net is one row for each network interface but the loopback.
var Net = &Table{
	Name: "net", Shape: Polled, Cadence: "1 s",
	Doc:  "Counters of each network interface.",
	Keys: []string{"device"},
	Columns: polled(
		Column{Name: "device", Type: String, Required: true, Source: "/proc/net/dev", Doc: "Interface name."},
		counter("rx_bytes", "bytes", "/proc/net/dev", "Bytes received."),
		counter("tx_bytes", "bytes", "/proc/net/dev", "Bytes sent."),
		counter("rx_packets_count", "count", "/proc/net/dev", "Packets received."),
		counter("tx_packets_count", "count", "/proc/net/dev", "Packets sent."),
		counter("rx_errors_count", "count", "/proc/net/dev", "Receive errors."),
		counter("tx_errors_count", "count", "/proc/net/dev", "Transmit errors."),
		counter("rx_dropped_count", "count", "/proc/net/dev", "Received packets dropped."),
		counter("tx_dropped_count", "count", "/proc/net/dev", "Packets dropped before they were sent."),
	),
}

// Indexes of the columns of the disk table.
const (
	DiskDevice = iota + 2
	DiskReads
	DiskReadBytes
	DiskReadTime
	DiskWrites
	DiskWriteBytes
	DiskWriteTime
	DiskInFlight
	DiskBusy
	DiskQueueTime
	DiskDiscards
	DiskDiscardBytes
	DiskFlushes
	DiskFlushTime
)

// Disk is one row for each whole block device.
var Disk = &Table{
	Name: "disk", Shape: Polled, Cadence: "1 s",
	Doc:  "Counters of each block device, NVMe included; partitions are left out.",
	Keys: []string{"device"},
	Columns: polled(
		Column{Name: "device", Type: String, Required: true, Source: "/proc/diskstats", Doc: "Device name."},
		counter("reads_count", "count", "/proc/diskstats", "Reads completed."),
		counter("read_bytes", "bytes", "/proc/diskstats", "Bytes read."),
		counter("read_time_ns", "ns", "/proc/diskstats", "Time that all reads took, added up."),
		counter("writes_count", "count", "/proc/diskstats", "Writes completed."),
		counter("write_bytes", "bytes", "/proc/diskstats", "Bytes written."),
		counter("write_time_ns", "ns", "/proc/diskstats", "Time that all writes took, added up."),
		Column{Name: "in_flight_count", Type: Int32, Unit: "count", Window: "instant", Source: "/proc/diskstats", Doc: "Requests under way."},
		counter("busy_ns", "ns", "/proc/diskstats", "Time in which at least one request was under way."),
		counter("queue_time_ns", "ns", "/proc/diskstats", "Time that all requests took together: its growth over time is the length of the queue."),
		counter("discards_count", "count", "/proc/diskstats", "Discards completed."),
		counter("discard_bytes", "bytes", "/proc/diskstats", "Bytes discarded."),
		counter("flushes_count", "count", "/proc/diskstats", "Flushes of the device's cache completed."),
		counter("flush_time_ns", "ns", "/proc/diskstats", "Time that all flushes took, added up."),
	),
}

// Indexes of the columns of the event table.
const (
	EventKind = iota + 2
	EventGPU
	EventRank
	EventDetail
)

// Event is what happened, one row a happening.
var Event = &Table{
	Name: "event", Shape: Polled, Cadence: "as it happens",
	Doc:  "What happened on the node: starts and ends, signals, losses, faults of the sampler.",
	Keys: []string{"kind", "gpu", "rank"},
	Columns: polled(
		Column{Name: "kind", Type: String, Required: true, Source: "gswarm", Doc: "What happened; docs/format.md lists the kinds."},
		Column{Name: "gpu", Type: Int32, Source: "gswarm", Doc: "The GPU it happened to, if one."},
		Column{Name: "rank", Type: Int32, Source: "launcher's environment", Doc: "The world rank it happened to, if one."},
		Column{Name: "detail", Type: String, Source: "gswarm", Doc: "More about it, as a JSON object."},
	),
}

// Indexes of the columns of the absence table.
const (
	AbsTable = iota + 3
	AbsColumn
	AbsKey
	AbsReason
	AbsDetail
)

// Absence says why values are missing.
var Absence = &Table{
	Name: "absence", Shape: Windowed, Cadence: "as it happens",
	Doc:  "Why values or rows are missing, from when to when.",
	Keys: []string{"table_name", "column_name", "key"},
	Columns: windowed(
		Column{Name: "table_name", Type: String, Required: true, Source: "gswarm", Doc: "The table that lacks something."},
		Column{Name: "column_name", Type: String, Source: "gswarm", Doc: "The column that is null; null where whole rows are missing."},
		Column{Name: "key", Type: String, Source: "gswarm", Doc: "The key's value (a GPU's ordinal, a device) that is concerned; null for all."},
		Column{Name: "reason", Type: String, Required: true, Source: "gswarm", Doc: "A reason code; docs/format.md lists them."},
		Column{Name: "detail", Type: String, Source: "gswarm", Doc: "The error's text."},
	),
}

// Indexes of the columns of the clock_exchange table.
const (
	ExPeer = iota + 2
	ExBurst
	ExSeq
	ExMethod
	ExT1
	ExT2
	ExT3
	ExT4
)

// ClockExchange is one exchange of time stamps with another node.
var ClockExchange = &Table{
	Name: "clock_exchange", Shape: Polled, Cadence: "bursts of 8, about one a second",
	Doc:  "The four stamps of each exchange with another node: this node sends at t1 and receives at t4, the peer receives at t2 and answers at t3.",
	Keys: []string{"peer"},
	Columns: polled(
		Column{Name: "peer", Type: String, Required: true, Source: "gswarm", Doc: "The node that answered."},
		Column{Name: "burst", Type: Int64, Required: true, Source: "gswarm", Doc: "Number of the burst, counted by this node."},
		Column{Name: "seq", Type: Int32, Required: true, Source: "gswarm", Doc: "Number of the exchange within the burst."},
		Column{Name: "method", Type: String, Required: true, Source: "gswarm", Doc: "Where the stamps were taken: \"user\" in the program, \"kernel\" by the kernel."},
		Column{Name: "t1_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW of this node", Doc: "Before the request was sent."},
		Column{Name: "t2_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW of the peer", Doc: "After the peer received it."},
		Column{Name: "t3_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW of the peer", Doc: "Before the peer sent its answer."},
		Column{Name: "t4_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW of this node", Doc: "After the answer was received."},
	),
}

// Indexes of the columns of the clock_bracket table.
const (
	BrRaw0 = iota + 2
	BrRaw1
	BrRealtime
	BrMonotonic
	BrBoottime
	BrAdjStatus
	BrAdjMaxError
	BrAdjEstError
	BrAdjFreq
	BrTAIOffset
	BrClocksource
)

// ClockBracket is the node's clocks read together.
var ClockBracket = &Table{
	Name: "clock_bracket", Shape: Polled, Cadence: "1 s and around every burst",
	Doc: "The node's clocks read between two reads of the raw clock, with what the kernel says of its own synchronisation.",
	Columns: polled(
		Column{Name: "raw0_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Raw clock before the others were read."},
		Column{Name: "raw1_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC_RAW", Doc: "Raw clock after the others were read."},
		Column{Name: "realtime_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_REALTIME", Doc: "Wall clock, nanoseconds since the Unix epoch."},
		Column{Name: "monotonic_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_MONOTONIC", Doc: "Monotonic clock, which NTP slews."},
		Column{Name: "boottime_ns", Type: Int64, Unit: "ns", Required: true, Window: "instant", Source: "CLOCK_BOOTTIME", Doc: "Monotonic clock that counts suspended time."},
		Column{Name: "adj_status", Type: Int64, Unit: "bit mask", Window: "instant", Source: "adjtimex status", Doc: "The kernel's clock status bits (STA_UNSYNC, STA_INS, ...)."},
		Column{Name: "adj_maxerror_ns", Type: Int64, Unit: "ns", Window: "instant", Source: "adjtimex maxerror", Doc: "The largest error that the time daemon vouches for."},
		Column{Name: "adj_esterror_ns", Type: Int64, Unit: "ns", Window: "instant", Source: "adjtimex esterror", Doc: "The error that the time daemon estimates."},
		Column{Name: "adj_freq", Type: Int64, Unit: "ppm scaled by 65536", Window: "instant", Source: "adjtimex freq", Doc: "The frequency correction in force."},
		Column{Name: "tai_offset_s", Type: Int32, Unit: "s", Window: "instant", Source: "adjtimex tai", Doc: "TAI minus UTC as the kernel knows it; 0 where nobody set it."},
		Column{Name: "clocksource", Type: String, Source: "/sys/devices/system/clocksource/clocksource0/current_clocksource", Doc: "The device by which the kernel counts time; read once a second, null in the brackets around bursts."},
	),
}

// Indexes of the columns of the sampler table.
const (
	SamSource = iota + 3
	SamDue
	SamDone
	SamLate
	SamLateMax
	SamWall
	SamCPU
	SamRows
	SamAgentCPU
	SamAgentRSS
	SamSpoolBytes
	SamDroppedRows
)

// Sampler is what the observer cost.
var Sampler = &Table{
	Name: "sampler", Shape: Windowed, Cadence: "1 s",
	Doc:  "What each source of the agent did in the window and what it cost.",
	Keys: []string{"source"},
	Columns: windowed(
		Column{Name: "source", Type: String, Required: true, Source: "gswarm", Doc: "The source; \"agent\" for the process as a whole."},
		Column{Name: "ticks_due_count", Type: Int64, Unit: "count", Window: "the row's", Source: "gswarm", Doc: "Ticks that were due."},
		Column{Name: "ticks_done_count", Type: Int64, Unit: "count", Window: "the row's", Source: "gswarm", Doc: "Ticks that were read."},
		Column{Name: "ticks_late_count", Type: Int64, Unit: "count", Window: "the row's", Source: "gswarm", Doc: "Ticks that began more than a tenth of the interval late."},
		Column{Name: "late_max_ns", Type: Int64, Unit: "ns", Window: "the row's", Source: "gswarm", Doc: "The worst lateness."},
		Column{Name: "wall_ns", Type: Int64, Unit: "ns", Window: "the row's", Source: "gswarm", Doc: "Wall time spent reading."},
		Column{Name: "cpu_ns", Type: Int64, Unit: "ns", Window: "the row's", Source: "CLOCK_THREAD_CPUTIME_ID", Doc: "CPU time spent reading."},
		Column{Name: "rows_count", Type: Int64, Unit: "count", Window: "the row's", Source: "gswarm", Doc: "Rows delivered."},
		Column{Name: "agent_cpu_ns", Type: Int64, Unit: "ns", Window: "since the agent's start", Source: "getrusage", Doc: "CPU time of the whole agent; on the row of source \"agent\"."},
		Column{Name: "agent_rss_bytes", Type: Int64, Unit: "bytes", Window: "instant", Source: "/proc/self/statm", Doc: "Resident memory of the agent; on the row of source \"agent\"."},
		Column{Name: "spool_bytes", Type: Int64, Unit: "bytes", Window: "since the agent's start", Source: "gswarm", Doc: "Bytes written to the spool; on the row of source \"agent\"."},
		Column{Name: "dropped_rows_count", Type: Int64, Unit: "count", Window: "since the agent's start", Source: "gswarm", Doc: "Rows that could not be kept; on the row of source \"agent\"."},
	),
}
