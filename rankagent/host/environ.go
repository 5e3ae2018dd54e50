package host

import (
	"slices"
	"strings"

	"github.com/gswarm/gswarm/redact"
)

// environPrefixes begin the names of variables that steer what the job's
// libraries do, and so belong to its result.
var environPrefixes = []string{"NCCL_", "CUDA_", "OMP_"}

// environNames are the variables that tell a Slurm job's geometry. Those that
// differ between the tasks of a node are not facts of the node.
var environNames = []string{
	"SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
	"SLURM_CLUSTER_NAME",
	"SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_GPU", "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND",
	"SLURM_DISTRIBUTION",
	"SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND",
	"SLURM_HET_SIZE",
	"SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GPUS", "SLURM_JOB_ID", "SLURM_JOB_NODELIST",
	"SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION",
	"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE",
	"SLURM_NNODES", "SLURM_NODEID", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_NODE",
	"SLURM_RESTART_COUNT",
	"SLURM_STEP_GPUS", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
	"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
	"SLURM_TASKS_PER_NODE", "SLURM_THREADS_PER_CORE",
	"SLURM_TOPOLOGY_ADDR",
}

// environment returns the variables of the allow-list, without those whose
// name says that they are secret and with secret-looking values replaced.
func environment(environ []string) map[string]string {
	kept := map[string]string{}
	for _, e := range environ {
		name, v, ok := strings.Cut(e, "=")
		if !ok || !allowed(name) {
			continue
		}
		if v, ok = redact.Env(name, v); ok {
			kept[clean(name)] = clean(v)
		}
	}
	return kept
}

func allowed(name string) bool {
	return slices.Contains(environNames, name) ||
		slices.ContainsFunc(environPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
