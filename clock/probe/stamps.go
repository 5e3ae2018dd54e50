package probe

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stamper asks the kernel for its own stamps of packets, taken in the driver
// right before a packet leaves and right after one arrived: what the program
// waits for until it runs again is not in them. No privilege is needed. Stamps
// of sent packets come later, on the socket's error queue, numbered.
//
// A kernel or an interface that gives none leaves the program's own stamps.
type stamper struct {
	on   bool
	next uint32
	owed int // stamps of sent packets that are still to come
	ring [stampRing]departure
	oob  [256]byte
}

// stampRing is how many sent packets are remembered.
const stampRing = 64

type departure struct {
	number uint32
	at     int64
}

// enable turns stamps on, if the kernel has them.
func (s *stamper) enable(fd int) {
	flags := unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_TX_SOFTWARE |
		unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	s.on = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags) == nil
}

// sent returns the number of the packet that was just sent. The kernel counts
// in the same way, from 0, and not those that could not be sent.
func (s *stamper) sent() uint32 {
	n := s.next
	s.next++
	s.owed++
	return n
}

func (s *stamper) at(number uint32) int64 {
	if d := &s.ring[number%stampRing]; d.at != 0 && d.number == number {
		return d.at
	}
	return 0
}

// recv receives a packet and the kernel's stamp of it. It waits for one unless
// the flags say not to.
func (s *stamper) recv(fd int, buf []byte, flags int) (n int, at int64, from unix.Sockaddr, err error) {
	n, oobn, _, from, err := unix.Recvmsg(fd, buf, s.oob[:], flags)
	if err != nil || !s.on {
		return n, 0, from, err
	}
	at, _, _ = parseStamps(s.oob[:oobn])
	return n, at, from, nil
}

// collect takes what the error queue holds.
func (s *stamper) collect(fd int) {
	var none [1]byte
	for range 2 * stampRing { // never for ever
		_, oobn, _, _, err := unix.Recvmsg(fd, none[:], s.oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			s.owed = 0 // what is still to come makes itself known
			return
		}
		if at, number, numbered := parseStamps(s.oob[:oobn]); at != 0 && numbered {
			s.ring[number%stampRing] = departure{number, at}
			if s.owed--; s.owed == 0 {
				return // without asking in vain
			}
		}
	}
}

// parseStamps finds the kernel's software stamp in a packet's ancillary data,
// and the number of the sent packet that it is of.
func parseStamps(oob []byte) (at int64, number uint32, numbered bool) {
	for len(oob) >= unix.CmsgLen(0) {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return at, number, numbered
		}
		oob = rest
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPING && len(data) >= 16:
			// Three timespecs; the first is the software stamp.
			at = int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
		case h.Level == unix.SOL_IP && h.Type == unix.IP_RECVERR || h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_RECVERR:
			if len(data) < int(unsafe.Sizeof(unix.SockExtendedErr{})) {
				continue
			}
			if data[4] == unix.SO_EE_ORIGIN_TIMESTAMPING { // after a 32-bit errno
				number, numbered = binary.NativeEndian.Uint32(data[12:]), true
			}
		}
	}
	return at, number, numbered
}
