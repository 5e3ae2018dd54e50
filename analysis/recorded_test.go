package analysis_test

import (
	"bytes"
	"context"
	"encoding/json"
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

func TestRecordedBottlenecks(t *testing.T) {
	r, truth := recorded()
	for name, want := range recordedBottlenecks {
		if p := found(t, r, truth, name); p.Bottleneck.Name != want {
			t.Errorf("%s: bound by %q, in truth by %q: %v", name, p.Bottleneck.Name, want, p.Bottleneck.Shares)
		}
	}
}

// The straggler of the recorded job, and by how much it was late.
func TestRecordedStraggler(t *testing.T) {
	r, truth := recorded()
	if len(r.Stragglers) != 2 {
		t.Fatalf("%d stragglers, in truth rank 3, and rank 0 that writes the checkpoint: %+v", len(r.Stragglers), r.Stragglers)
	}
	s := r.Stragglers[0]
	phase := found(t, r, truth, "train_slow_rank3")
	if s.Rank == nil || *s.Rank != 3 || *s.GPU != 3 || s.Phase != phase.Index || !s.Chronic || s.Cause != analysis.Imbalance {
		t.Errorf("the straggler is %+v", s)
	}
	// In truth the others computed for so much shorter.
	var others, own []float64
	for rank := range truth.Steps {
		for _, step := range truth.In(rank, "train_slow_rank3") {
			if d := float64(step.Computed - step.Begin); rank == 3 {
				own = append(own, d)
			} else {
				others = append(others, d)
			}
		}
	}
	want := mean(own) - mean(others)
	if off := math.Abs(float64(s.ExcessNS) - want); off > float64(s.BoundNS) {
		t.Errorf("it was waited for %d ms in each step, in truth %.0f ms: that is not within %d ms", s.ExcessNS/1e6, want/1e6, s.BoundNS/1e6)
	}
	if s := r.Stragglers[1]; *s.Rank != 0 || s.Cause != analysis.SerialRank || s.Phase != found(t, r, truth, "ckpt").Index {
		t.Errorf("who writes the checkpoint is %+v", s)
	}
}

func mean(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s / float64(len(v))
}

// What is found of the recorded job: each cause once, and no other.
func TestRecordedFindings(t *testing.T) {
	r, truth := recorded()
	want := map[analysis.Cause]struct {
		severity analysis.Severity
		phase    string
	}{
		analysis.Imbalance:     {analysis.Problem, "train_slow_rank3"},
		analysis.InputStall:    {analysis.Problem, "train_input_stall"},
		analysis.LaunchBound:   {analysis.Warning, "launch"},
		analysis.TransferBound: {analysis.Warning, "h2d"},
		analysis.SerialRank:    {analysis.Warning, "ckpt"},
		analysis.PowerCap:      {analysis.Info, "power"},
		analysis.CommBound:     {analysis.Info, "comm"},
		analysis.MemoryBound:   {analysis.Info, "hbm"},
	}
	for _, f := range r.Findings {
		w, ok := want[f.Cause]
		if !ok || f.Severity != w.severity {
			t.Errorf("found %s (%s): %s", f.Cause, f.Severity, f.Title)
			continue
		}
		delete(want, f.Cause)
		p := truth.Phase(w.phase)
		if min(f.EndNS, p.EndNS)-max(f.BeginNS, p.BeginNS) < (p.EndNS-p.BeginNS)*3/4 {
			t.Errorf("%s is not said of the phase %s", f.Cause, w.phase)
		}
		if len(f.Evidence) == 0 || f.Remedy == "" || f.Cause != analysis.PowerCap && (f.Effect == nil || *f.Effect <= 0) {
			t.Errorf("%s lacks evidence, remedy or effect: %+v", f.Cause, f)
		}
		for _, e := range f.Evidence {
			if e.Rows == 0 || e.Says == "" || len(e.Columns) == 0 {
				t.Errorf("%s: evidence without rows: %+v", f.Cause, e)
			}
		}
	}
	for cause := range want {
		t.Errorf("%s was not found", cause)
	}
}

// The same rows give the same answer.
func TestSameAnswer(t *testing.T) {
	first, _ := recorded()
	src, facts, _, err := plant.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	again, err := analysis.Analyze(context.Background(), src, facts)
	if err != nil {
		t.Fatal(err)
	}
	a, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("a second analysis gives another answer")
	}
}
