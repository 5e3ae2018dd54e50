package rankagent

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/gswarm/gswarm/clock/probe"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/table"
)

const (
	// peerEvery is the time between bursts with a peer that is not on the way
	// to the reference, peerBurst their size.
	peerEvery = 10 * time.Second
	peerBurst = 4
	// homeEvery is the time between bursts by which a node whose parent is
	// not the head keeps its ticks in step with the others'.
	homeEvery = 60 * time.Second
)

// clocks is the node's exchanges: those it answers and those it asks for.
type clocks struct {
	mu     sync.Mutex
	served control.Endpoint // whose key the responder has
	port   *probe.Responder
	ties   map[string]*tie
	ended  bool
}

// tie is the exchanges with one other node.
type tie struct {
	role role
	key  control.Key
	port int
	loop *probe.Loop
	end  context.CancelFunc
	done chan struct{}
}

// role is what another node is asked for.
type role int

const (
	asParent role = iota // the way to the reference
	asHome               // the reference, where that is not the parent
	asPeer               // comparison
)

// answer opens the port on which this node answers other nodes of the run. A
// node that cannot is asked by nobody.
func (c *cluster) answer(e control.Endpoint) (port int, addrs []netip.Addr) {
	k := &c.clocks
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.port != nil && (k.served.RunID != e.RunID || k.served.Key != e.Key) {
		k.port.Close()
		k.port = nil
	}
	if k.port == nil {
		r, err := probe.Listen(probe.ResponderConfig{
			Key: e.Key[:], Run: e.RunID, Node: c.a.node, Source: c.a.clock,
			Ports: [2]int{int(c.a.cfg.Ports.Lo), int(c.a.cfg.Ports.Hi)}, PerSecond: control.AnswersPerSecond,
		})
		if err != nil {
			c.a.c.event(c.a.clock.Now(), "clock_error", -1, -1, map[string]string{"error": err.Error()})
			return 0, nil
		}
		k.port, k.served = r, e
	}
	addrs, err := control.LocalAddrs()
	if err != nil {
		return 0, nil
	}
	return k.port.Port(), addrs
}

// exchange asks those whom the head named, and nobody else any more.
func (c *cluster) exchange(ctx context.Context, e control.Endpoint, w control.Welcome, plan control.Clock) {
	c.anchorOffset.Store(w.Reference.Anchor.Realtime - int64(w.Reference.Anchor.Raw))
	head := control.ClockPeer{Node: w.Reference.Node, Addrs: e.Addrs, Port: w.ClockPort}
	want := map[string]role{}
	at := map[string]control.ClockPeer{}
	name := func(p control.ClockPeer, r role) {
		if _, twice := want[p.Node]; !twice && p.Node != c.a.node {
			want[p.Node], at[p.Node] = r, p
		}
	}
	if plan.Parent != nil {
		name(*plan.Parent, asParent)
		name(head, asHome)
	} else {
		name(head, asParent)
	}
	for _, p := range plan.Peers {
		name(p, asPeer)
	}
	k := &c.clocks
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	if k.ties == nil {
		k.ties = map[string]*tie{}
	}
	for n, t := range k.ties {
		// Whoever started anew answers elsewhere, a new head by another key.
		if r, keep := want[n]; !keep || r != t.role || t.key != e.Key || t.port != at[n].Port {
			t.end()
			delete(k.ties, n)
		}
	}
	for n, r := range want {
		t := k.ties[n]
		if t == nil {
			var err error
			if t, err = c.tie(ctx, e, at[n], r, plan.Pace); err != nil {
				c.a.c.setAbsent(table.ClockExchange, "", n, SourceError, err.Error())
				continue
			}
			k.ties[n] = t
		}
		if r == asParent {
			t.loop.SetPace(plan.Pace)
		}
		if n == head.Node {
			c.loop.Store(t.loop)
		}
	}
}

// tie begins to exchange stamps with a node.
func (c *cluster) tie(ctx context.Context, e control.Endpoint, at control.ClockPeer, r role, pace time.Duration) (*tie, error) {
	addrs := make([]netip.AddrPort, 0, len(at.Addrs))
	for _, a := range at.Addrs {
		addrs = append(addrs, netip.AddrPortFrom(a, uint16(at.Port)))
	}
	cfg := probe.Config{
		Addrs: addrs, Key: e.Key[:], Run: e.RunID, Node: c.a.node, Peer: at.Node, Source: c.a.clock,
	}
	loop := probe.LoopConfig{
		OnBurst: c.recordBurst, EndTimeout: endBurstPatience,
		OnError: func(err error) {
			c.a.c.setAbsent(table.ClockExchange, "", at.Node, SourceError, err.Error())
		},
	}
	switch r {
	case asHome:
		cfg.Burst, loop.StartBursts, loop.Interval, loop.MaxInterval = peerBurst, 2, homeEvery, homeEvery
		loop.StartGap = peerEvery
	case asPeer:
		cfg.Burst, loop.StartBursts, loop.Interval, loop.MaxInterval = peerBurst, 1, peerEvery, peerEvery
	}
	p, err := probe.New(cfg)
	if err != nil {
		return nil, err
	}
	t := &tie{role: r, key: e.Key, port: at.Port, loop: probe.NewLoop(p, loop), done: make(chan struct{})}
	t.loop.SetPace(pace)
	ctx, t.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(t.done)
		defer p.Close()
		t.loop.Run(ctx)
	}()
	return t, nil
}

// endBurst ends the exchanges, each with one last burst.
func (c *cluster) endBurst() {
	k := &c.clocks
	k.mu.Lock()
	k.ended = true
	ties := k.ties
	k.ties = nil
	k.mu.Unlock()
	for _, t := range ties {
		t.end()
	}
	patience := time.NewTimer(2 * endBurstPatience)
	defer patience.Stop()
	for _, t := range ties {
		select {
		case <-t.done:
		case <-patience.C:
			return
		}
	}
}

// close stops answering.
func (k *clocks) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.port != nil {
		k.port.Close()
		k.port = nil
	}
}
