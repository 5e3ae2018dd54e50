package analysis

import (
	"fmt"
	"math"

	"github.com/gswarm/gswarm/table"
)

// What presses the ranks of a node, as a share of their time: each is found for
// a node as a whole, whether or not one of its ranks stands out.
const (
	// healthy is the share of time that a rank waits for a core, for memory or
	// for I/O where nothing is wrong.
	healthy = 0.02
	// pressedAtLeast is the share from which on, over a stretch, something is.
	pressedAtLeast = 0.045
)

// worthTelling is the share of the run's GPU time from which on a cause is worth
// an alarm; half of it where it is one node's.
const worthTelling = 0.01

// pressure is one way in which hosts hold their ranks up.
type pressure struct {
	cause   Cause
	columns []int
	// share is the share of a block's time that it took.
	share func(m *model, d *device, s Span) float64
	says  string
}

func pressures() []pressure {
	return []pressure{
		{
			cause: MemoryPressure, columns: []int{table.RankPSIMemSome, table.RankFaultsMajor, table.RankMemoryHits},
			says: "tasks waited for memory", share: (*model).memoryShare,
		},
		{
			cause: CPUStarved, columns: []int{table.RankRunDelay, table.RankThrottledTime, table.RankPSICPUSome},
			says: "the ranks' main threads were ready and waited for a core, or were held by a quota", share: (*model).starvedShare,
		},
		{
			cause: InputStall, columns: []int{table.RankIODelay, table.RankPSIIOSome, table.RankState, table.RankCPUUser},
			says: "tasks waited for I/O, or GPUs were empty while the ranks' helpers computed or waited for storage all the time,", share: (*model).inputShare,
		},
	}
}

// starvedShare is the share of time that a GPU's rank waited for a core. What a
// quota took is added up over cores, so it counts no more than the time in which
// some task of the group waited.
func (m *model) starvedShare(d *device, s Span) float64 {
	c := m.rankTrack(d)
	delay, _ := c.share(rankDelay, s)
	quota, _ := c.share(rankThrottled, s)
	waited, _ := c.share(rankPSICPU, s)
	if c.since(rankPSICPU, m.all()) == 0 { // kernels without pressure accounting
		waited = quota / throttledCores
	}
	return max(delay, min(quota, waited))
}

// throttledCores is how many cores a quota is taken to stop at once where the
// kernel does not say for how long any task waited.
const throttledCores = 4

// memoryShare is the share of time that some task of the rank's group waited for
// memory; where the group does not say, that of the node's tasks, if the rank
// itself had its memory taken away.
func (m *model) memoryShare(d *device, s Span) float64 {
	c := m.rankTrack(d)
	if v, _ := c.share(rankPSIMem, s); v > 0 {
		return v
	}
	faults, _ := c.share(rankMajor, s)
	hits, _ := c.share(rankLimitHits, s)
	if faults < faultsASecond && hits < faultsASecond {
		return 0
	}
	if v, _ := m.tables.host.lookup(d.Node, 0).share(nodePSIMem, s); v > 0 {
		return v
	}
	// Kernels without pressure accounting: how often its main thread was found
	// waiting for a page.
	if rows := c.since(rankRows, s); rows > 0 {
		return c.since(rankBlocked, s) / rows
	}
	return 0
}

// inputShare is the share of time that the rank waited for I/O: as its threads
// count it, or its group; or that its GPU was empty while its helpers could do
// no more.
func (m *model) inputShare(d *device, s Span) float64 {
	c := m.rankTrack(d)
	delay, _ := c.share(rankIODelay, s)
	psi, _ := c.share(rankPSIIO, s)
	share := max(delay, psi)
	// A row a second is too few for one block to say so.
	about := Span{s.BeginNS - shortestStretch, s.EndNS + shortestStretch}
	if busy, _ := m.helpersBusy([]*device{d}, about); busy {
		share = max(share, 1-orOne(m.usage(d, s).util))
	}
	return share
}

func orOne(v float64) float64 {
	if v != v {
		return 1
	}
	return v
}

// pressed is a stretch in which a node's ranks were held up.
type pressedNode struct {
	*pressure
	node  string
	ranks []*device
	span  Span
	share float64
}

// findPressed finds the nodes whose ranks were held up, most of them at once.
func (m *model) findPressed() []pressedNode {
	byNode := map[string][]*device{}
	var order []string
	for _, d := range m.workers {
		if len(d.ranks) > 0 && m.rankTrack(d) != nil {
			if byNode[d.Node] == nil {
				order = append(order, d.Node)
			}
			byNode[d.Node] = append(byNode[d.Node], d)
		}
	}
	var out []pressedNode
	kinds := pressures()
	for _, node := range order {
		var found []pressedNode
		for k := range kinds {
			found = append(found, m.pressedBy(node, byNode[node], &kinds[k])...)
		}
		// Who waits for memory waits for its disk, too, and the first is the
		// cause: kinds are in that order.
		for i, p := range found {
			shadowed := false
			for k, o := range found {
				if k != i && 2*overlap(p.span, o.span) > p.span.EndNS-p.span.BeginNS && (o.share > 1.5*p.share || k < i && 1.5*o.share > p.share) {
					shadowed = true
				}
			}
			if !shadowed {
				out = append(out, p)
			}
		}
	}
	return out
}

// rankTrack is the counters of a GPU's first rank that has any.
func (m *model) rankTrack(d *device) *counterTrack {
	for _, r := range d.ranks {
		if c := m.tables.ranks.lookup(d.Node, r); c != nil && c.n > 0 {
			return c
		}
	}
	return nil
}

// pressedBy finds when most of a node's ranks were held up in one way.
func (m *model) pressedBy(node string, devices []*device, p *pressure) []pressedNode {
	block := m.tables.ranks.block
	from, to := floorDiv(m.span.BeginNS, block)+1, floorDiv(m.span.EndNS, block)
	if to-from < 5 {
		return nil
	}
	x := make([]float64, to-from)
	values := make([]float64, len(devices))
	for b := range x {
		s := Span{(from + int64(b)) * block, (from + int64(b) + 1) * block}
		for i, d := range devices {
			values[i] = p.share(m, d, s)
		}
		x[b] = median(values)
	}
	var out []pressedNode
	for _, s := range stretches(x, steadySD(x), healthy, pressedAtLeast, max(4, int(shortestStretch/block))) {
		out = append(out, pressedNode{
			pressure: p, node: node, ranks: devices, share: s.excess,
			span: Span{(from + int64(s.from)) * block, (from + int64(s.to)) * block},
		})
	}
	return out
}

// steadySD is the deviation of values about a level that may change.
func steadySD(x []float64) float64 {
	d := make([]float64, 0, len(x))
	for i := 1; i < len(x); i++ {
		if v := math.Abs(x[i] - x[i-1]); !math.IsNaN(v) {
			d = append(d, v)
		}
	}
	return 1.4826 / math.Sqrt2 * median(d)
}

// pressedFindings says which nodes' ranks were held up, and what that cost.
func (m *model) pressedFindings(all []pressedNode) []Finding {
	var out []Finding
	for _, p := range all {
		cause, title, remedy := p.cause, "waits", ""
		for _, r := range hostRules() {
			if r.cause == cause {
				title, remedy = r.title, r.remedy
				break
			}
		}
		empty := 0.0
		var shows []Evidence
		f := Finding{Span: p.span, Severity: Problem, Places: []Place{}}
		for _, d := range p.ranks {
			from, to := m.blocks(p.span)
			if s := m.shares(m.usageOf(d, from, to), m.levels(d, from, to)); s.known {
				empty += s.idle / float64(len(p.ranks))
			}
			f.Places = append(f.Places, d.Place)
		}
		rows := int64(0)
		for _, d := range p.ranks {
			rows += int64(m.rankTrack(d).since(rankRows, p.span))
		}
		shows = append(shows, Evidence{
			Table: table.Rank.Name, Columns: names(table.Rank, p.columns...), Place: Place{Node: p.node}, Span: p.span, Rows: rows,
			Says: fmt.Sprintf("%s %s of the time, at the median of %d ranks", p.says, percent(p.share), len(p.ranks)),
		})
		if cause == CPUStarved {
			if says := m.crowded(p.ranks[0]); says != "" {
				cause = Affinity
				for _, r := range hostRules() {
					if r.cause == Affinity {
						title, remedy = r.title, r.remedy
					}
				}
				shows = append(shows, Evidence{
					Table: table.Rank.Name, Columns: names(table.Rank, table.RankAffinity, table.RankAffinityCount), Place: Place{Node: p.node}, Span: p.span, Rows: rows, Says: says,
				})
			}
		}
		cost := min(p.share, empty)
		f.Cause, f.Remedy, f.Evidence = cause, remedy, shows
		f.Title = fmt.Sprintf("the ranks of node %s: each %s", p.node, title)
		f.Detail = fmt.Sprintf("They did so %s of the time; their GPUs were empty %s of it.", percent(p.share), percent(empty))
		f.Effect = ptr(cost * f.Seconds() * float64(len(p.ranks)) / m.gpuSeconds())
		f.StepExcess = ptr(cost / (1 - min(cost, 0.99)))
		f.Confidence = math.Round(100*clamp(0.6+2*(min(p.share, 0.2)-pressedAtLeast), 0.5, 0.9)) / 100
		switch {
		case *f.Effect < worthTelling/2:
			f.Severity = Info
		case cost < 0.5*pressedAtLeast:
			f.Severity = Warning
			f.Detail += " That is too little to have held the GPUs up much."
		}
		out = append(out, f)
	}
	return out
}

// coresForEach is the number of cores that a rank needs at least, for itself and
// its helpers, where ranks share them.
const coresForEach = 1.5

// crowded says, in words, that the ranks of a node are bound to the same few
// cores; empty where they are not.
func (m *model) crowded(d *device) string {
	var own *rankFacts
	same := 0
	for _, o := range m.workers {
		if o.Node != d.Node {
			continue
		}
		for _, r := range o.ranks {
			k := m.tables.ranks.known.lookup(o.Node, r)
			if k == nil || k.affinityCount == nil {
				continue
			}
			if o == d {
				own = k
			}
		}
	}
	if own == nil {
		return ""
	}
	for _, k := range m.tables.ranks.known.list {
		if k.node == own.node && k.affinity == own.affinity {
			same++
		}
	}
	if same < 2 || float64(*own.affinityCount) > coresForEach*float64(same) {
		return ""
	}
	return fmt.Sprintf("%d ranks may run on the same %d cores (%s)", same, *own.affinityCount, own.affinity)
}
