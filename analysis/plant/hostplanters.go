package plant

import (
	"fmt"
	"math"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// hold makes some ranks' hosts late: their GPUs idle at the begin of the step
// and here and there in it. Each rank is late by another amount.
func (c *caseMaker) hold(ranks []int) {
	share := map[int]float64{}
	for i, r := range ranks {
		share[r] = 1
		if i > 0 {
			share[r] = 0.4 + 0.55*c.rng.Float64()
		}
	}
	c.add(planting{shape: func(p *planned) {
		for _, r := range ranks {
			late := float64(c.lateBy(p, r)) * share[r] * (1 + 0.1*c.rng.NormFloat64())
			p.ranks[r].gap += int64(0.6 * late)
			p.ranks[r].hole += int64(0.4 * late)
		}
	}})
}

// late is the share of time by which a step of this size is lengthened.
func (c *caseMaker) late() float64 { return c.Size / (1 + c.Size) }

// concerned calls f for the ranks of a node that the case concerns.
func (c *caseMaker) concerned(n int, ranks []rankRates, f func(r *rankRates)) {
	for _, r := range c.Ranks {
		if r/perNode == n {
			f(&ranks[r%perNode])
		}
	}
}

// waits makes a rank's threads wait for a core.
func (c *caseMaker) waits(r *rankRates, share float64) {
	share = min(0.9, share*(0.9+0.2*c.rng.Float64()))
	r.delay += share
	r.cpu = max(0.05, r.cpu-share)
	r.involuntary += 80 + 700*share*(0.5+c.rng.Float64())
	r.migrations += 5 * c.rng.Float64()
	r.workerDelay += share * 0.5
	r.psiCPU = max(r.psiCPU, share)
	r.state = "R"
}

// cpuStarved lets other programs take the cores, or a quota.
func cpuStarved(c *caseMaker) {
	share := c.late() * (1 + 0.4*c.rng.Float64())
	switch roll := c.rng.IntN(4); {
	case roll == 0:
		c.Variant = "the node's cores are taken"
		c.hold(shuffled(c, c.oneNodeRanks()))
		c.add(planting{rates: func(n int, _ int64, h *nodeRates, ranks []rankRates) {
			c.concerned(n, ranks, func(r *rankRates) { c.waits(r, share) })
			if c.Ranks[0]/perNode == n {
				cpus := float64(c.nodes[n].host.kind.cpus)
				h.user, h.running, h.psiCPU = cpus*0.98, cpus*(1.1+share), min(0.95, 0.3+share)
				h.switches *= 3
			}
		}})
	case roll == 1 && c.nodes[0].host.kind.cgroup:
		c.Variant = "quota"
		c.hold(shuffled(c, c.oneNodeRanks()))
		c.add(planting{rates: func(n int, _ int64, _ *nodeRates, ranks []rankRates) {
			c.concerned(n, ranks, func(r *rankRates) {
				r.throttled = share * 4 // added up over CPUs
				r.cpu = max(0.05, r.cpu-share)
				r.psiCPU = max(r.psiCPU, share)
			})
		}})
	default:
		c.Variant = "one rank's core is taken"
		c.hold([]int{c.one()})
		c.add(planting{rates: func(n int, _ int64, h *nodeRates, ranks []rankRates) {
			c.concerned(n, ranks, func(r *rankRates) { c.waits(r, share) })
			if c.Ranks[0]/perNode == n {
				h.user++
				h.running++
				h.psiCPU = max(h.psiCPU, share)
			}
		}})
	}
}

func (c *caseMaker) oneNodeRanks() []int {
	c.oneNode()
	return c.Ranks
}

// shuffled is the ranks in a random order: the first of them is the slowest.
func shuffled(c *caseMaker, ranks []int) []int {
	all := append([]int(nil), ranks...)
	c.rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

// affinity binds ranks badly.
func affinity(c *caseMaker) {
	share := c.late() * (1 + 0.4*c.rng.Float64())
	switch c.rng.IntN(3) {
	case 0:
		c.Variant = "all ranks of a node on the same cores"
		cores := 4 + c.rng.IntN(5)
		for _, n := range c.nodes {
			n.host.kind.workers = max(2, n.host.kind.workers)
		}
		c.hold(shuffled(c, c.oneNodeRanks()))
		c.add(planting{rates: func(n int, _ int64, _ *nodeRates, ranks []rankRates) {
			c.concerned(n, ranks, func(r *rankRates) {
				c.waits(r, share)
				r.affinity, r.affinityNodes, r.affinityCount = fmt.Sprintf("0-%d", cores-1), "0", cores
			})
		}})
	case 1:
		c.Variant = "one rank and its helpers on one core"
		for _, n := range c.nodes {
			n.host.kind.workers = max(2, n.host.kind.workers)
		}
		rank := c.one()
		core := c.rng.IntN(c.nodes[0].host.kind.cpus)
		c.hold([]int{rank})
		c.add(planting{rates: func(n int, _ int64, _ *nodeRates, ranks []rankRates) {
			c.concerned(n, ranks, func(r *rankRates) {
				c.waits(r, share)
				r.workerDelay += 0.5
				r.affinity, r.affinityNodes, r.affinityCount = fmt.Sprint(core), fmt.Sprint(2*core/c.nodes[0].host.kind.cpus), 1
			})
		}})
	default:
		c.Variant = "one rank far from its GPU"
		rank := c.one()
		kind := c.nodes[0].host.kind
		per := kind.cpus / perNode
		for _, n := range c.nodes {
			n.host.kind.pinned = true
			for r := range n.host.ranks {
				w := &n.host.ranks[r]
				w.affinity, w.affinityCount, w.affinityNodes = fmt.Sprintf("%d-%d", r*per, (r+1)*per-1), per, fmt.Sprint(r/(perNode/2))
			}
		}
		c.base.h2d = max(c.base.h2d, int64(0.06*float64(c.base.length())))
		c.slow(rank, func(r *rankStep, extra int64) {
			ch := c.base.rest()
			ch.pcie = float64(r.h2d) / (float64(r.h2d) + 0.5*float64(extra))
			r.h2d += extra / 2
			r.onH2D = &ch
			r.gap += extra / 4
			r.hole += extra / 4
		})
		c.add(planting{rates: func(n int, _ int64, _ *nodeRates, ranks []rankRates) {
			c.concerned(n, ranks, func(r *rankRates) {
				far := (rank%perNode + perNode/2) % perNode
				r.affinity, r.affinityCount, r.affinityNodes = fmt.Sprintf("%d-%d", far*per, (far+1)*per-1), per, fmt.Sprint(far/(perNode/2))
			})
		}})
	}
}

// memoryPressure makes a node, or the job's group on it, run out of memory.
func memoryPressure(c *caseMaker) {
	share := c.late()
	swaps := c.rng.IntN(2) == 0
	group := c.nodes[0].host.kind.cgroup && c.rng.IntN(2) == 0
	c.hold(shuffled(c, c.oneNodeRanks()))
	faults := 100 * math.Pow(20, c.rng.Float64())
	c.Variant = "node"
	if group {
		c.Variant = "group at its limit"
	}
	c.add(planting{rates: func(n int, _ int64, h *nodeRates, ranks []rankRates) {
		if c.Ranks[0]/perNode != n {
			return
		}
		kind := c.nodes[n].host.kind
		f := faults * (0.5 + c.rng.Float64())
		h.majorFaults += f * perNode
		h.psiMem, h.psiMemFull = share*1.1, share*0.6
		h.psiIO = share * 0.5
		h.iowait++
		if !group {
			h.used = float64(kind.memory) * 0.965
			h.reclaim += 2e4 * (0.5 + c.rng.Float64())
		}
		if swaps {
			h.swapIn, h.swapOut, h.swap = f*4096*perNode, f*4096*perNode*1.3, 8e9
		}
		for i := range ranks {
			r := &ranks[i]
			r.major += f
			r.cpu = max(0.05, r.cpu-share)
			r.system += share * 0.3
			r.state = "D"
			r.psiMem = share * 1.1
			if group {
				limit := float64(kind.memory) / 4
				r.cgroupLimit, r.cgroupBytes = limit, limit*0.999
				r.limitHits = 50 * (0.5 + c.rng.Float64())
			}
		}
	}})
}

// inputStall lets ranks wait for their data.
func inputStall(c *caseMaker) {
	var ranks []int
	switch roll := c.rng.Float64(); {
	case roll < 0.45:
		c.Variant = "all ranks"
		for r := range c.ranks() {
			ranks = append(ranks, r)
		}
	case roll < 0.6 && len(c.nodes) > 1:
		c.Variant = "one node"
		c.oneNode()
		ranks = c.Ranks
	default:
		c.Variant = "one rank"
		ranks = []int{c.one()}
	}
	every := 1
	if c.rng.IntN(4) == 0 {
		every = 3 + c.rng.IntN(5)
		c.Variant += ", now and then"
	}
	read := c.rng.IntN(2) == 0
	if read {
		c.Variant += ", storage"
	} else {
		c.Variant += ", helpers compute"
		for _, n := range c.nodes {
			n.host.kind.workers = max(1, n.host.kind.workers)
		}
	}
	c.add(planting{shape: func(p *planned) {
		if p.number%every != 0 {
			return
		}
		extra := float64(c.extra(p)) * float64(every)
		for _, r := range ranks {
			if len(ranks) == 1 {
				extra += float64(p.last - p.ranks[r].own())
			}
			p.ranks[r].gap += int64(extra * (1 - 0.05*math.Abs(c.rng.NormFloat64())))
		}
	}})
	share := c.late()
	c.add(planting{rates: func(n int, _ int64, h *nodeRates, rates []rankRates) {
		for _, r := range ranks {
			if r/perNode != n {
				continue
			}
			w := &rates[r%perNode]
			w.cpu = max(0.05, w.cpu-share)
			w.voluntary *= 1.3
			if read {
				w.workerState, w.workerCPU = "D", w.workerCPU*0.4
				h.iowait += 0.5
			} else {
				w.workerState, w.workerCPU = "R", 0.97
			}
		}
	}})
}

// netRetransmit lets a node's network lose what it sends.
func netRetransmit(c *caseMaker) {
	n := c.oneNode()
	c.slowRing()
	loss := 0.001 * math.Pow(20, c.rng.Float64())
	c.Variant = "TCP"
	if c.nodes[0].host.kind.rdma {
		c.Variant = "InfiniBand"
	}
	c.add(planting{rates: func(i int, _ int64, h *nodeRates, _ []rankRates) {
		// The same bytes go in longer steps.
		h.bytes /= 1 + c.Size
		h.segments /= 1 + c.Size
		if i != n {
			return
		}
		f := 0.5 + c.rng.Float64()
		if c.Variant == "TCP" {
			h.retransmitted += h.segments * loss * f
			h.timeouts += 5 * f
			return
		}
		packets := h.bytes / 4096 / 4 * loss * 0.1 * f
		h.ibErrors["packet_seq_errors_count"] += packets
		h.ibErrors["out_of_sequence_count"] += packets
		h.ibErrors["local_ack_timeouts_count"] += 2 * f
	}})
}

// gpuFault lets a GPU fail.
func gpuFault(c *caseMaker) {
	rank := c.one()
	n, g := c.nodes[rank/perNode], rank%perNode
	at := c.begin + int64((0.2+0.6*c.rng.Float64())*float64(c.end-c.begin))
	c.active = stretch{at, c.end}
	uuid := func(j *job) string { return j.facts.Nodes[rank/perNode].GPUs[g].UUID }
	switch c.rng.IntN(3) {
	case 0:
		xid := []int{31, 48, 74, 94, 95, 119}[c.rng.IntN(6)]
		c.Variant = fmt.Sprintf("Xid %d", xid)
		c.plant = append(c.plant, planting{finish: func(j *job, s *Source) {
			event(s, n, "xid", at, g, fmt.Sprintf(`{"gpu_uuid":%q,"xid":%d}`, uuid(j), xid))
		}})
	case 1:
		c.Variant = "uncorrected ECC"
		c.plant = append(c.plant, planting{
			counters: func(i, gpu int, t int64, column int) int64 {
				if i == rank/perNode && gpu == g && t >= at && (column == table.CntECCUncorrected || column == table.CntRemappedUncorrected) {
					return 1
				}
				return 0
			},
			finish: func(j *job, s *Source) {
				event(s, n, "ecc_uncorrected", at, g, fmt.Sprintf(`{"gpu_uuid":%q}`, uuid(j)))
			},
		})
	default:
		c.Variant = "lost"
		n.lost[g] = at
		c.plant = append(c.plant, planting{finish: func(j *job, s *Source) {
			event(s, n, "xid", at-200e6, g, fmt.Sprintf(`{"gpu_uuid":%q,"xid":79}`, uuid(j)))
			event(s, n, "gpu_lost", at, g, fmt.Sprintf(`{"gpu_uuid":%q,"error":"GPU is lost"}`, uuid(j)))
		}})
		c.hangs(at)
	}
}

// hangs leaves all ranks waiting from at on, until the job is ended.
func (c *caseMaker) hangs(at int64) {
	c.filler = func(j *job, t int64) int64 {
		if t < at {
			return t
		}
		for r := range j.ranks() {
			j.wait(r, j.end-t)
		}
		return j.end
	}
	c.facts.Exit = "exit code 1"
}

// nodeMissing takes a node away, from the begin or from some time on.
func nodeMissing(c *caseMaker) {
	i := 1 + c.rng.IntN(len(c.nodes)-1)
	n := c.nodes[i]
	c.Nodes = []string{n.name}
	if c.rng.IntN(3) == 0 {
		c.Variant = "left nothing"
		n.end = n.begin
		c.plant = append(c.plant, planting{finish: func(j *job, s *Source) {
			for _, t := range s.tables {
				delete(t.of, n.name)
				for k, name := range t.nodes {
					if name == n.name {
						t.nodes = append(t.nodes[:k], t.nodes[k+1:]...)
						break
					}
				}
			}
			f := &j.facts.Nodes[i]
			*f = analysis.NodeFacts{Node: n.name, Missing: true}
			j.facts.Missing = append(j.facts.Missing, n.name+": the run was to sample this node, and there is no directory")
		}})
		return
	}
	c.Variant = "stopped before the others"
	at := c.begin + int64((0.2+0.6*c.rng.Float64())*float64(c.end-c.begin))
	c.active = stretch{at, c.end}
	n.end = at
	c.hangs(at)
	c.plant = append(c.plant, planting{finish: func(j *job, s *Source) {
		j.facts.Nodes[i].Ended = ""
		for _, t := range table.All() { // as the merge writes them
			if b := s.tables[t.Name]; b == nil || b.of[n.name] == nil || t == table.Event {
				continue
			}
			r := cells{s.add(table.Absence, n.name, n.stamp(j.end, j.end-at))}
			r.Int(table.TLBegin, n.shifted(at))
			r.string(table.AbsTable, t.Name)
			r.string(table.AbsReason, "node_lost")
			r.string(table.AbsDetail, "no end mark; found by the merge")
		}
		j.facts.Missing = append(j.facts.Missing, n.name+": its agent was killed")
	}})
}

// clockStep lets a node's wall clock jump.
func clockStep(c *caseMaker) {
	i := c.rng.IntN(len(c.nodes))
	n := c.nodes[i]
	c.Nodes = []string{n.name}
	at := c.begin + int64((0.15+0.7*c.rng.Float64())*float64(c.end-c.begin))
	c.active = stretch{at, c.end}
	by := int64(c.Size * 1e9 * math.Pow(10, c.rng.Float64()))
	if c.rng.IntN(2) == 0 {
		by = -by
	}
	c.Variant = fmt.Sprintf("%+d ms", by/1e6)
	c.plant = append(c.plant, planting{finish: func(_ *job, s *Source) {
		jump := func(t *table.Table, column int, by int64) {
			b := s.batch(t, n.name)
			for k, at2 := range b.Ints(table.TLTimeNS) {
				if at2 >= at {
					b.Ints(own(column))[k] += by
				}
			}
		}
		jump(table.ClockBracket, table.BrRealtime, by)
		jump(table.GPUPower, table.PowStamp, by/1000)
	}})
}
