package analysis_test

import (
	"math"
	"testing"
)

// TestGPUHours: what the GPUs were held for, worked or not.
func TestGPUHours(t *testing.T) {
	t.Parallel()
	r, _ := recorded()
	if want := 8 * r.Job.Seconds() / 3600; r.Job.Seconds() < 200 || math.Abs(r.Totals.GPUHours-want) > 1e-9 {
		t.Errorf("%g GPU-hours in %g s, want %g", r.Totals.GPUHours, r.Job.Seconds(), want)
	}
}
