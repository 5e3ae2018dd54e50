package plant

import (
	"fmt"

	"github.com/gswarm/gswarm/table"
)

// rankRows writes a rank's process and its helpers.
func (w *hostWriter) rankRows(t int64, g int, n *rankRates) {
	key := fmt.Sprint("rank", g)
	r := w.processRow(t, g, key, "rank", w.pid(g), n, rankUse{
		cpu: n.cpu, system: n.system, delay: n.delay, voluntary: n.voluntary, involuntary: n.involuntary, minor: n.minor, major: n.major,
		rss: n.rss, read: n.read, readCalls: n.readCalls, written: n.written, state: n.state, threads: 40,
	})
	r.int(table.RankGPU, int64(g))
	r.string(table.RankGPUSource, "nvml")
	r.int(table.RankGPUNode, int64(g/(perNode/2)))
	for i := range w.h.kind.workers {
		w.processRow(t, g, fmt.Sprint(key, "worker", i), "worker", w.pid(g)+int64(i)+1, n, rankUse{
			cpu: n.workerCPU * 0.8, system: n.workerCPU * 0.2, delay: n.workerDelay, voluntary: 30, involuntary: 10, minor: n.minor / 2,
			major: n.major / 4, rss: n.rss / 4, read: n.workerRead, readCalls: n.workerRead / 1e6, state: n.workerState, threads: 2,
		})
	}
}

// rankUse is what one process used in a second.
type rankUse struct {
	cpu, system, delay, voluntary, involuntary, minor, major float64
	rss, read, readCalls, written                            float64
	state                                                    string
	threads                                                  int64
}

func (w *hostWriter) processRow(t int64, g int, key, role string, pid int64, n *rankRates, u rankUse) cells {
	r := w.row(table.Rank, t)
	tick := func(v int64) int64 { return v / 1e7 * 1e7 }
	r.int(table.RankRank, int64(w.rank(g)))
	r.int(table.RankPID, pid)
	r.int(table.RankLocal, int64(w.local(g)))
	r.string(table.RankRole, role)
	r.string(table.RankName, "python")
	r.string(table.RankState, u.state)
	r.int(table.RankThreads, u.threads)
	r.int(table.RankCPUUser, tick(w.since(key+"user", u.cpu*1e9)))
	r.int(table.RankCPUSystem, tick(w.since(key+"system", u.system*1e9)))
	r.int(table.RankRunDelay, w.since(key+"delay", u.delay*1e9))
	r.int(table.RankVoluntary, w.since(key+"vol", u.voluntary))
	r.int(table.RankInvoluntary, w.since(key+"invol", u.involuntary))
	// The other threads are few that work, and wait as the main one does.
	r.int(table.RankThreadsRunDelay, w.since(key+"delays", u.delay*1.8e9))
	r.int(table.RankThreadsVoluntary, w.since(key+"vols", u.voluntary*3))
	r.int(table.RankThreadsInvoluntary, w.since(key+"invols", u.involuntary*1.8))
	r.int(table.RankMigrations, w.since(key+"migr", n.migrations))
	r.int(table.RankFaultsMinor, w.since(key+"minor", u.minor))
	r.int(table.RankFaultsMajor, w.since(key+"major", u.major))
	r.int(table.RankRSS, int64(u.rss)/4096*4096)
	r.int(table.RankReadBytes, w.since(key+"read", u.read*0.3))
	r.int(table.RankWriteBytes, w.since(key+"write", u.written))
	r.int(table.RankReadCallBytes, w.since(key+"rchar", u.read))
	r.int(table.RankWriteCallBytes, w.since(key+"wchar", u.written))
	r.int(table.RankReadCalls, w.since(key+"syscr", u.readCalls))
	r.int(table.RankWriteCalls, w.since(key+"syscw", u.written/1e6))
	r.int(table.RankCPULast, pid%int64(w.h.kind.cpus))
	r.int(table.RankNUMANode, int64(g/(perNode/2)))
	r.int(table.RankAffinityCount, int64(n.affinityCount))
	r.string(table.RankAffinity, n.affinity)
	r.string(table.RankAffinityNodes, n.affinityNodes)
	if w.h.kind.cgroup {
		// The group is the whole job's on the node: the same for all its processes.
		if role == "rank" && g == 0 {
			w.since("throttled", n.throttled*1e9)
			w.since("periods", 10)
			w.since("throttled periods", min(10, n.throttled*20))
			w.since("hits", n.limitHits)
			w.since("group psi cpu", n.psiCPU*1e9)
			w.since("group psi mem", n.psiMem*1e9)
		}
		r.int(table.RankPeriods, w.since("periods", 0))
		r.int(table.RankThrottled, w.since("throttled periods", 0))
		r.int(table.RankThrottledTime, w.since("throttled", 0))
		r.int(table.RankMemory, int64(n.cgroupBytes))
		if n.cgroupLimit > 0 {
			r.int(table.RankMemoryLimit, int64(n.cgroupLimit))
		}
		r.int(table.RankMemoryHits, w.since("hits", 0))
		r.int(table.RankOOMKills, 0)
		if w.h.kind.psi {
			r.int(table.RankPSICPUSome, w.since("group psi cpu", 0))
			r.int(table.RankPSIMemSome, w.since("group psi mem", 0))
			r.int(table.RankPSIMemFull, w.since("group psi mem", 0)/3)
		}
	}
	return r
}

// processRows says which process holds which GPU.
func (w *hostWriter) processRows(t int64) {
	for g := range perNode {
		if lost := w.node.lost[g]; lost > 0 && t >= lost || w.job.spare[w.index*perNode+g] {
			continue
		}
		r := keyed(table.GPUProcess, w.add(table.GPUProcess, w.node.name, w.node.stamp(t, 60e3)), g, w.uuid(g))
		r.int(table.ProcPID, w.pid(g))
		r.int(table.ProcRank, int64(w.rank(g)))
		r.int(table.ProcMemUsed, w.node.tracks[g].cheap(t).mem)
	}
}
