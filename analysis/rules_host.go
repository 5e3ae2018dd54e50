package analysis

import (
	"fmt"
	"strings"

	"github.com/gswarm/gswarm/table"
)

// ofRanks is a field of the ranks of a GPU, a share of time or a rate per
// second; false where it was not read.
func (m *model) ofRanks(d *device, f field, s Span) (float64, bool) {
	sum, known := 0.0, false
	for _, r := range d.ranks {
		if v, ok := m.tables.ranks.lookup(d.Node, r).share(f, s); ok {
			sum += v
			known = true
		}
	}
	return sum, known
}

// hostMore is by how much more of a field the suspect's rank had than the median
// of the others; false where it was not read.
func (s *suspect) hostMore(f field) (more, own, rest float64, ok bool) {
	own, ok = s.m.ofRanks(s.device, f, s.span)
	if !ok {
		return 0, 0, 0, false
	}
	var all []float64
	for _, d := range s.others {
		if v, known := s.m.ofRanks(d, f, s.span); known {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return own, own, 0, true
	}
	rest = median(all)
	return own - rest, own, rest, true
}

// known returns what is known of the GPU's rank, nil without any.
func (s *suspect) known(d *device) *rankFacts {
	for _, r := range d.ranks {
		if k := s.m.tables.ranks.known.lookup(d.Node, r); k != nil {
			return k
		}
	}
	return nil
}

// track is the counters of the GPU's first rank.
func (s *suspect) track() *counterTrack {
	for _, r := range s.device.ranks {
		if c := s.m.tables.ranks.lookup(s.device.Node, r); c != nil {
			return c
		}
	}
	return nil
}

// hostRules are causes on the host: they explain time in which the GPU was empty
// or copied.
func hostRules() []rule {
	return []rule{
		{
			cause: Affinity, title: "is bound to the wrong cores, or to too few",
			remedy:   "Bind each rank to cores of its own beside its GPU: srun --cpus-per-task=N --cpu-bind=cores (or --gpu-bind=closest), mpirun --map-by numa, numactl --cpunodebind.",
			explains: badAffinity,
		},
		{
			cause: CPUStarved, title: "waits for a core",
			remedy:   "Give the rank more cores (--cpus-per-task), run fewer data workers and threads (OMP_NUM_THREADS), and look for other programs on the node.",
			explains: starved,
		},
		{
			cause: MemoryPressure, title: "is short of host memory",
			remedy:   "Ask for more memory (--mem), keep less in the page cache and in data workers, pin less.",
			explains: pressed,
		},
		{
			cause: InputStall, title: "waits for input",
			remedy:   "Read ahead with more data workers, keep the data on a faster disk, in fewer and larger files, or in memory.",
			explains: starvedOfInput,
		},
		{
			cause: InputStall, title: "has an empty GPU in its steps: it waits for its host, most often for input",
			remedy: "Look at what the rank does between its steps: reading and preparing data, logging, writing checkpoints; record the host's tables too.",
			explains: func(s *suspect) (float64, []Evidence) {
				if s.serial() {
					return 0, nil
				}
				says := fmt.Sprintf("its GPU was empty %s of the time, others' %s", percent(s.shares.idle), percent(s.typical.idle))
				return 0.5 * s.hostSide(), []Evidence{s.m.readingsShow(s.device, s.span, says, table.GPUUtil)}
			},
		},
	}
}

// part is the share of the suspect's excess that a share of time accounts for,
// at most what its GPU was empty or copied.
func (s *suspect) part(share float64) float64 {
	return min(share/s.excess, s.hostSide())
}

// slightly is the least share of time, beyond the others', that counts.
const slightly = 0.01

func starved(s *suspect) (float64, []Evidence) {
	delay, own, rest, ok := s.hostMore(rankDelay)
	quota, ownQuota, _, _ := s.hostMore(rankThrottled)
	if !ok || max(delay, quota) < slightly {
		return 0, nil
	}
	says := fmt.Sprintf("its main thread was ready and waited for a core %s of the time, others %s; its quota held it %s of the time",
		percent(own), percent(rest), percent(min(1, ownQuota)))
	return s.part(max(delay, quota)), []Evidence{countersShow(table.Rank, s.device.Place, s.track(), s.span, says, table.RankRunDelay, table.RankThrottledTime)}
}

// badAffinity holds the cores that the rank may use against those of the others
// and against its GPU's NUMA node.
func badAffinity(s *suspect) (float64, []Evidence) {
	own := s.known(s.device)
	if own == nil || own.affinityCount == nil {
		return 0, nil
	}
	var counts []float64
	farOthers := 0
	for _, d := range s.others {
		if k := s.known(d); k != nil && k.affinityCount != nil {
			counts = append(counts, float64(*k.affinityCount))
			if k.far() {
				farOthers++
			}
		}
	}
	few := len(counts) > 0 && 2*float64(*own.affinityCount) <= median(counts)
	far := own.far() && 2*farOthers <= len(counts)
	if !few && !far {
		return 0, nil
	}
	says := fmt.Sprintf("it may run on %d cores (%s), others on %.0f", *own.affinityCount, own.affinity, median(counts))
	if far {
		says += fmt.Sprintf("; they are on NUMA node %s, its GPU is on node %d", own.affinityNodes, *own.gpuNode)
	}
	return s.hostSide(), []Evidence{countersShow(table.Rank, s.device.Place, s.track(), s.span, says, table.RankAffinityCount, table.RankAffinity, table.RankAffinityNodes, table.RankGPUNode)}
}

// far says that none of the cores that the rank may use is on its GPU's node.
func (k *rankFacts) far() bool {
	if k.gpuNode == nil || *k.gpuNode < 0 || k.affinityNodes == "" {
		return false
	}
	return !inList(k.affinityNodes, *k.gpuNode)
}

// inList says whether n is in a list such as 0-3,8.
func inList(list string, n int) bool {
	for part := range strings.SplitSeq(list, ",") {
		var a, b int
		switch k, _ := fmt.Sscanf(part, "%d-%d", &a, &b); k {
		case 1:
			b = a
		case 2:
		default:
			continue
		}
		if a <= n && n <= b {
			return true
		}
	}
	return false
}

// faultsASecond is the rate of major faults, or of hits on the memory limit,
// beyond the others' that is no chance.
const faultsASecond = 5

func pressed(s *suspect) (float64, []Evidence) {
	psi, own, rest, _ := s.hostMore(rankPSIMem)
	major, ownMajor, restMajor, _ := s.hostMore(rankMajor)
	hits, ownHits, _, ok := s.hostMore(rankLimitHits)
	if !ok || psi < slightly && major < faultsASecond && hits < faultsASecond {
		return 0, nil
	}
	says := fmt.Sprintf("its group waited for memory %s of the time, others' %s; %.1f major faults a second, others %.1f; %.1f hits on the memory limit a second",
		percent(own), percent(rest), ownMajor, restMajor, ownHits)
	share := s.part(psi)
	if major >= faultsASecond || hits >= faultsASecond {
		share = max(share, 0.8*s.hostSide())
	}
	return share, []Evidence{countersShow(table.Rank, s.device.Place, s.track(), s.span, says, table.RankPSIMemSome, table.RankFaultsMajor, table.RankMemoryHits)}
}

func starvedOfInput(s *suspect) (float64, []Evidence) {
	delay, ownDelay, _, _ := s.hostMore(rankIODelay)
	psi, own, rest, _ := s.hostMore(rankPSIIO)
	blocked := 0.0
	if c := s.track(); c != nil {
		if rows := c.since(rankRows, s.span); rows > 0 {
			blocked = c.since(rankBlocked, s.span) / rows
		}
	}
	share := max(delay, psi, blocked)
	if share < slightly {
		return 0, nil
	}
	says := fmt.Sprintf("it waited for block I/O %s of the time; its group waited for I/O %s, others' %s; its main thread was found in an uninterruptible wait in %s of the readings",
		percent(ownDelay), percent(own), percent(rest), percent(blocked))
	return s.part(share), []Evidence{countersShow(table.Rank, s.device.Place, s.track(), s.span, says, table.RankIODelay, table.RankPSIIOSome, table.RankState)}
}
