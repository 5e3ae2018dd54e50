package launcher

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gswarm/gswarm/rundir"
)

// Position says where wrap stands in the line of commands.
type Position string

const (
	// Front is before the launcher, once for the job: gswarm wrap -- srun …
	Front Position = "front"
	// Behind is after the launcher, once for each rank: srun gswarm wrap -- …
	Behind Position = "behind"
	// Alone has no launcher that starts processes on other nodes.
	Alone Position = "alone"
)

// Surroundings is what the environment says about the job.
type Surroundings struct {
	Position Position
	// Launcher started this process: "srun", "openmpi", "mpich", "pmix",
	// "torchrun", or "" for none.
	Launcher  string
	Scheduler rundir.Scheduler
	Identity  rundir.Identity
	// Nodes are the nodes to sample, nil where the environment does not
	// list them.
	Nodes []string
	// HetGroups is the number of components of a heterogeneous job that
	// wrap stands in front of, else 0.
	HetGroups int
	// Node is this node's name.
	Node string
	// Rank, LocalRank and Size are those of this process behind a launcher;
	// Rank 0 of Size 1 elsewhere.
	Rank, LocalRank, Size int
	// LocalSize is how many ranks this node has, 0 where it is not known.
	LocalSize int
	// Job names the environment variable, and its value, by which the
	// job's processes on a node are known; empty without a scheduler.
	Job [2]string
	// Ambiguous says why no directory name could be derived that all ranks
	// agree on; the user has to give one.
	Ambiguous string
}

// slurmSpecialStep is the least of Slurm's step ids that mean no step that srun
// made: the batch script, an interactive allocation's shell and their like.
const slurmSpecialStep = 0xfffffff0

// maxHetGroups is how many components Slurm allows a heterogeneous job.
const maxHetGroups = 128

// Origin is what a process can see of where it came from, besides its
// environment.
type Origin struct {
	// Step is the Slurm step that the process runs in by its nearest
	// slurmstepd's own word ("12.batch", "12.0"), "" where there is none to
	// be seen. A job that was submitted from inside a step carries that
	// step's id in its environment, so the environment alone may lie.
	Step string
	// Parent is the parent process, named so that its children agree on it
	// and no later process has the same name.
	Parent string
}

// Detect reads the surroundings from the environment. It asks nobody else, so
// the same environment always gives the same answer; now names a run that has
// no job id and host is this machine's name.
func Detect(getenv func(string) string, host string, from Origin, now time.Time) Surroundings {
	s := Surroundings{Position: Alone, Node: host, Size: 1}
	s.Scheduler.Kind = "none"
	s.Identity.Stamp = now.UTC().Format("20060102T150405Z")
	s.detectSlurm(getenv, from.Step)
	s.detectMPI(getenv, host, from.Parent)
	s.Scheduler.Position = string(s.Position)
	s.Scheduler.Launcher = s.Launcher
	s.Node = rundir.CleanName(s.Node)
	for i, n := range s.Nodes {
		s.Nodes[i] = rundir.CleanName(n)
	}
	return s
}

// slurmStep returns the number of the step of this job that the process is a
// task of, and whether it is one at all.
func slurmStep(getenv func(string) string, origin string) (step uint64, ok bool) {
	claimed, err := strconv.ParseUint(first(getenv("SLURM_STEP_ID"), getenv("SLURM_STEPID")), 10, 64)
	claims := err == nil && claimed < slurmSpecialStep
	job, name, seen := strings.Cut(origin, ".")
	if !seen {
		return claimed, claims
	}
	// "12+1.0" and "12.0+1" are a heterogeneous job's. Its components have job
	// ids of their own.
	job, _, _ = strings.Cut(job, "+")
	name, _, _ = strings.Cut(name, "+")
	het := getenv("SLURM_HET_SIZE") != ""
	step, err = strconv.ParseUint(name, 10, 64)
	if err != nil || step >= slurmSpecialStep || job != getenv("SLURM_JOB_ID") && !het {
		return 0, false // the batch script, or a step of the job that asked for this allocation
	}
	return step, true
}

// latestEnd is the last second that nanoseconds since the epoch can say. A job
// without a limit ends later, or never.
const latestEnd = math.MaxInt64 / int64(time.Second)

func (s *Surroundings) detectSlurm(getenv func(string) string, origin string) {
	job := getenv("SLURM_JOB_ID")
	if job == "" {
		return
	}
	s.Scheduler = rundir.Scheduler{
		Kind: "slurm", JobID: job,
		ArrayJob: getenv("SLURM_ARRAY_JOB_ID"), Task: getenv("SLURM_ARRAY_TASK_ID"),
		Restarts: getenv("SLURM_RESTART_COUNT"),
		Cluster:  getenv("SLURM_CLUSTER_NAME"), Part: getenv("SLURM_JOB_PARTITION"),
	}
	if end, err := strconv.ParseInt(getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && end > 0 && end <= latestEnd {
		s.Scheduler.EndTime = end
	}
	s.Job = [2]string{"SLURM_JOB_ID", job}
	s.Identity = rundir.Identity{JobID: job, Restart: s.Scheduler.Restarts}
	if s.Scheduler.ArrayJob != "" {
		s.Identity.JobID, s.Identity.Task = s.Scheduler.ArrayJob, s.Scheduler.Task
	}
	if n := getenv("SLURMD_NODENAME"); n != "" {
		s.Node = n
	}
	het := number(getenv("SLURM_HET_SIZE"), 0)
	if het < 0 || het > maxHetGroups {
		het = 0
	}
	step, isTask := slurmStep(getenv, origin)
	if !isTask {
		s.Position = Front
		s.HetGroups = het
		s.Nodes = hosts(getenv("SLURM_JOB_NODELIST"), getenv("SLURM_NODELIST"))
		for i := range het {
			if i == 0 {
				s.Nodes = nil
			}
			s.Nodes = append(s.Nodes, hosts(getenv("SLURM_JOB_NODELIST_HET_GROUP_"+strconv.Itoa(i)))...)
		}
		return
	}
	s.Position, s.Launcher = Behind, "srun"
	s.Scheduler.Step = strconv.FormatUint(step, 10)
	s.Identity.Step = s.Scheduler.Step
	s.Rank = number(getenv("SLURM_PROCID"), 0)
	s.LocalRank = number(getenv("SLURM_LOCALID"), 0)
	s.Size = number(first(getenv("SLURM_STEP_NUM_TASKS"), getenv("SLURM_NTASKS")), 1)
	s.LocalSize = number(nth(getenv("SLURM_STEP_TASKS_PER_NODE"), number(getenv("SLURM_NODEID"), 0)), 0)
	s.Nodes = hosts(getenv("SLURM_STEP_NODELIST"), getenv("SLURM_NODELIST"))
	if group := getenv("SLURM_HET_GROUP_ID"); group != "" {
		s.Scheduler.HetGroup, s.Identity.Het = group, group
	}
}

// detectMPI looks for an MPI launcher or torchrun nearer than Slurm's step.
func (s *Surroundings) detectMPI(getenv func(string) string, host, parent string) {
	within := func(launcher, namespace string) {
		s.Position, s.Launcher = Behind, launcher
		s.Nodes = nil // the step's nodes are those of the launcher's daemons
		s.Identity.Step = namespace
		s.Scheduler.Step = namespace
		if s.Identity.JobID == "" {
			// The same on every node, and not the time: ranks start apart.
			s.Identity.Stamp = namespace
			s.Identity.Step = ""
		}
	}
	switch {
	case getenv("OMPI_COMM_WORLD_RANK") != "":
		within("openmpi", "ompi-"+first(getenv("PMIX_NAMESPACE"), getenv("OMPI_MCA_ess_base_jobid"), parent))
		s.Rank = number(getenv("OMPI_COMM_WORLD_RANK"), 0)
		s.LocalRank = number(getenv("OMPI_COMM_WORLD_LOCAL_RANK"), 0)
		s.Size = number(getenv("OMPI_COMM_WORLD_SIZE"), 1)
		s.LocalSize = number(getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), 0)
	case getenv("MPI_LOCALRANKID") != "" && getenv("PMI_RANK") != "":
		s.Rank = number(getenv("PMI_RANK"), 0)
		s.LocalRank = number(getenv("MPI_LOCALRANKID"), 0)
		s.Size = number(getenv("PMI_SIZE"), 1)
		s.LocalSize = number(getenv("MPI_LOCALNRANKS"), 0)
		// Hydra carries mpirun's own environment to every node, Slurm's
		// name of mpirun's node included.
		s.Node = host
		switch {
		case s.Scheduler.Step != "": // hydra's daemons are a step of Slurm's
			within("mpich", s.Scheduler.Step)
		default:
			// All ranks of one node have the same hydra proxy as parent.
			within("mpich", "mpich-"+parent)
			if s.Size != s.LocalSize {
				s.Ambiguous = "MPICH's launcher tells its ranks on several nodes nothing that names the run"
			}
		}
	case getenv("PMIX_NAMESPACE") != "" && s.Launcher == "":
		within("pmix", "pmix-"+getenv("PMIX_NAMESPACE"))
		s.Rank = number(getenv("PMIX_RANK"), 0)
	case getenv("TORCHELASTIC_RUN_ID") != "" && getenv("RANK") != "":
		s.Rank = number(getenv("RANK"), 0)
		s.LocalRank = number(getenv("LOCAL_RANK"), 0)
		s.Size = number(getenv("WORLD_SIZE"), 1)
		s.LocalSize = number(getenv("LOCAL_WORLD_SIZE"), 0)
		// Without a rendezvous every run is "none" on the same port. What
		// tells them apart is the step that torchrun runs in on each node,
		// or on one node its process.
		name := "torchrun-" + getenv("TORCHELASTIC_RUN_ID") + "-" + getenv("MASTER_PORT")
		switch {
		case s.Scheduler.Step != "":
			name = s.Scheduler.Step + "-" + name
		case s.Size == s.LocalSize:
			name += "-" + parent
		case getenv("TORCHELASTIC_RUN_ID") == "none":
			s.Ambiguous = "torchrun without --rdzv-id tells its ranks on several nodes nothing that names the run"
		}
		within("torchrun", name)
	}
}

// String is the run's identity in run.yaml: what ranks that came to the same
// directory must have in common.
func (s Surroundings) String() string {
	if s.Scheduler.Kind == "none" && s.Position != Behind {
		return "local"
	}
	return strings.TrimPrefix(s.Identity.Name(), rundir.Prefix)
}

func hosts(lists ...string) []string {
	for _, l := range lists {
		if l == "" {
			continue
		}
		if h, err := ExpandHosts(l); err == nil {
			return h
		}
	}
	return nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func number(s string, otherwise int) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return otherwise
	}
	return n
}

// nth picks node i's entry out of Slurm's "2(x3),1".
func nth(list string, i int) string {
	for _, item := range strings.Split(list, ",") {
		count := 1
		value, times, repeated := strings.Cut(item, "(x")
		if repeated {
			count = number(strings.TrimSuffix(times, ")"), 1)
		}
		if i < count {
			return value
		}
		i -= count
	}
	return ""
}
