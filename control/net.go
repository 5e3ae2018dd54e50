package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Ports is an inclusive range of ports to listen on; the zero value lets the
// kernel choose.
type Ports struct {
	Lo, Hi uint16
}

// ParsePorts reads "LO-HI" or one port; empty gives the zero value.
func ParsePorts(s string) (Ports, error) {
	if s == "" {
		return Ports{}, nil
	}
	lo, hi := s, s
	for i := range s {
		if s[i] == '-' {
			lo, hi = s[:i], s[i+1:]
			break
		}
	}
	a, errA := strconv.ParseUint(lo, 10, 16)
	b, errB := strconv.ParseUint(hi, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return Ports{}, fmt.Errorf("%q is not a range of ports such as 20000-20100", s)
	}
	return Ports{uint16(a), uint16(b)}, nil
}

// Each calls listen with one port after another until it succeeds.
func (p Ports) Each(listen func(port uint16) error) error {
	if p == (Ports{}) {
		return listen(0)
	}
	var err error
	for port := int(p.Lo); port <= int(p.Hi); port++ {
		if err = listen(uint16(port)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no free port in %d-%d: %w", p.Lo, p.Hi, err)
}

// Endpoint is where the head can be reached and the key that it expects.
type Endpoint struct {
	RunID string       `json:"run_id" yaml:"run_id"`
	Key   Key          `json:"key" yaml:"key"`
	Addrs []netip.Addr `json:"addrs" yaml:"addrs"`
	Port  uint16       `json:"port" yaml:"port"`
}

// Dial connects to the head by all its addresses at once and keeps the first
// that proves to hold the key. The addresses that lost are given up.
func Dial(ctx context.Context, e Endpoint) (*Conn, error) {
	if len(e.Addrs) == 0 {
		return nil, errors.New("connecting to the head: it published no address")
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	type result struct {
		c   *Conn
		err error
	}
	// Room for all, so that none waits for a reader that has left.
	results := make(chan result, len(e.Addrs))
	for _, a := range e.Addrs {
		go func() {
			c, err := dialOne(ctx, e, a)
			results <- result{c, err}
		}()
	}
	var errs []error
	for i := range e.Addrs {
		r := <-results
		if r.err == nil {
			go func() { // later ones are not needed
				for range len(e.Addrs) - i - 1 {
					if late := <-results; late.c != nil {
						late.c.Close()
					}
				}
			}()
			return r.c, nil
		}
		errs = append(errs, r.err)
	}
	return nil, fmt.Errorf("connecting to the head: %w", errors.Join(errs...))
}

func dialOne(ctx context.Context, e Endpoint, a netip.Addr) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, e.Port).String())
	if err != nil {
		return nil, err
	}
	// The handshake knows no context: closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c, err := handshake(nc, e.Key, e.RunID, true)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("%s: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

// Server accepts the agents of one run.
type Server struct {
	ln    *net.TCPListener
	key   Key
	runID string
}

// Listen opens the head's port.
func Listen(ports Ports, key Key, runID string) (*Server, error) {
	s := &Server{key: key, runID: runID}
	err := ports.Each(func(port uint16) error {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{Port: int(port)})
		s.ln = ln
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening for agents: %w", err)
	}
	return s, nil
}

// Endpoint returns where this server can be reached.
func (s *Server) Endpoint() (Endpoint, error) {
	addrs, err := LocalAddrs()
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{RunID: s.runID, Key: s.key, Addrs: addrs, Port: uint16(s.ln.Addr().(*net.TCPAddr).Port)}, nil
}

// maxStrangers is how many connections may be in their handshake at once.
const maxStrangers = 256

// Serve hands each connection that proves to belong to the run to handle, on a
// goroutine of its own, until Close. Strangers are dropped without an answer.
func (s *Server) Serve(handle func(*Conn)) {
	// A flood of strangers must not hold the agents off, who need one round
	// trip only: where too many are in their handshake the oldest goes.
	var mu sync.Mutex
	waiting := map[net.Conn]bool{}
	var order []net.Conn
	for {
		nc, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: try again when some are free
			time.Sleep(100 * time.Millisecond)
			continue
		}
		mu.Lock()
		waiting[nc] = true
		order = append(order, nc)
		for len(waiting) > maxStrangers || len(order) > 0 && !waiting[order[0]] {
			if waiting[order[0]] {
				order[0].Close() //nolint:errcheck // it has lost anyway
				delete(waiting, order[0])
			}
			order = order[1:]
		}
		mu.Unlock()
		go func() {
			c, err := handshake(nc, s.key, s.runID, false)
			mu.Lock()
			delete(waiting, nc)
			mu.Unlock()
			if err != nil {
				nc.Close()
				return
			}
			handle(c)
		}()
	}
}

// Close stops Serve. Connections that were handed out stay open.
func (s *Server) Close() error { return s.ln.Close() }

// LocalAddrs lists this node's addresses as literals, the loopback last: names
// resolve differently on every site, and an agent on this very node can use the
// loopback where nothing else is up. Link-local addresses are left out, since
// they mean nothing without the interface of the one who uses them.
func LocalAddrs() ([]netip.Addr, error) {
	ifaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this node's addresses: %w", err)
	}
	var addrs, loopback []netip.Addr
	for _, i := range ifaces {
		n, ok := i.(*net.IPNet)
		if !ok {
			continue
		}
		a, ok := netip.AddrFromSlice(n.IP)
		if !ok || a.IsLinkLocalUnicast() || a.IsMulticast() {
			continue
		}
		if a = a.Unmap(); a.IsLoopback() {
			loopback = append(loopback, a)
		} else {
			addrs = append(addrs, a)
		}
	}
	return append(addrs, loopback...), nil
}
