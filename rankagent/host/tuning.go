package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
)

// HugePages is what the kernel keeps of large pages.
type HugePages struct {
	SizeBytes int64  `yaml:"size_bytes,omitempty"`
	Total     *int64 `yaml:"total,omitempty"`
	Free      *int64 `yaml:"free,omitempty"`
	// Transparent and Defrag are the settings in force: always, madvise,
	// never and their like.
	Transparent string `yaml:"transparent,omitempty"`
	Defrag      string `yaml:"transparent_defrag,omitempty"`
}

// Tuning are settings of the kernel that steer memory and scheduling.
type Tuning struct {
	HugePages HugePages `yaml:"hugepages"`
	// Sysctl has the kernel's settings by their name.
	Sysctl map[string]string `yaml:"sysctl,omitempty"`
	// Interrupts says which CPUs serve which devices.
	Interrupts []Interrupts `yaml:"interrupts,omitempty"`
}

// Interrupts are those of one device, or of one kind of a device's queues.
type Interrupts struct {
	Name  string `yaml:"name"`
	Count int    `yaml:"count"`
	CPUs  string `yaml:"cpus"`
}

// sysctls are the settings that explain a slow host.
var sysctls = []string{
	"kernel/numa_balancing", "kernel/sched_autogroup_enabled", "kernel/task_delayacct",
	"vm/swappiness", "vm/overcommit_memory", "vm/zone_reclaim_mode", "vm/dirty_ratio",
}

const (
	// maxIRQs bounds the files that are read, maxDevices what is kept.
	maxIRQs, maxDevices = 8192, 64
)

func (r *factReader) tuning() {
	t := &r.facts.Tuning
	r.hugePages(&t.HugePages)
	t.Sysctl = map[string]string{}
	for _, name := range sysctls {
		// One that is not there is a kernel without the feature.
		if s, err := firstLine(r.proc("sys/" + name)); err == nil {
			t.Sysctl[strings.ReplaceAll(name, "/", ".")] = s
		} else if !errors.Is(err, fs.ErrNotExist) {
			r.missing("tuning.sysctl."+name, err)
		}
	}
	t.Interrupts = r.interrupts()
}

func (r *factReader) hugePages(h *HugePages) {
	f := file{path: r.proc("meminfo")}
	if text, err := f.read(); err == nil {
		for {
			l, rest, ok := line(text)
			if !ok {
				break
			}
			text = rest
			key, l := field(l)
			switch string(key) {
			case "HugePages_Total:":
				h.Total = count(l)
			case "HugePages_Free:":
				h.Free = count(l)
			case "Hugepagesize:":
				if v := kilobytes(l); v.ok() {
					h.SizeBytes = v.n
				}
			}
		}
	}
	h.Transparent = r.chosen("tuning.hugepages.transparent", "kernel/mm/transparent_hugepage/enabled")
	h.Defrag = r.chosen("tuning.hugepages.transparent_defrag", "kernel/mm/transparent_hugepage/defrag")
}

func count(l []byte) *int64 {
	f, _ := field(l)
	if v := number(f); v.ok() {
		return &v.n
	}
	return nil
}

// chosen returns the word in brackets of a setting such as "always [madvise]
// never".
func (r *factReader) chosen(fact, name string) string {
	s, err := firstLine(r.sys(name))
	if err != nil {
		r.missing(fact, err)
		return ""
	}
	if _, rest, ok := strings.Cut(s, "["); ok {
		if word, _, ok := strings.Cut(rest, "]"); ok {
			return word
		}
	}
	r.missing(fact, fmt.Errorf("%s: %w", name, errEmpty))
	return ""
}

// interrupts sums up which CPUs serve the interrupts of which devices.
func (r *factReader) interrupts() []Interrupts {
	entries, err := os.ReadDir(r.sys("kernel/irq"))
	if err != nil {
		r.missing("tuning.interrupts", err)
		return nil
	}
	counts, cpus := map[string]int{}, map[string]cpuList{}
	for i, e := range entries {
		if i >= maxIRQs {
			break
		}
		actions, err := firstLine(r.sys("kernel/irq/" + e.Name() + "/actions"))
		if err != nil {
			continue // nobody uses it
		}
		list, err := firstLine(r.proc("irq/" + e.Name() + "/effective_affinity_list"))
		if err != nil {
			list, err = firstLine(r.proc("irq/" + e.Name() + "/smp_affinity_list"))
		}
		if err != nil {
			continue
		}
		name := deviceOf(actions)
		counts[name]++
		cpus[name] = cpus[name].with(list)
	}
	all := []Interrupts{}
	for name, n := range counts {
		all = append(all, Interrupts{Name: clean(name), Count: n, CPUs: cpus[name].String()})
	}
	slices.SortFunc(all, func(a, b Interrupts) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), maxDevices)]
}

// deviceOf takes the number of a queue off the name of its interrupt:
// mlx5_comp12@pci:0000:18:00.0, nvme0q3, eth0-TxRx-7.
func deviceOf(actions string) string {
	name, where, at := strings.Cut(actions, "@")
	name = strings.TrimRight(name, "0123456789")
	if at {
		return name + "@" + where
	}
	return strings.TrimRight(name, "-")
}

// cpuList is a set of CPUs, a bit for each.
type cpuList []uint64

// with adds a list such as 0-3,8; what is none adds nothing.
func (c cpuList) with(list string) cpuList {
	for _, item := range strings.Split(list, ",") {
		lo, hi, ranged := strings.Cut(item, "-")
		if !ranged {
			hi = lo
		}
		from, err1 := strconv.ParseUint(lo, 10, 16)
		to, err2 := strconv.ParseUint(hi, 10, 16)
		if err1 != nil || err2 != nil {
			continue
		}
		for i := from; i <= to; i++ {
			for i/64 >= uint64(len(c)) {
				c = append(c, 0)
			}
			c[i/64] |= 1 << (i % 64)
		}
	}
	return c
}

func (c cpuList) has(i int) bool { return i/64 < len(c) && c[i/64]>>(i%64)&1 == 1 }

// String is the set as a list.
func (c cpuList) String() string {
	n := 0
	for _, w := range c {
		n += bits.OnesCount64(w)
	}
	items := make([]string, 0, n)
	for i := 0; i < len(c)*64; i++ {
		if !c.has(i) {
			continue
		}
		first := i
		for c.has(i + 1) {
			i++
		}
		item := strconv.Itoa(first)
		if i > first {
			item += "-" + strconv.Itoa(i)
		}
		items = append(items, item)
	}
	return strings.Join(items, ",")
}
