//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
)

func kill(b *box, p process) {
	b.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		must(b, err)
	}
}

// wrapKilledInFront: the job ends with wrap, as designed; what the agents had
// is kept, they end, and merge says that the run has no end.
func wrapKilledInFront(t *testing.T, c *cluster) {
	b := c.box(t)
	id := b.submit("-N2 -n4", "gswarm wrap -- srun signals.py $DIR/log 60; echo ended $?")
	b.ready(4, 2)
	time.Sleep(2500 * time.Millisecond)
	killed := time.Now()
	for _, p := range b.processes() {
		if len(p.args) > 1 && p.args[1] == "wrap" && strings.HasSuffix(p.args[0], "/gswarm") {
			kill(b, p)
		}
	}
	r := b.await(id)
	if !strings.Contains(r.stdout, "ended 137") {
		t.Errorf("the script saw %q", r.stdout)
	}
	b.nothingLeft()
	d := dataset{dir: "gswarm-" + id, nodes: "n[1-4] n[1-4]", mergeCode: 3, missing: []string{"missing: run_cut: run.yaml has no end"}}
	d.nodes = actual(b, d)
	b.check(d)
	b.lasts(d, killed)
	b.verify(d.dir, append(b.killedNodes(d), "run_cut")...)
}

// killedNodes are those whose agent Slurm killed before it had said its last
// word, as the merge has it: whether it does is chance. In verify's words.
func (b *box) killedNodes(d dataset) (codes []string) {
	b.Helper()
	meta, err := merge.ReadMeta(rundir.Dir(b.path(d.dir)))
	must(b, err)
	for _, m := range meta.Missing {
		if m.Code == merge.NodeKilled {
			codes = append(codes, m.Node+" "+string(m.Code))
		}
	}
	return codes
}

// lasts checks that a node's data reach to the last second before a time.
func (b *box) lasts(d dataset, until time.Time) {
	b.Helper()
	last := map[string]int64{}
	b.rows(d.dir, table.Sampler, func(c map[string]any) {
		last[c[table.Node].(string)] = max(last[c[table.Node].(string)], c[table.TimeNS].(int64))
	})
	for _, n := range strings.Fields(d.nodes) {
		if lost := until.Sub(time.Unix(0, last[n])); lost > 1500*time.Millisecond {
			b.Errorf("%s: the last %v of %s are lost", d.dir, lost, n)
		}
	}
}

// wrapKilledBehind: the rank dies with its wrap, as it would by a SIGKILL of its
// own, and nobody else does. Nothing of the data is lost.
func wrapKilledBehind(t *testing.T, c *cluster) {
	b := c.box(t)
	x, y := b.compare("-N2 -n4", "srun gswarm wrap -- signals.py $DIR/log 7", 4, 2, func(b *box, _ string) {
		time.Sleep(1500 * time.Millisecond)
		for _, p := range b.processes() {
			of, program := b.dir+"/log", "signals.py"
			if !b.bare {
				program = "gswarm"
			}
			if p.get("SLURM_PROCID") == "2" && slices.Contains(p.args, of) && slices.ContainsFunc(p.args[:2], func(a string) bool { return filepath.Base(a) == program }) {
				kill(b, p)
			}
		}
	})
	b.untouched(x, y)
	if want := "rank 0: ready done\nrank 1: ready done\nrank 2: ready\nrank 3: ready done\n"; b.logs(4) != want {
		t.Errorf("the ranks were troubled:\n%s", b.logs(4))
	}
	d := dataset{dir: "gswarm-" + y.job + ".0", nodes: "n[1-4] n[1-4]", ranks: 4}
	d.nodes = actual(b, d)
	b.check(d)
	b.verify(d.dir)
	if r := b.gswarm("verify", d.dir); !strings.Contains(r.stdout, "rank_end_unknown") {
		t.Errorf("gswarm verify does not say that the end of rank 2 is unknown:\n%s", r.stdout)
	}
}

// verify wants gswarm verify to say that just this is missing in a run: codes,
// with the node in front where they have one. The machine is loaded, so that
// ticks are late.
func (b *box) verify(dir string, codes ...string) {
	b.Helper()
	r := b.gswarm("verify", "--allow", "0.3", "--json", dir)
	var report struct {
		Findings []struct {
			Code       string `json:"code"`
			Incomplete bool   `json:"incomplete"`
			Node       string `json:"node"`
		} `json:"findings"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		b.Fatalf("gswarm verify %s: %d %v\n%s%s", dir, r.code, err, r.stdout, r.stderr)
	}
	found := map[string]bool{}
	for _, f := range report.Findings {
		if f.Incomplete {
			found[strings.TrimSpace(f.Node+" "+f.Code)] = true
		}
	}
	// A code with ~ in front may be there or not: what depends on how long it
	// took, such as how much of a table a gap is.
	for i, code := range slices.Backward(codes) {
		if may, ok := strings.CutPrefix(code, "~"); ok {
			codes = slices.Delete(codes, i, i+1)
			delete(found, may)
		}
	}
	got := slices.Sorted(maps.Keys(found))
	if slices.Sort(codes); !slices.Equal(got, codes) || (r.code == 0) != (len(codes) == 0) {
		b.Errorf("gswarm verify %s: exit %d, finds %v, want %v\n%s", dir, r.code, got, codes, r.stdout)
	}
}

// noAgent: only the first node has the program. The job runs on all of them.
func noAgent(t *testing.T, c *cluster) {
	b := c.box(t)
	script := "cp $PROGRAM /tmp/gswarm && /tmp/gswarm wrap -- srun app 2 3\ncode=$?\nrm /tmp/gswarm\nexit $code"
	o := b.without()
	o.env = []string{"PROGRAM=" + filepath.Join(c.bin, "bare", "gswarm")}
	b.env = []string{"PROGRAM=" + filepath.Join(repo(t), "bin", "gswarm")}
	x := o.batch("-N2 -n4", script)
	y := b.batch("-N2 -n4", script)
	b.untouched(x, y)
	_, own := split(y.stderr)
	if len(own) != 2 || !regexp.MustCompile(`^no agent on n\d: (srun: error: n\d: task 1: Exited with exit code 2|slurmstepd.*execve\(\): /tmp/gswarm: No such file or directory)$`).MatchString(own[0]) {
		t.Errorf("gswarm says %q", own)
	}
	d := dataset{dir: "gswarm-" + y.job, nodes: "n[1-4]", mergeCode: 3, missing: []string{"node_missing"}}
	d.nodes = actual(b, d)
	b.check(d)
}

// agentKilledBehind: another takes its place, and the gap is in the data.
func agentKilledBehind(t *testing.T, c *cluster) {
	for name, head := range map[string]bool{"Head": true, "Other": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			id := b.submit("-N2 --ntasks-per-node=2", "srun gswarm wrap -- signals.py $DIR/log 9")
			b.ready(4, 2)
			time.Sleep(2500 * time.Millisecond)
			dir := "gswarm-" + id + ".0"
			first := b.info(dir).Run.Nodes[0]
			victim := ""
			for _, p := range b.agents() {
				if n := p.node(); (n == first) == head {
					victim = n
					kill(b, p)
				}
			}
			b.until(5*time.Second, "another agent", func() bool { return len(b.agents()) == 2 })
			r := b.await(id)
			ended := b.lastDone(4)
			if r.code != 0 {
				t.Errorf("exit code %d\n%s", r.code, r.stderr)
			}
			if b.logs(4) != "rank 0: ready done\nrank 1: ready done\nrank 2: ready done\nrank 3: ready done\n" {
				t.Errorf("the ranks were troubled:\n%s", b.logs(4))
			}
			d := dataset{dir: dir, nodes: "n[1-4] n[1-4]", ranks: 4, mergeCode: 3, missing: []string{"missing: " + victim + ": node_killed"}}
			d.nodes = actual(b, d)
			b.check(d)
			b.gap(dir, victim, 3*time.Second)
			b.lasts(d, ended)
			b.verify(dir, "~"+victim+" absent", victim+" node_killed")
			events := b.events(dir, victim)
			if n := len(slices.DeleteFunc(events, func(k string) bool { return k != "agent_start" })); n != 2 {
				t.Errorf("%d agents began on %s, want 2", n, victim)
			}
		})
	}
}

// gap checks that a node's dead time is in the absence table and not longer
// than most.
func (b *box) gap(dir, node string, most time.Duration) {
	b.Helper()
	found := false
	b.rows(dir, table.Absence, func(c map[string]any) {
		if c[table.Node] != node || c["reason"] != "node_lost" {
			return
		}
		found = true
		if d := time.Duration(c[table.TimeNS].(int64) - c[table.TimeBegin].(int64)); most > 0 && d > most {
			b.Errorf("%s: %s was not sampled for %v", dir, node, d)
		}
	})
	if !found {
		b.Errorf("%s: the gap of %s is not in the absence table", dir, node)
	}
}

// agentKilledInFront: the job goes on, and wrap says what happened.
func agentKilledInFront(t *testing.T, c *cluster) {
	b := c.box(t)
	id := b.submit("-N2 -n4", "gswarm wrap -- srun signals.py $DIR/log 6; echo $?")
	b.ready(4, 2)
	time.Sleep(2500 * time.Millisecond)
	agents := b.agents()
	victim := agents[0].node()
	kill(b, agents[0])
	r := b.await(id)
	rest, own := split(r.stderr)
	if r.code != 0 || r.stdout != "0\n" || rest != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, rest)
	}
	if len(own) != 2 || own[0] != "the agent on "+victim+" ended early; what it had written is kept" {
		t.Errorf("gswarm says %q", own)
	}
	if b.logs(4) != "rank 0: ready done\nrank 1: ready done\nrank 2: ready done\nrank 3: ready done\n" {
		t.Errorf("the ranks were troubled:\n%s", b.logs(4))
	}
	d := dataset{dir: "gswarm-" + id, nodes: "n[1-4] n[1-4]", mergeCode: 3, missing: []string{"missing: " + victim + ": node_killed"}}
	d.nodes = actual(b, d)
	b.check(d)
	b.gap(d.dir, victim, 0)
}

// stepKilled: SIGKILL to everything loses no more than the last second.
func stepKilled(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		id := b.submit("-N2 -n4", command+" signals.py $DIR/log 60")
		b.ready(4, 2)
		time.Sleep(3 * time.Second)
		killed := time.Now()
		b.shell("scancel -s KILL " + id)
		b.await(id)
		d := dataset{dir: "gswarm-" + id, nodes: "n[1-4] n[1-4]", mergeCode: 3, missing: []string{"node_killed"}}
		if strings.HasPrefix(command, "srun") {
			d.dir += ".0"
		}
		d.nodes = actual(b, d)
		if behind := strings.HasPrefix(command, "srun"); behind && c.proctrack == "linuxproc" {
			// The agent belongs to nobody whom linuxproc kills: it ends in
			// its own good time, and lacks nothing.
			d.mergeCode, d.missing = 0, nil
		}
		if r := b.gswarm("merge", d.dir); r.code != d.mergeCode {
			b.Fatalf("merge: exit %d, want %d\n%s%s", r.code, d.mergeCode, r.stdout, r.stderr)
		} else if len(d.missing) > 0 && strings.Count(r.stdout, ": node_killed: ") != 2 {
			b.Errorf("merge says\n%s", r.stdout)
		}
		b.lasts(d, killed)
		b.clocks(d)
	})
}

// lastDone is when the last of the ranks ended.
func (b *box) lastDone(ranks int) time.Time {
	b.Helper()
	var end int64
	for r := range ranks {
		m := regexp.MustCompile(`done (\d+)`).FindStringSubmatch(b.read(fmt.Sprintf("log.%d", r)))
		if m == nil {
			continue
		}
		at, err := strconv.ParseInt(m[1], 10, 64)
		must(b, err)
		end = max(end, at)
	}
	return time.Unix(0, end)
}

// unwritable: where nothing can be written the job runs, and one line says why
// nothing is recorded.
func unwritable(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		script := strings.ReplaceAll(command, "wrap --", "wrap -o /proc/gswarm --") + " app 1 3"
		one, two := b.without().submit("-N2 -n4", script), b.submit("-N2 -n4", script)
		x, y := b.without().await(one), b.await(two)
		b.untouched(x, y)
		_, own := split(y.stderr)
		// One line for a node, or one for the job.
		if own = slices.Compact(own); len(own) != 1 || !strings.HasPrefix(own[0], "nothing is recorded: creating the run directory: mkdir /proc/gswarm: ") {
			b.Errorf("gswarm says %q", own)
		}
		strict := strings.ReplaceAll(script, "wrap", "wrap --strict")
		if r := b.batch("-N2 -n4", strict); r.code == 0 || strings.Contains(r.stdout, "begins") {
			b.Errorf("with --strict: exit code %d, stdout %q", r.code, r.stdout)
		}
	})
}

// noPorts: no port for the head in front.
func noPorts(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		port := "23499" // the two tests may share a node
		if strings.HasPrefix(command, "srun") {
			port = "23497"
		}
		// Both of the batch's nodes are one machine's: the port is taken on
		// the first one, where the head is to be.
		script := `python3 -c '
import socket, time
t = socket.socket(); t.bind(("", ` + port + `)); t.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("", ` + port + `))
open("taken", "w").close()
time.sleep(30)' &
while [[ ! -e taken ]]; do sleep 0.05; done
` + strings.ReplaceAll(command, "wrap --", "wrap --ports "+port+"-"+port+" --") + ` app 2 3
code=$?
kill $!
exit $code`
		one := b.without().submit("-N2 -n4", script)
		x := b.without().await(one)
		y := b.batch("-N2 -n4", script)
		b.untouched(x, y)
		_, own := split(y.stderr)
		said := slices.IndexFunc(own, func(s string) bool { return strings.Contains(s, port) && strings.Contains(s, "address already in use") })
		if said < 0 || len(own) != 2 {
			b.Errorf("gswarm says %q", own)
		}
		found, err := filepath.Glob(b.path("gswarm-" + y.job + "*"))
		must(b, err)
		if len(found) != 1 {
			b.Fatalf("runs: %v", dirs(b))
		}
		d := dataset{dir: filepath.Base(found[0]), nodes: "n[1-4] n[1-4]", mergeCode: 3, missing: []string{"no_clock"}}
		d.nodes = actual(b, d)
		if strings.HasPrefix(command, "srun") {
			d.ranks = 4
		}
		// One node's clock is the reference all the same.
		d.unaligned = strings.Fields(d.nodes)[1:]
		b.check(d)
	})
}

// noHead: the head is there and cannot be reached from another node.
func noHead(t *testing.T, c *cluster) {
	b := c.box(t)
	const port = "23498"
	// A route to nowhere for what comes back from that port would cut Slurm
	// off as well, so the port is shut by a policy rule for it alone.
	script := `n=$(scontrol show hostnames $SLURM_JOB_NODELIST | tail -1)
srun gswarm wrap --ports ` + port + `-` + port + ` -- app 3`
	for _, n := range strings.Fields(allNodes) {
		run(t, filepath.Join(repo(t), "scripts", "slurm", "cluster"), "node", n, "ip", "rule", "add", "dport", port, "blackhole")
		t.Cleanup(func() {
			run(t, filepath.Join(repo(t), "scripts", "slurm", "cluster"), "node", n, "ip", "rule", "del", "dport", port, "blackhole")
		})
	}
	r := b.batch("-N2 -n4", script)
	if r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	d := dataset{dir: "gswarm-" + r.job + ".0", nodes: "n[1-4] n[1-4]", ranks: 4, mergeCode: 3, missing: []string{"no_clock"}}
	d.nodes = actual(b, d)
	d.unaligned = slices.DeleteFunc(strings.Fields(d.nodes), func(n string) bool { return n == b.info(d.dir).Run.Reference.Node })
	b.check(d)
	if _, own := split(r.stderr); len(own) != 2 || !strings.Contains(strings.Join(own, "\n"), "no head") {
		t.Errorf("gswarm says %q", own)
	}
}
