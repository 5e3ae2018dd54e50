package main

import (
	"testing"

	"github.com/gswarm/gswarm/rankagent/gpu"
)

// TestChooseGPUs: what --gpus names, by ordinal, by UUID and by the job's
// environment.
func TestChooseGPUs(t *testing.T) {
	infos := []gpu.Info{{Index: 0, UUID: "GPU-aa11"}, {Index: 1, UUID: "GPU-bb22"}, {Index: 2, UUID: "MIG-cc33", Parent: "GPU-bb22"}}
	for _, tc := range []struct {
		which, step, visible string
		want                 [3]bool
	}{
		{"all", "", "", [3]bool{true, true, true}},
		{"", "1", "0", [3]bool{true, true, true}},
		{"0", "", "", [3]bool{true, false, false}},
		{"1, 2", "", "", [3]bool{false, true, true}},
		{"GPU-b", "", "", [3]bool{false, true, true}},
		{"MIG-cc33", "", "", [3]bool{false, false, true}},
		{"job", "", "", [3]bool{true, true, true}},
		{"job", "1", "0", [3]bool{false, true, false}},
		{"job", "", "GPU-aa11", [3]bool{true, false, false}},
		{"job", "", "MIG-cc33", [3]bool{false, false, true}},
		{"job", "", "NoDevFiles", [3]bool{true, true, true}},
	} {
		chosen, err := chooseGPUs(tc.which, func(name string) string {
			return map[string]string{"SLURM_STEP_GPUS": tc.step, "CUDA_VISIBLE_DEVICES": tc.visible}[name]
		})
		if err != nil {
			t.Errorf("%+v: %v", tc, err)
			continue
		}
		for i, info := range infos {
			if got := chosen == nil || chosen(info); got != tc.want[i] {
				t.Errorf("%+v: GPU %d chosen: %v", tc, i, got)
			}
		}
	}
	for _, bad := range []string{"some", "0,", "-1", "0 1"} {
		if _, err := chooseGPUs(bad, nil); err == nil {
			t.Errorf("--gpus %q is accepted", bad)
		}
	}
}
