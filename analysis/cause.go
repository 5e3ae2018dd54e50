package analysis

// The causes that gswarm can name.
const (
	PowerCap       Cause = "power_cap"       // the power limit holds the clocks down
	Thermal        Cause = "thermal"         // heat holds the clocks down
	ClockDrop      Cause = "clock_drop"      // the clocks are low and neither power nor heat says why
	LinkSlow       Cause = "link_slow"       // a GPU's NVLink or its node's network moves less than the others'
	PCIeSlow       Cause = "pcie_slow"       // a GPU's PCIe link moves less than the others'
	PCIeReplay     Cause = "pcie_replay"     // PCIe transmissions are repeated
	CPUStarved     Cause = "cpu_starved"     // the rank's threads wait for a core
	Affinity       Cause = "affinity"        // the rank may use too few cores, or those far from its GPU
	MemoryPressure Cause = "memory_pressure" // the rank or the node reclaims or swaps
	InputStall     Cause = "input_stall"     // GPUs wait for input at the begin of their steps
	CommBound      Cause = "communication_bound"
	LaunchBound    Cause = "launch_bound"
	MemoryBound    Cause = "memory_bound"
	TransferBound  Cause = "transfer_bound"
	Imbalance      Cause = "imbalance"      // a rank has more work than the others, and nothing slows it
	SerialRank     Cause = "serial_rank"    // one rank works while all others wait
	GPUFault       Cause = "gpu_fault"      // Xid, uncorrected ECC, a lost GPU
	NetRetransmit  Cause = "net_retransmit" // a node's network repeats what it sent
	NodeMissing    Cause = "node_missing"   // a node left no data, or stopped before the others
	ClockStep      Cause = "clock_step"     // a node's wall clock jumped
	LowUse         Cause = "low_use"        // the GPUs did little over the whole run
)
