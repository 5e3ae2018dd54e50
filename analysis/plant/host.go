package plant

import (
	"fmt"
	"math/rand/v2"

	"github.com/gswarm/gswarm/table"
)

// hostKind is what the nodes of a job have in common.
type hostKind struct {
	cpus     int
	memory   int64
	workers  int  // helpers of each rank
	spins    bool // the main thread spins while the GPU works
	pinned   bool // each rank has cores of its own
	psi      bool // the kernel tells of pressure
	cgroup   bool // control groups tell of memory and pressure
	rdma     bool // the nodes exchange over InfiniBand; else over TCP
	exchange float64
}

func newHostKind(rng *rand.Rand, nodes, cpus int) hostKind {
	k := hostKind{
		cpus: cpus, memory: 1 << 40 * (1 + rng.Int64N(2)), workers: rng.IntN(5), spins: rng.Float64() < 0.8, pinned: rng.Float64() < 0.5,
		psi: rng.Float64() < 0.7, cgroup: rng.Float64() < 0.7, rdma: rng.Float64() < 0.6,
	}
	if nodes > 1 {
		k.exchange = 1e9 + 20e9*rng.Float64()
	}
	return k
}

// nodeRates are what a node's counters grow by in a second, and its levels.
type nodeRates struct {
	user, system, iowait              float64 // cores
	psiCPU, psiMem, psiMemFull, psiIO float64 // shares of the time
	switches, interrupts              float64
	used, swap                        float64 // bytes
	majorFaults, swapIn, swapOut      float64
	reclaim, oom                      float64
	segments, retransmitted, timeouts float64
	bytes                             float64 // sent and received by the network
	ibErrors                          map[string]float64
	ibRate                            string
	running                           float64
}

// rankRates are what the counters of a rank's main process grow by in a second,
// and its levels.
type rankRates struct {
	cpu, system, delay                 float64 // seconds
	voluntary, involuntary, migrations float64
	minor, major                       float64
	rss                                float64
	read, readCalls, written           float64
	state                              string
	affinity, affinityNodes            string
	affinityCount                      int
	throttled                          float64 // seconds by the cgroup's quota
	limitHits, psiCPU, psiMem          float64
	cgroupBytes, cgroupLimit           float64
	// workerCPU and workerRead are of each helper.
	workerCPU, workerDelay, workerRead float64
	workerState                        string
}

// hostState is what a node's host is like when nothing is wrong, with the noise
// of each of its processes.
type hostState struct {
	kind                                                              hostKind
	node                                                              int
	used                                                              float64
	ranks                                                             [perNode]rankRates
	cpu, delay, voluntary, involuntary, faults, workerCPU, workerRead [perNode]*walk
	switches, interrupts, nodeCPU, segments                           *walk
	cores, retransmits                                                float64
	psiCPU                                                            float64
	counters                                                          map[string]float64
}

func newHostState(m *Material, rng *rand.Rand, kind hostKind, node int) *hostState {
	h := &hostState{
		kind: kind, node: node, used: float64(kind.memory) * (0.05 + 0.2*rng.Float64()), cores: 0.3 + 2*rng.Float64(),
		retransmits: 3 * rng.Float64() * rng.Float64(), psiCPU: 0.01 * rng.Float64(), counters: map[string]float64{},
	}
	h.switches, h.interrupts = m.host.walk(rng, noiseNodeSwitches, 0.5), m.host.walk(rng, noiseNodeInterrupts, 0.5)
	h.nodeCPU, h.segments = m.host.walk(rng, noiseNodeCPU, 0.5), m.host.walk(rng, noiseNodeSegments, 0.3)
	delay := 0.0005 + 0.006*rng.Float64()
	cpu := 0.25 + 0.2*rng.Float64()
	if kind.spins {
		cpu = 0.97
	}
	workerCPU, workerRead := 0.1+0.5*rng.Float64(), 5e6+60e6*rng.Float64()
	for r := range h.ranks {
		per := kind.cpus / perNode
		w := rankRates{
			cpu: cpu, system: 0.02 + 0.03*rng.Float64(), delay: delay, voluntary: 40 + 300*rng.Float64(), involuntary: 3 + 20*rng.Float64(),
			migrations: 0.5 * rng.Float64(), minor: 20 + 300*rng.Float64(), rss: 4e9 + 8e9*rng.Float64(), read: 1e4, readCalls: 20,
			state: "R", affinity: fmt.Sprintf("0-%d", kind.cpus-1), affinityNodes: "0-1", affinityCount: kind.cpus,
			cgroupBytes: h.used * 0.8, workerCPU: workerCPU, workerRead: workerRead, workerDelay: delay, workerState: "S",
		}
		if !kind.spins {
			w.state = "S"
		}
		if kind.pinned {
			w.affinity, w.affinityCount = fmt.Sprintf("%d-%d", r*per, (r+1)*per-1), per
			w.affinityNodes = fmt.Sprint(r / (perNode / 2))
		}
		h.ranks[r] = w
		h.cpu[r], h.delay[r] = m.host.walk(rng, noiseRankCPU, 0.9), m.host.walk(rng, noiseRankDelay, 0)
		h.voluntary[r], h.involuntary[r] = m.host.walk(rng, noiseRankVoluntary, 0.3), m.host.walk(rng, noiseRankInvoluntary, 0)
		h.faults[r] = m.host.walk(rng, noiseRankFaults, 0)
		h.workerCPU[r], h.workerRead[r] = m.host.walk(rng, noiseWorkerCPU, 0.5), m.host.walk(rng, noiseWorkerRead, 0.5)
	}
	return h
}

// second draws what node and ranks do in one second, before what is planted.
// working says whether the job has begun its steps.
func (h *hostState) second(working bool) (nodeRates, []rankRates) {
	ranks := make([]rankRates, perNode)
	n := nodeRates{
		system: h.cores * h.nodeCPU.next(), psiCPU: h.psiCPU, switches: 2e4 * h.switches.next(), interrupts: 1e4 * h.interrupts.next(),
		used: h.used, segments: 300 * h.segments.next(), bytes: 1e5, ibErrors: map[string]float64{}, ibRate: "400 Gb/sec (4X NDR)",
	}
	for r := range ranks {
		w := h.ranks[r]
		w.cpu *= h.cpu[r].next()
		w.delay *= h.delay[r].next()
		w.voluntary *= h.voluntary[r].next()
		w.involuntary *= h.involuntary[r].next()
		w.minor *= h.faults[r].next()
		w.workerCPU = min(1, w.workerCPU*h.workerCPU[r].next())
		w.workerRead *= h.workerRead[r].next()
		if !working {
			w.cpu, w.workerCPU, w.workerRead = w.cpu*0.6, w.workerCPU*0.1, w.workerRead*0.2
		}
		w.cpu, w.delay = min(w.cpu, 1.05), min(w.delay, 0.05)
		ranks[r] = w
		n.user += w.cpu + float64(h.kind.workers)*w.workerCPU
		n.system += w.system
	}
	if working {
		n.bytes += h.kind.exchange
		if h.kind.exchange > 0 && !h.kind.rdma {
			n.segments += h.kind.exchange / 9000
		}
	}
	n.retransmitted = h.retransmits * h.segments.next()
	n.running = n.user
	return n, ranks
}

// hostRows writes what an agent would have read of a node's host and processes.
func (j *job) hostRows(s *Source, i int) {
	n := j.nodes[i]
	w := hostWriter{Source: s, job: j, node: n, h: n.host, index: i}
	w.begin()
	first := j.end
	if len(j.steps) > 0 {
		first = j.steps[0].begin
	}
	for t := n.begin; t < n.end; t += 1e9 {
		rates, ranks := n.host.second(t >= first)
		for _, a := range j.plant {
			if a.rates != nil && a.on(t) {
				a.rates(i, t, &rates, ranks)
			}
		}
		w.hostRow(t, &rates)
		w.netRows(t, &rates)
		w.bracketRow(t)
		for r := range ranks {
			if !j.spare[i*perNode+r] {
				w.rankRows(t, r, &ranks[r])
			}
		}
		if (t-n.begin)/1e9%10 == 0 {
			w.processRows(t)
		}
	}
	w.finish()
}

// hostWriter writes the rows of one node; its counters grow from second to second.
type hostWriter struct {
	*Source
	job   *job
	node  *node
	h     *hostState
	index int
	load  float64
}

// grow adds to a counter and returns where it stands, from a random begin.
func (w *hostWriter) grow(name string, by float64) int64 {
	v, ok := w.h.counters[name]
	if !ok {
		v = float64(w.job.rng.Int64N(1e9))
	}
	v += max(0, by)
	w.h.counters[name] = v
	return int64(v)
}

// since is grow for counters that begin with the process.
func (w *hostWriter) since(name string, by float64) int64 {
	w.h.counters[name] += max(0, by)
	return int64(w.h.counters[name])
}

func (w *hostWriter) row(t *table.Table, at int64) cells {
	read := 15e3 + w.job.rng.Int64N(40e3)
	return cells{w.add(t, w.node.name, w.node.stamp(at, read))}
}

func (w *hostWriter) pid(rank int) int64 { return int64(40000 + w.index*1000 + rank*17) }

// rank is the number of the rank on a GPU: those without one are not counted.
func (w *hostWriter) rank(g int) int {
	n := 0
	for r := range w.index*perNode + g {
		if !w.job.spare[r] {
			n++
		}
	}
	return n
}

// local is its number within the node.
func (w *hostWriter) local(g int) int { return w.rank(g) - w.rank(0) }

func (w *hostWriter) event(kind string, t int64, gpu, rank int, detail string) {
	r := w.row(table.Event, t)
	r.string(table.EventKind, kind)
	if gpu >= 0 {
		r.int(table.EventGPU, int64(gpu))
	}
	if rank >= 0 {
		r.int(table.EventRank, int64(rank))
	}
	r.string(table.EventDetail, detail)
}

// begin writes the events of the node's begin.
func (w *hostWriter) begin() {
	w.event("agent_start", w.node.begin, -1, -1, `{"part":"","pid":4711,"version":"dev"}`)
	for g := range perNode {
		rank := w.index*perNode + g
		if w.job.spare[rank] {
			continue
		}
		w.event("process_start", w.node.begin+20e6, -1, w.rank(g), fmt.Sprintf(`{"pid":%d,"role":"rank","local_rank":%d,"size":%d,"name":"python"}`,
			w.pid(g), w.local(g), w.job.ranks()-len(w.job.spare)))
		w.event("gpu_process_start", w.node.begin+50e6, g, -1, fmt.Sprintf(`{"gpu_uuid":%q,"pid":%d,"at_first_read":true}`, w.uuid(g), w.pid(g)))
	}
}

// finish writes those of its end.
func (w *hostWriter) finish() {
	if w.node.end < w.job.end {
		return // it was lost
	}
	w.event("agent_end", w.node.end, -1, -1, `{"reason":"job ended"}`)
}

func (w *hostWriter) uuid(g int) string { return w.job.facts.Nodes[w.index].GPUs[g].UUID }

func (w *hostWriter) hostRow(t int64, n *nodeRates) {
	cpus := float64(w.h.kind.cpus)
	user, system := min(n.user, cpus), n.system
	idle := max(0, cpus-user-system-n.iowait)
	r := w.row(table.Host, t)
	tick := func(v int64) int64 { return v / 1e7 * 1e7 }
	r.int(table.HostCPUUser, tick(w.grow("user", user*1e9)))
	r.int(table.HostCPUNice, 0)
	r.int(table.HostCPUSystem, tick(w.grow("system", system*1e9)))
	r.int(table.HostCPUIdle, tick(w.grow("idle", idle*1e9)))
	r.int(table.HostCPUIOWait, tick(w.grow("iowait", n.iowait*1e9)))
	r.int(table.HostCPUIRQ, 0)
	r.int(table.HostCPUSoftIRQ, tick(w.grow("softirq", 0.02e9)))
	r.int(table.HostCPUSteal, 0)
	r.int(table.HostContextSwitches, w.grow("switches", n.switches))
	r.int(table.HostInterrupts, w.grow("interrupts", n.interrupts))
	r.int(table.HostForks, w.grow("forks", 2))
	r.int(table.HostProcsRunning, int64(max(1, n.running)))
	r.int(table.HostProcsBlocked, int64(n.iowait))
	w.load += (n.running - w.load) / 60
	r.float(table.HostLoad1, w.load)
	total := float64(w.h.kind.memory)
	r.int(table.HostMemTotal, int64(total))
	r.int(table.HostMemFree, int64(max(0.01*total, total*0.7-n.used)))
	r.int(table.HostMemAvailable, int64(max(0.005*total, total*0.97-n.used)))
	r.int(table.HostMemCached, int64(total*0.2))
	r.int(table.HostMemDirty, int64(1e6*(1+w.job.rng.Float64())))
	r.int(table.HostSwapUsed, int64(n.swap))
	if w.h.kind.psi {
		r.int(table.HostPSICPUSome, w.grow("psi cpu", n.psiCPU*1e9))
		r.int(table.HostPSIMemSome, w.grow("psi mem", n.psiMem*1e9))
		r.int(table.HostPSIMemFull, w.grow("psi mem full", n.psiMemFull*1e9))
		r.int(table.HostPSIIOSome, w.grow("psi io", n.psiIO*1e9))
		r.int(table.HostPSIIOFull, w.grow("psi io full", n.psiIO*0.3e9))
	}
	r.int(table.HostTCPInSegs, w.grow("in segs", n.segments))
	r.int(table.HostTCPOutSegs, w.grow("out segs", n.segments))
	r.int(table.HostTCPRetransSegs, w.grow("retrans", n.retransmitted))
	r.int(table.HostTCPInErrors, 0)
	r.int(table.HostTCPTimeouts, w.grow("timeouts", n.timeouts))
	r.int(table.HostTCPLostRetrans, w.grow("lost retrans", n.retransmitted*0.02))
	r.int(table.HostTCPSynRetrans, 0)
	r.int(table.HostTCPListenDrops, 0)
	r.int(table.HostFaultsMajor, w.grow("major", n.majorFaults))
	r.int(table.HostSwapIn, w.grow("swap in", n.swapIn))
	r.int(table.HostSwapOut, w.grow("swap out", n.swapOut))
	r.int(table.HostReclaimDirect, w.grow("reclaim", n.reclaim))
	r.int(table.HostOOMKills, w.grow("oom", n.oom))
}

func (w *hostWriter) netRows(t int64, n *nodeRates) {
	tcp := n.bytes
	if w.h.kind.rdma {
		tcp = 1e5
		for port := range 4 {
			name := fmt.Sprintf("mlx5_%d:1", port)
			r := w.row(table.Infiniband, t)
			r.string(table.IBPort, name)
			r.string(table.IBLinkLayer, "InfiniBand")
			r.string(table.IBState, "ACTIVE")
			r.string(table.IBRate, n.ibRate)
			r.int(table.IBRxBytes, w.grow(name+"rx", n.bytes/4))
			r.int(table.IBTxBytes, w.grow(name+"tx", n.bytes/4))
			r.int(table.IBRxPackets, w.grow(name+"rxp", n.bytes/4/4096))
			r.int(table.IBTxPackets, w.grow(name+"txp", n.bytes/4/4096))
			for i, c := range table.IBCounters {
				r.int(table.IBFirstCounter+i, w.since(name+c.Column, n.ibErrors[c.Column]))
			}
		}
	}
	r := w.row(table.Net, t)
	r.string(table.NetDevice, "eth0")
	r.int(table.NetRxBytes, w.grow("rx", tcp))
	r.int(table.NetTxBytes, w.grow("tx", tcp))
	r.int(table.NetRxPackets, w.grow("rxp", tcp/9000))
	r.int(table.NetTxPackets, w.grow("txp", tcp/9000))
	for _, c := range []int{table.NetRxErrors, table.NetTxErrors, table.NetRxDropped, table.NetTxDropped} {
		r.int(c, 0)
	}
}

// bracketRow is the node's clocks read together; a slew of some ppm is normal.
func (w *hostWriter) bracketRow(t int64) {
	r := w.row(table.ClockBracket, t)
	raw := t - w.job.begin + 5e12
	elapsed := float64(t - w.job.begin)
	r.int(table.BrRaw0, raw)
	r.int(table.BrRaw1, raw+1200)
	wall := w.node.shifted(t) + 600 + int64(elapsed*float64(w.index*7%11-5)*1e-7)
	r.int(table.BrRealtime, wall)
	r.int(table.BrMonotonic, raw+600+2e11)
	r.int(table.BrBoottime, raw+700+2e11)
	r.int(table.BrAdjStatus, 0x2001)
	r.int(table.BrAdjMaxError, 20e6)
	r.int(table.BrAdjEstError, 1e3)
	r.int(table.BrAdjFreq, 65536*3)
	r.int(table.BrTAIOffset, 37)
	r.string(table.BrClocksource, "tsc")
}
