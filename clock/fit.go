package clock

import "slices"

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
	// Barriers are what the node's ranks marked of barriers.
	Barriers []Barrier
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
	loops     []Contradiction
}

// Fit finds each node's way to cluster time. It takes any input: what cannot
// be true is dropped and counted, what contradicts itself is reported, and a
// node for which nothing remains is unaligned.
func Fit(in Input) Result {
	f := NewFitter(in.Reference, in.Anchor)
	at := map[string]int{}
	nodes := make([]NodeEvidence, 0, len(in.Nodes))
	for _, n := range in.Nodes {
		i, again := at[n.Node]
		if !again {
			at[n.Node] = len(nodes)
			nodes = append(nodes, n)
			continue
		}
		// Two entries for one node, as after its agent was replaced.
		o := &nodes[i]
		o.Exchanges = slices.Concat(o.Exchanges, n.Exchanges)
		o.Barriers = slices.Concat(o.Barriers, n.Barriers)
		o.Brackets = slices.Concat(o.Brackets, n.Brackets)
		if o.First == 0 && o.Last == 0 {
			o.First, o.Last = n.First, n.Last
		} else if n.First != 0 || n.Last != 0 {
			o.First, o.Last = min(o.First, n.First), max(o.Last, n.Last)
		}
	}
	for _, n := range nodes {
		f.Add(n)
	}
	return f.Fit()
}

// Fitter is Fit for evidence that comes a node at a time: it keeps a few facts
// of each burst and nothing of what it was given, so that a large run's
// exchanges need not be held at once.
type Fitter struct {
	reference string
	anchor    Anchor
	nodes     map[string]*nodeFacts
	names     []string
	// raw holds what each node learnt by asking another, in its own time.
	raw     map[pair][]knot
	scratch map[string][]evidence
}

// pair is a node that asked and the one that answered.
type pair struct{ asker, peer string }

// nodeFacts is what is kept of a node's evidence.
type nodeFacts struct {
	name        string
	first, last NodeTime
	dropped     int
	boots       []boot
	restart     *Contradiction
	wall        *WallMap
	// cuts are when something happened to the node's clocks that a segment
	// must not reach across.
	cuts []int64
	sync []knot
	// barriers are those that may be true, by name.
	barriers map[string]Barrier
}

// NewFitter returns a fitter for a run with the given reference.
func NewFitter(reference string, a Anchor) *Fitter {
	f := &Fitter{
		reference: reference, anchor: a, nodes: map[string]*nodeFacts{},
		raw: map[pair][]knot{}, scratch: map[string][]evidence{},
	}
	if reference != "" {
		f.node(reference)
	}
	return f
}

func (f *Fitter) node(name string) *nodeFacts {
	n := f.nodes[name]
	if n == nil {
		n = &nodeFacts{name: name}
		f.nodes[name] = n
		f.names = append(f.names, name)
	}
	return n
}

// Add takes all evidence of a node, which must not be added twice.
func (f *Fitter) Add(ev NodeEvidence) {
	n := f.node(ev.Node)
	n.first, n.last = ev.First, ev.Last
	n.boots, n.restart = bootsOf(ev)
	n.wall = NewWallMap(ev.Brackets)
	if len(n.boots) > 1 {
		n.wall.forget(n.boots)
	}
	for _, s := range n.wall.steps {
		if s.Clock != StepRealtime {
			n.cuts = append(n.cuts, int64(s.At))
		}
	}
	n.sync = vouched(ev.Brackets, f.anchor)
	n.barriers = barriers(ev.Barriers)
	var peers []string
	for _, x := range ev.Exchanges {
		if x.Peer == "" || x.Peer == ev.Node || !usable(x) {
			n.dropped++
			continue
		}
		if len(f.scratch[x.Peer]) == 0 {
			peers = append(peers, x.Peer)
		}
		f.scratch[x.Peer] = append(f.scratch[x.Peer], asked(x))
	}
	for _, p := range peers {
		f.node(p)
		order(f.scratch[p])
		f.raw[pair{ev.Node, p}] = reduce(nil, f.scratch[p])
		f.scratch[p] = f.scratch[p][:0]
	}
}

// Fit fits what was added. The fitter is of no use afterwards.
//
// Exchanges between two nodes make an edge. Each node is carried to the
// reference along the path whose edges have the smallest total uncertainty,
// bounds adding up along it; then every other edge may narrow the bounds of
// the nodes at its ends, and all edges together settle the estimates.
func (f *Fitter) Fit() Result {
	slices.Sort(f.names)
	g := newGraph(f)
	g.span(func(l *link) bool { return l.weak == "" })
	g.lay()
	g.narrow()
	g.solve()
	// Whom the loops blame is suspect, so they are judged before the models.
	r := Result{Reference: f.reference, Anchor: f.anchor, models: map[string]*Model{}, loops: g.attribute()}
	for _, name := range f.names {
		r.models[name] = g.model(f.nodes[name])
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

// Loops returns the contradictions that show only where several edges meet, and
// the verdict on who may be at fault.
func (r Result) Loops() []Contradiction { return slices.Clone(r.loops) }

// Contradictions returns everything that cannot be true under the assumptions,
// each once: those of single nodes and edges by node and time, then those that
// show only where several edges meet.
func (r Result) Contradictions() []Contradiction {
	var all []Contradiction
	for _, n := range r.names {
		all = append(all, r.models[n].found...)
	}
	return append(all, r.loops...)
}
