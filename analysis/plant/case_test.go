package plant

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/table"
)

// TestEveryCauseIsMade makes each case once and looks at what must hold for any
// run: order, bounds, and the same run from the same seed.
func TestEveryCauseIsMade(t *testing.T) {
	m, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for g := range m.gpus {
		u := &m.gpus[g]
		t.Logf("GPU %d: windows trail by %v ns; %.0f C + %.3f C/W in %.1f s + %.3f C/W in %.0f s; %d steps, %d waits",
			g, u.lags, u.thermal.ambient, u.thermal.fast.perWatt, u.thermal.fast.tau, u.thermal.slow.perWatt, u.thermal.slow.tau, len(u.kernels), len(u.spins))
	}
	for i, cause := range Causes() {
		begin := time.Now()
		c := m.Make(cause, 0.1, 1)
		t.Logf("%v: %d gpu, %d activity, %d power, %d rank rows in %v", c, c.Source.Len(table.GPU), c.Source.Len(table.GPUActivity), c.Source.Len(table.GPUPower), c.Source.Len(table.Rank), time.Since(begin).Round(time.Millisecond))
		check(t, c)
		if lengthens := c.Excess != 0; lengthens && math.Abs(c.Excess-c.Size) > 0.15*c.Size {
			t.Errorf("%v: the steps became %.1f %% longer", c, c.Excess*100)
		}
		if i%7 > 0 {
			continue
		}
		again := m.Make(cause, 0.1, 1)
		if again.String() != c.String() || sum(t, again.Source) != sum(t, c.Source) {
			t.Errorf("%v: the same seed makes another run", c)
		}
	}
	for seed := range uint64(4) {
		c := m.Clean(seed)
		t.Logf("clean, seed %d: %s, %d nodes, %d steps", seed, c.Variant, len(c.Facts.Nodes), len(c.Steps))
		check(t, c)
	}
}

func check(t *testing.T, c *Case) {
	t.Helper()
	if c.Source.Len(table.GPU) == 0 || c.Source.Len(table.Host) == 0 {
		t.Errorf("%v: no rows", c)
	}
	for _, tab := range table.All() {
		last := map[string]int64{}
		err := c.Source.Rows(context.Background(), tab, []int{table.TLTimeNS, table.TLNode}, func(b *table.Batch) error {
			for i, at := range b.Ints(table.TLTimeNS) {
				if n := b.Strings(table.TLNode)[i]; at < last[n] {
					t.Errorf("%v: %s: a row is out of order", c, tab.Name)
				} else {
					last[n] = at
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sum tells two sources apart.
func sum(t *testing.T, s *Source) (total float64) {
	t.Helper()
	for _, c := range []int{table.GPUPowerNow, table.GPUClockSM, table.GPUTemp} {
		err := s.Rows(context.Background(), table.GPU, []int{own(c), table.TLTimeNS}, func(b *table.Batch) error {
			for i, v := range b.Ints(own(c)) {
				total += float64(v) * float64(b.Ints(table.TLTimeNS)[i]%1e9)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return total
}

var _ = analysis.Imbalance
