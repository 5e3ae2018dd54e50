package control

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gswarm/gswarm/rundir"
)

func newHead(t *testing.T) (*Head, Endpoint) {
	t.Helper()
	h, err := NewHead(Ports{}, NewKey(), "run", rundir.Reference{Node: HeadName}, 4321)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	e, err := h.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Addrs) == 0 || !e.Addrs[len(e.Addrs)-1].IsLoopback() {
		t.Errorf("the head's addresses: %v", e.Addrs)
	}
	e.Addrs = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	return h, e
}

// agent is an agent as far as its head sees.
func agent(t *testing.T, e Endpoint, node string) *Conn {
	t.Helper()
	c, err := dial(t, e)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(Message{Hello: &Hello{Node: node}}); err != nil {
		t.Fatal(err)
	}
	m, err := c.Receive()
	if err != nil || m.Welcome == nil || m.Welcome.ClockPort != 4321 || m.Welcome.Reference.Node != HeadName {
		t.Fatalf("%+v, %v", m, err)
	}
	return c
}

func TestHead(t *testing.T) {
	t.Parallel()
	h, e := newHead(t)
	a, b, c := agent(t, e, "a"), agent(t, e, "b"), agent(t, e, "c")
	a.Send(Message{Ready: &Ready{GPUs: 2}})
	c.Close() // dies
	until(t, "what became of a and c", func() bool {
		l := h.Agents()
		return len(l) == 3 && l[0].Ready != nil && l[2].Lost
	})
	h.WaitReady(2, patience) // at once: a is ready, c gone
	h.WaitReady(3, time.Millisecond)

	stopped := make(chan struct{})
	go func() {
		h.Stop("job ended", patience)
		close(stopped)
	}()
	for _, conn := range []*Conn{a, b} {
		m, err := conn.Receive()
		for err == nil && m.Clock != nil { // whom to ask now
			m, err = conn.Receive()
		}
		if err != nil || m.Stop == nil || m.Stop.Reason != "job ended" {
			t.Errorf("%+v, %v", m, err)
		}
	}
	a.Send(Message{Bye: &Bye{Note: "done", Ranks: []rundir.Rank{{Rank: 3}}}})
	select {
	case <-stopped:
		t.Error("Stop did not wait for b")
	case <-time.After(20 * time.Millisecond):
	}
	b.Close()
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("Stop waits for the dead")
	}
	l := h.Agents()
	if l[0].Bye == nil || l[0].Bye.Ranks[0].Rank != 3 || l[0].Lost || !l[1].Lost || l[1].Bye != nil {
		t.Errorf("%+v", l)
	}
}

// TestHeadDoesNotWait: Stop ends in time where an agent hangs, at once where
// somebody is in a hurry, and at once where there is none.
func TestHeadDoesNotWait(t *testing.T) {
	t.Parallel()
	h, e := newHead(t)
	h.Stop("nobody", patience)
	agent(t, e, "hangs")
	until(t, "the agent", func() bool { return len(h.Agents()) == 1 })
	h.Stop("job ended", 10*time.Millisecond)
	ended := make(chan struct{})
	go func() {
		h.WaitReady(1, time.Hour)
		h.Stop("again", time.Hour)
		close(ended)
	}()
	h.Hurry()
	h.Hurry()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("Hurry hurries nobody")
	}
}

// TestHeadAgentComesAgain: an agent that takes over from a dead one of its node
// is the node's agent; the old connection's end is not its.
func TestHeadAgentComesAgain(t *testing.T) {
	t.Parallel()
	h, e := newHead(t)
	first := agent(t, e, "a")
	second := agent(t, e, "a")
	second.Send(Message{Ready: &Ready{}})
	until(t, "the second", func() bool { l := h.Agents(); return len(l) == 1 && l[0].Ready != nil })
	first.Close()
	second.Send(Message{Bye: &Bye{}})
	until(t, "its bye", func() bool { l := h.Agents(); return l[0].Bye != nil })
	if l := h.Agents(); l[0].Lost {
		t.Errorf("%+v", l[0])
	}
}

// TestHeadStranger: who holds the key but says no hello is dropped.
func TestHeadStranger(t *testing.T) {
	t.Parallel()
	h, e := newHead(t)
	c, err := dial(t, e)
	if err != nil {
		t.Fatal(err)
	}
	c.Send(Message{Bye: &Bye{}})
	if m, err := c.Receive(); err == nil {
		t.Errorf("answered by %+v", m)
	}
	if l := h.Agents(); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}
