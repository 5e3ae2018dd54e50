package clock

import (
	"cmp"
	"maps"
	"slices"
)

// boot is the stamps of a node between two of its starts.
type boot struct {
	first, last int64
}

// bootReach is how far from a boot's recorded stamps another one may lie and
// still belong to it: brackets are never farther apart while a node runs.
const bootReach = 10_000_000_000

// bootsOf splits a node's stamps where its raw clock fell behind what it had
// shown. A node that never restarted has none, and all stamps are of one boot.
// Where stamps of two boots cannot be told apart the boots are empty, too, and
// the contradiction's Overlap is set.
func bootsOf(ev NodeEvidence) ([]boot, *Contradiction) {
	var c *Contradiction
	see := func(bs []boot, t, u int64) []boot {
		if !plausible(t) || !plausible(u) {
			return bs
		}
		k := len(bs) - 1
		switch {
		case k < 0:
			return append(bs, boot{t, u})
		case t < bs[k].last-restartBack:
			if c == nil {
				c = &Contradiction{
					Node: ev.Node, Kind: KindRestart,
					Since: NodeTime(bs[k].last), At: NodeTime(t), ExcessNS: bs[k].last - t,
				}
			}
			return append(bs, boot{t, u})
		}
		bs[k].first, bs[k].last = min(bs[k].first, t), max(bs[k].last, u)
		return bs
	}
	// Exchanges are in order for each peer, whatever was asked beside it. The
	// stream that shows most restarts knows best.
	var boots []boot
	for _, b := range ev.Brackets {
		if b.Raw1 >= b.Raw0 {
			boots = see(boots, int64(b.Raw0), int64(b.Raw1))
		}
	}
	asked := map[string][]boot{}
	for _, x := range ev.Exchanges {
		if usable(x) {
			asked[x.Peer] = see(asked[x.Peer], int64(x.T1), int64(x.T4))
		}
	}
	if c == nil {
		return nil, nil
	}
	for _, p := range slices.Sorted(maps.Keys(asked)) {
		if len(asked[p]) > len(boots) {
			boots = asked[p]
		}
	}
	c.Count = len(boots) - 1
	if len(boots) > maxSegments {
		c.Overlap = true
		return nil, c
	}
	slices.SortFunc(boots, func(a, b boot) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(boots); i++ {
		if boots[i].first-boots[i-1].last <= 2*bootReach {
			c.Overlap = true
			return nil, c
		}
	}
	return boots, c
}

// bootAt returns the boot that a stamp belongs to, 0 for a node that never
// restarted, -1 where it is not known.
func bootAt(bs []boot, t int64) int {
	if len(bs) == 0 {
		return 0
	}
	for i, b := range bs {
		if t >= b.first-bootReach && t <= b.last+bootReach {
			return i
		}
	}
	return -1
}
