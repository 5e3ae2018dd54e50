package probe

import "github.com/gswarm/gswarm/clock"

// kernelSource is a Source whose kernel stamps packets by another wall clock
// than the machine's, as in tests.
type kernelSource interface {
	Kernel(ns int64) int64
}

// spanned carries a kernel's stamp to the raw clock by the brackets before and
// after it: it was made no earlier than early and no later than late. It is
// not ok outside the brackets, and where the wall clock stepped between them:
// then nothing says which side the stamp is of.
func spanned(src clock.Source, before, after clock.Bracket, stamp int64) (early, late clock.NodeTime, ok bool) {
	if stamp == 0 || before.Raw1 == 0 || after.Raw1 == 0 {
		return 0, 0, false
	}
	if k, is := src.(kernelSource); is {
		stamp = k.Kernel(stamp)
	}
	if stamp < before.Realtime || stamp > after.Realtime {
		return 0, 0, false
	}
	t, bound, ok := clock.NewWallMap([]clock.Bracket{before, after}).Raw(stamp)
	bound += wallRounding
	return t - clock.NodeTime(bound), t + clock.NodeTime(bound), ok
}

// wallRounding covers the rounding of two clocks to nanoseconds.
const wallRounding = 4

// tighten returns the exchanges by the kernel's stamps, as far as those are
// known, each where it says more than the program's: a send stamp that is not
// late is the better the later it is, a receive stamp that is not early the
// better the earlier.
func (p *Prober) tighten(before, after clock.Bracket) []clock.Exchange {
	var xs []clock.Exchange
	for i := range p.asked {
		q := &p.asked[i]
		if !q.answered {
			continue
		}
		x := q.x
		x.Kernel = true
		if t, _, ok := spanned(p.cfg.Source, before, after, p.sock.departed(q.number)); ok && t > x.T1 && t <= x.T4 {
			x.T1 = t
		}
		if _, t, ok := spanned(p.cfg.Source, before, after, q.arrived); ok && t < x.T4 && t >= x.T1 {
			x.T4 = t
		}
		if t := clock.NodeTime(q.kernelReceived); t != 0 && t < x.T2 && x.T2-t < x.T4-x.T1 {
			x.T2 = t
		}
		if t := clock.NodeTime(q.kernelAnswered); t != 0 && t > x.T3 && t-x.T3 < x.T4-x.T1 {
			x.T3 = t
		}
		if x.T1 != q.x.T1 || x.T2 != q.x.T2 || x.T3 != q.x.T3 || x.T4 != q.x.T4 {
			xs = append(xs, x)
		}
	}
	return xs
}
