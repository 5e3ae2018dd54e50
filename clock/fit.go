package clock

import (
	"math"
	"slices"
	"sort"
)

// Input is what a run holds of its clocks.
type Input struct {
	// Reference is the node whose raw clock, anchored once, is cluster time.
	Reference string
	Anchor    Anchor
	Nodes     []NodeEvidence
}

// NodeEvidence is what one node recorded of its clocks, in the order in which
// it recorded it: a raw clock that falls behind is how a restart of the node
// is seen.
type NodeEvidence struct {
	Node      string
	Exchanges []Exchange
	Brackets  []Bracket
	// First and Last span the node's rows. They place the figures of the
	// summary and, without any other evidence, the node's rows.
	First, Last NodeTime
}

// Result holds a model for each node. It is not changed once made and may be
// used from several goroutines.
type Result struct {
	Reference string
	Anchor    Anchor
	models    map[string]*Model
	names     []string
}

// Fit finds each node's way to cluster time. It takes any input: what cannot
// be true is dropped and counted, what contradicts itself is reported, and a
// node for which nothing remains is unaligned.
//
// Exchanges between two nodes make an edge. Each node is carried to the
// reference along the path whose edges have the smallest total uncertainty,
// bounds adding up along it.
func Fit(in Input) Result {
	g := newGraph(in)
	g.relax()
	r := Result{Reference: in.Reference, Anchor: in.Anchor, models: map[string]*Model{}}
	for _, name := range g.names {
		r.models[name] = g.model(name)
		r.names = append(r.names, name)
	}
	return r
}

// Nodes returns the names of all nodes that the input mentions, sorted.
func (r Result) Nodes() []string { return slices.Clone(r.names) }

// Model returns a node's model; for a node that the input does not mention it
// is an unaligned one.
func (r Result) Model(node string) *Model {
	if m := r.models[node]; m != nil {
		return m
	}
	return &Model{
		node: node, method: Unaligned, fallback: FallbackAnchor,
		shift: sub(r.Anchor.Realtime, int64(r.Anchor.Raw)),
	}
}

// Contradictions returns everything that cannot be true under the assumptions,
// each once, by node and time.
func (r Result) Contradictions() []Contradiction {
	var all []Contradiction
	for _, n := range r.names {
		all = append(all, r.models[n].found...)
	}
	return all
}

// pair names an edge in the direction from a node to the one it is carried to.
type pair struct{ from, to string }

// site is a node of the graph.
type site struct {
	name    string
	ev      NodeEvidence
	dropped int
	restart *Contradiction
	found   []Contradiction
	peers   []string
	reached bool
	done    bool
	cost    float64
	parent  string
	up      *edge
}

// graph is the nodes and the exchanges between them.
type graph struct {
	in    Input
	sites map[string]*site
	names []string
	// kept holds the usable exchanges by who asked and who answered.
	kept map[pair][]Exchange
}

func newGraph(in Input) *graph {
	g := &graph{in: in, sites: map[string]*site{}, kept: map[pair][]Exchange{}}
	if in.Reference != "" {
		g.site(in.Reference)
	}
	for _, n := range in.Nodes {
		s := g.site(n.Node)
		if len(s.ev.Exchanges) == 0 && len(s.ev.Brackets) == 0 {
			s.ev = n
			s.ev.Node = n.Node
		} else { // two entries for one node, as after its agent was replaced
			s.ev.Exchanges = slices.Concat(s.ev.Exchanges, n.Exchanges)
			s.ev.Brackets = slices.Concat(s.ev.Brackets, n.Brackets)
			if n.First != 0 || n.Last != 0 {
				s.ev.First, s.ev.Last = min(s.ev.First, n.First), max(s.ev.Last, n.Last)
			}
		}
	}
	for _, name := range slices.Clone(g.names) {
		g.take(g.sites[name])
	}
	slices.Sort(g.names)
	for p := range g.kept {
		g.sites[p.from].peers = append(g.sites[p.from].peers, p.to)
		g.sites[p.to].peers = append(g.sites[p.to].peers, p.from)
	}
	for _, s := range g.sites {
		slices.Sort(s.peers)
		s.peers = slices.Compact(s.peers)
	}
	return g
}

func (g *graph) site(name string) *site {
	s := g.sites[name]
	if s == nil {
		s = &site{name: name, cost: math.Inf(1)}
		g.sites[name] = s
		g.names = append(g.names, name)
	}
	return s
}

// take sorts out a node's exchanges.
func (g *graph) take(s *site) {
	s.restart = restarted(s.ev)
	for _, x := range s.ev.Exchanges {
		if x.Peer == "" || x.Peer == s.name || !usable(x) {
			s.dropped++
			continue
		}
		g.site(x.Peer)
		p := pair{s.name, x.Peer}
		g.kept[p] = append(g.kept[p], x)
	}
}

// restarted says whether the node's raw clock fell behind what it had shown:
// then equal stamps mean different instants, and none of them can be placed.
func restarted(ev NodeEvidence) *Contradiction {
	var c *Contradiction
	see := func(high *int64, t NodeTime) {
		if !plausible(int64(t)) {
			return
		}
		if int64(t) < *high-restartBack {
			if c == nil {
				c = &Contradiction{
					Node: ev.Node, Kind: KindRestart,
					Since: NodeTime(*high), At: t, ExcessNS: *high - int64(t),
				}
			}
			c.Count++
			*high = int64(t)
		}
		*high = max(*high, int64(t))
	}
	high := int64(-maxStamp)
	for _, x := range ev.Exchanges {
		if usable(x) {
			see(&high, x.T1)
		}
	}
	high = -maxStamp
	for _, b := range ev.Brackets {
		see(&high, b.Raw0)
	}
	return c
}

// edge fits what is known between two nodes, in the direction from a to b.
func (g *graph) edge(a, b string) (*edge, []Contradiction) {
	out, back := g.kept[pair{a, b}], g.kept[pair{b, a}]
	ev := make([]evidence, 0, len(out)+len(back))
	for _, x := range out {
		ev = append(ev, asked(x))
	}
	for _, x := range back {
		ev = append(ev, answered(x))
	}
	e, found := fitEdge(ev)
	for i := range found {
		found[i].Node, found[i].Peer = a, b
	}
	return e, found
}

// relax finds the path of least uncertainty from every node to the reference
// (Dijkstra). An edge that contradicts itself is taken only where there is no
// other.
func (g *graph) relax() {
	ref := g.sites[g.in.Reference]
	if ref == nil || ref.restart != nil {
		return
	}
	ref.cost, ref.reached = 0, true
	for {
		var s *site
		for _, name := range g.names {
			c := g.sites[name]
			if c.reached && !c.done && (s == nil || c.cost < s.cost) {
				s = c
			}
		}
		if s == nil {
			return
		}
		s.done = true
		for _, name := range s.peers {
			c := g.sites[name]
			if c.done || c.restart != nil {
				continue
			}
			e, found := g.edge(name, s.name)
			c.found = append(c.found, found...)
			if e == nil {
				continue
			}
			if cost := s.cost + e.cost(c.ev.First, c.ev.Last); cost < c.cost {
				c.cost, c.parent, c.up, c.reached = cost, s.name, e, true
			}
		}
	}
}

// costProbes is at how many instants an edge's uncertainty is looked at to
// compare it with others.
const costProbes = 16

// contradictionCost is what a contradiction adds to an edge's uncertainty, in
// nanoseconds, when paths are compared.
const contradictionCost = 1e12

// cost is the edge's mean uncertainty over the span of the node's rows.
func (e *edge) cost(first, last NodeTime) float64 {
	a, b := int64(first), int64(last)
	if !plausible(a) || !plausible(b) || a >= b {
		a, b = e.knots[0].t, e.knots[len(e.knots)-1].t
	}
	var sum float64
	for i := range int64(costProbes) {
		lo, _, hi := e.at(a + (b-a)/(costProbes-1)*i)
		sum += hi - lo
	}
	return sum/costProbes + contradictionCost*float64(len(e.found))
}

// model makes the model of a node from its path.
func (g *graph) model(name string) *Model {
	s := g.sites[name]
	m := &Model{
		node: name, method: Unaligned, anchor: g.in.Anchor,
		first: s.ev.First, last: s.ev.Last, found: s.found,
		dropped: s.dropped, wall: NewWallMap(s.ev.Brackets),
	}
	if s.restart != nil {
		m.found = append(m.found, *s.restart)
	}
	sort.SliceStable(m.found, func(i, j int) bool { return m.found[i].At < m.found[j].At })
	m.lay(s.ev, g.in.Anchor)
	if !s.reached {
		return m
	}
	m.method, m.fallback = ByExchange, ""
	if name == g.in.Reference {
		m.method = Reference
	}
	for p := s; p.up != nil; p = g.sites[p.parent] {
		m.chain = append(m.chain, p.up)
		m.via = append(m.via, p.parent)
		m.suspect = m.suspect || len(p.up.found) > 0
		if p == s {
			m.used = p.up.used
		}
	}
	return m
}
