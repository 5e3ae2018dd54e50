//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/analysis"
	"github.com/gswarm/gswarm/clock"
	recorded "github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/rundir"
)

// TestCauses runs jobs whose trouble is made for real, merges and analyses them,
// and asks for the cause to be named first; and jobs without any, which must
// raise no alarm but one that is true. It has the cluster to itself, since it measures who waits for a
// CPU. A step of the wall clock is not among them: the nodes share the machine's.
func TestCauses(t *testing.T) {
	c := up(t, "cgroup")
	for _, tc := range []struct {
		trouble, args string
		start         int // where in the recording the GPUs begin, in seconds
		cause         analysis.Cause
		// instead is what is named for want of better where the cause is not
		// seen: that the rank waits for a core is true, why is not said.
		instead analysis.Cause
		rank    int // whom it concerns, -1 for all
	}{
		// The GPUs replay balanced steps whatever the host does.
		{trouble: "cpu", args: "--gres=gpu:2", start: 33, cause: analysis.CPUStarved, rank: 1},
		{trouble: "affinity", args: "--gres=gpu:2", start: 33, cause: analysis.Affinity, instead: analysis.CPUStarved, rank: 1},
		{trouble: "memory", args: "--gres=gpu:2 --mem=150", start: 33, cause: analysis.MemoryPressure, instead: analysis.CPUStarved, rank: 1},
		// The stand-in replays the stretch in which the recorded job waited for input.
		{trouble: "input", args: "--gres=gpu:2", start: 112, cause: analysis.InputStall, rank: -1},
	} {
		t.Run(tc.trouble, func(t *testing.T) {
			b := c.box(t)
			data := b.path("data")
			must(t, os.WriteFile(data, nil, 0o600))
			must(t, os.Truncate(data, 600<<20))
			b.replay(tc.start)
			r := b.batch("-N4 -n4 --cpus-per-task=2 "+tc.args,
				fmt.Sprintf("export DATA=%s TROUBLE=%s\ngswarm wrap -- srun --cpus-per-task=2 python3 %s/e2e/testdata/causes.py\n", data, tc.trouble, repo(t)))
			if r.code != 0 {
				t.Fatalf("exit code %d\n%s", r.code, r.stderr)
			}
			found := b.analyse("gswarm-"+r.job, 0)
			if tc.instead != "" && len(found.Findings) > 0 && found.Findings[0].Cause == tc.instead {
				t.Logf("%s is named, %s is not seen", tc.instead, tc.cause)
				tc.cause = tc.instead
			}
			b.named(found, tc.cause, tc.rank)
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
			args := "-N4 -n4 --cpus-per-task=2"
			if i%2 == 0 { // with GPUs, which replay balanced steps
				args += " --gres=gpu:2"
				b.replay(33)
			}
			before, begin := pressure(t), time.Now()
			r := b.batch(args, fmt.Sprintf("export SECONDS_TO_RUN=%d\ngswarm wrap -- srun python3 %s/e2e/testdata/causes.py\n", 5+i, repo(t)))
			waited := (pressure(t) - before).Seconds() / time.Since(begin).Seconds()
			t.Logf("run %d: tasks of this machine waited for a CPU %.0f %% of the time", i, waited*100)
			for _, f := range b.analyse("gswarm-"+r.job, 0).Findings {
				// On a machine that others keep busy ranks do wait for a core.
				if f.Severity != analysis.Info && (f.Cause != analysis.CPUStarved || waited < 0.2) {
					t.Errorf("run %d: %s: %s\n%s\n%+v", i, f.Cause, f.Title, f.Detail, f.Evidence)
				}
			}
		}
	})
}

// pressure is for how long some task of the machine has waited for a CPU.
func pressure(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/pressure/cpu")
	must(t, err)
	_, total, _ := strings.Cut(string(text), "total=")
	us, err := strconv.ParseInt(strings.Fields(total)[0], 10, 64)
	must(t, err)
	return time.Duration(us) * time.Microsecond
}

// replay lets the GPUs of all nodes show the recording together, from some
// seconds into it on.
func (b *box) replay(start int) {
	b.Helper()
	script := fmt.Sprintf("node %s/dev/nvidia%%d\norigin %d\nstart %d\n", b.c.dir, clock.System{}.Now(), start)
	write(b, b.path("nvml.script"), script, 0o644)
	b.env = []string{"GSWARM_NVML_SCRIPT=" + b.path("nvml.script")}
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
	// Rank r is the only one on the node n<r+1>. Others may be concerned too:
	// the nodes are one machine.
	concerned := func(p analysis.Place) bool {
		return p.Rank != nil && *p.Rank == rank || p.Rank == nil && p.Node == fmt.Sprintf("n%d", rank+1)
	}
	if rank >= 0 && !slices.ContainsFunc(r.Findings, func(f analysis.Finding) bool {
		return f.Cause == cause && slices.ContainsFunc(f.Places, concerned)
	}) {
		b.Errorf("%s is said of %+v, want rank %d", cause, f.Places, rank)
	}
	return f
}
