package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Cgroup is the control group that the agent runs in, with the limits that it
// and all groups above it set. A limit that is nil either does not exist or is
// listed in Facts.Missing.
type Cgroup struct {
	// Version is v1, v2, or hybrid where both are mounted.
	Version string `yaml:"version,omitempty"`
	// Paths has the group's path for each controller that is asked for its
	// limits; with v2 they are the same.
	Paths map[string]string `yaml:"paths,omitempty"`
	// CPUs that the group may use, as a list such as "0-7".
	CPUs string `yaml:"cpus,omitempty"`
	// QuotaCPUs is how many CPUs' worth of time the group may use.
	QuotaCPUs *float64 `yaml:"quota_cpus,omitempty"`
	// MemoryBytes is how much memory the group may use.
	MemoryBytes *int64 `yaml:"memory_bytes,omitempty"`
}

// group is one controller's directory of the own cgroup.
type group struct {
	v2         bool
	mount, dir string // dir is mount or below it
}

// up returns the directories from the group's own to its hierarchy's root.
func (g group) up() []string {
	dirs := []string{g.dir}
	for d := g.dir; len(d) > len(g.mount); {
		d = filepath.Dir(d)
		dirs = append(dirs, d)
	}
	return dirs
}

func (r *factReader) cgroup() Cgroup {
	var c Cgroup
	groups, err := r.groups(&c)
	if err != nil {
		r.missing("cgroup", err)
		return c
	}
	if g, ok := groups["cpuset"]; ok {
		c.CPUs = r.cpuset(g)
	}
	if g, ok := groups["cpu"]; ok {
		c.QuotaCPUs = r.quota(g)
	}
	if g, ok := groups["memory"]; ok {
		c.MemoryBytes = r.memoryLimit(g)
	}
	return c
}

// controllers are those whose limits matter to a job.
var controllers = []string{"cpu", "cpuset", "memory"}

// groups finds the directory of the own cgroup for each controller.
func (r *factReader) groups(c *Cgroup) (map[string]group, error) {
	proc, err := procfs.NewFS(r.opts.ProcRoot)
	if err != nil {
		return nil, err
	}
	self, err := proc.Self()
	if err != nil {
		return nil, err
	}
	own, err := self.Cgroups()
	if err != nil {
		return nil, err
	}
	mounts, err := proc.GetMounts()
	if err != nil {
		return nil, err
	}

	var v1, v2 bool
	groups := map[string]group{}
	c.Paths = map[string]string{}
	// v1 first: in a hybrid a controller belongs to one of the two.
	for _, version := range []string{"cgroup", "cgroup2"} {
		for _, m := range mounts {
			if m.FSType != version {
				continue
			}
			is2 := version == "cgroup2"
			v1, v2 = v1 || !is2, v2 || is2
			for _, name := range controllers {
				if _, found := groups[name]; found {
					continue
				}
				if _, has := m.SuperOptions[name]; !is2 && !has {
					continue
				}
				i := slices.IndexFunc(own, func(o procfs.Cgroup) bool {
					return is2 && o.HierarchyID == 0 || !is2 && slices.Contains(o.Controllers, name)
				})
				if i < 0 {
					continue
				}
				g := group{v2: is2, mount: r.mountPoint(m.MountPoint)}
				g.dir = filepath.Join(g.mount, below(m.Root, own[i].Path))
				c.Paths[name] = clean(own[i].Path)
				if _, err := os.Stat(g.dir); err != nil {
					r.missing("cgroup."+name, err)
					continue
				}
				groups[name] = g
			}
		}
	}
	switch {
	case v1 && v2:
		c.Version = "hybrid"
	case v2:
		c.Version = "v2"
	case v1:
		c.Version = "v1"
	default:
		return nil, fmt.Errorf("mounts of cgroup: %w", fs.ErrNotExist)
	}
	return groups, nil
}

// mountPoint returns where a mount of the kernel's tree is found here.
func (r *factReader) mountPoint(p string) string {
	if rest, ok := strings.CutPrefix(p, "/sys/"); ok {
		return r.sys(rest)
	}
	return p
}

// below returns the path of a cgroup relative to the one that is the mount's
// root; in a container a group outside of what is mounted counts as the root.
func below(root, p string) string {
	if root == "/" {
		return path.Clean("/" + p)
	}
	rest, ok := strings.CutPrefix(p, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "/"
	}
	return path.Clean("/" + rest)
}

func (r *factReader) cpuset(g group) string {
	names := []string{"cpuset.effective_cpus", "cpuset.cpus"}
	if g.v2 {
		names = []string{"cpuset.cpus.effective"}
	}
	var first error
	for _, dir := range g.up() {
		for _, name := range names {
			s, err := firstLine(filepath.Join(dir, name))
			if err == nil {
				return s
			}
			if first == nil {
				first = err
			}
		}
	}
	r.missing("cgroup.cpus", first)
	return ""
}

// quota returns the tightest quota from the group up.
func (r *factReader) quota(g group) *float64 {
	var least *float64
	for _, dir := range g.up() {
		quota, period := "", ""
		var err error
		if g.v2 {
			var s string
			s, err = firstLine(filepath.Join(dir, "cpu.max"))
			quota, period, _ = strings.Cut(s, " ")
		} else {
			quota, err = firstLine(filepath.Join(dir, "cpu.cfs_quota_us"))
			if err == nil {
				period, err = firstLine(filepath.Join(dir, "cpu.cfs_period_us"))
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // a hierarchy's root, or a group without the controller, sets no limit
		}
		if err != nil {
			r.missing("cgroup.quota_cpus", err)
			continue
		}
		if quota == "max" || quota == "-1" {
			continue
		}
		q, p := number([]byte(quota)), number([]byte(period))
		if !q.ok() || !p.ok() || p.n == 0 {
			r.missing("cgroup.quota_cpus", fmt.Errorf("%s: quota %q, period %q", dir, quota, period))
			continue
		}
		if cpus := float64(q.n) / float64(p.n); least == nil || cpus < *least {
			least = &cpus
		}
	}
	return least
}

// noLimit is what v1 says of memory without a limit: the largest number of
// bytes in whole pages. Pages have up to 64 KiB.
const noLimit = math.MaxInt64 - 64<<10

// memoryLimit returns the tightest limit from the group up.
func (r *factReader) memoryLimit(g group) *int64 {
	name := "memory.limit_in_bytes"
	if g.v2 {
		name = "memory.max"
	}
	var least *int64
	for _, dir := range g.up() {
		s, err := firstLine(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			r.missing("cgroup.memory_bytes", err)
			continue
		}
		if s == "max" {
			continue
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			r.missing("cgroup.memory_bytes", fmt.Errorf("%s: limit %q", dir, s))
			continue
		}
		if n < noLimit && (least == nil || n < *least) {
			least = &n
		}
	}
	return least
}
