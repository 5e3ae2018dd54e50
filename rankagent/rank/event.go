package rank

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/redact"
	"github.com/gswarm/gswarm/table"
)

// Described is what meta.yaml says of a rank's process.
type Described struct {
	Rank      int    `yaml:"rank" json:"-"`
	LocalRank int    `yaml:"local_rank,omitempty" json:"-"`
	PID       int    `yaml:"pid" json:"-"`
	Launcher  string `yaml:"launcher,omitempty" json:"-"`
	// Affinity lists the CPUs that its main thread may run on, AffinityNodes
	// their memory nodes.
	Affinity      string `yaml:"affinity,omitempty" json:"-"`
	AffinityNodes string `yaml:"affinity_nodes,omitempty" json:"-"`
	// GPU is what CUDA_VISIBLE_DEVICES says, nil where it is not set.
	VisibleGPUs []string `yaml:"visible_gpus,omitempty,flow" json:"-"`
	// Limits are its soft and hard limits where one is not unlimited.
	Limits map[string]string `yaml:"limits,omitempty" json:"limits,omitempty"`
	// Environment are the variables that steer its libraries.
	Environment map[string]string `yaml:"environment,omitempty" json:"environment,omitempty"`
}

// started is the detail of process_start and process_change.
type started struct {
	PID  int  `json:"pid"`
	PPID int  `json:"ppid"`
	Role Role `json:"role"`
	// LocalRank and Size are left out where they are not known.
	LocalRank *int     `json:"local_rank,omitempty"`
	Size      *int     `json:"size,omitempty"`
	Launcher  string   `json:"launcher,omitempty"`
	Name      string   `json:"name,omitempty"`
	Command   []string `json:"command,omitempty"`
	// NSPID is its id in its own PID namespace, where that is another.
	NSPID int `json:"ns_pid,omitempty"`
	// Start is when it began, on CLOCK_BOOTTIME, in steps of 10 ms.
	Start    int64    `json:"start_boottime_ns"`
	Cgroup   string   `json:"cgroup,omitempty"`
	GPUs     []string `json:"visible_gpus,omitempty"`
	Affinity string   `json:"affinity,omitempty"`
	*Described
}

const (
	maxArgs, maxArg = 32, 256
	// maxDescribed bounds meta.yaml.
	maxDescribed = 512
)

// sayStart records that a process was found, or has become another.
func (t *Tracker) sayStart(out rankagent.Out, p *process, kind string) {
	t.affinity(p)
	d := started{
		PID: p.pid, PPID: p.ppid, Role: p.role, Launcher: p.id.Launcher, Name: p.comm,
		Command: shorten(redact.Args(p.argv)), Start: times(p.start, nsPerTick),
		Cgroup: p.cgroup.name(), GPUs: p.visible, Affinity: p.maskText,
	}
	if p.local >= 0 {
		d.LocalRank = &p.local
	}
	if p.id.Size >= 0 {
		d.Size = &p.id.Size
	}
	dir := filepath.Join(t.opts.ProcRoot, p.key)
	if b, err := readWhole(filepath.Join(dir, "status"), t.buf); err == nil {
		if n := innermost(b); n != absent && n != int64(p.pid) && n <= math.MaxInt32 {
			d.NSPID = int(n)
		}
	}
	if p.role == RoleRank {
		d.Described = &Described{
			Rank: p.rank, LocalRank: max(p.local, 0), PID: p.pid, Launcher: p.id.Launcher,
			Affinity: p.maskText, AffinityNodes: p.maskNode, VisibleGPUs: p.visible,
			Limits: limits(dir, t.buf), Environment: environment(p.env),
		}
		t.describe(*d.Described)
	}
	out.Event(out.Now(), kind, t.gpuOf(p), p.rank, d)
	p.env = "" // it may be large, and is not needed again
}

// sayExit records that a process is gone. How it ended only its parent knows.
func (t *Tracker) sayExit(out rankagent.Out, p *process) {
	for col := range p.gaps {
		out.Present(table.Rank, table.Rank.Columns[col].Name, p.key)
	}
	if p.own {
		return
	}
	out.Event(out.Now(), "process_exit", t.gpuOf(p), p.rank, map[string]any{"pid": p.pid, "role": p.role})
}

func (t *Tracker) gpuOf(p *process) int {
	if p.gpuSource == "" {
		return -1
	}
	return p.gpu
}

// describe keeps a rank for meta.yaml; one that calls exec replaces itself.
func (t *Tracker) describe(d Described) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.described, func(o Described) bool { return o.PID == d.PID && o.Rank == d.Rank })
	switch {
	case i >= 0:
		t.described[i] = d
	case len(t.described) < maxDescribed:
		t.described = append(t.described, d)
	}
}

// Ranks returns what is known of the ranks' processes, past and present.
func (t *Tracker) Ranks() []Described {
	t.mu.Lock()
	defer t.mu.Unlock()
	ds := slices.Clone(t.described)
	slices.SortFunc(ds, func(a, b Described) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID))
	})
	return ds
}

// shorten bounds a command line.
func shorten(argv []string) []string {
	short := make([]string, 0, min(len(argv), maxArgs+1))
	for i, a := range argv {
		if i == maxArgs {
			return append(short, "…")
		}
		if len(a) > maxArg {
			a = a[:maxArg] + "…"
		}
		short = append(short, clean(a, 2*maxArg))
	}
	return short
}

// name returns the group's path where it says most: v2's, else memory's, else
// the longest.
func (c *cgroup) name() string {
	if c == nil {
		return ""
	}
	longest := ""
	for _, p := range []string{c.paths[""], c.paths["memory"], c.paths["cpuset"], c.paths["devices"], c.paths["freezer"]} {
		if len(p) > len(longest) {
			longest = p
		}
	}
	return clean(longest, 512)
}

// prefixes begin the names of variables that steer what a rank's libraries do,
// and so belong to its result; exact are such names.
var (
	prefixes = strings.Fields("NCCL_ TORCH_NCCL_ CUDA_ OMP_ KMP_ GOMP_ UCX_ FI_ OMPI_MCA_ PYTORCH_CUDA_")
	exact    = strings.Fields("NVIDIA_VISIBLE_DEVICES MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS " +
		"GLOO_SOCKET_IFNAME PYTORCH_ALLOC_CONF TOKENIZERS_PARALLELISM MALLOC_ARENA_MAX " +
		"SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_GPU_BIND SLURM_STEP_GPUS SLURM_JOB_GPUS")
)

// environment returns the variables of the allow-list, without those whose name
// says that they are secret and with secret-looking values replaced.
func environment(env environ) map[string]string {
	kept := map[string]string{}
	env.each(func(name, v string) {
		if !slices.Contains(exact, name) && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return
		}
		if v, ok := redact.Env(name, v); ok {
			kept[clean(name, 128)] = clean(v, 512)
		}
	})
	return kept
}

// limitNames are the limits that explain why a rank is slow or fails, by what
// /proc/PID/limits calls them.
var limitNames = []struct{ kernel, key string }{
	{"Max cpu time", "cpu_time_s"},
	{"Max stack size", "stack_bytes"},
	{"Max core file size", "core_file_bytes"},
	{"Max processes", "processes"},
	{"Max open files", "open_files"},
	{"Max locked memory", "locked_memory_bytes"},
	{"Max address space", "address_space_bytes"},
}

// limits reads a process's limits: "soft/hard".
func limits(dir string, buf []byte) map[string]string {
	text, err := readWhole(filepath.Join(dir, "limits"), buf)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for len(text) > 0 {
		l, rest, ok := line(text)
		if !ok {
			break
		}
		text = rest
		for _, n := range limitNames {
			if values, ok := strings.CutPrefix(string(l), n.kernel+" "); ok {
				if f := strings.Fields(values); len(f) >= 2 {
					out[n.key] = clean(f[0]+"/"+f[1], 64)
				}
			}
		}
	}
	return out
}

// String names a process in tests' messages.
func (p *process) String() string {
	return strconv.Itoa(p.pid) + " " + p.comm + " " + string(p.role) + " " + strconv.Itoa(p.rank)
}
