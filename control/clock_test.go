package control

import (
	"fmt"
	"testing"
	"time"
)

func joined(n int) *clockPlan {
	p := newClockPlan()
	for i := range n {
		p.join(ClockPeer{Node: fmt.Sprintf("n%04d", i), Port: 1000 + i})
	}
	return p
}

// No parent has more children than it can answer, nobody is farther away than
// need be, and everybody has peers.
func TestClockPlan(t *testing.T) {
	for _, c := range []struct{ nodes, depth int }{{1, 1}, {4, 1}, {32, 1}, {33, 2}, {1056, 2}, {1057, 3}} {
		p := joined(c.nodes)
		all := p.changes()
		if len(all) != c.nodes {
			t.Fatalf("%d of %d nodes are told", len(all), c.nodes)
		}
		children := map[string]int{}
		for name, a := range all {
			depth := 1
			for up := a.Parent; up != nil; up = all[up.Node].Parent {
				if depth++; up.Node == name || depth > c.depth {
					t.Fatalf("%d nodes: %s is %d away from the head", c.nodes, name, depth)
				}
			}
			to := "head"
			if a.Parent != nil {
				to = a.Parent.Node
			}
			children[to]++
			if len(a.Peers) > RandomPeers || c.nodes > 40 && len(a.Peers) == 0 {
				t.Errorf("%s has %d peers", name, len(a.Peers))
			}
			for _, peer := range a.Peers {
				if peer.Node == name || a.Parent != nil && peer.Node == a.Parent.Node {
					t.Errorf("%s has itself or its parent as peer", name)
				}
			}
		}
		for to, n := range children {
			if n > FanOut {
				t.Errorf("%s has %d children", to, n)
			}
			if rate := float64(n*burstSize) / pace(n).Seconds(); rate > AnswersPerSecond {
				t.Errorf("%d children ask %.0f times a second", n, rate)
			}
		}
		if again := p.changes(); len(again) != 0 {
			t.Errorf("%d nodes are told again what they know", len(again))
		}
	}
}

func TestClockPlanLoses(t *testing.T) {
	p := joined(70)
	p.changes()
	p.leave("n0000")
	for name, a := range p.changes() {
		if name == "n0000" {
			t.Error("the lost node is told")
		}
		if a.Parent != nil && a.Parent.Node == "n0000" {
			t.Errorf("%s keeps a lost parent", name)
		}
		for _, peer := range a.Peers {
			if peer.Node == "n0000" {
				t.Errorf("%s keeps a lost peer", name)
			}
		}
	}
	p.join(ClockPeer{Node: "n0000", Port: 9})
	if a := p.changes()["n0000"]; a.Pace == 0 {
		t.Error("a node that comes back is told nothing")
	}
	// Nodes that cannot answer are nobody's parent or peer.
	q := newClockPlan()
	for i := range 40 {
		q.join(ClockPeer{Node: fmt.Sprint(i)})
	}
	for name, a := range q.changes() {
		if a.Parent != nil || len(a.Peers) > 0 {
			t.Errorf("%s is to ask one that cannot answer", name)
		}
	}
}

func TestPace(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second / 6, 1: time.Second / 6, 4: time.Second * 2 / 3, 5: time.Second * 4 / 3, 32: time.Second * 16 / 3} {
		if got := pace(n); got != want {
			t.Errorf("pace(%d) = %v, want %v", n, got, want)
		}
	}
}
