package rankagent

import (
	"bytes"
	"encoding/json"
	"os"
	"time"
	"unicode/utf8"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/control"
)

const (
	// markRate and markBurst bound the marks of a node: what comes faster is
	// counted and dropped, so that a mark in an inner loop fills no disk.
	markRate, markBurst = 200, 2000
	// markReport is how often what was dropped is said.
	markReport = time.Second
	// markPatience bounds the end's wait for marks that are under way.
	markPatience = 20 * time.Millisecond
	// maxFlight is the longest that a mark can have been under way; a
	// longer time means that the wall clock was set.
	maxFlight = 10 * time.Second
)

// marks takes the marks that the job's processes send and makes events of them.
type marks struct {
	socket *control.MarkSocket
	clock  clock.Source
	event  func(at clock.NodeTime, kind string, gpu, rank int, detail any)
	rankOf func(pid int) int
	uid    int

	tokens  float64
	filled  clock.NodeTime
	dropped map[string]int
	said    clock.NodeTime
	stop    chan struct{}
	done    chan struct{}
}

// listenMarks begins to take marks. It returns nil where it cannot, which is
// said in the data: the job's senders find nobody, and nothing else is amiss.
func (a *agent) listenMarks() *marks {
	if a.cfg.Part != "" {
		return nil // the node's first sampler takes them
	}
	s, err := control.ListenMarks(control.MarkName(a.cfg.Run.ID))
	if err != nil {
		a.c.event(a.clock.Now(), "source_error", -1, -1, map[string]string{"source": "mark", "error": err.Error()})
		return nil
	}
	m := newMarks(s, a.clock, a.c.event, a.RankOf)
	go m.run()
	return m
}

func newMarks(s *control.MarkSocket, c clock.Source, event func(clock.NodeTime, string, int, int, any), rankOf func(int) int) *marks {
	if rankOf == nil {
		rankOf = func(int) int { return -1 }
	}
	return &marks{
		socket: s, clock: c, event: event, rankOf: rankOf, uid: os.Getuid(),
		tokens: markBurst, filled: c.Now(), dropped: map[string]int{},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// run takes marks until end is called and the socket is empty.
func (m *marks) run() {
	defer close(m.done)
	for {
		mark, err := m.socket.Receive()
		if err == nil {
			m.take(mark)
		}
		m.report(false)
		select {
		case <-m.stop:
			if err != nil {
				m.report(true)
				return
			}
		default:
			if err != nil {
				// A deadline that ran out, to report; an error that
				// stays must not turn the loop into a busy one.
				time.Sleep(10 * time.Millisecond)
				m.wake()
			}
		}
	}
}

// wake lets Receive return in time for the next report, if one is due.
func (m *marks) wake() {
	select {
	case <-m.stop:
		return // the deadline is the end's
	default:
	}
	deadline := time.Time{}
	if len(m.dropped) > 0 {
		deadline = time.Now().Add(markReport) //nolint:forbidigo // a socket's deadline
	}
	m.socket.SetDeadline(deadline) //nolint:errcheck // then the report waits for the next mark
}

// end takes what is under way and frees the name.
func (m *marks) end() {
	if m == nil {
		return
	}
	close(m.stop)
	m.socket.SetDeadline(time.Now().Add(markPatience / 4)) //nolint:errcheck,forbidigo // a socket's deadline
	t := time.NewTimer(markPatience)
	defer t.Stop()
	select {
	case <-m.done:
	case <-t.C:
	}
	m.socket.Close()
}

// take makes an event of a mark, or counts why not.
func (m *marks) take(mark control.Mark) {
	text, claimed, barrier := parseMark(mark.Text)
	switch {
	case mark.UID != m.uid:
		m.drop("foreign")
	case mark.Cut:
		m.drop("oversize")
	case text == "":
		m.drop("garbage")
	case !m.allowed():
		m.drop("rate")
	default:
		rank := m.rankOf(mark.PID)
		if rank < 0 {
			rank = claimed
		}
		at, bound, flight := m.sent(mark.Sent)
		d := rows.Mark{Text: text, PID: mark.PID, Flight: flight, Barrier: barrier}
		if barrier != "" && flight != nil {
			d.BoundNS = &bound
		}
		m.event(at, rows.MarkKind, -1, rank, d)
	}
}

// parseMark returns a mark's text, "" for what is none: a datagram is UTF-8
// text, or a JSON object with the key mark and, from senders that know it, the
// rank, and which side of a barrier it is.
func parseMark(b []byte) (text string, rank int, barrier string) {
	b = bytes.TrimRight(b, "\x00\r\n")
	if len(b) == 0 || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return "", -1, ""
	}
	if b[0] == '{' {
		var o struct {
			Mark    *string `json:"mark"`
			Rank    *int    `json:"rank"`
			Barrier string  `json:"barrier"`
		}
		if err := json.Unmarshal(b, &o); err == nil && o.Mark != nil {
			if o.Barrier != "" && o.Barrier != rows.BarrierEnter && o.Barrier != rows.BarrierLeave {
				return "", -1, ""
			}
			if o.Rank == nil || *o.Rank < 0 || *o.Rank > 1<<24 {
				return *o.Mark, -1, o.Barrier
			}
			return *o.Mark, *o.Rank, o.Barrier
		}
	}
	return string(b), -1, ""
}

// slewing is by how much a wall clock may run faster or slower than the raw
// one while it is being set right: 500 ppm by the kernel's own limit, and the
// frequency correction of as much.
const slewing = 1000e-6

// sent returns when a mark was sent, on the node's raw clock, give or take
// bound nanoseconds. Where the kernel did not stamp it, flight is nil and at is
// the time of its arrival, which bounds nothing.
func (m *marks) sent(realtime int64) (at clock.NodeTime, bound int64, flight *int64) {
	b, err := m.clock.Bracket()
	if err != nil {
		return m.clock.Now(), 0, nil
	}
	half := (b.Raw1 - b.Raw0) / 2
	at = b.Raw0 + half
	if ns := b.Realtime - realtime; realtime > 0 && ns >= 0 && ns < int64(maxFlight) {
		return at - clock.NodeTime(ns), int64(half) + 1 + int64(slewing*float64(ns)), &ns
	}
	return at, 0, nil
}

// allowed takes one token of the bucket that bounds the rate.
func (m *marks) allowed() bool {
	now := m.clock.Now()
	m.tokens = min(markBurst, m.tokens+markRate*float64(now-m.filled)/1e9)
	m.filled = now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

func (m *marks) drop(why string) {
	m.dropped[why]++
	m.wake()
}

// report says what was dropped, once a second at most.
func (m *marks) report(last bool) {
	now := m.clock.Now()
	if len(m.dropped) == 0 || !last && now-m.said < clock.NodeTime(markReport) {
		return
	}
	m.said = now
	m.event(now, "marks_dropped", -1, -1, m.dropped)
	m.dropped = map[string]int{}
}
