package clock

import (
	"math"
	"sort"
)

// How a node came to cluster time.
const (
	// Reference is the node whose clock cluster time is.
	Reference = "reference"
	// ByNTP is a node carried there by what its own and an aligned node's
	// time daemons vouch for.
	ByNTP = "ntp"
	// ByBarriers is a node carried there by barriers that ranks on it and on an
	// aligned node marked.
	ByBarriers = "barriers"
	// ByExchange is a node carried to the reference by exchanges of stamps.
	ByExchange = "exchange"
	// Unaligned is a node of which nothing is known that bounds its error.
	Unaligned = "unaligned"
)

// Where the rows of an unaligned node are laid. It is a place to keep them,
// not a statement about when they happened.
const (
	// FallbackWall lays them by the node's own wall clock.
	FallbackWall = "wall clock"
	// FallbackStart lays the node's first row at the run's anchor.
	FallbackStart = "run start"
	// FallbackAnchor reads its stamps as if they were the reference's.
	FallbackAnchor = "reference stamps"
)

// Model carries one node's stamps to cluster time. It is not changed once made
// and may be used from several goroutines.
type Model struct {
	node   string
	method string
	anchor Anchor
	// boots are the node's stretches between two of its starts: one, unless
	// its raw clock began anew.
	boots []bootModel
	// via names the nodes on the way to the reference.
	via []string

	fallback string
	shift    int64

	first, last   NodeTime
	found         []Contradiction
	suspect       bool
	used, dropped int
	wall          *WallMap
}

// bootModel is the way to the reference of one boot: track leads there, itself
// says that this is the reference. Neither means that nothing is known.
type bootModel struct {
	boot
	track  *edge
	itself bool
}

// at returns the boot that a stamp belongs to, nil where it is not known.
func (m *Model) at(t int64) *bootModel {
	if len(m.boots) == 1 {
		return &m.boots[0]
	}
	for i := range m.boots {
		if b := &m.boots[i]; t >= b.first-bootReach && t <= b.last+bootReach {
			return b
		}
	}
	return nil
}

// Node returns the node's name.
func (m *Model) Node() string { return m.node }

// Method returns how the node came to cluster time.
func (m *Model) Method() string { return m.method }

// Wall returns the map from the node's wall clock to its raw clock; never nil.
func (m *Model) Wall() *WallMap {
	if m.wall == nil {
		return NewWallMap(nil)
	}
	return m.wall
}

// At carries a stamp to cluster time. Under the assumptions that Summary
// lists, the true instant lies within bound nanoseconds of ct. Between two
// steps of the clocks ct never falls while t rises.
//
// Where aligned is false nothing is known of the error: ct is a place to keep
// the row, bound is 0 and means nothing.
//
// It allocates nothing and takes time logarithmic in the number of bursts.
func (m *Model) At(t NodeTime) (ct ClusterTime, bound int64, aligned bool) {
	if m.method == Unaligned || !plausible(int64(t)) {
		return ClusterTime(add(int64(t), m.shift)), 0, false
	}
	b := m.at(int64(t))
	if b == nil || b.track == nil && !b.itself {
		return ClusterTime(add(int64(t), m.shift)), 0, false
	}
	lo, est, hi := int64(t), int64(t), int64(t)
	if b.track != nil {
		var ok bool
		if lo, est, hi, ok = b.track.across(lo, est, hi); !ok {
			return ClusterTime(add(int64(t), m.shift)), 0, false
		}
	}
	bound = max(sub(est, lo), sub(hi, est), 0)
	return ClusterTime(add(m.anchor.Realtime, sub(est, int64(m.anchor.Raw)))), bound, true
}

// lay chooses where the node's rows go if it cannot be aligned.
func (m *Model) lay(ev *nodeFacts, a Anchor) {
	switch {
	case len(m.wall.pins) > 0:
		m.fallback = FallbackWall
		p := m.wall.pins[0]
		m.shift = sub(p.real, p.mid())
	case ev.first != 0 || ev.last != 0:
		m.fallback = FallbackStart
		m.shift = sub(a.Realtime, int64(ev.first))
	default:
		m.fallback = FallbackAnchor
		m.shift = sub(a.Realtime, int64(a.Raw))
	}
}

// Offset returns the reference's raw clock minus the node's at t with its
// bound; ok is false where nothing is known.
func (m *Model) Offset(t NodeTime) (ns, bound int64, ok bool) {
	ct, bound, ok := m.At(t)
	if !ok {
		return 0, 0, false
	}
	ref := add(int64(m.anchor.Raw), sub(int64(ct), m.anchor.Realtime))
	return sub(ref, int64(t)), bound, true
}

// drift returns how fast the node's raw clock runs against the reference's at
// t, in ppm, positive where it gains, and the uncertainty.
func (m *Model) drift(t NodeTime) (ppm, known float64, ok bool) {
	b := m.at(int64(t))
	if b == nil || b.track == nil || !plausible(int64(t)) {
		return 0, 0, false
	}
	rate, k := b.track.rateAt(int64(t))
	if k > driftLimit || math.IsInf(k, 0) || math.IsNaN(k) {
		return 0, 0, false
	}
	return -rate * 1e6, k * 1e6, true
}

// model makes the model of a node.
func (g *graph) model(n *nodeFacts) *Model {
	m := &Model{
		node: n.name, method: Unaligned, anchor: g.f.anchor, wall: n.wall,
		first: n.first, last: n.last, dropped: n.dropped,
	}
	for _, l := range g.links {
		if len(l.found) > 0 && l.found[0].Node == n.name {
			m.found = append(m.found, l.found...)
		}
	}
	if n.restart != nil {
		m.found = append(m.found, *n.restart)
	}
	sort.SliceStable(m.found, func(i, j int) bool { return m.found[i].At < m.found[j].At })
	m.lay(n, g.f.anchor)
	if n.ambiguous() {
		return m
	}
	for b := range max(len(n.boots), 1) {
		i := g.byNode[n.name] + b
		s := g.sites[i]
		bm := bootModel{boot: boot{-maxStamp, maxStamp}, track: s.track, itself: i == g.ref}
		if len(n.boots) > 0 {
			bm.boot = n.boots[b]
		}
		m.boots = append(m.boots, bm)
		if !g.tracked(i) {
			continue
		}
		m.suspect = m.suspect || s.suspect
		if m.method == Reference {
			continue
		}
		m.method, m.fallback, m.via = ByExchange, "", nil
		switch {
		case i == g.ref:
			m.method = Reference
			continue
		case s.weak != "":
			m.method = s.weak
		}
		m.used += g.from(s.up, i).used
		for p := s.parent; p >= 0; p = g.sites[p].parent {
			m.via = append(m.via, g.sites[p].name())
		}
	}
	return m
}
