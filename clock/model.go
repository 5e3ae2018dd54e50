package clock

import "math"

// How a node came to cluster time.
const (
	// Reference is the node whose clock cluster time is.
	Reference = "reference"
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
	// chain leads from the node to the reference, an edge at a time; via
	// names where each leads to.
	chain []*edge
	via   []string

	fallback string
	shift    int64

	first, last   NodeTime
	found         []Contradiction
	suspect       bool
	used, dropped int
	wall          *WallMap
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
	lo, est, hi := int64(t), int64(t), int64(t)
	for _, e := range m.chain {
		var ok bool
		if lo, est, hi, ok = e.across(lo, est, hi); !ok {
			return ClusterTime(add(int64(t), m.shift)), 0, false
		}
	}
	bound = max(sub(est, lo), sub(hi, est), 0)
	return ClusterTime(add(m.anchor.Realtime, sub(est, int64(m.anchor.Raw)))), bound, true
}

// lay chooses where the node's rows go if it cannot be aligned.
func (m *Model) lay(ev NodeEvidence, a Anchor) {
	switch {
	case len(m.wall.pins) > 0:
		m.fallback = FallbackWall
		p := m.wall.pins[0]
		m.shift = sub(p.real, p.mid())
	case ev.First != 0 || ev.Last != 0:
		m.fallback = FallbackStart
		m.shift = sub(a.Realtime, int64(ev.First))
	default:
		m.fallback = FallbackAnchor
		m.shift = sub(a.Realtime, int64(a.Raw))
	}
}

// offsetAt returns reference minus node at t with its bound.
func (m *Model) offsetAt(t NodeTime) (ns, bound int64, ok bool) {
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
	at := int64(t)
	for _, e := range m.chain {
		if !plausible(at) {
			return 0, 0, false
		}
		b, k := e.rateAt(at)
		if k > driftLimit || math.IsInf(k, 0) || math.IsNaN(k) {
			return 0, 0, false
		}
		ppm -= b * 1e6
		known += k * 1e6
		_, at, _, _ = e.across(at, at, at)
	}
	return ppm, known, len(m.chain) > 0
}
