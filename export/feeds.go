package export

import "github.com/gswarm/gswarm/table"

// metric is a series of numbers made from a table's columns.
type metric struct {
	// name and unit are for people.
	name, unit string
	// columns are added up and multiplied by scale.
	columns []string
	scale   float64
	// rate says that the columns count: the value is their growth a second.
	rate bool
}

// feed is a table whose rows make series, for each thing that its rows tell of.
type feed struct {
	table *table.Table
	// thing is the column that tells the table's things of one node apart,
	// empty where the node is the thing.
	thing string
	// group is the name of the thing's tracks, before its own.
	group string
	// life is a column with whose change counters begin anew.
	life string
	// only says which rows count, by the value of a column.
	only equal
	// order places the metrics among those of other feeds of the thing.
	order   int
	metrics []metric
}

// equal is a column and the value that it has.
type equal struct{ column, value string }

// The names of groups of tracks, before the thing's own.
const (
	groupGPU    = "GPU "
	groupRank   = "rank "
	groupDevice = ""
)

const (
	giB  = 1.0 / (1 << 30)
	mb   = 1e-6
	miB  = (1 << 20) * 1e-9 // MiB/s to GB/s
	watt = 1e-3
	us   = 1e-3
	ns   = 1e-9
)

// level is a metric of one column.
func level(column, name, unit string, scale float64) metric {
	return metric{name: name, unit: unit, columns: []string{column}, scale: scale}
}

// percent is a level between 0 and 100.
func percent(column, name string) metric {
	return metric{name: name, unit: "%", columns: []string{column}, scale: 1}
}

// rate is the growth of counters a second.
func rate(name, unit string, scale float64, columns ...string) metric {
	return metric{name: name, unit: unit, columns: columns, scale: scale, rate: true}
}

// gpuFeeds are what is shown of a GPU.
func gpuFeeds() []feed {
	return []feed{
		{table: table.GPUActivity, thing: "gpu", group: groupGPU, metrics: []metric{
			percent("sm_active_pct", "SMs active"),
			percent("sm_occupancy_pct", "SM occupancy"),
			percent("tensor_pct", "tensor cores"),
			percent("dram_pct", "device memory bandwidth"),
			percent("fp64_pct", "FP64"),
			percent("fp32_pct", "FP32"),
			percent("fp16_pct", "FP16"),
			level("nvlink_tx_mib_s", "NVLink sent", "GB/s", miB),
			level("nvlink_rx_mib_s", "NVLink received", "GB/s", miB),
			level("pcie_tx_mib_s", "PCIe sent", "GB/s", miB),
			level("pcie_rx_mib_s", "PCIe received", "GB/s", miB),
		}},
		{table: table.GPU, thing: "gpu", group: groupGPU, order: 20, metrics: []metric{
			percent("util_gpu_pct", "a kernel resident"),
			level("mem_used_bytes", "memory used", "GiB", giB),
			level("power_avg_mw", "power, average of 1 s", "W", watt),
			level("clock_sm_mhz", "SM clock", "MHz", 1),
			level("clock_mem_mhz", "memory clock", "MHz", 1),
			level("temp_c", "temperature", "°C", 1),
			level("temp_mem_c", "memory temperature", "°C", 1),
		}},
		{table: table.GPUPower, thing: "gpu", group: groupGPU, order: 40, metrics: []metric{
			level("power_mw", "power", "W", watt),
		}},
	}
}

// hostFeeds are what is shown of a node and its ranks.
func hostFeeds() []feed {
	return []feed{
		{table: table.Host, metrics: []metric{
			level(table.TimeBound, "alignment ±", "us", us),
			rate("CPUs in use", "CPUs", ns, "cpu_user_ns", "cpu_nice_ns", "cpu_system_ns", "cpu_irq_ns", "cpu_softirq_ns", "cpu_steal_ns"),
			rate("CPUs waiting for I/O", "CPUs", ns, "cpu_iowait_ns"),
			level("procs_running_count", "runnable threads", "threads", 1),
			level("mem_available_bytes", "memory available", "GiB", giB),
			rate("pressure: CPU, some", "%", ns*100, "psi_cpu_some_ns"),
			rate("pressure: memory, some", "%", ns*100, "psi_mem_some_ns"),
			rate("pressure: I/O, some", "%", ns*100, "psi_io_some_ns"),
		}},
		{table: table.Rank, thing: "rank", group: groupRank, life: "pid", only: equal{"role", "rank"}, metrics: []metric{
			rate("CPUs in use", "CPUs", ns, "cpu_user_ns", "cpu_system_ns"),
			rate("ready, waiting for a CPU", "%", ns*100, "run_delay_ns"),
			level("rss_bytes", "resident memory", "GiB", giB),
			rate("read from storage", "MB/s", mb, "read_bytes"),
			rate("written to storage", "MB/s", mb, "write_bytes"),
		}},
		{table: table.Net, thing: "device", group: groupDevice, metrics: []metric{
			rate("received", "MB/s", mb, "rx_bytes"),
			rate("sent", "MB/s", mb, "tx_bytes"),
		}},
		{table: table.Infiniband, thing: "port", group: groupDevice, metrics: []metric{
			rate("received", "MB/s", mb, "rx_bytes"),
			rate("sent", "MB/s", mb, "tx_bytes"),
		}},
		{table: table.Disk, thing: "device", group: groupDevice, metrics: []metric{
			rate("read", "MB/s", mb, "read_bytes"),
			rate("written", "MB/s", mb, "write_bytes"),
		}},
	}
}
