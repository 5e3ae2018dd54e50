package rank

import (
	"strconv"
	"strings"
)

// Identity is who a process says it is, by its environment.
type Identity struct {
	// Launcher is the one whose names were found: "torchrun", "openmpi",
	// "mpich", "mvapich", "pals", "flux", "jsrun", "pmix", "pmi", "slurm",
	// or "" for none.
	Launcher string
	// Rank, LocalRank and Size are -1 where the environment does not say.
	Rank, LocalRank, Size int
}

// nobody is the identity of a process without a rank.
var nobody = Identity{Rank: -1, LocalRank: -1, Size: -1}

// Known reports whether there is a rank.
func (i Identity) Known() bool { return i.Rank >= 0 }

// names are the variables that tell a rank to its process. A launcher started
// by another inherits the outer one's names, so the inner ones come first:
// torchrun is started by mpirun or srun, mpirun by srun.
type names struct {
	launcher string
	// needs has to be there besides the rank; it tells apart who uses the
	// same name for the rank.
	needs             []string
	rank, local, size string
}

var launchers = []names{
	{"torchrun", []string{"TORCHELASTIC_RUN_ID"}, "RANK", "LOCAL_RANK", "WORLD_SIZE"},
	// A script that starts PyTorch's ranks by itself sets these.
	{"torch", []string{"WORLD_SIZE"}, "RANK", "LOCAL_RANK", "WORLD_SIZE"},
	{"openmpi", nil, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"mvapich", nil, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"},
	{"mpich", []string{"MPI_LOCALRANKID"}, "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
	{"pals", nil, "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_SIZE"},
	{"flux", nil, "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"},
	{"jsrun", nil, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE"},
	// Slurm before the process managers that srun itself plays.
	{"slurm", []string{"SLURM_STEP_ID"}, "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"},
	{"slurm", []string{"SLURM_STEPID"}, "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
	{"pmix", []string{"PMIX_NAMESPACE"}, "PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE"},
	{"pmi", nil, "PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE"},
}

// maxRank is more than any job has; what is above it is no rank.
const maxRank = 1 << 24

// Identify reads the environment that a process was started with.
func Identify(getenv func(string) string) Identity {
	return identify(getenv, true)
}

// identify leaves Slurm's names out where slurm is false: a batch script, and a
// job submitted from within another, inherit names that are not theirs.
func identify(getenv func(string) string, slurm bool) Identity {
next:
	for _, n := range launchers {
		if n.launcher == "slurm" && (!slurm || special(getenv(n.needs[0]))) {
			continue
		}
		for _, name := range n.needs {
			if getenv(name) == "" {
				continue next
			}
		}
		if r := natural(getenv(n.rank)); r >= 0 {
			return Identity{n.launcher, r, natural(getenv(n.local)), natural(getenv(n.size))}
		}
	}
	return nobody
}

// special reports whether a step id is one of Slurm's for a batch script, an
// allocation's shell and their like, which have no ranks.
func special(step string) bool {
	n, err := strconv.ParseUint(step, 10, 64)
	return err == nil && n >= 0xfffffff0
}

func natural(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxRank {
		return -1
	}
	return n
}

// environ is a process's environment as the kernel shows it: NAME=value, each
// ended by a zero byte.
type environ string

// get returns a variable's value, of several the first, as getenv(3) does.
func (e environ) get(name string) string {
	v, _ := e.lookup(name)
	return v
}

func (e environ) lookup(name string) (v string, ok bool) {
	s := string(e)
	for len(s) > 0 {
		kv, rest, _ := strings.Cut(s, "\x00")
		s = rest
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:], true
		}
	}
	return "", false
}

// each calls f for every variable.
func (e environ) each(f func(name, v string)) {
	s := string(e)
	for len(s) > 0 {
		kv, rest, _ := strings.Cut(s, "\x00")
		s = rest
		if name, v, ok := strings.Cut(kv, "="); ok && name != "" {
			f(name, v)
		}
	}
}
