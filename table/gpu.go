package table

// gpuColumns are the key columns that every GPU table begins with.
func gpuColumns(own ...Column) []Column {
	return append([]Column{
		{Name: "gpu", Type: Int32, Required: true, Source: "PCI bus order", Doc: "Ordinal of the GPU by PCI bus id among the node's GPUs that the run saw; MIG instances follow their GPU."},
		{Name: "gpu_uuid", Type: String, Required: true, Source: "nvmlDeviceGetUUID", Doc: "The GPU's identity, the same under every index."},
	}, own...)
}

// Indexes of the columns of the gpu_power table.
const (
	PowGPU = iota + 2
	PowUUID
	PowStamp
	PowPower
)

// GPUPower is the driver's own buffer of power readings.
var GPUPower = &Table{
	Name: "gpu_power", Shape: Polled, Cadence: "about 20 ms, as the driver samples; one call a second fetches them",
	Doc:     "Board power as the driver sampled it, each sample once. In the timeline the time is the driver's stamp; in shards t_raw_ns and read_ns are the call that delivered it. A stretch that the driver's buffer had lost before it was fetched is a row of absence.",
	Keys:    []string{"gpu"},
	Foreign: Foreign{Column: "t_driver_us", Clock: Realtime, UnitNS: 1000},
	Columns: polled(gpuColumns(
		Column{Name: "t_driver_us", Type: Int64, Unit: "us", Required: true, Window: "instant", Source: "nvmlDeviceGetSamples(TOTAL_POWER)", Rate: "20 ms", Doc: "The driver's stamp of the sample: microseconds of the node's CLOCK_REALTIME since the Unix epoch."},
		Column{Name: "power_mw", Type: Int32, Unit: "mW", Window: "about 20 ms before the stamp, set by the driver", Source: "nvmlDeviceGetSamples(TOTAL_POWER)", Rate: "20 ms", Cost: "300 us for all samples of a second", GPUs: "Kepler and later; not MIG instances", Doc: "Board power."},
	)...),
}

// Indexes of the columns of the gpu_counter table.
const (
	CntGPU = iota + 2
	CntUUID
	CntEnergy
	CntNVLinkTx
	CntNVLinkRx
	CntNVLinkReplay
	CntNVLinkRecovery
	CntNVLinkCRC
	CntPCIeReplay
	CntECCCorrected
	CntECCUncorrected
	CntRemappedCorrected
	CntRemappedUncorrected
	CntThrottlePower
	CntThrottleSync
	CntThrottleSWThermal
	CntThrottleHWThermal
	CntThrottleHWBrake
)

const (
	everySecond = "1 s, begin and end"
	seldom      = "10 s, begin and end"
	sinceLoad   = "since the driver was loaded"
)

// GPUCounter is what only ever grows.
var GPUCounter = &Table{
	Name: "gpu_counter", Shape: Polled, Cadence: "1 s for cheap counters, 10 s for dear ones, at the begin and at the end",
	Doc:  "Counters as the driver gives them, exact. Dear and cheap counters are read apart, in rows of their own: the columns of the other kind are null there.",
	Keys: []string{"gpu"},
	Columns: polled(gpuColumns(
		Column{Name: "energy_mj", Type: Int64, Unit: "mJ", Window: sinceLoad, Age: "100 ms: the driver refreshes it no faster", Source: "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Rate: seldom, Cost: "3.2 ms", GPUs: "Volta and later; not MIG instances", Doc: "Energy that the board has used."},
		Column{Name: "nvlink_tx_bytes", Type: Int64, Unit: "bytes", Window: sinceLoad, Source: "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, all links", Rate: seldom, Cost: "1.1 ms", GPUs: "with NVLink; not MIG instances", Doc: "Payload sent over all NVLinks; the driver counts in KiB."},
		Column{Name: "nvlink_rx_bytes", Type: Int64, Unit: "bytes", Window: sinceLoad, Source: "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, all links", Rate: seldom, Cost: "1.1 ms", GPUs: "with NVLink; not MIG instances", Doc: "Payload received over all NVLinks; the driver counts in KiB."},
		Column{Name: "nvlink_replay_count", Type: Int64, Unit: "count", Window: sinceLoad, Source: "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", Rate: seldom, GPUs: "with NVLink", Doc: "NVLink transmissions repeated."},
		Column{Name: "nvlink_recovery_count", Type: Int64, Unit: "count", Window: sinceLoad, Source: "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", Rate: seldom, GPUs: "with NVLink", Doc: "NVLink recoveries."},
		Column{Name: "nvlink_crc_count", Type: Int64, Unit: "count", Window: sinceLoad, Source: "NVML_FI_DEV_NVLINK_ERROR_DL_CRC", Rate: seldom, GPUs: "with NVLink", Doc: "NVLink checksum errors."},
		Column{Name: "pcie_replay_count", Type: Int64, Unit: "count", Window: sinceLoad, Source: "NVML_FI_DEV_PCIE_REPLAY_COUNTER", Rate: everySecond, Cost: "150 us", GPUs: "all; not MIG instances", Doc: "PCIe transmissions repeated."},
		Column{Name: "ecc_corrected_count", Type: Int64, Unit: "count", Window: sinceLoad, Source: "nvmlDeviceGetTotalEccErrors(CORRECTED, VOLATILE)", Rate: everySecond, Cost: "0.7 us", GPUs: "with ECC on", Doc: "Memory errors that were corrected."},
		Column{Name: "ecc_uncorrected_count", Type: Int64, Unit: "count", Window: sinceLoad, Source: "nvmlDeviceGetTotalEccErrors(UNCORRECTED, VOLATILE)", Rate: everySecond, Cost: "0.7 us", GPUs: "with ECC on", Doc: "Memory errors that could not be corrected."},
		Column{Name: "remapped_corrected_count", Type: Int64, Unit: "count", Window: "the GPU's life", Source: "nvmlDeviceGetRemappedRows", Rate: everySecond, GPUs: "Ampere and later data centre GPUs", Doc: "Memory rows replaced after corrected errors."},
		Column{Name: "remapped_uncorrected_count", Type: Int64, Unit: "count", Window: "the GPU's life", Source: "nvmlDeviceGetRemappedRows", Rate: everySecond, GPUs: "Ampere and later data centre GPUs", Doc: "Memory rows replaced after uncorrected errors."},
		Column{Name: "throttle_power_ns", Type: Int64, Unit: "ns", Window: sinceLoad, Source: "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP", Rate: everySecond, GPUs: "by driver", Doc: "Time in which the power limit kept the clocks down."},
		Column{Name: "throttle_sync_ns", Type: Int64, Unit: "ns", Window: sinceLoad, Source: "NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST", Rate: everySecond, GPUs: "by driver", Doc: "Time in which another GPU of the sync boost group kept the clocks down."},
		Column{Name: "throttle_sw_thermal_ns", Type: Int64, Unit: "ns", Window: sinceLoad, Source: "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", Rate: everySecond, GPUs: "driver 560 and later", Doc: "Time in which the driver kept the clocks down for temperature."},
		Column{Name: "throttle_hw_thermal_ns", Type: Int64, Unit: "ns", Window: sinceLoad, Source: "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", Rate: everySecond, GPUs: "driver 560 and later", Doc: "Time in which the GPU itself kept the clocks down for temperature."},
		Column{Name: "throttle_hw_brake_ns", Type: Int64, Unit: "ns", Window: sinceLoad, Source: "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", Rate: everySecond, GPUs: "driver 560 and later", Doc: "Time in which an outside power brake kept the clocks down."},
	)...),
}

// Indexes of the columns of the gpu_nvlink table.
const (
	LinkGPU = iota + 2
	LinkUUID
	LinkLink
	LinkTx
	LinkRx
	LinkReplay
	LinkRecovery
	LinkCRC
)

// GPUNVLink is the counters of each NVLink.
var GPUNVLink = &Table{
	Name: "gpu_nvlink", Shape: Polled, Cadence: "10 s, at the begin and at the end; only with --nvlink-per-link",
	Doc:  "Counters of each active NVLink of each GPU, exact, as gpu_counter has them for all links of a GPU together.",
	Keys: []string{"gpu", "link"},
	Columns: polled(gpuColumns(
		Column{Name: "link", Type: Int32, Required: true, Source: "nvmlDeviceGetNvLinkState", Doc: "The link, as the driver numbers those of a GPU."},
		linkColumn("tx_bytes", "bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "Payload sent over the link; the driver counts in KiB."),
		linkColumn("rx_bytes", "bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", "Payload received over the link; the driver counts in KiB."),
		linkColumn("replay_count", "count", "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", "Transmissions repeated."),
		linkColumn("recovery_count", "count", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", "Recoveries of the link."),
		linkColumn("crc_count", "count", "NVML_FI_DEV_NVLINK_ERROR_DL_CRC", "Checksum errors."),
	)...),
}

func linkColumn(name, unit, field, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: unit, Window: sinceLoad, Source: field + " of the link", Rate: seldom, GPUs: "with NVLink; not MIG instances", Doc: doc}
}

// Indexes of the columns of the gpu_process table.
const (
	ProcGPU = iota + 2
	ProcUUID
	ProcPID
	ProcRank
	ProcMemUsed
	ProcSMUtil
)

// GPUProcess says who holds a GPU.
var GPUProcess = &Table{
	Name: "gpu_process", Shape: Polled, Cadence: "10 s, and within a second of a change of the GPU's memory in use",
	Doc:  "The compute processes that hold a GPU. Events gpu_process_start and gpu_process_end say when one came and went.",
	Keys: []string{"gpu", "pid"},
	Columns: polled(gpuColumns(
		Column{Name: "pid", Type: Int32, Required: true, Source: "nvmlDeviceGetComputeRunningProcesses", Rate: "10 s and on change", Cost: "9 us, 80 us under load", GPUs: "all", Doc: "The process, by its number outside of containers."},
		Column{Name: "rank", Type: Int32, Source: "the process's environment", Rate: "10 s and on change", Doc: "Its world rank; null where it is no rank of this job or does not say."},
		Column{Name: "mem_used_bytes", Type: Int64, Unit: "bytes", Window: "instant", Source: "nvmlDeviceGetComputeRunningProcesses", Rate: "10 s and on change", GPUs: "all; refused to others than the owner on some MIG set-ups", Doc: "Device memory that the process holds."},
		Column{Name: "sm_util_pct", Type: Int32, Unit: "percent", Window: "since the process list was read last", Source: "nvmlDeviceGetProcessUtilization", Rate: "only with --gpu-process-util", Cost: "2.5 ms", GPUs: "Maxwell and later; not under MIG", Doc: "SM time of the process, as the driver samples it."},
	)...),
}
