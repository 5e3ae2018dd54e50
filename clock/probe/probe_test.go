package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

const testRun = "gswarm-42"

// Two clocks of one machine that are far apart and run at different rates.
var (
	headClock = clock.Skewed{Source: clock.System{}, OffsetNS: 86_400_000_000_000, PPM: -31}
	nodeClock = clock.Skewed{Source: clock.System{}, OffsetNS: 17_000_000_000, PPM: 44}
)

func startResponder(t testing.TB, change func(*ResponderConfig)) *Responder {
	t.Helper()
	cfg := ResponderConfig{Key: testKey, Run: testRun, Node: "head", Source: headClock, PerSecond: 100_000}
	if change != nil {
		change(&cfg)
	}
	r, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func startProber(t testing.TB, change func(*Config), addrs ...netip.AddrPort) *Prober {
	t.Helper()
	cfg := Config{Addrs: addrs, Key: testKey, Run: testRun, Node: "n1", Peer: "head", Source: nodeClock}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func local(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
}

// truth checks that a model carries the node's stamps to the head's.
func truth(t *testing.T, xs []clock.Exchange, from, to clock.NodeTime) {
	t.Helper()
	a := clock.Anchor{Raw: headClock.Skew(from), Realtime: 1_790_000_000_000_000_000}
	m := clock.Fit(clock.Input{Reference: "head", Anchor: a, Nodes: []clock.NodeEvidence{{Node: "n1", Exchanges: xs}}}).Model("n1")
	if s := m.Summary(); len(s.Contradictions) > 0 || s.ExchangesDropped > 0 {
		t.Errorf("contradictions %v, %d dropped", s.Contradictions, s.ExchangesDropped)
	}
	var least int64 = 1 << 62
	for i := range clock.NodeTime(101) {
		base := from + (to-from)/100*i
		ct, bound, ok := m.At(nodeClock.Skew(base))
		want := clock.ClusterTime(a.Realtime) + clock.ClusterTime(headClock.Skew(base)-a.Raw)
		if d := int64(ct - want); !ok || d > bound+2 || -d > bound+2 {
			t.Fatalf("off by %d ns, bound %d, aligned %v", d, bound, ok)
		}
		least = min(least, bound)
	}
	t.Logf("least bound %d ns", least)
}

func TestBurst(t *testing.T) {
	r := startResponder(t, nil)
	for _, addr := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
		t.Run(addr, func(t *testing.T) {
			if addr == "::1" && !r.sock.six {
				t.Skip("no IPv6 here")
			}
			p := startProber(t, nil, netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(r.Port())))
			if addr == "::1" && p.sock.six {
				if c, err := net.ListenPacket("udp6", "[::1]:0"); err != nil {
					t.Skip("no IPv6 loopback here")
				} else {
					c.Close()
				}
			}
			from := clock.System{}.Now()
			var all []clock.Exchange
			for n := range int64(3) {
				xs, before, after, err := programs(p.Burst(context.Background()))
				if err != nil || len(xs) != 8 {
					t.Fatalf("%d exchanges, %v", len(xs), err)
				}
				for i, x := range xs {
					if x.Peer != "head" || x.Burst != n || x.Seq != int32(i) || x.T4 < x.T1 || x.T3 < x.T2 {
						t.Errorf("exchange %+v", x)
					}
					if x.T1 < before.Raw1 || x.T4 > after.Raw0 {
						t.Errorf("exchange %+v is not between the brackets", x)
					}
				}
				all = append(all, xs...)
			}
			truth(t, all, from, clock.System{}.Now())
		})
	}
	if s := r.Stats(); s.Answered < 24 || s.Answered%24 != 0 || s.Malformed+s.Foreign+s.Forged+s.Replayed+s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

func TestPortRange(t *testing.T) {
	first := startResponder(t, nil)
	taken := first.Port()
	if taken+20 > 65535 {
		t.Skip("the kernel chose a port at the end")
	}
	second := startResponder(t, func(c *ResponderConfig) { c.Ports = [2]int{taken, taken + 20} })
	if p := second.Port(); p <= taken || p > taken+20 {
		t.Errorf("port %d, want one after %d", p, taken)
	}
	for _, ports := range [][2]int{{taken, taken}, {5, 4}, {-1, 9}, {1, 70000}} {
		r, err := Listen(ResponderConfig{Key: testKey, Source: headClock, Ports: ports})
		if err == nil {
			r.Close()
			t.Errorf("ports %v were accepted", ports)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	if _, err := Listen(ResponderConfig{Key: testKey[:15], Source: headClock}); !errors.Is(err, errShortKey) {
		t.Errorf("short key: %v", err)
	}
	if _, err := Listen(ResponderConfig{Key: testKey}); err == nil {
		t.Error("no clock was accepted")
	}
	for _, cfg := range []Config{
		{Key: testKey, Source: nodeClock},
		{Key: testKey, Addrs: []netip.AddrPort{local(1)}},
		{Key: testKey, Source: nodeClock, Addrs: []netip.AddrPort{{}}},
		{Key: nil, Source: nodeClock, Addrs: []netip.AddrPort{local(1)}},
	} {
		if p, err := New(cfg); err == nil {
			p.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestRateIsLimited(t *testing.T) {
	r := startResponder(t, func(c *ResponderConfig) { c.PerSecond = 10 })
	p := startProber(t, func(c *Config) { c.Burst, c.Timeout = 30, 5*time.Millisecond }, local(r.Port()))
	start := time.Now()
	xs, _, _, err := programs(p.Burst(context.Background()))
	if err != nil {
		t.Fatal(err)
	}
	most := 11 + int(10*time.Since(start).Seconds())
	if s := r.Stats(); len(xs) > most || s.Refused != int64(30-len(xs)) {
		t.Errorf("%d answers in %v, %+v", len(xs), time.Since(start), s)
	}
}

func TestAddressChoice(t *testing.T) {
	r := startResponder(t, nil)
	other := startResponder(t, func(c *ResponderConfig) { c.Node = "n1" }) // our own node's
	hole, err := net.ListenPacket("udp", "127.0.0.1:0")                    // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	p := startProber(t, func(c *Config) { c.Timeout = 30 * time.Millisecond },
		hole.LocalAddr().(*net.UDPAddr).AddrPort(), local(other.Port()), local(r.Port()))
	if xs, _, _, err := programs(p.Burst(context.Background())); err != nil || len(xs) != 8 || p.target != 2 {
		t.Errorf("%d exchanges by address %d, %v", len(xs), p.target, err)
	}
	if s := other.Stats(); s.Misdirected == 0 || s.Answered != 0 {
		t.Errorf("the wrong node answered: %+v", s)
	}
	// The chosen address falls silent: all are tried again.
	r.Close()
	for range silentBursts {
		if _, _, _, err := p.Burst(context.Background()); err == nil {
			t.Error("a burst succeeded against nobody")
		}
	}
	if _, _, _, err := p.Burst(context.Background()); !errors.Is(err, ErrNoReply) || p.target != -1 {
		t.Errorf("target %d, %v", p.target, err)
	}
}

func TestBurstEndsWithContext(t *testing.T) {
	hole, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	p := startProber(t, func(c *Config) { c.Timeout = time.Minute }, hole.LocalAddr().(*net.UDPAddr).AddrPort())
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	xs, before, after, err := p.Burst(ctx)
	if !errors.Is(err, context.Canceled) || len(xs) != 0 || before.Raw0 == 0 || after.Raw0 == 0 {
		t.Errorf("%d exchanges, %v, brackets %v %v", len(xs), err, before, after)
	}
	// The prober is as good as new afterwards.
	r := startResponder(t, nil)
	p.addrs[0], _ = p.sock.sockaddr(local(r.Port()))
	if xs, _, _, err := programs(p.Burst(context.Background())); err != nil || len(xs) != 8 {
		t.Errorf("after the interruption: %d exchanges, %v", len(xs), err)
	}
}

func TestLoop(t *testing.T) {
	r := startResponder(t, nil)
	p := startProber(t, nil, local(r.Port()))
	var all []clock.Exchange
	var bursts int
	var last clock.Bracket
	l := NewLoop(p, LoopConfig{
		OnBurst: func(xs []clock.Exchange, before, after clock.Bracket) {
			if before.Raw0 < last.Raw1 {
				t.Errorf("bracket %v begins before %v ends", before, last)
			}
			all, last = append(all, xs...), after
			bursts++
		},
		OnError:  func(err error) { t.Error(err) },
		StartGap: 10 * time.Millisecond, Interval: 30 * time.Millisecond,
	})
	if _, _, ok := l.Offset(); ok {
		t.Error("an offset is known before the first exchange")
	}
	from := clock.System{}.Now()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	time.Sleep(400 * time.Millisecond)
	for range 20 {
		a := clock.System{}.Now()
		ns, bound, ok := l.Offset()
		b := clock.System{}.Now()
		lo, hi := int64(headClock.Skew(a)-nodeClock.Skew(a)), int64(headClock.Skew(b)-nodeClock.Skew(b))
		if lo > hi {
			lo, hi = hi, lo
		}
		if !ok || ns-bound > lo+2 || ns+bound < hi-2 {
			t.Errorf("offset %d +- %d, %v; truth %d to %d", ns, bound, ok, lo, hi)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if bursts < 4 || len(all) < 8*bursts-8 {
		t.Errorf("%d bursts, %d exchanges", bursts, len(all))
	}
	truth(t, all, from, clock.System{}.Now())
}

// BenchmarkBurst is the cost of a burst of 8 without its pauses, both sides
// together; cpu-us/op is what both take from the job.
func BenchmarkBurst(b *testing.B) {
	r := startResponder(b, func(c *ResponderConfig) { c.PerSecond = 1 << 30 })
	p := startProber(b, func(c *Config) { c.Gap = [2]time.Duration{1, 1} }, local(r.Port()))
	cpu := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		if _, _, _, err := p.Burst(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu()-start)/1e3/float64(b.N), "cpu-us/op")
}

// BenchmarkAnswer is what one exchange costs each side, a parent's share apart
// from its child's.
// BenchmarkAnswer says what answering costs a process that does nothing else,
// and asking another: back to back, and paced as a parent at its limit answers,
// 200 a second, each from sleep.
func BenchmarkAnswer(b *testing.B) {
	for name, gap := range map[string]time.Duration{"Back": 1, "Paced": 5 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			port, end := answerElsewhere(b)
			p := startProber(b, func(c *Config) { c.Gap = [2]time.Duration{gap, gap} }, local(port))
			begin := cpuMicroseconds()
			for b.Loop() {
				if _, _, _, err := p.Burst(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			n := float64(b.N) * 8
			b.ReportMetric((cpuMicroseconds()-begin)/n, "asker-cpu-us/exchange")
			b.ReportMetric(end()/n, "answerer-cpu-us/exchange")
		})
	}
}

func cpuMicroseconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// answerVar makes the test binary a process that only answers.
const answerVar = "GSWARM_TEST_ANSWER"

func TestMain(m *testing.M) {
	if os.Getenv(answerVar) != "" {
		answer()
		return
	}
	os.Exit(m.Run())
}

// answer answers until standard input ends; it prints its port and then what CPU
// time it took, in microseconds.
func answer() {
	runtime.GOMAXPROCS(min(2, runtime.NumCPU())) // as an agent
	r, err := Listen(ResponderConfig{Key: testKey, Run: testRun, Node: "head", Source: headClock, PerSecond: 1 << 30})
	if err != nil {
		panic(err)
	}
	begin := cpuMicroseconds()
	fmt.Println(r.Port())
	io.Copy(io.Discard, os.Stdin) // its end is all that matters
	fmt.Println(cpuMicroseconds() - begin)
}

// answerElsewhere starts such a process; end ends it and returns its CPU time.
func answerElsewhere(b *testing.B) (port int, end func() float64) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), answerVar+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, &port); err != nil {
		b.Fatal(err)
	}
	return port, func() float64 {
		in.Close()
		var us float64
		if _, err := fmt.Fscanln(out, &us); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		return us
	}
}
