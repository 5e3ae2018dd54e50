package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

const patience = 30 * time.Second

// serve opens a server that echoes every message, and returns how to reach it.
func serve(t *testing.T, key Key, run string) Endpoint {
	t.Helper()
	s, err := Listen(Ports{}, key, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	go s.Serve(func(c *Conn) {
		defer c.Close()
		for {
			m, err := c.Receive()
			if err != nil || c.Send(m) != nil {
				return
			}
		}
	})
	e, err := s.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	e.Addrs = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	return e
}

func dial(t *testing.T, e Endpoint) (*Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := Dial(ctx, e)
	if err == nil {
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

func echo(t *testing.T, c *Conn, reason string) error {
	t.Helper()
	if err := c.Send(Message{Stop: &Stop{Reason: reason}}); err != nil {
		return err
	}
	m, err := c.Receive()
	if err == nil && (m.Stop == nil || m.Stop.Reason != reason) {
		t.Errorf("the answer to %q is %+v", reason, m)
	}
	return err
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	key := NewKey()
	e := serve(t, key, "run")
	for _, c := range []struct {
		name   string
		change func(*Endpoint)
		ok     bool
	}{
		{"right", func(*Endpoint) {}, true},
		{"another key", func(e *Endpoint) { e.Key = NewKey() }, false},
		{"one bit of the key", func(e *Endpoint) { e.Key[31] ^= 1 }, false},
		{"no key", func(e *Endpoint) { e.Key = Key{} }, false},
		{"another run", func(e *Endpoint) { e.RunID = "run2" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := e
			c.change(&e)
			conn, err := dial(t, e)
			if !c.ok {
				if !errors.Is(err, ErrForeign) {
					t.Errorf("error %v", err)
				}
				if err != nil && strings.Contains(err.Error(), string(e.Key[:])) {
					t.Error("the key is in the error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []string{"a", "", strings.Repeat("x", 1<<19)} {
				if err := echo(t, conn, m); err != nil {
					t.Error(err)
				}
			}
			if err := conn.Send(Message{Stop: &Stop{Reason: strings.Repeat("x", maxMessage)}}); err == nil {
				t.Error("a message that is too long was sent")
			}
			if err := echo(t, conn, "still works"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServerProvesItself: who answers without the key gets nothing out of a
// client.
func TestServerProvesItself(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "short", strings.Repeat("\x00", 48), strings.Repeat("x", 5000)} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				io.CopyN(io.Discard, nc, int64(len(greeting)+32+nonceLen))
				io.WriteString(nc, answer)
				nc.Close()
			}
		}()
		e := Endpoint{RunID: "run", Key: NewKey(), Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Port: uint16(ln.Addr().(*net.TCPAddr).Port)}
		if c, err := dial(t, e); err == nil {
			t.Errorf("%q: connected", answer)
			c.Close()
		}
	}
}

// tap is a connection that keeps what was written.
type tap struct {
	net.Conn
	sent bytes.Buffer
}

func (c *tap) Write(b []byte) (int, error) {
	c.sent.Write(b)
	return c.Conn.Write(b)
}

// TestReplay: what was recorded of one connection is worth nothing on another,
// nor twice on its own.
func TestReplay(t *testing.T) {
	t.Parallel()
	key := NewKey()
	e := serve(t, key, "run")
	addr := netip.AddrPortFrom(e.Addrs[0], e.Port).String()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	rec := &tap{Conn: nc}
	c, err := handshake(rec, key, "run", true)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	shaken := rec.sent.Len()
	if err := echo(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	recorded := slices.Clone(rec.sent.Bytes())

	again, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.SetDeadline(time.Now().Add(patience))
	again.Write(recorded)
	b, _ := io.ReadAll(again)
	if len(b) > nonceLen+32 {
		t.Errorf("a replayed connection got %d bytes", len(b))
	}

	// The same message once more, on the connection that it was sent on.
	nc.Write(recorded[shaken:])
	if m, err := c.Receive(); err == nil {
		t.Errorf("a replayed message was answered by %+v", m)
	}
}

// TestTampered: no changed byte of a frame gets through.
func TestTampered(t *testing.T) {
	t.Parallel()
	key := NewKey()
	var frame []byte
	{
		a, b := pair(t, key)
		go a.Send(Message{Stop: &Stop{Reason: "stop"}})
		frame = make([]byte, 4+macLen+len(`{"stop":{"reason":"stop"}}`))
		if _, err := io.ReadFull(b.r, frame); err != nil {
			t.Fatal(err)
		}
		// The keys of another connection differ, so frames are decoded by
		// the connection that they were made for.
		for i := range frame {
			bad := slices.Clone(frame)
			bad[i] ^= 0x40
			if m, err := decode(b, bad); err == nil {
				t.Errorf("byte %d changed: %+v", i, m)
			}
		}
		for n := range frame {
			if m, err := decode(b, frame[:n]); err == nil {
				t.Errorf("cut to %d bytes: %+v", n, m)
			}
		}
		if _, err := decode(b, frame); err != nil {
			t.Errorf("unchanged: %v", err)
		}
		huge := slices.Clone(frame)
		binary.BigEndian.PutUint32(huge, 1<<31)
		if _, err := decode(b, huge); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("a length of 2 GiB: %v", err)
		}
	}
}

// pair returns both ends of an authenticated connection.
func pair(tb testing.TB, key Key) (client, server *Conn) {
	tb.Helper()
	a, b := net.Pipe()
	tb.Cleanup(func() { a.Close(); b.Close() })
	done := make(chan error, 1)
	go func() {
		var err error
		server, err = handshake(b, key, "run", false)
		done <- err
	}()
	client, err := handshake(a, key, "run", true)
	if err := errors.Join(err, <-done); err != nil {
		tb.Fatal(err)
	}
	return client, server
}

// decode has a copy of the connection receive the bytes and no more.
func decode(c *Conn, b []byte) (Message, error) {
	left, right := net.Pipe()
	defer left.Close()
	go func() {
		right.Write(b)
		right.Close()
	}()
	return newTestConn(left, c).Receive()
}

func FuzzReceive(f *testing.F) {
	_, server := pair(f, NewKey())
	body := []byte(`{"stop":{"reason":"x"}}`)
	good := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	good = append(append(good, code(server.inKey, 0, body)...), body...)
	f.Add(good)
	f.Add(good[:10])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(server, b)
		if err == nil && !bytes.HasPrefix(b, good) {
			t.Errorf("accepted %+v", m)
		}
	})
}

func FuzzHandshake(f *testing.F) {
	key := NewKey()
	f.Add([]byte(greeting), true)
	f.Add(bytes.Repeat([]byte{0}, 200), false)
	f.Fuzz(func(t *testing.T, b []byte, client bool) {
		left, right := net.Pipe()
		defer left.Close()
		go io.Copy(io.Discard, right)
		go func() {
			right.Write(b)
			right.Close()
		}()
		if _, err := handshake(left, key, "run", client); err == nil {
			t.Error("garbage was taken for a peer")
		}
	})
}

// TestStrangers: a crowd of connections that never say anything does not keep an
// agent out.
func TestStrangers(t *testing.T) {
	t.Parallel()
	key := NewKey()
	e := serve(t, key, "run")
	addr := netip.AddrPortFrom(e.Addrs[0], e.Port).String()
	for i := range maxStrangers + 60 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if i%3 == 0 {
			io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("x", 100))
		}
	}
	begin := time.Now()
	c, err := dial(t, e)
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(t, c, "hello"); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d >= handshakeTimeout {
		t.Errorf("it took %s", d)
	}
}

// TestDialPicksTheLiveAddress: dead, silent and foreign addresses do not hold up
// the one that works, and where none does it is an error in time.
func TestDialPicksTheLiveAddress(t *testing.T) {
	t.Parallel()
	e := serve(t, NewKey(), "run")
	dead := []netip.Addr{
		netip.MustParseAddr("127.0.0.77"),   // refuses, or is this host too
		netip.MustParseAddr("192.0.2.77"),   // nobody
		netip.MustParseAddr("2001:db8::77"), // no route
		netip.MustParseAddr("240.0.0.1"),
	}
	e.Addrs = append(slices.Clone(dead), e.Addrs...)
	c, err := dial(t, e)
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(t, c, "x"); err != nil {
		t.Error(err)
	}

	// A server that accepts and says nothing.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	e.Port = uint16(ln.Addr().(*net.TCPAddr).Port)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := Dial(ctx, e)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("connected to nobody")
		}
	case <-time.After(patience):
		t.Fatal("Dial does not end")
	}
	e.Addrs = nil
	if _, err := dial(t, e); err == nil {
		t.Error("connected to no address")
	}
}

// TestDialGivesUp: the end of the context ends Dial, however many addresses are
// still being tried.
func TestDialGivesUp(t *testing.T) {
	t.Parallel()
	e := Endpoint{RunID: "run", Port: 9, Addrs: slices.Repeat([]netip.Addr{netip.MustParseAddr("192.0.2.77")}, 8)}
	for range 20 {
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			defer cancel()
			_, err := Dial(ctx, e)
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("connected to nobody")
			}
		case <-time.After(patience):
			t.Fatal("Dial does not end")
		}
	}
}

func TestParsePorts(t *testing.T) {
	for s, want := range map[string]Ports{"": {}, "7": {7, 7}, "20000-20100": {20000, 20100}, "65535-65535": {65535, 65535}} {
		if p, err := ParsePorts(s); err != nil || p != want {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"0", "-", "5-", "-5", "9-8", "70000", "1-70000", "a-b", "1-2-3", " 1"} {
		if p, err := ParsePorts(s); err == nil {
			t.Errorf("%q: %v", s, p)
		}
	}
}

func TestPortsAreTried(t *testing.T) {
	t.Parallel()
	a, err := Listen(Ports{}, NewKey(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	port := uint16(a.ln.Addr().(*net.TCPAddr).Port)
	if b, err := Listen(Ports{port, port}, NewKey(), "x"); err == nil {
		b.Close()
		t.Error("a port was taken twice")
	} else if !strings.Contains(err.Error(), "no free port in") {
		t.Error(err)
	}
}

func TestKeyIsHidden(t *testing.T) {
	k := NewKey()
	text, err := k.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(k.String(), string(text)) {
		t.Error("String shows it")
	}
	var back Key
	if err := back.UnmarshalText(text); err != nil || back != k {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"", "x", string(text) + "A", string(text[1:]), "!" + string(text[1:])} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}
