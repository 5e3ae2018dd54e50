package rank

import (
	"strconv"
	"strings"
)

// The words of the column gpu_source, from the best knowledge to the least.
const (
	gpuByDriver      = "nvml"
	gpuByCgroup      = "cgroup"
	gpuByEnvironment = "environment"
	gpuByConvention  = "convention"
)

// visibleGPUs returns what CUDA_VISIBLE_DEVICES names, nil where it is not set.
// CUDA stops at the first name that it does not know.
func visibleGPUs(env environ) []string {
	list, set := env.lookup("CUDA_VISIBLE_DEVICES")
	if !set {
		return nil
	}
	gpus := []string{}
	for _, g := range strings.Split(list, ",") {
		g = strings.TrimSpace(g)
		if n, err := strconv.Atoi(g); g == "" || err == nil && n < 0 {
			break
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// findGPU decides which GPU a process uses, where it is one.
func (t *Tracker) findGPU(p *process) {
	p.gpu, p.gpuSource, p.gpuNode = -1, "", -1
	gpus := t.opts.GPUs()
	if gpus == nil || gpus.Count() == 0 {
		return
	}
	p.gpu, p.gpuSource = chooseGPU(p, gpus)
	if p.gpuSource != "" {
		if n, ok := gpus.NUMANode(p.gpu); ok {
			p.gpuNode = n
		}
	}
}

// chooseGPU goes from the best knowledge to the least. The environment says
// what a process was given, not what it uses: only ranks and their workers are
// taken at its word.
func chooseGPU(p *process, gpus GPUs) (gpu int, source string) {
	if used, ok := gpus.OfPID(p.pid); ok && len(used) > 0 {
		if len(used) == 1 {
			return used[0], gpuByDriver
		}
		return -1, ""
	}
	if p.role != RoleRank {
		return -1, ""
	}
	// Indexes count the GPUs that the process can open.
	ordinal := func(i int) (int, bool) {
		if len(p.minors) > 0 {
			if i < 0 || i >= len(p.minors) {
				return -1, false
			}
			return gpus.ByMinor(p.minors[i])
		}
		return i, i >= 0 && i < gpus.Count()
	}
	named := func(name string) (int, bool) {
		if i, err := strconv.Atoi(name); err == nil {
			return ordinal(i)
		}
		return gpus.ByUUID(name)
	}
	if len(p.minors) == 1 && (p.visible == nil || len(p.visible) == 1) {
		if g, ok := gpus.ByMinor(p.minors[0]); ok {
			return g, gpuByCgroup
		}
	}
	switch {
	case p.visible != nil && len(p.visible) == 0:
		return -1, "" // it was told to use none
	case len(p.visible) == 1:
		if g, ok := named(p.visible[0]); ok {
			return g, gpuByEnvironment
		}
	case p.local < 0:
	case len(p.visible) > p.local:
		if g, ok := named(p.visible[p.local]); ok {
			return g, gpuByConvention
		}
	case p.visible == nil:
		if g, ok := ordinal(p.local); ok {
			return g, gpuByConvention
		}
	}
	return -1, ""
}
