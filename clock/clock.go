// Package clock holds what gswarm knows of time: the clock types, the readings
// that tie clocks together, and the model that carries a node's time stamps to
// the cluster's timeline with a bound on the error.
//
// It is pure: it opens no files and no sockets, and only System reads a clock.
package clock

// NodeTime is nanoseconds on one node's CLOCK_MONOTONIC_RAW: never stepped,
// never slewed, of an arbitrary origin, and meaningless on any other node.
type NodeTime int64

// ClusterTime is nanoseconds since the Unix epoch on the run's reference
// clock: the reference node's raw clock, anchored once to its wall clock.
type ClusterTime int64

// Bracket is the node's clocks read between two reads of the raw clock. Every
// other clock was read at some instant within [Raw0, Raw1].
type Bracket struct {
	Raw0, Raw1 NodeTime
	// Realtime, Monotonic and Boottime are CLOCK_REALTIME, CLOCK_MONOTONIC
	// and CLOCK_BOOTTIME in nanoseconds.
	Realtime, Monotonic, Boottime int64
	// Clocksource is the device by which the kernel counts time; empty where
	// that is not known.
	Clocksource string
	// Adj is what adjtimex(2) says; nil where it could not be read.
	Adj *Adjtimex
}

// Adjtimex is the kernel's own account of its synchronisation.
type Adjtimex struct {
	// Status holds the STA_* bits.
	Status int64
	// MaxError and EstError are in nanoseconds.
	MaxError, EstError int64
	// Freq is the frequency correction in ppm scaled by 65536.
	Freq int64
	// TAI is TAI-UTC in seconds as the kernel knows it.
	TAI int32
}

// Exchange is one question and answer between a node and its peer. T1 and T4
// are the node's own clock before sending and after receiving, T2 and T3 the
// peer's clock after receiving and before answering. Since no send stamp is
// late and no receive stamp early, the offset o = peer - node obeys
// T3-T4 <= o <= T2-T1, whatever the paths were like.
type Exchange struct {
	Peer   string
	Burst  int64
	Seq    int32
	T1     NodeTime
	T2, T3 NodeTime
	T4     NodeTime
	// Kernel says that the stamps are the kernel's where it gave one, carried
	// to the raw clock on its own node and moved outwards by what that may be
	// wrong by. The same exchange with the program's own stamps stands beside.
	Kernel bool
}

// Source reads the node's clocks. There is one real implementation, System;
// tests inject skew through it.
type Source interface {
	Now() NodeTime
	Bracket() (Bracket, error)
}

// Glance reads a source's raw and wall clock together once: a bracket for where
// many are needed and a wide one now and then does no harm. What it does not
// read is zero.
func Glance(s Source) (Bracket, error) {
	if g, ok := s.(interface{ Glance() (Bracket, error) }); ok {
		return g.Glance()
	}
	return s.Bracket()
}

// Anchor ties the reference node's raw clock to UTC once: at Raw its wall
// clock showed Realtime, read within Width nanoseconds.
type Anchor struct {
	Raw      NodeTime `yaml:"raw_ns" json:"raw_ns"`
	Realtime int64    `yaml:"realtime_ns" json:"realtime_ns"`
	Width    int64    `yaml:"width_ns" json:"width_ns"`
}

// AnchorOf makes an anchor of one bracket: the wall clock at its middle, known
// to within its width.
func AnchorOf(b Bracket) Anchor {
	return Anchor{Raw: b.Raw0 + (b.Raw1-b.Raw0)/2, Realtime: b.Realtime, Width: int64(b.Raw1 - b.Raw0)}
}

// Reference returns the cluster time of an instant on the reference node's own
// clock.
func (a Anchor) Reference(t NodeTime) ClusterTime {
	return ClusterTime(a.Realtime + int64(t-a.Raw))
}
