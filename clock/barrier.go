package clock

import (
	"cmp"
	"math"
	"slices"
)

// Barrier is what the ranks of one node marked of a barrier: the last of them
// was about to enter at Enter, the first had left by Leave, on the node's raw
// clock. Name tells the barrier from the run's others; nodes that name the same
// one met in it.
//
// Nobody leaves a barrier before everybody has entered. So of two nodes a and b
// the entry of each is no later than the exit of the other, which is what an
// exchange of stamps says, too: T1 is a's entry, T2 b's exit, T3 b's entry and T4
// a's exit. How wide that leaves the offset is how long both stood in it.
type Barrier struct {
	Name         string
	Enter, Leave NodeTime
}

// barrierLinks is how many aligned nodes place one that met them in barriers.
const barrierLinks = 4

// barriers returns a node's barriers by name: several entries for one are those
// of several ranks, all of which count. What cannot be true is left out.
func barriers(bs []Barrier) map[string]Barrier {
	if len(bs) == 0 {
		return nil
	}
	out := map[string]Barrier{}
	for _, b := range bs {
		if have, again := out[b.Name]; again {
			b.Enter, b.Leave = max(b.Enter, have.Enter), min(b.Leave, have.Leave)
		}
		out[b.Name] = b
	}
	for name, b := range out {
		if !plausible(int64(b.Enter)) || !plausible(int64(b.Leave)) || b.Leave < b.Enter {
			delete(out, name)
		}
	}
	return out
}

// met returns what the barriers that two nodes met in say of the offset b-a,
// in a's time.
func met(a, b *nodeFacts) []knot {
	var ks []knot
	for name, x := range a.barriers {
		y, ok := b.barriers[name]
		if !ok {
			continue
		}
		e := evidence{
			tu: int64(x.Enter), u: int64(y.Leave - x.Enter),
			tl: int64(x.Leave), l: int64(y.Enter - x.Leave),
		}
		ks = append(ks, knot{t: e.mid(), evidence: e, n: 1})
	}
	orderKnots(ks)
	return ks
}

// meet adds links between nodes that exchanges did not reach and those that
// they did, where both met in barriers, and says whether it added any.
func (g *graph) meet() bool {
	if g.ref < 0 {
		return false
	}
	before := len(g.links)
	var lost, have []string
	for _, name := range g.f.names {
		n, s := g.f.nodes[name], g.sites[g.byNode[name]]
		switch {
		case len(n.barriers) == 0 || n.ambiguous() || s.suspect:
		case g.tracked(g.byNode[name]):
			have = append(have, name)
		default:
			lost = append(lost, name)
		}
	}
	type way struct {
		peer  string
		knots []knot
		width float64
	}
	for _, name := range lost {
		var ways []way
		for _, peer := range have {
			w := way{peer: peer, knots: met(g.f.nodes[name], g.f.nodes[peer]), width: math.Inf(1)}
			for _, k := range w.knots {
				w.width = min(w.width, float64(k.u)-float64(k.l))
			}
			if len(w.knots) > 0 {
				ways = append(ways, w)
			}
		}
		slices.SortStableFunc(ways, func(a, b way) int { return cmp.Compare(a.width, b.width) })
		for _, w := range ways[:min(len(ways), barrierLinks)] {
			g.connect(g.f.nodes[name], g.f.nodes[w.peer], w.knots, ByBarriers)
		}
	}
	return len(g.links) > before
}
