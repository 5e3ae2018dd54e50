package clock

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kinds of contradiction.
const (
	// KindStep: the offset moved by more than the drift limit explains. A
	// raw clock jumped (a suspend, a move of a virtual machine) or stamps lied.
	KindStep = "step"
	// KindWander: the rate was not as steady as assumed; the segment's bounds
	// are those of the drift limit instead.
	KindWander = "wander"
	// KindUnusable: the exchanges of two nodes contradict each other
	// throughout and are not used.
	KindUnusable = "unusable"
	// KindRestart: the node's raw clock fell behind what it had shown. Its
	// boots are placed one by one where their stamps can be told apart.
	KindRestart = "restart"
	// KindLoop: two ways from a node to the reference exclude each other.
	KindLoop = "loop"
	// KindBlame says who may be at fault for all loops together: Node where
	// every one of them passes it, else Nodes.
	KindBlame = "blame"
)

// Contradiction is something that cannot be true under the assumptions.
// Which of two nodes is at fault, it does not say, unless its kind does.
type Contradiction struct {
	Node string `yaml:"node" json:"node"`
	Peer string `yaml:"peer,omitempty" json:"peer,omitempty"`
	Kind string `yaml:"kind" json:"kind"`
	// Since and At are the node's stamps between which it happened.
	Since NodeTime `yaml:"since_raw_ns,omitempty" json:"since_raw_ns,omitempty"`
	At    NodeTime `yaml:"at_raw_ns" json:"at_raw_ns"`
	// ExcessNS is by how much it exceeds what the assumptions allow.
	ExcessNS int64 `yaml:"excess_ns,omitempty" json:"excess_ns,omitempty"`
	Count    int   `yaml:"count" json:"count"`
	// Nodes are the nodes of a loop, or those of which one or more must be at
	// fault.
	Nodes []string `yaml:"nodes,omitempty,flow" json:"nodes,omitempty"`
	// Overlap says that stamps of two boots are alike, so that none of the
	// node's can be placed.
	Overlap bool `yaml:"overlap,omitempty" json:"overlap,omitempty"`
}

func (c Contradiction) String() string {
	who := c.Node
	if c.Peer != "" {
		who += " and " + c.Peer
	}
	switch c.Kind {
	case KindStep:
		return fmt.Sprintf("%s: the clocks moved apart by %d ns more than drift explains, between raw %d and %d of %s", who, c.ExcessNS, c.Since, c.At, c.Node)
	case KindWander:
		return fmt.Sprintf("%s: the rate strayed more than %g ppm from its mean; bounds are those of %g ppm instead", who, wanderLimit*1e6, driftLimit*1e6)
	case KindUnusable:
		return fmt.Sprintf("%s: the exchanges contradict each other in %d places and are not used", who, c.Count)
	case KindRestart:
		s := fmt.Sprintf("%s: the raw clock fell back by %d ns to %d: the node restarted, or its records are mixed up", who, c.ExcessNS, c.At)
		if c.Overlap {
			s += "; stamps from before and after are alike, and none is placed"
		}
		return s
	case KindLoop:
		return fmt.Sprintf("%s: what was exchanged around %s excludes itself by %d ns", who, strings.Join(c.Nodes, ", "), c.ExcessNS)
	case KindBlame:
		if c.Node != "" {
			return fmt.Sprintf("%s is at fault: all %d ways that exclude each other meet there", c.Node, c.Count)
		}
		return fmt.Sprintf("one or more of %s are at fault; nothing says which", strings.Join(c.Nodes, ", "))
	}
	return who + ": " + c.Kind
}

// The assumptions under which bounds hold.
const (
	AssumeReference = "The reference node's raw clock is true; its one anchor to UTC is as wrong as that node's wall clock was."
	AssumeStamps    = "No send stamp is later than the sending, no receive stamp earlier than the receipt."
	AssumeDrift     = "The offset between two raw clocks changes by at most 200 ppm."
	AssumeWander    = "Where the mean rate between two raw clocks is known to 5 ppm or better, the rate at any instant is within 5 ppm of it."
	AssumeRaw       = "A raw clock never runs backwards while its node is up, and steps at most once between two bursts."
	AssumeVouched   = "The wall clocks of this node and of an aligned one are within the error that their kernels' time daemons vouch for."
	AssumeBarriers  = "What the job marked as a barrier is one: none of its ranks left before the last of them had entered."
	AssumeNothing   = "Nothing is known of this node's clock error; its rows are kept where they are for want of a better place."
)

// Spread is the smallest, the middle and the largest of a quantity.
type Spread struct {
	Min    int64 `yaml:"min" json:"min"`
	Median int64 `yaml:"median" json:"median"`
	Max    int64 `yaml:"max" json:"max"`
}

// Summary says how one node came to cluster time and how well.
type Summary struct {
	Node   string `yaml:"node" json:"node"`
	Method string `yaml:"method" json:"method"`
	// Via names the nodes on the way to the reference.
	Via []string `yaml:"via,omitempty" json:"via,omitempty"`
	// Fallback says where an unaligned node's rows are laid.
	Fallback string `yaml:"fallback,omitempty" json:"fallback,omitempty"`
	// OffsetNS is the reference's raw clock minus the node's in the middle of
	// the node's rows.
	OffsetNS *int64 `yaml:"offset_ns,omitempty" json:"offset_ns,omitempty"`
	// DriftPPM is how fast the node's raw clock runs against the
	// reference's, positive where it gains, averaged over the evidence, give
	// or take DriftBoundPPM. Class grades it.
	DriftPPM      *float64 `yaml:"drift_ppm,omitempty" json:"drift_ppm,omitempty"`
	DriftBoundPPM *float64 `yaml:"drift_bound_ppm,omitempty" json:"drift_bound_ppm,omitempty"`
	Class         string   `yaml:"drift_class,omitempty" json:"drift_class,omitempty"`
	// BoundNS is the bound at evenly spaced instants of the node's rows; the
	// largest takes the middles between bursts, too.
	BoundNS *Spread `yaml:"bound_ns,omitempty" json:"bound_ns,omitempty"`
	// WallErrorNS is the node's wall clock minus cluster time at the bracket
	// in the middle, give or take WallBoundNS. Programs on the node stamp
	// their logs with this error.
	WallErrorNS *int64 `yaml:"wall_error_ns,omitempty" json:"wall_error_ns,omitempty"`
	WallBoundNS *int64 `yaml:"wall_bound_ns,omitempty" json:"wall_bound_ns,omitempty"`
	// AnchorWidthNS is how long the one reading took that ties cluster time
	// to the reference's wall clock. It is the same for all nodes and part of
	// no bound.
	AnchorWidthNS int64 `yaml:"anchor_width_ns" json:"anchor_width_ns"`

	ExchangesUsed    int `yaml:"exchanges_used" json:"exchanges_used"`
	ExchangesDropped int `yaml:"exchanges_dropped" json:"exchanges_dropped"`
	// Suspect is set where a contradiction lies on the way to the reference.
	Suspect        bool            `yaml:"suspect,omitempty" json:"suspect,omitempty"`
	Contradictions []Contradiction `yaml:"contradictions,omitempty" json:"contradictions,omitempty"`
	Steps          []Step          `yaml:"steps,omitempty" json:"steps,omitempty"`
	Assumptions    []string        `yaml:"assumptions" json:"assumptions"`
}

// Grades of drift: below 1 ppm, up to 10 ppm, beyond, and not known well
// enough to say.
const (
	DriftExcellent   = "excellent"
	DriftGood        = "good"
	DriftInvestigate = "investigate"
	DriftUnknown     = "unknown"
)

// summaryProbes is at how many evenly spaced instants the bound is looked at.
const summaryProbes = 512

// Summary describes the model. It looks at the bound in a few hundred places,
// so it is for reports rather than for inner loops.
func (m *Model) Summary() Summary {
	s := Summary{
		Node: m.node, Method: m.method, Via: slices.Clone(m.via), Fallback: m.fallback,
		AnchorWidthNS: m.anchor.Width,
		ExchangesUsed: m.used, ExchangesDropped: m.dropped,
		Suspect: m.suspect, Contradictions: slices.Clone(m.found),
		Steps: m.Wall().Steps(), Assumptions: m.assumptions(),
	}
	if m.method == Unaligned {
		return s
	}
	first, last := m.span()
	middle := first + (last-first)/2
	if off, _, ok := m.Offset(middle); ok {
		s.OffsetNS = &off
	}
	s.BoundNS = m.spread(first, last)
	if m.method == ByExchange || m.method == ByNTP {
		s.Class = DriftUnknown
		if ppm, known, ok := m.drift(middle); ok {
			s.DriftPPM, s.DriftBoundPPM, s.Class = &ppm, &known, grade(ppm, known)
		}
	}
	if pins := m.Wall().pins; len(pins) > 0 {
		p := pins[len(pins)/2]
		if ct, bound, ok := m.At(NodeTime(p.mid())); ok {
			off, b := sub(p.real, int64(ct)), add(bound, p.half())
			s.WallErrorNS, s.WallBoundNS = &off, &b
		}
	}
	return s
}

// grade classes a drift that is known to the given uncertainty; one that could
// be of any class is unknown.
func grade(ppm, known float64) string {
	class := func(v float64) string {
		switch {
		case v < 1:
			return DriftExcellent
		case v <= 10:
			return DriftGood
		}
		return DriftInvestigate
	}
	v := math.Abs(ppm)
	if known > rateKnown*1e6 && class(max(v-known, 0)) != class(v+known) {
		return DriftUnknown
	}
	return class(v)
}

func (m *Model) assumptions() []string {
	switch m.method {
	case Unaligned:
		return []string{AssumeNothing}
	case Reference:
		return []string{AssumeReference, AssumeRaw}
	}
	as := []string{AssumeReference, AssumeStamps, AssumeDrift}
	switch m.method {
	case ByNTP:
		as = append(as, AssumeVouched)
	case ByBarriers:
		as = append(as, AssumeBarriers)
	}
	for _, b := range m.boots {
		if b.track != nil && slices.ContainsFunc(b.track.segs, func(s segment) bool { return s.limit < driftLimit }) {
			as = append(as, AssumeWander)
			break
		}
	}
	return append(as, AssumeRaw)
}

// span is the stretch that the summary is about: the node's rows, or what its
// exchanges cover.
func (m *Model) span() (first, last NodeTime) {
	first, last = m.first, m.last
	if plausible(int64(first)) && plausible(int64(last)) && first < last {
		return first, last
	}
	if ks := m.knots(); len(ks) > 0 {
		return NodeTime(ks[0].t), NodeTime(ks[len(ks)-1].t)
	}
	if plausible(int64(first)) {
		return first, first
	}
	return 0, 0
}

func (m *Model) spread(first, last NodeTime) *Spread {
	bounds := make([]int64, 0, summaryProbes)
	width := last - first
	for i := range NodeTime(summaryProbes) {
		t := first + width/(summaryProbes-1)*i
		if i == summaryProbes-1 {
			t = last
		}
		if _, b, ok := m.At(t); ok {
			bounds = append(bounds, b)
		}
	}
	if len(bounds) == 0 {
		return nil
	}
	slices.Sort(bounds)
	s := &Spread{Min: bounds[0], Median: bounds[len(bounds)/2], Max: bounds[len(bounds)-1]}
	if ks := m.knots(); len(ks) > 0 {
		for i := 1; i < len(ks); i++ {
			t := NodeTime(ks[i-1].t + (ks[i].t-ks[i-1].t)/2)
			if t < first || t > last {
				continue
			}
			if _, b, ok := m.At(t); ok {
				s.Max = max(s.Max, b)
			}
		}
	}
	return s
}

// knots returns those of the model's last boot that has some.
func (m *Model) knots() []knot {
	for i := len(m.boots) - 1; i >= 0; i-- {
		if t := m.boots[i].track; t != nil {
			return t.knots
		}
	}
	return nil
}
