package probe

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
)

// Config says whom a Prober asks and how.
type Config struct {
	// Addrs are the peer's addresses. The one with the lowest round trip is
	// kept until it falls silent.
	Addrs []netip.AddrPort
	// Key is the run's key, at least 16 bytes.
	Key []byte
	// Run names the run, Node this node, Peer the node that is to answer.
	Run, Node, Peer string
	Source          clock.Source
	// Burst is the number of exchanges in a burst, 8 if zero.
	Burst int
	// Gap is the shortest and the longest pause before an exchange, 0.2 to
	// 2 ms if zero. It is random, so that nothing periodic on the way meets
	// every exchange of a burst.
	Gap [2]time.Duration
	// Timeout is how long an answer is waited for, 100 ms if zero.
	Timeout time.Duration
}

// maxAddrs is how many addresses are tried; a node with more has most of them
// on bridges of its own.
const maxAddrs = 32

// silentBursts is after how many bursts without an answer all addresses are
// tried again.
const silentBursts = 2

// ErrNoReply says that a whole burst went unanswered.
var ErrNoReply = errors.New("no reply")

// Prober asks one peer. It is not safe for concurrent use, but for Stats.
type Prober struct {
	cfg    Config
	id     uint64
	peer   uint64
	sock   *socket
	codec  *codec
	addrs  []unix.Sockaddr
	rand   *rand.Rand
	count  counters
	target int // index of the address in use, -1 before it is chosen
	silent int

	sequence uint64
	burst    int64
	asked    []question // of this burst
	in, out  [packetSize + 1]byte
}

// question is a request that may still be answered.
type question struct {
	sequence, nonce uint64
	t1              clock.NodeTime
	addr            int
	answered        bool
	x               clock.Exchange
	// What kernels said: this packet's number by which to ask for its
	// departure, the wall clock at the answer's arrival, the peer's stamps.
	number                         uint32
	arrived                        int64
	kernelReceived, kernelAnswered int64
}

// New opens a socket towards the peer. It sends nothing yet.
func New(cfg Config) (*Prober, error) {
	fail := func(err error) (*Prober, error) {
		return nil, fmt.Errorf("preparing clock exchanges with %s: %w", cfg.Peer, err)
	}
	if cfg.Source == nil {
		return fail(errors.New("no clock given"))
	}
	if len(cfg.Addrs) == 0 {
		return fail(errors.New("no address given"))
	}
	if cfg.Burst <= 0 {
		cfg.Burst = 8
	}
	if cfg.Gap == [2]time.Duration{} {
		cfg.Gap = [2]time.Duration{200 * time.Microsecond, 2 * time.Millisecond}
	}
	cfg.Gap[1] = max(cfg.Gap[0], cfg.Gap[1])
	if cfg.Timeout <= 0 {
		cfg.Timeout = 100 * time.Millisecond
	}
	c, err := newCodec(cfg.Key, cfg.Run)
	if err != nil {
		return fail(err)
	}
	s, err := open(0, 0)
	if err != nil {
		return fail(err)
	}
	p := &Prober{
		cfg: cfg, peer: identity("node", cfg.Run, cfg.Peer), sock: s, codec: c, target: -1,
		id: secret(), rand: rand.New(rand.NewPCG(secret(), secret())),
	}
	var unusable error
	for _, a := range cfg.Addrs[:min(len(cfg.Addrs), maxAddrs)] {
		to, err := s.sockaddr(a)
		if err != nil {
			unusable = err
			continue
		}
		p.addrs = append(p.addrs, to)
	}
	if len(p.addrs) == 0 {
		s.close()
		return fail(unusable)
	}
	return p, nil
}

// Close frees the socket. No Burst may be going on.
func (p *Prober) Close() { p.sock.close() }

// Stats returns what has arrived so far.
func (p *Prober) Stats() Stats { return p.count.stats() }

// Burst does one burst of exchanges between two brackets. It returns those
// that were answered, and once more those of which kernels have better stamps;
// ErrNoReply if none was answered. When ctx ends it stops
// waiting and returns what it has with ctx's error. The brackets are
// good whenever they are not zero.
func (p *Prober) Burst(ctx context.Context) (xs []clock.Exchange, before, after clock.Bracket, err error) {
	// The thread must not change between the arrival of a packet and its
	// stamp.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if before, err = p.cfg.Source.Bracket(); err != nil {
		return nil, before, after, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.sock.interrupt()
		close(ended)
	})
	xs, err = p.exchange(ctx)
	if !stop() {
		<-ended // it must not touch the socket later
		p.sock.rearm()
	}
	after, bracketErr := p.cfg.Source.Bracket()
	if bracketErr == nil {
		xs = append(xs, p.tighten(before, after)...)
	}
	if err == nil {
		err = bracketErr
	}
	return xs, before, after, err
}

func (p *Prober) exchange(ctx context.Context) ([]clock.Exchange, error) {
	if p.target < 0 {
		if err := p.choose(ctx); err != nil {
			return nil, err
		}
	}
	p.asked = p.asked[:0]
	var failure error
	for range p.cfg.Burst {
		p.pause()
		if ctx.Err() != nil {
			break
		}
		if err := p.ask(p.target); err != nil {
			failure = err
			continue
		}
		if err := p.listen(1, p.deadline(ctx)); err != nil {
			failure = err
		}
	}
	xs := make([]clock.Exchange, 0, len(p.asked))
	for i := range p.asked {
		if q := &p.asked[i]; q.answered {
			q.x.Burst, q.x.Seq = p.burst, int32(len(xs))
			xs = append(xs, q.x)
		}
	}
	p.burst++
	if ctx.Err() != nil {
		return xs, ctx.Err()
	}
	if len(xs) > 0 {
		p.silent = 0
		return xs, nil
	}
	if p.silent++; p.silent >= silentBursts && len(p.addrs) > 1 {
		p.target, p.silent = -1, 0
	}
	if failure == nil {
		failure = ErrNoReply
	}
	return nil, fmt.Errorf("clock exchanges with %s: %w", p.cfg.Peer, failure)
}

// choose finds the address with the lowest round trip. All are asked at once,
// so that those that lead nowhere cost one timeout together.
func (p *Prober) choose(ctx context.Context) error {
	if len(p.addrs) == 1 {
		p.target = 0
		return nil
	}
	best, lowest := -1, int64(0)
	for range 2 { // the first round may wait for ARP
		p.asked = p.asked[:0]
		for i := range p.addrs {
			if p.ask(i) != nil {
				continue // no route from here
			}
		}
		if err := p.listen(len(p.asked), p.deadline(ctx)); err != nil {
			return fmt.Errorf("choosing an address of %s: %w", p.cfg.Peer, err)
		}
		for _, q := range p.asked {
			if !q.answered {
				continue
			}
			trip := int64(q.x.T4-q.x.T1) - int64(q.x.T3-q.x.T2)
			if best < 0 || trip < lowest {
				best, lowest = q.addr, trip
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if best < 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("clock exchanges with %s: %w from any of %d addresses", p.cfg.Peer, ErrNoReply, len(p.addrs))
	}
	p.target = best
	return nil
}

// answered is how many questions of the latest burst were answered.
func (p *Prober) answered() (n int) {
	for i := range p.asked {
		if p.asked[i].answered {
			n++
		}
	}
	return n
}

func (p *Prober) pause() {
	d := p.cfg.Gap[0]
	if span := p.cfg.Gap[1] - d; span > 0 {
		d += time.Duration(p.rand.Int64N(int64(span)))
	}
	time.Sleep(d)
}

func (p *Prober) deadline(ctx context.Context) time.Time {
	d := time.Now().Add(p.cfg.Timeout)
	if c, ok := ctx.Deadline(); ok && c.Before(d) {
		return c
	}
	return d
}

// ask sends one request.
func (p *Prober) ask(addr int) error {
	p.sequence++
	q := question{sequence: p.sequence, nonce: secret(), addr: addr}
	p.codec.seal(packet{
		direction: request, responder: p.peer, client: p.id,
		sequence: q.sequence, nonce: q.nonce,
	}, p.out[:packetSize])
	q.t1 = p.cfg.Source.Now()
	number, err := p.sock.send(p.out[:packetSize], p.addrs[addr])
	if err != nil {
		p.count.failed.Add(1)
		return err
	}
	q.number = number
	p.asked = append(p.asked, q)
	return nil
}

// listen takes answers until the last n questions are answered or the deadline
// has passed. Late answers to earlier questions of the burst are taken along:
// late they are of little use, but true.
func (p *Prober) listen(n int, deadline time.Time) error {
	open := 0
	for _, q := range p.asked[len(p.asked)-n:] {
		if !q.answered {
			open++
		}
	}
	for open > 0 {
		size, _, kernel, err := p.sock.receive(p.in[:], deadline)
		t4 := p.cfg.Source.Now()
		if errors.Is(err, errTimeout) || errors.Is(err, errInterrupted) {
			return nil
		}
		if err != nil {
			p.count.failed.Add(1)
			return err
		}
		if i := p.match(p.in[:size], t4, kernel); i >= len(p.asked)-n {
			open--
		}
	}
	return nil
}

// match finds the question that a packet answers and returns its index, or -1.
func (p *Prober) match(b []byte, t4 clock.NodeTime, kernel int64) int {
	a, v := p.codec.open(b, reply)
	if v != accepted {
		p.count.drop(v)
		return -1
	}
	if a.client != p.id || a.responder != p.peer {
		p.count.misdirected.Add(1)
		return -1
	}
	if a.kernelOf != 0 {
		for i := range p.asked {
			if q := &p.asked[i]; q.answered && q.sequence == a.kernelOf {
				q.kernelAnswered = a.kernelAnswered
			}
		}
	}
	for i := range p.asked {
		q := &p.asked[i]
		if q.sequence != a.sequence || q.nonce != a.nonce {
			continue
		}
		if q.answered {
			p.count.replayed.Add(1)
			return -1
		}
		q.answered = true
		q.x = clock.Exchange{
			Peer: p.cfg.Peer, T1: q.t1, T4: t4,
			T2: clock.NodeTime(a.received), T3: clock.NodeTime(a.answered),
		}
		q.arrived, q.kernelReceived = kernel, a.kernelReceived
		p.count.answered.Add(1)
		return i
	}
	p.count.late.Add(1)
	return -1
}

// secret returns a random number that nobody can guess.
func secret() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails: it ends the program first
	return binary.BigEndian.Uint64(b[:])
}
