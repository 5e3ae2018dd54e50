//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/merge"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// dataset is what a run should have left behind.
type dataset struct {
	// dir is its name in the box.
	dir string
	// nodes are the directories below nodes, divided by blanks.
	nodes string
	// ranks is how many ranks gswarm was the parent of.
	ranks int
	// mergeCode is merge's exit status: 0, or 3 with each of missing in its
	// output.
	mergeCode int
	missing   []string
	// short jobs may end before the nodes' clocks are tied together or an
	// agent has written its last word. merge says so.
	short bool
	// unaligned are nodes whose clock nothing ties to the reference.
	unaligned []string
}

// info is what gswarm info --json prints, as far as it is looked at.
type info struct {
	Run   *rundir.Run `json:"run"`
	Nodes []struct {
		Node  string `json:"node"`
		Rows  int64  `json:"rows"`
		GPUs  int    `json:"gpus"`
		Ended string `json:"ended"`
	} `json:"nodes"`
	Alive []string      `json:"alive"`
	Ranks []rundir.Rank `json:"ranks"`
}

// gswarm runs the program that is tested on the login node.
func (b *box) gswarm(args ...string) result {
	b.Helper()
	cmd := exec.Command(filepath.Join(repo(b), "bin", "gswarm"), args...)
	cmd.Dir, cmd.Env = b.dir, b.environ()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		b.Fatalf("gswarm: %v", err)
	}
	return result{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
}

func (b *box) info(dir string) info {
	b.Helper()
	r := b.gswarm("info", "--json", dir)
	var i info
	if err := json.Unmarshal([]byte(r.stdout), &i); err != nil {
		b.Fatalf("gswarm info %s: %d %v\n%s%s", dir, r.code, err, r.stdout, r.stderr)
	}
	return i
}

// check looks at a run from all sides: its files, info, merge, clocks.
func (b *box) check(want dataset) info {
	b.Helper()
	names, err := rundir.Dir(b.path(want.dir)).NodeNames()
	must(b, err)
	if got := strings.Join(names, " "); got != want.nodes {
		b.Errorf("%s: nodes %q, want %q", want.dir, got, want.nodes)
	}
	b.files(want)
	i := b.info(want.dir)
	if len(i.Alive) > 0 {
		b.Errorf("%s: still alive: %v", want.dir, i.Alive)
	}
	if len(i.Ranks) != want.ranks {
		b.Errorf("%s: %d ranks known, want %d: %v", want.dir, len(i.Ranks), want.ranks, i.Ranks)
	}
	seen := map[int]bool{}
	for _, r := range i.Ranks {
		if seen[r.Rank] {
			b.Errorf("%s: rank %d is known twice", want.dir, r.Rank)
		}
		seen[r.Rank] = true
	}
	for _, n := range i.Nodes {
		if n.Rows == 0 {
			b.Errorf("%s: node %s has no rows", want.dir, n.Node)
		}
		if n.Ended == "" && want.mergeCode == 0 && !want.short {
			b.Errorf("%s: node %s has no end mark", want.dir, n.Node)
		}
	}
	if want.mergeCode == 0 && !want.short {
		if r := b.gswarm("info", want.dir); r.code != 0 || !strings.Contains(r.stdout, "state     complete") {
			b.Errorf("gswarm info %s: exit %d\n%s%s", want.dir, r.code, r.stdout, r.stderr)
		}
	}
	first := b.merge(want)
	if again := b.merge(want); again != first {
		b.Errorf("%s: merging twice gives other bytes", want.dir)
	}
	b.clocks(want)
	return i
}

// merge merges a run and returns a digest of all that it wrote.
func (b *box) merge(want dataset) string {
	b.Helper()
	r := b.gswarm("merge", want.dir)
	if r.code != want.mergeCode && !(want.short && r.code == 3) {
		b.Fatalf("gswarm merge %s: exit %d, want %d\n%s%s", want.dir, r.code, want.mergeCode, r.stdout, r.stderr)
	}
	for _, m := range want.missing {
		if !strings.Contains(r.stdout, m) {
			b.Errorf("gswarm merge %s does not say %q:\n%s", want.dir, m, r.stdout)
		}
	}
	return b.tree(want.dir)
}

// tree is a digest of all files of a timeline.
func (b *box) tree(dir string) string {
	b.Helper()
	sum := sha256.New()
	must(b, filepath.WalkDir(b.path(dir, "timeline"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		c, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n", path, len(c))
		sum.Write(c)
		return err
	}))
	return string(sum.Sum(nil))
}

// files checks that nobody else can read the run, that no key is left in it and
// no secret of the job's got into it.
func (b *box) files(want dataset) {
	b.Helper()
	must(b, filepath.WalkDir(b.path(want.dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		if st.Mode().Perm()&0o077 != 0 {
			b.Errorf("%s has mode %v", path, st.Mode())
		}
		if d.Name() == ".head.yaml" || strings.HasSuffix(d.Name(), ".tmp") && want.mergeCode == 0 && !want.short {
			b.Errorf("%s is left", path)
		}
		if d.IsDir() {
			return nil
		}
		c, err := os.ReadFile(path)
		if bytes.Contains(c, []byte(secret)) {
			b.Errorf("%s holds a secret of the job's", path)
		}
		return err
	}))
}

// skewOf is the false clock that the box gave a node.
func (b *box) skewOf(node string) clock.Skewed {
	var s clock.Skewed
	for _, kv := range b.env {
		flags, ok := strings.CutPrefix(kv, "E2E_SKEW_"+rundir.NodeOf(node)+"=")
		if !ok {
			continue
		}
		for _, f := range strings.Fields(flags) {
			name, value, _ := strings.Cut(f, "=")
			switch name {
			case "--x-skew-offset":
				d, err := time.ParseDuration(value)
				must(b, err)
				s.OffsetNS = int64(d)
			case "--x-skew-ppm":
				p, err := strconv.ParseFloat(value, 64)
				must(b, err)
				s.PPM = p
			}
		}
	}
	return s
}

// clocks compares the timeline with the truth. The nodes share one raw clock,
// which the box may have falsified in a known way, so each clock bracket, which
// holds the node's raw clock as read, says when it truly was read.
func (b *box) clocks(want dataset) {
	b.Helper()
	meta, err := merge.ReadMeta(rundir.Dir(b.path(want.dir)))
	must(b, err)
	skewed := map[string]clock.Skewed{}
	for _, n := range meta.Nodes {
		s := b.skewOf(n.Node)
		if meta.Reference.Node == "(head)" && len(meta.Nodes) > 0 {
			// In front, one configuration goes to all agents.
			s = b.skewOf("front")
		}
		skewed[n.Node] = s
		aligned := n.Clock.Method == "reference" || n.Clock.Method == "exchange"
		if slices.Contains(want.unaligned, n.Node) {
			if n.Clock.Method != "unaligned" {
				b.Errorf("%s: node %s: clock by %s, want it unaligned", want.dir, n.Node, n.Clock.Method)
			}
			continue
		}
		if want.short && n.Clock.Method == "unaligned" {
			b.Logf("%s: node %s is unaligned", want.dir, n.Node)
			continue
		}
		if !aligned || n.Clock.BoundNS == nil {
			b.Errorf("%s: node %s: clock by %q, bound %v", want.dir, n.Node, n.Clock.Method, n.Clock.BoundNS)
			continue
		}
		if most := 20 * time.Millisecond; time.Duration(n.Clock.BoundNS.Max) > most {
			b.Errorf("%s: node %s: bound %v is above %v", want.dir, n.Node, time.Duration(n.Clock.BoundNS.Max), most)
		}
	}
	reference := skewed[meta.Reference.Node] // the head's own is never false
	tl := table.Timeline(table.ClockBracket)
	raw0, raw1 := tl.Index("raw0_ns"), tl.Index("raw1_ns")
	rows, outside := 0, 0
	for _, f := range meta.Files {
		if f.Table != table.ClockBracket.Name {
			continue
		}
		must(b, shard.ReadParquet(b.path(want.dir, "timeline", f.Name), tl, func(batch *table.Batch) error {
			for i := range batch.Rows() {
				if !batch.Valid(table.TLBound)[i] {
					continue
				}
				rows++
				read := batch.Ints(raw0)[i] + (batch.Ints(raw1)[i]-batch.Ints(raw0)[i])/2
				s := skewed[batch.Strings(table.TLNode)[i]]
				true0 := int64(float64(read-s.OffsetNS) / (1 + s.PPM*1e-6))
				if s == (clock.Skewed{}) {
					true0 = read
				}
				truth := meta.Reference.Anchor.Realtime + int64(reference.Skew(clock.NodeTime(true0))-meta.Reference.Anchor.Raw)
				const arithmetic = 1000 // floats near 1e15 ns
				if d := batch.Ints(table.TLTimeNS)[i] - truth; max(d, -d) > batch.Ints(table.TLBound)[i]+arithmetic {
					if outside++; outside == 1 {
						b.Errorf("%s: node %s: time %d is %d ns from the truth, its bound is %d", want.dir,
							batch.Strings(table.TLNode)[i], batch.Ints(table.TLTimeNS)[i], d, batch.Ints(table.TLBound)[i])
					}
				}
			}
			return nil
		}))
	}
	if rows == 0 && !want.short && len(want.unaligned) < len(meta.Nodes) {
		b.Errorf("%s: the timeline has no clock bracket", want.dir)
	}
	if outside > 0 {
		b.Errorf("%s: %d of %d clock brackets are outside of their bounds", want.dir, outside, rows)
	}
}

// rows calls f for each row of a table of the timeline.
func (b *box) rows(dir string, t *table.Table, f func(cells map[string]any)) {
	b.Helper()
	meta, err := merge.ReadMeta(rundir.Dir(b.path(dir)))
	must(b, err)
	tl := table.Timeline(t)
	for _, file := range meta.Files {
		if file.Table != t.Name {
			continue
		}
		must(b, shard.ReadParquet(b.path(dir, "timeline", file.Name), tl, func(batch *table.Batch) error {
			for i := range batch.Rows() {
				cells := map[string]any{}
				for c, col := range tl.Columns {
					if !batch.Valid(c)[i] {
						continue
					}
					switch col.Type {
					case table.String:
						cells[col.Name] = batch.Strings(c)[i]
					case table.Float32, table.Float64:
						cells[col.Name] = batch.Floats(c)[i]
					default:
						cells[col.Name] = batch.Ints(c)[i]
					}
				}
				f(cells)
			}
			return nil
		}))
	}
}

// events lists the kinds of a run's events on one node, in order of time.
func (b *box) events(dir, node string) []string {
	b.Helper()
	type event struct {
		at   int64
		kind string
	}
	var all []event
	b.rows(dir, table.Event, func(c map[string]any) {
		if c[table.Node] == node {
			all = append(all, event{c[table.TimeNS].(int64), c["kind"].(string)})
		}
	})
	slices.SortStableFunc(all, func(x, y event) int { return int(x.at - y.at) })
	var kinds []string
	for _, e := range all {
		kinds = append(kinds, e.kind)
	}
	return kinds
}

// process is one of the machine's; the machine sees those of all nodes.
type process struct {
	pid int
	// node is the name that it takes its host to have.
	args []string
	env  []string
}

// agent reports whether it is an agent of gswarm's.
func (p process) agent() bool {
	return len(p.args) > 1 && p.args[1] == "agent" && p.get("GSWARM_X_AGENT") != ""
}

func (p process) get(name string) string {
	for _, kv := range p.env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// processes lists those that belong to the box.
func (b *box) processes() []process {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(b, err)
	var found []process
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(env, []byte("E2E_CASE="+b.mark+"\x00")) && !bytes.HasSuffix(env, []byte("E2E_CASE="+b.mark)) {
			continue
		}
		args, err := os.ReadFile(d + "/cmdline")
		if err != nil || len(args) == 0 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(d))
		must(b, err)
		found = append(found, process{
			pid: pid, args: strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00"),
			env: strings.Split(string(env), "\x00"),
		})
	}
	return found
}

// node returns the host name that a process sees.
func (p process) node() string {
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(p.pid), "-u", "hostname").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// agents lists the box's running agents.
func (b *box) agents() []process {
	return slices.DeleteFunc(b.processes(), func(p process) bool { return !p.agent() })
}

// nothingLeft waits for the end of all that gswarm started.
func (b *box) nothingLeft() {
	b.Helper()
	var left []process
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		left = slices.DeleteFunc(b.processes(), func(p process) bool {
			return !p.agent() && !strings.HasSuffix(p.args[0], "/gswarm") && p.args[0] != "gswarm"
		})
		if len(left) == 0 {
			break
		}
	}
	for _, p := range left {
		b.Errorf("process %d is left on %s: %q", p.pid, p.node(), p.args)
		if b.Failed() { // do not trouble the next test
			p, err := os.FindProcess(p.pid)
			if err == nil {
				p.Kill() //nolint:errcheck // it may be gone by now
			}
		}
	}
	heads, _ := filepath.Glob(b.path("gswarm-*", ".head.yaml"))
	for _, h := range heads {
		b.Errorf("%s is left", h)
	}
}

func sortedStrings(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}
