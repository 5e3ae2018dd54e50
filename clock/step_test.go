package clock

import (
	"encoding/binary"
	"reflect"
	"testing"
)

// kinds counts contradictions by kind.
func kinds(cs []Contradiction) map[string]int {
	m := map[string]int{}
	for _, c := range cs {
		m[c.Kind]++
	}
	return m
}

// A node sleeps, or its raw clock leaps ahead: between the bursts on either
// side nobody knows which side holds, so the bound covers both.
func TestRawClockStep(t *testing.T) {
	r := newRand(t)
	quiet := path{there: 10000, back: 15000, queue: 5000}
	for _, c := range []struct {
		name string
		by   float64
		away float64 // the node is silent for so long
	}{
		{"suspend of 3 s", -3e9, 3e9},
		{"suspend of 5 ms", -5e6, 5e6},
		{"leap of 2 s", 2e9, 0},
		{"leap of 1 ms", 1e6, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref, parent, leaf := randomOscillator(r), randomOscillator(r), randomOscillator(r)
			const step, end = 30.5e9, 60e9
			wake := step + c.away
			parent.jumps = []jump{{wake, c.by}}
			a := anchorOf(ref)
			ask := func(node, peer oscillator, name string) []Exchange {
				xs := exchanges(r, node, peer, name, quiet, plan{from: 0, to: step - 0.3e9, gap: 1e9, size: 8})
				return append(xs, exchanges(r, node, peer, name, quiet, plan{from: wake + 0.3e9, to: end, gap: 1e9, size: 8})...)
			}
			res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{
				{Node: "parent", Exchanges: ask(parent, ref, "head")},
				{Node: "leaf", Exchanges: ask(leaf, parent, "parent")},
			}})
			if k := kinds(res.Contradictions()); k[KindStep] != 2 || len(k) != 1 {
				t.Errorf("contradictions %v, want one step for each edge", k)
			}
			for _, n := range []struct {
				name string
				o    oscillator
			}{{"parent", parent}, {"leaf", leaf}} {
				m := res.Model(n.name)
				if !m.Summary().Suspect {
					t.Errorf("%s is not suspect", n.name)
				}
				check(t, r, m, n.o, ref, a, 0, step, 2000)
				check(t, r, m, n.o, ref, a, wake, end, 2000)
				if b := check(t, r, m, n.o, ref, a, 0, step-3e9, 500); b > 3e6 {
					t.Errorf("%s: bound %d ns long before the step", n.name, b)
				}
			}
		})
	}
}

// Stamps that lie: never silently taken for the truth, never silently thrown
// away.
func TestLyingStamps(t *testing.T) {
	r := newRand(t)
	quiet := path{there: 10000, back: 15000, queue: 5000}
	for _, c := range []struct {
		name string
		lie  func(*Exchange) bool
	}{
		{"burst ahead", func(x *Exchange) bool { x.T2 += 1e6; x.T3 += 1e6; return x.Burst == 20 }},
		{"burst behind", func(x *Exchange) bool { x.T2 -= 1e6; x.T3 -= 1e6; return x.Burst == 20 }},
		{"one exchange far ahead", func(x *Exchange) bool { x.T2 += 1e15; x.T3 += 1e15; return x.Burst == 20 && x.Seq == 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref, node := randomOscillator(r), randomOscillator(r)
			a := anchorOf(ref)
			xs := exchanges(r, node, ref, "head", quiet, plan{from: 0, to: 60e9, gap: 1e9, size: 8})
			for i, x := range xs {
				if c.lie(&x) {
					xs[i] = x
				}
			}
			res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{{Node: "n", Exchanges: xs}}})
			if k := kinds(res.Contradictions()); k[KindStep] != 2 {
				t.Errorf("contradictions %v, want a step there and one back", k)
			}
			check(t, r, res.Model("n"), node, ref, a, 0, 60e9, 5000)
		})
	}
}

// A rate that strays more than assumed must fall back to the drift limit, not
// break the bound.
func TestWanderBeyondLimit(t *testing.T) {
	r := newRand(t)
	ref, node := oscillator{}, oscillator{wander: 60e-6, freq: 2e-10}
	a := anchorOf(ref)
	xs := exchanges(r, node, ref, "head", path{there: 5000, back: 5000, queue: 1000}, plan{from: 0, to: 120e9, gap: 1e9, size: 8})
	res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{{Node: "n", Exchanges: xs}}})
	if k := kinds(res.Contradictions()); k[KindWander] != 1 || len(k) != 1 {
		t.Errorf("contradictions %v, want wander", k)
	}
	check(t, r, res.Model("n"), node, ref, a, 0, 120e9, 5000)
}

// A node that restarted is placed boot by boot; where the raw clock of one boot
// shows what that of another showed, nothing of it is.
func TestRestart(t *testing.T) {
	r := newRand(t)
	for _, c := range []struct {
		name   string
		origin int64
		placed bool
	}{{"apart", 500e9, true}, {"alike", 80e9, false}} {
		t.Run(c.name, func(t *testing.T) {
			ref, node := randomOscillator(r), randomOscillator(r)
			again := node
			node.origin, again.origin = c.origin, -100e9
			p := path{there: 5000, back: 5000}
			xs := exchanges(r, node, ref, "head", p, plan{from: 0, to: 10e9, gap: 1e9, size: 8})
			xs = append(xs, exchanges(r, again, ref, "head", p, plan{from: 150e9, to: 170e9, gap: 1e9, size: 8})...)
			a := anchorOf(ref)
			res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{{Node: "n", Exchanges: xs, First: NodeTime(again.read(150e9)), Last: NodeTime(node.read(10e9))}}})
			m := res.Model("n")
			if k := kinds(res.Contradictions()); k[KindRestart] != 1 || len(k) != 1 {
				t.Errorf("contradictions %v, want a restart", res.Contradictions())
			}
			if !c.placed {
				if m.Method() != Unaligned {
					t.Errorf("method %s, want no alignment", m.Method())
				}
				return
			}
			check(t, r, m, node, ref, a, 0, 10e9, 500)
			check(t, r, m, again, ref, a, 150e9, 170e9, 500)
			if _, _, ok := m.At(NodeTime(node.read(10e9) - 200e9)); ok {
				t.Error("a stamp of neither boot is aligned")
			}
			if s := m.Summary(); s.Method != ByExchange || s.ExchangesUsed != len(xs) {
				t.Errorf("%s with %d of %d exchanges", s.Method, s.ExchangesUsed, len(xs))
			}
		})
	}
}

func TestImpossibleStampsAreDropped(t *testing.T) {
	good := Exchange{Peer: "head", T1: 1000, T2: 5100, T3: 5200, T4: 1400}
	bad := []Exchange{
		{Peer: "head", T1: 1400, T2: 5100, T3: 5200, T4: 1000},
		{Peer: "head", T1: 1000, T2: 5200, T3: 5100, T4: 1400},
		{Peer: "head", T1: 1000, T2: 5100, T3: 50000, T4: 1400},
		{Peer: "head", T1: -1 << 63, T2: 1, T3: 1<<63 - 1, T4: 1<<63 - 1},
		{Peer: "", T1: 1000, T2: 5100, T3: 5200, T4: 1400},
		{Peer: "n", T1: 1000, T2: 5100, T3: 5200, T4: 1400},
	}
	m := Fit(Input{Reference: "head", Nodes: []NodeEvidence{{Node: "n", Exchanges: append(bad, good)}}}).Model("n")
	if s := m.Summary(); s.ExchangesUsed != 1 || s.ExchangesDropped != len(bad) || s.Method != ByExchange {
		t.Errorf("used %d, dropped %d, %s", s.ExchangesUsed, s.ExchangesDropped, s.Method)
	}
}

// FuzzFit feeds arbitrary stamps. Whatever they are, Fit ends, is repeatable,
// and says nothing impossible.
func FuzzFit(f *testing.F) {
	r := newRand(f)
	ref, node := randomOscillator(r), randomOscillator(r)
	seed := []byte{}
	for _, x := range exchanges(r, node, ref, "a", randomPath(r), plan{from: 0, to: 5e9, gap: 1e9, size: 4}) {
		seed = append(seed, 1)
		for _, v := range []NodeTime{x.T1, x.T2, x.T3, x.T4} {
			seed = binary.LittleEndian.AppendUint64(seed, uint64(v))
		}
	}
	f.Add(seed, int64(0), int64(5e9))
	for i := range 8 { // a daemon's word on every node
		seed = append(seed, 0xc0|byte(i%3))
		for _, v := range []int64{int64(i) * 1e9, int64(i)*1e9 + 100, int64(i) * 1e9, 1e6} {
			seed = binary.LittleEndian.AppendUint64(seed, uint64(v))
		}
	}
	f.Add(seed, int64(0), int64(5e9))
	f.Add([]byte{}, int64(-1<<63), int64(1<<63-1))
	f.Fuzz(func(t *testing.T, data []byte, first, last int64) {
		names := []string{"a", "b", "c", ""}
		in := Input{Reference: "a", Anchor: Anchor{Raw: NodeTime(last), Realtime: first, Width: 1}}
		nodes := [3]NodeEvidence{}
		for i := range nodes {
			nodes[i] = NodeEvidence{Node: names[i], First: NodeTime(first), Last: NodeTime(last)}
		}
		at := []NodeTime{NodeTime(first), NodeTime(last), 0}
		for ; len(data) >= 33; data = data[33:] {
			var v [4]int64
			for i := range v {
				v[i] = int64(binary.LittleEndian.Uint64(data[1+8*i:]))
			}
			n := &nodes[int(data[0]&3)%3]
			if data[0]&0x80 != 0 {
				b := Bracket{Raw0: NodeTime(v[0]), Raw1: NodeTime(v[1]), Realtime: v[2], Monotonic: v[3], Boottime: v[0]}
				if data[0]&0x40 != 0 {
					b.Adj = &Adjtimex{Status: v[3] & 0x40, MaxError: v[3]}
				}
				if data[0]&0x20 != 0 {
					b.Clocksource = names[data[0]>>2&3]
				}
				n.Brackets = append(n.Brackets, b)
			} else {
				n.Exchanges = append(n.Exchanges, Exchange{Peer: names[data[0]>>2&3], T1: NodeTime(v[0]), T2: NodeTime(v[1]), T3: NodeTime(v[2]), T4: NodeTime(v[3])})
			}
			at = append(at, NodeTime(v[0]), NodeTime(v[1]))
		}
		in.Nodes = nodes[:]
		one, two := Fit(in), Fit(in)
		for _, name := range names {
			m := one.Model(name)
			if s, s2 := m.Summary(), two.Model(name).Summary(); !reflect.DeepEqual(s, s2) {
				t.Fatalf("two fits differ:\n%+v\n%+v", s, s2)
			}
			for _, x := range at {
				if _, b, ok := m.At(x); b < 0 || (!ok && b != 0) {
					t.Fatalf("bound %d, aligned %v", b, ok)
				}
				if _, b, ok := m.Wall().Raw(int64(x)); ok && b < 0 {
					t.Fatalf("wall bound %d", b)
				}
			}
		}
		_ = one.Contradictions()
	})
}
