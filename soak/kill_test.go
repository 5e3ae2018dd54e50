package soak_test

import (
	"errors"
	"math/rand"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/verify"
)

// lossLimit is what a killed agent may lose: what it had not yet flushed, and
// the time that a flush and a tick take on a machine that is busy with other
// tests.
const lossLimit = 1500 * time.Millisecond

// TestKilledAgents kills agents at random instants: the job does not notice, at
// most the last second is lost, and all that is lost is reported.
func TestKilledAgents(t *testing.T) {
	flags := replay(t)
	var sum kills
	t.Cleanup(func() {
		if sum.killed == 0 {
			t.Error("no agent was killed")
		}
		t.Logf("%d agents killed, %d before they had a row; at most %s lost, all of it reported", sum.killed, sum.early, sum.most.Round(time.Millisecond))
	})
	rng := rand.New(rand.NewSource(time.Now().UnixNano()))
	for range full(20, 1000) {
		after := time.Duration(rng.Int63n(int64(2200 * time.Millisecond)))
		t.Run("", func(t *testing.T) {
			t.Parallel()
			killAgent(t, flags, after, &sum)
		})
	}
}

// kills sums up.
type kills struct {
	mu            sync.Mutex
	killed, early int
	most          time.Duration
}

func (k *kills) add(early bool, lost time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.killed++
	if early {
		k.early++
	}
	k.most = max(k.most, lost)
}

func killAgent(t *testing.T, flags []string, after time.Duration, sum *kills) {
	w := startWrap(t, flags, "sleep", "2.5")
	time.Sleep(after)
	var killed time.Time
	if pid := w.agent(); pid != 0 {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed = time.Now()
	}
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the job noticed: %v", err)
	}
	w.gone()
	r, err := w.verify()
	if errors.Is(err, merge.ErrNoData) || err != nil && after < time.Second {
		if !killed.IsZero() {
			sum.add(true, 0)
		}
		return // it was killed before it had anything
	}
	if err != nil {
		t.Fatalf("killed after %s: %v", after, err)
	}
	for _, code := range never {
		if has(r, code) {
			t.Errorf("killed after %s: %s: %+v", after, code, r.Findings)
		}
	}
	if killed.IsZero() {
		return // there was no agent yet, or none was left
	}
	if r.Complete || !has(r, verify.Code(merge.NodeKilled)) {
		t.Errorf("killed after %s: it looks whole: %+v", after, r.Findings)
	}
	last := int64(0)
	for _, n := range r.Nodes {
		for _, f := range r.Findings {
			if f.Code == verify.Absent && f.Reason == "node_lost" && f.Node == n.Node {
				last = max(last, f.BeginNS)
			}
		}
		if last == 0 {
			last = n.EndNS // nothing was due any more
		}
	}
	lost := killed.Sub(time.Unix(0, last))
	sum.add(false, lost)
	if lost > lossLimit && after > lossLimit {
		t.Errorf("killed after %s: %s are lost", after, lost)
	}
	for _, f := range r.Findings {
		if f.Code == verify.Code(shard.CorruptSpool) {
			t.Errorf("killed after %s: %+v", after, f)
		}
	}
}

// TestKilledWraps kills the rank's own wrap: the job ends with it, the agent
// sees to the rest, and how the rank ended is said to be unknown.
func TestKilledWraps(t *testing.T) {
	for range full(3, 50) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := startWrap(t, nil, "sleep", "60")
			time.Sleep(time.Second + time.Duration(rand.Int63n(int64(time.Second))))
			if err := w.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			w.cmd.Wait()
			w.gone()
			r, err := w.verify()
			if err != nil {
				t.Fatal(err)
			}
			if !has(r, verify.RankNoEnd) {
				t.Errorf("findings %+v", r.Findings)
			}
			for _, code := range append(never, verify.Gap, verify.Code(merge.NodeKilled)) {
				if has(r, code) {
					t.Errorf("%s: %+v", code, r.Findings)
				}
			}
		})
	}
}
