package plant

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gswarm/gswarm/table"
)

// stats are mean and standard deviation of a column of one GPU in a stretch.
func stats(t *testing.T, s *Source, tab *table.Table, column, gpu int, in stretch) (mean, sd float64) {
	t.Helper()
	key := table.ColBegin
	if tab.Shape == table.Windowed {
		key++
	}
	var n, sum, squares float64
	err := s.Rows(context.Background(), tab, []int{table.TLTimeNS, own(key), own(column)}, func(b *table.Batch) error {
		for i, at := range b.Ints(table.TLTimeNS) {
			if at < in.begin || at >= in.end || b.Ints(own(key))[i] != int64(gpu) {
				continue
			}
			v := 0.0
			if tab.Columns[column].Type == table.Float32 {
				v = b.Floats(own(column))[i]
			} else {
				v = float64(b.Ints(own(column))[i])
			}
			n, sum, squares = n+1, sum+v, squares+v*v
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%s: %v rows, %v", tab.Name, n, err)
	}
	return sum / n, math.Sqrt(max(0, squares/n-sum/n*sum/n))
}

// TestMadeLooksRecorded makes the recording's own phases out of recorded pieces
// and compares what the GPUs show: the balanced steps, those in which rank 3 has
// half as much work again, and those in which all wait for input.
func TestMadeLooksRecorded(t *testing.T) {
	m, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	recorded, _, truth, err := Recorded()
	if err != nil {
		t.Fatal(err)
	}
	for phase, shape := range map[string]func(p *planned){
		"train":             func(*planned) {},
		"train_slow_rank3":  func(p *planned) { p.ranks[3].compute += 250e6 },
		"train_input_stall": func(p *planned) { addGap(p, 450e6) },
	} {
		j := newJob(m, rand.New(rand.NewPCG(1, 1)), 1, 60e9) //nolint:gosec // made-up data
		j.base = base{gap: 28e6, compute: 1, comm: 12e6}
		j.nodes[0].noise, j.nodes[0].missed = 0, 0
		for g := range perNode {
			j.nodes[0].tracks[g].as, j.nodes[0].tracks[g].watts, j.nodes[0].tracks[g].cool = g, 1, 1
		}
		j.plant = []planting{{active: stretch{j.begin, j.end}, shape: shape}}
		j.make(5e9)
		made := j.source()
		p := truth.Phase(phase)
		was, is := stretch{p.BeginNS + 6e9, p.EndNS - 1e9}, stretch{j.begin + 12e9, j.end - 1e9}
		for _, g := range []int{0, 3, 6} {
			for _, c := range []struct {
				tab    *table.Table
				column int
				mean   float64 // the relative difference that is borne with
				sd     float64
			}{
				{table.GPUActivity, table.ActSMUtil, 0.08, 0.3}, {table.GPUActivity, table.ActTensor, 0.08, 0.3},
				{table.GPUActivity, table.ActDRAM, 0.08, 0.6}, {table.GPUActivity, table.ActNVLinkTx, 0.25, 0.6},
				{table.GPUPower, table.PowPower, 0.07, 0.4}, {table.GPU, table.GPUClockSM, 0.06, 0.7}, {table.GPU, table.GPUTemp, 0.08, 2},
			} {
				a, sa := stats(t, recorded, c.tab, c.column, g, was)
				b, sb := stats(t, made, c.tab, c.column, g, is)
				t.Logf("%-18s GPU %d %-16s recorded %10.1f ± %9.1f  made %10.1f ± %9.1f", phase, g, c.tab.Columns[c.column].Name, a, sa, b, sb)
				if math.Abs(a-b) > c.mean*a || math.Abs(sa-sb) > c.sd*max(sa, 1) {
					t.Errorf("%s, GPU %d, %s: made is not like recorded", phase, g, c.tab.Columns[c.column].Name)
				}
			}
		}
	}
}

func addGap(p *planned, by int64) {
	for r := range p.ranks {
		p.ranks[r].gap += by
	}
}
