package rankagent

import (
	"sync"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rundir"
)

// lingerForRanks is how long an agent whose ranks are all gone waits for ranks
// that its node is still owed: launchers start them apart.
const lingerForRanks = 2 * time.Second

// members are the ranks of this node: one connection of a wrap each. The kernel
// closes the connection of a wrap that is killed.
type members struct {
	a    *agent
	gpus map[int]bool // minor numbers this agent can open

	mu     sync.Mutex
	here   map[*control.LocalConn]*rundir.Rank
	past   []rundir.Rank
	joined int
	size   int // ranks the node will have, 0 unknown
	idle   *time.Timer
	done   chan struct{} // closed when the last rank is gone
	over   bool
}

func newMembers(a *agent, gpus []int) *members {
	m := &members{a: a, gpus: map[int]bool{}, here: map[*control.LocalConn]*rundir.Rank{}, done: make(chan struct{})}
	for _, g := range gpus {
		m.gpus[g] = true
	}
	return m
}

// serve follows one rank's wrap from Join to its end.
func (m *members) serve(c *control.LocalConn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck,forbidigo // a socket's deadline
	msg, err := c.Receive()
	if err != nil || msg.Join == nil {
		return
	}
	c.SetDeadline(time.Time{}) //nolint:errcheck // a failed deadline shows in the read
	join := *msg.Join
	covered := m.covers(join.GPUs)
	if err := c.Send(control.Message{Joined: &control.Joined{AgentPID: m.a.pid, Covered: covered}}); err != nil {
		return
	}
	r := &rundir.Rank{Rank: join.Rank, LocalRank: join.LocalRank, Node: m.a.node}
	event := m.a.c.event
	if m.a.cfg.Part != "" { // the node's first sampler writes the ranks down
		event = func(clock.NodeTime, string, int, int, any) {}
	}
	m.add(c, r, join)
	for {
		msg, err := c.Receive()
		switch {
		case err != nil: // killed
			event(m.a.clock.Now(), "wrap_lost", -1, r.Rank, map[string]int{"pid": join.PID})
			m.remove(c)
			return
		case msg.Started != nil:
			m.mu.Lock()
			r.PID = msg.Started.PID
			m.mu.Unlock()
			event(m.a.clock.Now(), "rank_start", -1, r.Rank, map[string]int{"pid": r.PID, "local_rank": r.LocalRank, "size": join.Size})
		case msg.Exited != nil:
			m.mu.Lock()
			r.Exit = &msg.Exited.Exit
			m.mu.Unlock()
			event(m.a.clock.Now(), "rank_exit", -1, r.Rank, msg.Exited.Exit)
			last := m.remove(c)
			note := m.a.settle(last)
			c.Send(control.Message{Flushed: &control.Flushed{Last: last, Nodes: m.a.cluster.size(), Note: note}}) //nolint:errcheck // the wrap may have given up waiting
			return
		}
	}
}

// covers reports whether this agent sees all the GPUs that a rank sees.
func (m *members) covers(gpus []int) bool {
	for _, g := range gpus {
		if !m.gpus[g] {
			return false
		}
	}
	return true
}

func (m *members) add(c *control.LocalConn, r *rundir.Rank, join control.Join) {
	m.mu.Lock()
	m.here[c] = r
	m.joined++
	m.size = max(m.size, join.LocalSize)
	if m.idle != nil {
		m.idle.Stop()
	}
	m.mu.Unlock()
	if join.Rank == 0 {
		m.a.rankZeroIsHere()
	}
}

// remove takes a rank out and reports whether it was the node's last.
func (m *members) remove(c *control.LocalConn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.here[c]; r != nil {
		m.past = append(m.past, *r)
	}
	delete(m.here, c)
	if len(m.here) > 0 || m.a.attached() {
		return false
	}
	if m.joined >= m.size { // an unknown size is 0
		m.finish()
		return true
	}
	m.idle = time.AfterFunc(lingerForRanks, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.here) == 0 {
			m.finish()
		}
	})
	return false
}

// finish says that no rank is left; the lock must be held.
func (m *members) finish() {
	if !m.over {
		m.over = true
		close(m.done)
	}
}

// expectSomebody ends an agent that no wrap ever joins: the one that started it
// may have been killed at once.
func (m *members) expectSomebody(patience time.Duration) {
	time.AfterFunc(patience, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.joined == 0 {
			m.finish()
		}
	})
}

// ranks returns what is known of all ranks, past and present.
func (m *members) ranks() []rundir.Rank {
	if m.a.cfg.Part != "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := append([]rundir.Rank(nil), m.past...)
	for _, r := range m.here {
		all = append(all, *r)
	}
	return all
}
