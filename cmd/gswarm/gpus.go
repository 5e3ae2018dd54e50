package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/rankagent/gpu"
)

// chooseGPUs returns what --gpus asks for; nil means all. getenv is the agent's
// environment, which only "job" looks at; nil checks the list alone.
//
// "job" are the GPUs that the scheduler gave to the job, else those that CUDA
// would show to the wrapped program. Where a cgroup hides the others anyway,
// it is the same as "all".
func chooseGPUs(which string, getenv func(string) string) (func(gpu.Info) bool, error) {
	switch which {
	case "", "all":
		return nil, nil
	case "job":
		if getenv == nil {
			return nil, nil
		}
		for _, name := range []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"} {
			if list := getenv(name); list != "" && list != "NoDevFiles" {
				return listed(strings.Split(list, ",")), nil
			}
		}
		return nil, nil
	}
	list := strings.Split(which, ",")
	for _, name := range list {
		name = strings.TrimSpace(name)
		if n, err := strconv.Atoi(name); err == nil && n >= 0 || strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-") {
			continue
		}
		return nil, fmt.Errorf("--gpus %s: %q is neither an ordinal nor a UUID; it may also be all or job", which, name)
	}
	return listed(list), nil
}

// listed takes ordinals and, as CUDA does, the first letters of UUIDs. A GPU
// that is cut into MIG instances goes with them, since power and clocks are the
// GPU's.
func listed(names []string) func(gpu.Info) bool {
	return func(info gpu.Info) bool {
		for _, name := range names {
			name = strings.TrimSpace(name)
			if n, err := strconv.Atoi(name); err == nil {
				if n == info.Index {
					return true
				}
				continue
			}
			if name != "" && (strings.HasPrefix(info.UUID, name) || strings.HasPrefix(info.Parent, name)) {
				return true
			}
		}
		return false
	}
}
