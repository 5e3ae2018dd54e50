package rankagent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/probe"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// Five nodes whose clocks are far apart, a head, and all that goes between
// them: each asks the head and its peers, and the fit finds every clock.
func TestNodesExchangeStamps(t *testing.T) {
	const nodes = 5
	source := func(i int) clock.Skewed {
		return clock.Skewed{Source: clock.System{}, OffsetNS: int64(i) * 1e15, PPM: float64(20 * (i - 2)), WallOffsetNS: int64(i) * 1e12, WallPPM: float64(-3 * i)}
	}
	key := control.NewKey()
	head := source(nodes)
	bracket, err := head.Bracket()
	if err != nil {
		t.Fatal(err)
	}
	ref := rundir.Reference{Node: control.HeadName, Anchor: clock.AnchorOf(bracket)}
	r, err := probe.Listen(probe.ResponderConfig{Key: key[:], Run: "run", Node: control.HeadName, Source: head})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h, err := control.NewHead(control.Ports{}, key, "run", ref, r.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	e, err := h.Endpoint()
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clusters := make([]*cluster, nodes)
	for i := range clusters {
		a := &agent{clock: source(i), c: newCollector(source(i)), node: fmt.Sprintf("n%d", i), ready: make(chan struct{}), ended: make(chan struct{})}
		clusters[i] = newCluster(a)
		go clusters[i].follow(ctx, func() (control.Endpoint, error) { return e, nil })
	}
	peered := func(c *cluster) int {
		c.clocks.mu.Lock()
		defer c.clocks.mu.Unlock()
		n := 0
		for _, t := range c.clocks.ties {
			if _, _, ok := t.loop.Offset(); ok && t.role == asPeer {
				n++
			}
		}
		return n
	}
	deadline := time.Now().Add(time.Minute)
	for done := 0; done < nodes; {
		done = 0
		for _, c := range clusters {
			if l := c.loop.Load(); l != nil && peered(c) > 0 {
				if _, _, ok := l.Offset(); ok {
					done++
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d nodes exchange stamps with the head and a peer", done, nodes)
		}
		time.Sleep(20 * time.Millisecond)
	}
	in := clock.Input{Reference: ref.Node, Anchor: ref.Anchor}
	at := clock.System{}.Now()
	for i, c := range clusters {
		want := int64(head.Skew(at)-source(i).Skew(at)) + ref.Anchor.Realtime - int64(ref.Anchor.Raw)
		if d := c.offset() - want; d > 1e6 || d < -1e6 {
			t.Errorf("node %d believes to be %d ns off", i, d)
		}
		c.endBurst()
		ev := clock.NodeEvidence{Node: c.a.node}
		for _, b := range c.a.c.take() {
			switch b.Table {
			case table.ClockExchange:
				ev.Exchanges = rows.ExchangesFrom(b)
			case table.ClockBracket:
				ev.Brackets = rows.BracketsFrom(b)
			}
		}
		in.Nodes = append(in.Nodes, ev)
	}
	res := clock.Fit(in)
	if found := res.Contradictions(); len(found) > 0 {
		t.Errorf("contradictions: %v", found)
	}
	for i, c := range clusters {
		ct, bound, ok := res.Model(c.a.node).At(source(i).Skew(at))
		want := ref.Anchor.Reference(head.Skew(at))
		if d := int64(ct - want); !ok || d > bound+4 || -d > bound+4 {
			t.Errorf("node %d: off by %d ns, bound %d, %v", i, d, bound, ok)
		}
		c.clocks.close()
	}
	cancel()
	for _, c := range clusters {
		close(c.a.ended)
	}
}
