package clock

import (
	"math"
	"slices"
)

// loop is a way through the graph back to where it began along which the
// clocks cannot all be right: in the terms of difference constraints, a
// negative cycle.
type loop struct {
	link  *link
	sites []int
	clash clash
	at    int // the site in whose time the clash is
}

// rounds is how often the links that are not on any node's way may narrow
// bounds. Facts travel one link further with each round; two is where the gain
// ends in graphs of trees with a few more links.
const rounds = 2

// narrow lets every link that is on no node's way to the reference narrow the
// tracks at its ends, and finds the loops that cannot be true.
//
// A fact about one clock's offset to its peer, with the peer's own bound,
// bounds the node's offset to the reference. The tightest of all such chains
// is the shortest path from the reference in the graph of difference
// constraints; this is its relaxation, at every instant at which something was
// exchanged.
func (g *graph) narrow() {
	for round := range rounds {
		changed := false
		for _, l := range g.links {
			if l.idle || l.weak != "" || g.sites[l.a].up == l || g.sites[l.b].up == l || !g.tracked(l.a) || !g.tracked(l.b) {
				continue
			}
			gained := false
			for _, i := range [...]int{l.a, l.b} {
				if i != g.ref && !l.broken {
					gained = g.narrowBy(l, i) || gained
				}
			}
			if !gained || l.broken || round == rounds-1 {
				l.settle()
			}
			changed = changed || gained
		}
		if !changed {
			return
		}
	}
}

// narrowBy narrows the track of one end of a link.
func (g *graph) narrowBy(l *link, i int) bool {
	s := g.sites[i]
	e := g.from(l, i)
	if e == nil || len(l.found) > 0 {
		return false
	}
	c := e
	if p := g.sites[l.other(i)].track; p != nil {
		c = fuseAt(e, p, e.times())
	}
	if c == nil {
		return false
	}
	t, bad := s.track.refine(c)
	if bad != nil {
		l.broken = true
		g.loops = append(g.loops, loop{link: l, sites: g.around(l), clash: *bad, at: i})
	}
	if t != nil {
		s.track = t
	}
	return t != nil
}

// around returns the sites of the loop that a link closes with the ways of its
// ends to the reference.
func (g *graph) around(l *link) []int {
	up := func(i int) (way []int) {
		for ; i >= 0; i = g.sites[i].parent {
			way = append(way, i)
		}
		return way
	}
	a, b := up(l.a), up(l.b)
	for len(a) > 1 && len(b) > 1 && a[len(a)-2] == b[len(b)-2] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return append(a, b[:len(b)-1]...)
}

// attribute names who may be at fault for the loops that cannot be true: the
// node that all of them share, or the set of those that could be. The
// reference is right by definition.
func (g *graph) attribute() []Contradiction {
	if len(g.loops) == 0 {
		return nil
	}
	var out []Contradiction
	seen := map[int]int{}
	for _, l := range g.loops {
		for _, i := range l.sites {
			seen[i]++
		}
	}
	var shared, any []int
	for i := range g.sites {
		if i == g.ref || seen[i] == 0 {
			continue
		}
		any = append(any, i)
		if seen[i] == len(g.loops) {
			shared = append(shared, i)
		}
	}
	for _, l := range g.loops {
		out = append(out, Contradiction{
			Node: g.sites[l.at].name(), Peer: g.sites[l.link.other(l.at)].name(), Kind: KindLoop,
			Nodes: g.namesOf(l.sites), Since: NodeTime(l.clash.since), At: NodeTime(l.clash.until),
			ExcessNS: whole(l.clash.by), Count: l.clash.count,
		})
	}
	blame := Contradiction{Kind: KindBlame, Count: len(g.loops)}
	set := shared
	if len(set) == 0 {
		set = any
	}
	for _, i := range set {
		g.sites[i].suspect = true
	}
	if len(shared) == 1 {
		blame.Node = g.sites[shared[0]].name()
	} else {
		blame.Nodes = g.namesOf(set)
	}
	return append(out, blame)
}

func (g *graph) namesOf(sites []int) []string {
	var names []string
	for _, i := range sites {
		names = append(names, g.sites[i].name())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

const (
	// solveEvery is the time between the instants at which the graph's
	// estimates are settled, solveMost their largest number.
	solveEvery = 10_000_000_000
	solveMost  = 360
	// symmetric is how unequal the two ways of a path are taken to be beside
	// their round trip, and trust the error that stays on the best of paths.
	symmetric = 6.0
	trustBest = 500.0
)

// solve settles the estimates of all nodes against each other: what one path's
// asymmetry puts into a node's estimate shows as a residual around loops, and
// the least squares over all links spread it. Bounds take no part in this but
// to clamp the outcome.
func (g *graph) solve() {
	used := g.solvable()
	if used == nil {
		return
	}
	from, to := int64(math.MaxInt64), int64(math.MinInt64)
	for i, s := range g.sites {
		if i == g.ref || s.track == nil || s.weak != "" {
			continue
		}
		ks := s.track.knots
		a, b := &ks[0], &ks[len(ks)-1]
		from = min(from, a.t+s.track.base+whole(a.est))
		to = max(to, b.t+s.track.base+whole(b.est))
	}
	if !plausible(from) || !plausible(to) || from > to {
		return
	}
	n := min((to-from)/solveEvery, solveMost) + 1
	fixes := make([][]fix, len(g.sites))
	for k := range n {
		at := from
		if n > 1 {
			at += (to - from) / (n - 1) * k
		}
		g.solveAt(at, used, fixes)
	}
	for i, s := range g.sites {
		if len(fixes[i]) == 0 {
			continue
		}
		s.track.shift(fixes[i])
	}
}

// solvable returns the links between sites that have tracks; nil where they
// hold no loop, for then there is nothing to settle.
func (g *graph) solvable() []*link {
	var used []*link
	sites := 0
	for i, s := range g.sites {
		if g.tracked(i) && s.weak == "" {
			sites++
		}
	}
	for _, l := range g.links {
		if !l.broken && l.weak == "" && len(l.found) == 0 && g.tracked(l.a) && g.tracked(l.b) {
			used = append(used, l)
		}
	}
	if len(used) < sites {
		return nil
	}
	return used
}

// fix is by how much a track's estimate is to be moved at an instant.
type fix struct {
	t int64
	x float64
}

// term is one link's say: x[a]-x[b] = d, with a weight.
type term struct {
	a, b int
	d, w float64
}

func (g *graph) solveAt(at int64, used []*link, fixes [][]fix) {
	when := make([]int64, len(g.sites))
	ok := make([]bool, len(g.sites))
	for i, s := range g.sites {
		switch {
		case i == g.ref:
			when[i], ok[i] = at, true
		case s.track != nil && s.weak == "":
			when[i] = s.track.when(at)
			ok[i] = plausible(when[i]) && s.track.segAt(when[i]) >= 0
		}
	}
	refTime := func(i int, t int64) float64 { // less the instant itself
		if i == g.ref {
			return float64(t - at)
		}
		_, est, _ := g.sites[i].track.at(t)
		return float64(t+g.sites[i].track.base-at) + est
	}
	var terms []term
	for _, l := range used {
		if !ok[l.a] || !ok[l.b] {
			continue
		}
		i := l.a // in whichever direction it is fitted
		if l.fits[0] == nil {
			i = l.b
		}
		e, j := g.from(l, i), l.other(i)
		if e == nil || e.segAt(when[i]) < 0 {
			continue
		}
		lo, est, hi := e.at(when[i])
		theirs := when[i] + e.base + whole(math.Round(est))
		wide := (hi - lo) / symmetric
		terms = append(terms, term{
			a: i, b: j, d: refTime(j, theirs) - refTime(i, when[i]),
			w: 1 / (trustBest*trustBest + wide*wide),
		})
	}
	x := leastSquares(len(g.sites), g.ref, terms)
	for i := range g.sites {
		if i != g.ref && ok[i] {
			fixes[i] = append(fixes[i], fix{t: when[i], x: x[i]})
		}
	}
}

// shift moves a track's estimates by what lies between the fixes.
func (e *edge) shift(fs []fix) {
	slices.SortFunc(fs, func(a, b fix) int { return int(max(-1, min(1, a.t-b.t))) })
	j := 0
	for i := range e.knots {
		k := &e.knots[i]
		for j+1 < len(fs) && fs[j+1].t <= k.t {
			j++
		}
		x := fs[j].x
		if k.t > fs[j].t && j+1 < len(fs) {
			x += (fs[j+1].x - x) * float64(k.t-fs[j].t) / float64(fs[j+1].t-fs[j].t)
		}
		k.est += x
	}
	for _, s := range e.segs {
		e.settle(s)
	}
}
