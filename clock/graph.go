package clock

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// site is a node of the graph: one boot of one node, or UTC.
type site struct {
	node  *nodeFacts // nil for UTC
	boot  int
	links []*link

	reached, done bool
	cost          float64
	parent        int
	up            *link
	depth         int
	// weak is the method of the fallback that its way to the reference leads
	// through, empty where that is exchanges all the way.
	weak string
	// track is the way to the reference, from the site's time to that of the
	// reference's raw clock; nil at the reference itself.
	track   *edge
	suspect bool
}

func (s *site) name() string {
	if s.node == nil {
		return utcName
	}
	return s.node.name
}

// link is what is known between two sites.
type link struct {
	a, b  int
	knots []knot // in a's time
	weak  string // the method of a fallback, empty for exchanges
	fits  [2]*edge
	tried [2]bool
	found []Contradiction
	// broken is set where the link is in a loop that cannot be true.
	broken bool
	// idle is set where the link has narrowed no bound, or no longer may.
	idle bool
}

// graph is the sites and the links between them.
type graph struct {
	f       *Fitter
	sites   []*site
	byNode  map[string]int // the first site of a node
	links   []*link
	ref     int
	utc     int
	settled []int // sites in the order in which they were reached
	loops   []loop
}

func newGraph(f *Fitter) *graph {
	g := &graph{f: f, byNode: map[string]int{}, ref: -1, utc: -1}
	for _, name := range f.names {
		n := f.nodes[name]
		g.byNode[name] = len(g.sites)
		if n.wall == nil {
			n.wall = NewWallMap(nil)
		}
		for b := range max(len(n.boots), 1) {
			g.sites = append(g.sites, &site{node: n, boot: b, cost: math.Inf(1), parent: -1})
		}
	}
	if n := f.nodes[f.reference]; n != nil && (n.restart == nil || len(n.boots) > 0) {
		if b := bootAt(n.boots, int64(f.anchor.Raw)); b >= 0 {
			g.ref = g.byNode[f.reference] + b
		}
	}
	for _, a := range f.names {
		for _, b := range f.names[sort.SearchStrings(f.names, a):] {
			if a == b {
				continue
			}
			out, back := f.raw[pair{a, b}], f.raw[pair{b, a}]
			if len(out)+len(back) == 0 {
				continue
			}
			ks := out
			if len(back) > 0 {
				ks = append(slices.Clone(out), turn(back)...)
				orderKnots(ks)
			}
			g.connect(f.nodes[a], f.nodes[b], ks, "")
			delete(f.raw, pair{a, b})
			delete(f.raw, pair{b, a})
		}
	}
	return g
}

// connect links the boots of two nodes by knots in a's time, cut where
// something happened to either clock. A fallback's links name it.
func (g *graph) connect(a, b *nodeFacts, ks []knot, weak string) {
	by := map[[2]int]*link{}
	var made []*link
	for _, k := range ks {
		theirs := k.tu + k.u
		i, j := bootAt(a.boots, k.t), bootAt(b.boots, theirs)
		if i < 0 || j < 0 || a.ambiguous() || b.ambiguous() {
			continue
		}
		at := [2]int{g.byNode[a.name] + i, g.byNode[b.name] + j}
		l := by[at]
		if l == nil {
			l = &link{a: at[0], b: at[1], weak: weak}
			if len(a.boots)+len(b.boots) == 0 { // the only one there will be
				l.knots = make([]knot, 0, len(ks))
			}
			by[at] = l
			made = append(made, l)
		}
		k.era = int32(cutsBefore(a.cuts, k.t) + cutsBefore(b.cuts, theirs))
		l.knots = append(l.knots, k)
	}
	for _, l := range made {
		g.add(l)
	}
}

func (g *graph) add(l *link) {
	g.links = append(g.links, l)
	g.sites[l.a].links = append(g.sites[l.a].links, l)
	g.sites[l.b].links = append(g.sites[l.b].links, l)
}

// ambiguous says whether the node's stamps cannot be told apart.
func (n *nodeFacts) ambiguous() bool { return n.restart != nil && len(n.boots) == 0 }

func cutsBefore(cuts []int64, t int64) int {
	return sort.Search(len(cuts), func(i int) bool { return cuts[i] > t })
}

// other returns the link's other end.
func (l *link) other(i int) int {
	if i == l.a {
		return l.b
	}
	return l.a
}

// from fits the link as seen from one of its ends; nil where it is of no use.
func (g *graph) from(l *link, i int) *edge {
	way := 0
	if i != l.a {
		way = 1
	}
	if l.tried[way] {
		return l.fits[way]
	}
	ks := l.knots
	switch {
	case way == 1:
		ks = turn(ks)
	case !l.tried[1]: // else nobody needs them as they are
		ks = slices.Clone(ks)
	}
	e, found := fitKnots(ks)
	if l.weak == ByBarriers && len(found) > 0 {
		e = nil // marks that are no barrier must not place a node
	}
	if !l.tried[1-way] && l.weak != ByNTP {
		l.found = found
		for k := range found {
			found[k].Node, found[k].Peer = g.sites[i].name(), g.sites[l.other(i)].name()
		}
	}
	l.fits[way], l.tried[way] = e, true
	if l.tried[1-way] {
		l.knots = nil
	}
	return e
}

// settle keeps one of a link's fits and what it says, and drops the rest: of a
// large run that is most of what is held.
func (l *link) settle() {
	l.knots, l.idle, l.tried = nil, true, [2]bool{true, true}
	if l.fits[0] != nil {
		l.fits[1] = nil
	}
}

// span finds the path of least uncertainty from every site to the reference
// (Dijkstra) over the links that use allows. A link that contradicts itself is
// taken only where there is no other.
func (g *graph) span(use func(*link) bool) {
	if g.ref < 0 {
		return
	}
	g.sites[g.ref].cost, g.sites[g.ref].reached = 0, true
	for {
		at := -1
		for i, c := range g.sites {
			if c.reached && !c.done && (at < 0 || c.cost < g.sites[at].cost) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		s := g.sites[at]
		s.done = true
		g.settled = append(g.settled, at)
		for _, l := range s.links {
			g.reach(l, at, use)
		}
	}
}

// reach tries the way over l to the site at its other end.
func (g *graph) reach(l *link, at int, use func(*link) bool) {
	i := l.other(at)
	s, c := g.sites[at], g.sites[i]
	if c.done || !use(l) {
		return
	}
	e := g.from(l, i)
	if e == nil {
		return
	}
	var first, last int64
	if c.node != nil && len(c.node.boots) == 0 {
		first, last = int64(c.node.first), int64(c.node.last)
	}
	if cost := s.cost + e.cost(first, last); cost < c.cost {
		c.cost, c.parent, c.up, c.reached = cost, at, l, true
		c.depth, c.weak = s.depth+1, cmp.Or(l.weak, s.weak)
	}
}

// costProbes is at how many instants an edge's uncertainty is looked at to
// compare it with others.
const costProbes = 16

// contradictionCost is what a contradiction adds to an edge's uncertainty, in
// nanoseconds, when paths are compared.
const contradictionCost = 1e12

// cost is the edge's mean uncertainty over the span of the node's rows.
func (e *edge) cost(a, b int64) float64 {
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

// lay makes the tracks of all sites that were reached, first by exchanges and
// then, for those that were not, by way of UTC and of barriers, whichever
// bounds them better.
func (g *graph) lay() {
	g.carry(0)
	n := len(g.settled)
	if vouched, met := g.vouch(), g.meet(); vouched || met {
		for _, i := range slices.Clone(g.settled) {
			for _, l := range g.sites[i].links {
				g.reach(l, i, func(l *link) bool { return l.weak != "" })
			}
		}
		g.span(func(*link) bool { return true })
		g.carry(n)
	}
}

// carry makes the tracks of the sites that were settled from the given one on.
// Parents come before their children.
func (g *graph) carry(from int) {
	for _, i := range g.settled[from:] {
		s := g.sites[i]
		if i == g.ref {
			continue
		}
		p := g.sites[s.parent]
		if p.track == nil && s.parent != g.ref {
			continue
		}
		s.track = fuse(g.from(s.up, i), p.track)
		s.up.knots = nil // this way round is all that is asked for
		s.suspect = p.suspect || len(s.up.found) > 0
	}
}

// tracked says whether a site has a way to the reference.
func (g *graph) tracked(i int) bool { return i == g.ref || g.sites[i].track != nil }
