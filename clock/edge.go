package clock

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// evidence is one exchange seen from one side: the offset peer-node was at
// most u when the node's clock showed tu, and at least l when it showed tl.
//
// For the side that asks, u = T2-T1 holds at tu = T1: at that instant the peer
// showed no more than T2. l = T3-T4 holds at tl = T4: the peer showed no less
// than T3. For the side that answers the same two facts hold at its own T2 and
// T3. Naming the instants is what lets the rates of the two clocks differ.
type evidence struct {
	tu, u, tl, l int64
}

// mid is the instant by which evidence is ordered.
func (e evidence) mid() int64 { return e.tu + (e.tl-e.tu)/2 }

// asked is the exchange as the node that asked sees it.
func asked(x Exchange) evidence {
	return evidence{
		tu: int64(x.T1), u: int64(x.T2 - x.T1),
		tl: int64(x.T4), l: int64(x.T3 - x.T4),
	}
}

// answered is the exchange as the node that answered sees it; the offset is
// then that of the asking node.
func answered(x Exchange) evidence {
	return evidence{
		tu: int64(x.T3), u: int64(x.T4 - x.T3),
		tl: int64(x.T2), l: int64(x.T1 - x.T2),
	}
}

// usable says whether the four stamps can belong together: the answer came
// after the question on both sides, and the peer did not take longer for it
// than the node waited.
func usable(x Exchange) bool {
	for _, t := range [...]NodeTime{x.T1, x.T2, x.T3, x.T4} {
		if !plausible(int64(t)) {
			return false
		}
	}
	waited, held := int64(x.T4-x.T1), int64(x.T3-x.T2)
	return waited >= 0 && held >= 0 &&
		float64(held-waited) <= driftLimit*float64(waited)+slack
}

// knot is what is known of the offset at one instant. lo, est and hi are
// nanoseconds relative to the edge's base.
type knot struct {
	t           int64
	lo, est, hi float64
	from, to    int // the evidence behind it
	seg         int
}

// segment is a stretch over which no step was seen. Within it the offset
// changes by rate*dt, give or take limit*dt.
type segment struct {
	first, last int // knots
	rate, limit float64
	// known is the uncertainty of the mean rate; above rateKnown the rate is
	// taken as 0 and the limit as driftLimit.
	mean, known float64
	tight       bool
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

// fitEdge fits an edge; nil where there is no evidence or nothing but
// contradictions. It reorders ev.
func fitEdge(ev []evidence) (*edge, []Contradiction) {
	if len(ev) == 0 {
		return nil, nil
	}
	slices.SortFunc(ev, func(a, b evidence) int {
		if c := cmp.Compare(a.mid(), b.mid()); c != 0 {
			return c
		}
		if c := cmp.Compare(a.tu, b.tu); c != 0 {
			return c
		}
		if c := cmp.Compare(a.u, b.u); c != 0 {
			return c
		}
		return cmp.Compare(a.l, b.l)
	})
	e := &edge{base: ev[0].l + (ev[0].u-ev[0].l)/2, used: len(ev)}
	e.group(ev)
	e.split(ev)
	if len(e.segs) > maxSegments {
		return nil, append(e.found, Contradiction{
			Kind: KindUnusable, At: NodeTime(e.knots[0].t), Count: len(e.segs),
		})
	}
	for i := range e.segs {
		e.tighten(ev, i)
	}
	e.estimate()
	return e, e.found
}

// group puts exchanges that are close together into knots. Exchanges that
// contradict each other never share one.
func (e *edge) group(ev []evidence) {
	start := 0
	lo, hi := math.Inf(-1), math.Inf(1)
	t0 := ev[0].mid()
	flush := func(end int) {
		t := t0 + (ev[end-1].mid()-t0)/2
		e.knots = append(e.knots, knot{t: t, from: start, to: end})
	}
	for i, x := range ev {
		t := x.mid()
		l, u := e.carry(x, t0, 0, driftLimit)
		if i > start && (t-t0 > knotSpan || max(lo, l)-min(hi, u) > slack) {
			flush(i)
			start, t0 = i, t
			lo, hi = e.carry(x, t0, 0, driftLimit)
			continue
		}
		lo, hi = max(lo, l), min(hi, u)
	}
	flush(len(ev))
}

// carry returns what x says of the offset when the node's clock shows t.
func (e *edge) carry(x evidence, t int64, rate, limit float64) (lo, hi float64) {
	dl, du := float64(t-x.tl), float64(t-x.tu)
	lo = float64(x.l-e.base) + rate*dl - limit*math.Abs(dl)
	hi = float64(x.u-e.base) + rate*du + limit*math.Abs(du)
	return lo, hi
}

// own sets a knot to what its own exchanges say, all carried to its instant.
func (e *edge) own(ev []evidence, k *knot, rate, limit float64) {
	k.lo, k.hi = math.Inf(-1), math.Inf(1)
	for _, x := range ev[k.from:k.to] {
		l, h := e.carry(x, k.t, rate, limit)
		k.lo, k.hi = max(k.lo, l), min(k.hi, h)
	}
}

// split cuts the knots into segments wherever the drift limit cannot explain
// what was seen, and leaves the envelope under that limit in the knots.
func (e *edge) split(ev []evidence) {
	first := 0
	for i := range e.knots {
		k := &e.knots[i]
		e.own(ev, k, 0, driftLimit)
		if k.lo > k.hi { // by no more than the slack: group saw to that
			k.lo, k.hi = k.hi, k.lo
		}
		if i > first {
			p := &e.knots[i-1]
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
		k.seg = len(e.segs)
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
func (e *edge) tighten(ev []evidence, i int) {
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
			e.own(ev, &e.knots[k], try.rate, try.limit)
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

// estimate chooses the most likely offset at each knot: the middle of the
// envelope. Each side of the envelope changes by no more than the segment's
// limit allows, so its middle does too, and the line between two knots stays
// within the envelope, which bulges outwards between them.
func (e *edge) estimate() {
	for i := range e.knots {
		k := &e.knots[i]
		k.est = k.lo + (k.hi-k.lo)/2
	}
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
	return k.lo + s.rate*dt - w, k.est + s.rate*dt, k.hi + s.rate*dt + w
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
// to the peer's time; ok is false where they leave what can be a stamp.
func (e *edge) across(lo, est, hi int64) (plo, pest, phi int64, ok bool) {
	if !plausible(lo) || !plausible(hi) || !plausible(est) {
		return 0, 0, 0, false
	}
	l, m, h := e.at(est)
	pest = est + e.base + whole(math.Round(m))
	if lo != est {
		l, _, _ = e.at(lo)
	}
	if hi != est {
		_, _, h = e.at(hi)
	}
	plo = lo + e.base + down(l)
	phi = hi + e.base + up(h)
	if len(e.segs) > 1 && lo != hi {
		// Time runs forward within a segment; around steps every edge counts.
		for _, s := range e.segs {
			for _, t := range [...]int64{e.knots[s.first].t, e.knots[s.last].t} {
				if t > lo && t < hi {
					l, _, h := e.at(t)
					plo = min(plo, t+e.base+down(l))
					phi = max(phi, t+e.base+up(h))
				}
			}
		}
	}
	return plo, pest, phi, true
}

// rateAt returns the mean rate of the segment that t falls into and its
// uncertainty.
func (e *edge) rateAt(t int64) (mean, known float64) {
	i := sort.Search(len(e.knots), func(i int) bool { return e.knots[i].t > t }) - 1
	s := &e.segs[e.knots[max(i, 0)].seg]
	return s.mean, s.known
}
