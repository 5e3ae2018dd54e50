package control

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/gswarm/gswarm/rundir"
)

// HeadName is the name of the reference clock where it is that of a head in
// front, which samples nothing itself. No node has this name: CleanName leaves
// no parentheses.
const HeadName = "(head)"

// Head is what agents of other nodes connect to. It lives in wrap where wrap
// stands in front of the launcher, else in the agent of rank 0's node.
type Head struct {
	srv       *Server
	reference rundir.Reference
	clockPort int

	mu     sync.Mutex
	agents map[string]*Agent
	clocks *clockPlan
	news   chan struct{}

	hurry  chan struct{}
	hasten sync.Once
}

// Agent is what the head knows of one agent.
type Agent struct {
	Hello Hello
	Ready *Ready
	Bye   *Bye
	// Lost says that the connection broke before Bye.
	Lost bool
	conn *Conn
}

// NewHead opens the head's port and starts to answer. The clock responder is
// the caller's; clockPort says where it listens.
func NewHead(ports Ports, key Key, runID string, reference rundir.Reference, clockPort int) (*Head, error) {
	srv, err := Listen(ports, key, runID)
	if err != nil {
		return nil, err
	}
	h := &Head{srv: srv, reference: reference, clockPort: clockPort, agents: map[string]*Agent{}, clocks: newClockPlan(), news: make(chan struct{}, 1), hurry: make(chan struct{})}
	go srv.Serve(h.serve)
	return h, nil
}

// Endpoint returns where the head can be reached.
func (h *Head) Endpoint() (Endpoint, error) { return h.srv.Endpoint() }

func (h *Head) serve(c *Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(handshakeTimeout)) //nolint:errcheck // a failed deadline shows in the read
	m, err := c.Receive()
	if err != nil || m.Hello == nil {
		return
	}
	c.SetDeadline(time.Time{}) //nolint:errcheck // likewise
	// Known before it is welcomed: who was welcomed and comes again is later
	// here too. Welcomed under the lock: Stop comes after.
	a := &Agent{Hello: *m.Hello, conn: c}
	var changes map[string]Clock
	h.update(func() {
		h.agents[a.Hello.Node] = a
		h.clocks.join(ClockPeer{Node: a.Hello.Node, Addrs: a.Hello.ClockAddrs, Port: a.Hello.ClockPort})
		changes = h.clocks.changes()
		welcome := Welcome{Reference: h.reference, ClockPort: h.clockPort, Clock: changes[a.Hello.Node]}
		delete(changes, a.Hello.Node)
		err = c.Send(Message{Welcome: &welcome})
		a.Lost = err != nil
	})
	if err != nil {
		h.drop(a)
		return
	}
	h.tell(changes)
	for {
		m, err := c.Receive()
		if err != nil {
			h.update(func() { a.Lost = a.Bye == nil })
			h.drop(a)
			return
		}
		h.update(func() {
			if m.Ready != nil {
				a.Ready = m.Ready
			}
			if m.Bye != nil {
				a.Bye = m.Bye
			}
		})
	}
}

// drop takes an agent's node out of the clock exchanges, unless another agent
// of the node has taken over.
func (h *Head) drop(a *Agent) {
	node := a.Hello.Node
	h.mu.Lock()
	if h.agents[node] != a {
		h.mu.Unlock()
		return
	}
	h.clocks.leave(node)
	changes := h.clocks.changes()
	h.mu.Unlock()
	h.tell(changes)
}

// tell sends agents with whom to exchange stamps from now on.
func (h *Head) tell(changes map[string]Clock) {
	for node, c := range changes {
		h.mu.Lock()
		a := h.agents[node]
		h.mu.Unlock()
		if a != nil {
			a.conn.Send(Message{Clock: &c}) //nolint:errcheck // a lost agent shows as Lost
		}
	}
}

func (h *Head) update(change func()) {
	h.mu.Lock()
	change()
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// Agents returns what is known of each agent that ever said hello, by node.
func (h *Head) Agents() []Agent {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]Agent, 0, len(h.agents))
	for _, a := range h.agents {
		list = append(list, *a)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Hello.Node < list[j].Hello.Node })
	return list
}

// WaitReady waits until n agents are ready or gone, or the time is up.
func (h *Head) WaitReady(n int, patience time.Duration) {
	h.await(patience, func() bool {
		settled := 0
		for _, a := range h.agents {
			if a.Ready != nil || a.Lost {
				settled++
			}
		}
		return settled >= n
	})
}

// Stop tells every agent that the run is over and waits until each has said
// goodbye, is gone, or the time is up.
func (h *Head) Stop(reason string, patience time.Duration) {
	for _, a := range h.Agents() {
		a.conn.Send(Message{Stop: &Stop{Reason: reason}}) //nolint:errcheck // a lost agent shows as Lost
	}
	h.await(patience, func() bool {
		for _, a := range h.agents {
			if a.Bye == nil && !a.Lost {
				return false
			}
		}
		return true
	})
}

// await waits until done, which is called with the lock held.
func (h *Head) await(patience time.Duration, done func() bool) {
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		h.mu.Lock()
		ok := done()
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-h.news:
		case <-t.C:
			return
		case <-h.hurry:
			return
		}
	}
}

// Hurry ends WaitReady and Stop, now and later, without their waiting.
func (h *Head) Hurry() { h.hasten.Do(func() { close(h.hurry) }) }

// Close closes the port and every connection.
func (h *Head) Close() error {
	err := h.srv.Close()
	for _, a := range h.Agents() {
		a.conn.Close()
	}
	if err != nil {
		return fmt.Errorf("closing the head: %w", err)
	}
	return nil
}
