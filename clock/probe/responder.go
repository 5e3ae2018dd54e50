package probe

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock"
)

// ResponderConfig says how a Responder answers.
type ResponderConfig struct {
	// Key is the run's key, at least 16 bytes.
	Key []byte
	// Run and Node name the run and the node that answers. A request for
	// another node is dropped: addresses such as those of container bridges
	// exist on every node.
	Run, Node string
	Source    clock.Source
	// Ports are the first and the last port to try; zeros leave the choice
	// to the kernel.
	Ports [2]int
	// PerSecond is how many requests are answered in a second, 200 if zero;
	// those beyond it are counted as refused.
	PerSecond int
}

// defaultPerSecond is what a node answers beside its job without being noticed.
const defaultPerSecond = 200

// maxClients is how many clients one responder tells apart. Only holders of
// the key get this far.
const maxClients = 1 << 13

// Responder answers exchanges until it is closed.
type Responder struct {
	cfg   ResponderConfig
	id    uint64
	sock  *socket
	codec *codec
	count counters
	done  chan struct{}
	close sync.Once

	// Only the serving goroutine uses these.
	clients map[uint64]*client
	bracket clock.Bracket // at the latest request
	credit  int64         // in nanoseconds of answering, up to a second
	last    clock.NodeTime
}

// client is what a responder remembers of one that asks.
type client struct {
	window
	// The latest answer: whose it was, the packet's number and the clocks
	// before it was sent, to tell when the kernel sent it.
	sequence uint64
	number   uint32
	sent     bool
	bracket  clock.Bracket
}

// Listen binds a port and answers on it from a goroutine of its own until
// Close is called.
func Listen(cfg ResponderConfig) (*Responder, error) {
	if cfg.Source == nil {
		return nil, errors.New("starting to answer clock exchanges: no clock given")
	}
	if cfg.PerSecond <= 0 {
		cfg.PerSecond = defaultPerSecond
	}
	c, err := newCodec(cfg.Key, cfg.Run)
	if err != nil {
		return nil, fmt.Errorf("starting to answer clock exchanges: %w", err)
	}
	s, err := open(cfg.Ports[0], cfg.Ports[1])
	if err != nil {
		return nil, fmt.Errorf("starting to answer clock exchanges: %w", err)
	}
	r := &Responder{
		cfg: cfg, id: identity("node", cfg.Run, cfg.Node), sock: s, codec: c,
		done: make(chan struct{}), clients: map[uint64]*client{},
		credit: int64(time.Second), last: cfg.Source.Now(),
	}
	go r.serve()
	return r, nil
}

// Port returns the port that the responder is bound to, on all addresses.
func (r *Responder) Port() int { return r.sock.port }

// Stats returns what has arrived so far.
func (r *Responder) Stats() Stats { return r.count.stats() }

// Close ends the answering and waits until it has ended.
func (r *Responder) Close() {
	r.close.Do(func() {
		r.sock.stop()
		<-r.done
		r.sock.close()
	})
}

func (r *Responder) serve() {
	defer close(r.done)
	// Never unlocked: the thread ends with the goroutine. Locked, it wakes up
	// in the kernel right where it reads the clock.
	runtime.LockOSThread()
	var in [packetSize + 1]byte // one more tells longer packets apart
	for {
		n, from, kernel, err := r.sock.next(in[:])
		t2 := r.cfg.Source.Now()
		if err != nil {
			if errors.Is(err, errInterrupted) {
				return
			}
			// Transient on a socket without a peer (ENOMEM, ENOBUFS); the
			// pause keeps a lasting one from burning a core.
			r.count.failed.Add(1)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p, v := r.codec.open(in[:n], request)
		if v != accepted {
			r.count.drop(v)
			continue
		}
		if p.responder != r.id {
			r.count.misdirected.Add(1)
			continue
		}
		c := r.clients[p.client]
		if c == nil {
			if len(r.clients) == maxClients {
				r.count.refused.Add(1)
				continue
			}
			c = &client{}
			r.clients[p.client] = c
		}
		if !c.fresh(p.sequence) {
			r.count.replayed.Add(1)
			continue
		}
		if !r.afford(t2) {
			r.count.refused.Add(1)
			continue
		}
		r.answer(p, c, from, t2, kernel)
	}
}

// answer sends the answer to a request that the program received at t2 and the
// kernel when its wall clock showed kernel.
func (r *Responder) answer(p packet, c *client, from unix.Sockaddr, t2 clock.NodeTime, kernel int64) {
	var out [packetSize]byte
	p.direction, p.received = reply, int64(t2)
	before := r.bracket
	var err error
	if r.bracket, err = clock.Glance(r.cfg.Source); err != nil {
		r.bracket = clock.Bracket{}
	}
	p.kernelReceived, p.kernelAnswered, p.kernelOf = 0, 0, 0
	if _, late, ok := spanned(r.cfg.Source, before, r.bracket, kernel); ok {
		// A receive stamp must not be early.
		p.kernelReceived = int64(late)
	}
	if c.sent {
		if early, _, ok := spanned(r.cfg.Source, c.bracket, r.bracket, r.sock.departed(c.number)); ok {
			// A send stamp must not be late.
			p.kernelAnswered, p.kernelOf = int64(early), c.sequence
		}
	}
	p.answered = int64(r.cfg.Source.Now())
	r.codec.seal(p, out[:])
	number, err := r.sock.send(out[:], from)
	c.sent = err == nil
	if err != nil {
		r.count.failed.Add(1)
		return
	}
	c.sequence, c.number, c.bracket = p.sequence, number, r.bracket
	r.count.answered.Add(1)
}

// afford takes the price of one answer from what has been saved since the
// last one.
func (r *Responder) afford(now clock.NodeTime) bool {
	if passed := int64(now - r.last); passed > 0 {
		r.credit = min(r.credit+min(passed, int64(time.Second)), int64(time.Second))
	}
	r.last = now
	price := int64(time.Second) / int64(r.cfg.PerSecond)
	if r.credit < price {
		return false
	}
	r.credit -= price
	return true
}

// Stats counts what happened to packets.
type Stats struct {
	// Answered counts answers sent by a responder, or taken by a prober.
	Answered int64
	// Malformed is not a packet of this protocol; Foreign is another run's;
	// Forged carries a wrong MAC; Reflected is a packet on its way back;
	// Replayed was seen before or is too old to tell; Misdirected is meant
	// for another node or client.
	Malformed, Foreign, Forged, Reflected, Replayed, Misdirected int64
	// Late answers came after their burst; Refused requests were too many.
	Late, Refused int64
	// Failed counts errors of the socket.
	Failed int64
}

type counters struct {
	answered                                                     atomic.Int64
	malformed, foreign, forged, reflected, replayed, misdirected atomic.Int64
	late, refused                                                atomic.Int64
	failed                                                       atomic.Int64
}

func (c *counters) drop(v verdict) {
	switch v {
	case malformed:
		c.malformed.Add(1)
	case foreign:
		c.foreign.Add(1)
	case forged:
		c.forged.Add(1)
	case reflected:
		c.reflected.Add(1)
	}
}

func (c *counters) stats() Stats {
	return Stats{
		Answered:  c.answered.Load(),
		Malformed: c.malformed.Load(), Foreign: c.foreign.Load(), Forged: c.forged.Load(),
		Reflected: c.reflected.Load(), Replayed: c.replayed.Load(), Misdirected: c.misdirected.Load(),
		Late: c.late.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(),
	}
}
