//go:build e2e

package probe

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/clocktest"
)

var clockRun = flag.Duration("clockrun", 40*time.Second, "how long clocks are compared between namespaces")

// inside runs f with the thread in a network namespace: sockets made there stay
// there.
func inside(t *testing.T, ns string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		// Never unlocked: a thread that was elsewhere must not serve others.
		runtime.LockOSThread()
		h, err := os.Open("/run/netns/" + ns)
		if err == nil {
			err = unix.Setns(int(h.Fd()), unix.CLONE_NEWNET)
			h.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("entering %s: %v", ns, err)
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// shaper forwards packets between two namespaces and does to them what networks
// do.
type shaper struct {
	delay [2]atomic.Int64 // least delay there and back, ns
	queue atomic.Int64    // mean of the queueing, ns
	// congested adds up to this on the way there, in every other 5 s.
	congested       atomic.Int64
	loss, duplicate atomic.Int64 // per mille
	passed          atomic.Int64
}

func (s *shaper) pass(way int, send func()) {
	if rand.Int64N(1000) < s.loss.Load() {
		return
	}
	d := s.delay[way].Load() + int64(rand.ExpFloat64()*float64(s.queue.Load()))
	if c := s.congested.Load(); way == 0 && c > 0 && time.Now().Unix()/5%2 == 0 {
		d += rand.Int64N(c)
	}
	s.passed.Add(1)
	again := rand.Int64N(1000) < s.duplicate.Load()
	if d <= 0 {
		send()
		return
	}
	// Timers fire late and not in order: as networks do.
	time.AfterFunc(time.Duration(d), func() {
		send()
		if again {
			send()
		}
	})
}

// run forwards between whoever sends to front and the address behind rear.
func (s *shaper) run(front, rear *net.UDPConn, to *net.UDPAddr) {
	var from atomic.Pointer[net.UDPAddr]
	pump := func(in *net.UDPConn, way int) {
		for {
			b := make([]byte, 2000)
			n, a, err := in.ReadFromUDP(b)
			if err != nil {
				return
			}
			if way == 0 {
				from.Store(a)
				s.pass(0, func() { rear.WriteToUDP(b[:n], to) })
			} else if f := from.Load(); f != nil {
				s.pass(1, func() { front.WriteToUDP(b[:n], f) })
			}
		}
	}
	go pump(front, 0)
	go pump(rear, 1)
}

// between makes three namespaces in a row, a node's, a network's and a head's,
// and returns their names.
func between(t *testing.T) (node, middle, head string) {
	if os.Getuid() != 0 {
		t.Fatal("needs root")
	}
	id := fmt.Sprintf("gsc%d", os.Getpid()%100000)
	node, middle, head = id+"n", id+"m", id+"h"
	for _, ns := range []string{node, middle, head} {
		ip(t, "netns", "add", ns)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		ip(t, "-n", ns, "link", "set", "lo", "up")
	}
	for i, end := range []string{node, head} {
		a, b := fmt.Sprintf("%sv%d", id, i), fmt.Sprintf("%sw%d", id, i)
		ip(t, "link", "add", a, "netns", end, "type", "veth", "peer", "name", b, "netns", middle)
		ip(t, "-n", end, "addr", "add", fmt.Sprintf("10.213.%d.2/24", i), "dev", a)
		ip(t, "-n", middle, "addr", "add", fmt.Sprintf("10.213.%d.1/24", i), "dev", b)
		ip(t, "-n", end, "link", "set", a, "up")
		ip(t, "-n", middle, "link", "set", b, "up")
	}
	return node, middle, head
}

// TestBetweenNamespaces is the whole of it for real: sockets, kernel stamps and
// two clocks that are far apart, over a network that delays, queues, loses and
// repeats, while all cores are busy. What both clocks show is known at every
// instant, since they are one clock and a falsification.
func TestBetweenNamespaces(t *testing.T) {
	node, middle, head := between(t)
	hc, nc := headClock, nodeClock
	hc.WallOffsetNS, hc.WallPPM = 0, 7
	nc.WallOffsetNS, nc.WallPPM = 350_000, 7

	var r *Responder
	inside(t, head, func() { r = startResponder(t, func(c *ResponderConfig) { c.Source, c.PerSecond = hc, 200 }) })
	var front, rear *net.UDPConn
	inside(t, middle, func() {
		var err error
		if front, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 213, 0, 1)}); err != nil {
			t.Error(err)
		}
		if rear, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 213, 1, 1)}); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	defer front.Close()
	defer rear.Close()
	s := &shaper{}
	s.run(front, rear, &net.UDPAddr{IP: net.IPv4(10, 213, 1, 2), Port: r.Port()})
	var p *Prober
	inside(t, node, func() {
		p = startProber(t, func(c *Config) { c.Source = nc }, front.LocalAddr().(*net.UDPAddr).AddrPort())
	})

	// The shaping must be there: the round trip grows by what is put in.
	least := func() int64 {
		trip := int64(math.MaxInt64)
		for range 5 {
			xs, _, _, err := p.Burst(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range xs {
				trip = min(trip, int64((x.T4-x.T1)-(x.T3-x.T2)))
			}
		}
		return trip
	}
	plain := least()
	s.delay[0].Store(2e6)
	s.delay[1].Store(1e6)
	if grown := least() - plain; grown < 28e5 || grown > 10e6 {
		t.Fatalf("the round trip grew by %d ns, 3 ms were put in", grown)
	}
	t.Logf("round trip without shaping: %d ns", plain)

	for _, c := range []struct {
		name             string
		there, back      int64
		queue, congested int64
		loss, duplicate  int64
		load             bool
	}{
		{"quiet", 0, 0, 0, 0, 0, 0, false},
		{"all cores busy", 0, 0, 0, 0, 0, 0, true},
		{"queues, loss, repeats, busy", 300e3, 300e3, 100e3, 0, 30, 20, true},
		{"congested one way, unequal, busy", 3e6, 1e6, 100e3, 3e6, 30, 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.delay[0].Store(c.there)
			s.delay[1].Store(c.back)
			s.queue.Store(c.queue)
			s.congested.Store(c.congested)
			s.loss.Store(c.loss)
			s.duplicate.Store(c.duplicate)
			if c.load {
				burn(t)
			}
			compare(t, p, hc, nc)
		})
	}
	t.Logf("responder %+v, prober %+v", r.Stats(), p.Stats())
}

// burn keeps all cores busy until the test ends.
func burn(t *testing.T) {
	for range runtime.NumCPU() {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
}

// compare does bursts for a while and says how this method and others do on
// them.
func compare(t *testing.T, p *Prober, hc, nc clock.Skewed) {
	source := clock.System{}
	from := source.Now()
	var xs []clock.Exchange
	var node, peer []clock.Bracket
	for begin := time.Now(); time.Since(begin) < *clockRun/4; time.Sleep(900 * time.Millisecond) {
		got, before, after, _ := p.Burst(context.Background())
		xs = append(xs, got...)
		node = append(node, before, after)
		if b, err := hc.Bracket(); err == nil {
			peer = append(peer, b)
		}
	}
	to := source.Now()
	a := clock.AnchorOf(peer[0])
	fit := func(keep func(clock.Exchange) bool) *clock.Model {
		var some []clock.Exchange
		for _, x := range xs {
			if keep(x) {
				some = append(some, x)
			}
		}
		res := clock.Fit(clock.Input{Reference: "head", Anchor: a, Nodes: []clock.NodeEvidence{{
			Node: "n1", Exchanges: some, Brackets: node, First: nc.Skew(from), Last: nc.Skew(to),
		}}})
		for _, c := range res.Contradictions() {
			t.Errorf("contradiction: %v", c)
		}
		return res.Model("n1")
	}
	both := fit(func(clock.Exchange) bool { return true })
	alone := fit(func(x clock.Exchange) bool { return !x.Kernel })
	type row struct {
		name string
		at   func(clock.NodeTime) (float64, int64)
	}
	model := func(m *clock.Model) func(clock.NodeTime) (float64, int64) {
		return func(n clock.NodeTime) (float64, int64) {
			off, bound, ok := m.Offset(n)
			if !ok {
				t.Error("not aligned")
			}
			return float64(off), bound
		}
	}
	rs := []row{{"gswarm", model(both)}, {"gswarm, the program's stamps alone", model(alone)}}
	for _, o := range append(clocktest.Methods(xs), clocktest.Trust(node, peer)) {
		rs = append(rs, row{o.Name, func(n clock.NodeTime) (float64, int64) { return o.Offset(n), 0 }})
	}
	kernel := 0
	for _, x := range xs {
		if x.Kernel {
			kernel++
		}
	}
	t.Logf("%d exchanges, %d of them by kernel stamps", len(xs), kernel)
	const instants = 20000
	for _, r := range rs {
		var errs, halves []float64
		broken := 0
		for i := range int64(instants) {
			at := from + (to-from)/instants*clock.NodeTime(i)
			n := nc.Skew(at)
			off, bound := r.at(n)
			d := math.Abs(off - float64(hc.Skew(at)-n))
			errs = append(errs, d)
			if bound > 0 {
				halves = append(halves, float64(bound))
				if d > float64(bound)+2 {
					broken++
				}
			}
		}
		slices.Sort(errs)
		slices.Sort(halves)
		q := func(v []float64, p float64) float64 { return v[int(p*float64(len(v)-1))] / 1e3 }
		line := fmt.Sprintf("| %s | %.1f | %.1f | %.1f |", r.name, q(errs, 0.5), q(errs, 0.99), q(errs, 1))
		if len(halves) > 0 {
			line += fmt.Sprintf(" half-width p50 %.1f max %.1f us, %d of %d instants outside", q(halves, 0.5), q(halves, 1), broken, instants)
		}
		t.Log(line)
		if broken > 0 {
			t.Errorf("%s: %d bounds broken", r.name, broken)
		}
	}
}
