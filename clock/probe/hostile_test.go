package probe

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// settle waits until a count is reached; packets take their time.
func settle(t *testing.T, what string, want int64, get func() int64) {
	t.Helper()
	for range 200 {
		if get() >= want {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := get(); got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestResponderDropsAndCounts(t *testing.T) {
	r := startResponder(t, nil)
	conn, err := net.Dial("udp", local(r.Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	make1 := func(key []byte, run string, change func(*packet)) []byte {
		c, err := newCodec(key, run)
		if err != nil {
			t.Fatal(err)
		}
		p := packet{direction: request, responder: r.id, client: 5, sequence: 100, nonce: 7}
		if change != nil {
			change(&p)
		}
		b := make([]byte, packetSize)
		c.seal(p, b)
		return b
	}
	seq := func(n uint64) []byte { return make1(testKey, testRun, func(p *packet) { p.sequence = n }) }
	flip := func(b []byte, i int) []byte { b[i] ^= 1; return b }
	send := func(b []byte) {
		t.Helper()
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}

	good := seq(100)
	send(good)
	send(seq(101))
	settle(t, "answered", 2, func() int64 { return r.Stats().Answered })

	send(good)    // again
	send(seq(37)) // 64 behind the newest
	settle(t, "replayed", 2, func() int64 { return r.Stats().Replayed })

	send(flip(seq(102), 30))                                                             // in what is signed
	send(flip(seq(102), packetSize-1))                                                   // in the MAC
	send(make1(bytes.Repeat([]byte{9}, 32), testRun, nil))                               // another key
	send(make1(testKey, testRun, nil)[:macOffset:macOffset])                             // short
	send(append(seq(102), 0))                                                            // long
	send(make([]byte, 1400))                                                             // giant
	send(nil)                                                                            // empty
	send(flip(seq(102), 0))                                                              // another protocol
	send(make1(testKey, "another run", nil))                                             // foreign
	send(make1(testKey, testRun, func(p *packet) { p.direction = reply }))               // reflected
	send(make1(testKey, testRun, func(p *packet) { p.direction = 0; p.sequence = 900 })) // neither
	send(make1(testKey, testRun, func(p *packet) { p.responder++ }))                     // another node's
	send(make1(testKey, testRun, func(p *packet) { p.client, p.sequence = 6, 1<<63 }))   // a new client
	settle(t, "answered", 3, func() int64 { return r.Stats().Answered })
	settle(t, "forged", 3, func() int64 { return r.Stats().Forged })
	settle(t, "malformed", 5, func() int64 { return r.Stats().Malformed })
	settle(t, "foreign", 1, func() int64 { return r.Stats().Foreign })
	settle(t, "reflected", 2, func() int64 { return r.Stats().Reflected })
	settle(t, "misdirected", 1, func() int64 { return r.Stats().Misdirected })

	// As many answers came back, none larger than what asked for it.
	conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	var got int
	for b := make([]byte, 2000); ; got++ {
		n, err := conn.Read(b)
		if err != nil {
			break
		}
		if n > packetSize {
			t.Errorf("an answer of %d bytes", n)
		}
	}
	if got != 3 {
		t.Errorf("%d answers, want 3", got)
	}
}

// relay stands between prober and responder and does with packets what it is
// told to.
func relay(t *testing.T, to *Responder, back func(send func([]byte), b []byte)) net.PacketConn {
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rear, err := net.Dial("udp", local(to.Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close(); rear.Close() })
	go func() {
		for b := make([]byte, 2000); ; {
			n, from, err := front.ReadFrom(b)
			if err != nil {
				return
			}
			rear.Write(b[:n])
			answer := make([]byte, 2000)
			if n, err = rear.Read(answer); err != nil {
				return
			}
			back(func(b []byte) { front.WriteTo(b, from) }, answer[:n])
		}
	}()
	return front
}

func TestProberDropsAndCounts(t *testing.T) {
	r := startResponder(t, nil)
	front := relay(t, r, func(send func([]byte), b []byte) {
		forged := bytes.Clone(b)
		forged[56] ^= 1 // T3
		send(forged)
		send(b[:20])
		send(append(bytes.Clone(b), 1))
		send(b)
		send(b) // duplicated by the network
	})
	p := startProber(t, nil, front.LocalAddr().(*net.UDPAddr).AddrPort())
	xs, _, _, err := programs(p.Burst(context.Background()))
	if err != nil || len(xs) != 8 {
		t.Fatalf("%d exchanges, %v", len(xs), err)
	}
	// Nobody listened any more when the last packet's duplicate came.
	if s := p.Stats(); s.Forged != 8 || s.Malformed != 16 || s.Replayed != 7 || s.Answered != 8 {
		t.Errorf("%+v", s)
	}
}

func TestProberIgnoresItsOwnReflection(t *testing.T) {
	mirror, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	go func() {
		for b := make([]byte, 2000); ; {
			n, from, err := mirror.ReadFrom(b)
			if err != nil {
				return
			}
			mirror.WriteTo(b[:n], from)
		}
	}()
	p := startProber(t, func(c *Config) { c.Timeout = 5 * time.Millisecond }, mirror.LocalAddr().(*net.UDPAddr).AddrPort())
	if xs, _, _, err := programs(p.Burst(context.Background())); err == nil || len(xs) != 0 {
		t.Errorf("%d exchanges with a mirror, %v", len(xs), err)
	}
	if s := p.Stats(); s.Reflected == 0 || s.Answered != 0 {
		t.Errorf("%+v", s)
	}
}

func TestLateAnswers(t *testing.T) {
	r := startResponder(t, nil)
	front := relay(t, r, func(send func([]byte), b []byte) {
		b = bytes.Clone(b)
		time.AfterFunc(60*time.Millisecond, func() { send(b) })
	})
	p := startProber(t, func(c *Config) { c.Burst, c.Timeout = 2, 10*time.Millisecond }, front.LocalAddr().(*net.UDPAddr).AddrPort())
	for range 6 { // 12 questions, a good 20 ms for each two
		xs, _, _, _ := programs(p.Burst(context.Background()))
		for _, x := range xs {
			if x.T4-x.T1 < 60_000_000 {
				t.Errorf("exchange %+v took too little", x)
			}
		}
	}
	if s := p.Stats(); s.Late == 0 {
		t.Errorf("%+v", s)
	}
}

func TestWindow(t *testing.T) {
	var w window
	for _, c := range []struct {
		seq  uint64
		want bool
	}{{5, true}, {5, false}, {4, true}, {4, false}, {70, true}, {6, false}, {7, true}, {5, false}, {1 << 40, true}, {70, false}, {1<<40 - 63, true}, {1<<40 - 64, false}, {0, false}} {
		if got := w.fresh(c.seq); got != c.want {
			t.Errorf("%d: fresh %v, want %v", c.seq, got, c.want)
		}
	}
}

// FuzzOpen: whatever arrives, only what was sealed with the key is accepted.
func FuzzOpen(f *testing.F) {
	c, err := newCodec(testKey, testRun)
	if err != nil {
		f.Fatal(err)
	}
	good := make([]byte, packetSize)
	want := packet{direction: reply, responder: 1, client: 2, sequence: 3, nonce: 4, received: -5, answered: 1 << 62}
	c.seal(want, good)
	f.Add(good, 0, byte(0))
	f.Add(good[:40], 3, byte(1))
	f.Add(append(bytes.Clone(good), 0), 9, byte(0xff))
	f.Add([]byte{}, 0, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		for _, direction := range []byte{request, reply} {
			p, v := c.open(b, direction)
			if v == accepted && (!bytes.Equal(b, good) || p != want) {
				t.Fatalf("accepted %x as %+v", b, p)
			}
		}
		changed := bytes.Clone(good)
		changed[uint(at)%packetSize] ^= flip
		if p, v := c.open(changed, reply); (v == accepted) != (flip == 0) || v == accepted && p != want {
			t.Fatalf("verdict %d after changing byte %d by %x", v, uint(at)%packetSize, flip)
		}
	})
}

func TestSockaddr(t *testing.T) {
	s := &socket{six: false}
	if a, err := s.sockaddr(local(9)); err != nil || a.(*unix.SockaddrInet4).Port != 9 {
		t.Errorf("%v, %v", a, err)
	}
}
