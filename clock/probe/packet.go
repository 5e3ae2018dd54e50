package probe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// The packet, the same size in both directions so that no answer is larger
// than what asked for it. Integers are big-endian.
//
//	 0  "gswC"     4  version      5  direction    6  zero, zero
//	 8  run       16  responder   24  client      32  sequence    40  nonce
//	48  T2        56  T3          64  K2          72  K3          80  of
//	88  MAC
//
// K2 is when the kernel received this request, K3 when it sent the answer to the
// request whose sequence number is at 80: the kernel says so only once that
// answer has left. Both are of the raw clock like T2 and T3, and zero where the
// kernel gave no stamp. All of these are zero in a request. T1 and T4 never travel: the client keeps
// them, and so stamps T1 after the MAC is made. The MAC is the first half of
// an HMAC-SHA256 over all that precedes it, under a key derived from the run's.
const (
	packetSize = 104
	macOffset  = 88
	macSize    = packetSize - macOffset
	version    = 2
)

const magic = "gswC"

// Directions. A packet that is sent back to where it came from has the wrong
// one.
const (
	request = 1
	reply   = 2
)

// minKey is the shortest key that is taken: 128 bits.
const minKey = 16

// packet is what travels.
type packet struct {
	direction          byte
	responder, client  uint64
	sequence, nonce    uint64
	received, answered int64 // T2, T3
	// The kernel's: T2 of this exchange, T3 of the one named.
	kernelReceived, kernelAnswered int64
	kernelOf                       uint64
}

// verdict says what became of a packet that arrived.
type verdict uint8

const (
	accepted  verdict = iota
	malformed         // not a packet of ours at all
	foreign           // of another run
	forged            // its MAC is wrong
	reflected         // ours, going the wrong way
)

// codec makes and checks packets of one run. It is not safe for concurrent
// use.
type codec struct {
	run uint64
	mac hash.Hash
	sum [sha256.Size]byte
}

var errShortKey = errors.New("the run's key is too short")

func newCodec(key []byte, run string) (*codec, error) {
	if len(key) < minKey {
		return nil, fmt.Errorf("%w: %d bytes, want at least %d", errShortKey, len(key), minKey)
	}
	// A key of its own: what the control connection signs with the run's key
	// is of no use here, nor the other way round.
	derive := hmac.New(sha256.New, key)
	derive.Write([]byte("gswarm clock probe 1"))
	return &codec{run: identity("run", run), mac: hmac.New(sha256.New, derive.Sum(nil))}, nil
}

// identity is a name in 64 bits. It keeps strangers apart, not attackers: those
// lack the key.
func identity(kind string, names ...string) uint64 {
	h := sha256.New()
	h.Write([]byte("gswarm " + kind))
	for _, n := range names {
		h.Write([]byte{0})
		h.Write([]byte(n))
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// seal writes p into buf, which must hold packetSize bytes.
func (c *codec) seal(p packet, buf []byte) {
	_ = buf[packetSize-1]
	copy(buf, magic)
	buf[4], buf[5], buf[6], buf[7] = version, p.direction, 0, 0
	for i, v := range [...]uint64{c.run, p.responder, p.client, p.sequence, p.nonce,
		uint64(p.received), uint64(p.answered), uint64(p.kernelReceived), uint64(p.kernelAnswered), p.kernelOf} {
		binary.BigEndian.PutUint64(buf[8+8*i:], v)
	}
	copy(buf[macOffset:packetSize], c.sign(buf[:macOffset]))
}

// open checks what arrived and takes it apart. want is the direction in which
// packets reach the caller.
func (c *codec) open(buf []byte, want byte) (packet, verdict) {
	if len(buf) != packetSize || string(buf[:4]) != magic || buf[4] != version || buf[6] != 0 || buf[7] != 0 {
		return packet{}, malformed
	}
	var v [10]uint64
	for i := range v {
		v[i] = binary.BigEndian.Uint64(buf[8+8*i:])
	}
	if v[0] != c.run {
		return packet{}, foreign
	}
	if !hmac.Equal(buf[macOffset:], c.sign(buf[:macOffset])) {
		return packet{}, forged
	}
	if buf[5] != want {
		return packet{}, reflected
	}
	return packet{
		direction: buf[5], responder: v[1], client: v[2], sequence: v[3], nonce: v[4],
		received: int64(v[5]), answered: int64(v[6]),
		kernelReceived: int64(v[7]), kernelAnswered: int64(v[8]), kernelOf: v[9],
	}, accepted
}

func (c *codec) sign(b []byte) []byte {
	c.mac.Reset()
	c.mac.Write(b)
	return c.mac.Sum(c.sum[:0])[:macSize]
}

// window remembers which of a client's latest sequence numbers were seen.
type window struct {
	top  uint64
	seen uint64 // bit i: top-i
}

// windowSize is how far behind the newest request a request may arrive.
const windowSize = 64

// fresh takes note of a sequence number and says whether it is new.
func (w *window) fresh(seq uint64) bool {
	if seq > w.top {
		if d := seq - w.top; d < windowSize {
			w.seen = w.seen<<d | 1
		} else {
			w.seen = 1
		}
		w.top = seq
		return true
	}
	d := w.top - seq
	if d >= windowSize || w.seen&(1<<d) != 0 {
		return false
	}
	w.seen |= 1 << d
	return true
}
