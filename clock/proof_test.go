package clock

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
)

var soak = flag.Bool("soak", false, "check as much as docs/clocks.md states")

// TestProof checks the bound and the estimate of whole clusters against the
// truth, inside the assumptions.
func TestProof(t *testing.T) {
	r := newRand(t)
	for _, c := range []struct {
		name    string
		plan    worldPlan
		p99     float64 // of the error, 0 for no claim
		half    float64 // median half-width, likewise
		perNode int
	}{
		{"quiet, 8 a second", worldPlan{nodes: 9, end: 1200e9, path: quietPath}, 1e3, 15e3, 1000},
		{"quiet, stretched, peers", worldPlan{nodes: 6, end: 1200e9, path: quietPath, peers: 2, stretch: true}, 0, 0, 2000},
		{"congested, 8 a second", worldPlan{nodes: 9, end: 1200e9, path: congestedPath}, 5e3, 0, 1000},
		{"tree, peers, any path", worldPlan{nodes: 8, end: 300e9, path: randomPath, fanOut: 2, peers: 2}, 0, 0, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs := 1
			if *soak {
				jobs = 12
			}
			var all score
			for range jobs {
				w := newWorld(r, c.plan)
				res := w.fit()
				if found := res.Contradictions(); len(found) > 0 {
					t.Fatalf("contradictions within the assumptions: %v", found)
				}
				for i := 1; i < c.plan.nodes; i++ {
					w.ask(&all, res.Model(nodeName(i)), i, c.perNode)
				}
			}
			t.Log(&all)
			if all.broken > 0 || all.unaligned > 0 {
				t.Errorf("%d bounds broken, the worst by %.0f ns; %d unaligned", all.broken, all.worst, all.unaligned)
			}
			if p := quantile(all.errs, 0.99); c.p99 > 0 && p > c.p99 {
				t.Errorf("p99 of the error %.0f ns, want at most %.0f", p, c.p99)
			}
			if h := quantile(all.halves, 0.5); c.half > 0 && h > c.half {
				t.Errorf("half-width %.0f ns, want at most %.0f", h, c.half)
			}
		})
	}
}

// TestManyJobs checks jobs of 2 s to 6 h on any path.
func TestManyJobs(t *testing.T) {
	r := newRand(t)
	want := 40_000
	if *soak {
		want = 2_000_000
	}
	var all score
	jobs := 0
	for all.checked < want {
		end := 2e9 * math.Exp(r.Float64()*math.Log(300)) // to 10 min
		if *soak {
			end = 2e9 * math.Exp(r.Float64()*math.Log(10800)) // to 6 h
		}
		w := newWorld(r, worldPlan{
			nodes: 2 + r.IntN(5), end: end, path: anyPath, fanOut: r.IntN(4), peers: r.IntN(3), stretch: end > 60e9,
		})
		res := w.fit()
		if found := res.Contradictions(); len(found) > 0 {
			t.Fatalf("contradictions within the assumptions: %v", found)
		}
		for i := range w.nodes {
			w.ask(&all, res.Model(nodeName(i)), i, 2000)
		}
		jobs++
	}
	t.Logf("%d jobs, %v", jobs, &all)
	if all.broken > 0 || all.unaligned > 0 {
		t.Errorf("%d bounds broken, the worst by %.0f ns; %d unaligned", all.broken, all.worst, all.unaligned)
	}
}

func anyPath(r *rand.Rand) path {
	switch r.IntN(3) {
	case 0:
		return quietPath(r)
	case 1:
		return congestedPath(r)
	}
	p := randomPath(r)
	p.reorder, p.seed = 0.05, r.Uint64()
	return p
}
