package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// summary is what a surrounding comes to, in one line.
func summary(s Surroundings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", s.Position)
	if s.Launcher != "" {
		fmt.Fprintf(&b, " %s", s.Launcher)
	}
	fmt.Fprintf(&b, " %s id=%s on %s", s.Identity.Name(), s, s.Node)
	if s.Position == Behind {
		fmt.Fprintf(&b, " rank %d/%d local %d/%d", s.Rank, s.Size, s.LocalRank, s.LocalSize)
	}
	if len(s.Nodes) > 0 {
		fmt.Fprintf(&b, " nodes %s", strings.Join(s.Nodes, ","))
	}
	if s.HetGroups > 0 {
		fmt.Fprintf(&b, " het %d", s.HetGroups)
	}
	if s.Job[0] != "" {
		fmt.Fprintf(&b, " job %s", s.Job[1])
	}
	if s.Ambiguous != "" {
		b.WriteString(" ambiguous")
	}
	return b.String()
}

// The environments as Slurm 22.05, Open MPI 4.1, MPICH 4.0 and torchrun give
// them, without what Detect has no business with.
const (
	batchEnv = "SLURM_JOB_ID=12 SLURM_JOBID=12 SLURM_JOB_NODELIST=n[1-2] SLURM_NODELIST=n[1-2] SLURM_JOB_PARTITION=main " +
		"SLURM_CLUSTER_NAME=test SLURMD_NODENAME=n1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4 ENVIRONMENT=BATCH"
	taskEnv = "SLURM_JOB_ID=12 SLURM_JOB_NODELIST=n[1-2] SLURMD_NODENAME=n2 SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NTASKS=4 " +
		"SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NODELIST=n[1-2]"
	ompiEnv = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 " +
		"PMIX_RANK=3 PMIX_NAMESPACE=1806958593 OMPI_MCA_ess_base_jobid=1806958593"
	hydraEnv    = "PMI_RANK=3 PMI_SIZE=4 PMI_FD=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 HYDI_CONTROL_FD=7"
	torchrunEnv = "RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=n1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID="
)

func TestDetect(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("x", 3600))
	for _, c := range []struct {
		name, env, step string
		want            string
	}{
		{"alone", "", "", "alone gswarm-20260301T110000Z id=local on host"},
		{"alone, odd variables", "RANK=1 PMI_RANK=2 PMIX_RANK=1 SLURM_STEP_ID=1 SLURM_PROCID=2", "", "alone gswarm-20260301T110000Z id=local on host"},
		{"sbatch script", batchEnv, "12.batch", "front gswarm-12 id=12 on n1 nodes n1,n2 job 12"},
		{"sbatch script, nothing to be seen", batchEnv, "", "front gswarm-12 id=12 on n1 nodes n1,n2 job 12"},
		{"sbatch script submitted in a step", batchEnv + " SLURM_STEP_ID=3 SLURM_STEPID=3 SLURM_STEP_NODELIST=n4", "12.batch", "front gswarm-12 id=12 on n1 nodes n1,n2 job 12"},
		{"salloc shell", "SLURM_JOB_ID=12 SLURM_JOB_NODELIST=n[1-2] SLURM_NODELIST=n[1-2]", "", "front gswarm-12 id=12 on host nodes n1,n2 job 12"},
		{"salloc called in a step of another job", "SLURM_JOB_ID=13 SLURM_JOB_NODELIST=n3 SLURM_STEP_ID=0 SLURMD_NODENAME=n1", "12.0", "front gswarm-13 id=13 on n1 nodes n3 job 13"},
		{"interactive step", batchEnv + " SLURM_STEP_ID=4294967290", "", "front gswarm-12 id=12 on n1 nodes n1,n2 job 12"},
		{"interactive step, seen", batchEnv + " SLURM_STEP_ID=4294967290", "12.interactive", "front gswarm-12 id=12 on n1 nodes n1,n2 job 12"},
		{"srun task", taskEnv, "12.0", "behind srun gswarm-12.0 id=12.0 on n2 rank 3/4 local 1/2 nodes n1,n2 job 12"},
		{"srun task, nothing to be seen", taskEnv, "", "behind srun gswarm-12.0 id=12.0 on n2 rank 3/4 local 1/2 nodes n1,n2 job 12"},
		{"srun task on one node", "SLURM_JOB_ID=12 SLURMD_NODENAME=n2 SLURM_STEP_ID=7 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_STEP_NODELIST=n2",
			"12.7", "behind srun gswarm-12.7 id=12.7 on n2 rank 0/1 local 0/1 nodes n2 job 12"},
		{"uneven step", strings.Replace(taskEnv, "2(x2)", "3,1", 1), "12.0", "behind srun gswarm-12.0 id=12.0 on n2 rank 3/4 local 1/1 nodes n1,n2 job 12"},
		{"array task", batchEnv + " SLURM_ARRAY_JOB_ID=10 SLURM_ARRAY_TASK_ID=2", "12.batch", "front gswarm-10_2 id=10_2 on n1 nodes n1,n2 job 12"},
		{"srun in an array task", taskEnv + " SLURM_ARRAY_JOB_ID=10 SLURM_ARRAY_TASK_ID=2", "12.0", "behind srun gswarm-10_2.0 id=10_2.0 on n2 rank 3/4 local 1/2 nodes n1,n2 job 12"},
		{"requeued", batchEnv + " SLURM_RESTART_COUNT=2", "12.batch", "front gswarm-12.r2 id=12.r2 on n1 nodes n1,n2 job 12"},
		{"never requeued", batchEnv + " SLURM_RESTART_COUNT=0", "12.batch", "front gswarm-12 id=12 on n1 nodes n1,n2 job 12"},
		{"heterogeneous, in front", batchEnv + " SLURM_HET_SIZE=2 SLURM_JOB_NODELIST_HET_GROUP_0=n1 SLURM_JOB_NODELIST_HET_GROUP_1=n[2-3] SLURM_JOB_ID_HET_GROUP_0=12 SLURM_JOB_ID_HET_GROUP_1=13",
			"12.batch", "front gswarm-12 id=12 on n1 nodes n1,n2,n3 het 2 job 12"},
		{"heterogeneous, behind", taskEnv + " SLURM_HET_SIZE=2 SLURM_HET_GROUP_ID=1", "13+1.0", "behind srun gswarm-12+1.0 id=12+1.0 on n2 rank 3/4 local 1/2 nodes n1,n2 job 12"},
		{"srun --mpi=pmi2", taskEnv + " PMI_FD=8 PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=12.0", "12.0", "behind srun gswarm-12.0 id=12.0 on n2 rank 3/4 local 1/2 nodes n1,n2 job 12"},
		{"srun --mpi=pmix", taskEnv + " PMIX_NAMESPACE=slurm.pmix.12.0 PMIX_RANK=3", "12.0", "behind srun gswarm-12.0 id=12.0 on n2 rank 3/4 local 1/2 nodes n1,n2 job 12"},
		{"mpirun.openmpi", ompiEnv, "", "behind openmpi gswarm-ompi-1806958593 id=ompi-1806958593 on host rank 3/4 local 1/2"},
		{"mpirun.openmpi in a batch job, first node", batchEnv + " " + ompiEnv, "12.batch", "behind openmpi gswarm-12.ompi-1806958593 id=12.ompi-1806958593 on n1 rank 3/4 local 1/2 job 12"},
		{"mpirun.openmpi in a batch job, another node", strings.NewReplacer("PROCID=3", "PROCID=0", "TASKS=4", "TASKS=1").Replace(taskEnv) + " " + ompiEnv, "12.0", "behind openmpi gswarm-12.ompi-1806958593 id=12.ompi-1806958593 on n2 rank 3/4 local 1/2 job 12"},
		{"mpirun.mpich, one node", strings.Replace(hydraEnv, "PMI_SIZE=4", "PMI_SIZE=2", 1), "", "behind mpich gswarm-mpich-77-88 id=mpich-77-88 on host rank 3/2 local 1/2"},
		{"mpirun.mpich, several nodes", hydraEnv, "", "behind mpich gswarm-mpich-77-88 id=mpich-77-88 on host rank 3/4 local 1/2 ambiguous"},
		{"mpirun.mpich in a batch job", taskEnv + " " + hydraEnv, "12.0", "behind mpich gswarm-12.0 id=12.0 on host rank 3/4 local 1/2 job 12"},
		{"pmix without a scheduler", "PMIX_NAMESPACE=prterun-a-1@1 PMIX_RANK=1", "", "behind pmix gswarm-pmix-prterun-a-1_1 id=pmix-prterun-a-1_1 on host rank 1/1 local 0/0"},
		{"torchrun, named", torchrunEnv + "job7", "", "behind torchrun gswarm-torchrun-job7-29500 id=torchrun-job7-29500 on host rank 3/4 local 1/2"},
		{"torchrun, no name", torchrunEnv + "none", "", "behind torchrun gswarm-torchrun-none-29500 id=torchrun-none-29500 on host rank 3/4 local 1/2 ambiguous"},
		{"torchrun, one node", strings.Replace(torchrunEnv, "WORLD_SIZE=4", "WORLD_SIZE=2", 1) + "none", "", "behind torchrun gswarm-torchrun-none-29500-77-88 id=torchrun-none-29500-77-88 on host rank 3/2 local 1/2"},
		{"torchrun behind srun", taskEnv + " " + torchrunEnv + "none", "12.0", "behind torchrun gswarm-12.0-torchrun-none-29500 id=12.0-torchrun-none-29500 on n2 rank 3/4 local 1/2 job 12"},
		{"torchrun in a batch script", batchEnv + " " + strings.Replace(torchrunEnv, "WORLD_SIZE=4", "WORLD_SIZE=2", 1) + "none", "12.batch", "behind torchrun gswarm-12.torchrun-none-29500-77-88 id=12.torchrun-none-29500-77-88 on n1 rank 3/2 local 1/2 job 12"},
		{"hostile", "SLURM_JOB_ID=../../etc SLURM_JOB_NODELIST=n[ SLURMD_NODENAME=../x SLURM_HET_SIZE=99999999999999999999", "", "front gswarm-_.._.._etc id=_.._.._etc on _.._x job ../../etc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Process{Env: strings.Fields(c.env)}
			got := summary(Detect(p.Getenv, "host", Origin{Step: c.step, Parent: "77-88"}, now))
			if got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestEndTime: when the scheduler will end the job, where it says so.
func TestEndTime(t *testing.T) {
	for value, want := range map[string]int64{"": 0, "1795220000": 1795220000, "-5": 0, "soon": 0, "9223372036854775807": 0, "99999999999999999999": 0} {
		p := Process{Env: []string{"SLURM_JOB_ID=12", "SLURM_JOB_END_TIME=" + value}}
		if got := Detect(p.Getenv, "host", Origin{}, time.Unix(0, 0)).Scheduler.EndTime; got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}

func FuzzDetect(f *testing.F) {
	f.Add(batchEnv, "12.batch")
	f.Add(taskEnv+" SLURM_HET_SIZE=2", "13+1.0")
	f.Add(ompiEnv+" "+hydraEnv+" "+torchrunEnv, "x")
	f.Add("SLURM_JOB_ID=1 SLURM_HET_SIZE=2000000000", ".")
	f.Fuzz(func(t *testing.T, env, step string) {
		p := Process{Env: strings.Fields(env)}
		s := Detect(p.Getenv, "host", Origin{Step: step, Parent: "1"}, time.Unix(0, 0))
		for _, name := range append(s.Nodes, s.Node, s.Identity.Name()) {
			if name != filepath.Base(name) || name == ".." || name == "." || name == "" {
				t.Errorf("%q names a directory", name)
			}
		}
		PlanAgents(s, "/gswarm", p.Env)
	})
}

func TestOrigin(t *testing.T) {
	proc := t.TempDir()
	add := func(pid, parent int, cmdline string) {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (a) b) S %d 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5%d 1 1", pid, parent, pid)
		for name, text := range map[string]string{"stat": stat, "cmdline": cmdline} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(1, 0, "init\x00")
	add(20, 1, "slurmstepd: [12.0]\x00\x00\x00")
	add(21, 20, "/bin/sbatch\x00")
	add(30, 21, "slurmstepd: [13.batch]")
	add(31, 30, "/bin/sh\x00/var/spool/script\x00")
	add(32, 31, "gswarm\x00wrap\x00")
	add(40, 1, "slurmstepd: [12+1.4]")
	add(41, 40, "gswarm")
	add(50, 1, "gswarm\x00slurmstepd: [9.9]\x00")
	add(60, 1, "gswarm")
	if err := os.WriteFile(filepath.Join(proc, "60", "cgroup"), []byte("3:cpu:/slurm_n1/uid_0/job_14/step_batch\n2:x:/slurm_n1/uid_0/job_14/step_batch/task_0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]Origin{
		21: {Step: "12.0", Parent: "20-520"},
		32: {Step: "13.batch", Parent: "31-531"},
		41: {Step: "12+1.4", Parent: "40-540"},
		50: {Parent: "1-51"},
		60: {Step: "14.batch", Parent: "1-51"},
		99: {Parent: "0"},
	} {
		if got := lookAround(proc, pid); got != want {
			t.Errorf("process %d: %+v, want %+v", pid, got, want)
		}
	}
	if o := lookAround("/proc", os.Getpid()); !strings.HasPrefix(o.Parent, fmt.Sprintf("%d-", os.Getppid())) {
		t.Errorf("this process's parent: %+v", o)
	}
}

func TestExpandHosts(t *testing.T) {
	for _, c := range []struct{ list, want string }{
		{"", ""},
		{"n1", "n1"},
		{"n1,login", "n1 login"},
		{"n[1-3]", "n1 n2 n3"},
		{"n[01-03,07],x", "n01 n02 n03 n07 x"},
		{"n[8-11]", "n8 n9 n10 n11"},
		{"n[098-101]", "n098 n099 n100 n101"},
		{"r[1-2]n[1-2]-ib", "r1n1-ib r1n2-ib r2n1-ib r2n2-ib"},
		{"r[1,3]n[5]", "r1n5 r3n5"},
		{"a-b-[1-2].c.d", "a-b-1.c.d a-b-2.c.d"},
		{" n1 , n2 ,", "n1 n2"},
		{"n[", "error"}, {"n]", "error"}, {"n[1-", "error"}, {"n[2-1]", "error"}, {"n[a-b]", "error"}, {"n[]", "error"},
		{"n[1-4294967295]", "error"}, {"n[1-99999]m[1-99999]", "error"}, {"n[-1]", "error"}, {"n[1-2-3]", "error"},
		{"n[1-99999999999999999999]", "error"}, {"[1-2]", "1 2"}, {"n[1[2]]", "error"},
	} {
		hosts, err := ExpandHosts(c.list)
		got := strings.Join(hosts, " ")
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%q: %q (%v), want %q", c.list, got, err, c.want)
		}
	}
}

func FuzzExpandHosts(f *testing.F) {
	for _, s := range []string{"n[1-3,07],login", "r[1-2]n[1-2]", "n[1-4294967295]", "[[[[", "a]b[c,d", "n[1-9]n[1-9]n[1-9]n[1-9]n[1-9]n[1-9]n[1-9]n[1-9]", "n[0000000000000000000000001]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ExpandHosts(list)
		if err != nil && len(hosts) > 0 {
			t.Errorf("an error and %d hosts", len(hosts))
		}
		if len(hosts) > maxHosts {
			t.Errorf("%d hosts", len(hosts))
		}
		total := 0
		for _, h := range hosts {
			if h == "" {
				t.Error("an empty name")
			}
			total += len(h)
		}
		if total > 64<<20 {
			t.Errorf("%d bytes from %d", total, len(list))
		}
	})
}

func TestPlanAgents(t *testing.T) {
	p := Process{Env: append(strings.Fields(batchEnv+" SLURM_CPU_BIND=mask_cpu:0xF SRUN_CPUS_PER_TASK=4 SLURM_STEP_ID=3 SLURM_HET_SIZE=2 "+
		"SLURM_JOB_NODELIST_HET_GROUP_0=n1 SLURM_JOB_NODELIST_HET_GROUP_1=n[2-3] SLURM_CONF=/c SBATCH_X=1 "+runVar+"=/r LD_PRELOAD=x.so"), "HOME=/h")}
	steps := PlanAgents(Detect(p.Getenv, "host", Origin{Step: "12.batch"}, time.Unix(0, 0)), "/opt/gswarm", p.Env)
	if len(steps) != 2 {
		t.Fatalf("%d steps", len(steps))
	}
	for i, s := range steps {
		line := strings.Join(s.Argv, " ")
		for _, flag := range []string{fmt.Sprintf("--ntasks=%d", i+1), fmt.Sprintf("--het-group=%d", i), "--overlap", "--export=ALL", "--mpi=none", "--mem=0"} {
			if !strings.Contains(line, flag) {
				t.Errorf("no %s in %s", flag, line)
			}
		}
		if env := strings.Join(s.Env, " "); env != "SLURM_JOB_ID=12 SLURM_JOBID=12 SLURM_CLUSTER_NAME=test SLURMD_NODENAME=n1 ENVIRONMENT=BATCH SLURM_CONF=/c HOME=/h GSWARM_X_AGENT=1" {
			t.Errorf("environment: %s", env)
		}
	}
}
