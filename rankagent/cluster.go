package rankagent

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/probe"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

const (
	// headPatience is how long a node looks for its head before it says
	// that it goes on alone. It does not stop looking.
	headPatience = 30 * time.Second
	// lookEvery is how often it looks: a stat of one file.
	lookEvery, lookEveryLater = 100 * time.Millisecond, 5 * time.Second
	// endBurstPatience bounds the last clock exchanges: a killed step's
	// agent has little time.
	endBurstPatience = 60 * time.Millisecond
)

// cluster is the agent's tie to the other nodes of the run: it follows the head
// or is the head, and keeps the node's clock tied to the reference.
type cluster struct {
	a *agent
	// stopped gets the reason when the head ends the run.
	stopped chan string

	anchorOffset atomic.Int64               // reference minus reference's raw, once known
	loop         atomic.Pointer[probe.Loop] // to the reference's clock
	fallback     int64                      // this node's wall clock minus its raw clock
	leading      atomic.Bool
	lost         atomic.Bool

	mu        sync.Mutex
	run       rundir.Run
	head      *control.Head
	responder *probe.Responder
	conn      *control.Conn
	clocks    clocks
}

func newCluster(a *agent) *cluster {
	c := &cluster{a: a, stopped: make(chan string, 1), run: a.cfg.Run}
	c.fallback = a.meta.Begin.UnixNano() - int64(a.meta.BeginRaw)
	return c
}

// offset is reference time minus this node's raw clock, as well as it is known
// now. It serves to tick together and to cut tiles; the timeline does not rest
// on it.
func (c *cluster) offset() int64 {
	if c.leading.Load() {
		return c.anchorOffset.Load()
	}
	if l := c.loop.Load(); l != nil {
		if ns, _, ok := l.Offset(); ok {
			return ns + c.anchorOffset.Load()
		}
	}
	return c.fallback
}

// start begins to look for the head, unless this node may turn out to be it.
func (c *cluster) start(ctx context.Context) {
	switch {
	case c.a.cfg.Part != "":
		// The node's first sampler ties the clock that both share.
	case c.a.cfg.Head != nil && len(c.a.cfg.Head.Addrs) == 0:
		go c.watchRun(ctx)
	case c.a.cfg.Head != nil:
		go c.follow(ctx, func() (control.Endpoint, error) { return *c.a.cfg.Head, nil }) //nolint:unparam // one of two ways to find it
	case !c.a.cfg.SingleNode:
		go c.follow(ctx, func() (control.Endpoint, error) { return control.Published(c.a.cfg.Dir) })
	}
}

// watchRun waits for the end of a run whose head could open no port: it writes
// the end into run.yaml.
func (c *cluster) watchRun(ctx context.Context) {
	const every = 500 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if r, err := rundir.ReadRun(c.a.cfg.Dir); err == nil && r.End != nil {
			c.stopped <- "job ended"
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// follow ties this node to the head and does so again whenever the tie breaks.
func (c *cluster) follow(ctx context.Context, find func() (control.Endpoint, error)) {
	begin := c.a.clock.Now()
	said := false
	for ctx.Err() == nil && !c.leading.Load() {
		e, err := find()
		if err == nil {
			if err = c.followOnce(ctx, e); err == nil {
				begin = c.a.clock.Now()
			}
		}
		if ctx.Err() != nil || c.leading.Load() {
			return
		}
		wait := lookEvery
		if late := c.a.clock.Now()-begin > clock.NodeTime(headPatience); late {
			wait = lookEveryLater
			if !said {
				said = true
				c.a.c.event(c.a.clock.Now(), "no_head", -1, -1, map[string]string{"error": errorText(err)})
				c.a.say("node " + c.a.node + " found no head: its data are kept, their times are not aligned")
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
	}
}

func errorText(err error) string {
	switch {
	case err == nil:
		return "the connection was closed"
	case errors.Is(err, fs.ErrNotExist):
		return "no head has published its address"
	}
	return err.Error()
}

// followOnce stays with the head until the connection breaks. It returns nil
// if the head was there at all.
func (c *cluster) followOnce(ctx context.Context, e control.Endpoint) error {
	conn, err := control.Dial(ctx, e)
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := control.Hello{Node: c.a.node, Host: c.a.Host, Machine: c.a.Machine, PID: c.a.pid, Version: c.a.Version}
	hello.ClockPort, hello.ClockAddrs = c.answer(e)
	if err := conn.Send(control.Message{Hello: &hello}); err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck,forbidigo // a socket's deadline
	m, err := conn.Receive()
	if err != nil {
		return err
	}
	if m.Welcome == nil {
		return errors.New("the head did not answer as a head does")
	}
	conn.SetDeadline(time.Time{}) //nolint:errcheck // a failed deadline shows in the read
	w := *m.Welcome
	c.exchange(ctx, e, w, w.Clock)
	c.a.c.event(c.a.clock.Now(), "head_found", -1, -1, map[string]string{"head": m.Welcome.Reference.Node, "address": conn.RemoteAddr().String()})
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	c.lost.Store(false)
	go func() {
		select {
		case <-c.a.ready:
			conn.Send(control.Message{Ready: &control.Ready{}}) //nolint:errcheck // a broken connection shows below
		case <-ctx.Done():
		}
	}()
	for {
		m, err := conn.Receive()
		if err != nil {
			c.lost.Store(true)
			c.mu.Lock()
			c.conn = nil
			c.mu.Unlock()
			if ctx.Err() == nil {
				c.a.c.event(c.a.clock.Now(), "head_lost", -1, -1, nil)
			}
			return nil
		}
		if m.Clock != nil {
			c.exchange(ctx, e, w, *m.Clock)
		}
		if m.Stop != nil {
			select {
			case c.stopped <- m.Stop.Reason:
			default:
			}
			<-c.a.ended // leave uses the connection
			return nil
		}
	}
}

func (c *cluster) recordBurst(xs []clock.Exchange, before, after clock.Bracket) {
	b := table.NewBatch(table.ClockExchange, len(xs))
	for _, x := range xs {
		rows.AppendExchange(b, x)
	}
	c.a.c.add(b, noTick)
	if len(xs) > 0 {
		c.a.c.setPresent(table.ClockExchange, "", xs[0].Peer)
	}
	for _, k := range []clock.Bracket{before, after} {
		if k.Raw1 != 0 {
			c.recordBracket(k)
		}
	}
}

func (c *cluster) recordBracket(k clock.Bracket) {
	b := table.NewBatch(table.ClockBracket, 1)
	rows.AppendBracket(b, k)
	c.a.c.add(b, noTick)
}

// lead makes this node the head and its clock the reference. Failing that, each
// node is on its own, which is said.
func (c *cluster) lead() {
	if c.a.attached() || c.a.cfg.Part != "" || !c.leading.CompareAndSwap(false, true) {
		return
	}
	if err := c.becomeHead(); err != nil {
		c.a.c.event(c.a.clock.Now(), "head_error", -1, -1, map[string]string{"error": err.Error()})
		c.a.say("the nodes' clocks are not tied together: " + err.Error())
	}
}

func (c *cluster) becomeHead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	bracket, err := c.a.clock.Bracket()
	if err != nil {
		return err
	}
	ref := &rundir.Reference{Node: c.a.node, Anchor: clock.AnchorOf(bracket)}
	// An agent that takes over from a dead one keeps its reference: the
	// other nodes' exchanges are with that clock, which is this one.
	if old, err := rundir.ReadRun(c.a.cfg.Dir); err == nil && old.Reference != nil && old.Reference.Node == c.a.node {
		ref = old.Reference
		c.run.Begin = old.Begin
	}
	c.anchorOffset.Store(ref.Anchor.Realtime - int64(ref.Anchor.Raw))
	c.run.Reference = ref
	if len(c.run.Nodes) == 0 && c.a.cfg.SingleNode {
		c.run.Nodes = []string{c.a.node}
	}
	if err := rundir.WriteRun(c.a.cfg.Dir, &c.run); err != nil {
		return err
	}
	if c.a.cfg.SingleNode {
		return nil
	}
	key := control.NewKey()
	c.responder, err = probe.Listen(probe.ResponderConfig{
		Key: key[:], Run: c.run.ID, Node: c.a.node, Source: c.a.clock,
		Ports: [2]int{int(c.a.cfg.Ports.Lo), int(c.a.cfg.Ports.Hi)}, PerSecond: control.AnswersPerSecond,
	})
	if err != nil {
		return err
	}
	c.head, err = control.NewHead(c.a.cfg.Ports, key, c.run.ID, *ref, c.responder.Port())
	if err != nil {
		return err
	}
	e, err := c.head.Endpoint()
	if err != nil {
		return err
	}
	return control.Publish(c.a.cfg.Dir, e)
}

// size is how many nodes the run has had as far as this node, being the head,
// knows; 0 where it is not the head.
func (c *cluster) size() int {
	if !c.leading.Load() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == nil {
		return 1
	}
	return 1 + len(c.head.Agents())
}

// unheard lists the nodes of the run that this node, being the head, has heard
// nothing of.
func (c *cluster) unheard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == nil {
		return nil
	}
	heard := map[string]bool{c.a.node: true}
	for _, a := range c.head.Agents() {
		heard[a.Hello.Node] = true
	}
	var missing []string
	for _, n := range c.run.Nodes {
		if !heard[n] {
			missing = append(missing, n)
		}
	}
	return missing
}

// headLost reports whether a head that was there is gone.
func (c *cluster) headLost() bool { return c.lost.Load() }

// leave says goodbye: to the head, or, as the head, by writing how the run
// ended. All else is on disk by now.
func (c *cluster) leave(ranks []rundir.Rank, note string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Send(control.Message{Bye: &control.Bye{Ranks: ranks, Note: note}}) //nolint:errcheck // the head may be gone
	}
	c.clocks.close()
	if !c.leading.Load() || c.run.Reference == nil {
		return
	}
	if c.head != nil {
		known := []string{c.a.node}
		for _, a := range c.head.Agents() {
			known = append(known, a.Hello.Node)
			if a.Bye != nil {
				ranks = append(ranks, a.Bye.Ranks...)
			}
		}
		if len(c.run.Nodes) == 0 { // the environment did not say
			c.run.Nodes = known
		}
		control.Unpublish(c.a.cfg.Dir) //nolint:errcheck // a leftover key opens nothing once the head is gone
		c.head.Close()
		c.responder.Close()
	}
	end := c.a.realtime()
	c.run.End = &end
	c.run.Ranks = ranks
	if c.run.Scheduler.Position == "alone" && len(ranks) == 1 {
		c.run.Exit, c.run.Ranks = ranks[0].Exit, nil
	}
	rundir.WriteRun(c.a.cfg.Dir, &c.run) //nolint:errcheck // merge sees the missing end
}
