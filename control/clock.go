package control

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	// AnswersPerSecond is how many clock exchanges a second one node answers:
	// what it does beside its job without being noticed.
	AnswersPerSecond = 200
	// FanOut is how many nodes ask one parent. Up to as many the nodes are a
	// star around the head, beyond that a tree, in order of their arrival.
	FanOut = 32
	// RandomPeers is how many other nodes each asks beside its parent, so
	// that clocks are compared around loops.
	RandomPeers = 2
	// pacedAnswers and burstSize give each child of a parent its share of half
	// a percent of a core, at the 100 us that an answer from sleep costs; the
	// rest is left to peers and to those who come late.
	pacedAnswers, burstSize = 48, 8
	// fanOutVar is another FanOut for the head, so that a few nodes can be a
	// tree in a test.
	fanOutVar = "GSWARM_X_FANOUT"
)

// ClockPeer is a node that answers clock exchanges.
type ClockPeer struct {
	Node  string       `json:"node"`
	Addrs []netip.Addr `json:"addrs"`
	Port  int          `json:"port"`
}

// Clock tells an agent with whom it exchanges stamps. The head sends it again
// whenever that changes.
type Clock struct {
	// Parent is the node on the way to the reference; nil for the head.
	Parent *ClockPeer  `json:"parent,omitempty"`
	Peers  []ClockPeer `json:"peers,omitempty"`
	// Pace is the least time between two bursts with the parent.
	Pace time.Duration `json:"pace,omitempty"`
}

// same says whether two assignments are alike.
func (c Clock) same(o Clock) bool {
	name := func(p *ClockPeer) string {
		if p == nil {
			return ""
		}
		return p.Node
	}
	return name(c.Parent) == name(o.Parent) && c.Pace == o.Pace &&
		slices.EqualFunc(c.Peers, o.Peers, func(a, b ClockPeer) bool { return a.Node == b.Node && a.Port == b.Port })
}

// clockPlan is who asks whom. It is not safe for concurrent use.
type clockPlan struct {
	fanOut int
	order  []string
	known  map[string]*clockNode
}

type clockNode struct {
	at    ClockPeer
	gone  bool
	peers []string
	last  Clock // as it was told
}

func newClockPlan() *clockPlan {
	p := &clockPlan{fanOut: FanOut, known: map[string]*clockNode{}}
	if n, err := strconv.Atoi(os.Getenv(fanOutVar)); err == nil && n > 0 {
		p.fanOut = n
	}
	return p
}

// join takes a node in, or back.
func (p *clockPlan) join(at ClockPeer) {
	n := p.known[at.Node]
	if n == nil {
		n = &clockNode{}
		p.known[at.Node] = n
		p.order = append(p.order, at.Node)
	}
	n.at, n.gone = at, false
	n.last = Clock{}
}

func (p *clockPlan) leave(node string) {
	if n := p.known[node]; n != nil {
		n.gone = true
	}
}

func (n *clockNode) answers() bool { return !n.gone && n.at.Port != 0 }

// parent returns the index of the i-th node's parent, -1 for the head: the
// first that answers of those whose turn it is.
func (p *clockPlan) parent(i int) int {
	if i < p.fanOut {
		return -1
	}
	if j := i/p.fanOut - 1; p.known[p.order[j]].answers() {
		return j
	}
	return -1
}

// changes returns what nodes have to be told anew.
func (p *clockPlan) changes() map[string]Clock {
	children := map[int]int{}
	for i, name := range p.order {
		if !p.known[name].gone {
			children[p.parent(i)]++
		}
	}
	out := map[string]Clock{}
	for i, name := range p.order {
		n := p.known[name]
		if n.gone {
			continue
		}
		up := p.parent(i)
		c := Clock{Pace: pace(children[up])}
		if up >= 0 {
			at := p.known[p.order[up]].at
			c.Parent = &at
		}
		p.choose(name, n)
		for _, peer := range n.peers {
			if c.Parent == nil || peer != c.Parent.Node {
				c.Peers = append(c.Peers, p.known[peer].at)
			}
		}
		if !c.same(n.last) || n.last.Pace == 0 {
			out[name] = c
			n.last = c
		}
	}
	return out
}

// choose replaces peers that are gone and fills up what is missing.
func (p *clockPlan) choose(name string, n *clockNode) {
	n.peers = slices.DeleteFunc(n.peers, func(o string) bool { return !p.known[o].answers() })
	for len(n.peers) < RandomPeers {
		// The first from a random place on that will do, so that what there
		// is is found.
		from := rand.IntN(len(p.order)) //nolint:gosec // a choice, no secret
		found := false
		for i := range p.order {
			o := p.order[(from+i)%len(p.order)]
			// One link between two nodes is enough, whoever asks.
			if found = o != name && p.known[o].answers() && !slices.Contains(n.peers, o) && !slices.Contains(p.known[o].peers, name); found {
				n.peers = append(n.peers, o)
				break
			}
		}
		if !found {
			return // few nodes may not have enough
		}
	}
}

// pace spreads the bursts of a parent's children over what it answers. It grows
// in powers of two, so that not every newcomer changes it for all.
func pace(children int) time.Duration {
	if children < 1 {
		children = 1
	}
	room := 1 << bits.Len(uint(children-1))
	return time.Duration(room*burstSize) * time.Second / pacedAnswers
}
