package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/merge"
)

func TestTaskOf(t *testing.T) {
	srun := []string{"SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=8"}
	for _, tc := range []struct {
		slice       string
		env         []string
		task, tasks int
		fails       bool
	}{
		{"", nil, 0, 0, false},
		{"", srun, 3, 8, false},
		{"1/2", srun, 1, 2, false},
		{"0/1", srun, 0, 1, false}, // a way out of sharing
		// The batch script itself is no task of a step.
		{"", []string{"SLURM_PROCID=0", "SLURM_NTASKS=8"}, 0, 0, false},
		{"", []string{"SLURM_PROCID=9", "SLURM_STEP_NUM_TASKS=8"}, 0, 0, false},
		{"2/2", nil, 0, 0, true},
		{"-1/2", nil, 0, 0, true},
		{"1", nil, 0, 0, true},
		{"a/b", nil, 0, 0, true},
	} {
		task, tasks, err := taskOf(tc.slice, tc.env)
		if task != tc.task || tasks != tc.tasks || (err != nil) != tc.fails {
			t.Errorf("%q %v: task %d of %d, %v", tc.slice, tc.env, task, tasks, err)
		}
	}
}

func TestProgressLine(t *testing.T) {
	got := progressLine(merge.Progress{Table: "gpu", Rows: 25e6, Total: 50e6}, 10*time.Second)
	if want := "[" + strings.Repeat("=", 15) + strings.Repeat(" ", 15) + "]  50%  2 500 000 rows/s  10s left  gpu"; got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	// At the beginning nobody knows, and a plan may count too few.
	if got := progressLine(merge.Progress{Rows: 3, Total: 2}, time.Millisecond); strings.Contains(got, "left") || !strings.Contains(got, "100%") {
		t.Errorf("%q", got)
	}
}
