package clock_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/clock/clocktest"
)

// TestComparison puts the methods of others beside this one, on the same
// simulated exchanges of an hour.
func TestComparison(t *testing.T) {
	jobs := 1
	if f := flag.Lookup("soak"); f != nil && f.Value.String() == "true" {
		jobs = 30
	}
	for _, congested := range []bool{false, true} {
		errs := map[string][]float64{}
		var names []string
		note := func(name string, d float64) {
			if _, ok := errs[name]; !ok {
				names = append(names, name)
			}
			errs[name] = append(errs[name], math.Abs(d))
		}
		var half []float64
		for range jobs {
			s := clock.SimulateHour(t, congested)
			m := s.Model
			others := append(clocktest.Methods(s.Exchanges), clocktest.Trust(s.Brackets, s.PeerBrackets))
			for _, at := range s.Instants {
				if _, bound, ok := m.Offset(at.Node); ok {
					half = append(half, float64(bound))
				}
				off, _, _ := m.Offset(at.Node)
				truth := float64(at.Peer - at.Node)
				note("gswarm", float64(off)-truth)
				for _, o := range others {
					note(o.Name, o.Offset(at.Node)-truth)
				}
			}
		}
		t.Logf("congested: %v, %d jobs of 1 h, a burst of 8 a second", congested, jobs)
		q := func(v []float64, p float64) string {
			slices.Sort(v)
			return fmt.Sprintf("%.2f", v[int(p*float64(len(v)-1))]/1e3)
		}
		for _, n := range names {
			t.Logf("| %s | %s | %s | %s |", n, q(errs[n], 0.5), q(errs[n], 0.99), q(errs[n], 1))
		}
		t.Logf("guaranteed half-width of gswarm: p50 %s p99 %s max %s us", q(half, 0.5), q(half, 0.99), q(half, 1))
		// Of the lines only: how well a wall clock is kept is made up here.
		for _, n := range names[1:3] {
			if slices.Max(errs["gswarm"]) > slices.Max(errs[n]) {
				t.Errorf("%s is better", n)
			}
		}
	}
}
