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
// of the others; false where it was not read. A share of time is held against
// what is healthy: where all ranks of a node are held up, one of them is so no
// less.
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
	rest = orZero(median(all))
	switch f {
	case rankDelay, rankThrottled, rankPSICPU, rankPSIMem, rankPSIIO, rankIODelay:
		return max(0, own-min(rest, healthy)), own, rest, true
	}
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
				if s.extraIdle() < emptyAtLeast*s.excess {
					return 0, nil
				}
				says := fmt.Sprintf("its GPU was empty %s of the time, others' %s", percent(s.shares.idle), percent(s.typical.idle))
				return 0.5 * s.hostSide(), []Evidence{s.m.readingsShow(s.device, s.span, says, table.GPUUtil)}
			},
		},
	}
}

// emptyAtLeast is the share of the excess in which a GPU must be seen to be
// empty for its host to be named without rows of it. Utilisation trails: short
// gaps show in part.
const emptyAtLeast = 0.25

// part is the share of the suspect's excess that a share of time accounts for,
// at most what its GPU was empty or copied.
func (s *suspect) part(share float64) float64 {
	return min(share/s.excess, s.hostSide())
}

// slightly is the least share of time, beyond the others', that counts.
const slightly = 0.01

func starved(s *suspect) (float64, []Evidence) {
	_, own, rest, ok := s.hostMore(rankDelay)
	_, ownQuota, _, _ := s.hostMore(rankThrottled)
	share := s.m.starvedShare(s.device, s.span) - healthy
	if !ok || share < slightly {
		return 0, nil
	}
	says := fmt.Sprintf("its main thread was ready and waited for a core %s of the time, others %s; its quota held it %s of the time",
		percent(own), percent(rest), percent(min(1, ownQuota)))
	return s.part(share), []Evidence{countersShow(table.Rank, s.device.Place, s.m.rankTrack(s.device), s.span, says, table.RankRunDelay, table.RankThrottledTime)}
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
	crowd := s.m.crowded(s.device)
	if !few && !far && crowd == "" {
		return 0, nil
	}
	says := fmt.Sprintf("it may run on %d cores (%s), others on %.0f", *own.affinityCount, own.affinity, median(counts))
	if crowd != "" {
		says += "; " + crowd
	}
	if far {
		says += fmt.Sprintf("; they are on NUMA node %s, its GPU is on node %d", own.affinityNodes, *own.gpuNode)
	}
	return s.hostSide(), []Evidence{countersShow(table.Rank, s.device.Place, s.m.rankTrack(s.device), s.span, says, table.RankAffinityCount, table.RankAffinity, table.RankAffinityNodes, table.RankGPUNode)}
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
	major, ownMajor, restMajor, _ := s.hostMore(rankMajor)
	hits, ownHits, _, ok := s.hostMore(rankLimitHits)
	share := s.m.memoryShare(s.device, s.span) - healthy
	if !ok || share < slightly && major < faultsASecond && hits < faultsASecond {
		return 0, nil
	}
	says := fmt.Sprintf("tasks waited for memory %s of the time; %.1f major faults a second, others %.1f; %.1f hits on the memory limit a second",
		percent(share+healthy), ownMajor, restMajor, ownHits)
	explained := s.part(share)
	if major >= faultsASecond || hits >= faultsASecond {
		explained = max(explained, 0.8*s.hostSide())
	}
	return explained, []Evidence{countersShow(table.Rank, s.device.Place, s.m.rankTrack(s.device), s.span, says, table.RankPSIMemSome, table.RankFaultsMajor, table.RankMemoryHits)}
}

func starvedOfInput(s *suspect) (float64, []Evidence) {
	c := s.m.rankTrack(s.device)
	blocked := func(f, rows field) float64 {
		if n := c.since(rows, s.span); n > 0 {
			return c.since(f, s.span) / n
		}
		return 0
	}
	main, helpers := blocked(rankBlocked, rankRows), blocked(helperBlocked, helperRows)
	if memory, _ := pressed(s); memory > 0 {
		main, helpers = 0, 0 // pages that were taken away come from storage, too
	}
	computing := blocked(helperCPU, helperRows)
	if others, _ := s.m.helpersBusy(s.others, s.span); others || computing < fullCore {
		computing = 0
	}
	_, _, rest, ok := s.hostMore(rankIODelay)
	share := max(s.m.inputShare(s.device, s.span)-min(rest, healthy), main)
	if !ok || share < slightly && helpers < mostly && computing == 0 {
		return 0, nil
	}
	says := fmt.Sprintf("it or its group waited for I/O %s of the time; its main thread was found in an uninterruptible wait in %s of the readings, its helpers in %s; they computed %s of the time",
		percent(share), percent(main), percent(helpers), percent(blocked(helperCPU, helperRows)))
	explained := s.part(share)
	if helpers >= mostly || computing > 0 {
		explained = max(explained, 0.8*s.hostSide())
	}
	return explained, []Evidence{countersShow(table.Rank, s.device.Place, c, s.span, says, table.RankIODelay, table.RankPSIIOSome, table.RankState)}
}

// mostly is the share of the readings of a rank's helpers that must find them
// waiting for storage for that to be what holds the rank up.
const mostly = 0.3
