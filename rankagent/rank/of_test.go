package rank

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOf: the innermost launcher's variable counts, and only in the job.
func TestOf(t *testing.T) {
	job := [2]string{"SLURM_JOB_ID", "7"}
	for _, tc := range []struct {
		env  []string
		job  [2]string
		want int
	}{
		{[]string{"SLURM_JOB_ID=7", "SLURM_PROCID=3"}, job, 3},
		{[]string{"SLURM_JOB_ID=8", "SLURM_PROCID=3"}, job, -1},
		{[]string{"SLURM_JOB_ID=7", "SLURM_PROCID=0", "TORCHELASTIC_RUN_ID=x", "RANK=5"}, job, 5},
		{[]string{"RANK=5", "WORLD_SIZE=8"}, [2]string{}, 5},
		{[]string{"RANK=admiral", "OMPI_COMM_WORLD_RANK=2"}, [2]string{}, 2},
		{[]string{"RANK=5"}, [2]string{}, -1},
		{[]string{"PMIX_RANK=-1"}, [2]string{}, -1},
		{nil, [2]string{}, -1},
	} {
		proc := t.TempDir()
		if err := os.Mkdir(filepath.Join(proc, "12"), 0o700); err != nil {
			t.Fatal(err)
		}
		env := strings.Join(tc.env, "\x00") + "\x00"
		if err := os.WriteFile(filepath.Join(proc, "12", "environ"), []byte(env), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Of(proc, 12, tc.job); got != tc.want {
			t.Errorf("%q in job %v: rank %d, want %d", tc.env, tc.job, got, tc.want)
		}
		if got := Of(proc, 13, tc.job); got != -1 {
			t.Errorf("no such process: rank %d", got)
		}
	}
}
