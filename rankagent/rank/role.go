package rank

import (
	"path"
	"slices"
	"strings"
)

// Role is what a process does for the job.
type Role string

// The roles.
const (
	RoleRank     Role = "rank"     // a rank's own program
	RoleWorker   Role = "worker"   // a helper that a rank forked or spawned, as data loaders are
	RoleTorchrun Role = "torchrun" // the agent of torchrun, which starts ranks and watches them
	RoleLauncher Role = "launcher" // a shell, srun, mpirun, a container runtime: what leads to the ranks
	RoleOther    Role = "other"    // anything else of the job
)

// launcherNames are programs that start ranks and are none.
var launcherNames = names0(
	"srun sbatch salloc slurm_script slurmstepd mpirun mpiexec mpiexec.hydra mpirun.openmpi mpirun.mpich orterun prterun prte prted orted " +
		"hydra_pmi_proxy hydra_bstrap_proxy pmi_proxy flux flux-shell flux-broker pbsdsh palsd jsrun jsmd aprun " +
		"sh bash dash zsh ksh mksh csh tcsh fish busybox env time timeout nice ionice nohup setsid stdbuf numactl taskset chrt xargs sudo " +
		"apptainer singularity starter starter-suid enroot nvidia-container-cli podman conmon crun runc docker bwrap unshare nsenter catatonit tini dumb-init")

// elasticNames and elasticModules start and watch the ranks of PyTorch.
var (
	elasticNames   = names0("torchrun accelerate deepspeed horovodrun")
	elasticModules = names0("torch.distributed.run torch.distributed.launch torch.distributed.elastic accelerate.commands.launch deepspeed.launcher.launch deepspeed.launcher.runner")
)

func names0(s string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(s) {
		m[n] = true
	}
	return m
}

// own reports whether a command line is gswarm's.
func own(argv []string) bool {
	if len(argv) < 2 {
		return false
	}
	base := path.Base(argv[0])
	if base != "gswarm" && base != "gswarm-agent" {
		return false
	}
	return slices.Contains(argv, "wrap") || slices.Contains(argv, "agent") || slices.Contains(argv, "mark")
}

// program returns the name of the program that a command line runs, and of the
// module where it is Python's -m: for an interpreter, that of the script.
func program(argv []string) (name, module string) {
	if len(argv) == 0 {
		return "", ""
	}
	base := strings.TrimPrefix(path.Base(argv[0]), "-") // a login shell
	if !strings.HasPrefix(base, "python") && !strings.HasPrefix(base, "pypy") {
		return base, ""
	}
	for i := 1; i < len(argv); i++ {
		switch a := argv[i]; {
		case a == "-m" && i+1 < len(argv):
			return base, argv[i+1]
		case a == "-c":
			return base, ""
		case a == "-W" || a == "-X":
			i++
		case strings.HasPrefix(a, "-"):
		default:
			return path.Base(a), ""
		}
	}
	return base, ""
}

// isElastic reports whether a command line is that of a torchrun or its like.
func isElastic(argv []string) bool {
	name, module := program(argv)
	return elasticNames[name] || elasticModules[module]
}

// isLauncher reports whether a program starts ranks and is none.
func isLauncher(argv []string, comm string) bool {
	if len(argv) == 0 {
		return launcherNames[comm]
	}
	name, _ := program(argv)
	return launcherNames[name]
}

// spawned reports whether a process looks like one that its rank forked, or
// spawned through Python's multiprocessing.
func spawned(p, parent *process) bool {
	if strings.HasPrefix(p.comm, "pt_data_worker") || strings.HasPrefix(p.comm, "pt_data_pin") {
		return true
	}
	for _, a := range p.argv {
		if strings.Contains(a, "multiprocessing.spawn") || strings.Contains(a, "multiprocessing-fork") ||
			strings.Contains(a, "multiprocessing.forkserver") {
			return true
		}
	}
	// A fork without exec has its parent's stack, its parent's command line.
	return parent != nil && len(p.argv) > 0 && p.stack == parent.stack && slices.Equal(p.argv, parent.argv)
}

// settle decides a process's role and rank from its own identity and those of
// the process above it. alone says that the run has no launcher that gives
// ranks, so that the wrapped program is rank 0.
func settle(p, parent *process, alone bool) {
	p.rank, p.local = p.id.Rank, p.id.LocalRank
	above := parent
	for above != nil && above.role == RoleLauncher {
		above = above.parent // a shell between a rank and what it starts
	}
	within := above != nil && (above.role == RoleRank || above.role == RoleWorker || above.role == RoleOther && above.rank >= 0)
	if within && (!p.id.Known() || p.id == above.id) {
		p.rank, p.local = above.rank, above.local
		p.role = RoleOther
		if spawned(p, above) {
			p.role = RoleWorker
		}
		return
	}
	inner := p.id.Launcher == "torchrun" || p.id.Launcher == "torch"
	switch {
	case isElastic(p.argv) && p.id.Launcher != "torchrun":
		p.role, p.rank, p.local = RoleTorchrun, -1, -1
	case isLauncher(p.argv, p.comm):
		// A shell stands for its rank. A launcher's daemon has only the
		// rank that another launcher gave it.
		p.role = RoleLauncher
		if name, _ := program(p.argv); startsRanks(name) {
			p.rank, p.local = -1, -1
		}
	case p.id.Known():
		if parent != nil && parent.role == RoleTorchrun && !inner {
			// A helper of torchrun's own, with the environment that
			// torchrun was given.
			p.role, p.rank, p.local = RoleOther, -1, -1
			return
		}
		p.role = RoleRank
	case alone && (above == nil || above.role != RoleTorchrun) && !led(parent):
		p.role, p.rank, p.local = RoleRank, 0, 0
	default:
		p.role = RoleOther
	}
}

// led reports whether an MPI launcher is among the launchers directly above: its
// ranks say who they are, so a process that does not is none.
func led(p *process) bool {
	for ; p != nil && p.role == RoleLauncher; p = p.parent {
		if name, _ := program(p.argv); startsRanks(name) {
			return true
		}
	}
	return false
}

// startsRanks reports whether a program is an MPI launcher or a daemon of one,
// which gives ranks to what it starts.
func startsRanks(name string) bool {
	return strings.HasPrefix(name, "mpi") || strings.HasPrefix(name, "hydra") || slices.Contains(rankStarters, name)
}

var rankStarters = strings.Fields("srun orterun prterun prte prted orted pmi_proxy flux flux-shell palsd jsrun jsmd aprun pbsdsh")
