//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gswarm/gswarm/analysis"
	recorded "github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/rundir"
)

// TestCauses runs jobs whose trouble is made for real, merges and analyses them,
// and asks for the cause to be named first; and jobs without any, which must
// raise no alarm. It has the cluster to itself, since it measures who waits for a
// CPU. A step of the wall clock is not among them: the nodes share the machine's.
func TestCauses(t *testing.T) {
	c := up(t, "cgroup")
	for _, tc := range []struct {
		trouble, args string
		start         int // where in the recording the GPUs begin, 0: no GPUs
		cause         analysis.Cause
		rank          int // whom it concerns, -1 for all
	}{
		{trouble: "cpu", cause: analysis.CPUStarved, rank: 1},
		{trouble: "affinity", cause: analysis.Affinity, rank: 1},
		{trouble: "memory", args: "--mem=150", cause: analysis.MemoryPressure, rank: 1},
		// The stand-in replays the stretch in which the recorded job waited for input.
		{trouble: "input", args: "--gres=gpu:2", start: 112, cause: analysis.InputStall, rank: -1},
	} {
		t.Run(tc.trouble, func(t *testing.T) {
			b := c.box(t)
			data := b.path("data")
			must(t, os.WriteFile(data, nil, 0o600))
			must(t, os.Truncate(data, 600<<20))
			if tc.start > 0 {
				write(t, b.path("nvml.script"), fmt.Sprintf("node %s/dev/nvidia%%d\nstart %d\n", c.dir, tc.start), 0o644)
				b.env = []string{"GSWARM_NVML_SCRIPT=" + b.path("nvml.script")}
			}
			r := b.batch("-N4 -n4 --cpus-per-task=2 "+tc.args,
				fmt.Sprintf("export DATA=%s TROUBLE=%s\ngswarm wrap -- srun --cpus-per-task=2 python3 %s/e2e/testdata/causes.py\n", data, tc.trouble, repo(t)))
			if r.code != 0 {
				t.Fatalf("exit code %d\n%s", r.code, r.stderr)
			}
			b.named(b.analyse("gswarm-"+r.job, 0), tc.cause, tc.rank)
		})
	}
	t.Run("lost node", func(t *testing.T) {
		b := c.box(t)
		id := b.submit("-N4 -n4", "gswarm wrap -- srun --no-kill --kill-on-bad-exit=0 signals.py $DIR/log 20")
		b.ready(4, 4)
		time.Sleep(6 * time.Second)
		for _, p := range b.processes() { // a node that dies takes all with it
			if p.node() == "n3" {
				kill(b, p)
			}
		}
		b.await(id)
		r := b.analyse("gswarm-"+id, 3)
		f := b.named(r, analysis.NodeMissing, -1)
		if len(f.Places) != 1 || f.Places[0].Node != "n3" {
			t.Errorf("it is said of %v, n3 was lost", f.Places)
		}
	})
	t.Run("clean", func(t *testing.T) {
		for i := range 10 {
			b := c.box(t)
			r := b.batch("-N4 -n4 --cpus-per-task=2", fmt.Sprintf("export SECONDS_TO_RUN=%d\ngswarm wrap -- srun python3 %s/e2e/testdata/causes.py\n", 5+i, repo(t)))
			dir := "gswarm-" + r.job
			for _, f := range b.analyse(dir, 0).Findings {
				if f.Severity != analysis.Info {
					t.Errorf("run %d: %s: %s\n%s\n%+v", i, f.Cause, f.Title, f.Detail, f.Evidence)
				}
			}
		}
	})
}

// analyse merges a run, which ends with a code, and analyses it.
func (b *box) analyse(dir string, code int) *analysis.Result {
	b.Helper()
	if m := b.gswarm("merge", dir); m.code != code {
		b.Fatalf("merge: %d, want %d\n%s%s", m.code, code, m.stdout, m.stderr)
	}
	tl, err := recorded.Open(rundir.Dir(b.path(dir)))
	must(b, err)
	facts, err := tl.Facts(time.Now())
	must(b, err)
	r, err := analysis.Analyze(context.Background(), tl, facts)
	must(b, err)
	return r
}

// named asserts that the first finding is of this cause and concerns this rank.
func (b *box) named(r *analysis.Result, cause analysis.Cause, rank int) analysis.Finding {
	b.Helper()
	if len(r.Findings) == 0 {
		b.Fatalf("nothing is found, want %s; missing: %v, notes: %v", cause, r.Data.Missing, r.Data.Notes)
	}
	f := r.Findings[0]
	if f.Cause != cause {
		for _, f := range r.Findings {
			b.Logf("%s (%s): %s\n\t%s\n\t%+v", f.Cause, f.Severity, f.Title, f.Detail, f.Evidence)
		}
		b.Fatalf("%s is named first, want %s", f.Cause, cause)
	}
	if rank >= 0 && !slices.ContainsFunc(f.Places, func(p analysis.Place) bool { return p.Rank != nil && *p.Rank == rank }) {
		b.Errorf("%s is said of %+v, want rank %d", cause, f.Places, rank)
	}
	return f
}
