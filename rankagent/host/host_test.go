package host

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeOut keeps what a source delivers, as the agent would.
type fakeOut struct {
	now     clock.NodeTime
	batches map[*table.Table]*table.Batch
	absent  map[string]string // what is missing now, with its reason
	log     []string          // beginnings and ends of absences
	quiet   bool              // keep no account of absences
}

func newFakeOut() *fakeOut {
	return &fakeOut{batches: map[*table.Table]*table.Batch{}, absent: map[string]string{}}
}

func (o *fakeOut) Now() clock.NodeTime { o.now += 1000; return o.now }

func (o *fakeOut) Batch(t *table.Table) *table.Batch {
	if o.batches[t] == nil {
		o.batches[t] = table.NewBatch(t, 16)
	}
	return o.batches[t]
}

func (o *fakeOut) Absent(t *table.Table, column, key string, reason rankagent.Reason, detail string) {
	if column != "" && t.Index(column) < 0 {
		panic("no column " + column)
	}
	if detail == "" {
		panic("no detail")
	}
	if o.quiet {
		return
	}
	k := fmt.Sprintf("%s.%s[%s]", t.Name, column, key)
	if o.absent[k] == "" {
		o.log = append(o.log, "absent "+k)
	}
	o.absent[k] = string(reason)
}

func (o *fakeOut) Present(t *table.Table, column, key string) {
	if o.quiet {
		return
	}
	k := fmt.Sprintf("%s.%s[%s]", t.Name, column, key)
	if o.absent[k] != "" {
		o.log = append(o.log, "present "+k)
		delete(o.absent, k)
	}
}

func (o *fakeOut) Event(clock.NodeTime, string, int, int, any) { panic("no events here") }

func (o *fakeOut) reset() {
	for _, b := range o.batches {
		b.Reset()
	}
}

// dump writes rows and absences as text.
func (o *fakeOut) dump() string {
	var s strings.Builder
	for _, t := range []*table.Table{table.Host, table.NUMA, table.Net, table.Infiniband, table.Disk, table.Filesystem} {
		b := o.Batch(t)
		for row := range b.Rows() {
			fmt.Fprintf(&s, "%s\n", t.Name)
			for i, c := range t.Columns {
				if !b.Valid(i)[row] {
					fmt.Fprintf(&s, "  %s null\n", c.Name)
					continue
				}
				var v any
				switch c.Type {
				case table.String:
					v = b.Strings(i)[row]
				case table.Float32, table.Float64:
					v = b.Floats(i)[row]
				default:
					v = b.Ints(i)[row]
				}
				fmt.Fprintf(&s, "  %s %v\n", c.Name, v)
			}
		}
	}
	var absent []string
	for k, r := range o.absent {
		absent = append(absent, fmt.Sprintf("absent %s %s\n", k, r))
	}
	slices.Sort(absent)
	return s.String() + strings.Join(absent, "")
}

func read(t testing.TB, h *Host, out *fakeOut) {
	t.Helper()
	for _, s := range h.Sources() {
		if err := s.Read(out); err != nil {
			t.Fatal(err)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

func treeOptions(root string) Options {
	return Options{
		ProcRoot: filepath.Join(root, "proc"),
		SysRoot:  filepath.Join(root, "sys"),
		EtcRoot:  filepath.Join(root, "etc"),
		Environ: []string{
			"NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=0,1", "OMP_NUM_THREADS=8", "SLURM_JOB_ID=7", "SLURM_NNODES=2",
			"NCCL_AUTH_FILE=x", "OMP_TOKEN=x", "CUDA_X=http://u:p@h", "NCCL_ODD", "NCCL_NL=a\nb",
			"SLURM_JOB_ACCOUNT=x", "SLURM_PROCID=0", "OMPI_X=1", "HOME=/home/x", "HF_TOKEN=x", "LD_PRELOAD=x", "=x",
		},
	}
}

func TestTrees(t *testing.T) {
	for _, name := range []string{"modern", "nopsi", "garbage", "fabric"} {
		t.Run(name, func(t *testing.T) {
			opts := treeOptions(filepath.Join("testdata", name))
			h, err := Open(opts)
			if err != nil {
				t.Fatal(err)
			}
			out := newFakeOut()
			read(t, h, out)
			golden(t, name+".golden", out.dump())
			facts, err := yaml.Marshal(NodeFacts(opts))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".facts.golden", string(facts))
		})
	}
}

// TestEmpty is a node with an empty /proc: every value is null with a reason.
func TestEmpty(t *testing.T) {
	opts := treeOptions(t.TempDir())
	if _, err := Open(opts); err == nil {
		t.Error("Open without /proc succeeded")
	}
	if err := os.Mkdir(opts.ProcRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	out := newFakeOut()
	read(t, h, out)
	b := out.Batch(table.Host)
	if b.Rows() != 1 || out.Batch(table.Net).Rows() != 0 || out.Batch(table.Disk).Rows() != 0 {
		t.Errorf("rows:\n%s", out.dump())
	}
	for i, c := range table.Host.Columns[2:] {
		if b.Valid(i + 2)[0] {
			t.Errorf("%s is not null", c.Name)
		}
		if out.absent["host."+c.Name+"[]"] == "" {
			t.Errorf("%s has no reason", c.Name)
		}
	}
	f := NodeFacts(opts)
	if len(f.Missing) < 10 {
		t.Errorf("missing facts: %v", f.Missing)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestComeAndGo follows devices and files that vanish and come back.
func TestComeAndGo(t *testing.T) {
	proc := t.TempDir()
	at := func(name string) string { return filepath.Join(proc, name) }
	const heading = "Inter-| Receive\n face |bytes\n"
	netLine := func(name string) string { return name + ":" + strings.Repeat(" 1", netFields) + "\n" }
	diskLine := func(name string) string { return "8 0 " + name + strings.Repeat(" 1", allDiskFields) + "\n" }
	h, err := Open(Options{ProcRoot: proc})
	if err != nil {
		t.Fatal(err)
	}
	out := newFakeOut()
	step := func(what string, netRows, diskRows int, want ...string) {
		t.Helper()
		out.reset()
		out.log = nil
		read(t, h, out)
		var got []string
		for _, l := range out.log {
			if strings.Contains(l, " net.") || strings.Contains(l, " disk.") {
				got = append(got, l)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		if n := out.Batch(table.Net).Rows(); n != netRows {
			t.Errorf("%s: %d rows of net, want %d", what, n, netRows)
		}
		if n := out.Batch(table.Disk).Rows(); n != diskRows {
			t.Errorf("%s: %d rows of disk, want %d", what, n, diskRows)
		}
	}
	step("nothing", 0, 0, "absent disk.[]", "absent net.[]")
	write(t, at("net/dev"), heading+netLine("eth0")+netLine("veth1"))
	write(t, at("diskstats"), diskLine("sda")+diskLine("sda1")+diskLine("sdb"))
	step("there", 2, 2, "present disk.[]", "present net.[]")
	write(t, at("net/dev"), heading+netLine("eth0"))
	write(t, at("diskstats"), diskLine("sdb"))
	step("gone", 1, 1, "absent disk.[sda]", "absent net.[veth1]")
	step("still gone", 1, 1)
	if err := os.Remove(at("net/dev")); err != nil {
		t.Fatal(err)
	}
	step("file gone", 0, 1, "absent net.[]")
	write(t, at("net/dev"), heading+netLine("veth1")+netLine("eth0"))
	write(t, at("diskstats"), diskLine("sda")+diskLine("sda1")+diskLine("sdb"))
	step("back", 2, 2, "present disk.[sda]", "present net.[]", "present net.[veth1]")
	write(t, at("net/dev"), heading+netLine("eth0")+"veth1: 1 2")
	step("cut short", 1, 2, "absent net.[]")
	write(t, at("net/dev"), "")
	step("empty", 0, 2)
	write(t, at("net/dev"), heading)
	step("no interfaces", 0, 2, "absent net.[eth0]", "absent net.[veth1]", "present net.[]")

	write(t, at("stat"), "ctxt 5\n")
	read(t, h, out)
	write(t, at("stat"), "ctxt x\n")
	out.log = nil
	read(t, h, out)
	write(t, at("stat"), "ctxt 6\n")
	read(t, h, out)
	if want := []string{"absent host.context_switches_count[]", "present host.context_switches_count[]"}; !slices.Equal(out.log, want) {
		t.Errorf("got %q, want %q", out.log, want)
	}
}

func TestDiskOf(t *testing.T) {
	for _, tt := range []struct{ name, disk, stem string }{
		{"sda", "", "sda"}, {"sda1", "sda", "sda"}, {"sda12", "sda", "sda"},
		{"nvme0n1", "nvme0n", "nvme0n"}, {"nvme0n1p3", "nvme0n1", "nvme0n1p"},
		{"dm-10", "dm-", "dm-"}, {"loop7", "loop", "loop"}, {"mmcblk0p1", "mmcblk0", "mmcblk0p"},
		{"7", "", ""}, {"p1", "p", "p"}, {"cciss/c0d0p2", "cciss/c0d0", "cciss/c0d0p"},
	} {
		if disk, stem := diskOf(tt.name); disk != tt.disk || stem != tt.stem {
			t.Errorf("diskOf(%q) = %q, %q; want %q, %q", tt.name, disk, stem, tt.disk, tt.stem)
		}
	}
}

// TestThisNode reads the machine that the test runs on: invariants only.
func TestThisNode(t *testing.T) {
	h, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := newFakeOut()
	read(t, h, out)
	b := out.Batch(table.Host)
	for _, col := range []int{table.HostCPUUser, table.HostCPUIdle, table.HostContextSwitches, table.HostMemTotal, table.HostLoad1} {
		if !b.Valid(col)[0] {
			t.Errorf("%s is null", table.Host.Columns[col].Name)
		}
	}
	if total, free := b.Ints(table.HostMemTotal)[0], b.Ints(table.HostMemFree)[0]; total < 1<<20 || free > total {
		t.Errorf("memory: total %d, free %d", total, free)
	}
	if f := NodeFacts(Options{}); f.Hostname == "" || f.Kernel == "" || f.CPU.Threads == 0 {
		t.Errorf("facts: %+v", f)
	}
}

// FuzzRead puts one text in the place of every file. No text makes a reading
// panic, leaves a null without a reason, or gives a value that cannot be.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/proc/*")
	if err != nil {
		f.Fatal(err)
	}
	more, err := filepath.Glob("testdata/*/proc/*/*")
	if err != nil {
		f.Fatal(err)
	}
	still, err := filepath.Glob("testdata/*/proc/fs/lustre/llite/*/stats")
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range slices.Concat(paths, more, still) {
		if b, err := os.ReadFile(p); err == nil {
			f.Add(b)
		}
	}
	proc := f.TempDir()
	write(f, filepath.Join(proc, "4242/mountinfo"), "40 25 0:40 / /n rw - nfs4 s:/n rw\n41 25 0:41 / /work rw - lustre 1@tcp:/work rw\n")
	if err := os.Symlink("4242", filepath.Join(proc, "self")); err != nil {
		f.Fatal(err)
	}
	sys := f.TempDir()
	write(f, filepath.Join(sys, "class/infiniband/mlx5_0/ports/1/state"), "4: ACTIVE\n")
	files := []string{
		"stat", "meminfo", "loadavg", "net/dev", "diskstats", "pressure/cpu", "pressure/memory", "pressure/io",
		"net/snmp", "net/netstat", "vmstat", "4242/mountstats", "fs/lustre/llite/work-ff/stats",
	}
	sysFiles := []string{
		"devices/system/node/node0/meminfo", "devices/system/node/node0/numastat",
		"class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "class/infiniband/mlx5_0/ports/1/rate",
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range files {
			write(t, filepath.Join(proc, name), string(text))
		}
		for _, name := range sysFiles {
			write(t, filepath.Join(sys, name), string(text))
		}
		h, err := Open(Options{ProcRoot: proc, SysRoot: sys})
		if err != nil {
			t.Fatal(err)
		}
		out := newFakeOut()
		read(t, h, out)
		for tbl, b := range out.batches {
			keys := map[string]bool{}
			for row := range b.Rows() {
				key := keyOf(b, row)
				if key != "" {
					if keys[key] {
						t.Errorf("%s has two rows of %q", tbl.Name, key)
					}
					keys[key] = true
				}
				for i, c := range tbl.Columns {
					switch {
					case !b.Valid(i)[row]:
						if out.absent[fmt.Sprintf("%s.%s[%s]", tbl.Name, c.Name, key)] == "" {
							t.Errorf("%s.%s[%s] is null without a reason", tbl.Name, c.Name, key)
						}
					case c.Type == table.String, c.Type == table.Float32:
					case b.Ints(i)[row] < 0, c.Type == table.Int32 && b.Ints(i)[row] > 1<<31-1:
						t.Errorf("%s.%s[%s] = %d", tbl.Name, c.Name, key, b.Ints(i)[row])
					}
				}
			}
		}
	})
}

// keyOf returns a row's key as the absence table has it.
func keyOf(b *table.Batch, row int) string {
	var parts []string
	for _, k := range b.Table.Keys {
		if c := b.Table.Index(k); b.Table.Columns[c].Type == table.String {
			parts = append(parts, b.Strings(c)[row])
		} else {
			parts = append(parts, strconv.FormatInt(b.Ints(c)[row], 10))
		}
	}
	return strings.Join(parts, "/")
}

func TestReason(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want rankagent.Reason
	}{
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, rankagent.NotFound},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, rankagent.NoPermission},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EPERM}, rankagent.NoPermission},
		{&fs.PathError{Op: "read", Path: "x", Err: syscall.EOPNOTSUPP}, rankagent.NotSupported},
		{&fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}, rankagent.SourceError},
		{errPSI, rankagent.NotSupported},
		{errTooLong, rankagent.InvalidValue},
		{errEmpty, rankagent.InvalidValue},
	} {
		if got := reason(fmt.Errorf("reading: %w", tt.err)); got != tt.want {
			t.Errorf("reason(%v) = %s, want %s", tt.err, got, tt.want)
		}
	}
}
