//go:build cgo && linux

package gpu

import (
	"testing"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
)

// TestEnergyAgainstPower: over the recorded job, the integral of the driver's
// power samples is the energy counter's difference to within a fifth of a
// percent. docs/gpu.md says so of eight H200s, and these are they.
func TestEnergyAgainstPower(t *testing.T) {
	r, err := recording()
	if err != nil {
		t.Fatal(err)
	}
	type reading struct{ at, mj int64 }
	counter := make([][]reading, len(r.GPUs))
	for _, row := range r.Counter.Rows {
		at := row.Value[nvmltest.CntT] - int64(r.AnchorRaw) + int64(r.AnchorReal)
		counter[row.GPU] = append(counter[row.GPU], reading{at, row.Value[nvmltest.CntEnergy]})
	}
	for gpu := range r.GPUs {
		// The first and the last reading lie outside of the samples.
		from, to := counter[gpu][1], counter[gpu][len(counter[gpu])-2]
		var joules float64
		last := sample{from.at, -1}
		for _, s := range recordedPower(t, gpu) {
			at := s.stamp * 1000
			if at < from.at || at > to.at {
				continue
			}
			if last.power < 0 {
				last.power = s.power
			}
			joules += float64(at-last.stamp) / 1e9 * float64(s.power+last.power) / 2e3
			last = sample{at, s.power}
		}
		joules += float64(to.at-last.stamp) / 1e9 * float64(last.power) / 1e3
		counted := float64(to.mj-from.mj) / 1e3
		off := 100 * (joules/counted - 1)
		t.Logf("GPU %d: %.0f J counted, samples %+.2f %%", gpu, counted, off)
		if off < -0.2 || off > 0.2 {
			t.Errorf("GPU %d: the samples are %+.2f %% off the counter", gpu, off)
		}
	}
}
