//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/table"
)

// sides runs test with wrap in front and behind.
func sides(t *testing.T, c *cluster, test func(b *box, command string)) {
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun", "Behind": "srun gswarm wrap --"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(c.box(t), command)
		})
	}
}

// endingsOfTasks compares what srun prints of several tasks that end in
// different ways.
func endingsOfTasks(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		script := "ulimit -c 0\n" + strings.ReplaceAll(`
srun bash -c 'exit $((SLURM_PROCID == 2 ? 3 : 0))'; echo $?
srun bash -c 'sleep .$SLURM_PROCID; kill -TERM $$' ; echo $?
srun -n1 -N1 bash -c 'ulimit -c 0; kill -SEGV $$'; echo $?
srun -n1 -N1 bash -c 'kill -KILL $$'; echo $?
srun -n1 -N1 bash -c 'exit 143'; echo $?
srun --kill-on-bad-exit=1 bash -c '((SLURM_PROCID == 1)) && exit 9; sleep 30'; echo $?
srun -n1 -N1 /nonexistent; echo $?
srun -n1 -N1 /etc/passwd; echo $?
`, "srun", "srun --quiet-not-set")
		script = strings.ReplaceAll(script, " --quiet-not-set", "")
		// Put the wrap before srun's command or before srun itself.
		if strings.HasPrefix(command, "gswarm") {
			script = regexp.MustCompile(`(?m)^srun`).ReplaceAllString(script, "gswarm wrap -- srun")
		} else {
			script = regexp.MustCompile(`(?m)^(srun (?:-\S+ )*)`).ReplaceAllString(script, "${1}gswarm wrap -- ")
		}
		one, two := b.without().submit("-N2 -n4", script), b.submit("-N2 -n4", script)
		x, y := b.without().await(one), b.await(two)
		// What cannot be started is said by wrap and not by srun or slurmstepd.
		b.untouched(withoutStart(x), withoutStart(y))
	})
}

var startMessages = regexp.MustCompile(`(?m)^.*(nonexistent|/etc/passwd|task 0: Exited with exit code (2|13|126|127)|^(2|13|126|127)$).*\n`)

func withoutStart(r result) result {
	r.stderr = startMessages.ReplaceAllString(r.stderr, "")
	r.stdout = regexp.MustCompile(`(?m)^(2|13|126|127)\n`).ReplaceAllString(r.stdout, "")
	return r
}

// logs reads what signals.py noted, by rank, without times.
func (b *box) logs(ranks int) string {
	var all strings.Builder
	for r := range ranks {
		text := regexp.MustCompile(`(?m)^(done) \d+`).ReplaceAllString(b.read(fmt.Sprintf("log.%d", r)), "$1")
		// Slurm sends SIGCONT before the others; how many get through before
		// the process looks is chance.
		text = strings.ReplaceAll(text, "SIGCONT\n", "")
		text = regexp.MustCompile(`(?m)(^SIGTERM\n)+`).ReplaceAllString(text, "SIGTERM\n") // Slurm may send several
		lines := strings.Split(text, "\n")
		for i := len(lines) - 1; i > 0; i-- { // srun may tell of a window's size twice
			if strings.HasPrefix(lines[i], "SIGWINCH") && lines[i] == lines[i-1] {
				lines = slices.Delete(lines, i, i+1)
			}
		}
		text = strings.Join(lines, "\n")
		fmt.Fprintf(&all, "rank %d: %s\n", r, strings.Join(strings.Fields(text), " "))
	}
	return all.String()
}

// ready waits until all ranks have said so, and until the nodes are sampled.
func (b *box) ready(ranks, nodes int) {
	b.Helper()
	b.until(jobPatience, "the ranks", func() bool {
		for r := range ranks {
			if !strings.Contains(b.read(fmt.Sprintf("log.%d", r)), "ready") {
				return false
			}
		}
		return true
	})
	if !b.bare {
		b.until(20*time.Second, "the agents", func() bool { return len(b.agents()) == nodes })
	}
}

// compare runs a job bare and wrapped, does the same to both once they run, and
// wants the same signals in the ranks and the same messages.
func (b *box) compare(args, script string, ranks, nodes int, act func(b *box, job string)) (bare, wrapped result) {
	b.Helper()
	o := b.without()
	one, two := o.submit(args, script), b.submit(args, script)
	for _, x := range []struct {
		*box
		job string
	}{{o, one}, {b, two}} {
		x.ready(ranks, nodes)
		act(x.box, x.job)
	}
	bare, wrapped = o.await(one), b.await(two)
	if x, y := o.logs(ranks), b.logs(ranks); x != y {
		b.Errorf("signals differ:\nbare:\n%swrapped:\n%s", x, y)
	}
	return bare, wrapped
}

func scancel(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		_, r := b.compare("-N2 -n4", command+" signals.py $DIR/log 60 1", 4, 2, func(b *box, job string) {
			time.Sleep(1500 * time.Millisecond) // some data
			b.shell("scancel " + job)
		})
		b.kept(r.job, "the grace period")
	})
}

// kept checks that the data of a job that Slurm ended reach to the end of the
// ranks, up to the last second.
func (b *box) kept(job, what string) {
	b.Helper()
	found, err := filepath.Glob(b.path("gswarm-" + job + "*"))
	must(b, err)
	if len(found) != 1 {
		b.Fatalf("runs: %v", dirs(b))
	}
	dir := filepath.Base(found[0])
	if r := b.gswarm("merge", dir); r.code != 0 && r.code != 3 {
		b.Fatalf("merge: %d %s", r.code, r.stderr)
	} else if r.code == 3 {
		b.Logf("merge: %s", r.stdout)
	}
	end := b.lastDone(4).UnixNano()
	last := map[string]int64{}
	b.rows(dir, table.Sampler, func(c map[string]any) {
		last[c[table.Node].(string)] = max(last[c[table.Node].(string)], c[table.TimeNS].(int64))
	})
	if len(last) != 2 {
		b.Errorf("%s: rows of %d nodes, want 2", dir, len(last))
	}
	for n, at := range last {
		if behind := time.Duration(end - at); behind > 1300*time.Millisecond {
			b.Errorf("%s: the data of %s end %v before the job: %s is not covered", dir, n, behind, what)
		}
	}
}

func scancelSignal(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		x, y := b.compare("-N2 -n4", command+" signals.py $DIR/log 5", 4, 2, func(b *box, job string) {
			b.shell("scancel --signal=USR1 " + job)
			time.Sleep(500 * time.Millisecond)
			b.shell("scancel --signal=USR2 " + job)
			time.Sleep(500 * time.Millisecond)
			b.shell("scancel --signal=HUP " + job)
		})
		b.untouched(x, y)
		for _, want := range []string{"USR1", "USR2", "HUP"} {
			if n := strings.Count(b.logs(4), "SIG"+want); n != 4 {
				b.Errorf("%d ranks got %s, want 4, each once:\n%s", n, want, b.logs(4))
			}
		}
		d := dataset{dir: "gswarm-" + y.job, nodes: "n[1-4] n[1-4]"}
		if strings.HasPrefix(command, "srun") {
			d.dir, d.ranks = d.dir+".0", 4
		}
		d.nodes = actual(b, d)
		b.check(d)
	})
}

// timeLimit: at the limit Slurm sends SIGTERM, and SIGKILL after KillWait. The
// time in between is when jobs save their state, and belongs to the data.
func timeLimit(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		x, y := b.compare("-N2 -n4 -t 1", command+" signals.py $DIR/log 200 2", 4, 2, func(*box, string) {})
		b.untouched(x, y)
		b.kept(y.job, "the grace period")
	})
}

// timeLimitSignal: sbatch --signal sends a warning to the ranks.
func timeLimitSignal(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		b.compare("-N2 -n4 -t 1 --signal=USR1@58", command+" signals.py $DIR/log 32", 4, 2, func(*box, string) {})
		if n := strings.Count(b.logs(4), "SIGUSR1"); n != 4 {
			b.Errorf("%d ranks got USR1, want 4, each once:\n%s", n, b.logs(4))
		}
	})
}
