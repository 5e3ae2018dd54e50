package analysis

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		cv   float64
		want Class
	}{{0, Excellent}, {0.0499, Excellent}, {0.05, Good}, {0.0999, Good}, {0.10, Fair}, {0.1999, Fair}, {0.20, Poor}, {3, Poor}} {
		if got := classOf(c.cv); got != c.want {
			t.Errorf("%v is %s, want %s", c.cv, got, c.want)
		}
	}
	if v, ok := cv([]float64{9, 11}); !ok || math.Abs(v-0.1) > 1e-12 {
		t.Errorf("the coefficient of variation of 9 and 11 is %v", v)
	}
	for _, none := range [][]float64{nil, {1}, {0, 0}, {-1, 1}} {
		if _, ok := cv(none); ok {
			t.Errorf("%v has a coefficient of variation", none)
		}
	}
}

func TestMoments(t *testing.T) {
	var m moments
	for _, v := range []float64{1e9 + 1, 1e9 + 2, 1e9 + 3} {
		m.add(v)
	}
	if s := m.stat(); s.Mean != 1e9+2 || math.Abs(s.SD-math.Sqrt(2.0/3)) > 1e-9 || s.Min != 1e9+1 || s.Max != 1e9+3 || s.N != 3 {
		t.Errorf("moments: %+v", s)
	}
	if s := (&moments{}).stat(); s != (Stat{}) {
		t.Errorf("moments of nothing: %+v", s)
	}
}

func TestOthersMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		v := make([]float64, 2+rng.IntN(9))
		for i := range v {
			v[i] = float64(rng.IntN(6))
		}
		got := othersMedian(v)
		for i := range v {
			rest := append(append([]float64{}, v[:i]...), v[i+1:]...)
			if want := median(rest); got[i] != want {
				t.Fatalf("of %v without the %d-th the median is %v, want %v", v, i, got[i], want)
			}
		}
	}
	if got := othersMedian([]float64{math.NaN(), 1, 3}); !math.IsNaN(got[0]) || got[1] != 3 || got[2] != 1 {
		t.Errorf("with a value missing: %v", got)
	}
}

// A fold loses nothing.
func TestFold(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var k track[counted, *counted]
	sum := float32(0)
	block := int64(-500)
	for range 300 {
		block += int64(rng.IntN(4))
		c := k.at(block)
		c.v[0]++
		sum++
	}
	for range 4 {
		k.fold()
		if got := k.sum(-1<<40, 1<<40); got.v[0] != sum {
			t.Fatalf("after a fold the sum is %v, want %v", got.v[0], sum)
		}
	}
	if k.at(k.first-1) != nil {
		t.Error("a block before the first has a cell")
	}
}

// steps makes a signal of steps: high for a part of each, with noise.
func stepSignal(rng *rand.Rand, bins int, period, duty, noise float64) []float64 {
	x := make([]float64, bins)
	for i := range x {
		if math.Mod(float64(i), period) < duty*period {
			x[i] = 1
		}
		x[i] += noise * rng.NormFloat64()
	}
	return x
}

// The period of any signal of steps is found within 1 %, and in noise there is
// none.
func TestPeriod(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		period := 8 + 200*rng.Float64()
		x := stepSignal(rng, int(period*(12+20*rng.Float64())), period, 0.2+0.6*rng.Float64(), 0.4*rng.Float64())
		got, _ := periodOf(x)
		if math.Abs(got/period-1) > 0.01 {
			t.Errorf("a period of %.2f bins in %d is found as %.2f", period, len(x), got)
		}
	}
	for n := range 20 {
		x := make([]float64, 300+100*n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		if got, _ := periodOf(x); got != 0 {
			t.Errorf("in %d bins of noise there is a period of %.2f", len(x), got)
		}
	}
	for _, none := range [][]float64{nil, {1}, make([]float64, 500)} {
		if got, _ := periodOf(none); got != 0 {
			t.Errorf("in %d equal bins there is a period of %v", len(none), got)
		}
	}
}

// A phase of many chunks has the period of all, and steps that are too short
// for the windows are said to be so.
func TestLongPeriod(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	if bins, short := periodOfLong(stepSignal(rng, 3*chunkBins+17, 26.57, 0.8, 0.2), 1); math.Abs(bins/26.57-1) > 0.002 || short != 0 {
		t.Errorf("26.57 bins are found as %v, short %v", bins, short)
	}
	if bins, short := periodOfLong(stepSignal(rng, 4000, 2.6, 0.5, 0.05), 1); bins != 0 || math.Abs(short-2.6) > 0.1 {
		t.Errorf("2.6 bins are found as %v, short %v", bins, short)
	}
}

// Steps are followed one by one, a long one among them, too.
func TestTrackSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var x []float64
	var begins []int
	const period = 30
	for k := range 40 {
		begins = append(begins, len(x))
		length := period + rng.IntN(3) - 1
		if k == 20 {
			length = 65
		}
		for i := range length {
			v := 0.0
			if i < 22 {
				v = 1
			}
			x = append(x, v+0.1*rng.NormFloat64())
		}
	}
	got := trackSteps(x, period)
	found := 0
	for _, b := range begins {
		for _, g := range got {
			if math.Abs(g-float64(b)) <= 2 {
				found++
				break
			}
		}
	}
	if found < 36 || len(got) > 42 {
		t.Errorf("of 40 steps %d were followed, %d in all", found, len(got))
	}
}

// Stretches are found where they are, and none in noise.
func TestStretches(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 50 {
		x := make([]float64, 200)
		from, length := 10+rng.IntN(80), 40+rng.IntN(60)
		for i := range x {
			x[i] = 0.03 * rng.NormFloat64()
			if i >= from && i < from+length {
				x[i] += 0.1
			}
		}
		got := stretches(x, 0.03, excessFloor, lowestExcess, 5)
		if len(got) != 1 || max(got[0].from-from, from-got[0].from) > 8 || max(got[0].to-from-length, from+length-got[0].to) > 8 || math.Abs(got[0].excess-0.1) > 0.02 {
			t.Errorf("from %d to %d: %+v", from, from+length, got)
		}
		for i := range x {
			x[i] = 0.03 * rng.NormFloat64()
		}
		if got := stretches(x, 0.03, excessFloor, lowestExcess, 5); len(got) > 0 {
			t.Errorf("in noise: %+v", got)
		}
	}
}

// Any stretches that are long and unlike enough are told apart, and they cover
// all blocks.
func TestSegment(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 30 {
		x := [][]float64{nil, nil}
		var borders []int
		for level := range 2 + rng.IntN(5) {
			for range 12 + rng.IntN(40) {
				x[0] = append(x[0], 0.3*float64(level%2)+0.02*rng.NormFloat64())
				x[1] = append(x[1], 0.2*float64(level%3)+0.02*rng.NormFloat64())
			}
			borders = append(borders, len(x[0]))
		}
		cuts := mergeAlike(x, segment(x, 5), 5)
		if cuts[0] != 0 || cuts[len(cuts)-1] != len(x[0]) {
			t.Fatalf("the stretches %v do not cover %d blocks", cuts, len(x[0]))
		}
		if len(cuts)-1 != len(borders) {
			t.Errorf("%d stretches are found as %v, in truth to %v", len(borders), cuts, borders)
			continue
		}
		for i, b := range borders {
			if d := cuts[i+1] - b; d < -1 || d > 1 {
				t.Errorf("a border at %d is found at %d", b, cuts[i+1])
			}
		}
	}
}

func TestSmallReaders(t *testing.T) {
	for list, want := range map[string]bool{"0-3,8": false, "5": true, "0-7": true, "1,3,5": true, "": false, "x": false, "6-9": false} {
		if inList(list, 5) != want {
			t.Errorf("5 in %q: %v", list, !want)
		}
	}
	for rate, want := range map[string]float64{"400 Gb/sec (4X NDR)": 400, "200 Gb/sec (2X NDR)": 200, "2.5 Gb/sec": 2.5, "": 0, "down": 0} {
		if got := gbit(rate); got != want {
			t.Errorf("%q is %v Gbit/s", rate, got)
		}
	}
	for text, want := range map[string]string{"step 12": "step #", "epoch 3 step 400": "epoch # step #", "eval": "eval"} {
		if got := withoutNumbers(text); got != want {
			t.Errorf("%q is %q without numbers", text, got)
		}
	}
}
