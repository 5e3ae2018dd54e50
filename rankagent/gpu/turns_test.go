//go:build cgo && linux

package gpu

import (
	"sync"
	"testing"
	"time"

	"github.com/gswarm/gswarm/table"
)

// TestMetricsOneAtATime: the stand-in, as one real driver may, crashes where
// the metrics of two GPUs are computed at once, be it in the try or later.
func TestMetricsOneAtATime(t *testing.T) {
	d := open(t, Options{}, "gpus 4", "fault nvmlGpmMetricsGet * slow 1000")
	var all sync.WaitGroup
	for _, dev := range d.devices {
		all.Add(1)
		go func() {
			defer all.Done()
			s, out := newActivity(dev), newSink()
			for range 4 {
				read(t, s, out)
				time.Sleep(minWindow + 5*time.Millisecond)
			}
			if n := out.Batch(table.GPUActivity).Rows(); n < 2 {
				t.Errorf("GPU %d: %d windows", dev.index, n)
			}
		}()
	}
	all.Wait()
}

// TestTurns: a turn that is not given back keeps others waiting for as long as
// they have patience, and no longer.
func TestTurns(t *testing.T) {
	turns := newTurns()
	first := turns.take(time.Minute)
	if second := turns.take(time.Millisecond); !first.mine() || second.mine() {
		t.Fatal("two have the turn, or none")
	}
	first.give()
	first.give()
	third := turns.take(time.Millisecond)
	if !third.mine() {
		t.Fatal("nobody has the turn, and it is not to be had")
	}
	third.give()
}
