//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// stepd returns the process that Slurm has for a step on a node.
func (b *box) stepd(step, node string) process {
	b.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(b, err)
	for _, path := range paths {
		title, err := os.ReadFile(path)
		if err != nil || strings.TrimRight(string(title), "\x00 ") != "slurmstepd: ["+step+"]" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		must(b, err)
		if p := (process{pid: pid}); p.node() == node {
			return p
		}
	}
	b.Fatalf("no slurmstepd of %s on %s", step, node)
	return process{}
}

// nodesOf are a job's nodes.
func (b *box) nodesOf(job string) []string {
	b.Helper()
	return strings.Fields(b.shell("scontrol show hostnames $(scontrol -o show job " + job + " | grep -o ' NodeList=[^ ]*' | cut -d= -f2)").stdout)
}

// stepdKilled: Slurm's own process of the job's step is killed on one node. The
// ranks there go on as orphans and srun waits for them for ever, without
// gswarm, too. What is recorded is whole.
func stepdKilled(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		o := b.without()
		script := command + " signals.py $DIR/log 6"
		// One after the other: while one of them waits for nodes the other
		// might come to its end.
		begin := func(x *box) string {
			job := x.submit("-N2 -n4", script)
			x.ready(4, 2)
			kill(x, x.stepd(job+".0", x.nodesOf(job)[1]))
			return job
		}
		one, two := begin(o), begin(b)
		for job, x := range map[string]*box{one: o, two: b} {
			x.until(20*time.Second, "the ranks to end", func() bool { return strings.Count(x.logs(4), "done") == 4 })
			time.Sleep(time.Second)
			if state, _ := x.state(job); state != "RUNNING" {
				x.Errorf("the job is %s; srun has not waited", state)
			}
			x.shell("scancel " + job)
		}
		x, y := o.await(one), b.await(two)
		b.untouched(x, y)
		if x, y := o.logs(4), b.logs(4); x != y {
			b.Errorf("signals differ:\nbare:\n%swrapped:\n%s", x, y)
		}
		d := dataset{dir: "gswarm-" + two, nodes: "n[1-4] n[1-4]"}
		if strings.HasPrefix(command, "srun") {
			d.dir, d.ranks = d.dir+".0", 4
		} else { // srun did not end before wrap was killed
			d.mergeCode, d.missing = 3, []string{"run_cut"}
		}
		d.nodes = actual(b, d)
		b.check(d)
		b.lasts(d, b.lastDone(4))
		codes := b.killedNodes(d)
		if d.mergeCode != 0 {
			codes = append(codes, "run_cut")
		}
		b.verify(d.dir, codes...)
	})
	t.Run("OfTheAgents", func(t *testing.T) {
		t.Parallel()
		b := c.box(t)
		id := b.submit("-N2 -n4", "gswarm wrap -- srun signals.py $DIR/log 6")
		b.ready(4, 2)
		kill(b, b.stepd(id+".1", b.nodesOf(id)[1]))
		r := b.await(id)
		if rest, own := split(r.stderr); r.code != 0 || rest != "" || len(own) != 1 {
			t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
		}
		d := dataset{dir: "gswarm-" + id, nodes: "n[1-4] n[1-4]"}
		d.nodes = actual(b, d)
		b.check(d)
		b.lasts(d, b.lastDone(4))
		b.verify(d.dir)
	})
}

// slurmdKilled: the node's daemon is killed and started again while jobs run,
// which none of them notices. No other test may run meanwhile: on a node without
// slurmd nothing can begin.
func slurmdKilled(t *testing.T, c *cluster) {
	script := filepath.Join(repo(t), "scripts", "slurm", "cluster")
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun", "Behind": "srun gswarm wrap --"} {
		nodes, victim := "n1,n2", "n2"
		if name == "Behind" {
			nodes, victim = "n3,n4", "n4"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			o := b.without()
			job := command + " signals.py $DIR/log 7"
			one, two := o.submit("-N2 -n4 -w "+nodes, job), b.submit("-N2 -n4 -w "+nodes, job)
			o.ready(4, 2)
			b.ready(4, 2)
			time.Sleep(time.Second)
			pid, err := os.ReadFile(filepath.Join(c.dir, "nodes", victim, "slurmd.pid"))
			must(t, err)
			run(t, script, "node", victim, "kill", "-KILL", strings.TrimSpace(string(pid)))
			time.Sleep(2 * time.Second)
			run(t, script, "node", victim, "slurmd", "-N", victim, "-f", filepath.Join(c.dir, "etc", "slurm.conf"))
			x, y := o.await(one), b.await(two)
			b.untouched(x, y)
			if x.code != 0 {
				t.Errorf("exit code %d\n%s", x.code, x.stderr)
			}
			if x, y := o.logs(4), b.logs(4); x != y {
				b.Errorf("signals differ:\nbare:\n%swrapped:\n%s", x, y)
			}
			d := dataset{dir: "gswarm-" + two, nodes: strings.ReplaceAll(nodes, ",", " ")}
			if name == "Behind" {
				d.dir, d.ranks = d.dir+".0", 4
			}
			b.check(d)
			b.lasts(d, b.lastDone(4))
			b.verify(d.dir)
		})
	}
}
