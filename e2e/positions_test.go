//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// position is a place for wrap in a line of commands. Its script runs twice,
// with gswarm and with a program of that name that only runs the command, and
// the user must see the same.
type position struct {
	name string
	// sbatch are the arguments of sbatch; empty runs the script on the login
	// node, without a scheduler.
	sbatch string
	script string
	// sets are the runs that it leaves, %j being the job's id. A name with a
	// star stands for the one directory that matches.
	sets []dataset
	// says are gswarm's own lines on stderr beside the closing one of each
	// run, as regular expressions.
	says []string
	// silent runs have no closing line.
	silent bool
	// loose are jobs whose launcher prints differently each time.
	loose     bool
	linuxproc bool
	// hangs is a launcher that hangs now and then, without gswarm, too; its
	// script ends it with 124.
	hangs bool
	// env is added to the environment.
	env []string
}

const allNodes = "n1 n2 n3 n4"

var positions = []position{
	{
		name: "Front", sbatch: "-N4 --ntasks-per-node=2", linuxproc: true,
		script: "gswarm wrap -- srun app 2 3",
		sets:   []dataset{{dir: "gswarm-%j", nodes: allNodes}},
	},
	{
		name: "Behind", sbatch: "-N4 --ntasks-per-node=2", linuxproc: true,
		script: "srun gswarm wrap -- app 2 3",
		sets:   []dataset{{dir: "gswarm-%j.0", nodes: allNodes, ranks: 8}},
	},
	{
		name: "Torchrun", sbatch: "-N2 --ntasks-per-node=1 -c2", loose: true,
		script: `srun gswarm wrap -- /usr/bin/python3 -m torch.distributed.run --nnodes=2 --nproc_per_node=2 \
  --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1):29400 \
  --redirects 1 --tee 1 --log_dir $DIR/torch $BIN/train.py 2`,
		sets: []dataset{{dir: "gswarm-%j.0", nodes: "n[1-4] n[1-4]", ranks: 2}},
	},
	{
		name: "TorchrunAlone", loose: true,
		script: `gswarm wrap -- /usr/bin/python3 -m torch.distributed.run --standalone --nproc_per_node=2 \
  --redirects 1 --tee 1 --log_dir $DIR/torch $BIN/train.py 1`,
		sets: []dataset{{dir: "gswarm-2*", nodes: "HOST", ranks: 1}},
	},
	{
		name: "FrontOpenMPI", sbatch: "-N4 --ntasks-per-node=2",
		script: "gswarm wrap -- mpirun.openmpi $BIN/allreduce.openmpi 2",
		sets:   []dataset{{dir: "gswarm-%j", nodes: allNodes}},
	},
	{
		name: "FrontMPICH", sbatch: "-N4 --ntasks-per-node=2", hangs: true,
		script: "timeout --foreground 15 gswarm wrap -- mpirun.mpich $BIN/allreduce.mpich 2",
		sets:   []dataset{{dir: "gswarm-%j", nodes: allNodes}},
	},
	{
		name: "BehindOpenMPI", sbatch: "-N4 --ntasks-per-node=2", linuxproc: true,
		script: "mpirun.openmpi gswarm wrap -- $BIN/allreduce.openmpi 2",
		sets:   []dataset{{dir: "gswarm-%j.ompi-*", nodes: allNodes, ranks: 8}},
	},
	{
		name: "BehindMPICH", sbatch: "-N4 --ntasks-per-node=2", linuxproc: true, hangs: true,
		script: "timeout --foreground 15 mpirun.mpich -launcher slurm gswarm wrap -- $BIN/allreduce.mpich 2",
		sets:   []dataset{{dir: "gswarm-%j.*", nodes: allNodes, ranks: 8}},
	},
	{
		name:   "OpenMPIAlone",
		script: "mpirun.openmpi -n 4 --oversubscribe gswarm wrap -- $BIN/allreduce.openmpi 1",
		sets:   []dataset{{dir: "gswarm-ompi-*", nodes: "HOST", ranks: 4}},
	},
	{
		name:   "MPICHAlone",
		script: "mpirun.mpich -n 4 gswarm wrap -- $BIN/allreduce.mpich 1",
		sets:   []dataset{{dir: "gswarm-mpich-*", nodes: "HOST", ranks: 4}},
	},
	{
		name:   "Alone",
		script: "gswarm wrap -- app 1 5",
		sets:   []dataset{{dir: "gswarm-2*", nodes: "HOST", ranks: 1}},
	},
	{
		name: "MPICHFarAway", script: "gswarm wrap -- mpirun.mpich -f <(echo localhost) -n 2 $BIN/allreduce.mpich 1",
		sets: []dataset{{dir: "gswarm-2*", nodes: "HOST", ranks: 1}},
		says: []string{`^only this node is sampled; to sample every node: mpirun.mpich \[its options\] gswarm wrap -- PROGRAM$`},
	},
	{
		// Without an allocation srun makes one: wrap does not stand in front of
		// a job, but outside of it.
		name: "SrunFromLogin", script: "gswarm wrap -- srun -p shared -N2 -n2 app 1",
		sets: []dataset{{dir: "gswarm-2*", nodes: "HOST", ranks: 1}},
		says: []string{`^only this node is sampled; to sample every node: srun \[its options\] gswarm wrap -- PROGRAM$`},
	},
	{
		name:   "OpenMPIFarAway",
		script: "echo localhost slots=2 >hosts; gswarm wrap -- mpirun.openmpi --hostfile hosts -n 2 $BIN/allreduce.openmpi 1",
		sets:   []dataset{{dir: "gswarm-2*", nodes: "HOST", ranks: 1}},
		says:   []string{`^only this node is sampled; to sample every node: mpirun.openmpi \[its options\] gswarm wrap -- PROGRAM$`},
	},
	{
		name: "Steps", sbatch: "-N4 --ntasks-per-node=2",
		script: "srun gswarm wrap -- app 1\nsrun -N2 -n2 gswarm wrap -- app 1 1",
		sets: []dataset{
			{dir: "gswarm-%j.0", nodes: allNodes, ranks: 8},
			{dir: "gswarm-%j.1", nodes: "n[1-4] n[1-4]", ranks: 2},
		},
	},
	{
		name: "StepsAtOnce", sbatch: "-N4 --ntasks-per-node=2 --mem=4000", linuxproc: true,
		script: "srun -n4 --exact --mem=1000 gswarm wrap -- app 2 &\nsrun -n4 --exact --mem=1000 gswarm wrap -- app 2 &\nwait",
		sets: []dataset{
			{dir: "gswarm-%j.0", nodes: allNodes, ranks: 4},
			{dir: "gswarm-%j.1", nodes: allNodes, ranks: 4},
		},
	},
	{
		name: "HetFront", sbatch: "-N1 -n2 : -p shared -N2 -n2", loose: true,
		script: "gswarm wrap -- srun --het-group=0,1 app 2",
		sets:   []dataset{{dir: "gswarm-%j", nodes: "n[1-4] n[1-4] n[1-4]"}},
	},
	{
		name: "HetBehind", sbatch: "-N1 -n2 : -p shared -N2 -n2", loose: true,
		script: "srun --het-group=0,1 gswarm wrap -- app 2",
		// Slurm may kill what a component's step has left before its agent has
		// written its last word.
		sets: []dataset{{dir: "gswarm-%j.0", nodes: "n[1-4] n[1-4] n[1-4]", ranks: 4, short: true}},
	},
	{
		name: "Exclusive", sbatch: "-N2 --exclusive --ntasks-per-node=2 -p main",
		script: "gswarm wrap -- srun app 1",
		sets:   []dataset{{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"}},
	},
	{
		name: "ExportNoneFront", sbatch: "-N2 -n4 --export=NONE",
		script: "gswarm wrap -- srun --export=ALL app 1",
		sets:   []dataset{{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"}},
	},
	{
		name: "ExportNoneBehind", sbatch: "-N2 -n4 --export=NONE",
		script: "srun --export=ALL gswarm wrap -- app 1",
		sets:   []dataset{{dir: "gswarm-%j.0", nodes: "n[1-4] n[1-4]", ranks: 4}},
	},
	{
		name: "TwoInARow", sbatch: "-N2 -n4",
		script: "gswarm wrap -- srun app 1\ngswarm wrap -- srun app 1 4",
		sets: []dataset{
			{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"},
			{dir: "gswarm-%j-2", nodes: "n[1-4] n[1-4]"},
		},
	},
	{
		name: "TwoAtOnce", sbatch: "-N2 -n4",
		script: "gswarm wrap -- srun --overlap app 2 &\ngswarm wrap -- srun --overlap app 2 &\nwait",
		sets: []dataset{
			{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"},
			{dir: "gswarm-%j-2", nodes: "n[1-4] n[1-4]"},
		},
	},
	{
		name: "WrapInWrap", sbatch: "-N2 -n4",
		script: "gswarm wrap -- srun gswarm wrap -- gswarm wrap -- app 1 2",
		sets:   []dataset{{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"}},
	},
	{
		name: "Ports", sbatch: "-N2 -n4",
		script: "gswarm wrap --ports 23450-23459 -- srun app 1",
		sets:   []dataset{{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"}},
	},
	{
		name: "PortsBehind", sbatch: "-N2 -n4",
		script: "srun gswarm wrap --ports 23460-23469 -- app 1",
		sets:   []dataset{{dir: "gswarm-%j.0", nodes: "n[1-4] n[1-4]", ranks: 4}},
	},
	{
		name: "ScriptInside", sbatch: "-N4 -n4",
		script: "gswarm wrap -- bash -c 'srun app 1; srun -n1 -N1 app 1; exit 7'",
		sets:   []dataset{{dir: "gswarm-%j", nodes: allNodes}},
	},
	{
		name: "Short", sbatch: "-N4 --ntasks-per-node=2", linuxproc: true,
		script: "gswarm wrap -- srun true",
		sets:   []dataset{{dir: "gswarm-%j", nodes: allNodes, short: true}},
	},
	{
		name: "ShortBehind", sbatch: "-N4 --ntasks-per-node=2", linuxproc: true,
		script: "srun gswarm wrap -- true",
		sets:   []dataset{{dir: "gswarm-%j.0", nodes: allNodes, ranks: 8, short: true}},
	},
	{
		name: "Output", sbatch: "-N2 -n4", silent: true,
		script: "gswarm wrap -q -o mine -- srun app 1; srun gswarm wrap --quiet -o $DIR/step -- app 1",
		sets: []dataset{
			{dir: "mine", nodes: "n[1-4] n[1-4]"},
			{dir: "step", nodes: "n[1-4] n[1-4]", ranks: 4},
		},
	},
	{
		name: "StdinAndBytes", sbatch: "-N2 -n2",
		script: "seq 1 20000 | gswarm wrap -- srun -n1 -N1 bash -c 'cat; printf \"\\0\\377\"; seq 1 5000 >&2'\n" +
			"seq 1 20000 | srun -n1 -N1 gswarm wrap -- bash -c 'cat; printf \"\\0\\377\"; seq 1 5000 >&2'",
		sets: []dataset{
			{dir: "gswarm-%j", nodes: "n[1-4] n[1-4]"},
			{dir: "gswarm-%j.?", nodes: "n[1-4]", ranks: 1, short: true},
		},
	},
}

func testPositions(t *testing.T, c *cluster) {
	for _, p := range positions {
		if c.proctrack == "linuxproc" && !p.linuxproc {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.test(c.box(t))
		})
	}
}

func (p *position) test(b *box) {
	b.env = append(b.env, p.env...)
	bare, wrapped := b.without(), b
	var x, y result
	if p.sbatch == "" {
		x, y = bare.shell(p.script), wrapped.shell(p.script)
	} else {
		one, two := bare.submit(p.sbatch, p.script), wrapped.submit(p.sbatch, p.script)
		x, y = p.unhung(bare, bare.await(one)), p.unhung(wrapped, wrapped.await(two))
	}
	if p.loose {
		x.stderr, y.stderr = "", strings.Join(ownLines(y.stderr), "")
		x.stdout, y.stdout = loosen(x.stdout), loosen(y.stdout)
	}
	b.untouched(x, y)
	p.lines(b, y)
	p.datasets(b, y.job)
}

// unhung submits a job that has hung again. MPICH 4.0.2 over UCX hangs in
// MPI_Finalize on nodes that are namespaces of one machine: one time in ten, and
// each second time when the machine is loaded.
func (p *position) unhung(b *box, r result) result {
	b.Helper()
	const tries = 7
	for i := 0; p.hangs && r.code == 124; i++ {
		if i == tries {
			b.Fatalf("hangs each time, bare %v", b.bare)
		}
		b.Logf("hangs, bare %v", b.bare)
		must(b, os.RemoveAll(b.dir))
		must(b, os.MkdirAll(b.dir, 0o755))
		r = b.batch(p.sbatch, p.script)
	}
	return r
}

func ownLines(stderr string) []string {
	var own []string
	for line := range strings.SplitAfterSeq(stderr, "\n") {
		if strings.HasPrefix(line, "gswarm: ") {
			own = append(own, line)
		}
	}
	return own
}

// loosen leaves the ranks' own lines.
func loosen(stdout string) string {
	return strings.Join(regexp.MustCompile(`rank \d.*\n`).FindAllString(stdout, -1), "")
}

// lines checks what gswarm itself printed: one closing line for each run and
// what the position says.
func (p *position) lines(b *box, r result) {
	b.Helper()
	_, own := split(r.stderr)
	closing := 0
	said := make([]bool, len(p.says))
next:
	for _, line := range own {
		if regexp.MustCompile(`^\d+ nodes? sampled for \S+; next: gswarm merge \S+$`).MatchString(line) {
			closing++
			continue
		}
		for i, s := range p.says {
			if !said[i] && regexp.MustCompile(s).MatchString(line) {
				said[i] = true
				continue next
			}
		}
		b.Errorf("gswarm says unexpectedly: %s", line)
	}
	for i, s := range p.says {
		if !said[i] {
			b.Errorf("gswarm does not say %q, only %q", s, own)
		}
	}
	want := len(p.sets)
	if p.silent {
		want = 0
	}
	if closing != want {
		b.Errorf("%d closing lines, want %d: %q", closing, want, own)
	}
}

// datasets checks the runs, of which there may be no more than said.
func (p *position) datasets(b *box, job string) {
	b.Helper()
	found := map[string]bool{}
	for _, set := range p.sets {
		set.dir = strings.ReplaceAll(set.dir, "%j", job)
		matches, err := filepath.Glob(b.path(set.dir))
		must(b, err)
		if len(matches) != 1 {
			b.Errorf("%s: %d directories, want one: %v", set.dir, len(matches), dirs(b))
			continue
		}
		set.dir = filepath.Base(matches[0])
		found[set.dir] = true
		set.nodes = actual(b, set)
		b.check(set)
	}
	for _, d := range dirs(b) {
		if !found[d] {
			b.Errorf("the directory %s should not be there", d)
		}
	}
}

func dirs(b *box) []string {
	matches, err := filepath.Glob(b.path("gswarm-*"))
	must(b, err)
	for i, m := range matches {
		matches[i] = filepath.Base(m)
	}
	return matches
}

// actual replaces the patterns in the list of nodes by what is there, if it
// matches.
func actual(b *box, set dataset) string {
	host, err := os.Hostname()
	must(b, err)
	want := strings.Fields(strings.ReplaceAll(set.nodes, "HOST", regexp.QuoteMeta(host)))
	entries, err := os.ReadDir(b.path(set.dir, "nodes"))
	if err != nil || len(entries) != len(want) {
		return set.nodes
	}
	var names []string
	for i, e := range entries {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(e.Name()) {
			return set.nodes
		}
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
