package rank

import (
	"cmp"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// groups knows where the control groups are mounted and the ones that the job's
// processes are in.
type groups struct {
	sysRoot string
	v2      *mount
	v1      map[string]*mount // by controller
	known   map[string]*cgroup
}

// mount is one hierarchy: root is the group that is seen at dir.
type mount struct {
	root, dir string
}

// at returns the directories of a group from its own up to the mount's. In a
// container a group outside of what is mounted has none.
func (m *mount) at(group string) []string {
	rest := group
	if m.root != "/" {
		var ok bool
		if rest, ok = strings.CutPrefix(group, m.root); !ok || rest != "" && rest[0] != '/' {
			rest = "/"
		}
	}
	if strings.HasPrefix(rest, "/..") {
		return nil
	}
	dirs := []string{}
	for rest = path.Clean("/" + rest); ; rest = path.Dir(rest) {
		dirs = append(dirs, filepath.Join(m.dir, rest))
		if rest == "/" {
			return dirs
		}
	}
}

// cgroup is the control group of one or more processes: a path for each
// controller, and what was read of it last. A nil one reads as nothing known.
type cgroup struct {
	paths map[string]string // by controller; "" is v2's
	g     *groups

	resolved int64    // the reading in which what follows was found
	quotas   []string // directories with a CPU quota
	memory   string   // the directory that sets the tightest memory limit
	limited  []string // all directories that set one
	own      string   // the group's own directory for memory
	v2memory bool
	limit    int64
	pressure string // v2: the group's own directory

	tick   int64
	values groupValues
	buf    []byte
}

// groupValues is what is read of a group; numbers may be absent.
type groupValues struct {
	periods, throttled, throttledTime         int64
	memory, limit, hits, kills                int64
	cpuSome, memSome, memFull, ioSome, ioFull int64
}

var nothing = groupValues{absent, absent, absent, absent, absent, absent, absent, absent, absent, absent, absent, absent}

// controllers are those that are read, and devices, which says what GPUs a
// group may open.
var controllers = []string{"cpu", "memory", "devices"}

func openGroups(procRoot, sysRoot string) *groups {
	g := &groups{sysRoot: sysRoot, v1: map[string]*mount{}, known: map[string]*cgroup{}}
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return g
	}
	mounts, err := fs.GetMounts()
	if err != nil {
		return g
	}
	for _, m := range mounts {
		here := &mount{root: m.Root, dir: m.MountPoint}
		if rest, ok := strings.CutPrefix(m.MountPoint, "/sys/"); ok {
			here.dir = filepath.Join(sysRoot, rest)
		}
		switch m.FSType {
		case "cgroup2":
			if g.v2 == nil {
				g.v2 = here
			}
		case "cgroup":
			for _, c := range controllers {
				if _, has := m.SuperOptions[c]; has && g.v1[c] == nil {
					g.v1[c] = here
				}
			}
		}
	}
	return g
}

// never returns the columns that no group on this machine has.
func (g *groups) never() []gap {
	var gaps []gap
	add := func(why rankagent.Reason, detail string, from, to int) {
		for c := from; c <= to; c++ {
			gaps = append(gaps, gap{c, why, detail})
		}
	}
	cpu, memory := g.v1["cpu"] != nil || g.v2 != nil, g.v1["memory"] != nil || g.v2 != nil
	if !cpu {
		add(rankagent.NotFound, "no cgroups are mounted for cpu", table.RankPeriods, table.RankThrottledTime)
	}
	if !memory {
		add(rankagent.NotFound, "no cgroups are mounted for memory", table.RankMemory, table.RankOOMKills)
	}
	switch {
	case g.v2 == nil:
		add(rankagent.NotSupported, "cgroup v1 has no pressure", table.RankPSICPUSome, table.RankPSIIOFull)
	case g.v1["memory"] != nil:
		add(rankagent.NotSupported, "the controllers are v1's, which have no pressure", table.RankPSICPUSome, table.RankPSIIOFull)
	}
	return gaps
}

// of returns the group that a process is in, nil where it cannot be known.
func (g *groups) of(procRoot string, pid int) *cgroup {
	text, err := readBounded(filepath.Join(procRoot, strconv.Itoa(pid), "cgroup"), maxCommand)
	if err != nil {
		return nil
	}
	if c := g.known[text]; c != nil {
		return c
	}
	if len(g.known) > maxProcesses {
		clear(g.known) // a job that makes groups without end
	}
	c := &cgroup{g: g, paths: parseCgroup(text), tick: -1, resolved: math.MinInt64 / 2}
	g.known[text] = c
	return c
}

// parseCgroup reads /proc/PID/cgroup: lines of ID:CONTROLLERS:PATH.
func parseCgroup(text string) map[string]string {
	paths := map[string]string{}
	for _, l := range strings.Split(text, "\n") {
		id, rest, ok := strings.Cut(l, ":")
		names, group, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(group, "/") {
			continue
		}
		if id == "0" && names == "" {
			paths[""] = group
			continue
		}
		for _, n := range strings.Split(names, ",") {
			if n != "" {
				paths[n] = group
			}
		}
	}
	return paths
}

// slurmStep returns the job and step that Slurm's groups are named after: "" for
// none. The step may be a number, batch, extern or interactive.
func (c *cgroup) slurmStep() (job, step string) {
	if c == nil {
		return "", ""
	}
	for _, p := range c.paths {
		var j, s string
		for _, name := range strings.Split(p, "/") {
			if rest, ok := strings.CutPrefix(name, "job_"); ok && natural(rest) >= 0 {
				j, s = rest, ""
			} else if rest, ok := strings.CutPrefix(name, "step_"); ok && j != "" {
				s = rest
			}
		}
		// One controller may know the job only, another the step too.
		if len(s) > len(step) || job == "" {
			job, step = j, s
		}
	}
	return job, step
}

// gpuMinors returns the minor numbers of the GPUs that a v1 devices group
// allows; nil where it allows all, or cannot be read, as with v2.
func (c *cgroup) gpuMinors() []int {
	if c == nil {
		return nil
	}
	m := c.g.v1["devices"]
	if m == nil {
		return nil
	}
	dirs := m.at(c.paths["devices"])
	if len(dirs) == 0 {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(dirs[0], "devices.list"))
	if err != nil {
		return nil
	}
	var minors []int
	for _, l := range strings.Split(string(b), "\n") {
		f := strings.Fields(l)
		if len(f) < 2 {
			continue
		}
		major, minor, _ := strings.Cut(f[1], ":")
		if f[0] == "a" || major == "*" || major == nvidiaMajor && minor == "*" {
			return nil
		}
		if n := natural(minor); f[0] == "c" && major == nvidiaMajor && n >= 0 && n < nvidiaControl {
			minors = append(minors, n)
		}
	}
	slices.Sort(minors)
	return minors
}

// nvidiaMajor is the number of NVIDIA's devices; from nvidiaControl on minors
// are not GPUs.
const (
	nvidiaMajor   = "195"
	nvidiaControl = 254
)

// lookAgainAfter is after how many readings limits are looked for anew.
const lookAgainAfter = 30

// read returns what the group counts now; processes of one group share a
// reading.
func (c *cgroup) read(tick int64) *groupValues {
	if c == nil {
		return &nothing
	}
	if c.tick == tick {
		return &c.values
	}
	c.tick = tick
	if tick-c.resolved >= lookAgainAfter {
		c.resolve()
		c.resolved = tick
	}
	c.values = nothing
	c.readCPU()
	c.readMemory()
	c.readPressure()
	return &c.values
}

// hierarchy returns the directories of the group for a controller, its own
// first, and whether they are v2's.
func (c *cgroup) hierarchy(controller string) (dirs []string, v2 bool) {
	if m := c.g.v1[controller]; m != nil {
		if p, ok := c.paths[controller]; ok {
			return m.at(p), false
		}
	}
	if p, ok := c.paths[""]; ok && c.g.v2 != nil {
		return c.g.v2.at(p), true
	}
	return nil, false
}

// resolve finds out which of the groups from this one up set limits: those are
// the ones whose counters tell what the limits did.
func (c *cgroup) resolve() {
	if c.buf == nil {
		c.buf = make([]byte, 8<<10)
	}
	c.quotas, c.memory, c.limited, c.own, c.limit, c.pressure = nil, "", nil, "", absent, ""
	dirs, v2 := c.hierarchy("cpu")
	for _, d := range dirs {
		name := "cpu.cfs_quota_us"
		if v2 {
			name = "cpu.max"
		}
		first, _ := field(c.file(d, name))
		if number(first) != absent {
			c.quotas = append(c.quotas, d)
		}
	}
	dirs, c.v2memory = c.hierarchy("memory")
	for _, d := range dirs {
		name := "memory.limit_in_bytes"
		if c.v2memory {
			name = "memory.max"
		}
		first, _ := field(c.file(d, name))
		n := number(first)
		// What v1 says of no limit: the largest number of whole pages.
		if n == absent || n >= math.MaxInt64-64<<10 {
			continue
		}
		c.limited = append(c.limited, d)
		// Of two alike the outer is reached first: it has more in it.
		if c.limit == absent || n <= c.limit {
			c.limit, c.memory = n, d
		}
	}
	if len(dirs) > 0 {
		c.own = dirs[0]
		c.memory = cmp.Or(c.memory, c.own)
	}
	if c.g.v2 != nil && c.g.v1["memory"] == nil {
		if own := c.g.v2.at(c.paths[""]); len(own) > 0 {
			c.pressure = own[0]
		}
	}
}

// file returns a small file's text, empty where it cannot be read.
func (c *cgroup) file(dir, name string) []byte {
	b, err := readWhole(dir+"/"+name, c.buf)
	if err != nil {
		return nil
	}
	return b
}

// sum adds a number to another; absent ones count as nothing.
func sum(to *int64, n int64) {
	if n < 0 {
		return
	}
	*to = max(*to, 0) + n
}

func (c *cgroup) readCPU() {
	v := &c.values
	for _, d := range c.quotas {
		b := c.file(d, "cpu.stat")
		sum(&v.periods, lookup(b, "nr_periods"))
		sum(&v.throttled, lookup(b, "nr_throttled"))
		if n := lookup(b, "throttled_usec"); n != absent {
			sum(&v.throttledTime, times(n, 1000))
		} else {
			sum(&v.throttledTime, lookup(b, "throttled_time"))
		}
	}
}

func (c *cgroup) readMemory() {
	if c.memory == "" {
		return
	}
	v := &c.values
	v.limit = c.limit
	one := func(dir, name string) int64 {
		f, _ := field(c.file(dir, name))
		return number(f)
	}
	if c.v2memory {
		v.memory = one(c.memory, "memory.current")
		v.kills = lookup(c.file(c.own, "memory.events"), "oom_kill")
	} else {
		v.memory = one(c.memory, "memory.usage_in_bytes")
		v.kills = lookup(c.file(c.own, "memory.oom_control"), "oom_kill")
	}
	// What runs into a limit is counted where the limit is. A group without
	// one never does.
	if len(c.limited) == 0 && v.memory != absent {
		v.hits = 0
	}
	for _, d := range c.limited {
		if !c.v2memory {
			sum(&v.hits, one(d, "memory.failcnt"))
		} else if n := lookup(c.file(d, "memory.events.local"), "max"); n != absent {
			sum(&v.hits, n)
		} else { // before Linux 5.2; it counts the groups below too
			sum(&v.hits, lookup(c.file(d, "memory.events"), "max"))
		}
	}
}

func (c *cgroup) readPressure() {
	if c.pressure == "" {
		return
	}
	v := &c.values
	v.cpuSome = stalled(c.file(c.pressure, "cpu.pressure"), "some")
	b := c.file(c.pressure, "memory.pressure")
	v.memSome, v.memFull = stalled(b, "some"), stalled(b, "full")
	b = c.file(c.pressure, "io.pressure")
	v.ioSome, v.ioFull = stalled(b, "some"), stalled(b, "full")
}

// group stores what was read of the process's group. A limit that is not set is
// no limit, which is said once for all processes.
func (r row) group(v *groupValues) {
	for _, c := range []struct {
		col   int
		n     int64
		limit bool
	}{
		{table.RankPeriods, v.periods, true},
		{table.RankThrottled, v.throttled, true},
		{table.RankThrottledTime, v.throttledTime, true},
		{table.RankMemory, v.memory, false},
		{table.RankMemoryLimit, v.limit, true},
		{table.RankMemoryHits, v.hits, false},
		{table.RankOOMKills, v.kills, false},
		{table.RankPSICPUSome, v.cpuSome, false},
		{table.RankPSIMemSome, v.memSome, false},
		{table.RankPSIMemFull, v.memFull, false},
		{table.RankPSIIOSome, v.ioSome, false},
		{table.RankPSIIOFull, v.ioFull, false},
	} {
		switch {
		case c.n != absent && c.n >= 0:
			r.Int(c.col, c.n)
			r.there(c.col)
		case c.limit || r.t.never(c.col):
		default:
			r.gap(c.col, rankagent.NotFound, "the process's cgroup is not known, or has no such file")
		}
	}
}
