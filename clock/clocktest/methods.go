// Package clocktest aligns clocks by the methods of others, from the same
// exchanges, so that tests can say how they compare. Nothing but tests may use
// it.
package clocktest

import (
	"math"

	"github.com/gswarm/gswarm/clock"
)

// Method is one way to tell the offset to the peer.
type Method struct {
	Name string
	// Offset is the peer's clock minus the node's when the node's shows t.
	Offset func(t clock.NodeTime) float64
}

// Methods returns what others do with a node's exchanges with one peer.
func Methods(xs []clock.Exchange) []Method {
	var user []clock.Exchange // none of the others has kernel stamps
	for _, x := range xs {
		if !x.Kernel {
			user = append(user, x)
		}
	}
	return []Method{twoEnds(user), leastSquares(user), lastMidpoint(user)}
}

// mid returns the midpoint estimate of an exchange, when it was made and its
// round trip.
func mid(x clock.Exchange) (t clock.NodeTime, offset, trip float64) {
	offset = (float64(x.T2-x.T1) + float64(x.T3-x.T4)) / 2
	return x.T1 + (x.T4-x.T1)/2, offset, float64((x.T4 - x.T1) - (x.T3 - x.T2))
}

// best is the midpoint of the shortest round trip.
func best(xs []clock.Exchange) (at clock.NodeTime, offset float64) {
	least := math.Inf(1)
	for _, x := range xs {
		if t, o, d := mid(x); d < least {
			at, offset, least = t, o, d
		}
	}
	return at, offset
}

// ends is of how many exchanges Score-P takes the one with the shortest round
// trip, at the start and at the end.
const ends = 10

// twoEnds is Score-P's: a line between the best exchange at the start and the
// best at the end.
func twoEnds(xs []clock.Exchange) Method {
	n := min(ends, len(xs))
	t0, o0 := best(xs[:n])
	t1, o1 := best(xs[len(xs)-n:])
	rate := 0.0
	if t1 > t0 {
		rate = (o1 - o0) / float64(t1-t0)
	}
	return Method{"line between both ends, as Score-P", func(t clock.NodeTime) float64 { return o0 + rate*float64(t-t0) }}
}

// leastSquares is one line through all midpoints.
func leastSquares(xs []clock.Exchange) Method {
	t0, o0, _ := mid(xs[0])
	var n, sx, sy, sxx, sxy float64
	for _, x := range xs {
		t, o, _ := mid(x)
		a, b := float64(t-t0), o-o0
		n, sx, sy, sxx, sxy = n+1, sx+a, sy+b, sxx+a*a, sxy+a*b
	}
	rate := 0.0
	if d := n*sxx - sx*sx; d > 0 {
		rate = (n*sxy - sx*sy) / d
	}
	at := (sy - rate*sx) / n
	return Method{"least squares, one line", func(t clock.NodeTime) float64 { return o0 + at + rate*float64(t-t0) }}
}

// lastMidpoint is what a live correction without a rate does: the midpoint of
// the best exchange of the latest burst.
func lastMidpoint(xs []clock.Exchange) Method {
	type point struct {
		t clock.NodeTime
		o float64
	}
	var ps []point
	for i := 0; i < len(xs); {
		j := i
		for j < len(xs) && xs[j].Burst == xs[i].Burst {
			j++
		}
		t, o := best(xs[i:j])
		ps = append(ps, point{t, o})
		i = j
	}
	return Method{"last midpoint", func(t clock.NodeTime) float64 {
		p := ps[0]
		for _, q := range ps {
			if q.t <= t {
				p = q
			}
		}
		return p.o
	}}
}

// Trust takes the wall clocks of both nodes for equal.
func Trust(node, peer []clock.Bracket) Method {
	w := clock.NewWallMap(peer)
	return Method{"trust in the wall clocks", func(t clock.NodeTime) float64 {
		b := node[0]
		for _, q := range node {
			if q.Raw0 <= t {
				b = q
			}
		}
		raw, _, _ := w.Raw(b.Realtime + int64(t-b.Raw0-(b.Raw1-b.Raw0)/2))
		return float64(raw - t)
	}}
}
