package clock

import (
	"cmp"
	"math"
	"slices"
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

// turned is the same evidence as the other side sees it. "At tu the peer showed
// no more than tu+u" and "when the peer showed tu+u, this clock showed no less
// than tu" are one fact.
func (e evidence) turned() evidence {
	return evidence{tu: e.tl + e.l, u: -e.l, tl: e.tu + e.u, l: -e.u}
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

// order sorts evidence by time, and in one way only whatever order it came in.
func order(ev []evidence) {
	slices.SortFunc(ev, func(a, b evidence) int {
		return cmp.Or(cmp.Compare(a.mid(), b.mid()), cmp.Compare(a.tu, b.tu),
			cmp.Compare(a.u, b.u), cmp.Compare(a.l, b.l))
	})
}

// knot is what is known of the offset around one instant: the tightest upper
// and the tightest lower fact of the exchanges behind it, and what the fit
// makes of them. lo, est and hi are nanoseconds relative to the edge's base.
type knot struct {
	t           int64
	evidence    // the facts
	lo, est, hi float64
	n           int32 // exchanges
	// era counts what is known from elsewhere to have happened to either
	// clock by then; knots of different eras are in different segments.
	era int32
	seg int32
}

// reduce makes knots of exchanges that are close together. Exchanges that
// contradict each other never share one. What is lost is what the drift limit
// adds over a knot's span to facts that are not the tightest: nothing, as far
// as bounds go. ev is sorted.
func reduce(dst []knot, ev []evidence) []knot {
	if len(ev) == 0 {
		return dst
	}
	start := 0
	lo, hi := math.Inf(-1), math.Inf(1)
	t0 := ev[0].mid()
	base := ev[0].l
	flush := func(end int) {
		k := knot{t: t0 + (ev[end-1].mid()-t0)/2, n: int32(end - start)}
		lo, hi := math.Inf(-1), math.Inf(1)
		for _, x := range ev[start:end] {
			l, h := x.carry(k.t, base, 0, driftLimit)
			if l > lo {
				lo, k.l, k.tl = l, x.l, x.tl
			}
			if h < hi {
				hi, k.u, k.tu = h, x.u, x.tu
			}
		}
		dst = append(dst, k)
	}
	for i, x := range ev {
		t := x.mid()
		l, u := x.carry(t0, base, 0, driftLimit)
		if i > start && (t-t0 > knotSpan || max(lo, l)-min(hi, u) > slack) {
			flush(i)
			start, t0 = i, t
			lo, hi = x.carry(t0, base, 0, driftLimit)
			continue
		}
		lo, hi = max(lo, l), min(hi, u)
	}
	flush(len(ev))
	return dst
}

// carry returns what e says of the offset when the node's clock shows t,
// relative to base, if the offset changes by rate give or take limit.
func (e evidence) carry(t, base int64, rate, limit float64) (lo, hi float64) {
	dl, du := float64(t-e.tl), float64(t-e.tu)
	lo = float64(e.l-base) + rate*dl - limit*math.Abs(dl)
	hi = float64(e.u-base) + rate*du + limit*math.Abs(du)
	return lo, hi
}

// turn returns the knots as the other side sees them.
func turn(ks []knot) []knot {
	out := make([]knot, 0, len(ks))
	for _, k := range ks {
		e := k.turned()
		if !plausible(e.tu) || !plausible(e.tl) {
			continue
		}
		out = append(out, knot{t: e.mid(), evidence: e, n: k.n, era: k.era})
	}
	orderKnots(out)
	return out
}

func orderKnots(ks []knot) {
	slices.SortFunc(ks, func(a, b knot) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.tu, b.tu),
			cmp.Compare(a.u, b.u), cmp.Compare(a.l, b.l))
	})
}
