package clock

import (
	"cmp"
	"slices"
)

// utcName stands for UTC among the nodes. No node has this name: names of nodes
// hold no parentheses.
const utcName = "(utc)"

const (
	// unsync is STA_UNSYNC: the kernel has no word of how wrong its wall
	// clock is.
	unsync = 0x40
	// vouchedEvery thins what time daemons say: their word changes slowly.
	vouchedEvery = 16_000_000_000
	// vouchedMax is the largest error that is worth a bound; at 16 s the
	// kernel itself gives up.
	vouchedMax = 16_000_000_000
	// bridges is how many aligned nodes tie UTC to cluster time.
	bridges = 16
)

// vouched returns what the brackets say of the offset from the raw clock to
// UTC, counted from the anchor: the wall clock is within the kernel's maximum
// error of it, where a time daemon keeps that up to date.
func vouched(bs []Bracket, a Anchor) []knot {
	var ks []knot
	var next NodeTime
	for i, b := range bs {
		if b.Adj == nil || b.Adj.Status&unsync != 0 || b.Adj.MaxError <= 0 || b.Adj.MaxError >= vouchedMax {
			continue
		}
		if !plausible(int64(b.Raw0)) || !plausible(int64(b.Raw1)) || b.Raw1 < b.Raw0 || b.Raw1-b.Raw0 > vouchedMax {
			continue
		}
		utc := sub(b.Realtime, a.Realtime)
		if !plausible(utc) || len(ks) > 0 && b.Raw0 < next && i < len(bs)-1 {
			continue
		}
		next = b.Raw0 + vouchedEvery
		mid := int64(b.Raw0 + (b.Raw1-b.Raw0)/2)
		off, wide := utc-mid, int64(b.Raw1-b.Raw0)/2+1+b.Adj.MaxError
		ks = append(ks, knot{t: mid, evidence: evidence{tu: mid, u: off + wide, tl: mid, l: off - wide}, n: 1})
	}
	orderKnots(ks)
	return ks
}

// vouch adds UTC to the graph where that may reach sites that exchanges did
// not, and says whether it did.
func (g *graph) vouch() bool {
	if g.ref < 0 {
		return false
	}
	synced := func(want bool) []int {
		var out []int
		for i, s := range g.sites {
			if g.tracked(i) == want && !s.suspect && !s.node.ambiguous() && slices.ContainsFunc(s.node.sync, func(k knot) bool { return bootAt(s.node.boots, k.t) == s.boot }) {
				out = append(out, i)
			}
		}
		return out
	}
	lost, have := synced(false), synced(true)
	if len(lost) == 0 || len(have) == 0 {
		return false
	}
	wide := func(i int) int64 {
		least := int64(vouchedMax)
		for _, k := range g.sites[i].node.sync {
			least = min(least, k.u-k.l)
		}
		return least
	}
	slices.SortStableFunc(have, func(a, b int) int { return cmp.Compare(wide(a), wide(b)) })
	g.utc = len(g.sites)
	g.sites = append(g.sites, &site{cost: 1e300, parent: -1})
	for _, i := range slices.Concat(have[:min(len(have), bridges)], lost) {
		s := g.sites[i]
		l := &link{a: i, b: g.utc, weak: ByNTP}
		for _, k := range s.node.sync {
			if bootAt(s.node.boots, k.t) == s.boot {
				k.era = int32(cutsBefore(s.node.cuts, k.t))
				l.knots = append(l.knots, k)
			}
		}
		g.add(l)
	}
	return true
}
