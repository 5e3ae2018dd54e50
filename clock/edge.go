package clock

import (
	"math"
	"slices"
	"sort"
)

// segment is a stretch over which no step was seen. Within it the offset
// changes by rate*dt, give or take limit*dt.
type segment struct {
	first, last int // knots
	rate, limit float64
	// known is the uncertainty of the mean rate; above rateKnown the rate is
	// taken as 0 and the limit as driftLimit.
	mean, known float64
	tight       bool
	// before and after are the most likely rates at the segment's ends.
	before, after float64
}

// edge is what the exchanges between two nodes say of the offset peer-node,
// as a function of the node's time. It is not changed once fitted and may be
// used from several goroutines.
type edge struct {
	base  int64
	knots []knot
	segs  []segment
	found []Contradiction // without names
	used  int
}

// fitEdge fits an edge to exchanges; nil where there are none or nothing but
// contradictions. It reorders ev.
func fitEdge(ev []evidence) (*edge, []Contradiction) {
	order(ev)
	return fitKnots(reduce(nil, ev))
}

// fitKnots fits an edge to knots, which are in order and which it keeps.
func fitKnots(ks []knot) (*edge, []Contradiction) {
	if len(ks) == 0 {
		return nil, nil
	}
	e := &edge{base: ks[0].l + (ks[0].u-ks[0].l)/2, knots: ks}
	for _, k := range ks {
		e.used += int(k.n)
	}
	e.split()
	if len(e.segs) > maxSegments {
		return nil, append(e.found, Contradiction{
			Kind: KindUnusable, At: NodeTime(e.knots[0].t), Count: len(e.segs),
		})
	}
	for i := range e.segs {
		e.tighten(i)
	}
	e.estimate()
	return e, e.found
}

// own sets a knot to what its own exchanges say, carried to its instant.
func (e *edge) own(k *knot, rate, limit float64) {
	k.lo, k.hi = k.carry(k.t, e.base, rate, limit)
	if k.lo > k.hi { // by no more than the slack: reduce saw to that
		k.lo, k.hi = k.hi, k.lo
	}
}

// split cuts the knots into segments wherever the drift limit cannot explain
// what was seen, and leaves the envelope under that limit in the knots.
func (e *edge) split() {
	first := 0
	for i := range e.knots {
		k := &e.knots[i]
		e.own(k, 0, driftLimit)
		if p := &e.knots[max(i-1, 0)]; i > first && p.era != k.era {
			e.segs = append(e.segs, segment{first: first, last: i - 1, limit: driftLimit})
			first = i
		} else if i > first {
			dt := float64(k.t - p.t)
			lo, hi := max(k.lo, p.lo-driftLimit*dt), min(k.hi, p.hi+driftLimit*dt)
			if gap := lo - hi; gap > slack {
				e.found = append(e.found, Contradiction{
					Kind: KindStep, At: NodeTime(k.t), Since: NodeTime(p.t),
					ExcessNS: whole(gap), Count: 1,
				})
				e.segs = append(e.segs, segment{first: first, last: i - 1, limit: driftLimit})
				first = i
			} else {
				k.lo, k.hi = min(lo, hi), max(lo, hi)
			}
		}
		k.seg = int32(len(e.segs))
	}
	e.segs = append(e.segs, segment{first: first, last: len(e.knots) - 1, limit: driftLimit})
	for _, s := range e.segs {
		e.backward(s)
	}
}

// forward carries each knot's interval to the next one under the segment's
// rate and limit, and says whether all intervals kept something.
func (e *edge) forward(s segment) bool {
	for i := s.first + 1; i <= s.last; i++ {
		p, k := &e.knots[i-1], &e.knots[i]
		dt := float64(k.t - p.t)
		k.lo = max(k.lo, p.lo+(s.rate-s.limit)*dt)
		k.hi = min(k.hi, p.hi+(s.rate+s.limit)*dt)
		if k.lo > k.hi {
			return false
		}
	}
	return true
}

// backward is forward from the segment's end.
func (e *edge) backward(s segment) {
	for i := s.last - 1; i >= s.first; i-- {
		n, k := &e.knots[i+1], &e.knots[i]
		dt := float64(n.t - k.t)
		lo := max(k.lo, n.lo-(s.rate+s.limit)*dt)
		hi := min(k.hi, n.hi-(s.rate-s.limit)*dt)
		k.lo, k.hi = min(lo, hi), max(lo, hi)
	}
}

// meanRate returns the segment's mean rate and its uncertainty: halfway
// between, and half the difference of, the extreme slopes that the envelope
// admits from the first knot to the last.
func (e *edge) meanRate(s segment) (mean, known float64) {
	a, b := &e.knots[s.first], &e.knots[s.last]
	dt := float64(b.t - a.t)
	if dt <= 0 {
		return 0, math.Inf(1)
	}
	low := max((b.lo-a.hi)/dt, -driftLimit)
	high := min((b.hi-a.lo)/dt, driftLimit)
	return (low + high) / 2, math.Abs(high-low) / 2
}

// tightenRounds is how often the envelope may narrow the rate and the rate the
// envelope; the gain of a third round is below a percent.
const tightenRounds = 3

// tighten narrows a segment's envelope with its own mean rate, once that is
// known well enough. If the narrower limit cannot explain what was seen, the
// envelope under the drift limit stays and the fact is reported.
func (e *edge) tighten(i int) {
	s := &e.segs[i]
	s.mean, s.known = e.meanRate(*s)
	wide := slices.Clone(e.knots[s.first : s.last+1])
	for range tightenRounds {
		if s.known > rateKnown {
			return
		}
		try := *s
		try.rate, try.limit, try.tight = s.mean, wanderLimit+s.known, true
		for k := s.first; k <= s.last; k++ {
			e.own(&e.knots[k], try.rate, try.limit)
		}
		ok := e.knots[s.first].lo <= e.knots[s.first].hi && e.forward(try)
		if !ok {
			copy(e.knots[s.first:], wide)
			s.rate, s.limit, s.tight = 0, driftLimit, false
			e.found = append(e.found, Contradiction{
				Kind: KindWander, At: NodeTime(e.knots[s.last].t),
				Since: NodeTime(e.knots[s.first].t), Count: 1,
			})
			return
		}
		e.backward(try)
		mean, known := e.meanRate(try)
		done := known > 0.95*s.known
		*s = try
		if done {
			return
		}
		s.mean, s.known = mean, known
	}
	// The last round's rate was not used for the envelope.
	s.mean = s.rate
	s.known = s.limit - wanderLimit
}

// at returns the bounds and the estimate of the offset when the node's clock
// shows t, relative to the base. t is plausible.
func (e *edge) at(t int64) (lo, est, hi float64) {
	// i is the last knot at or before t.
	i := sort.Search(len(e.knots), func(i int) bool { return e.knots[i].t > t }) - 1
	if i < 0 {
		return e.reach(0, t)
	}
	lo, est, hi = e.between(i, t)
	// A knot at the edge of a step belongs to both sides of it.
	for ; i > 0 && e.knots[i].t == t; i-- {
		if e.knots[i].seg != e.knots[i-1].seg {
			l, _, h := e.between(i-1, t)
			lo, hi = min(lo, l), max(hi, h)
		}
	}
	return lo, est, hi
}

// reach returns what knot i says of the offset at t, on whichever side of it.
func (e *edge) reach(i int, t int64) (lo, est, hi float64) {
	k := &e.knots[i]
	s := &e.segs[k.seg]
	dt := float64(t - k.t)
	w := s.limit * math.Abs(dt)
	likely := s.after
	if dt < 0 {
		likely = s.before
	}
	// Within what the bounds change by, so that it stays between them.
	likely = min(max(likely, s.rate-s.limit), s.rate+s.limit)
	return k.lo + s.rate*dt - w, k.est + likely*dt, k.hi + s.rate*dt + w
}

// between returns the offset at t, which is not before knot i nor after the
// next one if there is a next one.
func (e *edge) between(i int, t int64) (lo, est, hi float64) {
	lo, est, hi = e.reach(i, t)
	if i+1 == len(e.knots) {
		return lo, est, hi
	}
	a, b := &e.knots[i], &e.knots[i+1]
	l, m, h := e.reach(i+1, t)
	if a.seg != b.seg {
		// Somewhere in between the offset stepped: both sides stand.
		if t-a.t > b.t-t {
			est = m
		}
		return min(lo, l), est, max(hi, h)
	}
	if dt := float64(b.t - a.t); dt > 0 {
		est = a.est + (b.est-a.est)*(float64(t-a.t)/dt)
	}
	return max(lo, l), est, min(hi, h)
}

// across carries an interval of the node's time, and an estimate within it,
// to the peer's time; ok is false where they leave what can be a stamp, and
// where the interval is not within one segment.
func (e *edge) across(lo, est, hi int64) (plo, pest, phi int64, ok bool) {
	if !plausible(lo) || !plausible(hi) || !plausible(est) {
		return 0, 0, 0, false
	}
	l, m, h := e.at(est)
	pest = est + e.base + whole(math.Round(m))
	if lo != est || hi != est {
		if s := e.segAt(lo); s < 0 || s != e.segAt(hi) {
			return 0, 0, 0, false
		}
		l, _, _ = e.at(lo)
		_, _, h = e.at(hi)
	}
	return lo + e.base + down(l), pest, hi + e.base + up(h), true
}

// segAt returns the segment that t lies in, the first and the last reaching
// outwards without end; -1 between two segments and at their edges, where both
// stand.
func (e *edge) segAt(t int64) int {
	if len(e.segs) == 1 {
		return 0
	}
	i := sort.Search(len(e.knots), func(i int) bool { return e.knots[i].t >= t })
	switch {
	case i == len(e.knots):
		return len(e.segs) - 1
	case i == 0 && t < e.knots[0].t:
		return 0
	}
	s := e.knots[i].seg
	if e.knots[i].t == t {
		if j := i + sort.Search(len(e.knots)-i, func(j int) bool { return e.knots[i+j].t > t }); j < len(e.knots) && e.knots[j].seg != s {
			return -1
		}
		if i > 0 && e.knots[i-1].seg != s {
			return -1
		}
		return int(s)
	}
	if e.knots[i-1].seg != s {
		return -1
	}
	return int(s)
}

// rateAt returns the mean rate of the segment that t falls into and its
// uncertainty.
func (e *edge) rateAt(t int64) (mean, known float64) {
	i := sort.Search(len(e.knots), func(i int) bool { return e.knots[i].t > t }) - 1
	s := &e.segs[e.knots[max(i, 0)].seg]
	return s.mean, s.known
}
