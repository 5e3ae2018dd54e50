package clock

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// newRand returns a generator whose seed is printed, so that a failure can be
// had again.
func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// check asks the model at random instants in [from,to] and compares with the
// truth. It returns the number of instants and the largest bound.
func check(t *testing.T, r *rand.Rand, m *Model, node, ref oscillator, a Anchor, from, to float64, n int) int64 {
	t.Helper()
	var worst int64
	for range n {
		tau := from + r.Float64()*(to-from)
		ct, bound, ok := m.At(NodeTime(node.read(tau)))
		if !ok {
			t.Fatalf("%s: not aligned at %.0f", m.Node(), tau)
		}
		truth := cluster(ref, a, tau)
		if d := int64(ct) - truth; d > bound+1 || -d > bound+1 {
			t.Fatalf("%s at true %.6f s: off by %d ns, bound %d ns; %+v", m.Node(), tau/1e9, d, bound, m.Summary())
		}
		worst = max(worst, bound)
	}
	return worst
}

func anchorOf(ref oscillator) Anchor {
	return Anchor{Raw: NodeTime(ref.read(0)), Realtime: 1_790_000_000_000_000_000, Width: 200}
}

func TestBoundHolds(t *testing.T) {
	r := newRand(t)
	const jobs, instants = 120, 2000
	var checked int
	for range jobs {
		ref, node := randomOscillator(r), randomOscillator(r)
		end := 2e9 * math.Exp(r.Float64()*math.Log(1800)) // 2 s to 1 h
		pl := plan{from: 0.1e9, to: end, gap: 1e9, size: 8}
		if end > 60e9 && r.Float64() < 0.7 {
			pl.gap = 1e9 + r.Float64()*30e9
		}
		a := anchorOf(ref)
		xs := exchanges(r, node, ref, "head", randomPath(r), pl)
		res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{
			{Node: "head", First: NodeTime(ref.read(0)), Last: NodeTime(ref.read(end))},
			{Node: "n1", Exchanges: xs, First: NodeTime(node.read(0)), Last: NodeTime(node.read(end))},
		}})
		if found := res.Contradictions(); len(found) > 0 {
			t.Fatalf("contradictions within the assumptions: %v", found)
		}
		// Before the first burst and after the last one, too.
		check(t, r, res.Model("n1"), node, ref, a, 0, end+1e9, instants)
		checked += instants
		s := res.Model("n1").Summary()
		if s.DriftPPM != nil {
			truth := (float64(node.read(end)-node.read(0))/float64(ref.read(end)-ref.read(0)) - 1) * 1e6
			if d := math.Abs(*s.DriftPPM - truth); d > *s.DriftBoundPPM+2.5 {
				t.Fatalf("drift %.3f +- %.3f ppm, truth %.3f", *s.DriftPPM, *s.DriftBoundPPM, truth)
			}
		}
	}
	t.Logf("%d instants checked", checked)
}

func TestBoundHoldsAlongPaths(t *testing.T) {
	r := newRand(t)
	for range 20 {
		// head <- parent <- leaf, and back: head asks it instead of being asked.
		ref, parent, leaf, back := randomOscillator(r), randomOscillator(r), randomOscillator(r), randomOscillator(r)
		end := 2e9 * math.Exp(r.Float64()*math.Log(150)) // to 5 min
		a := anchorOf(ref)
		pl := plan{from: 0.1e9, to: end, gap: 1e9, size: 8}
		ev := func(name string, o oscillator, xs []Exchange) NodeEvidence {
			return NodeEvidence{Node: name, Exchanges: xs, First: NodeTime(o.read(0)), Last: NodeTime(o.read(end))}
		}
		res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{
			ev("leaf", leaf, exchanges(r, leaf, parent, "parent", randomPath(r), pl)),
			ev("parent", parent, exchanges(r, parent, ref, "head", randomPath(r), pl)),
			ev("head", ref, exchanges(r, ref, back, "back", randomPath(r), pl)),
			ev("back", back, nil),
		}})
		check(t, r, res.Model("head"), ref, ref, a, 0, end, 100)
		check(t, r, res.Model("parent"), parent, ref, a, 0, end, 500)
		check(t, r, res.Model("leaf"), leaf, ref, a, 0, end, 500)
		check(t, r, res.Model("back"), back, ref, a, 0, end, 500)
		if via := res.Model("leaf").Summary().Via; len(via) != 2 || via[0] != "parent" || via[1] != "head" {
			t.Fatalf("leaf goes via %v", via)
		}
	}
}

// A quiet path of 12 us each way: what the method is worth.
func TestBoundIsTight(t *testing.T) {
	r := newRand(t)
	ref, node := randomOscillator(r), randomOscillator(r)
	p := path{there: 12000, back: 12000, queue: 5000, outlier: 0.02}
	const end = 600e9
	a := anchorOf(ref)
	res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{{
		Node: "n1", First: NodeTime(node.read(0)), Last: NodeTime(node.read(end)),
		Exchanges: exchanges(r, node, ref, "head", p, plan{from: 0, to: end, gap: 1e9, size: 8}),
	}}})
	worst := check(t, r, res.Model("n1"), node, ref, a, 0, end, 5000)
	s := res.Model("n1").Summary()
	t.Logf("bound min %d median %d max %d ns, drift %.3f +- %.3f ppm", s.BoundNS.Min, s.BoundNS.Median, s.BoundNS.Max, *s.DriftPPM, *s.DriftBoundPPM)
	if worst > 30000 || s.BoundNS.Max > 30000 {
		t.Errorf("largest bound %d ns, want at most 30 us", worst)
	}
	if s.BoundNS.Min < 12000 {
		t.Errorf("smallest bound %d ns is below the least delay, which nothing can know", s.BoundNS.Min)
	}
}

func TestEstimateNeverFalls(t *testing.T) {
	r := newRand(t)
	for range 20 {
		ref, node := randomOscillator(r), randomOscillator(r)
		xs := exchanges(r, node, ref, "head", randomPath(r), plan{from: 0, to: 20e9, gap: 1e9, size: 8})
		m := Fit(Input{Reference: "head", Anchor: anchorOf(ref), Nodes: []NodeEvidence{{Node: "n", Exchanges: xs}}}).Model("n")
		for range 200 {
			at := NodeTime(node.read(r.Float64() * 21e9))
			before, _, _ := m.At(at)
			for range 50 {
				at += NodeTime(r.IntN(3))
				ct, _, _ := m.At(at)
				if ct < before {
					t.Fatalf("cluster time fell from %d to %d at %d", before, ct, at)
				}
				before = ct
			}
		}
	}
}

func TestReferenceIsExact(t *testing.T) {
	a := Anchor{Raw: 5_000, Realtime: 1_790_000_000_000_000_000, Width: 300}
	m := Fit(Input{Reference: "head", Anchor: a}).Model("head")
	ct, bound, ok := m.At(7_000)
	if ct != 1_790_000_000_000_002_000 || bound != 0 || !ok {
		t.Errorf("At = %d, %d, %v", ct, bound, ok)
	}
	if s := m.Summary(); s.Method != Reference || s.AnchorWidthNS != 300 {
		t.Errorf("summary %+v", s)
	}
}

func TestUnaligned(t *testing.T) {
	a := Anchor{Raw: 100, Realtime: 1_790_000_000_000_000_000}
	res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{
		{Node: "wall", Brackets: []Bracket{{Raw0: 1000, Raw1: 1200, Realtime: 1_790_000_000_500_000_000}}, First: 1000, Last: 2000},
		{Node: "start", First: 7000, Last: 9000},
		{Node: "island", Exchanges: []Exchange{{Peer: "start", T1: 1, T2: 5, T3: 6, T4: 4}}, First: 1, Last: 9},
	}})
	for _, c := range []struct {
		node, fallback string
		at             NodeTime
		want           ClusterTime
	}{
		{"wall", FallbackWall, 1100, 1_790_000_000_500_000_000},
		{"start", FallbackStart, 7005, 1_790_000_000_000_000_005},
		{"island", FallbackStart, 1, 1_790_000_000_000_000_000},
		{"nobody", FallbackAnchor, 101, 1_790_000_000_000_000_001},
	} {
		m := res.Model(c.node)
		ct, bound, ok := m.At(c.at)
		s := m.Summary()
		if ok || bound != 0 || ct != c.want || s.Method != Unaligned || s.Fallback != c.fallback {
			t.Errorf("%s: At = %d, %d, %v; %s by %q", c.node, ct, bound, ok, s.Method, s.Fallback)
		}
	}
}

func BenchmarkFitHour(b *testing.B) {
	r := newRand(b)
	ref, node := randomOscillator(r), randomOscillator(r)
	xs := exchanges(r, node, ref, "head", randomPath(r), plan{from: 0, to: 3600e9, gap: 1e9, size: 8})
	in := Input{Reference: "head", Anchor: anchorOf(ref), Nodes: []NodeEvidence{{Node: "n", Exchanges: xs}}}
	b.ReportMetric(float64(len(xs)), "exchanges")
	b.ReportAllocs()
	for b.Loop() {
		Fit(in)
	}
}

func BenchmarkAt(b *testing.B) {
	r := newRand(b)
	ref, node := randomOscillator(r), randomOscillator(r)
	xs := exchanges(r, node, ref, "head", randomPath(r), plan{from: 0, to: 3600e9, gap: 1e9, size: 8})
	m := Fit(Input{Reference: "head", Anchor: anchorOf(ref), Nodes: []NodeEvidence{{Node: "n", Exchanges: xs}}}).Model("n")
	at := NodeTime(node.read(0))
	b.ReportAllocs()
	for b.Loop() {
		at += 1_000_000
		m.At(at)
	}
}
