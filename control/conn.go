package control

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	greeting = "gswarm/1"
	nonceLen = 16
	macLen   = 16
	// maxMessage bounds what a peer can make us allocate.
	maxMessage       = 1 << 20
	handshakeTimeout = 5 * time.Second
)

// ErrForeign says that the other side does not hold this run's key.
var ErrForeign = errors.New("the other side does not belong to this run")

// Conn is an authenticated connection between two processes of one run. Each
// message carries a code over its content, direction and number, so that none
// can be forged, replayed or reordered; contents are not secret.
//
// One goroutine may Receive while others Send.
type Conn struct {
	nc      net.Conn
	r       *bufio.Reader
	inKey   []byte
	inSeq   uint64
	mu      sync.Mutex // guards what Send uses
	outKey  []byte
	outSeq  uint64
	timeout time.Duration
}

// handshake proves to each side that the other holds the key:
//
//	client → greeting, run id's hash, nonce
//	server → nonce, code over both nonces
//	client → code over both nonces
func handshake(nc net.Conn, key Key, runID string, client bool) (*Conn, error) {
	nc.SetDeadline(time.Now().Add(handshakeTimeout)) //nolint:errcheck // a failed deadline shows in the next read
	defer nc.SetDeadline(time.Time{})                //nolint:errcheck // likewise
	r := bufio.NewReaderSize(nc, 4096)
	id := sha256.Sum256([]byte(runID))
	mine := make([]byte, nonceLen)
	rand.Read(mine) // never fails
	var clientNonce, serverNonce []byte
	if client {
		clientNonce = mine
		if _, err := nc.Write(append(append([]byte(greeting), id[:]...), mine...)); err != nil {
			return nil, err
		}
		answer := make([]byte, nonceLen+sha256.Size)
		if _, err := io.ReadFull(r, answer); err != nil {
			return nil, foreign(err)
		}
		serverNonce = answer[:nonceLen]
		if !hmac.Equal(answer[nonceLen:], key.derive("server", id[:], clientNonce, serverNonce)) {
			return nil, ErrForeign
		}
		if _, err := nc.Write(key.derive("client", id[:], clientNonce, serverNonce)); err != nil {
			return nil, err
		}
	} else {
		serverNonce = mine
		hello := make([]byte, len(greeting)+sha256.Size+nonceLen)
		if _, err := io.ReadFull(r, hello); err != nil {
			return nil, foreign(err)
		}
		if string(hello[:len(greeting)]) != greeting || !hmac.Equal(hello[len(greeting):len(greeting)+sha256.Size], id[:]) {
			return nil, ErrForeign
		}
		clientNonce = hello[len(greeting)+sha256.Size:]
		if _, err := nc.Write(append(append([]byte(nil), mine...), key.derive("server", id[:], clientNonce, serverNonce)...)); err != nil {
			return nil, err
		}
		proof := make([]byte, sha256.Size)
		if _, err := io.ReadFull(r, proof); err != nil {
			return nil, foreign(err)
		}
		if !hmac.Equal(proof, key.derive("client", id[:], clientNonce, serverNonce)) {
			return nil, ErrForeign
		}
	}
	toServer := key.derive("to server", clientNonce, serverNonce)
	toClient := key.derive("to client", clientNonce, serverNonce)
	c := &Conn{nc: nc, r: r, inKey: toServer, outKey: toClient, timeout: 5 * time.Second}
	if client {
		c.inKey, c.outKey = toClient, toServer
	}
	return c, nil
}

func foreign(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrForeign
	}
	return err
}

// Send sends one message. It gives up after a few seconds rather than wait for
// a peer that does not read.
func (c *Conn) Send(m Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if len(body) > maxMessage {
		return fmt.Errorf("message of %d bytes is longer than the %d allowed", len(body), maxMessage)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	frame := make([]byte, 4, 4+macLen+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	frame = append(frame, code(c.outKey, c.outSeq, body)...)
	frame = append(frame, body...)
	c.outSeq++
	c.nc.SetWriteDeadline(time.Now().Add(c.timeout)) //nolint:errcheck // a failed deadline shows in the write
	if _, err := c.nc.Write(frame); err != nil {
		return fmt.Errorf("sending to %s: %w", c.nc.RemoteAddr(), err)
	}
	return nil
}

// Receive waits for the next message. io.EOF says that the other side closed
// the connection.
func (c *Conn) Receive() (Message, error) {
	var head [4 + macLen]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return Message{}, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n > maxMessage {
		return Message{}, fmt.Errorf("message of %d bytes from %s is longer than the %d allowed", n, c.nc.RemoteAddr(), maxMessage)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return Message{}, err
	}
	if !hmac.Equal(head[4:], code(c.inKey, c.inSeq, body)) {
		return Message{}, fmt.Errorf("message from %s: %w", c.nc.RemoteAddr(), ErrForeign)
	}
	c.inSeq++
	var m Message
	if err := json.Unmarshal(body, &m); err != nil {
		return Message{}, fmt.Errorf("message from %s: %w", c.nc.RemoteAddr(), err)
	}
	return m, nil
}

// Close closes the connection. A blocked Receive returns.
func (c *Conn) Close() error { return c.nc.Close() }

// RemoteAddr is the address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// SetDeadline bounds the next Receive.
func (c *Conn) SetDeadline(t time.Time) error { return c.nc.SetReadDeadline(t) }

func code(key []byte, seq uint64, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	var s [8]byte
	binary.BigEndian.PutUint64(s[:], seq)
	m.Write(s[:])
	m.Write(body)
	return m.Sum(nil)[:macLen]
}
