package clock

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// Around loops the asymmetry of single paths shows; the least squares over the
// graph must not be worse than the tree alone, and the bounds must hold.
func TestPeersHelpAgainstAsymmetry(t *testing.T) {
	r := newRand(t)
	w := newWorld(r, worldPlan{nodes: 40, end: 120e9, path: randomPath, peers: 4})
	var with, without score
	full := w.fit()
	tree := slices.Clone(w.ev)
	for i := range tree {
		tree[i].Exchanges = slices.DeleteFunc(slices.Clone(tree[i].Exchanges), func(x Exchange) bool { return x.Peer != nodeName(0) })
	}
	star := Fit(Input{Reference: nodeName(0), Anchor: w.anchor, Nodes: tree})
	for i := 1; i < 40; i++ {
		for k := range 50 {
			tau := w.end * (float64(k) + 0.5) / 50
			with.take(w, full.Model(nodeName(i)), i, tau)
			without.take(w, star.Model(nodeName(i)), i, tau)
		}
	}
	t.Logf("with peers: %v", &with)
	t.Logf("without:    %v", &without)
	if with.broken+without.broken > 0 {
		t.Error("bounds broken")
	}
	if a, b := quantile(with.errs, 0.9), quantile(without.errs, 0.9); a > b {
		t.Errorf("p90 of the error %.0f ns with peers, %.0f without", a, b)
	}
}

// A node that tells each of its peers something else is found out by the loops
// through it, and named only where they leave no other.
func TestBlame(t *testing.T) {
	r := newRand(t)
	for _, c := range []struct {
		name string
		lies func(node, peer int) float64
		node string
		set  []string
	}{
		{"its own parent", func(node, peer int) float64 {
			if node == 3 && peer == 0 {
				return 1e6
			}
			return 0
		}, nodeName(3), nil},
		{"one peer only", func(node, peer int) float64 {
			if node == 3 && peer == 4 {
				return 1e6
			}
			return 0
		}, "", []string{nodeName(3), nodeName(4)}},
		{"two strangers", func(node, peer int) float64 {
			if (node == 3 || node == 6) && peer == 0 {
				return 1e6
			}
			return 0
		}, "", nil},
		{"nobody", func(int, int) float64 { return 0 }, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{r: r, end: 60e9}
			for range 8 {
				w.nodes = append(w.nodes, wanderer(r, w.end))
			}
			w.anchor = anchorOf(w.nodes[0])
			w.ev = append(w.ev, w.evidence(0, nil))
			for i := 1; i < 8; i++ {
				var xs []Exchange
				for _, j := range []int{0, i%7 + 1, (i+1)%7 + 1} {
					got := exchanges(r, w.nodes[i], w.nodes[j], nodeName(j), quietPath(r), plan{from: 0, to: w.end, gap: 2e9, size: 8})
					for k := range got {
						by := NodeTime(c.lies(i, j))
						got[k].T2 += by
						got[k].T3 += by
					}
					xs = append(xs, got...)
				}
				w.ev = append(w.ev, w.evidence(i, xs))
			}
			res := w.fit()
			found := res.Contradictions()
			var blame []Contradiction
			for _, x := range found {
				if x.Kind == KindBlame {
					blame = append(blame, x)
				} else if x.Kind != KindLoop {
					t.Errorf("unexpected: %v", x)
				}
			}
			if c.name == "nobody" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			if len(blame) != 1 || blame[0].Node != c.node || c.set != nil && !slices.Equal(blame[0].Nodes, c.set) {
				t.Fatalf("%v, want %q or %v", found, c.node, c.set)
			}
			guilty := blame[0].Nodes
			if c.node != "" {
				guilty = []string{c.node}
			}
			for i := 1; i < 8; i++ {
				if s := res.Model(nodeName(i)).Summary(); s.Suspect != slices.Contains(guilty, s.Node) {
					t.Errorf("%s suspect %v, blamed are %v", s.Node, s.Suspect, guilty)
				}
			}
		})
	}
}

// Nodes that exchanged nothing are tied by what time daemons vouch for, where
// one that did is vouched for as well.
func TestVouchedNodes(t *testing.T) {
	r := newRand(t)
	ref, ex, lone, free := wanderer(r, 600e9), wanderer(r, 600e9), wanderer(r, 600e9), wanderer(r, 600e9)
	a := anchorOf(ref)
	utc0 := a.Realtime + 3_000_000 // the reference's own wall clock is 3 ms late
	brackets := func(o oscillator, wrong float64, status int64) (bs []Bracket) {
		for tau := 0.0; tau <= 600e9; tau += 1e9 {
			at := NodeTime(o.read(tau))
			bs = append(bs, Bracket{
				Raw0: at, Raw1: NodeTime(o.read(tau + 200)), Realtime: utc0 + int64(tau+wrong*math.Sin(tau/200e9)),
				Monotonic: int64(tau) + 1, Boottime: int64(tau) + 1,
				Adj: &Adjtimex{Status: status, MaxError: 1_000_000},
			})
		}
		return bs
	}
	xs := exchanges(r, ex, ref, "head", quietPath(r), plan{from: 0, to: 600e9, gap: 5e9, size: 8})
	res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{
		{Node: "ex", Exchanges: xs, Brackets: brackets(ex, 900e3, 0), First: NodeTime(ex.read(0)), Last: NodeTime(ex.read(600e9))},
		{Node: "lone", Brackets: brackets(lone, -900e3, 0), First: NodeTime(lone.read(0)), Last: NodeTime(lone.read(600e9))},
		{Node: "free", Brackets: brackets(free, 0, unsync), First: NodeTime(free.read(0)), Last: NodeTime(free.read(600e9))},
	}})
	m := res.Model("lone")
	worst := check(t, r, m, lone, ref, a, 0, 600e9, 3000)
	s := m.Summary()
	t.Logf("bound up to %d ns, %+v", worst, s)
	if s.Method != ByNTP || worst > 4_000_000 || !slices.Contains(s.Assumptions, AssumeVouched) || !slices.Equal(s.Via, []string{utcName, "ex", "head"}) {
		t.Errorf("%+v", s)
	}
	if s := res.Model("ex").Summary(); s.Method != ByExchange {
		t.Errorf("%+v", s)
	}
	if s := res.Model("free").Summary(); s.Method != Unaligned {
		t.Errorf("%+v", s)
	}
}

// A wall clock that is set by years and back, while its daemon goes on to vouch
// for it, contradicts itself; the raw clock and what rests on it do not care.
func TestWallClockStepsByYears(t *testing.T) {
	r := newRand(t)
	ref, node := wanderer(r, 120e9), wanderer(r, 120e9)
	a := anchorOf(ref)
	var bs []Bracket
	for tau := 0.0; tau <= 120e9; tau += 1e9 {
		b := Bracket{
			Raw0: NodeTime(node.read(tau)), Raw1: NodeTime(node.read(tau + 200)), Realtime: a.Realtime + int64(tau),
			Monotonic: int64(tau) + 1, Boottime: int64(tau) + 1, Adj: &Adjtimex{MaxError: 1e6},
		}
		if tau > 40e9 && tau < 80e9 {
			b.Realtime -= 30 * 365 * 86400e9
		}
		bs = append(bs, b)
	}
	xs := exchanges(r, node, ref, "head", quietPath(r), plan{from: 0, to: 120e9, gap: 1e9, size: 8})
	res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{{Node: "n", Exchanges: xs, Brackets: bs}}})
	check(t, r, res.Model("n"), node, ref, a, 0, 120e9, 1000)
	s := res.Model("n").Summary()
	if len(res.Contradictions()) > 0 || len(s.Steps) != 2 || s.Steps[0].Clock != StepRealtime || s.Steps[0].ByNS > -9e17 || s.Suspect {
		t.Errorf("%+v", s)
	}
}

// A change of clocksource or a suspend begins a segment, and is no
// contradiction.
func TestCuts(t *testing.T) {
	r := newRand(t)
	ref, node := wanderer(r, 60e9), wanderer(r, 60e9)
	xs := exchanges(r, node, ref, "head", quietPath(r), plan{from: 0, to: 60e9, gap: 1e9, size: 8})
	var bs []Bracket
	for tau := 0.0; tau <= 60e9; tau += 1e9 {
		b := Bracket{Raw0: NodeTime(node.read(tau)), Raw1: NodeTime(node.read(tau + 100)), Realtime: 1e18, Clocksource: "tsc"}
		b.Realtime += int64(tau)
		b.Monotonic, b.Boottime = int64(tau)+1, int64(tau)+1
		if tau > 30.5e9 {
			b.Clocksource = "hpet"
		}
		bs = append(bs, b)
	}
	a := anchorOf(ref)
	res := Fit(Input{Reference: "head", Anchor: a, Nodes: []NodeEvidence{{Node: "n", Exchanges: xs, Brackets: bs}}})
	m := res.Model("n")
	if n := len(m.boots[0].track.segs); n != 2 || len(res.Contradictions()) > 0 {
		t.Errorf("%d segments, want 2; contradictions %v", n, res.Contradictions())
	}
	if s := m.Summary().Steps; len(s) != 1 || s[0].Clock != StepClocksource {
		t.Errorf("steps %+v", s)
	}
	check(t, r, m, node, ref, a, 0, 60e9, 2000)
}

// BenchmarkCluster is a thousand nodes for an hour, in a tree, each with two
// peers: what the merge of a large run does. Exchanges are handed over a node
// at a time, as the merge reads them.
func BenchmarkCluster(b *testing.B) {
	const nodes, end = 1024, 3600e9
	r := newRand(b)
	w := &world{r: r, end: end}
	for range nodes {
		w.nodes = append(w.nodes, wanderer(r, end))
	}
	w.anchor = anchorOf(w.nodes[0])
	var exs int
	// What gswarm merge asks of the collector (cmd/gswarm).
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(400 << 20))
	defer debug.SetGCPercent(debug.SetGCPercent(40))
	for b.Loop() {
		b.StopTimer()
		f := NewFitter(nodeName(0), w.anchor)
		for i := range nodes {
			var xs []Exchange
			if i > 0 {
				p := (i - 1) / 32
				xs = exchanges(r, w.nodes[i], w.nodes[p], nodeName(p), quietPath(r), plan{from: 0, to: end, gap: 1e9, size: 8, stretch: true})
				for range 2 {
					if j := r.IntN(nodes); j != i {
						xs = append(xs, exchanges(r, w.nodes[i], w.nodes[j], nodeName(j), quietPath(r), plan{from: 0, to: end, gap: 10e9, size: 4})...)
					}
				}
			}
			exs += len(xs)
			b.StartTimer()
			f.Add(w.evidence(i, xs))
			b.StopTimer()
		}
		b.StartTimer()
		res := f.Fit()
		b.StopTimer()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-kept")
		var s score
		for i := 1; i < nodes; i += 17 {
			w.ask(&s, res.Model(nodeName(i)), i, 100)
		}
		if s.broken+s.unaligned > 0 {
			b.Fatal(fmt.Sprint(&s))
		}
		b.Log(&s)
		b.StartTimer()
	}
	b.ReportMetric(float64(exs)/float64(b.N), "exchanges")
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		var kib float64
		if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
			fmt.Sscan(after, &kib) // left 0 where it is none
		}
		b.ReportMetric(kib/1024, "MiB-peak")
	}
}
