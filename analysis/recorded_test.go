package analysis_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/analysis/plant"
)

// recorded is the analysis of the recorded job of eight H200s, with its truth.
var recorded = sync.OnceValues(func() (*analysis.Result, *plant.Truth) {
	src, facts, truth, err := plant.Recorded()
	if err != nil {
		panic(err)
	}
	r, err := analysis.Analyze(context.Background(), src, facts)
	if err != nil {
		panic(err)
	}
	return r, truth
})

// found returns the phase of the result that holds most of the true one.
func found(t *testing.T, r *analysis.Result, truth *plant.Truth, name string) analysis.Phase {
	t.Helper()
	want := truth.Phase(name)
	best, at := int64(0), -1
	for i, p := range r.Phases {
		if o := min(p.EndNS, want.EndNS) - max(p.BeginNS, want.BeginNS); o > best {
			best, at = o, i
		}
	}
	if at < 0 {
		t.Fatalf("no phase overlaps %q", name)
	}
	return r.Phases[at]
}

// What the recorded phases were, with the names of their bottlenecks.
var recordedBottlenecks = map[string]string{
	"idle": "idle", "train": "compute", "train_slow_rank3": "imbalance", "train_input_stall": "input",
	"comm": "communication", "hbm": "memory", "h2d": "transfer", "launch": "launch", "power": "power",
	"ckpt": "serial", "train2": "compute",
}

func TestRecordedPhases(t *testing.T) {
	r, truth := recorded()
	for i, p := range r.Phases {
		if i > 0 && p.BeginNS != r.Phases[i-1].EndNS {
			t.Errorf("phase %d begins %v after the one before ends", i, time.Duration(p.BeginNS-r.Phases[i-1].EndNS))
		}
		sum := 0.0
		for _, v := range p.Bottleneck.Shares {
			sum += v
		}
		if math.Abs(sum-1) > 1e-6 {
			t.Errorf("phase %d: the shares add up to %v", i, sum)
		}
	}
	for name := range recordedBottlenecks {
		got, want := found(t, r, truth, name), truth.Phase(name)
		for _, off := range []int64{got.BeginNS - want.BeginNS, got.EndNS - want.EndNS} {
			if d := time.Duration(off); d.Abs() > 1500*time.Millisecond {
				t.Errorf("%s: a border is off by %v", name, d)
			}
		}
	}
}

// truePeriod is the mean time from step to step of rank 0 in a phase.
func truePeriod(truth *plant.Truth, phase string) float64 {
	s := truth.In(0, phase)
	return float64(s[len(s)-1].Begin-s[0].Begin) / float64(len(s)-1)
}

func TestRecordedPeriods(t *testing.T) {
	r, truth := recorded()
	for _, name := range []string{"train", "train_slow_rank3", "train_input_stall", "train2"} {
		p := found(t, r, truth, name)
		if p.StepNS == nil {
			t.Errorf("%s: no period: %s", name, p.StepNote)
			continue
		}
		if want, got := truePeriod(truth, name), float64(*p.StepNS); math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: the period is %.1f ms, in truth %.1f ms", name, got/1e6, want/1e6)
		} else {
			t.Logf("%s: %.2f ms, in truth %.2f ms (%+.2f %%)", name, got/1e6, want/1e6, 100*(got/want-1))
		}
	}
}
