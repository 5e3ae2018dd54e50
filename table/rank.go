package table

// Indexes of the columns of the rank table.
const (
	RankRank = iota + 2
	RankPID
	RankLocal
	RankRole
	RankName
	RankGPU
	RankGPUSource
	RankGPUNode
	RankState
	RankThreads
	RankCPUUser
	RankCPUSystem
	RankRunDelay
	RankVoluntary
	RankInvoluntary
	RankMigrations
	RankThreadsRunDelay
	RankThreadsVoluntary
	RankThreadsInvoluntary
	RankFaultsMinor
	RankFaultsMajor
	RankRSS
	RankReadBytes
	RankWriteBytes
	RankReadCallBytes
	RankWriteCallBytes
	RankReadCalls
	RankWriteCalls
	RankIODelay
	RankCPULast
	RankNUMANode
	RankAffinityCount
	RankAffinity
	RankAffinityNodes
	RankPeriods
	RankThrottled
	RankThrottledTime
	RankMemory
	RankMemoryLimit
	RankMemoryHits
	RankOOMKills
	RankPSICPUSome
	RankPSIMemSome
	RankPSIMemFull
	RankPSIIOSome
	RankPSIIOFull
)

// Rank is one row for each of the job's processes.
var Rank = &Table{
	Name: "rank", Shape: Polled, Cadence: "1 s",
	Doc:  "Each of the job's processes: who it is, what it used, and what kept it waiting. The columns named cgroup_* are those of the process's control group, the same for all processes in it.",
	Keys: []string{"pid", "rank"},
	Columns: polled(
		Column{Name: "rank", Type: Int32, Source: "environment", Doc: "World rank that the process is, or works for; null for launchers and other processes of the job that have none."},
		Column{Name: "pid", Type: Int32, Required: true, Source: "/proc", Doc: "Process id as the agent sees it."},
		Column{Name: "local_rank", Type: Int32, Source: "environment", Doc: "Rank within the node."},
		Column{Name: "role", Type: String, Required: true, Source: "gswarm", Doc: "rank, worker (a forked or spawned helper of a rank, as data loaders are), torchrun, launcher, or other."},
		Column{Name: "name", Type: String, Source: "/proc/PID/stat", Doc: "Name of the main thread, at most 15 bytes."},
		Column{Name: "gpu", Type: Int32, Source: "NVML, cgroup, environment", Doc: "Ordinal of the GPU that the process uses, where it uses one; null as well where it uses several."},
		Column{Name: "gpu_source", Type: String, Source: "gswarm", Doc: "How the GPU is known: nvml (the driver named the process), cgroup (only that device may be opened), environment (CUDA_VISIBLE_DEVICES names one), convention (the local rank picks from several)."},
		Column{Name: "gpu_numa_node", Type: Int32, Source: "/sys/bus/pci", Doc: "NUMA node that the GPU hangs on, to hold against affinity_nodes."},
		Column{Name: "state", Type: String, Window: "instant", Source: "/proc/PID/stat state", Doc: "State of the main thread: R running or ready, S asleep, D waiting for a disk or the like, T stopped, Z ended."},
		Column{Name: "threads_count", Type: Int32, Unit: "count", Window: "instant", Source: "/proc/PID/stat num_threads", Doc: "Threads."},
		process("cpu_user_ns", "ns", "/proc/PID/stat utime", "CPU time of all threads in user mode; steps of 10 ms."),
		process("cpu_system_ns", "ns", "/proc/PID/stat stime", "CPU time of all threads in kernel mode; steps of 10 ms."),
		process("run_delay_ns", "ns", "/proc/PID/schedstat", "Time that the main thread was ready to run and waited for a CPU."),
		process("switches_voluntary_count", "count", "/proc/PID/sched, else status", "Times that the main thread gave its CPU up."),
		process("switches_involuntary_count", "count", "/proc/PID/sched, else status", "Times that the main thread was made to give its CPU up."),
		process("migrations_count", "count", "/proc/PID/sched se.nr_migrations", "Times that the main thread was moved to another CPU."),
		threadSum("threads_run_delay_ns", "ns", "schedstat", "Time that threads of the process were ready to run and waited for a CPU."),
		threadSum("threads_switches_voluntary_count", "count", "status", "Times that threads of the process gave their CPU up."),
		threadSum("threads_switches_involuntary_count", "count", "status", "Times that threads of the process were made to give their CPU up."),
		process("faults_minor_count", "count", "/proc/PID/stat minflt", "Page faults of all threads that needed no I/O."),
		process("faults_major_count", "count", "/proc/PID/stat majflt", "Page faults of all threads that waited for I/O."),
		Column{Name: "rss_bytes", Type: Int64, Unit: "bytes", Window: "instant", Source: "/proc/PID/stat rss", Doc: "Resident memory; the kernel's quick count, off by some pages for each CPU."},
		process("read_bytes", "bytes", "/proc/PID/io read_bytes", "Bytes that storage was asked for; what the page cache had is not in it, nor what most network filesystems deliver."),
		process("write_bytes", "bytes", "/proc/PID/io write_bytes", "Bytes that storage was given to write."),
		process("read_call_bytes", "bytes", "/proc/PID/io rchar", "Bytes that read calls returned, from wherever they came."),
		process("write_call_bytes", "bytes", "/proc/PID/io wchar", "Bytes that write calls took."),
		process("read_calls_count", "count", "/proc/PID/io syscr", "Read calls."),
		process("write_calls_count", "count", "/proc/PID/io syscw", "Write calls."),
		process("io_delay_ns", "ns", "/proc/PID/stat delayacct_blkio_ticks", "Time that the main thread waited for block I/O and swap; only where kernel.task_delayacct is on."),
		Column{Name: "cpu_last", Type: Int32, Window: "instant", Source: "/proc/PID/stat processor", Doc: "CPU that the main thread ran on last."},
		Column{Name: "numa_node", Type: Int32, Window: "instant", Source: "/sys/devices/system/node", Doc: "NUMA node of that CPU."},
		Column{Name: "affinity_count", Type: Int32, Unit: "count", Window: "instant", Source: "sched_getaffinity", Doc: "CPUs that the main thread may run on."},
		Column{Name: "affinity", Type: String, Window: "instant", Source: "sched_getaffinity", Doc: "Those CPUs as a list such as 0-7,64-71."},
		Column{Name: "affinity_nodes", Type: String, Window: "instant", Source: "/sys/devices/system/node", Doc: "NUMA nodes of those CPUs, as a list."},
		process("cgroup_periods_count", "count", "cgroup cpu.stat nr_periods", "Periods of the CPU quota, of all quotas from the process's cgroup up."),
		process("cgroup_throttled_count", "count", "cgroup cpu.stat nr_throttled", "Periods in which the quota was used up."),
		process("cgroup_throttled_ns", "ns", "cgroup cpu.stat throttled_usec, v1 throttled_time", "Time for which the group was kept from running, added up over CPUs."),
		Column{Name: "cgroup_mem_bytes", Type: Int64, Unit: "bytes", Window: "instant", Source: "cgroup memory.current, v1 memory.usage_in_bytes", Doc: "Memory in use by the group that sets the tightest limit, page cache included."},
		Column{Name: "cgroup_mem_limit_bytes", Type: Int64, Unit: "bytes", Window: "instant", Source: "cgroup memory.max, v1 memory.limit_in_bytes", Doc: "That limit."},
		process("cgroup_mem_limit_hits_count", "count", "cgroup memory.events.local max, v1 memory.failcnt", "Times that a limit was run into and memory had to be reclaimed, of all limits from the process's cgroup up."),
		process("cgroup_oom_kills_count", "count", "cgroup memory.events oom_kill, v1 memory.oom_control", "Processes of the process's own group that were killed for memory."),
		groupPressure("cgroup_psi_cpu_some_ns", "cpu", "some", "some task of the group waited for a CPU"),
		groupPressure("cgroup_psi_mem_some_ns", "memory", "some", "some task of the group waited for memory"),
		groupPressure("cgroup_psi_mem_full_ns", "memory", "full", "every task of the group waited for memory"),
		groupPressure("cgroup_psi_io_some_ns", "io", "some", "some task of the group waited for I/O"),
		groupPressure("cgroup_psi_io_full_ns", "io", "full", "every task of the group waited for I/O"),
	),
}

// process describes a counter that begins with a process or a control group.
func process(name, unit, source, doc string) Column {
	window := "since the process began"
	if len(name) > 7 && name[:7] == "cgroup_" {
		window = "since the group was made"
	}
	return Column{Name: name, Type: Int64, Unit: unit, Window: window, Source: source, Doc: doc}
}

// threadSum describes a counter that is added up over a process's threads.
func threadSum(name, unit, file, doc string) Column {
	age := "7 s of threads that had rested"
	if unit == "count" {
		age = "5 s, 7 s of threads that had rested"
	}
	return Column{
		Name: name, Type: Int64, Unit: unit, Window: "since the process began", Age: age,
		Source: "sum of /proc/PID/task/*/" + file,
		Doc:    doc + " Threads that end keep what they had at the last look; what ended before the agent came is not in it. Of more threads that run than can be looked at in a second, a share is, in turn; null until each has been looked at once, and of more than 4096 threads.",
	}
}

func groupPressure(name, file, line, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: "ns", Window: "since the group was made", Age: "2 s", Source: "cgroup v2 " + file + ".pressure " + line, Doc: "Time in which " + doc + "."}
}
