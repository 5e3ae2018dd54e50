package clock

import (
	"math"
	"slices"
)

// nearKnot is how close to one of the node's own knots a knot of its peer's
// track adds nothing.
const nearKnot = 20_000_000

// fuse carries an edge from a node to its peer on along the peer's track: what
// comes out leads from the node's time to the reference's. p is nil where the
// peer is the reference. It is nil where no instant can be carried.
func fuse(e, p *edge) *edge {
	if p == nil || e == nil {
		return e
	}
	return fuseAt(e, p, e.instants(p))
}

// fuseAt is fuse with knots at the given times.
func fuseAt(e, p *edge, times []int64) *edge {
	f := &edge{found: e.found, used: e.used}
	var last [2]int
	for _, t := range times {
		s := e.segAt(t)
		if s < 0 {
			continue
		}
		plo, pest, phi, ok := e.across(t, t, t)
		if !ok {
			continue
		}
		q := p.segAt(pest)
		if q < 0 || q != p.segAt(plo) || q != p.segAt(phi) {
			continue
		}
		lo, est, hi, ok := p.across(plo, pest, phi)
		if !ok {
			continue
		}
		if len(f.knots) == 0 {
			f.base = est - t
		}
		k := knot{t: t, evidence: evidence{tu: t, u: hi - t, tl: t, l: lo - t}, n: 1}
		k.lo, k.hi = float64(lo-t-f.base), float64(hi-t-f.base)
		k.est = float64(est - t - f.base)
		if at := [2]int{s, q}; len(f.segs) == 0 || at != last {
			f.segs = append(f.segs, composed(e.segs[s], p.segs[q]))
			f.segs[len(f.segs)-1].first = len(f.knots)
			last = at
		}
		k.seg = int32(len(f.segs) - 1)
		k.era = k.seg
		f.segs[k.seg].last = len(f.knots)
		f.knots = append(f.knots, k)
	}
	if len(f.knots) == 0 {
		return nil
	}
	for _, s := range f.segs {
		f.ease(s)
	}
	return f
}

// instants returns when the node's track has knots: at its own and where its
// peer's track has some.
func (e *edge) instants(p *edge) []int64 {
	times := slices.Grow(e.times(), len(p.knots))
	own := len(times)
	j := 0
	for i := range p.knots {
		t := e.when(p.knots[i].t)
		for j < own && times[j] < t-nearKnot {
			j++
		}
		if (j == own || times[j] > t+nearKnot) && plausible(t) {
			times = append(times, t)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// times returns when the edge has knots.
func (e *edge) times() []int64 {
	times := make([]int64, 0, len(e.knots))
	for i := range e.knots {
		if i == 0 || e.knots[i].t != e.knots[i-1].t {
			times = append(times, e.knots[i].t)
		}
	}
	return times
}

// when returns about what the node's clock shows when its peer's shows pt. The
// offset changes so slowly that the second look is exact to well under a
// microsecond, and nothing rests on it.
func (e *edge) when(pt int64) int64 {
	t := sub(pt, e.base)
	for range 2 {
		if !plausible(t) {
			return t
		}
		_, est, _ := e.at(t)
		t = sub(sub(pt, e.base), whole(est))
	}
	return t
}

// composed is the segment of two rates one after the other.
func composed(a, b segment) segment {
	c := segment{
		rate: (1+a.rate)*(1+b.rate) - 1, mean: (1+a.mean)*(1+b.mean) - 1,
		tight:  a.tight && b.tight,
		before: a.before + b.before, after: a.after + b.after,
	}
	// The most by which (1+a)(1+b) strays, every rate at its limit.
	c.limit = a.limit*(1+math.Abs(b.rate)) + b.limit*(1+math.Abs(a.rate)) + a.limit*b.limit
	c.known = a.known + b.known
	return c
}

// ease narrows the knots of a segment by each other, and puts the estimates
// into what is left. Knots that disagree, by no more than the slack that got
// them here, are left as wide as both.
func (e *edge) ease(s segment) {
	ks := e.knots[s.first : s.last+1]
	pass := func(k, p *knot, dt float64) {
		w := s.limit * math.Abs(dt)
		lo, hi := max(k.lo, p.lo+s.rate*dt-w), min(k.hi, p.hi+s.rate*dt+w)
		k.lo, k.hi = min(lo, hi), max(lo, hi)
	}
	for i := 1; i < len(ks); i++ {
		pass(&ks[i], &ks[i-1], float64(ks[i].t-ks[i-1].t))
	}
	for i := len(ks) - 2; i >= 0; i-- {
		pass(&ks[i], &ks[i+1], float64(ks[i].t-ks[i+1].t))
	}
	e.settle(s)
}

// gain is by how much, in nanoseconds and as a share of what is known, a fact
// must narrow a bound to be worth a knot.
const (
	gainFixed = 50
	gainShare = 0.02
)

// refine narrows a track by another of the same node. Where they exclude each
// other neither is believed: the track stays as it is, and the clash says by
// how much, when first, and how often.
func (e *edge) refine(c *edge) (*edge, *clash) {
	shift := float64(c.base - e.base)
	var bad *clash
	var extra []knot
	for i := range c.knots {
		k := c.knots[i]
		s := e.segAt(k.t)
		if s < 0 || c.segAt(k.t) < 0 {
			continue
		}
		lo, est, hi := e.at(k.t)
		clo, chi := k.lo+shift, k.hi+shift
		if over := max(clo-hi, lo-chi); over > slack {
			if bad == nil {
				bad = &clash{since: k.t}
			}
			bad.until, bad.by = k.t, max(bad.by, over)
			bad.count++
			continue
		}
		need := max(gainFixed, gainShare*(hi-lo))
		if clo > lo+need || chi < hi-need {
			k.lo, k.hi = max(lo, clo), min(hi, chi)
			k.lo, k.hi = min(k.lo, k.hi), max(k.lo, k.hi)
			k.est, k.seg, k.n = min(max(est, k.lo), k.hi), int32(s), 0
			extra = append(extra, k)
		}
	}
	if bad != nil || len(extra) == 0 {
		return nil, bad
	}
	return e.with(extra), nil
}

// with returns the track with more knots, which are in order.
func (e *edge) with(extra []knot) *edge {
	n := &edge{base: e.base, found: e.found, used: e.used, segs: slices.Clone(e.segs)}
	n.knots = make([]knot, 0, len(e.knots)+len(extra))
	i, j := 0, 0
	for i < len(e.knots) || j < len(extra) {
		k := knot{}
		if j == len(extra) || i < len(e.knots) && e.knots[i].t <= extra[j].t {
			k = e.knots[i]
			i++
		} else {
			k = extra[j]
			j++
		}
		s := &n.segs[k.seg]
		if len(n.knots) == 0 || n.knots[len(n.knots)-1].seg != k.seg {
			s.first = len(n.knots)
		}
		s.last = len(n.knots)
		n.knots = append(n.knots, k)
	}
	for _, s := range n.segs {
		n.ease(s)
	}
	return n
}

// clash is where two ways to the reference exclude each other, in the time of
// the node where it showed.
type clash struct {
	since, until int64
	by           float64
	count        int
}
