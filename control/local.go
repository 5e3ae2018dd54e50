package control

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SocketName is the abstract Unix socket of a run's agent on this node. The
// kernel frees the name when its owner dies, so a dead agent can be replaced,
// and it exists in one network namespace only, so two containers of one host
// are two nodes. What tells samplers of one node apart (the GPUs they see) goes
// into part.
func SocketName(runID, part string) string {
	sum := sha256.Sum256([]byte(runID + "\x00" + part))
	return "@gswarm/" + fmt.Sprint(os.Getuid()) + "/" + base64.RawURLEncoding.EncodeToString(sum[:12])
}

// ErrTaken says that another process owns the name.
var ErrTaken = errors.New("another process has it")

// Election is won by the process that holds it.
type Election struct{ ln *net.UnixListener }

// Elect makes the caller the one that may start the agent, until Close or its
// death. ErrTaken says that another is at it.
func Elect(name string) (*Election, error) {
	ln, err := listenUnix(name + "/elect")
	if err != nil {
		return nil, err
	}
	return &Election{ln}, nil
}

// Close gives the election up.
func (e *Election) Close() error { return e.ln.Close() }

func listenUnix(name string) (*net.UnixListener, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, ErrTaken
	}
	return ln, err
}

// LocalServer is the agent's side of the node's socket.
type LocalServer struct{ ln *net.UnixListener }

// ListenLocal takes the node's socket; ErrTaken says that the node has its
// agent.
func ListenLocal(name string) (*LocalServer, error) {
	ln, err := listenUnix(name)
	if err != nil {
		return nil, err
	}
	return &LocalServer{ln}, nil
}

// Serve hands each connection of the same user to handle until Close.
func (s *LocalServer) Serve(handle func(*LocalConn)) {
	for {
		nc, err := s.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !sameUser(nc) {
			nc.Close()
			continue
		}
		go handle(newLocalConn(nc))
	}
}

// Close frees the name.
func (s *LocalServer) Close() error { return s.ln.Close() }

// LocalConn carries messages within a node. The kernel vouches for the other
// side's user, so it needs no key.
type LocalConn struct {
	nc *net.UnixConn
	r  *bufio.Scanner
	mu sync.Mutex
}

func newLocalConn(nc *net.UnixConn) *LocalConn {
	r := bufio.NewScanner(nc)
	r.Buffer(make([]byte, 0, 1024), 64<<10)
	return &LocalConn{nc: nc, r: r}
}

// DialLocal connects to the node's agent. The agent must run as the same user:
// anybody could bind the name.
func DialLocal(name string) (*LocalConn, error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("connecting to the node's agent: %w", err)
	}
	if !sameUser(nc) {
		nc.Close()
		return nil, fmt.Errorf("connecting to the node's agent: %w", ErrForeign)
	}
	return newLocalConn(nc), nil
}

// Send sends one message, giving up after a second.
func (c *LocalConn) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a failed deadline shows in the write
	_, err = c.nc.Write(append(b, '\n'))
	return err
}

// Receive waits for the next message; net.ErrClosed says that the other side
// is gone.
func (c *LocalConn) Receive() (Message, error) {
	if !c.r.Scan() {
		if err := c.r.Err(); err != nil {
			return Message{}, err
		}
		return Message{}, net.ErrClosed
	}
	var m Message
	if err := json.Unmarshal(c.r.Bytes(), &m); err != nil {
		return Message{}, fmt.Errorf("message on the node's socket: %w", err)
	}
	return m, nil
}

// SetDeadline bounds the next Receive.
func (c *LocalConn) SetDeadline(t time.Time) error { return c.nc.SetReadDeadline(t) }

// Close closes the connection.
func (c *LocalConn) Close() error { return c.nc.Close() }

func sameUser(nc *net.UnixConn) bool {
	raw, err := nc.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(cred.Uid) == os.Getuid()
	})
	return err == nil && same
}
