// Package control is what wrap, the agents and the head say to each other: the
// messages, the key that proves they belong to one run, the connection that
// carries them between nodes and the local socket that carries them within one.
//
// It decides nothing: what a message means is up to launcher and rankagent,
// which it does not import.
package control

import (
	"net/netip"

	"github.com/gswarm/gswarm/rundir"
)

// Message is one message; exactly one field is set.
type Message struct {
	// Between an agent and the head.
	Hello   *Hello   `json:"hello,omitempty"`
	Welcome *Welcome `json:"welcome,omitempty"`
	Clock   *Clock   `json:"clock,omitempty"`
	Ready   *Ready   `json:"ready,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Bye     *Bye     `json:"bye,omitempty"`

	// Between a rank's wrap and its node's agent.
	Join    *Join    `json:"join,omitempty"`
	Joined  *Joined  `json:"joined,omitempty"`
	Started *Started `json:"started,omitempty"`
	Exited  *Exited  `json:"exited,omitempty"`
	Flushed *Flushed `json:"flushed,omitempty"`
}

// Hello is the first message of an agent to the head.
type Hello struct {
	Node    string `json:"node"`
	Host    string `json:"host"`
	Machine string `json:"machine"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
	// ClockPort is the UDP port on which the node answers clock exchanges, 0
	// where it does not; ClockAddrs are its addresses.
	ClockPort  int          `json:"clock_port,omitempty"`
	ClockAddrs []netip.Addr `json:"clock_addrs,omitempty"`
}

// Welcome answers Hello.
type Welcome struct {
	Reference rundir.Reference `json:"reference"`
	// ClockPort is the UDP port of the head's clock responder.
	ClockPort int `json:"clock_port"`
	// Clock is with whom the agent exchanges stamps.
	Clock Clock `json:"clock"`
}

// Ready says that the agent has taken its first readings.
type Ready struct {
	GPUs int    `json:"gpus"`
	Note string `json:"note,omitempty"`
}

// Stop tells an agent that the run is over.
type Stop struct {
	Reason string `json:"reason"`
}

// Bye is an agent's last message: all it had is on disk.
type Bye struct {
	Ranks []rundir.Rank `json:"ranks,omitempty"`
	Note  string        `json:"note,omitempty"`
}

// Join is the first message of a rank's wrap to the agent of its node.
type Join struct {
	PID       int `json:"pid"`
	Rank      int `json:"rank"`
	LocalRank int `json:"local_rank"`
	Size      int `json:"size"`
	// LocalSize is how many ranks the node has, 0 where that is not known.
	LocalSize int `json:"local_size"`
	// GPUs are the minor numbers of the GPU device nodes that the rank may
	// open; nil where it cannot tell.
	GPUs []int `json:"gpus"`
}

// Joined answers Join.
type Joined struct {
	AgentPID int `json:"agent_pid"`
	// Covered says that the agent sees every GPU that the rank sees. A rank
	// whose GPUs it does not see starts a sampler of its own for them.
	Covered bool `json:"covered"`
}

// Started says that the rank's command runs.
type Started struct {
	PID int `json:"pid"`
}

// Exited says how the rank's command ended. The wrap then waits for Flushed.
type Exited struct {
	Exit rundir.Exit `json:"exit"`
}

// Flushed says that what the agent knew when the rank ended is on disk.
type Flushed struct {
	// Last is true where the rank was the node's last and the agent ends.
	Last bool `json:"last"`
	// Nodes is how many nodes the run is known to have had, where the agent
	// was the head; else 0.
	Nodes int `json:"nodes,omitempty"`
	// Note is what the user ought to know, in one line.
	Note string `json:"note,omitempty"`
}
