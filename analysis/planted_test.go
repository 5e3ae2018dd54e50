package analysis_test

import (
	"context"
	"testing"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/analysis/plant"
)

// TestPlanted holds the analysis against a few runs of each cause at +20 % and
// against clean ones. How often it is right over many runs and sizes is counted
// by make proof and stands in docs/analysis-proof.md.
func TestPlanted(t *testing.T) {
	m, err := plant.Load()
	if err != nil {
		t.Fatal(err)
	}
	const runs, size = 3, 0.2
	for _, cause := range plant.Causes() {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			first := 0
			for seed := uint64(1); seed <= runs; seed++ {
				c := m.Make(cause, size, seed)
				r := analyse(t, c)
				if len(r.Findings) > 0 && r.Findings[0].Cause == cause {
					first++
					continue
				}
				t.Logf("%v: named %v\n\tgo run ./analysis/proof -show %s,%g,%d", c, causes(r, true), cause, size, seed)
			}
			if first < runs-1 {
				t.Errorf("named first in %d of %d runs", first, runs)
			}
		})
	}
	t.Run("clean", func(t *testing.T) {
		t.Parallel()
		for seed := uint64(1); seed <= 10; seed++ {
			if alarms := causes(analyse(t, m.Clean(seed)), false); len(alarms) > 0 {
				t.Errorf("seed %d: alarms %v\n\tgo run ./analysis/proof -show clean,0,%d", seed, alarms, seed)
			}
		}
	})
}

func analyse(t *testing.T, c *plant.Case) *analysis.Result {
	t.Helper()
	r, err := analysis.Analyze(context.Background(), c.Source, c.Facts)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return r
}

// causes are those found, in order; informative ones too if wanted.
func causes(r *analysis.Result, informative bool) []analysis.Cause {
	var all []analysis.Cause
	for _, f := range r.Findings {
		if informative || f.Severity != analysis.Info {
			all = append(all, f.Cause)
		}
	}
	return all
}
