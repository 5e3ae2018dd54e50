package plant

import (
	"context"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
	"github.com/gswarm/gswarm/table"
)

// TestRecorded holds the source against the recording: every row is there, in
// order, and what the job wrote down lies where the GPUs show it.
func TestRecorded(t *testing.T) {
	src, facts, truth, err := Recorded()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := nvmltest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for tab, want := range map[*table.Table]int{
		table.GPU: len(rec.Cheap.Rows), table.GPUActivity: len(rec.Activity.Rows), table.GPUPower: len(rec.Power.Rows),
		table.GPUCounter: len(rec.Counter.Rows), table.GPUProcess: len(rec.Process.Rows), table.Host: 0,
	} {
		rows, last := 0, int64(0)
		err := src.Rows(context.Background(), tab, []int{table.TLTimeNS}, func(b *table.Batch) error {
			rows += b.Rows()
			for _, at := range b.Ints(table.TLTimeNS) {
				if at < last {
					t.Fatalf("%s: %d comes after %d", tab.Name, at, last)
				}
				last = at
			}
			if slices.Contains(b.Valid(table.TLNode), true) {
				t.Fatalf("%s: a column that was not asked for is filled", tab.Name)
			}
			return nil
		})
		if err != nil || rows != want || src.Len(tab) != want {
			t.Errorf("%s: %d rows, %d were recorded; %v", tab.Name, rows, want, err)
		}
	}
	if len(truth.Phases) != 12 || len(facts.Nodes[0].GPUs) != 8 || facts.EndNS-facts.BeginNS < 240e9 {
		t.Errorf("%d phases, %d GPUs, %d ns", len(truth.Phases), len(facts.Nodes[0].GPUs), facts.EndNS-facts.BeginNS)
	}
	for r, steps := range truth.Steps {
		if len(steps) != 562 {
			t.Errorf("rank %d: %d steps", r, len(steps))
		}
	}
	// NVLink carries 350 GB/s while the job exchanges, and nothing while it
	// streams through device memory.
	for phase, least := range map[string]float64{"comm": 340e3, "hbm": -1} {
		p := truth.Phase(phase)
		sum, n := 0.0, 0.0
		nvlink := own(table.ActNVLinkTx)
		err := src.Rows(context.Background(), table.GPUActivity, []int{table.TLTimeNS, table.TLBegin, nvlink}, func(b *table.Batch) error {
			for i, v := range b.Floats(nvlink) {
				if b.Ints(table.TLBegin)[i] > p.BeginNS+1e9 && b.Ints(table.TLTimeNS)[i] < p.EndNS-1e9 {
					sum, n = sum+v, n+1
				}
			}
			return nil
		})
		if mean := sum / n; err != nil || mean < least || phase == "hbm" && mean > 1 {
			t.Errorf("%s: %.0f MiB/s over NVLink; %v", phase, mean, err)
		}
	}
}

// TestTiles shows the order of rows: tile after tile, within it node after node.
func TestTiles(t *testing.T) {
	src := newSource()
	tile := int64(Tile)
	for _, at := range []int64{tile + 5, 7, 3 * tile, 1} {
		for _, node := range []string{"b", "a"} {
			src.add(table.Host, node, stamp{t: at, bound: -1})
		}
	}
	src.sort()
	type row struct {
		node string
		at   int64
	}
	var got []row
	err := src.Rows(context.Background(), table.Host, []int{table.TLTimeNS, table.TLNode, table.TLBound}, func(b *table.Batch) error {
		for i := range b.Rows() {
			got = append(got, row{b.Strings(table.TLNode)[i], b.Ints(table.TLTimeNS)[i]})
			if b.Valid(table.TLBound)[i] {
				t.Error("a bound that is not known is given")
			}
		}
		return nil
	})
	want := []row{{"a", 1}, {"a", 7}, {"b", 1}, {"b", 7}, {"a", tile + 5}, {"b", tile + 5}, {"a", 3 * tile}, {"b", 3 * tile}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if err := src.Rows(context.Background(), table.Host, []int{999}, nil); err == nil {
		t.Error("a column that is not there was passed")
	}
}
