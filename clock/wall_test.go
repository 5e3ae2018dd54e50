package clock

import (
	"math"
	"math/rand/v2"
	"testing"
)

// brackets reads a wall clock, given as a function of the raw clock.
func brackets(r *rand.Rand, from, to, every int64, wall func(raw int64) int64) []Bracket {
	var bs []Bracket
	for t := from; t <= to; t += every {
		w0, w1 := r.Int64N(500), r.Int64N(500)
		bs = append(bs, Bracket{Raw0: NodeTime(t - w0), Raw1: NodeTime(t + w1), Realtime: wall(t), Monotonic: t, Boottime: t})
	}
	return bs
}

const wallEpoch = 1_790_000_000_000_000_000

func TestWallMap(t *testing.T) {
	r := newRand(t)
	wall := func(raw int64) int64 { // the daemon changes its mind at 30 s
		if raw < 30e9 {
			return wallEpoch + raw + raw/5000
		}
		return wallEpoch + raw + 6e6 - (raw-30e9)/10000
	}
	w := NewWallMap(brackets(r, 1e9, 60e9, 1e9, wall))
	if s := w.Steps(); len(s) != 0 {
		t.Fatalf("steps %v", s)
	}
	for range 10000 {
		raw := int64(0.5e9) + r.Int64N(62e9)
		got, bound, ok := w.Raw(wall(raw))
		if !ok {
			t.Fatalf("refused at %d", raw)
		}
		if d := int64(got) - raw; d > bound || -d > bound {
			t.Fatalf("at %d off by %d, bound %d", raw, d, bound)
		}
		if bound > 500_000 && raw > 1e9 && raw < 60e9 {
			t.Fatalf("at %d bound %d", raw, bound)
		}
	}
	for _, far := range []int64{wallEpoch - 20e9, wallEpoch + 80e9, 0, -1 << 63, 1<<63 - 1} {
		if _, _, ok := w.Raw(far); ok {
			t.Errorf("%d was carried, far from any bracket", far)
		}
	}
	if _, _, ok := NewWallMap(nil).Raw(wallEpoch); ok {
		t.Error("a map of nothing carried a stamp")
	}
}

func TestWallMapRefusesSteps(t *testing.T) {
	r := newRand(t)
	for _, c := range []struct {
		name string
		by   int64
		// carried and refused are raw times: of each side of the step, what
		// was shown twice or never.
		carried, refused []int64
	}{
		{"ahead 3 s", 3e9, []int64{2.5e9, 9.9e9, 11.1e9, 15e9}, []int64{10.2e9, 10.8e9}},
		{"back 3 s", -3e9, []int64{2.5e9, 6.9e9, 14.5e9}, []int64{8.5e9, 10.2e9, 10.8e9, 12.5e9}},
		{"ahead 2 ms", 2e6, []int64{9.9e9, 11.1e9}, []int64{10.5e9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wall := func(raw int64) int64 {
				if raw < 10.5e9 {
					return wallEpoch + raw
				}
				return wallEpoch + raw + c.by
			}
			w := NewWallMap(brackets(r, 1e9, 20e9, 1e9, wall))
			s := w.Steps()
			if len(s) != 1 || s[0].Clock != "realtime" || s[0].ByNS != c.by && abs(s[0].ByNS-c.by) > 1000 {
				t.Fatalf("steps %+v", s)
			}
			for _, raw := range c.carried {
				got, bound, ok := w.Raw(wall(raw))
				if !ok || abs(int64(got)-raw) > bound || bound > 2000 {
					t.Errorf("raw %d: got %d +- %d, %v", raw, got, bound, ok)
				}
			}
			for _, raw := range c.refused {
				if got, bound, ok := w.Raw(wall(raw)); ok {
					t.Errorf("raw %d: carried to %d +- %d across a step", raw, got, bound)
				}
			}
		})
	}
}

func TestSuspendIsSeen(t *testing.T) {
	bs := []Bracket{
		{Raw0: 1e9, Raw1: 1e9 + 200, Realtime: wallEpoch, Monotonic: 1e9, Boottime: 1e9},
		{Raw0: 2e9, Raw1: 2e9 + 200, Realtime: wallEpoch + 5e9, Monotonic: 2e9, Boottime: 6e9},
	}
	got := map[string]int64{}
	for _, s := range NewWallMap(bs).Steps() {
		got[s.Clock] = s.ByNS
	}
	if len(got) != 2 || got["suspend"] != 4e9 || got["realtime"] != 4e9 {
		t.Errorf("steps %v", got)
	}
}

func abs(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

func TestSkewed(t *testing.T) {
	s := Skewed{Source: System{}, OffsetNS: 5e9, PPM: 50}
	b0 := System{}.Now()
	got := s.Now()
	b1 := System{}.Now()
	if lo, hi := s.Skew(b0), s.Skew(b1); got < lo || got > hi {
		t.Errorf("skewed clock %d is not within [%d, %d]", got, lo, hi)
	}
	if d := s.Skew(2e9) - s.Skew(1e9); d != 1_000_050_000 {
		t.Errorf("a second lasts %d ns", d)
	}
	k, err := s.Bracket()
	if err != nil || k.Raw1 < k.Raw0 || k.Raw0 < got {
		t.Errorf("bracket %+v, %v after %d", k, err, got)
	}
}

// A leap second that is smeared, over a day from noon to noon or over two
// hours around it, along a line or a cosine, is slewing like any other: no step
// is seen, and a driver's stamps stay within their bound.
func TestLeapSmear(t *testing.T) {
	r := newRand(t)
	const mid = 43_200e9
	for _, c := range []struct {
		name  string
		over  float64
		smear func(share float64) float64
	}{
		{"a day, a line", 86_400e9, func(x float64) float64 { return x }},
		{"a day, a cosine", 86_400e9, func(x float64) float64 { return (1 - math.Cos(math.Pi*x)) / 2 }},
		{"two hours, a line", 7_200e9, func(x float64) float64 { return x }},
	} {
		wall := func(raw int64) int64 {
			x := min(max((float64(raw)-mid)/c.over+0.5, 0), 1)
			return wallEpoch + raw - int64(1e9*c.smear(x))
		}
		w := NewWallMap(brackets(r, 0, 86_400e9, 10e9, wall))
		if s := w.Steps(); len(s) != 0 {
			t.Fatalf("%s: steps %v", c.name, s[0])
		}
		for range 20000 {
			raw := r.Int64N(86_400e9)
			got, bound, ok := w.Raw(wall(raw))
			if d := int64(got) - raw; !ok || d > bound || -d > bound {
				t.Fatalf("%s: at %d off by %d, bound %d, %v", c.name, raw, d, bound, ok)
			}
		}
	}
}
