package control

import (
	"time"

	"github.com/gswarm/gswarm/rundir"
)

// AgentConfig is all that an agent is told at its start. It is handed over on
// the agent's standard input as JSON: it may hold the run's key.
type AgentConfig struct {
	Dir  rundir.Dir `json:"dir"`
	Node string     `json:"node"`
	// Run is run.yaml as the launcher knows it. Behind a launcher, the
	// agent that rank 0 joins completes and writes it.
	Run rundir.Run `json:"run"`
	// Head is where the head is; nil where the agents find theirs through
	// the run directory, or where there is one node only.
	Head *Endpoint `json:"head,omitempty"`
	// SingleNode says that no other node takes part: the node's clock is
	// the reference and no port is opened.
	SingleNode bool  `json:"single_node"`
	Ports      Ports `json:"ports"`
	// Part tells apart the samplers of a node that see different GPUs; the
	// first has none.
	Part string `json:"part,omitempty"`
	// JobVar is the environment variable, and its value, by which the
	// job's processes are known.
	JobVar   [2]string     `json:"job_var"`
	Interval time.Duration `json:"interval"`
	Tile     time.Duration `json:"tile"`
	// Sync is the time between syncs of the spool; 0 lets the agent choose
	// by filesystem.
	Sync time.Duration `json:"sync"`
	// GPUNodes is the pattern of the GPUs' device nodes.
	GPUNodes string `json:"gpu_nodes"`
	// GPU is what the user said of the GPUs.
	GPU GPUConfig `json:"gpu"`
	// NVML is the path of the NVML library; empty for the system's.
	NVML string `json:"nvml,omitempty"`
	// SkewOffset and SkewPPM falsify the node's raw clock, for tests.
	SkewOffset time.Duration `json:"skew_offset,omitempty"`
	SkewPPM    float64       `json:"skew_ppm,omitempty"`
}

// GPUConfig is what a user may say of how GPUs are sampled.
type GPUConfig struct {
	// Which names the GPUs: "all", "job" or a list of ordinals and UUIDs.
	Which string `json:"which,omitempty"`
	// Budget is the driver time that each GPU may cost per interval.
	Budget time.Duration `json:"budget,omitempty"`
	// ProcessUtil asks for the SM use of each process.
	ProcessUtil bool `json:"process_util,omitempty"`
	// NVLinks asks for the counters of each NVLink.
	NVLinks bool `json:"nvlinks,omitempty"`
}
