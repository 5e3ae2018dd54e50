package control

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func markPair(t testing.TB) (*MarkSocket, *MarkSender) {
	t.Helper()
	name := MarkName(fmt.Sprint(t.Name(), os.Getpid()))
	s, err := ListenMarks(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := ListenMarks(name); !errors.Is(err, ErrTaken) {
		t.Errorf("the name twice: %v", err)
	}
	c, err := NewMarkSender(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, c
}

func TestMarks(t *testing.T) {
	s, c := markPair(t)
	for _, text := range []string{"epoch 3", "", strings.Repeat("x", MaxMark), strings.Repeat("x", MaxMark+1), strings.Repeat("x", 3*MaxMark)} {
		before := time.Now().UnixNano()
		if err := c.Send([]byte(text)); err != nil {
			t.Fatal(err)
		}
		after := time.Now().UnixNano()
		m, err := s.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if want := text[:min(len(text), MaxMark)]; string(m.Text) != want || m.Cut != (len(text) > MaxMark) || m.PID != os.Getpid() || m.UID != os.Getuid() {
			t.Errorf("got %d bytes, cut %v, of %d by %d", len(m.Text), m.Cut, m.PID, m.UID)
		}
		if m.Sent < before || m.Sent > after {
			t.Errorf("sent at %d, not within %d and %d", m.Sent, before, after)
		}
	}
	s.Close()
	if err := c.Send([]byte("x")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("to nobody: %v", err)
	}
}

// TestMarkDescriptors asserts that a mark with a descriptor leaves none open.
func TestMarkDescriptors(t *testing.T) {
	s, c := markPair(t)
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	before := count()
	for range 20 {
		if err := unix.Sendmsg(c.fd, []byte("x"), unix.UnixRights(0), &c.to, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after > before+5 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// BenchmarkMark is what a mark costs its sender while the agent takes it: the
// metric sender-ns/op is the call alone, without the wait until it was taken.
func BenchmarkMark(b *testing.B) {
	s, c := markPair(b)
	taken := make(chan struct{})
	go func() {
		for {
			if _, err := s.Receive(); err != nil {
				return
			}
			taken <- struct{}{}
		}
	}()
	text := []byte("epoch 3")
	spent := time.Duration(0)
	for b.Loop() {
		begin := time.Now()
		if err := c.Send(text); err != nil {
			b.Fatal(err)
		}
		spent += time.Since(begin)
		<-taken
	}
	b.ReportMetric(float64(spent)/float64(b.N), "sender-ns/op")
}
