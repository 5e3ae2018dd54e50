package merge

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// node is what one sampler of a node left: mostly all of the node, but a node
// whose ranks see different GPUs has a directory for each sampler.
type node struct {
	// name is the directory's own, as its shards have it; machine is the
	// node, which is what the timeline says and whose clock this is.
	name, machine string
	dir           string
	data          *shard.Node
	model         *clock.Model
	first, last   clock.NodeTime
	exchanges     []clock.Exchange
	brackets      []clock.Bracket
	barriers      rows.Barriers
	rows          int64
	// written counts the rows in the timeline by table.
	written map[string]int64
	// gpus are those that the sampler saw. Where the node had several
	// samplers, ordinals leads from its numbers to the node's; renumbered
	// says that they differ.
	gpus       []seenGPU
	ordinals   map[int64]int64
	renumbered bool
	// lost are absence rows that the merge adds, because the agent that
	// should have was killed.
	lost *table.Batch
}

// scan opens all nodes.
func (m *merger) scan() error {
	dirs, err := m.dir.NodeNames()
	if err != nil {
		return fmt.Errorf("merging %s: %w", m.dir, err)
	}
	for _, d := range dirs {
		data, err := shard.OpenNode(m.dir.Node(d))
		if err != nil {
			m.miss(NodeUnread, d, "its directory cannot be read")
			continue
		}
		m.add(d, data)
	}
	m.settleNames()
	m.numberGPUs()
	for _, want := range m.run.Nodes {
		want = rundir.CleanName(want)
		if !slices.ContainsFunc(m.nodes, func(n *node) bool { return n.machine == want || n.dir == want }) {
			if !slices.ContainsFunc(m.missing, func(x Missing) bool { return x.Node == want }) {
				m.miss(NodeMissing, want, "the run was to sample it, and it left nothing")
			}
		}
	}
	return nil
}

func (m *merger) add(dir string, data *shard.Node) {
	n := &node{dir: dir, name: dir, data: data, written: make(map[string]int64)}
	if meta, err := rundir.ReadNodeMeta(m.dir, dir); err == nil {
		if meta.Node != "" {
			n.name = meta.Node
		}
		if n.gpus, err = gpusOf(meta); err != nil {
			m.notes = append(m.notes, fmt.Sprintf("%s: the list of GPUs in its meta.yaml cannot be read", dir))
		}
	}
	// The shards know best whose they are.
	if own := data.Name(); own != "" {
		n.name = own
	}
	n.machine = rundir.NodeOf(n.name)
	timed := false
	for _, f := range data.Files() {
		n.rows += f.Rows
		if !f.Timed {
			continue
		}
		if !timed || f.TMin < n.first {
			n.first = f.TMin
		}
		if !timed || f.TMax > n.last {
			n.last = f.TMax
		}
		timed = true
	}
	m.nodes = append(m.nodes, n)
}

// settleNames leaves out directories that claim another's name, and empty
// ones.
func (m *merger) settleNames() {
	sort.SliceStable(m.nodes, func(i, j int) bool {
		a, b := m.nodes[i], m.nodes[j]
		if a.name != b.name {
			return a.name < b.name
		}
		// The directory of that name comes first and is kept.
		if own := rundir.CleanName(a.name); (a.dir == own) != (b.dir == own) {
			return a.dir == own
		}
		return a.dir < b.dir
	})
	var kept []*node
	for _, n := range m.nodes {
		if k := len(kept); k > 0 && kept[k-1].name == n.name {
			m.miss(NameClash, n.dir, fmt.Sprintf("nodes/%s and nodes/%s both claim to be node %s; the first is taken, the second left out with %d rows", kept[k-1].dir, n.dir, n.name, n.rows))
			n.data.Close()
			continue
		}
		kept = append(kept, n)
	}
	m.nodes = kept
}

// evidence reads a node's clock tables.
func (m *merger) evidence(n *node) error {
	err := n.data.Rows(table.ClockExchange, func(b *table.Batch) error {
		n.exchanges = append(n.exchanges, rows.ExchangesFrom(b)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the clock exchanges of %s: %w", n.name, err)
	}
	err = n.data.Rows(table.ClockBracket, func(b *table.Batch) error {
		n.brackets = append(n.brackets, rows.BracketsFrom(b)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the clock brackets of %s: %w", n.name, err)
	}
	err = n.data.Rows(table.Event, func(b *table.Batch) error {
		n.barriers.Add(b)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the events of %s: %w", n.name, err)
	}
	return nil
}

// fit finds the clock models and judges which nodes are whole.
func (m *merger) fit() error {
	if !slices.ContainsFunc(m.nodes, func(n *node) bool { return n.rows > 0 }) {
		return fmt.Errorf("merging %s: %w: no node left a row", m.dir, ErrNoData)
	}
	reference, anchor, err := m.reference()
	if err != nil {
		return err
	}
	f := clock.NewFitter(reference, anchor)
	for from := 0; from < len(m.nodes); { // a node's samplers follow each other
		to := from + 1
		for to < len(m.nodes) && m.nodes[to].machine == m.nodes[from].machine {
			to++
		}
		if err := m.addEvidence(f, m.nodes[from:to]); err != nil {
			return err
		}
		from = to
	}
	m.result = f.Fit()
	latest := clock.ClusterTime(math.MinInt64)
	for _, n := range m.nodes {
		n.model = m.result.Model(n.machine)
		if n.rows == 0 {
			m.miss(NodeEmpty, n.name, "its directory holds no row")
			continue
		}
		t, _, aligned := n.model.At(n.last)
		latest = max(latest, t)
		if !aligned {
			m.miss(NoClock, n.name, "nothing ties its clock to the reference; its rows are kept and have no time_bound_ns")
		}
	}
	for _, n := range m.nodes {
		if n.rows > 0 {
			m.judge(n, latest)
		}
	}
	return nil
}

// addEvidence gives the fitter what is known of one node's clock, a node at a
// time: it keeps a few facts of each burst, and the exchanges of a large run are
// larger than all else here. The node's samplers share its clock; the evidence
// is that of the first one that has any.
func (m *merger) addEvidence(f *clock.Fitter, samplers []*node) error {
	var ev clock.NodeEvidence
	for _, n := range samplers {
		if n.rows == 0 {
			continue
		}
		if !m.chosen { // else the choice of the reference has read it
			if err := m.evidence(n); err != nil {
				return err
			}
		}
		if ev.Node == "" {
			ev.Node, ev.First, ev.Last = n.machine, n.first, n.last
		}
		ev.First, ev.Last = min(ev.First, n.first), max(ev.Last, n.last)
		if len(ev.Exchanges) == 0 {
			ev.Exchanges = n.exchanges
		}
		if len(ev.Brackets) == 0 {
			ev.Brackets = n.brackets
		}
		ev.Barriers = append(ev.Barriers, n.barriers.All()...)
		n.exchanges, n.brackets, n.barriers = nil, nil, rows.Barriers{}
	}
	if ev.Node != "" {
		f.Add(ev)
	}
	return nil
}

// reference returns the run's reference, or the best one where the run was
// killed before it named one: the node that the others asked most.
func (m *merger) reference() (string, clock.Anchor, error) {
	if r := m.run.Reference; r != nil && r.Node != "" {
		return rundir.NodeOf(r.Node), r.Anchor, nil
	}
	m.chosen = true
	asked := make(map[string]int)
	for _, n := range m.nodes {
		if err := m.evidence(n); err != nil {
			return "", clock.Anchor{}, err
		}
		for _, x := range n.exchanges {
			asked[x.Peer]++
		}
	}
	var best *node
	for _, n := range m.nodes { // in order of their names
		if len(n.brackets) > 0 && (best == nil || asked[n.machine] > asked[best.machine]) {
			best = n
		}
	}
	if best == nil {
		return "", clock.Anchor{}, nil
	}
	return best.machine, clock.AnchorOf(best.brackets[0]), nil
}

// judge finds the stretches in which a node's agent was dead, and writes them
// down as absences: its own agent could not.
func (m *merger) judge(n *node, latest clock.ClusterTime) {
	running := slices.ContainsFunc(m.missing, func(x Missing) bool {
		return x.Code == Running && (x.Node == n.name || x.Node == n.dir)
	})
	segments := n.data.Segments()
	for i, s := range segments {
		if s.End != nil || running && i == len(segments)-1 {
			continue
		}
		from := s.Created
		for _, f := range n.data.Files() {
			if f.N == s.N && f.Timed {
				from = max(from, f.TMax)
			}
		}
		to := from
		if i+1 < len(segments) {
			to = max(to, segments[i+1].Created)
		} else if t, _, _ := n.model.At(from); latest > t {
			to = from + clock.NodeTime(latest-t)
		}
		m.miss(NodeKilled, n.name, fmt.Sprintf("spool %d has no end mark: its agent was killed, or the node went down", s.N))
		n.addLost(from, to)
	}
}

// addLost adds an absence of each table that the node has rows of.
func (n *node) addLost(from, to clock.NodeTime) {
	if n.lost == nil {
		n.lost = table.NewBatch(table.Absence, 8)
	}
	for _, t := range table.All() {
		if t == table.Absence || t == table.Event || n.data.TableRows(t.Name) == 0 {
			continue
		}
		r := n.lost.Append()
		r.Window(int64(from), int64(to), int64(to))
		r.String(table.AbsTable, t.Name)
		r.String(table.AbsReason, nodeLost)
		r.String(table.AbsDetail, "no end mark; found by the merge")
	}
}

// nodeLost is the reason code of a dead agent's stretch, as docs/format.md has
// it.
const nodeLost = "node_lost"
