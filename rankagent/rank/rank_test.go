package rank

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeOut keeps what the tracker delivers, as the agent would.
type fakeOut struct {
	now    clock.NodeTime
	batch  *table.Batch
	absent map[string]string
	events []string
	quiet  bool
}

func newFakeOut() *fakeOut {
	return &fakeOut{batch: table.NewBatch(table.Rank, 16), absent: map[string]string{}}
}

func (o *fakeOut) Now() clock.NodeTime             { o.now += 1000; return o.now }
func (o *fakeOut) Batch(*table.Table) *table.Batch { return o.batch }

func (o *fakeOut) Absent(t *table.Table, column, key string, reason rankagent.Reason, detail string) {
	if column != "" && t.Index(column) < 0 {
		panic("no column " + column)
	}
	if detail == "" {
		panic("no detail")
	}
	if !o.quiet {
		o.absent[fmt.Sprintf("%s[%s]", column, key)] = string(reason)
	}
}

func (o *fakeOut) Present(_ *table.Table, column, key string) {
	if !o.quiet {
		delete(o.absent, fmt.Sprintf("%s[%s]", column, key))
	}
}

func (o *fakeOut) Event(_ clock.NodeTime, kind string, gpu, rank int, detail any) {
	b, err := json.Marshal(detail)
	if err != nil {
		panic(err)
	}
	o.events = append(o.events, fmt.Sprintf("%s gpu %d rank %d %s", kind, gpu, rank, b))
}

// dump writes rows, events and absences as text.
func (o *fakeOut) dump() string {
	var s strings.Builder
	b := o.batch
	for row := range b.Rows() {
		for i, c := range table.Rank.Columns {
			if i < 2 || !b.Valid(i)[row] {
				continue
			}
			v := any(nil)
			if c.Type == table.String {
				v = b.Strings(i)[row]
			} else {
				v = b.Ints(i)[row]
			}
			fmt.Fprintf(&s, "%s=%v ", strings.TrimSuffix(c.Name, "_count"), v)
		}
		s.WriteString("\n")
	}
	for _, e := range o.events {
		s.WriteString("event " + e + "\n")
	}
	var absent []string
	for k, r := range o.absent {
		absent = append(absent, fmt.Sprintf("absent %s %s\n", k, r))
	}
	slices.Sort(absent)
	return s.String() + strings.Join(absent, "")
}

// unpack writes a tree of testdata into a directory of its own. Environments and
// command lines have a line for each entry there.
func unpack(t testing.TB, name string) string {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range a.Files {
		text := string(f.Data)
		if base := filepath.Base(f.Name); base == "environ" || base == "cmdline" {
			text = strings.ReplaceAll(text, "\n", "\x00")
		}
		put(t, filepath.Join(root, f.Name), text)
	}
	return root
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
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

// fakeGPUs are four GPUs, two on each memory node, whose minors are their
// ordinals; used says what the driver says of processes.
type fakeGPUs struct{ used map[int][]int }

func (fakeGPUs) Count() int                           { return 4 }
func (g fakeGPUs) OfPID(pid int) ([]int, bool)        { return g.used[pid], g.used != nil }
func (fakeGPUs) ByUUID(u string) (int, bool)          { return 3, u == "GPU-3" }
func (fakeGPUs) ByMinor(m int) (int, bool)            { return m, m < 4 }
func (fakeGPUs) NUMANode(gpu int) (node int, ok bool) { return gpu / 2, true }

func options(root string) Options {
	return Options{
		ProcRoot: filepath.Join(root, "proc"), SysRoot: filepath.Join(root, "sys"), UID: os.Getuid(),
		GPUs: func() GPUs { return fakeGPUs{} },
	}
}

func open(t testing.TB, o Options) *Tracker {
	t.Helper()
	tr, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

func TestTrees(t *testing.T) {
	for _, tt := range []struct {
		name string
		job  Variable
		run  string
	}{
		{"slurm-v1", Variable{"SLURM_JOB_ID", "7"}, "/run7"},
		{"torchrun-v2", Variable{"SLURM_JOB_ID", "9"}, "/run9"},
		{"openmpi-bare", Variable{}, "/r"},
		{"flux-hybrid", Variable{}, "/r"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(unpack(t, tt.name))
			o.Job, o.Run = tt.job, tt.run
			tr, out := open(t, o), newFakeOut()
			for range 3 { // nothing changes, so nothing is said twice
				out.batch.Reset()
				if err := tr.Read(out); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, tt.name+".golden", out.dump())
		})
	}
}

// TestOtherUsers asserts that of other users' processes nothing is kept.
func TestOtherUsers(t *testing.T) {
	o := options(unpack(t, "slurm-v1"))
	o.Job, o.Run, o.UID = Variable{"SLURM_JOB_ID", "7"}, "/run7", os.Getuid()+1
	tr, out := open(t, o), newFakeOut()
	if err := tr.Read(out); err != nil {
		t.Fatal(err)
	}
	if out.batch.Rows() != 0 || len(out.events) != 0 || len(tr.procs) != 0 {
		t.Errorf("recorded: %s", out.dump())
	}
	if out.absent["[]"] != string(rankagent.NotFound) {
		t.Errorf("absences: %v", out.absent)
	}
	if r := tr.RankOf(210); r != -1 {
		t.Errorf("another user's process has rank %d", r)
	}
}

// TestComeAndGo follows processes that start, exec, vanish between two files,
// and give their id to another.
func TestComeAndGo(t *testing.T) {
	root := unpack(t, "openmpi-bare")
	o := options(root)
	o.Run = "/r"
	tr, out := open(t, o), newFakeOut()
	said := func(what string, want ...string) {
		t.Helper()
		out.batch.Reset()
		out.events = nil
		if err := tr.Read(out); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range out.events {
			f := strings.Fields(e)
			got = append(got, f[0]+" "+f[4])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	said("first", "process_start -1", "process_start 0", "process_start 0", "process_start 1")
	said("same")
	at := func(pid, name string) string { return filepath.Join(root, "proc", pid, name) }
	stat, err := os.ReadFile(at("20", "stat"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, at("20", "cmdline"), "pt_data\x00")
	put(t, at("20", "stat"), strings.Replace(string(stat), "(helper)", "(pt_data_worker)", 1))
	said("renamed: noticed in the reading")
	said("renamed", "process_change 0")
	if p := tr.procs[20]; p.role != RoleWorker {
		t.Errorf("role %s", p.role)
	}
	os.Remove(at("20", "io"))
	os.Remove(at("20", "stat"))
	tr.shut(tr.procs[20], fileStat)
	said("vanishing")
	if n := out.batch.Rows(); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	os.RemoveAll(at("20", ""))
	said("vanished", "process_exit 0")
	os.Rename(at("12", ""), at("99", ""))
	put(t, at("12", "stat"), strings.Replace(strings.Replace(string(stat), "20 (", "12 (", 1), " 200 100000000", " 999 100000000", 1))
	put(t, at("12", "environ"), "GSWARM_X_RUN=:/r\x00OMPI_COMM_WORLD_RANK=7\x00")
	said("another of the same id", "process_exit 1", "process_start 7")
	if tr.RankOf(12) != 7 || tr.RankOf(11) != 0 || tr.RankOf(10) != -1 || tr.RankOf(4711) != -1 {
		t.Error("RankOf")
	}
	for _, pid := range []string{"10", "11", "12", "99"} {
		os.RemoveAll(at(pid, ""))
	}
	said("all gone", "process_exit -1", "process_exit 0", "process_exit 7")
	if out.absent["[]"] != string(rankagent.NotFound) || tr.open != 0 || len(tr.procs) != 0 {
		t.Errorf("absent %v, %d files open", out.absent, tr.open)
	}
}

// TestFewFiles reads with no file left to keep open.
func TestFewFiles(t *testing.T) {
	o := options(unpack(t, "slurm-v1"))
	o.Job, o.Run = Variable{"SLURM_JOB_ID", "7"}, "/run7"
	tr, out := open(t, o), newFakeOut()
	tr.maxOpen = 3
	for range 3 {
		out.batch.Reset()
		if err := tr.Read(out); err != nil {
			t.Fatal(err)
		}
	}
	if tr.open != 3 || out.batch.Rows() == 0 {
		t.Errorf("%d open, %d rows", tr.open, out.batch.Rows())
	}
}

func TestIdentify(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want Identity
	}{
		{"", nobody},
		{"SLURM_PROCID=0 SLURM_LOCALID=0", nobody}, // a batch script
		{"SLURM_PROCID=0 SLURM_STEP_ID=4294967291", nobody},
		{"SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_STEP_ID=2 SLURM_STEP_NUM_TASKS=8", Identity{"slurm", 5, 1, 8}},
		{"SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_STEPID=2 SLURM_NTASKS=8", Identity{"slurm", 5, 1, 8}},
		{"SLURM_PROCID=5 SLURM_STEP_ID=2 PMI_RANK=5 PMI_SIZE=8", Identity{"slurm", 5, -1, -1}},
		{"SLURM_PROCID=0 SLURM_STEP_ID=2 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=4", Identity{"openmpi", 3, 1, 4}},
		{"SLURM_PROCID=0 SLURM_STEP_ID=2 PMI_RANK=3 MPI_LOCALRANKID=1 PMI_SIZE=4", Identity{"mpich", 3, 1, 4}},
		{"MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_LOCAL_RANK=1 PMI_RANK=9", Identity{"mvapich", 3, 1, -1}},
		{"PMIX_RANK=2 PMIX_NAMESPACE=x", Identity{"pmix", 2, -1, -1}},
		{"PMI_RANK=2", Identity{"pmi", 2, -1, -1}},
		{"PBS_JOBID=1.x PALS_RANKID=6 PALS_LOCAL_RANKID=2", Identity{"pals", 6, 2, -1}},
		{"FLUX_TASK_RANK=6 FLUX_TASK_LOCAL_ID=2 FLUX_JOB_SIZE=7", Identity{"flux", 6, 2, 7}},
		{"JSM_NAMESPACE_RANK=6 JSM_NAMESPACE_LOCAL_RANK=2 JSM_NAMESPACE_SIZE=7", Identity{"jsrun", 6, 2, 7}},
		{"RANK=6 LOCAL_RANK=2 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=x SLURM_PROCID=1 SLURM_STEP_ID=0", Identity{"torchrun", 6, 2, 8}},
		{"RANK=6 WORLD_SIZE=8 MASTER_ADDR=x", Identity{"torch", 6, -1, 8}},
		{"RANK=6", nobody}, // anybody's variable
		{"PMI_RANK=-1", nobody}, {"PMI_RANK=x", nobody}, {"PMI_RANK=99999999999999999999", nobody}, {"PMI_RANK=99999999", nobody},
	} {
		env := environ(strings.ReplaceAll(tt.env, " ", "\x00"))
		if got := Identify(env.get); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.env, got, tt.want)
		}
	}
}

func TestPrograms(t *testing.T) {
	for _, tt := range []struct {
		argv              string
		elastic, launcher bool
	}{
		{"python3 /usr/bin/torchrun train.py", true, false},
		{"torchrun train.py", true, false},
		{"python -u -m torch.distributed.run x", true, false},
		{"python -W ignore -m accelerate.commands.launch x", true, false},
		{"python train.py", false, false}, {"python", false, false}, {"python -c x", false, false},
		{"/bin/bash x.sh", false, true}, {"-bash", false, true}, {"numactl -N 0 ./app", false, true},
		{"./app", false, false}, {"/opt/mpi/bin/mpiexec.hydra x", false, true},
	} {
		argv := strings.Fields(tt.argv)
		if isElastic(argv) != tt.elastic || isLauncher(argv, "") != tt.launcher {
			t.Errorf("%s: elastic %v, launcher %v", tt.argv, isElastic(argv), isLauncher(argv, ""))
		}
	}
}

func TestChooseGPU(t *testing.T) {
	used := fakeGPUs{map[int][]int{1: {2}, 2: {0, 1}}}
	for _, tt := range []struct {
		what   string
		p      process
		gpus   GPUs
		gpu    int
		source string
	}{
		{"driver", process{pid: 1, role: RoleOther}, used, 2, "nvml"},
		{"several", process{pid: 2, role: RoleRank, visible: []string{"0"}}, used, -1, ""},
		{"cgroup", process{role: RoleRank, minors: []int{3}, visible: []string{"0"}}, fakeGPUs{}, 3, "cgroup"},
		{"one", process{role: RoleRank, visible: []string{"1"}, local: 5}, fakeGPUs{}, 1, "environment"},
		{"one of the cgroup's", process{role: RoleRank, minors: []int{2, 3}, visible: []string{"1"}}, fakeGPUs{}, 3, "environment"},
		{"uuid", process{role: RoleRank, visible: []string{"GPU-3"}}, fakeGPUs{}, 3, "environment"},
		{"unknown uuid", process{role: RoleRank, visible: []string{"GPU-9"}, local: -1}, fakeGPUs{}, -1, ""},
		{"list", process{role: RoleRank, visible: []string{"3", "2"}, local: 1}, fakeGPUs{}, 2, "convention"},
		{"no list", process{role: RoleRank, local: 2}, fakeGPUs{}, 2, "convention"},
		{"none", process{role: RoleRank, visible: []string{}, local: 2}, fakeGPUs{}, -1, ""},
		{"too few", process{role: RoleRank, local: 7}, fakeGPUs{}, -1, ""},
		{"launcher", process{role: RoleLauncher, visible: []string{"1"}}, fakeGPUs{}, -1, ""},
	} {
		if gpu, source := chooseGPU(&tt.p, tt.gpus); gpu != tt.gpu || source != tt.source {
			t.Errorf("%s: got %d %q, want %d %q", tt.what, gpu, source, tt.gpu, tt.source)
		}
	}
	for list, want := range map[string]int{"": 0, "0,1": 2, "-1": 0, "0,-1,1": 1, " 1": 1, "GPU-x,MIG-y": 2} {
		if got := visibleGPUs(environ("CUDA_VISIBLE_DEVICES=" + list)); len(got) != want || got == nil {
			t.Errorf("%q: %q", list, got)
		}
	}
}

// TestThisNode finds the test's own process, whoever its parent is: invariants
// only.
func TestThisNode(t *testing.T) {
	tr, out := open(t, Options{UID: os.Getuid(), Run: "/none"}), newFakeOut()
	if err := tr.Read(out); err != nil {
		t.Fatal(err)
	}
	if out.batch.Rows() != 0 {
		t.Errorf("found %s", out.dump())
	}
	pids, err := Processes("/proc", "GSWARM_NO_SUCH_VARIABLE", "1")
	if err != nil || len(pids) != 0 {
		t.Errorf("found %v, %v", pids, err)
	}
}
