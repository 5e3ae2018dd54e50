package table

// Indexes of the columns of the infiniband table.
const (
	IBPort = iota + 2
	IBLinkLayer
	IBState
	IBRate
	IBRxBytes
	IBTxBytes
	IBRxPackets
	IBTxPackets
	IBFirstCounter // the columns of IBCounters, in its order
)

// IBCounter is a column of the infiniband table that is one file of a port.
type IBCounter struct{ Column, File, Doc string }

// IBCounters are the error and congestion counters of a port. Those below
// hw_counters are the device's own; most have them for RoCE too.
var IBCounters = []IBCounter{
	{"symbol_errors_count", "counters/symbol_error", "Minor link errors."},
	{"link_downed_count", "counters/link_downed", "Times that the link went down."},
	{"link_recovered_count", "counters/link_error_recovery", "Times that the link recovered from errors by itself."},
	{"rx_errors_count", "counters/port_rcv_errors", "Packets received with an error."},
	{"rx_remote_physical_errors_count", "counters/port_rcv_remote_physical_errors", "Packets received that another switch had marked bad."},
	{"rx_switch_relay_errors_count", "counters/port_rcv_switch_relay_errors", "Packets that a switch could not forward."},
	{"rx_constraint_errors_count", "counters/port_rcv_constraint_errors", "Received packets discarded for a partition key or the like."},
	{"tx_constraint_errors_count", "counters/port_xmit_constraint_errors", "Packets not sent for a partition key or the like."},
	{"tx_discards_count", "counters/port_xmit_discards", "Packets discarded because the port was down or congested."},
	{"tx_wait_count", "counters/port_xmit_wait", "Ticks in which there was something to send and no credit to do so."},
	{"integrity_errors_count", "counters/local_link_integrity_errors", "Times that the local link's errors passed their threshold."},
	{"buffer_overruns_count", "counters/excessive_buffer_overrun_errors", "Times that the receive buffer overran for long."},
	{"vl15_dropped_count", "counters/VL15_dropped", "Management packets dropped."},
	{"out_of_buffer_count", "hw_counters/out_of_buffer", "Packets dropped because no receive buffer was posted."},
	{"out_of_sequence_count", "hw_counters/out_of_sequence", "Packets that came out of order."},
	{"packet_seq_errors_count", "hw_counters/packet_seq_err", "NAKs for a sequence error that were received: packets were lost."},
	{"local_ack_timeouts_count", "hw_counters/local_ack_timeout_err", "Timeouts of this side's requests: they are sent again."},
	{"rnr_nak_retries_count", "hw_counters/rnr_nak_retry_err", "Receiver-not-ready NAKs that were received."},
	{"adaptive_retrans_count", "hw_counters/roce_adp_retrans", "Adaptive retransmissions (RoCE)."},
	{"duplicate_requests_count", "hw_counters/duplicate_request", "Requests that came twice: the other side sent again."},
	{"cnp_sent_count", "hw_counters/np_cnp_sent", "Congestion notifications sent."},
	{"cnp_handled_count", "hw_counters/rp_cnp_handled", "Congestion notifications received: this side slowed down."},
	{"ecn_marked_count", "hw_counters/np_ecn_marked_roce_packets", "Packets received that were marked for congestion."},
}

// Infiniband is one row for each port of each RDMA device, InfiniBand or RoCE.
var Infiniband = &Table{
	Name: "infiniband", Shape: Polled, Cadence: "1 s",
	Doc:  "Counters of each port of each RDMA device, InfiniBand and RoCE.",
	Keys: []string{"port"},
	Columns: polled(append([]Column{
		{Name: "port", Type: String, Required: true, Source: "/sys/class/infiniband", Doc: "Device and port as NCCL and UCX write them: mlx5_0:1."},
		{Name: "link_layer", Type: String, Window: "instant", Source: "link_layer", Doc: "InfiniBand, or Ethernet for RoCE."},
		{Name: "state", Type: String, Window: "instant", Source: "state", Doc: "State of the link, such as ACTIVE or DOWN."},
		{Name: "rate", Type: String, Window: "instant", Source: "rate", Doc: "Signalling rate and width that the link came up with."},
		counter("rx_bytes", "bytes", "counters/port_rcv_data × 4", "Bytes received; not all devices count RDMA over Ethernet here."),
		counter("tx_bytes", "bytes", "counters/port_xmit_data × 4", "Bytes sent."),
		counter("rx_packets_count", "count", "counters/port_rcv_packets", "Packets received."),
		counter("tx_packets_count", "count", "counters/port_xmit_packets", "Packets sent."),
	}, ibColumns()...)...),
}

func ibColumns() []Column {
	cols := make([]Column, len(IBCounters))
	for i, c := range IBCounters {
		cols[i] = Column{Name: c.Column, Type: Int64, Unit: "count", Window: "since the driver was loaded or the counter cleared", Source: c.File, Doc: c.Doc}
	}
	return cols
}

// Indexes of the columns of the filesystem table.
const (
	FSMount = iota + 2
	FSDevice
	FSType
	FSReadBytes
	FSWriteBytes
	FSReadServerBytes
	FSWriteServerBytes
	FSReads
	FSReadTime
	FSWrites
	FSWriteTime
	FSMeta
	FSMetaTime
	FSTransmissions
	FSQueueTime
	FSTimeouts
)

// Filesystem is one row for each network filesystem.
var Filesystem = &Table{
	Name: "filesystem", Shape: Polled, Cadence: "1 s",
	Doc:  "What the node as a whole asked of each network filesystem that is mounted, Lustre or NFS.",
	Keys: []string{"mount"},
	Columns: polled(
		Column{Name: "mount", Type: String, Required: true, Source: "/proc/self/mountinfo", Doc: "Mount point."},
		Column{Name: "device", Type: String, Source: "/proc/self/mountinfo", Doc: "Server and export."},
		Column{Name: "fs_type", Type: String, Source: "/proc/self/mountinfo", Doc: "lustre, nfs or nfs4."},
		mounted("read_bytes", "bytes", "NFS: bytes 1+3; Lustre: read_bytes", "Bytes that programs read."),
		mounted("write_bytes", "bytes", "NFS: bytes 2+4; Lustre: write_bytes", "Bytes that programs wrote."),
		mounted("read_server_bytes", "bytes", "NFS: bytes 5", "Bytes read from the server."),
		mounted("write_server_bytes", "bytes", "NFS: bytes 6", "Bytes written to the server."),
		mounted("reads_count", "count", "NFS: READ; Lustre: read_bytes", "Reads: requests to the server (NFS), calls of programs (Lustre)."),
		mounted("read_time_ns", "ns", "NFS: READ, from queueing to answer; Lustre: read", "Time that these took, added up."),
		mounted("writes_count", "count", "NFS: WRITE; Lustre: write_bytes", "Writes, likewise."),
		mounted("write_time_ns", "ns", "NFS: WRITE; Lustre: write", "Time that these took, added up."),
		mounted("meta_count", "count", "all other operations", "Operations other than reads and writes: open, lookup, getattr, ..."),
		mounted("meta_time_ns", "ns", "all other operations", "Time that these took, added up."),
		mounted("transmissions_count", "count", "NFS: transmissions of all operations", "Requests sent, those sent again included: more than the operations means retransmission."),
		mounted("queue_time_ns", "ns", "NFS: queue time of all operations", "Time that requests waited on this node before they were sent, added up."),
		mounted("timeouts_count", "count", "NFS: major timeouts", "Requests that the server did not answer in time."),
	),
}

func mounted(name, unit, source, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: unit, Window: "since the filesystem was mounted", Source: source, Doc: doc}
}

// Indexes of the columns of the numa table.
const (
	NUMANode = iota + 2
	NUMATotal
	NUMAFree
	NUMAFile
	NUMAAnon
	NUMAHit
	NUMAMiss
	NUMAForeign
	NUMALocal
	NUMAOther
)

// NUMA is one row for each memory node.
var NUMA = &Table{
	Name: "numa", Shape: Polled, Cadence: "1 s",
	Doc:  "Memory of each NUMA node, and whether it went to those who wanted it there.",
	Keys: []string{"numa_node"},
	Columns: polled(
		Column{Name: "numa_node", Type: Int32, Required: true, Source: "/sys/devices/system/node", Doc: "Memory node."},
		nodeMemory("mem_total_bytes", "MemTotal", "Memory of the node."),
		nodeMemory("mem_free_bytes", "MemFree", "Memory that nothing uses."),
		nodeMemory("mem_file_bytes", "FilePages", "Page cache."),
		nodeMemory("mem_anon_bytes", "AnonPages", "Memory of programs that is no file's."),
		nodePages("numa_hit_count", "Pages that were wanted here and given here."),
		nodePages("numa_miss_count", "Pages given here though they were wanted on another node."),
		nodePages("numa_foreign_count", "Pages wanted here and given on another node."),
		nodePages("local_node_count", "Pages given to a process that ran on this node."),
		nodePages("other_node_count", "Pages given to a process that ran on another node."),
	),
}

func nodeMemory(name, field, doc string) Column {
	return Column{Name: name, Type: Int64, Unit: "bytes", Window: "instant", Source: "/sys/devices/system/node/nodeN/meminfo " + field, Doc: doc}
}

func nodePages(name, doc string) Column {
	return counter(name, "count", "/sys/devices/system/node/nodeN/numastat", doc)
}

// Indexes of the host table's columns that tell of the network's stack, of soft
// interrupts and of reclaim.
const (
	HostSoftIRQs = HostPSIIOFull + 1 + iota
	HostSoftIRQTimer
	HostSoftIRQNetTx
	HostSoftIRQNetRx
	HostSoftIRQBlock
	HostSoftIRQSched
	HostTCPInSegs
	HostTCPOutSegs
	HostTCPRetransSegs
	HostTCPInErrors
	HostTCPTimeouts
	HostTCPLostRetrans
	HostTCPSynRetrans
	HostTCPListenDrops
	HostFaultsMajor
	HostSwapIn
	HostSwapOut
	HostReclaimDirect
	HostNUMAMigrated
	HostOOMKills
)

// hostMore are these columns.
func hostMore() []Column {
	soft := func(name, field, doc string) Column {
		return counter(name, "count", "/proc/stat softirq "+field, doc)
	}
	tcp := func(name, field, doc string) Column {
		c := counter(name, "count", "/proc/net/snmp Tcp "+field, doc)
		c.Window = "since the network namespace began"
		return c
	}
	ext := func(name, field, doc string) Column {
		c := tcp(name, field, doc)
		c.Source = "/proc/net/netstat TcpExt " + field
		return c
	}
	return []Column{
		soft("softirqs_count", "total", "Soft interrupts served."),
		soft("softirq_timer_count", "TIMER", "Timers."),
		soft("softirq_net_tx_count", "NET_TX", "Packets sent."),
		soft("softirq_net_rx_count", "NET_RX", "Packets received."),
		soft("softirq_block_count", "BLOCK", "Block devices."),
		soft("softirq_sched_count", "SCHED", "Balancing of the scheduler."),
		tcp("tcp_in_segs_count", "InSegs", "TCP segments received."),
		tcp("tcp_out_segs_count", "OutSegs", "TCP segments sent, those sent again not included."),
		tcp("tcp_retrans_segs_count", "RetransSegs", "TCP segments sent again."),
		tcp("tcp_in_errors_count", "InErrs", "TCP segments received with an error."),
		ext("tcp_timeouts_count", "TCPTimeouts", "Times that an answer did not come before the retransmission timer."),
		ext("tcp_lost_retrans_count", "TCPLostRetransmit", "Segments that were sent again and lost again."),
		ext("tcp_syn_retrans_count", "TCPSynRetrans", "Requests for a connection sent again."),
		ext("tcp_listen_drops_count", "ListenDrops", "Requests for a connection dropped by this node."),
		counter("faults_major_count", "count", "/proc/vmstat pgmajfault", "Page faults of all programs that waited for I/O."),
		counter("swap_in_bytes", "bytes", "/proc/vmstat pswpin", "Memory read back from swap."),
		counter("swap_out_bytes", "bytes", "/proc/vmstat pswpout", "Memory written to swap."),
		counter("reclaim_direct_count", "count", "/proc/vmstat pgscan_direct", "Pages that programs had to look through themselves to get memory."),
		counter("numa_migrated_count", "count", "/proc/vmstat numa_pages_migrated", "Pages that NUMA balancing moved; null where the kernel does not balance."),
		counter("oom_kills_count", "count", "/proc/vmstat oom_kill", "Processes killed for memory."),
	}
}
