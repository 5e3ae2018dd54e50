package host

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/rankagent"
)

// Facts is what stays the same on a node while a job runs. A fact that could
// not be had is left empty and listed in Missing.
type Facts struct {
	Hostname string `yaml:"hostname,omitempty"`
	Kernel   string `yaml:"kernel,omitempty"`
	OS       string `yaml:"os,omitempty"`
	BootID   string `yaml:"boot_id,omitempty"`
	// MachineID tells machines apart without giving away /etc/machine-id,
	// of which it is a keyed hash.
	MachineID   string            `yaml:"machine_id_hash,omitempty"`
	CPU         CPU               `yaml:"cpu"`
	MemoryBytes int64             `yaml:"memory_bytes,omitempty"`
	NUMA        []NUMANode        `yaml:"numa,omitempty"`
	Clocksource Clocksource       `yaml:"clocksource"`
	Cgroup      Cgroup            `yaml:"cgroup"`
	Tuning      Tuning            `yaml:"tuning"`
	Environment map[string]string `yaml:"environment,omitempty"`
	Missing     []Missing         `yaml:"missing,omitempty"`
}

// CPU describes the node's processors, as far as they are online.
type CPU struct {
	Model   string `yaml:"model,omitempty"`
	Sockets int    `yaml:"sockets,omitempty"`
	Cores   int    `yaml:"cores,omitempty"`
	Threads int    `yaml:"threads,omitempty"`
	Online  string `yaml:"online,omitempty"` // a list such as "0-63,128-191"
	// SMT is the kernel's word for it: on, off, forceoff, notsupported.
	SMT string `yaml:"smt,omitempty"`
	// Governors are the frequency governors in use, usually one; none
	// where the kernel does not govern the frequency.
	Governors []string `yaml:"governors,omitempty"`
}

// NUMANode is one memory node; one of memory only has no CPUs.
type NUMANode struct {
	Node        int    `yaml:"node"`
	CPUs        string `yaml:"cpus,omitempty"`
	MemoryBytes int64  `yaml:"memory_bytes,omitempty"`
}

// Clocksource is the hardware counter behind the kernel's clocks.
type Clocksource struct {
	Current   string   `yaml:"current,omitempty"`
	Available []string `yaml:"available,omitempty,flow"`
}

// Missing says why a fact is not there.
type Missing struct {
	Fact   string           `yaml:"fact"`
	Reason rankagent.Reason `yaml:"reason"`
	Detail string           `yaml:"detail"`
}

// NodeFacts reads the node's facts. It takes some milliseconds and may be
// called at any time; it never fails as a whole.
func NodeFacts(opts Options) Facts {
	r := &factReader{opts: opts.withDefaults()}
	f := &r.facts
	f.Hostname = r.text("hostname", r.proc("sys/kernel/hostname"))
	f.Kernel = r.text("kernel", r.proc("sys/kernel/osrelease"))
	f.BootID = r.text("boot_id", r.proc("sys/kernel/random/boot_id"))
	f.OS = r.osName()
	if id := r.text("machine_id_hash", filepath.Join(r.opts.EtcRoot, "machine-id")); id != "" {
		f.MachineID = hashMachineID(id)
	}
	r.cpu()
	r.memory()
	r.clocksource()
	f.Cgroup = r.cgroup()
	r.tuning()
	f.Environment = environment(r.opts.Environ)
	return *f
}

// hashMachineID follows machine-id(5), which asks that the identifier itself
// be kept private and a hash keyed with it be used.
func hashMachineID(id string) string {
	mac := hmac.New(sha256.New, []byte(id))
	mac.Write([]byte("gswarm"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

type factReader struct {
	opts  Options
	facts Facts
}

func (r *factReader) proc(name string) string { return filepath.Join(r.opts.ProcRoot, name) }
func (r *factReader) sys(name string) string  { return filepath.Join(r.opts.SysRoot, name) }

// missing notes why a fact is not there.
func (r *factReader) missing(fact string, err error) {
	r.facts.Missing = append(r.facts.Missing, Missing{Fact: fact, Reason: reason(err), Detail: clean(err.Error())})
}

// text returns the first line of a small file.
func (r *factReader) text(fact, path string) string {
	s, err := firstLine(path)
	if err != nil {
		r.missing(fact, err)
	}
	return s
}

// errEmpty is for a file without text where some is due.
var errEmpty = errors.New("the file has no such text")

// firstLine returns the first line of a small file, which must have one.
func firstLine(path string) (string, error) {
	b, err := head(path)
	if err != nil {
		return "", err
	}
	l, _, _ := strings.Cut(string(b), "\n")
	if l = clean(l); l == "" {
		return "", fmt.Errorf("%s: %w", path, errEmpty)
	}
	return l, nil
}

// head returns the first page of a file.
func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

// maxText is the most of a text that is kept.
const maxText = 4096

// clean makes a text fit for a YAML scalar on one line.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
	return strings.TrimSpace(s)
}

// lookup returns what follows the first of the lines that has one of the
// names before a separator.
func lookup(text []byte, sep string, names ...string) string {
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		name, v, ok := strings.Cut(s.Text(), sep)
		if ok && slices.Contains(names, strings.TrimSpace(name)) {
			return clean(v)
		}
	}
	return ""
}

func (r *factReader) osName() string {
	path := filepath.Join(r.opts.EtcRoot, "os-release")
	b, err := head(path)
	if err == nil {
		if name := strings.Trim(lookup(b, "=", "PRETTY_NAME"), `"'`); name != "" {
			return name
		}
		err = fmt.Errorf("%s: %w", path, errEmpty)
	}
	r.missing("os", err)
	return ""
}

func (r *factReader) cpu() {
	c := &r.facts.CPU
	c.Model = r.cpuModel()
	c.Online = r.text("cpu.online", r.sys("devices/system/cpu/online"))
	c.SMT = r.text("cpu.smt", r.sys("devices/system/cpu/smt/control"))
	governors := map[string]bool{}
	// One file for each policy; procfs would read a dozen more of them.
	paths, _ := filepath.Glob(r.sys("devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor")) // the pattern is a good one
	for _, p := range paths {
		if g, err := firstLine(p); err == nil {
			governors[g] = true
		}
	}
	c.Governors = slices.Sorted(maps.Keys(governors))
	r.topology()
}

// cpuModel reads the first page only: on a large machine the whole of cpuinfo
// asks every CPU for its frequency, which the job would feel.
func (r *factReader) cpuModel() string {
	path := r.proc("cpuinfo")
	b, err := head(path)
	if err != nil {
		r.missing("cpu.model", err)
		return ""
	}
	if m := lookup(b, ":", "model name", "cpu", "Model"); m != "" {
		return m
	}
	// Arm cores say only who designed them and which.
	if imp, part := lookup(b, ":", "CPU implementer"), lookup(b, ":", "CPU part"); imp != "" && part != "" {
		return "implementer " + imp + " part " + part
	}
	r.missing("cpu.model", fmt.Errorf("%s: %w", path, errEmpty))
	return ""
}

// topology counts sockets, cores and threads of the CPUs that are online. The
// lists of siblings tell them apart: the ids of cores and packages are unique
// neither across dies nor on all architectures.
func (r *factReader) topology() {
	dirs, _ := filepath.Glob(r.sys("devices/system/cpu/cpu[0-9]*/topology")) // the pattern is a good one
	sockets, cores := map[string]bool{}, map[string]bool{}
	err := fmt.Errorf("%s: %w", r.sys("devices/system/cpu"), fs.ErrNotExist)
	for _, dir := range dirs {
		socket, serr := firstLine(filepath.Join(dir, "core_siblings_list"))
		core, cerr := firstLine(filepath.Join(dir, "thread_siblings_list"))
		if serr != nil || cerr != nil {
			err = errors.Join(serr, cerr)
			continue
		}
		r.facts.CPU.Threads++
		sockets[socket], cores[core] = true, true
	}
	r.facts.CPU.Sockets, r.facts.CPU.Cores = len(sockets), len(cores)
	if r.facts.CPU.Threads == 0 {
		r.missing("cpu.threads", err)
	}
}

// memory reads the node's memory as a whole and by NUMA node.
func (r *factReader) memory() {
	f := file{path: r.proc("meminfo")}
	text, err := f.read()
	if err == nil {
		if total := parseMeminfo(text).total; total.ok() {
			r.facts.MemoryBytes = total.n
		} else {
			err = fmt.Errorf("%s: %w", f.path, errEmpty)
		}
	}
	if err != nil {
		r.missing("memory_bytes", err)
	}

	dirs, _ := filepath.Glob(r.sys("devices/system/node/node[0-9]*")) // the pattern is a good one
	for _, dir := range dirs {
		name := filepath.Base(dir)
		n, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil {
			continue
		}
		node := NUMANode{Node: n}
		if b, err := head(filepath.Join(dir, "cpulist")); err != nil {
			r.missing("numa."+name+".cpus", err)
		} else {
			node.CPUs = clean(string(b))
		}
		b, err := head(filepath.Join(dir, "meminfo"))
		if err == nil {
			if v := kilobytes([]byte(lookup(b, ":", fmt.Sprintf("Node %d MemTotal", n)))); v.ok() {
				node.MemoryBytes = v.n
			} else {
				err = fmt.Errorf("%s: %w", filepath.Join(dir, "meminfo"), errEmpty)
			}
		}
		if err != nil {
			r.missing("numa."+name+".memory_bytes", err)
		}
		r.facts.NUMA = append(r.facts.NUMA, node)
	}
	slices.SortFunc(r.facts.NUMA, func(a, b NUMANode) int { return a.Node - b.Node })
	if len(dirs) == 0 {
		r.missing("numa", fmt.Errorf("%s: %w", r.sys("devices/system/node"), fs.ErrNotExist))
	}
}

func (r *factReader) clocksource() {
	c := &r.facts.Clocksource
	const dir = "devices/system/clocksource/clocksource0"
	c.Current = r.text("clocksource.current", r.sys(dir+"/current_clocksource"))
	c.Available = strings.Fields(r.text("clocksource.available", r.sys(dir+"/available_clocksource")))
}
