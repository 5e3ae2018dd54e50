package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MarkVar names, in a job's environment, the datagram socket that takes its
// marks: an abstract Unix socket, without the zero byte in front.
const MarkVar = "GSWARM_MARK"

// MaxMark is the length of the longest mark.
const MaxMark = 4096

// MarkName is the socket for the marks of a run. Every node's agent takes the
// same name, since abstract names are those of one network namespace.
func MarkName(runID string) string {
	return strings.TrimPrefix(SocketName(runID, "mark"), "@")
}

// Mark is one datagram as it came.
type Mark struct {
	Text []byte // valid until the next Receive
	// PID and UID are the sender's, by the kernel's word.
	PID, UID int
	// Sent is when the kernel took the datagram, on CLOCK_REALTIME; 0 where
	// it does not say.
	Sent int64
	// Cut says that the datagram was longer than MaxMark.
	Cut bool
}

// MarkSocket takes marks.
type MarkSocket struct {
	conn *net.UnixConn
	buf  []byte
	oob  []byte
}

// ListenMarks takes the name; ErrTaken says that another process has it.
func ListenMarks(name string) (*MarkSocket, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + name, Net: "unixgram"})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, ErrTaken
	}
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var serr error
		err = raw.Control(func(fd uintptr) {
			serr = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
		})
		err = errors.Join(err, serr)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("preparing the socket for marks: %w", err)
	}
	return &MarkSocket{conn: conn, buf: make([]byte, MaxMark+1), oob: make([]byte, 256)}, nil
}

// Receive waits for the next mark.
func (s *MarkSocket) Receive() (Mark, error) {
	n, oobn, flags, _, err := s.conn.ReadMsgUnix(s.buf, s.oob)
	if err != nil {
		return Mark{}, err
	}
	m := Mark{Text: s.buf[:min(n, MaxMark)], PID: -1, UID: -1, Cut: n > MaxMark || flags&unix.MSG_TRUNC != 0}
	messages, err := unix.ParseSocketControlMessage(s.oob[:oobn])
	if err != nil {
		return m, nil //nolint:nilerr // a mark whose sender is not known is the caller's to refuse
	}
	for i := range messages {
		switch c := &messages[i]; {
		case c.Header.Level != unix.SOL_SOCKET:
		case c.Header.Type == unix.SCM_CREDENTIALS:
			if cred, err := unix.ParseUnixCredentials(c); err == nil {
				m.PID, m.UID = int(cred.Pid), int(cred.Uid)
			}
		case c.Header.Type == unix.SCM_TIMESTAMPNS && len(c.Data) >= 16:
			m.Sent = int64(binary.NativeEndian.Uint64(c.Data))*1e9 + int64(binary.NativeEndian.Uint64(c.Data[8:]))
		case c.Header.Type == unix.SCM_RIGHTS: // nobody is to hand descriptors over
			if fds, err := unix.ParseUnixRights(c); err == nil {
				for _, fd := range fds {
					unix.Close(fd)
				}
			}
		}
	}
	return m, nil
}

// SetDeadline bounds the next Receive.
func (s *MarkSocket) SetDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }

// Close frees the name.
func (s *MarkSocket) Close() error { return s.conn.Close() }

// MarkSender sends marks without ever waiting.
type MarkSender struct {
	fd int
	to unix.SockaddrUnix
}

// NewMarkSender opens a socket for marks to the one that MarkVar names.
func NewMarkSender(name string) (*MarkSender, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return &MarkSender{fd: fd, to: unix.SockaddrUnix{Name: "@" + name}}, nil
}

// Send sends one mark. Where the agent is behind it is EAGAIN, and where there
// is none ECONNREFUSED.
func (s *MarkSender) Send(text []byte) error {
	return os.NewSyscallError("sendto", unix.Sendto(s.fd, text, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &s.to))
}

// Close closes the socket.
func (s *MarkSender) Close() error { return unix.Close(s.fd) }
