package control

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// newTestConn is a connection over nc with the keys and numbers of c.
func newTestConn(nc net.Conn, c *Conn) *Conn {
	return &Conn{nc: nc, r: bufio.NewReader(nc), inKey: c.inKey, outKey: c.outKey, timeout: c.timeout}
}

// until polls for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
	}
}
