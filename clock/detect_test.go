package clock

import (
	"math"
	"testing"
)

// TestDetection measures what is outside the assumptions: how often it is
// noticed, and how often a bound is broken in silence, by size. Nothing is
// claimed but that what is larger than the slack and the bound together does
// not pass.
func TestDetection(t *testing.T) {
	r := newRand(t)
	jobs := 4
	if *soak {
		jobs = 200
	}
	type outcome struct{ seen, silent int }
	run := func(change func(w *world), end float64) (o outcome) {
		for range jobs {
			w := &world{r: r, end: end}
			w.nodes = []oscillator{wanderer(r, end), wanderer(r, end)}
			w.anchor = anchorOf(w.nodes[0])
			change(w)
			res := w.fit()
			var s score
			w.ask(&s, res.Model(nodeName(1)), 1, 500)
			switch {
			case len(res.Contradictions()) > 0:
				o.seen++
			case s.broken > 0:
				o.silent++
			}
		}
		return o
	}
	asks := func(w *world, lie func(x *Exchange)) {
		xs := exchanges(r, w.nodes[1], w.nodes[0], nodeName(0), quietPath(r), plan{from: 0, to: w.end, gap: 1e9, size: 8})
		for i := range xs {
			if lie != nil {
				lie(&xs[i])
			}
		}
		w.ev = []NodeEvidence{w.evidence(0, nil), w.evidence(1, xs)}
	}
	t.Log("rate swings by this much beside its mean, over 60 s | noticed | silent and wrong")
	for _, ppm := range []float64{4, 8, 16, 32, 64, 128} {
		o := run(func(w *world) {
			w.nodes[1].wander, w.nodes[1].freq = ppm*1e-6, 2*math.Pi/60e9
			asks(w, nil)
		}, 300e9)
		t.Logf("| %g ppm | %d %% | %d %% |", ppm, 100*o.seen/jobs, 100*o.silent/jobs)
		if ppm >= 32 && o.silent > 0 {
			t.Errorf("a swing of %g ppm broke bounds in silence %d times", ppm, o.silent)
		}
	}
	t.Log("one burst of 120 lies by | noticed | silent and wrong")
	for _, us := range []float64{2, 5, 10, 20, 30, 50, 100, 1000} {
		o := run(func(w *world) {
			asks(w, func(x *Exchange) {
				if x.Burst == 60 {
					x.T2 += NodeTime(us * 1e3)
					x.T3 += NodeTime(us * 1e3)
				}
			})
		}, 120e9)
		t.Logf("| %g us | %d %% | %d %% |", us, 100*o.seen/jobs, 100*o.silent/jobs)
		if us >= 50 && o.seen < jobs {
			t.Errorf("a lie of %g us was noticed %d of %d times", us, o.seen, jobs)
		}
	}
	t.Log("the offset steps half-way by | noticed | silent and wrong")
	for _, us := range []float64{5, 10, 20, 50, 100, 500, 1000} {
		o := run(func(w *world) {
			w.nodes[1].jumps = []jump{{at: 60.4e9, by: us * 1e3}}
			asks(w, nil)
		}, 120e9)
		t.Logf("| %g us | %d %% | %d %% |", us, 100*o.seen/jobs, 100*o.silent/jobs)
		if us >= 500 && o.seen < jobs {
			t.Errorf("a step of %g us was noticed %d of %d times", us, o.seen, jobs)
		}
	}
}
