package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a UDP socket that is read by blocking system calls: the runtime's
// poller would put a scheduling delay between a packet's arrival and its
// stamp, which is the very thing that widens the bound.
type socket struct {
	fd, wake int // wake is an eventfd that ends a wait
	six      bool
	port     int
	stamps   stamper
	stopped  atomic.Bool
}

// open binds a UDP socket to the first free port from low to high on all
// addresses, IPv6 and IPv4 where the kernel has both. Ports 0 to 0 leave the
// choice to the kernel.
func open(low, high int) (*socket, error) {
	if low < 0 || high > 65535 || low > high {
		return nil, fmt.Errorf("ports %d to %d are no range", low, high)
	}
	var err error
	for _, six := range []bool{true, false} {
		for port := low; port <= high; port++ {
			var s *socket
			if s, err = bind(six, port); err == nil {
				return s, nil
			}
			if !errors.Is(err, unix.EADDRINUSE) {
				break // a kernel without IPv6 says so for every port
			}
		}
		if errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("binding a UDP port of %d to %d: %w", low, high, err)
}

func bind(six bool, port int) (*socket, error) {
	family := unix.AF_INET
	var at unix.Sockaddr = &unix.SockaddrInet4{Port: port}
	if six {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: port}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, wake: -1, six: six}
	if six {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			s.close()
			return nil, os.NewSyscallError("setsockopt IPV6_V6ONLY", err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		s.close()
		return nil, os.NewSyscallError("bind", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		s.close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	s.stamps.enable(fd)
	name, err := unix.Getsockname(fd)
	if err != nil {
		s.close()
		return nil, os.NewSyscallError("getsockname", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		s.port = a.Port
	case *unix.SockaddrInet6:
		s.port = a.Port
	}
	return s, nil
}

// close frees the descriptors. Nobody may be waiting.
func (s *socket) close() {
	unix.Close(s.fd)
	if s.wake >= 0 {
		unix.Close(s.wake)
	}
}

// interrupt ends the wait that is going on, and every later one until rearm.
func (s *socket) interrupt() {
	one := [8]byte{0: 1, 7: 1}        // not zero in either byte order
	_, _ = unix.Write(s.wake, one[:]) // an event descriptor that is full is set
}

// rearm takes an interrupt back.
func (s *socket) rearm() {
	var b [8]byte
	_, _ = unix.Read(s.wake, b[:]) // one that is empty is not
}

var (
	errTimeout     = errors.New("timeout")
	errInterrupted = errors.New("interrupted")
)

// next waits for a packet until stop is called. The wait is within recvmsg: a
// poll would end for each stamp of a sent packet, too, and waking the Go runtime
// is most of what an answer costs.
func (s *socket) next(buf []byte) (n int, from unix.Sockaddr, kernel int64, err error) {
	for {
		n, kernel, from, err := s.stamps.recv(s.fd, buf, 0)
		switch {
		case s.stopped.Load():
			return 0, nil, 0, errInterrupted
		case errors.Is(err, unix.EINTR):
			continue
		}
		return n, from, kernel, os.NewSyscallError("recvmsg", err)
	}
}

// stop ends the wait of next, for good. Shutting a socket without a peer down
// fails, but wakes those who wait on it.
func (s *socket) stop() {
	s.stopped.Store(true)
	unix.Shutdown(s.fd, unix.SHUT_RDWR) //nolint:errcheck // ENOTCONN, always
}

// receive waits for a packet until the deadline. A packet longer than buf fills
// it. kernel is the wall clock at which the kernel received the packet, 0 where
// it did not say.
func (s *socket) receive(buf []byte, deadline time.Time) (n int, from unix.Sockaddr, kernel int64, err error) {
	for {
		fds := [2]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
		left := unix.NsecToTimespec(max(int64(time.Until(deadline)), 0))
		n, err := unix.Ppoll(fds[:], &left, nil)
		switch {
		case errors.Is(err, unix.EINTR): // the runtime's own signals
			continue
		case err != nil:
			return 0, nil, 0, os.NewSyscallError("ppoll", err)
		case fds[1].Revents != 0:
			return 0, nil, 0, errInterrupted
		case n == 0:
			return 0, nil, 0, errTimeout
		}
		if fds[0].Revents&unix.POLLERR != 0 {
			s.stamps.collect(s.fd)
			if fds[0].Revents&unix.POLLIN == 0 {
				if v, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && v != 0 {
					return 0, nil, 0, os.NewSyscallError("recvmsg", unix.Errno(v))
				}
				continue
			}
		}
		n, kernel, from, err := s.stamps.recv(s.fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		return n, from, kernel, os.NewSyscallError("recvmsg", err)
	}
}

// send sends b to an address made by sockaddr or got from receive. The kernel's
// stamp of it is found by the number that is returned.
func (s *socket) send(b []byte, to unix.Sockaddr) (uint32, error) {
	for {
		err := unix.Sendto(s.fd, b, unix.MSG_DONTWAIT, to)
		if err == nil {
			return s.stamps.sent(), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, os.NewSyscallError("sendto", err)
		}
	}
}

// departed returns the wall clock at which the kernel sent a packet, 0 where it
// has not said.
func (s *socket) departed(number uint32) int64 {
	if s.stamps.at(number) == 0 {
		s.stamps.collect(s.fd)
	}
	return s.stamps.at(number)
}

// sockaddr is the address as this socket takes it.
func (s *socket) sockaddr(a netip.AddrPort) (unix.Sockaddr, error) {
	ip := a.Addr()
	if !ip.IsValid() || a.Port() == 0 {
		return nil, fmt.Errorf("%s is no address with a port", a)
	}
	if !s.six {
		if ip = ip.Unmap(); !ip.Is4() {
			return nil, fmt.Errorf("%s: this machine has no IPv6", a)
		}
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}, nil
	}
	to := &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()} // maps IPv4
	if z := ip.Zone(); z != "" {
		if n, err := strconv.ParseUint(z, 10, 32); err == nil {
			to.ZoneId = uint32(n)
		} else if i, err := net.InterfaceByName(z); err == nil {
			to.ZoneId = uint32(i.Index)
		} else {
			return nil, fmt.Errorf("%s: %w", a, err)
		}
	}
	return to, nil
}
