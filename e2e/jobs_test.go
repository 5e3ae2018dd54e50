//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

// testClocks gives each node a false clock of its own and looks for the truth in
// the timeline.
func testClocks(t *testing.T, c *cluster) {
	skews := []string{
		"E2E_SKEW_n2=--x-skew-offset=1h --x-skew-ppm=40",
		"E2E_SKEW_n3=--x-skew-offset=-90s --x-skew-ppm=-25",
		"E2E_SKEW_n4=--x-skew-offset=3ms",
	}
	for name, script := range map[string]string{
		"Behind":        "srun gswarm wrap -- app 3",
		"BehindOpenMPI": "mpirun.openmpi gswarm wrap -- $BIN/allreduce.openmpi 3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			b.env = skews
			r := b.batch("-N4 -n8", script)
			found, err := filepath.Glob(b.path("gswarm-" + r.job + ".*"))
			must(t, err)
			if len(found) != 1 {
				t.Fatalf("runs: %v\n%s", dirs(b), r.stderr)
			}
			b.check(dataset{dir: filepath.Base(found[0]), nodes: allNodes, ranks: 8})
		})
	}
	t.Run("Front", func(t *testing.T) {
		t.Parallel()
		b := c.box(t)
		// In front, wrap hands one configuration to all agents.
		b.env = []string{"E2E_SKEW_front=--x-skew-offset=1h --x-skew-ppm=40"}
		r := b.batch("-N4 -n8", "gswarm wrap $E2E_SKEW_front -- srun app 3")
		b.check(dataset{dir: "gswarm-" + r.job, nodes: allNodes})
	})
}

// clockChain: agents that ask each other in a row, as those of a large job do in
// a tree; the bounds add up and hold.
func clockChain(t *testing.T, c *cluster) {
	b := c.box(t)
	b.env = []string{
		"E2E_SKEW_n2=--x-skew-offset=1h --x-skew-ppm=40",
		"E2E_SKEW_n3=--x-skew-offset=-90s --x-skew-ppm=-25",
		"E2E_SKEW_n4=--x-skew-offset=3ms",
	}
	r := b.batch("-N4 -n4", "GSWARM_X_FANOUT=1 srun gswarm wrap -- app 6")
	dir := "gswarm-" + r.job + ".0"
	b.check(dataset{dir: dir, nodes: allNodes, ranks: 4})
	meta, err := merge.ReadMeta(rundir.Dir(b.path(dir)))
	must(t, err)
	deepest := 0
	for _, n := range meta.Nodes {
		deepest = max(deepest, len(n.Clock.Via))
	}
	if deepest < 2 {
		t.Errorf("no node came to the reference through another: %+v", meta.Nodes)
	}
}

// nestedBatch: a job that is submitted from within a wrapped one is another job.
func nestedBatch(t *testing.T, c *cluster) {
	b := c.box(t)
	write(t, b.path("inner.sh"), "#!/bin/bash\nsrun gswarm wrap -- app 1\n", 0o755)
	r := b.batch("-N1 -n1", "gswarm wrap -- sbatch --parsable -p shared -N2 -n2 -o inner.out -e inner.err inner.sh")
	inner := strings.TrimSpace(r.stdout)
	b.await(inner)
	b.check(dataset{dir: "gswarm-" + inner + ".0", nodes: actual(b, dataset{dir: "gswarm-" + inner + ".0", nodes: "n[1-4] n[1-4]"}), ranks: 2})
}

func requeue(t *testing.T, c *cluster) {
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun app 1", "Behind": "srun gswarm wrap -- app 1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			r := b.batch("-N2 -n4 --requeue --open-mode=append", command+" $((SLURM_RESTART_COUNT ? 0 : 99))")
			ranks, step := 0, ""
			if name == "Behind" {
				ranks, step = 4, ".0"
			}
			if r.code != 0 {
				t.Errorf("exit code %d\n%s", r.code, r.stderr)
			}
			for _, restart := range []string{"", ".r1"} {
				d := dataset{dir: "gswarm-" + r.job + restart + step, nodes: "n[1-4] n[1-4]", ranks: ranks}
				d.nodes = actual(b, d)
				b.check(d)
			}
		})
	}
}

// requeueByHand: what the first attempt recorded is kept.
func requeueByHand(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		id := b.submit("-N2 -n4 --requeue --open-mode=append", command+" app $((SLURM_RESTART_COUNT ? 1 : 60))")
		b.until(jobPatience, "the agents", func() bool { return len(b.agents()) == 2 })
		time.Sleep(1500 * time.Millisecond)
		if r := b.shell("scontrol requeue " + id); r.code != 0 {
			b.Fatalf("scontrol requeue: %s", r.stderr)
		}
		ranks, step := 0, ""
		if strings.HasPrefix(command, "srun") {
			ranks, step = 4, ".0"
		}
		again := "gswarm-" + id + ".r1" + step
		b.until(jobPatience, "the second attempt", func() bool { return b.exists(again) })
		if r := b.await(id); r.code != 0 {
			b.Errorf("exit code %d\n%s", r.code, r.stderr)
		}
		d := dataset{dir: again, nodes: "n[1-4] n[1-4]", ranks: ranks}
		d.nodes = actual(b, d)
		b.check(d)
		first := "gswarm-" + id + step
		if r := b.gswarm("merge", first); r.code != 0 && r.code != 3 {
			b.Errorf("merging the first attempt: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		rows := map[any]int{}
		b.rows(first, table.Host, func(c map[string]any) { rows[c[table.Node]]++ })
		if len(rows) != 2 {
			b.Errorf("the first attempt left rows of %v", rows)
		}
	})
}

// overSSH: a node beyond ssh is not seen by the wrap in front, which says what
// would be; that form is tried, too.
func overSSH(t *testing.T, c *cluster) {
	b := c.box(t)
	const node, port = "n2", "2222"
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", b.path("key"))
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", b.path("host"))
	write(t, b.path("sshd_config"), "Port "+port+"\nHostKey "+b.path("host")+"\nAuthorizedKeysFile "+b.path("key.pub")+
		"\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile "+b.path("sshd.pid")+"\n", 0o600)
	must(t, os.MkdirAll("/run/sshd", 0o755))
	cluster := filepath.Join(repo(t), "scripts", "slurm", "cluster")
	server := exec.Command(cluster, "node", node, "/usr/sbin/sshd", "-D", "-e", "-f", b.path("sshd_config"))
	var said strings.Builder
	server.Stderr = &said
	must(t, server.Start())
	t.Cleanup(func() {
		// Its number is the node's; what Start started only waits for it.
		run(t, cluster, "node", node, "kill", strings.TrimSpace(b.read("sshd.pid")))
		server.Wait() //nolint:errcheck // it was killed
	})
	ssh := "ssh -p " + port + " -i " + b.path("key") + " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes root@" + node
	b.until(10*time.Second, "sshd", func() bool { return b.shell(ssh+" true").code == 0 })
	app := filepath.Join(c.bin, "app") + " 1 3"
	x := b.without().shell("gswarm wrap -- " + ssh + " " + app)
	y := b.shell("gswarm wrap -- " + ssh + " " + app)
	b.untouched(x, y)
	if x.code != 3 {
		t.Errorf("ssh: %d %s%s", x.code, x.stderr, said.String())
	}
	p := position{sets: []dataset{{dir: "gswarm-2*", nodes: "HOST", ranks: 1}}, says: []string{
		`^only this node is sampled; to sample every node: ssh HOST gswarm wrap -o DIR -- COMMAND, with a DIR that the nodes share$`,
	}}
	p.lines(b, y)
	p.datasets(b, "")
	there := b.path("there")
	z := b.shell(ssh + " " + filepath.Join(repo(t), "bin", "gswarm") + " wrap -o " + there + " -- " + app)
	b.untouched(x, z)
	b.check(dataset{dir: "there", nodes: node, ranks: 1})
}

// mergeBySlices runs the example that merges with several tasks: the bytes are
// those of one task, whichever is last, and again when all is over.
func mergeBySlices(t *testing.T, c *cluster) {
	b := c.box(t)
	r := b.batch("-N4 --ntasks-per-node=2", "srun gswarm wrap --tile 2s -- app 7")
	dir := "gswarm-" + r.job + ".0"
	d := dataset{dir: dir, nodes: allNodes, ranks: 8}
	want := b.merge(d)
	must(t, os.RemoveAll(b.path(dir, "timeline")))
	script := filepath.Join(repo(t), "scripts", "slurm", "examples", "merge.sbatch")
	for i, what := range []string{"the first time", "again", "without its timeline"} {
		if i == 2 {
			must(t, os.RemoveAll(b.path(dir, "timeline")))
		}
		r := b.await(b.submitFile("", script+" "+dir))
		if r.code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", what, r.code, r.stdout, r.stderr)
		}
		if got := b.tree(dir); got != want {
			t.Errorf("%s: the bytes are not those of one task", what)
		}
		left, err := filepath.Glob(b.path(dir, ".timeline*"))
		must(t, err)
		if len(left) > 0 {
			t.Errorf("%s: %v is left", what, left)
		}
		if n := strings.Count(r.stdout, "next: gswarm info"); n != 1 {
			t.Errorf("%s: %d tasks say that they finished:\n%s", what, n, r.stdout)
		}
	}
}

func array(t *testing.T, c *cluster) {
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun app 2", "Behind": "srun gswarm wrap -- app 2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			id := b.submit("--array=3-4 -N2 -n4 -o job_%a.out -e job_%a.err", command+"; echo $? >ended_$SLURM_ARRAY_TASK_ID")
			b.until(jobPatience, "the array's tasks to end", func() bool { return b.exists("ended_3") && b.exists("ended_4") })
			ranks, step := 0, ""
			if name == "Behind" {
				ranks, step = 4, ".0"
			}
			for _, task := range []string{"_3", "_4"} {
				d := dataset{dir: "gswarm-" + id + task + step, nodes: "n[1-4] n[1-4]", ranks: ranks}
				d.nodes = actual(b, d)
				b.check(d)
			}
		})
	}
}

// interactive: salloc on the login node, which is none of the job's nodes.
func interactive(t *testing.T, c *cluster) {
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun app 1 3", "Behind": "srun gswarm wrap -- app 1 3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			script := "salloc -p shared -N2 -n4 " + command
			x, y := b.without().shell(script), b.shell(script)
			granted := regexp.MustCompile(`allocation (\d+)`)
			m := granted.FindStringSubmatch(y.stderr)
			if m == nil {
				t.Fatalf("salloc: %s", y.stderr)
			}
			x.stderr = regexp.MustCompile(`(?m)^salloc: .*\n`).ReplaceAllString(x.stderr, "")
			y.stderr = regexp.MustCompile(`(?m)^salloc: .*\n`).ReplaceAllString(y.stderr, "")
			b.untouched(x, y)
			d := dataset{dir: "gswarm-" + m[1], nodes: "n[1-4] n[1-4]"}
			if name == "Behind" {
				d.dir, d.ranks = d.dir+".0", 4
			}
			d.nodes = actual(b, d)
			b.check(d)
		})
	}
}

// gpuPerTask: where Slurm shows each rank its own GPU, each GPU is sampled once.
func gpuPerTask(t *testing.T, c *cluster) {
	b := c.box(t)
	r := b.batch("-N2 -n4 --ntasks-per-node=2 --gpus-per-task=1", "srun gswarm wrap -- app 3")
	d := dataset{dir: "gswarm-" + r.job + ".0", nodes: `n[1-4] n[1-4]\+gpu-[01] n[1-4] n[1-4]\+gpu-[01]`, ranks: 4}
	d.nodes = actual(b, d)
	b.check(d)
	if rest, own := split(r.stderr); len(own) != 1 || strings.Contains(rest, "error") {
		t.Errorf("stderr:\n%s", r.stderr)
	}
	b.gpus(d.dir, 2)
}

// gpuFront: the agents' step sees the GPUs that the job was given, all of them.
func gpuFront(t *testing.T, c *cluster) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			r := b.batch(fmt.Sprintf("-N2 -n4 --gres=gpu:%d", n), "gswarm wrap -- srun app 2")
			d := dataset{dir: "gswarm-" + r.job, nodes: "n[1-4] n[1-4]"}
			d.nodes = actual(b, d)
			b.check(d)
			b.gpus(d.dir, n)
		})
	}
}

// gpus checks that each node has readings of so many GPUs, each under a number of
// its own and none read twice at a time.
func (b *box) gpus(dir string, want int) {
	b.Helper()
	number := map[string]map[string]int64{} // node → UUID → number
	seen := map[string]int{}
	b.rows(dir, table.GPU, func(c map[string]any) {
		node, uuid, gpu := c[table.Node].(string), c["gpu_uuid"].(string), c["gpu"].(int64)
		if number[node] == nil {
			number[node] = map[string]int64{}
		}
		if n, ok := number[node][uuid]; ok && n != gpu {
			b.Errorf("%s: %s: GPU %s has the numbers %d and %d", dir, node, uuid, n, gpu)
		}
		number[node][uuid] = gpu
		// Samplers tick together: two of one GPU would read it twice in a tick.
		tick := fmt.Sprintf("%s %s %d", node, uuid, c[table.TimeNS].(int64)/int64(50*time.Millisecond))
		seen[tick]++
	})
	if len(number) == 0 {
		b.Errorf("%s: no reading of a GPU", dir)
	}
	for node, gpus := range number {
		distinct := map[int64]bool{}
		for _, n := range gpus {
			distinct[n] = true
		}
		if len(gpus) == want && len(distinct) != want {
			b.Errorf("%s: the GPUs of %s share a number: %v", dir, node, gpus)
		}
		if len(gpus) != want {
			b.Errorf("%s: %s has readings of the GPUs %v, want %d of them", dir, node, gpus, want)
		}
	}
	twice := 0
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	if twice > len(seen)/4 { // a late reading may fall into the next tick
		b.Errorf("%s: %d of %d readings are doubled", dir, twice, len(seen))
	}
}

// secrets looks at the running processes: no key in what everybody can read, no
// secret of the job's in what gswarm writes.
func secrets(t *testing.T, c *cluster) {
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun", "Behind": "srun gswarm wrap --"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			write(t, b.path("gswarm.yaml"), "interval: 50ms # "+secret+"\n", 0o600)
			id := b.submit("-N2 -n4", command+" app 3 0 --api-key="+secret+" --password "+secret+" TOKEN="+secret)
			b.until(time.Minute, "the agents", func() bool {
				return len(b.agents()) == 2 && (name == "Front" || b.exists("gswarm-"+id+".0/.head.yaml"))
			})
			key := regexp.MustCompile(`key: (\S+)`).FindStringSubmatch(b.read("gswarm-" + id + ".0/.head.yaml"))
			if name == "Behind" && key == nil {
				t.Error("no key in .head.yaml")
			}
			for _, p := range b.processes() {
				text := strings.Join(p.args, "\n") + "\n" + strings.Join(p.env, "\n")
				if key != nil && strings.Contains(text, key[1]) {
					t.Errorf("process %d %q shows the run's key", p.pid, p.args)
				}
				if p.agent() && len(p.args) != 2 {
					t.Errorf("an agent's arguments: %q", p.args)
				}
				for _, kv := range p.env {
					name, value, _ := strings.Cut(kv, "=")
					if strings.HasPrefix(name, "GSWARM_") && name != "GSWARM_X_AGENT" && !(name == "GSWARM_X_RUN" && strings.Contains(value, ":"+b.dir)) &&
						!(name == "GSWARM_MARK" && strings.HasPrefix(value, "gswarm/")) {
						t.Errorf("process %d %q has the variable %s", p.pid, p.args, kv)
					}
				}
			}
			r := b.await(id)
			d := dataset{dir: "gswarm-" + r.job, nodes: "n[1-4] n[1-4]"}
			if name == "Behind" {
				d.dir, d.ranks = d.dir+".0", 4
			}
			d.nodes = actual(b, d)
			i := b.check(d)
			if i.Run == nil || !slices.Contains(i.Run.Command, "[redacted]") {
				t.Errorf("the command line is recorded as %+v", i.Run)
			}
		})
	}
}

// examples runs the scripts that users are given.
func examples(t *testing.T, c *cluster) {
	for name, d := range map[string]dataset{
		"front":    {dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"},
		"behind":   {dir: "gswarm-%j.0", nodes: "n[1-4] n[1-4]", ranks: 4},
		"torchrun": {dir: "gswarm-%j.0", nodes: "n[1-4] n[1-4]", ranks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			text, err := os.ReadFile(filepath.Join(repo(t), "scripts", "slurm", "examples", name+".sbatch"))
			must(t, err)
			write(t, b.path("job.sbatch"), string(text), 0o644)
			write(t, b.path("app"), "#!/bin/bash\nexec "+c.bin+"/app 2\n", 0o755)
			train, err := os.ReadFile("testdata/train.py")
			must(t, err)
			write(t, b.path("train.py"), strings.ReplaceAll(string(train), "sys.argv[1]", "2"), 0o644)
			// Debian's torch has no torchrun and does not start without these.
			write(t, b.path("bin", "torchrun"), "#!/bin/bash\nexec /usr/bin/python3 -m torch.distributed.run --redirects 1 --tee 1 --log_dir "+b.dir+"/torch \"$@\"\n", 0o755)
			for _, kv := range b.environ() {
				if path, ok := strings.CutPrefix(kv, "PATH="); ok {
					b.env = append(b.env, "PATH="+b.path("bin")+":"+path)
				}
			}
			r := b.await(b.submitFile("-N2", "job.sbatch"))
			if r.code != 0 {
				t.Errorf("exit code %d\n%s", r.code, r.stderr)
			}
			d.dir = strings.ReplaceAll(d.dir, "%j", r.job)
			d.nodes = actual(b, d)
			b.check(d)
		})
	}
}
